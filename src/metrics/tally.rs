//! Counts of counterfactuals by target and segment, made batch by batch and merged: what all
//! reports but the comparison of distributions are made of. Sums are exact, so that neither the order of the
//! splits nor the number of threads changes a figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Distances, Sketch, Source, Status};
use crate::error::{Error, Result};
use crate::feature::{Cells, Rows};

/// Segments are for reports that people read; each has counts for every feature.
pub const MOST_SEGMENTS: usize = 1_000;

/// Values of the segment columns, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Segment(pub Vec<Option<String>>);

/// Counts by target and segment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Rows of the table with `sample` 0: one for every row explained.
    pub rows: u64,
    /// Segments in the order in which they were met.
    pub segments: Vec<Segment>,
    /// Target → segment → counts.
    pub groups: BTreeMap<u32, BTreeMap<u32, GroupTally>>,
    numbers: hashbrown::HashMap<Segment, u32>,
}

/// Counts of one group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupTally {
    /// First counterfactuals by status.
    pub statuses: BTreeMap<Status, RowCount>,
    /// The solved ones by what found the counterfactual.
    pub sources: BTreeMap<Source, RowCount>,
    /// Those that are proven infeasible.
    pub certified: u64,
    /// Counterfactuals that were needed: not of rows that are at the target.
    pub all: DistanceSketches,
    /// The valid ones among them.
    pub valid: DistanceSketches,
    /// Plausibility of the valid ones.
    pub plausibility: Sketch,
    /// How far inside the target the valid ones are, where that is known.
    pub margin: Sketch,
    /// How the valid ones do under models beside the predictor, if there are any.
    pub robust: RobustCounts,
    /// Per feature, over the valid ones.
    pub features: Vec<FeatureChanges>,
}

/// Some first counterfactuals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowCount {
    /// How many.
    pub rows: u64,
    /// Times that the model was asked about them.
    pub queries: u64,
}

impl RowCount {
    fn add(&mut self, other: RowCount) {
        self.rows += other.rows;
        self.queries += other.queries;
    }
}

/// How counterfactuals do under models beside the predictor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RobustCounts {
    /// Counterfactuals by the number of models under which they hold.
    pub held: BTreeMap<u32, u64>,
    /// What those cost that hold under enough of them …
    pub cost: Sketch,
    /// … and how much more that is than what the cheapest one cost that was seen and does not.
    pub extra_cost: Sketch,
}

impl RobustCounts {
    /// Counterfactuals that the models were asked about.
    pub fn rows(&self) -> u64 {
        self.held.values().sum()
    }

    /// Those that hold under at least so many.
    pub fn holding(&self, needed: u32) -> u64 {
        self.held.range(needed..).map(|(_, rows)| rows).sum()
    }

    /// Models under which one holds, on average.
    pub fn mean(&self) -> Option<f64> {
        let models: u64 = self.held.iter().map(|(held, rows)| u64::from(*held) * rows).sum();
        let rows = self.rows();
        (rows > 0).then(|| models as f64 / rows as f64)
    }

    fn count(&mut self, changes: &NeededCounterfactuals<'_>, indexes: &[usize]) {
        for index in indexes.iter().copied() {
            let Some(held) = changes.robust[index] else { continue };
            *self.held.entry(held).or_default() += 1;
            let extra = changes.robustness_costs[index];
            if !extra.is_nan() {
                self.cost.add(changes.costs[index]);
                self.extra_cost.add(extra);
            }
        }
    }

    fn merge(&mut self, other: &RobustCounts) {
        for (held, rows) in &other.held {
            *self.held.entry(*held).or_default() += rows;
        }
        self.cost.merge(&other.cost);
        self.extra_cost.merge(&other.extra_cost);
    }
}

/// How far counterfactuals are from their rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DistanceSketches {
    /// Changed categoricals ÷ categoricals.
    pub l0: Sketch,
    /// Mean |Δ| of standardised numerics.
    pub l1: Sketch,
    /// Changed features.
    pub changed: Sketch,
}

/// How a feature changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeatureChanges {
    /// Counterfactuals in which it changes.
    pub changed: u64,
    /// Numbers that go up.
    pub increased: u64,
    /// Sizes of changes of numbers, in the column's unit.
    pub size: Sketch,
    /// Those that are no whole number.
    pub fractions: u64,
    /// What categories change to, by code.
    pub values: BTreeMap<u32, u64>,
}

/// What became of some rows and targets.
#[derive(Debug, Clone, Copy)]
pub struct RowOutcomes<'a> {
    /// Number of the target.
    pub targets: &'a [u32],
    /// Number of the segment.
    pub segments: &'a [u32],
    /// What became of it.
    pub status: &'a [Status],
    /// What found it, if it is solved.
    pub source: &'a [Option<Source>],
    /// Whether it is the first for its row and target.
    pub first: &'a [bool],
    /// Its number within the row.
    pub samples: &'a [i32],
    /// Times that the model was asked about it.
    pub queries: &'a [u32],
    /// Whether it is proven infeasible.
    pub certified: &'a [bool],
}

/// Counterfactuals that were needed: not of rows that are at the target.
#[derive(Debug, Clone, Copy)]
pub struct NeededCounterfactuals<'a> {
    /// Number of the target.
    pub targets: &'a [u32],
    /// Number of the segment.
    pub segments: &'a [u32],
    /// Whether the model predicts the target.
    pub valid: &'a [bool],
    /// How far inside the target it is; NaN where unknown.
    pub margins: &'a [f64],
    /// How far it is from its row.
    pub distances: &'a Distances,
    /// What the changes cost; NaN where unknown.
    pub costs: &'a [f64],
    /// Under how many models beside the predictor it holds; none where they were not asked.
    pub robust: &'a [Option<u32>],
    /// What holding under enough of them costs; NaN where it does not.
    pub robustness_costs: &'a [f64],
    /// How plausible it is; NaN if that is not known.
    pub plausibility: &'a [f64],
    /// The rows as they would have to be …
    pub counterfactuals: &'a Rows,
    /// … and as they are.
    pub originals: &'a Rows,
}

impl Tally {
    /// The number of a segment.
    ///
    /// # Errors
    /// When there are more than a report can show.
    pub fn segment(&mut self, segment: Segment) -> Result<u32> {
        if self.numbers.len() != self.segments.len() {
            self.numbers = self.segments.iter().cloned().zip(0..).collect();
        }
        if let Some(number) = self.numbers.get(&segment) {
            return Ok(*number);
        }
        if self.segments.len() == MOST_SEGMENTS {
            return Err(Error::internal("segments", "there are more than were counted"));
        }
        let number = self.segments.len() as u32;
        self.segments.push(segment.clone());
        self.numbers.insert(segment, number);
        Ok(number)
    }

    /// Counts what became of rows of features.
    pub fn count_outcomes(&mut self, outcomes: &RowOutcomes<'_>, features: usize) {
        self.rows += outcomes.samples.iter().filter(|sample| **sample == 0).count() as u64;
        for (key, indexes) in by_group(outcomes.targets, outcomes.segments) {
            self.group(key, features).count_outcomes(outcomes, &indexes);
        }
    }

    /// Counts how counterfactuals differ from their rows.
    pub fn count_changes(&mut self, changes: &NeededCounterfactuals<'_>) {
        for (key, indexes) in by_group(changes.targets, changes.segments) {
            self.group(key, changes.originals.cells.len()).count_changes(changes, &indexes);
        }
    }

    /// Adds another's counts.
    ///
    /// # Errors
    /// When there are more segments than a report can show.
    pub fn merge(&mut self, other: &Tally) -> Result<()> {
        self.rows += other.rows;
        let numbers: Vec<u32> = other
            .segments
            .iter()
            .map(|segment| self.segment(segment.clone()))
            .collect::<Result<_>>()?;
        for (target, groups) in &other.groups {
            for (segment, group) in groups {
                let key = (*target, numbers[*segment as usize]);
                self.group(key, group.features.len()).merge(group);
            }
        }
        Ok(())
    }

    fn group(&mut self, (target, segment): (u32, u32), features: usize) -> &mut GroupTally {
        let group = self.groups.entry(target).or_default().entry(segment).or_default();
        group.features.resize(features, FeatureChanges::default());
        group
    }

    /// The counts of a target over all segments.
    pub fn of_target(&self, target: u32) -> GroupTally {
        let mut total = GroupTally::default();
        let groups = self.groups.get(&target).into_iter().flat_map(BTreeMap::values);
        groups.for_each(|group| total.merge(group));
        total
    }

    /// The counts of everything.
    pub fn total(&self) -> GroupTally {
        let mut total = GroupTally::default();
        let groups = self.groups.values().flat_map(BTreeMap::values);
        groups.for_each(|group| total.merge(group));
        total
    }
}

/// Indexes by group, in the order of the groups.
fn by_group(targets: &[u32], segments: &[u32]) -> BTreeMap<(u32, u32), Vec<usize>> {
    let mut groups: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    for (index, key) in targets.iter().copied().zip(segments.iter().copied()).enumerate() {
        groups.entry(key).or_default().push(index);
    }
    groups
}

impl GroupTally {
    /// First counterfactuals of a status.
    pub fn of_status(&self, status: Status) -> RowCount {
        self.statuses.get(&status).copied().unwrap_or_default()
    }

    /// Sources that reports tell of: those of the default methods, and others that found something.
    pub fn reported_sources(&self) -> Vec<Source> {
        let reported = |source: &Source| {
            Source::ALWAYS_REPORTED.contains(source) || self.of_source(*source).rows > 0
        };
        Source::ALL.into_iter().filter(reported).collect()
    }

    /// Solved first counterfactuals of a source.
    pub fn of_source(&self, source: Source) -> RowCount {
        self.sources.get(&source).copied().unwrap_or_default()
    }

    /// Counterfactuals that were needed.
    pub fn needed(&self) -> u64 {
        self.all.l1.count()
    }

    /// Those that reaches the target.
    pub fn solved(&self) -> u64 {
        self.valid.l1.count()
    }

    fn count_outcomes(&mut self, outcomes: &RowOutcomes<'_>, indexes: &[usize]) {
        for index in indexes.iter().filter(|index| outcomes.first[**index]) {
            let one = RowCount { rows: 1, queries: u64::from(outcomes.queries[*index]) };
            self.statuses.entry(outcomes.status[*index]).or_default().add(one);
            if let Some(source) = outcomes.source[*index] {
                self.sources.entry(source).or_default().add(one);
            }
            self.certified += u64::from(outcomes.certified[*index]);
        }
    }

    fn count_changes(&mut self, changes: &NeededCounterfactuals<'_>, indexes: &[usize]) {
        let valid: Vec<usize> =
            indexes.iter().filter(|index| changes.valid[**index]).copied().collect();
        self.all.count(changes.distances, indexes);
        self.valid.count(changes.distances, &valid);
        valid.iter().for_each(|index| self.plausibility.add(changes.plausibility[*index]));
        valid.iter().for_each(|index| self.margin.add(changes.margins[*index]));
        self.robust.count(changes, &valid);
        let cells = changes.counterfactuals.cells.iter().zip(&changes.originals.cells);
        for (feature, (new, original)) in self.features.iter_mut().zip(cells) {
            feature.count(new, original, &valid);
        }
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &GroupTally) {
        for (status, count) in &other.statuses {
            self.statuses.entry(*status).or_default().add(*count);
        }
        for (source, count) in &other.sources {
            self.sources.entry(*source).or_default().add(*count);
        }
        self.certified += other.certified;
        self.all.merge(&other.all);
        self.valid.merge(&other.valid);
        self.plausibility.merge(&other.plausibility);
        self.margin.merge(&other.margin);
        self.robust.merge(&other.robust);
        self.features
            .resize(self.features.len().max(other.features.len()), FeatureChanges::default());
        for (feature, more) in self.features.iter_mut().zip(&other.features) {
            feature.merge(more);
        }
    }
}

impl DistanceSketches {
    fn count(&mut self, distances: &Distances, indexes: &[usize]) {
        for index in indexes {
            self.l0.add(distances.l0[*index]);
            self.l1.add(distances.l1[*index]);
            self.changed.add(f64::from(distances.changed[*index]));
        }
    }

    fn merge(&mut self, other: &DistanceSketches) {
        self.l0.merge(&other.l0);
        self.l1.merge(&other.l1);
        self.changed.merge(&other.changed);
    }
}

impl FeatureChanges {
    fn count(&mut self, new: &Cells, original: &Cells, indexes: &[usize]) {
        match (new, original) {
            (Cells::Numbers(new), Cells::Numbers(original)) => {
                for index in indexes {
                    let moved = new[*index] - original[*index];
                    // A null has nothing to move from or to.
                    if moved.abs() > 0.0 {
                        self.changed += 1;
                        self.increased += u64::from(moved > 0.0);
                        self.size.add(moved.abs());
                        self.fractions += u64::from(moved.fract() != 0.0);
                    }
                }
            }
            (Cells::Codes(new), Cells::Codes(original)) => {
                for index in indexes.iter().filter(|index| new[**index] != original[**index]) {
                    self.changed += 1;
                    *self.values.entry(new[*index]).or_default() += 1;
                }
            }
            _ => unreachable!("rows of one schema have the same columns"),
        }
    }

    fn merge(&mut self, other: &FeatureChanges) {
        self.changed += other.changed;
        self.increased += other.increased;
        self.size.merge(&other.size);
        self.fractions += other.fractions;
        for (code, rows) in &other.values {
            *self.values.entry(*code).or_default() += rows;
        }
    }
}
