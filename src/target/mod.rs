//! What the model decided (y_M), what it should decide (y_T), as numbers for the networks, and what an
//! prediction is worth (R). Classes or a regression's values; labels, probabilities or whole distributions.

mod draw;
mod margin;
mod reward;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::job::TargetsKind;
use crate::predictor::{NO_CLASS, Outcome, Scores, Task};

pub use draw::{RowOrder, TargetSampler};
pub use margin::margins;
pub use reward::{Rewarder, is_valid};

/// What is asked for where a target is a probability and the job names a class only: the least that was
/// asked for in training.
const LEAST_PROBABILITY: f32 = 0.5;

/// Turns decisions and targets into numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TargetCodec {
    /// One of these classes.
    Classes {
        /// Labels in the model's order.
        classes: Vec<String>,
        /// What the generator is given.
        kind: TargetsKind,
    },
    /// A value between two others.
    Range {
        /// Subtracted first: the mean of the model's values on the training rows.
        mean: f64,
        /// Divided by.
        std: f64,
    },
}

/// The target of some rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// A class each, with at least this probability.
    Classes {
        /// Index into the classes.
        classes: Vec<u32>,
        /// Least probability; 0 where the label is enough.
        probabilities: Vec<f32>,
    },
    /// A whole distribution each, row-major; the class is its most probable one.
    Distributions {
        /// Index of the most probable class.
        classes: Vec<u32>,
        /// rows × classes.
        values: Vec<f32>,
    },
    /// A value from `low` to `high` each.
    Ranges {
        /// Lowest.
        low: Vec<f64>,
        /// Highest.
        high: Vec<f64>,
    },
}

impl Targets {
    /// Rows.
    pub fn len(&self) -> usize {
        match self {
            Targets::Classes { classes, .. } | Targets::Distributions { classes, .. } => {
                classes.len()
            }
            Targets::Ranges { low, .. } => low.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The targets at these positions, in this order.
    #[must_use]
    pub fn take(&self, rows: &[u32]) -> Targets {
        fn taken<T: Copy>(values: &[T], rows: &[u32]) -> Vec<T> {
            rows.iter().map(|row| values[*row as usize]).collect()
        }
        match self {
            Targets::Classes { classes, probabilities } => Targets::Classes {
                classes: taken(classes, rows),
                probabilities: taken(probabilities, rows),
            },
            Targets::Distributions { classes, values } => {
                let width = values.len() / classes.len().max(1);
                let row = |row: &u32| &values[*row as usize * width..(*row as usize + 1) * width];
                Targets::Distributions {
                    classes: taken(classes, rows),
                    values: rows.iter().flat_map(row).copied().collect(),
                }
            }
            Targets::Ranges { low, high } => {
                Targets::Ranges { low: taken(low, rows), high: taken(high, rows) }
            }
        }
    }

    /// The target class of each row, where there are classes.
    pub fn classes(&self) -> Option<&[u32]> {
        match self {
            Targets::Classes { classes, .. } | Targets::Distributions { classes, .. } => {
                Some(classes)
            }
            Targets::Ranges { .. } => None,
        }
    }
}

impl TargetCodec {
    /// The codec of a model, with what it said about the training rows.
    ///
    /// # Errors
    /// When probabilities are asked for that the model does not give.
    pub fn new(task: &Task, kind: TargetsKind, scores: &Scores) -> Result<TargetCodec> {
        match (task, &scores.outcome) {
            (Task::Classification { classes, probabilities }, _) => {
                if kind != TargetsKind::Label && !probabilities {
                    return Err(Error::spec(
                        "train.targets",
                        "asks for probabilities, but the model gives labels only",
                    )
                    .hint("use `targets = \"label\"`"));
                }
                Ok(TargetCodec::Classes { classes: classes.to_vec(), kind })
            }
            (Task::Regression, Outcome::Values(values)) => {
                let known: Vec<f64> =
                    values.iter().copied().filter(|value| value.is_finite()).collect();
                let count = known.len().max(1) as f64;
                let mean = known.iter().sum::<f64>() / count;
                let variance =
                    known.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
                let std = if variance > 0.0 { variance.sqrt() } else { 1.0 };
                Ok(TargetCodec::Range { mean, std })
            }
            _ => Err(Error::internal("targets", "predictions do not fit the model's task")),
        }
    }

    /// Targets for classes, as the generator was trained to hear them.
    pub fn labels(&self, classes: Vec<u32>) -> Targets {
        match self {
            TargetCodec::Classes { classes: all, kind: TargetsKind::Distribution } => {
                let values = one_hots(&classes, all.len());
                Targets::Distributions { classes, values }
            }
            TargetCodec::Classes { kind: TargetsKind::Probability, .. } => {
                let probabilities = vec![LEAST_PROBABILITY; classes.len()];
                Targets::Classes { classes, probabilities }
            }
            _ => {
                let probabilities = vec![0.0; classes.len()];
                Targets::Classes { classes, probabilities }
            }
        }
    }

    /// The task of the model it is for.
    pub fn task(&self) -> Task {
        match self {
            TargetCodec::Range { .. } => Task::Regression,
            TargetCodec::Classes { classes, kind } => Task::Classification {
                classes: classes.clone().into(),
                probabilities: *kind != TargetsKind::Label,
            },
        }
    }

    /// Whether the generator is given whole distributions.
    pub fn tells_distributions(&self) -> bool {
        matches!(self, TargetCodec::Classes { kind: TargetsKind::Distribution, .. })
    }

    /// Width of y_M.
    pub fn decision_width(&self) -> usize {
        match self {
            TargetCodec::Classes { classes, .. } => classes.len(),
            TargetCodec::Range { .. } => 1,
        }
    }

    /// Width of y_T.
    pub fn target_width(&self) -> usize {
        match self {
            TargetCodec::Classes { classes, .. } => classes.len(),
            TargetCodec::Range { .. } => 2,
        }
    }

    /// y_M of every row, row-major. A row that the model failed on gets zeros.
    pub fn decisions(&self, scores: &Scores) -> Result<Vec<f32>> {
        match (self, &scores.outcome) {
            (
                TargetCodec::Classes { kind: TargetsKind::Distribution, .. },
                Outcome::Classes { probabilities: Some(probabilities), .. },
            ) => Ok(probabilities.iter().map(|share| known(*share as f32)).collect()),
            (TargetCodec::Classes { classes, .. }, Outcome::Classes { labels, .. }) => {
                Ok(one_hots(labels, classes.len()))
            }
            (TargetCodec::Range { mean, std }, Outcome::Values(values)) => {
                Ok(values.iter().map(|value| known(((value - mean) / std) as f32)).collect())
            }
            _ => Err(Error::internal("targets", "predictions do not fit the model's task")),
        }
    }

    /// y_T of every row, row-major.
    pub fn encode_targets(&self, targets: &Targets) -> Vec<f32> {
        let width = self.target_width();
        match (self, targets) {
            (TargetCodec::Range { mean, std }, Targets::Ranges { low, high }) => {
                let scaled = |value: &f64| known(((value - mean) / std) as f32);
                low.iter().zip(high).flat_map(|(low, high)| [scaled(low), scaled(high)]).collect()
            }
            (_, Targets::Distributions { values, .. }) => values.clone(),
            (
                TargetCodec::Classes { kind: TargetsKind::Probability, .. },
                Targets::Classes { classes, probabilities },
            ) => {
                let mut values = one_hots(classes, width);
                let rows = values.chunks_exact_mut(width).zip(probabilities);
                rows.for_each(|(row, share)| row.iter_mut().for_each(|value| *value *= share));
                values
            }
            (_, Targets::Classes { classes, .. }) => one_hots(classes, width),
            (TargetCodec::Classes { .. }, Targets::Ranges { low, .. }) => {
                vec![0.0; low.len() * width]
            }
        }
    }
}

fn one_hots(labels: &[u32], classes: usize) -> Vec<f32> {
    let mut values = vec![0.0; labels.len() * classes];
    for (row, label) in values.chunks_exact_mut(classes).zip(labels) {
        if *label != NO_CLASS {
            row[*label as usize] = 1.0;
        }
    }
    values
}

/// Networks get numbers only: a value that the model did not give is as good as the mean, one beyond any
/// measure is as good as ten standard deviations.
fn known(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(-10.0, 10.0) }
}
