//! The sections of the page, in the order in which they are asked: what is the verdict, is every row accounted for, who
//! can be helped at which cost, how far are groups apart, what would change, who is shut out, why, since when, how good
//! are the counterfactuals, what about this row, and how is it all done again.

mod actions;
mod binding;
mod changes;
mod cost;
mod doubts;
mod gaps;
mod likeness;
mod lookup;
mod methods;
mod metric;
mod nights;
mod reasons;
mod reconcile;
mod reproduce;
mod shut_out;
mod verdict;

use std::path::Path;

use super::blocks::{Block, PageSection};
use super::context::PageContext;
use super::data::{Data, GroupRow, IntervalEstimate, Whose};
use super::words::{clipped, count, counted, dash, name, range, share};
use crate::error::Result;
use crate::output::audit_table_name;

/// Groups that a chart shows, at most.
const MOST_LINES: usize = 12;
/// Rows of a table, at most.
const MOST_ROWS: usize = 40;
/// Pairs of target and attribute that have charts, at most: the page stays below 1 MB.
const MOST_PANELS: usize = 6;

/// What every section is made from.
pub(super) struct SectionInput<'a> {
    pub(super) data: &'a Data,
    pub(super) context: &'a PageContext,
    /// The run's folder.
    pub(super) folder: &'a Path,
}

/// All sections.
pub(super) fn sections(source: &SectionInput<'_>) -> Result<Vec<PageSection>> {
    let mut list: Vec<(&str, &str, Vec<Block>)> = vec![
        ("verdict", "Verdict", verdict::blocks(source)),
        ("reconciliation", "Where every row went", reconcile::blocks(source)),
        ("cost", "Who can be helped, and at what cost", cost::blocks(source)),
        ("gaps", "Differences between groups", gaps::blocks(source)),
        ("changes", "What would have to change", changes::blocks(source)),
        ("shut-out", "Who cannot be helped, and why", shut_out::blocks(source)),
        ("reasons", "Reasons for decisions", reasons::blocks(source)),
        ("nights", "Stability from run to run", nights::blocks(source)),
        ("likeness", "How good the counterfactuals are", likeness::blocks(source)),
        ("lookup", "Find a row", lookup::blocks(source)?),
        ("reproduce", "How to reproduce this, and what it does not say", reproduce::blocks(source)),
    ];
    if !source.data.agreement.is_empty() {
        // Before rows to look up.
        let section = ("methods", "What other methods say", methods::blocks(source));
        list.insert(list.len() - 2, section);
    }
    let section =
        |(index, (id, title, blocks))| PageSection { number: index + 1, id, title, blocks };
    Ok(list.into_iter().enumerate().map(section).collect())
}

/// A group with its n, as charts name it.
fn group_label(value: Option<&str>, n: u64) -> String {
    format!("{} (n {})", clipped(&name(value), 30), count(n))
}

/// A group in words.
fn group_of(whose: &Whose) -> String {
    match &whose.attribute {
        None => "all".to_string(),
        Some(attribute) => format!("{} = {}", clipped(attribute, 40), name(whose.value.as_deref())),
    }
}

/// A panel's title: the attribute, and the target where there are several.
fn panel_title(source: &SectionInput<'_>, (target, attribute): (&str, &str)) -> String {
    let attribute = clipped(attribute, 40);
    if source.data.targets().len() > 1 {
        format!("{attribute}, target {}", name(Some(target)))
    } else {
        attribute
    }
}

/// Groups of an attribute that are told, and how many are not because they are too small.
fn groups_of<'a>(
    source: &SectionInput<'a>,
    (target, attribute): (&str, &str),
) -> (Vec<&'a GroupRow>, usize) {
    let of = |row: &&GroupRow| {
        row.whose.target == target && row.whose.attribute.as_deref() == Some(attribute)
    };
    let (suppressed, shown): (Vec<_>, Vec<_>) =
        source.data.groups.iter().filter(of).partition(|row| row.suppressed);
    (shown, suppressed.len())
}

/// That small groups are not told.
fn suppressed_note(source: &SectionInput<'_>, groups: usize) -> String {
    if groups == 0 {
        return String::new();
    }
    let least = source.context.min_cell;
    let verb = if groups == 1 { "is" } else { "are" };
    format!(
        "{} with fewer than {least} refused rows {verb} suppressed.",
        counted(groups as u64, "group")
    )
}

/// That a list goes on in a table, and how to read it there. Empty if it does not.
fn more_note(more: usize, what: &str, table: &str) -> String {
    if more == 0 {
        return String::new();
    }
    let file = audit_table_name(table);
    format!("{} more {what} in the table: duckdb -c \"FROM '{file}'\".", count(more as u64))
}

/// A share with its interval.
fn interval(estimate: Option<IntervalEstimate>) -> String {
    estimate
        .map_or_else(dash, |of| format!("{} ({})", share(of.value), range(of.low, of.high, share)))
}

/// Panels that have charts, with a note on those that have none.
fn panels<'a>(source: &SectionInput<'a>, table: &str) -> (Vec<(&'a str, &'a str)>, Option<Block>) {
    let mut panels = source.data.panels();
    let more = panels.len().saturating_sub(MOST_PANELS);
    panels.truncate(MOST_PANELS);
    let note = more_note(more, "pairs of target and attribute", table);
    (panels, (!note.is_empty()).then_some(Block::Note(note)))
}

/// Sentences as one text.
fn sentences(list: &[String]) -> String {
    let shown: Vec<&str> =
        list.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    shown.join(" ")
}
