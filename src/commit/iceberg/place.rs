//! A run's files below the table's folder: with the columns that became folders, and the numbers of the table's columns.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Int32Type, Int64Type, TimestampMicrosecondType,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::schema::Suited;
use crate::commit::TableRun;
use crate::error::{Error, Kind, Result};
use crate::output::{StagedFile, TableWriter, WriterOptions, cannot_write, folder_values};
use crate::storage::ObjectUrl;
use crate::table::avro::Datum;
use crate::table::iceberg::{Metadata, place};

/// Rows of a row group.
const ROW_GROUP_ROWS: usize = 262_144;
/// The setting of a table that says where its rows are.
const DATA_PATH: &str = "write.data.path";

/// A file below the table's folder, to which nothing refers yet.
#[derive(Debug, Clone)]
pub(super) struct PlacedFile {
    /// Its address, as the table's metadata name it.
    pub(super) address: String,
    /// Its size.
    pub(super) bytes: u64,
    /// Its rows.
    pub(super) rows: u64,
    /// Values of the spec's fields, in their order.
    pub(super) partition: Vec<Datum>,
}

/// Puts all files of a run below the table's folder.
pub(super) async fn place_all(
    run: &TableRun<'_>,
    metadata: &Metadata,
    suited: &Suited,
) -> Result<Vec<PlacedFile>> {
    let location = metadata.location.trim_end_matches('/');
    let folder = metadata.properties.get(DATA_PATH).cloned();
    let folder = folder.unwrap_or_else(|| format!("{location}/data"));
    let mut placed = Vec::new();
    for file in run.files.iter().filter(|file| file.rows > 0) {
        let address = format!("{}/{}", folder.trim_end_matches('/'), run.name_of(file));
        placed.push(place_one(run, file, address, suited).await?);
    }
    Ok(placed)
}

async fn place_one(
    run: &TableRun<'_>,
    file: &StagedFile,
    address: String,
    suited: &Suited,
) -> Result<PlacedFile> {
    let from = run.folder.join(&file.name);
    let to = place(&address, Kind::Output)?;
    let values = folder_columns(file, suited)?;
    let url = ObjectUrl::parse(&to.to_string_lossy()).ok();
    let bytes = match url {
        None => {
            let folder = to.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(folder).map_err(|error| cannot_write(folder, error))?;
            let bytes = write_again(&from, &to, suited, &values)?;
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(|error| cannot_write(folder, error))?;
            bytes
        }
        Some(url) => {
            let again = from.with_extension("iceberg");
            let bytes = write_again(&from, &again, suited, &values)?;
            let store = run.stores.open(&url, Kind::Output)?;
            let uploaded = store.upload(url.key(), &again).await;
            let _ = fs::remove_file(&again);
            uploaded.map(|()| bytes)?
        }
    };
    let part = |field: &crate::table::iceberg::PartitionField| {
        let column = suited.schema.fields.iter().find(|column| column.id == field.source_id);
        let value = values.iter().find(|(of, _)| column.is_some_and(|is| is.name == *of.name()));
        value.map_or(Datum::Null, |(_, value)| datum(value))
    };
    let partition = suited.spec.fields.iter().map(part).collect();
    Ok(PlacedFile { address, bytes, rows: file.rows, partition })
}

/// The columns that became folders, with the one value that a file's rows have.
fn folder_columns(file: &StagedFile, suited: &Suited) -> Result<Vec<(FieldRef, ArrayRef)>> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let column = |(name, value): (String, Option<String>)| {
        let index = suited.columns.index_of(&name).ok()?;
        let field = Arc::clone(&suited.columns.fields()[index]);
        let text: ArrayRef = Arc::new(StringArray::from(vec![value]));
        let value = cast_with_options(&text, field.data_type(), &options);
        Some(value.map(|value| (field, value)).map_err(|error| {
            let problem = format!("lies in a folder whose value is none of `{name}`");
            Error::internal(&file.name, problem).source(error)
        }))
    };
    let folders = file.name.rsplit_once('/').map_or("", |(folders, _)| folders);
    folder_values(folders).into_iter().filter_map(column).collect()
}

/// A value of a partition as a manifest has it.
fn datum(value: &ArrayRef) -> Datum {
    if value.is_null(0) {
        return Datum::Null;
    }
    match value.data_type() {
        DataType::Boolean => Datum::Boolean(value.as_boolean().value(0)),
        DataType::Int32 => Datum::Long(value.as_primitive::<Int32Type>().value(0).into()),
        DataType::Int64 => Datum::Long(value.as_primitive::<Int64Type>().value(0)),
        DataType::Date32 => Datum::Long(value.as_primitive::<Date32Type>().value(0).into()),
        DataType::Timestamp(..) => {
            Datum::Long(value.as_primitive::<TimestampMicrosecondType>().value(0))
        }
        // Other types are refused where the manifest's schema is made.
        _ => value
            .as_string_opt::<i32>()
            .map_or(Datum::Null, |text| Datum::Text(text.value(0).into())),
    }
}

/// Writes a file's rows in the table's types and order; gives the size.
fn write_again(
    from: &Path,
    to: &Path,
    suited: &Suited,
    folders: &[(FieldRef, ArrayRef)],
) -> Result<u64> {
    let unread = |error: parquet::errors::ParquetError| {
        Error::output(from.display().to_string(), "cannot be read back").source(error)
    };
    let file = File::open(from).map_err(|error| unread(error.into()))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(unread)?;
    let options = WriterOptions { row_group_rows: ROW_GROUP_ROWS, metadata: Vec::new() };
    let columns = Arc::clone(&suited.columns);
    let mut writer = TableWriter::create(to.to_path_buf(), String::new(), columns, &options)?;
    for batch in reader {
        let batch = batch.map_err(|error| unread(error.into()))?;
        writer.write(&in_table(&batch, suited, folders)?)?;
    }
    Ok(writer.close()?.bytes)
}

fn in_table(
    batch: &RecordBatch,
    suited: &Suited,
    folders: &[(FieldRef, ArrayRef)],
) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let unfit = |field: &Field, error: arrow::error::ArrowError| {
        let problem = format!("cannot hold the column `{}`: {error}", field.name());
        Error::input("output.table", problem)
    };
    let column = |field: &FieldRef| {
        if let Some((_, value)) = folders.iter().find(|(of, _)| of.name() == field.name()) {
            let rows = UInt32Array::from(vec![0; batch.num_rows()]);
            return take(value, &rows, None).map_err(|error| unfit(field, error));
        }
        let Some(found) = batch.column_by_name(field.name()) else {
            let problem = format!("lacks the column `{}`", field.name());
            return Err(Error::internal("output.table", problem));
        };
        cast_with_options(found, field.data_type(), &options).map_err(|error| unfit(field, error))
    };
    let columns = suited.columns.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(&suited.columns), columns).map_err(|error| {
        Error::input("output.table", format!("does not take the run's rows: {error}"))
    })
}
