//! The table `gaps`: how far each group is from the reference group of its attribute and from all others together, with
//! intervals, p-values and a verdict.

mod measure;

use arrow::array::RecordBatch;

use super::cells::{GroupCell, GroupCounts};
use super::curves::budgets;
use super::{AuditSetup, GroupLevel, levels, reference};
use crate::error::Result;
use crate::metrics::{benjamini_yekutieli, holm};
use crate::output::audit_gaps_schema;
use crate::report::ReportColumns;

use measure::{Gap, Sides, gaps_between};

/// p-values after Holm up to which a gap is one.
pub(super) const SIGNIFICANT: f64 = 0.05;

/// The table, and what the gate `max_gap` asks of it.
pub struct Gaps {
    /// The table.
    pub table: RecordBatch,
    /// The widest gap of `recourse_rate` against a reference group that Holm's p lets stand, 0 if none does; none if
    /// no group could be compared.
    pub widest: Option<f64>,
}

/// What a group is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ComparedWith {
    Reference,
    Rest,
}

impl ComparedWith {
    fn name(self) -> &'static str {
        match self {
            ComparedWith::Reference => "reference",
            ComparedWith::Rest => "rest",
        }
    }
}

/// Gaps of a group against something.
struct GapComparison<'a> {
    level: GroupLevel<'a>,
    against: ComparedWith,
    other: Option<&'a str>,
    suppressed: bool,
    gaps: Vec<Gap>,
}

/// A row for every group, what it is compared with, and metric.
///
/// # Errors
/// Only if there is a bug.
pub fn gaps(setup: &AuditSetup<'_>, counts: &GroupCounts) -> Result<Gaps> {
    let mut compared = Vec::new();
    for level in levels(counts).into_iter().filter(|level| level.attribute > 0) {
        compared.extend(with_reference(setup, counts, level));
        compared.extend(with_rest(setup, counts, level));
    }
    adjust(&mut compared, ComparedWith::Reference);
    adjust(&mut compared, ComparedWith::Rest);
    let mut columns = ReportColumns::default();
    for comparison in &compared {
        comparison
            .gaps
            .iter()
            .for_each(|gap| write(&mut columns, setup, (comparison, gap), counts));
    }
    Ok(Gaps { table: columns.finish(audit_gaps_schema())?, widest: widest(&compared) })
}

fn with_reference<'a>(
    setup: &AuditSetup<'_>,
    counts: &'a GroupCounts,
    level: GroupLevel<'a>,
) -> Option<GapComparison<'a>> {
    let (target, attribute) = (level.target, level.attribute);
    let number = reference(setup, counts, (target, attribute))?;
    let other = &counts.cells[&target][attribute][number];
    let reference = counts.value(attribute, number);
    (number != level.value)
        .then(|| compare((setup, counts), level, (ComparedWith::Reference, reference), other))
}

fn with_rest<'a>(
    setup: &AuditSetup<'_>,
    counts: &'a GroupCounts,
    level: GroupLevel<'a>,
) -> Option<GapComparison<'a>> {
    let mut others = counts.cells[&level.target][level.attribute].iter().enumerate();
    if !others.any(|(value, cell)| value != level.value && cell.sums.rows > 0) {
        return None;
    }
    let everybody = &counts.cells[&level.target][0][0];
    let sums = everybody.sums.without(&level.cell.sums);
    let rest = GroupCell {
        sums,
        costs: everybody.costs.without(&level.cell.costs),
        ..GroupCell::default()
    };
    Some(compare((setup, counts), level, (ComparedWith::Rest, None), &rest))
}

fn compare<'a>(
    (setup, counts): (&AuditSetup<'_>, &GroupCounts),
    level: GroupLevel<'a>,
    (against, other_value): (ComparedWith, Option<&'a str>),
    other: &GroupCell,
) -> GapComparison<'a> {
    let suppressed = setup.suppresses(level.cell) || setup.suppresses(other);
    let budgets = budgets(setup, counts, level.target);
    let sides = Sides { of_group: level.cell, other };
    let mut gaps = gaps_between(setup, &sides, &budgets);
    if suppressed {
        gaps.iter_mut().for_each(Gap::suppress);
    }
    GapComparison { level, against, other: other_value, suppressed, gaps }
}

/// Adjusts p-values for how many of them the table has.
fn adjust(compared: &mut [GapComparison<'_>], against: ComparedWith) {
    let mut gaps: Vec<&mut Gap> = compared
        .iter_mut()
        .filter(|comparison| comparison.against == against)
        .flat_map(|comparison| &mut comparison.gaps)
        .filter(|gap| gap.p().is_some())
        .collect();
    let p: Vec<f64> = gaps.iter().filter_map(|gap| gap.p()).collect();
    let adjusted = holm(&p).into_iter().zip(benjamini_yekutieli(&p));
    for (gap, (holm, yekutieli)) in gaps.iter_mut().zip(adjusted) {
        gap.adjusted = Some((holm, yekutieli));
    }
}

fn write(
    columns: &mut ReportColumns,
    setup: &AuditSetup<'_>,
    (comparison, gap): (&GapComparison<'_>, &Gap),
    counts: &GroupCounts,
) {
    setup.begin(columns, &comparison.level, counts);
    columns.text(Some(comparison.against.name()));
    columns.text(comparison.other);
    columns.text(Some(gap.metric));
    columns.number(gap.budget);
    columns.number(gap.figures.map(|(of_group, _)| of_group));
    columns.number(gap.figures.map(|(_, other)| other));
    columns.number(gap.difference());
    columns.number(
        gap.figures.map(|(of_group, other)| of_group / other).filter(|ratio| ratio.is_finite()),
    );
    let interval = gap.contrast.and_then(|contrast| contrast.interval);
    columns.number(interval.map(|of| of.low));
    columns.number(interval.map(|of| of.high));
    columns.text(Some(gap.interval));
    columns.number(gap.p());
    columns.number(gap.adjusted.map(|(holm, _)| holm));
    columns.number(gap.adjusted.map(|(_, yekutieli)| yekutieli));
    columns.flag(gap.cost_agrees);
    columns.number(gap.tolerance);
    columns.text((!comparison.suppressed).then(|| gap.verdict(SIGNIFICANT)));
    columns.flag(Some(comparison.suppressed));
}

fn widest(compared: &[GapComparison<'_>]) -> Option<f64> {
    let gaps = compared.iter().filter(|comparison| comparison.against == ComparedWith::Reference);
    let gaps = gaps.flat_map(|comparison| &comparison.gaps);
    let gaps = gaps.filter(|gap| gap.metric == measure::RECOURSE);
    let stands = |gap: &Gap| gap.adjusted.is_some_and(|(holm, _)| holm <= SIGNIFICANT);
    let width = |gap: &Gap| {
        let difference = gap.difference()?.abs();
        Some(if stands(gap) { difference } else { 0.0 })
    };
    gaps.filter_map(width).reduce(f64::max)
}
