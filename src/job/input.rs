//! The `[input]` section.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tables in: features, optionally the model's stored scores, and what the columns mean.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::input)]
pub struct InputSpec {
    /// The feature table: Parquet file, folder, glob or hive-partitioned folder, or a list of them.
    pub features: OneOrMany,
    /// The feature schema (TOML), see `schemas/feature.schema.json`.
    pub schema: PathBuf,
    /// The column or columns that identify a row.
    pub key: OneOrMany,
    /// A table with the model's stored decisions, joined on the key.
    pub scores: Option<ScoresSpec>,
    /// SQL predicate over the feature table: rows to score or explain. By default all.
    #[serde(rename = "where")]
    pub predicate: Option<String>,
    /// SQL predicate over the feature table: rows to train on. By default those of `where`.
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

/// The model's stored decisions, as `overturn score` writes them.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::scores)]
pub struct ScoresSpec {
    /// Parquet file, folder, glob or hive-partitioned folder.
    pub table: OneOrMany,
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
    /// Files, folders and globs of the feature table.
    pub features: Vec<String>,
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
}

/// Stored decisions, paths resolved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct ScoresJob {
    /// Files, folders and globs.
    pub table: Vec<String>,
    /// Decision column.
    pub decision: String,
    /// Rows scored again.
    pub parity_rows: usize,
    /// Share that may disagree.
    pub parity_tolerance: f64,
}
