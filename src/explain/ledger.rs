//! What explaining a unit of work gives beside the table: rejects, counts, rows for the comparison of
//! distributions, and where the time went.

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use crate::feature::Reject;
use crate::metrics::Tally;

/// What explaining some rows gives beside the table.
#[derive(Debug)]
pub struct Ledger {
    /// Rows seen.
    pub rows: u64,
    /// Rows that a score table did not know.
    pub rows_without_score: u64,
    /// Rows set aside, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// The same as rows of the rejects table.
    pub rejects: Vec<RecordBatch>,
    /// Those of the last block, by their place in it.
    pub last_rejects: Vec<Reject>,
    /// Counts by target and segment.
    pub tally: Tally,
    /// Rows kept for the comparison of distributions.
    pub kept: Kept,
    /// Answers whose refinement was cut short by the clock.
    pub cut_short: u64,
    /// Counterfactuals that were not found, by what kept them from being found.
    pub unsolved: BTreeMap<String, u64>,
    /// Where the time went.
    pub seconds: StageSeconds,
}

/// Some explained rows as numbers, before and after.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// Numbers in a row.
    pub width: usize,
    /// Hashes of their keys.
    pub hashes: Vec<u128>,
    /// Number of the wanted decision.
    pub targets: Vec<u32>,
    /// Number of the segment in the tally.
    pub segments: Vec<u32>,
    /// Whether the counterfactual is valid.
    pub valid: Vec<bool>,
    /// Encoded counterfactuals.
    pub counterfactuals: Vec<f32>,
    /// The rows as they were.
    pub originals: Vec<f32>,
    /// By wanted decision, the greatest hash that can still be among the smallest.
    ends: BTreeMap<u32, u128>,
    /// Rows that were left when it was last pruned.
    pruned: usize,
}

impl Kept {
    /// None yet, for encoded rows of this width.
    pub fn new(width: usize) -> Kept {
        Kept { width, ..Kept::default() }
    }

    /// Whether a row could be among those with the smallest hashes.
    pub(super) fn may_keep(&self, target: u32, hash: u128) -> bool {
        self.ends.get(&target).is_none_or(|end| hash <= *end)
    }

    /// Adds rows behind its own.
    pub fn append(&mut self, more: Kept) {
        self.hashes.extend(more.hashes);
        self.targets.extend(more.targets);
        self.segments.extend(more.segments);
        self.valid.extend(more.valid);
        self.counterfactuals.extend(more.counterfactuals);
        self.originals.extend(more.originals);
    }

    /// The same as [`Kept::prune`], if there are many more than that.
    pub fn prune_if_long(&mut self, most: usize) {
        if self.hashes.len() > 2 * (self.pruned + most) {
            self.prune(most);
        }
    }

    /// Leaves, of each wanted decision, the rows with the smallest hashes, at most so many, in the order of
    /// their hashes: a random sample, and the same however the table is cut.
    pub fn prune(&mut self, most: usize) {
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, target) in self.targets.iter().enumerate() {
            groups.entry(*target).or_default().push(place);
        }
        for (target, places) in &mut groups {
            places.sort_by_key(|place| self.hashes[*place]);
            places.truncate(most);
            if let Some(last) = places.last().filter(|_| places.len() == most) {
                self.ends.insert(*target, self.hashes[*last]);
            }
        }
        let places: Vec<usize> = groups.into_values().flatten().collect();
        let wide = |values: &[f32]| -> Vec<f32> {
            let row = |place: &usize| &values[place * self.width..(place + 1) * self.width];
            places.iter().flat_map(row).copied().collect()
        };
        let (counterfactuals, originals) = (wide(&self.counterfactuals), wide(&self.originals));
        self.hashes = places.iter().map(|place| self.hashes[*place]).collect();
        self.targets = places.iter().map(|place| self.targets[*place]).collect();
        self.segments = places.iter().map(|place| self.segments[*place]).collect();
        self.valid = places.iter().map(|place| self.valid[*place]).collect();
        (self.counterfactuals, self.originals) = (counterfactuals, originals);
        self.pruned = places.len();
    }
}

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Admitting rows and asking the model, or the score table, what it decided.
    Decide,
    /// Encoding, generating, constraining.
    Generate,
    /// Asking the model about counterfactuals.
    Score,
    /// Refining them …
    Refine,
    /// … and asking the model meanwhile.
    Rescore,
    /// Distances and counts.
    Measure,
    /// Making the table.
    Tabulate,
    /// Writing it.
    Write,
}

/// Seconds of work by stage, all threads together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StageSeconds {
    /// Admitting rows and asking what was decided.
    pub decide: f64,
    /// Encoding, generating, constraining.
    pub generate: f64,
    /// Asking the model about counterfactuals.
    pub score: f64,
    /// Refining them.
    pub refine: f64,
    /// Asking the model while refining.
    pub rescore: f64,
    /// Distances and counts.
    pub measure: f64,
    /// Making the table.
    pub tabulate: f64,
    /// Writing it.
    pub write: f64,
}

impl StageSeconds {
    /// Adds the seconds since a moment to a stage, and starts the moment anew.
    pub fn clock(&mut self, stage: Stage, since: &mut Instant) {
        let now = Instant::now();
        self.add_to(stage, now.duration_since(*since).as_secs_f64());
        *since = now;
    }

    /// Adds seconds to a stage.
    pub(super) fn add_to(&mut self, stage: Stage, seconds: f64) {
        *match stage {
            Stage::Decide => &mut self.decide,
            Stage::Generate => &mut self.generate,
            Stage::Score => &mut self.score,
            Stage::Refine => &mut self.refine,
            Stage::Rescore => &mut self.rescore,
            Stage::Measure => &mut self.measure,
            Stage::Tabulate => &mut self.tabulate,
            Stage::Write => &mut self.write,
        } += seconds;
    }

    /// Adds another's.
    pub fn add(&mut self, other: &StageSeconds) {
        self.decide += other.decide;
        self.generate += other.generate;
        self.score += other.score;
        self.refine += other.refine;
        self.rescore += other.rescore;
        self.measure += other.measure;
        self.tabulate += other.tabulate;
        self.write += other.write;
    }
}

impl Ledger {
    /// An empty one, for encoded rows of this width.
    pub(super) fn new(width: usize) -> Ledger {
        Ledger {
            rows: 0,
            rows_without_score: 0,
            rejected: BTreeMap::new(),
            rejects: Vec::new(),
            last_rejects: Vec::new(),
            tally: Tally::default(),
            kept: Kept::new(width),
            cut_short: 0,
            unsolved: BTreeMap::new(),
            seconds: StageSeconds::default(),
        }
    }

    pub(super) fn clock(&mut self, stage: Stage, since: &mut Instant) {
        self.seconds.clock(stage, since);
    }

    pub(super) fn reject(&mut self, table: RecordBatch, rejects: Vec<Reject>) {
        for reject in &rejects {
            *self.rejected.entry(reject.reason.name().to_string()).or_default() += 1;
        }
        if !rejects.is_empty() {
            self.rejects.push(table);
        }
        self.last_rejects = rejects;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(rows: impl Iterator<Item = (u128, u32)>) -> Kept {
        let mut kept = Kept::new(1);
        for (hash, target) in rows {
            let number = hash as f32;
            kept.append(Kept {
                hashes: vec![hash],
                targets: vec![target],
                segments: vec![0],
                valid: vec![hash.is_multiple_of(2)],
                counterfactuals: vec![number],
                originals: vec![-number],
                ..Kept::default()
            });
        }
        kept
    }

    #[test]
    fn the_smallest_hashes_of_every_target_are_left_however_rows_come() {
        let rows = |place: u128| (place * 37 % 101, u32::from(place.is_multiple_of(3)));
        let mut whole = kept((0..100).map(rows));
        whole.prune(5);
        assert_eq!(whole.targets, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
        assert!(whole.hashes[..5].is_sorted() && whole.hashes[5..].is_sorted());
        let numbers: Vec<f32> = whole.hashes.iter().map(|hash| *hash as f32).collect();
        assert_eq!(whole.counterfactuals, numbers);
        let mut parts = Kept::new(1);
        for first in (0..100).step_by(10) {
            let part = (first..first + 10).map(rows);
            parts.append(kept(part.filter(|(hash, target)| parts.may_keep(*target, *hash))));
            parts.prune_if_long(5);
        }
        parts.prune(5);
        assert_eq!((parts.hashes, parts.originals), (whole.hashes, whole.originals));
    }
}
