//! Columns of a report, filled row by row from left to right.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, SchemaRef};

use super::{Level, Names, target_name};
use crate::error::{Error, Result};

/// One cell.
enum Cell {
    Text(Option<String>),
    Count(u64),
    Number(Option<f64>),
}

/// Cells of a report, row after row.
#[derive(Default)]
pub(super) struct Columns {
    cells: Vec<Cell>,
    by: usize,
}

impl Columns {
    pub(super) fn new(names: &Names) -> Columns {
        Columns { cells: Vec::new(), by: names.by.len() }
    }

    /// Begins a row with whose figures it has.
    pub(super) fn group(&mut self, level: &Level<'_>, names: &Names) {
        self.text(Some(level.name));
        self.text(level.target.and_then(|target| target_name(names, target).ok()));
        for index in 0..self.by {
            let value = level.segment.and_then(|segment| segment.0.get(index)?.as_deref());
            self.text(value);
        }
    }

    pub(super) fn text(&mut self, text: Option<&str>) {
        self.cells.push(Cell::Text(text.map(String::from)));
    }

    pub(super) fn count(&mut self, count: u64) {
        self.cells.push(Cell::Count(count));
    }

    pub(super) fn number(&mut self, number: Option<f64>) {
        self.cells.push(Cell::Number(number.filter(|number| !number.is_nan())));
    }

    /// The table.
    pub(super) fn finish(self, schema: SchemaRef) -> Result<RecordBatch> {
        let width = schema.fields().len();
        let of = |index: usize| self.cells.iter().skip(index).step_by(width);
        let column = |(index, field): (usize, &Arc<arrow::datatypes::Field>)| -> ArrayRef {
            match field.data_type() {
                DataType::Utf8 => Arc::new(StringArray::from_iter(of(index).map(Cell::text))),
                DataType::Int64 => Arc::new(Int64Array::from_iter(of(index).map(Cell::count))),
                _ => Arc::new(Float64Array::from_iter(of(index).map(Cell::number))),
            }
        };
        let columns = schema.fields().iter().enumerate().map(column).collect();
        RecordBatch::try_new(Arc::clone(&schema), columns)
            .map_err(|error| Error::internal("report", "columns do not fit").source(error))
    }
}

impl Cell {
    fn text(&self) -> Option<&str> {
        if let Cell::Text(text) = self { text.as_deref() } else { None }
    }

    fn count(&self) -> Option<i64> {
        if let Cell::Count(count) = self { Some(*count as i64) } else { None }
    }

    fn number(&self) -> Option<f64> {
        if let Cell::Number(number) = self { *number } else { None }
    }
}
