"""Recounts what `overturn` says of two nights, from both runs' published tables, the two input tables and the model.

    nights_oracle.py PREVIOUS CURRENT TABLE_BEFORE TABLE_NOW MODEL BY

Shares no code with the program: dictionaries by key, ONNX Runtime for the model, DuckDB for the figures by group. Ends
with an error that names the key, or the group, where the two differ; else prints how often each cause occurs.
"""

import collections
import glob
import json
import math
import sys

import duckdb
import numpy
import onnxruntime
import pyarrow
import pyarrow.parquet

KEY = "application_id"
Z = 1.959963984540054


def table(folder):
    files = sorted(glob.glob(f"{folder}/**/*.parquet", recursive=True))
    return pyarrow.concat_tables([pyarrow.parquet.ParquetFile(file).read() for file in files])


def by_key(folder):
    return {row[KEY]: row for row in table(folder).to_pylist()}


def answers(folder):
    """First counterfactuals by key."""
    rows = table(f"{folder}/counterfactuals").to_pylist()
    return {row[KEY]: row for row in rows if row["sample"] == 0}


def ask(model, rows):
    """The model's decisions about rows."""
    if not rows:
        return []
    session, feed = onnxruntime.InferenceSession(model), {}
    for entry in session.get_inputs():
        column = [row[entry.name] for row in rows]
        if "string" in entry.type:
            feed[entry.name] = numpy.array([["" if v is None else str(v)] for v in column], dtype=object)
        else:
            numbers = [[math.nan if v is None else float(v)] for v in column]
            feed[entry.name] = numpy.array(numbers, dtype=numpy.float32)
    return [str(label) for label in session.run(None, feed)[0]]


def has_answer(row):
    return row["valid"] and row["status"] != "already_target"


def changed(row):
    return {change["feature"]: row[f"cf_{change['feature']}"] for change in row["changes"]}


def left(now, before):
    """The changes that a row has not made yet: numbers may have gone further."""
    found = {}
    for change in before["changes"]:
        name, wanted = change["feature"], before[f"cf_{change['feature']}"]
        if isinstance(wanted, str) or wanted is None:
            made = now[name] == wanted
        else:
            made = now[name] >= wanted if wanted > float(change["from"]) else now[name] <= wanted
        if not made:
            found[name] = wanted
    return found


def expected(old, new, before, now, model, causes):
    """What must be said of every key that both runs have."""
    both = [key for key in old if key in new]
    features = [name[3:] for name in next(iter(new.values())) if name.startswith("cf_")]
    features = [name for name in features if name not in ("class", "score", "value")]
    carried = {key: {**now[key], **left(now[key], old[key])} for key in both if has_answer(old[key])}
    decided = dict(zip(carried, ask(model, list(carried.values()))))
    found = {}
    for key in both:
        one, two = old[key], new[key]
        same_row = all(before[key][name] == now[key][name] for name in features)
        pair = has_answer(one) and has_answer(two)
        first, second = changed(one), changed(two)
        union = set(first) | set(second)
        found[key] = {
            "cause": "+".join(([] if same_row else ["row"]) + causes) or "none",
            "previous_status": one["status"],
            "status": two["status"],
            "yesterday_valid": has_answer(one),
            "still_valid": decided[key] == one["target"] if key in decided else None,
            "decision_flip": one["original_class"] != two["original_class"],
            "same_features": set(first) == set(second) if pair else None,
            "same_answer": first == second if pair else None,
            "jaccard": (len(set(first) & set(second)) / len(union) if union else 1.0) if pair else None,
            "previous_cost": one["cost"] if has_answer(one) else None,
            "cost_delta": two["cost"] - one["cost"] if pair else None,
            "broken_promise": has_answer(one) and two["status"] != "already_target" and not left(now[key], one),
        }
        found[key]["needed"] = "already_target" not in (one["status"], two["status"]) or one["status"] != two["status"]
    return found


def check_rows(found, rows, new):
    told = {row[KEY]: row for row in rows}
    needed = {key for key, row in found.items() if row["needed"]}
    assert set(told) == needed, f"keys differ: {sorted(set(told) ^ needed)[:5]}"
    for key, row in told.items():
        for name, value in found[key].items():
            if name == "needed":
                continue
            same = row[name] == value or (isinstance(value, float) and math.isclose(row[name], value, abs_tol=1e-12))
            assert same, f"{key}: {name} is {row[name]}, expected {value}"
        assert (row["carried_cost"] is None) == (not row["yesterday_valid"]), key
        if row["yesterday_valid"] and "row" not in row["cause"]:
            assert row["still_allowed"], f"{key}: the same row, and no longer allowed"
            assert math.isclose(row["carried_cost"], row["previous_cost"], rel_tol=1e-9), f"{key}: costs differ"
        if row["jaccard"] is None:
            assert row["needless"] is None, key
        else:
            cheap = row["carried_cost"] <= new[key]["cost"] * (1 + 1e-9)
            needless = row["still_valid"] and row["still_allowed"] and cheap and not row["same_answer"]
            assert row["needless"] == needless, f"{key}: needless is {row['needless']}"


def check_limits(rows, old, now):
    """Income may rise by 15,000 at most: whose income fell may be too far from what was told."""
    refused = 0
    for row in rows:
        key = row[KEY]
        wanted = left(now[key], old[key]).get("income") if row["yesterday_valid"] else None
        if wanted is not None and wanted > now[key]["income"] + 15_001:
            assert row["still_allowed"] is False, f"{key}: income would rise by more than its limit"
            refused += 1
    return refused


def wilson(part, whole):
    share, square = part / whole, Z * Z
    shrink = 1 + square / whole
    centre = (share + square / (2 * whole)) / shrink
    half = Z * math.sqrt(share * (1 - share) / whole + square / (4 * whole * whole)) / shrink
    return centre - half, centre + half


def check_groups(current, found, new, now, old, by):
    """Every figure of the table by group, from the table by key."""
    rows = [{"key": key, "grp": now[key][by], **{n: row[n] for n in ("cause", "decision_flip", "needed")}} for key, row in found.items()]
    shared = pyarrow.Table.from_pylist(rows)
    told = pyarrow.parquet.read_table(f"{current}/reports/stability.parquet")
    groups = pyarrow.parquet.read_table(f"{current}/reports/audit/stability.parquet").to_pylist()
    sql = f"""SELECT count(*) AS rows, count(*) FILTER (needed) AS needed,
        count(*) FILTER (b.decision_flip) AS decision_flips, count(*) FILTER (yesterday_valid) AS promised,
        count(still_valid) AS asked, count(*) FILTER (still_valid) AS still_valid,
        count(*) FILTER (still_allowed) AS still_allowed, count(*) FILTER (broken_promise) AS broken_promises,
        count(jaccard) AS paired, count(*) FILTER (same_features) AS same_features,
        count(*) FILTER (same_answer) AS same_answer, 1 - avg(jaccard) AS answer_churn,
        count(*) FILTER (needless) AS needless, count(needless) AS may_be, avg(cost_delta) AS cost_drift,
        stddev_samp(cost_delta) / sqrt(count(cost_delta)) AS error
        FROM shared b LEFT JOIN told t ON b.key = t.{KEY}"""
    seen = set()
    for group in groups:
        if group["attribute"] is None:
            where = ["TRUE"]
        else:
            where = ["grp IS NULL" if group["value"] is None else f"grp = '{group['value']}'"]
        if group["cause"] is not None:
            where.append(f"b.cause = '{group['cause']}'")
        seen.add((group["attribute"], group["value"], group["cause"]))
        name = f"{group['attribute']} {group['value']} {group['cause']}"
        row = duckdb.sql(f"{sql} WHERE {' AND '.join(where)}").to_arrow_table().to_pylist()[0]
        error, may_be = row.pop("error"), row.pop("may_be")
        shares = {
            "decision_churn": (row["decision_flips"], row["rows"]),
            "recourse_validity": (row["still_valid"], row["asked"]),
            "needless_churn": (row["needless"], may_be),
        }
        assert group["suppressed"] == (row["needed"] < 30), name
        for share, (part, whole) in shares.items():
            row[share] = part / whole if whole else None
            row[f"{share}_low"], row[f"{share}_high"] = wilson(part, whole) if whole else (None, None)
        drift = row["cost_drift"]
        row["cost_drift_low"] = None if error is None else drift - Z * error
        row["cost_drift_high"] = None if error is None else drift + Z * error
        counts = {"rows", "needed", "decision_flips", "promised", "asked", "still_valid", "still_allowed", "broken_promises", "paired", "same_features", "same_answer", "needless"}
        for figure, value in row.items():
            if group["suppressed"] and figure not in counts:
                value = None
            have = group[figure]
            same = have == value or None not in (have, value) and math.isclose(have, value, rel_tol=1e-9, abs_tol=1e-9)
            assert same, f"{name}: {figure} is {have}, expected {value}"
        if group["cause"] is None:
            mine = [key for key in new if key not in old and (group["attribute"] is None or now[key][by] == group["value"])]
            assert group["appeared"] == len(mine), f"{name}: {group['appeared']} appeared, expected {len(mine)}"
        if group["attribute"] is None and group["cause"] is None:
            gone = sum(key not in new for key in old)
            assert group["vanished"] == gone, f"{group['vanished']} vanished, expected {gone}"
    causes = {row["cause"] for row in found.values()} | {None}
    groups_there = {now[key][by] for key in found}
    assert {(None, None, cause) for cause in causes} <= seen
    assert {(by, value, None) for value in groups_there} <= seen


def main(previous, current, table_before, table_now, model, by):
    facts = [json.load(open(f"{run}/manifest.json"))["run"] for run in (previous, current)]
    causes = ["model"] if facts[0]["model"] != facts[1]["model"] else []
    old, new = answers(previous), answers(current)
    before, now = by_key(table_before), by_key(table_now)
    found = expected(old, new, before, now, model, causes)
    rows = pyarrow.parquet.read_table(f"{current}/reports/stability.parquet").to_pylist()
    check_rows(found, rows, new)
    refused = check_limits(rows, old, now)
    check_groups(current, found, new, now, old, by)
    told = collections.Counter(row["cause"] for row in rows)
    broken = sum(row["broken_promise"] for row in rows)
    needless = sum(bool(row["needless"]) for row in rows)
    print(json.dumps({"causes": told, "broken": broken, "needless": needless, "refused": refused, "rows": len(rows)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
