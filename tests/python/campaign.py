"""What the campaigns share: a small job whose runs take about a second, digests of what must be the same, and a
reader that looks at an output folder all the time."""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet

PROJECT = Path(__file__).resolve().parents[2]
# Where the program leaves what is not finished, beside `out`.
UNFINISHED = [".out.staging", ".out.journal", ".out.checkpoint"]
# What changes from run to run: the training's clock.
CLOCKED = "reports/training.parquet"
PLAIN = """
[predictor]
kind = "onnx"
model = "{project}/jobs/demo/logistic.onnx"
"""
PROGRAM = """
[predictor]
kind = "subprocess"
command = ["{python}", "{folder}/scorer.py", "{mark}"]
workers = 1
"""
JOB = """
[input]
features = "table"
schema = "{project}/schemas/credit.toml"
key = "application_id"
max_reject_share = 0.5
{predictor}
[target]
class = "approved"
[autoencoder]
steps = 300
batch = 64
hidden = [16]
latent = 8
min_quality = 0.0
[train]
max_steps = 300
batch = 64
hidden = 16
validation_rows = 100
validate_every = 100
checkpoint_seconds = 0.1
[explain]
split_rows = 100
[report]
by = ["region"]
mmd.encoders = 1
[output]
dir = "out"
partition_by = ["status"]
[runtime]
threads = 1
"""
# A scorer that does not end when its input does: whoever starts it has to end it.
SCORER = """
import os, sys, time
answers = os.fdopen(os.dup(1), "wb"); os.dup2(2, 1)
import pyarrow as pa
batches = pa.ipc.open_stream(sys.stdin.buffer)
metadata = {"overturn.protocol": "1", "overturn.classes": '["rejected", "approved"]'}
schema = pa.schema([("label", pa.string())], metadata)
with pa.ipc.new_stream(answers, schema) as stream:
    for batch in batches:
        labels = ["approved" if amount < 9000 else "rejected" for amount in batch["loan_amount"].to_pylist()]
        stream.write_batch(pa.record_batch([pa.array(labels, pa.string())], schema=schema))
        answers.flush()
time.sleep(1000)
"""


def prepare(overturn, folder, rows, mark="scorer"):
    """A fresh folder with a table and two jobs: `job.toml` with an ONNX model, `program.toml` with a scorer."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make = [overturn, "synth", folder / "table", "--rows", str(rows), "--files", "2", "--nulls", "0.01"]
    subprocess.run(make, check=True, capture_output=True)
    (folder / "scorer.py").write_text(SCORER)
    program = PROGRAM.format(python=sys.executable, folder=folder, mark=mark)
    for name, predictor in (("job.toml", PLAIN.format(project=PROJECT)), ("program.toml", program)):
        (folder / name).write_text(JOB.format(project=PROJECT, predictor=predictor))


def digest(path):
    if path.name == Path(CLOCKED).name and path.parent.name == "reports":
        table = pyarrow.parquet.read_table(path).drop_columns(["seconds"])
        return hashlib.sha256(str(table.to_pydict()).encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fingerprint(out):
    """Digests of all files that must be the same; those with clocks, versions or paths in them are not."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    named = {str(path.relative_to(out)): path for path in files}
    varying = {"manifest.json", "_SUCCESS", "generator/generator.json"}
    return {name: digest(path) for name, path in named.items() if name not in varying}


def differences(expected, found):
    return sorted(name for name in expected | found if expected.get(name) != found.get(name))


def is_whole(out):
    """Whether a folder holds every file of its manifest in its full size; `None` if there is none."""
    try:
        folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        opener = lambda path, flags: os.open(path, flags, dir_fd=folder)
        with open("manifest.json", opener=opener) as file:
            tables = json.load(file)["tables"]
        sizes = all(os.stat(table["path"], dir_fd=folder).st_size == table["bytes"] for table in tables)
        os.stat("_SUCCESS", dir_fd=folder)
        return bool(tables) and sizes
    except (OSError, ValueError, KeyError):
        return False
    finally:
        os.close(folder)


class Reader(threading.Thread):
    """Looks at a folder over and over: it must be whole whenever it is there, and there if it must be."""

    def __init__(self, out):
        super().__init__(daemon=True)
        self.out, self.pause = out, threading.Lock()
        self.looks = self.seen = self.partial = self.absent = 0
        self.must_exist = self.over = False

    def run(self):
        while not self.over:
            with self.pause:
                self.look()
            time.sleep(0.002)

    def look(self):
        required, whole = self.must_exist, is_whole(self.out)
        self.looks += 1
        self.seen += whole is not None
        self.partial += whole is False
        self.absent += whole is None and required


def processes(mark):
    """Processes with a text in their command line, other than this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        if mark.encode() in command and state != "Z":
            found.append(int(entry.name))
    return found


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif path.exists() or path.is_symlink():
        path.unlink()


def clean(folder):
    """Removes what runs have left in a folder, hidden or not."""
    for path in folder.iterdir():
        if path.name == "out" or path.name.startswith(".out"):
            remove(path)


def arguments(purpose, **defaults):
    """What a campaign is started with: the program, a work folder, and an option for each default, of its type."""
    parser = argparse.ArgumentParser(description=purpose.splitlines()[0])
    parser.add_argument("overturn")
    parser.add_argument("work", type=Path)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    given = parser.parse_args()
    given.work = given.work.resolve()
    return given


def together(tasks):
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
