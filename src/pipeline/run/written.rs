//! The counterfactual table as it was written.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{FieldRef, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::error::{Error, Result};
use crate::metrics::{Source, Status};
use crate::output::folder_values;

/// A file's rows with all columns of the table, those that have become folders too.
pub(super) fn whole(schema: &SchemaRef, batch: &RecordBatch, name: &str) -> Result<RecordBatch> {
    let folders = folder_values(name);
    let misfit = |error| Error::internal("reports", "columns do not fit").source(error);
    let column = |field: &FieldRef| -> Result<ArrayRef> {
        if let Some(column) = batch.column_by_name(field.name()) {
            return Ok(Arc::clone(column));
        }
        let value = folders.iter().find(|(name, _)| name == field.name());
        let value = value.and_then(|(_, value)| value.as_deref());
        // A folder cannot have an empty name: what can be no null is an empty text.
        let value = value.or((!field.is_nullable()).then_some(""));
        let texts = StringArray::from(vec![value; batch.num_rows()]);
        cast(&texts, field.data_type()).map_err(misfit)
    };
    let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(misfit)
}

/// Opens a file of a table.
pub(super) fn open(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let shown = path.display().to_string();
    let file = File::open(path).map_err(parquet::errors::ParquetError::from);
    file.and_then(ParquetRecordBatchReaderBuilder::try_new)
        .map_err(|error| Error::input(shown, "cannot be read").source(error))
}

/// The rows of a file, in blocks.
pub(super) fn read(path: &Path) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
    let shown = path.display().to_string();
    let unreadable =
        move |error: arrow::error::ArrowError| Error::input(&shown, "cannot be read").source(error);
    let reader = open(path)?.with_batch_size(crate::explain::BLOCK_ROWS).build();
    let reader = reader.map_err(|error| {
        Error::input(path.display().to_string(), "cannot be read").source(error)
    })?;
    Ok(reader.map(move |batch| batch.map_err(&unreadable)))
}

/// A column of the counterfactual table.
pub(super) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch
        .column_by_name(name)
        .ok_or_else(|| Error::input("counterfactuals", format!("lack the column `{name}`")))
}

/// Columns of the counterfactual table that begin like this, without the beginning.
pub(super) fn named(batch: &RecordBatch, names: &[String], prefix: &str) -> Result<RecordBatch> {
    let columns = names
        .iter()
        .map(|name| Ok((name.clone(), column(batch, &format!("{prefix}{name}"))?.clone())))
        .collect::<Result<Vec<_>>>()?;
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )
    .map_err(|error| Error::internal("reports", "columns do not fit").source(error))
}

/// The counterfactuals as a model is asked about them.
pub(super) fn features(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let lost = |error| Error::internal("counterfactuals", "a column is lost").source(error);
    let feature = |field: &FieldRef| -> Result<ArrayRef> {
        let written = column(batch, &format!("cf_{}", field.name()))?;
        cast(written, field.data_type()).map_err(lost)
    };
    let columns = schema.fields().iter().map(feature).collect::<Result<_>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(lost)
}

/// What became of each row.
pub(super) fn statuses(batch: &RecordBatch) -> Result<Vec<Status>> {
    let status = |text: Option<&str>| {
        text.and_then(Status::of_name).ok_or_else(|| {
            let problem = format!("have the status `{}`, which is none", text.unwrap_or("null"));
            Error::input("counterfactuals", problem)
        })
    };
    column(batch, "status")?.as_string::<i32>().iter().map(status).collect()
}

/// What found the counterfactuals.
pub(super) fn sources(batch: &RecordBatch) -> Result<Vec<Option<Source>>> {
    let source = |text: Option<&str>| match text {
        None => Ok(None),
        Some(text) => Source::of_name(text).map(Some).ok_or_else(|| {
            let problem = format!("have the source `{text}`, which is none");
            Error::input("counterfactuals", problem)
        }),
    };
    column(batch, "source")?.as_string::<i32>().iter().map(source).collect()
}
