//! What rules between features make of the actor's rows while it descends: the rows that the model is asked about were
//! repaired ([`Constraints::post_process`]), and an actor that is not shown the same learns to rely on what never
//! happens.

use std::sync::Arc;

use super::training_rows::TrainingRows;
use super::{Problem, TrainSetup};
use crate::constrain::{Conditions, Constraints};
use crate::encode::{Dense, Encoder};

/// Repairs rows of a step.
pub(super) struct Repairs<'a> {
    constraints: Arc<Constraints>,
    encoder: &'a Encoder,
    training_rows: &'a TrainingRows,
}

/// What the actor made of training rows.
pub(super) struct ActorRows<'a> {
    /// Training rows.
    pub(super) rows: &'a [u32],
    /// Decoded rows.
    pub(super) decoded: &'a [f32],
    /// c.
    pub(super) conditions: &'a [f32],
}

impl<'a> Repairs<'a> {
    /// None where nothing holds between features.
    pub(super) fn new(setup: &'a TrainSetup<'a>, problem: &Problem<'a>) -> Option<Repairs<'a>> {
        setup.constraints.couples_features().then(|| Repairs {
            constraints: Arc::clone(&setup.constraints),
            encoder: &setup.encoder,
            training_rows: problem.training_rows,
        })
    }

    /// Puts what rules make of rows in the place of what was made without them. Both are encoded.
    pub(super) fn apply(&self, actor_rows: &ActorRows<'_>, settled: &mut [f32]) {
        let ActorRows { rows, decoded, conditions } = *actor_rows;
        let layout = self.encoder.layout();
        let (count, width) = (rows.len(), layout.width);
        let decoded =
            Dense { rows: count, width, values: decoded.to_vec(), layout: Arc::clone(layout) };
        let conditions = Conditions {
            rows: count,
            width: conditions.len() / count.max(1),
            values: conditions.to_vec(),
        };
        let originals = self.training_rows.rows.take(rows);
        let bounds = self.training_rows.bounds.take(rows);
        let (indexes, repaired) =
            self.constraints.repaired(&decoded, &originals, &conditions, &bounds);
        let encoded = self.encoder.encode_rows(&repaired);
        for (from, row) in indexes.iter().enumerate() {
            settled[*row as usize * width..][..width].copy_from_slice(encoded.row(from));
        }
    }
}
