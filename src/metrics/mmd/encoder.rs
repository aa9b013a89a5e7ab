//! The untrained networks through which the paper looks at rows before it compares them: random, but the
//! same for all rows, and small. They are drawn or given here and never learnt.

use rand::{Rng, RngExt};
use rayon::prelude::*;

use super::lanes::vectorised;
use crate::error::{Error, Result};

/// Widths of the paper's encoder after its input.
const FIRST: usize = 32;
const SECOND: usize = 16;
/// Numbers that a row becomes.
pub(super) const EMBEDDED: usize = 5;
/// The last layer's width as it is computed: two registers of four instead of five single numbers.
const PADDED: usize = 8;
/// Rows that one thread takes at a time: enough to be worth the hand-over.
const ROWS_PER_TASK: usize = 1024;

/// An untrained network: width → 32 → 16 → 5 with ReLU in between.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomEncoder {
    width: usize,
    weights: Vec<f32>,
    first: EncoderLayer<FIRST>,
    second: EncoderLayer<SECOND>,
    third: EncoderLayer<PADDED>,
}

/// A linear layer, laid out so that all its outputs are computed at once.
#[derive(Debug, Clone, PartialEq)]
struct EncoderLayer<const OUT: usize> {
    /// Per input, what it adds to each output.
    columns: Vec<[f32; OUT]>,
    bias: [f32; OUT],
}

impl RandomEncoder {
    /// Weights and biases uniform within ±1/√fan-in, as torch has them by default.
    pub fn draw(width: usize, random: &mut impl Rng) -> RandomEncoder {
        let mut weights = Vec::with_capacity(RandomEncoder::weight_count(width));
        for (inputs, outputs) in shapes(width) {
            let bound = 1.0 / (inputs as f32).sqrt();
            let count = outputs * inputs + outputs;
            weights.extend((0..count).map(|_| random.random_range(-bound..=bound)));
        }
        RandomEncoder::laid_out(width, weights)
    }

    /// The encoder that has these weights: per layer the weight, output by output, then the bias.
    ///
    /// # Errors
    /// When their number does not fit the width.
    pub fn from_weights(width: usize, weights: &[f32]) -> Result<RandomEncoder> {
        let expected = RandomEncoder::weight_count(width);
        if weights.len() == expected {
            return Ok(RandomEncoder::laid_out(width, weights.to_vec()));
        }
        let problem =
            format!("{} weights, expected {expected} for a width of {width}", weights.len());
        Err(Error::input("MMD encoder", problem))
    }

    /// Weights that an encoder for rows of this width has.
    pub fn weight_count(width: usize) -> usize {
        shapes(width).iter().map(|(inputs, outputs)| outputs * (inputs + 1)).sum()
    }

    /// All weights, as [`RandomEncoder::from_weights`] takes them.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The width of the rows it takes.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Five numbers for each row; a row's do not depend on the others.
    pub fn embed(&self, rows: &[f32]) -> Vec<f32> {
        let count = rows.len() / self.width;
        let mut embedded = vec![0.0; count * EMBEDDED];
        let tasks = rows.par_chunks(ROWS_PER_TASK * self.width);
        let outputs = embedded.par_chunks_mut(ROWS_PER_TASK * EMBEDDED);
        tasks.zip(outputs).for_each(|(rows, output)| self.embed_into(rows, output));
        embedded
    }

    /// The same on this thread alone.
    pub(super) fn embed_here(&self, rows: &[f32]) -> Vec<f32> {
        let mut embedded = vec![0.0; rows.len() / self.width * EMBEDDED];
        self.embed_into(rows, &mut embedded);
        embedded
    }

    fn embed_into(&self, rows: &[f32], output: &mut [f32]) {
        vectorised(
            #[inline(always)]
            || self.embed_lanes(rows, output),
        );
    }

    #[inline(always)]
    fn embed_lanes(&self, rows: &[f32], output: &mut [f32]) {
        let pairs = rows.chunks_exact(self.width).zip(output.chunks_exact_mut(EMBEDDED));
        for (row, embedded) in pairs {
            let hidden = relu(self.first.apply(row));
            let hidden = relu(self.second.apply(&hidden));
            embedded.copy_from_slice(&self.third.apply(&hidden)[..EMBEDDED]);
        }
    }

    fn laid_out(width: usize, weights: Vec<f32>) -> RandomEncoder {
        let mut rest = weights.as_slice();
        let first = EncoderLayer::take(&mut rest, width, FIRST);
        let second = EncoderLayer::take(&mut rest, FIRST, SECOND);
        let third = EncoderLayer::take(&mut rest, SECOND, EMBEDDED);
        RandomEncoder { width, weights, first, second, third }
    }
}

impl<const OUT: usize> EncoderLayer<OUT> {
    /// Takes a layer's weight and bias off the front; outputs beyond `outputs` are always zero.
    fn take(weights: &mut &[f32], inputs: usize, outputs: usize) -> EncoderLayer<OUT> {
        let (weight, rest) = weights.split_at(inputs * outputs);
        let (bias, rest) = rest.split_at(outputs);
        *weights = rest;
        let filled = |value: &dyn Fn(usize) -> f32| {
            std::array::from_fn(|output| if output < outputs { value(output) } else { 0.0 })
        };
        let column = |input: usize| filled(&|output| weight[output * inputs + input]);
        EncoderLayer {
            columns: (0..inputs).map(column).collect(),
            bias: filled(&|output| bias[output]),
        }
    }

    #[inline(always)]
    fn apply(&self, input: &[f32]) -> [f32; OUT] {
        let mut output = self.bias;
        for (number, column) in input.iter().zip(&self.columns) {
            for (sum, weight) in output.iter_mut().zip(column) {
                *sum += number * weight;
            }
        }
        output
    }
}

#[inline(always)]
fn relu<const N: usize>(numbers: [f32; N]) -> [f32; N] {
    numbers.map(|number| if number < 0.0 { 0.0 } else { number })
}

/// Inputs and outputs of each layer.
fn shapes(width: usize) -> [(usize, usize); 3] {
    [(width, FIRST), (FIRST, SECOND), (SECOND, EMBEDDED)]
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn encoder(width: usize) -> RandomEncoder {
        RandomEncoder::draw(width, &mut ChaCha8Rng::seed_from_u64(3))
    }

    #[test]
    fn weights_are_as_torch_draws_them() {
        let encoder = encoder(100);
        let layers = [(0, 100 * 32 + 32, 0.1), (3232, 32 * 16 + 16, 32f32.powf(-0.5))];
        for (start, count, bound) in layers {
            let largest = encoder.weights()[start..start + count]
                .iter()
                .fold(0f32, |most, w| most.max(w.abs()));
            assert!(largest <= bound && largest > 0.97 * bound, "{largest} against {bound}");
        }
    }

    #[test]
    fn weights_make_the_same_encoder_again() {
        let drawn = encoder(7);
        assert_eq!(RandomEncoder::from_weights(7, drawn.weights()).unwrap(), drawn);
        let error = RandomEncoder::from_weights(8, drawn.weights()).unwrap_err();
        assert_eq!(error.to_string(), "MMD encoder: 869 weights, expected 901 for a width of 8");
    }

    #[test]
    fn a_row_does_not_depend_on_the_others() {
        let encoder = encoder(6);
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let rows: Vec<f32> = (0..3000 * 6).map(|_| random.random_range(-2.0..2.0)).collect();
        let whole = encoder.embed(&rows);
        let single: Vec<f32> = rows.chunks(6).flat_map(|row| encoder.embed(row)).collect();
        assert_eq!(whole, single);
        assert_eq!(encoder.embed_here(&rows), whole);
    }
}
