//! Results as rows of a Delta table. The files of a run's counterfactual table are put below the table's folder, under
//! names that nothing refers to yet; one commit of the table's log then adds them, and removes what they replace. The
//! commit carries the run's fingerprint, so that a run that is repeated or resumed finds that it was made.

mod columns;
mod delta;
mod place;
mod raw;
mod schema;

use std::path::Path;

use arrow::datatypes::{FieldRef, Schema};
use serde::{Deserialize, Serialize};

use crate::error::{Kind, Result};
use crate::job::DeltaOutputJob;
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
    pub target: &'a DeltaOutputJob,
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
    /// Files of the counterfactual table, by their names in it.
    pub files: &'a [StagedFile],
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
    /// The version that the run is; none where the log no longer says.
    pub version: Option<u64>,
    /// Rows that it added.
    pub rows: u64,
    /// Files that it added.
    pub files_added: usize,
    /// Files of earlier versions that it replaced.
    pub files_removed: usize,
    /// Whether an earlier attempt of the same run had made it.
    pub repeated: bool,
}

impl TableRun<'_> {
    /// Refuses a table that the run could not be committed to, before anything long starts.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
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
        block_on_log(delta::commit(self))
    }

    fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }
}
