//! Which rows of a block can be explained, and what the model decided about them. A row that cannot goes
//! to the rejects with its reason.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use super::{ExplainStats, Explainer, project, take};
use crate::constrain::RowBounds;
use crate::error::{Error, Result};
use crate::feature::{Reason, Reject, Rows, key_hashes, numbers};
use crate::predictor::{Scores, Task};
use crate::score::reject_table;
use crate::target::{TargetCodec, Targets};

/// Rows that can be explained.
pub(super) struct ValidRows {
    /// All columns of the block.
    pub(super) all: RecordBatch,
    /// The features, with stand-ins filled in.
    pub(super) originals: RecordBatch,
    /// The same as cells.
    pub(super) rows: Rows,
    /// Their own constraints.
    pub(super) bounds: RowBounds,
    /// y_M.
    pub(super) scores: Scores,
    /// Targets from a column, if that is where they come from.
    pub(super) targets: Option<Targets>,
    /// Hashes of the keys.
    pub(super) hashes: Vec<u128>,
}

impl Explainer {
    /// The valid rows of a block.
    pub(super) fn validate_rows(
        &self,
        block: &RecordBatch,
        stats: &mut ExplainStats,
    ) -> Result<ValidRows> {
        let key = project(block, &self.columns.key)?;
        let validated = self.validator.validate_rows(&project(block, &self.columns.features)?)?;
        let indexes: Vec<u32> = match &validated.rows {
            Some(rows) => rows.values().to_vec(),
            None => (0..block.num_rows() as u32).collect(),
        };
        let mut rejects = validated.rejects;
        let hashes = key_hashes(&take(&key, &indexes)?, self.streams.seed_of("explain"))?;
        let scores = self.decide(&take(&key, &indexes)?, &validated.features, stats)?;
        let targets = self.column_targets(block, &indexes)?;
        let refused = |row: usize| -> Option<(Reason, String)> {
            let no_target = targets.as_ref().and_then(|targets| targets.refusal(row));
            let failed = || scores.failures.binary_search_by_key(&row, |failure| failure.row).ok();
            let failure =
                || failed().map(|at| (Reason::Predictor, scores.failures[at].detail.clone()));
            failure().or(no_target.map(|detail| (Reason::Target, detail)))
        };
        let mut valid: Vec<u32> = Vec::with_capacity(indexes.len());
        for (row, index) in indexes.iter().enumerate() {
            match refused(row) {
                None => valid.push(row as u32),
                Some((reason, detail)) => rejects.push(Reject { row: *index, reason, detail }),
            }
        }
        rejects.sort_by_key(|reject| reject.row);
        stats.reject(reject_table(&self.rejects, &key, &rejects)?, rejects);
        let at: Vec<u32> = valid.iter().map(|row| indexes[*row as usize]).collect();
        let all = take(block, &at)?;
        let originals = take(&validated.features, &valid)?;
        Ok(ValidRows {
            rows: self.reader.read(&originals)?,
            bounds: RowBounds::read(&self.schema, &self.columns.constraints, &all)?,
            scores: scores.take(&valid),
            targets: targets.map(|targets| targets.take(&valid, &self.codec)),
            hashes: valid.iter().map(|row| hashes[*row as usize]).collect(),
            all,
            originals,
        })
    }

    /// y_M: from the score table where that knows the row, else from the model.
    fn decide(
        &self,
        key: &RecordBatch,
        features: &RecordBatch,
        stats: &mut ExplainStats,
    ) -> Result<Scores> {
        if features.num_rows() == 0 {
            return Ok(Scores::empty(self.predictor.task()));
        }
        let Some(decisions) = &self.decisions else { return self.predictor.predict(features) };
        let (mut scores, unknown) = decisions.of(key)?;
        stats.rows_without_score += unknown.len() as u64;
        if !unknown.is_empty() {
            let predictions = self.predictor.predict(&take(features, &unknown)?)?;
            let failures = predictions.failures.iter().cloned().map(|mut failure| {
                failure.row = unknown[failure.row] as usize;
                failure
            });
            scores.failures = failures.collect();
            scores.put(&unknown, &predictions);
        }
        Ok(scores)
    }

    /// What the target column says about the rows at these indexes of a block.
    fn column_targets(
        &self,
        block: &RecordBatch,
        indexes: &[u32],
    ) -> Result<Option<ColumnTargets>> {
        let Some(column) = self.columns.target else { return Ok(None) };
        let indexes = UInt32Array::from(indexes.to_vec());
        let column = arrow::compute::take(block.column(column), &indexes, None)
            .map_err(|error| Error::internal("target", "rows cannot be taken").source(error))?;
        Ok(Some(match self.predictor.task() {
            Task::Classification { classes, .. } => ColumnTargets::classes(&column, classes)?,
            Task::Regression => ColumnTargets::values(&column, self.target_rule.tolerance())?,
        }))
    }
}

/// Targets from a column, or why a row has none.
enum ColumnTargets {
    Classes(Vec<Result<u32, String>>),
    Values(Vec<Option<f64>>, f64),
}

impl ColumnTargets {
    fn classes(column: &ArrayRef, classes: &[String]) -> Result<ColumnTargets> {
        let texts = cast(column, &DataType::Utf8).map_err(|error| {
            let problem = format!("has type {}, expected class labels", column.data_type());
            Error::input("target.column", problem).source(error)
        })?;
        let class = |text: Option<&str>| match text {
            None => Err("the target column is null".to_string()),
            Some(text) => {
                let found = (0u32..).zip(classes).find(|(_, class)| *class == text);
                let unknown =
                    || format!("the target column says `{text}`, expected a class of the model");
                found.map(|(index, _)| index).ok_or_else(unknown)
            }
        };
        Ok(ColumnTargets::Classes(texts.as_string::<i32>().iter().map(class).collect()))
    }

    fn values(column: &ArrayRef, tolerance: f64) -> Result<ColumnTargets> {
        let values = numbers(column)?;
        let known = |value: Option<f64>| value.filter(|value| value.is_finite());
        Ok(ColumnTargets::Values(values.iter().map(known).collect(), tolerance))
    }

    /// Why a row has no target.
    fn refusal(&self, row: usize) -> Option<String> {
        match self {
            ColumnTargets::Classes(classes) => classes[row].as_ref().err().cloned(),
            ColumnTargets::Values(values, _) => values[row]
                .is_none()
                .then(|| "the target column is null, NaN or infinite".to_string()),
        }
    }

    /// The targets of rows, none of which is refused.
    fn take(&self, rows: &[u32], codec: &TargetCodec) -> Targets {
        match self {
            ColumnTargets::Classes(classes) => codec.labels(
                rows.iter()
                    .filter_map(|row| classes[*row as usize].as_ref().ok().copied())
                    .collect(),
            ),
            ColumnTargets::Values(values, tolerance) => {
                let known: Vec<f64> = rows.iter().filter_map(|row| values[*row as usize]).collect();
                Targets::Ranges {
                    low: known.iter().map(|value| value - tolerance).collect(),
                    high: known.iter().map(|value| value + tolerance).collect(),
                }
            }
        }
    }
}
