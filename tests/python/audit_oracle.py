"""Recounts every table of `reports/audit` that asks the model nothing, from the published files of a run.

    python tests/python/audit_oracle.py FOLDER

The counterfactual table is joined with the input by key in DuckDB; everything else is NumPy and SciPy. Nothing is
shared with the program but the published files. Prints how many cells were compared, table by table; ends with code 1
and the first differences if there are any.
"""

import json
import math
import pathlib
import struct
import sys

import duckdb
import numpy as np
import pandas as pd
from scipy import stats

Z = 1.959963984540054
DROPPED_BITS = 46
METRIC_TABLES = ["groups", "curves", "gaps", "changes", "at_bound"]


# --- what was published -----------------------------------------------------------------------------------------


def glob_of(path):
    path = pathlib.Path(path)
    return str(path / "**" / "*.parquet") if path.is_dir() else str(path)


def tensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    types = {"F32": np.float32, "F64": np.float64, "I16": np.int16, "I64": np.int64}
    header = json.loads(raw[8 : 8 + length])
    found = {}
    for name, of in header.items():
        if name != "__metadata__":
            low, high = (8 + length + offset for offset in of["data_offsets"])
            found[name] = np.frombuffer(raw[low:high], types[of["dtype"]])
    return found


class Run:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.job = json.loads((self.folder / "manifest.json").read_text())["job"]
        self.audit = self.job["audit"]
        self.generator = json.loads((self.folder / "generator/generator.json").read_text())
        self.features = self.generator["schema"]["features"]
        self.names = [feature["name"] for feature in self.features]
        self.rows = self.joined()
        self.efforts()
        self.moves()

    def joined(self):
        key, audit = self.job["input"]["key"], self.audit
        extra = [*audit["by"], *([audit["label"]] if audit["label"] else [])]
        sources = ", ".join(f"'{glob_of(path)}'" for path in self.job["input"]["features"])
        connection = duckdb.connect()
        connection.execute(f"create view input as select * from read_parquet([{sources}], union_by_name=true)")
        columns = [row[0] for row in connection.execute("describe input").fetchall()]
        bounds = [f"{name}__{end}" for name in self.names for end in ("min", "max")]
        bounds = [name for name in bounds if name in columns]
        chosen = [f'i."{name}" as "own_{name}"' for name in self.names]
        chosen += [f'cast(i."{name}" as varchar) as "group_{name}"' for name in extra]
        chosen += [f'cast(i."{name}" as double) as "{name}"' for name in bounds]
        own = ["target", "status", "source", "valid", "queries", "certified", "cost", "n_changed"]
        chosen += [f'c."{name}"' for name in own] + [f'c."cf_{name}"' for name in self.names]
        on = " and ".join(f'c."{name}" = i."{name}"' for name in key)
        by = ", ".join(f'c."{name}"' for name in key)
        query = f"""select {", ".join(chosen)} from
            read_parquet('{self.folder}/counterfactuals/**/*.parquet', hive_partitioning=true) c join input i on {on}
            qualify row_number() over (partition by {by}, c.target order by c.sample) = 1"""
        return connection.execute(query).df()

    def numeric(self, index):
        return "Numeric" in self.features[index]["kind"]

    def own(self, name):
        return self.rows[f"own_{name}"], self.rows[f"cf_{name}"]

    def efforts(self):
        """Σ |Q(new) − Q(old)|, Q the share of the kept training rows that are at most this."""
        kept = tensors(self.folder / "generator/neighbours.safetensors")
        count = len(kept["decisions"])
        numbers, exact = kept["numbers"].reshape(-1, count), kept["exact"].reshape(-1, count)
        order = [index for index in range(len(self.names)) if self.numeric(index)]
        effort = np.zeros(len(self.rows))
        for place, index in enumerate(order):
            own, new = (column.to_numpy(float) for column in self.own(self.names[index]))
            known = np.nonzero(kept["exact_features"] == index)[0]
            column = exact[known[0]] if len(known) else numbers[place]
            if not len(known):
                slots = self.generator["layout"]["slots"][index]["Numeric"]
                scaled = lambda x: np.clip(
                    ((x - slots["mean"]) * (1.0 / slots["std"])).astype(np.float32), -slots["cut"], slots["cut"]
                )
                own, new = scaled(own), scaled(new)
            column = np.sort(column[~np.isnan(column)])
            share = lambda x: np.searchsorted(column, x, side="right") / max(len(column), 1)
            moved = np.abs(share(new) - share(own))
            effort += np.where(np.isnan(own) | np.isnan(new), 0.0, moved)
        for index, name in enumerate(self.names):
            if not self.numeric(index):
                own, new = self.own(name)
                effort += (own.fillna("\0") != new.fillna("\0")).to_numpy(float)
        self.rows["effort"] = effort

    def moves(self):
        """Signatures in words, sizes, and bounds."""
        rows = self.rows
        valid = ((rows["status"] != "already_target") & rows["valid"]).to_numpy()
        words, sizes = [[] for _ in range(len(rows))], [[] for _ in range(len(rows))]
        self.bounds = {}
        for index, name in enumerate(self.names):
            own, new = self.own(name)
            if self.numeric(index):
                own, new = own.to_numpy(float), new.to_numpy(float)
                moved = valid & (np.abs(new - own) > 0)
                self.bounds[name] = (moved, self.number_bounds(index, own, new))
                for row in np.nonzero(moved)[0]:
                    words[row].append(f"{name} {'up' if new[row] > own[row] else 'down'}")
                    sizes[row].append(abs(new[row] - own[row]))
            else:
                own, new = own.fillna("\0").to_numpy(), new.fillna("\0").to_numpy()
                moved = valid & (own != new)
                self.bounds[name] = (moved, self.code_bounds(index, new))
                for row in np.nonzero(moved)[0]:
                    words[row].append(f"{name} to {new[row]}")
                    sizes[row].append(math.nan)
        rows["signature"] = [", ".join(parts) for parts in words]
        self.sizes = sizes

    def number_bounds(self, index, own, new):
        numeric, name = self.features[index]["kind"]["Numeric"], self.names[index]
        seen = self.generator["stats"]["features"][index]["Numeric"]
        low, high = numeric["range"] or (seen["min"], seen["max"])
        found = {"range_low": new == low, "range_high": new == high}
        limit = numeric["limit"]
        for bound, side in (("limit_low", "down"), ("limit_high", "up")):
            most = math.inf if not limit or limit[side] is None else limit[side]
            most *= (high - low) if limit and limit["share"] else 1.0
            toward = new < own if side == "down" else new > own
            far = np.abs(new - own) >= most * (1 - 1e-9) if math.isfinite(most) else False
            found[bound] = toward & far
        for bound, end in (("row_low", "min"), ("row_high", "max")):
            column = f"{name}__{end}"
            found[bound] = new == self.rows[column].to_numpy() if column in self.rows else new != new
        return found

    def code_bounds(self, index, new):
        of = self.features[index]["kind"]["Categorical"]
        if not of["ranks"]:
            return {}
        allowed = [code for code, may in enumerate(of["allowed"]) if may]
        if not allowed:
            return {}
        ranked = sorted(allowed, key=lambda code: of["ranks"][code])
        first, last = of["values"][ranked[0]], of["values"][ranked[-1]]
        return {"allowed_first": new == first, "allowed_last": new == last}

    def groups(self):
        """(target, attribute, value) → mask, everybody first."""
        found = {}
        for target in sorted(set(self.rows["target"])):
            of = (self.rows["target"] == target).to_numpy()
            found[target, None, None] = of
            for name in self.audit["by"]:
                column = self.rows[f"group_{name}"]
                for value in column.dropna().unique():
                    found[target, name, value] = of & (column == value).to_numpy()
                if column.isna().any():
                    found[target, name, None] = of & column.isna().to_numpy()
        return {group: mask for group, mask in found.items() if mask.any()}

    def reference(self, target, name, groups):
        wanted = self.audit["reference"].get(name)
        own = {g[2]: m.sum() for g, m in groups.items() if g[0] == target and g[1] == name}
        if wanted is not None:
            return wanted if wanted in own else False
        return min(own, key=lambda value: (-own[value], value is None, value or ""))


# --- statistics, from their definitions --------------------------------------------------------------------------


def wilson(part, whole):
    if whole == 0:
        return 0.0, 1.0
    share, shrink = part / whole, 1 + Z * Z / whole
    centre = (share + Z * Z / (2 * whole)) / shrink
    half = Z * math.sqrt(share * (1 - share) / whole + Z * Z / (4 * whole * whole)) / shrink
    return (0.0 if part == 0 else centre - half), (1.0 if part == whole else centre + half)


def mover(one, one_in, two, two_in):
    below = math.hypot(one - one_in[0], two_in[1] - two)
    return one - two - below, one - two + math.hypot(one_in[1] - one, two - two_in[0])


def shares(one, two):
    (a, n), (b, m) = one, two
    if not n or not m:
        return None
    pool = (a + b) / (n + m)
    deviation = math.sqrt(pool * (1 - pool) * (1 / n + 1 / m))
    p = 2 * stats.norm.sf(abs(a / n - b / m) / deviation) if deviation > 0 else 1.0
    return a / n - b / m, mover(a / n, wilson(a, n), b / m, wilson(b, m)), p


def means(one, two):
    if len(one) < 2 or len(two) < 2:
        return None
    difference = one.mean() - two.mean()
    if one.std() == 0 and two.std() == 0:
        return difference, (difference, difference), float(difference == 0)
    found = stats.ttest_ind(one, two, equal_var=False)
    interval = found.confidence_interval(0.95)
    return difference, (interval.low, interval.high), found.pvalue


def curve(difference, n, m):
    band = lambda count: math.sqrt(math.log(2 / 0.025) / (2 * count))
    half = band(n) + band(m)
    p = stats.kstwobign.sf(difference * math.sqrt(n * m / (n + m)))
    return difference, (max(difference - half, 0), min(difference + half, 1)), p


def holm(p):
    order, found, highest = np.argsort(p, kind="stable"), np.zeros(len(p)), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min((len(p) - rank) * p[index], 1.0))
        found[index] = highest
    return found


def yekutieli(p):
    order, found, lowest = np.argsort(p, kind="stable"), np.zeros(len(p)), 1.0
    harmonic = sum(1 / rank for rank in range(1, len(p) + 1))
    for rank in range(len(p), 0, -1):
        lowest = min(lowest, p[order[rank - 1]] * len(p) * harmonic / rank)
        found[order[rank - 1]] = lowest
    return found


def edge(number):
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return 0.0 if number == 0 else struct.unpack("<d", struct.pack("<Q", bits | ((1 << DROPPED_BITS) - 1)))[0]


# --- comparing --------------------------------------------------------------------------------------------------


class Checker:
    def __init__(self, folder):
        self.folder, self.faults, self.compared = pathlib.Path(folder), [], {}
        self.tables = {}
        for name in METRIC_TABLES:
            path = self.folder / f"reports/audit/{name}.parquet"
            if path.exists():
                self.tables[name] = duckdb.sql(f"select * from '{path}'").df().astype(object)

    def rows(self, table, keys):
        frame = self.tables[table]
        frame = frame.where(frame.notna(), None)
        found = {}
        for row in frame.to_dict("records"):
            found.setdefault(tuple(row[key] for key in keys), []).append(row)
        twice = [key for key, rows in found.items() if len(rows) > 1]
        if twice:
            self.faults.append(f"{table}: {twice[0]} stands there twice")
        return {key: rows[0] for key, rows in found.items()}

    def same(self, table, where, found, expected, within=1e-9):
        """Every expected cell, to within a share of it."""
        for name, value in expected.items():
            self.compared[table] = self.compared.get(table, 0) + 1
            have = found[name]
            nothing = lambda x: x is None or (isinstance(x, float) and math.isnan(x))
            if nothing(value) or nothing(have):
                good = nothing(value) and nothing(have)
            elif isinstance(value, (str, bool, np.bool_)):
                good = have == value
            else:
                slack = within.get(name, 1e-9) if isinstance(within, dict) else within
                good = abs(have - value) <= slack * max(abs(value), 1e-3)
            if not good:
                self.faults.append(f"{table} {where}: {name} is {have}, recounted {value}")

    def complete(self, table, found, expected):
        for where in list(set(found) ^ set(expected))[:5]:
            side = "not recounted" if where in found else "missing"
            self.faults.append(f"{table} {where}: {side}")


def measures(run, mask):
    """What every section needs of a group."""
    rows, audit = run.rows, run.audit
    needed = mask & (rows["status"] != "already_target").to_numpy()
    valid = needed & rows["valid"].to_numpy()
    solved = (rows["status"] == "solved").to_numpy()
    of = lambda name, where: rows[name].to_numpy(float)[where]
    found = {
        "rows": int(mask.sum()),
        "needed": int(needed.sum()),
        "valid": int(valid.sum()),
        "infeasible": int((needed & ~solved & rows["certified"].to_numpy()).sum()),
        "single": int((valid & (rows["n_changed"] == 1).to_numpy()).sum()),
        "queries": int(of("queries", needed).sum()),
        "cost": of("cost", valid),
        "changed": of("n_changed", valid),
        "effort": of("effort", valid),
        "mask": mask,
        "is_valid": valid,
    }
    for source in ("generator", "candidate", "neighbour"):
        found[f"by_{source}"] = int((mask & (rows["source"] == source).to_numpy()).sum())
    usual = sum(found[f"by_{source}"] for source in ("generator", "candidate", "neighbour"))
    found["by_other"] = int((mask & rows["source"].notna().to_numpy()).sum()) - usual
    if audit["label"]:
        label = rows[f"group_{audit['label']}"]
        target = run.job["target"]
        if isinstance(target, dict) and "Range" in target:
            number = label.astype(float).to_numpy()
            positive = (number >= target["Range"]["low"]) & (number <= target["Range"]["high"])
        else:
            positive = (label == rows["target"]).to_numpy()
        found["positives"] = int((mask & positive).sum())
        found["false_negatives"] = int((needed & positive).sum())
        found["missed_cost"] = of("cost", valid & positive)
        found["missed_effort"] = of("effort", valid & positive)
    found["sorted"] = np.sort(found["cost"])
    return found


def mean(numbers):
    return float(np.mean(numbers)) if len(numbers) else None


def ratio(part, whole):
    return part / whole if whole else None


def cost_of(of, share):
    rank = max(math.ceil(share * of["needed"]), 1)
    return float(of["sorted"][rank - 1]) if rank <= len(of["sorted"]) else None


def check_groups(run, checker, groups, measured):
    found = checker.rows("groups", ["target", "attribute", "value"])
    checker.complete("groups", found, groups)
    for group in groups:
        of = measured[group]
        small = of["needed"] < run.audit["min_cell"]
        reference = group[1] is not None and run.reference(group[0], group[1], groups) == group[2]
        expected = {name: of[name] for name in ("rows", "needed", "valid", "infeasible", "queries")}
        expected |= {f"by_{name}": of[f"by_{name}"] for name in ("generator", "candidate", "neighbour", "other")}
        expected |= {
            "unsolved": of["needed"] - of["valid"] - of["infeasible"],
            "already_target": of["rows"] - of["needed"],
            "suppressed": small,
            "reference": reference,
        }
        told = {
            "preclusion_least": ratio(of["infeasible"], of["needed"]),
            "preclusion_most": ratio(of["needed"] - of["valid"], of["needed"]),
            "cost_mean": mean(of["cost"]),
            "n_changed_mean": mean(of["changed"]),
            "effort_mean": mean(of["effort"]),
            "cost_p50": cost_of(of, 0.5),
            "cost_p90": cost_of(of, 0.9),
            "social_burden": ratio(float(of["cost"].sum()), of["rows"]),
            "single_change_share": ratio(of["single"], of["valid"]),
            "queries_mean": ratio(of["queries"], of["needed"]),
        }
        for name, part, whole in (("refusal", "needed", "rows"), ("recourse", "valid", "needed")):
            low, high = wilson(of[part], of[whole]) if of[whole] else (None, None)
            told |= {f"{name}_rate": ratio(of[part], of[whole]), f"{name}_low": low, f"{name}_high": high}
        labelled = bool(run.audit["label"])
        expected |= {name: of.get(name) for name in ("positives", "false_negatives")}
        missed = {"false_negative_rate": None, "false_negative_burden": None, "nawb": None}
        if labelled:
            rate, distance = ratio(of["false_negatives"], of["positives"]), mean(of["missed_effort"])
            nawb = None if rate is None or distance is None else 100 * rate * distance / len(run.names)
            missed = {
                "false_negative_rate": rate,
                "false_negative_burden": mean(of["missed_cost"]),
                "nawb": nawb,
            }
        told |= missed
        expected |= {name: None for name in told} if small else told
        checker.same("groups", group, found[group], expected, {"cost_p50": 0.01, "cost_p90": 0.01})


def budgets_of(run, of):
    if run.audit["budgets"]:
        return [(cost, None) for cost in run.audit["budgets"]]
    pool, found = of["sorted"], {}
    for point in range(1, 33 if len(pool) else 1):
        rank = max(math.ceil(point / 32 * len(pool)), 1)
        found[edge(float(pool[rank - 1]))] = point / 32
    return list(found.items())


def reached(of, cost):
    return int((of["cost"] <= cost).sum())


def check_curves(run, checker, groups, measured):
    found, expected = checker.rows("curves", ["target", "attribute", "value", "budget"]), set()
    for group in groups:
        of = measured[group]
        small = of["needed"] < run.audit["min_cell"]
        for cost, quantile in budgets_of(run, measured[group[0], None, None]):
            expected.add((*group, cost))
            part = reached(of, cost)
            low, high = wilson(part, of["needed"]) if of["needed"] else (None, None)
            told = {"reached": part, "effectiveness": ratio(part, of["needed"]), "low": low, "high": high}
            told = {name: None for name in told} if small else told
            told |= {"quantile": quantile, "needed": of["needed"], "suppressed": small}
            row = found.get((*group, cost))
            if row:
                checker.same("curves", (*group, cost), row, told)
    checker.complete("curves", found, expected)


def metrics(run, own, other, budgets):
    """Metric → (figures, contrast, tolerance, cost's, budget)."""
    audit = run.audit
    found = {}

    def share(metric, one, two, cost=False, budget=None):
        figures = (ratio(*one), ratio(*two))
        figures = None if None in figures else figures
        found[metric] = (figures, shares(one, two), audit["tolerance"], cost, budget)

    def number(metric, one, two):
        figures = (float(one.mean()), float(two.mean())) if len(one) and len(two) else None
        tolerance = audit["tolerance"] * abs(float(two.mean())) if len(two) else None
        found[metric] = (figures, means(one, two) if figures else None, tolerance, True, None)

    spread = lambda of: np.concatenate([of["cost"], np.zeros(of["rows"] - of["valid"])])
    share("refusal_rate", (own["needed"], own["rows"]), (other["needed"], other["rows"]))
    share("recourse_rate", (own["valid"], own["needed"]), (other["valid"], other["needed"]))
    share("preclusion_least", (own["infeasible"], own["needed"]), (other["infeasible"], other["needed"]))
    share("single_change_share", (own["single"], own["valid"]), (other["single"], other["valid"]))
    if audit["label"]:
        rates = [(of["false_negatives"], of["positives"]) for of in (own, other)]
        share("false_negative_rate", *rates)
        number("false_negative_burden", own["missed_cost"], other["missed_cost"])
    number("cost_mean", own["cost"], other["cost"])
    number("n_changed_mean", own["changed"], other["changed"])
    number("effort_mean", own["effort"], other["effort"])
    number("social_burden", spread(own), spread(other))
    for name, at in (("cost_p50", 0.5), ("cost_p90", 0.9)):
        costs = (cost_of(own, at), cost_of(other, at))
        figures = None if None in costs else costs
        ends = [
            [cost_of(of, end) for end in wilson(math.floor(at * of["needed"] + 0.5), of["needed"])]
            for of in (own, other)
        ]
        known = figures and not any(end is None for of in ends for end in of)
        interval = mover(costs[0], ends[0], costs[1], ends[1]) if known else None
        contrast = (costs[0] - costs[1], interval, None) if figures else None
        tolerance = audit["tolerance"] * costs[1] if figures else None
        found[name] = (figures, contrast, tolerance, True, None)
    at = [cost for cost, quantile in budgets if quantile is None or quantile >= 0.5]
    for cost in at if audit["budgets"] else at[:1]:
        one, two = (reached(own, cost), own["needed"]), (reached(other, cost), other["needed"])
        share(("effectiveness", cost), one, two, True, cost)
    widest = None
    for cost, _ in budgets:
        pair = (ratio(reached(own, cost), own["needed"]), ratio(reached(other, cost), other["needed"]))
        if None not in pair and (widest is None or abs(pair[0] - pair[1]) > abs(widest[1][0] - widest[1][1])):
            widest = (cost, pair)
    if widest:
        difference = abs(widest[1][0] - widest[1][1])
        contrast = curve(difference, own["needed"], other["needed"])
        found["curve"] = (widest[1], contrast, audit["tolerance"], True, widest[0])
    else:
        found["curve"] = (None, None, None, None, None)
    return found


def cost_agrees(own, other):
    pairs = [(own[name], other[name]) for name in ("cost", "changed", "effort")]
    if any(not len(one) or not len(two) for one, two in pairs):
        return None
    signs = {float(np.sign(math.fsum(one) / len(one) - math.fsum(two) / len(two))) for one, two in pairs}
    return len(signs) == 1


def check_gaps(run, checker, groups, measured):
    frame = checker.rows("gaps", ["target", "attribute", "value", "against", "metric", "budget"])
    found = {}
    for key, row in frame.items():
        metric = (key[4], key[5]) if key[4] == "effectiveness" else key[4]
        found[(*key[:4], metric)] = row
    expected = {}
    for group in groups:
        if group[1] is None:
            continue
        reference = run.reference(group[0], group[1], groups)
        budgets = budgets_of(run, measured[group[0], None, None])
        sides = []
        if reference is not False and reference != group[2]:
            sides.append(("reference", reference, measured[group[0], group[1], reference]))
        siblings = [g for g in groups if g[:2] == group[:2] and g != group]
        if siblings:
            rest = measures(run, measured[group[0], None, None]["mask"] & ~measured[group]["mask"])
            sides.append(("rest", None, rest))
        for against, value, other in sides:
            small = min(measured[group]["needed"], other["needed"]) < run.audit["min_cell"]
            agrees = cost_agrees(measured[group], other)
            for metric, of in metrics(run, measured[group], other, budgets).items():
                expected[(*group, against, metric)] = (value, small, agrees, of)
    checker.complete("gaps", found, expected)
    adjusted = {}
    for against in ("reference", "rest"):
        tested = [
            key for key, (_, small, _, of) in expected.items()
            if key[3] == against and not small and of[1] and of[1][2] is not None
        ]
        p = [expected[key][3][1][2] for key in tested]
        adjusted |= dict(zip(tested, zip(holm(p), yekutieli(p))))
    for key, (value, small, agrees, (figures, contrast, tolerance, cost, budget)) in expected.items():
        told = {"other": value, "suppressed": small, "verdict": None}
        names = ("figure", "other_figure", "difference", "low", "high", "p", "p_holm", "p_by", "tolerance")
        told |= {name: None for name in names}
        told["cost_agrees"] = agrees if cost and not small else None
        if not small:
            told["tolerance"] = tolerance
            told["verdict"] = "inconclusive"
            if figures:
                told |= {"figure": figures[0], "other_figure": figures[1]}
                told["difference"] = figures[0] - figures[1]
            if contrast:
                told["difference"], interval, told["p"] = contrast
                told["p_holm"], told["p_by"] = adjusted.get(key, (None, None))
                if interval:
                    low, high = told["low"], told["high"] = interval
                    outside = low > tolerance or high < -tolerance
                    stands = told["p_holm"] is not None and told["p_holm"] <= 0.05
                    if -tolerance <= low and high <= tolerance:
                        told["verdict"] = "within"
                    elif outside and stands and told["cost_agrees"] is not False:
                        told["verdict"] = "exceeds"
            told["budget"] = budget
        if key in found:
            # A p-value of 1e-200 keeps fewer digits of the statistic than one of 0.1.
            loose = {name: 1e-6 for name in ("p", "p_holm", "p_by", "low", "high", "difference")}
            if key[4] in ("cost_p50", "cost_p90"):
                scale = 0.03 * max(abs(figures[0]), abs(figures[1])) if figures else 0
                told.pop("verdict")
                for name in ("difference", "low", "high"):
                    have, want = found[key][name], told.pop(name)
                    if (have is None) != (want is None) or (want is not None and abs(have - want) > scale):
                        checker.faults.append(f"gaps {key}: {name} is {have}, recounted {want}")
                loose = 0.02
            checker.same("gaps", key, found[key], told, loose)


def check_changes(run, checker, groups, measured):
    found = checker.rows("changes", ["target", "attribute", "value", "signature"])
    for group in groups:
        of, all_of = measured[group], measured[group[0], None, None]
        small = of["needed"] < run.audit["min_cell"]
        everybody = run.rows["signature"][all_of["is_valid"]].value_counts()
        own = run.rows["signature"][of["is_valid"]].value_counts()
        rest_valid = all_of["valid"] - of["valid"]
        listed = {key[3]: row for key, row in found.items() if key[:3] == group}
        told = sorted((row for name, row in listed.items() if name is not None), key=lambda row: row["rank"])
        if all_of["valid"] and not told:
            checker.faults.append(f"changes {group}: no signature is told")
        counts, total = [int(everybody.get(row["signature"], 0)) for row in told], 0
        if any(left < right for left, right in zip(counts, counts[1:])):
            checker.faults.append(f"changes {group}: ranks are not in the order of the counts")
        if group[1] is None and len(told) != min(len(everybody), 1000):
            checker.faults.append(f"changes {group}: {len(told)} signatures of {len(everybody)}")
        rank_of = {row["signature"]: row["rank"] for row in told} if group[1] is None else None
        if rank_of is not None:
            run.ranked = {**getattr(run, "ranked", {}), group[0]: rank_of}
        for row in told:
            rows = int(own.get(row["signature"], 0))
            total += rows
            expected = {"valid": of["valid"], "suppressed": small, "missed": 0}
            contrast = None
            if group[1] is not None:
                elsewhere = int(everybody[row["signature"]]) - rows
                contrast = shares((rows, of["valid"]), (elsewhere, rest_valid))
            figures = {
                "rows": rows,
                "share": ratio(rows, of["valid"]),
                "difference": contrast and contrast[0],
                "low": contrast and contrast[1][0],
                "high": contrast and contrast[1][1],
            }
            ahead = [name for name, rank in run.ranked[group[0]].items() if rank <= row["rank"]]
            if row["rank"] <= len(run.ranked[group[0]]):
                figures["cumulative"] = ratio(int(own.reindex(ahead).fillna(0).sum()), of["valid"])
            expected |= {name: None for name in figures} if small else figures
            checker.same("changes", (*group, row["signature"]), row, expected)
            if group[1] is None and row["rank"] <= 50:
                check_sizes(run, checker, row, of)
        others = of["valid"] - total
        if (None in listed) != (others > 0):
            checker.faults.append(f"changes {group}: {others} rows of other signatures")
        elif others:
            rows = None if small else others
            checker.same("changes", (*group, None), listed[None], {"rows": rows, "rank": None})


def check_sizes(run, checker, row, of):
    where = np.nonzero((run.rows["signature"] == row["signature"]).to_numpy() & of["is_valid"])[0]
    sizes = np.array([run.sizes[index] for index in where], dtype=float)
    for place, change in enumerate(row["changes"]):
        column = np.sort(sizes[:, place])
        expected = {}
        for name, share in (("p50", 0.5), ("p75", 0.75), ("p90", 0.9)):
            rank = math.floor(share * (len(column) - 1) + 0.5)
            expected[name] = None if change["direction"] == "to" else float(column[rank])
        word = f"{change['feature']} {change['direction']}"
        word += f" {change['value']}" if change["value"] is not None else ""
        if word != row["signature"].split(", ")[place]:
            checker.faults.append(f"changes {row['signature']}: {word} stands at {place}")
        checker.same("changes", (row["signature"], word), change, expected, 0.01)


def check_bounds(run, checker, groups, measured):
    found, expected = checker.rows("at_bound", ["target", "attribute", "value", "feature", "bound"]), set()
    for group in groups:
        of, all_of = measured[group], measured[group[0], None, None]
        small = of["needed"] < run.audit["min_cell"]
        for feature, (moved, bounds) in run.bounds.items():
            for bound, on in bounds.items():
                if not (all_of["mask"] & moved & on).any():
                    continue
                key = (*group, feature, bound)
                expected.add(key)
                changed, rows = int((of["mask"] & moved).sum()), int((of["mask"] & moved & on).sum())
                told = {"changed": changed, "rows": rows, "share": ratio(rows, changed)}
                told = {name: None for name in told} if small else told
                if key in found:
                    told |= {"valid": of["valid"], "suppressed": small}
                    checker.same("at_bound", key, found[key], told)
    checker.complete("at_bound", found, expected)


def main():
    run = Run(sys.argv[1])
    checker = Checker(sys.argv[1])
    groups = run.groups()
    measured = {group: measures(run, mask) for group, mask in groups.items()}
    checks = {
        "groups": check_groups,
        "curves": check_curves,
        "gaps": check_gaps,
        "changes": check_changes,
        "at_bound": check_bounds,
    }
    for name in run.audit["sections"]:
        if name in checks:
            checks[name](run, checker, groups, measured)
    for fault in checker.faults[:40]:
        print(fault)
    compared = ", ".join(f"{count} of {name}" for name, count in checker.compared.items())
    print(f"{len(groups)} groups; compared {compared}; {len(checker.faults)} differences")
    sys.exit(1 if checker.faults else 0)


main()
