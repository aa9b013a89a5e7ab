//! The run's plan carried out: records of splits are journalled as they come, and accounted for.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;

use super::super::{Scope, seconds_since};
use super::{JournalLine, Progressed, Stages};
use crate::engine::{ExplainPlan, ScanPlan, Split, SplitRecord, SplitWork};
use crate::error::{Error, Result};
use crate::explain::Explainer;
use crate::job::InputJob;
use crate::output::{
    COUNTERFACTUALS, Journal, Mirror, REJECTS, StagedFile, Staging, TableFiles, is_inside,
};

/// Splits on their way to a store at the same time.
const UPLOADS: usize = 4;

/// Explained splits.
#[derive(Default)]
pub(super) struct Done {
    /// In order, each with what became of it.
    pub(super) splits: Vec<(Split, SplitRecord)>,
    /// Those that an earlier run had finished.
    pub(super) resumed: usize,
    pub(super) rows_in_scope: u64,
    pub(super) check_seconds: f64,
    pub(super) explain_seconds: f64,
    /// Rows explained in that time.
    pub(super) rows_explained: u64,
    pub(super) remarks: Vec<String>,
}

impl Done {
    pub(super) fn records(&self) -> impl Iterator<Item = &SplitRecord> {
        self.splits.iter().map(|(_, record)| record)
    }

    /// The files of both tables.
    pub(super) fn files(&self) -> impl Iterator<Item = &StagedFile> {
        self.records().flat_map(|record| &record.files)
    }
}

/// Whether all files of a split are there, in their full size.
pub(super) fn is_there(record: &SplitRecord, staging: &Staging) -> bool {
    let whole = |file: &StagedFile| {
        let found = std::fs::symlink_metadata(staging.folder().join(&file.name));
        let whole = |data: std::fs::Metadata| data.is_file() && data.len() == file.bytes;
        is_inside(&file.name) && found.is_ok_and(whole)
    };
    record.files.iter().all(whole)
}

impl Stages<'_> {
    /// Splits of the feature table; in a shard, its own.
    pub(super) fn splits(&self) -> Vec<Split> {
        let (inputs, shard) = (&self.inputs, self.shard);
        let mut splits = inputs.engine.splits(&inputs.features, self.job.explain.split_rows);
        splits.retain(|split| shard.is_none_or(|shard| shard.has(split.index)));
        splits
    }

    /// The plan that explains splits; without an explainer, to be shown.
    pub(super) async fn plan(
        &self,
        splits: &[Split],
        folder: &Path,
        explainer: Option<Arc<Explainer>>,
    ) -> Result<ExplainPlan> {
        let (job, engine, observer) = (self.job, &self.inputs.engine, Arc::clone(self.observer));
        let scope = Scope::explained(&job.input);
        let scan = ScanPlan { columns: &self.columns.names, ..self.inputs.plan(scope) };
        let scan = engine.split_scan(scan, splits).await?;
        let files = TableFiles {
            folder: folder.to_path_buf(),
            options: self.writer_options()?,
            partition_by: job.output.partition_by.clone(),
        };
        let on_rows = Arc::new(move |rows| observer.advance(rows));
        // One to a partition: the next is begun when any is through, however long each takes.
        engine.explain_plan(scan, splits, splits.len(), SplitWork { explainer, files, on_rows })
    }

    /// Explains the splits that are left.
    pub(super) async fn execute(
        &self,
        staging: &mut Staging,
        progressed: Progressed,
        (explainer, rows_in_scope): (Arc<Explainer>, u64),
    ) -> Result<Done> {
        let splits = self.splits();
        let known = |split: &Split| progressed.records.contains_key(&split.index);
        let left: Vec<Split> = splits.iter().filter(|split| !known(split)).cloned().collect();
        let plan = self.plan(&left, staging.folder(), Some(explainer)).await?;
        let resumed = progressed.records.len();
        self.observer.stage("explaining", Some(left.iter().map(|split| split.rows).sum()));
        staging.keep();
        let began = Instant::now();
        let mut accounts = Accounts::new(progressed, &self.job.input, rows_in_scope);
        let before = accounts.rows();
        // Splits go to the store of the results, if there is one, while others are explained.
        let store = (staging.mirror(), staging.folder().to_path_buf());
        let records = plan.records(self.runtime.threads).map(|record| uploaded(record, &store));
        let mut records = std::pin::pin!(records.buffer_unordered(UPLOADS));
        while let Some(record) = records.next().await {
            accounts.take(record?)?;
        }
        tracing::debug!("{}", plan.measured());
        let rows_explained = accounts.rows() - before;
        let done = Done {
            splits: accounts.close(splits)?,
            resumed,
            rows_in_scope,
            explain_seconds: seconds_since(began),
            rows_explained,
            ..Done::default()
        };
        // What an attempt left that was not the first to finish its split.
        let files: HashSet<&str> = done.files().map(|file| file.name.as_str()).collect();
        let table = |name: &str| name.starts_with(COUNTERFACTUALS) || name.starts_with(REJECTS);
        staging.sweep(&|name| !table(name) || files.contains(name))?;
        Ok(done)
    }
}

/// A split, once its files are in the store of the results, if there is one.
async fn uploaded(
    record: Result<SplitRecord>,
    (mirror, folder): &(Option<Arc<Mirror>>, PathBuf),
) -> Result<SplitRecord> {
    let record = record?;
    if let Some(mirror) = mirror {
        let file = |file: &StagedFile| (file.name.clone(), file.bytes, file.sha256.clone());
        mirror.upload(folder, record.files.iter().map(file).collect()).await?;
    }
    Ok(record)
}

/// The journal, and what it says of every split.
struct Accounts<'a> {
    journal: Journal,
    records: BTreeMap<usize, SplitRecord>,
    input: &'a InputJob,
    rows_in_scope: u64,
}

impl<'a> Accounts<'a> {
    fn new(progressed: Progressed, input: &'a InputJob, rows_in_scope: u64) -> Accounts<'a> {
        let Progressed { journal, records, .. } = progressed;
        Accounts { journal, records, input, rows_in_scope }
    }

    /// Rows in scope of the splits that are finished.
    fn rows(&self) -> u64 {
        self.records.values().map(|record| record.rows).sum()
    }

    /// Journals a split. The first record of one counts: another attempt has written the same.
    fn take(&mut self, record: SplitRecord) -> Result<()> {
        if self.records.contains_key(&record.split) {
            return Ok(());
        }
        self.refuse_rejects(&record)?;
        let names: Vec<String> = record.files.iter().map(|file| file.name.clone()).collect();
        let entry = JournalLine::Split(Box::new(record));
        self.journal.append(&entry, &names)?;
        if let JournalLine::Split(record) = entry {
            self.records.insert(record.split, *record);
        }
        Ok(())
    }

    /// Ends a run early that cannot but end so.
    fn refuse_rejects(&self, record: &SplitRecord) -> Result<()> {
        let finished = self.records.values().flat_map(|record| record.rejected.values());
        let rejected: u64 = finished.chain(record.rejected.values()).sum();
        let share = rejected as f64 / self.rows_in_scope.max(1) as f64;
        let limit = self.input.max_reject_share;
        if share <= limit {
            return Ok(());
        }
        let problem = format!(
            "{:.2} % of the rows and more were rejected, at most {:.2} % may be",
            100.0 * share,
            100.0 * limit
        );
        let reasons: Vec<String> =
            record.rejected.iter().map(|(reason, rows)| format!("{reason}: {rows}")).collect();
        Err(Error::input("input.max_reject_share", problem)
            .hint(format!("in the last split {}", reasons.join(", "))))
    }

    /// Every split with its record.
    fn close(mut self, splits: Vec<Split>) -> Result<Vec<(Split, SplitRecord)>> {
        let record = |split: Split| match self.records.remove(&split.index) {
            Some(record) => Ok((split, record)),
            None => {
                let problem = format!("split {} has no record", split.index);
                Err(Error::internal("accounting", problem))
            }
        };
        splits.into_iter().map(record).collect()
    }
}
