"""Makes small real models for the tests, and what they should answer.

    make_models.py FOLDER [NAME]

Writes `frame.parquet`, a seeded table with text, whole-number, real and boolean columns, and for
each model NAME.onnx and NAME.parquet: the label as text and a column `p0`, `p1`, … per class, or
`value`, in the frame's row order, as the training library itself predicts them.

NAME is `large` for the model and table of measurements; all small models without a name.
"""

import pathlib
import sys
import warnings

import numpy
import onnx
import pandas
import xgboost
from onnx import TensorProto, helper
from onnxmltools import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

warnings.filterwarnings("ignore")

ROWS = 600
NUMBERS = ["age", "tenure", "income", "rate"]
TEXTS = ["job", "region"]
JOBS = ["clerk", "farmer", "nurse", "pilot"]
REGIONS = ["north", "south", "west"]


def make_frame():
    random = numpy.random.default_rng(7)
    frame = pandas.DataFrame(
        {
            "age": random.integers(18, 90, ROWS),
            "job": random.choice(JOBS, ROWS),
            "tenure": random.integers(0, 40, ROWS).astype(numpy.int32),
            "income": random.normal(40_000, 9_000, ROWS).round(2),
            "region": random.choice(REGIONS, ROWS),
            "rate": random.normal(size=ROWS).astype(numpy.float32),
            "member": random.random(ROWS) < 0.5,
        }
    )
    worth = (
        (frame.age - 50) / 20
        + (frame.income - 40_000) / 9_000
        + frame.rate
        + (frame.job == "pilot") * 1.5
        - (frame.region == "west")
        + frame.member * 0.5
    )
    return frame, worth.to_numpy()


FRAME, WORTH = make_frame()
BINARY = (WORTH > 0.5).astype(numpy.int64)
GRADE = numpy.digitize(WORTH, [-1, 1])
WORD = numpy.array(["low", "middle", "top"])[GRADE]
MATRIX = FRAME[NUMBERS].to_numpy().astype(numpy.float32)
FOLDER = pathlib.Path(sys.argv[1])


def save(name, model, expected):
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    pandas.DataFrame(expected).to_parquet(FOLDER / f"{name}.parquet")


def classes(model, inputs):
    expected = {"label": [str(label) for label in model.predict(inputs)]}
    if hasattr(model, "predict_proba"):
        chances = model.predict_proba(inputs)
        expected |= {f"p{k}": chances[:, k].astype(float) for k in range(chances.shape[1])}
    return expected


def classifier(name, model, target, inputs=MATRIX, **options):
    model.fit(inputs, target)
    exported = to_onnx(model, inputs[:1], options={id(model): options} if options else None)
    save(name, exported, classes(model, inputs))


def regressor(name, model):
    model.fit(MATRIX, WORTH)
    value = model.predict(MATRIX).reshape(-1).astype(float)
    save(name, to_onnx(model, MATRIX[:1]), {"value": value})


def matrix_classifiers():
    plain = {"zipmap": False}
    classifier("logistic", LogisticRegression(), WORD, **plain)
    classifier("logistic_zipmap", LogisticRegression(), WORD)
    classifier("tree", DecisionTreeClassifier(max_depth=5, random_state=1), BINARY, **plain)
    classifier("tree_zipmap", DecisionTreeClassifier(max_depth=5, random_state=1), BINARY)
    forest = RandomForestClassifier(12, max_depth=6, random_state=1)
    classifier("forest", forest, WORD, **plain)
    classifier("margin", LinearSVC(), BINARY)
    classifier("margins", LinearSVC(), WORD)
    classifier("bayes", GaussianNB(), BINARY, **plain)
    classifier("network", MLPClassifier((6,), max_iter=30, random_state=1), WORD, **plain)
    classifier("rest", OneVsRestClassifier(LogisticRegression()), GRADE, **plain)


def pipeline(name, **options):
    """A pipeline that takes one input per column, in the column's own type.

    But for `income`, which it takes as float: exported pipelines do not mix float and double.
    """
    columns = FRAME[["age", "job", "tenure", "income", "region", "rate"]]
    columns = columns.astype({"income": numpy.float32})
    prepare = ColumnTransformer(
        [
            ("texts", OneHotEncoder(handle_unknown="ignore"), TEXTS),
            # Scaled numbers would differ from the library's in the last bit, enough to cross a threshold.
            ("numbers", "passthrough", NUMBERS),
        ]
    )
    forest = RandomForestClassifier(12, max_depth=6, random_state=1)
    model = Pipeline([("prepare", prepare), ("forest", forest)]).fit(columns, BINARY)
    exported = to_onnx(model, columns[:1], options={id(forest): options} if options else None)
    save(name, exported, classes(model, columns))


def encoded():
    """Models on the codes, and on the standardised and one-hot form, of all but `member`."""
    codes = FRAME[["age", "job", "tenure", "income", "region", "rate"]].copy()
    codes["job"] = codes["job"].map(JOBS.index)
    codes["region"] = codes["region"].map(REGIONS.index)
    forest = RandomForestClassifier(12, max_depth=6, random_state=1)
    classifier("codes", forest, BINARY, codes.to_numpy().astype(numpy.float32), zipmap=False)

    statistics = {"age": (50, 20), "tenure": (20, 10), "income": (4e4, 9e3), "rate": (0, 1)}
    numbers = [(FRAME[name].astype(float) - mean) / std for name, (mean, std) in statistics.items()]
    hot = [FRAME.job == value for value in JOBS] + [FRAME.region == value for value in REGIONS]
    matrix = numpy.stack([*numbers, *hot], axis=1).astype(float)
    model = LogisticRegression()
    classifier("standardised", model, WORD, matrix.astype(numpy.float32), zipmap=False)
    classifier("standardised_double", LogisticRegression(), WORD, matrix, zipmap=False)


def boosted():
    """XGBoost, with gaps in `income`, which come out of the table as nulls."""
    matrix = MATRIX.copy()
    matrix[::7, NUMBERS.index("income")] = numpy.nan
    kind = [("X", FloatTensorType([None, matrix.shape[1]]))]
    for name, target in [("boosted", BINARY), ("boosted_grades", GRADE)]:
        model = xgboost.XGBClassifier(n_estimators=12, max_depth=4).fit(matrix, target)
        save(name, convert_xgboost(model, initial_types=kind), classes(model, matrix))
    model = xgboost.XGBRegressor(n_estimators=12, max_depth=4).fit(matrix, WORTH)
    value = model.predict(matrix).astype(float)
    save("boosted_worth", convert_xgboost(model, initial_types=kind), {"value": value})


def handmade():
    """Models that no library writes for us: one input of each type, and outputs in odd forms."""
    declared = {
        "float": (TensorProto.FLOAT, [None, 1]),
        "double": (TensorProto.DOUBLE, [None]),
        "int64": (TensorProto.INT64, [None, 1]),
        "int32": (TensorProto.INT32, [None]),
        "bool": (TensorProto.BOOL, [None, 1]),
        "string": (TensorProto.STRING, [None]),
    }
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in declared.items()]
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["string"],
            ["word"],
            domain="ai.onnx.ml",
            keys_strings=["7", "true", "none", ""],
            values_floats=[700.0, 1000.0, 5000.0, 9000.0],
            default_float=-1e6,
        )
    ]
    column = helper.make_tensor("column", TensorProto.INT64, [2], [-1, 1])
    for name in declared:
        source = "word" if name == "string" else name
        nodes += [
            helper.make_node("Cast", [source], [f"{name}_real"], to=TensorProto.DOUBLE),
            helper.make_node("Reshape", [f"{name}_real", "column"], [f"{name}_column"]),
        ]
    nodes.append(helper.make_node("Sum", [f"{name}_column" for name in declared], ["total"]))
    output = helper.make_tensor_value_info("total", TensorProto.DOUBLE, [None, 1])
    graph = helper.make_graph(nodes, "typed", inputs, [output], [column])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    typed = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(typed)
    (FOLDER / "typed.onnx").write_bytes(typed.SerializeToString())

    # Scores without a label.
    model = onnx.load(FOLDER / "network.onnx")
    del model.graph.output[0]
    (FOLDER / "scores_only.onnx").write_bytes(model.SerializeToString())
    # A single probability without a label, and what looks like one.
    matrix = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 1])
    chance = helper.make_tensor_value_info("chance", TensorProto.FLOAT, [None, 1])
    for name, operator in [("chance", "Sigmoid"), ("no_chance", "Exp")]:
        node = helper.make_node(operator, ["X"], ["chance"])
        graph = helper.make_graph([node], name, [matrix], [chance])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    # From the future, and cut short.
    model = onnx.load(FOLDER / "tree.onnx")
    for opset in model.opset_import:
        opset.version = 999
    (FOLDER / "too_new.onnx").write_bytes(model.SerializeToString())
    whole = (FOLDER / "tree.onnx").read_bytes()
    (FOLDER / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    # For one row at a time.
    model = onnx.load(FOLDER / "tree.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    (FOLDER / "one_row.onnx").write_bytes(model.SerializeToString())


def large():
    """For measuring: fifty trees on eight numbers and six texts, a hundred thousand rows."""
    random = numpy.random.default_rng(7)
    rows = 100_000
    numbers = {f"n{i}": random.normal(size=rows) for i in range(8)}
    texts = {
        f"t{i}": random.choice([f"value {i} {k}" for k in range(4 + 3 * i)], rows) for i in range(6)
    }
    frame = pandas.DataFrame({**numbers, **texts})
    frame.to_parquet(FOLDER / "large_frame.parquet")
    frame = frame.astype({name: numpy.float32 for name in numbers})
    target = (frame.n0 + frame.n1 * frame.n2 + (frame.t0 == "value 0 1") > 0.2).astype(int)
    prepare = ColumnTransformer(
        [("n", "passthrough", list(numbers)), ("t", OneHotEncoder(), list(texts))]
    )
    forest = RandomForestClassifier(50, max_depth=12, random_state=1, n_jobs=2)
    model = Pipeline([("prepare", prepare), ("forest", forest)])
    model.fit(frame[:20_000], target[:20_000])
    exported = to_onnx(model, frame[:1], options={id(forest): {"zipmap": False}})
    save("large", exported, classes(model, frame[:1000]))


def main():
    if sys.argv[2:] == ["large"]:
        return large()
    FRAME.to_parquet(FOLDER / "frame.parquet")
    matrix_classifiers()
    pipeline("pipeline", zipmap=False)
    pipeline("pipeline_zipmap")
    encoded()
    boosted()
    regressor("forest_worth", RandomForestRegressor(12, max_depth=6, random_state=1))
    regressor("linear_worth", LinearRegression())
    handmade()


if __name__ == "__main__":
    main()
