//! The query engine's session: partitions, batch size, memory.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::files::SourceFiles;
use super::table::{ParquetTable, Table};
use crate::error::{Error, Result};
use crate::job::TableAt;
use crate::storage::Stores;
use crate::table;

/// What the engine may use.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// Partitions of a scan, at most.
    pub partitions: usize,
    /// Rows per batch.
    pub batch_rows: usize,
    /// Bytes its operators may hold before they spill to disk.
    pub memory_bytes: u64,
}

fn refused_name(name: &str, error: DataFusionError) -> Error {
    Error::spec(name, format!("cannot name a table: {}", error.strip_backtrace()))
}

/// A session of the query engine.
pub struct Engine {
    pub(super) context: SessionContext,
    pub(super) options: EngineOptions,
    stores: Stores,
}

impl Engine {
    /// Starts a session.
    pub fn new(options: EngineOptions) -> Result<Engine> {
        let config = SessionConfig::new()
            .with_target_partitions(options.partitions)
            .with_batch_size(options.batch_rows)
            // Partitions are cut by us, at row groups, the same way every time.
            .with_repartition_file_scans(false)
            .with_round_robin_repartition(false)
            .set_bool("datafusion.execution.enable_file_stream_work_stealing", false)
            // Column names of feature tables are rarely lower case.
            .set_bool("datafusion.sql_parser.enable_ident_normalization", false)
            .set_bool("datafusion.execution.parquet.pushdown_filters", true);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_limit(options.memory_bytes as usize, 1.0)
            .build_arc()
            .map_err(|error| Error::resources("query engine", "cannot be started").source(error))?;
        let context = SessionContext::new_with_config_rt(config, runtime);
        Ok(Engine { context, options, stores: Stores::default() })
    }

    /// The same, with the stores of a job rather than those that the environment knows.
    #[must_use]
    pub fn with_stores(self, stores: Stores) -> Engine {
        Engine { stores, ..self }
    }

    /// Opens the table behind paths, URLs and globs under a name that predicates can use.
    ///
    /// # Errors
    /// When a file is missing, broken or unlike the others.
    pub fn open(&self, name: &str, paths: &[String]) -> Result<Table> {
        let files = SourceFiles::find(paths, &self.stores)?;
        let table = Arc::new(ParquetTable::new(files, self.options.partitions));
        let described = table.describe(name, paths);
        self.register(name, table)?;
        Ok(described)
    }

    /// Opens a version of a Delta or Iceberg table under a name that predicates can use, without the files in which no row
    /// satisfies any of the predicates; all files where there is none.
    ///
    /// # Errors
    /// When the table cannot be read, or a file is missing or broken.
    pub fn open_version(
        &self,
        name: &str,
        (place, wanted): (&str, &TableAt),
        predicates: &[&str],
    ) -> Result<Table> {
        let versioned = table::open(place, wanted, &self.stores)?;
        let kept = self.files_in_scope(&versioned, predicates);
        let read = kept.iter().filter(|kept| **kept).count();
        let (version, files) = (versioned.version, versioned.files.len());
        tracing::info!(version, files, read, "opened {place}");
        let files = SourceFiles::of_version(&versioned, &kept, &self.stores)?;
        let table = Arc::new(ParquetTable::new(files, self.options.partitions));
        let described = table.describe(name, &[place.to_string()]);
        let described = Table { version: Some(version), ..described };
        self.register(name, table)?;
        Ok(described)
    }

    /// Opens some columns of a table as a table of its own, in the place of an earlier one of that name.
    pub(super) fn open_part(
        &self,
        name: &str,
        table: &Table,
        columns: &HashSet<&str>,
    ) -> Result<Table> {
        let mut files = table.source.files.clone();
        let fields = files.file_schema.fields().iter();
        let kept = fields.filter(|field| columns.contains(field.name().as_str()));
        files.file_schema = Arc::new(Schema::new(kept.cloned().collect::<Vec<_>>()));
        let part = Arc::new(ParquetTable::new(files, self.options.partitions));
        let described = Table { shown: table.shown.clone(), ..part.describe(name, &[]) };
        let replaced = self.context.deregister_table(TableReference::bare(name));
        replaced.map_err(|error| refused_name(name, error))?;
        self.register(name, part)?;
        Ok(described)
    }

    fn register(&self, name: &str, table: Arc<ParquetTable>) -> Result<()> {
        if let Some(store) = &table.files.store {
            self.context.register_object_store(store.name.as_ref(), Arc::clone(&store.store) as _);
        }
        // As it is written: names are case-sensitive everywhere.
        let named = self.context.register_table(TableReference::bare(name), table);
        named.map(|_| ()).map_err(|error| refused_name(name, error))
    }
}
