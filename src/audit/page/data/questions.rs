//! What sections of the audit tell that ask the model.

use super::super::tables::PageTable;
use super::{IntervalEstimate, Whose, estimates, whose};
use crate::error::Result;

/// A row of `actions`.
#[derive(Debug, Clone)]
pub(in super::super) struct ActionRow {
    pub(in super::super) whose: Whose,
    pub(in super::super) changes: String,
    pub(in super::super) rows: u64,
    pub(in super::super) applicable: u64,
    pub(in super::super) effectiveness: Option<IntervalEstimate>,
    pub(in super::super) cost_mean: Option<f64>,
    /// Its place among the actions that are chosen together.
    pub(in super::super) chosen: Option<f64>,
}

/// A row of `action_sets`.
#[derive(Debug, Clone)]
pub(in super::super) struct ActionSetRow {
    pub(in super::super) whose: Whose,
    pub(in super::super) rows: u64,
    pub(in super::super) chosen: u64,
    pub(in super::super) effectiveness: Option<IntervalEstimate>,
    pub(in super::super) cost_mean: Option<f64>,
    pub(in super::super) actions: u64,
    pub(in super::super) choices: Option<f64>,
    pub(in super::super) choice: Option<f64>,
}

/// A row of `binding`.
#[derive(Debug, Clone)]
pub(in super::super) struct BindingRow {
    pub(in super::super) whose: Whose,
    pub(in super::super) feature: Option<String>,
    pub(in super::super) constraint: String,
    pub(in super::super) detail: String,
    pub(in super::super) rows: u64,
    pub(in super::super) share: Option<IntervalEstimate>,
    pub(in super::super) only_this: u64,
}

/// A row of `responsiveness`.
#[derive(Debug, Clone)]
pub(in super::super) struct ResponsivenessRow {
    pub(in super::super) whose: Whose,
    pub(in super::super) feature: String,
    pub(in super::super) rows: u64,
    /// Rows that at least one value takes to the target.
    pub(in super::super) share: Option<IntervalEstimate>,
}

/// A row of `robustness`.
#[derive(Debug, Clone)]
pub(in super::super) struct RobustnessRow {
    pub(in super::super) whose: Whose,
    pub(in super::super) rows: u64,
    pub(in super::super) copies: u64,
    pub(in super::super) validity: Option<f64>,
    pub(in super::super) broken: u64,
}

/// A row of `explicit`.
#[derive(Debug, Clone)]
pub(in super::super) struct ExplicitRow {
    pub(in super::super) whose: Whose,
    pub(in super::super) feature: String,
    pub(in super::super) rows: u64,
    pub(in super::super) share: Option<f64>,
    /// Rows of which at least one copy is decided otherwise.
    pub(in super::super) rows_share: Option<IntervalEstimate>,
}

/// A row of `second_search`.
#[derive(Debug, Clone)]
pub(in super::super) struct SecondSearchRow {
    pub(in super::super) whose: Whose,
    pub(in super::super) metric: String,
    pub(in super::super) rows: u64,
    pub(in super::super) gap: Option<f64>,
    pub(in super::super) gap_again: Option<f64>,
    pub(in super::super) verdict: Option<String>,
}

/// A row of `reason_counts`.
#[derive(Debug, Clone)]
pub(in super::super) struct ReasonRow {
    pub(in super::super) whose: Whose,
    pub(in super::super) feature: String,
    pub(in super::super) direction: Option<String>,
    pub(in super::super) code: String,
    pub(in super::super) text: Option<String>,
    pub(in super::super) rows: u64,
    pub(in super::super) share: Option<IntervalEstimate>,
    pub(in super::super) first: u64,
    pub(in super::super) without_recourse: u64,
}

/// A column of texts of which none is null.
fn full(table: &PageTable, column: &str) -> Result<Vec<String>> {
    Ok(table.texts(column)?.into_iter().map(Option::unwrap_or_default).collect())
}

pub(super) fn actions(table: &PageTable) -> Result<Vec<ActionRow>> {
    let (changes, chosen) = (full(table, "changes")?, table.numbers("chosen")?);
    let (rows, applicable) = (table.counts("rows")?, table.counts("applicable")?);
    let effectiveness = estimates(table, ["effectiveness", "low", "high"])?;
    let cost_mean = table.numbers("cost_mean")?;
    let row = |(index, whose): (usize, Whose)| ActionRow {
        whose,
        changes: changes[index].clone(),
        rows: rows[index],
        applicable: applicable[index],
        effectiveness: effectiveness[index],
        cost_mean: cost_mean[index],
        chosen: chosen[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}

pub(super) fn action_sets(table: &PageTable) -> Result<Vec<ActionSetRow>> {
    let (rows, chosen, actions) =
        (table.counts("rows")?, table.counts("chosen")?, table.counts("actions")?);
    let effectiveness = estimates(table, ["effectiveness", "low", "high"])?;
    let (cost_mean, choices, choice) =
        (table.numbers("cost_mean")?, table.numbers("choices")?, table.numbers("choice")?);
    let row = |(index, whose): (usize, Whose)| ActionSetRow {
        whose,
        rows: rows[index],
        chosen: chosen[index],
        effectiveness: effectiveness[index],
        cost_mean: cost_mean[index],
        actions: actions[index],
        choices: choices[index],
        choice: choice[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}

pub(super) fn binding(table: &PageTable) -> Result<Vec<BindingRow>> {
    let (feature, constraint) = (table.texts("feature")?, full(table, "constraint")?);
    let (detail, rows) = (full(table, "detail")?, table.counts("rows")?);
    let share = estimates(table, ["share", "low", "high"])?;
    let only_this = table.counts("only_this")?;
    let row = |(index, whose): (usize, Whose)| BindingRow {
        whose,
        feature: feature[index].clone(),
        constraint: constraint[index].clone(),
        detail: detail[index].clone(),
        rows: rows[index],
        share: share[index],
        only_this: only_this[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}

pub(super) fn responsiveness(table: &PageTable) -> Result<Vec<ResponsivenessRow>> {
    let (feature, rows) = (full(table, "feature")?, table.counts("rows")?);
    let share = estimates(table, ["share", "low", "high"])?;
    let row = |(index, whose): (usize, Whose)| ResponsivenessRow {
        whose,
        feature: feature[index].clone(),
        rows: rows[index],
        share: share[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}

pub(super) fn robustness(table: &PageTable) -> Result<Vec<RobustnessRow>> {
    let (rows, copies) = (table.counts("rows")?, table.counts("copies")?);
    let (validity, broken) = (table.numbers("validity")?, table.counts("broken")?);
    let row = |(index, whose): (usize, Whose)| RobustnessRow {
        whose,
        rows: rows[index],
        copies: copies[index],
        validity: validity[index],
        broken: broken[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}

pub(super) fn explicit(table: &PageTable) -> Result<Vec<ExplicitRow>> {
    let (feature, rows) = (full(table, "feature")?, table.counts("rows")?);
    let (share, rows_share) =
        (table.numbers("share")?, estimates(table, ["rows_share", "low", "high"])?);
    let row = |(index, whose): (usize, Whose)| ExplicitRow {
        whose,
        feature: feature[index].clone(),
        rows: rows[index],
        share: share[index],
        rows_share: rows_share[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}

pub(super) fn second_search(table: &PageTable) -> Result<Vec<SecondSearchRow>> {
    let (metric, rows) = (full(table, "metric")?, table.counts("rows")?);
    let (gap, gap_again) = (table.numbers("gap")?, table.numbers("gap_again")?);
    let verdict = table.texts("verdict")?;
    let row = |(index, whose): (usize, Whose)| SecondSearchRow {
        whose,
        metric: metric[index].clone(),
        rows: rows[index],
        gap: gap[index],
        gap_again: gap_again[index],
        verdict: verdict[index].clone(),
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}

pub(super) fn reasons(table: &PageTable) -> Result<Vec<ReasonRow>> {
    let (feature, direction) = (full(table, "feature")?, table.texts("direction")?);
    let (code, text) = (full(table, "code")?, table.texts("text")?);
    let (rows, first) = (table.counts("rows")?, table.counts("first")?);
    let share = estimates(table, ["share", "low", "high"])?;
    let without_recourse = table.counts("without_recourse")?;
    let row = |(index, whose): (usize, Whose)| ReasonRow {
        whose,
        feature: feature[index].clone(),
        direction: direction[index].clone(),
        code: code[index].clone(),
        text: text[index].clone(),
        rows: rows[index],
        share: share[index],
        first: first[index],
        without_recourse: without_recourse[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}
