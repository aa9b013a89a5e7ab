//! The `[input]` section.

use std::path::PathBuf;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::storage::Stores;

/// Tables in: features, optionally the model's stored scores, and what the columns mean.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::input)]
pub struct InputSpec {
    /// The feature table: Parquet file, folder, glob or hive-partitioned folder, or a list of them; paths or URLs of
    /// one bucket (`s3://`, `gs://`, `az://`). Or a Delta table, `{ url = "…", format = "delta" }`, or an Iceberg table,
    /// `{ catalog = "…", table = "…", format = "iceberg" }`.
    pub features: TableSpec,
    /// The feature schema (TOML), see `schemas/feature.schema.json`. A path or a URL.
    pub schema: PathBuf,
    /// The column or columns that identify a row.
    pub key: OneOrMany,
    /// A table with the model's stored decisions, joined on the key.
    pub scores: Option<ScoresSpec>,
    /// SQL predicate over the feature table: rows to score or explain. By default all.
    #[serde(rename = "where")]
    pub predicate: Option<String>,
    /// SQL predicate over the feature table: rows to train on. By default those of `where`, or all if these have one
    /// decision.
    pub train_where: Option<String>,
    /// Rows per batch.
    #[serde(default = "batch_rows")]
    pub batch_rows: usize,
    /// Share of rows that may be rejected before the job is refused.
    #[serde(default = "max_reject_share")]
    pub max_reject_share: f64,
}

fn batch_rows() -> usize {
    8192
}

fn max_reject_share() -> f64 {
    0.05
}

/// One text or a list of them.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// As a list.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        }
    }
}

/// A table: paths of Parquet files, or a table of versions.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TableSpec {
    /// A file, folder or glob.
    One(String),
    /// Several.
    Many(Vec<String>),
    /// A table with a log of its versions.
    Versioned(VersionedSpec),
}

/// A Delta or Iceberg table, at one of its versions.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::versioned)]
pub struct VersionedSpec {
    /// Delta: the folder that holds `_delta_log`. Iceberg, without a catalogue: the file of the table's metadata,
    /// `…/metadata/….metadata.json`.
    pub url: Option<String>,
    /// How the table keeps its versions.
    pub format: TableFormat,
    /// Delta: the version that is read. By default the latest when the run begins; a resumed run reads the same.
    pub version: Option<u64>,
    /// The latest version or snapshot of this moment, such as `2026-11-19T02:00:00Z`, instead of `version` or `snapshot`.
    pub timestamp: Option<String>,
    /// Iceberg: the address of the REST catalogue, such as `https://catalog.example.com`.
    pub catalog: Option<String>,
    /// Iceberg: which of the catalogue's warehouses, where it has several.
    pub warehouse: Option<String>,
    /// Iceberg: the table in the catalogue, as `namespace.table`.
    pub table: Option<String>,
    /// Iceberg: the snapshot that is read. By default the present one when the run begins; a resumed run reads the same.
    pub snapshot: Option<i64>,
}

/// How a table keeps its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TableFormat {
    /// Delta Lake.
    Delta,
    /// Apache Iceberg, version 1 or 2 of the format.
    Iceberg,
}

/// The model's stored decisions, as `overturn score` writes them.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::scores)]
pub struct ScoresSpec {
    /// Parquet file, folder, glob or hive-partitioned folder; paths or URLs of one bucket. Or a Delta or Iceberg
    /// table.
    pub table: TableSpec,
    /// The column with the decision: the class, or the value of a regression.
    #[serde(default = "decision")]
    pub decision: String,
    /// How many rows are scored again, to see that the stored decisions are this model's.
    #[serde(default = "parity_rows")]
    pub parity_rows: usize,
    /// Share of those rows that may disagree.
    #[serde(default = "parity_tolerance")]
    pub parity_tolerance: f64,
}

fn decision() -> String {
    "class".to_string()
}

fn parity_rows() -> usize {
    1000
}

fn parity_tolerance() -> f64 {
    0.001
}

/// Tables in, paths resolved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct InputJob {
    /// Files, folders and globs of the feature table, or the place of a table of versions.
    pub features: Vec<String>,
    /// Which version of a Delta or Iceberg table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features_at: Option<TableAt>,
    /// The feature schema file.
    pub schema: PathBuf,
    /// Key columns.
    pub key: Vec<String>,
    /// Stored decisions.
    pub scores: Option<ScoresJob>,
    /// Rows in scope.
    pub predicate: Option<String>,
    /// Rows to train on.
    pub train_predicate: Option<String>,
    /// Rows per batch.
    pub batch_rows: usize,
    /// Share of rows that may be rejected.
    pub max_reject_share: f64,
    /// Where URLs are opened. No part of what the job says.
    #[serde(skip)]
    pub stores: Stores,
}

/// Stored decisions, paths resolved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct ScoresJob {
    /// Files, folders and globs, or the place of a table of versions.
    pub table: Vec<String>,
    /// Which version of a Delta or Iceberg table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_at: Option<TableAt>,
    /// Decision column.
    pub decision: String,
    /// Rows scored again.
    pub parity_rows: usize,
    /// Share that may disagree.
    pub parity_tolerance: f64,
}

/// Which version of a Delta or Iceberg table is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TableAt {
    /// That number, of a version or a snapshot.
    pub version: Option<u64>,
    /// The latest of that moment.
    pub timestamp: Option<String>,
    /// Where an Iceberg table is found; none for Delta tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iceberg: Option<IcebergTable>,
    /// The version that a run has read which is now resumed. No part of what the job says.
    #[serde(skip)]
    pub pinned: Option<u64>,
}

/// A table of a catalogue, or one whose metadata file is known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct IcebergTable {
    /// The catalogue; without one `table` is the metadata file.
    pub catalog: Option<String>,
    /// Which of its warehouses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warehouse: Option<String>,
    /// `namespace.table`, or the metadata file.
    pub table: String,
}

impl IcebergTable {
    /// How it is called in messages and manifests.
    pub fn shown(&self) -> String {
        match &self.catalog {
            Some(catalog) => format!("{}/{}", catalog.trim_end_matches('/'), self.table),
            None => self.table.clone(),
        }
    }

    /// Levels of the namespace.
    pub fn namespace(&self) -> impl Iterator<Item = &str> {
        self.table.rsplit_once('.').map_or("", |(space, _)| space).split('.')
    }

    /// The name inside the namespace.
    pub fn name(&self) -> &str {
        self.table.rsplit('.').next().unwrap_or_default()
    }

    /// Namespace and name as they stand in the catalogue's addresses.
    pub fn names(&self) -> (String, String) {
        let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let levels: Vec<&str> = self.namespace().collect();
        (escaped(&levels.join("\u{1f}")), escaped(self.name()))
    }
}
