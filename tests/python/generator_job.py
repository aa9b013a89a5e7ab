"""A job to train a counterfactual generator against one of the paper's classifiers.

    generator_job.py DATA_FOLDER DATASET MODEL OUT_FOLDER

Trains the paper's classifier (see real_data.py, also for the names of data sets and models) on the rows of
the split `train`, and writes model.onnx, schema.toml and job.toml. The generator, too, gets the rows of
`train` alone; whole numbers stay whole. Prints one line of JSON: rows, rows to train on, accuracies.
"""

import json
import sys
from pathlib import Path

# Before all else: it sets how many threads linear algebra gets.
import real_data
import pandas

TRAIN = "split = 'train'"


def main(folder, dataset, model, out):
    case = real_data.Case(Path(folder), dataset, model)
    rows = case.rows()
    train = rows["split"] == "train"
    fitted = case.fit(rows[train])
    exported = real_data.export(case, fitted)
    schema = real_data.schema(case, whole(case))
    job = real_data.job(case, exported, train_predicate(case))
    real_data.write(Path(out), exported, schema, job)
    right = fitted.predict(rows[case.about["features"]]) == case.labels(rows)
    told = {
        "dataset": dataset,
        "model": model,
        "rows": len(rows),
        "train_rows": int(train.sum()),
        "train_accuracy": round(float(right[train].mean()), 4),
        "test_accuracy": round(float(right[~train].mean()), 4),
    }
    print(json.dumps(told))


def whole(case):
    """The numerics without a fraction anywhere, also where the column's type would allow one."""
    numbers = pandas.read_parquet(case.table, columns=case.numerics)
    return [name for name in case.numerics if (numbers[name] % 1 == 0).all()]


def train_predicate(case):
    """`train_where` stands for itself: it is not narrowed by `where`."""
    return f"{case.predicate} AND {TRAIN}" if case.predicate else TRAIN


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
