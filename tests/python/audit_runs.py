"""The audit on Adult and on the demo: every table recounted, and what it costs beside the run.

    python tests/python/audit_runs.py OVERTURN DATA_FOLDER WORK_FOLDER [ROWS]
"""

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "jobs/paper"))
import evaluate  # before classifiers, which sets the threads of linear algebra
import classifiers
import pandas

ADULT = """
[input]
features = "audited.parquet"
schema = "{schema}"
key = "row_id"
where = "split = 'test'"
train_where = "split = 'train'"

[predictor]
kind = "onnx"
model = "model.onnx"

[predictor.rename]
"Marital Status" = "Marital_Status"
"Capital Gain" = "Capital_Gain"
"Capital Loss" = "Capital_Loss"
"Hours per week" = "Hours_per_week"

[target]
class = "{wanted}"

[explain]
method = "search"

[report.mmd]
space = "none"

[audit]
by = ["Sex", "Race", "age_band"]
label = "truth"

[output]
dir = "out"
overwrite = true
"""


def summary(program, arguments):
    command = [program, *map(str, arguments), "--format", "json"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{arguments}: ended with {run.returncode}\n{run.stdout}\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])


def recount(folder):
    oracle = Path(__file__).parent / "audit_oracle.py"
    run = subprocess.run([sys.executable, oracle, folder], capture_output=True, text=True)
    print(f"{folder.parent.name}: {run.stdout.strip().splitlines()[-1]}", flush=True)
    if run.returncode != 0:
        sys.exit(run.stdout + run.stderr)


def adult(program, data, work):
    folder = work / "adult"
    folder.mkdir(parents=True, exist_ok=True)
    case = classifiers.Case(data, "adult", "rf")
    if not (folder / "model.onnx").exists():
        classifiers.prepare(case, folder)
    rows = pandas.read_parquet(folder / "table.parquet")
    names = case.classes()
    rows["truth"] = [names[code] for code in rows[case.about["label"]["column"]]]
    bands = pandas.cut(rows["Age"].astype(float), [0, 25, 35, 45, 55, 65, 200], right=False)
    rows["age_band"] = bands.astype(str)
    rows.to_parquet(folder / "audited.parquet")
    job = ADULT.format(schema=PROJECT / "schemas/paper/adult.toml", wanted=names[1])
    (folder / "job.toml").write_text(job)
    summary(program, ["run", folder / "job.toml"])
    recount(folder / "out")


def demo(program, work, rows):
    folder = work / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / f"applications-{rows}"
    if not table.exists():
        subprocess.run([program, "synth", table, "--rows", str(rows)], check=True, stdout=subprocess.DEVNULL)
    audited = ['audit.by=["region","sex","education"]', 'audit.label="approved"']
    spent = {}
    for name, lines in (("without", ["audit.sections=[]"]), ("with", audited)):
        lines = ["output.overwrite=true", *lines]
        overrides = [word for line in lines for word in ("--override", line)]
        job = PROJECT / "jobs/demo/run.toml"
        out = folder / ("out" if name == "with" else "plain")
        found = summary(program, ["run", job, "--set", f"data={table}", "--set", f"out={out}", *overrides])
        spent[name] = found
    plain, audit = spent["without"], spent["with"]
    for name in ("cpu_seconds", "peak_bytes"):
        print(f"demo, {rows} rows: {name} {plain[name]:.1f} without, {audit[name]:.1f} with the audit")
    seconds = [of["seconds"]["reporting"] for of in (plain, audit)]
    print(f"demo, {rows} rows: {seconds[0]:.1f} s of reports without, {seconds[1]:.1f} s with", flush=True)
    recount(folder / "out")


def main():
    program, data, work = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    rows = int(sys.argv[4]) if len(sys.argv) > 4 else 200_000
    if (data / "adult.parquet").exists():
        adult(program, data, work)
    else:
        print(f"skipped: no adult.parquet in {data}")
    demo(program, work, rows)


main()
