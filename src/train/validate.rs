//! How reached a generator is on rows it was not trained on: the paper's measures, through the real
//! post-processing and the real model.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor};

use super::TrainSetup;
use super::evaluator::{Evaluated, Evaluator};
use super::training_rows::{Picked, TrainingRows};
use crate::constrain::{Conditions, Constraints};
use crate::encode::Encoder;
use crate::error::Result;
use crate::feature::{Cells, Rows};
use crate::metrics::{distances, score_interval};
use crate::nn::{Generator, to_dense, to_tensor};
use crate::target::{TargetCodec, TargetSampler, Targets, is_valid};

/// What the unit of distance is worth in validity when two generators are compared.
const DISTANCE_WEIGHT: f64 = 0.1;

/// The paper's measures on some rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Rows.
    pub rows: usize,
    /// Share of rows that reach the target.
    pub validity: f64,
    /// Mean share of changed categoricals, over valid rows.
    pub l0: f64,
    /// Mean |Δ| of standardised numerics, over valid rows.
    pub l1: f64,
    /// Mean number of changed features, over valid rows.
    pub changed: f64,
    /// Counterfactuals that break a constraint: always 0.
    pub violations: usize,
    /// By target class; empty for a regression.
    pub by_class: Vec<ClassQuality>,
    /// Per feature, in the schema's order, the share of valid rows in which it changes.
    pub by_feature: Vec<f64>,
}

/// How often a target class was reached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassQuality {
    /// Index into the model's classes.
    pub class: u32,
    /// Rows with this target.
    pub rows: usize,
    /// Share of them that reached it.
    pub validity: f64,
}

impl Quality {
    /// Validity first, then distance, as one number.
    pub fn score(&self) -> f64 {
        self.validity - DISTANCE_WEIGHT * (self.l0 + self.l1)
    }

    /// What validity is at least, by Wilson's bound of one standard error: of few rows, all valid ones still
    /// tell little about others.
    pub(super) fn assured_validity(&self) -> f64 {
        score_interval(self.validity, self.rows.max(1) as f64, 1.0).low
    }
}

/// Rows that a generator is evaluated on, ready to be used again and again.
pub(super) struct Validation {
    picked: Picked,
    targets: Targets,
    conditions: Conditions,
    encoded: Tensor,
    decisions: Tensor,
    actor_input: Tensor,
}

/// What turns rows into tensors.
pub(super) struct Bridges<'a> {
    /// Rows to numbers.
    pub encoder: &'a Encoder,
    /// Decisions and targets to numbers.
    pub codec: &'a TargetCodec,
    /// What may change.
    pub constraints: &'a Constraints,
    /// Where tensors live.
    pub device: Device,
    /// The model.
    pub evaluator: Evaluator,
}

impl<'a> Bridges<'a> {
    pub(super) fn new(setup: &'a TrainSetup<'_>, codec: &'a TargetCodec) -> Bridges<'a> {
        let (encoder, constraints) = (&setup.encoder, setup.constraints.as_ref());
        let evaluator = Evaluator::new(
            &setup.schema,
            Arc::clone(&setup.constraints),
            Arc::clone(&setup.predictor),
        );
        Bridges { encoder, codec, constraints, device: setup.device, evaluator }
    }
}

impl Validation {
    /// All rows of a sample, each with a target other than its own decision, as wide as allowed.
    pub(super) fn new(
        training_rows: &TrainingRows,
        rows: &[u32],
        sampler: &TargetSampler,
        bridges: &Bridges<'_>,
        random: &mut ChaCha8Rng,
    ) -> Result<Validation> {
        let rows = &unsatisfied(training_rows, rows, sampler);
        let picked = training_rows.pick(rows)?;
        let targets = match training_rows.labels() {
            Some(labels) => {
                let original: Vec<u32> = rows.iter().map(|row| labels[*row as usize]).collect();
                sampler.draw_other(&original, random)
            }
            None => {
                sampler.job_range(rows.len()).unwrap_or_else(|| sampler.draw(rows.len(), random))
            }
        };
        let conditions = bridges.constraints.widest(&picked.rows, &picked.bounds);
        let encoded = bridges.encoder.encode_rows(&picked.rows);
        let device = bridges.device;
        let decisions = bridges.codec.decisions(&training_rows.scores)?;
        let width = bridges.codec.decision_width();
        let decisions: Vec<f32> = rows
            .iter()
            .flat_map(|row| &decisions[*row as usize * width..(*row as usize + 1) * width])
            .copied()
            .collect();
        let target = to_tensor(
            &bridges.codec.encode_targets(&targets),
            bridges.codec.target_width(),
            device,
        )?;
        let allowed = to_tensor(&conditions.values, conditions.width, device)?;
        Ok(Validation {
            encoded: to_tensor(&encoded.values, encoded.width, device)?,
            decisions: to_tensor(&decisions, width, device)?,
            actor_input: Tensor::cat(&[target, allowed], 1),
            picked,
            targets,
            conditions,
        })
    }

    /// Evaluates a generator.
    pub(super) fn quality(&self, generator: &Generator, bridges: &Bridges<'_>) -> Result<Quality> {
        let decoded = generator.generate(&self.encoded, &self.decisions, &self.actor_input);
        let decoded = to_dense(&decoded, bridges.encoder.layout())?;
        let evaluated = bridges.evaluator.evaluate(&decoded, &self.picked, &self.conditions)?;
        let broken =
            bridges.constraints.violations(&evaluated.rows, &self.picked.rows, &self.picked.bounds);
        Ok(Quality { violations: broken.len(), ..self.measure(&evaluated, bridges) })
    }

    fn measure(&self, evaluated: &Evaluated, bridges: &Bridges<'_>) -> Quality {
        let valid = is_valid(&evaluated.scores, &self.targets);
        let found = distances(&evaluated.rows, &self.picked.rows, bridges.encoder.layout());
        let count = valid.iter().filter(|valid| **valid).count();
        let mean = |values: &mut dyn Iterator<Item = f64>| {
            let sum: f64 =
                values.zip(&valid).filter(|(_, valid)| **valid).map(|(value, _)| value).sum();
            sum / count.max(1) as f64
        };
        Quality {
            rows: valid.len(),
            validity: count as f64 / valid.len().max(1) as f64,
            l0: mean(&mut found.l0.iter().copied()),
            l1: mean(&mut found.l1.iter().copied()),
            changed: mean(&mut found.changed.iter().map(|changed| f64::from(*changed))),
            violations: 0,
            by_class: self.by_class(&valid, bridges.codec.target_width()),
            by_feature: changed_shares(&evaluated.rows, &self.picked.rows, &valid),
        }
    }

    fn by_class(&self, valid: &[bool], classes: usize) -> Vec<ClassQuality> {
        let Some(target) = self.targets.classes() else { return Vec::new() };
        let mut counts = vec![(0usize, 0usize); classes];
        for (class, valid) in target.iter().zip(valid) {
            let (rows, reached) = &mut counts[*class as usize];
            *rows += 1;
            *reached += usize::from(*valid);
        }
        let counted = counts.iter().enumerate().filter(|(_, (rows, _))| *rows > 0);
        counted
            .map(|(class, (rows, reached))| ClassQuality {
                class: class as u32,
                rows: *rows,
                validity: *reached as f64 / *rows as f64,
            })
            .collect()
    }
}

/// The rows that have not got the class that the job names; all, if that leaves none.
fn unsatisfied(training_rows: &TrainingRows, rows: &[u32], sampler: &TargetSampler) -> Vec<u32> {
    let (Some(class), Some(labels)) = (sampler.named_class(), training_rows.labels()) else {
        return rows.to_vec();
    };
    let left: Vec<u32> =
        rows.iter().copied().filter(|row| labels[*row as usize] != class).collect();
    if left.is_empty() { rows.to_vec() } else { left }
}

/// Per feature, the share of valid rows in which it changes.
fn changed_shares(counterfactuals: &Rows, originals: &Rows, valid: &[bool]) -> Vec<f64> {
    let count = valid.iter().filter(|valid| **valid).count().max(1) as f64;
    let cells = counterfactuals.cells.iter().zip(&originals.cells);
    cells.map(|(new, original)| changed(new, original, valid) as f64 / count).collect()
}

fn changed(new: &Cells, original: &Cells, valid: &[bool]) -> usize {
    let moved = new.moved_from(original);
    moved.iter().zip(valid).filter(|(moved, valid)| **moved && **valid).count()
}
