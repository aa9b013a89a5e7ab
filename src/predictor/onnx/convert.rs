//! Arrow columns as what tensors are made of: numbers of one type without nulls, texts, category codes.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use arrow::array::types::{Float32Type, Float64Type};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, DataType};
use arrow::error::ArrowError;
use ort::value::Utf8Data;

use crate::feature::Categorical;

/// The real numbers that tensors hold.
pub(super) trait TensorReal: ArrowNativeType {
    /// The same as an Arrow type.
    type Arrow: ArrowPrimitiveType<Native = Self>;
    /// What a null becomes.
    const NULL: Self;
    /// The nearest number of this type.
    fn nearest(number: f64) -> Self;
}

impl TensorReal for f32 {
    type Arrow = Float32Type;
    const NULL: f32 = f32::NAN;
    fn nearest(number: f64) -> f32 {
        number as f32
    }
}

impl TensorReal for f64 {
    type Arrow = Float64Type;
    const NULL: f64 = f64::NAN;
    fn nearest(number: f64) -> f64 {
        number
    }
}

/// The type of a column's values, whether or not they are dictionary-encoded.
pub(super) fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => value_type(values),
        plain => plain,
    }
}

/// Whether a column is text.
pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(value_type(data_type), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether a column has a text that every library writes alike. A fraction has not, nor has a date.
pub(super) fn has_text(data_type: &DataType) -> bool {
    let values = value_type(data_type);
    is_text(values) || values.is_integer() || matches!(values, DataType::Boolean | DataType::Null)
}

/// Whether a column is whole numbers or stands for them: dates and times are the number of their unit.
pub(super) fn has_integers(data_type: &DataType) -> bool {
    let values = value_type(data_type);
    values.is_integer()
        || is_temporal(values)
        || matches!(values, DataType::Boolean | DataType::Null)
}

/// Whether a column is numbers or stands for them.
pub(super) fn has_numbers(data_type: &DataType) -> bool {
    let values = value_type(data_type);
    has_integers(values) || values.is_floating() || values.is_decimal()
}

fn is_temporal(data_type: &DataType) -> bool {
    use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
    matches!(data_type, Date32 | Date64 | Duration(_) | Time32(_) | Time64(_) | Timestamp(..))
}

/// A column's numbers as `target`, nulls kept.
pub(super) fn numbers(column: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == target {
        return Ok(column.clone());
    }
    let values = value_type(column.data_type());
    if !is_temporal(values) {
        return cast(column, target);
    }
    let narrow = matches!(values, DataType::Date32 | DataType::Time32(_));
    let unit = if narrow { DataType::Int32 } else { DataType::Int64 };
    cast(&cast(&cast(column, values)?, &unit)?, target)
}

/// A column's numbers as reals, nulls as NaN.
pub(super) fn reals<T: TensorReal>(
    column: &ArrayRef,
) -> Result<PrimitiveArray<T::Arrow>, ArrowError> {
    let numbers = numbers(column, &T::Arrow::DATA_TYPE)?;
    let numbers = numbers.as_primitive::<T::Arrow>();
    if numbers.null_count() == 0 {
        return Ok(numbers.clone());
    }
    let filled = numbers.iter().map(|number| number.unwrap_or(T::NULL));
    Ok(PrimitiveArray::from_iter_values(filled))
}

/// A column of a kind that [`has_text`], as one of the types that [`is_text`].
pub(super) fn textual(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if is_text(column.data_type()) { Ok(column.clone()) } else { cast(column, &DataType::Utf8) }
}

/// The texts of a column of a type that [`is_text`]; `null` stands in for nulls.
pub(super) fn texts<'a>(column: &'a dyn Array, null: &'a str) -> Vec<&'a str> {
    let or_null = |text: Option<&'a str>| text.unwrap_or(null);
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().iter().map(or_null).collect(),
        DataType::LargeUtf8 => column.as_string::<i64>().iter().map(or_null).collect(),
        DataType::Utf8View => column.as_string_view().iter().map(or_null).collect(),
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            gather(column, &texts(dictionary.values(), null), null)
        }
        // Anything else was refused when the model was opened.
        _ => vec![null; column.len()],
    }
}

/// A text as `ort` wants to be handed it: of a type without a lifetime. All texts of a column share one
/// piece of memory, so there is no allocation for each.
#[derive(Debug, Clone)]
pub(super) struct Text {
    all: Rc<str>,
    range: Range<usize>,
}

impl Utf8Data for Text {
    fn as_utf8_bytes(&self) -> &[u8] {
        &self.all.as_bytes()[self.range.clone()]
    }
}

impl Text {
    /// The same texts, each as one of these.
    pub(super) fn shared(texts: &[&str]) -> Vec<Text> {
        let all: Rc<str> = texts.concat().into();
        let mut end = 0;
        let shared = texts.iter().map(|text| {
            let start = end;
            end += text.len();
            Text { all: all.clone(), range: start..end }
        });
        shared.collect()
    }
}

/// What each row of a dictionary column points at; `null` for rows that are null themselves.
fn gather<T: Copy>(column: &dyn Array, values: &[T], null: T) -> Vec<T> {
    let dictionary = column.as_any_dictionary();
    if values.is_empty() {
        return vec![null; column.len()];
    }
    let keys = dictionary.normalized_keys();
    let Some(nulls) = dictionary.keys().nulls() else {
        return keys.into_iter().map(|key| values[key]).collect();
    };
    let rows = keys.into_iter().zip(nulls);
    rows.map(|(key, valid)| if valid { values[key] } else { null }).collect()
}

/// The code of a category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// Position in the feature schema's values.
    Known(u32),
    /// Not one of those values.
    Unseen,
    Null,
}

/// Category codes by text.
#[derive(Debug)]
pub(super) struct CodesByText {
    by_text: HashMap<String, u32>,
    null: Code,
}

impl CodesByText {
    /// The codes of a feature. A null is what `null_text` is, should that be one of its values.
    pub(super) fn new(feature: &Categorical, null_text: &str) -> CodesByText {
        let codes = feature.values.iter().zip(0..);
        let by_text: HashMap<String, u32> =
            codes.map(|(text, code)| (text.clone(), code)).collect();
        let null = by_text.get(null_text).map_or(Code::Null, |code| Code::Known(*code));
        CodesByText { by_text, null }
    }

    /// How many values the feature has.
    pub(super) fn len(&self) -> usize {
        self.by_text.len()
    }

    /// The codes of a column of a kind that [`has_text`].
    pub(super) fn of(&self, column: &ArrayRef) -> Result<Vec<Code>, ArrowError> {
        let column = textual(column)?;
        Ok(self.of_text(&column))
    }

    fn of_text(&self, column: &dyn Array) -> Vec<Code> {
        if let Some(dictionary) = column.as_any_dictionary_opt() {
            return gather(column, &self.of_text(dictionary.values()), self.null);
        }
        let mut codes: Vec<Code> =
            texts(column, "").into_iter().map(|text| self.code(text)).collect();
        if let Some(nulls) = column.nulls() {
            let rows = codes.iter_mut().zip(nulls);
            rows.filter(|(_, valid)| !valid).for_each(|(code, _)| *code = self.null);
        }
        codes
    }

    fn code(&self, text: &str) -> Code {
        self.by_text.get(text).map_or(Code::Unseen, |code| Code::Known(*code))
    }
}

/// A column without nulls, `fill` in their place, and the rows where they were.
pub(super) fn without_nulls<T: ArrowPrimitiveType>(
    column: &PrimitiveArray<T>,
    fill: T::Native,
) -> (ArrayRef, Vec<usize>) {
    if column.null_count() == 0 {
        return (Arc::new(column.clone()), Vec::new());
    }
    let rows = (0..column.len()).filter(|row| column.is_null(*row)).collect();
    let filled = column.iter().map(|value| value.unwrap_or(fill));
    (Arc::new(PrimitiveArray::<T>::from_iter_values(filled)), rows)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Int64Array, LargeStringArray,
        StringArray, StringViewArray, TimestampMillisecondArray, UInt16Array,
    };
    use arrow::datatypes::Int8Type;

    use super::*;

    fn dictionary() -> DictionaryArray<Int8Type> {
        vec![Some("b"), None, Some("a"), Some("z"), Some("b")].into_iter().collect()
    }

    #[test]
    fn every_kind_of_number_becomes_a_real() {
        let decimal = Decimal128Array::from(vec![Some(12_345), None])
            .with_precision_and_scale(9, 2)
            .expect("it fits");
        let columns: [(ArrayRef, [f32; 2]); 6] = [
            (Arc::new(UInt16Array::from(vec![7, 8])), [7.0, 8.0]),
            (Arc::new(BooleanArray::from(vec![Some(true), None])), [1.0, f32::NAN]),
            (Arc::new(Date32Array::from(vec![20_000, -1])), [20_000.0, -1.0]),
            (Arc::new(TimestampMillisecondArray::from(vec![5, 6])), [5.0, 6.0]),
            (Arc::new(decimal), [123.45, f32::NAN]),
            (Arc::new(Int64Array::from(vec![None, Some(3)])), [f32::NAN, 3.0]),
        ];
        for (column, expected) in columns {
            let found = reals::<f32>(&column).expect("numbers");
            let found = found.values();
            let same =
                found.iter().zip(expected).all(|(a, b)| *a == b || (a.is_nan() && b.is_nan()));
            assert!(same, "{:?}: {found:?}, expected {expected:?}", column.data_type());
        }
    }

    #[test]
    fn every_kind_of_text_gives_the_same_texts() {
        let given = vec![Some("b"), None, Some("a"), Some("z"), Some("b")];
        let columns: [ArrayRef; 4] = [
            Arc::new(StringArray::from(given.clone())),
            Arc::new(LargeStringArray::from(given.clone())),
            Arc::new(StringViewArray::from(given)),
            Arc::new(dictionary()),
        ];
        for column in columns {
            assert_eq!(texts(&column, "?"), ["b", "?", "a", "z", "b"], "{:?}", column.data_type());
            assert_eq!(texts(&column.slice(3, 2), "?"), ["z", "b"], "{:?}", column.data_type());
        }
        let empty = DictionaryArray::<Int8Type>::from_iter(vec![None::<&str>, None]);
        assert_eq!(texts(&empty, "?"), ["?", "?"]);
    }

    #[test]
    fn categories_become_codes() {
        let values = ["a", "b"].map(String::from).to_vec();
        let feature = Categorical {
            allowed: vec![true; 2],
            values,
            unseen: crate::feature::UnseenPolicy::Carry,
            fill: None,
            ranks: None,
        };
        use Code::{Known, Null, Unseen};
        let codes = CodesByText::new(&feature, "");
        let column: ArrayRef = Arc::new(dictionary());
        let expected = [Known(1), Null, Known(0), Unseen, Known(1)];
        assert_eq!(codes.of(&column).expect("texts"), expected);
        let plain = cast(&column, &DataType::Utf8).expect("texts");
        assert_eq!(codes.of(&plain).expect("texts"), expected);
        assert_eq!(CodesByText::new(&feature, "a").of(&column).expect("texts")[1], Known(0));
    }

    #[test]
    fn whole_numbers_and_booleans_have_a_text() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(-7), None]));
        assert_eq!(texts(&textual(&numbers).expect("texts"), ""), ["-7", ""]);
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
        assert_eq!(texts(&textual(&flags).expect("texts"), ""), ["true", "false"]);
        assert!(!has_text(&DataType::Float64) && !has_text(&DataType::Date32));
    }
}
