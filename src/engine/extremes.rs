//! Which rows hold the numbers that are far from all others, and which contradict themselves: looked for
//! only where statistics say that there are such.

use arrow::array::RecordBatch;
use futures::StreamExt;

use super::keys::key_text;
use super::scan::ScanPlan;
use super::session::Engine;
use crate::error::{Error, Result};
use crate::feature::numbers;

/// Rows told of a column.
const TOLD: usize = 5;

/// A column, and between which numbers the usual ones are.
#[derive(Debug, Clone, PartialEq)]
pub struct Usual {
    /// The column.
    pub column: String,
    /// Lowest and highest usual number.
    pub range: (f64, f64),
}

/// The unusual numbers of a column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extremes {
    /// How many there are.
    pub count: u64,
    /// The farthest of them, with the keys of their rows.
    pub farthest: Vec<(f64, String)>,
}

/// Looks for numbers outside the usual range, per column. The plan's columns are the key's, and those looked
/// at, in this order.
///
/// # Errors
/// When the table cannot be read.
pub async fn find_extremes(
    engine: &Engine,
    plan: ScanPlan<'_>,
    usual: &[Usual],
) -> Result<Vec<Extremes>> {
    let keys: Vec<usize> = (0..plan.columns.len() - usual.len()).collect();
    let mut found = vec![Extremes::default(); usual.len()];
    let mut stream = engine.scan(plan).await?.stream()?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let key = batch.project(&keys).map_err(lost)?;
        for (index, (usual, found)) in usual.iter().zip(&mut found).enumerate() {
            let values = numbers(batch.column(keys.len() + index))?;
            let (low, high) = usual.range;
            for (row, value) in values.iter().enumerate() {
                let Some(value) = value.filter(|value| value.is_finite()) else { continue };
                if value < low || value > high {
                    found.add(value, &key, row)?;
                }
            }
        }
    }
    Ok(found)
}

/// Rows in which a number that may not be exceeded lies below one that must be reached, per pair of columns.
///
/// # Errors
/// When the table cannot be read.
pub async fn count_contradictions(engine: &Engine, plan: ScanPlan<'_>) -> Result<Vec<u64>> {
    let mut counts = vec![0; plan.columns.len() / 2];
    let mut stream = engine.scan(plan).await?.stream()?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        for (pair, count) in batch.columns().chunks_exact(2).zip(&mut counts) {
            let (low, high) = (numbers(&pair[0])?, numbers(&pair[1])?);
            let pairs = low.iter().zip(high.iter());
            *count += pairs
                .filter(|pair| matches!(pair, (Some(low), Some(high)) if low > high))
                .count() as u64;
        }
    }
    Ok(counts)
}

impl Extremes {
    /// Counts a number, and keeps the farthest: which those are does not depend on the order of rows.
    fn add(&mut self, value: f64, key: &RecordBatch, row: usize) -> Result<()> {
        self.count += 1;
        let nearest = self.farthest.last().map_or(0.0, |(value, _)| value.abs());
        if self.farthest.len() < TOLD || value.abs() >= nearest {
            self.farthest.push((value, key_text(key, row)?));
            let by = |(value, key): &(f64, String)| {
                (std::cmp::Reverse(value.abs().to_bits()), key.clone())
            };
            self.farthest.sort_by_key(by);
            self.farthest.truncate(TOLD);
        }
        Ok(())
    }
}

fn lost(error: arrow::error::ArrowError) -> Error {
    Error::internal("extremes", "a column is lost").source(error)
}
