//! Whether a difference may be chance: rows of both sides are exchanged at random, and counted is how often
//! they then differ as much. Only the first rows of each side take part, since the matrix of all pairs is
//! held.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::lanes::{LANES, add_kernel, total};
use super::sample::ComparedRows;

/// Rows at the front of each side that take part: a matrix of 16 MB.
pub(super) const PERMUTED_ROWS: usize = 1_000;

/// The kernel of all pairs of rows of both sides, summed over views; nothing on the diagonal.
struct KernelMatrix {
    values: Vec<f32>,
    /// Numbers from one row to the next.
    stride: usize,
    /// Rows of the sample; they come first.
    sample_rows: usize,
    /// Rows of the reference.
    reference_rows: usize,
    row_sums: Vec<f64>,
}

/// The share of exchanges, the one that was observed among them, that differ at least as much.
pub(super) fn p_value(sample: &ComparedRows, reference: &ComparedRows, draws: Draws) -> f64 {
    let matrix = KernelMatrix::new(sample, reference);
    let observed: Vec<usize> = (0..matrix.sample_rows).collect();
    let observed = matrix.discrepancy(&observed);
    let as_much = (0..draws.count)
        .into_par_iter()
        .filter(|draw| matrix.discrepancy(&draws.rows(*draw, &matrix)) >= observed)
        .count();
    (1 + as_much) as f64 / (1 + draws.count) as f64
}

/// How often rows are exchanged, and the seed that says which.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draws {
    pub(super) count: usize,
    pub(super) seed: u64,
}

impl Draws {
    /// The rows that make up the sample in one draw. Every draw has a random stream of its own, so that
    /// it does not matter which thread takes it.
    fn rows(self, draw: usize, matrix: &KernelMatrix) -> Vec<usize> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(draw as u64 + 1);
        let mut rows: Vec<usize> = (0..matrix.sample_rows + matrix.reference_rows).collect();
        let (chosen, _) = rows.partial_shuffle(&mut random, matrix.sample_rows);
        chosen.to_vec()
    }
}

impl KernelMatrix {
    fn new(sample: &ComparedRows, reference: &ComparedRows) -> KernelMatrix {
        let (sample_rows, reference_rows) =
            (sample.held(PERMUTED_ROWS), reference.held(PERMUTED_ROWS));
        let stride = (sample_rows + reference_rows).next_multiple_of(LANES);
        let mut values = vec![0.0; (sample_rows + reference_rows) * stride];
        for (view, settings) in sample.views.list.iter().enumerate() {
            let dimension = settings.kernel.dimension;
            let mut points = sample.points(view)[..sample_rows * dimension].to_vec();
            points.extend(&reference.points(view)[..reference_rows * dimension]);
            let prepared = settings.kernel.prepare(&points);
            let rows = values.par_chunks_exact_mut(stride).zip(prepared.points());
            rows.for_each(|(row, point)| {
                let lanes = row.as_chunks_mut::<LANES>().0;
                for (sums, group) in lanes.iter_mut().zip(prepared.packed.all()) {
                    add_kernel(sums, point, group);
                }
            });
        }
        (0..sample_rows + reference_rows).for_each(|row| values[row * stride + row] = 0.0);
        let all = vec![1.0; stride];
        let row_sums = values.par_chunks_exact(stride).map(|row| masked_sum(row, &all)).collect();
        KernelMatrix { values, stride, sample_rows, reference_rows, row_sums }
    }

    /// The sum over views of MMD², if these rows were the sample.
    fn discrepancy(&self, rows: &[usize]) -> f64 {
        let mut mask = vec![0.0; self.stride];
        rows.iter().for_each(|row| mask[*row] = 1.0);
        let chosen = |row: &usize| *row < self.row_sums.len() && mask[*row] > 0.0;
        // In the order of the matrix, so that the same rows give the same bits however they were drawn.
        let (mut within, mut from) = (0.0, 0.0);
        for row in (0..self.stride).filter(chosen) {
            within += masked_sum(&self.values[row * self.stride..][..self.stride], &mask);
            from += self.row_sums[row];
        }
        let between = from - within;
        let others_within = self.row_sums.iter().sum::<f64>() - within - 2.0 * between;
        let (sample_rows, reference_rows) = (self.sample_rows as f64, self.reference_rows as f64);
        within / (sample_rows * (sample_rows - 1.0))
            + others_within / (reference_rows * (reference_rows - 1.0))
            - 2.0 * between / (sample_rows * reference_rows)
    }
}

/// The sum of a row of the matrix where a mask is one.
fn masked_sum(row: &[f32], mask: &[f32]) -> f64 {
    let mut sums = [0.0; LANES];
    for (values, mask) in row.as_chunks::<LANES>().0.iter().zip(mask.as_chunks::<LANES>().0) {
        for (sum, (value, factor)) in sums.iter_mut().zip(values.iter().zip(mask)) {
            *sum += value * factor;
        }
    }
    total(&sums)
}
