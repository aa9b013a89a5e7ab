//! What became of the previous run's counterfactuals, by group and cause.

use super::super::tables::PageTable;
use super::{IntervalEstimate, Whose, estimates, whose};
use crate::error::Result;

/// A row of `stability`.
#[derive(Debug, Clone)]
pub(in super::super) struct StabilityRow {
    pub(in super::super) whose: Whose,
    /// None for all causes together.
    pub(in super::super) cause: Option<String>,
    pub(in super::super) rows: u64,
    /// Rows whose previous counterfactual was tried again.
    pub(in super::super) asked: u64,
    pub(in super::super) paired: u64,
    pub(in super::super) broken_promises: u64,
    pub(in super::super) suppressed: bool,
    pub(in super::super) shares: StabilityShares,
    pub(in super::super) cost_drift: Option<IntervalEstimate>,
}

/// Its shares.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct StabilityShares {
    pub(in super::super) decision_churn: Option<IntervalEstimate>,
    pub(in super::super) recourse_validity: Option<IntervalEstimate>,
    pub(in super::super) needless_churn: Option<IntervalEstimate>,
    pub(in super::super) answer_churn: Option<f64>,
}

pub(super) fn stability(table: &PageTable) -> Result<Vec<StabilityRow>> {
    let (cause, suppressed) = (table.texts("cause")?, table.flags("suppressed")?);
    let (rows, asked) = (table.counts("rows")?, table.counts("asked")?);
    let (paired, broken_promises) = (table.counts("paired")?, table.counts("broken_promises")?);
    let shares = shares(table)?;
    let cost_drift = estimates(table, ["cost_drift", "cost_drift_low", "cost_drift_high"])?;
    let row = |(index, whose): (usize, Whose)| StabilityRow {
        whose,
        cause: cause[index].clone(),
        rows: rows[index],
        asked: asked[index],
        paired: paired[index],
        broken_promises: broken_promises[index],
        suppressed: suppressed[index],
        shares: shares[index],
        cost_drift: cost_drift[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}

fn shares(table: &PageTable) -> Result<Vec<StabilityShares>> {
    let share = |name: &str| {
        let (low, high) = (format!("{name}_low"), format!("{name}_high"));
        estimates(table, [name, &low, &high])
    };
    let (decision_churn, recourse_validity) =
        (share("decision_churn")?, share("recourse_validity")?);
    let (needless_churn, answer_churn) = (share("needless_churn")?, table.numbers("answer_churn")?);
    let row = |index: usize| StabilityShares {
        decision_churn: decision_churn[index],
        recourse_validity: recourse_validity[index],
        needless_churn: needless_churn[index],
        answer_churn: answer_churn[index],
    };
    Ok((0..table.rows()).map(row).collect())
}
