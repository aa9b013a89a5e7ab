//! What groups of rows are called, and the cells that every table of the audit begins with.

use super::sample::SampledGroup;
use crate::metrics::{Interval, wilson};
use crate::report::ReportColumns;

/// What targets and attributes are called.
#[derive(Debug, Clone)]
pub struct QuestionNames {
    /// Targets, in the order of their numbers.
    pub targets: Vec<String>,
    /// Attributes, in the order of the job.
    pub attributes: Vec<String>,
    /// Groups with fewer rows have no figures.
    pub min_cell: u64,
}

impl QuestionNames {
    /// The first cells of a row of a table.
    pub(in crate::audit) fn begin(&self, columns: &mut ReportColumns, group: &SampledGroup) {
        columns.text(self.targets.get(group.target as usize).map(String::as_str));
        let attribute = group.attribute.and_then(|attribute| self.attributes.get(attribute));
        columns.text(attribute.map(String::as_str));
        columns.text(group.value.as_deref());
    }

    /// A share of rows with its interval; nothing of groups that are too small to tell of.
    pub(in crate::audit) fn share(&self, columns: &mut ReportColumns, part: u64, whole: u64) {
        let shown = self.shows(whole);
        let Interval { low, high } = wilson(part, whole);
        columns.number(shown.then(|| part as f64 / whole as f64));
        columns.number(shown.then_some(low));
        columns.number(shown.then_some(high));
    }

    /// Whether figures of so many rows are told.
    pub(in crate::audit) fn shows(&self, rows: u64) -> bool {
        rows >= self.min_cell.max(1)
    }
}

/// Positions among `rows` for which something holds.
pub(super) fn count(rows: &[u32], holds: impl Fn(usize) -> bool) -> u64 {
    rows.iter().filter(|row| holds(**row as usize)).count() as u64
}

/// The mean of numbers that are known; none without any.
pub(crate) fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u64);
    for number in numbers.filter(|number| !number.is_nan()) {
        sum += number;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}
