//! Rows to train, validate and test on: read, valid, scored.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::take_record_batch;
use rayon::prelude::*;
use tokio::task::block_in_place;

use super::super::{CheckSummary, Inputs, Observer, Scope, memory};
use super::FEW_ROWS;
use crate::constrain::RowBounds;
use crate::engine::{SamplePlan, ScanPlan, check_keys, gather_sample};
use crate::error::{Error, Result};
use crate::feature::{RowReader, RowValidator};
use crate::job::{InputJob, Job};
use crate::predictor::{NO_CLASS, Outcome, Predictor, Scores, Task};
use crate::runtime::Runtime;
use crate::train::TrainingRows;

/// Where rows come from.
pub(super) struct RowSource<'a> {
    pub(super) job: &'a Job,
    pub(super) inputs: &'a Inputs,
    pub(super) runtime: &'a Runtime,
    pub(super) observer: &'a Observer,
}

/// Rows in memory.
pub(super) struct Loaded {
    pub(super) check: CheckSummary,
    /// To train on, then to validate on.
    pub(super) sample: TrainingRows,
    /// How many of them are trained on.
    pub(super) train: usize,
    pub(super) test: Option<TrainingRows>,
    pub(super) rejected: usize,
    pub(super) remarks: Vec<String>,
    pub(super) task: Task,
}

impl RowSource<'_> {
    /// The rows of `train_where`. Where the job does not say it, and those of `where` all have the same decision, other
    /// rows of the table are trained on as well.
    pub(super) async fn load(&self, predictor: &Arc<dyn Predictor>) -> Result<Loaded> {
        let InputJob { predicate, train_predicate, .. } = &self.job.input;
        let loaded = self.load_rows(predictor, train_predicate.as_deref()).await?;
        if predicate.is_none() || predicate != train_predicate || tells_apart(&loaded) {
            return Ok(loaded);
        }
        let wide = self.load_rows(predictor, None).await?;
        if !tells_apart(&wide) {
            return Ok(loaded);
        }
        let text = format!(
            "the {} rows of `input.where` all have the same decision: trained on all rows of the table; \
             `input.train_where` says which",
            loaded.sample.rows.len
        );
        tracing::info!("{text}");
        let remarks = wide.remarks.into_iter().chain([text]).collect();
        Ok(Loaded { remarks, ..wide })
    }

    /// The rows of a predicate.
    async fn load_rows(
        &self,
        predictor: &Arc<dyn Predictor>,
        train_predicate: Option<&str>,
    ) -> Result<Loaded> {
        let (job, rows) = (self.job, &self.job.train.rows);
        let test = rows.test_predicate.as_deref();
        // Rows to be tested on are never trained on.
        let predicate = match (train_predicate, test) {
            (Some(train), Some(test)) => Some(format!("({train}) AND ({test}) IS NOT TRUE")),
            (None, Some(test)) => Some(format!("({test}) IS NOT TRUE")),
            (train, None) => train.map(str::to_string),
        };
        let scope = Scope { key: "input.train_where", predicate: predicate.as_deref() };
        let check = self.inputs.check(&job.input, scope, self.observer).await?;
        let mut remarks = Vec::new();
        let task = predictor.task();
        let sizes = memory::sizes(self.inputs, task, check.stats.rows, self.runtime.threads);
        let most = sizes.training_rows(job) as usize;
        if check.rows_in_scope > most as u64 {
            let text = format!(
                "trained on a sample of {most} of {} rows, by key (`train.max_rows`, `runtime.memory`)",
                check.rows_in_scope
            );
            tracing::info!("{text}");
            remarks.push(text);
        }
        let batch = self.gather(scope, most, check.rows_in_scope).await?;
        let read = batch.num_rows();
        let sample = block_in_place(|| self.sample(&batch, predictor.as_ref(), "scoring rows"))?;
        let valid_rows = sample.rows.len;
        if valid_rows == 0 {
            let problem = format!("none of {read} training rows can be used");
            return Err(Error::input(&self.inputs.features.shown, problem)
                .hint("`overturn validate` says why rows are rejected"));
        }
        let aside =
            if valid_rows < FEW_ROWS { 0 } else { rows.validation_rows.min(valid_rows / 5) };
        if aside == 0 {
            remarks.push(format!(
                "{valid_rows} rows are too few to set some aside: validated on the same"
            ));
        }
        let test = match test {
            Some(predicate) => Some(self.test(predicate, predictor.as_ref()).await?),
            None => None,
        };
        let (train, rejected) = (valid_rows - aside, read - valid_rows);
        let task = predictor.task().clone();
        Ok(Loaded { check, sample, train, test, rejected, remarks, task })
    }

    async fn test(&self, predicate: &str, predictor: &dyn Predictor) -> Result<TrainingRows> {
        let scope = Scope { key: "train.test_where", predicate: Some(predicate) };
        let (inputs, key) = (self.inputs, &self.job.input.key);
        let plan = inputs.plan(scope);
        let keys = check_keys(&inputs.engine, &inputs.features, key, plan.predicate).await?;
        if keys.rows == 0 {
            let problem = format!("is `{predicate}`, which no row of the table satisfies");
            return Err(Error::spec("train.test_where", problem));
        }
        let batch = self.gather(scope, self.job.train.rows.test_rows, keys.rows).await?;
        block_in_place(|| self.sample(&batch, predictor, "scoring test rows"))
    }

    async fn gather(&self, scope: Scope<'_>, most: usize, rows: u64) -> Result<RecordBatch> {
        let inputs = self.inputs;
        let mut columns = inputs.columns.clone();
        columns.extend(inputs.constraints.iter().map(|constraint| constraint.column.clone()));
        let plan = ScanPlan { columns: &columns, ..inputs.plan(scope) };
        let scan = inputs.engine.scan(plan).await?;
        let seed = self.runtime.streams().seed_of("sample");
        let plan = SamplePlan { key: Arc::clone(&inputs.key), seed, rows, most };
        self.observer.stage("reading rows", Some(rows));
        let progress = Arc::clone(self.observer);
        gather_sample(&scan, &plan, Arc::new(move |rows| progress.advance(rows))).await
    }

    fn sample(
        &self,
        batch: &RecordBatch,
        predictor: &dyn Predictor,
        stage: &str,
    ) -> Result<TrainingRows> {
        let inputs = self.inputs;
        let lost = |error| Error::internal("training", "a column is lost").source(error);
        let features = batch.project(&inputs.feature_columns).map_err(lost)?;
        let validated = RowValidator::new(&inputs.schema).validate_rows(&features)?;
        let all = match &validated.rows {
            Some(rows) => take_record_batch(batch, rows).map_err(lost)?,
            None => batch.clone(),
        };
        let originals = validated.features;
        self.observer.stage(stage, Some(originals.num_rows() as u64));
        Ok(TrainingRows {
            rows: RowReader::new(&inputs.schema).read(&originals)?,
            bounds: RowBounds::read(&inputs.schema, &inputs.constraints, &all)?,
            scores: self.scores(&originals, predictor)?,
            originals,
        })
    }

    /// y_M of all rows, in parts as large as usual batches.
    fn scores(&self, rows: &RecordBatch, predictor: &dyn Predictor) -> Result<Scores> {
        let (count, part) = (rows.num_rows(), self.job.input.batch_rows);
        let starts: Vec<usize> = (0..count).step_by(part).collect();
        let score = |start: &usize| {
            let part = rows.slice(*start, part.min(count - start));
            let scores = predictor.predict(&part)?;
            self.observer.advance(part.num_rows() as u64);
            Ok(scores)
        };
        let parts: Vec<Scores> = starts.par_iter().map(score).collect::<Result<_>>()?;
        let mut scores = Scores::empty(predictor.task());
        parts.into_iter().for_each(|part| scores.append(part));
        Ok(scores)
    }
}

/// Whether training rows differ in what the model decides.
fn tells_apart(loaded: &Loaded) -> bool {
    fn differ<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
        values.next().is_some_and(|first| values.any(|value| value != first))
    }
    match &loaded.sample.scores.outcome {
        Outcome::Classes { labels, .. } => differ(labels.iter().filter(|of| **of != NO_CLASS)),
        Outcome::Values(values) => differ(values.iter().filter(|value| value.is_finite())),
    }
}
