//! What counterfactuals are compared with, kept with the generator: training rows and rows kept aside with
//! the model's decisions about them, and the weights of the random encoders they are looked at through.

use std::path::Path;

use tch::{Kind, Tensor};

use crate::error::{Error, Result};
use crate::nn::{file_hash, refused, tensor, to_numbers, write_tensors};

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
    /// The numbers of the rows whose decision is selected.
    pub fn of(&self, selected: impl Fn(f64) -> bool) -> Vec<f32> {
        let width = self.values.len() / self.decisions.len().max(1);
        let rows = self.decisions.iter().zip(self.values.chunks_exact(width.max(1)));
        rows.filter(|(decision, _)| selected(**decision))
            .flat_map(|(_, row)| row)
            .copied()
            .collect()
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

/// Takes them from the tensors of a file; rows are `width` numbers each.
pub(super) fn read(
    tensors: &[(String, Tensor)],
    path: &Path,
    width: usize,
) -> Result<ReferenceRows> {
    let numbers = |name: &str| -> Result<Vec<f32>> {
        let values = to_numbers(tensor(tensors, name, path)?)?;
        if values.iter().all(|value| value.is_finite()) {
            return Ok(values);
        }
        Err(Error::input(path.display().to_string(), format!("`{name}` is not all numbers")))
    };
    let rows = |name: &str| -> Result<DecidedRows> {
        let decisions = tensor(tensors, &format!("{name}_decisions"), path)?;
        let decisions = decisions.f_to_kind(Kind::Double).and_then(|all| all.f_view([-1]));
        let decisions = Vec::try_from(decisions.map_err(refused)?).map_err(refused)?;
        let rows = DecidedRows { values: numbers(name)?, decisions };
        if rows.decisions.len().checked_mul(width) == Some(rows.values.len()) {
            return Ok(rows);
        }
        let problem = format!("has other rows in `{name}` than its generator");
        Err(Error::input(path.display().to_string(), problem))
    };
    Ok(ReferenceRows {
        trained: rows("trained")?,
        held_out: rows("held_out")?,
        encoders: numbers("encoders")?,
    })
}
