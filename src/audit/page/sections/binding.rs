//! Part of 6: which rule, if it were lifted, would help those that are not helped.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::Bar;
use super::super::data::BindingRow;
use super::super::plate::Plate;
use super::super::words::{clipped, count, name, share};
use super::{MOST_LINES, MOST_ROWS, SectionInput, interval, more_note};

/// Targets that have a chart, at most.
const MOST_TARGETS: usize = 4;

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    let targets = source.data.targets().into_iter().take(MOST_TARGETS).enumerate();
    let charts: Vec<Chart> =
        targets.filter_map(|(index, target)| binding(source, target, index)).collect();
    if charts.is_empty() {
        return Vec::new();
    }
    let text = "A sample of rows that are not helped was searched again with one rule lifted at a time. Rules that help \
                nobody when they are lifted do not bind.";
    vec![
        Block::Heading("Which rule binds".to_string()),
        Block::Text(text.to_string()),
        Block::Charts(charts),
    ]
}

/// A constraint in words.
fn label(row: &BindingRow) -> String {
    let rule = match row.constraint.as_str() {
        "none" => return "no rule lifted, searched again".to_string(),
        "never" => "may never change",
        "direction" => "direction",
        "range" => "range",
        "limit" => "limit of the change",
        "allowed" => "allowed values",
        "row_bound" => "bound of the row itself",
        other => other,
    };
    match &row.feature {
        Some(feature) => format!("{}: {rule}", clipped(feature, 30)),
        None => rule.to_string(),
    }
}

fn binding(source: &SectionInput<'_>, target: &str, index: usize) -> Option<Chart> {
    let all = source.data.asked.binding.iter();
    let all = all.filter(|row| row.whose.target == target && row.whose.attribute.is_none());
    let mut rows: Vec<&BindingRow> = all.filter(|row| row.share.is_some()).collect();
    let value = |row: &BindingRow| row.share.map_or(0.0, |of| of.value);
    rows.sort_by(|left, right| value(right).total_cmp(&value(left)));
    let bar = |row: &&BindingRow| Bar {
        label: label(row),
        value: value(row),
        shown: share(value(row)),
        beside: None,
    };
    let list: Vec<Bar> = rows.iter().take(MOST_LINES).map(bar).collect();
    let title = format!("Helped to {} if a rule is lifted", name(Some(target)));
    let columns = [
        "Rule",
        "What it says",
        "#Rows searched again (n)",
        "#Helped (95 % interval)",
        "#By this rule alone",
    ];
    let mut grid = GridBlock::new(title.as_str(), &columns);
    for row in rows.iter().take(MOST_ROWS) {
        grid.row([
            label(row),
            clipped(&row.detail, 80),
            count(row.rows),
            interval(row.share),
            count(row.only_this),
        ]);
    }
    let n = rows.first().map_or(0, |row| row.rows);
    let plate = Plate {
        id: format!("figure-6-binding-{}", index + 1),
        title,
        reading: format!("n = {} rows of a sample that are not helped.", count(n)),
        note: more_note(rows.len().saturating_sub(MOST_LINES), "rules", "binding"),
        grid,
    };
    plate.bars(&list, Some(1.0))
}
