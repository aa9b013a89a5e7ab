"""Nearest rows, computed a second time: in NumPy, in 64 bits, by going through all rows for every query.

    nearest_oracle.py > tests/oracle/nearest.json

makes the committed file again; a test holds the program's own search against it. All is seeded. Numbers and
decisions are counted in small powers of two, so that 32 bits and short decimals hold them exactly.

A null number is `null`, and so is a bound or a cost that is infinite; a null code is -1, an unlisted one -2.
A measure of numbers is own value, scale, low, high and cost outside; one of codes is the length of its table,
the usual cost and the codes that have another.
"""

import json

import numpy

SEED = 23
ROWS, QUERIES = 3000, 200
NUMBERS, CATEGORIES = 4, [2, 9, 300]
CLASSES = 4
UNIT = 2**-5
DIGITS = 9
NULL, UNSEEN = -1, -2


def draw_numbers(random, feature):
    numbers = numpy.round(random.normal(0, 1, ROWS) / UNIT)
    if feature == 0:  # most rows have one value, as capital gains do
        numbers[random.random(ROWS) < 0.8] = -3
    numbers[random.random(ROWS) < 0.03 * feature] = numpy.nan
    return numbers


def draw_codes(random, values):
    codes = (values * random.random(ROWS) ** 2).astype(int)
    codes[random.random(ROWS) < 0.02] = NULL
    codes[random.random(ROWS) < 0.02] = UNSEEN
    return codes


def draw_number_measure(random, numbers):
    own = numbers[random.integers(ROWS)] * UNIT
    low, high = numpy.sort(numpy.round(random.normal(0, 1.5, 2) / UNIT)) * UNIT
    low, high = random.choice([[low, high], [own, numpy.inf], [-numpy.inf, own], [-numpy.inf, numpy.inf]])
    return [own, round(random.uniform(0, 0.5), 3), low, high, random.choice([0.0, 0.5, 2.0, numpy.inf])]


def draw_code_measure(random, values, codes):
    special = {int(code): random.choice([0.0, 0.1, 0.25, numpy.inf]) for code in random.integers(0, values, 5)}
    special[int(max(codes[random.integers(ROWS)], 0))] = 0.0
    null, unseen = random.choice([0.0, 0.4, 1.0, numpy.inf], 2)
    # The last codes are beyond the table now and then.
    length = int(random.choice([values, values, values - values // 4]))
    special = [[code, cost] for code, cost in special.items() if code < length]
    cost = random.choice([0.3, 1.0])
    return {"length": length, "cost": cost, "special": special, "null": null, "unseen": unseen}


def number_distances(numbers, measure):
    values, (own, scale, low, high, outside) = numbers * UNIT, measure
    if numpy.isnan(own):
        return numpy.where(numpy.isnan(values), 0.0, outside)
    gaps = scale * numpy.abs(values - own)
    inside = ((low <= values) & (values <= high)) | (values == own)
    return numpy.where(inside, gaps, outside + numpy.nan_to_num(gaps, nan=0.0))


def code_distances(codes, measure):
    costs = numpy.full(measure["length"], measure["cost"])
    for code, cost in measure["special"]:
        costs[code] = cost
    found = numpy.full(len(codes), measure["unseen"])
    listed = (codes >= 0) & (codes < len(costs))
    found[listed] = costs[codes[listed]]
    found[codes == NULL] = measure["null"]
    return found


def draw_query(random, table, number):
    decisions = ["classes", "values"][number % 2]
    centre = random.normal(0, 1)
    classes = numpy.sort(random.integers(0, CLASSES, 2))
    low, high = classes if decisions == "classes" else (centre - 0.5, centre + 0.5)
    return {
        "numbers": [draw_number_measure(random, numbers) for numbers in table["numbers"]],
        "codes": [draw_code_measure(random, *drawn) for drawn in zip(CATEGORIES, table["codes"])],
        "decisions": decisions,
        "wanted": [round(float(low), 2), round(float(high), 2)],
        "k": int(random.integers(1, 13)),
    }


def nearest(table, query):
    """Rows by distance, then by number; distances that differ by rounding only count as equal."""
    distances = numpy.zeros(ROWS)
    for numbers, measure in zip(table["numbers"], query["numbers"]):
        distances = distances + number_distances(numbers, measure)
    for codes, measure in zip(table["codes"], query["codes"]):
        distances = distances + code_distances(codes, measure)
    decisions = table[query["decisions"]] * (UNIT if query["decisions"] == "values" else 1)
    distances[(decisions < query["wanted"][0]) | (decisions > query["wanted"][1])] = numpy.inf
    distances = distances.round(DIGITS)
    order = numpy.argsort(distances, kind="stable")[: query["k"]]
    order = order[numpy.isfinite(distances[order])]
    return {"rows": order.tolist(), "distances": distances[order].tolist()}


def told(value):
    """What JSON can hold: no infinities, no NaN, whole numbers without a point."""
    if isinstance(value, dict):
        return {key: told(inner) for key, inner in value.items()}
    if isinstance(value, (list, numpy.ndarray)):
        return [told(inner) for inner in value]
    if isinstance(value, (str, int)):
        return value
    if not numpy.isfinite(value):
        return None
    return int(value) if value == int(value) else float(value)


def main():
    random = numpy.random.default_rng(SEED)
    table = {
        "numbers": [draw_numbers(random, feature) for feature in range(NUMBERS)],
        "codes": [draw_codes(random, values) for values in CATEGORIES],
        "classes": random.integers(0, CLASSES, ROWS).astype(float),
        "values": numpy.round(random.normal(0, 1, ROWS) / UNIT),
    }
    queries = [draw_query(random, table, number) for number in range(QUERIES)]
    queries = [{**query, **nearest(table, query)} for query in queries]
    print(json.dumps(told({"unit": UNIT, **table, "queries": queries}), separators=(",", ":")))


if __name__ == "__main__":
    main()
