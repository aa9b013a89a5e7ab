//! How much single features can do: the share of the values that a row's constraints allow which alone give the target.

use std::collections::HashSet;

use super::ask::{Copy, DerivedPolicy, ask};
use super::budget::Allotment;
use super::groups::{count, mean};
use super::sample::{AuditSample, Chosen, SampledGroup};
use super::{Asker, NamedTable};
use crate::error::Result;
use crate::explain::Explainer;
use crate::feature::{Cell, Edit, Edits};
use crate::output::responsiveness_schema;
use crate::report::ReportColumns;

/// Rows that are looked at, at most.
pub(super) const ROWS: usize = 1_000;
/// Values of a feature that are tried, at most.
const VALUES: usize = 32;

/// Questions about a row, at most.
pub(super) fn per_row(features: usize) -> u64 {
    (VALUES * features + 1) as u64
}

/// What the values of a feature do for each row.
struct TriedValues {
    values: Vec<u32>,
    reached: Vec<u32>,
}

/// The table of the section.
///
/// # Errors
/// When the model as a whole fails.
pub(super) fn responsiveness(
    asker: &Asker<'_>,
    refused: &Chosen,
    allotted: &Allotment,
) -> Result<Vec<NamedTable>> {
    let mut columns = ReportColumns::default();
    let rows = refused.slice(0, allotted.rows() as usize);
    if let Some(sample) = rows.inspect(&asker.explainer, asker.table)? {
        let groups = sample.groups();
        let features = asker.explainer.schema().features.len();
        let tried: Vec<Option<TriedValues>> = (0..features)
            .map(|feature| try_values(asker, &sample, feature))
            .collect::<Result<_>>()?;
        for group in &groups {
            for (feature, tried) in tried.iter().enumerate() {
                if let Some(tried) = tried {
                    tell((asker, group), (feature, tried), &mut columns);
                }
            }
        }
    }
    Ok(vec![("responsiveness", columns.finish(responsiveness_schema())?)])
}

/// Tries a feature's values on all rows; none if no row may change it.
fn try_values(
    asker: &Asker<'_>,
    sample: &AuditSample,
    feature: usize,
) -> Result<Option<TriedValues>> {
    let explainer = asker.explainer.as_ref();
    let mut copies = Vec::new();
    for row in 0..sample.len() {
        let edits = values(explainer, sample, (feature, row));
        copies.extend(edits.into_iter().map(|edits| Copy { row: row as u32, edits }));
    }
    if copies.is_empty() {
        return Ok(None);
    }
    let predictions = ask(explainer, (&sample.rows, DerivedPolicy::Follow), &copies)?;
    let mut tried = TriedValues { values: vec![0; sample.len()], reached: vec![0; sample.len()] };
    for (copy, prediction) in copies.iter().zip(predictions) {
        tried.values[copy.row as usize] += 1;
        tried.reached[copy.row as usize] += u32::from(prediction.reached);
    }
    Ok(Some(tried))
}

/// What a feature of a row may become alone: all of it, or values spread evenly over it.
fn values(
    explainer: &Explainer,
    sample: &AuditSample,
    (feature, row): (usize, usize),
) -> Vec<Edits> {
    let (rows, constraints) = (&sample.rows, explainer.constraints());
    if constraints.is_derived(feature) {
        return Vec::new();
    }
    let feasible = constraints.feasible(&rows.conditions, &rows.bounds, row);
    let own = rows.originals.cell(feature, row);
    let cells = feasible.options(feature, own, VALUES).unwrap_or_else(|| match own {
        Cell::Code(_) => {
            let all = feasible.options(feature, own, usize::MAX).unwrap_or_default();
            let step = all.len() as f64 / VALUES as f64;
            (0..VALUES).filter_map(|at| all.get((at as f64 * step) as usize).copied()).collect()
        }
        Cell::Number(number) => {
            let spread = |(low, high): (f64, f64)| {
                let at = move |at: usize| low + (high - low) * at as f64 / (VALUES - 1) as f64;
                let found = (0..VALUES).map(|step| feasible.number(feature, at(step), number));
                let mut seen = HashSet::new();
                let new = |found: &f64| *found != number && seen.insert(found.to_bits());
                found.filter(new).map(Cell::Number).collect()
            };
            feasible.interval(feature, number).map_or(Vec::new(), spread)
        }
    });
    let original = |feature: usize| rows.originals.cell(feature, row);
    let edits = cells.into_iter().map(|cell| Edits::from_iter([Edit { feature, cell }]));
    edits.filter(|edits| constraints.is_coherent(edits, original)).collect()
}

fn tell(
    (asker, group): (&Asker<'_>, &SampledGroup),
    (feature, tried): (usize, &TriedValues),
    columns: &mut ReportColumns,
) {
    let movable: Vec<u32> =
        group.rows.iter().copied().filter(|row| tried.values[*row as usize] > 0).collect();
    let sum = |of: &[u32]| movable.iter().map(|row| u64::from(of[*row as usize])).sum::<u64>();
    let share = |row: &u32| {
        let row = *row as usize;
        f64::from(tried.reached[row]) / f64::from(tried.values[row])
    };
    let rows = movable.len() as u64;
    let responsive = count(&movable, |row| tried.reached[row] > 0);
    asker.names.begin(columns, group);
    columns.text(Some(&asker.explainer.schema().features[feature].name));
    columns.count(rows);
    columns.count(sum(&tried.values));
    columns.count(sum(&tried.reached));
    columns.number(mean(movable.iter().map(share)).filter(|_| asker.names.shows(rows)));
    columns.count(responsive);
    asker.names.share(columns, responsive, rows);
}
