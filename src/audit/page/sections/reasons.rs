//! 7: candidate reasons of decisions, where the job asks for them.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::Bar;
use super::super::data::ReasonRow;
use super::super::plate::Plate;
use super::super::words::{clipped, count, name, share};
use super::{MOST_LINES, MOST_ROWS, SectionInput, interval, more_note};

/// Targets that have a chart, at most.
const MOST_TARGETS: usize = 4;

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    if source.data.asked.reasons.is_empty() {
        let text = "Candidate reasons were not computed (audit.reasons is off). The changes in section 5 are not \
                    reasons: they name what is cheap and allowed to change, while a notice of adverse action must \
                    name the principal factors of the decision, whether they can be changed or not.";
        return vec![Block::Text(text.to_string())];
    }
    let text = "Each refused row was compared with rows that just pass: which of its values speak most against it? Up \
                to four are named as candidate reasons, whether they can be changed or not. They are candidates for \
                people to judge: not notices of adverse action, and not proof of what the model weighs. A reason \
                without recourse is one whose feature the row cannot change, or of a row that nothing helps.";
    let targets = source.data.targets().into_iter().take(MOST_TARGETS).enumerate();
    let charts: Vec<Chart> =
        targets.filter_map(|(index, target)| reasons(source, target, index)).collect();
    vec![Block::Text(text.to_string()), Block::Charts(charts)]
}

fn label(row: &ReasonRow) -> String {
    let direction = row.direction.as_ref().map_or(String::new(), |of| format!(" {of}"));
    let meaning = row.text.clone().unwrap_or_else(|| format!("{}{direction}", row.feature));
    format!("{} {meaning}", row.code)
}

fn reasons(source: &SectionInput<'_>, target: &str, index: usize) -> Option<Chart> {
    let all = source.data.asked.reasons.iter();
    let all = all.filter(|row| row.whose.target == target && row.whose.attribute.is_none());
    let mut rows: Vec<&ReasonRow> = all.filter(|row| row.share.is_some()).collect();
    let value = |row: &ReasonRow| row.share.map_or(0.0, |of| of.value);
    rows.sort_by(|left, right| value(right).total_cmp(&value(left)));
    let bar = |row: &&ReasonRow| Bar {
        label: label(row),
        value: value(row),
        shown: share(value(row)),
        beside: None,
    };
    let list: Vec<Bar> = rows.iter().take(MOST_LINES).map(bar).collect();
    let title = format!("Named among the reasons, target {}", name(Some(target)));
    let columns =
        ["Reason", "#Rows (n)", "#Named (95 % interval)", "#Named first", "#Without recourse"];
    let mut grid = GridBlock::new(title.as_str(), &columns);
    for row in rows.iter().take(MOST_ROWS) {
        let (first, without) = (count(row.first), count(row.without_recourse));
        grid.row([clipped(&label(row), 90), count(row.rows), interval(row.share), first, without]);
    }
    let n = rows.first().map_or(0, |row| row.rows);
    let plate = Plate {
        id: format!("figure-7-{}", index + 1),
        title,
        reading: format!("n = {} refused rows; each may have up to four.", count(n)),
        note: more_note(rows.len().saturating_sub(MOST_LINES), "reasons", "reason_counts"),
        grid,
    };
    plate.bars(&list, Some(1.0))
}
