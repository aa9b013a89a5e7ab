//! Which counterfactuals sit exactly on a bound: there the bound decides, not the model.

use arrow::array::RecordBatch;

use super::cells::{AtBounds, GroupCounts};
use super::{AuditSetup, levels};
use crate::error::Result;
use crate::feature::{FeatureKind, FeatureSchema};
use crate::output::audit_at_bound_schema;
use crate::report::ReportColumns;

/// Bounds of numbers, in the order of their bits …
const OF_NUMBERS: [&str; 6] =
    ["range_low", "range_high", "limit_low", "limit_high", "row_low", "row_high"];
/// … and of ordered categories.
const OF_CODES: [&str; 2] = ["allowed_first", "allowed_last"];
/// A move is the limit's if it is no shorter by more than what binary fractions lose.
const ROUNDING: f64 = 1e-9;

/// Where the bounds of features are.
#[derive(Debug, Clone)]
pub(super) struct Edges {
    features: Vec<Edge>,
}

#[derive(Debug, Clone)]
enum Edge {
    /// Of a number: the range, and the farthest moves down and up.
    Number {
        range: (f64, f64),
        down: f64,
        up: f64,
    },
    /// Of ordered categories: the first and the last that is allowed.
    Ordered(u32, u32),
    None,
}

impl Edges {
    pub(super) fn new(schema: &FeatureSchema, seen: &[(f64, f64)]) -> Edges {
        let features =
            schema.features.iter().zip(seen).map(|(feature, seen)| match &feature.kind {
                FeatureKind::Numeric(numeric) => {
                    let range = numeric.range.unwrap_or(*seen);
                    let scale = |share: bool| if share { range.1 - range.0 } else { 1.0 };
                    let limit = numeric
                        .limit
                        .map(|of| (of.down * scale(of.share), of.up * scale(of.share)));
                    let (down, up) = limit.unwrap_or((f64::INFINITY, f64::INFINITY));
                    Edge::Number { range, down, up }
                }
                FeatureKind::Categorical(categorical) => {
                    let Some(ranks) = &categorical.ranks else { return Edge::None };
                    let codes = (0u32..).zip(&categorical.allowed).filter(|(_, allowed)| **allowed);
                    let codes: Vec<u32> = codes.map(|(code, _)| code).collect();
                    let rank = |code: &&u32| ranks[**code as usize];
                    match (codes.iter().min_by_key(rank), codes.iter().max_by_key(rank)) {
                        (Some(first), Some(last)) => Edge::Ordered(*first, *last),
                        _ => Edge::None,
                    }
                }
            });
        Edges { features: features.collect() }
    }

    /// The bounds that a changed number sits on, a bit each; `ends` are the row's own.
    pub(super) fn of_number(
        &self,
        feature: usize,
        (new, original): (f64, f64),
        ends: (f64, f64),
    ) -> u8 {
        let Edge::Number { range, down, up } = &self.features[feature] else { return 0 };
        let moved = new - original;
        let as_far = |limit: f64| limit.is_finite() && moved.abs() >= limit * (1.0 - ROUNDING);
        let on = [
            new == range.0,
            new == range.1,
            moved < 0.0 && as_far(*down),
            moved > 0.0 && as_far(*up),
            new == ends.0,
            new == ends.1,
        ];
        bits(&on)
    }

    /// The same for a changed category.
    pub(super) fn of_code(&self, feature: usize, new: u32) -> u8 {
        let Edge::Ordered(first, last) = self.features[feature] else { return 0 };
        bits(&[new == first, new == last])
    }
}

fn bits(on: &[bool]) -> u8 {
    on.iter().enumerate().fold(0, |bits, (bound, on)| bits | u8::from(*on) << bound)
}

/// The table `at_bound`: a row for every bound that a valid counterfactual of the target sits on.
///
/// # Errors
/// Only if there is a bug.
pub fn at_bound(
    setup: &AuditSetup<'_>,
    counts: &GroupCounts,
    schema: &FeatureSchema,
) -> Result<RecordBatch> {
    let mut columns = ReportColumns::default();
    let none = AtBounds::default();
    for level in levels(counts) {
        let suppressed = setup.suppresses(level.cell);
        let everybody = &counts.cells[&level.target][0][0].bounds;
        for (feature, (all, of)) in everybody.iter().zip(&schema.features).enumerate() {
            let names = if of.numeric().is_some() { &OF_NUMBERS[..] } else { &OF_CODES[..] };
            let original = level.cell.bounds.get(feature).unwrap_or(&none);
            for (bound, name) in names.iter().enumerate().filter(|(bound, _)| all.on[*bound] > 0) {
                let (changed, on) = (original.changed, original.on[bound]);
                let share = (changed > 0 && !suppressed).then(|| on as f64 / changed as f64);
                setup.begin(&mut columns, &level, counts);
                columns.text(Some(&of.name));
                columns.text(Some(name));
                columns.count(level.cell.sums.valid);
                columns.maybe_count((!suppressed).then_some(changed));
                columns.maybe_count((!suppressed).then_some(on));
                columns.number(share);
                columns.flag(Some(suppressed));
            }
        }
    }
    columns.finish(audit_at_bound_schema())
}
