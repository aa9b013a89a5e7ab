//! 2: from the rows read to those that are helped, without a row lost.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::{BarKind, WaterfallBar};
use super::super::plate::Plate;
use super::super::words::{clipped, count, share};
use super::SectionInput;
use crate::metrics::Status;

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    let accounts = &source.context.accounts;
    let rows_and_targets: u64 = accounts.statuses.values().sum();
    let mut rows = vec![
        stage("Rows read", accounts.read, BarKind::Total),
        stage("Out of scope (input.where)", accounts.out_of_scope, BarKind::Gone),
        stage("Set aside as unusable", accounts.rejected(), BarKind::Gone),
        stage("Explained", accounts.explained(), BarKind::Total),
    ];
    let several = rows_and_targets != accounts.explained();
    let decided = vec![
        stage("Decided as the target already", accounts.of(Status::AlreadyTarget), BarKind::Gone),
        stage("Refused: another decision is needed", needed(source), BarKind::Total),
        stage("Helped: a valid change was found", accounts.of(Status::Solved), BarKind::Helped),
        stage("Open: none was found", accounts.of(Status::Unsolved), BarKind::Open),
        stage(
            "Shut out: proven that there is none",
            accounts.of(Status::Infeasible),
            BarKind::ShutOut,
        ),
    ];
    let mut charts = Vec::new();
    if several {
        charts.extend(chart(("figure-2-1", "Rows"), rows));
        let mut rows_and_targets =
            vec![stage("Rows, once for each of their targets", rows_and_targets, BarKind::Total)];
        rows_and_targets.extend(decided);
        charts.extend(chart(("figure-2-2", "Rows and targets"), rows_and_targets));
    } else {
        rows.extend(decided);
        charts.extend(chart(("figure-2-1", "From rows read to rows helped"), rows));
    }
    let text = "A row is refused when the model does not give it the decision that is asked for (the target). It is \
                helped when a change was found that the rules allow and for which the model gives the target.";
    let mut blocks = vec![Block::Text(text.to_string()), Block::Charts(charts)];
    if !accounts.rejected.is_empty() {
        blocks.push(Block::Grid(rejects(source)));
    }
    blocks
}

/// Rows that need another decision.
fn needed(source: &SectionInput<'_>) -> u64 {
    let accounts = &source.context.accounts;
    [Status::Solved, Status::Unsolved, Status::Infeasible]
        .map(|status| accounts.of(status))
        .iter()
        .sum()
}

fn stage(label: &str, rows: u64, kind: BarKind) -> WaterfallBar {
    let sign = if kind == BarKind::Gone && rows > 0 { "−" } else { "" };
    WaterfallBar { label: label.to_string(), rows, shown: format!("{sign}{}", count(rows)), kind }
}

fn chart((id, title): (&str, &str), mut stages: Vec<WaterfallBar>) -> Option<Chart> {
    let total = stages.first().map_or(0, |stage| stage.rows);
    let mut grid = GridBlock::new(title, &["Step", "#Rows", "#Share of the first line"]);
    for stage in &mut stages {
        let of_all =
            if total == 0 { "–".to_string() } else { share(stage.rows as f64 / total as f64) };
        grid.row([stage.label.clone(), stage.shown.clone(), of_all.clone()]);
        if stage.kind != BarKind::Total && stage.rows > 0 {
            stage.shown = format!("{}  ·  {of_all}", stage.shown);
        }
    }
    let plate = Plate {
        id: id.to_string(),
        title: title.to_string(),
        reading: format!("n = {}. Hatched bars leave the count.", count(total)),
        note: String::new(),
        grid,
    };
    plate.waterfall(&stages)
}

fn rejects(source: &SectionInput<'_>) -> GridBlock {
    let accounts = &source.context.accounts;
    let mut grid =
        GridBlock::new("Rows set aside, by reason", &["Reason", "#Rows", "#Share of rows read"]);
    for (reason, rows) in &accounts.rejected {
        let of_all = *rows as f64 / accounts.read.max(1) as f64;
        grid.row([clipped(reason, 40), count(*rows), share(of_all)]);
    }
    grid.more =
        "Each is in the table “rejects” with its key, the column and what was found.".to_string();
    grid
}
