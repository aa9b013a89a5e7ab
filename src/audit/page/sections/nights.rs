//! 8: what became of the previous run's counterfactuals, and figures over the runs before.

use super::super::blocks::{Block, Callout, Chart, GridBlock, Tone};
use super::super::charts::{ChartInterval, Intervals, Mark, Night};
use super::super::context::PastRun;
use super::super::data::StabilityRow;
use super::super::plate::Plate;
use super::super::words::{count, counted, dash, maybe_share, name, number, range, share};
use super::{MOST_LINES, SectionInput, group_of, interval, more_note};

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    let over_time = over_time(&source.context.past);
    let mut blocks = Vec::new();
    if source.data.stability.is_empty() {
        let text = "No earlier run was compared (audit.previous is not set), so nothing is said about whether counterfactuals \
                    last.";
        blocks.push(Block::Text(text.to_string()));
    } else {
        let text = "People may act on yesterday's counterfactual. Each was put to tonight's model again: does it still lead to \
                    the target? Causes are told apart: the person's row changed, the model did, or the configuration. \
                    A needless change is another answer although yesterday's still holds and costs no more; a broken \
                    promise is a row that did what was asked and is refused all the same.";
        blocks.push(Block::Text(text.to_string()));
        blocks.push(Block::Grid(causes(source)));
        blocks.extend(groups(source).map(|chart| Block::Charts(vec![chart])));
    }
    if !over_time.is_empty() {
        blocks.push(Block::Heading("Over the runs that are known".to_string()));
        let end = source.context.past_end.as_deref();
        blocks.extend(end.map(|why| Block::Text(format!("Earlier runs are not told: {why}."))));
        blocks.push(Block::Charts(over_time));
    }
    blocks
}

/// Rows of everybody, all causes or one of them.
fn everybody<'a>(source: &SectionInput<'a>) -> impl Iterator<Item = &'a StabilityRow> {
    source.data.stability.iter().filter(|row| row.whose.attribute.is_none())
}

fn causes(source: &SectionInput<'_>) -> GridBlock {
    let columns = [
        "What changed",
        "Target",
        "#Rows of both runs",
        "#Other decision (95 % interval)",
        "#Counterfactuals that still hold (95 % interval)",
        "#Needless changes (95 % interval)",
        "#Counterfactual churn",
        "#Broken promises",
        "#Cost drift (95 % interval)",
    ];
    let mut grid = GridBlock::new("Since the previous run, by cause", &columns);
    for row in everybody(source).take(2 * MOST_LINES) {
        let of = row.shares;
        let drift = row.cost_drift.map_or_else(dash, |of| {
            format!("{} ({})", number(of.value), range(of.low, of.high, number))
        });
        grid.row([
            row.cause.as_deref().map_or("all causes", cause).to_string(),
            name(Some(&row.whose.target)),
            count(row.rows),
            interval(of.decision_churn),
            interval(of.recourse_validity),
            interval(of.needless_churn),
            maybe_share(of.answer_churn),
            count(row.broken_promises),
            drift,
        ]);
    }
    grid.more = "Figures of causes with too few rows are suppressed (–).".to_string();
    grid
}

fn cause(cause: &str) -> &str {
    match cause {
        "none" => "nothing",
        other => other,
    }
}

/// Groups whose counterfactuals hold least.
fn groups(source: &SectionInput<'_>) -> Option<Chart> {
    let all = source.data.stability.iter();
    let all = all.filter(|row| row.whose.attribute.is_some() && row.cause.is_none());
    let with_validity = all.clone().filter(|row| row.shares.recourse_validity.is_some());
    let mut rows: Vec<&StabilityRow> = with_validity.collect();
    let value = |row: &StabilityRow| row.shares.recourse_validity.map_or(0.0, |of| of.value);
    rows.sort_by(|left, right| value(left).total_cmp(&value(right)));
    let line = |row: &&StabilityRow| {
        let found = row.shares.recourse_validity?;
        Some(ChartInterval {
            label: format!("{} (n {})", group_of(&row.whose), count(row.asked)),
            shown: share(found.value),
            point: Some(found.value),
            low: found.low,
            high: found.high,
            mark: Mark::Plain,
        })
    };
    let list: Vec<ChartInterval> = rows.iter().take(MOST_LINES).filter_map(line).collect();
    let title = "Previous counterfactuals that still hold, by group".to_string();
    let columns =
        ["Group", "#Counterfactuals tried (n)", "#Still hold (95 % interval)", "#In both runs"];
    let mut grid = GridBlock::new(title.as_str(), &columns);
    for row in rows.iter().take(MOST_LINES) {
        let held = interval(row.shares.recourse_validity);
        grid.row([group_of(&row.whose), count(row.asked), held, count(row.paired)]);
    }
    let suppressed = all.filter(|row| row.suppressed).count();
    let note = more_note(rows.len().saturating_sub(MOST_LINES), "groups", "stability");
    let small = match suppressed {
        0 => String::new(),
        some => format!(" Suppressed as too small: {}.", counted(some as u64, "group")),
    };
    let plate = Plate {
        id: "figure-8-1".to_string(),
        title,
        reading: "Those that hold least first; n is the number of counterfactuals tried again."
            .to_string(),
        note: format!("{note}{small}").trim().to_string(),
        grid,
    };
    plate.intervals(&Intervals {
        list: &list,
        zone: None,
        always: (0.0, 1.0),
        unit: "share of the previous counterfactuals",
        show: |value| format!("{:.0} %", 100.0 * value),
    })
}

/// A small chart for each figure that at least two runs have.
fn over_time(past: &[PastRun]) -> Vec<Chart> {
    type Figure = fn(&PastRun) -> Option<f64>;
    let figures: [(&str, &str, &str, Figure); 6] = [
        ("refused", "Refused", "share of the explained rows", |run| run.refused),
        ("helped", "Helped", "share of the refused rows", |run| run.helped),
        ("shut-out", "Proven beyond help", "share of the refused rows", |run| run.shut_out),
        (
            "held",
            "Counterfactuals of the run before that held",
            "share of those tried again",
            |run| run.held,
        ),
        ("robust", "Robust counterfactuals", "share of the valid counterfactuals", |run| {
            run.robust
        }),
        ("gap", "Widest gap between groups", "difference of shares helped", |run| run.gap),
    ];
    let chart = |(id, title, meaning, figure): (&str, &str, &str, Figure)| {
        let night = |run: &PastRun| Night { label: run.label.clone(), value: figure(run) };
        let list: Vec<Night> = past.iter().map(night).collect();
        let mut grid = GridBlock::new(title, &["Run", &format!("#{meaning}"), "#n"]);
        for run in past {
            grid.row([run.label.clone(), maybe_share(figure(run)), count(run.rows)]);
        }
        let plate = Plate {
            id: format!("figure-8-{id}"),
            title: title.to_string(),
            reading: format!("{}, oldest run first.", capitalised(meaning)),
            note: String::new(),
            grid,
        };
        plate.nights(&list, share)
    };
    figures.into_iter().filter_map(chart).collect()
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// What changed, for the verdict.
pub(super) fn finding(source: &SectionInput<'_>) -> Callout {
    let all: Vec<&StabilityRow> = everybody(source).filter(|row| row.cause.is_none()).collect();
    let Some(row) = all.iter().max_by_key(|row| row.rows) else {
        return Callout {
            tone: Tone::Plain,
            title: "Since the last run: not compared".to_string(),
            text: "No earlier run is named (audit.previous).".to_string(),
        };
    };
    let of = row.shares;
    let held = of.recourse_validity.map_or(
        "Too few counterfactuals were tried again to say how many hold.".to_string(),
        |of| {
            format!(
                "{} of yesterday's counterfactuals still hold (n {}, 95 % interval {}).",
                share(of.value),
                count(row.asked),
                range(of.low, of.high, share)
            )
        },
    );
    let flips = of.decision_churn.map_or(String::new(), |of| {
        format!(" The decision is another for {} of {}.", share(of.value), counted(row.rows, "row"))
    });
    let broken = match row.broken_promises {
        0 => " No row that did what was asked is refused.".to_string(),
        some => format!(" Refused although they did what was asked: {}.", counted(some, "row")),
    };
    let title = match of.recourse_validity {
        Some(of) => format!("Since the last run: {} of counterfactuals hold", share(of.value)),
        None => "Since the last run".to_string(),
    };
    let tone = if row.broken_promises > 0 { Tone::Open } else { Tone::Plain };
    Callout { tone, title, text: format!("{held}{flips}{broken}") }
}
