"""Small tables and models whose counterfactuals are known, or known to be hard to come by.

    known_answers.py CASE OUT_FOLDER [ROWS]

Writes table.parquet, model.onnx, schema.toml and job.toml. CASE is one of `CASES` below, each told in a line.
All is seeded: a table of so many rows is the same every time, its model but for the last bits of weights.

Prints one line of JSON: case, rows, the share of rows for each predicted class (of a regression: that are
in the target's range, and out of it), and where weights are exactly zero for all but some features, those
that decide and may change. Where a single number decides alone, its threshold is told: the model changes
its mind there and nowhere else.

The exported file is run on every row and must decide as scikit-learn does. For that, models get 64 bits as
in real_data.py, and the tables hold only numbers that 32 bits can hold, because scikit-learn's trees narrow
what they are given and ONNX would not.
"""

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy
import onnx
import onnxruntime
import pandas
import pyarrow
import pyarrow.parquet
from skl2onnx import to_onnx
from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType
from skl2onnx.sklapi import CastTransformer
from sklearn.base import is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_moons
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

SEED = 7
TRAIN_SHARE = 0.8
# Nobody's probabilities are the same to the last bit, and those of trees are given out in 32 bits.
LARGEST_GAP = 1e-5
FORESTS = RandomForestClassifier | RandomForestRegressor
CLASSES = numpy.array(["no", "yes"])
# Mean and standard deviation of the linear cases' numbers.
NUMBERS = {"a": (0, 1), "b": (50, 12), "c": (0, 0.01), "d": (-3, 2), "e": (1000, 300), "f": (0.5, 0.1)}


@dataclass
class Case:
    """One table and one model."""

    # A generator and a number of rows → features, and labels or values to learn.
    data: Callable
    model: object
    rows: int = 4000
    # The features that keep their weights; those of all others become exactly zero.
    deciding: tuple = ()
    never: tuple = ()
    # Changes the fitted model.
    adjust: Callable = lambda model: None
    # Predictions → the job's target.
    target: Callable = lambda predicted: ""


def normals(random, rows):
    return pandas.DataFrame({name: random.normal(*shape, rows) for name, shape in NUMBERS.items()})


def standardised(frame, name):
    mean, std = NUMBERS[name]
    return (frame[name] - mean) / std


def drawn(random, worth):
    """Classes by chance: the more worth, the likelier `yes`."""
    return CLASSES[(random.random(len(worth)) < 1 / (1 + numpy.exp(-4 * worth))).astype(int)]


def texts(random, rows, prefix, count):
    return random.choice([f"{prefix}{place}" for place in range(count)], rows)


def worths(column, weights):
    """The weight that stands at the number at the end of each text."""
    return numpy.array(weights)[column.str.extract(r"(\d+)$")[0].astype(int)]


def linear(random, rows):
    frame = normals(random, rows)
    # Not by chance: ten rows, too, must show both classes and where they part.
    return frame, CLASSES[(frame.b > frame.b.median()).astype(int)]


def decoy(random, rows):
    frame = normals(random, rows)
    return frame, drawn(random, standardised(frame, "b") + 1.5 * standardised(frame, "e"))


def constant(random, rows):
    frame, labels = linear(random, rows)
    return frame.assign(same=42.0, only="alone"), labels


def moons(random, rows):
    points, labels = make_moons(rows, noise=0.15, random_state=int(random.integers(1 << 31)))
    return pandas.DataFrame(points, columns=["x", "y"]), CLASSES[labels]


def categories(random, rows):
    sizes = {"colour": 3, "shape": 4, "size": 5, "origin": 6, "use": 3}
    frame = pandas.DataFrame({name: texts(random, rows, name, k) for name, k in sizes.items()})
    worth = sum(worths(frame[name], numpy.linspace(-1, 1, k)) for name, k in sizes.items())
    return frame, drawn(random, worth)


def seven(random, rows):
    shares = [0.18, 0.02, 0.16, 0.16, 0.16, 0.16, 0.16]
    label = random.choice(7, rows, p=shares)
    centres = random.uniform(-4, 4, (7, 3))
    frame = pandas.DataFrame(centres[label] + random.normal(size=(rows, 3)), columns=["x", "y", "z"])
    frame["count"] = random.poisson(3 + 4 * (label % 3))
    # Three in four rows have a group that goes with their class.
    told = numpy.where(random.random(rows) < 0.75, label % 4, random.integers(4, size=rows))
    frame["group"] = [f"group{place}" for place in told]
    return frame, numpy.array([f"class{place}" for place in label])


def regression(random, rows):
    frame = pandas.DataFrame(random.uniform(-2, 2, (rows, 3)), columns=["x", "y", "z"])
    frame["rooms"] = random.integers(1, 9, rows)
    frame["quarter"] = texts(random, rows, "quarter", 4)
    value = 10 + 3 * numpy.sin(frame.x) + frame.y * frame.z + 1.5 * frame.rooms
    return frame, value + worths(frame.quarter, [-3, -1, 1, 3]) + random.normal(0, 0.3, rows)


def forty(random, rows):
    frame = normals(random, rows)[["a", "b"]]
    frame["town"] = texts(random, rows, "town", 40)
    worth = worths(frame.town, numpy.linspace(-2, 2, 40)) + standardised(frame, "b") / 2
    return frame, drawn(random, worth + standardised(frame, "a") / 2)


def wide(random, rows):
    numbers = {f"n{place}": random.normal(size=rows) for place in range(150)}
    words = {f"t{place}": texts(random, rows, "v", 3) for place in range(50)}
    frame = pandas.DataFrame({**numbers, **words})
    decided_by = [worths(frame[name], [-1, 0, 1]) if name[0] == "t" else frame[name] for name in WIDE]
    return frame, drawn(random, sum(decided_by))


def three(random, rows):
    frame = normals(random, rows)
    grade = numpy.digitize(standardised(frame, "b"), [-0.4, 0.4])
    return frame, numpy.array(["low", "middle", "top"])[grade]


def always_yes(model):
    model.coef_[:] = 0
    model.intercept_[:] = 50


def never_top(model):
    model.intercept_[list(model.classes_).index("top")] = -1000


def band(predicted):
    """A tenth of the rows."""
    low, high = numpy.quantile(predicted, [0.8, 0.9])
    return f"range = [{low:.3f}, {high:.3f}]"


WIDE = ("n0", "n20", "n40", "n60", "n80", "n100", "n120", "t0", "t20", "t40")
LOGISTIC = LogisticRegression(max_iter=1000)
NETWORK = MLPClassifier((16, 16), max_iter=300, random_state=SEED)
FOREST = RandomForestClassifier(30, max_depth=8, random_state=SEED)
REGRESSOR = RandomForestRegressor(50, max_depth=10, random_state=SEED)
CASES = {
    # One number decides.
    "linear": Case(linear, LOGISTIC, deciding=("b",)),
    # Two decide, and the stronger may not change.
    "decoy": Case(decoy, LOGISTIC, deciding=("b", "e"), never=("e",)),
    # A boundary that no line can follow.
    "moons": Case(moons, NETWORK),
    # No numbers at all.
    "categories": Case(categories, LOGISTIC),
    # Seven overlapping classes, one of them rare.
    "seven": Case(seven, FOREST),
    # A value between two others is wanted; a tenth of the rows have one.
    "regression": Case(regression, REGRESSOR, target=band),
    # A category of many values.
    "forty": Case(forty, LOGISTIC),
    # Two hundred columns, of which ten decide.
    "wide": Case(wide, LOGISTIC, rows=3000, deciding=WIDE),
    # A number and a category that are the same in every row.
    "constant": Case(constant, LOGISTIC, deciding=("b",)),
    # No change whatsoever changes the decision.
    "one_class": Case(linear, LOGISTIC, adjust=always_yes),
    # The target class exists in name only.
    "never_predicted": Case(three, LOGISTIC, adjust=never_top, target=lambda _: 'class = "top"'),
    # Ten rows to train on.
    "tiny": Case(linear, LOGISTIC, rows=12, deciding=("b",)),
}


def kinds(frame):
    """The columns by what the model gets: double, int64, string."""
    reals, wholes = (list(frame.select_dtypes(kind)) for kind in ("float64", "int64"))
    return {"reals": reals, "wholes": wholes, "texts": list(frame.drop(columns=reals + wholes))}


def pipeline(model, frame):
    """Trees gain nothing from scaling, and its rounding would move values across thresholds."""
    forest = isinstance(model, FORESTS)
    columns = kinds(frame)
    steps = [
        ("reals", "passthrough" if forest else StandardScaler(), columns["reals"]),
        ("wholes", CastTransformer(dtype=numpy.float64), columns["wholes"]),
    ]
    steps = [step for step in steps if step[2]]
    # One encoder per column: in ONNX, one for all would first paste the text columns together.
    steps += [(name, OneHotEncoder(categories=[values(frame, name)]), [name]) for name in columns["texts"]]
    # Without it a model of texts alone would be exported in 32 bits.
    widen = CastTransformer(dtype=numpy.float64)
    prepare = ColumnTransformer(steps, sparse_threshold=0)
    return Pipeline([("columns", prepare), ("widen", widen), ("model", model)])


def values(frame, name):
    return sorted(frame[name].unique())


def fit(case, frame, labels, train):
    fitted = pipeline(case.model, frame)
    matrix = fitted[:-1].fit_transform(frame[train])
    idle = ~numpy.isin(owners(frame), case.deciding or list(frame))
    # What is zero in every row gets no weight, and the rest are fitted to do without it.
    matrix[:, idle] = 0
    with warnings.catch_warnings():
        # The network need not be the best there is.
        warnings.simplefilter("ignore")
        model = fitted["model"].fit(matrix, labels[train])
    assert not idle.any() or (model.coef_[:, idle] == 0).all(), "idle features have weights"
    case.adjust(model)
    return fitted


def owners(frame):
    """The feature that each column of the model's matrix comes from."""
    columns = kinds(frame)
    hot = [name for name in columns["texts"] for _ in values(frame, name)]
    return columns["reals"] + columns["wholes"] + hot


def export(fitted, frame):
    tensors = {"reals": DoubleTensorType, "wholes": Int64TensorType, "texts": StringTensorType}
    kind = {name: tensors[key] for key, names in kinds(frame).items() for name in names}
    model = fitted["model"]
    exported = to_onnx(
        fitted,
        initial_types=[(name, kind[name]([None, 1])) for name in frame],
        options=None if is_regressor(model) else {id(model): {"zipmap": False}},
        target_opset={"": 21, "ai.onnx.ml": 3},
    )
    if isinstance(model, FORESTS):
        # The exporter declares double where the operator gives float, for all that it adds up in double.
        exported.graph.output[-1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.checker.check_model(exported)
    return exported


def check(exported, fitted, frame):
    """What the exported file says of every row, which must be what scikit-learn says."""
    session = onnxruntime.InferenceSession(exported.SerializeToString())
    answers = session.run(None, {name: frame[[name]].to_numpy() for name in frame})
    expected = fitted.predict(frame)
    if is_regressor(fitted["model"]):
        said = answers[0].reshape(-1)
        assert numpy.allclose(said, expected, rtol=LARGEST_GAP), "values differ"
        return said
    said, scores = answers
    assert (said == expected).all(), f"{(said != expected).sum()} labels differ"
    assert numpy.abs(scores - fitted.predict_proba(frame)).max() < LARGEST_GAP, "probabilities differ"
    return said


def schema(case, frame):
    lines = []
    for name in frame:
        lines += ["[[feature]]", f'name = "{name}"']
        if name in kinds(frame)["texts"]:
            # JSON strings are TOML strings.
            lines += ['kind = "categorical"', f"values = {json.dumps(values(frame, name))}"]
        else:
            lines.append('kind = "numeric"')
        lines += ['change = "never"'] * (name in case.never) + [""]
    return "\n".join(lines)


def job(case, target):
    task = 'task = "regression"\n' if is_regressor(case.model) else ""
    wanted = f"\n[target]\n{target}\n" if target else ""
    return (
        '[input]\nfeatures = "table.parquet"\nschema = "schema.toml"\nkey = "id"\n'
        "train_where = \"split = 'train'\"\n\n"
        f'[predictor]\nkind = "onnx"\nmodel = "model.onnx"\n{task}{wanted}\n'
        '[output]\ndir = "out"\n'
    )


def shares(predicted, target):
    if target.startswith("range"):
        low, high = json.loads(target.partition("=")[2])
        predicted = numpy.where((low <= predicted) & (predicted <= high), "in range", "out of range")
    classes, counts = numpy.unique(predicted, return_counts=True)
    return {name: round(count / len(predicted), 4) for name, count in zip(classes, counts.tolist())}


def answer(case, fitted, frame):
    """Which features decide and may change, and the threshold of one that decides alone."""
    if not case.deciding:
        return {}
    told = {"deciding": [name for name in case.deciding if name not in case.never]}
    if len(case.deciding) == 1:
        place = owners(frame).index(case.deciding[0])
        scaler, model = fitted["columns"].named_transformers_["reals"], fitted["model"]
        standard = -model.intercept_[0] / model.coef_[0, place]
        told["threshold"] = float(scaler.mean_[place] + standard * scaler.scale_[place])
    return told


def main(name, out, rows=None):
    case, out = CASES[name], Path(out)
    rows = int(rows or case.rows)
    random = numpy.random.default_rng(SEED)
    frame, labels = case.data(random, rows)
    reals = kinds(frame)["reals"]
    frame[reals] = frame[reals].astype(numpy.float32).astype(numpy.float64)
    train = random.permutation(rows) < round(TRAIN_SHARE * rows)
    fitted = fit(case, frame, labels, train)
    exported = export(fitted, frame)
    predicted = check(exported, fitted, frame)
    target = case.target(predicted)
    out.mkdir(parents=True, exist_ok=True)
    table = {"id": numpy.arange(rows), **frame, "split": numpy.where(train, "train", "test")}
    pyarrow.parquet.write_table(pyarrow.table(table), out / "table.parquet")
    (out / "model.onnx").write_bytes(exported.SerializeToString())
    (out / "schema.toml").write_text(schema(case, frame))
    (out / "job.toml").write_text(job(case, target))
    told = {"case": name, "rows": rows, "shares": shares(predicted, target)}
    print(json.dumps(told | answer(case, fitted, frame)))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in CASES:
        sys.exit(f"{__doc__}\nexpected as CASE one of: {', '.join(CASES)}")
    main(*sys.argv[1:])
