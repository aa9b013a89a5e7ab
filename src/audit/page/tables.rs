//! The tables of a published run, read whole: they have a row for a group, not for a person.

use std::fs::File;
use std::io;
use std::path::Path;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Float64Type, UInt64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::error::{Error, Result};
use crate::output::METHOD;

/// A table.
pub(super) struct PageTable {
    name: String,
    batch: RecordBatch,
}

impl PageTable {
    /// Reads a table, by its path in the run's folder; none if the run has none of it.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Option<PageTable>> {
        let file = match File::open(folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file,
        };
        let unreadable = |source: crate::error::BoxedError| {
            Error::input(folder.join(name).display().to_string(), "cannot be read").source(source)
        };
        let file = file.map_err(|error| unreadable(error.into()))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file);
        let builder = builder.map_err(|error| unreadable(error.into()))?;
        let schema = builder.schema().clone();
        let reader = builder.build().map_err(|error| unreadable(error.into()))?;
        let batches: Vec<RecordBatch> =
            reader.collect::<Result<_, _>>().map_err(|error| unreadable(error.into()))?;
        let batch = concat_batches(&schema, &batches).map_err(|error| unreadable(error.into()))?;
        Ok(Some(PageTable { name: name.to_string(), batch }))
    }

    /// The rows of one method; all where none is named.
    pub(super) fn of_method(self, method: Option<&str>) -> Result<PageTable> {
        let Some(method) = method else { return Ok(self) };
        let rows = self.texts(METHOD)?.into_iter();
        let rows = BooleanArray::from_iter(rows.map(|of| Some(of.as_deref() == Some(method))));
        let batch = filter_record_batch(&self.batch, &rows).map_err(|error| {
            Error::internal("the audit's page", "rows do not fit").source(error)
        })?;
        Ok(PageTable { name: self.name, batch })
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// A column of texts.
    pub(super) fn texts(&self, column: &str) -> Result<Vec<Option<String>>> {
        let column = self.column(column, &DataType::Utf8)?;
        Ok(column.as_string::<i32>().iter().map(|text| text.map(str::to_string)).collect())
    }

    /// A column of numbers; NaN is none.
    pub(super) fn numbers(&self, column: &str) -> Result<Vec<Option<f64>>> {
        let column = self.column(column, &DataType::Float64)?;
        let numbers = column.as_primitive::<Float64Type>().iter();
        Ok(numbers.map(|number| number.filter(|number| !number.is_nan())).collect())
    }

    /// A column of counts; null is none of anything.
    pub(super) fn counts(&self, column: &str) -> Result<Vec<u64>> {
        let column = self.column(column, &DataType::UInt64)?;
        Ok(column.as_primitive::<UInt64Type>().iter().map(Option::unwrap_or_default).collect())
    }

    /// A column of yes and no; null is no.
    pub(super) fn flags(&self, column: &str) -> Result<Vec<bool>> {
        Ok(self.maybe_flags(column)?.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// A column of yes and no.
    pub(super) fn maybe_flags(&self, column: &str) -> Result<Vec<Option<bool>>> {
        let column = self.column(column, &DataType::Boolean)?;
        Ok(column.as_boolean().iter().collect())
    }

    fn column(&self, column: &str, data_type: &DataType) -> Result<arrow::array::ArrayRef> {
        let found = self.batch.column_by_name(column).ok_or_else(|| {
            Error::input(&self.name, format!("lacks the column `{column}`"))
                .hint("it was written by another version; `overturn report JOB` writes it anew")
        })?;
        cast(found, data_type).map_err(|error| {
            let problem = format!("has `{column}` as {}, expected {data_type}", found.data_type());
            Error::input(&self.name, problem).source(error)
        })
    }
}
