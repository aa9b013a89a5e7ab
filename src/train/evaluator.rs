//! From a decoded counterfactual to the model's prediction: post-processed, in the table's types, scored.

use std::sync::Arc;

use super::training_rows::Picked;
use crate::constrain::{Conditions, Constraints};
use crate::encode::Dense;
use crate::error::Result;
use crate::feature::{FeatureSchema, RowWriter, Rows};
use crate::predictor::{Predictor, Scores};

/// Asks the model about counterfactuals.
pub struct Evaluator {
    constraints: Arc<Constraints>,
    writer: RowWriter,
    predictor: Arc<dyn Predictor>,
}

/// Counterfactuals as the model saw them, and what it said.
pub struct Evaluated {
    /// Post-processed rows.
    pub rows: Rows,
    /// The model's predictions.
    pub scores: Scores,
}

impl Evaluator {
    /// Evaluates counterfactuals with this model.
    pub fn new(
        schema: &Arc<FeatureSchema>,
        constraints: Arc<Constraints>,
        predictor: Arc<dyn Predictor>,
    ) -> Evaluator {
        Evaluator { constraints, writer: RowWriter::new(schema), predictor }
    }

    /// M(pp(decoded, c)).
    pub fn evaluate(
        &self,
        decoded: &Dense,
        picked: &Picked,
        conditions: &Conditions,
    ) -> Result<Evaluated> {
        let rows = self.constraints.post_process(decoded, &picked.rows, conditions, &picked.bounds);
        let batch = self.writer.write(&rows, &picked.rows, &picked.originals)?;
        Ok(Evaluated { rows, scores: self.predictor.predict(&batch)? })
    }
}
