"""Trains the two models of the demo on a synthetic credit table and exports them to ONNX.

    overturn synth --rows 120000 --seed 1 out/train
    python jobs/demo/train_models.py out/train

made the committed forest.onnx, forest.joblib and logistic.onnx, with the package versions pinned in
tests/requirements.txt. The same command makes them again; nothing is random but what is seeded. A joblib
file is bound to the scikit-learn version that wrote it: after an upgrade of the pins, run this again.

Both models are scikit-learn pipelines: numbers as 32-bit floats, nulls filled with the median,
categories one-hot (a null or unknown category is a row of zeros). In ONNX each column is an input of
its own, under its own name: numbers as float tensors, categories as text.

The forest is served two ways, by ONNX Runtime and by scikit-learn in a program of its own, and both have
to decide every row alike. That is not free: thresholds and probabilities are 64-bit in scikit-learn and
32-bit in ONNX, so a value close to a threshold, or a vote close to one half, could go either way. See
`snap_thresholds` and `snap_votes` for how this is ruled out rather than hoped for.
"""

import argparse
from pathlib import Path

import joblib
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pyarrow.dataset
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

LABEL = "approved"
# In the order of schemas/credit.toml.
NUMERICS = [
    "age", "income", "debt", "savings", "loan_amount", "loan_term_months",
    "credit_history_months", "late_payments", "open_accounts",
]
CATEGORICALS = [
    "employment", "housing", "education", "purpose", "marital_status", "sex", "region",
]
FEATURES = NUMERICS + CATEGORICALS

TREES = 50
# Votes are whole thousandths.
VOTE_STEPS = 1000
HELD_OUT_ROWS = 20_000
# Every this many'th held-out row gets a null in each column in turn, to see that both ways agree on it.
NULL_EVERY = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", help="Parquet file or folder made by `overturn synth`")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where to put the models")
    arguments = parser.parse_args()

    rows = pyarrow.dataset.dataset(arguments.table, format="parquet").to_table().to_pandas()
    rows = rows.sort_values("application_id")
    train, held_out = rows[:-HELD_OUT_ROWS], rows[-HELD_OUT_ROWS:]
    print(f"{len(train)} rows to train on, {len(held_out)} held out, "
          f"{(rows[LABEL] == 'approved').mean():.1%} approved")

    forest = pipeline(
        RandomForestClassifier(
            n_estimators=TREES, max_features=0.6, random_state=1, n_jobs=-1,
            # Keeps the ONNX file near one megabyte; deeper trees are hardly better.
            max_depth=12, min_samples_leaf=100,
        ),
        scaled=False,
    ).fit(train[FEATURES], train[LABEL])
    for number, tree in enumerate(forest["model"].estimators_):
        snap_thresholds(tree.tree_)
        snap_votes(tree.tree_, number)
    # Joblib stores the setting; a scorer runs many workers with one thread each.
    forest["model"].set_params(n_jobs=1)
    export(forest, "forest", arguments.out)
    joblib.dump(forest, arguments.out / "forest.joblib", compress=3)
    check(joblib.load(arguments.out / "forest.joblib"), "forest", arguments.out, held_out)

    logistic = pipeline(LogisticRegression(max_iter=1000), scaled=True)
    logistic.fit(train[FEATURES], train[LABEL])
    export(logistic, "logistic", arguments.out)
    check(logistic, "logistic", arguments.out, held_out)


def pipeline(model, scaled):
    """Columns by name to a matrix of 32-bit floats to a decision. Made of library parts only, so that a
    program that loads it needs no code of ours."""
    # ONNX gets 32-bit floats, so that is what thresholds and means have to be learnt from.
    narrow = FunctionTransformer(
        pd.DataFrame.astype, kw_args={"dtype": dict.fromkeys(NUMERICS, "float32")}
    )
    numeric = [("impute", SimpleImputer(strategy="median"))]
    if scaled:
        numeric.append(("scale", StandardScaler()))
    # One encoder per column: in ONNX, one encoder for all would first paste the text columns together.
    encoders = [
        (name, OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float32), [name])
        for name in CATEGORICALS
    ]
    columns = ColumnTransformer([("numeric", Pipeline(numeric), NUMERICS), *encoders], sparse_threshold=0)
    return Pipeline([("narrow", narrow), ("columns", columns), ("model", model)])


def snap_thresholds(tree):
    """Rounds thresholds down to 32-bit floats. For a 32-bit x, `x <= threshold` is as before, and ONNX
    can hold the threshold as it is."""
    inner = tree.children_left != tree.children_right
    exact = tree.threshold[inner]
    rounded = exact.astype(np.float32)
    above = rounded.astype(np.float64) > exact
    rounded[above] = np.nextafter(rounded[above], np.float32(-np.inf))
    tree.threshold[inner] = rounded


def snap_votes(tree, number):
    """Rounds the probabilities of the leaves to whole steps, and those of the first tree to the middle of
    a step. The mean vote of the forest is then never nearer to one half than 0.5 / VOTE_STEPS / TREES =
    1e-5, many times what 32-bit sums can lose, so that both ways come to the same side of it."""
    approved = np.round(tree.value[:, 0, 0] * VOTE_STEPS)
    if number == 0:
        approved = np.minimum(approved, VOTE_STEPS - 1) + 0.5
    tree.value[:, 0, 0] = approved / VOTE_STEPS
    tree.value[:, 0, 1] = 1 - approved / VOTE_STEPS


def export(fitted, name, folder):
    inputs = [(column, FloatTensorType([None, 1])) for column in NUMERICS]
    inputs += [(column, StringTensorType([None, 1])) for column in CATEGORICALS]
    # Without its first step: ONNX gets its numbers as 32-bit floats.
    model = to_onnx(
        fitted[1:], initial_types=inputs, options={"zipmap": False},
        target_opset={"": 21, "ai.onnx.ml": 3}, name=name,
    )
    model.doc_string = f"Demo {name} on the synthetic credit table, see jobs/demo/train_models.py"
    onnx.checker.check_model(model)
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())


def check(fitted, name, folder, held_out):
    """Both ways must decide every held-out row alike, nulls included."""
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
    for what, rows in [("as they are", held_out), ("with nulls", with_nulls(held_out))]:
        labels, probabilities = session.run(None, onnx_inputs(rows))
        expected = fitted.predict(rows[FEATURES])
        differing = int((labels != expected).sum())
        gap = np.abs(probabilities - fitted.predict_proba(rows[FEATURES])).max()
        accuracy = (labels == rows[LABEL].to_numpy()).mean()
        size = (folder / f"{name}.onnx").stat().st_size
        print(f"{name}, rows {what}: accuracy {accuracy:.4f}, {differing} labels differ, "
              f"probabilities by at most {gap:.1e}, {size} bytes of ONNX")
        assert differing == 0, "ONNX and scikit-learn decide differently"
        assert gap < 1e-5, "ONNX and scikit-learn give different probabilities"


def with_nulls(rows):
    rows = rows.copy()
    for number, column in enumerate(FEATURES):
        place = np.arange(len(rows)) % NULL_EVERY == number % NULL_EVERY
        rows[column] = rows[column].astype(object).mask(place, None)
        if column in NUMERICS:
            rows[column] = rows[column].astype(float)
    return rows


def onnx_inputs(rows):
    """As overturn feeds a model: a null number as NaN, a null text as empty."""
    inputs = {column: rows[[column]].to_numpy(np.float32) for column in NUMERICS}
    for column in CATEGORICALS:
        text = rows[[column]].astype(object)
        inputs[column] = text.where(pd.notna(text), "").to_numpy(object)
    return inputs


if __name__ == "__main__":
    main()
