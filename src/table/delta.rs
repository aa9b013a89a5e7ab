//! A version of a Delta table: its columns, its files, and the values of their partitions.

use std::path::{Component, Path};
use std::sync::Arc;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::datatypes::{Field, FieldRef, Schema};
use arrow::temporal_conversions::timestamp_ms_to_datetime;
use deltalake_core::DeltaTableError;
use deltalake_core::kernel::engine::arrow_conversion::TryIntoArrow;
use deltalake_core::kernel::{EagerSnapshot, LogicalFileView};
use deltalake_core::logstore::{
    LogStoreConfig, LogStoreRef, StorageConfig, default_logstore, logstore_for,
};
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use url::Url;

use super::protocol::unsupported;
use super::version::{VersionedFile, VersionedTable};
use crate::error::{Error, Kind, Result};
use crate::job::TableAt;
use crate::runtime::block_on_log;
use crate::storage::{ObjectUrl, Stores, is_url};

/// What a table of another format is turned into one that we read by.
const REWRITE: &str = "rewrite the table without it, for example with `REORG TABLE … APPLY (PURGE)` for deletion \
                       vectors, or `CREATE TABLE … AS SELECT` for others";

/// Reads the log of a table up to the version that is wanted.
///
/// # Errors
/// When there is no such table or version, or when its rows are not simply those of its files.
pub(super) fn open(folder: &str, requested: &TableAt, stores: &Stores) -> Result<VersionedTable> {
    let snapshot = block_on_log(snapshot(folder, requested, stores))?;
    let refused = |what: String| {
        let problem = format!("is a Delta table with {what}, which is not supported");
        Err(Error::input(folder, problem).hint(REWRITE))
    };
    if let Some(what) = unsupported(snapshot.protocol(), snapshot.metadata()) {
        return refused(what);
    }
    let schema: Schema = snapshot.schema().as_ref().try_into_arrow().map_err(|error| {
        Error::input(folder, "has columns that have no Arrow type").source(error)
    })?;
    let names = snapshot.metadata().partition_columns();
    let of_partition = |field: &&FieldRef| names.contains(field.name());
    let plain =
        |field: &FieldRef| Arc::new(Field::new(field.name(), field.data_type().clone(), true));
    let (partitions, fields): (Vec<_>, Vec<_>) = schema.fields().iter().partition(of_partition);
    let partitions: Vec<FieldRef> = partitions.into_iter().map(plain).collect();
    let mut files = Vec::new();
    for file in snapshot.log_data().iter() {
        if file.deletion_vector_descriptor().is_some() {
            let what = format!("deletion vectors (`{}` has one)", file.path());
            return refused(what);
        }
        files.push(delta_file(folder, &file, &partitions)?);
    }
    files.sort_by(|left: &VersionedFile, right| left.path.cmp(&right.path));
    let table = VersionedTable {
        shown: folder.to_string(),
        version: snapshot.version(),
        fields: fields.into_iter().map(plain).collect(),
        partitions,
        files,
        ids: None,
    };
    table.check_values()?;
    Ok(table)
}

fn delta_file(
    folder: &str,
    file: &LogicalFileView,
    partitions: &[FieldRef],
) -> Result<VersionedFile> {
    let name = file.path();
    let inside = Path::new(name.as_ref()).components();
    if name.contains("://") || !inside.clone().all(|part| matches!(part, Component::Normal(_))) {
        let problem = format!("names the file `{name}`, which is not inside its folder");
        return Err(Error::input(folder, problem)
            .hint("shallow clones are not supported: read the table that was cloned"));
    }
    let mut known = file.partition_values_map();
    let value = |field: &FieldRef| match known.remove(field.name()) {
        // Delta has no empty texts in partitions: they stand for nulls.
        Some(value) => Ok(value.filter(|text| !text.is_empty())),
        None => {
            let problem = format!("has no value of `{}` for `{name}` in its log", field.name());
            Err(Error::input(folder, problem))
        }
    };
    let values = partitions.iter().map(value).collect::<Result<_>>()?;
    Ok(VersionedFile {
        path: Path::new(folder).join(name.as_ref()),
        bytes: file.size() as u64,
        values,
    })
}

async fn snapshot(folder: &str, requested: &TableAt, stores: &Stores) -> Result<EagerSnapshot> {
    let store = log_store(folder, stores, Kind::Input)?;
    let version = match (&requested.timestamp, requested.version.or(requested.pinned)) {
        (_, Some(version)) => Some(version),
        (Some(moment), None) => Some(version_at(folder, &store, moment).await?),
        (None, None) => None,
    };
    let read = EagerSnapshot::try_new(store.as_ref(), version).await;
    read.map_err(|error| match version {
        Some(version) if requested.timestamp.is_none() => {
            let problem = format!("has no version {version} that can be read");
            Error::input(folder, problem).source(error).hint(
                "`_delta_log` has a file for each version; old ones are removed by the table's \
                 `delta.logRetentionDuration`",
            )
        }
        _ => unreadable(folder, error),
    })
}

/// The latest version of a moment.
async fn version_at(folder: &str, store: &LogStoreRef, moment: &str) -> Result<u64> {
    let requested = string_to_timestamp_nanos(moment).unwrap_or_default() / 1_000_000;
    let mut table = deltalake_core::DeltaTable::new(store.clone());
    if let Some(time) = timestamp_ms_to_datetime(requested) {
        let loaded = table.load_with_datetime(time.and_utc()).await;
        loaded.map_err(|error| unreadable(folder, error))?;
    }
    let version = table.version().unwrap_or_default();
    // The library gives the first version for moments before it.
    let commit = ObjectPath::from(format!("_delta_log/{version:020}.json"));
    let written = store.object_store(None).head(&commit).await;
    let early = written.is_ok_and(|of| of.last_modified.timestamp_millis() > requested);
    if early {
        let problem = format!("has no version as old as {moment}: version {version} is younger");
        return Err(Error::input(folder, problem).hint("give a later `timestamp`, or a `version`"));
    }
    Ok(version)
}

/// The log of the table in a folder, or below a URL.
///
/// # Errors
/// When there is no such place, or its store cannot be opened.
pub fn log_store(folder: &str, stores: &Stores, kind: Kind) -> Result<LogStoreRef> {
    let none = |problem: String| Error::new(kind, folder, problem);
    if !is_url(folder) {
        let url = Url::from_directory_path(folder);
        let url = url.map_err(|()| none("is no absolute path of a folder".to_string()))?;
        let store = logstore_for(&url, StorageConfig::default());
        return store.map_err(|error| unreadable(folder, error));
    }
    let object = ObjectUrl::parse(folder).map_err(|problem| none(format!("is a URL {problem}")))?;
    let url = Url::parse(&format!("{object}/")).map_err(|error| none(error.to_string()))?;
    // The library would open stores by its own lights; ours know the job's options.
    let root = stores.object_store(&object, kind)?;
    let config = LogStoreConfig::new(&url, StorageConfig::default());
    let table = config.decorate_store(Arc::clone(&root), None);
    let table = table.map_err(|error| unreadable(folder, error))?;
    Ok(default_logstore(Arc::from(table), root, &url, config.options()))
}

fn unreadable(folder: &str, error: DeltaTableError) -> Error {
    match error {
        DeltaTableError::NotATable(_) => no_table(folder),
        error if !is_url(folder) && !Path::new(folder).join("_delta_log").is_dir() => {
            no_table(folder).source(error)
        }
        error => {
            let problem = format!("cannot be read as a Delta table: {}", trouble(&error));
            Error::input(folder, problem).source(error)
        }
    }
}

fn no_table(folder: &str) -> Error {
    Error::input(folder, "is not a Delta table: it has no `_delta_log` with a version")
        .hint("for plain Parquet give the path itself, without `format`")
}

/// What the library says, in a line.
pub fn trouble(error: &DeltaTableError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}
