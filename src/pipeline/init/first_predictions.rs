//! The first rows of a table, as the model answers them: what a target is guessed from.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{FieldRef, Schema};
use futures::StreamExt;

use super::inputs::PredictorForm;
use super::{BATCH_ROWS, InitTable, MEMORY};
use crate::engine::{Engine, EngineOptions, Inferred, ScanPlan, Table};
use crate::error::{Error, Result};
use crate::feature::{FeatureSchema, RowValidator};
use crate::predictor::{Outcome, Predictor, PredictorColumns, Scores, Task};
use crate::runtime::Runtime;

/// Rows that the model is tried out on.
const TRIED_ROWS: usize = 1000;

/// What a model answered.
pub(super) struct FirstPredictions {
    pub(super) task: Task,
    pub(super) scores: Scores,
}

impl FirstPredictions {
    /// Rows that were answered.
    pub(super) fn answered(&self) -> usize {
        self.scores.rows - self.scores.failures.len()
    }

    /// How many rows each class was predicted for.
    pub(super) fn counts(&self) -> Vec<usize> {
        let classes = match &self.task {
            Task::Classification { classes, .. } => classes.len(),
            Task::Regression => 0,
        };
        let mut counts = vec![0; classes];
        if let Outcome::Classes { labels, .. } = &self.scores.outcome {
            for label in labels {
                if let Some(count) = counts.get_mut(*label as usize) {
                    *count += 1;
                }
            }
        }
        counts
    }

    /// The class of all rows, if there is but one.
    pub(super) fn only_class(&self) -> Option<&str> {
        let Task::Classification { classes, .. } = &self.task else { return None };
        let counts = self.counts();
        let mut predicted = classes.iter().zip(counts).filter(|(_, count)| *count > 0);
        let (class, _) = predicted.next()?;
        predicted.next().is_none().then_some(class)
    }

    /// The values of a regression, ascending.
    pub(super) fn values(&self) -> Vec<f64> {
        let Outcome::Values(values) = &self.scores.outcome else { return Vec::new() };
        let mut values: Vec<f64> =
            values.iter().copied().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// Rows without an answer, and why the first has none.
    pub(super) fn failed(&self) -> Option<(usize, &str)> {
        let first = self.scores.failures.first()?;
        Some((self.scores.failures.len(), &first.detail))
    }
}

/// What a predictor is told of its batches.
pub(super) fn model_columns(schema: &Arc<FeatureSchema>, table: &Table) -> PredictorColumns {
    let field = |name: &str| -> Option<FieldRef> {
        let (index, _) = table.schema.column_with_name(name)?;
        Some(Arc::clone(&table.schema.fields()[index]))
    };
    let fields: Vec<FieldRef> = schema.names().filter_map(field).collect();
    PredictorColumns { features: Arc::clone(schema), schema: Arc::new(Schema::new(fields)) }
}

impl InitTable<'_> {
    /// Asks the model about the first rows that can be used.
    ///
    /// # Errors
    /// When it cannot be opened, or answers none of them.
    pub(super) fn try_out(
        &self,
        inferred: &Inferred,
        form: &PredictorForm,
        runtime: &Runtime,
    ) -> Result<FirstPredictions> {
        let (predictor, schema) = self.open(inferred, form, runtime)?;
        let tried = runtime
            .block_on(self.first_rows(&schema))
            .and_then(|rows| self.ask(&*predictor, &rows));
        predictor.stop();
        tried
    }

    fn ask(&self, predictor: &dyn Predictor, rows: &RecordBatch) -> Result<FirstPredictions> {
        let scores = predictor.predict(rows)?;
        let first_predictions = FirstPredictions { task: predictor.task().clone(), scores };
        if first_predictions.answered() > 0 {
            return Ok(first_predictions);
        }
        let detail =
            first_predictions.failed().map_or(String::new(), |(_, detail)| format!(": {detail}"));
        let problem =
            format!("predicts nothing for any of the first {} rows{detail}", rows.num_rows());
        Err(Error::predictor("predictor", problem).hint(
            "check that its scores are numbers, and that the table holds what it was trained with",
        ))
    }

    /// The first rows that can be used.
    async fn first_rows(&self, schema: &FeatureSchema) -> Result<RecordBatch> {
        // In one partition the first rows are always the same.
        let options = EngineOptions { partitions: 1, batch_rows: BATCH_ROWS, memory_bytes: MEMORY };
        let engine = Engine::new(options)?;
        let table = engine.open("features", std::slice::from_ref(&self.request.table))?;
        let columns: Vec<String> = schema.names().map(String::from).collect();
        let plan = ScanPlan { table: &table, predicate: None, columns: &columns, scores: None };
        let scan = engine.scan(plan).await?;
        let (batch_schema, validator) = (Arc::clone(&scan.schema), RowValidator::new(schema));
        let (mut stream, mut parts, mut rows) = (scan.stream()?, Vec::new(), 0);
        while rows < TRIED_ROWS
            && let Some(batch) = stream.next().await
        {
            let batch = batch?;
            let batch = batch.slice(0, batch.num_rows().min(TRIED_ROWS - rows));
            let part = validator.validate_rows(&batch)?.features;
            rows += part.num_rows();
            parts.push(part);
        }
        if rows == 0 {
            return Err(Error::input(&self.table.shown, "has no row that can be used"));
        }
        concat_batches(&batch_schema, &parts)
            .map_err(|error| Error::internal("first rows", "a column is lost").source(error))
    }
}
