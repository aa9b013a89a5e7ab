"""Small tables: what a search costs, and what it finds, with and without a generator.

    small_tables.py OVERTURN FOLDER [TABLE ...]     one JSON line for each table and method
    small_tables.py --make TABLE FOLDER             only the files of a table: table, schema, model, job

Tables: `mixed` (numbers and categories, 800 rows to train on and 200 in need), `breast_cancer` and `wine` of
scikit-learn. The model has seen the training rows only; rows in need are rows that it does not predict the target for.
Every line has the CPU seconds of the whole run, as the program counts them.
"""

import json
import pathlib
import subprocess
import sys

import numpy
import pandas
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

METHODS = ("generator", "search", "auto")
TRAINED, IN_NEED = 800, 200
CATEGORIES = {
    "purpose": ["business", "car", "education", "furniture", "radio"],
    "housing": ["free", "own", "rent"],
    "savings": ["high", "little", "moderate", "none"],
    "employment": ["long", "medium", "short", "unemployed"],
}


def mixed():
    """Applications for credit, somewhat like the German credit data: numbers, categories, a noisy rule."""
    random = numpy.random.default_rng(16)
    rows = 4 * (TRAINED + IN_NEED)
    frame = pandas.DataFrame({
        "amount": numpy.round(random.lognormal(8.0, 0.7, rows), -1).astype("float32"),
        "months": random.choice([6, 12, 18, 24, 36, 48, 60], rows).astype("float32"),
        "age": random.integers(19, 75, rows).astype("float32"),
        "income": numpy.round(random.lognormal(7.6, 0.5, rows), -1).astype("float32"),
    })
    for name, values in CATEGORIES.items():
        frame[name] = random.choice(values, rows)
    rate = frame["amount"] / frame["months"] / frame["income"]
    score = -14.0 * rate + 0.02 * frame["age"] - 0.02 * frame["months"]
    score += frame["savings"].map({"high": 1.0, "moderate": 0.6, "little": 0.0, "none": -0.6})
    score += frame["employment"].map({"long": 0.9, "medium": 0.4, "short": 0.0, "unemployed": -0.8})
    score += frame["housing"].map({"own": 0.5, "free": 0.1, "rent": -0.2})
    score += random.normal(0.0, 0.5, rows)
    return frame, numpy.where(score > numpy.median(score), "good", "bad"), "good"


def breast_cancer():
    found = load_breast_cancer(as_frame=True)
    labels = numpy.where(found.target == 1, "benign", "malignant")
    return shuffled(found.data.astype("float32"), labels, "benign")


def wine():
    found = load_wine(as_frame=True)
    return shuffled(found.data.astype("float32"), numpy.array([f"c{one}" for one in found.target]), "c1")


def shuffled(frame, labels, wanted):
    order = numpy.random.default_rng(0).permutation(len(frame))
    return frame.iloc[order].reset_index(drop=True), labels[order], wanted


def plain(name):
    """Without what a path or a predicate would have to quote."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def schema(frame):
    lines = []
    for name in frame.columns:
        if frame[name].dtype == "float32":
            low, high = float(frame[name].min()), float(frame[name].max())
            lines.append(f'[[feature]]\nname = "{name}"\nkind = "numeric"\nrange = [{low!r}, {high!r}]\n')
        else:
            values = ", ".join(f'"{value}"' for value in sorted(frame[name].unique()))
            lines.append(f'[[feature]]\nname = "{name}"\nkind = "categorical"\nvalues = [{values}]\n')
    return "".join(lines)


def export(frame, labels):
    """A forest, one input for each column."""
    texts = [name for name in frame.columns if frame[name].dtype != "float32"]
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), remainder="passthrough")
    model = make_pipeline(encoder, RandomForestClassifier(100, max_depth=8, random_state=0)).fit(frame, labels)
    kinds = [(name, StringTensorType([None, 1]) if name in texts else FloatTensorType([None, 1])) for name in frame]
    return model, to_onnx(model, initial_types=kinds, options={"zipmap": False}).SerializeToString()


def make(table, folder):
    """Writes table, schema, model and job."""
    frame, labels, wanted = {"mixed": mixed, "breast_cancer": breast_cancer, "wine": wine}[table]()
    frame.columns = [plain(name) for name in frame.columns]
    trained = TRAINED if table == "mixed" else len(frame) // 2
    model, onnx = export(frame[:trained], labels[:trained])
    need = numpy.flatnonzero(model.predict(frame) != wanted)
    need = need[need >= trained][:IN_NEED]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(onnx)
    (folder / "schema.toml").write_text(schema(frame))
    rows = numpy.concatenate([numpy.arange(trained), need])
    written = frame.iloc[rows].reset_index(drop=True)
    written.insert(0, "id", rows)
    written["part"] = ["train"] * trained + ["need"] * len(need)
    written.to_parquet(folder / "table.parquet")
    (folder / "job.toml").write_text(
        '[input]\nfeatures = "table.parquet"\nkey = "id"\nschema = "schema.toml"\n'
        "train_where = \"part = 'train'\"\nwhere = \"part = 'need'\"\n"
        '[predictor]\nkind = "onnx"\nmodel = "model.onnx"\n'
        f'[target]\nclass = "{wanted}"\n[output]\ndir = "out"\noverwrite = true\n'
    )


def run(program, folder, method):
    """The summary of a run."""
    command = [program, "run", str(folder / "job.toml"), "--format", "json", "--override", f"explain.method={method}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments):
    if arguments[0] == "--make":
        make(arguments[1], pathlib.Path(arguments[2]))
        return
    program, home, *tables = arguments
    for table in tables or ("mixed", "breast_cancer", "wine"):
        folder = pathlib.Path(home) / table
        make(table, folder)
        for method in METHODS:
            summary = run(program, folder, method)
            target = summary["targets"][0]
            shown = ("l0", "l1", "n_changed", "mmd2")
            figures = {name: target[name] and round(target[name], 4) for name in shown}
            line = {"table": table, "asked": method, "method": summary["method"], "needed": target["needed"],
                    "validity": target["validity"], **figures, "queries": round(summary["queries_per_row"], 1),
                    "cpu_seconds": round(summary["cpu_seconds"], 2)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
