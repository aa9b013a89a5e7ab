//! One categorical feature: what its values may become.

use std::ops::Range;

use super::bounds::RowBounds;
use super::conditions::ConditionBlock;
use super::{Conditions, NetworkOutput, codes_of};
use crate::encode::CategoricalSlots;
use crate::feature::{Categorical, Change, NULL_CODE};

/// What may become of a categorical feature.
#[derive(Debug, Clone)]
pub(super) struct CategoricalRule {
    /// Index of the feature.
    pub(super) feature: usize,
    /// Where its mask stands in a condition.
    offset: usize,
    slots: CategoricalSlots,
    /// Per listed value whether a row may move to it.
    allowed: Vec<bool>,
    /// The same as a mask, with zeros for the states that are no values.
    mask: Vec<f32>,
    /// Where rows may move one way only, the rank of each value times that way.
    ranks: Option<Vec<i64>>,
}

impl CategoricalRule {
    /// The rule of a feature with that kind of change.
    pub(super) fn new(
        change: Change,
        categorical: &Categorical,
        slots: &CategoricalSlots,
    ) -> CategoricalRule {
        let may = |allowed: &bool| *allowed && change != Change::Never;
        let allowed: Vec<bool> = categorical.allowed.iter().map(may).collect();
        let mut mask: Vec<f32> = allowed.iter().map(|may| f32::from(u8::from(*may))).collect();
        mask.resize(slots.block().len(), 0.0);
        let way = match change {
            Change::Increase => Some(1),
            Change::Decrease => Some(-1),
            Change::Any | Change::Never => None,
        };
        let ranks = way.and_then(|way| {
            let ranks = categorical.ranks.as_ref()?.iter();
            Some(ranks.map(|rank| way * i64::from(*rank)).collect())
        });
        CategoricalRule { feature: 0, offset: 0, slots: slots.clone(), allowed, mask, ranks }
    }

    /// The rule for the feature of that index, whose mask stands at `offset` in a condition.
    pub(super) fn at(self, feature: usize, offset: usize) -> CategoricalRule {
        CategoricalRule { feature, offset, ..self }
    }

    /// Whether some row could change: there is a value to move to, and another state to come from.
    pub(super) fn can_change(&self) -> bool {
        let states = self.slots.values + usize::from(self.slots.unseen.is_some());
        states > 1 && self.allowed.contains(&true)
    }

    /// Where the original state stands in a condition; none if it has no offset.
    fn original_offset(&self, original: u32) -> Option<usize> {
        Some(self.offset + self.slots.slot(original)? - self.slots.first)
    }

    /// Listed values.
    pub(super) fn values(&self) -> usize {
        self.slots.values
    }

    /// Whether a value is the way that rows may move. From what has no rank there is no way.
    fn is_onward(&self, code: usize, original: u32) -> bool {
        let Some(ranks) = &self.ranks else { return true };
        ranks.get(original as usize).is_some_and(|original| ranks[code] > *original)
    }

    /// Whether a condition lets rows move to a value from their own.
    pub(super) fn allows(&self, code: u32, original: u32, condition: &[f32]) -> bool {
        let allowed = self.allowed.get(code as usize).copied().unwrap_or(false);
        allowed
            && self.is_onward(code as usize, original)
            && condition[self.offset + code as usize] > 0.5
    }

    /// Whether a condition allows another value than the original.
    pub(super) fn has_choice(&self, original: u32, condition: &[f32]) -> bool {
        let original = self.original_offset(original);
        let offsets = self.offset..self.offset + self.slots.values;
        offsets.into_iter().any(|offset| condition[offset] > 0.5 && Some(offset) != original)
    }

    /// Writes the widest mask of each row of a block.
    pub(super) fn widest(
        &self,
        original: &[u32],
        bounds: &RowBounds,
        block: &mut ConditionBlock<'_>,
    ) {
        let lists = bounds.allowed(self.feature);
        for (row, target) in block.rows() {
            let mask = &mut target[self.offset..self.offset + self.mask.len()];
            if original[row] != NULL_CODE {
                mask.copy_from_slice(&self.mask);
            }
            if self.ranks.is_some() {
                let onward = |code| f32::from(u8::from(self.is_onward(code, original[row])));
                (0..self.slots.values).for_each(|code| mask[code] *= onward(code));
            }
            if let Some(lists) = lists {
                let listed = |code| f32::from(u8::from(lists.contains(row, code)));
                (0..self.slots.values).for_each(|code| mask[code] *= listed(code));
            }
            if let Some(offset) = self.original_offset(original[row]) {
                target[offset] = 1.0;
            }
        }
    }

    /// Puts the original state of every row into its mask.
    pub(super) fn allow_original(&self, original: &[u32], conditions: &mut Conditions) {
        for (original, row) in
            original.iter().zip(conditions.values.chunks_exact_mut(conditions.width))
        {
            if let Some(offset) = self.original_offset(*original) {
                row[offset] = 1.0;
            }
        }
    }

    /// Appends the codes that a network's output stands for.
    pub(super) fn settle(
        &self,
        network_output: &NetworkOutput<'_>,
        block: &Range<usize>,
        into: &mut Vec<u32>,
    ) {
        let original = &codes_of(network_output.rows, self.feature)[block.clone()];
        if !self.allowed.contains(&true) {
            into.extend_from_slice(original);
            return;
        }
        let rows = block.clone().zip(original);
        match network_output.bounds.allowed(self.feature) {
            None => into.extend(
                rows.map(|(row, original)| self.settled(network_output, row, *original, |_| true)),
            ),
            Some(lists) => into.extend(rows.map(|(row, original)| {
                self.settled(network_output, row, *original, |code| lists.contains(row, code))
            })),
        }
    }

    /// The most probable of what is allowed; of equally probable ones the original state, then the first. A NaN
    /// is no probability. Logits are compared, not a masked softmax, which can be zero everywhere.
    #[inline]
    fn settled(
        &self,
        network_output: &NetworkOutput<'_>,
        row: usize,
        original: u32,
        listed: impl Fn(usize) -> bool,
    ) -> u32 {
        if original == NULL_CODE {
            return original;
        }
        let output = network_output.decoded.row(row);
        let logits = &output[self.slots.first..self.slots.first + self.slots.values];
        let mask =
            &network_output.conditions.row(row)[self.offset..self.offset + self.slots.values];
        let mut best = self.slots.slot(original).map_or(f32::NAN, |slot| output[slot]);
        let mut chosen = original;
        for (code, ((logit, mask), allowed)) in
            logits.iter().zip(mask).zip(&self.allowed).enumerate()
        {
            let better = *logit > best || (best.is_nan() && !logit.is_nan());
            if better && *allowed && *mask > 0.5 && self.is_onward(code, original) && listed(code) {
                (best, chosen) = (*logit, code as u32);
            }
        }
        chosen
    }
}
