"""How many answers hold when the model is trained again, by how far inside their target refinement keeps them?

    margin_study.py OVERTURN DATA_FOLDER WORK_FOLDER [--datasets "adult bank covertype demo"] [--models "rf xgb lr"]
                    [--scores "0 0.55 0.6 0.7 0.8 0.9"] [--rows 300] [--train-rows 10000] [--retrained 20]
                    [--steps 2000] [--report] [--keep] [--explain KEY=VALUE]...

For each data set and kind of model one classifier is trained and one generator, of so many steps. The same rows are
explained with every `explain.min_score`; then as many classifiers as are said are trained on bootstrap samples of the
classifier's own training rows, and asked about the published answers.

To choose a default, only rows of the split `train` are looked at: a random fifth of them is explained, the others
are trained on. With --report the classifier has the split `train`, and rows of the split `test` are explained. The
demo's table has no split of its own: a fifth by the key's remainder is `test`. Training rows beyond --train-rows are
left out, at random, for time; bootstrap samples of fewer rows differ more, so that survival is understated.

With --keep, classifiers, retrained ones and generators that an earlier call has left are used again: for trying
settings of refinement. --explain overrides keys of the job in every run.

Prints a Markdown table for each, a row per min_score, and one of the means over all:
  valid      share of rows with a valid answer
  inside     share of the valid ones with at least the margin
  survive    share of valid answers that a retrained model decides as the target: mean over models, and the worst
  L1, changed, distance
             means over rows that are valid with every score, divided by those of score 0; the distance is the sum of
             |change| in standard deviations over numerics and 1 for each changed category
  queries    mean number of questions about a row
Every cell adds its lines to WORK_FOLDER/results.jsonl.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "jobs/paper"))
# Before classifiers, which sets the threads of linear algebra: those are not for the program.
import evaluate
import classifiers
import joblib
import numpy
import pandas
import tomllib

SEED = 7
FIGURES = ["valid", "inside", "survive", "worst", "L1", "changed", "distance", "queries"]
DEMO_JOB = """
[input]
features = "${cell}/table.parquet"
schema = "%s/schemas/credit.toml"
key = "row_id"
where = "wanted IS NOT NULL"
train_where = "split = 'train'"

[predictor]
kind = "onnx"
model = "${cell}/model.onnx"

[target]
column = "wanted"

[output]
dir = "${out}"
"""


class Demo(classifiers.Case):
    """The synthetic credit table, without rows that have nulls or unlisted categories; models as for Adult."""

    def __init__(self, overturn, work, model):
        self.name, self.model = "demo", model
        self.settings = classifiers.SETTINGS["adult"][model]
        features = tomllib.loads((PROJECT / "schemas/credit.toml").read_text())["feature"]
        self.numerics = [one["name"] for one in features if one["kind"] == "numeric"]
        self.categories = {one["name"]: one["values"] for one in features if one["kind"] == "categorical"}
        label = {"column": "label", "names": ["rejected", "approved"]}
        self.about = {"features": [one["name"] for one in features], "label": label}
        self.number = numpy.float64 if model in classifiers.LINEAR else numpy.float32
        self.folder = work / "applications"
        if not self.folder.exists():
            said = evaluate.run([overturn, "synth", self.folder, "--rows", 40_000])
            if said.code != 0:
                raise evaluate.failure("synth", said)

    def source(self):
        rows = pandas.read_parquet(self.folder).dropna(subset=self.about["features"])
        for name, values in self.categories.items():
            rows = rows[rows[name].isin(values)]
        rows = rows.rename(columns={"application_id": "row_id"})
        rows["label"] = (rows["approved"] == "approved").astype(int)
        rows["split"] = numpy.where(rows["row_id"] % 5 == 0, "test", "train")
        return rows.reset_index(drop=True)


class Cell:
    """A data set and a kind of model."""

    def __init__(self, given, dataset, model):
        self.given, self.dataset, self.model = given, dataset, model
        self.folder = given.work / ("report" if given.report else "choice") / f"{dataset}-{model}"
        demo = dataset == "demo"
        self.case = Demo(given.overturn, given.work, model) if demo else classifiers.Case(given.data, dataset, model)
        self.job = self.folder / "job.toml" if demo else PROJECT / f"jobs/paper/{dataset}.toml"

    def table(self):
        """Rows in scope, in the table's own types, with the split that is studied."""
        rows = self.case.source()
        random = numpy.random.default_rng(SEED)
        if not self.given.report:
            rows = rows[rows["split"] == "train"].reset_index(drop=True)
            rows["split"] = numpy.where(random.random(len(rows)) < 0.2, "test", "train")
        train = numpy.flatnonzero(rows["split"] == "train")
        left_out = random.permutation(train)[self.given.train_rows:]
        return rows.drop(index=left_out).reset_index(drop=True)

    def typed(self, rows):
        return rows.astype(dict.fromkeys(self.case.numerics, self.case.number))

    def prepare(self):
        """Classifier, table and generator; gives the retrained classifiers."""
        retrained = self.folder / "retrained.joblib"
        if self.given.keep and retrained.exists():
            return joblib.load(retrained)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        table = self.table()
        rows = self.typed(table)
        train = rows[rows["split"] == "train"]
        fitted = self.case.fit(train)
        (self.folder / "model.onnx").write_bytes(classifiers.export(self.case, fitted).SerializeToString())
        classifiers.ROWS = self.given.rows
        table["wanted"] = classifiers.wanted(fitted, rows, self.case.about["features"])
        table.to_parquet(self.folder / "table.parquet", index=False)
        if self.dataset == "demo":
            self.job.write_text(DEMO_JOB % PROJECT)
        self.program("train", "trained", {"train.max_steps": self.given.steps})
        samples = [train.sample(len(train), replace=True, random_state=SEED + 1 + number)
                   for number in range(self.given.retrained)]
        models = [self.case.fit(sample) for sample in samples]
        joblib.dump(models, retrained)
        return models

    def program(self, verb, out, overrides):
        arguments = ["--set", f"cell={self.folder}", "--set", f"out={self.folder / out}"]
        for key, value in ({"runtime.threads": 1} | overrides).items():
            arguments += ["--override", f"{key}={value}"]
        return evaluate.program(self.given.overturn, verb, self.job, *arguments)

    def explain(self, score):
        out = f"score-{score}"
        generator = self.folder / "trained/generator"
        overrides = {"explain.generator": generator, "explain.min_score": score, "report.mmd.space": "none"}
        overrides |= dict(one.split("=", 1) for one in self.given.explain)
        shutil.rmtree(self.folder / out, ignore_errors=True)
        self.program("run", out, overrides)
        found = pandas.read_parquet(self.folder / out / "counterfactuals")
        return found.sort_values(["row_id", "sample"]).reset_index(drop=True)

    def study(self):
        retrained = self.prepare()
        answers = {score: self.explain(score) for score in self.given.scores}
        holds = {score: [] for score in answers}
        for again in retrained:
            for score, found in answers.items():
                holds[score].append(self.holds(again, found))
        lines = [self.line(score, answers, holds[score]) for score in answers]
        with open(self.given.work / "results.jsonl", "a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        return lines

    def holds(self, model, found):
        """Share of the valid answers that a model decides as their target."""
        found = found[found["valid"] & (found["status"] != "already_target")]
        features = self.case.about["features"]
        rows = found[[f"cf_{name}" for name in features]].set_axis(features, axis=1)
        return float((model.predict(self.typed(rows)).astype(str) == found["target"].to_numpy()).mean())

    def line(self, score, answers, holds):
        found, first = answers[score], answers[min(answers)]
        asked = found["status"] != "already_target"
        valid = asked & found["valid"]
        both = numpy.logical_and.reduce([other["valid"] & asked for other in answers.values()])

        def ratio(measure):
            without = measure(first)[both].mean()
            return float(measure(found)[both].mean() / without) if without > 0 else None

        def distance(rows):
            return rows["l1"] * len(self.case.numerics) + rows["l0"] * len(self.case.categories)

        return {
            "dataset": self.dataset, "model": self.model, "score": score, "report": self.given.report,
            "rows": int(asked.sum()), "valid": float(found["valid"][asked].mean()),
            "inside": float((found["margin"][valid] >= score).mean()),
            "survive": float(numpy.mean(holds)), "worst": float(numpy.min(holds)),
            "L1": ratio(lambda rows: rows["l1"]), "changed": ratio(lambda rows: rows["n_changed"]),
            "distance": ratio(distance), "queries": float(found["queries"][asked].mean()),
        }


def show(title, lines):
    print(f"\n**{title}**\n\n| min_score | {' | '.join(FIGURES)} |\n|{'---|' * (len(FIGURES) + 1)}")
    for line in lines:
        cells = ["–" if line[name] is None else f"{line[name]:.3f}" for name in FIGURES]
        print(f"| {line['score']} | {' | '.join(cells)} |", flush=True)


def means(lines):
    """Of all cells, by score."""
    found = []
    for score in sorted({line["score"] for line in lines}):
        of = [line for line in lines if line["score"] == score]
        known = {name: [line[name] for line in of if line[name] is not None] for name in FIGURES}
        found.append({"score": score} | {name: numpy.mean(all) if all else None for name, all in known.items()})
    return found


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("overturn", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--datasets", type=str.split, default=["adult", "bank", "covertype", "demo"])
    parser.add_argument("--models", type=str.split, default=["rf", "xgb", "lr"])
    parser.add_argument("--scores", type=lambda text: sorted(map(float, text.split())),
                        default=[0.0, 0.55, 0.6, 0.7, 0.8, 0.9])
    for name, number in [("rows", 300), ("train-rows", 10_000), ("retrained", 20), ("steps", 2_000)]:
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--explain", action="append", default=[], help="KEY=VALUE of the job, in every run")
    given = parser.parse_args()
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    all_lines = []
    for dataset in given.datasets:
        for model in given.models:
            lines = Cell(given, dataset, model).study()
            show(f"{dataset} {model}", lines)
            all_lines += lines
    show("means over all cells", means(all_lines))


if __name__ == "__main__":
    main()
