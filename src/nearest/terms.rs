//! A query made ready: per feature the term of a row and the least term of a box.

use std::ops::Range;

use super::boxes::{BITS, BoxSide, Boxes, MOST_WORDS, Side, bit, state};
use super::{Measure, NearestQuery, PointColumn, Points};

/// A query's terms, in the schema's order.
#[derive(Debug)]
pub(super) struct Terms {
    terms: Vec<Term>,
    target: (f64, f64),
}

#[derive(Debug)]
enum Term {
    Number {
        slot: usize,
        number: NumberTerm,
    },
    /// The original value is a null.
    Null {
        slot: usize,
        outside: f32,
    },
    Codes {
        first: usize,
        words: usize,
        codes: CategoryTerm,
    },
}

impl Terms {
    /// A query's terms for boxes of that layout.
    pub(super) fn new(query: &NearestQuery, boxes: &Boxes) -> Terms {
        assert_eq!(query.features.len(), boxes.slots().len(), "a query measures every feature");
        let terms = query.features.iter().zip(boxes.slots());
        let terms = terms.map(|(measure, slot)| Term::new(measure, *slot)).collect();
        Terms { terms, target: query.target }
    }

    /// No row of the node is nearer than that. A sum above `limit` is not completed.
    pub(super) fn bound(&self, boxes: &Boxes, node: u32, limit: f32) -> f32 {
        let node = node as usize;
        let (low, high) = boxes.decisions(node);
        if low > self.target.1 || high < self.target.0 {
            return f32::INFINITY;
        }
        let (sides, sets) = (boxes.sides(node), boxes.sets(node));
        let mut sum = 0.0;
        for term in &self.terms {
            sum += term.least(sides, sets);
            if sum > limit {
                break;
            }
        }
        sum
    }

    /// Writes the distances of a leaf's rows. Once all are above `limit` they are not completed.
    pub(super) fn measure(&self, leaf: &IndexLeaf<'_>, limit: f32, sums: &mut [f32]) {
        self.start(leaf, sums);
        let sides = leaf.boxes.sides(leaf.node);
        for (term, column) in self.terms.iter().zip(&leaf.points.columns) {
            match (term, column) {
                (Term::Number { slot, number }, PointColumn::Numbers(values)) => {
                    number.add(&sides[*slot], &values[leaf.positions.clone()], sums);
                }
                (Term::Null { outside, .. }, PointColumn::Numbers(values)) => {
                    add_from_null(*outside, &values[leaf.positions.clone()], sums);
                }
                (Term::Codes { codes, .. }, PointColumn::Codes(values)) => {
                    codes.add(&values[leaf.positions.clone()], sums);
                }
                _ => unreachable!("terms are made for the columns"),
            }
            // Not `any`, which would stop at the first and so go one by one.
            if !sums.iter().fold(false, |near, sum| near | (*sum <= limit)) {
                return;
            }
        }
    }

    /// Nought for rows that count by their decision, infinity for the others.
    fn start(&self, leaf: &IndexLeaf<'_>, sums: &mut [f32]) {
        let (low, high) = leaf.boxes.decisions(leaf.node);
        if self.target.0 <= low && high <= self.target.1 {
            sums.fill(0.0);
            return;
        }
        for (sum, decision) in sums.iter_mut().zip(&leaf.points.decisions[leaf.positions.clone()]) {
            let counts = self.target.0 <= *decision && *decision <= self.target.1;
            *sum = if counts { 0.0 } else { f32::INFINITY };
        }
    }
}

/// A leaf and what it is a part of.
pub(super) struct IndexLeaf<'a> {
    pub(super) points: &'a Points,
    pub(super) boxes: &'a Boxes,
    pub(super) node: usize,
    pub(super) positions: Range<usize>,
}

impl Term {
    fn new(measure: &Measure, slot: BoxSide) -> Term {
        match (measure, slot) {
            (Measure::Number { original, outside, .. }, BoxSide::Number(slot))
                if original.is_nan() =>
            {
                Term::Null { slot, outside: *outside }
            }
            (Measure::Number { original, scale, low, high, outside }, BoxSide::Number(slot)) => {
                let (original, scale, outside) = (*original, *scale, *outside);
                Term::Number {
                    slot,
                    number: NumberTerm { original, scale, low: *low, high: *high, outside },
                }
            }
            (
                Measure::Codes { costs, other_null, other_unseen },
                BoxSide::Codes { first, words, states },
            ) => {
                let cost = |code: usize| costs.get(code).copied().unwrap_or(*other_unseen);
                let listed = (2..states.max(2)).map(|state| cost(state - 2));
                let table = [*other_unseen, *other_null].into_iter().chain(listed).collect();
                Term::Codes { first, words, codes: CategoryTerm::new(table, words) }
            }
            _ => panic!("a feature is measured as what it is"),
        }
    }

    /// The least that it can be in a box.
    #[inline]
    fn least(&self, sides: &[Side], sets: &[u64]) -> f32 {
        match self {
            Term::Number { slot, number } => number.least(&sides[*slot]),
            Term::Null { slot, outside } => {
                if sides[*slot].nulls {
                    0.0
                } else {
                    *outside
                }
            }
            Term::Codes { first, words, codes } => codes.least(&sets[*first..first + words]),
        }
    }
}

/// The term of a number whose own value is not a null.
#[derive(Debug)]
struct NumberTerm {
    original: f32,
    scale: f32,
    low: f32,
    high: f32,
    outside: f32,
}

impl NumberTerm {
    fn gap(&self, value: f32) -> f32 {
        self.scale * (value - self.original).abs()
    }

    /// The gap of the nearest of the values between two. It is computed as a value's own gap is, so that
    /// it is rounded alike.
    fn least_gap(&self, low: f32, high: f32) -> f32 {
        if low <= high { self.gap(self.original.max(low).min(high)) } else { f32::INFINITY }
    }

    fn least(&self, side: &Side) -> f32 {
        if side.low <= self.original && self.original <= side.high {
            return 0.0;
        }
        let inside = self.least_gap(side.low.max(self.low), side.high.min(self.high));
        let beyond = self.outside + self.least_gap(side.low, side.high);
        let null = if side.nulls { self.outside } else { f32::INFINITY };
        inside.min(beyond).min(null)
    }

    fn add(&self, side: &Side, values: &[f32], sums: &mut [f32]) {
        let pairs = sums.iter_mut().zip(values);
        if self.low <= side.low && side.high <= self.high && !side.nulls {
            pairs.for_each(|(sum, value)| *sum += self.gap(*value));
            return;
        }
        for (sum, value) in pairs {
            let gap = self.gap(*value);
            // Of a null the gap is a NaN, and no comparison holds.
            let inside = (self.low <= *value) & (*value <= self.high) | (*value == self.original);
            let beyond = self.outside + if value.is_nan() { 0.0 } else { gap };
            *sum += if inside { gap } else { beyond };
        }
    }
}

fn add_from_null(outside: f32, values: &[f32], sums: &mut [f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += if value.is_nan() { 0.0 } else { outside };
    }
}

/// The term of a category.
#[derive(Debug)]
struct CategoryTerm {
    /// Per state.
    costs: Vec<f32>,
    /// The states of each cost, the least cost first.
    levels: Vec<CostLevel>,
}

#[derive(Debug)]
struct CostLevel {
    cost: f32,
    set: [u64; MOST_WORDS],
}

impl CostLevel {
    /// Of bits that have one cost.
    fn new(bits: &[(f32, usize)]) -> CostLevel {
        let mut set = [0; MOST_WORDS];
        bits.iter().for_each(|(_, bit)| set[bit / BITS] |= 1 << (bit % BITS));
        CostLevel { cost: bits[0].0, set }
    }
}

impl CategoryTerm {
    fn new(costs: Vec<f32>, words: usize) -> CategoryTerm {
        // Bits are ordered, not states, of which there may be tens of thousands.
        let used = costs.len().min(words * BITS);
        let mut bits: Vec<(f32, usize)> = (0..used).map(|bit| (f32::INFINITY, bit)).collect();
        for (state, cost) in costs.iter().enumerate() {
            let least = &mut bits[bit(state, words)].0;
            *least = least.min(*cost);
        }
        bits.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let levels = bits.chunk_by(|one, other| one.0 == other.0).map(CostLevel::new).collect();
        CategoryTerm { costs, levels }
    }

    fn least(&self, set: &[u64]) -> f32 {
        let meets =
            |level: &&CostLevel| level.set.iter().zip(set).any(|(one, other)| one & other != 0);
        self.levels.iter().find(meets).map_or(f32::INFINITY, |level| level.cost)
    }

    fn add(&self, codes: &[u16], sums: &mut [f32]) {
        for (sum, code) in sums.iter_mut().zip(codes) {
            *sum += self.costs[state(*code)];
        }
    }
}
