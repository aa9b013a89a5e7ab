"""A table of small categories, a rule that decides about it, and an exhaustive search of what each row may become.

    small_space.py make FOLDER            writes table.parquet, schema.toml, scorer.py and job.toml
    small_space.py check FOLDER           holds FOLDER/out against all that every row may become
    small_space.py check FOLDER MOST      the same with at most so many changes

The rule gives labels only. Some features never change, some have few values to move to, one is a whole number that
only rises and has a row's own bound: some rows have an answer, some have none. `check` goes through every allowed row
by the schema's words alone, without the program, and prints a line of JSON; it ends with code 1 if a row that can be
solved is not, or one is called infeasible that is not.
"""

import itertools
import json
import random
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet

ROWS = 600
VALUES = {"shape": ["round", "square", "long"], "colour": ["red", "green", "blue", "grey"],
          "make": ["old", "new"], "origin": ["north", "south"]}
ALLOWED = {"shape": ["round", "square"], "colour": ["red", "green", "grey"], "make": ["old", "new"], "origin": []}
HIGHEST = 5

SCORER = '''
import os, sys
answers = os.fdopen(os.dup(1), "wb"); os.dup2(2, 1)
import pyarrow as pa
sys.path.insert(0, {folder!r})
from small_space import label
batches = pa.ipc.open_stream(sys.stdin.buffer)
schema = pa.schema([("label", pa.string())], {{"overturn.protocol": "1", "overturn.classes": '["no", "yes"]'}})
with pa.ipc.new_stream(answers, schema) as stream:
    for batch in batches:
        labels = [label(row) for row in batch.to_pylist()]
        stream.write_batch(pa.record_batch([pa.array(labels, pa.string())], schema=schema))
        answers.flush()
'''


def label(row):
    """What the model says. Two ways to a yes, which not every row can go."""
    north = row["origin"] == "north" and row["colour"] == "grey" and row["shape"] != "long"
    south = row["origin"] == "south" and row["make"] == "new" and row["size"] >= 4 and row["colour"] != "blue"
    return "yes" if north or south else "no"


def make(folder):
    dice = random.Random(7)
    rows = [{"id": place, **{name: dice.choice(values) for name, values in VALUES.items()},
             "size": dice.randint(0, HIGHEST)} for place in range(ROWS)]
    for row in rows:
        # Half of the rows may not grow beyond a size of their own.
        row["size__max"] = dice.choice([None, max(row["size"], dice.randint(0, HIGHEST))])
    fields = [("id", pyarrow.int64()), *((name, pyarrow.string()) for name in VALUES), ("size", pyarrow.int64()),
              ("size__max", pyarrow.int64())]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, pyarrow.schema(fields)), folder / "table.parquet")
    lines = []
    for name, values in VALUES.items():
        change = "any" if ALLOWED[name] else "never"
        lines += ["[[feature]]", f"name = {json.dumps(name)}", 'kind = "categorical"',
                  f"values = {json.dumps(values)}", f'change = "{change}"']
        lines += [f"allowed = {json.dumps(ALLOWED[name])}"] if ALLOWED[name] else []
    lines += ["[[feature]]", 'name = "size"', 'kind = "numeric"', f"range = [0, {HIGHEST}]", 'change = "increase"']
    (folder / "schema.toml").write_text("\n".join(lines) + "\n")
    (folder / "scorer.py").write_text(SCORER.format(folder=str(Path(__file__).parent)))
    (folder / "job.toml").write_text(
        '[input]\nfeatures = "table.parquet"\nschema = "schema.toml"\nkey = "id"\n'
        f'[predictor]\nkind = "subprocess"\ncommand = [{json.dumps(sys.executable)}, "./scorer.py"]\n'
        '[target]\nclass = "yes"\n[output]\ndir = "out"\n')


def reachable(row, most):
    """Every row that a row may become."""
    options = {name: [row[name], *(value for value in ALLOWED[name] if value != row[name])] for name in VALUES}
    highest = HIGHEST if row["size__max"] is None else min(HIGHEST, row["size__max"])
    options["size"] = [row["size"], *range(row["size"] + 1, highest + 1)]
    for values in itertools.product(*options.values()):
        other = dict(zip(options, values))
        if sum(other[name] != row[name] for name in options) <= most:
            yield other


def check(folder, most):
    rows = pyarrow.parquet.read_table(folder / "table.parquet").to_pylist()
    answers = {}
    for file in (folder / "out/counterfactuals").glob("*.parquet"):
        answers |= {row["id"]: row for row in pyarrow.parquet.read_table(file).to_pylist()}
    wrong, found = [], {"already": 0, "solved": 0, "infeasible": 0}
    for row in rows:
        answer = answers[row["id"]]
        others = list(reachable(row, most))
        given = {name: answer[f"cf_{name}"] for name in [*VALUES, "size"]}
        if label(row) == "yes":
            expected = ("already", answer["status"] == "already_target")
        elif any(label(other) == "yes" for other in others):
            solved = answer["status"] == "solved" and not answer["certified"]
            expected = ("solved", solved and given in others and label(given) == "yes")
        else:
            expected = ("infeasible", answer["status"] == "infeasible" and answer["certified"])
        found[expected[0]] += 1
        if not expected[1]:
            wrong.append([row, answer["status"], given])
    print(json.dumps({"found": found, "wrong": len(wrong), "examples": wrong[:3]}, default=str))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "check"):
        sys.exit(__doc__)
    folder = Path(sys.argv[2])
    make(folder) if sys.argv[1] == "make" else check(folder, int((sys.argv + ["9"])[3]))
