//! What is known of the rows of a node without looking at them: the box around them.

use std::ops::Range;

use super::{PointColumn, Points};

/// The most words of a set of states. States beyond share bits, and a shared bit stands for all of its
/// states.
pub(super) const MOST_WORDS: usize = 4;

/// A code as an index: 0 is the unlisted value, 1 the null, then the listed values.
#[inline]
pub(super) fn state(code: u16) -> usize {
    usize::from(code.wrapping_add(2))
}

/// Bits of a word.
pub(super) const BITS: usize = u64::BITS as usize;

/// A state's bit in a set of so many words.
pub(super) fn bit(state: usize, words: usize) -> usize {
    state % (words * BITS)
}

/// Where a feature stands in a box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BoxSide {
    /// Which of the sides.
    Number(usize),
    /// The first of its words and how many they are, and how many states the column has.
    Codes { first: usize, words: usize, states: usize },
}

/// Where the numbers of a node lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    /// Infinity if there are only nulls.
    pub(super) low: f32,
    /// Minus infinity if there are only nulls.
    pub(super) high: f32,
    pub(super) nulls: bool,
}

/// Around no rows.
const NO_SIDE: Side = Side { low: f32::INFINITY, high: f32::NEG_INFINITY, nulls: false };
const NO_DECISIONS: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

impl Side {
    /// Around this and another.
    fn around(self, other: Side) -> Side {
        Side {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            nulls: self.nulls || other.nulls,
        }
    }

    fn of(number: f32) -> Side {
        match number.is_nan() {
            true => Side { nulls: true, ..NO_SIDE },
            false => Side { low: number, high: number, nulls: false },
        }
    }
}

/// The boxes of all nodes. All that belongs to one node stands together.
#[derive(Debug, Clone)]
pub(super) struct Boxes {
    slots: Vec<BoxSide>,
    /// Numeric features, and words of categorical ones.
    numbers: usize,
    words: usize,
    sides: Vec<Side>,
    sets: Vec<u64>,
    /// Lowest and highest decision.
    decisions: Vec<(f64, f64)>,
}

impl Boxes {
    /// Boxes for so many nodes, around nothing yet.
    pub(super) fn new(points: &Points, nodes: usize) -> Boxes {
        let (mut numbers, mut words) = (0, 0);
        let mut slots = Vec::with_capacity(points.columns.len());
        for column in &points.columns {
            match column {
                PointColumn::Numbers(_) => {
                    slots.push(BoxSide::Number(numbers));
                    numbers += 1;
                }
                PointColumn::Codes(codes) => {
                    let states = codes.iter().map(|code| state(*code) + 1).max().unwrap_or(1);
                    let original = states.div_ceil(BITS).min(MOST_WORDS);
                    slots.push(BoxSide::Codes { first: words, words: original, states });
                    words += original;
                }
            }
        }
        Boxes {
            slots,
            numbers,
            words,
            sides: vec![NO_SIDE; nodes * numbers],
            sets: vec![0; nodes * words],
            decisions: vec![NO_DECISIONS; nodes],
        }
    }

    /// Where the features stand, in the schema's order.
    pub(super) fn slots(&self) -> &[BoxSide] {
        &self.slots
    }

    /// The sides of a node.
    pub(super) fn sides(&self, node: usize) -> &[Side] {
        &self.sides[node * self.numbers..][..self.numbers]
    }

    /// The sets of a node, all words of all features.
    pub(super) fn sets(&self, node: usize) -> &[u64] {
        &self.sets[node * self.words..][..self.words]
    }

    /// Lowest and highest decision of a node.
    pub(super) fn decisions(&self, node: usize) -> (f64, f64) {
        self.decisions[node]
    }

    /// Makes a node's box that of the rows at some places.
    pub(super) fn enclose_rows(&mut self, node: usize, points: &Points, positions: Range<usize>) {
        for (slot, column) in self.slots.iter().zip(&points.columns) {
            match (slot, column) {
                (BoxSide::Number(number), PointColumn::Numbers(values)) => {
                    let sides = values[positions.clone()].iter().copied().map(Side::of);
                    self.sides[node * self.numbers + number] = sides.fold(NO_SIDE, Side::around);
                }
                (BoxSide::Codes { first, words, .. }, PointColumn::Codes(codes)) => {
                    for code in &codes[positions.clone()] {
                        let bit = bit(state(*code), *words);
                        self.sets[node * self.words + first + bit / BITS] |= 1 << (bit % BITS);
                    }
                }
                _ => unreachable!("slots are made from the columns"),
            }
        }
        let decisions = points.decisions[positions].iter();
        self.decisions[node] =
            decisions.fold(NO_DECISIONS, |(low, high), value| (low.min(*value), high.max(*value)));
    }

    /// Makes a node's box that around two others.
    pub(super) fn enclose_boxes(&mut self, node: usize, halves: [usize; 2]) {
        let [one, other] = halves;
        for number in 0..self.numbers {
            let side = |node: usize| self.sides[node * self.numbers + number];
            self.sides[node * self.numbers + number] = side(one).around(side(other));
        }
        for word in 0..self.words {
            let set = |node: usize| self.sets[node * self.words + word];
            self.sets[node * self.words + word] = set(one) | set(other);
        }
        let ((low, high), (lower, higher)) = (self.decisions[one], self.decisions[other]);
        self.decisions[node] = (low.min(lower), high.max(higher));
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<BoxSide>()
            + self.sides.capacity() * size_of::<Side>()
            + self.sets.capacity() * size_of::<u64>()
            + self.decisions.capacity() * size_of::<(f64, f64)>()
    }
}
