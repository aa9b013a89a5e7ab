"""How good are counterfactuals with, without and with parts of refinement? On the paper's data and classifiers.

    refine_eval.py OVERTURN DATA_FOLDER WORK_FOLDER [--datasets "adult bank"] [--models "rf xgb"] [--seeds "0 1 2"]
                   [--variants before-after|steps|plausibility_weight|all|NAME,NAME] [--train-lines LINES] [--each] [--keep]
                   [--fresh]

OVERTURN is the program, DATA_FOLDER has the data sets; jobs/paper/hyperparameters.py knows their names and those of
the models. For each data set and model the paper's classifier is trained, and up to 1,000 rows of the split `test` get
a random class other than the classifier's own decision as the wanted one: the same rows and classes for all seeds and
variants. Each seed has one generator, trained on the split `train`; each variant, a name and lines of `[explain]`,
is a run with that generator. LINES go into the `[train]` of the generator's job.

Figures are taken from the published tables: validity over all rows with a target; L0, L1, changed features
and certificates over the valid ones; queries over all; MMD² of all counterfactuals of a class, its ratio to that of
the rows left as they are, and the floor of rows held out (means over classes, then class by class); violations by
check_run.py, with the names of its other checks that failed; seconds of the whole run.

Prints a Markdown table for each data set and model, a row per variant: means over seeds, and with --each every seed.
Every run adds a line of JSON to WORK_FOLDER/results.jsonl. Classifiers and generators are kept and used again
unless --fresh is given or LINES differ; published runs are kept with --keep. A seed whose training or run fails is
left out of the means and named above the table; the rest goes on, and the end is code 1.
"""

import argparse
import copy
import itertools
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "jobs/paper"))
# Before classifiers, which sets the threads of linear algebra: those are not for the program.
import evaluate
from evaluate import Failed, figures, mean, mmd
import classifiers
import generator_job
import real_data

WANTED = "wanted IS NOT NULL"
STEPS = ["snap", "candidates", "neighbours", "reversion", "shrink", "choice"]
WEIGHTS = [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.8]
BEFORE_AFTER = {
    "off": 'refine = "off"',
    "repair": 'refine = "repair"',
    "full": 'refine = "full"',
    "nearest": 'method = "nearest"',
}
WITHOUT = {f"without {step}": f'refine = "full"\nskip = ["{step}"]' for step in STEPS}
WEIGHTED = {f"plausibility_weight {weight}": f'refine = "full"\nplausibility_weight = {float(weight)}' for weight in WEIGHTS}
SETS = {
    "before-after": BEFORE_AFTER,
    "steps": {"full": BEFORE_AFTER["full"]} | WITHOUT,
    "plausibility_weight": WEIGHTED,
    "all": BEFORE_AFTER | WITHOUT | WEIGHTED,
}


class Evaluation:
    """A data set and a model: their folder, and what is done in it."""

    def __init__(self, given, dataset, model):
        self.given, self.dataset, self.model = given, dataset, model
        self.folder = given.work / f"{dataset}-{model}"
        self.table = self.folder / "table.parquet"
        self.classes = []

    def prepare(self):
        """Classifier, table with the column `wanted`, schema, and the part that all jobs have in common."""
        prepared = self.folder / "prepared.json"
        if self.given.fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        if not prepared.exists():
            told = self.make()
            prepared.write_text(json.dumps(told))
            say(f"{self.dataset} {self.model}: {told['wanted']} of {told['rows']} rows to explain, accuracy on test "
                f"rows {told['test_accuracy']:.4f}")
        self.classes = sorted(json.loads(prepared.read_text())["classes"])

    def make(self):
        case = classifiers.Case(self.given.data, self.dataset, self.model)
        exported, told = classifiers.prepare(case, self.folder)
        scope = copy.copy(case)
        scope.table, scope.predicate = self.table, WANTED
        job = real_data.job(scope, exported, generator_job.TRAIN)
        real_data.write(self.folder, exported, real_data.schema(case), job)
        return told

    def job(self, name, out, sections):
        """Writes a job; gives its path and whether it is the one that was there."""
        common = (self.folder / "job.toml").read_text().replace('dir = "out"', f'dir = "{out}"\noverwrite = true')
        text = f'{common}\n[target]\ncolumn = "wanted"\n\n{sections}\n'
        path = self.folder / f"{name}.toml"
        same = path.exists() and path.read_text() == text
        path.write_text(text)
        return path, same

    def train(self, seed):
        """A generator, unless it is there."""
        out = f"seed-{seed}"
        lines = self.given.train_lines
        path, same = self.job(f"train-{seed}", out, f"[runtime]\nseed = {seed}\n\n[train]\n{lines}")
        if same and (self.folder / out / "_SUCCESS").exists():
            return
        # A training that fails must not leave another job's generator to the next one.
        shutil.rmtree(self.folder / out, ignore_errors=True)
        summary, wall, _ = evaluate.program(self.given.overturn, "train", path)
        say(f"{self.dataset} {self.model} seed {seed}: trained {summary['steps']} steps in {wall:.0f} s")

    def explain(self, seed, variant, lines):
        """A run with the seed's generator; gives its figures."""
        name = f"{variant.replace(' ', '-')}-{seed}"
        out = f"runs/{name}"
        explain = f'[explain]\ngenerator = "seed-{seed}/generator"\n{lines}\n\n[runtime]\nseed = {seed}'
        path, _ = self.job(f"explain-{name}", out, explain)
        shutil.rmtree(self.folder / out, ignore_errors=True)
        summary, wall, _ = evaluate.program(self.given.overturn, "run", path)
        about = {"dataset": self.dataset, "model": self.model, "seed": seed, "variant": variant, "lines": lines,
                 "train_lines": self.given.train_lines, "run_id": summary["run_id"]}
        cost = {"wall": round(wall, 2), "cpu": round(summary["cpu_seconds"], 2), "peak_bytes": summary["peak_bytes"],
                "seconds": summary["seconds"], "explaining": summary["explaining"]}
        rejected = sum(summary["rows_rejected"].values())
        run = about | figures(self.folder / out, rejected) | mmd(self.folder / out) | self.check(out) | cost
        with open(self.given.work / "results.jsonl", "a") as results:
            results.write(json.dumps(run) + "\n")
        say(f"{self.dataset} {self.model} seed {seed}, {variant}: validity {run['validity']:.3f} in {wall:.1f} s")
        if not self.given.keep:
            shutil.rmtree(self.folder / out)
        return run

    def all_of(self, seed):
        """Figures of all variants with a seed: of none of them if one fails, so that means stay comparable."""
        try:
            self.train(seed)
            return [self.explain(seed, name, lines) for name, lines in self.given.variants.items()]
        except Failed as error:
            say(f"error: {self.dataset} {self.model} seed {seed}: {error}")
            return []

    def check(self, out):
        schema = self.folder / "schema.toml"
        return evaluate.check(self.folder / out, self.table, schema, classifiers.KEY, WANTED)


def shown(number, places, unit=1):
    return "–" if number is None else f"{number * unit:.{places}f}"


def statuses_shown(runs):
    names = sorted({name for run in runs for name in run["statuses"]})
    shares = {name: sum(run["statuses"].get(name, 0) for run in runs) / len(runs) for name in names}
    ranked = sorted(shares, key=shares.get, reverse=True)
    return ", ".join(f"{name} {100 * shares[name]:.1f}" for name in ranked)


def classes_shown(runs, classes):
    cells = []
    for label in classes:
        found = [run["mmd_by_class"].get(label, {}) for run in runs]
        cells.append(f"{shown(mean(found, 'mmd2'), 4)} ({shown(mean(found, 'ratio'), 2)})")
    return " · ".join(cells)


def violations_shown(runs):
    numbers = [run["violations"] for run in runs]
    failed = sorted({name for run in runs for name in run["failed_checks"]})
    count = "?" if None in numbers else str(sum(numbers))
    return count + (f" (failed: {', '.join(failed)})" if failed else "")


def cells_of(name, runs, classes):
    """The row of a table: heading and text of every cell."""
    return {
        "variant": name,
        "validity %": shown(mean(runs, "validity"), 2, 100),
        "L0": shown(mean(runs, "l0"), 4),
        "L1": shown(mean(runs, "l1"), 4),
        "changed": shown(mean(runs, "changed"), 2),
        "status %": statuses_shown(runs),
        "queries": shown(mean(runs, "queries"), 1),
        "certified %": shown(mean(runs, "certified"), 1, 100),
        "MMD²": shown(mean(runs, "mmd2"), 4),
        "÷ as is": shown(mean(runs, "ratio"), 3),
        "floor": shown(mean(runs, "held_out_mmd2"), 4),
        f"MMD² (÷ as is) of {' · '.join(classes)}": classes_shown(runs, classes),
        "violations": violations_shown(runs),
        "wall s": shown(mean(runs, "wall"), 1),
        "CPU s": shown(mean(runs, "cpu"), 1),
    }


def table(runs, classes, each):
    """Markdown: a row per variant, and if wanted one for each of its runs."""
    rows = []
    for variant in dict.fromkeys(run["variant"] for run in runs):
        own = [run for run in runs if run["variant"] == variant]
        rows.append(cells_of(variant, own, classes))
        rows += [cells_of(f"{variant}, seed {run['seed']}", [run], classes) for run in own if each]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *[list(row.values()) for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def say(text):
    print(text, file=sys.stderr, flush=True)


def chosen(text):
    """Names and lines of the variants asked for."""
    if text in SETS:
        return SETS[text]
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in SETS["all"]]
    if unknown:
        known = ", ".join([*SETS, *SETS["all"]])
        sys.exit(f"error: found variants `{'`, `'.join(unknown)}`, expected some of: {known}")
    return {name: SETS["all"][name] for name in names}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn")
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--datasets", default="adult bank")
    parser.add_argument("--models", default="rf xgb")
    parser.add_argument("--seeds", default="0 1 2")
    parser.add_argument("--variants", type=chosen, default="before-after")
    parser.add_argument("--train-lines", default="", help="lines of the generators' `[train]`")
    parser.add_argument("--each", action="store_true", help="a row for every seed as well")
    parser.add_argument("--keep", action="store_true", help="keep what runs publish")
    parser.add_argument("--fresh", action="store_true", help="train classifiers and generators anew")
    return parser.parse_args()


def main():
    given = arguments()
    given.work.mkdir(parents=True, exist_ok=True)
    seeds, failed = [int(seed) for seed in given.seeds.split()], False
    for dataset, model in itertools.product(given.datasets.split(), given.models.split()):
        evaluation = Evaluation(given, dataset, model)
        evaluation.prepare()
        runs = [run for seed in seeds for run in evaluation.all_of(seed)]
        missing = sorted(set(seeds) - {run["seed"] for run in runs})
        failed |= bool(missing)
        print(f"\n{dataset} {model}, seeds {given.seeds}" + (f"; failed and left out: {missing}" if missing else ""))
        if runs:
            print(f"\n{table(runs, evaluation.classes, given.each)}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
