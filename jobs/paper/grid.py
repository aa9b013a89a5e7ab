"""The paper's grid: five data sets, five classifiers, three seeds, with and without autoencoder, plain and diverse.

    grid.py OVERTURN DATA_FOLDER WORK_FOLDER [--datasets "adult wine"] [--models "lr dt rf lsvc xgb"] [--seeds "0 1 2"]
            [--variants "ae mo dice_random"] [--jobs 2] [--threads N] [--paper-steps N] [--rival-rows N]
            [--train KEY=VALUE]... [--keep] [--keep-old] [--page] [--results FOLDER]

OVERTURN is the program, DATA_FOLDER has the data sets. Classifiers are trained first, by classifiers.py, into
WORK_FOLDER/<data set>-<classifier>. Then cells are run, --jobs of them side by side with --threads threads each (all
cores between them by default), by the job files beside this script and `--override`s; cells.py has the variants:

    ae      the defaults: generator alone, plain and diverse, and with refinement
    mo      the nearest training row that keeps to the constraints; nothing is learnt, so once, with seed 0
    dice_random, dice_genetic, lore
            the paper's rivals, as they are; nothing is learnt, so once, with seed 0. DiCE with 10,000 questions a row,
            so that its own limits count, genetic with probabilities and with labels alone; LORE with 500, which is a
            tenth of its own populations, as in the paper. --rival-rows caps the rows that a cell explains with them
    noae    without autoencoder: generator alone, plain and diverse
    paper   the paper's own method and numbers: generator alone, plain and diverse. --paper-steps caps the steps of
            autoencoder and actor, which are 100,000 each

The two tables that nobody tuned on (wdbc, wine) are run with the defaults only: `ae` and `mo`.

Every finished cell is a file in WORK_FOLDER/cells, and is not run again unless its settings or the program have
changed; --keep-old keeps what another build of the program has made. A cell that fails leaves a file `.failed` with
the reason; the others go on, and the end is code 1. --keep leaves trained generators and published runs in
WORK_FOLDER/runs.

In the end, or with --page at once, cells are collected into results.parquet, and RESULTS.md is written from that
table alone, both in --results (this folder by default). Rows of cells that are not in WORK_FOLDER stay as they are.

--train tells the training more, for research: such cells are kept in WORK_FOLDER/tried/<what was told> and have
table and page of their own there.
"""

import argparse
import hashlib
import os
import re
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import cells
import page
import results
from cells import Cell, Grid
from evaluate import CHILDREN, Failed
from hyperparameters import DATASETS, MODELS, UNTOUCHED

# Longest first, so that workers end together.
BY_LENGTH = ["covertype", "bank", "adult", "spambase", "wdbc", "breast_cancer", "wine"]
MODELS_BY_LENGTH = ["xgb", "rf", "dt", "lsvc", "lr"]
LONGEST_NAME = 100


def in_order(given):
    """The cells asked for: the defaults with one seed first, for a whole picture as soon as can be."""
    first, *others = given.seeds
    passes = [("ae", first), ("mo", 0)]
    passes += [("ae", seed) for seed in others]
    passes += [(variant, 0) for variant in cells.ONE_SEED if variant != "mo"]
    passes += [(variant, seed) for variant in ["noae", "paper"] for seed in given.seeds]
    found = []
    for variant, seed in passes:
        for dataset in sorted(given.datasets, key=BY_LENGTH.index):
            if variant in given.variants and (dataset not in UNTOUCHED or variant in ["ae", "mo"]):
                models = sorted(given.models, key=MODELS_BY_LENGTH.index)
                found += [Cell(variant, dataset, model, seed) for model in models]
    return found


def side_by_side(jobs, do, items):
    """Does something with all items; gives those for which it failed, with the reason."""
    failed = {}
    with ThreadPoolExecutor(jobs) as workers:
        waiting = {workers.submit(do, item): item for item in items}
        try:
            for done in as_completed(waiting):
                if done.exception() is not None:
                    failed[waiting[done]] = done.exception()
        except KeyboardInterrupt:
            workers.shutdown(wait=False, cancel_futures=True)
            CHILDREN.stop()
            raise
    return failed


def prepare_all(grid, todo, jobs):
    """Classifiers and tables that are not there yet; gives the cells that cannot be run without."""
    pairs = {cell.pair: cell for cell in todo if not grid.is_prepared(cell)}

    def do(cell):
        cells.prepare(grid, cell)
        say(f"{cell.pair}: prepared")

    failed = side_by_side(jobs, do, pairs.values())
    broken = {cell.pair: reason for cell, reason in failed.items()}
    return {cell: broken[cell.pair] for cell in todo if cell.pair in broken}


def run_all(grid, todo, jobs):
    """Cells one after the other, some at once; gives those that failed."""
    count = iter(range(1, len(todo) + 1))

    def do(cell):
        found = cells.run(grid, cell)
        say(f"[{next(count)}/{len(todo)}] {cell.name}: {told(found)}")

    return side_by_side(jobs, do, todo)


def told(found):
    training, parts = found["training"], []
    if training:
        parts.append(f"{training['steps']} steps in {training['seconds']:.0f} s")
    for name, run in found["evaluations"].items():
        parts.append(f"{name} {100 * run['validity']:.1f} % in {run['seconds']:.0f} s")
    return ", ".join(parts)


def note_failures(grid, failed):
    for cell, reason in failed.items():
        # What no process said is a fault of ours, and the place matters.
        text = str(reason) if isinstance(reason, Failed) else "".join(traceback.format_exception(reason))
        # What another program or other settings gave is not this cell's figure.
        grid.file(cell).unlink(missing_ok=True)
        grid.file(cell).with_suffix(".failed").write_text(f"{text}\n")
        say(f"error: {cell.name}: {text}")


def publish(kept, folder):
    """Table and page, from the cells that there are."""
    rows = results.merged(folder / "results.parquet", results.collected(kept / "cells"))
    for place in {kept, folder}:
        place.mkdir(parents=True, exist_ok=True)
        results.write(place / "results.parquet", rows)
    (folder / "RESULTS.md").write_text(page.page(folder))
    say(f"wrote {folder / 'RESULTS.md'}")


def kept_in(given):
    """The folder of the cells, and that of table and page."""
    if not given.train:
        return given.work, given.results or Path(__file__).resolve().parent
    name = ",".join(f"{key}={value}" for key, value in sorted(given.train.items()))
    short = re.sub(r"[^\w.=,-]", "_", name)
    if short != name or len(short) > LONGEST_NAME:
        short = f"{short[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    kept = given.work / "tried" / short
    return kept, given.results or kept


def say(text):
    print(text, file=sys.stderr, flush=True)


def some_of(known):
    """Reads names with blanks or commas between them."""

    def parse(text):
        names = text.replace(",", " ").split()
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(f"found `{' '.join(unknown)}`, expected some of: {', '.join(known)}")
        return list(dict.fromkeys(names))

    return parse


def seeds(text):
    names = text.replace(",", " ").split()
    if not names or not all(name.isdecimal() for name in names):
        raise argparse.ArgumentTypeError(f"found `{text}`, expected whole numbers from 0")
    return list(dict.fromkeys(int(name) for name in names))


def pair(text):
    key, found, value = text.partition("=")
    if not found or not key:
        raise argparse.ArgumentTypeError(f"found `{text}`, expected KEY=VALUE, such as train.max_steps=500")
    return key, value


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"found `{text}`, expected a whole number from 1")
    return int(text)


def arguments():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overturn", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--datasets", type=some_of(DATASETS), default=list(DATASETS))
    parser.add_argument("--models", type=some_of(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=seeds, default=[0, 1, 2])
    parser.add_argument("--variants", type=some_of(cells.VARIANTS), default=list(cells.VARIANTS))
    parser.add_argument("--jobs", type=positive, default=cores, help="cells side by side")
    parser.add_argument("--threads", type=positive, help="threads of a cell")
    parser.add_argument("--paper-steps", type=positive, help="most steps of the variant `paper`")
    parser.add_argument("--rival-rows", type=positive, help="most rows of a cell that DiCE and LORE explain")
    parser.add_argument("--train", type=pair, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", action="store_true", help="keep generators and published runs")
    parser.add_argument("--keep-old", action="store_true", help="keep cells of another build of the program")
    parser.add_argument("--page", action="store_true", help="only collect, and write the page")
    parser.add_argument("--results", type=Path, help="folder of results.parquet and RESULTS.md")
    given = parser.parse_args()
    given.train = dict(given.train)
    given.threads = given.threads or max(1, cores // given.jobs)
    given.overturn, given.work = given.overturn.absolute(), given.work.absolute()
    return given


def run_grid(given, kept):
    """Runs what is not done; gives the cells that failed."""
    (kept / "cells").mkdir(parents=True, exist_ok=True)
    if not given.overturn.is_file():
        sys.exit(f"error: no program at `{given.overturn}`, expected a built overturn")
    binary, version = cells.binary_hash(given.overturn), cells.version_of(given.overturn)
    grid = Grid(given.overturn, given.data, given.work, kept, given.threads, given.train, given.paper_steps,
                binary, version, given.keep, given.keep_old, given.rival_rows)
    asked = in_order(given)
    if not asked:
        sys.exit(f"error: no cells, expected variants `ae` or `mo` for {' and '.join(UNTOUCHED)}")
    todo = [cell for cell in asked if not grid.is_done(cell)]
    say(f"{len(asked)} cells, {len(asked) - len(todo)} of them done; {given.jobs} at a time, threads: {given.threads}")
    failed = prepare_all(grid, todo, given.jobs)
    failed |= run_all(grid, [cell for cell in todo if cell not in failed], given.jobs)
    note_failures(grid, failed)
    return failed


def main():
    given = arguments()
    # As Ctrl-C: an exception that ends the workers in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kept, folder = kept_in(given)
    failed = {}
    try:
        if not given.page:
            failed = run_grid(given, kept)
    except KeyboardInterrupt:
        sys.exit("error: stopped; finished cells are kept, and the same command goes on with the others")
    publish(kept, folder)
    if failed:
        sys.exit(f"error: {len(failed)} cells failed; {kept / 'cells'} has the reasons")


if __name__ == "__main__":
    main()
