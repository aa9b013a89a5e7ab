"""Rows that the program calls infeasible, held against every row that they may become.

    proven.py make OVERTURN FOLDER    writes table, schema and job: the demo's forest, four features that may change
    proven.py check FOLDER [ROWS]     asks ONNX Runtime about all that rows without a counterfactual may become

What a row may become is far more than the job's `queries_per_row`, so that only bounds can prove anything. `check`
looks at up to ROWS rows (200) that are infeasible, and as many that are solved; it prints a line of JSON and ends
with code 1 if an infeasible row can be solved, an unsolved one is left, or the model denies a counterfactual.
"""

import itertools
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy
import onnxruntime
import pandas

PROJECT = Path(__file__).resolve().parents[2]
MODEL = PROJECT / "jobs/demo/forest.onnx"
SCHEMA = tomllib.loads((PROJECT / "schemas/credit.toml").read_text())
NUMERICS = [feature["name"] for feature in SCHEMA["feature"] if feature["kind"] == "numeric"]
# What these may become, by the schema's words.
OPTIONS = {
    "age": lambda own: range(own, min(own + 2, 80) + 1),
    "late_payments": lambda own: range(max(own - 3, 0), own + 1),
    "open_accounts": lambda own: range(own + 1),
    "loan_term_months": lambda own: sorted({own, *(own + 6 * step for step in range(-20, 21)
                                                   if 6 <= own + 6 * step <= 120)}),
}
JOB = """
[input]
features = "table"
schema = "schema.toml"
key = "application_id"
where = "{usual}"
[predictor]
kind = "onnx"
model = "{model}"
probabilities = "given"
[target]
class = "approved"
[explain]
method = "search"
queries_per_row = 60
min_score = 0.0
coherence = "off"
[output]
dir = "out"
"""


def value(thing):
    if isinstance(thing, dict):
        return "{ " + ", ".join(f"{name} = {value(of)}" for name, of in thing.items()) + " }"
    return json.dumps(thing)


def make(overturn, folder):
    subprocess.run([overturn, "synth", folder / "table", "--rows", "6000", "--seed", "5", "--quiet"], check=True)
    text = ""
    for feature in SCHEMA["feature"]:
        kept = feature if feature["name"] in OPTIONS else {"change": "never"} | {
            name: feature[name] for name in feature if name not in ("change", "limit", "allowed", "step", "cost")}
        text += "[[feature]]\n" + "".join(f"{name} = {value(of)}\n" for name, of in kept.items()) + "\n"
    (folder / "schema.toml").write_text(text)
    usual = " AND ".join(f"{feature['name']} IS NOT NULL" for feature in SCHEMA["feature"])
    (folder / "job.toml").write_text(JOB.format(model=MODEL, usual=usual))


def classes(session, rows):
    """The model's class of each row."""
    feed = {}
    for given in session.get_inputs():
        column = rows[given.name]
        numeric = given.name in NUMERICS
        feed[given.name] = column.to_numpy(dtype=numpy.float32 if numeric else object).reshape(-1, 1)
    return session.run(None, feed)[0].astype(str)


def reachable(row):
    """Every row that a row may become."""
    values = list(itertools.product(*(options(int(row[name])) for name, options in OPTIONS.items())))
    rows = pandas.DataFrame([row] * len(values)).reset_index(drop=True)
    for index, name in enumerate(OPTIONS):
        rows[name] = [combination[index] for combination in values]
    return rows


def check(folder, most):
    table = pandas.read_parquet(folder / "table").set_index("application_id")
    found = pandas.read_parquet(folder / "out/counterfactuals").set_index("application_id")
    session = onnxruntime.InferenceSession(MODEL)
    groups = {status: found[found["status"] == status].index[:most] for status in ("infeasible", "solved")}
    wrong, asked = [], 0
    for key in groups["infeasible"]:
        rows = reachable(table.loc[key])
        asked += len(rows)
        if (classes(session, rows) == "approved").any() or not found.loc[key, "certified"]:
            wrong.append(int(key))
    features = [feature["name"] for feature in SCHEMA["feature"]]
    solved = found.loc[groups["solved"], [f"cf_{name}" for name in features]].set_axis(features, axis=1)
    denied = int((classes(session, solved) != "approved").sum())
    statuses = {status: int(count) for status, count in found["status"].value_counts().items()}
    print(json.dumps({"statuses": statuses, "infeasible": len(groups["infeasible"]), "asked": asked,
                      "wrong": wrong[:5], "denied": denied}))
    sys.exit(bool(wrong) or denied > 0 or statuses.get("unsolved", 0) > 0)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "check"):
        sys.exit(__doc__)
    if sys.argv[1] == "make":
        make(sys.argv[2], Path(sys.argv[3]).resolve())
    else:
        check(Path(sys.argv[2]).resolve(), int((sys.argv + ["200"])[3]))
