//! What each method of a run comes to, and where they agree.

use std::path::Path;

use super::super::tables::PageTable;
use super::{IntervalEstimate, estimates};
use crate::error::Result;
use crate::output::{METHOD, report_name};

/// A method's row of `validity` and `sparsity` for all targets.
#[derive(Debug, Clone)]
pub(in super::super) struct MethodRow {
    pub(in super::super) method: String,
    pub(in super::super) rows: u64,
    pub(in super::super) validity: Option<IntervalEstimate>,
    pub(in super::super) l0: Option<f64>,
    pub(in super::super) l1: Option<f64>,
    pub(in super::super) n_changed: Option<f64>,
    pub(in super::super) plausibility: Option<f64>,
}

/// A pair's row of `agreement` for all targets.
#[derive(Debug, Clone)]
pub(in super::super) struct AgreementRow {
    pub(in super::super) method: String,
    pub(in super::super) other: String,
    pub(in super::super) rows: u64,
    pub(in super::super) both: u64,
    pub(in super::super) method_only: u64,
    pub(in super::super) other_only: u64,
    pub(in super::super) same_features: u64,
    pub(in super::super) same_directions: u64,
    /// Mean costs over rows that both have, of each.
    pub(in super::super) costs: [Option<f64>; 2],
}

/// Indexes of the rows of all targets together.
fn of_all(table: &PageTable) -> Result<Vec<usize>> {
    let levels = table.texts("level")?;
    Ok((0..table.rows()).filter(|index| levels[*index].as_deref() == Some("all")).collect())
}

pub(super) fn methods(folder: &Path) -> Result<Vec<MethodRow>> {
    let read = |name| PageTable::read(folder, &report_name(name));
    let Some(validity) = read("validity")? else { return Ok(Vec::new()) };
    let (methods, rows) = (validity.texts(METHOD)?, validity.counts("rows")?);
    let shares = estimates(&validity, ["validity", "low", "high"])?;
    let (sparsity, plausibility) = (read("sparsity")?, read("plausibility")?);
    let [l0, l1, n_changed] =
        ["l0_mean", "l1_mean", "n_changed_mean"].map(|column| by_method(sparsity.as_ref(), column));
    let (l0, l1, n_changed) = (l0?, l1?, n_changed?);
    let plausibility = by_method(plausibility.as_ref(), "plausibility_p50")?;
    let row = |index: usize| {
        let method = methods[index].clone().unwrap_or_default();
        let of = |found: &[(String, Option<f64>)]| {
            found.iter().find(|(of, _)| *of == method).and_then(|(_, number)| *number)
        };
        MethodRow {
            rows: rows[index],
            validity: shares[index],
            l0: of(&l0),
            l1: of(&l1),
            n_changed: of(&n_changed),
            plausibility: of(&plausibility),
            method,
        }
    };
    Ok(of_all(&validity)?.into_iter().map(row).collect())
}

/// A column's number for each method, over valid counterfactuals.
fn by_method(table: Option<&PageTable>, column: &str) -> Result<Vec<(String, Option<f64>)>> {
    let Some(table) = table else { return Ok(Vec::new()) };
    let (methods, numbers) = (table.texts(METHOD)?, table.numbers(column)?);
    let over = table.texts("over").unwrap_or_else(|_| vec![None; table.rows()]);
    let rows = of_all(table)?.into_iter();
    let valid = rows.filter(|index| over[*index].as_deref().is_none_or(|over| over == "valid"));
    Ok(valid.map(|index| (methods[index].clone().unwrap_or_default(), numbers[index])).collect())
}

pub(super) fn agreement(table: &PageTable) -> Result<Vec<AgreementRow>> {
    let (methods, others) = (table.texts(METHOD)?, table.texts("other")?);
    let [rows, both, method_only, other_only, same_features, same_directions] =
        ["rows", "both", "method_only", "other_only", "same_features", "same_directions"]
            .map(|column| table.counts(column));
    let (rows, both, method_only, other_only) = (rows?, both?, method_only?, other_only?);
    let (same_features, same_directions) = (same_features?, same_directions?);
    let (cost, other_cost) = (table.numbers("cost_mean")?, table.numbers("other_cost_mean")?);
    let row = |index: usize| AgreementRow {
        method: methods[index].clone().unwrap_or_default(),
        other: others[index].clone().unwrap_or_default(),
        rows: rows[index],
        both: both[index],
        method_only: method_only[index],
        other_only: other_only[index],
        same_features: same_features[index],
        same_directions: same_directions[index],
        costs: [cost[index], other_cost[index]],
    };
    Ok(of_all(table)?.into_iter().map(row).collect())
}
