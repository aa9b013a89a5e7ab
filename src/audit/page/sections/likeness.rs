//! 9: how valid counterfactuals are, and how like the rows that the model decides that way.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::Bar;
use super::super::data::MmdFigures;
use super::super::plate::Plate;
use super::super::words::{clipped, count, maybe_number, name, number};
use super::{SectionInput, doubts, interval};

/// Targets that are told, at most.
const MOST_TARGETS: usize = 12;

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    let data = source.data;
    if data.likeness.is_empty() {
        return vec![Block::Text("The run has no reports of validity.".to_string())];
    }
    let text = "Valid counterfactuals were put to the model, which gave them the target. Plausibility is the share of real rows \
                that are at least as unusual as the answer: 0.5 is as usual as real rows, near 0 is unlike any. MMD² \
                compares answers as a whole with rows of the target class; held-out rows of the class show how small \
                it can be, rows left as they are how large.";
    let mut blocks = vec![Block::Text(text.to_string()), Block::Grid(quality(source))];
    let charts: Vec<Chart> = data
        .mmd
        .iter()
        .filter(|row| row.target.is_some())
        .take(MOST_TARGETS / 3)
        .enumerate()
        .filter_map(|(index, row)| likeness(row, index))
        .collect();
    if !charts.is_empty() {
        blocks.push(Block::Charts(charts));
    }
    blocks.extend(doubts::robustness(source).map(Block::Grid));
    if !data.robust.is_empty() {
        let text = "Counterfactuals that last must hold when the model is replaced. The models beside it were asked about every \
                    counterfactual that it accepts; one is robust if enough of them give it the target too. What that \
                    costs is told against the cheapest counterfactual that was seen for the same row and holds under too few: \
                    at least so much.";
        blocks.push(Block::Text(text.to_string()));
        blocks.push(Block::Grid(robust(source)));
    }
    if !data.survival.is_empty() {
        blocks.push(Block::Grid(survival(source)));
    }
    blocks
}

fn quality(source: &SectionInput<'_>) -> GridBlock {
    let columns = [
        "Target",
        "#Counterfactuals needed (n)",
        "#Valid (95 % interval)",
        "#Mean features changed",
        "#Median plausibility",
        "#5 % plausibility",
    ];
    let mut grid = GridBlock::new("Counterfactuals by target, over all samples", &columns);
    for row in source.data.likeness.iter().take(MOST_TARGETS) {
        grid.row([
            row.target.as_deref().map_or("all".to_string(), |target| name(Some(target))),
            count(row.rows),
            interval(row.validity),
            maybe_number(row.n_changed),
            maybe_number(row.plausibility),
            maybe_number(row.plausibility_low),
        ]);
    }
    grid
}

fn likeness(row: &MmdFigures, index: usize) -> Option<Chart> {
    let lines = [
        ("Held-out rows of the class: the floor", row.held_out),
        ("Valid counterfactuals", Some(row.mmd2)),
        ("Rows left as they are", row.unchanged),
    ];
    let bar = |(label, value): (&str, Option<f64>)| {
        // An unbiased estimate of next to nothing may be below zero.
        Some(Bar {
            label: label.to_string(),
            value: value?.max(0.0),
            shown: number(value?),
            beside: None,
        })
    };
    let list: Vec<Bar> = lines.into_iter().filter_map(bar).collect();
    let title = format!("Distance from rows of class {} (MMD²)", name(row.target.as_deref()));
    let mut grid = GridBlock::new(title.as_str(), &["Rows", "#MMD²"]);
    list.iter().for_each(|bar| grid.row([bar.label.clone(), bar.shown.clone()]));
    let ratio = row.ratio.map_or(String::new(), |ratio| {
        format!(
            " Counterfactuals are at {} times the distance of rows left as they are.",
            number(ratio)
        )
    });
    let reading = format!(
        "n = {} valid counterfactuals; no unit, smaller is more alike.{ratio}",
        count(row.rows)
    );
    let id = format!("figure-9-{}", index + 1);
    Plate { id, title, reading, note: String::new(), grid }.bars(&list, None)
}

fn robust(source: &SectionInput<'_>) -> GridBlock {
    let columns = [
        "Target",
        "#Valid counterfactuals (n)",
        "#Must hold under",
        "#Do so (95 % interval)",
        "#Models, on average",
        "#Mean cost of those that do",
        "#Of that, for being robust",
    ];
    let mut grid =
        GridBlock::new("Counterfactuals under the models beside the predictor", &columns);
    for row in source.data.robust.iter().take(MOST_TARGETS) {
        grid.row([
            row.target.as_deref().map_or("all".to_string(), |target| name(Some(target))),
            count(row.rows),
            format!("{} of {}", count(row.needed), count(row.models)),
            interval(row.share),
            maybe_number(row.models_mean),
            maybe_number(row.cost),
            maybe_number(row.robustness_cost),
        ]);
    }
    grid
}

fn survival(source: &SectionInput<'_>) -> GridBlock {
    let columns = ["Model", "#Valid counterfactuals (n)", "#Still valid (95 % interval)"];
    let mut grid = GridBlock::new("Counterfactuals under other trainings of the model", &columns);
    for row in source.data.survival.iter().take(MOST_TARGETS) {
        let model = row.model.as_deref().map_or("mean of all".to_string(), |of| clipped(of, 60));
        grid.row([model, count(row.rows), interval(row.survival)]);
    }
    grid
}
