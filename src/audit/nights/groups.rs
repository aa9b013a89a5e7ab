//! Counts of what became of counterfactuals by target, group and cause, made batch by batch and merged. Sums are exact,
//! so that neither the order of the splits nor the number of threads changes a figure.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use hashbrown::HashMap;

use super::compare::Compared;
use crate::error::{Error, Result};
use crate::feature::ExactSum;

/// The group that everybody is in.
const EVERYBODY: u32 = 0;

/// What groups are called.
#[derive(Debug, Clone)]
pub struct GroupNames {
    /// Targets.
    pub targets: Vec<String>,
    /// Columns whose values are groups.
    pub by: Vec<String>,
}

/// A group: column and value, none for everybody.
pub(super) type NightGroup = (Option<usize>, Option<String>);

/// What became of the counterfactuals of some rows.
#[derive(Debug, Clone, Default)]
pub struct Stability {
    /// Rows that both runs have.
    pub rows: u64,
    /// Those that needed a counterfactual in either.
    pub needed: u64,
    /// Decisions that are others.
    pub decision_flips: u64,
    /// Rows with a valid previous counterfactual.
    pub promised: u64,
    /// Those asked about again.
    pub asked: u64,
    /// Those that still hold.
    pub still_valid: u64,
    /// Those that the constraints still allow.
    pub still_allowed: u64,
    /// Rows that made the changes in vain.
    pub broken_promises: u64,
    /// Rows with a valid counterfactual in both runs.
    pub paired: u64,
    /// Those of them that were asked about again.
    pub paired_asked: u64,
    /// Those with the same changed features.
    pub same_features: u64,
    /// Those with the same changes.
    pub same_answer: u64,
    /// Those that changed without need.
    pub needless: u64,
    pub(super) jaccard: ExactSum,
    pub(super) deltas: ExactSum,
    pub(super) squares: ExactSum,
}

impl Stability {
    fn add(&mut self, of: &Compared) {
        let flags = [
            (&mut self.needed, of.needed()),
            (&mut self.decision_flips, of.decision_flip),
            (&mut self.promised, of.yesterday_valid),
            (&mut self.asked, of.still_valid.is_some()),
            (&mut self.still_valid, of.still_valid == Some(true)),
            (&mut self.still_allowed, of.still_allowed == Some(true)),
            (&mut self.broken_promises, of.broken_promise),
            (&mut self.paired, of.jaccard.is_some()),
            (&mut self.paired_asked, of.needless.is_some()),
            (&mut self.same_features, of.same_features == Some(true)),
            (&mut self.same_answer, of.same_answer == Some(true)),
            (&mut self.needless, of.needless == Some(true)),
        ];
        flags.into_iter().for_each(|(count, flag)| *count += u64::from(flag));
        self.rows += 1;
        self.jaccard.add(of.jaccard.unwrap_or(0.0));
        if let Some(delta) = of.cost_delta() {
            self.deltas.add(delta);
            self.squares.add(delta * delta);
        }
    }

    /// Adds the counts of other rows.
    pub fn merge(&mut self, other: &Stability) {
        let counts = [
            (&mut self.rows, other.rows),
            (&mut self.needed, other.needed),
            (&mut self.decision_flips, other.decision_flips),
            (&mut self.promised, other.promised),
            (&mut self.asked, other.asked),
            (&mut self.still_valid, other.still_valid),
            (&mut self.still_allowed, other.still_allowed),
            (&mut self.broken_promises, other.broken_promises),
            (&mut self.paired, other.paired),
            (&mut self.paired_asked, other.paired_asked),
            (&mut self.same_features, other.same_features),
            (&mut self.same_answer, other.same_answer),
            (&mut self.needless, other.needless),
        ];
        counts.into_iter().for_each(|(count, more)| *count += more);
        self.jaccard.merge(&other.jaccard);
        self.deltas.merge(&other.deltas);
        self.squares.merge(&other.squares);
    }

    /// Share of the previous counterfactuals that still hold.
    pub fn recourse_validity(&self) -> Option<f64> {
        share(self.still_valid, self.asked)
    }

    /// Share of the counterfactuals that changed without need.
    pub fn needless_churn(&self) -> Option<f64> {
        share(self.needless, self.paired_asked)
    }

    /// 1 − mean share of changed features that both runs have in common.
    pub fn answer_churn(&self) -> Option<f64> {
        (self.paired > 0).then(|| 1.0 - self.jaccard.value() / self.paired as f64)
    }

    /// Mean difference of costs, and its standard error where there are two or more.
    pub fn cost_drift(&self) -> Option<(f64, Option<f64>)> {
        let count = self.paired as f64;
        let mean = self.deltas.value() / count;
        let squares = (self.squares.value() - count * mean * mean).max(0.0);
        let error = (self.paired > 1).then(|| (squares / (count - 1.0) / count).sqrt());
        (self.paired > 0).then_some((mean, error))
    }
}

/// A share; none of nothing.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Counts by target, group and cause.
#[derive(Debug, Clone)]
pub struct Groups {
    /// Groups by their numbers.
    names: Vec<NightGroup>,
    /// By column: value → number.
    numbers: Vec<HashMap<Option<String>, u32>>,
    /// By target and group, then by cause.
    counts: BTreeMap<(u32, u32), BTreeMap<&'static str, Stability>>,
    /// Rows that only this run has, by target and group.
    appeared: BTreeMap<(u32, u32), u64>,
    /// Rows that only the previous run has, by target.
    vanished: BTreeMap<u32, u64>,
}

impl Groups {
    /// No counts yet, by so many columns.
    pub fn new(columns: usize) -> Groups {
        Groups {
            names: vec![(None, None)],
            numbers: vec![HashMap::new(); columns],
            counts: BTreeMap::new(),
            appeared: BTreeMap::new(),
            vanished: BTreeMap::new(),
        }
    }

    fn number(&mut self, column: usize, value: Option<&str>) -> u32 {
        let value = value.map(String::from);
        if let Some(number) = self.numbers[column].get(&value) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push((Some(column), value.clone()));
        self.numbers[column].insert(value, number);
        number
    }

    /// The groups of the rows of a batch, column by column.
    ///
    /// # Errors
    /// When a column has no text.
    pub(super) fn of(&mut self, columns: &[ArrayRef]) -> Result<Vec<Vec<u32>>> {
        let mut found = vec![vec![EVERYBODY; columns.first().map_or(0, Array::len)]];
        for (index, column) in columns.iter().enumerate() {
            let texts = cast(column, &DataType::Utf8).map_err(|error| {
                let problem =
                    format!("names a column of type {}, which has no text", column.data_type());
                Error::spec("audit.by", problem).source(error)
            })?;
            // Neighbouring rows often have the same value.
            let mut known: HashMap<Option<&str>, u32> = HashMap::new();
            let mut numbers = Vec::with_capacity(texts.len());
            for value in texts.as_string::<i32>() {
                let number = match known.get(&value) {
                    Some(number) => *number,
                    None => *known.entry(value).insert(self.number(index, value)).get(),
                };
                numbers.push(number);
            }
            found.push(numbers);
        }
        Ok(found)
    }

    /// Counts a row that both runs have, in each of its groups.
    pub(super) fn add(&mut self, groups: impl Iterator<Item = u32>, of: &Compared) {
        for group in groups {
            let causes = self.counts.entry((of.target, group)).or_default();
            causes.entry(of.cause).or_default().add(of);
        }
    }

    /// Counts a row that only this run has.
    pub(super) fn appear(&mut self, groups: impl Iterator<Item = u32>, target: u32) {
        for group in groups {
            *self.appeared.entry((target, group)).or_default() += 1;
        }
    }

    /// Counts rows that only the previous run has.
    pub fn vanish(&mut self, target: u32, rows: u64) {
        *self.vanished.entry(target).or_default() += rows;
    }

    /// Takes over what was counted of other rows.
    pub fn merge(&mut self, other: Groups) {
        let numbers: Vec<u32> = other
            .names
            .iter()
            .map(|(column, value)| match column {
                None => EVERYBODY,
                Some(column) => self.number(*column, value.as_deref()),
            })
            .collect();
        for ((target, group), causes) in other.counts {
            let of_group = self.counts.entry((target, numbers[group as usize])).or_default();
            for (cause, counts) in causes {
                of_group.entry(cause).or_default().merge(&counts);
            }
        }
        for ((target, group), rows) in other.appeared {
            *self.appeared.entry((target, numbers[group as usize])).or_default() += rows;
        }
        other.vanished.into_iter().for_each(|(target, rows)| self.vanish(target, rows));
    }

    /// All rows of all targets.
    pub fn total(&self) -> Stability {
        let mut total = Stability::default();
        let everybody = self.counts.iter().filter(|((_, group), _)| *group == EVERYBODY);
        everybody.flat_map(|(_, causes)| causes.values()).for_each(|counts| total.merge(counts));
        total
    }

    /// Rows that only this run has, and those that only the previous has, of all targets.
    pub fn unpaired(&self) -> (u64, u64) {
        let everybody = self.appeared.iter().filter(|((_, group), _)| *group == EVERYBODY);
        (everybody.map(|(_, rows)| rows).sum(), self.vanished.values().sum())
    }

    /// Targets with their groups, everybody first, then by column and value.
    pub(super) fn listed(&self) -> Vec<(u32, &NightGroup, u32)> {
        let mut found: Vec<(u32, &NightGroup, u32)> = Vec::new();
        for (target, group) in self.counts.keys().chain(self.appeared.keys()).copied() {
            found.push((target, &self.names[group as usize], group));
        }
        found.extend(self.vanished.keys().map(|target| (*target, &self.names[0], EVERYBODY)));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Counts of a target and group: by cause in their order, all of them first.
    pub(super) fn causes(&self, target: u32, group: u32) -> Vec<(Option<&'static str>, Stability)> {
        let mut found = vec![(None, Stability::default())];
        for (cause, counts) in self.counts.get(&(target, group)).into_iter().flatten() {
            found[0].1.merge(counts);
            found.push((Some(*cause), counts.clone()));
        }
        found
    }

    /// Rows that only this run has, and for everybody those that only the previous has.
    pub(super) fn unpaired_of(&self, target: u32, group: u32) -> (u64, Option<u64>) {
        let appeared = self.appeared.get(&(target, group)).copied().unwrap_or(0);
        let vanished = self.vanished.get(&target).copied().unwrap_or(0);
        (appeared, (group == EVERYBODY).then_some(vanished))
    }
}
