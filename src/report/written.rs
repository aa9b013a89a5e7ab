//! The tables of a run as they were written.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection, RowSelector};

use crate::error::{Error, Result};
use crate::metrics::{Source, Status};
use crate::output::{METHOD, folder_values};

/// Rows read at a time.
const BLOCK_ROWS: usize = 8192;

/// The rows of a file, in blocks.
pub type WrittenRows = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Reads a file of a table, by its path in the run's folder: the columns of a schema, those too that have become
/// folders.
///
/// # Errors
/// When it cannot be read.
pub fn read(folder: &Path, name: &str, schema: &SchemaRef) -> Result<WrittenRows> {
    rows(folder, name, schema, None)
}

/// The same, one row of the file alone.
///
/// # Errors
/// When it cannot be read.
pub fn read_row(folder: &Path, name: &str, schema: &SchemaRef, row: usize) -> Result<WrittenRows> {
    let one = RowSelection::from(vec![RowSelector::skip(row), RowSelector::select(1)]);
    rows(folder, name, schema, Some(one))
}

fn rows(
    folder: &Path,
    name: &str,
    schema: &SchemaRef,
    selection: Option<RowSelection>,
) -> Result<WrittenRows> {
    let shown = folder.join(name).display().to_string();
    let unreadable = |error| Error::input(&shown, "cannot be read").source(error);
    let file = File::open(folder.join(name)).map_err(parquet::errors::ParquetError::from);
    let builder = file.and_then(ParquetRecordBatchReaderBuilder::try_new).map_err(unreadable)?;
    let stored = Arc::clone(builder.schema());
    let present = stored.fields().iter().enumerate();
    let present = present.filter(|(_, field)| schema.field_with_name(field.name()).is_ok());
    let mask = ProjectionMask::roots(builder.parquet_schema(), present.map(|(index, _)| index));
    let mut builder = builder.with_projection(mask).with_batch_size(BLOCK_ROWS);
    if let Some(selection) = selection {
        builder = builder.with_row_selection(selection);
    }
    let reader = builder.build().map_err(unreadable)?;
    let (schema, name) = (Arc::clone(schema), name.to_string());
    Ok(Box::new(reader.map(move |batch| {
        let batch = batch.map_err(|error| Error::input(&shown, "cannot be read").source(error))?;
        whole(&schema, &batch, &name)
    })))
}

/// A file's rows with all columns of a schema, those too that have become folders.
fn whole(schema: &SchemaRef, batch: &RecordBatch, name: &str) -> Result<RecordBatch> {
    let folders = folder_values(name);
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

fn misfit(error: arrow::error::ArrowError) -> Error {
    Error::internal("reports", "columns do not fit").source(error)
}

/// The columns of these names out of a table's.
pub(super) fn only<'a>(schema: &SchemaRef, names: impl Iterator<Item = &'a str>) -> SchemaRef {
    let fields = names.filter_map(|name| schema.column_with_name(name));
    Arc::new(Schema::new(fields.map(|(index, _)| schema.field(index).clone()).collect::<Vec<_>>()))
}

/// A column of the counterfactual table.
///
/// # Errors
/// When it is not there.
pub fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch
        .column_by_name(name)
        .ok_or_else(|| Error::input("counterfactuals", format!("lack the column `{name}`")))
}

/// The rows of one method; all of them where none is named.
///
/// # Errors
/// When there is no such column.
pub fn of_method(batch: RecordBatch, method: Option<&str>) -> Result<RecordBatch> {
    let Some(method) = method else { return Ok(batch) };
    let found = column(&batch, METHOD)?.as_string::<i32>().iter();
    let rows = BooleanArray::from_iter(found.map(|found| Some(found == Some(method))));
    filter_record_batch(&batch, &rows).map_err(misfit)
}

/// Columns of the counterfactual table that begin like this, without the beginning.
pub(super) fn named<'a>(
    batch: &RecordBatch,
    names: impl Iterator<Item = &'a str>,
    prefix: &str,
) -> Result<RecordBatch> {
    let named = |name: &'a str| Ok((name, column(batch, &format!("{prefix}{name}"))?.clone()));
    let columns = names.map(named).collect::<Result<Vec<_>>>()?;
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).map_err(misfit)
}

/// The counterfactuals as a model is asked about them.
///
/// # Errors
/// When a column is not there.
pub fn features(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let feature = |field: &FieldRef| -> Result<ArrayRef> {
        let written = column(batch, &format!("cf_{}", field.name()))?;
        cast(written, field.data_type()).map_err(misfit)
    };
    let columns = schema.fields().iter().map(feature).collect::<Result<_>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(misfit)
}

/// What became of each row.
///
/// # Errors
/// When a status is unknown.
pub fn statuses(batch: &RecordBatch) -> Result<Vec<Status>> {
    let status = |text: Option<&str>| {
        text.and_then(Status::of_name).ok_or_else(|| {
            let found = text.unwrap_or("null");
            let known = Status::ALL.map(Status::name).join(", ");
            let problem = format!("have the status `{found}`, expected one of {known}");
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
            let known = Source::ALL.map(Source::name).join(", ");
            let problem = format!("have the source `{text}`, expected one of {known}");
            Error::input("counterfactuals", problem)
        }),
    };
    column(batch, "source")?.as_string::<i32>().iter().map(source).collect()
}
