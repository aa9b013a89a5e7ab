//! What scoring makes of a batch: predictions for the rows that can be used, reasons for the others. Batches
//! in, batches out; knows nothing of engines and files.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{FieldRef, SchemaRef};

use crate::error::{Error, Result};
use crate::feature::{FeatureSchema, Reason, Reject, RowValidator};
use crate::output::{refuse_taken, rejects_schema, score_schema};
use crate::predictor::{NO_CLASS, Outcome, Predictor, Scores, Task};

/// A model, the policies of a feature schema, and the tables that come of them.
pub struct Scorer {
    predictor: Arc<dyn Predictor>,
    validator: RowValidator,
    /// Schema of the score table.
    pub scores_schema: SchemaRef,
    /// Schema of the rejects table.
    pub rejects_schema: SchemaRef,
}

/// What became of a batch. Every row is in one of the two tables.
#[derive(Debug)]
pub struct Scored {
    /// Rows of the score table.
    pub scores: RecordBatch,
    /// Rows of the rejects table.
    pub rejects: RecordBatch,
    /// Their reasons.
    pub reasons: Vec<Reason>,
    /// Rows per class; empty for a regression.
    pub classes: Vec<u64>,
}

impl Scorer {
    /// A scorer for tables with these key columns.
    ///
    /// # Errors
    /// When a key column has a name that the tables need themselves.
    pub fn new(
        predictor: Arc<dyn Predictor>,
        features: &FeatureSchema,
        key: &[FieldRef],
    ) -> Result<Scorer> {
        let scores_schema = match predictor.task() {
            Task::Classification { classes, probabilities } => {
                score_schema(key, Some(classes), *probabilities)
            }
            Task::Regression => score_schema(key, None, false),
        };
        let rejects_schema = rejects_schema(key);
        refuse_taken(key, &[&scores_schema, &rejects_schema])?;
        Ok(Scorer {
            predictor,
            validator: RowValidator::new(features),
            scores_schema,
            rejects_schema,
        })
    }

    /// What the model's predictions mean.
    pub fn task(&self) -> &Task {
        self.predictor.task()
    }

    /// Scores the rows with these keys and features.
    ///
    /// # Errors
    /// When the model as a whole fails.
    pub fn score(&self, key: &RecordBatch, features: &RecordBatch) -> Result<Scored> {
        let validated = self.validator.validate_rows(features)?;
        let mut rejects = validated.rejects;
        let kept_key = match &validated.rows {
            Some(rows) => take(key, rows)?,
            None => key.clone(),
        };
        let mut scored = Scored {
            scores: RecordBatch::new_empty(Arc::clone(&self.scores_schema)),
            rejects: RecordBatch::new_empty(Arc::clone(&self.rejects_schema)),
            reasons: Vec::new(),
            classes: Vec::new(),
        };
        if validated.features.num_rows() > 0 {
            let scores = self.predictor.predict(&validated.features)?;
            rejects.extend(failures(&scores, validated.rows.as_ref()));
            scored.classes = count_classes(&scores, self.task());
            scored.scores = self.score_table(&kept_key, &scores)?;
        }
        rejects.sort_by_key(|reject| reject.row);
        if !rejects.is_empty() {
            scored.rejects = reject_table(&self.rejects_schema, key, &rejects)?;
            scored.reasons = rejects.iter().map(|reject| reject.reason).collect();
        }
        Ok(scored)
    }

    /// Key and predictions of the rows that the model scored.
    fn score_table(&self, key: &RecordBatch, scores: &Scores) -> Result<RecordBatch> {
        let mut columns = key.columns().to_vec();
        match (&scores.outcome, self.task()) {
            (Outcome::Classes { labels, probabilities }, Task::Classification { classes, .. }) => {
                columns.push(Arc::new(class_names(labels, classes)));
                columns.extend(
                    probabilities.iter().flat_map(|values| by_class(values, classes.len())),
                );
            }
            (Outcome::Values(values), _) => {
                columns.push(Arc::new(Float64Array::from(values.clone())));
            }
            _ => return Err(Error::internal("scoring", "predictions do not fit the model's task")),
        }
        let all = table(&self.scores_schema, columns)?;
        if scores.failures.is_empty() {
            return Ok(all);
        }
        let mut failed = scores.failures.iter().map(|failure| failure.row as u32).peekable();
        let kept = (0..scores.rows as u32).filter(|row| failed.next_if_eq(row).is_none());
        take(&all, &UInt32Array::from_iter_values(kept))
    }
}

/// Rows that were set aside, by their position among these keys, as rows of the rejects table.
///
/// # Errors
/// Only if there is a bug.
pub fn reject_table(
    schema: &SchemaRef,
    key: &RecordBatch,
    rejects: &[Reject],
) -> Result<RecordBatch> {
    let rows = UInt32Array::from_iter_values(rejects.iter().map(|reject| reject.row));
    let reasons = rejects.iter().map(|reject| reject.reason.name());
    let details = rejects.iter().map(|reject| reject.detail.as_str());
    let mut columns = take(key, &rows)?.columns().to_vec();
    columns.push(Arc::new(StringArray::from_iter_values(reasons)));
    columns.push(Arc::new(StringArray::from_iter_values(details)));
    table(schema, columns)
}

/// Rows that the model did not score, by their position before row validation.
fn failures(scores: &Scores, validated: Option<&UInt32Array>) -> Vec<Reject> {
    let position = |row: usize| validated.map_or(row as u32, |rows| rows.value(row));
    let failures = scores.failures.iter();
    failures
        .map(|failure| Reject {
            row: position(failure.row),
            reason: Reason::Predictor,
            detail: failure.detail.clone(),
        })
        .collect()
}

fn count_classes(scores: &Scores, task: &Task) -> Vec<u64> {
    let (Outcome::Classes { labels, .. }, Task::Classification { classes, .. }) =
        (&scores.outcome, task)
    else {
        return Vec::new();
    };
    let mut counts = vec![0; classes.len()];
    let known = labels.iter().filter(|label| **label != NO_CLASS);
    known.for_each(|label| counts[*label as usize] += 1);
    counts
}

fn class_names(labels: &[u32], classes: &[String]) -> StringArray {
    // Failed rows are taken out afterwards; an empty name keeps their place.
    let name = |label: &u32| classes.get(*label as usize).map_or("", String::as_str);
    StringArray::from_iter_values(labels.iter().map(name))
}

/// Row-major probabilities as a column per class.
fn by_class(probabilities: &[f64], classes: usize) -> Vec<ArrayRef> {
    let of_class = |class: usize| {
        let values = probabilities.iter().skip(class).step_by(classes).copied();
        Arc::new(Float64Array::from_iter_values(values)) as ArrayRef
    };
    (0..classes).map(of_class).collect()
}

fn take(batch: &RecordBatch, rows: &UInt32Array) -> Result<RecordBatch> {
    take_record_batch(batch, rows)
        .map_err(|error| Error::internal("scoring", "rows cannot be taken").source(error))
}

fn table(schema: &SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map_err(|error| Error::internal("scoring", "columns do not fit the table").source(error))
}
