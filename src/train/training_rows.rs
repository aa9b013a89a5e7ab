//! Rows in memory, in every form that training needs them in.

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;

use crate::constrain::RowBounds;
use crate::error::{Error, Result};
use crate::feature::Rows;
use crate::predictor::{Outcome, Scores};

/// Valid rows, and what the model says about them.
#[derive(Debug)]
pub struct TrainingRows {
    /// As cells.
    pub rows: Rows,
    /// In the table's own types.
    pub originals: RecordBatch,
    /// Their own constraints.
    pub bounds: RowBounds,
    /// The model's predictions.
    pub scores: Scores,
}

/// Rows picked from a sample.
#[derive(Debug)]
pub struct Picked {
    /// As cells.
    pub rows: Rows,
    /// In the table's own types.
    pub originals: RecordBatch,
    /// Their own constraints.
    pub bounds: RowBounds,
}

impl TrainingRows {
    /// These rows.
    pub fn pick(&self, rows: &[u32]) -> Result<Picked> {
        let indexes = UInt32Array::from(rows.to_vec());
        let originals = take_record_batch(&self.originals, &indexes)
            .map_err(|error| Error::internal("training", "rows cannot be taken").source(error))?;
        Ok(Picked { rows: self.rows.take(rows), originals, bounds: self.bounds.take(rows) })
    }

    /// The predicted classes; `None` for a regression.
    pub fn labels(&self) -> Option<&[u32]> {
        match &self.scores.outcome {
            Outcome::Classes { labels, .. } => Some(labels),
            Outcome::Values(_) => None,
        }
    }
}
