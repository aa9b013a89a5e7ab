//! Iceberg tables: metadata in JSON, lists of files in Avro, and a catalogue that is asked over HTTP. They are read and
//! written here rather than by a library, whose release is built on another Arrow than the query engine.

mod catalog;
mod files;
mod identity;
mod manifest;
mod metadata;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use futures::{StreamExt, TryStreamExt};

use super::version::{FieldIds, VersionedFile, VersionedTable};
use crate::error::{Error, Kind, Result};
use crate::job::{IcebergTable, TableAt};
use crate::runtime::block_on_log;
use crate::storage::Stores;
use identity::Identity;

pub use catalog::{Catalog, Committed};
pub use files::{place, write_file};
pub use manifest::{DataFile, manifests};
pub use metadata::{Column, Metadata, PartitionField, PartitionSpec, Snapshot, TableSchema};

/// Manifests that are read at the same time.
const AT_ONCE: usize = 8;
/// What a snapshot is not called.
const NO_SNAPSHOT: &str = "has no snapshot";

/// Reads which files belong to a snapshot of a table.
///
/// # Errors
/// When there is no such table or snapshot, or when its rows are not simply those of its files.
pub fn open(table: &IcebergTable, wanted: &TableAt, stores: &Stores) -> Result<VersionedTable> {
    block_on_log(async {
        let shown = table.shown();
        let metadata = match &table.catalog {
            Some(_) => Catalog::open(table, Kind::Input).await?.load().await?.ok_or_else(|| {
                Error::input(&shown, "does not exist in the catalogue")
                    .hint("`table` is written as `namespace.table`")
            })?,
            None => {
                let json = manifest::metadata_file(&table.table, stores).await?;
                Metadata::parse(&shown, json, Kind::Input)?
            }
        };
        version(&shown, &metadata, wanted, stores).await
    })
}

async fn version(
    shown: &str,
    metadata: &Metadata,
    wanted: &TableAt,
    stores: &Stores,
) -> Result<VersionedTable> {
    let snapshot = chosen(shown, metadata, wanted)?;
    let Some(list) = &snapshot.manifest_list else {
        let problem =
            format!("has the snapshot {} without a list of manifests", snapshot.snapshot_id);
        return Err(Error::input(shown, problem).hint("let its writer make a new snapshot"));
    };
    let manifests = manifest::manifests(list, stores, Kind::Input).await?;
    let read = manifests.iter().map(|row| manifest::files(row, stores));
    let read: Vec<_> = read.collect();
    let files = futures::stream::iter(read).buffered(AT_ONCE).try_concat().await?;
    let schema = metadata.schema_of(Some(snapshot));
    let identity = Identity::of(metadata, &schema, &files);
    let mut found = Vec::with_capacity(files.len());
    for file in &files {
        let values = identity.values(file).map_err(|problem| Error::input(&file.path, problem))?;
        let path = place(&file.path, Kind::Input)?;
        found.push(VersionedFile { path, bytes: file.bytes, values });
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    let of_files = schema.fields.iter().filter(|column| !identity.has(column.id));
    let (ids, fields) = of_files.filter_map(|column| Some((column.id, column.field()?))).unzip();
    let table = VersionedTable {
        shown: shown.to_string(),
        version: snapshot.snapshot_id.unsigned_abs(),
        fields,
        partitions: identity.fields(),
        files: found,
        ids: Some(FieldIds { of_fields: ids, partitioned: identity.sometimes }),
    };
    table.check_values()?;
    Ok(table)
}

/// The snapshot that is wanted.
fn chosen<'a>(shown: &str, metadata: &'a Metadata, wanted: &TableAt) -> Result<&'a Snapshot> {
    let number = wanted.pinned.or(wanted.version).map(|id| id as i64);
    if let Some(id) = number {
        return metadata.snapshot(id).ok_or_else(|| {
            Error::input(shown, format!("{NO_SNAPSHOT} {id}"))
                .hint("snapshots expire: the table's `snapshots` tells which there are")
        });
    }
    if let Some(moment) = &wanted.timestamp {
        let wanted = string_to_timestamp_nanos(moment).unwrap_or_default() / 1_000_000;
        let mut log = metadata.history.snapshot_log.iter();
        let before = log.rfind(|entry| entry.timestamp_ms <= wanted);
        return before.and_then(|entry| metadata.snapshot(entry.snapshot_id)).ok_or_else(|| {
            Error::input(shown, format!("{NO_SNAPSHOT} as old as {moment}"))
                .hint("give a later `timestamp`, or a `snapshot`")
        });
    }
    metadata.current().ok_or_else(|| {
        Error::input(shown, format!("{NO_SNAPSHOT}: nothing was ever written to it"))
    })
}
