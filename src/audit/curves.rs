//! The table `curves`: which share of those who need a counterfactual has one within which cost.

use arrow::array::RecordBatch;

use super::cells::{GroupCell, GroupCounts};
use super::{AuditSetup, levels, share_cells};
use crate::error::Result;
use crate::metrics::{Share, Sketch};
use crate::output::audit_curves_schema;
use crate::report::ReportColumns;

/// Quantiles at which curves are told where the job names no budgets.
const POINTS: u32 = 32;

/// A cost at which curves are told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Budget {
    /// The cost.
    pub(super) cost: f64,
    /// Which quantile of the costs of all it is; none if the job names it.
    pub(super) quantile: Option<f64>,
    /// Its number among the job's.
    position: usize,
}

/// The budgets of a target. Quantiles are moved up to where a sketch counts exactly.
pub(super) fn budgets(setup: &AuditSetup<'_>, counts: &GroupCounts, target: u32) -> Vec<Budget> {
    if !setup.job.budgets.is_empty() {
        let named = setup.job.budgets.iter().enumerate();
        return named
            .map(|(position, cost)| Budget { cost: *cost, quantile: None, position })
            .collect();
    }
    let pool = &counts.cells[&target][0][0].costs;
    let mut found: Vec<Budget> = Vec::new();
    for point in 1..=POINTS {
        let share = f64::from(point) / f64::from(POINTS);
        let rank = (share * pool.count() as f64).ceil() as u64;
        let Some(cost) = pool.ranked(rank.max(1) - 1) else { continue };
        let budget = Budget { cost: Sketch::edge(cost), quantile: Some(share), position: 0 };
        // Of quantiles that are the same cost the last says the most.
        found.retain(|known| known.cost < budget.cost);
        found.push(budget);
    }
    found
}

/// How many have a valid counterfactual of no more than this cost.
pub(super) fn reached(cell: &GroupCell, budget: &Budget) -> u64 {
    match budget.quantile {
        Some(_) => cell.costs.up_to(budget.cost),
        None => cell.sums.within.get(budget.position).copied().unwrap_or(0),
    }
}

/// A row for every group and budget.
///
/// # Errors
/// Only if there is a bug.
pub fn curves(setup: &AuditSetup<'_>, counts: &GroupCounts) -> Result<RecordBatch> {
    let mut columns = ReportColumns::default();
    let mut budgeted: Option<(u32, Vec<Budget>)> = None;
    for level in levels(counts) {
        if budgeted.as_ref().is_none_or(|(target, _)| *target != level.target) {
            budgeted = Some((level.target, budgets(setup, counts, level.target)));
        }
        let suppressed = setup.suppresses(level.cell);
        for budget in budgeted.iter().flat_map(|(_, budgets)| budgets) {
            let share = Share { part: reached(level.cell, budget), whole: level.cell.sums.needed };
            setup.begin(&mut columns, &level, counts);
            columns.number(Some(budget.cost));
            columns.number(budget.quantile);
            columns.count(share.whole);
            columns.maybe_count((!suppressed).then_some(share.part));
            share_cells(&mut columns, share, suppressed);
            columns.flag(Some(suppressed));
        }
    }
    columns.finish(audit_curves_schema())
}
