"""Real classifiers on real data: does ONNX, through overturn, decide every row as the library does?

    real_data.py prepare DATA_FOLDER DATASET MODEL OUT_FOLDER
    real_data.py compare OUT_FOLDER

`prepare` trains a classifier with the hyper-parameters of the paper's appendix on the rows of the split
`train`, and writes model.onnx, schema.toml, job.toml and expected.parquet (key and label of every row in
scope, as the training library itself predicts them, and probabilities where it has them). It prints one
line of JSON: rows, accuracies, and by how much the least sure row was decided.

After `overturn score OUT_FOLDER/job.toml`, `compare` holds OUT_FOLDER/out against expected.parquet, prints
one line, and ends with code 1 unless every key is there once with the same label, and probabilities are
within 1e-5.

No label may differ, so the exports must compute what the library computes, not roughly the same:

- scikit-learn computes in 64 bits, and so does an export whose classifier gets double: a multiplication of
  matrices instead of ONNX's 32-bit linear classifier, and trees with double thresholds and votes. Hence
  `CastTransformer`. It matters where votes come to a draw: of the 58,101 rows of covertype the forest
  decides 15 by the order of the classes, one of them otherwise if votes are 32 bits.
- Inputs are double for linear models. For trees they are float, for scikit-learn's own narrow them first.
- XGBoost is 32 bits throughout.
- Scaling is for the linear models only: it leaves the order of values as it is, so trees gain nothing from
  it, but its rounding could put a value on the other side of a threshold.

generator_job.py imports this module for the same classifiers. Import it before numpy: it sets how many
threads linear algebra gets.
"""

import json
import os
import sys
import warnings
from pathlib import Path

import duckdb

if __name__ != "__main__" or sys.argv[1:2] != ["compare"]:
    # Threads of linear algebra that wait for a busy core make training ten times as long.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # Comparing needs none of these, and they take seconds to load.
    import numpy
    import onnx
    import pandas
    import xgboost
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import to_onnx, update_registered_converter
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
    from skl2onnx.sklapi import CastTransformer
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier
    from sklearn.utils.class_weight import compute_sample_weight

KEY = "row_id"
SEED = 0
LINEAR = {"lr", "lsvc"}
# The paper's appendix on tabular classifiers; what it leaves out has the library's default.
SETTINGS = {
    "adult": {
        "lr": {"C": 10},
        "dt": {"max_depth": 10, "min_samples_split": 5},
        "rf": {"max_depth": 15, "min_samples_split": 10, "n_estimators": 50},
        "lsvc": {"C": 1},
        "xgb": {"min_child_weight": 0.5, "max_depth": 3, "gamma": 0.2},
    },
    "breast_cancer": {
        "lr": {"C": 0.1},
        "dt": {"max_depth": 3, "min_samples_split": 4},
        "rf": {"max_depth": 4, "min_samples_split": 4, "n_estimators": 50},
        "lsvc": {"C": 0.01},
        "xgb": {"min_child_weight": 0.1, "max_depth": 3, "gamma": 0},
    },
    "covertype": {
        "lr": {"C": 100},
        "dt": {"max_depth": 25, "min_samples_split": 3},
        "rf": {"max_depth": 25, "n_estimators": 50},
        "lsvc": {"C": 10},
        "xgb": {"min_child_weight": 0.1, "max_depth": 20, "gamma": 0},
    },
    "bank": {
        "lr": {"C": 10},
        "dt": {"max_depth": 25},
        "rf": {"max_depth": 25, "min_samples_split": 3, "n_estimators": 50},
        "lsvc": {"C": 100},
        "xgb": {"min_child_weight": 5.0, "max_depth": 4, "gamma": 0.01},
    },
    "spambase": {
        "lr": {"C": 0.1},
        "dt": {"max_depth": 10, "min_samples_split": 3},
        "rf": {"max_depth": 20, "min_samples_split": 4, "n_estimators": 50},
        "lsvc": {"C": 0.01},
        "xgb": {"min_child_weight": 1.0, "max_depth": 20, "gamma": 0.1},
    },
}
# Sets with rare classes, for which the paper weighs rows inversely to the frequency of their class.
BALANCED = {"bank", "covertype"}
# Probabilities are given out in 32 bits, and exponentials are not the same in every library.
LARGEST_GAP = 1e-5


class Case:
    """A data set and a kind of model."""

    def __init__(self, folder, dataset, model):
        if dataset not in SETTINGS or model not in SETTINGS[dataset]:
            known = f"one of {', '.join(SETTINGS)}, and one of {', '.join(SETTINGS['adult'])}"
            sys.exit(f"error: found `{dataset}` and `{model}`, expected {known}")
        self.name, self.model = dataset, model
        self.settings = SETTINGS[dataset][model]
        self.about = json.loads((folder / "schema.json").read_text())["datasets"][dataset]
        self.table = folder / self.about["file"]
        self.numerics, self.categories = self.about["numerical"], self.about["categorical"]
        self.predicate = self.about.get("subset_column")
        self.number = numpy.float64 if model in LINEAR else numpy.float32

    def rows(self):
        """All rows in scope, numbers in the type that the model gets them in."""
        rows = pandas.read_parquet(self.table)
        if self.predicate:
            rows = rows[rows[self.predicate]].reset_index(drop=True)
        return rows.astype(dict.fromkeys(self.numerics, self.number))

    def labels(self, rows):
        """Readable ones, but for XGBoost, which wants numbers from 0."""
        codes = rows[self.about["label"]["column"]].to_numpy()
        return codes if self.model == "xgb" else numpy.array(self.about["label"]["names"])[codes]

    def pipeline(self):
        linear = self.model in LINEAR
        # One encoder per column: in ONNX, one for all would first paste the text columns together.
        steps = [
            (name, OneHotEncoder(categories=[values], sparse_output=False, dtype=self.number), [name])
            for name, values in self.categories.items()
        ]
        if self.numerics:
            steps.insert(0, ("numbers", StandardScaler() if linear else "passthrough", self.numerics))
        steps = [("columns", ColumnTransformer(steps, sparse_threshold=0))]
        if self.model != "xgb":
            steps.append(("widen", CastTransformer(dtype=numpy.float64)))
        return Pipeline([*steps, ("model", self.classifier())])

    def classifier(self):
        libraries = {
            "lr": LogisticRegression,
            "dt": DecisionTreeClassifier,
            "rf": RandomForestClassifier,
            "lsvc": LinearSVC,
            "xgb": xgboost.XGBClassifier,
        }
        settings = {"random_state": SEED, **self.settings}
        if self.model == "xgb":
            settings["n_jobs"] = 1
        elif self.name in BALANCED:
            settings["class_weight"] = "balanced"
        return libraries[self.model](**settings)

    def fit(self, rows):
        labels = self.labels(rows)
        weights = {}
        if self.model == "xgb" and self.name in BALANCED:
            weights["model__sample_weight"] = compute_sample_weight("balanced", labels)
        with warnings.catch_warnings():
            # Not all linear models settle within the default number of steps, which is the paper's.
            warnings.simplefilter("ignore")
            return self.pipeline().fit(rows[self.about["features"]], labels, **weights)


def prepare(folder, dataset, model, out):
    case = Case(Path(folder), dataset, model)
    out = Path(out)
    rows = case.rows()
    train = rows["split"] == "train"
    fitted = case.fit(rows[train])
    exported = export(case, fitted)
    write(out, exported, schema(case), job(case, exported))
    features = rows[case.about["features"]]
    predicted = fitted.predict(features)
    margin, probabilities = surety(fitted, features)
    expected = {KEY: rows[KEY], "label": predicted.astype(str), "margin": margin, **probabilities}
    pandas.DataFrame(expected).to_parquet(out / "expected.parquet")
    right = predicted == case.labels(rows)
    told = {
        "dataset": dataset,
        "model": model,
        "rows": len(rows),
        "train_accuracy": round(float(right[train].mean()), 4),
        "test_accuracy": round(float(right[~train].mean()), 4),
        "least_margin": float(margin.min()),
        "model_bytes": (out / "model.onnx").stat().st_size,
    }
    print(json.dumps(told))


def write(out, exported, schema_text, job_text):
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.onnx").write_bytes(exported.SerializeToString())
    (out / "schema.toml").write_text(schema_text)
    (out / "job.toml").write_text(job_text)


def surety(fitted, features):
    """How far the best class is ahead of the next in the library's own scores, and the probabilities of
    all classes if it has any."""
    if not hasattr(fitted, "predict_proba"):
        scores = fitted.decision_function(features)
        return (numpy.abs(scores) if scores.ndim == 1 else lead(scores)), {}
    scores = fitted.predict_proba(features).astype(float)
    columns = {f"score_{label}": scores[:, place] for place, label in enumerate(fitted.classes_)}
    return lead(scores), columns


def lead(scores):
    ranked = numpy.sort(scores, axis=1)
    return ranked[:, -1] - ranked[:, -2]


def export(case, fitted):
    update_registered_converter(
        xgboost.XGBClassifier,
        "XGBoostXGBClassifier",
        calculate_linear_classifier_output_shapes,
        convert_xgboost,
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
    )
    number = DoubleTensorType if case.number == numpy.float64 else FloatTensorType
    inputs = [
        (name, (number if name in case.numerics else StringTensorType)([None, 1]))
        for name in case.about["features"]
    ]
    # Margins are left as they are: the exporter has no other form of them in 64 bits.
    options = {"raw_scores": True} if case.model == "lsvc" else {"zipmap": False}
    model = to_onnx(
        fitted,
        initial_types=inputs,
        options={id(fitted["model"]): options},
        target_opset={"": 21, "ai.onnx.ml": 3},
    )
    if case.model in ("dt", "rf"):
        # The exporter declares double where the operator gives float, for all that it adds up in double.
        model.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.checker.check_model(model)
    return model


def quoted(text):
    """JSON strings are TOML strings."""
    return json.dumps(str(text), ensure_ascii=False)


def schema(case, whole=()):
    """`whole` are the numerics whose counterfactual values are to be whole whatever the column's type."""
    lines = [f"# The features of {case.name}."]
    for name in case.about["features"]:
        lines += ["", "[[feature]]", f"name = {quoted(name)}"]
        if name in case.numerics:
            lines.append('kind = "numeric"')
            if name in whole:
                lines.append('type = "integer"')
        else:
            lines.append('kind = "categorical"')
            lines.append(f"values = [{', '.join(map(quoted, case.categories[name]))}]")
        if name in case.about.get("immutable", []):
            lines.append('change = "never"')
        if name in case.about.get("increase_only", []):
            lines.append('change = "increase"')
    return "\n".join(lines) + "\n"


def job(case, exported, train_predicate=None):
    """The exporter gave features names of its own: it puts `_` for what is no letter or digit."""
    pairs = zip(case.about["features"], exported.graph.input, strict=True)
    rename = [f"{quoted(name)} = {quoted(given.name)}\n" for name, given in pairs if name != given.name]
    rename = "\n[predictor.rename]\n" + "".join(rename) if rename else ""
    scope = f"where = {quoted(case.predicate)}\n" if case.predicate else ""
    scope += f"train_where = {quoted(train_predicate)}\n" if train_predicate else ""
    return (
        f"[input]\nfeatures = {quoted(case.table.resolve())}\nschema = \"schema.toml\"\n"
        f"key = {quoted(KEY)}\n{scope}\n"
        '[predictor]\nkind = "onnx"\nmodel = "model.onnx"\n'
        f"{rename}\n"
        '[output]\ndir = "out"\n'
    )


COMPARISON = """
    SELECT (SELECT count(*) FROM expected),
           (SELECT count(*) FROM scored),
           count(*) FILTER (NOT matched),
           count(*) FILTER (matched AND e.label IS DISTINCT FROM s.class),
           coalesce(max(e.margin) FILTER (matched AND e.label IS DISTINCT FROM s.class), 0),
           {gap}
    FROM expected e FULL JOIN scored s ON e.row_id = s.row_id,
         LATERAL (SELECT e.row_id IS NOT NULL AND s.row_id IS NOT NULL AS matched)
"""


def compare(out):
    if not Path(out, "out", "_SUCCESS").exists():
        sys.exit(f"error: no finished run in {out}/out, expected one of `overturn score {out}/job.toml`")
    tables = duckdb.connect()
    expected = tables.read_parquet(f"{out}/expected.parquet")
    tables.register("expected", expected)
    tables.register("scored", tables.read_parquet(f"{out}/out/scores/*.parquet"))
    scores = [name.replace('"', '""') for name in expected.columns if name.startswith("score_")]
    gaps = [f'abs(e."{name}" - s."{name}")' for name in scores]
    gap = f"coalesce(max(greatest({', '.join(gaps)})), 0)" if gaps else "0"
    wanted, found, unmatched, differing, margin, gap = tables.execute(COMPARISON.format(gap=gap)).fetchone()
    said = f"{wanted} rows expected, {found} scored, {unmatched} unmatched, {differing} labels differ"
    if differing:
        said += f" (the surest of them by a margin of {margin:.3g})"
    print(f"{said}, probabilities by {gap:.1e}" if scores else said)
    sys.exit(not (wanted == found > 0 and unmatched == differing == 0 and gap <= LARGEST_GAP))


if __name__ == "__main__":
    verbs = {"prepare": (prepare, 4), "compare": (compare, 1)}
    verb, count = verbs.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if verb is None or len(sys.argv) != count + 2:
        sys.exit(__doc__)
    verb(*sys.argv[2:])
