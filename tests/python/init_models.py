"""Makes a table and a model for each case of `overturn init`: what the usual exporters write of usual models.

    init_models.py FOLDER

Writes NAME/table.parquet and NAME/model.onnx for each case, and prints the names. All tables have a key, features and
what the model was trained to predict; those of `columns` have columns that the model does not take, too.
"""

import base64
import pathlib
import sys
import warnings
import zlib

import lightgbm
import numpy
import onnx
import pandas
import xgboost
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from skl2onnx.common import _container as container
from skl2onnx.common.data_types import StringTensorType
from skl2onnx.common.data_types import FloatTensorType as SklearnFloat
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from make_models import BINARY, CATBOOST, FRAME, GRADE, JOBS, MATRIX, NUMBERS, REGIONS, ROWS, TEXTS, WORD, WORTH, plain_numbers

warnings.filterwarnings("ignore")

FOLDER = pathlib.Path(sys.argv[1])
ID = {"client_id": numpy.arange(1000, 1000 + ROWS)}
FEW = {"max_depth": 5, "random_state": 1}
KIND = [("X", FloatTensorType([None, len(NUMBERS)]))]


def save(name, table, model):
    """A table whose label stands last, as in most of them."""
    folder = FOLDER / name
    folder.mkdir()
    pandas.DataFrame(table).to_parquet(folder / "table.parquet")
    (folder / "model.onnx").write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    print(name)


def numbers(**label):
    return {**ID, **{name: FRAME[name] for name in NUMBERS}, **label}


def sklearn():
    for name, model, label in [
        ("forest", RandomForestClassifier(12, **FEW), {"outcome": BINARY}),
        ("forest_words", RandomForestClassifier(12, **FEW), {"grade": WORD}),
        ("histogram", HistGradientBoostingClassifier(max_iter=12), {"outcome": BINARY}),
        ("logistic", make_pipeline(StandardScaler(), LogisticRegression()), {"grade": WORD}),
        ("forest_worth", RandomForestRegressor(12, **FEW), {"target": WORTH}),
        ("boosting_worth", GradientBoostingRegressor(n_estimators=12), {"target": WORTH}),
        ("histogram_worth", HistGradientBoostingRegressor(max_iter=12), {"target": WORTH}),
    ]:
        target = next(iter(label.values()))
        save(name, numbers(**label), to_onnx(model.fit(MATRIX, target), MATRIX[:1]))


def boosted():
    few = {"n_estimators": 12, "max_depth": 4}
    for name, target in [("xgboost", BINARY), ("xgboost_grades", GRADE)]:
        model = xgboost.XGBClassifier(**few).fit(MATRIX, target)
        save(name, numbers(label=target), convert_xgboost(model, initial_types=KIND))
    model = xgboost.XGBRegressor(**few).fit(MATRIX, WORTH)
    save("xgboost_worth", numbers(y=WORTH), convert_xgboost(model, initial_types=KIND))
    few["verbose"] = -1
    for name, target in [("lightgbm", BINARY), ("lightgbm_grades", GRADE)]:
        model = lightgbm.LGBMClassifier(**few).fit(MATRIX, target)
        save(name, numbers(label=target), convert_lightgbm(model, initial_types=KIND))
    model = lightgbm.LGBMRegressor(**few).fit(MATRIX, WORTH)
    save("lightgbm_worth", numbers(y=WORTH), convert_lightgbm(model, initial_types=KIND))
    targets = {"n_catboost": BINARY, "n_catboost_grades": GRADE, "n_catboost_worth": WORTH}
    for name, text in CATBOOST.items():
        save(name[2:], numbers(target=targets[name]), zlib.decompress(base64.b85decode(text)))


def columns():
    """Pipelines with an input for each column, one of them under the name that an exporter gave it."""
    frame = FRAME.astype({name: numpy.float32 for name in NUMBERS})
    prepare = ColumnTransformer(
        [("texts", OneHotEncoder(handle_unknown="ignore"), TEXTS), ("numbers", StandardScaler(), NUMBERS)]
    )
    kinds = [(name, SklearnFloat([None, 1])) for name in NUMBERS]
    kinds += [(name, StringTensorType([None, 1])) for name in TEXTS]
    table = {**ID, **FRAME, "applied_on": pandas.Timestamp("2026-01-01") + pandas.to_timedelta(GRADE, "D")}
    table["job-title"] = table.pop("job")
    for name, model, label in [
        ("pipeline", LogisticRegression(), {"decision": numpy.where(BINARY, "approved", "rejected")}),
        ("pipeline_worth", LinearRegression(), {"worth": WORTH}),
    ]:
        pipeline = Pipeline([("prepare", prepare), ("model", model)]).fit(frame, next(iter(label.values())))
        exported = to_onnx(pipeline, initial_types=kinds)
        for node in exported.graph.node:
            node.input[:] = ["job_title" if given == "job" else given for given in node.input]
        for given in exported.graph.input:
            given.name = "job_title" if given.name == "job" else given.name
        onnx.checker.check_model(exported)
        save(name, {**table, **label}, exported)


def encoded():
    """Matrices of categories: as codes, and one-hot as `pandas.get_dummies` makes them."""
    names = ["age", "job", "tenure", "income", "region", "rate"]
    table = {**ID, **{name: FRAME[name] for name in names}, "outcome": BINARY}
    codes = FRAME[names].assign(job=FRAME.job.map(JOBS.index), region=FRAME.region.map(REGIONS.index))
    matrix = codes.to_numpy().astype(numpy.float32)
    forest = RandomForestClassifier(12, **FEW).fit(matrix, BINARY)
    save("codes", table, to_onnx(forest, matrix[:1]))
    matrix = pandas.get_dummies(FRAME[names]).to_numpy().astype(numpy.float32)
    forest = RandomForestClassifier(12, **FEW).fit(matrix, BINARY)
    save("dummies", table, to_onnx(forest, matrix[:1]))
    # A network as frameworks export it: scores, and no name for any class.
    network = make_pipeline(StandardScaler(), MLPClassifier((6,), max_iter=200, random_state=1)).fit(MATRIX, WORD)
    exported = to_onnx(network, MATRIX[:1], options={"zipmap": False})
    del exported.graph.output[0]
    save("scores_only", numbers(), exported)


if __name__ == "__main__":
    container.make_node = plain_numbers(container.make_node)
    sklearn()
    boosted()
    columns()
    encoded()
