"""How far are answers from the best that there is? Holds them against an exhaustive search.

    optimality.py OVERTURN DATA_FOLDER WORK_FOLDER [--cases "demo-forest adult-rf"] [--split tune|test] [--rows 500]
                  [--explain LINES] [--train-lines LINES] [--best-only]

OVERTURN is the program, DATA_FOLDER has Adult. Cases: demo-forest, demo-logistic (the demo's models on a table of
`overturn synth`), adult-rf, adult-xgb, adult-lr (the paper's classifiers). Explains ROWS rows in need with default
settings but LINES of `[explain]`, by default `min_score = 0.0`: the search goes to the border of the target, and what
answers pay for a margin is not waste. Looks for every one of the rows at all single changes (all categories; numbers on
a fine grid within what the schema allows, then bisected) and at pairs of all features (all categories, ten sizes of
move in each direction, then bisected), wherever they could beat what is known. Rows of `tune` are held out of the
training split; those of `test` are for final figures only. Rows with nulls are left out. Generators (LINES
go into their `[train]`) and what the search found are kept in WORK_FOLDER and used again.

What is compared is what the program minimises: cost (src/explain/refine/cost.rs) less what a change gains in plausibility
(linear_plausibility.rs). Prints for each case: mean of that over the best found; the same for cost alone; the share of answers
with more changes than some other needs, and those where that other costs no more; the share that could be had more
than a tenth cheaper; questions a row; validity.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "jobs/paper"))
import evaluate  # before classifiers, which sets the threads of linear algebra
import classifiers
import numpy
import onnxruntime
import pandas
import pyarrow.dataset
import tomllib

# As in cost.rs and linear_plausibility.rs.
NUMBER, CATEGORY, CATEGORY_OF_FEW = 0.3, 1.1, 1.5
PLAUSIBILITY_WEIGHT, STEEPEST, MOST_OF_PRICE = 0.3, 0.5, 0.9
# Numbers of one feature that are tried for a row, about, before bisection.
FINE = 200
# Sizes of a move in each direction, for pairs.
SIZES = 10
# Pairs of a row that are bisected.
FINALISTS = 4
CHUNK = 100_000
SYNTH_ROWS = 60_000


class Feature:
    """A feature of the schema: what it may become, and what that costs."""

    def __init__(self, told, column, data):
        self.name, self.column = told["name"], column
        self.numeric = told["kind"] == "numeric"
        self.change = told.get("change", "any")
        self.price = told.get("cost", 1.0)
        self.model_input = told["name"]
        if self.numeric:
            numbers = data.astype(float)
            seen = numbers[~numpy.isnan(numbers)]
            self.std = seen.std() or 1.0
            self.mean = seen.mean()
            self.low, self.high = told.get("range", (seen.min(), seen.max()))
            self.step = told.get("step", 1.0 if told.get("type") == "integer" else None)
            limit = told.get("limit", {})
            unit = self.high - self.low if limit.get("unit") == "share" else 1.0
            self.down = limit.get("down", numpy.inf) * unit if self.change in ("any", "decrease") else 0.0
            self.up = limit.get("up", numpy.inf) * unit if self.change in ("any", "increase") else 0.0
            self.seen = numpy.unique(numpy.quantile(seen, numpy.linspace(0, 1, FINE)))
        else:
            self.values = told["values"]
            allowed = told.get("allowed", self.values)
            self.allowed = [code for code, value in enumerate(self.values) if value in allowed]
            if self.change == "never":
                self.allowed = []

    def reach(self, own):
        return max(self.low, own - self.down), min(self.high, own + self.up)

    def snapped(self, numbers, own):
        """Numbers that are allowed, near these."""
        if self.step is None:
            return numbers
        return own + numpy.round((numbers - own) / self.step) * self.step

    def options(self, own):
        """All that it may become, or enough of it."""
        if self.change == "never":
            return numpy.array([])
        if not self.numeric:
            return numpy.array([code for code in self.allowed if code != own])
        low, high = self.reach(own)
        if self.step is not None and (high - low) / self.step <= 2 * FINE:
            found = own + numpy.arange(numpy.ceil((low - own) / self.step), (high - own) / self.step + 1e-9) * self.step
        else:
            around = own + numpy.concatenate([-1, 1] * numpy.geomspace(0.02, 4, 12)[:, None]) * self.std
            found = numpy.concatenate([self.seen, numpy.linspace(low, high, FINE // 2), around])
            found = numpy.unique(self.snapped(found, own))
        return found[(found >= low) & (found <= high) & (found != own)]


class Case:
    """A table, a model, and rows in need."""

    def __init__(self, given, name):
        self.given, self.name = given, name
        self.folder = given.work / name
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.demo if name.startswith("demo") else self.adult)()
        told = tomllib.loads(self.schema.read_text())["feature"]
        train = self.table[self.training]
        self.features = [Feature(one, place, self.codes(train, one)) for place, one in enumerate(told)]
        for feature in self.features:
            feature.model_input = self.rename.get(feature.name, feature.name)
        self.told = told
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(self.model), options)
        self.types = {one.name: one.type for one in self.session.get_inputs()}
        self.learn(train)

    def codes(self, rows, told):
        column = rows[told["name"]]
        if told["kind"] == "numeric":
            return column.to_numpy(dtype=float)
        return pandas.Categorical(column, categories=told["values"]).codes.astype(float)

    def demo(self):
        rows = self.given.work / "applications"
        if not rows.exists():
            subprocess.run([self.given.overturn, "synth", rows, "--rows", str(SYNTH_ROWS)], check=True,
                           stdout=subprocess.DEVNULL)
        self.table = pyarrow.dataset.dataset(rows, format="parquet").to_table().to_pandas()
        self.schema, self.key = PROJECT / "schemas/credit.toml", "application_id"
        self.model = PROJECT / f"jobs/demo/{self.name.removeprefix('demo-')}.onnx"
        self.classes, self.rename = ["approved", "rejected"], {}
        day = pandas.to_datetime(self.table["applied_on"])
        self.training = day < "2025-08-01"
        self.scope = day >= "2025-10-01" if self.given.split == "test" else (day >= "2025-08-01") & (day < "2025-10-01")
        if self.given.split == "test":
            self.training = day < "2025-10-01"

    def adult(self):
        case = classifiers.Case(self.given.data, "adult", self.name.removeprefix("adult-"))
        self.model = self.folder / "model.onnx"
        if not self.model.exists():
            exported, _ = classifiers.prepare(case, self.folder)
        self.table = pandas.read_parquet(self.folder / "table.parquet").drop(columns="wanted")
        self.schema, self.key = PROJECT / "schemas/paper/adult.toml", classifiers.KEY
        self.classes = case.classes()
        self.rename = {name: name.replace(" ", "_") for name in case.about["features"] if " " in name}
        test, held_out = self.table["split"] == "test", self.table[self.key] % 5 == 0
        self.training = ~test if self.given.split == "test" else ~test & ~held_out
        self.scope = test if self.given.split == "test" else ~test & held_out

    def labels(self, rows):
        """What the model decides about encoded rows, and its probabilities."""
        feed, found, shares = {}, [], []
        for first in range(0, len(rows), CHUNK):
            part = rows[first:first + CHUNK]
            for feature in self.features:
                column = part[:, feature.column]
                if feature.numeric:
                    number = numpy.float64 if "double" in self.types[feature.model_input] else numpy.float32
                    feed[feature.model_input] = column.astype(number)[:, None]
                else:
                    names = numpy.array([*feature.values, ""], dtype=object)
                    feed[feature.model_input] = names[column.astype(int)][:, None]
            label, share = self.session.run(None, feed)[:2]
            found.append(label)
            shares.append(share)
        labels = numpy.concatenate(found).ravel().astype(str)
        return labels, numpy.concatenate(shares)

    def decided(self, rows):
        labels, shares = self.labels(rows)
        return numpy.searchsorted(self.classes, labels), shares

    def learn(self, train):
        """Prices and plausibility, from training rows."""
        encoded = numpy.column_stack([self.codes(train, one) for one in self.told])
        self.train_rows = encoded = encoded[~numpy.isnan(encoded).any(axis=1)]
        of, _ = self.decided(encoded)
        self.train_decided = of
        numerics = sum(feature.numeric for feature in self.features)
        category = max(CATEGORY, CATEGORY_OF_FEW * numerics / max(len(self.features) - numerics, 1))
        for feature in self.features:
            feature.fixed = feature.price * (NUMBER if feature.numeric else category)
            feature.by_one = feature.price / feature.std if feature.numeric else 0.0
            scale = feature.price if feature.numeric else feature.fixed
            column = encoded[:, feature.column]
            feature.gain = []
            for target in range(len(self.classes)):
                own, other = column[of == target], column[of != target]
                if feature.numeric:
                    off = (own.mean() - other.mean()) / feature.std
                    most = STEEPEST * scale / PLAUSIBILITY_WEIGHT
                    feature.gain.append(PLAUSIBILITY_WEIGHT * numpy.clip(off, -most, most) / feature.std)
                else:
                    codes = range(len(feature.values))
                    share = numpy.array([(own == code).mean() - (other == code).mean() for code in codes])
                    spread = max(share.max(), 0) - min(share.min(), 0)
                    share *= min(1, MOST_OF_PRICE * scale / PLAUSIBILITY_WEIGHT / max(spread, 1e-12))
                    feature.gain.append(PLAUSIBILITY_WEIGHT * share)

    def pick(self):
        """Rows in need, and what is wanted of them."""
        rows = self.table[self.scope]
        encoded = numpy.column_stack([self.codes(rows, one) for one in self.told])
        whole = ~(numpy.isnan(encoded).any(axis=1) | (encoded < 0).any(axis=1))
        rows, encoded = rows[whole], encoded[whole]
        decided, _ = self.decided(encoded)
        need = decided != self.classes.index("approved") if self.name.startswith("demo") else decided >= 0
        order = numpy.random.default_rng(0).permutation(numpy.flatnonzero(need))[: self.given.rows]
        order.sort()
        return rows[self.key].to_numpy()[order], encoded[order], 1 - decided[order]

    def worth(self, feature, new, own, wanted):
        """Cost and score of changes of one feature; 0 where nothing changes."""
        cost = feature.fixed + feature.by_one * numpy.abs(new - own)
        if feature.numeric:
            gain = numpy.array(feature.gain)[wanted] * (new - own)
        else:
            table = numpy.array(feature.gain)
            gain = table[wanted, new.astype(int)] - table[wanted, own.astype(int)]
        same = new == own
        return numpy.where(same, 0, cost), numpy.where(same, 0, cost - gain)

    def total(self, rows, originals, wanted):
        cost, score = numpy.zeros(len(rows)), numpy.zeros(len(rows))
        for feature in self.features:
            one, two = self.worth(feature, rows[:, feature.column], originals[:, feature.column], wanted)
            cost, score = cost + one, score + two
        return cost, score

    def run(self, keys, wanted):
        """Answers of the program: encoded rows, validity, queries."""
        table = self.table.copy()
        table["wanted"] = None
        table.loc[table[self.key].isin(keys), "wanted"] = [self.classes[code] for code in wanted]
        table["learn"] = self.training
        table.to_parquet(self.folder / "input.parquet", index=False)
        rename = "".join(f'"{name}" = "{given}"\n' for name, given in self.rename.items())
        job = (
            f'[input]\nfeatures = "input.parquet"\nschema = "{self.schema}"\nkey = "{self.key}"\n'
            'where = "wanted IS NOT NULL"\ntrain_where = "learn"\n'
            f'[predictor]\nkind = "onnx"\nmodel = "{self.model}"\n[predictor.rename]\n{rename}\n'
            f'[target]\ncolumn = "wanted"\n[train]\n{self.given.train_lines}\n[output]\ndir = "DIR"\noverwrite = true\n'
        )
        generator = self.folder / f"generator-{self.given.split}"
        if not (generator / "_SUCCESS").exists():
            path = self.folder / "train.toml"
            path.write_text(job.replace("DIR", str(generator)))
            evaluate.program(self.given.overturn, "train", path)
        path, out = self.folder / "job.toml", self.folder / "explained"
        lines = f'generator = "{generator}/generator"\n{self.given.explain}\n'
        path.write_text(job.replace("DIR", str(out)) + f"[explain]\n{lines}")
        shutil.rmtree(out, ignore_errors=True)
        self.summary, _, _ = evaluate.program(self.given.overturn, "run", path)
        found = pyarrow.dataset.dataset(out / "counterfactuals", format="parquet").to_table().to_pandas()
        found = found[found["sample"] == 0].set_index(self.key).loc[keys]
        found = found.rename(columns={f"cf_{one['name']}": one["name"] for one in self.told})
        encoded = numpy.column_stack([self.codes(found, one) for one in self.told])
        return encoded, found["valid"].to_numpy(), found["queries"].to_numpy()


class Best:
    """The best found for every row."""

    def __init__(self, case, originals, wanted):
        self.case, self.originals, self.wanted = case, originals, wanted
        self.score = numpy.full(len(originals), numpy.inf)
        self.cost, self.single, self.single_score = self.score.copy(), self.score.copy(), self.score.copy()
        self.fewest = numpy.full(len(originals), 99)
        self.rows = originals.copy()
        self.asked = 0

    def ask(self, of, rows):
        """Whether rows are valid; the best of them are kept."""
        labels, _ = self.case.decided(rows)
        self.asked += len(rows)
        valid = labels == self.wanted[of]
        some = numpy.flatnonzero(valid)
        cost, score = self.case.total(rows[some], self.originals[of[some]], self.wanted[of[some]])
        changed = (rows[some] != self.originals[of[some]]).sum(axis=1)
        numpy.minimum.at(self.cost, of[some], cost)
        numpy.minimum.at(self.fewest, of[some], changed)
        one = changed == 1
        numpy.minimum.at(self.single, of[some][one], cost[one])
        numpy.minimum.at(self.single_score, of[some][one], score[one])
        for place in numpy.argsort(score):
            row = of[some[place]]
            if score[place] < self.score[row]:
                self.score[row], self.rows[row] = score[place], rows[some[place]]
        return valid

    def singles(self):
        of, rows = [], []
        for row, original in enumerate(self.originals):
            for feature in self.case.features:
                for value in feature.options(original[feature.column]):
                    new = original.copy()
                    new[feature.column] = value
                    of.append(row)
                    rows.append(new)
        of, rows = numpy.array(of), numpy.array(rows)
        valid = self.ask(of, rows)
        # Per row, feature and direction the nearest valid number.
        for feature in self.case.features:
            if feature.numeric:
                self.bisect_singles(feature, of, rows, valid)

    def bisect_singles(self, feature, of, rows, valid):
        moved = rows[:, feature.column] - self.originals[of, feature.column]
        for side in (-1, 1):
            mine = moved * side > 0
            high = numpy.full(len(self.originals), numpy.inf)
            numpy.minimum.at(high, of[mine & valid], numpy.abs(moved[mine & valid]))
            low = numpy.zeros(len(self.originals))
            short = mine & ~valid & (numpy.abs(moved) < high[of])
            numpy.maximum.at(low, of[short], numpy.abs(moved[short]))
            some = numpy.flatnonzero(numpy.isfinite(high))
            self.bisect(feature, some, self.originals[some].copy(), (side * low[some], side * high[some]))

    def bisect(self, feature, of, rows, ends):
        """Moves one number back; gives the rows with the least that was valid."""
        low, high = ends
        own = self.originals[of, feature.column]
        least = 0.002 * feature.std if feature.step is None else feature.step * 1.01
        rows[:, feature.column] = own + high
        for _ in range(14):
            middle = feature.snapped(own + (low + high) / 2, own) - own
            wide = numpy.flatnonzero((numpy.abs(high - low) > least) & (middle != low) & (middle != high))
            if not len(wide):
                break
            trial = rows[wide].copy()
            trial[:, feature.column] = (own + middle)[wide]
            valid = self.ask(of[wide], trial)
            high[wide] = numpy.where(valid, middle[wide], high[wide])
            low[wide] = numpy.where(valid, low[wide], middle[wide])
        rows[:, feature.column] = own + high
        return rows

    def levels(self, feature, row, left):
        """Values of a feature to pair, that cost no more than is left."""
        own = self.originals[row, feature.column]
        if not feature.numeric:
            found = feature.options(own)
        elif left <= feature.fixed or feature.change == "never":
            return numpy.array([])
        else:
            low, high = feature.reach(own)
            # What a number gains in plausibility makes it up to half as dear again, or half as cheap.
            far = 2 * (left - feature.fixed) / feature.by_one
            sizes = numpy.arange(1, SIZES + 1) / SIZES
            moves = [-sizes * min(own - low, far), sizes * min(high - own, far)]
            found = numpy.unique(feature.snapped(own + numpy.concatenate(moves), own))
            found = found[(found >= low) & (found <= high)]
        found = found[found != own]
        many = numpy.full(len(found), own)
        _, score = self.case.worth(feature, found, many, numpy.full(len(found), self.wanted[row]))
        return found[score < left]

    def pairs(self):
        case, movable = self.case, [one for one in self.case.features if one.change != "never"]
        for place, one in enumerate(movable):
            of, rows = [], []
            for row, original in enumerate(self.originals):
                left = self.score[row]
                left = 20.0 if numpy.isinf(left) else left
                firsts = self.levels(one, row, left)
                if not len(firsts):
                    continue
                for two in movable[:place]:
                    seconds = self.levels(two, row, left)
                    new = numpy.repeat(original[None], len(firsts) * len(seconds), axis=0)
                    new[:, one.column] = numpy.repeat(firsts, len(seconds))
                    new[:, two.column] = numpy.tile(seconds, len(firsts))
                    _, score = case.total(new, new * 0 + original, numpy.full(len(new), self.wanted[row]))
                    new = new[score < left]
                    of.append(numpy.full(len(new), row))
                    rows.append(new)
            if of and sum(map(len, of)):
                self.pair(numpy.concatenate(of), numpy.concatenate(rows))

    def pair(self, of, rows):
        valid = self.ask(of, rows)
        of, rows = of[valid], rows[valid]
        _, score = self.case.total(rows, self.originals[of], self.wanted[of])
        # The best few of every row are made smaller, number by number.
        order = numpy.lexsort((score, of))
        rank = numpy.arange(len(order)) - numpy.searchsorted(of[order], of[order])
        order = order[rank < FINALISTS]
        of, rows = of[order], rows[order]
        for _ in range(2):
            for feature in self.case.features:
                own = self.originals[of, feature.column]
                some = numpy.flatnonzero(rows[:, feature.column] != own) if feature.numeric else []
                if len(some):
                    moved = (rows[:, feature.column] - own)[some]
                    rows[some] = self.bisect(feature, of[some], rows[some], (moved * 0, moved))

    def subsets(self, answers):
        """Answers with one change less."""
        of, rows = [], []
        for row, answer in enumerate(answers):
            changed = numpy.flatnonzero(answer != self.originals[row])
            for place in changed if len(changed) > 1 else []:
                new = answer.copy()
                new[place] = self.originals[row, place]
                of.append(row)
                rows.append(new)
        if of:
            self.ask(numpy.array(of), numpy.array(rows))


def best_of(case, keys, originals, wanted):
    """The exhaustive search, kept on disk: it does not depend on the program."""
    stored = case.folder / f"best-{case.given.split}-{len(keys)}.npz"
    best = Best(case, originals, wanted)
    fields = ["score", "cost", "single", "single_score", "fewest", "rows"]
    if stored.exists():
        for field, values in numpy.load(stored).items():
            setattr(best, field, values)
    else:
        best.singles()
        best.pairs()
        numpy.savez(stored, **{field: getattr(best, field) for field in fields})
        say(f"{case.name}: {best.asked} questions for the exhaustive search")
    return best


def figures(case):
    keys, originals, wanted = case.pick()
    best = best_of(case, keys, originals, wanted)
    answers, valid, queries = case.run(keys, wanted)
    best.subsets(answers)
    confirmed = best.ask(numpy.arange(len(keys)), answers)
    if (confirmed != valid).any():
        say(f"{case.name}: {int((confirmed != valid).sum())} answers are not what the table says of them")
    cost, score = case.total(answers, originals, wanted)
    changed = (answers != originals).sum(axis=1)
    more = valid & (changed > best.fewest)
    # One change that costs no more than the several of the answer.
    waste = valid & (changed > 1) & (best.single_score <= score + 1e-9)
    numpy.savez(case.folder / "answers.npz", keys=keys, originals=originals, answers=answers, valid=valid,
                queries=queries, score=score, best=best.score, best_rows=best.rows, fewest=best.fewest)
    unsolved = valid.size - valid.sum()
    return {
        "case": case.name,
        "score ÷ best": (score / best.score)[valid].mean(),
        "cost ÷ best": (cost / best.cost)[valid].mean(),
        "more changes %": 100 * more[valid].mean(),
        "and dearer %": 100 * waste[valid].mean(),
        "> 10 % dearer %": 100 * (score > 1.1 * best.score)[valid].mean(),
        "queries": queries.mean(),
        "validity %": 100 * valid.mean(),
        "unsolved, solvable": int((~valid & numpy.isfinite(best.score)).sum()) if unsolved else 0,
        "changed": changed[valid].mean(),
        "several changes %": 100 * (changed > 1)[valid].mean(),
    }


def say(text):
    print(text, file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn")
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--cases", default="demo-forest demo-logistic adult-rf adult-xgb adult-lr")
    parser.add_argument("--split", choices=["tune", "test"], default="tune")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--explain", default="min_score = 0.0", help="lines of `[explain]`")
    parser.add_argument("--train-lines", default="", help="lines of `[train]`")
    parser.add_argument("--best-only", action="store_true", help="only the exhaustive search")
    return parser.parse_args()


def main():
    given = arguments()
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in given.cases.split():
        case = Case(given, name)
        if given.best_only:
            best_of(case, *case.pick())
            continue
        rows.append(figures(case))
        say(json.dumps({name: round(float(value), 4) if name != "case" else value for name, value in rows[-1].items()}))
    if rows:
        shown = [[value if isinstance(value, str) else f"{value:.3f}" for value in row.values()] for row in rows]
        lines = [list(rows[0]), ["---"] * len(rows[0]), *shown]
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))


if __name__ == "__main__":
    main()
