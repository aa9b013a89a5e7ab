//! The training rows as learning sees them: as tensors, and by the model's decision.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tch::{Device, Tensor};

use super::Problem;
use super::rows::RowMatrix;
use crate::encode::Dense;
use crate::error::Result;
use crate::nn::{Generator, to_tensor};

/// Rows encoded at once: the networks' hidden layers are wider than a row.
const AT_ONCE: usize = 1 << 16;

/// Training rows as tensors, side by side: x, dec(z), z, y_M.
pub(super) struct TrainingTable {
    rows: RowMatrix,
    /// Widths of the four.
    widths: [i64; 4],
}

/// Some of them.
pub(super) struct TableRows {
    pub(super) x: Tensor,
    /// dec(z).
    pub(super) base: Tensor,
    /// z and y_M.
    pub(super) state: Tensor,
    /// y_M.
    pub(super) decisions: Tensor,
}

/// y_M of training rows, one row after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct EncodedDecisions<'a> {
    pub(super) values: &'a [f32],
    pub(super) width: usize,
}

impl TrainingTable {
    /// A table of encoded rows, and of the decisions about them.
    pub(super) fn new(
        generator: &Generator,
        encoded: &Dense,
        decisions: EncodedDecisions<'_>,
        device: Device,
    ) -> Result<TrainingTable> {
        let EncodedDecisions { values: decisions, width: y_m } = decisions;
        let tensor_layout = &generator.tensor_layout;
        let base = tensor_layout.numerics + tensor_layout.block_slots;
        let widths = [encoded.width as i64, base, generator.autoencoder.latent(), y_m as i64];
        let rows = RowMatrix::empty(encoded.rows, widths.iter().sum(), device);
        for start in (0..encoded.rows).step_by(AT_ONCE) {
            let end = (start + AT_ONCE).min(encoded.rows);
            let of = |values: &[f32], width| {
                to_tensor(&values[start * width..end * width], width, device)
            };
            let (x, y_m) = (of(&encoded.values, encoded.width)?, of(decisions, y_m)?);
            let z = generator.autoencoder.encode(&x);
            rows.write(start, &Tensor::cat(&[&x, &generator.base(&z), &z, &y_m], 1));
        }
        Ok(TrainingTable { rows, widths })
    }

    /// What is known of training rows, whose indices are on the host.
    pub(super) fn rows(&self, rows: &Tensor) -> Result<TableRows> {
        let taken = self.rows.take(rows)?;
        let [x, base, z, y_m] = self.widths;
        Ok(TableRows {
            x: taken.narrow(1, 0, x),
            base: taken.narrow(1, x, base),
            state: taken.narrow(1, x + base, z + y_m),
            decisions: taken.narrow(1, x + base + z, y_m),
        })
    }
}

/// Training rows by the model's decision.
pub(super) struct Examples {
    /// Rows of each class; empty where the critic tells none apart.
    by_class: Vec<Vec<u32>>,
    /// Classes that have rows.
    classes: Vec<u32>,
    rows: usize,
}

impl Examples {
    pub(super) fn new(problem: &Problem<'_>, classes: usize) -> Examples {
        let labels = problem.training_rows.labels().unwrap_or_default();
        let mut by_class = vec![Vec::new(); classes];
        for (row, label) in (0u32..).zip(labels).take(problem.train) {
            // A row without a prediction is of no class.
            if let Some(rows) = by_class.get_mut(*label as usize) {
                rows.push(row);
            }
        }
        let filled = (0u32..).zip(&by_class).filter(|(_, rows): &(_, &Vec<u32>)| !rows.is_empty());
        let classes = filled.map(|(class, _)| class).collect();
        Examples { by_class, classes, rows: problem.train }
    }

    /// A row of a class; any row of a class that has none.
    pub(super) fn of(&self, class: u32, random: &mut ChaCha8Rng) -> i64 {
        match self.by_class.get(class as usize).filter(|rows| !rows.is_empty()) {
            Some(rows) => i64::from(rows[random.random_range(0..rows.len())]),
            None => random.random_range(0..self.rows as i64),
        }
    }

    /// Rows of every class equally often.
    pub(super) fn draw(&self, count: usize, random: &mut ChaCha8Rng) -> Vec<i64> {
        if self.classes.is_empty() {
            return Vec::new();
        }
        let mut one = || {
            let class = self.classes[random.random_range(0..self.classes.len())];
            self.of(class, random)
        };
        (0..count).map(|_| one()).collect()
    }
}
