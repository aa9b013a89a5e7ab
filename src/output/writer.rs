//! One Parquet file of a table: written in batches, closed, synced and described. Never published here.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::verify::hex;
use crate::error::{BoxedError, Error, Result};

/// How the files of a run are written.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Rows per row group.
    pub row_group_rows: usize,
    /// Facts for the file's key-value metadata.
    pub metadata: Vec<(String, String)>,
}

/// A closed and synced file that is not visible yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// Where it stands, relative to the run's folder.
    pub name: String,
    /// Rows in it.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its content.
    pub sha256: String,
}

/// Writes one file.
#[derive(Debug)]
pub struct TableWriter {
    name: String,
    path: PathBuf,
    rows: u64,
    writer: ArrowWriter<HashingFile>,
}

impl TableWriter {
    /// Creates the file; `name` is its path relative to the run's folder.
    pub fn create(
        path: PathBuf,
        name: String,
        schema: SchemaRef,
        options: &WriterOptions,
    ) -> Result<TableWriter> {
        let file = HashingFile::create(&path).map_err(|error| cannot_write(&path, error))?;
        let writer = ArrowWriter::try_new(file, schema, Some(properties(options)))
            .map_err(|error| cannot_write(&path, error))?;
        Ok(TableWriter { name, path, rows: 0, writer })
    }

    /// Appends rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|error| cannot_write(&self.path, error))
    }

    /// Bytes that wait to be written.
    pub(super) fn memory(&self) -> usize {
        self.writer.memory_size()
    }

    /// Finishes and syncs the file.
    pub fn close(self) -> Result<StagedFile> {
        let file = self.writer.into_inner().map_err(|error| cannot_write(&self.path, error))?;
        let (bytes, sha256) = file.finish().map_err(|error| cannot_write(&self.path, error))?;
        Ok(StagedFile { name: self.name, rows: self.rows, bytes, sha256 })
    }
}

/// The error for a file that cannot be written.
pub fn cannot_write(path: &Path, error: impl Into<BoxedError>) -> Error {
    let source = error.into();
    Error::output(path.display().to_string(), format!("cannot be written: {source}"))
        .hint("check the free space and the permissions of `output.dir`")
}

fn properties(options: &WriterOptions) -> WriterProperties {
    let metadata = options.metadata.iter();
    let metadata = metadata.map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
    WriterProperties::builder()
        // Level 1: on score tables higher levels save a few per cent and cost half the writing speed.
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(options.row_group_rows))
        .set_statistics_enabled(EnabledStatistics::Page)
        // The least text among thousands of changes helps nobody to skip anything.
        .set_column_statistics_enabled(change_column("feature"), EnabledStatistics::None)
        .set_column_statistics_enabled(change_column("from"), EnabledStatistics::None)
        .set_column_statistics_enabled(change_column("to"), EnabledStatistics::None)
        // Nearly every row has another; a dictionary of them would be built and thrown away.
        .set_column_dictionary_enabled(ColumnPath::from("cf_score"), false)
        .set_column_dictionary_enabled(ColumnPath::from("margin"), false)
        .set_column_dictionary_enabled(ColumnPath::from("l1"), false)
        .set_created_by(format!("overturn {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(metadata))
        .build()
}

/// A column inside the list of changes.
fn change_column(name: &str) -> ColumnPath {
    ColumnPath::new(["changes", "list", "item", name].map(String::from).to_vec())
}

/// A file that hashes what is written to it, so that the checksum costs no second reading.
#[derive(Debug)]
struct HashingFile {
    file: File,
    hash: Sha256,
    bytes: u64,
}

impl HashingFile {
    fn create(path: &std::path::Path) -> io::Result<HashingFile> {
        Ok(HashingFile { file: File::create(path)?, hash: Sha256::new(), bytes: 0 })
    }

    fn finish(mut self) -> io::Result<(u64, String)> {
        self.file.flush()?;
        self.file.sync_all()?;
        let digest = self.hash.finalize();
        Ok((self.bytes, hex(&digest)))
    }
}

impl Write for HashingFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
