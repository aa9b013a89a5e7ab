//! What the reports tell of whole targets: validity, plausibility, likeness, survival.

use std::path::Path;

use super::super::tables::PageTable;
use super::{IntervalEstimate, estimates};
use crate::error::Result;
use crate::output::report_name;

/// A target's row of `validity`, `plausibility` and `sparsity` together; no target for all.
#[derive(Debug, Clone)]
pub(in super::super) struct LikenessRow {
    pub(in super::super) target: Option<String>,
    pub(in super::super) rows: u64,
    pub(in super::super) validity: Option<IntervalEstimate>,
    pub(in super::super) plausibility: Option<f64>,
    pub(in super::super) plausibility_low: Option<f64>,
    pub(in super::super) n_changed: Option<f64>,
}

/// A target's row of `mmd`.
#[derive(Debug, Clone)]
pub(in super::super) struct MmdFigures {
    pub(in super::super) target: Option<String>,
    pub(in super::super) rows: u64,
    pub(in super::super) mmd2: f64,
    pub(in super::super) held_out: Option<f64>,
    pub(in super::super) unchanged: Option<f64>,
    pub(in super::super) ratio: Option<f64>,
}

/// A row of `survival`.
#[derive(Debug, Clone)]
pub(in super::super) struct SurvivalRow {
    pub(in super::super) model: Option<String>,
    pub(in super::super) rows: u64,
    pub(in super::super) survival: Option<IntervalEstimate>,
}

/// A target's row of `robust`; no target for all.
#[derive(Debug, Clone)]
pub(in super::super) struct RobustRow {
    pub(in super::super) target: Option<String>,
    pub(in super::super) rows: u64,
    pub(in super::super) models: u64,
    pub(in super::super) needed: u64,
    pub(in super::super) share: Option<IntervalEstimate>,
    pub(in super::super) models_mean: Option<f64>,
    pub(in super::super) cost: Option<f64>,
    pub(in super::super) robustness_cost: Option<f64>,
}

/// Indices of the rows of all and of whole targets.
fn of_targets(table: &PageTable) -> Result<Vec<usize>> {
    let levels = table.texts("level")?;
    let whole = |level: &Option<String>| level.as_deref().is_some_and(|level| level != "segment");
    Ok((0..table.rows()).filter(|index| whole(&levels[*index])).collect())
}

pub(super) fn likeness((folder, method): (&Path, Option<&str>)) -> Result<Vec<LikenessRow>> {
    let read = |name| {
        let table = PageTable::read(folder, &report_name(name))?;
        table.map(|table| table.of_method(method)).transpose()
    };
    let Some(validity) = read("validity")? else { return Ok(Vec::new()) };
    let (rows, targets) = (validity.counts("rows")?, validity.texts("target")?);
    let shares = estimates(&validity, ["validity", "low", "high"])?;
    let (plausibility, sparsity) = (read("plausibility")?, read("sparsity")?);
    let median = by_target(plausibility.as_ref(), "plausibility_p50")?;
    let low = by_target(plausibility.as_ref(), "plausibility_p05")?;
    let n_changed = by_target(sparsity.as_ref(), "n_changed_mean")?;
    let row = |index: usize| {
        let target = targets[index].clone();
        let of = |found: &[(Option<String>, Option<f64>)]| {
            found.iter().find(|(of, _)| *of == target).and_then(|(_, number)| *number)
        };
        LikenessRow {
            rows: rows[index],
            validity: shares[index],
            plausibility: of(&median),
            plausibility_low: of(&low),
            n_changed: of(&n_changed),
            target,
        }
    };
    Ok(of_targets(&validity)?.into_iter().map(row).collect())
}

/// A column's number for all and for each target. Where a table tells valid counterfactuals and all apart, of valid
/// ones.
fn by_target(
    table: Option<&PageTable>,
    column: &str,
) -> Result<Vec<(Option<String>, Option<f64>)>> {
    let Some(table) = table else { return Ok(Vec::new()) };
    let (targets, numbers) = (table.texts("target")?, table.numbers(column)?);
    let over = table.texts("over").unwrap_or_else(|_| vec![None; table.rows()]);
    let indices = of_targets(table)?.into_iter();
    let indices =
        indices.filter(|index| over[*index].as_deref().is_none_or(|over| over == "valid"));
    Ok(indices.map(|index| (targets[index].clone(), numbers[index])).collect())
}

pub(super) fn mmd(table: &PageTable) -> Result<Vec<MmdFigures>> {
    let (targets, over) = (table.texts("target")?, table.texts("over")?);
    let (rows, mmd2, ratio) =
        (table.counts("rows")?, table.numbers("mmd2")?, table.numbers("ratio")?);
    let (held_out, unchanged) = (table.numbers("held_out_mmd2")?, table.numbers("unchanged_mmd2")?);
    let row = |index: usize| {
        let valid = over[index].as_deref() == Some("valid");
        Some(MmdFigures {
            target: targets[index].clone(),
            rows: rows[index],
            mmd2: mmd2[index].filter(|_| valid)?,
            held_out: held_out[index],
            unchanged: unchanged[index],
            ratio: ratio[index],
        })
    };
    Ok(of_targets(table)?.into_iter().filter_map(row).collect())
}

pub(super) fn robust(table: &PageTable) -> Result<Vec<RobustRow>> {
    let (targets, rows) = (table.texts("target")?, table.counts("rows")?);
    let (models, needed) = (table.counts("models")?, table.counts("needed")?);
    let shares = estimates(table, ["share", "low", "high"])?;
    let (models_mean, cost) = (table.numbers("models_mean")?, table.numbers("cost_mean")?);
    let robustness_cost = table.numbers("robustness_cost_mean")?;
    let row = |index: usize| RobustRow {
        target: targets[index].clone(),
        rows: rows[index],
        models: models[index],
        needed: needed[index],
        share: shares[index],
        models_mean: models_mean[index],
        cost: cost[index],
        robustness_cost: robustness_cost[index],
    };
    Ok(of_targets(table)?.into_iter().map(row).collect())
}

pub(super) fn survival(table: &PageTable) -> Result<Vec<SurvivalRow>> {
    let (models, rows) = (table.texts("model")?, table.counts("rows")?);
    let shares = estimates(table, ["survival", "low", "high"])?;
    let levels = table.texts("level")?;
    let all = (0..table.rows()).filter(|index| levels[*index].as_deref() == Some("all"));
    let row = |index: usize| SurvivalRow {
        model: models[index].clone(),
        rows: rows[index],
        survival: shares[index],
    };
    Ok(all.map(row).collect())
}
