//! Part of 4: whether differences are the search's, and whether a protected feature decides by itself. Part of 9:
//! whether counterfactuals stay valid under small errors.

use super::super::blocks::{Block, GridBlock};
use super::super::data::{ExplicitRow, RobustnessRow, SecondSearchRow};
use super::super::words::{clipped, count, dash, maybe_share, name};
use super::metric::metric;
use super::{MOST_LINES, MOST_ROWS, SectionInput, group_of, interval, more_note};

/// Differences searched again.
pub(super) fn second_search(source: &SectionInput<'_>) -> Vec<Block> {
    let with_verdict = source.data.asked.second_search.iter().filter(|row| row.verdict.is_some());
    let mut rows: Vec<&SecondSearchRow> = with_verdict.collect();
    if rows.is_empty() {
        return Vec::new();
    }
    rows.sort_by_key(|row| row.verdict.as_deref() != Some("inconclusive"));
    let columns =
        ["Group", "Metric", "#Rows (n)", "#Difference", "#After a longer search", "Verdict"];
    let mut grid = GridBlock::new("Differences after a longer search", &columns);
    for row in rows.iter().take(MOST_LINES) {
        let metric = metric(&row.metric);
        let difference = |value: Option<f64>| value.map_or_else(dash, |of| metric.difference(of));
        grid.row([
            group_of(&row.whose),
            metric.title.to_string(),
            count(row.rows),
            difference(row.gap),
            difference(row.gap_again),
            row.verdict.clone().unwrap_or_default(),
        ]);
    }
    grid.more = more_note(rows.len().saturating_sub(MOST_LINES), "rows", "second_search");
    let text = "Costs come from a search, so a difference may be the search's and not the model's. A sample of each \
                group was searched again with four times the questions. Where the difference moved by more than the \
                tolerance, it is inconclusive.";
    vec![
        Block::Heading("Are the differences the search's?".to_string()),
        Block::Text(text.to_string()),
        Block::Grid(grid),
    ]
}

/// Protected features set to their other values.
pub(super) fn explicit(source: &SectionInput<'_>) -> Vec<Block> {
    let all = source.data.asked.explicit.iter();
    let rows: Vec<&ExplicitRow> = all.filter(|row| row.whose.attribute.is_none()).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let columns = [
        "Feature",
        "Target",
        "#Rows (n)",
        "#Copies decided otherwise",
        "#Rows with such a copy (95 % interval)",
    ];
    let mut grid = GridBlock::new("Protected features set to their other values", &columns);
    for row in rows.iter().take(MOST_ROWS) {
        grid.row([
            clipped(&row.feature, 60),
            name(Some(&row.whose.target)),
            count(row.rows),
            maybe_share(row.share),
            interval(row.rows_share),
        ]);
    }
    let text = "Does a protected feature decide by itself? In a sample of rows it was set to its other values, with all \
                else as it is. A model that does not see the feature cannot flip here, and may differ between groups \
                all the same.";
    vec![
        Block::Heading("Protected features that the model sees".to_string()),
        Block::Text(text.to_string()),
        Block::Grid(grid),
    ]
}

/// Counterfactuals with noise.
pub(super) fn robustness(source: &SectionInput<'_>) -> Option<GridBlock> {
    let mut rows: Vec<&RobustnessRow> =
        source.data.asked.robustness.iter().filter(|row| row.validity.is_some()).collect();
    let value = |row: &RobustnessRow| row.validity.unwrap_or(1.0);
    rows.sort_by(|left, right| {
        let everybody = right.whose.attribute.is_none().cmp(&left.whose.attribute.is_none());
        everybody.then(value(left).total_cmp(&value(right)))
    });
    let copies = rows.first()?.copies;
    let columns = [
        "Group",
        "Target",
        "#Counterfactuals (n)",
        "#Noisy copies that hold",
        "#Counterfactuals with one that does not",
    ];
    let title = format!(
        "Counterfactuals under small errors, {copies} noisy copies of each: all, then the weakest groups"
    );
    let mut grid = GridBlock::new(title, &columns);
    for row in rows.iter().take(MOST_LINES) {
        grid.row([
            group_of(&row.whose),
            name(Some(&row.whose.target)),
            count(row.rows),
            maybe_share(row.validity),
            count(row.broken),
        ]);
    }
    grid.more = more_note(rows.len().saturating_sub(MOST_LINES), "groups", "robustness");
    Some(grid)
}
