//! From written tables to reports: counterfactuals are read back and counted beside the rows of the input
//! ([`Counter`]), split by split, and the counts become coverage, validity, sparsity, plausibility, features, and how
//! like rows of the target class counterfactuals are ([`MmdComparison`]).

mod columns;
mod compare;
mod count;
mod gates;
mod input;
mod mmd;
mod pieces;
mod rejects;
mod robust;
mod rules;
mod sample;
mod survival;
mod written;

use std::sync::Arc;

use arrow::array::RecordBatch;

use crate::error::{Error, Result};
use crate::feature::FeatureSchema;
use crate::metrics::{GroupTally, RowCount, Segment, Sketch, Source, Status, Tally, wilson};
use crate::output::{
    LOW_QUANTILES, QUANTILES, coverage_schema, features_schema, plausibility_schema,
    sparsity_schema, validity_schema,
};

pub(crate) use columns::ReportColumns;
pub use compare::{ComparedFigures, agreement};
pub use count::{CountSinks, Counter, CounterSetup, FurtherCounts, SplitFigures};
pub use gates::{Gate, Reached, check_gates};
pub use input::InputRows;
pub use mmd::{AtTarget, MmdComparison, MmdRow, mmd_ratio, mmd_table};
pub use pieces::{Piece, SplitReader};
pub use rejects::count_rejects;
pub use robust::{Robust, robust};
pub use rules::rules;
pub use sample::{Keep, MmdSample};
pub use survival::{Retrained, Survival, survival};
pub use written::{
    WrittenRows, column, features as written_features, of_method as written_of_method, read,
    read_row, statuses as written_statuses,
};

/// What numbers in a tally stand for.
#[derive(Debug, Clone)]
pub struct Names {
    /// The method.
    pub method: &'static str,
    /// Wanted decisions.
    pub targets: Vec<String>,
    /// Segment columns.
    pub by: Vec<String>,
    /// The features.
    pub schema: Arc<FeatureSchema>,
}

/// Whose figures a row of a report has.
#[derive(Debug, Clone)]
pub struct Level<'a> {
    /// `all`, `target` or `segment`.
    pub name: &'static str,
    /// Number of the target.
    pub target: Option<u32>,
    /// Values of the segment columns.
    pub segment: Option<&'a Segment>,
}

/// The segments of every target, in the order of their values.
fn segments<'a>(tally: &'a Tally, names: &Names) -> Vec<(Level<'a>, GroupTally)> {
    if names.by.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (target, groups) in &tally.groups {
        let mut of_target: Vec<(&Segment, &GroupTally)> = groups
            .iter()
            .map(|(number, group)| (&tally.segments[*number as usize], group))
            .collect();
        of_target.sort_by(|left, right| left.0.cmp(right.0));
        found.extend(of_target.into_iter().map(|(segment, group)| {
            let level = Level { name: "segment", target: Some(*target), segment: Some(segment) };
            (level, group.clone())
        }));
    }
    found
}

/// All rows of a report, in its order.
fn rows<'a>(tally: &'a Tally, names: &Names) -> Vec<(Level<'a>, GroupTally)> {
    let all = Level { name: "all", target: None, segment: None };
    let mut rows = vec![(all, tally.total())];
    for target in tally.groups.keys() {
        let level = Level { name: "target", target: Some(*target), segment: None };
        rows.push((level, tally.of_target(*target)));
    }
    rows.extend(segments(tally, names));
    rows
}

/// Rows by status.
///
/// # Errors
/// Only if there is a bug.
pub fn coverage(tally: &Tally, names: &Names, rejected: u64) -> Result<RecordBatch> {
    let mut columns = ReportColumns::new(names);
    let sources = tally.total().reported_sources();
    for (level, group) in rows(tally, names) {
        let mut counts = statuses(&group, &sources);
        if level.name == "all" {
            counts.push(("rejected", None, RowCount { rows: rejected, queries: 0 }));
        }
        let total: u64 = counts.iter().map(|(_, _, count)| count.rows).sum();
        for (status, source, count) in counts {
            columns.group(&level, names);
            columns.text(Some(status));
            columns.text(source);
            columns.count(count.rows);
            columns.number(Some(share(count.rows, total)));
            columns.count(count.queries);
            let infeasible = status == Status::Infeasible.name();
            columns.count(if infeasible { group.certified } else { 0 });
        }
    }
    columns.finish(coverage_schema(&names.by))
}

/// Rows by status, and solved ones by source: every row is in one of the counts.
fn statuses(
    group: &GroupTally,
    sources: &[Source],
) -> Vec<(&'static str, Option<&'static str>, RowCount)> {
    let solved = Status::Solved.name();
    let by_source =
        sources.iter().map(|source| (solved, Some(source.name()), group.of_source(*source)));
    let others = Status::ALL.into_iter().filter(|status| *status != Status::Solved);
    let others = others.map(|status| (status.name(), None, group.of_status(status)));
    by_source.chain(others).collect()
}

/// How many counterfactuals reaches the target.
///
/// # Errors
/// Only if there is a bug.
pub fn validity(tally: &Tally, names: &Names) -> Result<RecordBatch> {
    let mut columns = ReportColumns::new(names);
    for (level, group) in rows(tally, names) {
        let (needed, valid) = (group.needed(), group.solved());
        let interval = wilson(valid, needed);
        columns.group(&level, names);
        columns.count(needed);
        columns.count(valid);
        columns.number((needed > 0).then(|| share(valid, needed)));
        columns.number(Some(interval.low));
        columns.number(Some(interval.high));
        columns.number(group.margin.mean());
        columns.number(group.margin.quantile(0.05));
        columns.number(group.margin.quantile(0.25));
    }
    columns.finish(validity_schema(&names.by))
}

/// How far counterfactuals are from their rows.
///
/// # Errors
/// Only if there is a bug.
pub fn sparsity(tally: &Tally, names: &Names) -> Result<RecordBatch> {
    let mut columns = ReportColumns::new(names);
    for (level, group) in rows(tally, names) {
        for (over, spread) in [("valid", &group.valid), ("all", &group.all)] {
            columns.group(&level, names);
            columns.text(Some(over));
            columns.count(spread.l1.count());
            for sketch in [&spread.l0, &spread.l1] {
                columns.number(sketch.mean());
                QUANTILES.iter().for_each(|(_, share)| columns.number(sketch.quantile(*share)));
            }
            // Features are counted in whole numbers, of which a sketch gives back the small ones exactly.
            columns.number(spread.changed.mean());
            let whole = |share: &f64| spread.changed.whole_quantile(*share);
            QUANTILES.iter().for_each(|(_, share)| columns.number(whole(share)));
        }
    }
    columns.finish(sparsity_schema(&names.by))
}

/// How plausible valid counterfactuals are.
///
/// # Errors
/// Only if there is a bug.
pub fn plausibility(tally: &Tally, names: &Names) -> Result<RecordBatch> {
    let mut columns = ReportColumns::new(names);
    for (level, group) in rows(tally, names) {
        let found = &group.plausibility;
        columns.group(&level, names);
        columns.count(found.count());
        columns.number(found.mean());
        LOW_QUANTILES.iter().for_each(|(_, share)| columns.number(found.quantile(*share)));
    }
    columns.finish(plausibility_schema(&names.by))
}

/// How features change.
///
/// # Errors
/// Only if there is a bug.
pub fn features(tally: &Tally, names: &Names) -> Result<RecordBatch> {
    let mut columns = ReportColumns::new(names);
    for (level, group) in rows(tally, names) {
        let valid = group.solved();
        for (feature, changes) in names.schema.features.iter().zip(&group.features) {
            let numeric = feature.numeric().is_some();
            let decreased = if numeric { changes.changed - changes.increased } else { 0 };
            let commonest =
                changes.values.iter().max_by_key(|(code, rows)| (**rows, u32::MAX - **code));
            let commonest = commonest.and_then(|(code, _)| {
                feature.categorical()?.values.get(*code as usize).map(String::as_str)
            });
            columns.group(&level, names);
            columns.text(Some(&feature.name));
            columns.count(valid);
            columns.count(changes.changed);
            columns.number(Some(share(changes.changed, valid)));
            columns.count(changes.increased);
            columns.count(decreased);
            // A sketch knows a number within a share of it; where all are whole, so is their median.
            let whole = changes.fractions == 0;
            let median = if whole { Sketch::whole_quantile } else { Sketch::quantile };
            columns.number(median(&changes.size, 0.5));
            columns.text(commonest);
        }
    }
    columns.finish(features_schema(&names.by))
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The name of a target.
fn target_name(names: &Names, target: u32) -> Result<&str> {
    let name = names.targets.get(target as usize).map(String::as_str);
    name.ok_or_else(|| Error::internal("reports", "a target has no name"))
}
