"""Trains the tree models of benches/predictor.rs on the codes of the credit table.

    tree_models.py TABLE FOLDER

TABLE is the Parquet file that the benchmark makes. The models take one matrix: numbers as they are, categories
as their positions in schemas/credit.toml. The labels have noise, so that deep trees get deep.
"""

import pathlib
import sys
import tomllib
import warnings

import lightgbm
import numpy
import pandas
import xgboost
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier

warnings.filterwarnings("ignore")

NOISE = 0.1


def main():
    table, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    schema = pathlib.Path(__file__).parent.parent / "schemas/credit.toml"
    features = tomllib.loads(schema.read_text())["feature"]
    rows = pandas.read_parquet(table)
    matrix = numpy.stack([codes(rows[feature["name"]], feature) for feature in features], axis=1)
    random = numpy.random.default_rng(7)
    other = random.random(len(rows)) < NOISE
    label = (rows["approved"] == "approved").to_numpy() ^ other
    label = label.astype(numpy.int64)
    kind = [("X", FloatTensorType([None, matrix.shape[1]]))]

    def save(name, model):
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())

    for name, trees, depth in [("forest_50_15", 50, 15), ("forest_100_25", 100, 25)]:
        model = RandomForestClassifier(trees, max_depth=depth, random_state=1, n_jobs=2)
        model.fit(matrix, label)
        save(name, to_onnx(model, matrix[:1], options={id(model): {"zipmap": False}}))
    for name, trees, depth in [("xgboost_300_6", 300, 6), ("xgboost_100_3", 100, 3)]:
        model = xgboost.XGBClassifier(n_estimators=trees, max_depth=depth).fit(matrix, label)
        save(name, convert_xgboost(model, initial_types=kind))
    model = lightgbm.LGBMClassifier(n_estimators=500, num_leaves=31, verbose=-1)
    save("lightgbm_500_31", convert_lightgbm(model.fit(matrix, label), initial_types=kind, zipmap=False))


def codes(column, feature):
    if feature["kind"] == "numeric":
        return column.to_numpy().astype(numpy.float32)
    return column.map(feature["values"].index).to_numpy().astype(numpy.float32)


if __name__ == "__main__":
    main()
