//! Who can be helped, at what cost, who cannot: figures of groups of rows. Section by section, each a file here: groups,
//! curves, gaps, changes and bounds are counted beside the reports, in the same pass over the written table; for what
//! tables alone cannot tell the model is asked about some of the rows ([`questions`]).
//!
//! A group is a value of one column of `audit.by`. Counts are kept by target, attribute and value; they merge,
//! sums in them are exact, and everybody is the attribute without a name.

mod bounds;
mod cells;
mod changes;
mod count;
mod curves;
mod effort;
mod gaps;
mod groups;
pub mod nights;
pub mod page;
pub mod questions;
mod reasons;
mod signatures;

use crate::job::AuditJob;
use crate::metrics::{Interval, Share, wilson};
use crate::report::ReportColumns;

pub use bounds::at_bound;
pub use cells::{GroupCell, GroupCounts, Moments};
pub use changes::changes;
pub use count::{AuditCounts, Auditor, too_many};
pub use curves::curves;
pub use effort::Efforts;
pub use gaps::{Gaps, gaps};
pub use groups::groups;
pub use reasons::check_codes;

/// Values of one attribute, at most: a page shows them all.
pub const MOST_GROUPS: usize = crate::metrics::MOST_SEGMENTS;

/// What the sections are told of the job.
pub struct AuditSetup<'a> {
    /// The section of the job.
    pub job: &'a AuditJob,
    /// What targets are called, in the order of their numbers.
    pub targets: &'a [String],
}

/// A group of the rows of a target.
#[derive(Clone, Copy)]
struct GroupLevel<'a> {
    target: u32,
    /// Number of the attribute; 0 is everybody.
    attribute: usize,
    /// Number of its value.
    value: usize,
    cell: &'a GroupCell,
}

/// Every group: by target, attribute and value; nulls come last.
fn levels(counts: &GroupCounts) -> Vec<GroupLevel<'_>> {
    let mut found = Vec::new();
    for (target, attributes) in &counts.cells {
        for (attribute, cells) in attributes.iter().enumerate() {
            let mut values: Vec<usize> = (0..cells.len()).collect();
            let name = |value: &usize| counts.value(attribute, *value);
            values.sort_by_key(|value| (name(value).is_none(), name(value)));
            // A value may have rows of other targets only.
            let seen = values.into_iter().filter(|value| cells[*value].sums.rows > 0);
            found.extend(seen.map(|value| GroupLevel {
                target: *target,
                attribute,
                value,
                cell: &cells[value],
            }));
        }
    }
    found
}

impl AuditSetup<'_> {
    fn suppresses(&self, cell: &GroupCell) -> bool {
        cell.sums.needed < self.job.min_cell
    }

    /// Begins a row with whose figures it has.
    fn begin(&self, columns: &mut ReportColumns, level: &GroupLevel<'_>, counts: &GroupCounts) {
        columns.text(self.targets.get(level.target as usize).map(String::as_str));
        columns.text(counts.attribute(level.attribute));
        columns.text(counts.value(level.attribute, level.value));
    }
}

/// Number of the value that others of its attribute are compared with; none for everybody, or where the job's has no
/// rows.
fn reference(
    setup: &AuditSetup<'_>,
    counts: &GroupCounts,
    (target, attribute): (u32, usize),
) -> Option<usize> {
    let name = counts.attribute(attribute)?;
    let cells = &counts.cells.get(&target)?[attribute];
    if let Some(reference) = setup.job.reference.get(name) {
        return (0..cells.len()).find(|value| {
            cells[*value].sums.rows > 0 && counts.value(attribute, *value) == Some(reference)
        });
    }
    let text = |value: usize| counts.value(attribute, value);
    let largest = (0..cells.len()).filter(|value| cells[*value].sums.rows > 0);
    largest.max_by(|left, right| {
        let rows = cells[*left].sums.rows.cmp(&cells[*right].sums.rows);
        // Of equally large ones the first in the order of the tables.
        let nulls = text(*right).is_none().cmp(&text(*left).is_none());
        rows.then(nulls).then(text(*right).cmp(&text(*left)))
    })
}

/// A share and its interval as three cells; nulls where it is suppressed, or of nothing.
fn share_cells(columns: &mut ReportColumns, share: Share, suppressed: bool) {
    let value = share.value().filter(|_| !suppressed);
    let interval: Option<Interval> = value.map(|_| wilson(share.part, share.whole));
    columns.number(value);
    columns.number(interval.map(|of| of.low));
    columns.number(interval.map(|of| of.high));
}
