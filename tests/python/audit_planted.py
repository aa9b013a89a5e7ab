"""Does the audit find what was planted, and nothing where nothing was?

    python tests/python/audit_planted.py OVERTURN FOLDER [SEEDS]

Planted: a model that approves of who has `a` and `b`. The group `one` lacks one of them, `two` both (its recourse costs
exactly twice, by all three costs), `none` both and may not get `a` (none is possible), `few` has too few rows to be told
of, `fine` lacks nothing. Removed: credit applications in random groups, none of which may `exceed` more often than
Holm's p-values at 5 % allow, over SEEDS divisions of the same answers.
"""

import pathlib
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
from scipy import stats
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.tree import DecisionTreeClassifier

JOB = """
[input]
features = "table"
schema = "features.toml"
key = "id"

[predictor]
kind = "onnx"
model = "model.onnx"
inputs = "matrix"
encoding = "codes"

[target]
class = "yes"

[explain]
method = "search"

[report.mmd]
space = "none"

[audit]
by = ["group"]
reference = { group = "one" }
label = "truth"

[output]
dir = "out"
overwrite = true
"""
FEATURES = """
[[feature]]
name = "a"
kind = "categorical"
values = ["without", "with"]

[[feature]]
name = "b"
kind = "categorical"
values = ["without", "with"]
"""


def expect(condition, said):
    if not condition:
        sys.exit(f"not found: {said}")


def overturn(program, arguments, code=0):
    run = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if run.returncode != code:
        sys.exit(f"{arguments}: ended with {run.returncode}, expected {code}\n{run.stdout}\n{run.stderr}")
    return run.stderr


def planted_table():
    """Group, a, b, whether `a` may be had, rows; as many again have both already."""
    groups = [("one", "with", "without", True, 700), ("two", "without", "without", True, 700),
              ("none", "without", "without", False, 700), ("few", "with", "without", True, 20),
              (None, "without", "with", True, 300)]
    columns = {name: [] for name in ("id", "group", "a", "b", "a__allowed", "truth")}

    def add(group, a, b, may, truth):
        columns["id"].append(len(columns["id"]))
        values = (group, a, b, None if may else ["without"], truth)
        for name, value in zip(list(columns)[1:], values):
            columns[name].append(value)

    for group, a, b, may, rows in groups:
        for row in range(rows):
            add(group, a, b, may, "yes" if row % 4 == 0 else "no")
            add(group, "with", "with", may, "yes")
    for _ in range(400):
        add("fine", "with", "with", True, "yes")
    types = {"a__allowed": pa.list_(pa.string())}
    return pa.table({name: pa.array(column, types.get(name)) for name, column in columns.items()})


def model(path):
    rows = np.array([[a, b] for a in (0, 1) for b in (0, 1)] * 10, dtype=np.float32)
    labels = np.where(rows.min(axis=1) > 0, "yes", "no")
    tree = DecisionTreeClassifier().fit(rows, labels)
    inputs = [("input", FloatTensorType([None, 2]))]
    found = convert_sklearn(tree, initial_types=inputs, options={"zipmap": False})
    path.write_bytes(found.SerializeToString())


def table(folder, name):
    frame = duckdb.sql(f"select * from '{folder}/out/reports/audit/{name}.parquet'").df()
    return frame.astype(object).where(frame.notna(), None)


def planted(program, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table").mkdir(exist_ok=True)
    (folder / "job.toml").write_text(JOB)
    (folder / "features.toml").write_text(FEATURES)
    parquet.write_table(planted_table(), folder / "table/part.parquet")
    model(folder / "model.onnx")
    overturn(program, ["run", folder / "job.toml"])
    groups = table(folder, "groups").set_index("value", drop=False)
    groups = {row["value"]: row for row in groups.to_dict("records") if row["attribute"]}
    one, two, none = (groups[name] for name in ("one", "two", "none"))
    expect(set(groups) == {"one", "two", "none", "few", "fine", None}, f"six groups in {set(groups)}")
    expect(one["reference"] and not two["reference"], "the job's reference group")
    for cost in ("cost_mean", "n_changed_mean", "effort_mean", "cost_p50"):
        expect(abs(two[cost] / one[cost] - 2) < 0.01, f"{cost} twice: {two[cost]} and {one[cost]}")
    expect(two["cost_mean"] == 2 * one["cost_mean"], "a mean cost that is exactly twice")
    expect(none["infeasible"] == 700 and none["preclusion_least"] == 1, f"a proof for each of {none}")
    expect(groups["few"]["suppressed"] and groups["few"]["recourse_rate"] is None, "a suppressed group")
    expect(groups["few"]["needed"] == 20, "its rows all the same")
    expect(groups["fine"]["needed"] == 0 and groups["fine"]["suppressed"], "a group without refusals")
    expect(groups[None]["valid"] == 300, "the group of the nulls")
    # A quarter of the refused 700 and all of the approved 700 are good: 175 of 875.
    expect(one["positives"] == 875 and one["false_negatives"] == 175, f"false negatives in {one}")
    expect(abs(one["nawb"] - 100 * 0.2 * 1 / 2) < 1e-9, f"NAWB 10: {one['nawb']}")
    check_gaps(folder)
    changes = table(folder, "changes")
    changes = changes[changes["value"] == "two"].set_index("signature")
    expect(changes.loc["a to with, b to with", "share"] == 1, "the only change of `two`")
    expect(changes.loc["a to with, b to with", "difference"] == 1, "nobody else's change")
    job = (folder / "job.toml").read_text()
    (folder / "gated.toml").write_text(job + "\n[report.gates]\nmax_gap = 0.5\n")
    said = overturn(program, ["run", folder / "gated.toml"], 3)
    expect("max_gap" in said and "1.0000" in said, f"the gate in {said}")


def check_gaps(folder):
    gaps = table(folder, "gaps")
    gaps = gaps[gaps["against"] == "reference"]

    def verdict(group, metric):
        row = gaps[(gaps["value"] == group) & (gaps["metric"] == metric)].iloc[0]
        return row["verdict"], row["difference"], row["cost_agrees"]

    for metric in ("cost_mean", "n_changed_mean", "effort_mean", "social_burden", "effectiveness", "curve"):
        found = verdict("two", metric)
        expect(found[0] == "exceeds" and found[2], f"that {metric} of `two` exceeds: {found}")
    expect(verdict("two", "recourse_rate")[0] == "within", "that all of `two` are helped, as all of `one`")
    expect(verdict("none", "recourse_rate")[:2] == ("exceeds", -1.0), "that none of `none` is helped")
    expect(verdict("few", "recourse_rate")[0] is None, "no verdict on a few")


def removed(program, folder, seeds):
    root = pathlib.Path(__file__).resolve().parents[2]
    folder.mkdir(parents=True, exist_ok=True)
    overturn(program, ["synth", folder / "applications", "--rows", "6000", "--seed", "3"])
    rows = duckdb.sql(f"select * from '{folder}/applications/**/*.parquet' order by application_id").df()
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        drawn = random.choice(["red", "green", "blue"], len(rows), p=[0.5, 0.3, 0.2])
        rows = pd.concat([rows, pd.Series(drawn, name=f"group_{seed}")], axis=1)
    (folder / "table").mkdir(exist_ok=True)
    duckdb.sql(f"copy (from rows) to '{folder}/table/part.parquet' (format parquet)")
    job = JOB.replace("features.toml", str(root / "schemas/credit.toml")).replace('"id"', '"application_id"')
    job = job.replace('"model.onnx"', f'"{root}/jobs/demo/forest.onnx"').replace('inputs = "matrix"\n', "")
    job = job.replace('encoding = "codes"\n', "").replace('"yes"', '"approved"').replace('"truth"', '"approved"')
    job = job.replace('by = ["group"]\nreference = { group = "one" }', "tolerance = 0.0")
    (folder / "job.toml").write_text(job)
    overturn(program, ["run", folder / "job.toml"])
    families, tests = 0, 0
    for seed in range(seeds):
        overturn(program, ["audit", folder / "out", "--by", f"group_{seed}"])
        gaps = table(folder, "gaps")
        told = gaps[gaps["verdict"].notna()]
        tests += len(told)
        families += bool((told["verdict"] == "exceeds").any())
    # Two families of tests a seed (against the reference and the rest), which are the same groups.
    most = int(stats.binom.ppf(0.999, seeds, 0.1))
    print(f"{seeds} seeds, {tests} verdicts: {families} seeds in which one exceeds (at most {most} by chance)")
    expect(families <= most, "no difference where there is none")


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    planted(program, folder / "planted")
    print("everything that was planted was found")
    if seeds:
        removed(program, folder / "removed", seeds)


main()
