//! The explained rows that distributions are compared on, chosen by the hashes of their keys: a random sample, and the
//! same however the table is cut.

use std::collections::BTreeMap;

use crate::metrics::Segment;

/// Which counterfactuals are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// None.
    None,
    /// Of each target so many, those with the smallest hashes of keys.
    Most(usize),
    /// All.
    All,
}

/// Some explained rows as numbers, before and after.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MmdSample {
    /// Numbers in a row.
    pub width: usize,
    /// Hashes of their keys.
    pub hashes: Vec<u128>,
    /// Number of the target.
    pub targets: Vec<u32>,
    /// Number of the segment in the tally.
    pub segments: Vec<u32>,
    /// Whether the counterfactual is valid.
    pub valid: Vec<bool>,
    /// Encoded counterfactuals.
    pub counterfactuals: Vec<f32>,
    /// The rows as they were.
    pub originals: Vec<f32>,
    /// By target, the greatest hash that can still be among the smallest.
    pub(super) ends: BTreeMap<u32, u128>,
    /// Rows that were left when it was last pruned.
    pub(super) pruned: usize,
}

impl MmdSample {
    /// None yet, for encoded rows of this width.
    pub fn new(width: usize) -> MmdSample {
        MmdSample { width, ..MmdSample::default() }
    }

    /// Whether a row could be among those with the smallest hashes.
    pub(super) fn may_keep(&self, target: u32, hash: u128) -> bool {
        self.ends.get(&target).is_none_or(|end| hash <= *end)
    }

    /// Adds rows behind its own.
    pub fn append(&mut self, more: MmdSample) {
        self.hashes.extend(more.hashes);
        self.targets.extend(more.targets);
        self.segments.extend(more.segments);
        self.valid.extend(more.valid);
        self.counterfactuals.extend(more.counterfactuals);
        self.originals.extend(more.originals);
    }

    /// Numbers its segments, which are those of one list, as those of another that has them all.
    pub fn renumber(&mut self, from: &[Segment], to: &[Segment]) {
        let number = |segment: &Segment| to.iter().position(|known| known == segment);
        let numbers: Vec<u32> =
            from.iter().map(|segment| number(segment).map_or(u32::MAX, |of| of as u32)).collect();
        self.segments.iter_mut().for_each(|segment| *segment = numbers[*segment as usize]);
    }

    /// The same as [`MmdSample::prune`], if there are many more than that.
    pub fn prune_if_long(&mut self, most: usize) {
        if self.hashes.len() > 2 * (self.pruned + most) {
            self.prune(most);
        }
    }

    /// Leaves, of each target, the rows with the smallest hashes, at most so many, in the order of their hashes.
    pub fn prune(&mut self, most: usize) {
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, target) in self.targets.iter().enumerate() {
            groups.entry(*target).or_default().push(index);
        }
        for (target, indexes) in &mut groups {
            indexes.sort_by_key(|index| self.hashes[*index]);
            indexes.truncate(most);
            if let Some(last) = indexes.last().filter(|_| indexes.len() == most) {
                self.ends.insert(*target, self.hashes[*last]);
            }
        }
        let indexes: Vec<usize> = groups.into_values().flatten().collect();
        *self = MmdSample {
            pruned: indexes.len(),
            ends: std::mem::take(&mut self.ends),
            ..self.take(&indexes)
        };
    }

    /// Rows of it, in this order.
    pub(super) fn take(&self, indexes: &[usize]) -> MmdSample {
        let wide = |values: &[f32]| -> Vec<f32> {
            let row = |index: &usize| &values[index * self.width..(index + 1) * self.width];
            indexes.iter().flat_map(row).copied().collect()
        };
        MmdSample {
            width: self.width,
            hashes: indexes.iter().map(|index| self.hashes[*index]).collect(),
            targets: indexes.iter().map(|index| self.targets[*index]).collect(),
            segments: indexes.iter().map(|index| self.segments[*index]).collect(),
            valid: indexes.iter().map(|index| self.valid[*index]).collect(),
            counterfactuals: wide(&self.counterfactuals),
            originals: wide(&self.originals),
            ..MmdSample::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rows: impl Iterator<Item = (u128, u32)>) -> MmdSample {
        let mut sample = MmdSample::new(1);
        for (hash, target) in rows {
            let number = hash as f32;
            sample.append(MmdSample {
                hashes: vec![hash],
                targets: vec![target],
                segments: vec![0],
                valid: vec![hash.is_multiple_of(2)],
                counterfactuals: vec![number],
                originals: vec![-number],
                ..MmdSample::default()
            });
        }
        sample
    }

    #[test]
    fn the_smallest_hashes_of_every_target_are_left_however_rows_come() {
        let rows = |index: u128| (index * 37 % 101, u32::from(index.is_multiple_of(3)));
        let mut whole = sample((0..100).map(rows));
        whole.prune(5);
        assert_eq!(whole.targets, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
        assert!(whole.hashes[..5].is_sorted() && whole.hashes[5..].is_sorted());
        let numbers: Vec<f32> = whole.hashes.iter().map(|hash| *hash as f32).collect();
        assert_eq!(whole.counterfactuals, numbers);
        let mut parts = MmdSample::new(1);
        for first in (0..100).step_by(10) {
            let part = (first..first + 10).map(rows);
            parts.append(sample(part.filter(|(hash, target)| parts.may_keep(*target, *hash))));
            parts.prune_if_long(5);
        }
        parts.prune(5);
        assert_eq!((parts.hashes, parts.originals), (whole.hashes, whole.originals));
    }

    #[test]
    fn segments_are_those_of_the_whole_tally() {
        let segment = |name: &str| Segment(vec![Some(name.to_string())]);
        let mut part = sample([(1, 0), (2, 0)].into_iter());
        part.segments = vec![1, 0];
        part.renumber(&[segment("b"), segment("c")], &["a", "b", "c"].map(segment));
        assert_eq!(part.segments, [2, 1]);
    }
}
