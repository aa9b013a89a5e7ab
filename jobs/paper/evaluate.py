"""Runs the program, and takes the paper's figures from what it published.

Validity is over all rows with a wanted class; L0, L1 and changed features over the valid ones; queries over all; MMD²
over all counterfactuals of a class, as reported. The rest is not taken at the program's word: counterfactuals are
counted again, and constraints are checked by tests/python/check_run.py.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

PROJECT = Path(__file__).resolve().parents[2]
# As it is before classifiers.py sets the threads of linear algebra: those are not for the program.
ENVIRONMENT = dict(os.environ)
MMD = ["mmd2", "ratio", "held_out_mmd2", "unchanged_mmd2"]
MEANS = ["l0", "l1", "changed", "queries", "certified"]


class Failed(Exception):
    """A process ended with an error."""


class Children:
    """Processes started by any thread, so that one thread can stop them all."""

    def __init__(self):
        self.lock, self.running, self.stopping = threading.Lock(), set(), False

    def start(self, command, said, talk):
        with self.lock:
            if self.stopping:
                raise Failed("told to stop")
            process = subprocess.Popen(command, stdout=said, stderr=talk, env=ENVIRONMENT)
            self.running.add(process)
            return process

    def wait(self, process):
        """Gives the processor seconds of this process alone, whatever others there are."""
        _, status, used = os.wait4(process.pid, 0)
        with self.lock:
            process.returncode = os.waitstatus_to_exitcode(status)
            self.running.remove(process)
        return used.ru_utime + used.ru_stime

    def stop(self):
        with self.lock:
            self.stopping = True
            for process in self.running:
                process.terminate()


CHILDREN = Children()


@dataclass(frozen=True)
class Said:
    """How a process ended, and what it said and cost."""

    code: int
    stdout: str
    stderr: str
    wall: float
    cpu: float


def run(command):
    command = [str(part) for part in command]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as talk:
        process = CHILDREN.start(command, said, talk)
        cpu = CHILDREN.wait(process)
        wall = time.monotonic() - began
        said.seek(0)
        talk.seek(0)
        return Said(process.returncode, said.read(), talk.read(), wall, cpu)


def failure(what, said):
    return Failed(f"`{what}` ended with {said.code}:\n{said.stderr.strip()}")


def program(overturn, verb, job, *arguments):
    """Runs the program; gives its summary, and the wall and processor seconds it took."""
    said = run([overturn, verb, job, "--quiet", "--format", "json", *arguments])
    if said.code != 0:
        raise failure(f"{verb} {job}", said)
    return json.loads(said.stdout.splitlines()[-1]), said.wall, said.cpu


def figures(published, rejected):
    """Figures of the counterfactual table. Rejected rows, too, wanted a decision and have not got it."""
    tables = answers(published)
    rows, valid, *means = tables.execute(f"SELECT {columns(tables)} FROM answers").fetchone()
    # What found the counterfactual, where there is one: `solved` alone would not tell methods apart.
    by_status = "SELECT coalesce(source, status), count(*) FROM answers GROUP BY 1 ORDER BY 2 DESC, 1"
    statuses = dict(tables.execute(by_status).fetchall()) | ({"rejected": rejected} if rejected else {})
    rows += rejected
    found = {"rows": rows, "valid": valid, "validity": valid / rows if rows else None,
             "statuses": {status: count / rows for status, count in statuses.items()}}
    return found | dict(zip(MEANS, means))


def figures_by_class(published):
    """The same by wanted class, where rejected rows have none."""
    tables = answers(published)
    query = f"SELECT target, {columns(tables)} FROM answers GROUP BY 1 ORDER BY 1"
    found = {}
    for target, rows, valid, *means in tables.execute(query).fetchall():
        found[target] = {"rows": rows, "valid": valid, "validity": valid / rows} | dict(zip(MEANS, means))
    return found


def answers(published):
    """A database with the first counterfactual of each row as the view `answers`."""
    tables = duckdb.connect()
    source = f"read_parquet('{published}/counterfactuals/**/*.parquet')"
    tables.execute(f"CREATE VIEW answers AS FROM {source} WHERE sample = 0")
    return tables


def columns(tables):
    """Rows, valid ones, and the means that there are columns for."""
    there = [name for name, *_ in tables.execute("DESCRIBE answers").fetchall()]
    queries = "avg(queries)" if "queries" in there else "NULL"
    certified = "avg(CAST(certified AS INTEGER)) FILTER (valid)" if "certified" in there else "NULL"
    return ("count(*), count(*) FILTER (valid), avg(l0) FILTER (valid), avg(l1) FILTER (valid), "
            f"avg(n_changed) FILTER (valid), {queries}, {certified}")


def mmd(published):
    """MMD² and its yardsticks, class by class and as means over classes; of valid counterfactuals alone as well."""
    query = (f"SELECT \"over\", target, {', '.join(MMD)} FROM read_parquet('{published}/reports/mmd.parquet') "
             "WHERE level = 'target'")
    classes = {"all": {}, "valid": {}}
    for over, target, *numbers in duckdb.connect().execute(query).fetchall():
        classes[over][target] = dict(zip(MMD, numbers))
    means = {name: mean(classes["all"].values(), name) for name in MMD}
    return means | {"mmd_by_class": classes["all"], "mmd_by_class_valid": classes["valid"]}


def check(published, table, schema, key, where):
    """What an independent query over input and output has to say."""
    script = [sys.executable, PROJECT / "tests/python/check_run.py"]
    said = run([*script, published, table, schema, "--key", key, "--where", where])
    if not said.stdout:
        raise failure(f"check_run.py {published}", said)
    found = json.loads(said.stdout.splitlines()[-1])
    return {"violations": found.get("constraints", {}).get("violations"), "failed_checks": found["failed"]}


def mean(runs, key):
    numbers = [run[key] for run in runs if run.get(key) is not None]
    return statistics.fmean(numbers) if numbers else None
