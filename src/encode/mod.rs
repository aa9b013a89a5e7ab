//! Tables ↔ numbers: `RecordBatch` in the table's own types to [`Dense`] (row-major `f32`) and back.
//! Arrow ends here; tensors begin in `nn`; `Dense` is the plain memory between them.

mod decode;
mod layout;

use std::sync::Arc;

use arrow::array::{Array, Float64Array, RecordBatch};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::feature::{
    CategoryIndex, FeatureKind, FeatureSchema, NULL_CODE, Stats, UNSEEN_CODE, numbers,
};

pub use layout::{CategoricalSlots, Layout, NumericSlots, Slots};

/// Rows written at a time: a block of a usual width stays in the second-level cache, although every
/// column strides through it.
const BLOCK_ROWS: usize = 1024;

/// Below this many rows a batch is encoded on the caller's thread. Engine batches are smaller and their
/// partitions already use every core; whole training tables are larger.
const PARALLEL_ROWS: usize = 65_536;

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

/// Encodes and decodes the features of one schema with one set of statistics.
#[derive(Debug, Clone)]
pub struct Encoder {
    schema: Arc<FeatureSchema>,
    layout: Arc<Layout>,
    indexes: Vec<Option<CategoryIndex>>,
}

/// One column, read once, ready to be written into rows.
enum Cells<'a> {
    Numbers { values: Float64Array, slots: &'a NumericSlots },
    Codes { codes: Vec<u32>, slots: &'a CategoricalSlots },
}

impl Encoder {
    /// An encoder that standardises by the given statistics.
    pub fn new(schema: Arc<FeatureSchema>, stats: &Stats) -> Encoder {
        let layout = Arc::new(Layout::new(&schema, stats));
        let index = |kind: &FeatureKind| match kind {
            FeatureKind::Numeric(_) => None,
            FeatureKind::Categorical(categorical) => Some(CategoryIndex::new(&categorical.values)),
        };
        let indexes = schema.features.iter().map(|feature| index(&feature.kind)).collect();
        Encoder { schema, layout, indexes }
    }

    /// What the numbers of a row mean.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Encodes a batch whose columns are the schema's features, in order, already admitted by the
    /// schema's policies.
    pub fn encode(&self, batch: &RecordBatch) -> Result<Dense> {
        let cells = self.cells(batch)?;
        let (rows, width) = (batch.num_rows(), self.layout.width);
        let mut values = vec![0f32; rows * width];
        let write = |(block, target): (usize, &mut [f32])| {
            for cells in &cells {
                cells.write(block * BLOCK_ROWS, target, width);
            }
        };
        let block = BLOCK_ROWS * width;
        if rows >= PARALLEL_ROWS {
            values.par_chunks_mut(block).enumerate().for_each(write);
        } else {
            values.chunks_mut(block).enumerate().for_each(write);
        }
        Ok(Dense { rows, width, values, layout: Arc::clone(&self.layout) })
    }

    fn cells<'a>(&'a self, batch: &RecordBatch) -> Result<Vec<Cells<'a>>> {
        let columns = batch.columns().par_iter().zip(&self.layout.slots).zip(&self.indexes);
        let read = |((column, slots), index): ((&_, &'a Slots), &Option<CategoryIndex>)| match (
            slots, index,
        ) {
            (Slots::Numeric(slots), _) => Ok(Cells::Numbers { values: numbers(column)?, slots }),
            (Slots::Categorical(slots), Some(index)) => {
                Ok(Cells::Codes { codes: index.codes(column)?, slots })
            }
            (Slots::Categorical(_), None) => {
                Err(Error::internal("encoding", "a categorical feature has no index"))
            }
        };
        if batch.num_rows() >= PARALLEL_ROWS {
            columns.map(read).collect()
        } else {
            let columns = batch.columns().iter().zip(&self.layout.slots).zip(&self.indexes);
            columns.map(read).collect()
        }
    }
}

impl Cells<'_> {
    /// Writes this column's cells of the rows from `first` on into a block of rows of zeros.
    fn write(&self, first: usize, block: &mut [f32], width: usize) {
        let rows = block.len() / width;
        match self {
            Cells::Numbers { values, slots } => {
                let cells = &values.values()[first..first + rows];
                if values.null_count() == 0 && slots.null.is_none() {
                    write_numbers(cells, slots, block, width);
                } else {
                    let nulls = |row| values.is_null(first + row);
                    write_nullable(cells, nulls, slots, block, width);
                }
            }
            Cells::Codes { codes, slots } => {
                for (row, code) in block.chunks_exact_mut(width).zip(&codes[first..first + rows]) {
                    if let Some(slot) = slots.slot(*code) {
                        row[slot] = 1.0;
                    }
                }
            }
        }
    }
}

fn write_numbers(cells: &[f64], slots: &NumericSlots, block: &mut [f32], width: usize) {
    let (mean, scale) = (slots.mean, 1.0 / slots.std);
    for (row, cell) in block.chunks_exact_mut(width).zip(cells) {
        row[slots.value] = ((cell - mean) * scale) as f32;
    }
}

fn write_nullable(
    cells: &[f64],
    null: impl Fn(usize) -> bool,
    slots: &NumericSlots,
    block: &mut [f32],
    width: usize,
) {
    for (index, (row, cell)) in block.chunks_exact_mut(width).zip(cells).enumerate() {
        if null(index) || cell.is_nan() {
            // The value stays at zero, the mean.
            if let Some(slot) = slots.null {
                row[slot] = 1.0;
            }
        } else {
            row[slots.value] = ((cell - slots.mean) / slots.std) as f32;
        }
    }
}

impl CategoricalSlots {
    /// Where the one of a code goes; none for a state that the layout does not carry.
    fn slot(&self, code: u32) -> Option<usize> {
        match code {
            NULL_CODE => self.null,
            UNSEEN_CODE => self.unseen,
            code => Some(self.first + code as usize),
        }
    }
}
