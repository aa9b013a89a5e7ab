//! The one commit of a run: what is looked at first, what is written, and what becomes of it where others write to the
//! table at the same time.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::time::Duration;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use deltalake_core::DeltaTableError;
use deltalake_core::kernel::engine::arrow_conversion::TryIntoArrow;
use deltalake_core::kernel::transaction::{CommitBuilder, CommitProperties};
use deltalake_core::kernel::{
    Action, Add, EagerSnapshot, LogicalFileView, Protocol, Remove, Transaction, new_metadata,
};
use deltalake_core::logstore::LogStoreRef;
use deltalake_core::protocol::{DeltaOperation, SaveMode};
use serde_json::json;

use super::columns::portable_schema;
use super::place::place;
use super::raw::remove_path;
use super::schema::{changes, described};
use super::{TableCommit, TableRun};
use crate::error::{Error, Kind, Result};
use crate::job::CommitMode;
use crate::storage::is_url;
use crate::table::{log_store, trouble};

/// Times that a commit is tried while others commit to the table.
const ATTEMPTS: u32 = 20;
/// The first wait between two; each is longer.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Versions that are searched for the commit of a run that was made before.
const SEARCHED: u64 = 1_000;
/// What a transaction's number is: a run is committed once.
const ONCE: i64 = 1;

/// The table as it is now; none where there is none.
pub(super) async fn latest(store: &LogStoreRef) -> Result<Option<EagerSnapshot>> {
    match EagerSnapshot::try_new(store.as_ref(), None).await {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(DeltaTableError::NotATable(_)) => Ok(None),
        Err(error) => {
            let shown = store.root_url().to_string();
            let problem = format!("cannot be read as a Delta table: {}", trouble(&error));
            Err(Error::output(shown, problem).source(error))
        }
    }
}

pub(super) async fn commit(run: &TableRun<'_>) -> Result<TableCommit> {
    let url = &run.target.url;
    if !is_url(url) {
        fs::create_dir_all(url).map_err(|error| {
            Error::output(url, format!("cannot be created: {error}"))
                .hint("check the permissions of `output.table.url`")
        })?;
    }
    let store = log_store(url, run.stores, Kind::Output)?;
    let schema = portable_schema(run.schema)?;
    let mut committer = Committer { run, schema, store, added: None, replaced: None };
    let mut wait = FIRST_WAIT;
    for _ in 1..ATTEMPTS {
        match committer.attempt().await? {
            CommitAttempt::Done(commit) => return Ok(commit),
            CommitAttempt::Overtaken(error) => {
                tracing::warn!("another writer was faster, trying again: {}", trouble(&error));
            }
        }
        tokio::time::sleep(wait).await;
        wait = wait.mul_f64(1.3);
    }
    let problem = format!("could not be committed to in {ATTEMPTS} attempts: others were faster");
    Err(Error::output(url, problem).hint("run again with `--resume` when fewer write to the table"))
}

/// What became of an attempt.
enum CommitAttempt {
    Done(TableCommit),
    /// Another has committed the version; the run may be tried again on top of it.
    Overtaken(DeltaTableError),
}

struct Committer<'a> {
    run: &'a TableRun<'a>,
    schema: SchemaRef,
    store: LogStoreRef,
    /// Actions that add the run's files, which are put in place once.
    added: Option<Vec<Add>>,
    /// Files that the first attempt was to replace. Another writer may add to the table meanwhile, but not to them.
    replaced: Option<BTreeSet<String>>,
}

impl Committer<'_> {
    async fn attempt(&mut self) -> Result<CommitAttempt> {
        let snapshot = latest(&self.store).await?;
        if let Some(found) = self.committed_before(snapshot.as_ref()).await? {
            return Ok(CommitAttempt::Done(found));
        }
        let mut actions = self.table_actions(snapshot.as_ref())?;
        let removed = self.removed(snapshot.as_ref())?;
        let added = self.added().await?;
        let (files_added, files_removed) = (added.len(), removed.len());
        actions.extend(added.into_iter().map(Action::Add));
        actions.extend(removed.into_iter().map(Action::Remove));
        let written = self.write(snapshot.as_ref(), actions).await;
        let error = match written {
            Ok(version) => {
                self.sync(version)?;
                return Ok(CommitAttempt::Done(self.commit(
                    Some(version),
                    files_added,
                    files_removed,
                )));
            }
            Err(error) => error,
        };
        // An error may come after the commit was made.
        let now = latest(&self.store).await?;
        if let Some(found) = self.committed_before(now.as_ref()).await? {
            return Ok(CommitAttempt::Done(found));
        }
        let before = snapshot.map(|snapshot| snapshot.version());
        if now.map(|now| now.version()) > before {
            return Ok(CommitAttempt::Overtaken(error));
        }
        let problem = format!("cannot be committed to: {}", trouble(&error));
        Err(Error::output(&self.run.target.url, problem).source(error))
    }

    fn commit(&self, version: Option<u64>, added: usize, removed: usize) -> TableCommit {
        TableCommit {
            url: self.run.target.url.clone(),
            version,
            rows: self.run.rows(),
            files_added: added,
            files_removed: removed,
            repeated: false,
            beside: Vec::new(),
        }
    }

    /// The name under which the table's log knows the run.
    fn transaction(&self) -> String {
        format!("overturn-{}", self.run.fingerprint)
    }

    /// The commit of this run, if it was made.
    async fn committed_before(&self, table: Option<&EagerSnapshot>) -> Result<Option<TableCommit>> {
        let Some(snapshot) = table else { return Ok(None) };
        let found = snapshot.transaction_version(self.store.as_ref(), self.transaction()).await;
        let found = found.map_err(|error| {
            let problem = format!("cannot be read as a Delta table: {}", trouble(&error));
            Error::output(&self.run.target.url, problem).source(error)
        })?;
        if found.is_none() {
            return Ok(None);
        }
        let version = self.version_of_run(snapshot.version()).await;
        Ok(Some(TableCommit { repeated: true, ..self.commit(version, 0, 0) }))
    }

    /// The version by which the run was committed, as far back as the log is searched.
    async fn version_of_run(&self, latest: u64) -> Option<u64> {
        let name = self.transaction();
        for version in (latest.saturating_sub(SEARCHED)..=latest).rev() {
            let entry = self.store.read_commit_entry(version).await.ok()??;
            if String::from_utf8_lossy(&entry).contains(&name) {
                return Some(version);
            }
        }
        None
    }

    /// What makes the table, or gives it further columns.
    fn table_actions(&self, table: Option<&EagerSnapshot>) -> Result<Vec<Action>> {
        let run = self.run;
        if let Some(snapshot) = table {
            let changed = changes(run, &self.schema, snapshot)?;
            return Ok(changed.map(Action::Metadata).into_iter().collect());
        }
        let none = |error| Error::internal("output.table", "has no metadata").source(error);
        let schema = described(&self.schema)?;
        let settings: HashMap<String, String> = HashMap::new();
        let metadata = new_metadata(&schema, run.partition_by, settings).map_err(none)?;
        // What every reader and writer knows.
        let protocol = json!({ "minReaderVersion": 1, "minWriterVersion": 2 });
        let protocol: Protocol = serde_json::from_value(protocol)
            .map_err(|error| Error::internal("output.table", "has no protocol").source(error))?;
        Ok(vec![Action::Protocol(protocol), Action::Metadata(metadata)])
    }

    /// The files whose place the run's take.
    fn removed(&mut self, table: Option<&EagerSnapshot>) -> Result<Vec<Remove>> {
        let replaces = self.run.target.mode != CommitMode::Append;
        let Some(snapshot) = table.filter(|_| replaces) else { return Ok(Vec::new()) };
        let files: Vec<LogicalFileView> = snapshot.log_data().iter().collect();
        let replaced = match self.run.target.mode {
            CommitMode::ReplaceWhere => self.matching(snapshot, &files)?,
            _ => vec![true; files.len()],
        };
        let raw = remove_path(snapshot, &self.run.target.url)?;
        let of_replaced = files.iter().zip(&replaced).filter(|(_, replaced)| **replaced);
        let removed = of_replaced.map(|(file, _)| {
            let path = raw(&file.path())?;
            Ok(Remove { path, ..file.remove_action(true) })
        });
        let removed = removed.collect::<Result<Vec<_>>>()?;
        let paths: BTreeSet<String> = removed.iter().map(|file| file.path.clone()).collect();
        match &self.replaced {
            None => self.replaced = Some(paths),
            Some(first) if *first == paths => {}
            Some(_) => return Err(self.meanwhile(snapshot.version())),
        }
        Ok(removed)
    }

    fn meanwhile(&self, version: u64) -> Error {
        let problem = format!(
            "was changed by another writer up to version {version}, in rows that this run replaces"
        );
        Error::output(&self.run.target.url, problem).hint(
            "nothing of this run is in the table; look at its history, then run again with `--resume` to \
             replace what is there now",
        )
    }

    fn matching(&self, snapshot: &EagerSnapshot, files: &[LogicalFileView]) -> Result<Vec<bool>> {
        let schema: Schema = snapshot.schema().as_ref().try_into_arrow().map_err(|error| {
            Error::output(&self.run.target.url, "has columns without an Arrow type").source(error)
        })?;
        let columns = &self.run.partition_by;
        let fields: Vec<FieldRef> = columns
            .iter()
            .filter_map(|name| schema.column_with_name(name))
            .map(|(_, field)| field.clone().into())
            .collect();
        let values = |file: &LogicalFileView| -> Vec<Option<String>> {
            let mut known = file.partition_values_map();
            let value =
                |name: &String| known.remove(name).flatten().filter(|text| !text.is_empty());
            columns.iter().map(value).collect()
        };
        let values: Vec<_> = files.iter().map(values).collect();
        (self.run.matches)(&fields, &values)
    }

    async fn added(&mut self) -> Result<Vec<Add>> {
        if let Some(added) = &self.added {
            return Ok(added.clone());
        }
        tracing::info!(files = self.run.files.len(), "putting files below {}", self.run.target.url);
        let added = place(self.run, &self.schema).await?;
        self.refuse_outside(&added)?;
        Ok(self.added.insert(added).clone())
    }

    /// Rows that the predicate of `replace_where` does not hold for would be there twice after the next run.
    fn refuse_outside(&self, added: &[Add]) -> Result<()> {
        let run = self.run;
        if run.target.mode != CommitMode::ReplaceWhere {
            return Ok(());
        }
        let field = |name: &String| {
            self.schema.column_with_name(name).map(|(_, field)| field.clone().into())
        };
        let fields: Vec<FieldRef> = run.partition_by.iter().filter_map(field).collect();
        let value = |add: &Add, name: &String| add.partition_values.get(name).cloned().flatten();
        let values: Vec<Vec<Option<String>>> = added
            .iter()
            .map(|add| run.partition_by.iter().map(|name| value(add, name)).collect())
            .collect();
        let inside = (run.matches)(&fields, &values)?;
        match added.iter().zip(inside).find(|(_, inside)| !inside) {
            None => Ok(()),
            Some((add, _)) => {
                let predicate = run.target.predicate.as_deref().unwrap_or_default();
                let problem = format!(
                    "is `{predicate}`, which does not hold for the run's rows in `{}`",
                    Path::new(&add.path).parent().unwrap_or(Path::new("")).display()
                );
                Err(Error::spec("output.table.where", problem)
                    .hint("limit the run to the same rows with `input.where`"))
            }
        }
    }

    async fn write(
        &self,
        table: Option<&EagerSnapshot>,
        actions: Vec<Action>,
    ) -> Result<u64, DeltaTableError> {
        let run = self.run;
        let appends = run.target.mode == CommitMode::Append;
        let metadata = [
            ("isBlindAppend".to_string(), json!(appends)),
            ("overturn.runId".to_string(), json!(run.run_id)),
            ("overturn.fingerprint".to_string(), json!(run.fingerprint)),
        ];
        let operation = DeltaOperation::Write {
            mode: if appends { SaveMode::Append } else { SaveMode::Overwrite },
            partition_by: (!run.partition_by.is_empty()).then(|| run.partition_by.to_vec()),
            predicate: run.target.predicate.clone(),
        };
        let properties = CommitProperties::default()
            // Tries of its own would not look for the run's transaction, nor at what is replaced.
            .with_max_retries(0)
            .with_metadata(metadata)
            .with_application_transaction(Transaction::new(self.transaction(), ONCE))
            // The history of a table is not a run's to shorten.
            .with_cleanup_expired_logs(Some(false));
        tracing::info!(actions = actions.len(), "committing to {}", run.target.url);
        let table = table.map(|table| table as _);
        let commit = CommitBuilder::from(properties).with_actions(actions);
        let commit = commit.build(table, self.store.clone(), operation).await?;
        Ok(commit.version())
    }

    /// Sees to it that the commit is on the disk.
    fn sync(&self, version: u64) -> Result<()> {
        if is_url(&self.run.target.url) {
            return Ok(());
        }
        let log = Path::new(&self.run.target.url).join("_delta_log");
        let commit = log.join(format!("{version:020}.json"));
        let synced = [commit, log].iter().try_for_each(|path| fs::File::open(path)?.sync_all());
        synced.map_err(|error| {
            let problem =
                format!("was committed to, but version {version} cannot be synced: {error}");
            Error::output(&self.run.target.url, problem)
        })
    }
}
