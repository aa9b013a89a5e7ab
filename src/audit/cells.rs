//! Counts of one group, and of all groups: what merges.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::signatures::Signatures;
use crate::feature::{ExactSum, mean_and_squares};
use crate::metrics::{Mean, Sketch};

/// The farthest that a number counts: its square is a number, times any count.
const FARTHEST: f64 = 1e140;

/// How many numbers, their sum and that of their squares, exactly.
#[derive(Debug, Clone, Default)]
pub struct Moments {
    count: u64,
    sum: ExactSum,
    squares: ExactSum,
}

impl Moments {
    /// Counts a number; NaN is none.
    pub fn add(&mut self, number: f64) {
        if number.is_nan() {
            return;
        }
        let number = number.clamp(-FARTHEST, FARTHEST);
        self.count += 1;
        self.sum.add(number);
        self.squares.add_product(number, number);
    }

    fn merge(&mut self, other: &Moments) {
        self.count += other.count;
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    fn subtract(&mut self, other: &Moments) {
        self.count -= other.count;
        self.sum.subtract(&other.sum);
        self.squares.subtract(&other.squares);
    }

    /// Their mean.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum.value() / self.count as f64)
    }

    /// Their mean and spread.
    pub fn spread(&self) -> Option<Mean> {
        self.over(self.count)
    }

    /// The same over so many, of which the others are zeros.
    pub fn over(&self, count: u64) -> Option<Mean> {
        if count == 0 {
            return None;
        }
        let (mean, squares) = mean_and_squares(count, &self.sum, &self.squares);
        Some(Mean { count, mean, squares })
    }
}

/// What of a group can be added and taken away.
#[derive(Debug, Clone, Default)]
pub struct GroupSums {
    /// Rows explained.
    pub rows: u64,
    /// Those that need another decision.
    pub needed: u64,
    /// Those of them with a valid counterfactual.
    pub valid: u64,
    /// Those of them that are proven to have none.
    pub infeasible: u64,
    /// Valid counterfactuals that change a single feature.
    pub single: u64,
    /// Questions about the needed ones.
    pub queries: u64,
    /// Solved rows by what found the counterfactual: those that every run reports, and all others.
    pub sources: [u64; 4],
    /// Rows whose label is the target.
    pub positives: u64,
    /// Those of them that need another decision.
    pub false_negatives: u64,
    /// Costs of valid counterfactuals …
    pub cost: Moments,
    /// … changed features …
    pub changed: Moments,
    /// … and efforts.
    pub effort: Moments,
    /// Costs of valid counterfactuals of false negatives …
    pub missed_cost: Moments,
    /// … and their efforts.
    pub missed_effort: Moments,
    /// Valid counterfactuals within each of the job's budgets.
    pub within: Vec<u64>,
}

/// Counts of one group.
#[derive(Debug, Clone, Default)]
pub struct GroupCell {
    /// What can be taken away too.
    pub sums: GroupSums,
    /// Costs of valid counterfactuals.
    pub costs: Sketch,
    /// Per feature, valid counterfactuals that change it, and those that sit on each bound.
    pub bounds: Vec<AtBounds>,
}

/// Valid counterfactuals that change a feature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AtBounds {
    /// How many.
    pub changed: u64,
    /// Those that sit exactly on a bound, by bound.
    pub on: [u64; 6],
}

impl GroupSums {
    fn counts(&mut self) -> [&mut u64; 12] {
        let [generator, candidate, neighbour, other] = &mut self.sources;
        [
            &mut self.rows,
            &mut self.needed,
            &mut self.valid,
            &mut self.infeasible,
            &mut self.single,
            &mut self.queries,
            &mut self.positives,
            &mut self.false_negatives,
            generator,
            candidate,
            neighbour,
            other,
        ]
    }

    fn moments(&mut self) -> [&mut Moments; 5] {
        let GroupSums { cost, changed, effort, missed_cost, missed_effort, .. } = self;
        [cost, changed, effort, missed_cost, missed_effort]
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &GroupSums) {
        let mut other = other.clone();
        self.counts().into_iter().zip(other.counts()).for_each(|(total, more)| *total += *more);
        self.moments().into_iter().zip(other.moments()).for_each(|(total, more)| total.merge(more));
        self.within.resize(self.within.len().max(other.within.len()), 0);
        self.within.iter_mut().zip(&other.within).for_each(|(total, more)| *total += more);
    }

    /// What is left without a group that is part of it.
    pub fn without(&self, part: &GroupSums) -> GroupSums {
        let (mut left, mut part) = (self.clone(), part.clone());
        left.counts().into_iter().zip(part.counts()).for_each(|(total, less)| *total -= *less);
        left.moments()
            .into_iter()
            .zip(part.moments())
            .for_each(|(total, less)| total.subtract(less));
        left.within.iter_mut().zip(&part.within).for_each(|(total, less)| *total -= less);
        left
    }

    /// Rows with neither a counterfactual nor a proof.
    pub fn unsolved(&self) -> u64 {
        self.needed - self.valid - self.infeasible
    }
}

impl GroupCell {
    /// Adds another's counts.
    pub fn merge(&mut self, other: &GroupCell) {
        self.sums.merge(&other.sums);
        self.costs.merge(&other.costs);
        self.bounds.resize(self.bounds.len().max(other.bounds.len()), AtBounds::default());
        for (total, more) in self.bounds.iter_mut().zip(&other.bounds) {
            total.changed += more.changed;
            total.on.iter_mut().zip(more.on).for_each(|(total, more)| *total += more);
        }
    }

    /// The least cost that a share of those who need one do not exceed; none where too few have a counterfactual.
    pub fn cost_of(&self, share: f64) -> Option<f64> {
        let rank = (share * self.sums.needed as f64).ceil() as u64;
        self.costs.ranked(rank.max(1) - 1)
    }
}

/// Counts of all groups.
#[derive(Debug, Clone)]
pub struct GroupCounts {
    /// Names of the attributes.
    attributes: Vec<String>,
    /// Per attribute, the texts of its values.
    values: Vec<Vec<Option<String>>>,
    numbers: Vec<HashMap<Option<String>, u32>>,
    /// By target, attribute and value; the first attribute is everybody.
    pub(super) cells: BTreeMap<u32, Vec<Vec<GroupCell>>>,
    /// By target, what changes together.
    pub(super) signatures: BTreeMap<u32, Signatures>,
}

impl GroupCounts {
    pub(super) fn new(attributes: &[String]) -> GroupCounts {
        let mut values = vec![Vec::new(); attributes.len() + 1];
        let mut numbers = vec![HashMap::new(); attributes.len() + 1];
        values[0].push(None);
        numbers[0].insert(None, 0);
        let (attributes, cells, signatures) =
            (attributes.to_vec(), BTreeMap::new(), BTreeMap::new());
        GroupCounts { attributes, values, numbers, cells, signatures }
    }

    /// Everybody is one of them.
    pub(super) fn attributes(&self) -> usize {
        self.values.len()
    }

    /// The name of an attribute; none for everybody.
    pub(super) fn attribute(&self, attribute: usize) -> Option<&str> {
        Some(self.attributes.get(attribute.checked_sub(1)?)?.as_str())
    }

    /// The text of a value; none for everybody, and for nulls.
    pub(super) fn value(&self, attribute: usize, value: usize) -> Option<&str> {
        self.values[attribute][value].as_deref()
    }

    /// The number of a value.
    pub(super) fn number(&mut self, attribute: usize, value: Option<&str>) -> u32 {
        let owned = value.map(String::from);
        if let Some(number) = self.numbers[attribute].get(&owned) {
            return *number;
        }
        let number = self.values[attribute].len() as u32;
        self.values[attribute].push(owned.clone());
        self.numbers[attribute].insert(owned, number);
        number
    }

    pub(super) fn cell(&mut self, target: u32, attribute: usize, value: u32) -> &mut GroupCell {
        let attributes = self.values.len();
        let of_target = self.cells.entry(target).or_insert_with(|| vec![Vec::new(); attributes]);
        let cells = &mut of_target[attribute];
        if cells.len() <= value as usize {
            cells.resize(value as usize + 1, GroupCell::default());
        }
        &mut cells[value as usize]
    }

    pub(super) fn merge(&mut self, other: &GroupCounts) {
        let mut numbers: Vec<Vec<u32>> = Vec::new();
        for (attribute, values) in other.values.iter().enumerate() {
            let total = values.iter().map(|value| self.number(attribute, value.as_deref()));
            numbers.push(total.collect());
        }
        for (target, attributes) in &other.cells {
            for (attribute, cells) in attributes.iter().enumerate() {
                for (value, cell) in cells.iter().enumerate() {
                    self.cell(*target, attribute, numbers[attribute][value]).merge(cell);
                }
            }
        }
        for (target, signatures) in &other.signatures {
            self.signatures.entry(*target).or_default().merge(signatures, &numbers);
        }
    }
}
