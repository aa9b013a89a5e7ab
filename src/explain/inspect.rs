//! Rows that were explained before, ready to be asked about once more: what is wanted of each, what the model decided,
//! what it may become. For those who examine a run rather than make one.

use arrow::array::RecordBatch;

use super::{ExplainStats, Explainer, take};
use crate::constrain::{Conditions, Constraints, RowBounds};
use crate::error::Result;
use crate::feature::{Cell, Edit, RowReader, RowWriter, Rows};
use crate::predictor::{Predictor, Scores};
use crate::target::{TargetCodec, Targets};

/// Rows with a target each; a row with several targets is there once for each of them.
pub struct Inspected {
    /// Hashes of the keys, as explaining seeds its random numbers with.
    pub hashes: Vec<u128>,
    /// Numbers of the targets, 0 for a regression.
    pub target_numbers: Vec<u32>,
    /// The targets themselves.
    pub targets: Targets,
    /// What the model says of the rows as they are.
    pub decided: Scores,
    /// The rows as they are …
    pub originals: Rows,
    /// … and in the table's types.
    pub before: RecordBatch,
    /// What may change: all that is allowed.
    pub conditions: Conditions,
    /// The rows' own bounds.
    pub bounds: RowBounds,
}

impl Inspected {
    /// Rows and targets.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Those at these positions, in this order.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub fn take(&self, rows: &[u32]) -> Result<Inspected> {
        Ok(Inspected {
            hashes: rows.iter().map(|row| self.hashes[*row as usize]).collect(),
            target_numbers: rows.iter().map(|row| self.target_numbers[*row as usize]).collect(),
            targets: self.targets.take(rows),
            decided: self.decided.take(rows),
            originals: self.originals.take(rows),
            before: take(&self.before, rows)?,
            conditions: self.conditions.take(rows),
            bounds: self.bounds.take(rows),
        })
    }
}

impl Explainer {
    /// The rows of a block that can be explained, with their targets. The model is asked what it decided about each
    /// row, unless stored decisions know it.
    ///
    /// # Errors
    /// When the model as a whole fails.
    pub fn inspect(&self, block: &RecordBatch) -> Result<Inspected> {
        let valid = self.validate_rows(block, &mut ExplainStats::default())?;
        let (rows, targets) = self.targets(&valid)?;
        let widest = self.constraints.widest(&valid.rows, &valid.bounds);
        let classes = targets.classes().map(<[u32]>::to_vec);
        Ok(Inspected {
            hashes: rows.iter().map(|row| valid.hashes[*row as usize]).collect(),
            target_numbers: classes.unwrap_or_else(|| vec![0; rows.len()]),
            decided: valid.scores.take(&rows),
            originals: valid.rows.take(&rows),
            before: take(&valid.originals, &rows)?,
            conditions: widest.take(&rows),
            bounds: valid.bounds.take(&rows),
            targets,
        })
    }

    /// What counterfactuals keep to.
    pub fn constraints(&self) -> &Constraints {
        &self.constraints
    }

    /// The model.
    pub fn predictor(&self) -> &dyn Predictor {
        self.predictor.as_ref()
    }

    /// What decisions and targets are as numbers.
    pub fn codec(&self) -> &TargetCodec {
        &self.codec
    }

    /// Reads batches of features.
    pub fn reader(&self) -> &RowReader {
        &self.reader
    }

    /// Writes changed rows in the types of the originals.
    pub fn writer(&self) -> &RowWriter {
        &self.writer
    }

    /// What changes of a row cost, as the counterfactual table counts it.
    pub fn cost(&self, edits: &[Edit], original: impl Fn(usize) -> Cell) -> f64 {
        self.refiner.cost(edits, original)
    }
}
