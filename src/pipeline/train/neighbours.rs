//! Training rows that answers will be looked for among.

use arrow::datatypes::DataType;

use super::Fixed;
use super::load::Loaded;
use crate::encode::Slots;
use crate::feature::{Cells, whole_range};
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
    let columns: Vec<PointColumn> =
        cells.iter().zip(&fixed.encoder.layout().slots).map(column).collect();
    let types = loaded.sample.originals.schema();
    let types = types.fields().iter().map(|field| field.data_type());
    let exact = cells.iter().zip(&fixed.encoder.layout().slots).zip(&columns).zip(types);
    let exact =
        exact.map(|(((cells, slots), column), of)| exact_numbers((cells, slots), column, of));
    Points { len: rows.len(), exact: exact.collect(), columns, decisions }
}

/// Numbers as they are, where the standardised ones, in single precision, do not tell them to the last bit.
fn exact_numbers(
    (cells, slots): (&Cells, &Slots),
    column: &PointColumn,
    data_type: &DataType,
) -> Vec<f64> {
    let (Cells::Numbers(numbers), Slots::Numeric(slots), PointColumn::Numbers(standardised)) =
        (cells, slots, column)
    else {
        return Vec::new();
    };
    let whole = whole_range(data_type).is_some();
    let agrees = |(number, standardised): (&f64, &f32)| {
        let near = f64::from(*standardised) * slots.std + slots.mean;
        number.is_nan() || *number == if whole { near.round_ties_even() } else { near }
    };
    let all = numbers.iter().zip(standardised).all(agrees);
    if all { Vec::new() } else { numbers.clone() }
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
