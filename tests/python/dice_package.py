"""DiCE's own package beside the program's methods of the same name: Adult with the paper's forest.

    dice_package.py OVERTURN DATA_FOLDER WORK_FOLDER [--random 200] [--genetic 20] [--budgets "256 10000"]

The first so many of the paper's test rows want the other class. dice-ml 0.12 explains them one by one with its default
settings, one counterfactual each, by the fitted scikit-learn pipeline; the program by the ONNX file of it, with one
thread, for each of --budgets as `explain.queries_per_row`. Both keep to schemas/paper/adult.toml: features that never
change are not varied, and Age only grows.

Everything is measured alike: validity is what the pipeline says of the counterfactuals; L0 (share of changed
categoricals), L1 (mean |Δ| of numerics in standard deviations of training rows) and changed features are means over
valid ones. Seconds are the processor's on both sides: of dice-ml those of its calls; of the program what further rows
add to a whole run, that is, the difference between runs of five times as many rows (fifty times for genetic) and of
these, by its difference in rows. Prints a Markdown table, and the ratios.

Of the genetic search it also says what the published loss (hinge + 0.2 proximity + 0.2 sparsity) is of both sides'
counterfactuals, and of the program's for the rows for which dice-ml finds none, beside that of leaving the row as it
is: where the former is smaller, the search has failed, not the loss.
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
# So many times as many rows for the program's seconds.
MORE = {"dice_random": 5, "dice_genetic": 50}
# What the program may take, as a part of dice-ml's.
BARS = {"random": 1 / 100, "genetic": 1 / 50}


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
        self.generator = None
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
        """The program's counterfactuals of the first rows, and what so many rows cost in CPU seconds."""
        out, cpu = self.run(method, count, budget)
        more = min(count * MORE[method], len(self.rows(len(self.table))))
        seconds = (self.run(method, more, budget)[1] - cpu) * count / (more - count)
        rows = pyarrow.dataset.dataset(out / "counterfactuals", format="parquet").to_table().to_pandas()
        rows = rows.set_index("row_id").loc[self.rows(count)["row_id"]]
        features = self.case.about["features"]
        found = rows[[f"cf_{name}" for name in features]].set_axis(features, axis=1)
        return [row for _, row in found.iterrows()], seconds

    def run(self, method, count, budget):
        """A run about the first rows: where it has published, and its CPU seconds. Training rows were read before."""
        cell = self.args.work / f"{method}-{count}"
        cell.mkdir(parents=True, exist_ok=True)
        table = self.table.copy()
        table.loc[~table.index.isin(self.rows(count).index), "wanted"] = None
        table.to_parquet(cell / "table.parquet", index=False)
        (cell / "model.onnx").write_bytes((self.cell / "model.onnx").read_bytes())
        if self.generator is None:
            self.generator = self.args.work / "trained/generator"
            self.say("train", cell, self.args.work / "trained", {"explain.method": method})
        out = cell / f"explained-{budget}"
        return out, self.say("run", cell, out, {"explain.method": method, "explain.queries_per_row": budget,
                                                "explain.generator": self.generator})

    def say(self, verb, cell, out, overrides):
        arguments = ["--set", f"cell={cell}", "--set", f"out={out}"]
        for key, value in (overrides | {"runtime.threads": 1, "output.overwrite": "true"}).items():
            arguments += ["--override", f"{key}={value}"]
        return evaluate.program(self.args.overturn, verb, PROJECT / "jobs/paper/adult.toml", *arguments)[2]

    def losses(self, count, found):
        """The published loss of counterfactuals of the first rows; NaN where there is none."""
        features, originals, losses = self.case.about["features"], self.rows(count), []
        numerics, train = self.case.numerics, self.train[self.case.numerics].astype(float)
        ranges = train.max() - train.min()
        scaled = (train - train.min()) / ranges
        weights = 1 / (scaled - scaled.median()).abs().median().replace(0.0, 1.0)
        for row, (_, original) in zip(found, originals.iterrows()):
            if row is None:
                losses.append(float("nan"))
                continue
            rows = row[features].to_frame().T.astype(self.train.dtypes[features])
            shares = self.model.predict_proba(rows)[0]
            target = self.classes.index(original["wanted"])
            hinge = max(0.0, numpy.delete(shares, target).max() - shares[target])
            moved = (row[numerics].astype(float) - original[numerics].astype(float)).abs()
            proximity = (weights * moved / ranges).sum() / weights.sum()
            differs = sum(row[name] != original[name] for name in self.case.categories) + (moved > 1e-9).sum()
            losses.append(hinge + 0.2 * proximity + 0.2 * differs / len(features))
        return numpy.array(losses)

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


def line(name, figures, seconds, ratio, count):
    cpu = f"{1000 * seconds / count:.2f}"
    cells = [name, f"{figures[0]:.1f}", *[f"{number:.3f}" for number in figures[1:]], cpu, ratio]
    print(f"| {' | '.join(cells)} |", flush=True)


def loss_note(comparison, count, theirs, ours, budget):
    features = comparison.case.about["features"]
    still = comparison.losses(count, [row[features] for _, row in comparison.rows(count).iterrows()])
    theirs, ours = comparison.losses(count, theirs), comparison.losses(count, ours)
    none = numpy.isnan(theirs)
    text = (f"{budget:,} queries: mean loss where dice-ml finds one: {theirs[~none].mean():.3f}, ours "
            f"{ours[~none].mean():.3f}, of the rows as they are {still[~none].mean():.3f}")
    if none.any():
        text += (f"; where it finds none ({none.sum()} of {count}): ours {ours[none].mean():.3f}, as they are "
                 f"{still[none].mean():.3f}; ours is smaller for {(ours[none] < still[none]).sum()}")
    return text + "."


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
    print("| method | valid % | L0 | L1 | changed | CPU ms a row | dice-ml's ÷ ours |\n|---|--:|--:|--:|--:|--:|--:|")
    notes = []
    for method, count in [("random", args.random), ("genetic", args.genetic)]:
        found, seconds = comparison.package(method, count)
        line(f"dice-ml, {method}", comparison.figures(count, found), seconds, "–", count)
        for budget in map(int, args.budgets.split()):
            ours, own = comparison.program(f"dice_{method}", count, budget)
            name, ratio = f"`dice_{method}`, {budget:,} queries a row", seconds / max(own, 1e-9)
            verdict = "met" if ratio >= 1 / BARS[method] else "missed"
            line(name, comparison.figures(count, ours), own, f"{ratio:,.0f} ({1 / BARS[method]:.0f}: {verdict})", count)
            if method == "genetic":
                notes.append(loss_note(comparison, count, found, ours, budget))
    print("\n" + "\n".join(notes))


if __name__ == "__main__":
    main()
