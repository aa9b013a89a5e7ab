//! Where methods agree: for each pair of them, the rows that both have a valid counterfactual for, and how many of those
//! change the same features in the same directions. Counted batch by batch and merged; sums are exact.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::{NeededCounterfactuals, Sketch};
use crate::feature::{Cells, Rows};

/// Counts by target and pair of methods.
#[derive(Debug, Clone)]
pub struct AgreementCounts {
    methods: usize,
    /// Which features are compared: those that follow from others are not.
    compared: Vec<bool>,
    targets: BTreeMap<u32, Vec<PairCounts>>,
    /// What is known of the rows and targets of a batch: of each method whether it has one, and which.
    batch: HashMap<(u32, u32), SmallVec<[Option<Found>; 5]>>,
}

/// Counts of a pair of methods.
#[derive(Debug, Clone, Default)]
pub struct PairCounts {
    /// Rows and targets that needed a counterfactual.
    pub rows: u64,
    /// Those for which both have a valid one.
    pub both: u64,
    /// Those for which only the first has.
    pub first_only: u64,
    /// Those for which only the second has.
    pub second_only: u64,
    /// Of `both`: the same features change.
    pub same_features: u64,
    /// Of those: every one in the same direction.
    pub same_directions: u64,
    /// Of `both`: what the first ones are like …
    pub first: Sizes,
    /// … and the second ones.
    pub second: Sizes,
}

/// How large changes are.
#[derive(Debug, Clone, Default)]
pub struct Sizes {
    /// What they cost.
    pub cost: Sketch,
    /// Changed categorical features ÷ categorical features.
    pub l0: Sketch,
    /// Mean |Δ| over standardised numeric features.
    pub l1: Sketch,
    /// Changed features.
    pub changed: Sketch,
}

/// A valid counterfactual.
#[derive(Debug, Clone)]
struct Found {
    moves: SmallVec<[Move; 4]>,
    cost: f64,
    l0: f64,
    l1: f64,
    changed: u32,
}

/// A feature and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Move {
    feature: u32,
    /// Up, down, or to the category of a code.
    way: i64,
}

/// Numbers go up …
const UP: i64 = -1;
/// … or down.
const DOWN: i64 = -2;

impl AgreementCounts {
    /// Nothing yet. `compared` says which features are compared.
    pub fn new(methods: usize, compared: Vec<bool>) -> AgreementCounts {
        AgreementCounts { methods, compared, targets: BTreeMap::new(), batch: HashMap::new() }
    }

    /// Pairs of methods, in order.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        let methods = self.methods;
        (0..methods)
            .flat_map(|first| (first + 1..methods).map(move |other| (first, other)))
            .collect()
    }

    /// Hears what a method says of rows of the input's batch that needed a counterfactual.
    pub fn add(
        &mut self,
        method: usize,
        (rows, first): (&[u32], &[bool]),
        changes: &NeededCounterfactuals<'_>,
    ) {
        for index in (0..rows.len()).filter(|index| first[*index]) {
            let key = (rows[index], changes.targets[index]);
            let found = changes.valid[index].then(|| self.found(changes, index));
            let methods = self.methods;
            let of_row =
                self.batch.entry(key).or_insert_with(|| SmallVec::from_elem(None, methods));
            of_row[method] = found;
        }
    }

    fn found(&self, changes: &NeededCounterfactuals<'_>, index: usize) -> Found {
        let distances = changes.distances;
        Found {
            moves: self.moves(changes.counterfactuals, changes.originals, index),
            cost: changes.costs[index],
            l0: distances.l0[index],
            l1: distances.l1[index],
            changed: distances.changed[index],
        }
    }

    fn moves(&self, new: &Rows, original: &Rows, row: usize) -> SmallVec<[Move; 4]> {
        let cells = new.cells.iter().zip(&original.cells).zip(&self.compared).enumerate();
        let way = |cells: (&Cells, &Cells)| match cells {
            (Cells::Numbers(new), Cells::Numbers(original)) => match (new[row], original[row]) {
                (new, original) if new > original => Some(UP),
                (new, original) if new < original => Some(DOWN),
                _ => None,
            },
            (Cells::Codes(new), Cells::Codes(original)) => {
                (new[row] != original[row]).then_some(i64::from(new[row]))
            }
            _ => None,
        };
        cells
            .filter(|(_, (_, compared))| **compared)
            .filter_map(|(feature, (cells, _))| {
                Some(Move { feature: feature as u32, way: way(cells)? })
            })
            .collect()
    }

    /// Compares what was heard of a batch, whose methods are all through.
    pub fn settle(&mut self) {
        let pairs = self.pairs();
        let batch = std::mem::take(&mut self.batch);
        for ((_, target), found) in &batch {
            let counts = self.targets.entry(*target).or_default();
            counts.resize_with(pairs.len(), PairCounts::default);
            for ((first, other), counts) in pairs.iter().zip(counts) {
                counts.count(found[*first].as_ref(), found[*other].as_ref());
            }
        }
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &AgreementCounts) {
        for (target, pairs) in &other.targets {
            let counts = self.targets.entry(*target).or_default();
            counts.resize_with(pairs.len(), PairCounts::default);
            counts.iter_mut().zip(pairs).for_each(|(counts, pair)| counts.merge(pair));
        }
    }

    /// The counts of every pair, over all targets.
    pub fn total(&self) -> Vec<PairCounts> {
        let mut total = vec![PairCounts::default(); self.pairs().len()];
        for pairs in self.targets.values() {
            total.iter_mut().zip(pairs).for_each(|(counts, pair)| counts.merge(pair));
        }
        total
    }

    /// The counts of every pair by target.
    pub fn by_target(&self) -> impl Iterator<Item = (u32, &[PairCounts])> {
        self.targets.iter().map(|(target, pairs)| (*target, &pairs[..]))
    }
}

impl PairCounts {
    /// Rows for which neither has a valid one.
    pub fn neither(&self) -> u64 {
        self.rows - self.both - self.first_only - self.second_only
    }

    fn count(&mut self, first: Option<&Found>, second: Option<&Found>) {
        self.rows += 1;
        match (first, second) {
            (None, None) => {}
            (Some(_), None) => self.first_only += 1,
            (None, Some(_)) => self.second_only += 1,
            (Some(first), Some(second)) => {
                let features =
                    |of: &Found| of.moves.iter().map(|of| of.feature).collect::<Vec<_>>();
                let same = features(first) == features(second);
                self.both += 1;
                self.same_features += u64::from(same);
                self.same_directions += u64::from(same && first.moves == second.moves);
                self.first.add(first);
                self.second.add(second);
            }
        }
    }

    fn merge(&mut self, other: &PairCounts) {
        self.rows += other.rows;
        self.both += other.both;
        self.first_only += other.first_only;
        self.second_only += other.second_only;
        self.same_features += other.same_features;
        self.same_directions += other.same_directions;
        self.first.merge(&other.first);
        self.second.merge(&other.second);
    }
}

impl Sizes {
    fn add(&mut self, found: &Found) {
        self.cost.add(found.cost);
        self.l0.add(found.l0);
        self.l1.add(found.l1);
        self.changed.add(f64::from(found.changed));
    }

    fn merge(&mut self, other: &Sizes) {
        self.cost.merge(&other.cost);
        self.l0.merge(&other.l0);
        self.l1.merge(&other.l1);
        self.changed.merge(&other.changed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Distances;
    use super::*;

    fn rows(numbers: &[f64], codes: &[u32]) -> Rows {
        let cells = vec![Cells::Numbers(numbers.to_vec()), Cells::Codes(codes.to_vec())];
        Rows { len: numbers.len(), cells }
    }

    /// A method that makes these of three rows of 1.0 and code 0, all aimed at target 7.
    fn hear(counts: &mut AgreementCounts, method: usize, new: &Rows, valid: &[bool]) {
        let originals = rows(&[1.0; 3], &[0; 3]);
        let distances = Distances { l0: vec![0.5; 3], l1: vec![1.5; 3], changed: vec![1; 3] };
        let known = [2.0; 3];
        let changes = NeededCounterfactuals {
            targets: &[7; 3],
            segments: &[0; 3],
            valid,
            margins: &known,
            distances: &distances,
            costs: &known,
            plausibility: &known,
            robust: &[None; 3],
            robustness_costs: &[f64::NAN; 3],
            counterfactuals: new,
            originals: &originals,
        };
        counts.add(method, (&[0, 1, 2], &[true; 3]), &changes);
    }

    #[test]
    fn pairs_are_compared_row_by_row() {
        let mut counts = AgreementCounts::new(3, vec![true, true]);
        hear(&mut counts, 0, &rows(&[2.0, 2.0, 2.0], &[0, 0, 0]), &[true; 3]);
        // Further the same way, the other way, and the other feature.
        hear(&mut counts, 1, &rows(&[3.0, 0.0, 1.0], &[0, 0, 4]), &[true; 3]);
        hear(&mut counts, 2, &rows(&[2.0, 1.0, 1.0], &[0, 0, 4]), &[true, false, true]);
        counts.settle();
        let told = |counts: &PairCounts| {
            let PairCounts { both, first_only, second_only, same_features, .. } = counts;
            [
                *both,
                *first_only,
                *second_only,
                counts.neither(),
                *same_features,
                counts.same_directions,
            ]
        };
        let total: Vec<[u64; 6]> = counts.total().iter().map(told).collect();
        assert_eq!(counts.pairs(), [(0, 1), (0, 2), (1, 2)]);
        assert_eq!(total, [[3, 0, 0, 0, 2, 1], [2, 1, 0, 0, 1, 1], [2, 1, 0, 0, 2, 2]]);
        assert_eq!(counts.total()[0].first.l1.mean(), Some(1.5));
        let mut twice = AgreementCounts::new(3, vec![true, true]);
        twice.merge(&counts);
        twice.merge(&counts);
        assert_eq!(twice.total()[1].rows, 6);
        assert_eq!(twice.by_target().map(|(target, _)| target).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn what_follows_from_others_is_not_compared() {
        let mut counts = AgreementCounts::new(2, vec![true, false]);
        hear(&mut counts, 0, &rows(&[2.0; 3], &[0; 3]), &[true; 3]);
        hear(&mut counts, 1, &rows(&[2.0; 3], &[5; 3]), &[true; 3]);
        counts.settle();
        assert_eq!(counts.total()[0].same_directions, 3);
    }
}
