//! A set of Parquet files as a table of the query engine. Its partitions are runs of whole row groups
//! of about equal size, cut the same way every time: the engine's own listing table would choose them by
//! its own lights, and skip or take other files than we checked.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    CachedParquetFileReaderFactory, ParquetRowSelection,
};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result as EngineResult;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::path::Path as ObjectPath;
use datafusion::physical_plan::ExecutionPlan;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};

use super::files::{SourceFile, SourceFiles};
use super::splits::{FileRange, Split};
use crate::storage::ObjectUrl;

/// Bytes at the end of an object that are read first: most footers fit.
const FOOTER_BYTES: usize = 64 << 10;

/// What is known of a table before it is read.
#[derive(Debug, Clone)]
pub struct Table {
    /// Name in the session.
    pub name: String,
    /// How it was asked for, for messages.
    pub shown: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// Rows, by the footers.
    pub rows: u64,
    /// Files.
    pub files: usize,
    /// Bytes on disk.
    pub bytes: u64,
    /// The version, of a Delta table.
    pub version: Option<u64>,
    pub(super) source: Arc<ParquetTable>,
}

impl Table {
    /// Its files, in the order in which they are read.
    pub fn source_files(&self) -> &[SourceFile] {
        &self.source.files.files
    }
}

/// The table as the engine sees it.
#[derive(Debug, Clone)]
pub(super) struct ParquetTable {
    pub(super) files: SourceFiles,
    schema: TableSchema,
    partitions: usize,
    /// What of it is read, as one partition; all of it otherwise.
    ranges: Option<Vec<FileRange>>,
}

impl ParquetTable {
    pub(super) fn new(files: SourceFiles, partitions: usize) -> ParquetTable {
        let schema = TableSchema::builder(Arc::clone(&files.file_schema))
            .with_table_partition_cols(files.partition_fields.clone())
            .build();
        ParquetTable { files, schema, partitions, ranges: None }
    }

    /// The same table with the rows of some splits only, as one partition.
    pub(super) fn of_splits(&self, splits: &[Split]) -> ParquetTable {
        let ranges = splits.iter().flat_map(|split| split.ranges.clone()).collect();
        ParquetTable { ranges: Some(ranges), ..self.clone() }
    }

    pub(super) fn table_schema(&self) -> &TableSchema {
        &self.schema
    }

    pub(super) fn describe(self: &Arc<Self>, name: &str, paths: &[String]) -> Table {
        Table {
            name: name.to_string(),
            shown: paths.join(", "),
            schema: Arc::clone(self.schema.table_schema()),
            rows: self.files.rows(),
            files: self.files.files.len(),
            bytes: self.files.files.iter().map(|file| file.bytes).sum(),
            version: None,
            source: Arc::clone(self),
        }
    }

    /// Runs of row groups, about equally many rows each, in the table's order.
    fn groups(&self) -> Vec<FileGroup> {
        if let Some(ranges) = &self.ranges {
            return vec![file_group(&self.schema, ranges)];
        }
        let total = self.files.rows().max(1);
        let mut groups: Vec<Vec<PartitionedFile>> = vec![Vec::new(); self.partitions];
        let mut before = 0;
        for file in &self.files.files {
            for (first, last, partition) in self.runs(file, before, total) {
                groups[partition].push(self.piece(file, first, last));
            }
            before += file.rows;
        }
        groups.into_iter().filter(|group| !group.is_empty()).map(FileGroup::new).collect()
    }

    /// A file's row groups as runs (first, past the last) that go to one partition each.
    fn runs(&self, file: &SourceFile, before: u64, total: u64) -> Vec<(usize, usize, usize)> {
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        let mut row = before;
        for (index, group) in file.row_groups.iter().enumerate() {
            let middle = row + group.rows / 2;
            let partition = ((middle * self.partitions as u64) / total) as usize;
            let partition = partition.min(self.partitions - 1);
            match runs.last_mut() {
                Some(run) if run.2 == partition => run.1 = index + 1,
                _ => runs.push((index, index + 1, partition)),
            }
            row += group.rows;
        }
        runs
    }

    /// The engine reads the row groups that start inside a byte range.
    fn piece(&self, file: &SourceFile, first: usize, last: usize) -> PartitionedFile {
        let start = file.row_groups[first].start as i64;
        let end = file.row_groups.get(last).map_or(file.bytes as i64, |group| group.start as i64);
        let piece = PartitionedFile::new("", file.bytes).with_range(start, end);
        located(&self.schema, &file.path, (piece, &file.partition_values))
    }
}

/// Runs of rows as a partition of a table with this schema.
pub(super) fn file_group(schema: &TableSchema, ranges: &[FileRange]) -> FileGroup {
    FileGroup::new(ranges.iter().map(|range| rows_of(schema, range)).collect())
}

/// A run of rows of a file.
fn rows_of(schema: &TableSchema, range: &FileRange) -> PartitionedFile {
    let after = range.file_rows - range.first_row - range.rows;
    let selection = RowSelection::from(vec![
        RowSelector::skip(range.first_row as usize),
        RowSelector::select(range.rows as usize),
        RowSelector::skip(after as usize),
    ]);
    let whole = PartitionedFile::new("", range.bytes);
    let whole = whole.with_extension(ParquetRowSelection::new(selection));
    located(schema, Path::new(&range.file), (whole, &range.folders))
}

/// A file at its path, with the values of the folders that it lies in.
fn located(
    schema: &TableSchema,
    path: &Path,
    (mut file, folders): (PartitionedFile, &[Option<String>]),
) -> PartitionedFile {
    let text = path.to_string_lossy();
    let location = match ObjectUrl::parse(&text) {
        Ok(url) => ObjectPath::parse(url.key()),
        Err(_) => ObjectPath::from_absolute_path(path),
    };
    if let Ok(location) = location {
        file.object_meta.location = location;
    }
    let fields = schema.table_partition_cols().iter().zip(folders);
    let values = fields.map(|(field, value)| partition_value(value.as_deref(), field.data_type()));
    file.with_partition_values(values.collect())
}

/// The value of a partition, which is one of its column's type: that was checked when the table was opened.
pub(super) fn partition_value(value: Option<&str>, data_type: &DataType) -> ScalarValue {
    let value = match (value, data_type) {
        (None, DataType::Int64) => Ok(ScalarValue::Int64(None)),
        (None, other) => ScalarValue::try_from(other),
        (Some(text), DataType::Int64) => Ok(ScalarValue::Int64(text.parse().ok())),
        (Some(text), other) => ScalarValue::try_from_string(text.to_string(), other),
    };
    value.unwrap_or(ScalarValue::Null)
}

#[async_trait]
impl TableProvider for ParquetTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let options = state.default_table_options().parquet;
        let mut source =
            ParquetSource::new(self.schema.clone()).with_table_parquet_options(options);
        let mut store = ObjectStoreUrl::local_filesystem();
        if let Some(table) = &self.files.store {
            store = table.name.clone();
            // A footer is asked for once rather than for every split.
            let footers = Arc::clone(&table.footers);
            let reader =
                CachedParquetFileReaderFactory::new(Arc::clone(&table.store) as _, footers);
            source = source
                .with_parquet_file_reader_factory(Arc::new(reader))
                .with_metadata_size_hint(FOOTER_BYTES);
        }
        let scan = FileScanConfigBuilder::new(store, Arc::new(source))
            .with_file_groups(self.groups())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }

    /// Predicates skip row groups and pages; the engine still applies them.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> EngineResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}
