"""RESULTS.md, from results.parquet, FINDINGS.md and the paper's figures: the same of these give the same page."""

import json
import textwrap
from collections import Counter
from dataclasses import dataclass

import published
import results
from cells import EVALUATIONS, ONE_SEED, VARIANTS
from hyperparameters import DATASETS, MODELS, PAPER, UNTOUCHED

SEEDS = [0, 1, 2]
WIDTH = 118


@dataclass(frozen=True)
class Metric:
    """How a figure is shown."""

    column: str
    unit: float
    places: int
    higher_is_better: bool


VALIDITY = Metric("validity", 100, 2, True)
L0, L1 = Metric("l0", 1, 3, False), Metric("l1", 1, 3, False)
MMD = Metric("mmd2", 10, 2, False)
RATIO = Metric("ratio", 1, 2, False)

# Our rows, by the paper's row that they are held against.
METHODS = {
    "Ours": [
        ("generator alone", "ae", "plain"),
        ("with refinement (default)", "ae", "refined"),
        ("`preset = \"paper\"`", "paper", "plain"),
    ],
    "Ours (diverse)": [
        ("generator alone, diverse", "ae", "diverse"),
        ("`preset = \"paper\"`, diverse", "paper", "diverse"),
    ],
    "Ours (w/o AE)": [("generator alone, w/o AE", "noae", "plain")],
    "Ours (w/o AE, diverse)": [("generator alone, w/o AE, diverse", "noae", "diverse")],
    "MO": [("MO (`method = \"nearest\"`)", "mo", "mo")],
    "LORE": [("LORE (`method = \"lore\"`)", "lore", "lore")],
    "DiCE (random)": [("DiCE, random (`method = \"dice_random\"`)", "dice_random", "dice_random")],
    "DiCE (genetic)": [("DiCE, genetic (`method = \"dice_genetic\"`)", "dice_genetic", "dice_genetic")],
    # Random sampling looks at labels only, whatever it is given.
    "DiCE (binary, random)": [("DiCE, random: labels make no difference", "dice_random", "dice_random")],
    "DiCE (binary, genetic)": [("DiCE, genetic, labels alone", "dice_genetic", "dice_genetic_hard")],
}
DETAILS = {"valid": VALIDITY, "L0": L0, "L1": L1, "MMD²": RATIO}
SHORT = [("generator alone", "ae", "plain"), ("with refinement", "ae", "refined"), ("MO", "mo", "mo")]
YARDSTICKS = [("rows left as they are", "unchanged_mmd2"), ("rows held out (floor)", "held_out_mmd2")]


def page(folder):
    """The text of the page about a folder's table."""
    figures = results.Figures(results.read(folder / "results.parquet"))
    findings = folder / "FINDINGS.md"
    parts = [head(figures), bars(figures)]
    parts += [findings.read_text().strip()] if findings.exists() else []
    parts += [methods(figures), mmd(figures), by_classifier(figures), untouched(figures), times(figures),
              accuracies(figures)]
    return "\n\n".join(parts) + "\n"


# --- pieces of text --------------------------------------------------------------------------------


def prose(text):
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def table(heading, rows):
    """Markdown; the first column is text, the others are figures."""
    lines = [heading, ["---"] + ["--:"] * (len(heading) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value, places):
    return "–" if value is None else f"{value:.{places}f}"


def whole(value):
    return "–" if value is None else f"{value:,.0f}"


def shown(spread, metric):
    if spread is None:
        return "–"
    return f"{spread.mean * metric.unit:.{metric.places}f} ± {spread.std * metric.unit:.{metric.places}f}"


def mean_of(spread, metric):
    return "–" if spread is None else f"{spread.mean * metric.unit:.{metric.places}f}"


def is_as_good(spread, pair, metric):
    """Whether ours is at least as good as a figure that is printed with two places: ours is rounded the same way.
    Nothing where there is nothing to compare."""
    if not spread or not pair:
        return None
    found = round(spread.mean * metric.unit, 2)
    return found >= pair[0] if metric.higher_is_better else found <= pair[0]


def printed(pair):
    return f"{pair[0]:.2f} ± {pair[1]:.2f}" if pair else "–"


# --- what was run, and the bars --------------------------------------------------------------------


def head(figures):
    return "\n\n".join([
        "# The paper's grid",
        prose(
            "Counterfactuals for the tabular data sets and classifiers of Samoilescu, Van Looveren and Klaise, "
            "*Model-agnostic and Scalable Counterfactual Explanations via Reinforcement Learning* (2021), by its "
            "protocol: five classifiers with the hyper-parameters of its appendix, up to 1,000 test rows, each wanting "
            "a random class other than the prediction; validity over all of them, L0 (share of categorical features "
            "changed) and L1 (mean change of standardised numerics) over the valid ones, MMD² through untrained "
            "encoders 32-16-5 over all counterfactuals of a class. Figures are mean ± standard deviation over "
            "classifiers and seeds."
        ),
        prose(
            "Written by `jobs/paper/run.sh` from `results.parquet`; `jobs/paper/run.sh --page` writes it anew. The "
            "paper's figures are those that it prints. *Generator alone* is `explain.refine = \"off\"`, one pass of "
            "the generator as in the paper; *diverse* is `explain.conditions = \"drawn\"`."
        ),
        what_was_run(figures),
    ])


def expected_cells():
    """Every cell of the whole grid."""
    cells = []
    for variant in VARIANTS:
        for dataset in DATASETS if variant in ["ae", "mo"] else PAPER:
            seeds = [0] if variant in ONE_SEED else SEEDS
            cells += [(variant, dataset, model, seed) for model in MODELS for seed in seeds]
    return cells


def what_was_run(figures):
    there = list(dict.fromkeys(results.cell_of(row) for row in figures.totals))
    counted = Counter((variant, dataset) for variant, dataset, _, _ in there)
    planned = Counter((variant, dataset) for variant, dataset, _, _ in expected_cells())
    rows = []
    for dataset, title in DATASETS.items():
        pairs = [(variant, dataset) for variant in VARIANTS]
        rows.append([title, *[f"{counted[key]} of {planned[key]}" if planned[key] else "–" for key in pairs]])
    parts = [prose("Cells that were run, classifiers times seeds: `ae` with the defaults; `mo` the nearest training "
                   "row that keeps to the constraints, `dice_random`, `dice_genetic` and `lore` the paper's rivals, "
                   "which learn nothing and have one seed; `noae` with `autoencoder.kind = \"never\"`; `paper` with "
                   "`train.preset = \"paper\"`."),
             table(["", *[f"`{variant}`" for variant in VARIANTS]], rows), missing(there)]
    return "\n\n".join([*parts, *remarks(figures)])


def missing(there):
    """Names what is not there: whole variants and data sets as such."""
    planned = expected_cells()
    absent = [cell for cell in planned if cell not in set(there)]
    if not absent:
        return "No cell is missing."
    parts = []
    for variant in VARIANTS:
        own = [cell for cell in absent if cell[0] == variant]
        if len(own) == len([cell for cell in planned if cell[0] == variant]):
            parts.append(f"all of `{variant}`")
            continue
        for dataset in dict.fromkeys(cell[1] for cell in own):
            parts.append(f"`{variant}` {dataset} ({missing_of(planned, own, dataset)})")
    return prose(f"Missing, {len(absent)} cells (classifiers, and seeds where others are there): {'; '.join(parts)}.")


def missing_of(planned, own, dataset):
    """Classifiers of a variant's data set, with the seeds if not all of them are missing."""
    everything = [cell for cell in planned if cell[:2] == (own[0][0], dataset)]
    own = [cell for cell in own if cell[1] == dataset]
    if len(own) == len(everything):
        return "all"
    names = []
    for model in dict.fromkeys(cell[2] for cell in own):
        seeds = [str(cell[3]) for cell in own if cell[2] == model]
        complete = len(seeds) == len([cell for cell in everything if cell[2] == model])
        names.append(model if complete else " ".join([model, *seeds]))
    return ", ".join(names)


def remarks(figures):
    """What every figure below depends on."""
    if not figures.totals:
        return []
    found = [prose(f"{evaluations(figures)} {builds(figures)}")]
    without = {results.cell_of(row) for row in figures.totals if lost_autoencoder(row)}
    if without:
        counted = Counter(f"`{variant}` {dataset}" for variant, dataset, *_ in sorted(without))
        cells = ", ".join(f"{name}: {count}" for name, count in counted.items())
        found.append(prose(f"Cells whose autoencoder reconstructed too badly and was left out: {cells}."))
    capped = capped_cells(figures)
    if capped:
        found.append(prose(f"Rows explained in a cell, where not all of up to 1,000 were: {', '.join(capped)}."))
    told = dict.fromkeys(told_beyond(row) for row in figures.totals)
    told.pop(None, None)
    if told:
        found.append(prose(f"Beyond the variant, training was told: {'; '.join(told)}. (`preset = \"paper\"` has "
                           "100,000 steps for the autoencoder and for the actor.)"))
    return found


def capped_cells(figures):
    caps = {(row["variant"], json.loads(row["settings"]).get("rows")) for row in figures.totals}
    return [f"`{variant}` {rows:,}" for variant, rows in sorted(caps, key=str) if rows is not None]


def lost_autoencoder(row):
    return row["variant"] in ["ae", "paper"] and not json.loads(row["autoencoder"])["used"]


def told_beyond(row):
    """What a training was told that its variant does not say."""
    told = json.loads(row["settings"])["train"] or {}
    extra = {key: value for key, value in told.items() if key not in (VARIANTS[row["variant"]] or {})}
    return f"`{row['variant']}` " + ", ".join(f"{key} = {value}" for key, value in extra.items()) if extra else None


def evaluations(figures):
    wrong = sum(row["violations"] or 0 for row in figures.totals)
    unchecked = [row for row in figures.totals if row["violations"] is None or row["failed_checks"]]
    text = (f"{len(figures.totals):,} runs, checked one by one by `tests/python/check_run.py`: {wrong:,} violated "
            "constraints")
    return text + (f", {len(unchecked)} runs with a check that failed." if unchecked else ", no check failed.")


def builds(figures):
    """Programs that made the cells."""
    made = {results.cell_of(row): (row["version"], row["binary"]) for row in figures.totals}
    parts = [f"{version} ({binary}): {count}" for (version, binary), count in sorted(Counter(made.values()).items())]
    return f"Cells by version and build: {', '.join(parts)}."


def bars(figures):
    rows, met, judged, incomplete = [], 0, 0, set()
    for bar in published.bars():
        cells = []
        for dataset in PAPER:
            found = figures.spread(bar.column, variant=bar.variant, evaluation=bar.evaluation, dataset=dataset)
            if dataset in bar.limits and found:
                judged, met = judged + 1, met + bar.is_met(dataset, found.mean)
                if found.count < len(MODELS) * (1 if bar.variant in ONE_SEED else len(SEEDS)):
                    incomplete.add(dataset)
            cells.append(bar_text(bar, dataset, found))
        rows.append([bar.title, *cells])
    text = f"{met} of {judged} bars are met."
    if incomplete:
        text += f" Not all cells are there yet for {', '.join(PAPER[name] for name in PAPER if name in incomplete)}."
    note = f"Means over classifiers and seeds, not rounded before they are held against the bar. {text}"
    return "\n\n".join(["## Bars", prose(note), table(["", *PAPER.values()], rows)])


def bar_text(bar, dataset, found):
    if dataset not in bar.limits:
        return "–"
    percent = bar.column == "validity"
    limit = f"{bar.limits[dataset] * (100 if percent else 1):g}"
    limit = f"{'≥' if bar.at_least else '≤'} {limit}"
    if found is None:
        return f"({limit})"
    value = f"{found.mean * (100 if percent else 1):.3f}"
    return f"{value} ({limit}) {'met' if bar.is_met(dataset, found.mean) else '**missed**'}"


# --- the paper's tables ----------------------------------------------------------------------------


def methods(figures):
    """Validity, L0 and L1: our methods, the paper's, and its rivals."""
    parts = ["## Beside the paper",
             prose("Rows of ours are followed by the paper's row for the same. **Bold**: ours is at least as good, at "
                   "the two places that the paper prints. The paper's rivals are at the foot.")]
    for title, name, metric in [("Validity, %", "validity", VALIDITY), ("L0", "l0", L0), ("L1", "l1", L1)]:
        ask = {name: {"dataset": name} for name in PAPER}
        parts += [f"### {title}", comparison(figures, published.figures(name), metric, PAPER, ask)]
    return "\n\n".join(parts)


def comparison(figures, theirs, metric, titles, ask):
    """A table with methods as rows. `titles` are the columns, `ask` which figures of ours belong there."""
    rows, marks = [], []
    for same, ours in METHODS.items():
        for title, variant, evaluation in ours:
            spreads = {key: figures.spread(metric.column, variant=variant, evaluation=evaluation, **ask[key])
                       for key in titles}
            good = {key: is_as_good(spread, theirs[same].get(key), metric) for key, spread in spreads.items()}
            texts = {key: shown(spread, metric) for key, spread in spreads.items()}
            rows.append([title, *[f"**{texts[key]}**" if good[key] else texts[key] for key in titles]])
            marks += [mark for mark in good.values() if mark is not None]
        rows.append([f"– paper: {same}", *[printed(theirs[same].get(key)) for key in titles]])
    rows += yardsticks(figures, titles, ask) if metric is MMD else []
    rows += [[f"paper: {name}", *[printed(theirs[name].get(key)) for key in titles]] for name in published.RIVALS]
    count = f"At least as good as the paper's: {sum(marks)} of {len(marks)} cells."
    return f"{table(['', *titles.values()], rows)}\n\n{count}"


def yardsticks(figures, titles, ask):
    """Rows of MMD² measured with the same encoders as our generator."""
    rows = []
    for title, column in YARDSTICKS:
        spreads = [figures.spread(column, variant="ae", evaluation="plain", **ask[key]) for key in titles]
        rows.append([title, *[shown(spread, MMD) for spread in spreads]])
    return rows


def mmd(figures):
    parts = ["## Likeness to the wanted class: MMD²",
             prose("Times ten, as in the paper. Its encoders, and how much of the reference it used, are not known, "
                   "and single encoders differ widely; so absolute figures compare badly, and the yardsticks say more: "
                   "the same measure for the explained rows left as they are, and for other rows of the class.")]
    for label in [0, 1]:
        ask = {name: {"dataset": name, "label": label} for name in PAPER}
        theirs = published.figures(f"mmd2_class{label}_x10")
        parts += [f"### Class {label}", comparison(figures, theirs, MMD, PAPER, ask)]
    titles = {label: str(label) for label in range(7)}
    ask = {label: {"dataset": "covertype", "label": label} for label in titles}
    parts += ["### Covertype, all classes", comparison(figures, published.covertype(), MMD, titles, ask)]
    return "\n\n".join([*parts, ratios(figures)])


def ratios(figures):
    ask, rows = {name: {"dataset": name} for name in PAPER}, []
    for title, variant, evaluation in [method for ours in METHODS.values() for method in ours]:
        spreads = [figures.spread("ratio", variant=variant, evaluation=evaluation, **wanted) for wanted in ask.values()]
        rows.append([title, *[shown(spread, RATIO) for spread in spreads]])
    rows += [[f"{title}: MMD² times ten", *cells] for title, *cells in yardsticks(figures, PAPER, ask)]
    return "\n\n".join(["### As a ratio to the rows left as they are",
                        prose("Same encoders, mean over classes; below 1 is nearer to the wanted class than before. "
                              "The last two rows are the yardsticks themselves."),
                        table(["", *PAPER.values()], rows)])


# --- in detail -------------------------------------------------------------------------------------


def by_classifier(figures):
    return "\n\n".join(["## By classifier", "Means over seeds: validity in %, L0, L1, MMD² ÷ rows left as they are.",
                        detail(figures, PAPER, DETAILS)])


def untouched(figures):
    titles = " and ".join(f"{title} (`{name}`)" for name, title in UNTOUCHED.items())
    without_l0 = {title: metric for title, metric in DETAILS.items() if metric is not L0}
    return "\n\n".join(["## Two tables that nobody tuned on",
                        prose(f"{titles}, made from what scikit-learn ships; classifiers and `overturn` with their "
                              "defaults. All features are numeric, so there is no L0."),
                        detail(figures, UNTOUCHED, without_l0)])


def detail(figures, datasets, metrics):
    """A row for each data set and classifier; `metrics` are the figures of each method."""
    rows = []
    for dataset, title in datasets.items():
        for model, name in [*MODELS.items(), (None, "mean")]:
            wanted = {"dataset": dataset} | ({"model": model} if model else {})
            cells = [mean_of(figures.spread(metric.column, variant=variant, evaluation=evaluation, **wanted), metric)
                     for _, variant, evaluation in SHORT for metric in metrics.values()]
            rows.append([f"{title}, {name}", *cells])
    heading = [f"{title}: {column}" if place == 0 else column
               for title, *_ in SHORT for place, column in enumerate(metrics)]
    return table(["", *heading], rows)


def times(figures):
    threads = sorted({row["threads"] for row in figures.totals})
    note = ("Means per cell. Seconds and CPU seconds of training are for all of it, the autoencoder included; those of "
            "explaining for up to 1,000 rows with reports and MMD².")
    if threads:
        note += f" Threads of a cell: {' or '.join(map(str, threads))}. {whole_time(figures)}"
    rows = []
    for variant in VARIANTS:
        for dataset, title in DATASETS.items():
            cells = time_cells(figures, variant, dataset)
            rows += [[f"`{variant}`, {title}", *cells]] if cells else []
    heading = ["", "cells", "steps", "training s", "CPU s", "explaining s", "CPU s", "refined s", "CPU s",
               "refined: queries a row"]
    return "\n\n".join(["## Time", prose(note), table(heading, rows)])


def whole_time(figures):
    """Processor time of all of it: training once for each cell."""
    training = {results.cell_of(row): row["train_cpu_seconds"] or 0 for row in figures.totals}
    seconds = sum(training.values()) + sum(row["cpu_seconds"] for row in figures.totals)
    return f"All cells together: {seconds / 3600:.1f} CPU hours."


def time_cells(figures, variant, dataset):
    """The plain evaluation, or the only one, stands for explaining."""
    wanted = {"variant": variant, "dataset": dataset}
    first = next(iter(EVALUATIONS[variant]))
    count = len(figures.where(evaluation=first, **wanted))
    if count == 0:
        return []
    training = [mean(figures, first, name, wanted) for name in ["steps", "train_seconds", "train_cpu_seconds"]]
    explaining = [mean(figures, first, name, wanted) for name in ["seconds", "cpu_seconds"]]
    refined = [mean(figures, "refined", name, wanted) for name in ["seconds", "cpu_seconds", "queries"]]
    return [str(count), whole(training[0]), *[number(value, 1) for value in [*training[1:], *explaining, *refined]]]


def mean(figures, evaluation, column, wanted):
    spread = figures.spread(column, evaluation=evaluation, **wanted)
    return spread.mean if spread else None


def accuracies(figures):
    theirs, rows = published.accuracies(), []
    for model, name in MODELS.items():
        ours = []
        for dataset in DATASETS:
            found = [figures.spread(f"{part}_accuracy", dataset=dataset, model=model) for part in ["train", "test"]]
            ours.append(" / ".join(f"{100 * spread.mean:.1f}" for spread in found) if all(found) else "–")
        rows += [[name, *ours], ["– paper", *[theirs[model].get(dataset, "–") for dataset in DATASETS]]]
    note = ("On training and test rows, %. The paper's columns for Covertype and Spambase appear to be exchanged: each "
            "has what the other's data give.")
    return "\n\n".join(["## Accuracy of the classifiers", prose(note), table(["", *DATASETS.values()], rows)])
