//! Whether counterfactuals stay valid under small errors: copies of valid counterfactuals with some noise in their numbers.

use arrow::datatypes::DataType;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::ask::{Copy, DerivedPolicy, ask};
use super::budget::Allotment;
use super::groups::{count, mean};
use super::sample::{AuditSample, Chosen};
use super::values::stored;
use super::{Asker, NamedTable};
use crate::error::Result;
use crate::feature::{Cell, Edit, Edits, FeatureStats};
use crate::output::robustness_schema;
use crate::report::ReportColumns;

/// Counterfactuals that are looked at, at most.
pub(super) const ROWS: usize = 1_000;
/// Copies of each.
pub(super) const COPIES: usize = 16;
/// Standard deviation of the noise, in standard deviations of the feature among training rows.
const NOISE: f64 = 0.05;

/// Questions about a row, at most.
pub(super) fn per_row() -> u64 {
    COPIES as u64 + 1
}

/// The table of the section.
///
/// # Errors
/// When the model as a whole fails.
pub(super) fn robustness(
    asker: &Asker<'_>,
    valid: &Chosen,
    allotted: &Allotment,
) -> Result<Vec<NamedTable>> {
    let mut columns = ReportColumns::default();
    let rows = valid.slice(0, allotted.rows() as usize);
    if let Some(sample) = rows.inspect(&asker.explainer, asker.table)? {
        let copies = noisy(asker, &sample)?;
        let predictions = ask(&asker.explainer, (&sample.rows, DerivedPolicy::Follow), &copies)?;
        let mut held = vec![0u32; sample.len()];
        for (copy, prediction) in copies.iter().zip(predictions) {
            held[copy.row as usize] += u32::from(prediction.reached);
        }
        for group in sample.groups() {
            let rows = group.rows.len() as u64;
            let share = |row: &u32| f64::from(held[*row as usize]) / COPIES as f64;
            let validity = mean(group.rows.iter().map(share)).filter(|_| asker.names.shows(rows));
            asker.names.begin(&mut columns, &group);
            columns.count(rows);
            columns.count(COPIES as u64);
            columns.count(group.rows.iter().map(|row| u64::from(held[*row as usize])).sum());
            columns.number(validity);
            columns.number(validity.map(|validity| 1.0 - validity));
            columns.count(count(&group.rows, |row| held[row] < COPIES as u32));
        }
    }
    Ok(vec![("robustness", columns.finish(robustness_schema())?)])
}

/// Copies of the counterfactuals: every number that is not computed from others moves by Gaussian noise, stays within
/// what training rows or the counterfactual have, and becomes what its column can hold. Categories and nulls stay.
fn noisy(asker: &Asker<'_>, sample: &AuditSample) -> Result<Vec<Copy>> {
    let seed = asker.setup.streams.seed_of("audit noise");
    let constraints = asker.explainer.constraints();
    let stats = &asker.setup.artefact.description.stats.features;
    let mut cells: Vec<Vec<Cell>> = Vec::with_capacity(stats.len());
    for (feature, stats) in stats.iter().enumerate() {
        let counterfactuals =
            (0..sample.len()).map(|row| sample.counterfactuals.cell(feature, row));
        let copies = counterfactuals.flat_map(|cell| std::iter::repeat_n(cell, COPIES));
        let FeatureStats::Numeric(stats) = stats else {
            cells.push(copies.collect());
            continue;
        };
        if constraints.is_derived(feature) || stats.std.is_nan() || stats.std <= 0.0 {
            cells.push(copies.collect());
            continue;
        }
        let data_type = sample.rows.before.column(feature).data_type();
        let moved = moved(
            (sample, feature),
            (seed, NOISE * stats.std),
            (data_type, (stats.min, stats.max)),
        )?;
        cells.push(moved.into_iter().map(Cell::Number).collect());
    }
    let copy = |at: usize| {
        let row = at / COPIES;
        let original = |feature: usize| sample.rows.originals.cell(feature, row);
        let edit = |feature: usize| Edit { feature, cell: cells[feature][at] };
        let moved = |edit: &Edit| {
            !constraints.is_derived(edit.feature) && edit.cell != original(edit.feature)
        };
        let edits: Edits = (0..cells.len()).map(edit).filter(moved).collect();
        Copy { row: row as u32, edits }
    };
    Ok((0..sample.len() * COPIES).map(copy).collect())
}

/// A feature's numbers in the copies of all rows.
fn moved(
    (sample, feature): (&AuditSample, usize),
    (seed, deviation): (u64, f64),
    (data_type, seen): (&DataType, (f64, f64)),
) -> Result<Vec<f64>> {
    let mut all = Vec::with_capacity(sample.len() * COPIES);
    for row in 0..sample.len() {
        let Cell::Number(number) = sample.counterfactuals.cell(feature, row) else { continue };
        if number.is_nan() {
            all.extend([number; COPIES]);
            continue;
        }
        let mut bytes = [0; 28];
        bytes[..16].copy_from_slice(&sample.rows.hashes[row].to_le_bytes());
        bytes[16..20].copy_from_slice(&sample.rows.target_numbers[row].to_le_bytes());
        bytes[20..].copy_from_slice(&(feature as u64).to_le_bytes());
        let mut random = ChaCha8Rng::seed_from_u64(xxh3_64_with_seed(&bytes, seed));
        let noise = |_| {
            let noise: f64 = StandardNormal.sample(&mut random);
            number + deviation * noise
        };
        let noisy: Vec<f64> = (0..COPIES).map(noise).collect();
        all.extend(stored(&noisy, data_type, (seen.0.min(number), seen.1.max(number)))?);
    }
    Ok(all)
}
