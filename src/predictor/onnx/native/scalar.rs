//! Single numbers on their way from a change to the model: rounded to the type of the table's column, as a batch
//! would hold them, then to the type of the model's input.

use arrow::array::types::{Int64Type, UInt64Type};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use super::values::{ElementType, Value};
use crate::feature::whole_range;

/// Whole numbers up to here are told apart by `f64`.
const EXACT: u64 = 1 << 53;

/// A number as a table's column holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stored {
    Null,
    Int(i64),
    Unsigned(u64),
    Single(f32),
    Double(f64),
}

/// Whether numbers of a column of that type are known here.
pub(super) fn is_known(data_type: &DataType) -> bool {
    let real = matches!(data_type, DataType::Float32 | DataType::Float64);
    real || whole_range(data_type).is_some()
}

/// Whether `f64` tells all numbers of a column apart, so that a change to the same number is none.
pub(super) fn is_exact(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::UInt64 => {
            let numbers = column.as_primitive::<UInt64Type>();
            numbers.iter().flatten().all(|number| number <= EXACT)
        }
        DataType::Int64 | DataType::Date64 | DataType::Timestamp(..) => {
            let Ok(whole) = cast(column, &DataType::Int64) else { return false };
            let numbers = whole.as_primitive::<Int64Type>();
            numbers.iter().flatten().all(|number| number.unsigned_abs() <= EXACT)
        }
        _ => true,
    }
}

/// A number as a column of that type holds it; NaN stands for a null.
pub(super) fn stored(number: f64, data_type: &DataType) -> Stored {
    if number.is_nan() {
        return Stored::Null;
    }
    match (whole_range(data_type), data_type) {
        (Some((low, high)), DataType::UInt64) => {
            Stored::Unsigned(number.round_ties_even().clamp(low, high) as u64)
        }
        (Some((low, high)), _) => Stored::Int(number.round_ties_even().clamp(low, high) as i64),
        (None, DataType::Float32) => Stored::Single(number as f32),
        (None, _) => Stored::Double(number),
    }
}

/// What the model is told of a stored number; none where its type has no place for it.
pub(super) fn converted(stored: Stored, kind: ElementType) -> Option<Value> {
    Some(match kind {
        ElementType::Float => Value::Float(match stored {
            Stored::Null => f32::NAN,
            Stored::Int(number) => number as f32,
            Stored::Unsigned(number) => number as f32,
            Stored::Single(number) => number,
            Stored::Double(number) => number as f32,
        }),
        ElementType::Double => Value::Double(match stored {
            Stored::Null => f64::NAN,
            Stored::Int(number) => number as f64,
            Stored::Unsigned(number) => number as f64,
            Stored::Single(number) => number.into(),
            Stored::Double(number) => number,
        }),
        ElementType::Int64 => Value::Int(whole(stored)?),
        ElementType::Int32 => Value::Int(i32::try_from(whole(stored)?).ok()?.into()),
        ElementType::Bool | ElementType::Text => return None,
    })
}

fn whole(stored: Stored) -> Option<i64> {
    match stored {
        Stored::Int(number) => Some(number),
        Stored::Unsigned(number) => i64::try_from(number).ok(),
        Stored::Null | Stored::Single(_) | Stored::Double(_) => None,
    }
}
