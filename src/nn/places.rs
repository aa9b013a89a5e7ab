//! Where features stand in an encoded row, for tensors: numerics first, then null indicators, then the
//! blocks of the categoricals. Blocks of different widths are padded to one, so that a softmax or an
//! argmax over all of them is one operation however many there are.

use tch::{Device, Kind, Tensor};

use crate::constrain::NumericRange;
use crate::encode::{Layout, Slots};

/// Stands for the logit of a place that does not exist.
const NOWHERE: f64 = -1e30;

/// Places of an encoded row, and of the conditioning vector that goes with it.
#[derive(Debug)]
pub struct Places {
    /// Numeric features.
    pub numerics: i64,
    /// Categorical features.
    pub blocks: i64,
    /// First place of the first block.
    first: i64,
    /// Places of all blocks together.
    places: i64,
    /// Places of the widest block.
    widest: i64,
    /// blocks × widest: which place of the blocks stands there; one beyond the last where none does.
    padding: Tensor,
    /// Per place of the blocks: where it stands in the padded ones.
    unpadding: Tensor,
    /// Ends of the numerics' ranges, standardised.
    low: Tensor,
    high: Tensor,
}

impl Places {
    /// The places of a layout.
    pub fn new(layout: &Layout, ranges: &[NumericRange], device: Device) -> Places {
        let numerics = ranges.len() as i64;
        let blocks: Vec<(i64, i64)> = layout
            .slots
            .iter()
            .filter_map(|slots| match slots {
                Slots::Numeric(_) => None,
                Slots::Categorical(slots) => Some(slots.block()),
            })
            .map(|block| (block.start as i64, block.len() as i64))
            .collect();
        let places: i64 = blocks.iter().map(|(_, width)| width).sum();
        let first = layout.width as i64 - places;
        let widest = blocks.iter().map(|(_, width)| *width).max().unwrap_or(0);
        let padded = |(start, width): &(i64, i64)| {
            let (start, width) = (*start - first, *width);
            (0..widest).map(move |place| if place < width { start + place } else { places })
        };
        let padding: Vec<i64> = blocks.iter().flat_map(padded).collect();
        let unpadding = |(block, (_, width)): (usize, &(i64, i64))| {
            (0..*width).map(move |place| block as i64 * widest + place)
        };
        let unpadding: Vec<i64> = blocks.iter().enumerate().flat_map(unpadding).collect();
        let row = |values: Vec<f32>| Tensor::from_slice(&values).to_device(device);
        Places {
            numerics,
            blocks: blocks.len() as i64,
            first,
            places,
            widest,
            padding: Tensor::from_slice(&padding).to_device(device),
            unpadding: Tensor::from_slice(&unpadding).to_device(device),
            low: row(ranges.iter().map(|range| range.low).collect()),
            high: row(ranges.iter().map(|range| range.high).collect()),
        }
    }

    /// The numerics of encoded or decoded rows.
    pub fn numerics_of(&self, rows: &Tensor) -> Tensor {
        rows.narrow(1, 0, self.numerics)
    }

    /// The places of all blocks.
    pub fn blocks_of(&self, rows: &Tensor) -> Tensor {
        rows.narrow(1, self.first, self.places)
    }

    /// rows × blocks × widest, `fill` where a block has no such place.
    pub fn padded(&self, places: &Tensor, fill: f64) -> Tensor {
        let padded = places.pad([0, 1], "constant", fill).index_select(1, &self.padding);
        padded.view([-1, self.blocks, self.widest])
    }

    /// Logits of the blocks, padded with what no softmax and no argmax picks.
    pub fn logits(&self, rows: &Tensor) -> Tensor {
        self.padded(&self.blocks_of(rows), NOWHERE)
    }

    /// The padded one-hots of encoded rows.
    pub fn one_hots(&self, rows: &Tensor) -> Tensor {
        self.padded(&self.blocks_of(rows), 0.0)
    }

    /// pp(d, c) on tensors: numerics clipped, the most probable allowed place of each block. Types and
    /// steps are left to the real post-processing. Numerics pass their gradient where they are not
    /// clipped, the chosen place of a block passes that of its probability among the allowed.
    pub fn post_process(&self, decoded: &Tensor, rows: &Tensor, conditions: &Tensor) -> Tensor {
        let mut parts = Vec::new();
        if self.numerics > 0 {
            parts.push(self.clipped(decoded, rows, conditions));
        }
        // Null indicators stay what they are.
        parts.push(rows.narrow(1, self.numerics, self.first - self.numerics));
        if self.blocks > 0 {
            let masks = conditions.narrow(1, 2 * self.numerics, self.places);
            let allowed = self.blocks_of(decoded) + (masks - 1.0) * -NOWHERE;
            let chosen = through(&self.padded(&allowed, 2.0 * NOWHERE), self.widest);
            let chosen = chosen.view([-1, self.blocks * self.widest]);
            parts.push(chosen.index_select(1, &self.unpadding));
        }
        Tensor::cat(&parts, 1)
    }

    fn clipped(&self, decoded: &Tensor, rows: &Tensor, conditions: &Tensor) -> Tensor {
        let own = self.numerics_of(rows);
        let range = &self.high - &self.low;
        let bounds = conditions.narrow(1, 0, 2 * self.numerics).view([-1, self.numerics, 2]);
        let low = &own + bounds.select(2, 0) * &range;
        let high = &own + bounds.select(2, 1) * &range;
        let clipped = self.numerics_of(decoded).clamp_tensor(Some(&low), Some(&high));
        clipped.clamp_tensor(Some(&self.low), Some(&self.high))
    }
}

/// One-hots of the largest logits; with a gradient, that of the softmax.
fn through(logits: &Tensor, width: i64) -> Tensor {
    let hard = logits.argmax(-1, false).one_hot(width).to_kind(Kind::Float);
    if !logits.requires_grad() {
        return hard;
    }
    let soft = logits.softmax(-1, Kind::Float);
    hard + &soft - soft.detach()
}
