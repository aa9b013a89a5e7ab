//! What the page tells, as rows of types: every table is read once, here.

mod methods;
mod questions;
mod reports;
mod stability;

use std::path::Path;

use super::tables::PageTable;
use crate::error::Result;
use crate::output::{audit_table_name, report_name};
pub(super) use methods::{AgreementRow, MethodRow};
pub(super) use questions::{
    ActionRow, ActionSetRow, BindingRow, ExplicitRow, ReasonRow, ResponsivenessRow, RobustnessRow,
    SecondSearchRow,
};
pub(super) use reports::{LikenessRow, MmdFigures, RobustRow, SurvivalRow};
pub(super) use stability::StabilityRow;

/// Whose figures a row has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Whose {
    pub(super) target: String,
    /// None for all rows.
    pub(super) attribute: Option<String>,
    /// None for all rows, and for the group of the nulls.
    pub(super) value: Option<String>,
}

/// A share or a difference with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct IntervalEstimate {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A row of `groups`.
#[derive(Debug, Clone)]
pub(super) struct GroupRow {
    pub(super) whose: Whose,
    pub(super) rows: u64,
    pub(super) needed: u64,
    pub(super) valid: u64,
    pub(super) infeasible: u64,
    pub(super) unsolved: u64,
    pub(super) reference: bool,
    pub(super) suppressed: bool,
    pub(super) refusal: Option<IntervalEstimate>,
    pub(super) recourse: Option<IntervalEstimate>,
    pub(super) costs: CostFigures,
}

/// What valid counterfactuals cost, counted in three ways.
#[derive(Debug, Clone, Copy)]
pub(super) struct CostFigures {
    pub(super) mean: Option<f64>,
    pub(super) p50: Option<f64>,
    pub(super) n_changed: Option<f64>,
    pub(super) effort: Option<f64>,
}

/// A row of `curves`.
#[derive(Debug, Clone)]
pub(super) struct CurveRow {
    pub(super) whose: Whose,
    pub(super) budget: f64,
    pub(super) share: IntervalEstimate,
}

/// A row of `gaps` that is not suppressed and has a figure.
#[derive(Debug, Clone)]
pub(super) struct GapRow {
    pub(super) whose: Whose,
    /// `reference` or `rest`.
    pub(super) against: String,
    pub(super) other: Option<String>,
    pub(super) metric: String,
    pub(super) budget: Option<f64>,
    pub(super) figure: f64,
    pub(super) other_figure: f64,
    pub(super) difference: IntervalEstimate,
    pub(super) p_holm: Option<f64>,
    pub(super) cost_agrees: Option<bool>,
    pub(super) tolerance: Option<f64>,
    pub(super) verdict: String,
}

/// A row of `changes`.
#[derive(Debug, Clone)]
pub(super) struct ChangeRow {
    pub(super) whose: Whose,
    /// None for all other signatures together.
    pub(super) signature: Option<String>,
    pub(super) valid: u64,
    pub(super) rows: u64,
    pub(super) share: Option<f64>,
    pub(super) difference: Option<IntervalEstimate>,
    pub(super) suppressed: bool,
}

/// A row of `at_bound`.
#[derive(Debug, Clone)]
pub(super) struct BoundRow {
    pub(super) whose: Whose,
    pub(super) feature: String,
    pub(super) bound: String,
    pub(super) changed: u64,
    pub(super) rows: u64,
    pub(super) share: Option<f64>,
}

/// All that there is. A list is empty where the run has no such table.
pub(super) struct Data {
    pub(super) groups: Vec<GroupRow>,
    pub(super) curves: Vec<CurveRow>,
    pub(super) gaps: Vec<GapRow>,
    pub(super) changes: Vec<ChangeRow>,
    pub(super) bounds: Vec<BoundRow>,
    pub(super) likeness: Vec<LikenessRow>,
    pub(super) mmd: Vec<MmdFigures>,
    pub(super) survival: Vec<SurvivalRow>,
    pub(super) methods: Vec<MethodRow>,
    pub(super) agreement: Vec<AgreementRow>,
    pub(super) robust: Vec<RobustRow>,
    pub(super) stability: Vec<StabilityRow>,
    pub(super) asked: Asked,
}

/// What the model was asked for the audit.
pub(super) struct Asked {
    pub(super) actions: Vec<ActionRow>,
    pub(super) action_sets: Vec<ActionSetRow>,
    pub(super) binding: Vec<BindingRow>,
    pub(super) responsiveness: Vec<ResponsivenessRow>,
    pub(super) robustness: Vec<RobustnessRow>,
    pub(super) explicit: Vec<ExplicitRow>,
    pub(super) second_search: Vec<SecondSearchRow>,
    pub(super) reasons: Vec<ReasonRow>,
}

impl Data {
    /// Reads what there is in a run's folder.
    pub(super) fn read(folder: &Path, method: Option<&str>) -> Result<Data> {
        let asked = Asked {
            actions: audit(folder, "actions", questions::actions)?,
            action_sets: audit(folder, "action_sets", questions::action_sets)?,
            binding: audit(folder, "binding", questions::binding)?,
            responsiveness: audit(folder, "responsiveness", questions::responsiveness)?,
            robustness: audit(folder, "robustness", questions::robustness)?,
            explicit: audit(folder, "explicit", questions::explicit)?,
            second_search: audit(folder, "second_search", questions::second_search)?,
            reasons: audit(folder, "reason_counts", questions::reasons)?,
        };
        Ok(Data {
            groups: audit(folder, "groups", groups)?,
            curves: audit(folder, "curves", curves)?,
            gaps: audit(folder, "gaps", gaps)?,
            changes: audit(folder, "changes", changes)?,
            bounds: audit(folder, "at_bound", bounds)?,
            likeness: reports::likeness((folder, method))?,
            mmd: report((folder, method), "mmd", reports::mmd)?,
            methods: methods::methods(folder)?,
            agreement: report((folder, None), "agreement", methods::agreement)?,
            survival: report((folder, method), "survival", reports::survival)?,
            robust: report((folder, method), "robust", reports::robust)?,
            stability: audit(folder, "stability", stability::stability)?,
            asked,
        })
    }

    /// The row of all of a target.
    pub(super) fn everybody(&self, target: &str) -> Option<&GroupRow> {
        let mut all = self.groups.iter().filter(|row| row.whose.attribute.is_none());
        all.find(|row| row.whose.target == target)
    }

    /// Targets, those first that most rows need.
    pub(super) fn targets(&self) -> Vec<&str> {
        let mut all: Vec<&GroupRow> =
            self.groups.iter().filter(|row| row.whose.attribute.is_none()).collect();
        all.sort_by_key(|row| std::cmp::Reverse(row.needed));
        all.into_iter().map(|row| row.whose.target.as_str()).collect()
    }

    /// Targets with each of their attributes, in this order.
    pub(super) fn panels(&self) -> Vec<(&str, &str)> {
        let mut panels = Vec::new();
        for target in self.targets() {
            for row in self.groups.iter().filter(|row| row.whose.target == target) {
                let Some(attribute) = &row.whose.attribute else { continue };
                if !panels.contains(&(target, attribute.as_str())) {
                    panels.push((target, attribute.as_str()));
                }
            }
        }
        panels
    }
}

fn audit<Row>(folder: &Path, name: &str, rows: TableReader<Row>) -> Result<Vec<Row>> {
    let table = PageTable::read(folder, &audit_table_name(name))?;
    table.map_or_else(|| Ok(Vec::new()), |table| rows(&table))
}

fn report<Row>(
    (folder, method): (&Path, Option<&str>),
    name: &str,
    rows: TableReader<Row>,
) -> Result<Vec<Row>> {
    let table = PageTable::read(folder, &report_name(name))?;
    let Some(table) = table else { return Ok(Vec::new()) };
    rows(&table.of_method(method)?)
}

/// Makes rows of a table.
type TableReader<Row> = fn(&PageTable) -> Result<Vec<Row>>;

fn whose(table: &PageTable) -> Result<Vec<Whose>> {
    let (targets, attributes) = (table.texts("target")?, table.texts("attribute")?);
    let rows = targets.into_iter().zip(attributes).zip(table.texts("value")?);
    let whose = |((target, attribute), value): ((Option<String>, _), _)| Whose {
        target: target.unwrap_or_default(),
        attribute,
        value,
    };
    Ok(rows.map(whose).collect())
}

/// Three columns as estimates; none where one is null.
fn estimates(
    table: &PageTable,
    [value, low, high]: [&str; 3],
) -> Result<Vec<Option<IntervalEstimate>>> {
    let (values, lows) = (table.numbers(value)?, table.numbers(low)?);
    let rows = values.into_iter().zip(lows).zip(table.numbers(high)?);
    let whole = |((value, low), high): ((Option<f64>, Option<f64>), Option<f64>)| {
        Some(IntervalEstimate { value: value?, low: low?, high: high? })
    };
    Ok(rows.map(whole).collect())
}

fn groups(table: &PageTable) -> Result<Vec<GroupRow>> {
    let whose = whose(table)?;
    let count = |name| table.counts(name);
    let (rows, needed, valid) = (count("rows")?, count("needed")?, count("valid")?);
    let (infeasible, unsolved) = (count("infeasible")?, count("unsolved")?);
    let (reference, suppressed) = (table.flags("reference")?, table.flags("suppressed")?);
    let refusal = estimates(table, ["refusal_rate", "refusal_low", "refusal_high"])?;
    let recourse = estimates(table, ["recourse_rate", "recourse_low", "recourse_high"])?;
    let costs = costs(table)?;
    let row = |(index, whose): (usize, Whose)| GroupRow {
        whose,
        rows: rows[index],
        needed: needed[index],
        valid: valid[index],
        infeasible: infeasible[index],
        unsolved: unsolved[index],
        reference: reference[index],
        suppressed: suppressed[index],
        refusal: refusal[index],
        recourse: recourse[index],
        costs: costs[index],
    };
    Ok(whose.into_iter().enumerate().map(row).collect())
}

fn costs(table: &PageTable) -> Result<Vec<CostFigures>> {
    let number = |name| table.numbers(name);
    let (mean, p50) = (number("cost_mean")?, number("cost_p50")?);
    let (n_changed, effort) = (number("n_changed_mean")?, number("effort_mean")?);
    let row = |index: usize| CostFigures {
        mean: mean[index],
        p50: p50[index],
        n_changed: n_changed[index],
        effort: effort[index],
    };
    Ok((0..table.rows()).map(row).collect())
}

fn curves(table: &PageTable) -> Result<Vec<CurveRow>> {
    let budgets = table.numbers("budget")?;
    let shares = estimates(table, ["effectiveness", "low", "high"])?;
    let rows = whose(table)?.into_iter().zip(budgets).zip(shares);
    let row = |((whose, budget), share): ((Whose, Option<f64>), Option<IntervalEstimate>)| {
        Some(CurveRow { whose, budget: budget?, share: share? })
    };
    Ok(rows.filter_map(row).collect())
}

fn gaps(table: &PageTable) -> Result<Vec<GapRow>> {
    let (against, other) = (table.texts("against")?, table.texts("other")?);
    let (metric, verdict) = (table.texts("metric")?, table.texts("verdict")?);
    let (figure, other_figure) = (table.numbers("figure")?, table.numbers("other_figure")?);
    let difference = estimates(table, ["difference", "low", "high"])?;
    let (budget, p_holm) = (table.numbers("budget")?, table.numbers("p_holm")?);
    let (tolerance, cost_agrees) = (table.numbers("tolerance")?, table.maybe_flags("cost_agrees")?);
    let row = |(index, whose): (usize, Whose)| {
        Some(GapRow {
            whose,
            against: against[index].clone()?,
            other: other[index].clone(),
            metric: metric[index].clone()?,
            budget: budget[index],
            figure: figure[index]?,
            other_figure: other_figure[index]?,
            difference: difference[index]?,
            p_holm: p_holm[index],
            cost_agrees: cost_agrees[index],
            tolerance: tolerance[index],
            verdict: verdict[index].clone()?,
        })
    };
    Ok(whose(table)?.into_iter().enumerate().filter_map(row).collect())
}

fn changes(table: &PageTable) -> Result<Vec<ChangeRow>> {
    let signature = table.texts("signature")?;
    let (valid, rows) = (table.counts("valid")?, table.counts("rows")?);
    let (share, suppressed) = (table.numbers("share")?, table.flags("suppressed")?);
    let difference = estimates(table, ["difference", "low", "high"])?;
    let row = |(index, whose): (usize, Whose)| ChangeRow {
        whose,
        signature: signature[index].clone(),
        valid: valid[index],
        rows: rows[index],
        share: share[index],
        difference: difference[index],
        suppressed: suppressed[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}

fn bounds(table: &PageTable) -> Result<Vec<BoundRow>> {
    let (feature, bound) = (table.texts("feature")?, table.texts("bound")?);
    let (changed, rows, share) =
        (table.counts("changed")?, table.counts("rows")?, table.numbers("share")?);
    let row = |(index, whose): (usize, Whose)| BoundRow {
        whose,
        feature: feature[index].clone().unwrap_or_default(),
        bound: bound[index].clone().unwrap_or_default(),
        changed: changed[index],
        rows: rows[index],
        share: share[index],
    };
    Ok(whose(table)?.into_iter().enumerate().map(row).collect())
}
