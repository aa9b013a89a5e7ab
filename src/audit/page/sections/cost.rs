//! 3: which share of each group is helped within which cost.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::{
    ChartInterval, Curve, CurveStep, Intervals, Mark, SERIES_MOST, end_of_axis,
};
use super::super::data::{CurveRow, GroupRow, Whose};
use super::super::plate::Plate;
use super::super::words::{count, dash, maybe_number, maybe_share, name, number, share};
use super::{
    MOST_LINES, MOST_ROWS, SectionInput, group_label, groups_of, interval, more_note, panel_title,
    panels, sentences, suppressed_note,
};

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    if source.data.groups.is_empty() {
        let text = "The run has no table of groups (audit.sections leaves out “groups”).";
        return vec![Block::Text(text.to_string())];
    }
    let text = "The cost of a change is what the search counted: how far numbers move relative to their spread, and \
                how many features change. It is a yardstick for comparing groups, not a price in money or effort. \
                Curves rise where more of a group's refused rows are helped within a cost; a curve further left and \
                higher means cheaper help for more people.";
    let mut blocks = vec![Block::Text(text.to_string()), Block::Grid(overall(source))];
    let (panels, note) = panels(source, "groups");
    for (index, panel) in panels.into_iter().enumerate() {
        let charts = [curve_chart(source, panel, index), rate_chart(source, panel, index)];
        blocks.push(Block::Heading(format!("By {}", panel_title(source, panel))));
        blocks.push(Block::Charts(charts.into_iter().flatten().collect()));
    }
    blocks.extend(note);
    blocks
}

fn overall(source: &SectionInput<'_>) -> GridBlock {
    let columns =
        ["Target", "#Rows", "#Refused", "#Helped, of refused", "#Mean cost", "#Median cost"];
    let mut grid = GridBlock::new("All rows, by target", &columns);
    let targets = source.data.targets();
    for target in targets.iter().take(MOST_ROWS) {
        let Some(row) = source.data.everybody(target) else { continue };
        grid.row([
            name(Some(target)),
            count(row.rows),
            count(row.needed),
            interval(row.recourse),
            maybe_number(row.costs.mean),
            median_cost(row),
        ]);
    }
    grid.more = more_note(targets.len().saturating_sub(MOST_ROWS), "targets", "groups");
    grid
}

/// The median over refused rows: there is none where fewer than half of them are helped.
pub(super) fn median_cost(row: &GroupRow) -> String {
    match row.costs.p50 {
        Some(cost) => number(cost),
        None if row.needed == 0 => dash(),
        None => "not reached".to_string(),
    }
}

/// Steps of a group's curve.
fn steps(source: &SectionInput<'_>, whose: &Whose) -> Vec<CurveStep> {
    let rows = source.data.curves.iter().filter(|row| row.whose == *whose);
    let step = |row: &CurveRow| CurveStep {
        cost: row.budget,
        share: row.share.value,
        low: row.share.low,
        high: row.share.high,
    };
    rows.map(step).collect()
}

/// Groups for a chart of a few lines: the reference, those that are helped least, the one that is helped most.
fn chosen<'a>(groups: &[&'a GroupRow], most: usize) -> Vec<&'a GroupRow> {
    let rate = |row: &GroupRow| row.recourse.map_or(0.0, |found| found.value);
    let mut others: Vec<&GroupRow> = groups.iter().copied().filter(|row| !row.reference).collect();
    others.sort_by(|left, right| rate(left).total_cmp(&rate(right)));
    let mut chosen: Vec<&GroupRow> = groups.iter().copied().filter(|row| row.reference).collect();
    if others.len() + chosen.len() > most {
        let best = others.pop();
        others.truncate(most.saturating_sub(chosen.len() + 1));
        others.extend(best);
    }
    chosen.extend(others);
    chosen
}

fn curve_chart(source: &SectionInput<'_>, panel: (&str, &str), index: usize) -> Option<Chart> {
    let (groups, suppressed) = groups_of(source, panel);
    let chosen = chosen(&groups, SERIES_MOST);
    let curve = |row: &&GroupRow| {
        let steps = steps(source, &row.whose);
        let reference = if row.reference { ", reference" } else { "" };
        let label = format!("{}{reference}", group_label(row.whose.value.as_deref(), row.needed));
        let end = format!("{} in the end", share(steps.last()?.share));
        Some(Curve { label, end, steps })
    };
    let list: Vec<Curve> = chosen.iter().filter_map(curve).collect();
    let title = "Helped within a cost".to_string();
    let costs = list.iter().flat_map(|curve| &curve.steps).map(|step| step.cost);
    let (most, end) = (costs.fold(0.0, f64::max), end_of_axis(&list));
    let cut = if most > end {
        format!(" The few counterfactuals of costs up to {} are in the data below.", number(most))
    } else {
        String::new()
    };
    let plate = Plate {
        id: format!("figure-3-{}", index + 1),
        reading: format!("Of the refused rows (n). Bands are 95 % intervals.{cut}"),
        note: sentences(&[
            more_note(groups.len() - chosen.len(), "groups", "curves"),
            suppressed_note(source, suppressed),
        ]),
        grid: curve_grid(&title, &list),
        title,
    };
    plate.curves(&list, "cost of the change")
}

fn curve_grid(title: &str, list: &[Curve]) -> GridBlock {
    let mut columns = vec!["#Cost".to_string()];
    columns.extend(list.iter().map(|curve| format!("#{}", curve.label)));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut grid = GridBlock::new(title, &columns);
    let mut costs: Vec<f64> =
        list.iter().flat_map(|curve| &curve.steps).map(|step| step.cost).collect();
    costs.sort_by(f64::total_cmp);
    costs.dedup();
    for cost in costs {
        let at = |curve: &Curve| {
            let step = curve.steps.iter().rfind(|step| step.cost <= cost);
            maybe_share(step.map(|step| step.share))
        };
        grid.row([number(cost)].into_iter().chain(list.iter().map(at)));
    }
    grid
}

fn rate_chart(source: &SectionInput<'_>, panel: (&str, &str), index: usize) -> Option<Chart> {
    let (mut groups, suppressed) = groups_of(source, panel);
    groups.retain(|row| row.recourse.is_some());
    let rate = |row: &GroupRow| row.recourse.map_or(0.0, |found| found.value);
    groups.sort_by(|left, right| rate(left).total_cmp(&rate(right)));
    let interval = |row: &&GroupRow| {
        let found = row.recourse?;
        Some(ChartInterval {
            label: group_label(row.whose.value.as_deref(), row.needed),
            shown: share(found.value),
            point: Some(found.value),
            low: found.low,
            high: found.high,
            mark: Mark::Plain,
        })
    };
    let list: Vec<ChartInterval> = groups.iter().take(MOST_LINES).filter_map(interval).collect();
    let title = "Helped at any cost".to_string();
    let plate = Plate {
        id: format!("figure-3-{}-rate", index + 1),
        reading: "Of the refused rows (n), least helped first, with 95 % intervals.".to_string(),
        note: sentences(&[
            more_note(groups.len() - list.len(), "groups", "groups"),
            suppressed_note(source, suppressed),
        ]),
        grid: group_grid(&title, &groups),
        title,
    };
    plate.intervals(&Intervals {
        list: &list,
        zone: None,
        always: (0.0, 1.0),
        unit: "share of the refused rows",
        show: |value| format!("{:.0} %", 100.0 * value),
    })
}

fn group_grid(title: &str, groups: &[&GroupRow]) -> GridBlock {
    let columns = [
        "Group",
        "#Rows",
        "#Refused",
        "#Refused, of rows (95 % interval)",
        "#Helped",
        "#Helped, of refused (95 % interval)",
        "#Shut out",
        "#Open",
        "#Mean cost",
        "#Features changed",
        "#Effort",
        "#Median cost",
    ];
    let mut grid = GridBlock::new(title, &columns);
    for row in groups.iter().take(MOST_ROWS) {
        let reference = if row.reference { ", reference" } else { "" };
        grid.row([
            format!("{}{reference}", name(row.whose.value.as_deref())),
            count(row.rows),
            count(row.needed),
            interval(row.refusal),
            count(row.valid),
            interval(row.recourse),
            count(row.infeasible),
            count(row.unsolved),
            maybe_number(row.costs.mean),
            maybe_number(row.costs.n_changed),
            maybe_number(row.costs.effort),
            median_cost(row),
        ]);
    }
    grid.more = more_note(groups.len().saturating_sub(MOST_ROWS), "groups", "groups");
    grid
}
