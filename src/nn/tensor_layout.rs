//! Where features stand in an encoded row, for tensors: numerics first, then null indicators, then the
//! blocks of the categoricals. Blocks of different widths are padded to one, so that a softmax or an
//! argmax over all of them is one operation however many there are.

use tch::{Device, Kind, Tensor};

use crate::constrain::NumericRange;
use crate::encode::{Layout, Slots};

/// Stands for the logit of a slot that does not exist.
pub(super) const ABSENT_LOGIT: f64 = -1e30;

/// Slots of an encoded row, and of the conditioning vector that goes with it.
#[derive(Debug)]
pub struct TensorLayout {
    /// Numeric features.
    pub numerics: i64,
    /// Categorical features.
    pub blocks: i64,
    /// First slot of the first block.
    first: i64,
    /// Slots of all blocks together.
    pub block_slots: i64,
    /// Slots of the widest block.
    widest: i64,
    /// blocks × widest: which slot of the blocks stands there; one beyond the last where none does.
    padding: Tensor,
    /// Per slot of the blocks: where it stands in the padded ones.
    unpadding: Tensor,
    /// Ends of the numerics' ranges, standardised.
    low: Tensor,
    high: Tensor,
}

impl TensorLayout {
    /// A copy for another thread.
    pub fn replica(&self) -> TensorLayout {
        TensorLayout {
            padding: self.padding.copy(),
            unpadding: self.unpadding.copy(),
            low: self.low.copy(),
            high: self.high.copy(),
            ..*self
        }
    }

    /// The slots of a layout.
    pub fn new(layout: &Layout, ranges: &[NumericRange], device: Device) -> TensorLayout {
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
        let block_slots: i64 = blocks.iter().map(|(_, width)| width).sum();
        let first = layout.width as i64 - block_slots;
        let widest = blocks.iter().map(|(_, width)| *width).max().unwrap_or(0);
        let padded = |(start, width): &(i64, i64)| {
            let (start, width) = (*start - first, *width);
            (0..widest).map(move |slot| if slot < width { start + slot } else { block_slots })
        };
        let padding: Vec<i64> = blocks.iter().flat_map(padded).collect();
        let unpadding = |(block, (_, width)): (usize, &(i64, i64))| {
            (0..*width).map(move |slot| block as i64 * widest + slot)
        };
        let unpadding: Vec<i64> = blocks.iter().enumerate().flat_map(unpadding).collect();
        let row = |values: Vec<f32>| Tensor::from_slice(&values).to_device(device);
        TensorLayout {
            numerics,
            blocks: blocks.len() as i64,
            first,
            block_slots,
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

    /// The slots of all blocks.
    pub fn blocks_of(&self, rows: &Tensor) -> Tensor {
        rows.narrow(1, self.first, self.block_slots)
    }

    /// rows × blocks × widest, `fill` where a block has no such slot.
    pub fn padded(&self, slots: &Tensor, fill: f64) -> Tensor {
        let padded = slots.pad([0, 1], "constant", fill).index_select(1, &self.padding);
        padded.view([-1, self.blocks, self.widest])
    }

    /// Logits of the blocks, padded with what no softmax and no argmax picks.
    pub fn logits(&self, rows: &Tensor) -> Tensor {
        self.padded(&self.blocks_of(rows), ABSENT_LOGIT)
    }

    /// The slots of all blocks, of what was padded.
    fn unpadded(&self, padded: &Tensor) -> Tensor {
        padded.reshape([-1, self.blocks * self.widest]).index_select(1, &self.unpadding)
    }

    /// Probabilities of the blocks' slots; none without blocks.
    pub fn shares(&self, decoded: &Tensor) -> Tensor {
        if self.blocks == 0 {
            return self.blocks_of(decoded);
        }
        self.unpadded(&self.logits(decoded).softmax(-1, Kind::Float))
    }

    /// The padded one-hots of encoded rows.
    pub fn one_hots(&self, rows: &Tensor) -> Tensor {
        self.padded(&self.blocks_of(rows), 0.0)
    }

    /// pp(d, c) on tensors: numerics clipped, the most probable allowed slot of each block. Types and
    /// steps are left to the real post-processing. Numerics pass their gradient where they are not
    /// clipped, the chosen slot of a block passes that of its probability among the allowed.
    pub fn post_process(&self, decoded: &Tensor, rows: &Tensor, conditions: &Tensor) -> Tensor {
        let mut parts = Vec::new();
        if self.numerics > 0 {
            parts.push(self.clipped(decoded, rows, conditions));
        }
        // Null indicators stay what they are.
        parts.push(rows.narrow(1, self.numerics, self.first - self.numerics));
        if self.blocks > 0 {
            let masks = conditions.narrow(1, 2 * self.numerics, self.block_slots);
            let allowed = self.blocks_of(decoded) + (masks - 1.0) * -ABSENT_LOGIT;
            let chosen = through(&self.padded(&allowed, 2.0 * ABSENT_LOGIT), self.widest);
            parts.push(self.unpadded(&chosen));
        }
        Tensor::cat(&parts, 1)
    }

    fn clipped(&self, decoded: &Tensor, rows: &Tensor, conditions: &Tensor) -> Tensor {
        let original = self.numerics_of(rows);
        let range = &self.high - &self.low;
        let bounds = conditions.narrow(1, 0, 2 * self.numerics).view([-1, self.numerics, 2]);
        let low = &original + bounds.select(2, 0) * &range;
        let high = &original + bounds.select(2, 1) * &range;
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use tch::Tensor;

    use super::*;
    use crate::constrain::{Constraints, RowBounds};
    use crate::encode::{Dense, Encoder};
    use crate::feature::{Cells, FeatureSchema, Rows, StatsAccumulator};

    const SCHEMA: &str = r#"
        [[feature]]
        name = "a"
        kind = "numeric"
        range = [-1.0, 1.5]
        [[feature]]
        name = "b"
        kind = "categorical"
        values = ["x", "y", "z"]
        [[feature]]
        name = "c"
        kind = "numeric"
        range = [0.0, 40.0]
        change = "increase"
        [[feature]]
        name = "d"
        kind = "categorical"
        values = ["u", "v", "w", "q", "r"]
        [[feature]]
        name = "e"
        kind = "categorical"
        values = ["m", "n"]
        change = "never"
    "#;

    fn table() -> Schema {
        let types = [
            ("a", DataType::Float64),
            ("b", DataType::Utf8),
            ("c", DataType::Float64),
            ("d", DataType::Utf8),
            ("e", DataType::Utf8),
        ];
        Schema::new(types.map(|(name, data_type)| Field::new(name, data_type, false)).to_vec())
    }

    fn rows(count: usize, random: &mut ChaCha8Rng) -> Rows {
        let mut numbers = |low: f64, high: f64| {
            Cells::Numbers((0..count).map(|_| random.random_range(low..high)).collect())
        };
        let (a, c) = (numbers(-1.0, 1.5), numbers(0.0, 40.0));
        let mut codes =
            |most: u32| Cells::Codes((0..count).map(|_| random.random_range(0..most)).collect());
        Rows { len: count, cells: vec![a, codes(3), c, codes(5), codes(2)] }
    }

    /// On features without types and steps the two post-processings must agree.
    #[test]
    fn tensors_are_post_processed_as_rows_are() {
        let schema = Arc::new(FeatureSchema::parse(SCHEMA, Path::new("f.toml")).expect("a schema"));
        let stats = StatsAccumulator::new(&schema).finish();
        let encoder = Encoder::new(Arc::clone(&schema), &stats);
        let layout = Arc::clone(encoder.layout());
        let constraints = Constraints::new(schema, &stats, Arc::clone(&layout), &table());
        let tensor_layout = TensorLayout::new(&layout, constraints.numeric_ranges(), Device::Cpu);
        let random = &mut ChaCha8Rng::seed_from_u64(5);
        let rows = rows(500, random);
        let encoded = encoder.encode_rows(&rows);
        let bounds = RowBounds::none();
        let conditions = constraints.draw(&constraints.widest(&rows, &bounds), &rows, random);
        let noise = |value: &f32| value + random.random_range(-3.0f32..3.0);
        let values: Vec<f32> = encoded.values.iter().map(noise).collect();
        let decoded = Dense { values, ..encoded.clone() };
        let settled = constraints.post_process(&decoded, &rows, &conditions, &bounds);
        let expected = encoder.encode_rows(&settled);

        let tensor =
            |values: &[f32], width: usize| Tensor::from_slice(values).view([-1, width as i64]);
        let found = tensor_layout.post_process(
            &tensor(&decoded.values, layout.width),
            &tensor(&encoded.values, layout.width),
            &tensor(&conditions.values, conditions.width),
        );
        let found = crate::nn::to_numbers(&found).expect("numbers");
        for (slot, (found, expected)) in found.iter().zip(&expected.values).enumerate() {
            assert!((found - expected).abs() < 1e-4, "{slot}: {found} instead of {expected}");
        }
    }

    #[test]
    fn a_choice_passes_the_gradient_of_its_probability() {
        let logits =
            Tensor::from_slice(&[1.0f32, 2.0, 0.5]).view([1, 1, 3]).set_requires_grad(true);
        let chosen = through(&logits, 3);
        assert_eq!(Vec::<f32>::try_from(chosen.reshape([-1])).expect("numbers"), [0.0, 1.0, 0.0]);
        let loss = chosen.select(2, 0).sum(Kind::Float);
        let gradient = &Tensor::run_backward(&[loss], &[&logits], false, false)[0];
        let shares = logits.detach().softmax(-1, Kind::Float);
        let share = |slot| shares.double_value(&[0, 0, slot]);
        let expected = [share(0) * (1.0 - share(0)), -share(0) * share(1), -share(0) * share(2)];
        for (slot, expected) in expected.iter().enumerate() {
            assert!((gradient.double_value(&[0, 0, slot as i64]) - expected).abs() < 1e-6);
        }
    }
}
