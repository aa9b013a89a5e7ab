//! The table that is measured: synthetic credit applications, 9 numeric and 7 categorical features,
//! written to Parquet and read back, so that the columns have the types that a scan gives.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use overturn::feature::FeatureSchema;
use overturn::synth::{self, Synth};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

/// Rows of the table: eight batches of the engine's usual size.
pub(crate) const ROWS: usize = 65_536;

/// Rows per batch that the engine hands out unless a job says otherwise.
pub(crate) const BATCH_ROWS: usize = 8192;

/// The project's folder.
pub(crate) fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The table as a file that lives as long as this.
pub(crate) struct Credit {
    folder: TempDir,
    /// What its columns mean.
    #[allow(dead_code, reason = "some benches need the file only")]
    pub(crate) features: Arc<FeatureSchema>,
}

impl Credit {
    /// Makes the table; always the same one.
    pub(crate) fn make() -> Credit {
        let folder = TempDir::new().expect("a folder for the table");
        let table = Synth { rows: ROWS as u64, seed: 7, files: 1, null_share: 0.0 };
        synth::write(&table, &folder.path().join("credit"), &|_| ()).expect("the table is made");
        Credit { folder, features: features() }
    }

    /// The table's file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("credit/part-00000.parquet")
    }

    /// The features of all rows in batches.
    #[allow(dead_code, reason = "some benches need the file only")]
    pub(crate) fn batches(&self, batch_rows: usize) -> Vec<RecordBatch> {
        read(&self.file(), &self.features, batch_rows)
    }
}

/// What the table's columns mean.
pub(crate) fn features() -> Arc<FeatureSchema> {
    let file = project().join("schemas/credit.toml");
    Arc::new(FeatureSchema::read(&file).expect("the schema is read"))
}

/// The features of all rows of a file in batches.
pub(crate) fn read(file: &Path, features: &FeatureSchema, batch_rows: usize) -> Vec<RecordBatch> {
    let file = File::open(file).expect("the table is there");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    let schema = Arc::clone(reader.schema());
    let position = |name| schema.index_of(name).expect("a column for each feature");
    let positions: Vec<usize> = features.names().map(position).collect();
    let batches = reader.with_batch_size(batch_rows).build().expect("a reader");
    let batches = batches.map(|batch| {
        let batch = batch.expect("a batch is read");
        batch.project(&positions).expect("the features are there")
    });
    batches.collect()
}
