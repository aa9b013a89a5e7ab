//! A search through all rows: of few rows it is quicker than one through boxes, which have to be made ready for every
//! query.

use pulp::NullaryFnOnce;

use super::boxes::state;
use super::search::{packed, unpacked};
use super::{Index, Measure, NearestQuery, Neighbour, PointColumn};

/// Rows that are looked through, at most: their sums stay in the nearest cache.
pub(super) const FEW: usize = 1024;

/// States of a category whose costs are looked up without a bound to be checked.
const STATES: usize = 64;

/// The `k` nearest rows of an index with few of them.
pub(super) fn scan(index: &Index, query: &NearestQuery, k: usize) -> Vec<Neighbour> {
    assert_eq!(query.features.len(), index.points.columns.len(), "a query measures every feature");
    pulp::Arch::new().dispatch(Scan { index, query, k })
}

/// A search, as a type: a closure would not be inlined, and lose the wider instructions.
struct Scan<'a> {
    index: &'a Index,
    query: &'a NearestQuery,
    k: usize,
}

impl NullaryFnOnce for Scan<'_> {
    type Output = Vec<Neighbour>;

    #[inline(always)]
    fn call(self) -> Vec<Neighbour> {
        let Scan { index, query, k } = self;
        let decisions = &index.points.decisions;
        let counts = |decision: &f64| query.target.0 <= *decision && *decision <= query.target.1;
        let Some(first) = decisions.iter().position(counts) else { return Vec::new() };
        let end = decisions.iter().rposition(counts).map_or(first, |last| last + 1);
        let mut sums = [0.0; FEW];
        let sums = &mut sums[..end - first];
        for (sum, decision) in sums.iter_mut().zip(&decisions[first..end]) {
            *sum = if counts(decision) { 0.0 } else { f32::INFINITY };
        }
        // In the schema's order, as everywhere: rounding depends on it.
        for (measure, column) in query.features.iter().zip(&index.points.columns) {
            measure.add(column, first, sums);
            // Not `any`, which would stop at the first and so go one by one.
            if !sums.iter().fold(false, |near, sum| near | (*sum <= f32::MAX)) {
                return Vec::new();
            }
        }
        let rows = sums.iter().zip(&index.rows[first..end]);
        let near = rows.filter(|(sum, _)| **sum <= f32::MAX);
        let mut found: Vec<u64> = near.map(|(sum, row)| packed(*sum, *row)).collect();
        if found.len() > k {
            found.select_nth_unstable(k - 1);
            found.truncate(k);
        }
        found.sort_unstable();
        let found = found.into_iter().map(unpacked);
        found.map(|(distance, row)| Neighbour { row, distance }).collect()
    }
}

impl Measure {
    /// Adds how far rows from the given position on are.
    #[inline(always)]
    fn add(&self, column: &PointColumn, first: usize, sums: &mut [f32]) {
        match (self, column) {
            (Measure::Number { original, outside, .. }, PointColumn::Numbers(values))
                if original.is_nan() =>
            {
                for (sum, value) in sums.iter_mut().zip(&values[first..]) {
                    *sum += if value.is_nan() { 0.0 } else { *outside };
                }
            }
            (
                Measure::Number { original, scale, low, high, outside },
                PointColumn::Numbers(values),
            ) => {
                for (sum, value) in sums.iter_mut().zip(&values[first..]) {
                    let gap = scale * (value - original).abs();
                    // Of a null the gap is a NaN, and no comparison holds.
                    let inside = (low <= value) & (value <= high) | (value == original);
                    let beyond = outside + if value.is_nan() { 0.0 } else { gap };
                    *sum += if inside { gap } else { beyond };
                }
            }
            (Measure::Codes { costs, other_null, other_unseen }, PointColumn::Codes(codes)) => {
                let table = [*other_unseen, *other_null].into_iter().chain(costs.iter().copied());
                let cells = sums.iter_mut().zip(&codes[first..]);
                if costs.len() + 2 < STATES {
                    let mut all = [*other_unseen; STATES];
                    all.iter_mut().zip(table).for_each(|(cost, own)| *cost = own);
                    cells.for_each(|(sum, code)| *sum += all[state(*code).min(STATES - 1)]);
                } else {
                    let all: Vec<f32> = table.collect();
                    let cost = |code: u16| all.get(state(code)).copied().unwrap_or(*other_unseen);
                    cells.for_each(|(sum, code)| *sum += cost(*code));
                }
            }
            _ => panic!("a feature is measured as what it is"),
        }
    }
}
