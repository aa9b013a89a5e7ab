//! Tables → numbers: rows to [`Dense`] (row-major `f32`), the plain memory that tensors begin with. The
//! way back is a choice among what a row's constraints allow, and made where those are known.

mod layout;

use std::sync::Arc;

use arrow::array::RecordBatch;
use rayon::prelude::*;

use crate::error::Result;
use crate::feature::{Cells, FeatureSchema, PARALLEL_ROWS, RowReader, Rows, Stats};

pub use layout::{CategoricalSlots, Layout, NumericSlots, Slots};

/// Rows written at a time: a block of a usual width stays in the second-level cache, although every
/// column strides through it.
const BLOCK_ROWS: usize = 1024;

/// Encoded rows: row-major, finite, `width` numbers each.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense {
    /// Number of rows.
    pub rows: usize,
    /// Numbers per row.
    pub width: usize,
    /// `rows × width` numbers.
    pub values: Vec<f32>,
    /// What they mean.
    pub layout: Arc<Layout>,
}

impl Dense {
    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..(row + 1) * self.width]
    }
}

/// Encodes the features of one schema with one set of statistics.
#[derive(Debug, Clone)]
pub struct Encoder {
    reader: RowReader,
    layout: Arc<Layout>,
}

impl Encoder {
    /// An encoder that standardises by the given statistics.
    pub fn new(schema: Arc<FeatureSchema>, stats: &Stats) -> Encoder {
        let layout = Arc::new(Layout::new(&schema, stats));
        Encoder { reader: RowReader::new(&schema), layout }
    }

    /// What the numbers of a row mean.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Encodes a batch whose columns are the schema's features, in order, already validated by the
    /// schema's policies.
    pub fn encode(&self, batch: &RecordBatch) -> Result<Dense> {
        Ok(self.encode_rows(&self.reader.read(batch)?))
    }

    /// Encodes rows of the schema.
    pub fn encode_rows(&self, rows: &Rows) -> Dense {
        let width = self.layout.width;
        let mut values = vec![0f32; rows.len * width];
        let write = |(block, target): (usize, &mut [f32])| {
            for (cells, slots) in rows.cells.iter().zip(&self.layout.slots) {
                slots.write(cells, block * BLOCK_ROWS, target, width);
            }
        };
        let block = BLOCK_ROWS * width;
        if rows.len >= PARALLEL_ROWS {
            values.par_chunks_mut(block).enumerate().for_each(write);
        } else {
            values.chunks_mut(block).enumerate().for_each(write);
        }
        Dense { rows: rows.len, width, values, layout: Arc::clone(&self.layout) }
    }
}

impl Slots {
    /// Writes a column's cells of the rows from `first` on into a block of rows of zeros.
    fn write(&self, cells: &Cells, first: usize, block: &mut [f32], width: usize) {
        let rows = first..first + block.len() / width;
        match (self, cells) {
            (Slots::Numeric(slots), Cells::Numbers(numbers)) => {
                write_numbers(&numbers[rows], slots, block, width);
            }
            (Slots::Categorical(slots), Cells::Codes(codes)) => {
                write_codes(&codes[rows], slots, block, width);
            }
            _ => unreachable!("rows and layout are of one schema"),
        }
    }
}

fn write_numbers(cells: &[f64], slots: &NumericSlots, block: &mut [f32], width: usize) {
    for (row, cell) in block.chunks_exact_mut(width).zip(cells) {
        let value = slots.standardised(*cell);
        // A null stays at zero, the mean.
        row[slots.value] = if value.is_nan() { 0.0 } else { value };
    }
    if let Some(null) = slots.null {
        for (row, cell) in block.chunks_exact_mut(width).zip(cells) {
            row[null] = f32::from(u8::from(cell.is_nan()));
        }
    }
}

fn write_codes(codes: &[u32], slots: &CategoricalSlots, block: &mut [f32], width: usize) {
    for (row, code) in block.chunks_exact_mut(width).zip(codes) {
        if let Some(slot) = slots.slot(*code) {
            row[slot] = 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};

    use super::*;
    use crate::feature::StatsAccumulator;

    const SCHEMA: &str = r#"
        [[feature]]
        name = "amount"
        kind = "numeric"
        nulls = "carry"
        [[feature]]
        name = "job"
        kind = "categorical"
        values = ["clerk", "smith", "judge"]
        nulls = "carry"
        unseen = "carry"
        [[feature]]
        name = "age"
        kind = "numeric"
    "#;

    #[test]
    fn rows_are_laid_out_numerics_first() {
        let columns: [(&str, ArrayRef); 3] = [
            ("amount", Arc::new(Float64Array::from(vec![Some(1.0), Some(3.0), None]))),
            ("job", Arc::new(StringArray::from(vec![Some("smith"), None, Some("x")]))),
            ("age", Arc::new(Int64Array::from(vec![30, 50, 40]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("a good batch");
        let schema = FeatureSchema::parse(SCHEMA, Path::new("f.toml")).expect("a good schema");
        let mut stats = StatsAccumulator::new(&schema);
        stats.update(&batch).expect("counted");
        let dense = Encoder::new(Arc::new(schema), &stats.finish()).encode(&batch).expect("dense");
        assert_eq!(dense.width, 2 + 1 + 5);
        let high = 10.0 / (200f32 / 3.0).sqrt();
        let expected: [[f32; 8]; 3] = [
            [-1.0, -high, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
            [1.0, high, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        ];
        for (row, expected) in expected.iter().enumerate() {
            for (found, expected) in dense.row(row).iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "row {row}: {:?}", dense.row(row));
            }
        }
    }
}
