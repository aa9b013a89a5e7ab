"""Incoherent answers with and without rules: the demo's table with a part and its whole, a ratio and a rule.

    coherence.py OVERTURN [--rows 20000] [--model lr|forest] [--steps N] [--out DIR]

Adds coupled columns to the table of `overturn synth`: late payments of the last year (a part of all late
payments), a debt-to-income ratio that follows from two columns, and a card balance that is never above its
limit. Trains a model on them, and runs the same job three ways: `off` (no rules, `explain.coherence = "off"`),
`observed` (default settings, no rule in the schema) and `rules` (rules and a derived column in the schema). An
answer is incoherent if it breaks what every row of the table keeps to. Prints a row a way, and one JSON object.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy
import pyarrow
import pyarrow.parquet
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FEATURES = ["income", "debt", "debt_to_income", "late_12m", "late_total", "card_balance", "card_limit", "savings"]
# What every row of the table keeps to.
COHERENT = {
    "late_12m <= late_total": "cf_late_12m <= cf_late_total",
    "card_balance <= card_limit": "cf_card_balance <= cf_card_limit",
    "debt_to_income = debt / income": "abs(cf_debt_to_income - cf_debt / cf_income) <= 1e-6 * cf_debt_to_income + 1e-9",
}
WAYS = {"off": "off", "observed": "observed", "rules": "observed"}


def make_table(rows, folder):
    """A table whose columns are coupled, and the decisions that a lender made."""
    random = numpy.random.default_rng(16)
    income = numpy.round(numpy.exp(random.normal(10.3, 0.5, rows)), -2) + 3000
    debt = numpy.round(income * random.gamma(1.2, 0.25, rows), -2)
    late_total = random.poisson(random.gamma(0.7, 3.0, rows))
    late_12m = random.binomial(late_total, 0.4)
    limit = numpy.round(income * random.uniform(0.05, 0.4, rows), -2) + 500
    balance = numpy.floor(limit * numpy.minimum(random.beta(1.2, 1.5, rows) * 1.15, 1.0))
    savings = numpy.round(numpy.exp(random.normal(8.0, 1.2, rows)), -1)
    ratio = debt / income
    risk = 2.2 * ratio + 0.5 * late_12m + 0.15 * late_total + 1.5 * balance / limit - 0.4 * numpy.log1p(savings) / 3
    approved = risk + random.normal(0, 0.5, rows) < numpy.quantile(risk, 0.6)
    columns = dict(zip(FEATURES, [income, debt, ratio, late_12m, late_total, balance, limit, savings]))
    columns = {name: values.astype(float) for name, values in columns.items()}
    columns["id"] = numpy.arange(rows)
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "table.parquet")
    return numpy.column_stack([columns[name] for name in FEATURES]), approved


def make_model(kind, matrix, approved, folder):
    forest = RandomForestClassifier(40, max_depth=8, min_samples_leaf=20, random_state=0, n_jobs=2)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)) if kind == "lr" else forest
    model.fit(matrix.astype(numpy.float32), approved.astype(int))
    exported = to_onnx(model, initial_types=[("x", FloatTensorType([None, len(FEATURES)]))],
                       options={id(model): {"zipmap": False}})
    (folder / "model.onnx").write_bytes(exported.SerializeToString())


def schema_text(way):
    lines = [f'[[feature]]\nname = "{name}"\nkind = "numeric"\n' for name in FEATURES]
    if way == "rules":
        lines += ['[[rule]]\ncheck = "late_12m <= late_total"\n', '[[rule]]\ncheck = "card_balance <= card_limit"\n',
                  '[[derived]]\nname = "debt_to_income"\nvalue = "debt / income"\n']
    return "\n".join(lines)


def run_way(overturn, way, steps, folder):
    (folder / f"{way}.schema.toml").write_text(schema_text(way))
    (folder / f"{way}.toml").write_text(f"""
        [input]
        features = "table.parquet"
        schema = "{way}.schema.toml"
        key = "id"
        [predictor]
        kind = "onnx"
        model = "model.onnx"
        inputs = "matrix"
        [target]
        class = "1"
        [explain]
        coherence = "{WAYS[way]}"
        [train]
        {f"max_steps = {steps}" if steps else ""}
        [output]
        dir = "{way}"
        overwrite = true
        """)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([overturn, "run", folder / f"{way}.toml", "--format", "json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(cpu, 1)}


def figures(way, folder):
    broken = ", ".join(f"count(*) FILTER (valid AND NOT ({rule}))" for rule in COHERENT.values())
    any_broken = " OR ".join(f"NOT ({rule})" for rule in COHERENT.values())
    rows, valid, incoherent, changed, l1, queries, *each = duckdb.sql(f"""
        SELECT count(*), count(*) FILTER (valid), count(*) FILTER (valid AND ({any_broken})),
            avg(n_changed) FILTER (valid), avg(l1) FILTER (valid), avg(queries), {broken}
        FROM read_parquet('{folder}/{way}/counterfactuals/**/*.parquet') WHERE status <> 'already_target'""").fetchall()[0]
    explaining = json.loads((folder / way / "manifest.json").read_text())["summary"]
    return {"way": way, "rows_in_need": rows, "valid": valid, "incoherent": incoherent, "changed": round(changed, 3),
            "l1": round(l1, 4), "queries": round(queries, 1), "by_rule": dict(zip(COHERENT, each)),
            "explain_seconds": round(explaining["seconds"]["explaining"], 2)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("overturn", type=Path)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--model", choices=["lr", "forest"], default="lr")
    parser.add_argument("--steps", type=int, help="training steps; the default setting without it")
    parser.add_argument("--out", type=Path, default=Path("out/coherence"))
    given = parser.parse_args()
    folder = given.out.resolve() / given.model
    folder.mkdir(parents=True, exist_ok=True)
    make_model(given.model, *make_table(given.rows, folder), folder)
    found = []
    for way in WAYS:
        cost = run_way(given.overturn.resolve(), way, given.steps, folder)
        found.append(figures(way, folder) | cost)
        print(" ".join(f"{key}={value}" for key, value in found[-1].items()), flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
