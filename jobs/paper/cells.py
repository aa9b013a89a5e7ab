"""Cells of the grid: what each of them is, and how one is run.

A cell is a variant of training, a data set, a classifier and a seed. Its generator is trained once and explains the
same rows in several ways, its evaluations; then it is thrown away, and what is left is one JSON file, written when
all of it is done.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute
import pyarrow.parquet

import evaluate
from evaluate import PROJECT
from hyperparameters import SETTINGS

HERE = Path(__file__).resolve().parent
KEY, WANTED = "row_id", "wanted IS NOT NULL"
# As many as a generator keeps: MMD² through ten of them differs by more than bars do.
ENCODERS = 32
# What each variant says to `train`; the rivals of the generator learn nothing.
VARIANTS = {
    "ae": {},
    "mo": None,
    "dice_random": None,
    "dice_genetic": None,
    "lore": None,
    "noae": {"autoencoder.kind": "never"},
    "paper": {"train.preset": "paper"},
}
# Variants that are run once, with seed 0: nothing is learnt.
ONE_SEED = [name for name, trains in VARIANTS.items() if trains is None]
# What --rival-rows is about: methods that ask again and again.
RIVALS = ["dice_random", "dice_genetic", "lore"]
DICE_BUDGET = {"explain.queries_per_row": 10_000}
ALONE = {
    "plain": {"explain.refine": "off"},
    "diverse": {"explain.refine": "off", "explain.conditions": "drawn"},
}
# What each way of explaining says to `run`.
EVALUATIONS = {
    "ae": ALONE | {"refined": {}},
    "mo": {"mo": {"explain.method": "nearest"}},
    # So many questions that DiCE's own limits of copies and generations count.
    "dice_random": {"dice_random": DICE_BUDGET | {"explain.method": "dice_random"}},
    "dice_genetic": {
        "dice_genetic": DICE_BUDGET | {"explain.method": "dice_genetic"},
        "dice_genetic_hard": DICE_BUDGET | {"explain.method": "dice_genetic", "explain.dice.hard_labels": "true"},
    },
    # For 100 rows in both populations, a tenth of LORE's own, as in the paper.
    "lore": {"lore": {"explain.method": "lore", "explain.queries_per_row": 500}},
    "noae": ALONE,
    "paper": ALONE,
}


@dataclass(frozen=True)
class Cell:
    variant: str
    dataset: str
    model: str
    seed: int

    @property
    def name(self):
        return f"{self.variant}-{self.pair}-{self.seed}"

    @property
    def pair(self):
        return f"{self.dataset}-{self.model}"

    @property
    def job(self):
        return HERE / f"{self.dataset}.toml"

    @property
    def schema(self):
        return PROJECT / f"schemas/paper/{self.dataset}.toml"


@dataclass(frozen=True)
class Grid:
    """What all cells have in common: the program, where things lie, and what was asked for."""

    overturn: Path
    data: Path
    work: Path
    # Where cells are kept: apart from the page's own if training is told more than the variant says.
    kept: Path
    threads: int
    train: dict
    paper_steps: int | None
    binary: str
    version: str
    keep: bool
    keep_old: bool
    # Rows that the paper's rivals explain, at most; none for all.
    rival_rows: int | None = None

    def prepared(self, cell):
        return self.work / cell.pair

    def file(self, cell):
        return self.kept / "cells" / f"{cell.name}.json"

    def overrides(self, cell):
        """What the training of a cell is told beyond its job file."""
        variant = VARIANTS[cell.variant]
        if variant is None:
            return None
        steps = {}
        if cell.variant == "paper" and self.paper_steps:
            steps = {"autoencoder.steps": self.paper_steps, "train.max_steps": self.paper_steps}
        return variant | steps | self.train

    def settings(self, cell):
        """All that the figures of a cell depend on, but for the program, the data and the way classifiers are made."""
        texts = cell.job.read_bytes() + cell.schema.read_bytes()
        return {
            "train": self.overrides(cell),
            "explain": EVALUATIONS[cell.variant],
            "encoders": ENCODERS,
            **self.capped(cell),
            "classifier": SETTINGS[cell.dataset][cell.model],
            "job": hashlib.sha256(texts).hexdigest()[:12],
        }

    def capped(self, cell):
        """How many rows a cell explains, where they are not all."""
        capped = self.rival_rows and cell.variant in RIVALS
        return {"rows": self.rival_rows} if capped else {}

    def where(self, cell):
        """The rows that a cell explains: the first of those with a wanted class, which were drawn at random."""
        rows = self.capped(cell).get("rows")
        if rows is None:
            return WANTED
        table = pyarrow.parquet.read_table(self.prepared(cell) / "table.parquet", columns=[KEY, "wanted"])
        wanted = table.filter(pyarrow.compute.is_valid(table["wanted"]))[KEY].sort()
        return WANTED if len(wanted) <= rows else f"{WANTED} AND {KEY} <= {wanted[rows - 1].as_py()}"

    def is_done(self, cell):
        if not self.file(cell).exists():
            return False
        found = json.loads(self.file(cell).read_text())
        same = found["settings"] == self.settings(cell)
        return same and (self.keep_old or found["binary"] == self.binary)

    def is_prepared(self, cell):
        prepared = self.prepared(cell) / "prepared.json"
        return prepared.exists() and json.loads(prepared.read_text())["settings"] == SETTINGS[cell.dataset][cell.model]


def binary_hash(overturn):
    with open(overturn, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def version_of(overturn):
    said = subprocess.run([overturn, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[1]


def prepare(grid, cell):
    """Classifier and table. By a process of its own: the libraries are slow to load and large."""
    script = [sys.executable, HERE / "classifiers.py", grid.data, cell.dataset, cell.model, grid.prepared(cell)]
    said = evaluate.run(script)
    if said.code != 0:
        raise evaluate.failure(f"classifiers.py {cell.dataset} {cell.model}", said)


def run(grid, cell):
    """Trains and explains; gives what the cell's file says, which is written."""
    folder = grid.kept / "runs" / cell.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        training = train(grid, cell, folder)
        found = {
            "variant": cell.variant,
            "dataset": cell.dataset,
            "model": cell.model,
            "seed": cell.seed,
            "settings": grid.settings(cell),
            "threads": grid.threads,
            "version": grid.version,
            "binary": grid.binary,
            "prepared": json.loads((grid.prepared(cell) / "prepared.json").read_text()),
            "training": training,
            "evaluations": {name: explain(grid, cell, folder, name) for name in EVALUATIONS[cell.variant]},
        }
    finally:
        if not grid.keep:
            shutil.rmtree(folder)
    keep(grid.file(cell), found)
    return found


def keep(file, found):
    """By a rename: a cell's file is whole or not there."""
    unfinished = file.with_suffix(".new")
    unfinished.write_text(json.dumps(found, indent=1))
    unfinished.rename(file)
    file.with_suffix(".failed").unlink(missing_ok=True)


def program(grid, cell, verb, out, overrides):
    overrides = {"runtime.seed": cell.seed, "runtime.threads": grid.threads} | overrides
    arguments = ["--set", f"cell={grid.prepared(cell)}", "--set", f"out={out}"]
    for key, value in overrides.items():
        arguments += ["--override", f"{key}={value}"]
    return evaluate.program(grid.overturn, verb, cell.job, *arguments)


def train(grid, cell, folder):
    """A generator for the cell, and what its training cost; nothing for a variant that learns nothing."""
    overrides = grid.overrides(cell)
    if overrides is None:
        return None
    summary, wall, cpu = program(grid, cell, "train", folder / "trained", overrides)
    about = {name: summary[name] for name in ["steps", "rows_trained", "autoencoder", "remarks"]}
    validation = {name: summary["validation"][name] for name in ["validity", "l0", "l1", "changed"]}
    return about | {"validation": validation, "seconds": round(wall, 2), "cpu_seconds": round(cpu, 2)}


def explain(grid, cell, folder, evaluation):
    """One way of explaining the cell's rows, judged by what it published."""
    out = folder / evaluation
    where = grid.where(cell)
    overrides = EVALUATIONS[cell.variant][evaluation] | {"report.mmd.encoders": ENCODERS, "input.where": f'"{where}"'}
    if VARIANTS[cell.variant] is not None:
        overrides["explain.generator"] = folder / "trained/generator"
    summary, wall, cpu = program(grid, cell, "run", out, overrides)
    found = evaluate.figures(out, sum(summary["rows_rejected"].values())) | evaluate.mmd(out)
    found["by_class"] = evaluate.figures_by_class(out)
    found |= evaluate.check(out, grid.prepared(cell) / "table.parquet", cell.schema, KEY, where)
    for figures in [found, *found["by_class"].values()]:
        figures |= meaningless(cell)
    return found | {"seconds": round(wall, 2), "cpu_seconds": round(cpu, 2), "remarks": summary["remarks"]}


def meaningless(cell):
    """L0 without categorical features, and L1 without numeric ones, is no figure."""
    kinds = {feature["kind"] for feature in tomllib.loads(cell.schema.read_text())["feature"]}
    return {name: None for name, kind in [("l0", "categorical"), ("l1", "numeric")] if kind not in kinds}
