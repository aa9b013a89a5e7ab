"""The collected figures: one table, a row for each class of each evaluation of each cell, and one for all classes."""

import json
import statistics
from dataclasses import dataclass

import pyarrow
import pyarrow.parquet

from hyperparameters import DATASETS, MODELS

TEXT, WHOLE, NUMBER = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
CELL = ["variant", "dataset", "model", "seed"]
SCHEMA = pyarrow.schema([
    ("variant", TEXT), ("dataset", TEXT), ("model", TEXT), ("seed", WHOLE), ("evaluation", TEXT),
    # Position of the wanted class in the table's own order, and the model's name for it; null for all classes.
    ("class", WHOLE), ("class_name", TEXT),
    ("rows", WHOLE), ("validity", NUMBER), ("l0", NUMBER), ("l1", NUMBER), ("changed", NUMBER), ("queries", NUMBER),
    ("mmd2", NUMBER), ("ratio", NUMBER), ("held_out_mmd2", NUMBER), ("unchanged_mmd2", NUMBER),
    # From here on for all classes only.
    ("statuses", TEXT), ("violations", WHOLE), ("failed_checks", TEXT),
    ("seconds", NUMBER), ("cpu_seconds", NUMBER), ("train_seconds", NUMBER), ("train_cpu_seconds", NUMBER),
    ("steps", WHOLE), ("autoencoder", TEXT), ("remarks", TEXT), ("threads", WHOLE),
    ("train_accuracy", NUMBER), ("test_accuracy", NUMBER), ("settings", TEXT), ("version", TEXT), ("binary", TEXT),
])
FIGURES = ["rows", "validity", "l0", "l1", "changed", "queries"]
MMD = ["mmd2", "ratio", "held_out_mmd2", "unchanged_mmd2"]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over cells."""

    mean: float
    std: float
    count: int


def collected(folder):
    """The rows of all cells that there are."""
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return [row for cell in found for row in rows_of(cell)]


def rows_of(cell):
    """The rows of one cell's file."""
    about = {name: cell[name] for name in CELL}
    rows = []
    for evaluation, run in cell["evaluations"].items():
        own = about | {"evaluation": evaluation}
        rows.append(own | {name: run[name] for name in FIGURES + MMD} | once(cell, run))
        for place, name in enumerate(cell["prepared"]["classes"]):
            figures = {column: run["by_class"].get(name, {}).get(column) for column in FIGURES}
            mmd = {column: run["mmd_by_class"].get(name, {}).get(column) for column in MMD}
            rows.append(own | {"class": place, "class_name": name} | figures | mmd)
    return rows


def once(cell, run):
    """What is said once for an evaluation."""
    training = cell["training"] or {}
    return {
        "statuses": as_text(run["statuses"]),
        "violations": run["violations"],
        "failed_checks": ", ".join(run["failed_checks"]),
        "seconds": run["seconds"],
        "cpu_seconds": run["cpu_seconds"],
        "train_seconds": training.get("seconds"),
        "train_cpu_seconds": training.get("cpu_seconds"),
        "steps": training.get("steps"),
        "autoencoder": as_text(training["autoencoder"]) if training else None,
        "remarks": as_text([*training.get("remarks", []), *run["remarks"]]),
        "threads": cell["threads"],
        "train_accuracy": cell["prepared"]["train_accuracy"],
        "test_accuracy": cell["prepared"]["test_accuracy"],
        "settings": as_text(cell["settings"]),
        "version": cell["version"],
        "binary": cell["binary"],
    }


def as_text(value):
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def merged(file, rows):
    """New rows, and those of the file about other cells."""
    known = {cell_of(row) for row in rows}
    return rows + [row for row in read(file) if cell_of(row) not in known]


def cell_of(row):
    return tuple(row[name] for name in CELL)


def read(file):
    return pyarrow.parquet.read_table(file).to_pylist() if file.exists() else []


def write(file, rows):
    """Always in the same order, so that the same figures are the same file."""
    places = {name: place for place, name in enumerate([*DATASETS, *MODELS])}

    def order(row):
        label = -1 if row.get("class") is None else row["class"]
        return row["variant"], places[row["dataset"]], places[row["model"]], row["seed"], row["evaluation"], label

    rows = [{name: row.get(name) for name in SCHEMA.names} for row in sorted(rows, key=order)]
    unfinished = file.with_suffix(".new")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, SCHEMA), unfinished, compression="zstd")
    unfinished.rename(file)


class Figures:
    """The table, to be asked."""

    def __init__(self, rows):
        self.rows = rows
        # Where the page says what was run, an evaluation is enough of a cell.
        self.totals = [row for row in rows if row["class"] is None]

    def where(self, label=None, **wanted):
        """Rows of a class, or for all classes."""
        return [row for row in self.rows
                if row["class"] == label and all(row[name] == value for name, value in wanted.items())]

    def spread(self, column, label=None, **wanted):
        numbers = [row[column] for row in self.where(label, **wanted) if row[column] is not None]
        if not numbers:
            return None
        return Spread(statistics.fmean(numbers), statistics.pstdev(numbers), len(numbers))
