//! Numbers as a table's columns can hold them.

use arrow::array::Float64Array;
use arrow::datatypes::DataType;

use crate::error::Result;
use crate::feature::{from_numbers, numbers};

/// The numbers that a column makes of these, clipped to a range: whole ones where it holds no fractions.
///
/// # Errors
/// When the column's type holds no numbers.
pub(super) fn stored(
    values: &[f64],
    data_type: &DataType,
    (low, high): (f64, f64),
) -> Result<Vec<f64>> {
    let unit = match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => 0.0,
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => 10f64.powi(-i32::from(*scale)),
        _ => 1.0,
    };
    let fitting = |value: f64| {
        let value = if unit > 0.0 { (value / unit).round() * unit } else { value };
        value.max(low).min(high)
    };
    let column: Float64Array = values.iter().map(|value| Some(fitting(*value))).collect();
    let stored = numbers(&from_numbers(&column, data_type)?)?;
    Ok(stored.iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_what_their_column_holds() {
        let of = |data_type: DataType| {
            stored(&[-1.4, 0.26, 7.6, 300.0], &data_type, (0.0, 200.0)).expect("numbers")
        };
        assert_eq!(of(DataType::UInt8), [0.0, 0.0, 8.0, 200.0]);
        assert_eq!(of(DataType::Float32), [0.0, f64::from(0.26f32), f64::from(7.6f32), 200.0]);
        assert_eq!(of(DataType::Decimal128(9, 1)), [0.0, 0.3, 7.6, 200.0]);
        assert_eq!(of(DataType::Date32), [0.0, 0.0, 8.0, 200.0]);
    }
}
