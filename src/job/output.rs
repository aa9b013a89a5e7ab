//! The `[output]` section.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IcebergTable, TableFormat};
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
    /// A Delta or Iceberg table to which `run` and `explain` commit the counterfactual table as well.
    pub table: Option<TableOutputSpec>,
}

/// A Delta or Iceberg table that takes the counterfactuals of runs.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableOutputSpec {
    /// Delta: the table's folder; made, with the table, where it does not exist.
    pub url: Option<String>,
    /// How the table keeps its versions.
    pub format: TableFormat,
    /// What becomes of the rows that are there. Iceberg tables can be appended to only.
    pub mode: CommitMode,
    /// For `replace_where`: SQL predicate over the partition columns, whose files are replaced.
    #[serde(rename = "where")]
    pub predicate: Option<String>,
    /// Whether the table may get columns that it does not have.
    #[serde(default)]
    pub schema: SchemaMode,
    /// Delta: what else of a run is appended to tables beside it, whose names begin with its own: `rejects` to
    /// `<url>_rejects`, each report to `<url>_reports_<report>`, with the column `run_id`.
    #[serde(default)]
    pub beside: Vec<Beside>,
    /// Iceberg: the address of the REST catalogue.
    pub catalog: Option<String>,
    /// Iceberg: which of the catalogue's warehouses, where it has several.
    pub warehouse: Option<String>,
    /// Iceberg: the table in the catalogue, as `namespace.table`; made where it does not exist.
    pub table: Option<String>,
}

/// What is committed beside the counterfactuals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Beside {
    /// Rows that were set aside, with the reason.
    Rejects,
    /// All reports, and the tables of the audit.
    Reports,
}

/// What becomes of the rows that a table holds when a run commits to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommitMode {
    /// They stay.
    Append,
    /// The run's take their place.
    Overwrite,
    /// The run's take the place of those in the partitions of `where`.
    ReplaceWhere,
}

/// Whether the columns of a table may change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemaMode {
    /// The run has the table's columns, no more and no fewer.
    #[default]
    Strict,
    /// Columns that the table lacks are added; those that the run lacks are null in its rows.
    Merge,
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
    /// The table that takes the counterfactuals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableOutputJob>,
}

/// A Delta or Iceberg table that takes the counterfactuals of runs, path resolved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct TableOutputJob {
    /// The table's folder, or where the catalogue has it.
    pub url: String,
    /// Where an Iceberg table is found; none for Delta tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iceberg: Option<IcebergTable>,
    /// What becomes of the rows that are there.
    pub mode: CommitMode,
    /// Which partitions are replaced.
    pub predicate: Option<String>,
    /// Whether columns may be added.
    pub schema: SchemaMode,
    /// What is appended to tables beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
}

impl TableOutputJob {
    /// The table of this name beside it: rows are only added to it, and columns as they come.
    #[must_use]
    pub fn beside(&self, name: &str) -> TableOutputJob {
        TableOutputJob {
            url: format!("{}_{}", self.url.trim_end_matches('/'), name.replace('/', "_")),
            iceberg: None,
            mode: CommitMode::Append,
            predicate: None,
            schema: SchemaMode::Merge,
            beside: Vec::new(),
        }
    }
}

impl OutputJob {
    /// The place of the results, as the job names it.
    pub fn shown(&self) -> String {
        let dir = || self.dir.display().to_string();
        self.url.as_ref().map_or_else(dir, ToString::to_string)
    }
}
