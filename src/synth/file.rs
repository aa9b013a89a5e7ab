//! Row groups into Parquet files: encoded in memory by any thread, appended to their file in order.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::TypePtr;

use super::table::{self, BLOCK_ROWS};
use super::{Synth, SynthRowGroup};
use crate::error::{Error, Result};

/// How every file of the table is written.
pub(super) struct Format {
    schema: SchemaRef,
    root: TypePtr,
    properties: WriterPropertiesPtr,
    columns: ArrowRowGroupWriterFactory,
}

impl Format {
    /// The format of the table.
    pub(super) fn new() -> Result<Format> {
        let schema = table::schema();
        let properties = Arc::new(properties());
        let wrong = |error| internal("the table has no Parquet schema", error);
        // The Arrow schema is left out of the files on purpose: it would make readers return
        // dictionaries where plain text is what people expect.
        let root = ArrowSchemaConverter::new().convert(&schema).map_err(wrong)?.root_schema_ptr();
        // The factory takes its settings from a file writer; any will do.
        let settings =
            SerializedFileWriter::new(std::io::sink(), Arc::clone(&root), Arc::clone(&properties))
                .map_err(wrong)?;
        let columns = ArrowRowGroupWriterFactory::new(&settings, Arc::clone(&schema));
        Ok(Format { schema, root, properties, columns })
    }
}

/// Nearly all columns have few distinct values and shrink to a few bits a value by their dictionary, so
/// that a light compression is enough. Every row group has every category, so their lowest and highest
/// would help no reader to skip any, and comparing text is a tenth of the work.
fn properties() -> WriterProperties {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_column_dictionary_enabled(table::key().into(), false)
        .set_column_encoding(table::key().into(), Encoding::DELTA_BINARY_PACKED)
        .set_created_by(concat!("overturn ", env!("CARGO_PKG_VERSION")).to_string());
    table::categories()
        .fold(properties, |properties, name| {
            properties.set_column_statistics_enabled(name.into(), EnabledStatistics::None)
        })
        .build()
}

/// A row group in memory, encoded and compressed.
pub(super) struct EncodedRowGroup {
    file: usize,
    chunks: Vec<ArrowColumnChunk>,
    /// Its rows.
    pub(super) rows: u64,
    /// How many of them are approved.
    pub(super) approved: u64,
}

impl Format {
    /// Makes and encodes the rows of a row group.
    pub(super) fn encode(&self, synth: &Synth, group: &SynthRowGroup) -> Result<EncodedRowGroup> {
        let wrong = |error| internal("rows cannot be encoded", error);
        let mut columns = self.columns.create_column_writers(0).map_err(wrong)?;
        let mut approved = 0;
        for range in within_blocks(group.rows.clone()) {
            let rows = table::rows(synth, &self.schema, range)?;
            approved += rows.approved;
            let arrays = rows.batch.columns().iter().zip(self.schema.fields());
            for ((array, field), column) in arrays.zip(&mut columns) {
                for leaf in compute_leaves(field, array).map_err(wrong)? {
                    column.write(&leaf).map_err(wrong)?;
                }
            }
        }
        let chunks = columns.into_iter().map(ArrowColumnWriter::close);
        Ok(EncodedRowGroup {
            file: group.file,
            chunks: chunks.collect::<Result<_, _>>().map_err(wrong)?,
            rows: group.rows.end - group.rows.start,
            approved,
        })
    }
}

/// Cuts a range of rows where blocks begin.
fn within_blocks(rows: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let blocks = rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS);
    blocks.map(move |block| {
        let first = block * BLOCK_ROWS;
        first.max(rows.start)..(first + BLOCK_ROWS).min(rows.end)
    })
}

/// The files of a table, written one after the other.
pub(super) struct Files<'a> {
    format: &'a Format,
    dir: &'a Path,
    open: Option<UnfinishedFile>,
    /// Bytes of the finished files.
    pub(super) bytes: u64,
}

/// The file that is being written, under a name that readers skip.
struct UnfinishedFile {
    number: usize,
    temporary: PathBuf,
    writer: SerializedFileWriter<File>,
}

impl<'a> Files<'a> {
    /// No file yet.
    pub(super) fn new(format: &'a Format, dir: &'a Path) -> Self {
        Files { format, dir, open: None, bytes: 0 }
    }

    /// Appends row groups; those of a file follow each other.
    pub(super) fn append(&mut self, groups: Vec<EncodedRowGroup>) -> Result<()> {
        for group in groups {
            if self.open.as_ref().is_some_and(|part| part.number != group.file) {
                self.finish()?;
            }
            let part = match self.open.take() {
                Some(part) => part,
                None => self.start(group.file)?,
            };
            let part = self.open.insert(part);
            append(&mut part.writer, group.chunks)
                .map_err(|error| cannot_write(&part.temporary, error))?;
        }
        Ok(())
    }

    fn start(&self, number: usize) -> Result<UnfinishedFile> {
        let temporary = self.dir.join(format!(".part-{number:05}.parquet.partial"));
        let file = File::create(&temporary).map_err(|error| cannot_write(&temporary, error))?;
        let (root, properties) = (&self.format.root, &self.format.properties);
        SerializedFileWriter::new(file, Arc::clone(root), Arc::clone(properties))
            .map_err(|error| cannot_write(&temporary, error))
            .map(|writer| UnfinishedFile { number, temporary, writer })
    }

    /// Completes the open file and gives it its name.
    pub(super) fn finish(&mut self) -> Result<()> {
        let Some(part) = self.open.take() else { return Ok(()) };
        let target_path = self.dir.join(format!("part-{:05}.parquet", part.number));
        let file =
            part.writer.into_inner().map_err(|error| cannot_write(&part.temporary, error))?;
        self.bytes += file.metadata().map_err(|error| cannot_write(&part.temporary, error))?.len();
        fs::rename(&part.temporary, &target_path).map_err(|error| cannot_write(&target_path, error))
    }
}

impl Drop for Files<'_> {
    /// A file that was not completed is of no use to anybody.
    fn drop(&mut self) {
        if let Some(part) = self.open.take() {
            drop(part.writer);
            let _ = fs::remove_file(&part.temporary);
        }
    }
}

fn append(
    writer: &mut SerializedFileWriter<File>,
    chunks: Vec<ArrowColumnChunk>,
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for chunk in chunks {
        chunk.append_to_row_group(&mut group)?;
    }
    group.close().map(drop)
}

fn internal(problem: &str, error: ParquetError) -> Error {
    Error::internal("synth", problem).source(error)
}

fn cannot_write(path: &Path, error: impl Into<crate::error::BoxedError>) -> Error {
    Error::output(path.display().to_string(), "cannot be written").source(error)
}
