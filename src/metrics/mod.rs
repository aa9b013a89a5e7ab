//! How good counterfactuals are: how far each is from its row, in the paper's measures; counts, intervals
//! and quantiles that can be merged; and how like rows of the target class they are as a whole.

mod agreement;
mod inference;
pub mod mmd;
mod sketch;
mod status;
mod tally;
mod wilson;

use crate::encode::{Layout, Slots};
use crate::feature::{Cells, Rows};

pub use agreement::{AgreementCounts, PairCounts, Sizes};
pub use inference::{
    Contrast, Mean, Share, benjamini_yekutieli, compare_curves, compare_means, compare_shares,
    holm, recovered,
};
pub use mmd::{ComparedRows, Estimate, Estimator, MmdOptions, RandomEncoder, Reference, Space};
pub use sketch::Sketch;
pub use status::{Source, Status};
pub use tally::{
    DistanceSketches, FeatureChanges, GroupTally, MOST_SEGMENTS, NeededCounterfactuals,
    RobustCounts, RowCount, RowOutcomes, Segment, Tally,
};
pub use wilson::{Interval, score_interval, wilson};

/// Distances of some rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Distances {
    /// Changed categorical features ÷ categorical features.
    pub l0: Vec<f64>,
    /// Mean |Δ| over standardised numeric features.
    pub l1: Vec<f64>,
    /// Changed features.
    pub changed: Vec<u32>,
}

/// The farthest that one feature counts: sums over all features and rows are numbers still.
const FARTHEST: f64 = 1e280;

/// Distances between counterfactuals and the rows they were made from.
pub fn distances(counterfactuals: &Rows, originals: &Rows, layout: &Layout) -> Distances {
    let rows = originals.len;
    let mut found = Distances { l0: vec![0.0; rows], l1: vec![0.0; rows], changed: vec![0; rows] };
    let numerics = layout.slots.iter().filter(|slots| matches!(slots, Slots::Numeric(_))).count();
    let categoricals = layout.slots.len() - numerics;
    let cells = counterfactuals.cells.iter().zip(&originals.cells).zip(&layout.slots);
    for cells in cells {
        match cells {
            ((Cells::Numbers(new), Cells::Numbers(original)), Slots::Numeric(slots)) => {
                let scale = 1.0 / (slots.std * numerics as f64);
                for (row, (new, original)) in new.iter().zip(original).enumerate() {
                    let moved = (new - original).abs();
                    // A null has nothing to move from or to.
                    if moved > 0.0 {
                        found.l1[row] += (moved * scale).min(FARTHEST);
                        found.changed[row] += 1;
                    }
                }
            }
            ((Cells::Codes(new), Cells::Codes(original)), _) => {
                for (row, (new, original)) in new.iter().zip(original).enumerate() {
                    if new != original {
                        found.l0[row] += 1.0 / categoricals as f64;
                        found.changed[row] += 1;
                    }
                }
            }
            _ => {}
        }
    }
    found
}
