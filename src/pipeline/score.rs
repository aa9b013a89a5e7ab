//! `overturn score`: every row in scope through the model, into a score table.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use futures::StreamExt;
use serde::Serialize;
use tokio::task::{JoinSet, block_in_place};

use super::overlaps::check_overlaps;
use super::provenance::{gather as gather_provenance, refuse_changed};
use super::{
    CheckSummary, Inputs, ModelProvenance, Observer, Scope, check_repeatable, manifest,
    seconds_since, staging, versions,
};
use crate::engine::BatchStream;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::output::{
    MANIFEST_FILE, REJECTS, SCORES, StagedFile, Staging, TableWriter, WriterOptions, part_name,
};
use crate::predictor::{self, Predictor, Task};
use crate::runtime::Runtime;
use crate::score::{Scored, Scorer};

/// What a scoring run did.
#[derive(Debug, Clone, Serialize)]
pub struct ScoreSummary {
    /// Rows of the feature table.
    pub rows_read: u64,
    /// Rows that `input.where` leaves out.
    pub rows_out_of_scope: u64,
    /// Rows scored.
    pub rows_scored: u64,
    /// Rows set aside, by reason.
    pub rows_rejected: BTreeMap<&'static str, u64>,
    /// Rows per class; empty for a regression.
    pub classes: BTreeMap<String, u64>,
    /// Seconds for the checks before scoring.
    pub check_seconds: f64,
    /// Seconds for reading, scoring and writing.
    pub score_seconds: f64,
    /// Rows scored per second.
    pub rows_per_second: f64,
    /// Where the tables are.
    pub output: String,
    /// What the check had to say.
    pub remarks: Vec<String>,
}

/// What all partitions share.
struct Shared {
    scorer: Scorer,
    folder: PathBuf,
    options: WriterOptions,
    key: Arc<[usize]>,
    features: Arc<[usize]>,
    observer: Observer,
}

/// What one partition did.
#[derive(Default)]
struct PartitionTally {
    scored: u64,
    rejected: BTreeMap<&'static str, u64>,
    classes: Vec<u64>,
    files: Vec<StagedFile>,
}

/// Scores the rows of a job and publishes the table.
///
/// # Errors
/// Whatever stops it; nothing is published then.
pub fn score(job: &Job, runtime: &Runtime, observer: &Observer) -> Result<ScoreSummary> {
    let inputs = Inputs::open(&job.input, &job.runtime, runtime.threads)?;
    check_overlaps(job, &inputs)?;
    let (provenance, stamps) = gather_provenance(job, "score", &inputs, runtime)?;
    let predictor = predictor::open(&job.predictor, &inputs.predictor_columns(), runtime.threads)?;
    let staging = staging(job, &provenance)?;
    let stages = ScoreStages { job, inputs: &inputs, staging: &staging, observer };
    let result = runtime.block_on(stages.run(Arc::clone(&predictor)));
    match result {
        Ok((files, summary)) => {
            let (inputs, model) = (provenance.inputs.clone(), ModelProvenance::of(&provenance));
            let written = (files, staging.folder());
            let manifest = manifest("score", provenance, (job, &summary), written)?.text()?;
            staging.write(MANIFEST_FILE, &manifest)?;
            refuse_changed(&inputs, &stamps, &job.input.stores)?;
            model.refuse_changed(job)?;
            runtime.check_signals()?;
            staging.publish()?;
            Ok(summary)
        }
        Err(error) => {
            // Before the staging folder vanishes: partitions may still be at work on it.
            predictor.stop();
            Err(error)
        }
    }
}

/// What the stages of a run have in common.
struct ScoreStages<'a> {
    job: &'a Job,
    inputs: &'a Inputs,
    staging: &'a Staging,
    observer: &'a Observer,
}

impl ScoreStages<'_> {
    /// Everything up to publishing: gives the files and the summary.
    async fn run(&self, predictor: Arc<dyn Predictor>) -> Result<(Vec<StagedFile>, ScoreSummary)> {
        let began = Instant::now();
        let check = self
            .inputs
            .check(&self.job.input, Scope::explained(&self.job.input), self.observer)
            .await?;
        let scope = Scope::explained(&self.job.input);
        let remarks = check_repeatable(self.job, self.inputs, scope, &predictor).await?;
        let check_seconds = seconds_since(began);
        let began = Instant::now();
        let shared = Arc::new(self.share(predictor)?);
        self.observer.stage("scoring", Some(check.rows_in_scope));
        let mut tally = score_partitions(self.job, self.inputs, &shared).await?;
        complete(&shared, &mut tally.files)?;
        let mut summary = summarise(&tally, &check, &shared);
        refuse_rejects(&summary, self.job)?;
        summary.check_seconds = check_seconds;
        summary.remarks.extend(remarks);
        summary.score_seconds = seconds_since(began);
        summary.rows_per_second = summary.rows_scored as f64 / summary.score_seconds.max(1e-9);
        summary.output = self.job.output.shown();
        Ok((tally.files, summary))
    }

    fn share(&self, predictor: Arc<dyn Predictor>) -> Result<Shared> {
        let metadata = vec![("overturn.versions".to_string(), versions()?.to_string())];
        Ok(Shared {
            scorer: Scorer::new(predictor, &self.inputs.schema, &self.inputs.key_fields())?,
            folder: self.staging.tables(&[SCORES, REJECTS])?,
            options: WriterOptions { row_group_rows: self.job.output.row_group_rows, metadata },
            key: Arc::clone(&self.inputs.key),
            features: Arc::clone(&self.inputs.feature_columns),
            observer: Arc::clone(self.observer),
        })
    }
}

async fn score_partitions(
    job: &Job,
    inputs: &Inputs,
    shared: &Arc<Shared>,
) -> Result<PartitionTally> {
    let scan = inputs.engine.scan(inputs.plan(Scope::explained(&job.input))).await?;
    let mut tasks = JoinSet::new();
    for (partition, stream) in scan.streams()?.into_iter().enumerate() {
        tasks.spawn(Partition::new(Arc::clone(shared), partition).run(stream));
    }
    let mut total = PartitionTally::default();
    while let Some(tally) = tasks.join_next().await {
        let tally = tally.map_err(|error| Error::internal("scoring", error.to_string()))?;
        total.add(tally?);
    }
    total.files.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(total)
}

impl PartitionTally {
    fn count(&mut self, scored: &Scored) {
        self.scored += scored.scores.num_rows() as u64;
        for reason in &scored.reasons {
            *self.rejected.entry(reason.name()).or_default() += 1;
        }
        self.add_classes(&scored.classes);
    }

    fn add_classes(&mut self, classes: &[u64]) {
        self.classes.resize(self.classes.len().max(classes.len()), 0);
        for (count, more) in self.classes.iter_mut().zip(classes) {
            *count += more;
        }
    }

    fn add(&mut self, other: PartitionTally) {
        self.scored += other.scored;
        for (reason, rows) in other.rejected {
            *self.rejected.entry(reason).or_default() += rows;
        }
        self.add_classes(&other.classes);
        self.files.extend(other.files);
    }
}

/// One partition of the scan, and the files it writes.
struct Partition {
    shared: Arc<Shared>,
    index: usize,
    scores: Option<TableWriter>,
    rejects: Option<TableWriter>,
    tally: PartitionTally,
}

impl Partition {
    fn new(shared: Arc<Shared>, index: usize) -> Partition {
        Partition { shared, index, scores: None, rejects: None, tally: PartitionTally::default() }
    }

    async fn run(mut self, mut stream: BatchStream) -> Result<PartitionTally> {
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            // Blocking: the model computes here, or answers from another process; signals and the other
            // partitions' input must go on meanwhile.
            block_in_place(|| self.score(&batch))?;
            self.shared.observer.advance(batch.num_rows() as u64);
        }
        self.close()
    }

    fn score(&mut self, batch: &RecordBatch) -> Result<()> {
        let key = project(batch, &self.shared.key)?;
        let scored = self.shared.scorer.score(&key, &project(batch, &self.shared.features)?)?;
        self.tally.count(&scored);
        write(&mut self.scores, &scored.scores, || self.shared.writer(SCORES, self.index))?;
        write(&mut self.rejects, &scored.rejects, || self.shared.writer(REJECTS, self.index))
    }

    fn close(mut self) -> Result<PartitionTally> {
        for writer in [self.scores.take(), self.rejects.take()].into_iter().flatten() {
            self.tally.files.push(writer.close()?);
        }
        Ok(self.tally)
    }
}

impl Shared {
    fn writer(&self, kind: &str, partition: usize) -> Result<TableWriter> {
        let name = part_name(kind, partition);
        let scorer = &self.scorer;
        let schema = if kind == SCORES { &scorer.scores_schema } else { &scorer.rejects_schema };
        TableWriter::create(self.folder.join(&name), name, Arc::clone(schema), &self.options)
    }
}

fn project(batch: &RecordBatch, columns: &[usize]) -> Result<RecordBatch> {
    batch
        .project(columns)
        .map_err(|error| Error::internal("scoring", "a column is lost").source(error))
}

/// Writes rows, if there are any, to a file that is made for the first of them.
fn write(
    writer: &mut Option<TableWriter>,
    rows: &RecordBatch,
    make: impl FnOnce() -> Result<TableWriter>,
) -> Result<()> {
    if rows.num_rows() == 0 {
        return Ok(());
    }
    match writer {
        Some(writer) => writer.write(rows),
        none => none.insert(make()?).write(rows),
    }
}

fn summarise(tally: &PartitionTally, check: &CheckSummary, shared: &Shared) -> ScoreSummary {
    let classes = match shared.scorer.task() {
        Task::Classification { classes, .. } => {
            classes.iter().cloned().zip(tally.classes.clone()).collect()
        }
        Task::Regression => BTreeMap::new(),
    };
    ScoreSummary {
        rows_read: check.rows,
        rows_out_of_scope: check.rows - check.rows_in_scope,
        rows_scored: tally.scored,
        rows_rejected: tally.rejected.clone(),
        classes,
        check_seconds: 0.0,
        score_seconds: 0.0,
        rows_per_second: 0.0,
        output: String::new(),
        remarks: check.remarks.clone(),
    }
}

/// Every row must be accounted for, and not too many set aside.
fn refuse_rejects(summary: &ScoreSummary, job: &Job) -> Result<()> {
    let rejected: u64 = summary.rows_rejected.values().sum();
    let in_scope = summary.rows_read - summary.rows_out_of_scope;
    if summary.rows_scored + rejected != in_scope {
        let problem =
            format!("{} scored and {rejected} rejected of {in_scope} rows", summary.rows_scored);
        return Err(Error::internal("accounting", problem));
    }
    let (share, limit) = (rejected as f64 / in_scope as f64, job.input.max_reject_share);
    if share > limit {
        let problem = format!(
            "{:.2} % of the rows were rejected, at most {:.2} % may be",
            100.0 * share,
            100.0 * limit
        );
        let reasons: Vec<String> = summary
            .rows_rejected
            .iter()
            .map(|(reason, rows)| format!("{reason}: {rows}"))
            .collect();
        return Err(Error::input("input.max_reject_share", problem).hint(reasons.join(", ")));
    }
    Ok(())
}

/// Readers find both tables even when one has no rows.
fn complete(shared: &Shared, files: &mut Vec<StagedFile>) -> Result<()> {
    for kind in [SCORES, REJECTS] {
        if !files.iter().any(|file| file.name.starts_with(kind)) {
            files.push(shared.writer(kind, 0)?.close()?);
        }
    }
    Ok(())
}
