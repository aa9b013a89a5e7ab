//! The `[output]` section.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the results go.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::output)]
pub struct OutputSpec {
    /// The folder that appears, whole, when the job is done.
    pub dir: PathBuf,
    /// Replace what an earlier run published there. By default it is left alone and the job refused.
    #[serde(default)]
    pub overwrite: bool,
    /// Replaced runs that stay beside the folder under hidden names, for those who still read them: 0 to 100.
    #[serde(default = "keep")]
    pub keep: usize,
    /// Rows per Parquet row group.
    #[serde(default = "row_group_rows")]
    pub row_group_rows: usize,
    /// Columns of the counterfactual table that become hive-style folders: key columns, `target`,
    /// `original_class`, `cf_class`, `status`, `valid`, `sample`.
    #[serde(default)]
    pub partition_by: Vec<String>,
    /// A file for Prometheus's textfile collector, replaced after every run.
    pub metrics: Option<PathBuf>,
}

fn keep() -> usize {
    1
}

fn row_group_rows() -> usize {
    262_144
}

/// Where the results go, path resolved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct OutputJob {
    /// The folder.
    pub dir: PathBuf,
    /// Whether an earlier run's results are replaced.
    pub overwrite: bool,
    /// Replaced runs that stay.
    pub keep: usize,
    /// Rows per row group.
    pub row_group_rows: usize,
    /// Columns that become folders.
    pub partition_by: Vec<String>,
    /// The file for Prometheus.
    pub metrics: Option<PathBuf>,
}
