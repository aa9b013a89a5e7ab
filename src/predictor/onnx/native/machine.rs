//! What turns cells into scores: trees or a linear function, in single or double precision.

use super::linear::Linear;
use super::trees::{Forest, ForestSums, Lanes, Real};

/// A model of either precision.
#[derive(Debug)]
pub(super) enum Machine {
    Single(TypedModel<f32>),
    Double(TypedModel<f64>),
}

/// Trees or a linear function.
#[derive(Debug)]
pub(super) enum TypedModel<T: Real> {
    Trees(Forest<T>),
    Linear(Linear<T>),
}

/// Bytes of trees above which more rows visit a tree before the next one: they are read from memory each time.
const LARGE: usize = 1 << 20;
/// Cells of a row above which that many rows would take too much memory.
const WIDE: usize = 256;

impl<T: Real> TypedModel<T> {
    /// Which cells a tile holds: behind a first one that is a NaN, these of the given ones, negated or not.
    pub(super) fn looks(&self) -> &[(u32, bool)] {
        match self {
            TypedModel::Trees(forest) => forest.looks(),
            TypedModel::Linear(linear) => linear.looks(),
        }
    }

    /// Cells of a tile.
    pub(super) fn stride(&self) -> usize {
        match self {
            TypedModel::Trees(forest) => forest.stride(),
            TypedModel::Linear(linear) => linear.looks().len() + 1,
        }
    }

    /// Scores per row.
    pub(super) fn outputs(&self) -> usize {
        match self {
            TypedModel::Trees(forest) => forest.outputs(),
            TypedModel::Linear(linear) => linear.outputs(),
        }
    }

    /// Rows that are best scored at once.
    pub(super) fn rows(&self) -> usize {
        match self {
            TypedModel::Trees(forest) if forest.size() > LARGE && forest.stride() <= WIDE => 2048,
            _ => 256,
        }
    }

    /// Scores the rows of these tiles; `write` is given a row's position, its scores and its label.
    pub(super) fn score(
        &self,
        tiles: &[Lanes<T>],
        sums: &mut ForestSums<T>,
        rows: usize,
        write: impl FnMut(usize, &[T], u32),
    ) {
        match self {
            TypedModel::Trees(forest) => forest.score(tiles, sums, rows, write),
            TypedModel::Linear(linear) => linear.score(tiles, rows, write),
        }
    }
}
