//! Columns of a report, filled row by row from left to right.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, SchemaRef};

use super::{Level, Names, target_name};
use crate::error::{Error, Result};

/// One cell.
enum ReportCell {
    Text(Option<String>),
    Count(Option<u64>),
    Number(Option<f64>),
    Flag(Option<bool>),
}

/// Cells of a report, row after row.
#[derive(Default)]
pub(crate) struct ReportColumns {
    cells: Vec<ReportCell>,
    by: usize,
}

impl ReportColumns {
    pub(super) fn new(names: &Names) -> ReportColumns {
        ReportColumns { cells: Vec::new(), by: names.by.len() }
    }

    /// Begins a row with whose figures it has.
    pub(super) fn group(&mut self, level: &Level<'_>, names: &Names) {
        self.text(Some(names.method));
        self.text(Some(level.name));
        self.text(level.target.and_then(|target| target_name(names, target).ok()));
        for index in 0..self.by {
            let value = level.segment.and_then(|segment| segment.0.get(index)?.as_deref());
            self.text(value);
        }
    }

    pub(crate) fn text(&mut self, text: Option<&str>) {
        self.cells.push(ReportCell::Text(text.map(String::from)));
    }

    pub(crate) fn count(&mut self, count: u64) {
        self.cells.push(ReportCell::Count(Some(count)));
    }

    pub(crate) fn maybe_count(&mut self, count: Option<u64>) {
        self.cells.push(ReportCell::Count(count));
    }

    pub(crate) fn flag(&mut self, flag: Option<bool>) {
        self.cells.push(ReportCell::Flag(flag));
    }

    pub(crate) fn number(&mut self, number: Option<f64>) {
        self.cells.push(ReportCell::Number(number.filter(|number| !number.is_nan())));
    }

    /// The table.
    pub(crate) fn finish(self, schema: SchemaRef) -> Result<RecordBatch> {
        let width = schema.fields().len();
        let of = |index: usize| self.cells.iter().skip(index).step_by(width);
        let column = |(index, field): (usize, &Arc<arrow::datatypes::Field>)| -> ArrayRef {
            match field.data_type() {
                DataType::Utf8 => Arc::new(StringArray::from_iter(of(index).map(ReportCell::text))),
                DataType::Int64 => {
                    Arc::new(Int64Array::from_iter(of(index).map(ReportCell::count)))
                }
                DataType::Boolean => {
                    Arc::new(BooleanArray::from_iter(of(index).map(ReportCell::flag)))
                }
                _ => Arc::new(Float64Array::from_iter(of(index).map(ReportCell::number))),
            }
        };
        let columns = schema.fields().iter().enumerate().map(column).collect();
        RecordBatch::try_new(Arc::clone(&schema), columns)
            .map_err(|error| Error::internal("report", "columns do not fit").source(error))
    }
}

impl ReportCell {
    fn text(&self) -> Option<&str> {
        if let ReportCell::Text(text) = self { text.as_deref() } else { None }
    }

    fn count(&self) -> Option<i64> {
        if let ReportCell::Count(count) = self { count.map(|count| count as i64) } else { None }
    }

    fn flag(&self) -> Option<bool> {
        if let ReportCell::Flag(flag) = self { *flag } else { None }
    }

    fn number(&self) -> Option<f64> {
        if let ReportCell::Number(number) = self { *number } else { None }
    }
}
