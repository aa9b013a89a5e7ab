"""What `train.patience` costs and saves, read off the curves of trainings that went on to their last step.

    patience.py RUN...          folders that `overturn train` published with `patience = 1000000000`

For each patience: the mean number of steps, and by how much the best score on the validation rows falls behind that
of the whole training. Validation rows are of the training split. The rule is that of `src/train/course.rs`.
"""

import sys
from pathlib import Path

import pyarrow.parquet

DISTANCE_WEIGHT = 0.1
VALID_AT_ALL = 0.5
PATIENCES = [2, 3, 4, 5, 6, 8, 12, 20]


def curve(run):
    """Step, validity and score of each evaluation."""
    table = pyarrow.parquet.read_table(Path(run) / "reports" / "training.parquet").to_pydict()
    rows = zip(table["step"], table["validity"], table["l0"], table["l1"], strict=True)
    return [(step, valid, valid - DISTANCE_WEIGHT * ((l0 or 0) + (l1 or 0))) for step, valid, l0, l1 in rows]


def stopped(points, patience):
    """The last step, and the best score until then."""
    best, since = float("-inf"), 0
    for step, valid, score in points:
        if score > best:
            best, since = score, 0
        elif valid >= VALID_AT_ALL:
            since += 1
        if since >= patience:
            break
    return step, best


def main(runs):
    curves = [curve(run) for run in runs]
    whole = [max(score for _, _, score in points) for points in curves]
    print("patience  steps  score lost: mean  most")
    for patience in PATIENCES:
        ends = [stopped(points, patience) for points in curves]
        lost = [best - score for best, (_, score) in zip(whole, ends, strict=True)]
        steps = sum(step for step, _ in ends) / len(ends)
        print(f"{patience:8} {steps:6.0f} {sum(lost) / len(lost):17.5f} {max(lost):.5f}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
