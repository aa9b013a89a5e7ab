//! Files of a run, put below a table's folder. Until a commit names them no reader sees them; their names are the run's,
//! so that another attempt of it finds or replaces them and leaves none behind.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake_core::kernel::Add;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::TableRun;
use super::columns::{is_stored_portably, to_portable};
use crate::error::{Error, Kind, Result};
use crate::output::{TableWriter, WriterOptions, cannot_write, folder_values};
use crate::storage::{ObjectUrl, is_url};

/// Rows of a row group of files that are written again.
const ROW_GROUP_ROWS: usize = 262_144;

/// Puts all files of a run below the table's folder, and gives the actions that add them.
pub(super) async fn place(run: &TableRun<'_>, schema: &SchemaRef) -> Result<Vec<Add>> {
    let kept = |field: &&Arc<Field>| !run.partition_by.contains(field.name());
    let stored = run.schema.fields().iter().filter(kept);
    let as_it_is = run.constant.is_none()
        && stored.into_iter().all(|field| is_stored_portably(field.data_type()));
    let fields: Vec<_> = schema.fields().iter().filter(kept).cloned().collect();
    let columns = (!as_it_is).then(|| Arc::new(Schema::new(fields)));
    let mut added = Vec::new();
    // A table needs no file without rows.
    for file in run.files.iter().filter(|file| file.rows > 0) {
        let (name, from) = (run.name_of(file), run.folder.join(&file.name));
        let bytes = if is_url(&run.target.url) {
            upload(run, &name, (&from, columns.as_ref())).await?
        } else {
            put(run, (&from, &Path::new(&run.target.url).join(&name)), columns.as_ref())?
        };
        added.push(action(name, bytes, file.rows));
    }
    if !is_url(&run.target.url) {
        let root = Path::new(&run.target.url);
        sync_folders(root, &added).map_err(|error| cannot_write(root, error))?;
    }
    Ok(added)
}

/// Puts a file into a folder; gives its size.
fn put(run: &TableRun<'_>, (from, to): (&Path, &Path), columns: Option<&SchemaRef>) -> Result<u64> {
    make_room(to).map_err(|error| cannot_write(to, error))?;
    match columns {
        None => copy(from, to).map_err(|error| cannot_write(to, error)),
        Some(columns) => write_again(run, (from, to), columns),
    }
}

/// Puts a file into a store; gives its size.
async fn upload(
    run: &TableRun<'_>,
    name: &str,
    (from, columns): (&Path, Option<&SchemaRef>),
) -> Result<u64> {
    let url = &run.target.url;
    let parsed = ObjectUrl::parse(url);
    let parsed = parsed.map_err(|problem| Error::output(url, format!("is a URL {problem}")))?;
    let store = run.stores.open(&parsed, Kind::Output)?;
    let key = parsed.join(name);
    let Some(columns) = columns else {
        store.upload(key.key(), from).await?;
        return size(from);
    };
    let again = from.with_extension("portable");
    let bytes = put(run, (from, &again), Some(columns))?;
    let uploaded = store.upload(key.key(), &again).await;
    let _ = fs::remove_file(&again);
    uploaded.map(|()| bytes)
}

fn size(path: &Path) -> Result<u64> {
    fs::metadata(path).map(|found| found.len()).map_err(|error| {
        Error::output(path.display().to_string(), "cannot be read back").source(error)
    })
}

fn make_room(to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Another name for the same bytes, or, from another disk, the bytes once more.
fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to)?;
        File::open(to)?.sync_all()?;
    }
    Ok(fs::metadata(to)?.len())
}

fn write_again(run: &TableRun<'_>, (from, to): (&Path, &Path), columns: &SchemaRef) -> Result<u64> {
    let unread = |error: parquet::errors::ParquetError| {
        Error::output(from.display().to_string(), "cannot be read back").source(error)
    };
    let file = File::open(from).map_err(|error| unread(error.into()))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build);
    let options = WriterOptions { row_group_rows: ROW_GROUP_ROWS, metadata: Vec::new() };
    let mut writer =
        TableWriter::create(to.to_path_buf(), String::new(), Arc::clone(columns), &options)?;
    for batch in reader.map_err(unread)? {
        let batch = batch.map_err(|error| unread(error.into()))?;
        writer.write(&to_portable(&with_constant(&batch, run.constant)?, columns)?)?;
    }
    Ok(writer.close()?.bytes)
}

/// Rows with a first column that has one value.
fn with_constant(batch: &RecordBatch, constant: Option<(&str, &str)>) -> Result<RecordBatch> {
    let Some((name, value)) = constant else { return Ok(batch.clone()) };
    let column: ArrayRef = Arc::new(StringArray::from(vec![value; batch.num_rows()]));
    let schema = batch.schema();
    let first = Arc::new(Field::new(name, DataType::Utf8, false));
    let fields: Vec<_> = std::iter::once(first).chain(schema.fields().iter().cloned()).collect();
    let columns = std::iter::once(column).chain(batch.columns().iter().cloned()).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|error| Error::internal("output.table", "columns do not fit").source(error))
}

fn action(name: String, bytes: u64, rows: u64) -> Add {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let partition_values: HashMap<String, Option<String>> =
        folder_values(&name).into_iter().collect();
    Add {
        path: name,
        partition_values,
        size: bytes as i64,
        modification_time: now.as_millis() as i64,
        data_change: true,
        stats: Some(format!("{{\"numRecords\":{rows}}}")),
        ..Add::default()
    }
}

/// Sees to it that the names are on the disk before a commit says that they are.
fn sync_folders(root: &Path, added: &[Add]) -> io::Result<()> {
    let folder = |add: &Add| root.join(&add.path).parent().map(Path::to_path_buf);
    let mut folders: Vec<_> = added.iter().filter_map(folder).collect();
    folders.push(root.to_path_buf());
    folders.sort();
    folders.dedup();
    folders.iter().try_for_each(|folder| File::open(folder)?.sync_all())
}
