"""Counterfactuals with default settings beside those of other methods: validity, changed features, L0, L1.

    peers.py OVERTURN WORK_FOLDER [--tables "wine-lr mixed-xgb"] [--rows 200] [--seed 1] [--threads N] [--explain LINES]

Tables: iris, wine, wdbc and diabetes (above the median or not) of scikit-learn; mixed (7 numerics, 13 categoricals),
wide (10 and 4) and codes (3 and 6) are synthetic. Models: rf (forest), xgb (XGBoost), lr (logistic regression). Half
of the rows, drawn by --seed, train the model and are all that any method sees; up to --rows of the others get a random
target class other than the model's decision. Constants were chosen with seed 1. LINES are added to the `[explain]` section of the job. The other methods, written
here from their papers and sources, ask the same ONNX model:

    nearest   the training row of the target class with the least sum of |Δ| in standard deviations, 1 a category
    nice      NICE, optimised for sparsity: from the row to its nearest correctly classified training row of the
              target class (|Δ| ÷ range), always the feature that raises the target's probability most
    dice      DiCE, random: 1,000 copies of the row get random values, one feature more in each round, two rounds at
              least; one of the valid copies at random, whose numbers are then moved back as far as they can be

Everything is measured alike and outside of the program, over valid counterfactuals: validity is what the model says of
the published rows, L0 the share of changed categoricals, L1 the mean |Δ| of numerics in standard deviations.
`incoherent` is the share that breaks what all training rows and the row itself keep to: an order of two numerics
whose ranges overlap, or a pair of categories that no training row has though 20 would be expected by chance.

Prints a Markdown table with a row for each method, and on how many tables each of changed features, L0 and L1 is at
most that of every other method, pair by pair over the rows for which both are valid; once more over the rows for which
both are coherent, too. Rows, targets and counterfactuals of all methods stay in WORK_FOLDER/<table>/rows.npz.
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
import numpy
import onnxruntime
import pandas
import pyarrow.dataset
from sklearn import datasets

TABLES = "iris-rf wine-lr wdbc-rf wdbc-xgb diabetes-rf diabetes-lr mixed-rf mixed-xgb wide-lr codes-rf"
# Numerics and categoricals.
SYNTHETIC = {"mixed": (7, 13), "wide": (10, 4), "codes": (3, 6)}
SYNTHETIC_ROWS = 4_000
SHIPPED = {"iris": datasets.load_iris, "wine": datasets.load_wine, "wdbc": datasets.load_breast_cancer,
           "diabetes": datasets.load_diabetes}
SETTINGS = {
    "rf": {"n_estimators": 50, "max_depth": 12, "min_samples_leaf": 3},
    "xgb": {"n_estimators": 60, "max_depth": 4},
    "lr": {"max_iter": 1000},
}
DICE_COPIES = 1_000
# Sizes of a number's move that are tried when it is moved back, as shares of the move.
DICE_SHARES = numpy.linspace(0, 1, 21)[:-1]
# A pair of categories is impossible if it never occurs though so many rows would be expected to have it.
EXPECTED_PAIRS = 20
FIGURES = ["changed", "l0", "l1"]


def synthetic(name):
    """Numerics and categoricals that depend on three hidden numbers, and a label that depends on some of them."""
    numerics, categoricals = SYNTHETIC[name]
    random = numpy.random.default_rng(7)
    hidden = random.normal(size=(SYNTHETIC_ROWS, 3))
    columns, logit = {}, numpy.zeros(SYNTHETIC_ROWS)
    for index in range(numerics):
        number = hidden[:, index % 3] + random.normal(size=SYNTHETIC_ROWS)
        columns[f"n{index}"] = numpy.round(numpy.exp(number) * 100 if index % 4 == 3 else number * 10 + 50, 1)
        logit += random.normal() * number * (index % 2 == 0)
    for index in range(categoricals):
        levels = 2 + index % 5
        cuts = numpy.quantile(hidden[:, index % 3], numpy.linspace(0, 1, levels + 1)[1:-1])
        code = numpy.digitize(hidden[:, index % 3] + random.normal(size=SYNTHETIC_ROWS), cuts)
        columns[f"c{index}"] = numpy.array([f"v{level}" for level in range(levels)])[code]
        logit += random.normal(size=levels)[code] * (index % 3 == 0)
    logit += hidden[:, 0] * hidden[:, 1] + random.normal(size=SYNTHETIC_ROWS)
    return pandas.DataFrame(columns), (logit > numpy.median(logit)).astype(int)


def shipped(name):
    bunch = SHIPPED[name](as_frame=True)
    # Names that a model file and a predicate need not quote.
    rows = bunch.data.rename(columns=lambda column: "".join(c if c.isalnum() else "_" for c in column))
    label = bunch.target.to_numpy()
    return rows, (label > numpy.median(label)).astype(int) if name == "diabetes" else label


class Table(classifiers.Case):
    """A table and a model, trained and exported as the paper's classifiers are."""

    def __init__(self, args, name):
        self.args, (table, self.model) = args, name.split("-")
        self.name, self.folder = name, args.work / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.frame, label = synthetic(table) if table in SYNTHETIC else shipped(table)
        self.settings = SETTINGS[self.model]
        texts = [column for column in self.frame if not pandas.api.types.is_numeric_dtype(self.frame[column])]
        names = [f"class{code}" for code in range(label.max() + 1)]
        self.about = {"features": list(self.frame), "label": {"column": "label", "names": names}}
        self.numerics = [column for column in self.frame if column not in texts]
        self.categories = {column: sorted(self.frame[column].unique()) for column in texts}
        self.number = numpy.float64 if self.model in classifiers.LINEAR else numpy.float32
        self.frame["label"] = label
        self.frame["learn"] = numpy.random.default_rng(self.args.seed - 1).permutation(len(label)) < len(label) / 2
        self.frame.insert(0, "row_id", numpy.arange(len(label)))
        self.make_model()
        self.pick_rows()

    def make_model(self):
        learn = self.frame[self.frame["learn"]]
        fitted = self.fit(learn.astype(dict.fromkeys(self.numerics, self.number)))
        model = classifiers.export(self, fitted).SerializeToString()
        (self.folder / "model.onnx").write_bytes(model)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.args.threads
        self.session = onnxruntime.InferenceSession(model, options)
        self.train = self.encode(learn)
        self.decisions, _ = self.predict(self.train)
        self.correct = self.decisions == learn["label"].to_numpy()
        numerics = self.train[:, : len(self.numerics)]
        self.std, self.range = (numpy.where(spread > 0, spread, 1) for spread in
                                (numerics.std(axis=0), numerics.max(axis=0) - numerics.min(axis=0)))

    def pick_rows(self):
        """Rows to explain, and their targets."""
        rest = self.frame[~self.frame["learn"]]
        picked = numpy.random.default_rng(self.args.seed).permutation(len(rest))[: self.args.rows]
        rest = rest.iloc[numpy.sort(picked)]
        self.keys, self.originals = rest["row_id"].to_numpy(), self.encode(rest)
        random = numpy.random.default_rng(self.args.seed + 1)
        # Only classes that the model gives some training row: no row is nearest to any other.
        known = numpy.unique(self.decisions)
        original_classes, _ = self.predict(self.originals)
        self.targets = numpy.array([random.choice(known[known != code]) for code in original_classes])

    def encode(self, rows):
        """A matrix: numerics, then codes of categories."""
        codes = [pandas.Categorical(rows[name], categories=values).codes for name, values in self.categories.items()]
        return numpy.column_stack([rows[self.numerics].to_numpy(dtype=float), *codes])

    def predict(self, rows):
        """The model's class of each row, as a code, and the probabilities of all classes."""
        feed = {name: rows[:, [index]].astype(self.number) for index, name in enumerate(self.numerics)}
        for index, (name, values) in enumerate(self.categories.items(), len(self.numerics)):
            feed[name] = numpy.array(values, dtype=object)[rows[:, [index]].astype(int)]
        labels, probabilities = self.session.run(None, feed)[:2]
        return numpy.searchsorted([str(name) for name in self.classes()], labels.ravel().astype(str)), probabilities

    def valid(self, rows, target):
        return self.predict(rows)[0] == target

    def distance(self, rows, row, scale):
        count = len(self.numerics)
        moved = (numpy.abs(rows[:, :count] - row[:count]) / scale).sum(axis=1)
        return moved + (rows[:, count:] != row[count:]).sum(axis=1)

    # --- the methods -------------------------------------------------------------------------------

    def overturn(self):
        """What the program publishes with default settings, and how it says it got there."""
        names = self.classes()
        table = self.frame.drop(columns="label")
        table["wanted"] = None
        table.loc[table["row_id"].isin(self.keys), "wanted"] = [str(names[code]) for code in self.targets]
        table.to_parquet(self.folder / "table.parquet", index=False)
        (self.folder / "schema.toml").write_text(self.schema())
        out = self.folder / "explained"
        shutil.rmtree(out, ignore_errors=True)
        (self.folder / "job.toml").write_text(
            '[input]\nfeatures = "table.parquet"\nschema = "schema.toml"\nkey = "row_id"\n'
            'where = "wanted IS NOT NULL"\ntrain_where = "learn"\n[predictor]\nkind = "onnx"\nmodel = "model.onnx"\n'
            f'[target]\ncolumn = "wanted"\n[explain]\n{self.args.explain}\n[runtime]\nthreads = {self.args.threads}\n'
            '[output]\ndir = "explained"\n')
        summary, _, cpu = evaluate.program(self.args.overturn, "run", self.folder / "job.toml")
        rows = pyarrow.dataset.dataset(out / "counterfactuals", format="parquet").to_table().to_pandas()
        rows = rows[rows["sample"] == 0].set_index("row_id").loc[self.keys]
        features = [f"cf_{name}" for name in self.about["features"]]
        rows = rows[features].set_axis(self.about["features"], axis=1)
        return self.encode(rows), f"{summary['method']}, {summary['queries_per_row']:.1f} queries, {cpu:.1f} CPU s"

    def schema(self):
        text = "".join(f'[[feature]]\nname = "{name}"\nkind = "numeric"\n\n' for name in self.numerics)
        for name, values in self.categories.items():
            text += f'[[feature]]\nname = "{name}"\nkind = "categorical"\nvalues = {json.dumps(values)}\n\n'
        return text

    def nearest(self, row, target):
        rows = self.train[self.decisions == target]
        return rows[self.distance(rows, row, self.std).argmin()]

    def nice(self, row, target):
        rows = self.train[self.correct & (self.decisions == target)]
        if not len(rows):
            return row
        goal, current = rows[self.distance(rows, row, self.range).argmin()], row.copy()
        left = list(numpy.flatnonzero(goal != row))
        while left:
            trials = numpy.repeat(current[None], len(left), axis=0)
            trials[numpy.arange(len(left)), left] = goal[left]
            labels, probabilities = self.predict(trials)
            best = probabilities[:, target].argmax()
            current = trials[best]
            if labels[best] == target:
                break
            left.pop(best)
        return current

    def dice(self, row, target, random):
        count, low, high = len(self.numerics), self.train.min(axis=0), self.train.max(axis=0)
        values = random.uniform(low, high, (DICE_COPIES, len(row)))
        values[:, count:] = numpy.floor(random.uniform(size=(DICE_COPIES, len(row) - count)) * (high[count:] + 1))
        copies, found = numpy.repeat(row[None], DICE_COPIES, axis=0), []
        for _ in row:
            index = numpy.arange(DICE_COPIES), random.integers(len(row), size=DICE_COPIES)
            copies[index] = values[index]
            found.append(copies[self.valid(copies, target)])
            if len(found) > 1 and sum(map(len, found)):
                break
        found = numpy.concatenate(found)
        if not len(found):
            return row
        answer = random.choice(found)
        moved = numpy.abs(answer - row)[:count] / self.std
        for index in numpy.argsort(-moved)[: numpy.count_nonzero(moved)]:
            trials = numpy.repeat(answer[None], len(DICE_SHARES), axis=0)
            trials[:, index] = row[index] + DICE_SHARES * (answer[index] - row[index])
            valid = numpy.flatnonzero(self.valid(trials, target))
            answer = trials[valid[0]] if len(valid) else answer
        return answer

    # --- what is measured --------------------------------------------------------------------------

    def impossible(self):
        """Orders (A ≤ B) that all training rows keep to, and pairs of codes that none has."""
        count, rows = len(self.numerics), len(self.train)
        low, high = self.train.min(axis=0), self.train.max(axis=0)
        orders = [(a, b) for a in range(count) for b in range(count)
                  if a != b and high[a] > low[b] and (self.train[:, a] <= self.train[:, b]).all()]
        pairs = []
        for a in range(count, self.train.shape[1]):
            for b in range(count, a):
                seen = numpy.zeros((int(high[a]) + 1, int(high[b]) + 1))
                numpy.add.at(seen, (self.train[:, a].astype(int), self.train[:, b].astype(int)), 1)
                expected = numpy.outer(seen.sum(axis=1), seen.sum(axis=0)) / rows
                pairs += [(a, b, one, two) for one, two in numpy.argwhere((seen == 0) & (expected >= EXPECTED_PAIRS))]
        return orders, pairs

    def incoherent(self, rows):
        """Whether each of the rows breaks what its original keeps to."""
        orders, pairs = self.impossible()
        found = numpy.zeros(len(rows), dtype=bool)
        for a, b in orders:
            found |= (rows[:, a] > rows[:, b]) & (self.originals[:, a] <= self.originals[:, b])
        for a, b, one, two in pairs:
            new, old = ((matrix[:, a] == one) & (matrix[:, b] == two) for matrix in (rows, self.originals))
            found |= new & ~old
        return found

    def figures(self, answers):
        valid = self.valid(answers, self.targets)
        incoherent = self.incoherent(answers)[valid]
        found = {"validity": float(valid.mean()), "incoherent": float(incoherent.mean()) if len(incoherent) else None}
        return found | self.sizes(answers, valid)

    def sizes(self, answers, some):
        """How much some of the rows change: means, and nothing where there is nothing to change."""
        count = len(self.numerics)
        changed = (answers != self.originals)[some]
        moved = numpy.abs(answers - self.originals)[some, :count] / self.std

        def mean(matrix):
            return float(matrix.mean()) if matrix.size else None

        return {"changed": mean(changed.sum(axis=1)), "l0": mean(changed[:, count:]), "l1": mean(moved)}

    def wins(self, answers, coherent):
        """Of every figure whether the program's is at most that of every other method; nothing where there is none."""
        usable = {method: self.valid(rows, self.targets) for method, rows in answers.items()}
        if coherent:
            usable = {method: usable[method] & ~self.incoherent(rows) for method, rows in answers.items()}
        pairs = []
        for method in [method for method in answers if method != "overturn"]:
            both = usable["overturn"] & usable[method]
            pairs.append((self.sizes(answers["overturn"], both), self.sizes(answers[method], both)))
        wins = {}
        for figure in FIGURES:
            told = [own[figure] <= other[figure] + 1e-9 for own, other in pairs if own[figure] is not None]
            wins[figure] = all(told) if told else None
        return wins


def explain(table):
    """Counterfactuals of all methods, the program first, and what the program says of its run."""
    random = numpy.random.default_rng(3)
    pairs = list(zip(table.originals, table.targets))
    published, remark = table.overturn()
    answers = {
        "overturn": published,
        "nearest": numpy.array([table.nearest(*pair) for pair in pairs]),
        "nice": numpy.array([table.nice(*pair) for pair in pairs]),
        "dice": numpy.array([table.dice(*pair, random) for pair in pairs]),
    }
    stored = {"keys": table.keys, "originals": table.originals, "targets": table.targets} | answers
    numpy.savez(table.folder / "rows.npz", **stored)
    return answers, remark


def line(name, method, figures, remark):
    percent = ["–" if figures[key] is None else f"{100 * figures[key]:.1f}" for key in ("validity", "incoherent")]
    numbers = ["–" if figures[key] is None else f"{figures[key]:.4f}" for key in FIGURES]
    return f"| {' | '.join([name, method, percent[0], *numbers, percent[1], remark])} |"


def names(text):
    found = text.split()
    unknown = [name for name in found if name not in {f"{table}-{model}" for table in SYNTHETIC | SHIPPED
                                                       for model in SETTINGS}]
    if unknown or not found:
        raise argparse.ArgumentTypeError(f"found `{' '.join(unknown)}`, expected TABLE-MODEL such as: {TABLES}")
    return found


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"found `{text}`, expected a whole number from 1")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--tables", type=names, default=TABLES.split())
    parser.add_argument("--rows", type=positive, default=200)
    parser.add_argument("--seed", type=positive, default=1)
    parser.add_argument("--threads", type=positive, default=1)
    parser.add_argument("--explain", default="", help="lines of `[explain]`")
    args = parser.parse_args()
    args.overturn, args.work = args.overturn.absolute(), args.work.resolve()
    wins = {False: [], True: []}
    print("| table | method | validity % | changed | L0 | L1 | incoherent % | |\n|---|---|---|---|---|---|---|---|")
    for name in args.tables:
        table = Table(args, name)
        answers, remark = explain(table)
        for method, rows in answers.items():
            print(line(name, method, table.figures(rows), remark if method == "overturn" else ""), flush=True)
        for coherent, found in wins.items():
            found.append(table.wins(answers, coherent))
    print()
    for coherent, found in wins.items():
        told = [[table[figure] for table in found if table[figure] is not None] for figure in FIGURES]
        told = [f"{figure} on {of.count(True)} of {len(of)}" for figure, of in zip(FIGURES, told)]
        rows = "valid and coherent" if coherent else "valid"
        print(f"At most that of every other method, over rows that are {rows}: {', '.join(told)} tables")


if __name__ == "__main__":
    main()
