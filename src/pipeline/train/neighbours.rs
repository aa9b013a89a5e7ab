//! Training rows that answers will be looked for among.

use super::Fixed;
use super::load::Loaded;
use crate::encode::Slots;
use crate::feature::Cells;
use crate::nearest::{PointColumn, Points, point};
use crate::predictor::{NO_CLASS, Outcome};

/// Rows kept at most: more are hardly nearer, and all of them are held in memory.
const MOST_ROWS: usize = 500_000;

/// The first training rows that the model has decided about; they are in the order of their keys' hashes.
pub(super) fn gather(fixed: &Fixed, loaded: &Loaded) -> Points {
    let decision = |row: usize| match &loaded.sample.scores.outcome {
        Outcome::Classes { labels, .. } => {
            (labels[row] != NO_CLASS).then_some(f64::from(labels[row]))
        }
        Outcome::Values(values) => Some(values[row]).filter(|value| value.is_finite()),
    };
    let decided = (0..loaded.train).filter_map(|row| Some((row as u32, decision(row)?)));
    let (rows, decisions): (Vec<u32>, Vec<f64>) = decided.take(MOST_ROWS).unzip();
    let cells = loaded.sample.rows.take(&rows).cells;
    let columns = cells.iter().zip(&fixed.encoder.layout().slots).map(column).collect();
    Points { len: rows.len(), columns, decisions }
}

fn column((cells, slots): (&Cells, &Slots)) -> PointColumn {
    match (cells, slots) {
        (Cells::Numbers(numbers), Slots::Numeric(slots)) => {
            let standardised = |number: &f64| slots.standardised(*number);
            PointColumn::Numbers(numbers.iter().map(standardised).collect())
        }
        (Cells::Codes(codes), Slots::Categorical(_)) => {
            PointColumn::Codes(codes.iter().map(|code| point(*code)).collect())
        }
        _ => unreachable!("rows and layout are of one schema"),
    }
}
