"""Runs that are killed around their append to an Iceberg table have their rows there exactly once.

    iceberg_runs.py OVERTURN WORK_FOLDER [--kills 20] [--rows 300] [--seed 0] [--s3]

Each round is a night: a run appends to a table, is killed by SIGKILL a few milliseconds after it said that it puts files
below the table, that it commits, or that it has committed, and is resumed. The catalogue, on loopback, loses the answers
of some commits and refuses others; another writer, pyiceberg, appends to the same table meanwhile. At the end every
night's rows are compared with its folder, by pyiceberg and, on a disk, by DuckDB; a snapshot of the first night is read
back as it was. With `--s3` the tables lie in an S3 server on loopback (moto).

The last line is a JSON object. Ends with code 1 if anything was wrong.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import delta_runs
from delta_runs import HERE, MOMENTS, finished, killed
from iceberg_tables import read, same

TABLE = "lake.recourse"


@contextlib.contextmanager
def catalogue(given):
    """A REST catalogue that is not well, with its tables where the lake is."""
    line = [sys.executable, HERE / "iceberg_server.py", given.work / "catalogue", "--lose", "0.15", "--fail", "0.15"]
    if given.s3:
        line += ["--warehouse", given.lake]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()


def campaign(given):
    delta_runs.prepare(given)
    with catalogue(given) as address:
        table = f'table = {{ catalog = "{address}", table = "{TABLE}", format = "iceberg", mode = "append" }}'
        delta_runs.write_job(given, "append", table)
        run(given, address)


def run(given, address):
    chance, kills, repeated, failures = random.Random(given.seed), dict.fromkeys(MOMENTS, 0), 0, []
    out, first = finished(given, "append", 10_000)
    nights, night = [out], 0
    noise = [sys.executable, HERE / "iceberg_tables.py", "noise", address, TABLE, str(given.kills * 3)]
    noise = subprocess.Popen(noise, stdout=subprocess.PIPE, text=True)
    while sum(kills.values()) < given.kills:
        night += 1
        moment = killed(given, "append", night, chance)
        if moment:
            kills[moment] += 1
        out, commit = finished(given, "append", night)
        repeated += commit["repeated"]
        nights.append(out)
        print(f"night {night}: killed at {moment}, snapshot {commit['version']}", flush=True)
    told = noise.communicate()[0].splitlines()
    others = json.loads(told[-1]) if told else {"written": -1}
    found = same(address, TABLE, *map(str, nights))
    for reader in {"duckdb", "pyiceberg"} & found.keys():
        # A writer who lost an answer does not know whether its row is there: those are its own.
        extra = found[reader]["others"]
        if found[reader]["missing"] or not others["written"] <= extra <= others["written"] + others["unknown"]:
            failures.append(f"by {reader}: {found[reader]}, expected {others} others")
    before = read(address, TABLE, first["version"])
    if before["rows"] != first["rows"]:
        failures.append(f"the snapshot of the first night has {before['rows']} rows, not {first['rows']}")
    print(json.dumps({"kills": kills, "nights": night, "committed_before_kill": repeated, "other_writer": others,
                      "readers": found, "failures": failures}))
    raise SystemExit(1 if failures else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("overturn", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--s3", action="store_true")
    given = parser.parse_args()
    with delta_runs.lake(given):
        os.makedirs(given.work, exist_ok=True)
        campaign(given)


if __name__ == "__main__":
    main()
