//! Results as rows of a Delta or Iceberg table. The files of a run's counterfactual table are put below the table's
//! folder, under names that nothing refers to yet; one commit to the table then adds them, and removes what they replace.
//! The commit carries the run's fingerprint, so that a run that is repeated or resumed finds that it was made.

mod columns;
mod delta;
mod iceberg;
mod place;
mod raw;
mod schema;

use std::path::Path;

use arrow::datatypes::{FieldRef, Schema};
use serde::{Deserialize, Serialize};

use crate::error::{Kind, Result};
use crate::job::TableOutputJob;
use crate::output::StagedFile;
use crate::runtime::block_on_log;
use crate::storage::{Stores, is_url};
use crate::table::log_store;

pub use columns::portable_schema;

/// Says for each partition, given the values of the columns, whether `output.table.where` holds for it.
pub type Matches<'a> =
    &'a (dyn Fn(&[FieldRef], &[Vec<Option<String>>]) -> Result<Vec<bool>> + Sync);

/// What is committed, and where.
pub struct TableRun<'a> {
    /// The table, and what becomes of its rows.
    pub target: &'a TableOutputJob,
    /// Stores of tables that have URLs.
    pub stores: &'a Stores,
    /// Which partitions `replace_where` replaces.
    pub matches: Matches<'a>,
    /// Columns of the run's table, those that became folders too, in its own types.
    pub schema: &'a Schema,
    /// Columns that became folders.
    pub partition_by: &'a [String],
    /// The run's folder.
    pub folder: &'a Path,
    /// Files of the table, by their names in it.
    pub files: &'a [StagedFile],
    /// What these names begin with.
    pub prefix: &'a str,
    /// A column that all rows have the same value of, and that the files lack.
    pub constant: Option<(&'a str, &'a str)>,
    /// Tells the run from all others.
    pub fingerprint: &'a str,
    /// The same in short, for names of files.
    pub run_id: &'a str,
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCommit {
    /// The table.
    pub url: String,
    /// The version or snapshot that the run is; none where the log no longer says.
    pub version: Option<u64>,
    /// Rows that it added.
    pub rows: u64,
    /// Files that it added.
    pub files_added: usize,
    /// Files of earlier versions that it replaced.
    pub files_removed: usize,
    /// Whether an earlier attempt of the same run had made it.
    pub repeated: bool,
    /// Commits to tables beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<TableCommit>,
}

impl TableRun<'_> {
    /// Refuses a table that the run could not be committed to, before anything long starts.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
        if let Some(table) = &self.target.iceberg {
            return block_on_log(iceberg::check(self, table));
        }
        let schema = portable_schema(self.schema)?;
        let url = &self.target.url;
        if !is_url(url) && !Path::new(url).join("_delta_log").is_dir() {
            return Ok(());
        }
        block_on_log(async {
            let store = log_store(url, self.stores, Kind::Output)?;
            match delta::latest(&store).await? {
                Some(snapshot) => schema::changes(self, &schema, &snapshot).map(|_| ()),
                None => Ok(()),
            }
        })
    }

    /// Commits the run, unless that was done before.
    ///
    /// # Errors
    /// When the table cannot be written, is not one that the run's rows suit, or was changed by another writer in a way
    /// that must not be overwritten. Nothing of the run is in the table then.
    pub fn commit(&self) -> Result<TableCommit> {
        match &self.target.iceberg {
            Some(table) => block_on_log(iceberg::commit(self, table)),
            None => block_on_log(delta::commit(self)),
        }
    }

    /// Where a file is put below the table: `counterfactuals/day=2026-11-19/part-00017.parquet` becomes
    /// `day=2026-11-19/part-00017-<run>.parquet`.
    fn name_of(&self, file: &StagedFile) -> String {
        let inside = file.name.strip_prefix(self.prefix).unwrap_or(&file.name);
        let stem = inside.trim_start_matches('/').trim_end_matches(".parquet");
        let stem = if stem.is_empty() { "part" } else { stem };
        format!("{stem}-{}.parquet", self.run_id)
    }

    fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }
}
