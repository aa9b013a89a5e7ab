//! A small decision tree over labelled rows: binary splits of the greatest information gain.

use crate::explain::method::variables::VariableValues;
use crate::feature::Cell;

/// Rows of a leaf, at least.
const LEAST_ROWS: usize = 2;
/// Splits above a leaf, at most.
const DEPTH: usize = 12;
/// A smaller gain is none.
const LEAST_GAIN: f64 = 1e-9;

/// What a split asks of a variable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Test {
    /// Whether a number is at most this.
    AtMost(usize, f64),
    /// Whether it is this category.
    Is(usize, u32),
}

/// A leaf and what leads to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RuleLeaf {
    /// Tests, and whether they hold.
    pub(super) path: Vec<(Test, bool)>,
    /// Whether most of its rows reach the target.
    pub(super) target: bool,
    /// Its rows.
    pub(super) rows: Vec<usize>,
}

impl Test {
    /// Whether a row passes.
    pub(super) fn holds(self, values: &[Cell]) -> bool {
        match self {
            Test::AtMost(index, bound) => {
                matches!(values[index], Cell::Number(number) if number <= bound)
            }
            Test::Is(index, code) => values[index] == Cell::Code(code),
        }
    }
}

/// The leaves of a tree that learns which rows reach the target.
pub(super) fn leaves(rows: &[(VariableValues, bool)]) -> Vec<RuleLeaf> {
    let root = RuleLeaf { path: Vec::new(), target: false, rows: (0..rows.len()).collect() };
    let (mut open, mut found) = (vec![root], Vec::new());
    while let Some(mut leaf) = open.pop() {
        let split = if leaf.path.len() < DEPTH { best_split(rows, &leaf.rows) } else { None };
        let Some(test) = split else {
            let reached = leaf.rows.iter().filter(|row| rows[**row].1).count();
            leaf.target = 2 * reached > leaf.rows.len();
            found.push(leaf);
            continue;
        };
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            leaf.rows.iter().partition(|row| test.holds(&rows[**row].0));
        for (holds, rows) in [(false, outside), (true, inside)] {
            let mut path = leaf.path.clone();
            path.push((test, holds));
            open.push(RuleLeaf { path, target: false, rows });
        }
    }
    found
}

/// The split with the greatest gain; none where nothing is gained.
fn best_split(rows: &[(VariableValues, bool)], some: &[usize]) -> Option<Test> {
    let all = NodeCounts::of(some.iter().map(|row| rows[*row].1));
    if some.len() < 2 * LEAST_ROWS || all.reached == 0 || all.reached == all.rows {
        return None;
    }
    let width = rows[some[0]].0.len();
    let mut best: Option<(f64, Test)> = None;
    let mut offer = |inside: NodeCounts, test: Test| {
        let outside =
            NodeCounts { rows: all.rows - inside.rows, reached: all.reached - inside.reached };
        if inside.rows < LEAST_ROWS || outside.rows < LEAST_ROWS {
            return;
        }
        let gain = all.bits() - inside.bits() - outside.bits();
        if gain > best.map_or(LEAST_GAIN, |(most, _)| most + LEAST_GAIN) {
            best = Some((gain, test));
        }
    };
    for index in 0..width {
        match rows[some[0]].0[index] {
            Cell::Number(_) => split_numbers(rows, some, index, &mut offer),
            Cell::Code(_) => split_codes(rows, some, index, &mut offer),
        }
    }
    best.map(|(_, test)| test)
}

fn split_numbers(
    rows: &[(VariableValues, bool)],
    some: &[usize],
    index: usize,
    offer: &mut impl FnMut(NodeCounts, Test),
) {
    let pair = |row: &usize| match rows[*row].0[index] {
        Cell::Number(number) => (number, rows[*row].1),
        Cell::Code(_) => (f64::NAN, rows[*row].1),
    };
    let mut pairs: Vec<(f64, bool)> = some.iter().map(pair).collect();
    pairs.sort_unstable_by(|one, two| one.0.total_cmp(&two.0));
    let mut inside = NodeCounts::default();
    for (at, (number, reached)) in pairs.iter().enumerate() {
        inside.add(*reached);
        let next = pairs.get(at + 1).map(|(next, _)| *next);
        if let Some(next) = next.filter(|next| next > number) {
            offer(inside, Test::AtMost(index, short_between(*number, next)));
        }
    }
}

fn split_codes(
    rows: &[(VariableValues, bool)],
    some: &[usize],
    index: usize,
    offer: &mut impl FnMut(NodeCounts, Test),
) {
    let mut counts: Vec<(u32, NodeCounts)> = Vec::new();
    for row in some {
        let (values, reached) = &rows[*row];
        let Cell::Code(code) = values[index] else { continue };
        match counts.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => count.add(*reached),
            None => counts.push((code, NodeCounts::of([*reached].into_iter()))),
        }
    }
    counts.sort_unstable_by_key(|(code, _)| *code);
    counts.into_iter().for_each(|(code, inside)| offer(inside, Test::Is(index, code)));
}

/// The number of fewest digits from one, included, to a greater one, excluded; else the first.
fn short_between(low: f64, high: f64) -> f64 {
    let middle = low + (high - low) / 2.0;
    let rounded = (-9..=9).map(|digits| {
        let unit = 10f64.powi(-digits);
        let rounded = (middle / unit).round() * unit;
        // Of tenths and less the decimal fraction, not a sum of binary ones.
        if digits > 0 {
            format!("{middle:.*}", digits as usize).parse().unwrap_or(low)
        } else {
            rounded
        }
    });
    let mut inside = rounded.filter(|number| low <= *number && *number < high);
    inside.next().unwrap_or(low)
}

/// Rows, and how many reach the target.
#[derive(Debug, Clone, Copy, Default)]
struct NodeCounts {
    rows: usize,
    reached: usize,
}

impl NodeCounts {
    fn of(labels: impl Iterator<Item = bool>) -> NodeCounts {
        let mut counts = NodeCounts::default();
        labels.for_each(|reached| counts.add(reached));
        counts
    }

    fn add(&mut self, reached: bool) {
        self.rows += 1;
        self.reached += usize::from(reached);
    }

    /// Entropy times rows.
    fn bits(self) -> f64 {
        let part = |count: usize| {
            let share = count as f64 / self.rows as f64;
            if count == 0 { 0.0 } else { -(count as f64) * share.log2() }
        };
        part(self.reached) + part(self.rows - self.reached)
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn row(number: f64, code: u32, reached: bool) -> (VariableValues, bool) {
        (vec![Cell::Number(number), Cell::Code(code)], reached)
    }

    #[test]
    fn a_tree_finds_the_border() {
        let rows: Vec<_> =
            (0..40).map(|at| row(f64::from(at), at % 3, at >= 20 && at % 3 == 1)).collect();
        let found = leaves(&rows);
        assert_eq!(found.iter().map(|leaf| leaf.rows.len()).sum::<usize>(), 40);
        for (values, reached) in &rows {
            let holds =
                |leaf: &&RuleLeaf| leaf.path.iter().all(|(test, yes)| test.holds(values) == *yes);
            let own: Vec<&RuleLeaf> = found.iter().filter(holds).collect();
            assert_eq!(own.len(), 1, "a row is in one leaf");
            assert_eq!(own[0].target, *reached, "{values:?}");
        }
    }

    #[test]
    fn nothing_to_learn_is_one_leaf() {
        let rows: Vec<_> = (0..9).map(|at| row(f64::from(at), 0, false)).collect();
        assert_eq!(leaves(&rows).len(), 1);
        let alike: Vec<_> = (0..9).map(|at| row(1.0, 0, at % 2 == 0)).collect();
        assert_eq!(leaves(&alike).len(), 1);
    }

    #[test]
    fn bounds_have_few_digits() {
        for (low, high, expected) in
            [(18_000.0, 30_900.0, 20_000.0), (1.0, 2.0, 1.5), (0.31, 0.35, 0.33), (-3.0, 4.0, 0.0)]
        {
            assert_eq!(short_between(low, high), expected, "{low} {high}");
        }
        let (low, high) = (0.1, 0.1f64.next_up());
        assert_eq!(short_between(low, high), low);
    }
}
