//! Whether a protected feature decides by itself: rows get its other values, with all else as it is.

use super::ask::{Copy, CopyPrediction, DerivedPolicy, as_they_are, ask};
use super::budget::Allotment;
use super::groups::count;
use super::sample::{AuditSample, Chosen};
use super::values::stored;
use super::{Asker, NamedTable};
use crate::error::Result;
use crate::feature::{Cell, Edit, Edits, FeatureSchema, FeatureStats, Stats};
use crate::output::explicit_schema;
use crate::predictor::NO_CLASS;
use crate::report::ReportColumns;

/// Rows that are looked at, at most.
pub(super) const ROWS: usize = 2_000;

/// Other values of a feature: all categories, or quantiles of the numbers of training rows.
fn others(schema: &FeatureSchema, stats: &Stats, feature: usize) -> Vec<Cell> {
    match (schema.features[feature].categorical(), &stats.features[feature]) {
        (Some(categorical), _) => (0..categorical.values.len() as u32).map(Cell::Code).collect(),
        (None, FeatureStats::Numeric(seen)) => seen
            .quantiles
            .iter()
            .copied()
            .filter(|value| value.is_finite())
            .map(Cell::Number)
            .collect(),
        _ => Vec::new(),
    }
}

/// Questions about a row, at most.
pub(super) fn per_row((schema, stats): (&FeatureSchema, &Stats), protected: &[usize]) -> u64 {
    let values = protected.iter().map(|feature| others(schema, stats, *feature).len() as u64);
    values.sum::<u64>() + 1
}

/// What another value of a feature does to a row's decision.
struct Flips {
    copies: Vec<u32>,
    flipped: Vec<u32>,
}

/// The table of the section.
///
/// # Errors
/// When the model as a whole fails.
pub(super) fn explicit(
    asker: &Asker<'_>,
    (any, protected): (&Chosen, &[usize]),
    allotted: &Allotment,
) -> Result<Vec<NamedTable>> {
    let mut columns = ReportColumns::default();
    let rows = any.slice(0, allotted.rows() as usize);
    if let Some(sample) = rows.inspect(&asker.explainer, asker.table)? {
        let flips = protected.iter().map(|feature| flips(asker, &sample, *feature));
        let flips: Vec<Flips> = flips.collect::<Result<_>>()?;
        for group in sample.groups() {
            let rows = group.rows.len() as u64;
            for (feature, of) in protected.iter().zip(&flips) {
                let sum = |of: &[u32]| {
                    group.rows.iter().map(|row| u64::from(of[*row as usize])).sum::<u64>()
                };
                let (copies, flipped) = (sum(&of.copies), sum(&of.flipped));
                let shown = asker.names.shows(rows) && copies > 0;
                let rows_flipped = count(&group.rows, |row| of.flipped[row] > 0);
                asker.names.begin(&mut columns, &group);
                columns.text(Some(&asker.explainer.schema().features[*feature].name));
                columns.count(rows);
                columns.count(copies);
                columns.count(flipped);
                columns.number(shown.then(|| flipped as f64 / copies as f64));
                columns.count(rows_flipped);
                asker.names.share(&mut columns, rows_flipped, rows);
            }
        }
    }
    Ok(vec![("explicit", columns.finish(explicit_schema())?)])
}

fn flips(asker: &Asker<'_>, sample: &AuditSample, feature: usize) -> Result<Flips> {
    let explainer = asker.explainer.as_ref();
    let stats = &asker.setup.artefact.description.stats;
    let mut values = others(explainer.schema(), stats, feature);
    if let Some(numbers) = values.iter().map(number).collect::<Option<Vec<f64>>>() {
        let data_type = sample.rows.before.column(feature).data_type();
        let all = (f64::NEG_INFINITY, f64::INFINITY);
        let mut numbers = stored(&numbers, data_type, all)?;
        numbers.dedup();
        values = numbers.into_iter().map(Cell::Number).collect();
    }
    let mut copies = Vec::new();
    for row in 0..sample.len() {
        let own = sample.rows.originals.cell(feature, row);
        let other = values.iter().filter(|value| **value != own);
        let edits = other.map(|cell| Edits::from_iter([Edit { feature, cell: *cell }]));
        copies.extend(edits.map(|edits| Copy { row: row as u32, edits }));
    }
    let predictions = ask(explainer, (&sample.rows, DerivedPolicy::Stay), &copies)?;
    let before = as_they_are(&sample.rows);
    let mut found = Flips { copies: vec![0; sample.len()], flipped: vec![0; sample.len()] };
    for (copy, prediction) in copies.iter().zip(predictions) {
        let row = copy.row as usize;
        found.copies[row] += 1;
        found.flipped[row] += u32::from(differs(&before[row], &prediction));
    }
    Ok(found)
}

fn number(cell: &Cell) -> Option<f64> {
    if let Cell::Number(number) = cell { Some(*number) } else { None }
}

/// Whether two decisions differ: classes, or for a regression whether the value is the target.
fn differs(before: &CopyPrediction, after: &CopyPrediction) -> bool {
    match (before.class, after.class) {
        (NO_CLASS, NO_CLASS) => before.reached != after.reached,
        (before, after) => before != after,
    }
}
