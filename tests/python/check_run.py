"""Is a published run what it says? A second opinion by DuckDB, from the tables alone.

    check_run.py RUN_DIR FEATURES SCHEMA.toml [--key application_id] [--where SQL] [--sample-check N]

RUN_DIR is what `overturn run` published, FEATURES the table it was made from (a Parquet file, a folder or a
glob), SCHEMA.toml the feature schema. `--key` names the key columns, with commas between them; `--where` is
the job's `input.where`; N rows have their list of changes compared entry by entry.

Nothing is taken from the program but what it wrote: rows are counted and joined, constraints are predicates
made of the schema's words, distances and reports are computed again. Every check prints a line, `ok NAME:
figures` or `FAIL NAME: what`; the last line is a JSON object with all figures. Ends with code 1 if a check
failed.

Tables may be larger than memory: pairs of row and counterfactual go to a database in the folder for
temporary files, and quantiles are checked by counting, not by sorting.
"""

import argparse
import hashlib
import json
import math
import re
import statistics
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy
import pyarrow
import pyarrow.parquet

MEMORY, THREADS = "2GB", 2
SOLVED = "status = 'solved'"
STATUSES = ["solved", "unsolved", "already_target", "infeasible"]
SOURCES = ["generator", "candidate", "neighbour"]
# Reports have these only where they found something.
RIVAL_SOURCES = ["dice_random", "dice_genetic", "lore"]
# What a coverage report has rows for: solved ones by source.
OUTCOMES = [("solved", source) for source in SOURCES] + [(status, None) for status in STATUSES[1:]]
# The cost of a changed number beyond its move, of a category, and of one of few categories; the part of an ordered
# one's that does not grow with the ranks passed.
NUMBER_COST, CATEGORY_COST, FEW_CATEGORIES_COST, ORDERED_COST = 0.3, 1.1, 1.5, 0.5
# Counterfactuals of rows that are not at the target.
NEEDED = "status <> 'already_target'"
QUANTILES = {"p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}
MEASURES = ["l0", "l1", "n_changed"]
LOW_QUANTILES = {"p05": 0.05, "p25": 0.25, "p50": 0.5}
# What a coverage report always has; its other columns are segments.
COVERAGE = {"method", "level", "target", "status", "source", "rows", "share", "queries", "certified"}
SCHEMA_REASONS = ["null", "infinite", "outside_range", "unseen_category", "broken_rule"]
OWN_FILES = {"manifest.json", "_SUCCESS"}
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
# Of distances per row, of means and shares, of quantiles (the width of the reports' buckets).
ROW_TOLERANCE, MEAN_TOLERANCE, QUANTILE_TOLERANCE = 1e-6, 1e-9, 0.01
# Whole numbers and decimals may pass an end by this part of their unit: 0.29 of 100 is a little below 29.
UNIT_SLACK = 2e-6
NANOSECONDS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0, "day": 86_400e9}
# Of plausibility: a standard deviation, where numbers are cut, nearest rows, rows compared with at most and at least,
# and rows whose plausibility is computed again.
UNIT, CUT, NEAREST, REFERENCE, HELD_OUT, LEAST_POINTS, MEASURED = 256, 8.0, 5, 2_048, 1_024, 40, 500
NULL_STATE, UNSEEN_STATE = 65_535, 65_534
Z_95 = statistics.NormalDist().inv_cdf(0.975)


@dataclass
class Feature:
    """A feature of the schema; `o<place>` and `c<place>` are its values before and after."""

    place: int
    spec: dict
    arrow_type: pyarrow.DataType
    sql_type: str
    seen: dict
    derived: str | None = None
    # How it follows from others in all training rows, where nobody has said so: that counts as a change.
    follows: str | None = None
    as_trained: bool = False

    @property
    def values(self):
        """All values of a category; an order names them too."""
        return self.spec.get("values") or self.spec["order"]

    @property
    def multiples(self):
        """The step of training values that changed numbers keep to."""
        of, spec = self.seen.get("multiples"), self.spec
        if not of or "step" in spec or spec.get("grid") == "none" or self.as_trained:
            return None
        step, unit = of["stride"] / of["per_one"], unit_of(self)
        farthest = max(abs(end) for end in self.range)
        bits = {"halffloat": 10, "float": 23}.get(str(self.arrow_type), 52)
        coarser = unit == 0 or (step > unit and (of["stride"] / unit / of["per_one"]) % 1 == 0)
        kept = coarser and farthest * of["per_one"] <= 2.0**50 and farthest * 2.0**-bits <= step
        return step if kept else None

    @property
    def name(self):
        return self.spec["name"]

    @property
    def numeric(self):
        return self.spec["kind"] == "numeric"

    @property
    def differs(self):
        return f"(c{self.place} IS DISTINCT FROM o{self.place})"

    @property
    def distance(self):
        return f"abs(c{self.place} - o{self.place})"

    @property
    def changed(self):
        """Whether somebody changes it: what follows from others counts as no change."""
        return "false" if self.derived else self.differs

    @property
    def moved(self):
        return "0.0" if self.derived else self.distance

    @property
    def range(self):
        return self.spec.get("range") or [self.seen["min"], self.seen["max"]]

    @property
    def std(self):
        std = self.seen["std"]
        return std if std is not None and math.isfinite(std) and std > 0 else 1.0


@dataclass
class Run:
    """What is checked, and what was found so far."""

    folder: Path
    database: duckdb.DuckDBPyConnection
    manifest: dict
    key: list
    where: str
    sample: int
    # The method whose rows are checked, and whether it is the one that the summary is of.
    method: str
    published: bool
    features: list = field(default_factory=list)
    by: list = field(default_factory=list)
    rules: list = field(default_factory=list)
    observed: dict = field(default_factory=dict)
    figures: dict = field(default_factory=dict)
    failed: list = field(default_factory=list)

    def row(self, query):
        return self.database.execute(query).fetchone()

    def rows(self, query):
        return self.database.execute(query).fetchall()

    def named(self, check):
        """A check's name: those of other methods than the published one say so."""
        return check if self.published else f"{self.method}: {check}"

    def check(self, name, problems, **figures):
        """Prints a line about a check and keeps its figures."""
        name = self.named(name)
        self.figures[name] = figures
        if problems:
            self.failed.append(name)
            more = f" (and {len(problems) - 8} more)" if len(problems) > 8 else ""
            print(f"FAIL {name}: {'; '.join(problems[:8])}{more}", flush=True)
        else:
            print(f"ok {name}: " + " ".join(f"{key}={value}" for key, value in figures.items()), flush=True)

    @property
    def keys(self):
        return ", ".join(f"k{place}" for place in range(len(self.key)))

    @property
    def levels(self):
        segment = ["target"] + [f"s{place}" for place in range(len(self.by))]
        levels = {"all": [], "target": ["target"]}
        return levels | {"segment": segment} if self.by else levels

    @property
    def regression(self):
        return self.manifest["job"]["predictor"]["task"] == "regression"


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def text(value):
    value = str(value).lower() if isinstance(value, bool) else str(value)
    return "'" + value.replace("'", "''") + "'"


def texts(values):
    return "(" + ", ".join(text(value) for value in values) + ")"


def differs(found, expected, tolerance):
    if found is None or expected is None:
        return found is not expected
    return abs(found - expected) > tolerance * max(abs(expected), 1e-300)


# --- the tables ------------------------------------------------------------------------------------


def table_files(place):
    """Files of a table, and how DuckDB names them."""
    place = Path(place)
    if place.is_dir():
        return sorted(place.rglob("*.parquet")), f"{place}/**/*.parquet"
    return sorted(place.parent.glob(place.name)), str(place)


def column_types(run, table):
    return {name: kind for name, kind, *_ in run.rows(f"DESCRIBE {table}")}


def time_unit(arrow_type):
    if pyarrow.types.is_date32(arrow_type):
        return "day"
    if pyarrow.types.is_date64(arrow_type):
        return "ms"
    return arrow_type.unit if pyarrow.types.is_timestamp(arrow_type) else None


def number(expression, arrow_type, unit):
    """A cell as a number, dates and times in `unit`; a NaN is a null."""
    own = time_unit(arrow_type)
    if own == "ns":
        return f"(epoch_ns({expression}) / {NANOSECONDS[unit]})"
    if own:
        return f"(epoch_us({expression}) * 1000.0 / {NANOSECONDS[unit]})"
    if pyarrow.types.is_floating(arrow_type):
        return f"CASE WHEN NOT isnan({expression}) THEN CAST({expression} AS DOUBLE) END"
    return f"CAST({expression} AS DOUBLE)"


def cell(feature, expression):
    """A cell of a feature's column in the form in which cells are compared."""
    if feature.numeric:
        return number(expression, feature.arrow_type, time_unit(feature.arrow_type))
    return f"CAST({expression} AS VARCHAR)"


def original_cell(feature):
    """The row's own value, with stand-ins filled in as the schema says."""
    spec, own = feature.spec, cell(feature, quoted(feature.name))
    if feature.numeric:
        return f"coalesce({own}, {spec['fill']})" if spec.get("nulls") == "fill" else own
    if spec.get("unseen") == "fill":
        own = f"CASE WHEN {own} NOT IN {texts(feature.values)} THEN {text(spec['fill'])} ELSE {own} END"
    return f"coalesce({own}, {text(spec['fill'])})" if spec.get("nulls") == "fill" else own


def misfit(feature):
    """Whether the schema's policies refuse a row for this feature."""
    spec, own = feature.spec, cell(feature, quoted(feature.name))
    rules = [f"{own} IS NULL"] if spec.get("nulls", "reject") == "reject" else []
    if feature.numeric:
        rules += [f"isinf({own})"] if pyarrow.types.is_floating(feature.arrow_type) else []
        if spec.get("outside") == "reject" and "range" in spec:
            rules.append(f"{own} NOT BETWEEN {spec['range'][0]} AND {spec['range'][1]}")
    elif spec.get("unseen", "reject") == "reject":
        rules.append(f"{own} NOT IN {texts(feature.values)}")
    return " OR ".join(f"coalesce({rule}, false)" for rule in rules) or "false"


def own_bounds(feature, types):
    """The row's own constraints on a feature."""
    found = []
    for bound in ["min", "max", "allowed"]:
        column = f"{feature.name}__{bound}"
        if column not in types:
            continue
        if bound == "allowed":
            value = f"CAST({quoted(column)} AS VARCHAR[])"
        else:
            value = number(quoted(column), types[column], time_unit(feature.arrow_type))
        found.append(f"{value} AS {bound}{feature.place}")
        feature.spec[f"__{bound}"] = True
    return found


def read_features(run, place, schema):
    """The features, and the input as the view `original`."""
    files, glob = table_files(place)
    types = {column.name: column.type for column in pyarrow.parquet.read_schema(files[0])}
    run.database.execute(f"CREATE VIEW input AS FROM read_parquet({text(glob)})")
    sql_types = column_types(run, "input")
    generator = json.loads((run.folder / "generator/generator.json").read_text())
    stats = generator["stats"]["features"]
    document = tomllib.loads(Path(schema).read_text())
    run.rules = document.get("rule", [])
    if run.manifest["job"]["explain"]["coherence"] == "observed":
        run.observed = generator["observed"]
    derived = {spec["name"]: spec["value"] for spec in document.get("derived", [])}
    follows = {one["feature"]: one["value"] for one in run.observed.get("formulas", [])}
    for place, spec in enumerate(document["feature"]):
        name = spec["name"]
        arrow_type = types.get(name, pyarrow.string())
        seen = stats[place].get("Numeric", {})
        as_trained = run.method == "nearest"
        told = (derived.get(name), follows.get(name), as_trained)
        feature = Feature(place, spec, arrow_type, sql_types[name], seen, *told)
        run.features.append(feature)
    columns = [f"{quoted(key)} AS k{place}" for place, key in enumerate(run.key)]
    columns += [f"CAST({quoted(name)} AS VARCHAR) AS s{place}" for place, name in enumerate(run.by)]
    columns.append(f"coalesce({run.where}, false) AS in_scope")
    misfits = [misfit(feature) for feature in run.features]
    misfits += [f"({rule['check']}) IS FALSE" for rule in run.rules if rule.get("broken") == "reject"]
    columns.append("(" + " OR ".join(f"({one})" for one in misfits) + ") AS misfit")
    for feature in run.features:
        columns += [f"{original_cell(feature)} AS o{feature.place}", *own_bounds(feature, types)]
    run.database.execute(f"CREATE VIEW original AS SELECT {', '.join(columns)} FROM input")


def read_answers(run):
    """The counterfactual table as the views `written` and `answer`, the rejects as `reject`."""
    source = f"read_parquet({text(f'{run.folder}/counterfactuals/**/*.parquet')}"
    source += ", hive_partitioning = true, hive_types_autocast = false)"
    run.database.execute(f"CREATE VIEW all_written AS FROM {source}")
    run.database.execute(f"CREATE VIEW written AS FROM all_written WHERE method = {text(run.method)}")
    types = column_types(run, "input")
    columns = [f"CAST({quoted(key)} AS {types[key]}) AS k{place}" for place, key in enumerate(run.key)]
    columns += ["CAST(sample AS INTEGER) AS sample", "CAST(valid AS BOOLEAN) AS valid", "target", "status"]
    columns.append(f"nullif(source, {text(NULL_FOLDER)}) AS source")
    if run.regression:
        columns += ["original_value AS before", "cf_value AS after"]
    else:
        columns += ["original_class AS before", f"nullif(cf_class, {text(NULL_FOLDER)}) AS after"]
    columns += ["original_score", "cf_score", "margin", "queries", "certified", "cost", *MEASURES]
    columns += ["robust", "robustness_cost"]
    columns += ["plausibility", "changes"]
    columns += [f"{cell(f, quoted('cf_' + f.name))} AS c{f.place}" for f in run.features]
    run.database.execute(f"CREATE VIEW answer AS SELECT {', '.join(columns)} FROM written")
    files, glob = table_files(run.folder / "rejects")
    columns = ", ".join(f"{quoted(key)} AS k{place}" for place, key in enumerate(run.key))
    source = f"reason FROM read_parquet({text(glob)})" if files else "'' AS reason FROM input WHERE false"
    run.database.execute(f"CREATE VIEW reject AS SELECT {columns}, {source}")


def make_pairs(run):
    """Every counterfactual beside its row, as the table `pair`."""
    answers, firsts = run.row("SELECT count(*), count(*) FILTER (sample = 0) FROM answer")
    first = "true"
    if answers != firsts:
        first = f"sample = min(sample) OVER (PARTITION BY {run.keys}, target)"
    query = f"""
        SELECT *, {first} AS first FROM
        (SELECT * EXCLUDE (changes), len(changes) AS entries FROM answer)
        JOIN (SELECT * EXCLUDE (in_scope, misfit) FROM original) USING ({run.keys})"""
    run.database.execute(f"CREATE TABLE pair AS {query}")
    by_row = run.regression and "Range" not in run.manifest["job"]["target"]
    target = "REPLACE ('by row' AS target)" if by_row else ""
    run.database.execute(f"CREATE VIEW grouped AS SELECT * {target} FROM pair")
    run.database.execute(f"CREATE VIEW needed AS FROM grouped WHERE {NEEDED}")
    pairs = run.row("SELECT count(*) FROM pair")[0]
    problems = [] if pairs == answers else [f"{answers} counterfactuals, {pairs} of them have a row"]
    others = run.row(f"SELECT count(*) FROM all_written WHERE method NOT IN {texts(methods_of(run.manifest))}")[0]
    problems += [f"{others} rows are of methods that the run does not have"] if others else []
    run.check("pairs", problems, counterfactuals=answers, first=firsts)


# --- rows, cells, decisions ------------------------------------------------------------------------


ACCOUNTS = """
    WITH everything AS (
        SELECT {keys}, 1 AS i, CAST(in_scope AS INTEGER) AS s, misfit FROM original
        UNION ALL BY NAME
        SELECT {keys}, CAST(sample = 0 AS INTEGER) AS c, 1 AS a, sample FROM answer
        UNION ALL BY NAME
        SELECT {keys}, 1 AS r, reason IN {reasons} AS refused FROM reject
    ), by_key AS (
        SELECT coalesce(sum(i), 0) AS i, coalesce(sum(s), 0) AS s, coalesce(sum(c), 0) AS c,
            coalesce(sum(r), 0) AS r, count(a) AS a, coalesce(max(sample), -1) AS last,
            bool_or(misfit) AS misfit, bool_or(refused) AS refused
        FROM everything GROUP BY {keys}
    )
    SELECT sum(i), sum(i - s), sum(c), sum(r), {wrong} FROM by_key"""
# What must not be true of a key: in the input, in scope, with sample 0, with any sample, rejected so often.
WRONG_KEYS = {
    "keys not in the input": "i = 0",
    "keys twice in the input": "i > 1",
    "keys explained or rejected twice": "c > 1 OR r > 1",
    "keys explained and rejected": "c > 0 AND r > 0",
    "keys not as often in the output as in scope": "c + r <> s",
    "rows with gaps in `sample`": "a <> last + 1",
    "rows explained that the schema refuses": "c > 0 AND misfit",
    "rows rejected that the schema admits": "refused AND NOT misfit",
}


def check_accounting(run):
    """Every row in scope is explained or rejected, once, and nothing else is."""
    wrong = counts(WRONG_KEYS.values())
    query = ACCOUNTS.format(keys=run.keys, reasons=texts(SCHEMA_REASONS), wrong=wrong)
    read, out, explained, rejected, *wrong = (int(count or 0) for count in run.row(query))
    problems = [f"{count} {what}" for count, what in zip(wrong, WRONG_KEYS) if count]
    if read != out + explained + rejected:
        problems.append(f"{read} rows read, {out} + {explained} + {rejected} accounted for")
    told = run.manifest["summary"]
    told = [told["rows_read"], told["rows_out_of_scope"], told["rows_explained"],
            sum(told["rows_rejected"].values())]
    if told != [read, out, explained, rejected]:
        problems.append(f"the manifest says {told}, found {[read, out, explained, rejected]}")
    run.check("accounting", problems, rows=read, out_of_scope=out, explained=explained, rejected=rejected)


def counts(conditions):
    return ", ".join(f"count(*) FILTER ({condition})" for condition in conditions)


def unit_of(feature):
    """What two numbers of a column differ by at least; zero for fractions."""
    if pyarrow.types.is_decimal(feature.arrow_type):
        unit = 10.0**-feature.arrow_type.scale
    else:
        unit = 0.0 if pyarrow.types.is_floating(feature.arrow_type) else 1.0
    return max(unit, 1.0) if feature.spec.get("type") == "integer" else unit


def rounding(feature):
    """What a column's binary fractions lose, as a part of the numbers."""
    bits = {"halffloat": 10, "float": 23}.get(str(feature.arrow_type), 52)
    return 4 * 2.0**-bits


def number_rules(feature):
    """What must not be true of a number that changes, by the schema's words."""
    spec, own, new = feature.spec, f"o{feature.place}", f"c{feature.place}"
    rules = {"null": f"{own} IS NULL OR {new} IS NULL OR isinf({new})"}
    if feature.follows:
        return rules
    direction = {"never": "true", "increase": f"{new} < {own}", "decrease": f"{new} > {own}"}
    if spec.get("change", "any") != "any":
        rules["change"] = direction[spec["change"]]
    slack = UNIT_SLACK * unit_of(feature)
    low, high = feature.range
    rules["range"] = f"{new} < {low - slack!r} OR {new} > {high + slack!r}"
    if "limit" in spec:
        rules["limit"] = limit_rule(feature, slack)
    if "step" in spec:
        size = f"({new} - {own})"
        lost = f"{rounding(feature)!r} * (abs({own}) + abs({new})) + {1e-9 * spec['step']!r}"
        rules["step"] = f"abs({size} - round({size} / {spec['step']}) * {spec['step']}) > {lost}"
    elif feature.multiples:
        step = feature.multiples
        lost = f"{rounding(feature)!r} * abs({new}) + {1e-9 * step!r}"
        off = f"abs({new} - round({new} / {step!r}) * {step!r}) > {lost}"
        rules["grid"] = f"{off} AND {new} NOT IN ({low!r}, {high!r})"
    if spec.get("type") == "integer":
        whole = f"{own} = round({own})" if "step" in spec else "true"
        rules["type"] = f"{new} <> round({new}) AND {whole}"
    below, above = f"{new} < min{feature.place} - {slack!r}", f"{new} > max{feature.place} + {slack!r}"
    ends = {"__min": below, "__max": above}
    return rules | {end: rule for end, rule in ends.items() if end in spec}


def limit_rule(feature, slack):
    limit, own, new = feature.spec["limit"], f"o{feature.place}", f"c{feature.place}"
    unit = feature.range[1] - feature.range[0] if limit.get("unit") == "share" else 1.0
    lost = f"({slack!r} + {4 * 2.0**-52!r} * (abs({own}) + abs({new})))"
    rules = [f"{own} - {new} > {limit['down'] * unit!r} + {lost}"] if "down" in limit else []
    rules += [f"{new} - {own} > {limit['up'] * unit!r} + {lost}"] if "up" in limit else []
    return " OR ".join(rules) or "false"


def category_rules(feature):
    """What must not be true of a category that changes, by the schema's words."""
    spec, own, new = feature.spec, f"o{feature.place}", f"c{feature.place}"
    rules = {"null": f"{own} IS NULL OR {new} IS NULL", "values": f"{new} NOT IN {texts(feature.values)}"}
    if spec.get("change") == "never":
        rules["change"] = "true"
    elif spec.get("change", "any") != "any":
        order = "[" + ", ".join(text(value) for value in spec["order"]) + "]"
        sign = "<" if spec["change"] == "increase" else ">"
        before, after = f"list_position({order}, {own})", f"list_position({order}, {new})"
        rules["change"] = f"{before} IS NULL OR {after} {sign} {before}"
    if "allowed" in spec:
        rules["allowed"] = f"{new} NOT IN {texts(spec['allowed'])}" if spec["allowed"] else "true"
    if "__allowed" in spec:
        rules["__allowed"] = f"NOT list_contains(allowed{feature.place}, {new})"
    return rules


def plain(arrow_type):
    """A column's type; how text is laid out in memory makes no difference."""
    kinds = pyarrow.types
    arrow_type = arrow_type.value_type if kinds.is_dictionary(arrow_type) else arrow_type
    is_text = kinds.is_large_string(arrow_type) or kinds.is_string_view(arrow_type)
    return pyarrow.string() if is_text else arrow_type


def type_problems(run):
    """Counterfactuals that have another type than the input's column, file by file."""
    problems = []
    for path in table_files(run.folder / "counterfactuals")[0]:
        schema = pyarrow.parquet.read_schema(path)
        for feature in run.features:
            found, expected = plain(schema.field("cf_" + feature.name).type), plain(feature.arrow_type)
            if found != expected:
                problems.append(f"{feature.name} is {found} in {path.name}, {expected} in the input")
    return problems


def check_constraints(run):
    """Changed cells keep to the schema; columns keep their types."""
    rules = {f.name: number_rules(f) if f.numeric else category_rules(f) for f in run.features}
    conditions = [f.changed for f in run.features]
    conditions += [f"{f.changed} AND ({rule})" for f in run.features for rule in rules[f.name].values()]
    found = list(run.row(f"SELECT {counts(conditions)} FROM pair"))
    changed, found = found[: len(run.features)], found[len(run.features) :]
    names = [(f.name, rule) for f in run.features for rule in rules[f.name]]
    problems = [f"{count} of {name} break `{rule}`" for (name, rule), count in zip(names, found) if count]
    problems += type_problems(run)
    run.check("constraints", problems, rules=len(names), violations=sum(found), cells_changed=sum(changed))
    run.figures[run.named("constraints")]["changed"] = dict(zip([f.name for f in run.features], changed))


def observed_rules(run):
    """What all training rows keep to, as predicates."""
    orders = [f"{quoted(one['low'])} <= {quoted(one['high'])}" for one in run.observed.get("orders", [])]
    for one in run.observed.get("combinations", []):
        first, second = map(quoted, one["features"])
        pairs = ", ".join(f"({text(left)}, {text(right)})" for left, right in one["excluded"])
        orders.append(f"({first}, {second}) NOT IN ({pairs})")
    return orders


def check_rules(run):
    """No counterfactual breaks a rule that its row keeps, none breaks an order by more than its row does, and
    derived features follow."""
    for name, side in [("before", "o"), ("after", "c")]:
        cells = ", ".join(f"{side}{f.place} AS {quoted(f.name)}" for f in run.features)
        run.database.execute(f"CREATE VIEW {name} AS SELECT rowid AS r, {cells} FROM pair")
    texts_of = [rule["check"] for rule in run.rules] + observed_rules(run)
    problems, broken = [], 0
    for rule in texts_of:
        query = """SELECT count(*) FILTER (a.ok = false AND b.ok IS DISTINCT FROM false)
            FROM (SELECT r, ({rule}) AS ok FROM after) a JOIN (SELECT r, ({rule}) AS ok FROM before) b USING (r)"""
        count = run.row(query.format(rule=rule))[0]
        broken += count
        problems += [f"{count} counterfactuals break `{rule}`"] if count else []
    for one in run.observed.get("orders", []):
        size = f"greatest({quoted(one['low'])} - {quoted(one['high'])}, 0)"
        query = f"""SELECT count(*) FROM (SELECT r, {size} AS size FROM after) a
            JOIN (SELECT r, {size} AS size FROM before) b USING (r) WHERE a.size > b.size"""
        count = run.row(query)[0]
        problems += [f"{count} counterfactuals break {one} by more than their rows"] if count else []
    for feature in (f for f in run.features if f.derived or f.follows):
        name, slack = quoted(feature.name), feature.spec.get("step", feature.multiples or unit_of(feature)) / 2
        expected = feature.derived or feature.follows
        if rounded := re.fullmatch(r"ROUND\((.*), (\d+)\)", expected, re.IGNORECASE):
            expected, slack = rounded[1], max(slack, 0.500001 * 10.0 ** -int(rounded[2]))
        query = f"""SELECT count(*) FROM after a JOIN before b USING (r)
            WHERE a.{name} IS DISTINCT FROM b.{name} AND r IN
            (SELECT r FROM after WHERE abs({name} - ({expected})) > {slack!r} + 1e-6 * abs({name}))"""
        count = run.row(query)[0]
        problems += [f"{count} of {feature.name} do not follow"] if count else []
    run.check("rules", problems, rules=len(texts_of), violations=broken)


def check_distances(run):
    """`l0`, `l1`, `n_changed` and the length of `changes` are those of the cells."""
    numeric = [f for f in run.features if f.numeric]
    others = [f for f in run.features if not f.numeric]
    moved = [f"coalesce({f.moved}, 0) / {f.std!r}" for f in numeric]
    changed = [f"CAST({f.changed} AS INTEGER)" for f in run.features]
    replaced = [f"CAST({f.changed} AS INTEGER)" for f in others]
    l1 = f"({' + '.join(moved) or '0.0'}) / {max(len(numeric), 1)}"
    l0 = f"({' + '.join(replaced) or '0.0'}) / {max(len(others), 1)}"
    wrong = [f"abs(l0 - {l0}) > {ROW_TOLERANCE} * {l0}", f"abs(l1 - {l1}) > {ROW_TOLERANCE} * {l1}",
             f"n_changed <> {' + '.join(changed)}", "entries <> n_changed"]
    *found, l0, l1, n_changed = run.row(f"""
        SELECT {counts(wrong)}, favg(l0) FILTER ({NEEDED}), favg(l1) FILTER ({NEEDED}),
            avg(n_changed) FILTER ({NEEDED}) FROM pair""")
    names = ["l0", "l1", "n_changed", "changes"]
    problems = [f"{count} rows with another {name} than their cells"
                for name, count in zip(names, found) if count]
    run.check("distances", problems, l0=l0, l1=l1, n_changed=n_changed)


def cost_of(feature, category):
    """What a changed feature costs, by its own cost in the schema; one that follows from others is free."""
    if feature.derived or feature.follows:
        return "0.0"
    own = feature.spec.get("cost", 1.0)
    if feature.numeric:
        cost = f"{own * NUMBER_COST!r} + {own!r} * {feature.distance} / {feature.std!r}"
    elif order := feature.spec.get("order"):
        ranks = "[" + ", ".join(text(value) for value in order) + "]"
        before, after = (f"list_position({ranks}, {side}{feature.place})" for side in "oc")
        by_rank = (1 - ORDERED_COST) * category * own * 3 / (len(order) + 1)
        passed = f"{ORDERED_COST * category * own!r} + {by_rank!r} * abs({after} - {before})"
        cost = f"coalesce({passed}, {category * own!r})"
    else:
        cost = repr(category * own)
    return f"CASE WHEN {feature.differs} THEN {cost} ELSE 0.0 END"


def check_costs(run):
    """`cost` is that of the changed cells, by the formula of jobs/METHOD.md."""
    numeric = sum(f.numeric for f in run.features)
    few = FEW_CATEGORIES_COST * numeric / max(len(run.features) - numeric, 1)
    cost = " + ".join(cost_of(f, max(CATEGORY_COST, few)) for f in run.features)
    wrong = f"{SOLVED} AND coalesce(abs(cost - ({cost})) > {ROW_TOLERANCE} * abs({cost}), true)"
    found, rows, mean = run.row(f"SELECT {counts([wrong, SOLVED])}, favg(cost) FROM pair")
    problems = [f"{found} solved rows with another cost than their cells"] if found else []
    run.check("costs", problems, rows=rows, mean=mean)


def check_changes(run):
    """Entries of `changes` are the changed features in order, with the cells' own values."""
    names = ", ".join(f"CASE WHEN {f.changed} THEN {text(f.name)} END" for f in run.features)
    listed = "list_transform(changes, lambda entry: entry.feature)"
    wrong = [f"{listed} IS DISTINCT FROM list_filter([{names}], lambda name: name IS NOT NULL)"]
    for feature in run.features:
        entry = f"list_filter(changes, lambda entry: entry.feature = {text(feature.name)})[1]"
        for side, cells in [('"from"', "o"), ('"to"', "c")]:
            told = f"TRY_CAST({entry}.{side} AS {feature.sql_type})"
            found = cell(feature, told)
            wrong.append(f"{feature.changed} AND {found} IS DISTINCT FROM {cells}{feature.place}")
    run.database.execute(f"""
        CREATE TABLE picked AS FROM pair WHERE n_changed > 0
        ORDER BY hash({run.keys}, sample) LIMIT {run.sample}""")
    rows, *found = run.row(f"""
        SELECT count(*), {counts(wrong)} FROM picked
        JOIN (SELECT {run.keys}, sample, changes FROM answer) USING ({run.keys}, sample)""")
    words = ["names"] + [f"{f.name} {side}" for f in run.features for side in ["from", "to"]]
    problems = [f"{count} lists with another {what}" for what, count in zip(words, found) if count]
    run.check("changes", problems, rows=rows)


def status_rules(run):
    """What must not be true of an answer."""
    wanted = "coalesce({0} = target, false)"
    if run.regression:
        low, high = (f"CAST(split_part(target, '..', {place}) AS DOUBLE)" for place in [1, 2])
        wanted = "coalesce({0} BETWEEN " + f"{low} AND {high}, false)"
    # Stored decisions may be others than the model's, and then nothing need change.
    stored = run.manifest["job"]["input"]["scores"] is not None
    own = "false" if stored else "n_changed = 0"
    needed = ["sample", "target", "before", "status", "valid", "queries", "certified", *MEASURES, "entries"]
    refine = run.manifest["job"]["explain"]["refine"]
    models, needed_models = robust_models(run)
    budget, most = refine["queries_per_row"] * (1 + models), refine["max_changes"] or len(run.features)
    already = "status = 'already_target'"
    measured = SOLVED if kept_rows(run) >= LEAST_POINTS else "false"
    return {
        "nulls where none may be": " OR ".join(f"{name} IS NULL" for name in needed),
        "unknown statuses": f"status NOT IN {texts(STATUSES)}",
        "`valid` is not the decision": f"valid <> {wanted.format('after')}",
        "`already_target` is not the decision": f"({already}) <> {wanted.format('before')}",
        "already at the target, but changed": f"{already} AND (n_changed > 0 OR l0 > 0 OR l1 > 0)",
        "already at the target, but decided otherwise": f"{already} AND after IS DISTINCT FROM before",
        "unknown sources": f"source NOT IN {texts(SOURCES + RIVAL_SOURCES)}",
        "`source` is there or missing against the status": f"({SOLVED}) <> (source IS NOT NULL)",
        "`cost` is there or missing against the status": f"({SOLVED}) <> (cost IS NOT NULL)",
        "solved, but not valid": f"{SOLVED} AND NOT valid",
        "unsolved, but valid": "status = 'unsolved' AND valid",
        "infeasible, but changed or valid": "status = 'infeasible' AND (n_changed > 0 OR valid)",
        "solved without a change": f"{SOLVED} AND {own}",
        "certified, but not infeasible": "certified <> (status = 'infeasible')",
        "asked without need, or too often": f"queries NOT BETWEEN 0 AND {budget} OR ({already} AND queries > 0)",
        "more changes than may be": f"n_changed > {most}",
        "unchanged, but decided otherwise": f"{own} AND after <> before",
        "`plausibility` is there or missing against the status": f"({measured}) <> (plausibility IS NOT NULL)",
        "`plausibility` is no share": "plausibility IS NOT NULL AND NOT plausibility BETWEEN 0 AND 1",
        "less plausible than the job demands": f"{SOLVED} AND plausibility < {refine['min_plausibility']}",
        "`margin` of what is not solved, or no share":
            f"margin IS NOT NULL AND (NOT {SOLVED} OR NOT margin BETWEEN 0 AND 1)",
        "`margin` below `cf_score`": "margin < cf_score - 1e-6",
        "`cf_score` is no probability": "cf_score IS NOT NULL AND NOT cf_score BETWEEN 0 AND 1",
        "`original_score` is no probability":
            "original_score IS NOT NULL AND NOT original_score BETWEEN 0 AND 1",
        "`original_score` is not there, though the model gives probabilities":
            "false" if stored else "original_score IS NULL AND cf_score IS NOT NULL",
        "`robust` is there or missing against the status":
            f"({SOLVED}) <> (robust IS NOT NULL)" if models else "robust IS NOT NULL",
        "`robust` is no number of the models": f"robust IS NOT NULL AND NOT robust BETWEEN 0 AND {models}",
        "`robustness_cost` is there or missing against `robust`":
            f"coalesce(robust >= {needed_models}, false) <> (robustness_cost IS NOT NULL)",
        "`robustness_cost` is no part of the cost":
            f"robustness_cost IS NOT NULL AND NOT robustness_cost BETWEEN 0 AND cost + {ROW_TOLERANCE}",
        "unchanged, but with another score": f"{own} AND abs(original_score - cf_score) > {ROW_TOLERANCE}",
    }


def robust_models(run):
    """Models beside the predictor, and how many of them must predict the target."""
    robust = run.manifest["job"].get("robust") or {"models": [], "share": 0.0}
    models = len(robust["models"])
    return models, math.ceil(robust["share"] * models - 1e-9)


def check_statuses(run):
    """Status, validity and decisions agree."""
    rules = status_rules(run)
    found = run.row(f"SELECT {counts(rules.values())} FROM pair")
    problems = [f"{count} rows: {what}" for what, count in zip(rules, found) if count]
    statuses = dict(run.rows("SELECT status, count(*) FROM pair WHERE first GROUP BY 1 ORDER BY 1"))
    told = {name: count for name, count in run.manifest["summary"]["statuses"].items() if count}
    if run.published and told != statuses:
        problems.append(f"the manifest says {told}, found {statuses}")
    sources = dict(run.rows("SELECT source, count(*) FROM pair WHERE first AND source IS NOT NULL GROUP BY 1"))
    told = {name: count for name, count in run.manifest["summary"]["sources"].items() if count}
    if run.published and told != sources:
        problems.append(f"the manifest says {told}, found {sources}")
    run.check("statuses", problems, **{str(status): rows for status, rows in statuses.items()})


# --- plausibility ----------------------------------------------------------------------------------


def read_tensors(path):
    """The tensors of a safetensors file, flat."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    kinds = {"F32": "<f4", "F64": "<f8", "I16": "<i2", "I64": "<i8"}
    tensors = {}
    for name, told in json.loads(content[8:start]).items():
        if name != "__metadata__":
            first, end = told["data_offsets"]
            tensors[name] = numpy.frombuffer(content[start + first : start + end], kinds[told["dtype"]])
    return tensors


def kept_rows(run):
    """Training rows that are kept with the generator."""
    return len(read_tensors(run.folder / "generator/neighbours.safetensors")["decisions"])


def number_states(standardised):
    """Standardised numbers as whole ones; a null is a state of its own."""
    cut = numpy.clip(standardised.astype("f4"), -CUT, CUT) + numpy.float32(CUT)
    states = numpy.floor(cut.astype("f8") * UNIT + 0.5)
    return numpy.where(numpy.isnan(standardised), NULL_STATE, states).astype(int)


def kept_states(run, layout):
    """The kept training rows, feature by feature."""
    tensors = read_tensors(run.folder / "generator/neighbours.safetensors")
    rows = len(tensors["decisions"])
    numbers, codes = (tensors[name].reshape(-1, rows) for name in ["numbers", "codes"])
    numbers, codes = iter(numbers), iter(codes)
    return [number_states(next(numbers)) if "Numeric" in slots else next(codes).view("u2").astype(int)
            for slots in layout]


def answer_states(run, layout, condition):
    """Published counterfactuals as such states, and the plausibility that they are said to have."""
    columns = ", ".join(f"c{feature.place}" for feature in run.features)
    rows = run.rows(f"""SELECT plausibility, {columns} FROM pair WHERE {condition}
        ORDER BY hash({run.keys}, sample) LIMIT {MEASURED}""")
    told, *cells = zip(*rows) if rows else [()] * (1 + len(run.features))
    states = []
    for feature, slots, values in zip(run.features, layout, cells):
        fill = feature.spec.get("fill") if feature.spec.get("nulls") == "fill" else None
        values = [fill if value is None else value for value in values]
        if feature.numeric:
            slots = slots["Numeric"]
            numbers = numpy.array([math.nan if value is None else value for value in values], "f8")
            standardised = ((numbers - slots["mean"]) * (1.0 / slots["std"])).astype("f4")
            states.append(number_states(numpy.clip(standardised, -slots["cut"], slots["cut"])))
        else:
            codes = {value: code for code, value in enumerate(feature.values)} | {None: NULL_STATE}
            states.append(numpy.array([codes.get(value, UNSEEN_STATE) for value in values], int))
    return states, numpy.array(told, float)


def distances_to(reference, rows, numeric):
    """How far rows are from their nearest reference rows: every pair is gone through."""
    apart = numpy.zeros((len(rows[0]), len(reference[0])), int)
    for others, own, is_numeric in zip(reference, rows, numeric):
        own, others = own[:, None], others[None, :]
        usual = numpy.where(own == others, 0, UNIT)
        known = (own != NULL_STATE) & (others != NULL_STATE)
        apart += numpy.where(known, abs(own - others), usual) if is_numeric else usual
    return numpy.sort(apart, axis=1)[:, :NEAREST].sum(axis=1)


def check_plausibility(run):
    """The share of held-out rows that are at least as far from training rows as an answer is, once more."""
    layout = json.loads((run.folder / "generator/generator.json").read_text())["layout"]["slots"]
    kept, numeric = kept_states(run, layout), ["Numeric" in slots for slots in layout]
    told_of = run.row("SELECT count(plausibility) FROM pair")[0]
    if len(kept[0]) < LEAST_POINTS or told_of == 0:
        return run.check("plausibility", [], kept_rows=len(kept[0]), answers=told_of)
    held_out = min(len(kept[0]) // 4, HELD_OUT)
    rows = min(len(kept[0]) - held_out, REFERENCE)
    reference = [states[:rows] for states in kept]
    others = distances_to(reference, [states[rows : rows + held_out] for states in kept], numeric)
    answers, told = answer_states(run, layout, SOLVED)
    found = distances_to(reference, answers, numeric)
    found = (others[None, :] >= found[:, None]).mean(axis=1)
    wrong = numpy.flatnonzero(abs(found - told) > MEAN_TOLERANCE)
    problems = [f"{len(wrong)} of {len(told)} are others"] if len(wrong) else []
    problems += [f"{told[place]} is {found[place]}" for place in wrong]
    figures = {"rows": rows, "held_out": held_out, "compared": len(told), "median": float(numpy.median(told))}
    run.check("plausibility", problems, **figures)


# --- reports ---------------------------------------------------------------------------------------


def recount(run, source, figures):
    """Figures of every group of every level: {(level, target, segment …): figures}."""
    found = {}
    for level, columns in run.levels.items():
        wide = ", ".join(columns + [figures])
        for row in run.rows(f"SELECT {wide} FROM {source} GROUP BY ALL"):
            group = list(row[: len(columns)]) + [None] * (1 + len(run.by) - len(columns))
            found[level, *group] = row[len(columns) :]
    return found


def read_report(run, name, *extra):
    """A report: {(level, target, segment …, extra …): {column: value}}."""
    place = text(f"{run.folder}/reports/{name}.parquet")
    result = run.database.execute(f"FROM read_parquet({place}) WHERE method = {text(run.method)}")
    columns = [column[0] for column in result.description]
    rows = [dict(zip(columns, row)) for row in result.fetchall()]
    return {tuple(row[key] for key in ["level", "target", *run.by, *extra]): row for row in rows}, len(rows)


def compare(run, name, extra, expected):
    """Holds a report against {key: {column: (value, tolerance)}}; gives the problems."""
    report, rows = read_report(run, name, *extra)
    problems = [f"{rows} rows, {len(expected)} expected"] if rows != len(expected) else []
    problems += [f"{key} is missing" for key in expected if key not in report]
    problems += [f"{key} is nothing of the tables" for key in report if key not in expected]
    for key in report.keys() & expected.keys():
        for column, (value, tolerance) in expected[key].items():
            if differs(report[key][column], value, tolerance):
                problems.append(f"{key} has {column} {report[key][column]}, found {value}")
    return report, problems


def share(part, whole):
    return part / whole if whole else 0.0


def check_coverage(run):
    rivals = run.rows(f"SELECT DISTINCT source FROM pair WHERE first AND source IN {texts(RIVAL_SOURCES)}")
    known = OUTCOMES + [("solved", source) for source, in rivals]
    outcomes = [f"first AND status = {text(status)}" + (f" AND source = {text(source)}" if source else "")
                for status, source in known]
    figures = counts(outcomes)
    of_status = [f"FILTER ({outcome})" for outcome in outcomes]
    sums = [f"coalesce(sum({what}) {some}, 0)" for what in ["queries", "certified::INT"] for some in of_status]
    rejected = run.row("SELECT count(*) FROM reject")[0]
    expected = {}
    for group, found in recount(run, "grouped", f"{figures}, {', '.join(sums)}").items():
        count = len(known)
        rows = dict(zip(known, found[:count]))
        queries = dict(zip(known, found[count : 2 * count]))
        certified = dict(zip(known, found[2 * count :]))
        if group[0] == "all":
            rows["rejected", None] = rejected
        for outcome, count in rows.items():
            part = share(count, sum(rows.values()))
            expected[*group, *outcome] = {"rows": (count, 0), "share": (part, MEAN_TOLERANCE),
                                          "queries": (queries.get(outcome, 0), 0),
                                          "certified": (certified.get(outcome, 0), 0)}
    report, problems = compare(run, "coverage", ["status", "source"], expected)
    run.check("coverage", problems, rows=len(report))


def wilson(valid, rows):
    """Where a share would have to be for what was found to be 1.96 standard deviations away: the roots of
    (found - p)² = z² p (1 - p) / rows."""
    if rows == 0:
        return 0.0, 1.0
    found, square = valid / rows, Z_95**2 / rows
    middle, product = (2 * found + square) / (1 + square), found**2 / (1 + square)
    half = math.sqrt(max(middle**2 / 4 - product, 0.0))
    return (middle / 2 - half if valid else 0.0), (middle / 2 + half if valid < rows else 1.0)


def check_validity(run):
    figures, expected = counts([NEEDED, f"{NEEDED} AND valid"]), {}
    for group, (rows, valid) in recount(run, "grouped", figures).items():
        low, high = wilson(valid, rows)
        numbers = {"validity": valid / rows if rows else None, "low": low, "high": high}
        expected[group] = {"rows": (rows, 0), "valid": (valid, 0)}
        expected[group] |= {name: (number, MEAN_TOLERANCE) for name, number in numbers.items()}
    report, problems = compare(run, "validity", [], expected)
    whole = report.get(("all", None, *[None] * len(run.by)), {})
    figures = {name: whole.get(name) for name in ["rows", "validity", "low", "high"]}
    run.check("validity", problems, **figures, groups=len(report))


def check_robust(run):
    """How many counterfactuals hold under enough of the models beside the predictor."""
    models, needed = robust_models(run)
    place = run.folder / "reports/robust.parquet"
    if not models:
        return run.check("robust", ["there is a report, but no models"] if place.exists() else [], models=0)
    asked = "valid AND robust IS NOT NULL"
    figures = counts([asked, f"{asked} AND robust >= {needed}"])
    means = ["robust", "cost", "robustness_cost"]
    conditions = [asked, *2 * [f"{asked} AND robustness_cost IS NOT NULL"]]
    figures += "".join(f", favg({name}) FILTER ({one})" for name, one in zip(means, conditions))
    expected = {}
    for group in recount(run, "grouped", "count(*)"):
        expected[group] = {"rows": (0, 0), "robust": (0, 0)}
    for group, (rows, robust, held, cost, extra) in recount(run, "needed", figures).items():
        low, high = wilson(robust, rows)
        numbers = {"share": share(robust, rows) if rows else None, "low": low, "high": high, "models_mean": held}
        numbers |= {"cost_mean": cost, "robustness_cost_mean": extra}
        expected[group] = {"rows": (rows, 0), "robust": (robust, 0), "models": (models, 0), "needed": (needed, 0)}
        expected[group] |= {name: (number, MEAN_TOLERANCE) for name, number in numbers.items()}
    report, problems = compare(run, "robust", [], expected)
    whole = report.get(("all", None, *[None] * len(run.by)), {})
    told = run.manifest["summary"]["robust"]
    if told["rows"] - told["not_robust"] != whole.get("robust"):
        problems.append(f"the manifest says {told}, the report {whole}")
    run.check("robust", problems, models=models, rows=whole.get("rows"), share=whole.get("share"))


@dataclass
class Mark:
    """A reported quantile: of which values, and where it is said to lie."""

    value: str
    condition: str
    share: float
    report: str
    key: tuple
    column: str


def marks_of(run):
    """All quantiles that reports have."""
    overs = {"valid": "valid", "all": "true"}
    marks = [Mark(measure, condition, part, "sparsity", (over,), f"{measure}_{name}")
             for over, condition in overs.items() for measure in MEASURES for name, part in QUANTILES.items()]
    marks += [Mark("plausibility", "valid AND plausibility IS NOT NULL", part, "plausibility", (), f"plausibility_{name}")
              for name, part in LOW_QUANTILES.items()]
    return marks + [Mark(f.distance, f"valid AND {f.differs}", 0.5, "features", (f.name,), "median_change")
                    for f in run.features if f.numeric]


def check_quantiles(run):
    """Between the ranks on both sides of a quantile lies a value within 1 % of the one reported."""
    reports = {"sparsity": read_report(run, "sparsity", "over")[0],
               "plausibility": read_report(run, "plausibility")[0],
               "features": read_report(run, "features", "feature")[0]}
    marks, problems, checked = marks_of(run), [], 0
    write_marks(run, marks, reports)
    for group, found in count_ranks(run, marks).items():
        for place, mark in enumerate(marks):
            rows, below, up_to = found[3 * place : 3 * place + 3]
            told = reports[mark.report].get((*group, *mark.key), {}).get(mark.column)
            checked += rows > 0
            rank = mark.share * (rows - 1)
            fits = told is not None and below <= math.ceil(rank) and up_to > math.floor(rank)
            if fits if rows == 0 else not fits:
                problems.append(f"{group} {mark.key} has {mark.column} {told}: {below} of {rows} are "
                                f"below it by 1 %, {up_to} at most 1 % above")
    run.check("quantiles", problems, quantiles=checked)


def write_marks(run, marks, reports):
    """The table `mark`: per group the ends of what is within 1 % of each reported quantile."""
    segments = [f"s{place}" for place in range(len(run.by))]
    numbers = [f"{end}{place} DOUBLE" for place in range(len(marks)) for end in ["low", "high"]]
    columns = [f"{name} VARCHAR" for name in ["level", "target", *segments]] + numbers
    run.database.execute(f"CREATE TABLE mark ({', '.join(columns)})")
    holes = ", ".join("?" * len(columns))
    for group in {key[:-1] for key in reports["sparsity"]}:
        row = list(group)
        for mark in marks:
            told = reports[mark.report].get((*group, *mark.key), {}).get(mark.column)
            known = told is not None
            row += [told / (1 + QUANTILE_TOLERANCE) if known else None,
                    told / (1 - QUANTILE_TOLERANCE) if known else None]
        run.database.execute(f"INSERT INTO mark VALUES ({holes})", row)


def count_ranks(run, marks):
    """Per group and mark: values, values below what is within 1 %, values up to its end."""
    found = {}
    figures = []
    for place, mark in enumerate(marks):
        figures += [mark.condition, f"{mark.condition} AND {mark.value} < low{place}",
                    f"{mark.condition} AND {mark.value} <= high{place}"]
    for level, columns in run.levels.items():
        on = [f"needed.{name} IS NOT DISTINCT FROM mark.{name}" for name in columns]
        on = " AND ".join(on + [f"mark.level = '{level}'"])
        own = [f"mark.{name}" for name in ["target", *[f"s{place}" for place in range(len(run.by))]]]
        query = f"SELECT {', '.join(own)}, {counts(figures)} FROM needed JOIN mark ON {on} GROUP BY ALL"
        for row in run.rows(query):
            found[level, *row[: len(own)]] = row[len(own) :]
    return found


def check_sparsity(run):
    figures = [f"{function}({measure}) FILTER ({over})" for over in ["valid", "true"]
               for function, measure in [("count", "l1"), *[("favg", measure) for measure in MEASURES]]]
    expected = {}
    for group, found in recount(run, "needed", ", ".join(figures)).items():
        for over, (rows, *means) in [("valid", found[:4]), ("all", found[4:])]:
            expected[*group, over] = {"rows": (rows, 0)}
            means = {f"{measure}_mean": (mean, MEAN_TOLERANCE) for measure, mean in zip(MEASURES, means)}
            expected[*group, over] |= means
    report, problems = compare(run, "sparsity", ["over"], expected)
    run.check("sparsity", problems, rows=len(report))


def check_plausibility_report(run):
    expected = {}
    figures = "count(plausibility) FILTER (valid), favg(plausibility) FILTER (valid)"
    for group, (rows, mean) in recount(run, "needed", figures).items():
        expected[group] = {"rows": (rows, 0), "plausibility_mean": (mean, MEAN_TOLERANCE)}
    # A group in which nothing was needed has a row without figures.
    for group in recount(run, "grouped", "count(*)").keys() - expected.keys():
        expected[group] = {"rows": (0, 0), "plausibility_mean": (None, 0)}
    report, problems = compare(run, "plausibility", [], expected)
    whole = report.get(("all", None, *[None] * len(run.by)), {})
    told = run.manifest["summary"]["plausibility"]
    if run.published and differs(told, whole.get("plausibility_p50"), MEAN_TOLERANCE):
        problems.append(f"the manifest says {told}, the report {whole.get('plausibility_p50')}")
    run.check("plausibility report", problems, groups=len(report), median=told)


def check_features(run):
    conditions = ["valid"]
    for feature in run.features:
        moves = [f"c{feature.place} {sign} o{feature.place}" for sign in "><"]
        moves = moves if feature.numeric else ["false", "false"]
        conditions += [f"valid AND {condition}" for condition in [feature.differs, *moves]]
    expected = {}
    for group, (valid, *found) in recount(run, "needed", counts(conditions)).items():
        for feature in run.features:
            changed, up, down = found[3 * feature.place : 3 * feature.place + 3]
            exact = {"rows": valid, "changed": changed, "increased": up, "decreased": down}
            figures = {name: (count, 0) for name, count in exact.items()}
            figures["share"] = (share(changed, valid), MEAN_TOLERANCE)
            expected[*group, feature.name] = figures
    report, problems = compare(run, "features", ["feature"], expected)
    problems += commonest_problems(run, report)
    changed = sum(row["changed"] for row in report.values() if row["level"] == "all")
    run.check("features", problems, rows=len(report), changed=changed)


def commonest_problems(run, report):
    """What changed categories become most often; of several equally often, any will do."""
    problems = []
    for feature in run.features:
        best = {}
        if not feature.numeric:
            source = f"(FROM needed WHERE valid AND {feature.changed})"
            best = recount(run, source, f"histogram(c{feature.place})")
        for key in [key for key in report if key[-1] == feature.name]:
            values = (best.get(key[:-1]) or [None])[0] or {}
            most = {value for value, rows in values.items() if rows == max(values.values())}
            told = report[key]["commonest_value"]
            if told not in (most or {None}):
                problems.append(f"{key} has commonest_value {told}, found {sorted(most)}")
    return problems


AGREEMENT = """
    WITH one AS (
        SELECT {keys}, target, status <> 'already_target' AS needed, valid, cost, l0, l1, n_changed,
            list_sort(list_transform(changes, c -> c.feature)) AS features,
            list_sort(list_transform(changes, c -> c.feature || ' ' || CASE
                WHEN c.feature NOT IN {numeric} THEN 'to ' || c.to
                WHEN {number_to} > {number_from} THEN 'up' ELSE 'down' END)) AS directions,
            row_number() OVER (PARTITION BY {keys}, target, method ORDER BY sample) AS nth, method
        FROM (SELECT *, {named} FROM all_written)
    ), pair AS (
        SELECT a.target, a.valid AND b.valid AS shared, a.valid AS first, b.valid AS second,
            a.features = b.features AS same, a.directions = b.directions AS ways,
            a.cost AS cost, b.cost AS other_cost, a.l1 AS l1, b.l1 AS other_l1
        FROM (FROM one WHERE method = {method} AND nth = 1 AND needed) AS a
        JOIN (FROM one WHERE method = {other} AND nth = 1 AND needed) AS b USING ({keys}, target)
    )
    SELECT target, count(*), count(*) FILTER (shared), count(*) FILTER (first AND NOT second),
        count(*) FILTER (second AND NOT first), count(*) FILTER (NOT first AND NOT second),
        count(*) FILTER (shared AND same), count(*) FILTER (shared AND ways),
        favg(cost) FILTER (shared), favg(other_cost) FILTER (shared), favg(l1) FILTER (shared), favg(other_l1) FILTER (shared)
    FROM pair GROUP BY GROUPING SETS ((), (target))"""
AGREED = ["rows", "both", "method_only", "other_only", "neither", "same_features", "same_directions",
          "cost_mean", "other_cost_mean", "l1_mean", "other_l1_mean"]


def change_as_number(run, end):
    """A number as a change has it, dates and times as well."""
    times = [f.name for f in run.features if f.numeric and time_unit(f.arrow_type)]
    stamp = f"epoch(CAST(c.{end} AS TIMESTAMP))"
    plain = f"TRY_CAST(c.{end} AS DOUBLE)"
    return f"CASE WHEN c.feature IN {texts(times)} THEN {stamp} ELSE {plain} END" if times else plain


def check_agreement(run):
    """Where methods agree, told from the lists of changes."""
    methods, problems = methods_of(run.manifest), []
    numeric = texts([f.name for f in run.features if f.numeric] or [""])
    named = ", ".join(f"{quoted(key)} AS k{place}" for place, key in enumerate(run.key))
    result = run.database.execute(f"FROM read_parquet({text(f'{run.folder}/reports/agreement.parquet')})")
    columns = [column[0] for column in result.description]
    told = [dict(zip(columns, row)) for row in result.fetchall()]
    told = {(row["method"], row["other"], row["target"]): row for row in told}
    found = 0
    for place, method in enumerate(methods):
        for other in methods[place + 1 :]:
            query = AGREEMENT.format(keys=run.keys, numeric=numeric, named=named, method=text(method),
                                     other=text(other), number_to=change_as_number(run, "to"),
                                     number_from=change_as_number(run, "from"))
            for target, *figures in run.rows(query):
                row = told.get((method, other, target))
                found += 1
                if row is None:
                    problems.append(f"{method}, {other}, {target} is missing")
                    continue
                for name, figure in zip(AGREED, figures):
                    if differs(row[name], figure, MEAN_TOLERANCE):
                        problems.append(f"{method}, {other}, {target} has {name} {row[name]}, found {figure}")
    if found != len(told):
        problems.append(f"{len(told)} rows, {found} expected")
    run.check("agreement", problems, pairs=found)


def check_reports(run):
    if not list((run.folder / "reports").glob("coverage.parquet")):
        missing = ["the reports are missing"] if run.manifest["command"] == "run" else []
        return run.check("reports", missing, reports=0)
    checks = [check_coverage, check_validity, check_sparsity, check_plausibility_report, check_features]
    for check in [*checks, check_robust, check_quantiles]:
        check(run)


# --- files -----------------------------------------------------------------------------------------


def sha256_of(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_problems(run, told):
    """What is wrong with a file that the manifest names."""
    path = run.folder / told["path"]
    if not path.is_file():
        return [f"{told['path']} is missing"]
    wrong = {
        f"{path.stat().st_size} bytes, {told['bytes']} told": path.stat().st_size != told["bytes"],
        "another SHA-256": sha256_of(path) != told["sha256"],
    }
    wrong = wrong if any(wrong.values()) else footer_problems(run, pyarrow.parquet.read_metadata(path), told)
    return [f"{told['path']} has {what}" for what, is_so in wrong.items() if is_so]


def footer_problems(run, metadata, told):
    """What might be wrong with a file by its footer, and whether it is."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    # The least of many changes' texts helps nobody.
    told_apart = [column for column in columns if not column.path_in_schema.startswith("changes.")]
    run_id = (metadata.metadata or {}).get(b"overturn.run_id", b"").decode()
    most = run.manifest["job"]["output"]["row_group_rows"]
    return {
        f"{metadata.num_rows} rows, {told['rows']} told": metadata.num_rows != told["rows"],
        f"run_id `{run_id}`": run_id != run.manifest["run"]["run_id"],
        "columns that are not zstd": any(column.compression != "ZSTD" for column in columns),
        "columns without statistics": any(not column.is_stats_set for column in told_apart),
        f"row groups of more than {most} rows": any(group.num_rows > most for group in groups),
    }


def check_files(run):
    told = run.manifest["tables"]
    problems = [problem for file in told for problem in file_problems(run, file)]
    pages = run.manifest.get("pages", [])
    known = OWN_FILES | {file["path"] for file in [*told, *pages]}
    found = [path.relative_to(run.folder) for path in run.folder.rglob("*") if path.is_file()]
    strangers = [path for path in found if str(path) not in known and path.parts[0] != "generator"]
    problems += [f"{path} is not in the manifest" for path in strangers]
    problems += [f"{name} is missing" for name in sorted(OWN_FILES) if not (run.folder / name).is_file()]
    rows = sum(file["rows"] for file in told if file["path"].startswith("counterfactuals/"))
    size = sum(file["bytes"] for file in told)
    run.check("files", problems, files=len(told), counterfactuals=rows, bytes=size)


# --- all of it -------------------------------------------------------------------------------------


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("features")
    parser.add_argument("schema")
    parser.add_argument("--key", default="application_id")
    parser.add_argument("--where", default="true")
    parser.add_argument("--sample-check", type=int, default=10_000)
    return parser.parse_args()


def methods_of(manifest):
    """The methods of a run, the published one first."""
    summary = manifest["summary"]
    return [one["method"] for one in summary.get("methods", [])] or [summary["method"]]


def check_run(given, scratch, manifest, method):
    database = duckdb.connect(f"{scratch}/{method}.duckdb")
    settings = {"memory_limit": MEMORY, "threads": THREADS, "temp_directory": f"{scratch}/spilled"}
    for name, value in settings.items():
        database.execute(f"SET {name} = '{value}'")
    database.execute("SET preserve_insertion_order = false")
    published = method == methods_of(manifest)[0]
    run = Run(given.run, database, manifest, given.key.split(","), given.where, given.sample_check, method, published)
    if published:
        check_files(run)
    try:
        check_tables(run, given)
    except (duckdb.Error, pyarrow.ArrowException, OSError) as error:
        run.check("tables", [str(error).splitlines()[0]])
    return run


def check_tables(run, given):
    coverage = given.run / "reports/coverage.parquet"
    if coverage.is_file():
        run.by = [name for name in pyarrow.parquet.read_schema(coverage).names if name not in COVERAGE]
    read_features(run, given.features, given.schema)
    read_answers(run)
    check_accounting(run)
    make_pairs(run)
    checks = [check_constraints, check_rules, check_distances, check_costs, check_changes, check_statuses]
    for check in [*checks, check_plausibility, check_reports]:
        check(run)
    if run.published and len(methods_of(run.manifest)) > 1:
        check_agreement(run)


def main():
    given = arguments()
    manifest = json.loads((given.run / "manifest.json").read_text())
    failed, figures = [], {}
    for method in methods_of(manifest):
        with tempfile.TemporaryDirectory() as scratch:
            run = check_run(given, scratch, manifest, method)
        failed += run.failed
        figures |= run.figures
    print(json.dumps({"failed": failed, **figures}, default=str))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
