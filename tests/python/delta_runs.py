"""Runs that are killed around their commit to a Delta table have their rows there exactly once.

    delta_runs.py OVERTURN WORK_FOLDER [--kills 20] [--rows 300] [--seed 0] [--s3]

Each round is a night: a run appends to one table or replaces a night of another, is killed by SIGKILL a few
milliseconds after it said that it puts files below the table, that it commits, or that it has committed, and is
resumed. Another writer appends to the first table meanwhile. At the end every night's rows are compared with its
folder, by DuckDB and by Python's `deltalake`; the version before the last is read back as it was. With `--s3` the
tables lie in an S3 server on loopback (moto).

The last line is a JSON object. Ends with code 1 if anything was wrong.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from delta_tables import read, same

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MOMENTS = ["putting files below", "committing to", "committed to"]
JOB = """[input]
features = "{table}"
key = "application_id"
schema = "{root}/schemas/credit.toml"
[predictor]
kind = "onnx"
model = "{root}/jobs/demo/logistic.onnx"
[target]
class = "approved"
[explain]
method = "nearest"
[output]
dir = "${{out}}"
partition_by = ["status"]
{output}
"""


def prepare(given):
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    table = given.work / "applications"
    subprocess.run([given.overturn, "synth", table, "--rows", str(given.rows)], check=True, capture_output=True)
    modes = {"append": 'mode = "append"',
             "replaced": 'mode = "replace_where", where = "status <> \'\'"'}
    for name, mode in modes.items():
        write_job(given, name, f'table = {{ url = "{given.lake}/{name}", format = "delta", {mode} }}')


def write_job(given, name, output):
    text = JOB.format(table=given.work / "applications", root=ROOT, output=output)
    (given.work / f"{name}.toml").write_text(text)


@contextlib.contextmanager
def lake(given):
    """Where the tables are: in the work folder, or in a server that all programs started from here know."""
    given.lake = str(given.work)
    if not given.s3:
        yield
        return
    import stores

    with stores.server() as port:
        os.environ.update(stores.environment(port, given.work / "cache"))
        os.environ.update({"AWS_DEFAULT_REGION": "us-east-1", "AWS_CONDITIONAL_PUT": "etag"})
        given.s3 = stores.client(port)
        given.s3.create_bucket(Bucket=stores.BUCKET)
        given.lake = f"s3://{stores.BUCKET}/lake"
        yield


def start(given, name, night):
    out = given.work / f"{name}-{night}"
    line = [given.overturn, "run", given.work / f"{name}.toml", "--set", f"out={out}", "--resume", "--override",
            f"runtime.seed={night}", "--format", "json"]
    return out, subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed(given, name, night, chance):
    """Kills a run near one of its moments; whether it was still there to be killed."""
    _, process = start(given, name, night)
    moment = chance.choice(MOMENTS)
    for line in process.stderr:
        if moment in line:
            time.sleep(chance.uniform(0, 0.004))
            break
    alive = process.poll() is None
    process.kill()
    process.communicate()
    return moment if alive and process.returncode == -9 else None


def finished(given, name, night):
    out, process = start(given, name, night)
    told, talk = process.communicate(timeout=120)
    if process.returncode != 0:
        raise SystemExit(f"{name} {night}: code {process.returncode}: {talk[-600:]}")
    return out, json.loads(told.splitlines()[-1])["table"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("overturn", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--s3", action="store_true")
    given = parser.parse_args()
    with lake(given):
        campaign(given)


def campaign(given):
    prepare(given)
    chance, kills, repeated, failures = random.Random(given.seed), dict.fromkeys(MOMENTS, 0), 0, []
    nights = {"append": [], "replaced": []}
    out, _ = finished(given, "append", 10_000)
    nights["append"].append(out)
    noise = [sys.executable, HERE / "delta_tables.py", "noise", f"{given.lake}/append", str(given.kills * 4)]
    noise = subprocess.Popen(noise, stdout=subprocess.PIPE, text=True)
    night = 0
    while sum(kills.values()) < given.kills:
        name = ("append", "replaced")[night % 2]
        night += 1
        moment = killed(given, name, night, chance)
        if moment:
            kills[moment] += 1
        out, commit = finished(given, name, night)
        repeated += commit["repeated"]
        nights[name].append(out)
        print(f"night {night}: {name}, killed at {moment}, version {commit['version']}", flush=True)
    written = json.loads(noise.communicate()[0].splitlines()[-1])["written"]
    expected = {"append": (nights["append"], written), "replaced": (nights["replaced"][-1:], 0)}
    for name, (outs, others) in expected.items():
        found = same(f"{given.lake}/{name}", *map(str, outs))
        for reader in ("duckdb", "deltalake"):
            if found[reader] != {"missing": 0, "others": others}:
                failures.append(f"{name}, by {reader}: {found[reader]}, expected {others} others")
    now = read(f"{given.lake}/replaced")
    before = read(f"{given.lake}/replaced", now["version"] - 1)
    if before["run_id"] == now["run_id"] or before["rows"] != now["rows"]:
        failures.append(f"the version before the last is not that of another night: {before}")
    print(json.dumps({"kills": kills, "nights": night, "committed_before_kill": repeated, "rows_of_other": written,
                      "failures": failures}))
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
