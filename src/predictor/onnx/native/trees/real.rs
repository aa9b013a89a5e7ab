//! The two types that trees compare and sum in.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use super::super::values::Value;

/// A real number of a tree ensemble.
pub(in super::super) trait Real:
    Copy
    + PartialOrd
    + Debug
    + Default
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Div<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + 'static
{
    const NAN: Self;
    const ONE: Self;
    /// The distance from 1 to the next number.
    const EPSILON: f64;
    /// Whether it is as wide as the words of masks.
    const SINGLE: bool;
    /// A node of a tree that is walked.
    type Node: Copy + Debug + Default + Send + Sync;

    /// What a cell is compared with (in a leaf its weight, or where its weights are), the cell, and where to go if it
    /// is not above; else to the one behind.
    fn node(threshold: Self, cell: u16, child: u16) -> Self::Node;
    fn threshold(node: Self::Node) -> Self;
    fn cell(node: Self::Node) -> usize;
    fn child(node: Self::Node) -> u32;

    /// A cell of this type.
    fn of(value: Value) -> Self;
    /// The number in this type, rounded once.
    fn rounded(number: f64) -> Self;
    fn from_single(number: f32) -> Self;
    fn single(self) -> f32;
    fn double(self) -> f64;
    /// The product with a number, plus another, rounded once.
    fn fused(self, by: Self, plus: Self) -> Self;
    /// The next lower number.
    fn below(self) -> Self;
    /// A small whole number in the bits of a real one, and back.
    fn from_leaf_index(leaf_index: u32) -> Self;
    fn leaf_index(self) -> u32;

    fn is_gap(self) -> bool {
        self.double().is_nan()
    }
}

impl Real for f32 {
    const NAN: f32 = f32::NAN;
    const ONE: f32 = 1.0;
    const EPSILON: f64 = f32::EPSILON as f64;
    const SINGLE: bool = true;
    /// The threshold's bits, 16 of the cell, 16 of the child.
    type Node = u64;

    fn node(threshold: f32, cell: u16, child: u16) -> u64 {
        u64::from(threshold.to_bits()) | u64::from(cell) << 32 | u64::from(child) << 48
    }

    #[inline(always)]
    fn threshold(node: u64) -> f32 {
        f32::from_bits(node as u32)
    }

    #[inline(always)]
    fn cell(node: u64) -> usize {
        usize::from((node >> 32) as u16)
    }

    #[inline(always)]
    fn child(node: u64) -> u32 {
        (node >> 48) as u32
    }

    fn of(value: Value) -> f32 {
        value.single()
    }

    fn rounded(number: f64) -> f32 {
        number as f32
    }

    fn from_single(number: f32) -> f32 {
        number
    }

    fn single(self) -> f32 {
        self
    }

    fn double(self) -> f64 {
        self.into()
    }

    #[inline(always)]
    fn fused(self, by: f32, plus: f32) -> f32 {
        self.mul_add(by, plus)
    }

    fn below(self) -> f32 {
        self.next_down()
    }

    fn from_leaf_index(leaf_index: u32) -> f32 {
        f32::from_bits(leaf_index)
    }

    fn leaf_index(self) -> u32 {
        self.to_bits()
    }
}

impl Real for f64 {
    const NAN: f64 = f64::NAN;
    const ONE: f64 = 1.0;
    const EPSILON: f64 = f64::EPSILON;
    const SINGLE: bool = false;
    type Node = (f64, u16, u16);

    fn node(threshold: f64, cell: u16, child: u16) -> (f64, u16, u16) {
        (threshold, cell, child)
    }

    #[inline(always)]
    fn threshold((threshold, _, _): (f64, u16, u16)) -> f64 {
        threshold
    }

    #[inline(always)]
    fn cell((_, cell, _): (f64, u16, u16)) -> usize {
        usize::from(cell)
    }

    #[inline(always)]
    fn child((_, _, child): (f64, u16, u16)) -> u32 {
        u32::from(child)
    }

    fn of(value: Value) -> f64 {
        value.real()
    }

    fn rounded(number: f64) -> f64 {
        number
    }

    fn from_single(number: f32) -> f64 {
        number.into()
    }

    fn single(self) -> f32 {
        self as f32
    }

    fn double(self) -> f64 {
        self
    }

    #[inline(always)]
    fn fused(self, by: f64, plus: f64) -> f64 {
        self.mul_add(by, plus)
    }

    fn below(self) -> f64 {
        self.next_down()
    }

    fn from_leaf_index(leaf_index: u32) -> f64 {
        f64::from_bits(leaf_index.into())
    }

    fn leaf_index(self) -> u32 {
        self.to_bits() as u32
    }
}
