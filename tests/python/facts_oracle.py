"""Effectiveness of single actions on Adult against the internals of aif360's FACTS.

    facts_oracle.py OVERTURN AIF360 OUT [ROWS]

ROWS (8,000) are drawn from Adult, with repetition where it has fewer. Where more rows are affected than the audit asks
about, its counts are of a sample by key: the share that it does not help must then be that of all affected rows within
four standard errors.

AIF360 is a folder with the package aif360 0.6.1 (`pip install --no-deps --target DIR aif360==0.6.1`); only its files of
FACTS are loaded, whose other dependencies it does not need. It is no part of the test environment.

Adult's categorical features, all of which may change; a logistic regression of them. Every row of `audit/actions` is an
if-then clause of FACTS (if the group's attribute has the value, then the action's features have theirs), whose
`incorrectRecoursesIfThen` counts the affected rows that it does not help. Prints a line of JSON and ends with code 1 if
any count differs.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pandas
import pyarrow.dataset
import pyarrow.parquet
from skl2onnx import to_onnx
from skl2onnx.common.data_types import StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

ATTRIBUTES = ["Sex", "Race"]


def facts(folder):
    """FACTS' module of metrics, without the rest of the package."""
    files = Path(folder) / "aif360/sklearn/detectors/facts"
    package = importlib.util.spec_from_loader("facts", None, is_package=True)
    module = importlib.util.module_from_spec(package)
    module.__path__ = [str(files)]
    sys.modules["facts"] = module
    return importlib.import_module("facts.metrics"), importlib.import_module("facts.predicate")


def make(out, rows):
    data = os.environ.get("OVERTURN_DATA", "../shared/data")
    frame = pandas.read_parquet(Path(data) / "adult.parquet")
    frame = frame.rename(columns=lambda name: name.replace(" ", "_")).head(rows)
    labels = numpy.where(frame.label == 1, "yes", "no")
    texts = [name for name in frame if not pandas.api.types.is_numeric_dtype(frame[name])]
    features = [name for name in texts if name != "split"]
    frame = frame[features].astype(str)
    values = {name: sorted(frame[name].unique()) for name in features}
    encoders = [(name, OneHotEncoder(categories=[values[name]]), [name]) for name in features]
    model = LogisticRegression(max_iter=1000, C=0.1)
    fitted = Pipeline([("columns", ColumnTransformer(encoders, sparse_threshold=0)), ("model", model)])
    fitted.fit(frame, labels)
    inputs = [(name, StringTensorType([None, 1])) for name in features]
    exported = to_onnx(fitted, initial_types=inputs, options={id(model): {"zipmap": False}},
                       target_opset={"": 21, "ai.onnx.ml": 3})
    (out / "model.onnx").write_bytes(exported.SerializeToString())
    table = frame.copy() if rows <= len(frame) else frame.sample(rows, replace=True, random_state=1)
    table.insert(0, "id", numpy.arange(len(table)))
    table.to_parquet(out / "table.parquet", index=False)
    schema = [f'[[feature]]\nname = "{name}"\nkind = "categorical"\nvalues = {json.dumps(values[name])}\n'
              for name in features]
    (out / "schema.toml").write_text("".join(schema))
    (out / "job.toml").write_text(f"""
[input]
features = "table.parquet"
key = "id"
schema = "schema.toml"
[predictor]
kind = "onnx"
model = "model.onnx"
[target]
class = "yes"
[explain]
method = "search"
coherence = "off"
[audit]
by = {json.dumps(ATTRIBUTES)}
sections = ["actions"]
[output]
dir = "out"
""")
    return features


class Decisions:
    """A published model as FACTS wants one: `predict` gives 1 for the target."""

    def __init__(self, path, features):
        import onnxruntime

        self.session, self.features = onnxruntime.InferenceSession(path), features

    def predict(self, rows):
        feed = {name: rows[name].to_numpy().astype(object).reshape(-1, 1) for name in self.features}
        return numpy.array([int(str(label) == "yes") for label in self.session.run(None, feed)[0]])


def main():
    overturn, aif360, out = sys.argv[1:4]
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    features = make(out, int(sys.argv[4]) if len(sys.argv) > 4 else 8000)
    subprocess.run([overturn, "run", str(out / "job.toml")], check=True, capture_output=True)
    metrics, predicate = facts(aif360)
    model = Decisions(out / "model.onnx", features)
    table = pandas.read_parquet(out / "table.parquet")
    found = pyarrow.dataset.dataset(out / "out/counterfactuals").to_table(columns=["id", "status"]).to_pandas()
    affected = table[table.id.isin(found.id[found.status != "already_target"])]
    told = pyarrow.parquet.read_table(out / "out/reports/audit/actions.parquet").to_pylist()
    checked, sampled, faults = 0, 0, []
    for row in told:
        if row["attribute"] is None:
            continue
        steps = dict(part.split(" = ", 1) for part in row["changes"].split(", "))
        clause = predicate.Predicate(features=[row["attribute"]], values=[row["value"]])
        action = predicate.Predicate(features=list(steps), values=list(steps.values()))
        missed = metrics.incorrectRecoursesIfThen(clause, action, affected, model)
        checked += 1
        everybody = int((affected[row["attribute"]] == row["value"]).sum())
        if row["rows"] < everybody:
            sampled += 1
            share, told_share = missed / everybody, 1 - row["flipped"] / row["rows"]
            error = math.sqrt(max(share * (1 - share), 1 / row["rows"]) / row["rows"])
            if abs(share - told_share) > 4 * error:
                faults.append(f"{row['attribute']} = {row['value']}: {row['changes']}: {told_share:.4f} of "
                              f"{row['rows']} not helped, FACTS says {share:.4f} of {everybody}")
        elif row["rows"] - row["flipped"] != missed:
            faults.append(f"{row['attribute']} = {row['value']}: {row['changes']}: "
                          f"{row['rows'] - row['flipped']} not helped, FACTS says {missed}")
    print(json.dumps({"affected": len(affected), "clauses": checked, "sampled": sampled,
                      "faults": faults[:20]}))
    sys.exit(1 if faults or not checked else 0)


if __name__ == "__main__":
    main()
