//! What the model decided before, by key: a score table in memory, compact enough for tens of millions of
//! rows (a hash and a number each).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::feature::{key_hashes, numbers};
use crate::predictor::{NO_CLASS, Outcome, Scores, Task};

/// Seed of the hashes: any will do, as long as it is one.
const SEED: u64 = 0;

/// Stored decisions by key.
#[derive(Debug)]
pub enum Decisions {
    /// Index into the model's classes.
    Classes {
        /// The model's classes.
        classes: Vec<String>,
        /// By key.
        found: HashMap<u128, u32>,
    },
    /// A regression's value.
    Values {
        /// By key.
        found: HashMap<u128, f64>,
    },
}

impl Decisions {
    /// No decisions yet, of a model with this task.
    pub fn new(task: &Task) -> Decisions {
        match task {
            Task::Classification { classes, .. } => {
                Decisions::Classes { classes: classes.to_vec(), found: HashMap::new() }
            }
            Task::Regression => Decisions::Values { found: HashMap::new() },
        }
    }

    /// Adds rows of a score table: key columns of the feature table's types, and the decision. A null is
    /// no decision.
    ///
    /// # Errors
    /// When a key has two decisions, or a decision is not one of the model's.
    pub fn add(&mut self, key: &RecordBatch, decision: &ArrayRef) -> Result<()> {
        let hashes = key_hashes(key, SEED)?;
        match self {
            Decisions::Classes { classes, found } => {
                let texts = cast(decision, &DataType::Utf8).map_err(|error| {
                    let problem = format!("is {}, expected class labels", decision.data_type());
                    Error::input("input.scores.decision", problem).source(error)
                })?;
                for (hash, text) in hashes.into_iter().zip(texts.as_string::<i32>()) {
                    if let Some(text) = text {
                        insert(found, hash, class_of(classes, text)?)?;
                    }
                }
            }
            Decisions::Values { found } => {
                for (hash, value) in hashes.into_iter().zip(&numbers(decision)?) {
                    if let Some(value) = value.filter(|value| value.is_finite()) {
                        insert(found, hash, value)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes over what another part of the table says.
    ///
    /// # Errors
    /// When a key has two decisions.
    pub fn merge(&mut self, other: Decisions) -> Result<()> {
        match (self, other) {
            (Decisions::Classes { found, .. }, Decisions::Classes { found: more, .. }) => {
                more.into_iter().try_for_each(|(hash, class)| insert(found, hash, class))
            }
            (Decisions::Values { found }, Decisions::Values { found: more }) => {
                more.into_iter().try_for_each(|(hash, value)| insert(found, hash, value))
            }
            _ => unreachable!("both are of one model"),
        }
    }

    /// Rows that it knows.
    pub fn len(&self) -> usize {
        match self {
            Decisions::Classes { found, .. } => found.len(),
            Decisions::Values { found } => found.len(),
        }
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The decisions about rows as a column: null where there is none.
    ///
    /// # Errors
    /// When the key has no hash.
    pub fn column(&self, key: &RecordBatch) -> Result<ArrayRef> {
        let hashes = key_hashes(key, SEED)?;
        Ok(match self {
            Decisions::Classes { classes, found } => {
                let name = |hash| found.get(hash).map(|class| classes[*class as usize].as_str());
                Arc::new(StringArray::from_iter(hashes.iter().map(name)))
            }
            Decisions::Values { found } => {
                let value = |hash| found.get(hash).copied();
                Arc::new(Float64Array::from_iter(hashes.iter().map(value)))
            }
        })
    }

    /// y_M of rows, and the positions of those that it does not know.
    pub(super) fn of(&self, key: &RecordBatch) -> Result<(Scores, Vec<u32>)> {
        let hashes = key_hashes(key, SEED)?;
        let mut unknown = Vec::new();
        let outcome = match self {
            Decisions::Classes { found, .. } => Outcome::Classes {
                labels: looked_up(found, &hashes, NO_CLASS, &mut unknown),
                probabilities: None,
            },
            Decisions::Values { found } => {
                Outcome::Values(looked_up(found, &hashes, f64::NAN, &mut unknown))
            }
        };
        Ok((Scores { rows: hashes.len(), outcome, failures: Vec::new() }, unknown))
    }
}

fn looked_up<T: Copy>(
    found: &HashMap<u128, T>,
    hashes: &[u128],
    otherwise: T,
    unknown: &mut Vec<u32>,
) -> Vec<T> {
    let look = |(row, hash): (u32, &u128)| {
        found.get(hash).copied().unwrap_or_else(|| {
            unknown.push(row);
            otherwise
        })
    };
    (0u32..).zip(hashes).map(look).collect()
}

fn class_of(classes: &[String], text: &str) -> Result<u32> {
    let found = (0u32..).zip(classes).find(|(_, class)| *class == text);
    found.map(|(index, _)| index).ok_or_else(|| {
        let problem = format!("says `{text}`, expected one of {classes:?}");
        Error::input("input.scores.decision", problem)
            .hint("the scores come from another model; score again with `overturn score`")
    })
}

fn insert<T: Copy + PartialEq>(found: &mut HashMap<u128, T>, hash: u128, new: T) -> Result<()> {
    match found.insert(hash, new) {
        Some(old) if old != new => Err(Error::input(
            "input.scores.table",
            "gives a row two different decisions, expected one for each key",
        )),
        _ => Ok(()),
    }
}
