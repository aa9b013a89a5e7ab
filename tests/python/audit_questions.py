"""A planted table, and every figure of the audit for which the model is asked, worked out anew.

    audit_questions.py make FOLDER [UNFAIR]   writes table.parquet, model.onnx, schema.toml and job.toml
    audit_questions.py check FOLDER           holds FOLDER/out against NumPy and ONNX Runtime

The model adds up income, savings, a permit and, with UNFAIR, sex; a row passes from 80 on. Planted: without a permit
nothing helps, and a permit never changes: that rule binds alone. All others are helped by a rise of income alone, so
that its p90 is an action that flips nine of ten. `check` reads the published tables and the model alone: it applies
actions by the schema's words, chooses greedily, takes GLANCE's two formulas, and works out contributions one by one.
It prints a line of JSON and ends with code 1 if any figure differs.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy
import onnxruntime
import pandas
import pyarrow.dataset
import pyarrow.parquet
from skl2onnx import to_onnx
from skl2onnx.common.data_types import DoubleTensorType, StringTensorType
from skl2onnx.sklapi import CastTransformer
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

ROWS = 1300
FEATURES = ["income", "savings", "age", "sex", "permit"]
VALUES = {"sex": ["f", "m"], "permit": ["no", "yes"]}
RANGES = {"income": (0, 200), "savings": (0, 25)}
SIZES = {"p50": 0.5, "p75": 0.75, "p90": 0.9}
WEIGHTS = {"income": 0.1, "savings": 0.1, "age": 0.0}
QUERIES = 10_000_000

SCHEMA = """
[[feature]]
name = "income"
kind = "numeric"
change = "increase"
range = [0, 200]
grid = "none"
reason = { code = "R1", low = "Income too low" }
[[feature]]
name = "savings"
kind = "numeric"
range = [0, 25]
grid = "none"
cost = 8.0
reason = { code = "R2", low = "Savings too low", high = "Savings too high" }
[[feature]]
name = "age"
kind = "numeric"
change = "never"
reason = { code = "R3" }
[[feature]]
name = "sex"
kind = "categorical"
values = ["f", "m"]
change = "never"
reason = { code = "R4", low = "Sex" }
[[feature]]
name = "permit"
kind = "categorical"
values = ["no", "yes"]
change = "never"
reason = { code = "R5", low = "No permit" }
"""

JOB = """
[input]
features = "table.parquet"
key = "id"
schema = "schema.toml"
[predictor]
kind = "onnx"
model = "model.onnx"
[target]
class = "yes"
[explain]
method = "search"
[audit]
by = ["sex", "area"]
min_cell = 5
queries = QUERIES
reasons = true
sections = ["actions", "binding", "responsiveness", "robustness", "explicit", "second_search"]
[output]
dir = "out"
"""


def make(folder, unfair):
    random = numpy.random.default_rng(11)
    frame = pandas.DataFrame(
        {
            "income": random.uniform(0, 100, ROWS).round(3),
            "savings": random.uniform(0, 20, ROWS).round(3),
            "age": random.integers(20, 70, ROWS).astype(float),
            "sex": random.choice(VALUES["sex"], ROWS),
            "permit": numpy.where(random.random(ROWS) < 0.95, "yes", "no"),
        }
    )
    prepare = ColumnTransformer(
        [
            ("reals", "passthrough", ["income", "savings", "age"]),
            ("sex", OneHotEncoder(categories=[VALUES["sex"]]), ["sex"]),
            ("permit", OneHotEncoder(categories=[VALUES["permit"]]), ["permit"]),
        ],
        sparse_threshold=0,
    )
    model = LogisticRegression()
    fitted = Pipeline([("columns", prepare), ("widen", CastTransformer(dtype=numpy.float64)), ("model", model)])
    fitted.fit(frame, numpy.where(frame.income > 50, "yes", "no"))
    model.coef_ = numpy.array([[0.1, 0.1, 0.0, 0.0, 1.5 if unfair else 0.0, -40.0, 0.0]])
    model.intercept_ = numpy.array([-8.0])
    kinds = {name: StringTensorType if name in VALUES else DoubleTensorType for name in FEATURES}
    exported = to_onnx(
        fitted,
        initial_types=[(name, kinds[name]([None, 1])) for name in FEATURES],
        options={id(model): {"zipmap": False}},
        target_opset={"": 21, "ai.onnx.ml": 3},
    )
    (folder / "model.onnx").write_bytes(exported.SerializeToString())
    frame.insert(0, "id", numpy.arange(ROWS))
    frame["area"] = random.choice(["north", "south", None], ROWS, p=[0.6, 0.39, 0.01])
    frame.to_parquet(folder / "table.parquet", index=False)
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "job.toml").write_text(JOB.replace("QUERIES", str(QUERIES)))
    print(json.dumps({"rows": ROWS}))


class Model:
    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path)

    def __call__(self, frame):
        """Whether rows get the target, and its probability."""
        feed = {}
        for name in FEATURES:
            kind = object if name in VALUES else numpy.float64
            feed[name] = frame[name].to_numpy().astype(kind).reshape(-1, 1)
        labels, chances = self.session.run(None, feed)
        return numpy.array([str(label) == "yes" for label in labels]), numpy.asarray(chances, float)[:, 1]


def table_of(path):
    """A table whose nulls are None."""
    frame = pyarrow.parquet.read_table(path).to_pandas().astype(object)
    return frame.where(frame.notna(), None)


class Check:
    def __init__(self, folder):
        self.out = folder / "out"
        self.model = Model(folder / "model.onnx")
        table = pandas.read_parquet(folder / "table.parquet")
        found = pyarrow.dataset.dataset(self.out / "counterfactuals").to_table().to_pandas()
        self.all = table.merge(found, on="id")
        self.refused = self.all[self.all.status != "already_target"].reset_index(drop=True)
        stats = json.loads((self.out / "generator/generator.json").read_text())["stats"]["features"]
        self.stats = [list(stat.values())[0] for stat in stats]
        self.faults = []
        self.told = {}

    def read(self, name):
        return table_of(self.out / f"reports/audit/{name}.parquet")

    def same(self, what, found, expected, tolerance=1e-9):
        close = found == expected or (
            found is not None and expected is not None and abs(found - expected) <= tolerance * max(1, abs(expected))
        )
        if not close:
            self.faults.append(f"{what}: found {found}, expected {expected}")

    def group(self, rows, attribute, value):
        """Positions of the rows of a group of a table."""
        if attribute is None:
            return numpy.arange(len(rows))
        column = rows[attribute]
        same = column.isna() if value is None else column == value
        return numpy.flatnonzero(same.to_numpy())

    # What changes cost: three tenths of a standard deviation for changing a number at all, then its way.
    def cost(self, steps):
        prices = {"income": 1.0, "savings": 8.0}
        std = {name: self.stats[FEATURES.index(name)]["std"] for name in prices}
        return sum(prices[name] * (0.3 + abs(size) / std[name]) for name, size in steps.items())

    def candidates(self):
        """Signatures of valid counterfactuals, commonest first, in three sizes."""
        valid = self.refused[self.refused.valid]
        counted = {}
        for row in valid.to_dict("records"):
            steps = {}
            for name in ["income", "savings"]:
                if row[f"cf_{name}"] != row[name]:
                    steps[name] = row[f"cf_{name}"] - row[name]
            signature = tuple((name, 1 if size > 0 else -1) for name, size in steps.items())
            counted.setdefault(signature, []).append(steps)
        # Equally common ones in the order of the features, those that rise first.
        order = sorted(
            counted, key=lambda one: (-len(counted[one]), [(FEATURES.index(name), -sign) for name, sign in one])
        )
        actions = []
        for signature in order[:20]:
            for label, share in SIZES.items():
                steps = {}
                for name, sign in signature:
                    sizes = sorted(abs(steps[name]) for steps in counted[signature])
                    steps[name] = sign * sizes[int(numpy.ceil(share * len(sizes))) - 1]
                if all(known != steps for _, known in actions):
                    actions.append((label, steps))
        return actions

    def effect(self, steps):
        """By row: whether an action is allowed, and its cost where it flips the decision."""
        changed = self.refused[FEATURES].copy()
        allowed = numpy.ones(len(changed), bool)
        for name, size in steps.items():
            changed[name] = changed[name] + size
            low, high = RANGES[name]
            allowed &= (changed[name] >= low).to_numpy() & (changed[name] <= high).to_numpy()
            if name == "income" and size < 0:
                allowed[:] = False
        reached, _ = self.model(changed)
        return allowed, numpy.where(allowed & reached, self.cost(steps), numpy.inf)

    def actions(self):
        found = self.read("actions")
        actions = self.candidates()
        effects = [self.effect(steps) for _, steps in actions]
        everybody = found[found.attribute.isna()]
        self.same("actions", len(everybody), len(actions))
        for (_, row), (label, _), (allowed, costs) in zip(everybody.iterrows(), actions, effects):
            what = f"action {row.action} ({row.changes})"
            self.same(f"{what} size", row["size"] == label, True)
            self.same(f"{what} applicable", row.applicable, int(allowed.sum()))
        for _, row in found.iterrows():
            allowed, costs = effects[row.action - 1]
            rows = self.group(self.refused, row.attribute, row.value)
            flipped = numpy.isfinite(costs[rows])
            what = f"action {row.action} of {row.attribute} {row.value}"
            self.same(f"{what} rows", row.rows, len(rows))
            self.same(f"{what} flipped", row.flipped, int(flipped.sum()))
            if len(rows) >= 5:
                self.same(f"{what} effectiveness", row.effectiveness, flipped.mean())
                expected = costs[rows][flipped].mean() if flipped.any() else None
                cost = None if pandas.isna(row.cost_mean) else row.cost_mean
                self.same(f"{what} cost", cost, expected)
        self.sets(found, effects)
        self.told["best action"] = max(everybody.effectiveness)

    def sets(self, found, effects):
        """The greedy choice, and GLANCE's eff(S) and cost(S)."""
        left, chosen = numpy.ones(len(self.refused), bool), []
        while len(chosen) < 5:
            gains = [(-(numpy.isfinite(costs) & left).sum(), costs[numpy.isfinite(costs) & left].sum())
                     for _, costs in effects]
            best = min(range(len(gains)), key=lambda index: (gains[index], index))
            if -gains[best][0] < max(1, 0.01 * len(left)):
                break
            chosen.append(best)
            left &= ~numpy.isfinite(effects[best][1])
        told = found[found.attribute.isna() & found.chosen.notna()].sort_values("chosen")
        self.same("chosen actions", list(told.action) == [index + 1 for index in chosen], True)
        least = numpy.min([effects[index][1] for index in chosen], axis=0)
        for _, row in self.read("action_sets").iterrows():
            rows = self.group(self.refused, row.attribute, row.value)
            flipped = numpy.isfinite(least[rows])
            what = f"set of {row.attribute} {row.value}"
            self.same(f"{what} flipped", row.flipped, int(flipped.sum()))
            if len(rows) < 5:
                self.same(f"{what} is suppressed", pandas.isna(row.effectiveness), True)
                continue
            self.same(f"{what} eff(S)", row.effectiveness, flipped.mean())
            self.same(f"{what} cost(S)", row.cost_mean, least[rows][flipped].mean())
            choices = sum(numpy.isfinite(costs[rows]).mean() >= 0.5 for _, costs in effects)
            self.same(f"{what} choices", row.choices, int(choices))

    def binding(self):
        stuck = self.refused[self.refused.status.isin(["unsolved", "infeasible"])].reset_index(drop=True)
        self.same("only rows without a permit are stuck", set(stuck.permit) == {"no"}, True)
        lifts = set()
        for _, row in self.read("binding").iterrows():
            rows = self.group(stuck, row.attribute, row.value)
            binds = (row.feature, row.constraint) == ("permit", "never")
            lifts.add((row.feature, row.constraint))
            what = f"{row.feature} {row.constraint} of {row.attribute} {row.value}"
            self.same(f"{what} rows", row.rows, len(rows))
            self.same(f"{what} solved", row.solved_if_lifted, len(rows) if binds else 0)
            self.same(f"{what} alone", row.only_this, len(rows) if binds else 0)
        expected = {(None, "none"), ("income", "direction"), ("age", "never"), ("sex", "never"), ("permit", "never")}
        self.same("what is lifted", lifts == expected, True)
        self.told["stuck"] = len(stuck)

    def responsiveness(self):
        refused = self.refused[self.refused.index < len(self.refused)]
        steps = numpy.arange(32) / 31
        reached = {}
        for name in ["income", "savings"]:
            low = numpy.zeros(len(refused)) if name == "savings" else refused[name].to_numpy()
            high = numpy.full(len(refused), RANGES[name][1], float)
            values = low[:, None] + (high - low)[:, None] * steps
            own = refused[name].to_numpy()[:, None]
            tried = values != own
            changed = refused[FEATURES].loc[refused.index.repeat(32)].copy()
            changed[name] = values.ravel()
            flips, _ = self.model(changed)
            reached[name] = (flips.reshape(values.shape) & tried, tried)
        for _, row in self.read("responsiveness").iterrows():
            flips, tried = reached[row.feature]
            rows = self.group(refused, row.attribute, row.value)
            what = f"responsiveness of {row.feature}, {row.attribute} {row.value}"
            self.same(f"{what} rows", row.rows, len(rows))
            # The ends of a range are as far as 32 bits say.
            self.same(f"{what} values", row["values"], int(tried[rows].sum()), 0.01)
            self.same(f"{what} reached", row.reached, int(flips[rows].sum()), 0.01)
            if len(rows) >= 5:
                share = (flips[rows].sum(axis=1) / tried[rows].sum(axis=1)).mean()
                self.same(f"{what} share", row.responsiveness, share, 0.005)
                self.same(f"{what} responsive", row.responsive, int(flips[rows].any(axis=1).sum()), 0.01)

    def robustness(self):
        valid = self.refused[self.refused.valid]
        random = numpy.random.default_rng(1)
        changed = valid[[f"cf_{name}" for name in FEATURES]].loc[valid.index.repeat(256)]
        changed.columns = FEATURES
        for name in ["income", "savings", "age"]:
            stat = self.stats[FEATURES.index(name)]
            noise = random.normal(0, 0.05 * stat["std"], len(changed))
            changed[name] = numpy.clip(changed[name] + noise, numpy.minimum(stat["min"], changed[name]),
                                       numpy.maximum(stat["max"], changed[name]))
        expected = self.model(changed)[0].mean()
        row = self.read("robustness").iloc[0]
        self.same("robust rows", row.rows, min(1000, len(valid)))
        self.same("validity of noisy copies", row.validity, expected, 0.02)
        self.same("fragility", row.fragility, 1 - row.validity)
        self.told["fragility"] = row.fragility

    def explicit(self):
        other = self.all[FEATURES].copy()
        other["sex"] = numpy.where(other.sex == "f", "m", "f")
        flips = self.model(other)[0] != self.model(self.all[FEATURES])[0]
        for _, row in self.read("explicit").iterrows():
            rows = self.group(self.all, row.attribute, row.value)
            what = f"explicit {row.feature} of {row.attribute} {row.value}"
            self.same(f"{what} rows", row.rows, len(rows))
            self.same(f"{what} flipped", row.flipped, int(flips[rows].sum()))
        self.told["explicit"] = int(flips.sum())

    def second_search(self):
        found = self.read("second_search")
        for _, row in found.iterrows():
            rows = self.refused.iloc[self.group(self.refused, row.attribute, row.value)]
            what = f"second search of {row.attribute} {row.value}, {row.metric}"
            self.same(f"{what} rows", row.rows, len(rows))
            if len(rows) < 5:
                self.same(f"{what} is suppressed", pandas.isna(row.figure), True)
                continue
            figure = rows.valid.mean() if row.metric == "recourse_rate" else rows.cost[rows.valid].mean()
            self.same(f"{what} figure", row.figure, figure)
            if row.metric == "recourse_rate":
                self.same(f"{what} is no less", row.figure_again >= row.figure, True)
            self.same(f"{what} moved", row.moved, abs(row.gap_again - row.gap))
            verdict = "inconclusive" if row.moved > row.tolerance else "holds"
            self.same(f"{what} verdict", row.verdict == verdict, True)

    def reasons(self):
        found = table_of(self.out / "reports/reasons.parquet")
        passing = self.all[self.all.status == "already_target"].sort_values("original_score").head(16)
        before = self.model(self.refused[FEATURES])[1]
        sums = {}
        for name in FEATURES:
            sums[name] = numpy.zeros(len(self.refused))
            for value in passing[name]:
                changed = self.refused[FEATURES].copy()
                changed[name] = value
                sums[name] += self.model(changed)[1] - before
        means = pandas.DataFrame(sums) / len(passing)
        means.index = self.refused.id
        rows = self.refused.set_index("id")
        told = found.groupby("id")
        self.same("rows with reasons", len(told), int((means.max(axis=1) > 0).sum()))
        for key, reasons in told:
            of_row = means.loc[key]
            positive = of_row[of_row > 0].sort_values(ascending=False)
            self.same(f"reasons of {key}", len(reasons), min(4, len(positive)))
            for (_, reason), (name, mean) in zip(reasons.sort_values("rank").iterrows(), positive.items()):
                self.same(f"reason {reason['rank']} of {key}", reason.contribution, mean, 1e-6)
                if reason.feature != name and abs(of_row[reason.feature] - mean) > 1e-6:
                    self.faults.append(f"reason {reason['rank']} of {key}: {reason.feature}, expected {name}")
                self.reason(reason, (rows.loc[key], passing))
            self.same(f"further reasons of {key}", reasons.further_reasons.iloc[0], max(0, len(positive) - 4))
        self.counts(found)

    def reason(self, reason, rows):
        row, passing = rows
        name = reason.feature
        movable = {"income": row.income < 200, "savings": True}.get(name, False)
        changes = bool(row.valid) and row[f"cf_{name}"] != row[name]
        self.same("actionable", bool(reason.actionable), movable)
        self.same("in recourse", bool(reason.in_recourse), changes)
        self.same("without recourse", bool(reason.reason_without_recourse), not row.valid or not movable)
        if name in ["income", "savings"]:
            usual = sorted(passing[name])[(len(passing) - 1) // 2]
            direction = "low" if row[name] < usual else "high"
            self.same("direction", reason.direction == direction, True)
            self.same("reference", float(reason.reference), usual)
            code = {"income": "R1", "savings": "R2"}[name]
            self.same("code", reason.code == code, True)

    def counts(self, found):
        merged = found.merge(self.refused[["id", "sex", "area"]], on="id")
        for _, row in self.read("reason_counts").iterrows():
            group = merged.iloc[self.group(merged, row.attribute, row.value)]
            direction = group.direction.isna() if row.direction is None else group.direction == row.direction
            named = group[(group.feature == row.feature) & direction]
            what = f"reason {row.feature} {row.direction} of {row.attribute} {row.value}"
            self.same(f"{what} rows", row.rows, len(self.group(self.refused, row.attribute, row.value)))
            self.same(f"{what} named", row.named, len(named))
            self.same(f"{what} first", row["first"], int((named["rank"] == 1).sum()))
            self.same(f"{what} without recourse", row.without_recourse, int(named.reason_without_recourse.sum()))


def check(folder):
    found = Check(folder)
    for part in ["actions", "binding", "responsiveness", "robustness", "explicit", "second_search", "reasons"]:
        getattr(found, part)()
    found.told["refused"] = len(found.refused)
    found.told["faults"] = found.faults[:40]
    print(json.dumps(found.told, default=float))
    sys.exit(1 if found.faults else 0)


def main():
    what, folder, *rest = sys.argv[1:]
    folder = Path(folder)
    make(folder, bool(rest)) if what == "make" else check(folder)


if __name__ == "__main__":
    main()
