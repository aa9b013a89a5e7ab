//! 5: what changes in the counterfactuals, and which groups have to change what others need not.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::Bar;
use super::super::data::{ChangeRow, IntervalEstimate};
use super::super::plate::Plate;
use super::super::words::{clipped, count, name, points, range, share, signed};
use super::{MOST_LINES, SectionInput, actions, more_note, sentences};

/// Targets that have a chart, at most.
const MOST_TARGETS: usize = 4;
/// Characters of a list of changes in a table.
const SIGNATURE_CHARS: usize = 90;

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    if source.data.changes.is_empty() {
        let text = "The run has no table of changes (audit.sections leaves out “changes”).";
        let mut blocks = vec![Block::Text(text.to_string())];
        blocks.extend(actions::blocks(source));
        return blocks;
    }
    let text = "What the counterfactuals change, by the set of features and their directions. It is what the model reacts to, \
                within the rules of the feature schema: it is not advice, and says nothing about whether a person \
                could do it or should have to.";
    let targets = source.data.targets();
    let charts = targets.iter().take(MOST_TARGETS).enumerate();
    let charts: Vec<Chart> =
        charts.filter_map(|(index, target)| commonest(source, target, index)).collect();
    let mut blocks = vec![Block::Text(text.to_string()), Block::Charts(charts)];
    blocks.extend(differences(source).map(Block::Grid));
    blocks.extend(actions::blocks(source));
    blocks
}

fn signature(row: &ChangeRow) -> String {
    row.signature.clone().unwrap_or_else(|| "all others".to_string())
}

fn commonest(source: &SectionInput<'_>, target: &str, index: usize) -> Option<Chart> {
    let all = source.data.changes.iter();
    let all = all.filter(|row| row.whose.target == target && row.whose.attribute.is_none());
    let rows: Vec<&ChangeRow> = all.filter(|row| row.share.is_some()).collect();
    let n = rows.first()?.valid;
    let named: Vec<&&ChangeRow> = rows.iter().filter(|row| row.signature.is_some()).collect();
    let bar = |row: &&&ChangeRow| Bar {
        label: signature(row),
        value: row.share.unwrap_or(0.0),
        shown: share(row.share.unwrap_or(0.0)),
        beside: None,
    };
    let list: Vec<Bar> = named.iter().take(MOST_LINES).map(bar).collect();
    let title = format!("Commonest changes to become {}", name(Some(target)));
    let mut grid =
        GridBlock::new(title.as_str(), &["Change", "#Rows", "#Share of the valid counterfactuals"]);
    for row in named.iter().take(MOST_LINES) {
        let text = clipped(&signature(row), SIGNATURE_CHARS);
        grid.row([text, count(row.rows), share(row.share.unwrap_or(0.0))]);
    }
    let shown: f64 = list.iter().map(|bar| bar.value).sum();
    let shown = share(shown.min(1.0));
    let plate = Plate {
        id: format!("figure-5-{}", index + 1),
        title,
        reading: format!("n = {} valid counterfactuals, of which these are {shown}.", count(n)),
        note: more_note(named.len().saturating_sub(MOST_LINES), "changes", "changes"),
        grid,
    };
    plate.bars(&list, None)
}

/// Changes that a group has to make more, or less, often than other groups of its attribute.
fn differences(source: &SectionInput<'_>) -> Option<GridBlock> {
    let sure = |row: &&ChangeRow| {
        let apart = |of: IntervalEstimate| of.low > 0.0 || of.high < 0.0;
        !row.suppressed && row.signature.is_some() && row.difference.is_some_and(apart)
    };
    let mut rows: Vec<&ChangeRow> = source.data.changes.iter().filter(sure).collect();
    let size = |row: &ChangeRow| row.difference.map_or(0.0, |of| of.value.abs());
    rows.sort_by(|left, right| size(right).total_cmp(&size(left)));
    if rows.is_empty() {
        return None;
    }
    let columns =
        ["Group", "Change", "#n", "#Share", "#Difference from the rest", "#95 % interval"];
    let mut grid =
        GridBlock::new("Changes that groups make more or less often than the rest", &columns);
    for row in rows.iter().take(MOST_LINES) {
        let Some(difference) = row.difference else { continue };
        let attribute = row.whose.attribute.as_deref().unwrap_or_default();
        grid.row([
            format!("{} = {}", clipped(attribute, 40), name(row.whose.value.as_deref())),
            clipped(&signature(row), SIGNATURE_CHARS),
            count(row.valid),
            share(row.share.unwrap_or(0.0)),
            points(difference.value),
            range(difference.low, difference.high, |end| signed(100.0 * end, 1)),
        ]);
    }
    let more = more_note(rows.len().saturating_sub(MOST_LINES), "differences", "changes");
    grid.more = sentences(&[
        "Widest first; only those whose interval leaves out zero. Intervals are not corrected for the number of \
         comparisons."
            .to_string(),
        more,
    ]);
    Some(grid)
}
