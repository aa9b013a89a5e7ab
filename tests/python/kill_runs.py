"""Runs that are killed at random moments must end, resumed, with the tables of one that was not.

    kill_runs.py OVERTURN WORK_FOLDER [--kills 30] [--rows 60000] [--seed 0]

Each round starts a whole run (training, explaining, reports), kills it with SIGKILL after a random share of the
time that a run takes, and starts it again with `--resume`; every third resumption is killed as well. Meanwhile a
reader looks at the output folder all the time. Checked: all files of the tables and reports are the same, byte
for byte, as without a kill (of the training curve, whose seconds differ, all but those); the generator's files
are the same; the reader never sees a folder that is not whole; nothing is left beside it.

The last line is a JSON object with what was done. Ends with code 1 at the first difference.
"""

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet

PROJECT = Path(__file__).resolve().parents[2]
JOB = """
[input]
features = "{table}"
schema = "{project}/schemas/credit.toml"
key = "application_id"
max_reject_share = 0.5
[predictor]
kind = "onnx"
model = "{project}/jobs/demo/forest.onnx"
probabilities = "given"
[target]
class = "approved"
[autoencoder]
steps = 600
batch = 128
hidden = [64]
[train]
max_steps = 400
batch = 128
hidden = 64
checkpoint_seconds = 0.3
[explain]
unit_rows = {unit_rows}
samples = 2
[report]
by = ["region"]
[output]
dir = "out"
partition_by = ["status"]
"""
# What changes from run to run: the training's clock.
CLOCKED = "reports/training.parquet"


class Reader(threading.Thread):
    """Looks at the folder over and over."""

    def __init__(self, out):
        super().__init__(daemon=True)
        self.out, self.looks, self.seen, self.broken, self.over = out, 0, 0, None, False

    def run(self):
        while not self.over:
            self.look()
            time.sleep(0.001)

    def look(self):
        self.looks += 1
        try:
            names = {path.name for path in self.out.iterdir()}
        except FileNotFoundError:
            return
        try:
            tables = json.loads((self.out / "manifest.json").read_text())["tables"]
            sizes = [(self.out / table["path"]).stat().st_size == table["bytes"] for table in tables]
            whole = "_SUCCESS" in names and all(sizes)
        except (FileNotFoundError, json.JSONDecodeError) as error:
            # Between two rounds the folder is moved away by this script; then it is gone as a whole.
            whole = not self.out.exists()
            names = f"{names} {error}"
        self.seen += 1
        if not whole:
            self.broken = str(names)


def fingerprint(out):
    """Digests of all files that must be the same."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.is_dir() or name in {"manifest.json", "generator/generator.json"}:
            continue
        if name == CLOCKED:
            table = pyarrow.parquet.read_table(path).drop_columns(["seconds"])
            found[name] = hashlib.sha256(str(table.to_pydict()).encode()).hexdigest()
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def fail(message):
    print(f"FAIL {message}", flush=True)
    sys.exit(1)


def start(given, *arguments):
    command = [given.overturn, "run", given.work / "job.toml", "--format", "json", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    said, talk = process.communicate(timeout=600)
    if process.returncode != 0:
        fail(f"a run ended with {process.returncode}:\n{talk}")
    return json.loads(said.splitlines()[-1])


def killed(given, after, *arguments):
    """Starts a run and kills it; gives whether it had ended before."""
    process = start(given, *arguments)
    time.sleep(after)
    process.kill()
    process.communicate()
    return process.returncode != -9


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn")
    parser.add_argument("work", type=Path)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def prepare(given):
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    table = given.work / "applications"
    make = [given.overturn, "synth", table, "--rows", str(given.rows), "--files", "3", "--nulls", "0.01"]
    subprocess.run(make, check=True, capture_output=True)
    job = JOB.format(table=table, project=PROJECT, unit_rows=given.rows // 15)
    (given.work / "job.toml").write_text(job)


def main():
    given = arguments()
    prepare(given)
    out = given.work / "out"
    began = time.monotonic()
    finish(start(given))
    usual = time.monotonic() - began
    expected = fingerprint(out)
    shutil.rmtree(out)
    print(f"a run takes {usual:.1f} s and leaves {len(expected)} files", flush=True)
    reader = Reader(out)
    reader.start()
    chance = random.Random(given.seed)
    kills, rounds, resumed, too_late = 0, 0, 0, 0
    while kills < given.kills:
        after = chance.uniform(0.0, 1.05) * usual
        over = killed(given, after)
        kills += not over
        too_late += over
        if rounds % 3 == 2 and kills < given.kills:
            kills += not killed(given, chance.uniform(0.0, 0.6) * usual, "--resume")
        summary = finish(start(given, "--resume"))
        resumed += summary["units_resumed"]
        rounds += 1
        found = fingerprint(out)
        if found != expected:
            different = [name for name in expected | found if expected.get(name) != found.get(name)]
            fail(f"killed after {after:.2f} s, other files: {different}")
        if reader.broken:
            fail(f"a reader saw part of a run: {reader.broken}")
        left = [path.name for path in given.work.iterdir() if path.name.startswith(".out.")]
        if left:
            fail(f"killed after {after:.2f} s, left: {left}")
        out.rename(given.work / ".gone")
        shutil.rmtree(given.work / ".gone")
        print(f"ok killed after {after:.2f} s, {summary['units_resumed']} of {summary['units']} units kept",
              flush=True)
    reader.over = True
    reader.join()
    told = {"kills": kills, "rounds": rounds, "ended_before_the_kill": too_late, "units_kept": resumed,
            "reader_looks": reader.looks, "reader_saw_a_run": reader.seen, "seconds_of_a_run": round(usual, 1)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
