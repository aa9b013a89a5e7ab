//! Which rows of a table are nearest to a row, among those that it could become? The result is exact:
//! the tree of boxes, which is for more than a few rows, only spares looking at rows that cannot be in it. What
//! features mean, what a change costs and which threads ask are the callers' business.
//!
//! A distance is a sum of `f32` over the features in the schema's order, for rows and for boxes alike.
//! Rounding is monotone: where no term of one sum is above the other's, neither is the rounded sum.
//! A box, whose terms are the least that its rows can have, is therefore never farther than one of
//! its rows, to the last bit, and no margin is needed.

mod boxes;
mod plausibility;
mod scan;
mod search;
mod split;
mod terms;
mod tree;

#[cfg(test)]
mod tests;

pub use plausibility::{LEAST_POINTS, Plausibility};
use search::NearestSearch;
use terms::Terms;
use tree::BoxTree;

use crate::feature::NULL_CODE;

/// The code of a null.
pub const NULL_POINT: u16 = u16::MAX;
/// The code of a value that the schema does not list.
pub const UNSEEN_POINT: u16 = u16::MAX - 1;

/// A feature's code in two bytes. One of tens of thousands of values is nobody's neighbour: it counts as unseen.
pub fn point(code: u32) -> u16 {
    match u16::try_from(code) {
        Ok(code) if code < UNSEEN_POINT => code,
        _ if code == NULL_CODE => NULL_POINT,
        _ => UNSEEN_POINT,
    }
}

/// Rows to be searched, column by column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Points {
    /// Number of rows.
    pub len: usize,
    /// Per feature in the schema's order.
    pub columns: Vec<PointColumn>,
    /// What the model decided: index of the class, or the value of a regression. None is a NaN.
    pub decisions: Vec<f64>,
    /// Per feature the numbers as they were, in the column's own unit, where standardised ones do not tell;
    /// else, and for features beyond the last, nothing.
    pub exact: Vec<Vec<f64>>,
}

/// One feature of all rows.
#[derive(Debug, Clone, PartialEq)]
pub enum PointColumn {
    /// Standardised numbers; NaN is a null. The others are finite.
    Numbers(Vec<f32>),
    /// Category codes; [`NULL_POINT`] and [`UNSEEN_POINT`] are states that are no listed value.
    Codes(Vec<u16>),
}

/// How far rows are from one row, feature by feature, and which rows count.
#[derive(Debug, Clone, PartialEq)]
pub struct NearestQuery {
    /// Per feature in the schema's order.
    pub features: Vec<Measure>,
    /// Lowest and highest decision of rows that count, both included.
    pub target: (f64, f64),
}

/// How far a value is from the original. What is infinitely far does not count; nothing is negative.
#[derive(Debug, Clone, PartialEq)]
pub enum Measure {
    /// `scale · |value − original|`, and `outside` more where the value is neither the original nor from
    /// `low` to `high`. A null is at 0 from a null, and at `outside` from a number, either way round.
    Number {
        /// The original value; NaN is a null.
        original: f32,
        /// What a standard deviation costs.
        scale: f32,
        /// The lowest value to move to.
        low: f32,
        /// The highest value to move to.
        high: f32,
        /// What it costs to be elsewhere.
        outside: f32,
    },
    /// A cost for every state.
    Codes {
        /// Per listed value, the original included.
        costs: Vec<f32>,
        /// Of [`NULL_POINT`].
        other_null: f32,
        /// Of [`UNSEEN_POINT`] and of codes beyond `costs`.
        other_unseen: f32,
    },
}

/// A row that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// Its position in the [`Points`] that the index was built from.
    pub row: u32,
    /// How far it is.
    pub distance: f32,
}

/// Rows with a tree of boxes over them. Any number of threads may search it at once.
#[derive(Debug, Clone)]
pub struct Index {
    /// The rows in the order of the tree's leaves, so that a leaf is one piece of every column.
    points: Points,
    /// Per place in that order, the row that stands there.
    rows: Vec<u32>,
    /// Per row its place in that order.
    positions: Vec<u32>,
    tree: BoxTree,
}

impl Index {
    /// Puts the rows in order. The same rows give the same index.
    ///
    /// # Panics
    ///
    /// If a column or the decisions are not `len` long, if a decision is a NaN, or if there are more
    /// rows than a `u32` counts.
    pub fn new(points: Points) -> Index {
        let lengths = points.columns.iter().map(PointColumn::len);
        let mut lengths = lengths.chain([points.decisions.len()]);
        assert!(lengths.all(|length| length == points.len), "columns are as long as the table");
        let decided = points.decisions.iter().all(|decision| !decision.is_nan());
        assert!(decided, "a row without a decision is not searched");
        let last = u32::try_from(points.len).expect("rows are counted in 32 bits");
        let mut rows: Vec<u32> = (0..last).collect();
        let nodes = split::split(&points, &mut rows);
        let mut positions = vec![0; rows.len()];
        for (position, row) in (0..last).zip(&rows) {
            positions[*row as usize] = position;
        }
        let columns = points.columns.into_iter().map(|column| column.in_order(&rows)).collect();
        let decisions = in_order(&points.decisions, &rows);
        let exact =
            points.exact.into_iter().map(|numbers| in_order(&numbers, rows_of(&numbers, &rows)));
        let exact = exact.collect();
        let points = Points { len: points.len, columns, decisions, exact };
        let tree = BoxTree::new(nodes, &points);
        Index { points, rows, positions, tree }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.points.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.points.len == 0
    }

    /// Bytes held: columns, decisions, both orders of the rows, and the tree.
    pub fn memory(&self) -> usize {
        let columns: usize = self.points.columns.iter().map(PointColumn::memory).sum();
        let orders = self.rows.capacity() + self.positions.capacity();
        size_of::<Index>()
            + self.points.columns.capacity() * size_of::<PointColumn>()
            + columns
            + self.points.decisions.capacity() * size_of::<f64>()
            + self.points.exact.iter().map(Vec::capacity).sum::<usize>() * size_of::<f64>()
            + orders * size_of::<u32>()
            + self.tree.memory()
    }

    /// The `k` nearest rows that count, or all of them if there are fewer: nearest first, equally near
    /// ones by row number.
    ///
    /// # Panics
    ///
    /// If the query's features are not the columns of the index.
    pub fn search(&self, query: &NearestQuery, k: usize) -> Vec<Neighbour> {
        if k == 0 || self.is_empty() {
            return Vec::new();
        }
        match self.len() <= scan::FEW {
            true => scan::scan(self, query, k),
            false => self.search_boxes(query, k),
        }
    }

    /// The same by the tree of boxes; `k` is not 0, and there are rows.
    fn search_boxes(&self, query: &NearestQuery, k: usize) -> Vec<Neighbour> {
        let terms = Terms::new(query, self.tree.boxes());
        NearestSearch::new(self, &terms, k).run()
    }

    /// The value of a numeric feature in a row; NaN is a null.
    ///
    /// # Panics
    ///
    /// If there is no such row, or the feature is not numeric.
    pub fn number(&self, feature: usize, row: u32) -> f32 {
        match &self.points.columns[feature] {
            PointColumn::Numbers(numbers) => numbers[self.position(row)],
            PointColumn::Codes(_) => panic!("feature {feature} is not numeric"),
        }
    }

    /// The number of a feature in a row as it was, where that is kept.
    pub fn exact(&self, feature: usize, row: u32) -> Option<f64> {
        self.points.exact.get(feature)?.get(self.position(row)).copied()
    }

    /// The code of a categorical feature in a row.
    ///
    /// # Panics
    ///
    /// If there is no such row, or the feature is not categorical.
    pub fn code(&self, feature: usize, row: u32) -> u16 {
        match &self.points.columns[feature] {
            PointColumn::Codes(codes) => codes[self.position(row)],
            PointColumn::Numbers(_) => panic!("feature {feature} is not categorical"),
        }
    }

    /// What the model decided for a row.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn decision(&self, row: u32) -> f64 {
        self.points.decisions[self.position(row)]
    }

    /// A feature's values in the index's own order: see [`Index::position`].
    ///
    /// # Panics
    ///
    /// If there is no such feature.
    pub fn column(&self, feature: usize) -> &PointColumn {
        &self.points.columns[feature]
    }

    /// Where a row stands in the index's own order.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn position(&self, row: u32) -> usize {
        self.positions[row as usize] as usize
    }
}

impl PointColumn {
    fn len(&self) -> usize {
        match self {
            PointColumn::Numbers(numbers) => numbers.len(),
            PointColumn::Codes(codes) => codes.len(),
        }
    }

    fn memory(&self) -> usize {
        match self {
            PointColumn::Numbers(numbers) => numbers.capacity() * size_of::<f32>(),
            PointColumn::Codes(codes) => codes.capacity() * size_of::<u16>(),
        }
    }

    /// The column in another order of rows. It takes the column, so that only one is held twice.
    fn in_order(self, rows: &[u32]) -> PointColumn {
        match self {
            PointColumn::Numbers(numbers) => PointColumn::Numbers(in_order(&numbers, rows)),
            PointColumn::Codes(codes) => PointColumn::Codes(in_order(&codes, rows)),
        }
    }
}

/// All rows, or none for a column that is not kept.
fn rows_of<'r>(numbers: &[f64], rows: &'r [u32]) -> &'r [u32] {
    if numbers.is_empty() { &[] } else { rows }
}

fn in_order<T: Copy>(values: &[T], rows: &[u32]) -> Vec<T> {
    rows.iter().map(|row| values[*row as usize]).collect()
}
