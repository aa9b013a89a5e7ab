"""A job to train a counterfactual generator against one of the paper's classifiers.

    generator_job.py DATA_FOLDER DATASET MODEL OUT_FOLDER

Trains the paper's classifier (jobs/paper/hyperparameters.py has the names of data sets and models) on the rows
of the split `train`, and writes model.onnx, schema.toml and job.toml. The generator, too, gets the rows of
`train` alone; whole numbers stay whole. Prints one line of JSON: rows, rows to train on, accuracies.
"""

import json
import sys
from pathlib import Path

# Finds jobs/paper for the imports below.
import real_data
from classifiers import Case, accuracies, export

TRAIN = "split = 'train'"


def main(folder, dataset, model, out):
    case = Case(Path(folder), dataset, model)
    rows = case.rows()
    train = rows["split"] == "train"
    fitted = case.fit(rows[train])
    exported = export(case, fitted)
    real_data.write(Path(out), exported, real_data.schema(case), real_data.job(case, exported, train_predicate(case)))
    told = {
        "dataset": dataset,
        "model": model,
        "rows": len(rows),
        "train_rows": int(train.sum()),
        **accuracies(case, rows, fitted.predict(rows[case.about["features"]])),
    }
    print(json.dumps(told))


def train_predicate(case):
    """`train_where` stands for itself: it is not narrowed by `where`."""
    return f"{case.predicate} AND {TRAIN}" if case.predicate else TRAIN


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
