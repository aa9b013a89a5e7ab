//! Random draws for one block of rows. Each block has a stream of its own, so that the rows of a block
//! depend on the seed and the block's number alone, never on threads or files.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Streams from here on are for nulls: asking for nulls must not change any other value.
const NULL_STREAMS: u64 = 1 << 63;

/// The random numbers of one block.
pub(super) struct Dice(ChaCha8Rng);

impl Dice {
    /// For the values of a block.
    pub(super) fn for_values(seed: u64, block: u64) -> Dice {
        Dice::stream(seed, block)
    }

    /// For which of a block's values are null.
    pub(super) fn for_nulls(seed: u64, block: u64) -> Dice {
        Dice::stream(seed, NULL_STREAMS | block)
    }

    fn stream(seed: u64, stream: u64) -> Dice {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Dice(generator)
    }

    /// Uniform between 0 and 1, both excluded. 32 bits are plenty for a demo and half the work of 64.
    pub(super) fn uniform(&mut self) -> f64 {
        (f64::from(self.0.next_u32()) + 0.5) / 4_294_967_296.0
    }

    /// Standard normal.
    pub(super) fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }

    /// True with that probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A position, with probability in proportion to its weight. Weights sum to one.
    pub(super) fn pick(&mut self, weights: &[f64]) -> usize {
        let mut left = self.uniform();
        for (position, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return position;
            }
        }
        weights.len() - 1
    }

    /// A Poisson count of the given mean, at most `most`.
    pub(super) fn count(&mut self, mean: f64, most: i32) -> i32 {
        let floor = (-mean).exp();
        let mut product = self.uniform();
        let mut count = 0;
        while product > floor && count < most {
            product *= self.uniform();
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_follow_their_weights() {
        let mut dice = Dice::for_values(1, 0);
        let mut seen = [0; 3];
        for _ in 0..20_000 {
            seen[dice.pick(&[0.5, 0.0, 0.5])] += 1;
        }
        assert_eq!(seen[1], 0);
        assert!((9_500..10_500).contains(&seen[0]), "{seen:?}");
    }

    #[test]
    fn counts_have_their_mean() {
        let mut dice = Dice::for_values(1, 0);
        let total: i32 = (0..20_000).map(|_| dice.count(1.5, 30)).sum();
        assert!((29_000..31_000).contains(&total), "{total}");
    }

    #[test]
    fn streams_differ_by_seed_block_and_purpose() {
        let first = |mut dice: Dice| dice.uniform();
        let draws = [
            first(Dice::for_values(1, 0)),
            first(Dice::for_values(1, 1)),
            first(Dice::for_values(2, 0)),
            first(Dice::for_nulls(1, 0)),
        ];
        for (position, draw) in draws.iter().enumerate() {
            assert!(!draws[..position].contains(draw), "{draws:?}");
        }
    }
}
