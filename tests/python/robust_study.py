"""How many answers hold under models that nobody had seen, if they must hold under some others?

    robust_study.py OVERTURN DATA_FOLDER WORK_FOLDER [--datasets "adult demo"] [--models "rf"] [--methods "search"]
                    [--shares "0.8 1"] [--scores "0.7 0.85"] [--rows 300] [--train-rows 10000] [--retrained 20]
                    [--given 5] [--steps 2000] [--keep] [--report]

For each data set and kind of model one classifier is trained, and as many others (20) on bootstrap samples of its
training rows. The first of these (five) are given as `robust.models`; the others are held out. The same rows are
explained without `[robust]`, with every share, and for comparison without it but with every `explain.min_score`; every
held-out model is asked about the answers.

Rows and splits are those of margin_study.py: rows of training splits, unless --report is given. With `search` the rows
are searched without a generator; with `generator` one of so many steps is trained first.

Prints a Markdown table for each, a row for every setting:
  valid      share of rows with a valid answer
  given      share of the valid ones that hold under at least four of the five given models
  survive    share of the valid ones that a held-out model decides as the target: mean over models, and the worst
  robust     survive among those that hold under at least four of the five
  all        share of the valid ones that all held-out models decide as the target
  L1, changed, distance, cost
             means over rows that are valid with and without, divided by those without; the distance is the sum of
             |change| in standard deviations over numerics and 1 for each changed category
  told       `robustness_cost` of the answers divided by their cost: what the run itself says that robustness costs
  queries    mean number of questions about a row, to all models together
  cpu        CPU seconds of the run divided by those without
Every cell adds its lines to WORK_FOLDER/robust.jsonl.
"""

import argparse
import json
import shutil
from pathlib import Path

import margin_study
import classifiers
import numpy
import pandas

FIGURES = ["valid", "given", "survive", "worst", "robust", "all", "L1", "changed", "distance", "cost", "told", "queries", "cpu"]
# Neither a share nor a margin of its own.
WITHOUT = (None, None)


class Cell(margin_study.Cell):
    """A data set, a kind of model and a method."""

    def __init__(self, given, dataset, model, method):
        super().__init__(given, dataset, model)
        self.method = method
        self.folder = self.folder.with_name(f"{self.folder.name}-{method}")
        self.job = self.folder / "job.toml" if dataset == "demo" else self.job

    def program(self, verb, out, overrides):
        if verb == "train" and self.method != "generator":
            return None
        return super().program(verb, out, overrides)

    def explain(self, setting):
        share, score = setting
        out = f"share-{share}-score-{score}"
        overrides = {"report.mmd.space": "none", "audit.sections": "[]", "explain.method": self.method}
        if self.method == "generator":
            overrides["explain.generator"] = self.folder / "trained/generator"
        if score is not None:
            overrides["explain.min_score"] = score
        if share is not None:
            models = [str(self.folder / f"copy-{number}.onnx") for number in range(self.given.given)]
            overrides |= {"robust.models": json.dumps(models), "robust.share": share}
        shutil.rmtree(self.folder / out, ignore_errors=True)
        self.program("run", out, overrides)
        summary = json.loads((self.folder / out / "manifest.json").read_text())["summary"]
        found = pandas.read_parquet(self.folder / out / "counterfactuals")
        return found.sort_values(["row_id", "sample"]).reset_index(drop=True), summary

    def study(self):
        copies = self.prepare()
        for number, again in enumerate(copies[: self.given.given]):
            exported = classifiers.export(self.case, again).SerializeToString()
            (self.folder / f"copy-{number}.onnx").write_bytes(exported)
        settings = [WITHOUT, *((share, None) for share in self.given.shares)]
        settings += [(None, score) for score in self.given.scores]
        runs = {setting: self.explain(setting) for setting in settings}
        lines = [self.line(setting, runs, copies) for setting in runs]
        with open(self.given.work / "robust.jsonl", "a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        return lines

    def held(self, models, found):
        """Whether each model decides valid answers as their target: models × answers."""
        features = self.case.about["features"]
        rows = self.typed(found[[f"cf_{name}" for name in features]].set_axis(features, axis=1))
        target = found["target"].to_numpy()
        return numpy.array([model.predict(rows).astype(str) == target for model in models])

    def line(self, setting, runs, copies):
        (found, summary), (first, alone) = runs[setting], runs[WITHOUT]
        share, score = setting
        asked = found["status"] != "already_target"
        valid = found[asked & found["valid"]]
        given = self.held(copies[: self.given.given], valid).sum(axis=0)
        if share is not None and (given != valid["robust"].to_numpy()).any():
            differ = int((given != valid["robust"].to_numpy()).sum())
            print(f"note: scikit-learn and the program differ about {differ} answers", flush=True)
        held = self.held(copies[self.given.given:], valid)
        enough = given >= numpy.ceil(0.8 * self.given.given - 1e-9)
        both = asked & found["valid"] & first["valid"]

        def ratio(measure):
            without = measure(first)[both].mean()
            return float(measure(found)[both].mean() / without) if without > 0 else None

        def distance(rows):
            return rows["l1"] * len(self.case.numerics) + rows["l0"] * len(self.case.categories)

        told = valid["robustness_cost"].notna()
        return {
            "dataset": self.dataset, "model": self.model, "method": self.method, "share": share,
            "score": score, "report": self.given.report, "rows": int(asked.sum()), "valid": float(found["valid"][asked].mean()),
            "given": float(enough.mean()), "robust": float(held[:, enough].mean()) if enough.any() else None,
            "survive": float(held.mean()), "worst": float(held.mean(axis=1).min()),
            "all": float(held.all(axis=0).mean()),
            "L1": ratio(lambda rows: rows["l1"]), "changed": ratio(lambda rows: rows["n_changed"]),
            "distance": ratio(distance), "cost": ratio(lambda rows: rows["cost"]),
            "told": float(valid["robustness_cost"][told].sum() / valid["cost"][told].sum()) if told.any() else None,
            "queries": float(found["queries"][asked].mean()),
            "cpu": float(summary["cpu_seconds"] / alone["cpu_seconds"]),
        }


def show(title, lines):
    print(f"\n**{title}**\n\n| | {' | '.join(FIGURES)} |\n|{'---|' * (len(FIGURES) + 1)}")
    for line in lines:
        cells = ["–" if line[name] is None else f"{line[name]:.3f}" for name in FIGURES]
        name = "without" if line["share"] is None else f"share {line['share']}"
        name += "" if line["score"] is None else f", min_score {line['score']}"
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("overturn", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--datasets", type=str.split, default=["adult", "demo"])
    parser.add_argument("--models", type=str.split, default=["rf"])
    parser.add_argument("--methods", type=str.split, default=["search"])
    for name, usual in [("shares", [0.8, 1.0]), ("scores", [])]:
        parser.add_argument(f"--{name}", type=lambda text: sorted(map(float, text.split())), default=usual)
    numbers = [("rows", 300), ("train-rows", 10_000), ("retrained", 20), ("given", 5), ("steps", 2_000)]
    for name, number in numbers:
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--keep", action="store_true", help="take models that are there")
    given = parser.parse_args()
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    for dataset in given.datasets:
        for model in given.models:
            for method in given.methods:
                lines = Cell(given, dataset, model, method).study()
                show(f"{dataset} {model}, {method}: {lines[0]['rows']} rows", lines)


if __name__ == "__main__":
    main()
