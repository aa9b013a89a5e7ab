//! Units of work: explained by as many workers as there are threads, written, synced, journalled.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int32Type;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::{JoinSet, block_in_place};

use super::super::{Inputs, Observer, Scope, seconds_since};
use super::kept::{read_kept, write_kept};
use super::summary::{Example, examples};
use super::{Entry, Progressed, Stages};
use crate::engine::{ScanPlan, Unit, UnitStream};
use crate::error::{Error, Result};
use crate::explain::{Explainer, Keep, Kept, Ledger, Stage, StageSeconds};
use crate::job::InputJob;
use crate::metrics::Tally;
use crate::output::{
    COUNTERFACTUALS, Journal, PartWriter, REJECTS, StagedFile, Staging, WriterOptions, is_inside,
    kept_name,
};

/// A finished unit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UnitRecord {
    pub(super) unit: usize,
    /// Rows in scope.
    pub(super) rows: u64,
    pub(super) rows_without_score: u64,
    pub(super) cut_short: u64,
    /// Counterfactuals that were not found, by what kept them from being found.
    #[serde(default)]
    pub(super) unsolved: BTreeMap<String, u64>,
    pub(super) rejected: BTreeMap<String, u64>,
    pub(super) files: Vec<StagedFile>,
    /// What is kept of it beside the journal.
    pub(super) kept: Option<StagedFile>,
    pub(super) tally: Tally,
    pub(super) seconds: StageSeconds,
    pub(super) examples: Vec<Example>,
}

impl UnitRecord {
    /// Whether all of its files are there, in their full size.
    pub(super) fn is_there(&self, staging: &Staging) -> bool {
        let whole = |folder: &std::path::Path, file: &StagedFile| {
            let found = std::fs::symlink_metadata(folder.join(&file.name));
            let whole = |data: std::fs::Metadata| data.is_file() && data.len() == file.bytes;
            is_inside(&file.name) && found.is_ok_and(whole)
        };
        let journal = staging.journal();
        self.files.iter().all(|file| whole(staging.folder(), file))
            && self.kept.iter().all(|file| whole(&journal, file))
    }
}

/// Counts of units, merged in the units' order, in whatever order those are finished. Sums of fractions
/// depend on it, and counts by many segments are too large to be held for every unit.
#[derive(Default)]
pub(super) struct Tallies {
    merged: Tally,
    /// The unit to be merged next.
    next: usize,
    waiting: BTreeMap<usize, Tally>,
}

impl Tallies {
    /// Takes a unit's counts out of its record, where only the names of its segments stay.
    pub(super) fn take(&mut self, record: &mut UnitRecord) -> Result<()> {
        let tally = std::mem::take(&mut record.tally);
        record.tally.segments = tally.segments.clone();
        self.waiting.insert(record.unit, tally);
        while let Some(tally) = self.waiting.remove(&self.next) {
            self.merged.merge(&tally)?;
            self.next += 1;
        }
        Ok(())
    }

    /// The counts of all units.
    pub(super) fn finish(self) -> Result<Tally> {
        if self.waiting.is_empty() {
            return Ok(self.merged);
        }
        Err(Error::internal("accounting", format!("unit {} is missing", self.next)))
    }
}

/// Finished work.
pub(super) struct Done {
    /// All units, in order.
    pub(super) units: Vec<UnitRecord>,
    /// What they counted.
    pub(super) tally: Tally,
    /// Those that an earlier run had finished.
    pub(super) resumed: usize,
    pub(super) rows_in_scope: u64,
    pub(super) schemas: Schemas,
    pub(super) check_seconds: f64,
    pub(super) explain_seconds: f64,
    /// Rows explained in that time.
    pub(super) rows_explained: u64,
    pub(super) remarks: Vec<String>,
    journal: PathBuf,
}

/// Schemas of the two tables.
#[derive(Clone)]
pub(super) struct Schemas {
    pub(super) counterfactuals: arrow::datatypes::SchemaRef,
    pub(super) rejects: arrow::datatypes::SchemaRef,
}

impl Done {
    /// Work told from tables that were written before.
    pub(super) fn reread(
        (units, tally): (Vec<UnitRecord>, Tally),
        (rows, began): (u64, Instant),
        schemas: Schemas,
        journal: PathBuf,
    ) -> Done {
        Done {
            resumed: units.len(),
            units,
            tally,
            rows_in_scope: rows,
            schemas,
            check_seconds: 0.0,
            explain_seconds: seconds_since(began),
            rows_explained: rows,
            remarks: Vec::new(),
            journal,
        }
    }

    /// The rows that a unit kept.
    pub(super) fn kept(&self, unit: &UnitRecord) -> Result<Option<Kept>> {
        unit.kept.as_ref().map(|file| read_kept(&self.journal.join(&file.name))).transpose()
    }
}

/// What workers share.
pub(super) struct Shop {
    inputs: Arc<Inputs>,
    input: InputJob,
    columns: Vec<String>,
    explainer: Arc<Explainer>,
    folder: PathBuf,
    journal_folder: PathBuf,
    options: WriterOptions,
    partition_by: Vec<String>,
    observer: Observer,
    keep: Keep,
    rows_in_scope: u64,
    rejected: AtomicU64,
    queue: Mutex<VecDeque<Unit>>,
    journal: Mutex<Journal>,
    done: Mutex<Vec<UnitRecord>>,
    tallies: Mutex<Tallies>,
    resumed: usize,
}

impl Shop {
    pub(super) fn new(
        stages: &Stages<'_>,
        staging: &Staging,
        mut progressed: Progressed,
        explainer: Arc<Explainer>,
        rows_in_scope: u64,
    ) -> Result<Shop> {
        let mut tallies = Tallies::default();
        progressed.units.iter_mut().try_for_each(|unit| tallies.take(unit))?;
        let inputs = &stages.inputs;
        let units = inputs.engine.units(&inputs.features, stages.job.explain.unit_rows);
        let finished = |unit: &Unit| progressed.units.iter().any(|done| done.unit == unit.index);
        let queue: VecDeque<Unit> = units.into_iter().filter(|unit| !finished(unit)).collect();
        let rejected = progressed.units.iter().flat_map(|unit| unit.rejected.values()).sum();
        let shop = Shop {
            inputs: Arc::clone(inputs),
            input: stages.job.input.clone(),
            columns: stages.columns.names.clone(),
            explainer,
            folder: staging.folder().to_path_buf(),
            journal_folder: staging.journal(),
            options: stages.writer_options()?,
            partition_by: stages.job.output.partition_by.clone(),
            observer: Arc::clone(stages.observer),
            keep: stages.keep(),
            rows_in_scope,
            rejected: AtomicU64::new(rejected),
            queue: Mutex::new(queue),
            journal: Mutex::new(progressed.journal),
            resumed: progressed.units.len(),
            done: Mutex::new(progressed.units),
            tallies: Mutex::new(tallies),
        };
        // A column that cannot become folders is found before anything long starts.
        shop.writer(COUNTERFACTUALS, 0)?;
        Ok(shop)
    }

    /// Rows of the units that are left, before any predicate.
    pub(super) fn rows_left(&self) -> u64 {
        lock(&self.queue).iter().map(|unit| unit.rows).sum()
    }

    /// Works until no unit is left.
    pub(super) async fn work(self, workers: usize) -> Result<Done> {
        let began = Instant::now();
        let before: u64 = lock(&self.done).iter().map(|unit| unit.rows).sum();
        let shop = Arc::new(self);
        let mut tasks = JoinSet::new();
        // A worker stays on a thread of its own: the allocator holds memory back for every thread that ever
        // computed, and the engine's own threads take turns.
        let engine = Handle::current();
        for _ in 0..workers {
            let (engine, shop) = (engine.clone(), Arc::clone(&shop));
            tasks.spawn_blocking(move || engine.block_on(shop.labour()));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| Error::internal("explaining", error.to_string()))??;
        }
        let mut units = std::mem::take(&mut *lock(&shop.done));
        units.sort_by_key(|unit| unit.unit);
        let rows: u64 = units.iter().map(|unit| unit.rows).sum();
        Ok(Done {
            rows_explained: rows - before,
            tally: std::mem::take(&mut *lock(&shop.tallies)).finish()?,
            units,
            resumed: shop.resumed,
            rows_in_scope: shop.rows_in_scope,
            schemas: Schemas {
                counterfactuals: Arc::clone(&shop.explainer.counterfactuals),
                rejects: Arc::clone(&shop.explainer.rejects),
            },
            check_seconds: 0.0,
            explain_seconds: seconds_since(began),
            remarks: Vec::new(),
            journal: shop.journal_folder.clone(),
        })
    }

    async fn labour(self: Arc<Self>) -> Result<()> {
        loop {
            let unit = lock(&self.queue).pop_front();
            let Some(unit) = unit else { return Ok(()) };
            let mut record = self.unit(&unit).await?;
            self.refuse_rejects(&record)?;
            lock(&self.journal).append(&Entry::Unit(Box::new(record.clone())))?;
            lock(&self.tallies).take(&mut record)?;
            lock(&self.done).push(record);
        }
    }

    /// Explains one unit and writes what comes of it.
    async fn unit(&self, unit: &Unit) -> Result<UnitRecord> {
        let scope = Scope::explained(&self.input);
        let plan = ScanPlan { columns: &self.columns, ..self.inputs.plan(scope) };
        let mut stream = self.inputs.engine.explain(plan, unit, &self.explainer).await?;
        let mut writer = self.writer(COUNTERFACTUALS, unit.index)?;
        let mut seconds = StageSeconds::default();
        let mut shown: Vec<Example> = Vec::new();
        while let Some(batch) = stream.batches.next().await {
            let batch = batch?;
            let mut clock = Instant::now();
            block_in_place(|| writer.write(&batch))?;
            seconds.clock(Stage::Write, &mut clock);
            examples(&batch, self.input.key.len(), &mut shown);
            self.observer.advance(rows_of(&batch, self.input.key.len()));
        }
        let mut clock = Instant::now();
        let files = block_in_place(|| writer.close())?;
        seconds.clock(Stage::Write, &mut clock);
        block_in_place(|| self.record(unit, stream, files, (seconds, shown)))
    }

    fn record(
        &self,
        unit: &Unit,
        stream: UnitStream,
        mut files: Vec<StagedFile>,
        (seconds, examples): (StageSeconds, Vec<Example>),
    ) -> Result<UnitRecord> {
        let Ledger {
            rows,
            rows_without_score,
            cut_short,
            unsolved,
            rejected,
            rejects,
            tally,
            kept,
            seconds: own,
            ..
        } = stream.ledger()?;
        let mut writer = self.writer(REJECTS, unit.index)?;
        rejects.iter().try_for_each(|batch| writer.write(batch))?;
        files.extend(writer.close()?);
        let kept = write_kept(&self.journal_folder, kept_name(unit.index), (kept, self.keep))?;
        let mut total = own;
        total.add(&seconds);
        let seconds = total;
        let unit = unit.index;
        Ok(UnitRecord {
            unit,
            rows,
            rows_without_score,
            cut_short,
            unsolved,
            rejected,
            files,
            kept,
            tally,
            seconds,
            examples,
        })
    }

    fn writer(&self, table: &str, part: usize) -> Result<PartWriter> {
        let (schema, by) = if table == COUNTERFACTUALS {
            (&self.explainer.counterfactuals, &self.partition_by[..])
        } else {
            (&self.explainer.rejects, &[][..])
        };
        PartWriter::new(self.folder.clone(), (table, part), schema, by, &self.options)
    }

    /// Ends a run early that cannot but end so.
    fn refuse_rejects(&self, record: &UnitRecord) -> Result<()> {
        let more: u64 = record.rejected.values().sum();
        let rejected = self.rejected.fetch_add(more, Ordering::Relaxed) + more;
        let (share, limit) =
            (rejected as f64 / self.rows_in_scope.max(1) as f64, self.input.max_reject_share);
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
            .hint(format!("in the last piece of work {}", reasons.join(", "))))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rows of the input that a batch answers.
pub(super) fn rows_of(batch: &RecordBatch, sample: usize) -> u64 {
    let samples = batch.column(sample).as_primitive::<Int32Type>();
    samples.values().iter().filter(|sample| **sample == 0).count() as u64
}
