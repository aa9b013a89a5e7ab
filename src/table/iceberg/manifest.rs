//! Manifests: which files belong to a snapshot. A snapshot has a list of manifests, and each of them a list of files.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::files::read_file;
use crate::error::{Error, Kind, Result};
use crate::storage::Stores;
use crate::table::avro::{self, Datum};

/// Numbers of the fields of a list of manifests.
mod list {
    /// Where a manifest is.
    pub(super) const PATH: i32 = 500;
    /// Which partition spec its files have.
    pub(super) const SPEC: i32 = 502;
    /// Whether its files have rows, or tell of rows that are deleted.
    pub(super) const CONTENT: i32 = 517;
}

/// Numbers of the fields of a manifest.
mod entry {
    /// Whether a file was there before, was added or removed.
    pub(super) const STATUS: i32 = 0;
    /// The file.
    pub(super) const FILE: i32 = 2;
    /// What it holds: rows, or deletions.
    pub(super) const CONTENT: i32 = 134;
    /// Where it is.
    pub(super) const PATH: i32 = 100;
    /// Its format.
    pub(super) const FORMAT: i32 = 101;
    /// The values of its partition.
    pub(super) const PARTITION: i32 = 102;
    /// Its size.
    pub(super) const BYTES: i32 = 104;
    /// What opens it, if it is encrypted.
    pub(super) const KEY: i32 = 131;
}

/// How a packed file begins.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Bytes of a metadata file when it is unpacked, at most.
const MOST_BYTES: u64 = 1 << 30;
/// The status of a file that was removed.
const REMOVED: i64 = 2;

/// A file of a snapshot.
#[derive(Debug, Clone)]
pub struct DataFile {
    /// Its address.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The partition spec that it was written by.
    pub spec: i32,
    /// Values of its partition, by the numbers of the spec's fields.
    pub partition: Datum,
}

/// The rows of a list of manifests.
///
/// # Errors
/// When it cannot be read.
pub async fn manifests(list: &str, stores: &Stores, kind: Kind) -> Result<Vec<Datum>> {
    let bytes = read_file(list, stores, kind).await?;
    let mut rows = Vec::new();
    let read = avro::read(&bytes, &mut |row| {
        rows.push(row);
        Ok(())
    });
    read.map_err(|problem| Error::new(kind, list, problem))?;
    Ok(rows)
}

/// The files of a manifest that belong to the snapshot.
///
/// # Errors
/// When it cannot be read, or has files whose rows are not simply the snapshot's.
pub(super) async fn files(manifest: &Datum, stores: &Stores) -> Result<Vec<DataFile>> {
    let broken = |problem: &str| Error::input("a list of manifests", problem);
    let path = manifest.get(list::PATH).text().ok_or_else(|| broken("names no manifest"))?;
    let spec = manifest.get(list::SPEC).long().unwrap_or_default() as i32;
    let deletes = manifest.get(list::CONTENT).long().unwrap_or_default() != 0;
    let bytes = read_file(path, stores, Kind::Input).await?;
    let mut found = Vec::new();
    let read = avro::read(&bytes, &mut |row| {
        if row.get(entry::STATUS).long() == Some(REMOVED) {
            return Ok(());
        }
        found.push(data_file(row.get(entry::FILE), spec, deletes)?);
        Ok(())
    });
    read.map_err(|problem| {
        Error::input(path, problem).hint(
            "rewrite the table's data files (`rewrite_data_files`) where rows were deleted or another format was used",
        )
    })?;
    Ok(found)
}

fn data_file(file: &Datum, spec: i32, deletes: bool) -> Result<DataFile, String> {
    let path = file.get(entry::PATH).text().ok_or("has a file without a path")?;
    if deletes || file.get(entry::CONTENT).long().unwrap_or_default() != 0 {
        return Err(format!("tells of deleted rows (in `{path}`), which are not supported"));
    }
    let format = file.get(entry::FORMAT).text().unwrap_or_default();
    if !format.eq_ignore_ascii_case("parquet") {
        return Err(format!("has the file `{path}` of the format `{format}`, expected `PARQUET`"));
    }
    if !file.get(entry::KEY).is_null() {
        return Err(format!("has the file `{path}`, which is encrypted"));
    }
    let bytes = file.get(entry::BYTES).long().unwrap_or_default();
    let partition = file.get(entry::PARTITION).clone();
    Ok(DataFile { path: path.to_string(), bytes: bytes.unsigned_abs(), spec, partition })
}

/// A table's metadata file.
///
/// # Errors
/// When it cannot be read, or is no JSON.
pub(super) async fn metadata_file(address: &str, stores: &Stores) -> Result<Value> {
    let mut bytes = read_file(address, stores, Kind::Input).await?;
    if bytes.starts_with(GZIP) {
        let mut plain = Vec::new();
        let read = GzDecoder::new(&bytes[..]).take(MOST_BYTES).read_to_end(&mut plain);
        read.map_err(|error| Error::input(address, format!("cannot be unpacked: {error}")))?;
        bytes = plain;
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        Error::input(address, format!("is no metadata of an Iceberg table: {error}"))
            .hint("`url` names a file such as `…/metadata/00003-….metadata.json`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_whose_rows_are_not_simply_those_of_the_table_are_refused() {
        let text = |text: &str| Datum::Text(text.to_string());
        let file = |content: i64, format: &str, key: Datum| {
            Datum::Record(vec![
                (entry::CONTENT, Datum::Long(content)),
                (entry::PATH, text("a.parquet")),
                (entry::FORMAT, text(format)),
                (entry::KEY, key),
            ])
        };
        let found = data_file(&file(0, "parquet", Datum::Null), 3, false).expect("rows");
        assert_eq!((found.path.as_str(), found.spec), ("a.parquet", 3));
        let key = Datum::Bytes(vec![1]);
        for (file, deletes, problem) in [
            (file(1, "PARQUET", Datum::Null), false, "tells of deleted rows"),
            (file(0, "PARQUET", Datum::Null), true, "tells of deleted rows"),
            (file(0, "ORC", Datum::Null), false, "the format `ORC`, expected `PARQUET`"),
            (file(0, "PARQUET", key), false, "which is encrypted"),
            (Datum::Null, false, "a file without a path"),
        ] {
            let refused = data_file(&file, 0, deletes).expect_err(problem);
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
