//! Which rows of a block can be explained, and what the model decided about them. A row that cannot goes
//! to the rejects with its reason.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use super::{Explainer, Ledger, project, take};
use crate::constrain::RowBounds;
use crate::error::{Error, Result};
use crate::feature::{Reason, Reject, Rows, key_hashes, numbers};
use crate::predictor::{Scores, Task};
use crate::score::reject_table;
use crate::target::{TargetCodec, Wishes};

/// Rows that can be explained.
pub(super) struct Usable {
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
    /// What a column wants of each row, if that is where wishes come from.
    pub(super) wanted: Option<Wishes>,
    /// Hashes of the keys.
    pub(super) hashes: Vec<u128>,
}

impl Explainer {
    /// The usable rows of a block.
    pub(super) fn admit(&self, block: &RecordBatch, ledger: &mut Ledger) -> Result<Usable> {
        let key = project(block, &self.columns.key)?;
        let admitted = self.admission.admit(&project(block, &self.columns.features)?)?;
        let places: Vec<u32> = match &admitted.rows {
            Some(rows) => rows.values().to_vec(),
            None => (0..block.num_rows() as u32).collect(),
        };
        let mut rejects = admitted.rejects;
        let hashes = key_hashes(&take(&key, &places)?, self.streams.seed_of("explain"))?;
        let scores = self.decide(&take(&key, &places)?, &admitted.features, ledger)?;
        let wanted = self.wanted(block, &places)?;
        let refused = |row: usize| -> Option<(Reason, String)> {
            let no_target = wanted.as_ref().and_then(|wanted| wanted.refusal(row));
            let failed = || scores.failures.binary_search_by_key(&row, |failure| failure.row).ok();
            let failure =
                || failed().map(|at| (Reason::Predictor, scores.failures[at].detail.clone()));
            failure().or(no_target.map(|detail| (Reason::Target, detail)))
        };
        let mut kept: Vec<u32> = Vec::with_capacity(places.len());
        for (row, place) in places.iter().enumerate() {
            match refused(row) {
                None => kept.push(row as u32),
                Some((reason, detail)) => rejects.push(Reject { row: *place, reason, detail }),
            }
        }
        rejects.sort_by_key(|reject| reject.row);
        ledger.reject(reject_table(&self.rejects, &key, &rejects)?, rejects);
        let at: Vec<u32> = kept.iter().map(|row| places[*row as usize]).collect();
        let all = take(block, &at)?;
        let originals = take(&admitted.features, &kept)?;
        Ok(Usable {
            rows: self.reader.read(&originals)?,
            bounds: RowBounds::read(&self.schema, &self.columns.constraints, &all)?,
            scores: scores.take(&kept),
            wanted: wanted.map(|wanted| wanted.take(&kept, &self.codec)),
            hashes: kept.iter().map(|row| hashes[*row as usize]).collect(),
            all,
            originals,
        })
    }

    /// y_M: from the score table where that knows the row, else from the model.
    fn decide(
        &self,
        key: &RecordBatch,
        features: &RecordBatch,
        ledger: &mut Ledger,
    ) -> Result<Scores> {
        if features.num_rows() == 0 {
            return Ok(Scores::empty(self.predictor.task()));
        }
        let Some(decisions) = &self.decisions else { return self.predictor.predict(features) };
        let (mut scores, unknown) = decisions.of(key)?;
        ledger.rows_without_score += unknown.len() as u64;
        if !unknown.is_empty() {
            let answers = self.predictor.predict(&take(features, &unknown)?)?;
            let failures = answers.failures.iter().cloned().map(|mut failure| {
                failure.row = unknown[failure.row] as usize;
                failure
            });
            scores.failures = failures.collect();
            scores.put(&unknown, &answers);
        }
        Ok(scores)
    }

    /// What the target column says about the rows at these places of a block.
    fn wanted(&self, block: &RecordBatch, places: &[u32]) -> Result<Option<Wanted>> {
        let Some(column) = self.columns.target else { return Ok(None) };
        let places = UInt32Array::from(places.to_vec());
        let column = arrow::compute::take(block.column(column), &places, None)
            .map_err(|error| Error::internal("target", "rows cannot be taken").source(error))?;
        Ok(Some(match self.predictor.task() {
            Task::Classification { classes, .. } => Wanted::classes(&column, classes)?,
            Task::Regression => Wanted::values(&column, self.goal.tolerance())?,
        }))
    }
}

/// What a column wants of rows, or why it cannot be had.
enum Wanted {
    Classes(Vec<Result<u32, String>>),
    Values(Vec<Option<f64>>, f64),
}

impl Wanted {
    fn classes(column: &ArrayRef, classes: &[String]) -> Result<Wanted> {
        let texts = cast(column, &DataType::Utf8).map_err(|error| {
            let problem = format!("has type {}, expected class labels", column.data_type());
            Error::input("target.column", problem).source(error)
        })?;
        let class = |text: Option<&str>| match text {
            None => Err("the target column is null".to_string()),
            Some(text) => {
                let found = (0u32..).zip(classes).find(|(_, class)| *class == text);
                let unknown = || format!("the target column says `{text}`, which is no class");
                found.map(|(index, _)| index).ok_or_else(unknown)
            }
        };
        Ok(Wanted::Classes(texts.as_string::<i32>().iter().map(class).collect()))
    }

    fn values(column: &ArrayRef, tolerance: f64) -> Result<Wanted> {
        let values = numbers(column)?;
        let known = |value: Option<f64>| value.filter(|value| value.is_finite());
        Ok(Wanted::Values(values.iter().map(known).collect(), tolerance))
    }

    /// Why nothing can be wanted of a row.
    fn refusal(&self, row: usize) -> Option<String> {
        match self {
            Wanted::Classes(classes) => classes[row].as_ref().err().cloned(),
            Wanted::Values(values, _) => {
                values[row].is_none().then(|| "the target column is no number".to_string())
            }
        }
    }

    /// The wishes of rows, none of which is refused.
    fn take(&self, rows: &[u32], codec: &TargetCodec) -> Wishes {
        match self {
            Wanted::Classes(classes) => codec.labels(
                rows.iter()
                    .filter_map(|row| classes[*row as usize].as_ref().ok().copied())
                    .collect(),
            ),
            Wanted::Values(values, tolerance) => {
                let known: Vec<f64> = rows.iter().filter_map(|row| values[*row as usize]).collect();
                Wishes::Ranges {
                    low: known.iter().map(|value| value - tolerance).collect(),
                    high: known.iter().map(|value| value + tolerance).collect(),
                }
            }
        }
    }
}
