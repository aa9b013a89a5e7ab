"""Whole runs on large tables, held against the bare cost of the same work measured in the same run.

    scale.py OVERTURN BARE WORK_FOLDER [--rows 1000000,10000000] [--keep]

OVERTURN is the program, BARE the built benchmark `explain`. For each size a synthetic table is explained with
the demo's forest of 50 trees: every row gets the other decision as its target, so that every row is scored,
goes through the generator and is scored again; reports, MMD, checksums and publishing are part of a run.

The bare cost is that of the generator's matrix products and of ONNX Runtime's two answers, tensors ready, same
cores, nothing else; it is measured before, between and after the runs, and the median counts. Runs on the smaller
table are repeated, and the one in the middle counts. Also: one thread
against two, memory at both sizes, and an independent check of every constraint over the largest table.

Lines say what was found and whether it meets its bar; the last line is a JSON object. Ends with code 1 if a bar
is missed.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
LEAST_SHARE, LEAST_SPEEDUP = 0.6, 1.7
MOST_MEMORY, MOST_GROWTH, MOST_SLOWING = 3 << 30, 1.3, 0.1
TRAINED_ROWS = 200_000
# Runs of a few seconds are repeated, and the one in the middle counts.
SHORT_RUNS = 3


class Bench:
    def __init__(self, given):
        self.overturn, self.bare, self.work = given.overturn, given.bare, given.work
        self.missed, self.figures, self.bares = [], {}, []

    def judge(self, name, found, met, bar):
        self.figures[name] = round(found, 4)
        print(f"{name}: {found:.3f} ({bar}: {'met' if met else 'MISSED'})", flush=True)
        if not met:
            self.missed.append(name)

    def program(self, *arguments):
        """Runs the program; gives its summary, wall and processor seconds, and the most memory it held."""
        command = [self.overturn, *map(str, arguments), "--format", "json"]
        began = time.monotonic()
        with open(self.work / "said", "w+") as said, open(self.work / "talk", "w+") as talk:
            process = subprocess.Popen(command, stdout=said, stderr=talk)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            wall = time.monotonic() - began
            said.seek(0)
            talk.seek(0)
            if process.returncode != 0:
                sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{talk.read()}")
            text = said.read()
        summary = json.loads(text.splitlines()[-1]) if text.strip() else {}
        return summary, wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024

    def measure_bare(self):
        """Microseconds a row, on one thread and on two."""
        environment = os.environ | {"OVERTURN_GENERATOR": str(self.work / "trained/generator")}
        said = subprocess.run([self.bare, "--bench"], env=environment, check=True, capture_output=True, text=True)
        self.bares.append(json.loads(said.stdout.splitlines()[-1]))

    def bare_micros(self, threads):
        return statistics.median(bare[f"threads_{threads}"]["bare"] for bare in self.bares)

    def prepare(self):
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.table("training", TRAINED_ROWS)
        given = self.settings("training", "trained")
        summary, wall, *_ = self.program("train", PROJECT / "jobs/demo/train.toml", *given)
        print(f"trained in {wall:.0f} s, validity {summary['validation']['validity']:.3f}", flush=True)

    def table(self, name, rows):
        if not (self.work / name).exists():
            self.program("synth", self.work / name, "--rows", rows, "--files", 8, "--seed", 11)

    def settings(self, table, out):
        return ["--set", f"data={self.work / table}", "--set", f"out={self.work / out}"]

    def explain(self, rows, threads, times=1):
        """Whole runs; gives the figures of the one in the middle."""
        runs = [self.explain_once(rows, threads) for _ in range(times)]
        return sorted(runs, key=lambda run: run["wall"])[times // 2]

    def explain_once(self, rows, threads):
        """A whole run; gives its figures."""
        self.table(f"table-{rows}", rows)
        shutil.rmtree(self.work / "out", ignore_errors=True)
        job = PROJECT / "benches/scale.toml"
        generator = ["--set", f"generator={self.work / 'trained/generator'}"]
        given = self.settings(f"table-{rows}", "out")
        summary, wall, cpu, memory = self.program("run", job, *given, *generator, "--threads", threads)
        size = sum(path.stat().st_size for path in (self.work / "out").rglob("*") if path.is_file())
        seconds = {name: round(value, 2) for name, value in summary["seconds"].items()}
        work = {name: round(value, 1) for name, value in summary["explaining"].items()}
        print(f"{rows:,} rows on {threads} threads: {wall:.1f} s wall, {cpu:.1f} s CPU, {rows / wall:,.0f} rows/s, "
              f"{memory / 2**20:.0f} MiB at most, {size / 2**20:.0f} MiB written; stages {seconds}; thread seconds "
              f"{work}", flush=True)
        return {"wall": wall, "cpu": cpu, "memory": memory, "rows": rows, "stages": seconds, "work": work}

    def check(self, rows):
        """Constraints and accounts by an independent query over input and output."""
        began = time.monotonic()
        script = [sys.executable, PROJECT / "tests/python/check_run.py", self.work / "out",
                  self.work / f"table-{rows}", PROJECT / "schemas/credit.toml"]
        said = subprocess.run(script, capture_output=True, text=True)
        lines = said.stdout.splitlines()
        print("\n".join("  " + line for line in lines[:-1]), flush=True)
        if not lines:
            sys.exit(said.stderr)
        found = json.loads(lines[-1])
        print(f"checked by DuckDB in {time.monotonic() - began:.0f} s", flush=True)
        self.judge(f"violations over {rows:,} rows", found["constraints"]["violations"],
                   said.returncode == 0 and found["constraints"]["violations"] == 0, "= 0, and all other checks")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn")
    parser.add_argument("bare")
    parser.add_argument("work", type=Path)
    parser.add_argument("--rows", default="1000000,10000000")
    parser.add_argument("--keep", action="store_true", help="keep tables and results")
    return parser.parse_args()


def main():
    given = arguments()
    small, *larger = [int(rows) for rows in given.rows.split(",")]
    bench = Bench(given)
    bench.prepare()
    bench.measure_bare()
    runs = {(small, threads): bench.explain(small, threads, SHORT_RUNS) for threads in [1, 2]}
    bench.measure_bare()
    for rows in larger:
        runs[rows, 2] = bench.explain(rows, 2)
        bench.measure_bare()
        bench.check(rows)
    print(f"bare cost, microseconds a row: {json.dumps(bench.bares)}", flush=True)
    for (rows, threads), run in runs.items():
        share = bench.bare_micros(threads) * rows / 1e6 / run["wall"]
        bench.judge(f"bare cost / whole run, {rows:,} rows, {threads} threads", share, share >= LEAST_SHARE,
                    f">= {LEAST_SHARE}")
    speedup = runs[small, 1]["wall"] / runs[small, 2]["wall"]
    bench.judge("two threads against one", speedup, speedup >= LEAST_SPEEDUP, f">= {LEAST_SPEEDUP}")
    for rows in larger:
        growth = runs[rows, 2]["memory"] / runs[small, 2]["memory"]
        bench.judge(f"memory at {rows:,} / {small:,} rows", growth, growth <= MOST_GROWTH, f"<= {MOST_GROWTH}")
        gibibytes = runs[rows, 2]["memory"] / 2**30
        bench.judge(f"GiB at {rows:,} rows", gibibytes, gibibytes <= MOST_MEMORY / 2**30, "<= 3")
        slowing = runs[rows, 2]["wall"] / rows * small / runs[small, 2]["wall"] - 1
        bench.judge(f"time per row at {rows:,} against {small:,} rows, - 1", slowing,
                    abs(slowing) <= MOST_SLOWING or slowing < 0, f"<= {MOST_SLOWING}")
    if not given.keep:
        shutil.rmtree(bench.work)
    print(json.dumps({"missed": bench.missed, "figures": bench.figures,
                      "runs": {f"{rows} rows, {threads} threads": run for (rows, threads), run in runs.items()}}))
    sys.exit(1 if bench.missed else 0)


if __name__ == "__main__":
    main()
