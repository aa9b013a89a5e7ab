"""What the audit costs: whole runs without it, with the tables that ask the model nothing, with a previous run, and
with each section that asks, held against each other in the same run.

    audit.py OVERTURN WORK_FOLDER [--rows 1000000] [--rounds 3] [--segments 1000] [--asking] [--keep]

OVERTURN is the program. A generator is trained as in scale.py; then a synthetic table is explained on two threads, and
reported by region. The kinds of run take turns, so that a slow moment hits all alike, and CPU seconds are compared: of
every kind the round in the middle.

  without    `audit.sections = []`
  tables     the tables of one pass, by region, sex and education, with a label (section A of the specification)
  nights     the same, with `stability` against a run of the same job (D), of which half of the rows are others
  segments   `tables`, by a column of so many values beside those three

With --asking every section that asks the model is run once more by itself, with the default `audit.queries`: questions
and CPU seconds beyond `tables`.

Lines say what was found and whether it meets its bar: tables and nights together cost at most a quarter more CPU than
the run without, and no kind holds 1.1 times its memory. The last line is a JSON object. Ends with code 1 if a bar is
missed.
"""

import argparse
import json
import re
import shutil
import statistics
import sys
from pathlib import Path

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from scale import PROJECT, Bench

BY = ["region", "sex", "education"]
TABLES = ["groups", "curves", "gaps", "changes", "at_bound"]
ASKING = ["actions", "binding", "responsiveness", "robustness", "explicit", "second_search"]
MOST_COST, MOST_MEMORY = 0.25, 1.1


class AuditBench(Bench):
    def __init__(self, given):
        given.bare = None
        super().__init__(given)
        self.given = given
        self.kinds = ["without", "tables", "nights", "segments"]

    def tables(self):
        """Tonight's table with a column of many groups, and yesterday's, of which every other row had another income."""
        name = f"table-{self.given.rows}"
        self.table(name, self.given.rows)
        for night in ["tonight", "yesterday"]:
            folder = self.work / night
            folder.mkdir(exist_ok=True)
            for file in sorted((self.work / name).glob("*.parquet")):
                table = pyarrow.parquet.read_table(file)
                key = table["application_id"]
                segment = pyarrow.compute.cast(pyarrow.compute.subtract(key, pyarrow.compute.multiply(
                    pyarrow.compute.divide(key, self.given.segments), self.given.segments)), pyarrow.string())
                table = table.append_column("branch", segment)
                if night == "yesterday":
                    odd = pyarrow.compute.equal(pyarrow.compute.bit_wise_and(key, pyarrow.scalar(1, key.type)), 1)
                    income = table["income"]
                    more = pyarrow.compute.cast(pyarrow.compute.add(income, pyarrow.scalar(100, income.type)), income.type)
                    index = table.schema.get_field_index("income")
                    table = table.set_column(index, table.schema.field(index),
                                             pyarrow.compute.if_else(odd, more, income))
                pyarrow.parquet.write_table(table, folder / file.name)

    def job(self, night, out, audit):
        text = (PROJECT / "benches/refine.toml").read_text()
        lines = [f"{key} = {json.dumps(value)}" for key, value in audit.items()]
        path = self.work / f"{out}.toml"
        path.write_text(text + "\n[audit]\n" + "\n".join(lines) + "\n")
        given = {"project": PROJECT, "generator": self.work / "trained/generator", "refine": "full",
                 "data": self.work / night, "out": self.work / out}
        return path, [part for name, value in given.items() for part in ["--set", f"{name}={value}"]]

    def once(self, kind, audit, night="tonight"):
        out = kind if night == "tonight" else "before"
        shutil.rmtree(self.work / out, ignore_errors=True)
        path, given = self.job(night, out, audit)
        summary, wall, cpu, memory = self.program("run", path, *given, "--threads", 2)
        report = summary["seconds"]["reporting"]
        print(f"{kind}: {wall:.1f} s wall, {cpu:.1f} s CPU, {report:.1f} s of reports, {memory / 2**20:.0f} MiB at most",
              flush=True)
        return {"kind": kind, "wall": wall, "cpu": cpu, "reporting": report, "memory": memory}

    def audit_of(self, kind):
        audit = {"by": BY, "label": "approved", "sections": TABLES}
        return {
            "without": {"sections": []},
            "tables": audit,
            "nights": audit | {"sections": [*TABLES, "stability"], "previous": str(self.work / "before")},
            "segments": audit | {"by": [*BY, "branch"]},
        }[kind]

    def rounds(self):
        self.once("the night before", self.audit_of("tables"), "yesterday")
        runs = [{kind: self.once(kind, self.audit_of(kind)) for kind in self.kinds}
                for _ in range(self.given.rounds)]
        middle = {kind: sorted((of[kind] for of in runs), key=lambda run: run["cpu"])[len(runs) // 2]
                  for kind in self.kinds}
        for kind in self.kinds[1:]:
            middle[kind]["share"] = statistics.median(of[kind]["cpu"] / of["without"]["cpu"] - 1 for of in runs)
        return middle

    def asking(self, tables):
        """Each section by itself: questions and CPU seconds beyond the tables."""
        found = []
        for section in ASKING:
            audit = self.audit_of("tables") | {"sections": [*TABLES, section]}
            if section == "explicit":
                audit["protected"] = ["age"]
            run = self.once(section, audit)
            run["questions"] = self.questions(section)
            run["beyond"] = run["cpu"] - tables["cpu"]
            found.append(run)
        return found

    def questions(self, section):
        found = re.findall(rf"`{section}` has asked (\d+)", (self.work / "talk").read_text())
        return int(found[-1]) if found else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn")
    parser.add_argument("work", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--segments", type=int, default=1_000)
    parser.add_argument("--asking", action="store_true", help="also the sections that ask the model, one by one")
    parser.add_argument("--keep", action="store_true", help="keep tables and results")
    return parser.parse_args()


def main():
    given = arguments()
    bench = AuditBench(given)
    bench.prepare()
    bench.tables()
    middle = bench.rounds()
    asked = bench.asking(middle["tables"]) if given.asking else []
    print("\n| run | CPU s | beyond without | reports s | peak MiB |\n|---|---|---|---|---|")
    for kind, run in middle.items():
        share = f"{100 * run['share']:.1f} %" if "share" in run else "–"
        print(f"| {kind} | {run['cpu']:.1f} | {share} | {run['reporting']:.1f} | {run['memory'] / 2**20:.0f} |")
    if asked:
        print("\n| section | questions | CPU s beyond tables |\n|---|---|---|")
        for run in asked:
            print(f"| {run['kind']} | {run['questions']:,} | {run['beyond']:.1f} |")
    print(flush=True)
    share = middle["nights"]["share"]
    bench.judge("CPU of tables and nights beyond the run", share, share <= MOST_COST, f"<= {MOST_COST}")
    for kind in ["tables", "segments"]:
        memory = middle[kind]["memory"] / middle["without"]["memory"]
        bench.judge(f"memory of {kind} / without", memory, memory <= MOST_MEMORY, f"<= {MOST_MEMORY}")
    if not given.keep:
        shutil.rmtree(bench.work)
    print(json.dumps({"missed": bench.missed, "runs": middle, "asked": asked}))
    sys.exit(1 if bench.missed else 0)


if __name__ == "__main__":
    main()
