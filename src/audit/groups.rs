//! The table `groups`: who is refused, who has a counterfactual, and at what cost.

use arrow::array::RecordBatch;

use super::cells::{GroupCounts, GroupSums};
use super::{AuditSetup, GroupLevel, levels, reference, share_cells};
use crate::error::Result;
use crate::metrics::Share;
use crate::output::audit_groups_schema;
use crate::report::ReportColumns;

/// The shares of those who need a counterfactual at whose cost quantiles are told.
pub(super) const COST_SHARES: [(&str, f64); 2] = [("cost_p50", 0.5), ("cost_p90", 0.9)];

impl GroupSums {
    pub(super) fn refusal(&self) -> Share {
        Share { part: self.needed, whole: self.rows }
    }

    pub(super) fn recourse(&self) -> Share {
        Share { part: self.valid, whole: self.needed }
    }

    pub(super) fn preclusion(&self) -> Share {
        Share { part: self.infeasible, whole: self.needed }
    }

    pub(super) fn single(&self) -> Share {
        Share { part: self.single, whole: self.valid }
    }

    pub(super) fn missed(&self) -> Share {
        Share { part: self.false_negatives, whole: self.positives }
    }
}

/// A row for everybody and for each group of every target.
///
/// # Errors
/// Only if there is a bug.
pub fn groups(
    setup: &AuditSetup<'_>,
    counts: &GroupCounts,
    features: usize,
) -> Result<RecordBatch> {
    let mut columns = ReportColumns::default();
    for level in levels(counts) {
        let compared = reference(setup, counts, (level.target, level.attribute));
        let suppressed = setup.suppresses(level.cell);
        setup.begin(&mut columns, &level, counts);
        counted(&mut columns, &level.cell.sums);
        columns.flag(Some(compared == Some(level.value)));
        columns.flag(Some(suppressed));
        share_cells(&mut columns, level.cell.sums.refusal(), suppressed);
        share_cells(&mut columns, level.cell.sums.recourse(), suppressed);
        costs(&mut columns, &level, suppressed);
        missed(&mut columns, setup, (&level.cell.sums, features), suppressed);
        searched(&mut columns, &level.cell.sums, suppressed);
    }
    columns.finish(audit_groups_schema())
}

fn counted(columns: &mut ReportColumns, sums: &GroupSums) {
    let counts = [
        sums.rows,
        sums.needed,
        sums.valid,
        sums.infeasible,
        sums.unsolved(),
        sums.rows - sums.needed,
    ];
    counts.into_iter().for_each(|count| columns.count(count));
}

fn costs(columns: &mut ReportColumns, level: &GroupLevel<'_>, suppressed: bool) {
    let sums = &level.cell.sums;
    let shown = |number: Option<f64>| number.filter(|_| !suppressed);
    let shut_out = Share { part: sums.needed - sums.valid, whole: sums.needed };
    columns.number(shown(sums.preclusion().value()));
    columns.number(shown(shut_out.value()));
    for measure in [&sums.cost, &sums.changed, &sums.effort] {
        columns.number(shown(measure.mean()));
    }
    for (_, share) in COST_SHARES {
        columns.number(shown(level.cell.cost_of(share)));
    }
    columns.number(shown(sums.cost.over(sums.rows).map(|of| of.mean)));
    columns.number(shown(sums.single().value()));
}

/// False negatives, if the job names a label.
fn missed(
    columns: &mut ReportColumns,
    setup: &AuditSetup<'_>,
    (sums, features): (&GroupSums, usize),
    suppressed: bool,
) {
    let labelled = setup.job.label.is_some();
    columns.maybe_count(labelled.then_some(sums.positives));
    columns.maybe_count(labelled.then_some(sums.false_negatives));
    let shown = |number: Option<f64>| number.filter(|_| labelled && !suppressed);
    let rate = sums.missed().value();
    columns.number(shown(rate));
    columns.number(shown(sums.missed_cost.mean()));
    let distance = sums.missed_effort.mean().map(|effort| effort / features as f64);
    let burden = rate.zip(distance).map(|(rate, distance)| 100.0 * rate * distance);
    columns.number(shown(burden));
}

/// How hard was searched: a gap may be the search's.
fn searched(columns: &mut ReportColumns, sums: &GroupSums, suppressed: bool) {
    columns.count(sums.queries);
    let mean = (sums.needed > 0).then(|| sums.queries as f64 / sums.needed as f64);
    columns.number(mean.filter(|_| !suppressed));
    sums.sources.into_iter().for_each(|rows| columns.count(rows));
}
