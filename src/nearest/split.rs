//! The order of the rows: cut in two, and again, until leaves are left. Where the cuts are decides how
//! much a search is spared, never what it finds.

use super::tree::{BoxNode, LEAF_ROWS};
use super::{PointColumn, Points};

/// Up to so many different decisions are taken for classes.
const CLASSES: usize = 64;
/// Pairs of rows that a node's spread is estimated from.
const PAIRS: usize = 128;

/// Puts rows into the order of a tree. The first node is the root; there is none without rows.
pub(super) fn split(points: &Points, rows: &mut [u32]) -> Vec<BoxNode> {
    let mut splitter = Splitter::new(points);
    if !rows.is_empty() {
        splitter.split(rows, 0);
    }
    splitter.nodes.shrink_to_fit();
    splitter.nodes
}

/// What is cut by.
#[derive(Clone, Copy)]
enum Key<'a> {
    Number(&'a [f32]),
    Code(&'a [u16]),
    Decision(&'a [f64]),
}

impl Key<'_> {
    /// A row's place in the order of this key; nulls come last, or first among codes.
    fn of(self, row: u32) -> u32 {
        let row = row as usize;
        match self {
            Key::Number(numbers) => ordered(numbers[row]),
            Key::Code(codes) => u32::from(codes[row].wrapping_add(2)),
            // Rounding may put two decisions at one place, which costs boxes, not results.
            Key::Decision(decisions) => ordered(decisions[row] as f32),
        }
    }

    /// How far apart two rows are by this key. A null is as far as another category, or as a standard
    /// deviation.
    fn gap(self, one: u32, other: u32) -> f32 {
        let (left, right) = (one as usize, other as usize);
        let gap = match self {
            Key::Number(numbers) => (numbers[left] - numbers[right]).abs(),
            Key::Code(_) => f32::NAN,
            Key::Decision(decisions) => (decisions[left] - decisions[right]).abs() as f32,
        };
        if gap.is_nan() { f32::from(u8::from(self.of(one) != self.of(other))) } else { gap }
    }
}

/// An integer in the order of the numbers, NaN last.
fn ordered(number: f32) -> u32 {
    if number.is_nan() {
        return u32::MAX;
    }
    // Both zeros are one number.
    let bits = (number + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

struct Splitter<'a> {
    /// What may be cut by, and how much a unit of it weighs.
    keys: Vec<(Key<'a>, f32)>,
    /// What is cut by for as long as rows differ in it.
    classes: Option<Key<'a>>,
    nodes: Vec<BoxNode>,
}

impl<'a> Splitter<'a> {
    /// Weights are those of the usual distance: the mean over numeric features, and the mean over
    /// categorical ones. A query may measure otherwise; then the cuts are less apt.
    fn new(points: &'a Points) -> Splitter<'a> {
        let is_number = |column: &&PointColumn| matches!(column, PointColumn::Numbers(_));
        let numbers = points.columns.iter().filter(is_number).count();
        let codes = points.columns.len() - numbers;
        let decisions = Key::Decision(&points.decisions);
        let mut keys: Vec<(Key<'a>, f32)> = points
            .columns
            .iter()
            .map(|column| match column {
                PointColumn::Numbers(values) => (Key::Number(values), 1.0 / numbers as f32),
                PointColumn::Codes(values) => (Key::Code(values), 1.0 / codes as f32),
            })
            .collect();
        if !are_classes(&points.decisions) {
            // One more numeric feature, in its own standard deviations.
            let deviation = deviation(&points.decisions);
            keys.push((decisions, 1.0 / (numbers.max(1) as f32 * deviation)));
            return Splitter { keys, classes: None, nodes: Vec::new() };
        }
        Splitter { keys, classes: Some(decisions), nodes: Vec::new() }
    }

    /// Cuts `rows`, the first of which stands at `start`, until leaves are left.
    fn split(&mut self, rows: &mut [u32], start: u32) {
        let node = self.nodes.len();
        self.nodes.push(BoxNode { start, end: start + rows.len() as u32, second: None });
        let Some(middle) = self.cut(rows) else { return };
        let (first, second) = rows.split_at_mut(middle);
        self.split(first, start);
        self.nodes[node].second = Some(self.nodes.len() as u32);
        self.split(second, start + middle as u32);
    }

    /// Puts the rows of the first half first and says how many they are; none if this is a leaf.
    fn cut(&self, rows: &mut [u32]) -> Option<usize> {
        let by_class = self.classes.and_then(|classes| cut_by(classes, rows));
        if by_class.is_some() || rows.len() <= LEAF_ROWS {
            return by_class;
        }
        let by_key = self.widest(rows).and_then(|key| cut_by(key, rows));
        // Rows that are all alike, as far as one sees, are cut all the same: leaves have a limit.
        Some(by_key.unwrap_or(rows.len() / 2))
    }

    /// The key by which rows are farthest apart.
    fn widest(&self, rows: &[u32]) -> Option<Key<'a>> {
        // Of a table in some order neighbours are alike, hence pairs of far rows.
        let (near, far) = rows.split_at(rows.len() / 2);
        let step = near.len().div_ceil(PAIRS).max(1);
        let spread = |key: Key<'a>| -> f32 {
            let pairs = near.iter().zip(far).step_by(step);
            pairs.map(|(one, other)| key.gap(*one, *other)).sum()
        };
        let spreads = self.keys.iter().map(|(key, weight)| (*key, weight * spread(*key)));
        let widest = spreads.filter(|(_, spread)| *spread > 0.0);
        widest.reduce(|best, other| if other.1 > best.1 { other } else { best }).map(|best| best.0)
    }
}

/// Cuts between two different values, as near to the middle as can be, and says how many rows are
/// before the cut; none if all are equal. A value is never in both halves, so that a box can rule it
/// out.
fn cut_by(key: Key<'_>, rows: &mut [u32]) -> Option<usize> {
    let keys: Vec<u32> = rows.iter().map(|row| key.of(*row)).collect();
    let half = keys.len() / 2;
    let pivot = *keys.clone().select_nth_unstable(half).1;
    let below = keys.iter().filter(|key| **key < pivot).count();
    let up_to = keys.iter().filter(|key| **key <= pivot).count();
    let off = |cut: usize| if cut == 0 { usize::MAX } else { cut.abs_diff(half) };
    let (middle, is_first): (usize, fn(u32, u32) -> bool) = match off(below) <= off(up_to) {
        true => (below, |key, pivot| key < pivot),
        false => (up_to, |key, pivot| key <= pivot),
    };
    if middle == 0 || middle == rows.len() {
        return None;
    }
    // Rows keep their order within a half, hence within a leaf.
    let (mut first, mut second) = (Vec::with_capacity(middle), Vec::new());
    for (row, key) in rows.iter().zip(keys) {
        if is_first(key, pivot) { first.push(*row) } else { second.push(*row) }
    }
    rows[..middle].copy_from_slice(&first);
    rows[middle..].copy_from_slice(&second);
    Some(middle)
}

/// Whether decisions are few enough to be classes.
fn are_classes(decisions: &[f64]) -> bool {
    let mut seen: Vec<u64> = Vec::new();
    for decision in decisions {
        if let Err(position) = seen.binary_search(&decision.to_bits()) {
            seen.insert(position, decision.to_bits());
        }
        if seen.len() > CLASSES {
            return false;
        }
    }
    true
}

/// The standard deviation; one where there is none.
fn deviation(values: &[f64]) -> f32 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / values.len() as f64).sqrt() as f32;
    if deviation > 0.0 { deviation } else { 1.0 }
}
