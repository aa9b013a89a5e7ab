"""Do all methods keep what the program promises of large tables?

    methods.py OVERTURN WORK_FOLDER [--rows 100000] [--small 10000] [--kills 2]
               [--methods "nearest lore"] [--seed 0]

The demo's credit applications with its forest. For every method, and for `explain.compare` with all of them:

    speed      --rows rows: rows a second of explaining, CPU ms for each row that needed a counterfactual, validity
    memory     the peak of that run, and of one of --small rows: what grows with the table is a fault. A run of the
               larger table may take 1.25 times as much and 64 MiB
    budget     the most queries of a row, against `explain.queries_per_row`
    partitions --small rows in splits of a tenth: one thread and two write the same values
    kills      the same run, killed with SIGKILL at random moments and resumed, writes the same values

The generator that `cfrl` asks is trained once, on 20,000 rows, outside of all figures. Prints a Markdown table; the
last line is a JSON object. Ends with code 1 if something was not as it must be.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.compute
import pyarrow.dataset

PROJECT = Path(__file__).resolve().parents[2]
METHODS = ["search", "cfrl", "nearest", "dice_random", "dice_genetic", "lore"]
COMPARED = ["cfrl", "nearest", "dice_random", "dice_genetic", "lore"]
BUDGET = 256
GROWTH, SLACK = 1.25, 64 << 20
JOB = """
[input]
features = "{table}"
schema = "{project}/schemas/credit.toml"
key = "application_id"
max_reject_share = 0.05
[predictor]
kind = "onnx"
model = "{project}/jobs/demo/forest.onnx"
inputs = "columns"
probabilities = "given"
null_text = ""
[target]
class = "approved"
[train]
max_rows = 20000
[explain]
queries_per_row = {budget}
{explain}
[report]
mmd.space = "none"
[audit]
sections = []
[output]
dir = "{out}"
overwrite = true
[runtime]
threads = {threads}
"""


class Campaign:
    def __init__(self, given):
        self.given, self.failures, self.chance = given, [], random.Random(given.seed)
        given.work.mkdir(parents=True, exist_ok=True)
        self.tables = {rows: self.table(rows) for rows in {given.rows, given.small, 20_000}}
        self.generator = self.trained()

    def fail(self, text):
        self.failures.append(text)
        print(f"FAIL {text}", file=sys.stderr, flush=True)

    def table(self, rows):
        place = self.given.work / f"applications-{rows}"
        if not place.exists():
            make = [self.given.overturn, "synth", place, "--rows", str(rows), "--files", "4", "--seed", "3"]
            subprocess.run(make, check=True, capture_output=True)
        return place

    def job(self, name, rows, explain, threads=2):
        path = self.given.work / f"{name}.toml"
        path.write_text(JOB.format(table=self.tables[rows], project=PROJECT, budget=BUDGET, explain=explain,
                                   out=self.given.work / name, threads=threads))
        return path

    def trained(self):
        folder = self.given.work / "trained/generator"
        if not folder.exists():
            job = self.job("trained", 20_000, 'method = "cfrl"')
            subprocess.run([self.given.overturn, "train", job], check=True, capture_output=True)
        return folder

    def explain(self, method):
        """The lines of `[explain]` for a method, or for all."""
        if method == "compare":
            return f'compare = {json.dumps(COMPARED)}\ngenerator = "{self.generator}"'
        lines = f'method = "{method}"'
        # Those that learn nothing read training rows in the run, as they would.
        return lines + (f'\ngenerator = "{self.generator}"' if method in ["cfrl", "search"] else "")

    def run(self, job, *arguments):
        line = [self.given.overturn, "run", job, "--format", "json", *arguments]
        said = subprocess.run(line, capture_output=True, text=True)
        if said.returncode != 0:
            raise RuntimeError(f"{job.name}: code {said.returncode}: {said.stderr[-2000:]}")
        return json.loads(said.stdout)

    def values(self, name):
        table = pyarrow.dataset.dataset(self.given.work / name / "counterfactuals", format="parquet").to_table()
        return table.sort_by([("application_id", "ascending"), ("method", "ascending"), ("sample", "ascending")])

    def killed(self, method, small):
        """A run of the small table that is killed and resumed; gives how often it was killed while explaining."""
        given, name, hits = self.given, f"{method}-killed", 0
        job = self.job(name, given.small, self.explain(method) + f"\nsplit_rows = {given.small // 10}")
        for place in [given.work / name, *given.work.glob(f".{name}.*")]:
            shutil.rmtree(place, ignore_errors=True)
        for kill in range(given.kills):
            line = [given.overturn, "run", job, "--format", "json", *(["--resume"] if kill else [])]
            process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            journal, deadline = given.work / f".{name}.journal/journal.jsonl", time.monotonic() + 600
            wanted = self.chance.randint(2, 5) + 3 * kill
            while process.poll() is None and time.monotonic() < deadline:
                if journal.exists() and journal.read_bytes().count(b"\n") >= wanted:
                    process.send_signal(signal.SIGKILL)
                    hits += 1
                    break
                time.sleep(0.005)
            process.wait()
        summary = self.run(job, "--resume")
        if not self.values(name).equals(self.values(f"{method}-one")):
            self.fail(f"{method}: a killed run that was resumed has other values")
        if hits and not summary["splits_resumed"] and not summary["already_published"]:
            self.fail(f"{method}: nothing was resumed")
        return hits

    def method(self, method):
        given, explain = self.given, self.explain(method)
        small = self.run(self.job(f"{method}-small", given.small, explain))
        large = self.run(self.job(f"{method}-large", given.rows, explain))
        if large["peak_bytes"] > GROWTH * small["peak_bytes"] + SLACK:
            self.fail(f"{method}: {large['peak_bytes'] >> 20} MiB for {given.rows} rows, "
                      f"{small['peak_bytes'] >> 20} for {given.small}")
        values = self.values(f"{method}-large")
        most = pyarrow.compute.max(values["queries"]).as_py()
        if most > BUDGET:
            self.fail(f"{method}: a row was asked about {most} times")
        firsts = pyarrow.compute.sum(pyarrow.compute.equal(values["sample"], 0)).as_py()
        methods = len(COMPARED) if method == "compare" else 1
        accounted = large["rows_out_of_scope"] + sum(large["rows_rejected"].values()) + firsts / methods
        if accounted != large["rows_read"]:
            self.fail(f"{method}: {accounted} rows accounted for, {large['rows_read']} read")
        split = explain + f"\nsplit_rows = {given.small // 10}"
        for name, threads in [("one", 1), ("two", 2)]:
            self.run(self.job(f"{method}-{name}", given.small, split, threads))
        if not self.values(f"{method}-one").equals(self.values(f"{method}-two")):
            self.fail(f"{method}: one thread and two differ")
        hits = self.killed(method, small)
        needed = sum(target["needed"] for target in large["targets"]) * methods
        cpu = sum(large["explaining"].values())
        return {"method": method, "needed": needed, "validity": large["validity"],
                "queries": large["queries_per_row"], "most": most, "rows_per_second": large["rows_per_second"],
                "ms": 1000 * cpu / needed, "peak": large["peak_bytes"] >> 20, "peak_small": small["peak_bytes"] >> 20,
                "kills": hits}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--methods", default=" ".join([*METHODS, "compare"]))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.overturn, given.work = given.overturn.absolute(), given.work.absolute()
    campaign, found = Campaign(given), []
    print(f"{given.rows:,} rows, two threads\n\n| method | in need | valid % | queries, mean | most | rows/s | "
          f"CPU ms a row in need | peak MiB | with {given.small:,} rows | kills |\n"
          "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for method in given.methods.split():
        one = campaign.method(method)
        found.append(one)
        print(f"| `{method}` | {one['needed']:,} | {100 * one['validity']:.1f} | {one['queries']:.1f} | "
              f"{one['most']} | {one['rows_per_second']:,.0f} | {one['ms']:.2f} | {one['peak']} | "
              f"{one['peak_small']} | {one['kills']} |", flush=True)
    print(json.dumps({"failures": campaign.failures, "methods": found}))
    sys.exit(1 if campaign.failures else 0)


if __name__ == "__main__":
    main()
