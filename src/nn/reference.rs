//! What counterfactuals are compared with, kept with the generator: training rows and rows kept aside with
//! the model's decisions about them, and the weights of the random encoders they are looked at through.

use std::path::Path;

use tch::{Kind, Tensor};

use super::artefact::{file_hash, read_tensors, tensor, write_tensors};
use super::bridge::{refused, to_numbers};
use crate::error::Result;

/// Rows to compare counterfactuals with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReferenceRows {
    /// Rows that were trained on.
    pub trained: DecidedRows,
    /// Rows that were kept aside.
    pub held_out: DecidedRows,
    /// Weights of random encoders, one after the other.
    pub encoders: Vec<f32>,
}

/// Encoded rows and the model's decisions about them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecidedRows {
    /// Index of the class, or the value of a regression.
    pub decisions: Vec<f64>,
    /// Row-major numbers.
    pub values: Vec<f32>,
}

impl DecidedRows {
    /// The numbers of the rows whose decision is a wanted one.
    pub fn of(&self, wanted: impl Fn(f64) -> bool) -> Vec<f32> {
        let width = self.values.len() / self.decisions.len().max(1);
        let rows = self.decisions.iter().zip(self.values.chunks_exact(width.max(1)));
        rows.filter(|(decision, _)| wanted(**decision)).flat_map(|(_, row)| row).copied().collect()
    }
}

/// Writes the rows, and gives the file's SHA-256.
pub(super) fn save(path: &Path, reference: &ReferenceRows) -> Result<String> {
    let ReferenceRows { trained, held_out, encoders } = reference;
    write_tensors(
        path,
        &[
            ("trained", Tensor::from_slice(&trained.values)),
            ("trained_decisions", Tensor::from_slice(&trained.decisions)),
            ("held_out", Tensor::from_slice(&held_out.values)),
            ("held_out_decisions", Tensor::from_slice(&held_out.decisions)),
            ("encoders", Tensor::from_slice(encoders)),
        ],
    )?;
    file_hash(path)
}

/// Reads them back.
pub(super) fn load(path: &Path) -> Result<ReferenceRows> {
    let tensors = read_tensors(path)?;
    let numbers = |name: &str| to_numbers(tensor(&tensors, name, path)?);
    let decisions = |name: &str| -> Result<Vec<f64>> {
        let tensor = tensor(&tensors, name, path)?;
        Vec::try_from(tensor.to_kind(Kind::Double)).map_err(refused)
    };
    Ok(ReferenceRows {
        trained: DecidedRows {
            values: numbers("trained")?,
            decisions: decisions("trained_decisions")?,
        },
        held_out: DecidedRows {
            values: numbers("held_out")?,
            decisions: decisions("held_out_decisions")?,
        },
        encoders: numbers("encoders")?,
    })
}
