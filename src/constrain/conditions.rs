//! The conditioning vector c: per numeric feature how far it may move down and up, in units of its range;
//! per categorical feature a mask of what it may become.

use std::ops::Range;

use rand::Rng;

/// Conditions of some rows, row-major. See [`super::Constraints::width`] for what a row holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// Number of rows.
    pub rows: usize,
    /// Numbers per row.
    pub width: usize,
    /// `rows × width` numbers.
    pub values: Vec<f32>,
}

/// The conditions of a stretch of rows.
pub(super) struct ConditionBlock<'a> {
    first: usize,
    width: usize,
    values: &'a mut [f32],
}

impl ConditionBlock<'_> {
    /// Each row's position and condition.
    pub(super) fn rows(&mut self) -> impl Iterator<Item = (usize, &mut [f32])> {
        (self.first..).zip(self.values.chunks_exact_mut(self.width))
    }
}

impl Conditions {
    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..(row + 1) * self.width]
    }

    /// The conditions of the rows at these positions, in this order.
    pub fn take(&self, rows: &[u32]) -> Conditions {
        let mut values = Vec::with_capacity(rows.len() * self.width);
        rows.iter().for_each(|row| values.extend_from_slice(self.row(*row as usize)));
        Conditions { rows: rows.len(), width: self.width, values }
    }

    /// A stretch of rows, to be written.
    pub(super) fn block(&mut self, rows: Range<usize>) -> ConditionBlock<'_> {
        let values = &mut self.values[rows.start * self.width..rows.end * self.width];
        ConditionBlock { first: rows.start, width: self.width, values }
    }

    /// Multiplies the first numbers of each row by draws from Beta(2, 2) and the others by coin throws.
    pub(super) fn narrow<R: Rng>(&mut self, numbers: usize, random: &mut R) {
        if self.width == 0 {
            return;
        }
        for row in self.values.chunks_exact_mut(self.width) {
            narrow_row(row, numbers, random);
        }
    }

    /// The same for one row.
    pub(super) fn narrow_at<R: Rng>(&mut self, row: usize, numbers: usize, random: &mut R) {
        narrow_row(&mut self.values[row * self.width..(row + 1) * self.width], numbers, random);
    }
}

fn narrow_row<R: Rng>(row: &mut [f32], numbers: usize, random: &mut R) {
    let (bounds, masks) = row.split_at_mut(numbers);
    // What may not move needs no draw.
    for bound in bounds.iter_mut().filter(|bound| **bound != 0.0) {
        *bound *= beta(random);
    }
    for slots in masks.chunks_mut(64) {
        let mut coins = random.next_u64();
        for slot in slots {
            *slot *= (coins & 1) as f32;
            coins >>= 1;
        }
    }
}

/// A draw from Beta(2, 2): the median of three uniform ones, which share the bits of one random number.
#[inline]
pub(super) fn beta<R: Rng>(random: &mut R) -> f32 {
    const BITS: u32 = 21;
    const SCALE: f32 = 1.0 / (1u32 << BITS) as f32;
    let bits = random.next_u64();
    let part = |index: u32| (bits >> (index * BITS)) as u32 & ((1 << BITS) - 1);
    let (a, b, c) = (part(0), part(1), part(2));
    let median = a.min(b).max(a.max(b).min(c));
    (median as f32 + 0.5) * SCALE
}
