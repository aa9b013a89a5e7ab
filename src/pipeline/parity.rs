//! Whether stored scores are the model's: the first rows in scope are scored again.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, take, take_record_batch};
use arrow::datatypes::DataType;
use futures::StreamExt;
use serde::Serialize;
use tokio::task::block_in_place;

use super::{Inputs, Observer, Scope};
use crate::engine::ScanPlan;
use crate::error::{Error, Result};
use crate::explain::Decisions;
use crate::feature::{RowValidator, numbers};
use crate::job::{Job, ScoresJob};
use crate::predictor::{Outcome, Predictor, Scores, Task};

/// Two regressions agree within this share of the larger one.
const VALUE_TOLERANCE: f64 = 1e-5;

/// How a score table compares with the model.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ParitySummary {
    /// Rows in scope without a stored decision.
    pub rows_without_score: u64,
    /// Rows scored again.
    pub rows_compared: u64,
    /// Rows on which the stored decision is not the model's.
    pub rows_different: u64,
}

/// A comparison under way.
pub(super) struct ParityCheck<'a> {
    job: &'a Job,
    inputs: &'a Inputs,
    predictor: &'a dyn Predictor,
    scores: &'a ScoresJob,
    validator: RowValidator,
    summary: ParitySummary,
}

impl<'a> ParityCheck<'a> {
    fn new(
        (job, inputs): (&'a Job, &'a Inputs),
        predictor: &'a dyn Predictor,
        scores: &'a ScoresJob,
    ) -> ParityCheck<'a> {
        let validator = RowValidator::new(&inputs.schema);
        ParityCheck { job, inputs, predictor, scores, validator, summary: ParitySummary::default() }
    }

    /// Holds the job's score table against the model, if there is one: features and stored decisions are
    /// streamed side by side.
    ///
    /// # Errors
    /// When too many rows differ, or none can be compared.
    pub(super) async fn of_table(
        (job, inputs): (&'a Job, &'a Inputs),
        predictor: &'a dyn Predictor,
        observer: &Observer,
    ) -> Result<Option<ParitySummary>> {
        let (Some(scores), Some(table)) = (&job.input.scores, &inputs.scores) else {
            return Ok(None);
        };
        observer.stage("comparing scores", Some(inputs.features.rows));
        let mut check = ParityCheck::new((job, inputs), predictor, scores);
        let table = Some((table, &job.input.key[..], scores.decision.as_str()));
        let plan = ScanPlan { scores: table, ..inputs.plan(Scope::explained(&job.input)) };
        let mut stream = inputs.engine.scan(plan).await?.stream()?;
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            let decision = batch.column(batch.num_columns() - 1);
            check.summary.rows_without_score += decision.null_count() as u64;
            observer.advance(batch.num_rows() as u64);
            let left = check.left();
            if left > 0 {
                let batch = batch.slice(0, left.min(batch.num_rows()));
                let stored = batch.column(batch.num_columns() - 1);
                block_in_place(|| check.compare(&batch, stored))?;
            }
        }
        check.conclude().map(Some)
    }

    /// Holds gathered decisions against the model on the first rows in scope that have one.
    ///
    /// # Errors
    /// When too many rows differ, or none can be compared.
    pub(super) async fn of_decisions(
        (job, inputs): (&'a Job, &'a Inputs),
        predictor: &'a dyn Predictor,
        (scores, decisions): (&'a ScoresJob, &Decisions),
    ) -> Result<()> {
        let mut check = ParityCheck::new((job, inputs), predictor, scores);
        let plan = inputs.plan(Scope::explained(&job.input));
        let mut stream = inputs.engine.scan(plan).await?.stream()?;
        while check.left() > 0
            && let Some(batch) = stream.next().await
        {
            let batch = batch?;
            let stored = decisions.column(&batch.project(&inputs.key).map_err(lost)?)?;
            let known = (0..batch.num_rows() as u32).filter(|row| stored.is_valid(*row as usize));
            let known = UInt32Array::from_iter_values(known.take(check.left()));
            let rows = take_record_batch(&batch, &known).map_err(lost)?;
            let stored = take(&stored, &known, None).map_err(lost)?;
            block_in_place(|| check.compare(&rows, &stored))?;
        }
        check.conclude().map(|_| ())
    }

    /// Rows that are still to be compared.
    fn left(&self) -> usize {
        self.scores.parity_rows.saturating_sub(self.summary.rows_compared as usize)
    }

    fn compare(&mut self, batch: &RecordBatch, stored: &ArrayRef) -> Result<()> {
        let features = batch.project(&self.inputs.feature_columns).map_err(lost)?;
        let validated = self.validator.validate_rows(&features)?;
        let mut decision = Arc::clone(stored);
        if let Some(rows) = &validated.rows {
            decision = take(&decision, rows, None).map_err(lost)?;
        }
        if validated.features.num_rows() == 0 {
            return Ok(());
        }
        let scores = self.predictor.predict(&validated.features)?;
        let (compared, different) = differences(&decision, &scores, self.predictor.task())?;
        self.summary.rows_compared += compared;
        self.summary.rows_different += different;
        Ok(())
    }

    fn conclude(self) -> Result<ParitySummary> {
        let ParityCheck { job, scores, summary, .. } = self;
        let shown = scores.table.join(", ");
        if summary.rows_compared == 0 && scores.parity_rows > 0 {
            return Err(Error::input(shown, "has no row whose key occurs in the feature table")
                .hint(format!("rows are joined on `{}`", job.input.key.join(", "))));
        }
        let share = summary.rows_different as f64 / summary.rows_compared.max(1) as f64;
        if share > scores.parity_tolerance {
            let problem = format!(
                "{} of {} stored decisions are not the model's ({:.2} %, at most {:.2} % may be)",
                summary.rows_different,
                summary.rows_compared,
                100.0 * share,
                100.0 * scores.parity_tolerance
            );
            return Err(Error::input(shown, problem).hint(
                "the scores come from another model, another version of it, or other features; score again \
                 with `overturn score`",
            ));
        }
        Ok(summary)
    }
}

fn lost(error: arrow::error::ArrowError) -> Error {
    Error::internal("parity", "a column is lost").source(error)
}

fn differences(decision: &ArrayRef, scores: &Scores, task: &Task) -> Result<(u64, u64)> {
    let known = (0..decision.len()).filter(|row| decision.is_valid(*row));
    let wrong_type = |error| {
        let problem = format!("is {}, expected the model's decision", decision.data_type());
        Error::input("input.scores.decision", problem).source(error)
    };
    let agree: Box<dyn Fn(usize) -> bool> = match (&scores.outcome, task) {
        (Outcome::Classes { labels, .. }, Task::Classification { classes, .. }) => {
            let stored = cast(decision, &DataType::Utf8).map_err(wrong_type)?;
            Box::new(move |row| {
                let class = classes.get(labels[row] as usize);
                class.is_some_and(|class| stored.as_string::<i32>().value(row) == class)
            })
        }
        (Outcome::Values(values), _) => {
            let stored = numbers(decision)?;
            Box::new(move |row| {
                let (stored, found) = (stored.value(row), values[row]);
                (stored - found).abs() <= VALUE_TOLERANCE * stored.abs().max(found.abs()).max(1.0)
            })
        }
        _ => return Err(Error::internal("parity", "predictions do not fit the model's task")),
    };
    let (mut compared, mut different) = (0, 0);
    for row in known {
        compared += 1;
        different += u64::from(!agree(row));
    }
    Ok((compared, different))
}
