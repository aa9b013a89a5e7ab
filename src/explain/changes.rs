//! What changes, in words: feature, from, to.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, PrimitiveArray, RecordBatch, StringBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::{Error, Result};
use crate::feature::Rows;
use crate::output::{change_fields, change_item};

/// The column `changes`: per row a list of what changes, in the schema's order.
pub(super) fn changes(
    originals: &Rows,
    counterfactuals: &Rows,
    (before, after): (&RecordBatch, &RecordBatch),
) -> Result<ArrayRef> {
    let options = FormatOptions::default().with_null("null");
    let formatter = |column| ValueFormatter::new(column, &options);
    let pairs = before.columns().iter().zip(after.columns());
    let formatters = pairs
        .map(|(before, after)| Ok((formatter(before)?, formatter(after)?)))
        .collect::<Result<Vec<_>, ArrowError>>()
        .map_err(|error| Error::internal("changes", "have no words").source(error))?;
    let schema = before.schema();
    let moved: Vec<Vec<bool>> = originals
        .cells
        .iter()
        .zip(&counterfactuals.cells)
        .map(|(original, new)| new.moved_from(original))
        .collect();
    let mut words = ChangeBuilders::default();
    let mut count = 0;
    for row in 0..originals.len {
        for (feature, ((before, after), moved)) in formatters.iter().zip(&moved).enumerate() {
            if moved[row] {
                words.feature.append_value(schema.field(feature).name());
                words.write(row, before, after)?;
                count += 1;
            }
        }
        words.ends.push(count);
    }
    words.finish()
}

/// The values of a column as people write them: 18000, not 18000.0.
enum ValueFormatter<'a> {
    Single(&'a PrimitiveArray<Float32Type>),
    Double(&'a PrimitiveArray<Float64Type>),
    Other(ArrayFormatter<'a>),
}

/// From here on, and below its inverse, floats are written with an exponent.
const LONG: f64 = 1e16;

impl<'a> ValueFormatter<'a> {
    fn new(
        column: &'a ArrayRef,
        options: &FormatOptions<'a>,
    ) -> Result<ValueFormatter<'a>, ArrowError> {
        Ok(match column.data_type() {
            DataType::Float32 => ValueFormatter::Single(column.as_primitive()),
            DataType::Float64 => ValueFormatter::Double(column.as_primitive()),
            _ => ValueFormatter::Other(ArrayFormatter::try_new(column.as_ref(), options)?),
        })
    }

    /// Writes a value; false if it has no words.
    fn write(&self, row: usize, text: &mut StringBuilder) -> bool {
        let short = |size: f64| size == 0.0 || (1.0 / LONG..LONG).contains(&size);
        match self {
            ValueFormatter::Single(column) if column.is_valid(row) => {
                let value = column.value(row);
                let short = short(f64::from(value.abs()));
                if short { write!(text, "{value}") } else { write!(text, "{value:e}") }.is_ok()
            }
            ValueFormatter::Double(column) if column.is_valid(row) => {
                let value = column.value(row);
                let short = short(value.abs());
                if short { write!(text, "{value}") } else { write!(text, "{value:e}") }.is_ok()
            }
            ValueFormatter::Other(values) => values.value(row).write(text).is_ok(),
            ValueFormatter::Single(_) | ValueFormatter::Double(_) => text.write_str("null").is_ok(),
        }
    }
}

struct ChangeBuilders {
    feature: StringBuilder,
    from: StringBuilder,
    to: StringBuilder,
    ends: Vec<i32>,
}

impl Default for ChangeBuilders {
    fn default() -> Self {
        let new = StringBuilder::new;
        ChangeBuilders { feature: new(), from: new(), to: new(), ends: vec![0] }
    }
}

impl ChangeBuilders {
    fn write(
        &mut self,
        row: usize,
        before: &ValueFormatter<'_>,
        after: &ValueFormatter<'_>,
    ) -> Result<()> {
        for (values, text) in [(before, &mut self.from), (after, &mut self.to)] {
            if !values.write(row, text) {
                return Err(Error::internal("changes", "have no words"));
            }
            text.append_value("");
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.feature.finish()),
            Arc::new(self.from.finish()),
            Arc::new(self.to.finish()),
        ];
        let misfit = |error| Error::internal("changes", "do not fit").source(error);
        let items = StructArray::try_new(change_fields(), columns, None).map_err(misfit)?;
        let ends = OffsetBuffer::new(self.ends.into());
        let lists = ListArray::try_new(change_item(), ends, Arc::new(items), None);
        Ok(Arc::new(lists.map_err(misfit)?))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Float64Array};

    use super::*;

    fn texts(column: ArrayRef) -> Vec<String> {
        let options = FormatOptions::default().with_null("null");
        let values = ValueFormatter::new(&column, &options).expect("values");
        let mut text = StringBuilder::new();
        for row in 0..column.len() {
            assert!(values.write(row, &mut text));
            text.append_value("");
        }
        text.finish().iter().flatten().map(str::to_string).collect()
    }

    #[test]
    fn floats_have_the_digits_that_people_write() {
        let doubles = vec![Some(18000.0), Some(0.07), Some(-0.5), None, Some(0.0), Some(1e22)];
        let found = texts(Arc::new(Float64Array::from(doubles)));
        assert_eq!(found, ["18000", "0.07", "-0.5", "null", "0", "1e22"]);
        let singles = vec![Some(0.1f32), Some(18900.0), Some(16_777_216.0), Some(1e-30), None];
        let found = texts(Arc::new(Float32Array::from(singles)));
        assert_eq!(found, ["0.1", "18900", "16777216", "1e-30", "null"]);
        assert_eq!(texts(Arc::new(Float64Array::from(vec![f64::NAN]))), ["NaN"]);
    }
}
