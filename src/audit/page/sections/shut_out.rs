//! 6: whom no allowed change helps, and where counterfactuals press against a bound.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::{Bar, ChartInterval, Intervals, Mark};
use super::super::data::{BoundRow, GroupRow};
use super::super::plate::Plate;
use super::super::words::{count, name, range, share};
use super::{
    MOST_LINES, MOST_ROWS, SectionInput, binding, group_label, groups_of, more_note, panel_title,
    panels, sentences, suppressed_note,
};

/// Targets that have a chart of bounds, at most.
const MOST_TARGETS: usize = 4;

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    let text = "Two kinds of rows are not helped. Shut out: it is proven that no change which the rules allow leads to \
                the target. Open: none was found, and it is not proven that there is none. The true share of those \
                beyond help lies between the two bounds: only the proven ones, and all that are not helped.";
    let mut blocks = vec![Block::Text(text.to_string())];
    if source.data.groups.is_empty() {
        let text = "By group nothing is told: the run has no table of groups.";
        blocks.push(Block::Text(text.to_string()));
    } else {
        let (panels, note) = panels(source, "groups");
        let charts = panels.into_iter().enumerate();
        let charts = charts.filter_map(|(index, panel)| bounds(source, panel, index)).collect();
        blocks.push(Block::Charts(charts));
        blocks.extend(note);
    }
    let targets = source.data.targets();
    let charts = targets.iter().take(MOST_TARGETS).enumerate();
    let charts: Vec<Chart> =
        charts.filter_map(|(index, target)| at_bound(source, target, index)).collect();
    if !charts.is_empty() {
        let text = "Counterfactuals that sit exactly on a bound say where the rules hold help back, or make it more expensive: with a \
                    wider bound more rows, or cheaper changes, might be possible.";
        blocks.push(Block::Heading("Where counterfactuals press against the rules".to_string()));
        blocks.push(Block::Text(text.to_string()));
        blocks.push(Block::Charts(charts));
    }
    blocks.extend(binding::blocks(source));
    blocks
}

/// Least and most of a group's refused rows that are beyond help.
fn ends(row: &GroupRow) -> (f64, f64) {
    let needed = row.needed.max(1) as f64;
    (row.infeasible as f64 / needed, (row.infeasible + row.unsolved) as f64 / needed)
}

fn bounds(source: &SectionInput<'_>, panel: (&str, &str), index: usize) -> Option<Chart> {
    let (mut groups, suppressed) = groups_of(source, panel);
    groups.retain(|row| row.needed > 0);
    groups.sort_by(|left, right| ends(right).1.total_cmp(&ends(left).1));
    let interval = |row: &&GroupRow| {
        let (low, high) = ends(row);
        ChartInterval {
            label: group_label(row.whose.value.as_deref(), row.needed),
            shown: if high > low { range(low, high, share) } else { share(low) },
            point: None,
            low,
            high,
            mark: Mark::Plain,
        }
    };
    let list: Vec<ChartInterval> = groups.iter().take(MOST_LINES).map(interval).collect();
    let title = format!("Refused rows beyond help, by {}", panel_title(source, panel));
    let columns =
        ["Group", "#Refused", "#Shut out (proven)", "#Open (not found)", "#At least", "#At most"];
    let mut grid = GridBlock::new(title.as_str(), &columns);
    for row in groups.iter().take(MOST_ROWS) {
        let (low, high) = ends(row);
        let [needed, infeasible, open] = [row.needed, row.infeasible, row.unsolved].map(count);
        let value = name(row.whose.value.as_deref());
        grid.row([value, needed, infeasible, open, share(low), share(high)]);
    }
    grid.more = more_note(groups.len().saturating_sub(MOST_ROWS), "groups", "groups");
    let plate = Plate {
        id: format!("figure-6-{}", index + 1),
        title,
        reading:
            "From those proven to all not helped, of the refused rows (n). Counts, not estimates."
                .to_string(),
        note: sentences(&[
            more_note(groups.len() - list.len(), "groups", "groups"),
            suppressed_note(source, suppressed),
        ]),
        grid,
    };
    plate.intervals(&Intervals {
        list: &list,
        zone: None,
        always: (0.0, 0.05),
        unit: "share of the refused rows",
        show: |value| format!("{} %", (1000.0 * value).round() / 10.0),
    })
}

/// What a bound is called.
fn bound_name(bound: &str) -> &str {
    match bound {
        "range_low" => "lowest of its range",
        "range_high" => "highest of its range",
        "limit_low" => "lowest for the row itself",
        "limit_high" => "highest for the row itself",
        "allowed_first" => "first allowed category",
        "allowed_last" => "last allowed category",
        other => other,
    }
}

fn at_bound(source: &SectionInput<'_>, target: &str, index: usize) -> Option<Chart> {
    let all = source.data.bounds.iter();
    let all = all.filter(|row| row.whose.target == target && row.whose.attribute.is_none());
    let enough = |row: &&BoundRow| row.rows > 0 && row.changed >= source.context.min_cell;
    let mut rows: Vec<&BoundRow> = all.filter(enough).filter(|row| row.share.is_some()).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.rows));
    let label = |row: &BoundRow| format!("{}: {}", row.feature, bound_name(&row.bound));
    let bar = |row: &&BoundRow| Bar {
        label: label(row),
        value: row.share.unwrap_or(0.0),
        shown: format!("{} of {}", share(row.share.unwrap_or(0.0)), count(row.changed)),
        beside: None,
    };
    let list: Vec<Bar> = rows.iter().take(MOST_LINES).map(bar).collect();
    let title = format!("Counterfactuals exactly on a bound, target {}", name(Some(target)));
    let columns =
        ["Feature and bound", "#Counterfactuals that change it", "#On the bound", "#Share"];
    let mut grid = GridBlock::new(title.as_str(), &columns);
    for row in rows.iter().take(MOST_ROWS) {
        let cells = [count(row.changed), count(row.rows), share(row.share.unwrap_or(0.0))];
        grid.row([label(row)].into_iter().chain(cells));
    }
    let plate = Plate {
        id: format!("figure-6-bound-{}", index + 1),
        title,
        reading: "Of the valid counterfactuals that change the feature, where enough do."
            .to_string(),
        note: more_note(rows.len().saturating_sub(MOST_LINES), "bounds", "at_bound"),
        grid,
    };
    plate.bars(&list, Some(1.0))
}
