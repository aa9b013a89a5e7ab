//! The `[output]` section.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::storage::{ObjectUrl, Stores};

/// Where the results go.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::output)]
pub struct OutputSpec {
    /// The folder that appears, whole, when the job is done: a path, or a URL (`s3://`, `gs://`, `az://`), where
    /// `_SUCCESS` says that it is whole.
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
    /// The folder. For a URL a folder of this machine, where results are put together.
    pub dir: PathBuf,
    /// The URL, where results are to appear in a store. Serialised as `dir`, see [`super::Job::as_json`].
    #[serde(skip)]
    pub url: Option<ObjectUrl>,
    /// Where it is opened.
    #[serde(skip)]
    pub stores: Stores,
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

impl OutputJob {
    /// The place of the results, as the job names it.
    pub fn shown(&self) -> String {
        let dir = || self.dir.display().to_string();
        self.url.as_ref().map_or_else(dir, ToString::to_string)
    }
}
