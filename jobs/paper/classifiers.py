"""The paper's classifiers, as ONNX files that decide every row as the library does.

    classifiers.py DATA_FOLDER DATASET MODEL FOLDER

Trains one on the rows of the split `train`, gives up to 1,000 rows of the split `test` a wanted class other than the
classifier's own, and writes model.onnx, table.parquet (all rows in scope, in the table's own types, with the column
`wanted`) and, last, prepared.json. The job files beside this one need no more than that folder.

No label may differ, so the exports must compute what the library computes, not roughly the same:

- scikit-learn computes in 64 bits, and so does an export whose classifier gets double: a multiplication of
  matrices instead of ONNX's 32-bit linear classifier, and trees with double thresholds and votes. Hence
  `CastTransformer`. It matters where votes come to a draw: of the 58,101 rows of covertype the forest
  decides 15 by the order of the classes, one of them otherwise if votes are 32 bits.
- Inputs are double for linear models. For trees they are float, for scikit-learn's own narrow them first.
- XGBoost is 32 bits throughout.
- Scaling is for the linear models only: it leaves the order of values as it is, so trees gain nothing from
  it, but its rounding could put a value on the other side of a threshold.

Import this module before numpy: it sets how many threads linear algebra gets.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path

# Threads of linear algebra that wait for a busy core make training ten times as long.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
import numpy
import onnx
import pandas
import sklearn
import xgboost
from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
from skl2onnx import to_onnx, update_registered_converter
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
from skl2onnx.sklapi import CastTransformer
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.class_weight import compute_sample_weight

from hyperparameters import BALANCED, DATASETS, MODELS, SETTINGS

KEY = "row_id"
SEED = 0
LINEAR = {"lr", "lsvc"}
SHIPPED = {"wdbc": load_breast_cancer, "wine": load_wine}
# Rows that want another class, at most.
ROWS = 1_000


class Case:
    """A data set and a kind of model."""

    def __init__(self, folder, dataset, model):
        if dataset not in DATASETS or model not in MODELS:
            known = f"one of {', '.join(DATASETS)}, and one of {', '.join(MODELS)}"
            sys.exit(f"error: found `{dataset}` and `{model}`, expected {known}")
        self.name, self.model = dataset, model
        self.settings = SETTINGS[dataset][model]
        self.about = shipped_about(dataset) if dataset in SHIPPED else stored_about(folder, dataset)
        # What scikit-learn ships has no file of its own.
        self.table = folder / self.about["file"] if "file" in self.about else None
        self.numerics, self.categories = self.about["numerical"], self.about["categorical"]
        self.predicate = self.about.get("subset_column")
        self.number = numpy.float64 if model in LINEAR else numpy.float32

    def source(self):
        """All rows in scope, in the table's own types."""
        if self.table is None:
            return shipped_rows(self.name)
        rows = pandas.read_parquet(self.table)
        return rows[rows[self.predicate]].reset_index(drop=True) if self.predicate else rows

    def rows(self):
        """All rows in scope, numbers in the type that the model gets them in."""
        return self.source().astype(dict.fromkeys(self.numerics, self.number))

    def labels(self, rows):
        """Readable ones, but for XGBoost, which wants numbers from 0."""
        codes = rows[self.about["label"]["column"]].to_numpy()
        return codes if self.model == "xgb" else numpy.array(self.about["label"]["names"])[codes]

    def classes(self):
        """The model's names of the classes, in the order of the table's codes."""
        names = self.about["label"]["names"]
        return [str(code) for code in range(len(names))] if self.model == "xgb" else names

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


def stored_about(folder, dataset):
    """What is known about a data set of the data folder."""
    told = Path(folder, "schema.json")
    if not told.is_file():
        sys.exit(f"error: no `{told}`, expected the folder of the data sets there (set OVERTURN_DATA)")
    return json.loads(told.read_text())["datasets"][dataset]


def shipped_about(dataset):
    """The same about one that scikit-learn ships: all of its features are numbers."""
    shipped = SHIPPED[dataset]()
    features = [str(name) for name in shipped.feature_names]
    names = [str(name) for name in shipped.target_names]
    label = {"column": "label", "names": names}
    return {"features": features, "numerical": features, "categorical": {}, "label": label}


def shipped_rows(dataset):
    """A table like those of the data folder, split as those are."""
    shipped = SHIPPED[dataset]()
    rows = pandas.DataFrame(shipped.data, columns=[str(name) for name in shipped.feature_names])
    rows.insert(0, KEY, numpy.arange(len(rows)))
    rows["label"] = shipped.target.astype(numpy.int64)
    _, test = train_test_split(rows.index, test_size=0.2, random_state=SEED, stratify=rows["label"])
    rows["split"] = numpy.where(rows.index.isin(test), "test", "train")
    return rows


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


def wanted(fitted, rows, features):
    """For some test rows a class other than the classifier's own, as the model says it; null for all others."""
    random = numpy.random.default_rng(SEED)
    test = numpy.flatnonzero(rows["split"] == "test")
    picked = numpy.sort(random.choice(test, min(ROWS, len(test)), replace=False))
    classes = fitted.classes_
    own = numpy.searchsorted(classes, fitted.predict(rows.iloc[picked][features]))
    others = classes[(own + random.integers(1, len(classes), len(picked))) % len(classes)]
    found = numpy.full(len(rows), None, dtype=object)
    found[picked] = [str(label) for label in others]
    return found


def accuracies(case, rows, predicted):
    """On the rows trained on, and on the others."""
    right, train = predicted == case.labels(rows), rows["split"] == "train"
    return {
        "train_accuracy": round(float(right[train].mean()), 4),
        "test_accuracy": round(float(right[~train].mean()), 4),
    }


def prepare(case, folder):
    """Trains, and writes the model and the table with the column `wanted`; gives the exported model and what there
    is to say about it."""
    began = time.monotonic()
    rows = case.rows()
    fitted = case.fit(rows[rows["split"] == "train"])
    exported = export(case, fitted)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(exported.SerializeToString())
    # Numbers in the table's own types, not in the model's.
    table = case.source()
    table["wanted"] = wanted(fitted, rows, case.about["features"])
    table.to_parquet(folder / "table.parquet", index=False)
    told = {
        "rows": len(rows),
        "wanted": int(table["wanted"].notna().sum()),
        "classes": case.classes(),
        "settings": case.settings,
        **accuracies(case, rows, fitted.predict(rows[case.about["features"]])),
        "versions": {"scikit-learn": sklearn.__version__, "xgboost": xgboost.__version__},
        "seconds": round(time.monotonic() - began, 1),
    }
    return exported, told


def main(data, dataset, model, folder):
    folder = Path(folder)
    _, told = prepare(Case(Path(data), dataset, model), folder)
    unfinished = folder / "prepared.json.new"
    unfinished.write_text(json.dumps(told, indent=1))
    unfinished.rename(folder / "prepared.json")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
