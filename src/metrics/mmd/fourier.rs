//! MMD² in one pass and constant memory: a Gaussian kernel is the mean of cosines over random frequencies,
//! so sums of cosines and sines per frequency are all that has to be kept of the points. The price is an
//! error, which is given with the estimate.

use rand::{Rng, RngExt};

use super::exact::Kernel;
use super::lanes::{LANES, PackedPoints, add_waves, total, vectorised};

/// The stated error in standard errors: 99 % of a normal distribution.
const STATED_ERRORS: f64 = 2.6;

/// Random frequencies of one view.
#[derive(Debug, Clone)]
pub(super) struct Frequencies {
    dimension: usize,
    /// In turns: a point's angle at a frequency is their product.
    turns: Vec<f32>,
}

/// Sums of cosines and sines of some points, per frequency.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CosineSums {
    pub(super) rows: u64,
    cosines: Vec<f64>,
    sines: Vec<f64>,
}

/// What the frequencies of one view say.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpectralEstimate {
    pub(super) mmd2: f64,
    /// Square of its standard error.
    pub(super) variance: f64,
}

impl Frequencies {
    /// Draws frequencies from the kernel's spectrum, N(0, 1/σ²) in each dimension.
    pub(super) fn draw(kernel: Kernel, count: usize, random: &mut impl Rng) -> Frequencies {
        let scale = 1.0 / (kernel.bandwidth() * std::f64::consts::TAU);
        let draw = |_| (normal(random) * scale) as f32;
        let turns = (0..count * kernel.dimension).map(draw).collect();
        Frequencies { dimension: kernel.dimension, turns }
    }

    /// The sums of no points.
    pub(super) fn nothing(&self) -> CosineSums {
        let count = self.turns.len() / self.dimension;
        CosineSums { rows: 0, cosines: vec![0.0; count], sines: vec![0.0; count] }
    }

    /// The sums of some points: few thousand at most, since part of the adding is done in `f32`.
    pub(super) fn sums(&self, points: &[f32]) -> CosineSums {
        // Points at the origin have cosines of exactly one, which are taken off again.
        let packed = PackedPoints::new(points, self.dimension, 0.0);
        let mut sums = self.nothing();
        sums.rows = (points.len() / self.dimension) as u64;
        let totals = sums.cosines.iter_mut().zip(&mut sums.sines);
        for (frequency, (cosine, sine)) in self.turns.chunks_exact(self.dimension).zip(totals) {
            let (cosines, sines) = vectorised(
                #[inline(always)]
                || sums_at(frequency, &packed),
            );
            (*cosine, *sine) = (cosines - packed.padding as f64, sines);
        }
        sums
    }
}

impl CosineSums {
    /// Adds the sums of other points.
    pub(super) fn merge(&mut self, other: &CosineSums) {
        self.rows += other.rows;
        let add = |totals: &mut Vec<f64>, more: &[f64]| {
            totals.iter_mut().zip(more).for_each(|(totals, more)| *totals += more);
        };
        add(&mut self.cosines, &other.cosines);
        add(&mut self.sines, &other.sines);
    }

    /// MMD² between two sets of points.
    pub(super) fn compare(&self, other: &CosineSums) -> SpectralEstimate {
        let count = self.cosines.len();
        let at: Vec<f64> = (0..count).map(|frequency| self.compare_at(other, frequency)).collect();
        let mmd2 = at.iter().sum::<f64>() / count as f64;
        let squares: f64 = at.iter().map(|value| (value - mmd2).powi(2)).sum();
        SpectralEstimate { mmd2, variance: squares / ((count - 1) as f64 * count as f64) }
    }

    /// The unbiased estimate from one frequency alone.
    fn compare_at(&self, other: &CosineSums, frequency: usize) -> f64 {
        let (cosine, sine) = (self.cosines[frequency], self.sines[frequency]);
        let (others_cosine, others_sine) = (other.cosines[frequency], other.sines[frequency]);
        let within = |cosine: f64, sine: f64, count: f64| {
            (cosine * cosine + sine * sine - count) / (count * (count - 1.0))
        };
        let (count, others) = (self.rows as f64, other.rows as f64);
        let between = (cosine * others_cosine + sine * others_sine) / (count * others);
        within(cosine, sine, count) + within(others_cosine, others_sine, others) - 2.0 * between
    }
}

/// The error to be stated for the mean of views, whose frequencies are independent.
pub(super) fn stated_error(found: &[SpectralEstimate]) -> f64 {
    let variance: f64 = found.iter().map(|found| found.variance).sum();
    STATED_ERRORS * variance.sqrt() / found.len() as f64
}

#[inline(always)]
fn sums_at(frequency: &[f32], packed: &PackedPoints) -> (f64, f64) {
    let (mut cosines, mut sines) = ([0.0; LANES], [0.0; LANES]);
    for group in packed.all() {
        add_waves((&mut sines, &mut cosines), frequency, group);
    }
    (total(&cosines), total(&sines))
}

/// A standard normal number (Box and Muller).
fn normal(random: &mut impl Rng) -> f64 {
    // From above nought to one, so that the logarithm is finite.
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn frequencies(count: usize) -> Frequencies {
        let kernel = Kernel { dimension: 3, median: 2.0 };
        Frequencies::draw(kernel, count, &mut ChaCha8Rng::seed_from_u64(1))
    }

    #[test]
    fn frequencies_have_the_spectrum_of_the_kernel() {
        let drawn = frequencies(20_000);
        let radians = drawn.turns.iter().map(|turn| f64::from(*turn) * std::f64::consts::TAU);
        let mean_square = radians.map(|number| number * number).sum::<f64>() / 60_000.0;
        // σ is one.
        assert!((mean_square - 1.0).abs() < 0.03, "{mean_square}");
    }

    #[test]
    fn sums_are_those_of_a_plain_loop() {
        let drawn = frequencies(4);
        let points: Vec<f32> =
            (0..3 * 1001).map(|index| ((index * 17) % 97) as f32 / 9.0).collect();
        let found = drawn.sums(&points);
        for (index, turns) in drawn.turns.chunks(3).enumerate() {
            let angle = |point: &[f32]| {
                let turns = turns.iter().zip(point).map(|(a, b)| f64::from(*a) * f64::from(*b));
                turns.sum::<f64>() * std::f64::consts::TAU
            };
            let cosines: f64 = points.chunks(3).map(|point| angle(point).cos()).sum();
            let sines: f64 = points.chunks(3).map(|point| angle(point).sin()).sum();
            assert!((found.cosines[index] - cosines).abs() < 2e-3);
            assert!((found.sines[index] - sines).abs() < 2e-3);
        }
    }

    #[test]
    fn sides_can_be_exchanged() {
        let drawn = frequencies(64);
        let points: Vec<f32> =
            (0..3 * 400).map(|index| ((index * 31) % 83) as f32 / 30.0).collect();
        let (left, right) = (drawn.sums(&points[..450]), drawn.sums(&points[450..]));
        let (there, back) = (left.compare(&right), right.compare(&left));
        assert!((there.mmd2 - back.mmd2).abs() < 1e-12);
    }
}
