"""What refinement costs: whole runs with `refine` off, repair and full, held against each other in the same run.

    refine.py OVERTURN WORK_FOLDER [--rows 1000000[,3000000]] [--targets approved[,flip]]
              [--against OLDER [--against-tree FOLDER]] [--keep]

OVERTURN is the program; OLDER is an older build of it, which takes turns with it (`full`). It gets the same generator
and job, unless FOLDER is the tree that it was built from: then it trains a generator of its own and runs that tree's
job, since formats may have changed. A generator is trained as in scale.py; then a synthetic table is explained on two threads,
with the demo's own target (`approved`: a quarter of the rows needs a counterfactual) and, if asked for, with the
other decision as the target of every row (`flip`: most of those have no answer, and everything is tried). The three kinds of run take turns, so that a slow moment hits all alike. Rounds with the demo's
target are repeated: the run in the middle counts, and of speeds the ratio in the middle, each against `off` of its
own round. Tables of less than two splits, 32,768 rows, leave a thread idle: such sizes are for trials.

Queries are those the table tells, over rows that needed a counterfactual. Scoring is the share of asking the model in
all of refinement's time. At further sizes runs are full ones with the demo's target: memory must not grow
with the table.

Lines say what was found and whether it meets its bar; the last line is a JSON object. Ends with code 1 if a bar
is missed.
"""

import argparse
import contextlib
import json
import shutil
import statistics
import sys
from pathlib import Path

import duckdb

from scale import MOST_GROWTH, PROJECT, Bench

KINDS = ["off", "repair", "full"]
# Targets, and rounds of each: runs of a few seconds are repeated.
ROUNDS = {"approved": 3, "flip": 1}
THREADS = 2
LEAST_SPEED = {"repair": 0.8, "full": 0.5}
LEAST_GAIN, MOST_MEMORY = 3.0, 1.3
OLDER = "full, older build"


class RefineBench(Bench):
    def __init__(self, given):
        given.bare = None
        super().__init__(given)
        self.older = given.against
        self.older_tree = given.against_tree
        self.kinds = KINDS + [OLDER] if given.against else KINDS

    def write_jobs(self):
        """The job for each target, and for the older build's tree."""
        for tree, mark in [(PROJECT, ""), (self.older_tree, "-older")]:
            text = (tree / "benches/refine.toml").read_text() if tree else ""
            for target, line in {"approved": 'class = "approved"', "flip": "flip = true"}.items() if text else ():
                (self.work / f"{target}{mark}.toml").write_text(text.replace('class = "approved"', line))

    def train_older(self):
        """The older build's own generator."""
        if self.older_tree:
            with self.older_build():
                self.program("train", self.older_tree / "jobs/demo/train.toml",
                             *self.settings("training", "trained-older"))

    @contextlib.contextmanager
    def older_build(self):
        newer, self.overturn = self.overturn, self.older
        yield
        self.overturn = newer

    def run_once(self, rows, target, kind):
        """A whole run; gives its figures."""
        self.table(f"table-{rows}", rows)
        shutil.rmtree(self.work / "out", ignore_errors=True)
        older = kind == OLDER
        mark = "-older" if older and self.older_tree else ""
        given = {"project": self.older_tree if mark else PROJECT, "generator": self.work / f"trained{mark}/generator",
                 "refine": kind.split(",")[0]}
        given = [part for name, value in given.items() for part in ["--set", f"{name}={value}"]]
        given += self.settings(f"table-{rows}", "out")
        job = self.work / f"{target}{mark}.toml"
        with self.older_build() if older else contextlib.nullcontext():
            summary, wall, cpu, memory = self.program("run", job, *given, "--threads", THREADS)
        asked, own = (summary["explaining"].get(name, 0.0) for name in ["rescore", "refine"])
        run = {"rows": rows, "target": target, "refine": kind, "wall": wall, "cpu": cpu, "speed": rows / wall,
               "memory": memory, "scoring": None if kind == "off" else asked / max(asked + own, 1e-9),
               "work": summary["explaining"]} | self.answers()
        print(f"{rows:,} rows, {target}, {kind}: {wall:.1f} s wall, {cpu:.1f} s CPU, {rows / wall:,.0f} rows/s, "
              f"{memory / 2**20:.0f} MiB at most, validity {run['validity']:.4f}, {run['queries']:.2f} queries a row "
              f"of {run['needed']:,}, refining {own:.1f} s of our own and {asked:.1f} s of scoring", flush=True)
        return run

    def answers(self):
        """Rows that needed a counterfactual, the share that got one, and queries for each."""
        query = """SELECT count(*), avg(CAST(valid AS INTEGER)), avg(queries) FROM read_parquet(?)
                   WHERE status <> 'already_target'"""
        found = duckdb.execute(query, [f"{self.work}/out/counterfactuals/**/*.parquet"]).fetchone()
        return dict(zip(["needed", "validity", "queries"], found))

    def rounds(self, rows, target):
        """Runs of each kind, one after the other, round after round."""
        rounds = [{kind: self.run_once(rows, target, kind) for kind in self.kinds} for _ in range(ROUNDS[target])]
        middle = {kind: sorted((runs[kind] for runs in rounds), key=lambda run: run["wall"])[len(rounds) // 2]
                  for kind in self.kinds}
        for kind in self.kinds:
            ratios = [runs[kind]["speed"] / runs["off"]["speed"] for runs in rounds]
            middle[kind] |= {"against_off": statistics.median(ratios)}
        return middle

    def judge_target(self, target, runs):
        for kind, least in LEAST_SPEED.items():
            speed = runs[kind]["against_off"]
            self.judge(f"{target}: rows/s of {kind} / off", speed, speed >= least, f">= {least}")
        if OLDER in runs:
            gain = runs[OLDER]["cpu"] / runs["full"]["cpu"]
            self.judge(f"{target}: CPU seconds of the older build / this one", gain, gain >= LEAST_GAIN,
                       f">= {LEAST_GAIN}")
        memory = runs["full"]["memory"] / runs["off"]["memory"]
        self.judge(f"{target}: memory of full / off", memory, memory <= MOST_MEMORY, f"<= {MOST_MEMORY}")


def table(runs):
    """Markdown, a row for each run."""
    lines = ["| rows | target | refine | wall s | CPU s | rows/s | ÷ off | queries | scoring | peak MiB |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for run in runs:
        against = f"{run['against_off']:.2f}" if "against_off" in run else "–"
        scoring = "–" if run["scoring"] is None else f"{run['scoring']:.2f}"
        lines.append(f"| {run['rows']:,} | {run['target']} | {run['refine']} | {run['wall']:.1f} | {run['cpu']:.1f} | "
                     f"{run['speed']:,.0f} | {against} | {run['queries']:.2f} | {scoring} | "
                     f"{run['memory'] / 2**20:.0f} |")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn")
    parser.add_argument("work", type=Path)
    parser.add_argument("--rows", default="1000000")
    parser.add_argument("--targets", default="approved", help="approved, flip")
    parser.add_argument("--against", help="an older build of the program")
    parser.add_argument("--against-tree", type=Path, help="the tree that it was built from, if it has formats of its own")
    parser.add_argument("--keep", action="store_true", help="keep tables and results")
    return parser.parse_args()


def main():
    given = arguments()
    small, *larger = [int(rows) for rows in given.rows.split(",")]
    bench = RefineBench(given)
    bench.prepare()
    bench.train_older()
    bench.write_jobs()
    by_target = {target: bench.rounds(small, target) for target in given.targets.split(",")}
    further = [bench.run_once(rows, "approved", "full") for rows in larger]
    runs = [run for kinds in by_target.values() for run in kinds.values()] + further
    print(f"\n{table(runs)}\n", flush=True)
    for target, kinds in by_target.items():
        bench.judge_target(target, kinds)
    for run in further:
        growth = run["memory"] / by_target["approved"]["full"]["memory"]
        bench.judge(f"memory of full at {run['rows']:,} / {small:,} rows", growth, growth <= MOST_GROWTH,
                    f"<= {MOST_GROWTH}")
    if not given.keep:
        shutil.rmtree(bench.work)
    print(json.dumps({"missed": bench.missed, "figures": bench.figures, "runs": runs}))
    sys.exit(1 if bench.missed else 0)


if __name__ == "__main__":
    main()
