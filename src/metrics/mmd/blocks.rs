//! How certain an MMD² is: both sides are cut into blocks, and the estimates from pairs of blocks say how
//! much estimates scatter. What is estimated from all rows scatters less than the mean of the blocks, so
//! the interval is on the wide side.

use rayon::prelude::*;

use super::exact::discrepancy;
use super::sample::ComparedRows;
use super::summary::mean_and_std;
use crate::metrics::wilson::Interval;

/// Blocks if there are rows enough: a standard deviation needs some thirty numbers.
const BLOCKS: usize = 30;
/// Fewest rows of a block: an unbiased estimate from fewer says almost nothing.
const FEWEST_ROWS: usize = 5;
/// Most rows of a block: bounds the time that the interval takes.
const MOST_ROWS: usize = 500;
/// Rows at the front of a side that blocks are cut from.
pub(super) const BLOCK_ROWS: usize = BLOCKS * MOST_ROWS;
/// A normal distribution has 95 % of its mass within so many standard deviations.
const NORMAL_95: f64 = 1.96;

/// The 95 % interval around an estimate; none if there are too few rows for two blocks.
pub(super) fn interval(
    mmd2: f64,
    sample: &ComparedRows,
    reference: &ComparedRows,
) -> Option<Interval> {
    let rows = sample.held(BLOCK_ROWS).min(reference.held(BLOCK_ROWS));
    let blocks = (rows / FEWEST_ROWS).min(BLOCKS);
    if blocks < 2 {
        return None;
    }
    let values: Vec<f64> = (0..blocks)
        .into_par_iter()
        .map(|block| {
            let views = sample.views.list.len();
            let cut = Cut { block, blocks };
            let values: f64 = (0..views).map(|view| cut.compare(view, sample, reference)).sum();
            values / views as f64
        })
        .collect();
    let (_, std) = mean_and_std(&values);
    let half = NORMAL_95 * std / (blocks as f64).sqrt();
    Some(Interval { low: mmd2 - half, high: mmd2 + half })
}

/// One of some blocks.
#[derive(Debug, Clone, Copy)]
struct Cut {
    block: usize,
    blocks: usize,
}

impl Cut {
    fn compare(self, view: usize, sample: &ComparedRows, reference: &ComparedRows) -> f64 {
        let kernel = sample.views.list[view].kernel;
        let prepared = kernel.prepare(self.points(view, sample));
        let other = kernel.prepare(self.points(view, reference));
        discrepancy(&prepared, &other, other.mean_within())
    }

    fn points(self, view: usize, side: &ComparedRows) -> &[f32] {
        let rows = side.held(BLOCK_ROWS) / self.blocks;
        let length = rows * side.views.list[view].kernel.dimension;
        &side.points(view)[self.block * length..][..length]
    }
}
