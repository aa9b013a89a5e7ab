"""Real classifiers on real data: does ONNX, through overturn, decide every row as the library does?

    real_data.py prepare DATA_FOLDER DATASET MODEL OUT_FOLDER
    real_data.py compare OUT_FOLDER

`prepare` trains a classifier with the hyper-parameters of the paper's appendix on the rows of the split
`train`, and writes model.onnx, schema.toml, job.toml and expected.parquet (key and label of every row in
scope, as the training library itself predicts them, and probabilities where it has them). It prints one
line of JSON: rows, accuracies, and by how much the least sure row was decided.

After `overturn score OUT_FOLDER/job.toml`, `compare` holds OUT_FOLDER/out against expected.parquet, prints
one line, and ends with code 1 unless every key is there once with the same label, and probabilities are
within 1e-5.

The classifiers, and why their exports decide as the library does, stand in jobs/paper/classifiers.py.
"""

import json
import sys
from pathlib import Path

import duckdb

# The integration tests give this script as text, from the project's folder.
PROJECT = Path(globals().get("__file__", "tests/python/real_data.py")).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "jobs/paper"))
if __name__ != "__main__" or sys.argv[1:2] != ["compare"]:
    # Comparing needs none of these, and they take seconds to load.
    from classifiers import KEY, Case, accuracies, export
    import numpy
    import pandas

# Probabilities are given out in 32 bits, and exponentials are not the same in every library.
LARGEST_GAP = 1e-5


def prepare(folder, dataset, model, out):
    case = Case(Path(folder), dataset, model)
    out = Path(out)
    rows = case.rows()
    fitted = case.fit(rows[rows["split"] == "train"])
    exported = export(case, fitted)
    write(out, exported, schema(case), job(case, exported))
    features = rows[case.about["features"]]
    predicted = fitted.predict(features)
    margin, probabilities = surety(fitted, features)
    expected = {KEY: rows[KEY], "label": predicted.astype(str), "margin": margin, **probabilities}
    pandas.DataFrame(expected).to_parquet(out / "expected.parquet")
    told = {
        "dataset": dataset,
        "model": model,
        "rows": len(rows),
        **accuracies(case, rows, predicted),
        "least_margin": float(margin.min()),
        "model_bytes": (out / "model.onnx").stat().st_size,
    }
    print(json.dumps(told))


def write(out, exported, schema_text, job_text):
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.onnx").write_bytes(exported.SerializeToString())
    (out / "schema.toml").write_text(schema_text)
    (out / "job.toml").write_text(job_text)


def surety(fitted, features):
    """How far the best class is ahead of the next in the library's own scores, and the probabilities of
    all classes if it has any."""
    if not hasattr(fitted, "predict_proba"):
        scores = fitted.decision_function(features)
        return (numpy.abs(scores) if scores.ndim == 1 else lead(scores)), {}
    scores = fitted.predict_proba(features).astype(float)
    columns = {f"score_{label}": scores[:, place] for place, label in enumerate(fitted.classes_)}
    return lead(scores), columns


def lead(scores):
    ranked = numpy.sort(scores, axis=1)
    return ranked[:, -1] - ranked[:, -2]


def quoted(text):
    """JSON strings are TOML strings."""
    return json.dumps(str(text), ensure_ascii=False)


def schema(case):
    """The shipped one, with the paper's constraints; numbers that are whole throughout the table stay whole."""
    return (PROJECT / f"schemas/paper/{case.name}.toml").read_text()


def job(case, exported, train_predicate=None):
    """The exporter gave features names of its own: it puts `_` for what is no letter or digit."""
    if case.table is None:
        sys.exit(f"error: found `{case.name}`, expected a data set that has a file of its own")
    pairs = zip(case.about["features"], exported.graph.input, strict=True)
    rename = [f"{quoted(name)} = {quoted(given.name)}\n" for name, given in pairs if name != given.name]
    rename = "\n[predictor.rename]\n" + "".join(rename) if rename else ""
    scope = f"where = {quoted(case.predicate)}\n" if case.predicate else ""
    scope += f"train_where = {quoted(train_predicate)}\n" if train_predicate else ""
    return (
        f"[input]\nfeatures = {quoted(case.table.resolve())}\nschema = \"schema.toml\"\n"
        f"key = {quoted(KEY)}\n{scope}\n"
        '[predictor]\nkind = "onnx"\nmodel = "model.onnx"\n'
        f"{rename}\n"
        '[output]\ndir = "out"\n'
    )


COMPARISON = """
    SELECT (SELECT count(*) FROM expected),
           (SELECT count(*) FROM scored),
           count(*) FILTER (NOT matched),
           count(*) FILTER (matched AND e.label IS DISTINCT FROM s.class),
           coalesce(max(e.margin) FILTER (matched AND e.label IS DISTINCT FROM s.class), 0),
           {gap}
    FROM expected e FULL JOIN scored s ON e.row_id = s.row_id,
         LATERAL (SELECT e.row_id IS NOT NULL AND s.row_id IS NOT NULL AS matched)
"""


def compare(out):
    if not Path(out, "out", "_SUCCESS").exists():
        sys.exit(f"error: no finished run in {out}/out, expected one of `overturn score {out}/job.toml`")
    tables = duckdb.connect()
    expected = tables.read_parquet(f"{out}/expected.parquet")
    tables.register("expected", expected)
    tables.register("scored", tables.read_parquet(f"{out}/out/scores/*.parquet"))
    scores = [name.replace('"', '""') for name in expected.columns if name.startswith("score_")]
    gaps = [f'abs(e."{name}" - s."{name}")' for name in scores]
    gap = f"coalesce(max(greatest({', '.join(gaps)})), 0)" if gaps else "0"
    wanted, found, unmatched, differing, margin, gap = tables.execute(COMPARISON.format(gap=gap)).fetchone()
    said = f"{wanted} rows expected, {found} scored, {unmatched} unmatched, {differing} labels differ"
    if differing:
        said += f" (the surest of them by a margin of {margin:.3g})"
    print(f"{said}, probabilities by {gap:.1e}" if scores else said)
    sys.exit(not (wanted == found > 0 and unmatched == differing == 0 and gap <= LARGEST_GAP))


if __name__ == "__main__":
    verbs = {"prepare": (prepare, 4), "compare": (compare, 1)}
    verb, count = verbs.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if verb is None or len(sys.argv) != count + 2:
        sys.exit(__doc__)
    verb(*sys.argv[2:])
