//! Arrow columns as the two things features are made of: numbers (`f64`) and category codes (`u32`).
//! The one place that knows which Arrow types can be which.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, GenericStringArray, OffsetSizeTrait,
    StringViewArray,
};
use arrow::compute::{cast, cast_with_options};
use arrow::datatypes::{DataType, Int32Type, Int64Type, TimeUnit};
use hashbrown::HashMap;

use crate::error::{Error, Result};

/// Code of a null.
pub const NULL_CODE: u32 = u32::MAX;
/// Code of a value that is not in the list.
pub const UNSEEN_CODE: u32 = u32::MAX - 1;

/// What an Arrow type can hold, as far as features are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnClass {
    /// Whole numbers.
    Integer,
    /// Floating-point and decimal numbers.
    Fraction,
    /// Dates and timestamps, as numbers in their own unit.
    Time,
    /// `true` and `false`.
    Boolean,
    /// Text, plain or through a dictionary.
    Text,
}

/// The class of an Arrow type; `None` for types that no feature can have.
pub fn classify(data_type: &DataType) -> Option<ColumnClass> {
    use DataType::*;
    Some(match data_type {
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => ColumnClass::Integer,
        Float16 | Float32 | Float64 => ColumnClass::Fraction,
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => ColumnClass::Fraction,
        Date32 | Date64 | Timestamp(..) => ColumnClass::Time,
        Boolean => ColumnClass::Boolean,
        Utf8 | LargeUtf8 | Utf8View => ColumnClass::Text,
        Dictionary(_, values) => classify(values).filter(|class| *class == ColumnClass::Text)?,
        _ => return None,
    })
}

/// A type's name as people say it.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_string(),
        DataType::Dictionary(_, values) => format!("dictionary of {}", type_name(values)),
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "timestamp".to_string(),
        other => format!("{other}").to_lowercase(),
    }
}

/// Numbers of a numeric, date or timestamp column, in its own unit.
pub fn numbers(column: &ArrayRef) -> Result<Float64Array> {
    let whole = match column.data_type() {
        DataType::Date32 => Some(DataType::Int32),
        DataType::Date64 | DataType::Timestamp(..) => Some(DataType::Int64),
        _ => None,
    };
    let convert = |column: &ArrayRef, to: &DataType| {
        cast(column, to).map_err(|error| {
            Error::internal("column", format!("{} is not numeric", column.data_type()))
                .source(error)
        })
    };
    let column = match whole {
        Some(whole) => convert(column, &whole)?,
        None => Arc::clone(column),
    };
    Ok(convert(&column, &DataType::Float64)?.as_primitive().clone())
}

/// The inverse of [`numbers`]: whole-number types are rounded (half to even), values beyond the type's
/// range become its ends.
pub fn from_numbers(numbers: &Float64Array, data_type: &DataType) -> Result<ArrayRef> {
    let lossy = arrow::compute::CastOptions { safe: false, ..Default::default() };
    let convert = |column: &dyn Array, to: &DataType| {
        cast_with_options(column, to, &lossy).map_err(|error| {
            Error::internal("column", format!("numbers do not fit {to}")).source(error)
        })
    };
    let Some((low, high)) = whole_range(data_type) else { return convert(numbers, data_type) };
    let whole = match data_type {
        DataType::Date32 => DataType::Int32,
        DataType::Date64 | DataType::Timestamp(..) => DataType::Int64,
        other => other.clone(),
    };
    let rounded: Float64Array = numbers.unary(|number| number.round_ties_even().clamp(low, high));
    let rounded = convert(&rounded, &whole)?;
    if whole == *data_type { Ok(rounded) } else { convert(&rounded, data_type) }
}

/// The least and greatest value of a type of whole numbers, dates or timestamps, as far as `f64` can name
/// them exactly; none for other types.
pub fn whole_range(data_type: &DataType) -> Option<(f64, f64)> {
    Some(match data_type {
        DataType::Int8 => (f64::from(i8::MIN), f64::from(i8::MAX)),
        DataType::Int16 => (f64::from(i16::MIN), f64::from(i16::MAX)),
        DataType::Int32 | DataType::Date32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        DataType::Int64 | DataType::Date64 | DataType::Timestamp(..) => {
            (i64::MIN as f64, (i64::MAX - 1023) as f64)
        }
        DataType::UInt8 => (0.0, f64::from(u8::MAX)),
        DataType::UInt16 => (0.0, f64::from(u16::MAX)),
        DataType::UInt32 => (0.0, f64::from(u32::MAX)),
        DataType::UInt64 => (0.0, (u64::MAX - 2047) as f64),
        _ => return None,
    })
}

/// Looks category values up, whatever Arrow type carries them.
#[derive(Debug, Clone)]
pub struct CategoryIndex {
    texts: HashMap<String, u32>,
    integers: HashMap<i64, u32>,
}

impl CategoryIndex {
    /// An index over the values of a feature, as text, in code order.
    pub fn new(values: &[String]) -> CategoryIndex {
        let codes = || values.iter().zip(0u32..);
        let texts = codes().map(|(value, code)| (value.clone(), code)).collect();
        let integers =
            codes().filter_map(|(value, code)| Some((value.parse().ok()?, code))).collect();
        CategoryIndex { texts, integers }
    }

    /// Code of a value's text.
    pub fn code(&self, value: &str) -> u32 {
        self.texts.get(value).copied().unwrap_or(UNSEEN_CODE)
    }

    /// Code of every row of a text, boolean or whole-number column.
    pub fn codes(&self, column: &ArrayRef) -> Result<Vec<u32>> {
        match column.data_type() {
            DataType::Utf8 => Ok(self.text_codes(column.as_string::<i32>())),
            DataType::LargeUtf8 => Ok(self.text_codes(column.as_string::<i64>())),
            DataType::Utf8View => Ok(self.view_codes(column.as_string_view())),
            DataType::Boolean => Ok(self.boolean_codes(column.as_boolean())),
            DataType::Dictionary(_, _) => self.dictionary_codes(column),
            _ => self.integer_codes(column),
        }
    }

    fn text_codes<O: OffsetSizeTrait>(&self, column: &GenericStringArray<O>) -> Vec<u32> {
        column.iter().map(|value| value.map_or(NULL_CODE, |value| self.code(value))).collect()
    }

    fn view_codes(&self, column: &StringViewArray) -> Vec<u32> {
        column.iter().map(|value| value.map_or(NULL_CODE, |value| self.code(value))).collect()
    }

    fn boolean_codes(&self, column: &BooleanArray) -> Vec<u32> {
        let (no, yes) = (self.code("false"), self.code("true"));
        let code = |value| if value { yes } else { no };
        column.iter().map(|value| value.map_or(NULL_CODE, code)).collect()
    }

    fn integer_codes(&self, column: &ArrayRef) -> Result<Vec<u32>> {
        let column = cast(column, &DataType::Int64).map_err(|error| {
            Error::internal("column", format!("{} is not categorical", column.data_type()))
                .source(error)
        })?;
        let code = |value| self.integers.get(&value).copied().unwrap_or(UNSEEN_CODE);
        Ok(column.as_primitive::<Int64Type>().iter().map(|v| v.map_or(NULL_CODE, code)).collect())
    }

    /// One look-up per distinct value, then only small integers.
    fn dictionary_codes(&self, column: &ArrayRef) -> Result<Vec<u32>> {
        let dictionary = column.as_any_dictionary();
        let values = self.codes(dictionary.values())?;
        let keys = cast(dictionary.keys(), &DataType::Int32).map_err(|error| {
            Error::internal("column", "dictionary keys exceed 32 bits").source(error)
        })?;
        let code = |key: i32| values[key as usize];
        Ok(keys.as_primitive::<Int32Type>().iter().map(|k| k.map_or(NULL_CODE, code)).collect())
    }
}

/// Category texts as a column of the given type.
pub fn from_texts<'t>(
    texts: impl Iterator<Item = Option<&'t str>>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let plain: arrow::array::StringArray = texts.collect();
    if *data_type == DataType::Utf8 {
        return Ok(Arc::new(plain));
    }
    cast(&plain, data_type).map_err(|error| {
        Error::internal("column", format!("categories do not fit {data_type}")).source(error)
    })
}
