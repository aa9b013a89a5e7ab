//! What [`super::super::Generator`] and [`super::super::TensorLayout`] do with tensors, in plain memory and with its
//! gradient: from an action to a decoded row, and from there to a row that keeps to its condition.

use std::ops::Range;

use pulp::{Arch, NullaryFnOnce};

use super::functions::{atanh_all, exp, greatest, tanh_all};
use super::network::{HostNetwork, Pass};
use crate::constrain::NumericRange;
use crate::encode::{Layout, Slots};
use crate::error::Result;
use crate::nn::autoencoder::{Autoencoder, WIDEST};
use crate::nn::bridge::to_numbers;
use crate::nn::generator::{ActorShape, Form, NEARLY_ONE, SHARPNESS};
use crate::nn::tensor_layout::ABSENT_LOGIT;

/// enc and dec.
#[derive(Debug)]
pub enum HostAutoencoder {
    /// Two networks.
    Trained {
        /// Encoded row → latent.
        encoder: HostNetwork,
        /// Latent → decoded row.
        decoder: HostNetwork,
    },
    /// tanh and its inverse.
    Projection,
}

impl HostAutoencoder {
    /// The same weights in plain memory.
    ///
    /// # Errors
    /// When they cannot be copied.
    pub fn of(autoencoder: &Autoencoder) -> Result<HostAutoencoder> {
        let Autoencoder::Trained { encoder, decoder } = autoencoder else {
            return Ok(HostAutoencoder::Projection);
        };
        let copy = |network: &crate::nn::Network| {
            HostNetwork::new(network.shape(), &to_numbers(network.flat())?)
        };
        Ok(HostAutoencoder::Trained { encoder: copy(encoder)?, decoder: copy(decoder)? })
    }

    /// z = enc(x) of the rows that were written into the pass.
    pub fn encode<'p>(&self, rows: &[f32], width: usize, pass: &'p mut Pass) -> &'p [f32] {
        let count = rows.len() / width;
        pass.input(count, width).copy_from_slice(rows);
        match self {
            HostAutoencoder::Trained { encoder, .. } => {
                encoder.forward(pass);
                pass.output()
            }
            HostAutoencoder::Projection => {
                let input = pass.input(count, width);
                tanh_all(input);
                input
            }
        }
    }
}

/// Rows of a batch side by side with what is known of them: row-major, one matrix each.
#[derive(Debug, Default)]
pub struct HostRows {
    /// Encoded rows.
    pub x: Vec<f32>,
    /// dec(enc(x)): numerics, and probabilities of categories.
    pub base: Vec<f32>,
    /// c.
    pub conditions: Vec<f32>,
}

/// Where features stand, and how an action becomes a row.
#[derive(Debug)]
pub struct HostFeatures {
    shape: ActorShape,
    trained: bool,
    /// Numbers of an encoded row.
    pub width: usize,
    /// Numeric features.
    pub numerics: usize,
    /// Where the blocks of the categoricals begin in a row.
    first: usize,
    /// Each block, counted from there.
    blocks: Vec<Range<usize>>,
    /// Ends of the numerics' ranges, standardised.
    ranges: Vec<(f32, f32)>,
}

/// Memory of decoding, from step to step.
#[derive(Debug, Default)]
pub struct Decoding {
    /// Of the decoder.
    pass: Pass,
    /// Probabilities of the decoder's categories.
    shares: Vec<f32>,
    /// Decoded rows.
    pub decoded: Vec<f32>,
}

/// Memory of post-processing, from step to step.
#[derive(Debug, Default)]
pub struct PostProcessing {
    /// Probabilities of the allowed categories.
    shares: Vec<f32>,
    /// Post-processed rows.
    pub rows: Vec<f32>,
}

/// A row of a batch, decoded, with what it is held to.
struct DecodedRow<'r> {
    decoded: &'r [f32],
    x: &'r [f32],
    condition: &'r [f32],
}

impl HostFeatures {
    /// The features of a layout.
    pub fn new(
        layout: &Layout,
        ranges: &[NumericRange],
        (shape, trained): (ActorShape, bool),
    ) -> HostFeatures {
        let blocks = layout.slots.iter().filter_map(|slots| match slots {
            Slots::Numeric(_) => None,
            Slots::Categorical(slots) => Some(slots.block()),
        });
        let blocks: Vec<Range<usize>> = blocks.collect();
        let block_slots: usize = blocks.iter().map(Range::len).sum();
        let first = layout.width - block_slots;
        let within = |block: &Range<usize>| block.start - first..block.end - first;
        HostFeatures {
            shape,
            trained,
            width: layout.width,
            numerics: ranges.len(),
            first,
            blocks: blocks.iter().map(within).collect(),
            ranges: ranges.iter().map(|range| (range.low, range.high)).collect(),
        }
    }

    /// Categorical features.
    pub fn categoricals(&self) -> usize {
        self.blocks.len()
    }

    /// Places of all blocks.
    pub fn block_slots(&self) -> usize {
        self.width - self.first
    }

    /// The blocks in an encoded row.
    pub fn blocks(&self) -> impl Iterator<Item = Range<usize>> {
        self.blocks.iter().map(|block| block.start + self.first..block.end + self.first)
    }

    /// Numbers of a latent.
    pub fn latent(&self) -> usize {
        self.shape.latent as usize
    }

    /// Whether probabilities of the decoder's categories move a row's own.
    fn moves_shares(&self) -> bool {
        self.shape.form == Form::Relative && self.shape.outcomes > 0 && self.trained
    }

    /// Numbers of an action.
    pub fn action(&self) -> usize {
        self.shape.action() as usize
    }

    /// dec(z_cf) of actions, with what they move by themselves: [`super::super::Generator::decode`].
    pub fn decode(
        &self,
        autoencoder: &HostAutoencoder,
        (actions, rows): (&[f32], &HostRows),
        decoding: &mut Decoding,
    ) {
        let (latent, action) = (self.latent(), self.action());
        let count = actions.len() / action;
        let input = decoding.pass.input(count, latent);
        for (input, action) in input.chunks_exact_mut(latent).zip(actions.chunks_exact(action)) {
            input.copy_from_slice(&action[..latent]);
        }
        self.decoder(autoencoder, decoding);
        let Decoding { shares, decoded, .. } = decoding;
        if self.shape.form == Form::Relative {
            if self.moves_shares() {
                shares.resize(count * self.block_slots(), 0.0);
                for (shares, row) in shares
                    .chunks_exact_mut(self.block_slots().max(1))
                    .zip(decoded.chunks_exact(self.width))
                {
                    shares.copy_from_slice(&row[self.first..]);
                }
                self.softmax(shares);
            }
            self.move_rows((actions, rows), shares, decoded);
        }
    }

    /// Rows as the autoencoder gives them back: [`super::super::Generator::base`].
    pub fn base(
        &self,
        autoencoder: &HostAutoencoder,
        latents: &[f32],
        decoding: &mut Decoding,
    ) -> Vec<f32> {
        let nearly = NEARLY_ONE as f32;
        let count = latents.len() / self.latent();
        decoding.pass.input(count, self.latent()).copy_from_slice(latents);
        if !self.trained {
            // A number far out lies at the latent's end, which an action never quite reaches.
            let input = decoding.pass.input(count, self.latent());
            input.iter_mut().for_each(|z| *z = z.clamp(-nearly, nearly));
        }
        self.decoder(autoencoder, decoding);
        let (first, width) = (self.first, self.numerics + self.block_slots());
        let mut base = vec![0.0; count * width];
        let mut shares: Vec<f32> = decoding
            .decoded
            .chunks_exact(self.width)
            .flat_map(|row| &row[first..])
            .copied()
            .collect();
        self.softmax(&mut shares);
        for (row, base) in base.chunks_exact_mut(width.max(1)).enumerate() {
            let (numbers, block_slots) = base.split_at_mut(self.numerics);
            numbers.copy_from_slice(&decoding.decoded[row * self.width..][..self.numerics]);
            block_slots.copy_from_slice(&shares[row * self.block_slots()..][..self.block_slots()]);
        }
        base
    }

    /// dec of the latents that were written into the pass.
    fn decoder(&self, autoencoder: &HostAutoencoder, decoding: &mut Decoding) {
        let Decoding { pass, decoded, .. } = decoding;
        decoded.clear();
        match autoencoder {
            HostAutoencoder::Trained { decoder, .. } => {
                decoder.forward(pass);
                decoded.extend_from_slice(pass.output());
            }
            HostAutoencoder::Projection => {
                decoded.extend_from_slice(pass.latents());
                atanh_all(decoded, WIDEST as f32);
            }
        }
    }

    /// Adds what moved to the rows.
    fn move_rows(&self, (actions, rows): (&[f32], &HostRows), shares: &[f32], decoded: &mut [f32]) {
        let (numerics, first, block_slots) = (self.numerics, self.first, self.block_slots());
        let (tolerance, sharpness) = (self.shape.tolerance() as f32, SHARPNESS as f32);
        let base_width = numerics + block_slots;
        for (row, decoded) in decoded.chunks_exact_mut(self.width).enumerate() {
            let x = &rows.x[row * self.width..][..self.width];
            let base = &rows.base[row * base_width..][..base_width];
            let direct = &actions[row * self.action()..][self.latent()..self.action()];
            for index in 0..numerics {
                let moved = decoded[index] - base[index] + direct[index];
                decoded[index] = x[index] + (moved - moved.max(-tolerance).min(tolerance));
            }
            decoded[numerics..first].copy_from_slice(&x[numerics..first]);
            if self.moves_shares() {
                let shares = &shares[row * block_slots..][..block_slots];
                for slot in 0..block_slots {
                    let moved = shares[slot] - base[numerics + slot] + direct[numerics + slot];
                    decoded[first + slot] = (x[first + slot] + moved) * sharpness;
                }
            } else if self.shape.outcomes > 0 {
                decoded[first..].iter_mut().for_each(|logit| *logit *= sharpness);
            }
        }
    }

    /// The gradient of decoded rows, back to their actions, to whose gradients it is added. It is overwritten.
    pub fn decode_back(
        &self,
        autoencoder: &HostAutoencoder,
        (gradient, of_actions): (&mut [f32], &mut [f32]),
        decoding: &mut Decoding,
    ) {
        let (latent, action) = (self.latent(), self.action());
        if self.shape.form == Form::Relative {
            self.move_back((gradient, of_actions), &decoding.shares);
        }
        let pass = &mut decoding.pass;
        match autoencoder {
            HostAutoencoder::Trained { decoder, .. } => {
                pass.gradient_of_output().0.copy_from_slice(gradient);
                decoder.backward(pass, None, true);
                let rows = of_actions.chunks_exact_mut(action);
                for (of_action, gradient) in rows.zip(pass.gradient().chunks_exact(latent)) {
                    of_action.iter_mut().zip(gradient).for_each(|(to, from)| *to += from);
                }
            }
            HostAutoencoder::Projection => {
                let rows = of_actions.chunks_exact_mut(action);
                let latents = pass.latents().chunks_exact(latent);
                for ((of_action, gradient), z) in
                    rows.zip(gradient.chunks_exact(self.width)).zip(latents)
                {
                    for ((to, from), z) in of_action.iter_mut().zip(gradient).zip(z) {
                        let inside = z.abs() <= WIDEST as f32;
                        *to += if inside { from / (1.0 - z * z) } else { 0.0 };
                    }
                }
            }
        }
    }

    fn move_back(&self, (gradient, of_actions): (&mut [f32], &mut [f32]), shares: &[f32]) {
        let (numerics, first, block_slots) = (self.numerics, self.first, self.block_slots());
        let sharpness = SHARPNESS as f32;
        let rows =
            gradient.chunks_exact_mut(self.width).zip(of_actions.chunks_exact_mut(self.action()));
        for (row, (gradient, of_action)) in rows.enumerate() {
            let direct = &mut of_action[self.latent()..];
            direct.iter_mut().zip(&gradient[..numerics]).for_each(|(to, from)| *to += from);
            gradient[numerics..first].fill(0.0);
            if self.shape.outcomes > 0 {
                gradient[first..].iter_mut().for_each(|value| *value *= sharpness);
            }
            if self.moves_shares() {
                let of_blocks = &mut gradient[first..];
                let direct = direct[numerics..].iter_mut();
                direct.zip(of_blocks.iter()).for_each(|(to, from)| *to += from);
                self.softmax_back(of_blocks, &shares[row * block_slots..][..block_slots]);
            }
        }
    }

    /// pp(d, c): [`super::super::TensorLayout::post_process`].
    pub fn settle(&self, decoded: &[f32], rows: &HostRows, settling: &mut PostProcessing) {
        let (numerics, first, block_slots) = (self.numerics, self.first, self.block_slots());
        let count = decoded.len() / self.width;
        settling.rows.resize(decoded.len(), 0.0);
        settling.shares.resize(count * block_slots, 0.0);
        for (row, settled) in settling.rows.chunks_exact_mut(self.width).enumerate() {
            let DecodedRow { decoded, x, condition } = self.decoded_row((decoded, rows), row);
            for index in 0..numerics {
                let (low, high) = self.bounds(index, x, condition);
                let (lowest, highest) = self.ranges[index];
                settled[index] = decoded[index].max(low).min(high).max(lowest).min(highest);
            }
            settled[numerics..first].copy_from_slice(&x[numerics..first]);
            let (masks, settled) = (&condition[2 * numerics..], &mut settled[first..]);
            let allowed = &mut settling.shares[row * block_slots..][..block_slots];
            for slot in 0..block_slots {
                allowed[slot] = decoded[first + slot] + (masks[slot] - 1.0) * -ABSENT_LOGIT as f32;
            }
            settled.fill(0.0);
            for block in &self.blocks {
                settled[block.start + greatest(&allowed[block.clone()])] = 1.0;
            }
        }
    }

    fn decoded_row<'r>(
        &self,
        (decoded, rows): (&'r [f32], &'r HostRows),
        row: usize,
    ) -> DecodedRow<'r> {
        let conditions = rows.conditions.len() / (decoded.len() / self.width).max(1);
        DecodedRow {
            decoded: &decoded[row * self.width..][..self.width],
            x: &rows.x[row * self.width..][..self.width],
            condition: &rows.conditions[row * conditions..][..conditions],
        }
    }

    fn bounds(&self, index: usize, x: &[f32], condition: &[f32]) -> (f32, f32) {
        let (low, high) = self.ranges[index];
        let range = high - low;
        (x[index] + condition[2 * index] * range, x[index] + condition[2 * index + 1] * range)
    }

    /// The gradient of post-processed rows, back to the decoded ones: that of numbers where they are not clipped, that
    /// of a chosen category's probability among the allowed.
    pub fn settle_back(
        &self,
        gradient: &mut [f32],
        (decoded, rows): (&[f32], &HostRows),
        settling: &mut PostProcessing,
    ) {
        let (numerics, first, block_slots) = (self.numerics, self.first, self.block_slots());
        self.softmax(&mut settling.shares);
        for (row, gradient) in gradient.chunks_exact_mut(self.width).enumerate() {
            let DecodedRow { decoded, x, condition } = self.decoded_row((decoded, rows), row);
            for index in 0..numerics {
                let (low, high) = self.bounds(index, x, condition);
                let (lowest, highest) = self.ranges[index];
                let clipped = decoded[index].max(low).min(high);
                let free =
                    (low..=high).contains(&decoded[index]) && (lowest..=highest).contains(&clipped);
                gradient[index] = if free { gradient[index] } else { 0.0 };
            }
            gradient[numerics..first].fill(0.0);
            let shares = &settling.shares[row * block_slots..][..block_slots];
            self.softmax_back(&mut gradient[first..], shares);
        }
    }

    /// Logits of all blocks of some rows to probabilities.
    pub fn softmax(&self, logits: &mut [f32]) {
        Arch::new().dispatch(Softmax {
            logits,
            block_slots: self.block_slots(),
            blocks: &self.blocks,
        });
    }

    /// The gradient of a row's probabilities, back to its logits.
    fn softmax_back(&self, gradient: &mut [f32], shares: &[f32]) {
        for block in &self.blocks {
            let (gradient, shares) = (&mut gradient[block.clone()], &shares[block.clone()]);
            let mean: f32 = gradient.iter().zip(shares).map(|(value, share)| value * share).sum();
            for (value, share) in gradient.iter_mut().zip(shares) {
                *value = share * (*value - mean);
            }
        }
    }
}

struct Softmax<'a> {
    logits: &'a mut [f32],
    block_slots: usize,
    blocks: &'a [Range<usize>],
}

impl NullaryFnOnce for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Softmax { logits, block_slots, blocks } = self;
        for row in logits.chunks_exact_mut(block_slots.max(1)) {
            for block in blocks {
                let block = &mut row[block.clone()];
                let most = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                block.iter_mut().for_each(|logit| *logit -= most);
            }
            row.iter_mut().for_each(|logit| *logit = exp(*logit));
            for block in blocks {
                let block = &mut row[block.clone()];
                let scale = 1.0 / block.iter().sum::<f32>();
                block.iter_mut().for_each(|share| *share *= scale);
            }
        }
    }
}
