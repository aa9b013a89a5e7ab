"""DiCE's own package beside the program's methods of the same name: Adult with the paper's forest.

    dice_package.py OVERTURN DATA_FOLDER WORK_FOLDER [--random 200] [--genetic 20] [--budgets "256 10000"]

The first so many of the paper's test rows want the other class. dice-ml 0.12 explains them one by one with its default
settings, one counterfactual each, by the fitted scikit-learn pipeline; the program by the ONNX file of it, with one
thread, for each of --budgets as `explain.queries_per_row`. Both keep to schemas/paper/adult.toml: features that never
change are not varied, and Age only grows.

Everything is measured alike: validity is what the pipeline says of the counterfactuals; L0 (share of changed
categoricals), L1 (mean |Δ| of numerics in standard deviations of training rows) and changed features are means over
valid ones. CPU seconds are those of dice-ml's calls; of the program those of its explaining stage, and of the whole
run, which reads and scores all training rows first. Prints a Markdown table.
"""

import argparse
import sys
import time
import tomllib
import warnings
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "jobs/paper"))
# Before classifiers, which sets the threads of linear algebra: those are not for the program.
import evaluate
import classifiers
import numpy
import pandas
import pyarrow.dataset

import dice_ml
from raiutils.exceptions import UserConfigValidationException

OUTCOME = "outcome"


class Model:
    """The pipeline as dice-ml calls it: classes are numbers."""

    def __init__(self, fitted, case):
        self.fitted, self.features = fitted, case.about["features"]
        self.types = dict.fromkeys(case.numerics, case.number)

    def predict_proba(self, rows):
        return self.fitted.predict_proba(rows[self.features].astype(self.types))

    def predict(self, rows):
        return self.predict_proba(rows).argmax(axis=1)


class Comparison:
    def __init__(self, args):
        self.args, self.case = args, classifiers.Case(args.data, "adult", "rf")
        self.cell = args.work / "adult-rf"
        classifiers.prepare(self.case, self.cell)
        rows = self.case.rows()
        train = rows[rows["split"] == "train"]
        fitted = self.case.fit(train)
        self.model, self.classes = Model(fitted, self.case), [str(name) for name in fitted.classes_]
        self.std = train[self.case.numerics].astype(float).std(ddof=0)
        self.table = pandas.read_parquet(self.cell / "table.parquet")
        self.train = train[self.case.about["features"]].copy()
        self.train[OUTCOME] = self.model.predict(train)
        spec = tomllib.loads((PROJECT / "schemas/paper/adult.toml").read_text())["feature"]
        self.change = {feature["name"]: feature.get("change", "any") for feature in spec}

    def rows(self, count):
        return self.table[self.table["wanted"].notna()].head(count)

    def package(self, method, count):
        """dice-ml's counterfactuals of the first rows, none where it has none, and its CPU seconds."""
        data = dice_ml.Data(dataframe=self.train, continuous_features=self.case.numerics, outcome_name=OUTCOME)
        explainer = dice_ml.Dice(data, dice_ml.Model(model=self.model, backend="sklearn"), method=method)
        features, found, seconds = self.case.about["features"], [], 0.0
        vary = [name for name in features if self.change[name] != "never"]
        for index, row in self.rows(count)[features].iterrows():
            query = row.to_frame().T.astype(self.train.dtypes[features])
            ranges = {name: [float(row[name]), float(self.train[name].max())]
                      for name in features if self.change[name] == "increase"}
            numpy.random.seed(0)
            began = time.process_time()
            try:
                said = explainer.generate_counterfactuals(
                    query, total_CFs=1, desired_class="opposite", features_to_vary=vary, permitted_range=ranges)
                example = said.cf_examples_list[0]
                best = example.final_cfs_df_sparse if example.final_cfs_df_sparse is not None else example.final_cfs_df
                found.append(None if best is None or best.empty else best.iloc[0][features])
            except UserConfigValidationException:
                found.append(None)
            seconds += time.process_time() - began
        return found, seconds

    def program(self, method, count, budget):
        """The program's counterfactuals of the first rows, and CPU seconds of explaining and of the whole run."""
        cell = self.args.work / f"{method}-{count}"
        cell.mkdir(parents=True, exist_ok=True)
        table = self.table.copy()
        table.loc[~table.index.isin(self.rows(count).index), "wanted"] = None
        table.to_parquet(cell / "table.parquet", index=False)
        (cell / "model.onnx").write_bytes((self.cell / "model.onnx").read_bytes())
        out = cell / f"explained-{budget}"
        overrides = {"explain.method": method, "explain.queries_per_row": budget, "runtime.threads": 1,
                     "output.overwrite": "true"}
        arguments = ["--set", f"cell={cell}", "--set", f"out={out}"]
        for key, value in overrides.items():
            arguments += ["--override", f"{key}={value}"]
        job = PROJECT / "jobs/paper/adult.toml"
        summary, _, cpu = evaluate.program(self.args.overturn, "run", job, *arguments)
        rows = pyarrow.dataset.dataset(out / "counterfactuals", format="parquet").to_table().to_pandas()
        rows = rows.set_index("row_id").loc[self.rows(count)["row_id"]]
        features = self.case.about["features"]
        found = rows[[f"cf_{name}" for name in features]].set_axis(features, axis=1)
        return [row for _, row in found.iterrows()], summary["seconds"]["explaining"], cpu

    def figures(self, count, found):
        """Validity of all, and means over valid ones."""
        features, originals = self.case.about["features"], self.rows(count)
        there = [index for index, row in enumerate(found) if row is not None]
        rows = pandas.DataFrame([found[index] for index in there])[features].reset_index(drop=True)
        rows = rows.astype(self.train.dtypes[features])
        before = originals.iloc[there][features].reset_index(drop=True)
        wanted = [self.classes.index(name) for name in originals.iloc[there]["wanted"]]
        valid = self.model.predict(rows) == numpy.array(wanted)
        categories = list(self.case.categories)
        moved = (rows[self.case.numerics].astype(float) - before[self.case.numerics].astype(float)).abs()
        differs = pandas.concat([rows[categories] != before[categories], moved > 1e-9], axis=1)[valid]
        means = [differs[categories].mean().mean(), (moved / self.std)[valid].mean().mean(), differs.sum(axis=1).mean()]
        return [100 * valid.sum() / count, *means]


def line(name, figures, seconds, whole, count):
    cpu = f"{1000 * seconds / count:.2f}"
    cells = [name, f"{figures[0]:.1f}", *[f"{number:.3f}" for number in figures[1:]], cpu, whole]
    print(f"| {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--genetic", type=int, default=20)
    parser.add_argument("--budgets", default="256 10000")
    args = parser.parse_args()
    args.overturn, args.work = args.overturn.absolute(), args.work.absolute()
    warnings.simplefilter("ignore")
    comparison = Comparison(args)
    print("| method | valid % | L0 | L1 | changed | CPU ms a row | of the whole run |\n|---|--:|--:|--:|--:|--:|--:|")
    for method, count in [("random", args.random), ("genetic", args.genetic)]:
        found, seconds = comparison.package(method, count)
        line(f"dice-ml, {method}", comparison.figures(count, found), seconds, "–", count)
        for budget in map(int, args.budgets.split()):
            found, seconds, whole = comparison.program(f"dice_{method}", count, budget)
            name = f"`dice_{method}`, {budget:,} queries a row"
            line(name, comparison.figures(count, found), seconds, f"{1000 * whole / count:.2f}", count)


if __name__ == "__main__":
    main()
