//! Training rows as a learner in plain memory sees them.

use crate::encode::Dense;
use crate::nn::NEARLY_ONE;
use crate::nn::host::{Decoding, HostAutoencoder, HostFeatures, Pass, atanh_all};
use crate::train::table::EncodedDecisions;

/// Rows encoded at once: the networks' hidden layers are wider than a row.
const AT_ONCE: usize = 1 << 13;

/// Training rows: x, and what never changes about them.
pub(super) struct HostTable<'a> {
    encoded: &'a Dense,
    /// dec(z).
    base: Vec<f32>,
    /// z and y_M.
    state: Vec<f32>,
    /// Where the action starts that leaves a row as it is, before its tanh.
    start: Vec<f32>,
    /// Widths of the three.
    widths: [usize; 3],
    /// Width of y_M.
    decisions: usize,
}

impl<'a> HostTable<'a> {
    /// A table of encoded rows, and of the decisions about them.
    pub(super) fn new(
        features: &HostFeatures,
        autoencoder: &HostAutoencoder,
        encoded: &'a Dense,
        decisions: EncodedDecisions<'_>,
    ) -> HostTable<'a> {
        let EncodedDecisions { values: decisions, width: y_m } = decisions;
        let latent = features.latent();
        let mut table = HostTable {
            encoded,
            base: Vec::with_capacity(encoded.rows * (features.numerics + features.block_slots())),
            state: Vec::with_capacity(encoded.rows * (latent + y_m)),
            start: Vec::with_capacity(encoded.rows * latent),
            widths: [features.numerics + features.block_slots(), latent + y_m, latent],
            decisions: y_m,
        };
        let (mut pass, mut decoding) = (Pass::default(), Decoding::default());
        for first in (0..encoded.rows).step_by(AT_ONCE) {
            let rows = first..(first + AT_ONCE).min(encoded.rows);
            let x = &encoded.values[rows.start * encoded.width..rows.end * encoded.width];
            let z = autoencoder.encode(x, encoded.width, &mut pass);
            table.base.extend(features.base(autoencoder, z, &mut decoding));
            let started = table.start.len();
            table.start.extend_from_slice(z);
            atanh_all(&mut table.start[started..], NEARLY_ONE as f32);
            for (row, z) in rows.zip(z.chunks_exact(latent)) {
                table.state.extend_from_slice(z);
                table.state.extend_from_slice(&decisions[row * y_m..(row + 1) * y_m]);
            }
        }
        table
    }

    pub(super) fn x(&self, row: u32) -> &[f32] {
        self.encoded.row(row as usize)
    }

    pub(super) fn base(&self, row: u32) -> &[f32] {
        &self.base[row as usize * self.widths[0]..][..self.widths[0]]
    }

    /// z and y_M.
    pub(super) fn state(&self, row: u32) -> &[f32] {
        &self.state[row as usize * self.widths[1]..][..self.widths[1]]
    }

    pub(super) fn start(&self, row: u32) -> &[f32] {
        &self.start[row as usize * self.widths[2]..][..self.widths[2]]
    }

    /// y_M.
    pub(super) fn decision(&self, row: u32) -> &[f32] {
        let state = self.state(row);
        &state[state.len() - self.decisions..]
    }

    /// Numbers of z and y_M.
    pub(super) fn state_width(&self) -> usize {
        self.widths[1]
    }
}
