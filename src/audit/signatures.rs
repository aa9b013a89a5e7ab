//! Which features change together, and which way: counted exactly while there are not too many; then the rarest are
//! given up, and how many rows each of the others may lack is known.

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::metrics::Sketch;

/// Signatures that are kept when there are twice as many.
const MOST_SIGNATURES: usize = 4_096;
/// Sizes kept one by one; of more, a sketch.
const FEW: usize = 24;

/// What changes, which way, in the schema's order.
pub(super) type Signature = SmallVec<[Move; 3]>;

/// A feature and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Move {
    pub(super) feature: u32,
    pub(super) way: MoveWay,
}

/// Where a feature goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum MoveWay {
    Up,
    Down,
    /// To the category of this code.
    To(u32),
}

/// Signatures of one target.
#[derive(Debug, Clone, Default)]
pub(super) struct Signatures {
    pub(super) entries: HashMap<Signature, SignatureTally>,
    /// Most rows that a signature may have lost.
    pub(super) missed: u64,
}

/// Valid counterfactuals with one signature.
#[derive(Debug, Clone, Default)]
pub(super) struct SignatureTally {
    pub(super) rows: u64,
    /// Rows by attribute and value, everybody aside.
    pub(super) groups: HashMap<(u32, u32), u64>,
    /// Per change, how far numbers move.
    pub(super) sizes: SmallVec<[MoveSizes; 3]>,
}

/// How far a number moves.
#[derive(Debug, Clone, Default)]
pub(super) struct MoveSizes {
    /// While there are few, all of them …
    few: Vec<f64>,
    /// … then a sketch.
    many: Option<Box<Sketch>>,
    /// Whether one of them is no whole number.
    fractions: bool,
}

impl Signatures {
    /// Counts a valid counterfactual of some groups.
    pub(super) fn add(&mut self, signature: Signature, sizes: &[f64], groups: &[(u32, u32)]) {
        let entry = self.entry(signature);
        entry.rows += 1;
        groups.iter().for_each(|group| *entry.groups.entry(*group).or_default() += 1);
        entry.sizes.resize(sizes.len(), MoveSizes::default());
        entry.sizes.iter_mut().zip(sizes).for_each(|(total, size)| total.add(*size));
    }

    fn entry(&mut self, signature: Signature) -> &mut SignatureTally {
        if self.entries.len() >= 2 * MOST_SIGNATURES && !self.entries.contains_key(&signature) {
            self.prune();
        }
        self.entries.entry(signature).or_default()
    }

    /// Gives the rarest up.
    fn prune(&mut self) {
        let mut ranked: Vec<(u64, Signature)> =
            self.entries.iter().map(|(signature, entry)| (entry.rows, signature.clone())).collect();
        ranked.sort_unstable_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(&right.1)));
        let given_up = &ranked[MOST_SIGNATURES.min(ranked.len())..];
        self.missed += given_up.first().map_or(0, |(rows, _)| *rows);
        for (_, signature) in given_up {
            self.entries.remove(signature);
        }
    }

    /// Adds another's counts, whose values have these numbers here.
    pub(super) fn merge(&mut self, other: &Signatures, numbers: &[Vec<u32>]) {
        self.missed += other.missed;
        // In an order of their own: what is given up must not depend on that of a hash table.
        let mut entries: Vec<(&Signature, &SignatureTally)> = other.entries.iter().collect();
        entries.sort_unstable_by_key(|(signature, _)| *signature);
        for (signature, more) in entries {
            let total = self.entry(signature.clone());
            total.rows += more.rows;
            for ((attribute, value), rows) in &more.groups {
                let value = numbers[*attribute as usize][*value as usize];
                *total.groups.entry((*attribute, value)).or_default() += rows;
            }
            total.sizes.resize(more.sizes.len(), MoveSizes::default());
            total.sizes.iter_mut().zip(&more.sizes).for_each(|(total, more)| total.merge(more));
        }
    }

    /// All of them, the commonest first.
    pub(super) fn ranked(&self) -> Vec<(&Signature, &SignatureTally)> {
        let mut ranked: Vec<(&Signature, &SignatureTally)> = self.entries.iter().collect();
        ranked.sort_unstable_by(|left, right| {
            right.1.rows.cmp(&left.1.rows).then(left.0.cmp(right.0))
        });
        ranked
    }
}

impl MoveSizes {
    /// Categories have none: NaN.
    fn add(&mut self, size: f64) {
        if size.is_nan() {
            return;
        }
        self.fractions |= size.fract() != 0.0;
        match &mut self.many {
            Some(sketch) => sketch.add(size),
            None if self.few.len() < FEW => self.few.push(size),
            None => self.sketch().add(size),
        }
    }

    /// What there is, as a sketch from now on.
    fn sketch(&mut self) -> &mut Sketch {
        let few = std::mem::take(&mut self.few);
        let sketch = self.many.get_or_insert_default();
        few.into_iter().for_each(|size| sketch.add(size));
        sketch
    }

    fn merge(&mut self, other: &MoveSizes) {
        self.fractions |= other.fractions;
        match &other.many {
            Some(sketch) => self.sketch().merge(sketch),
            None => other.few.iter().for_each(|size| self.add(*size)),
        }
    }

    /// The size that a share of the others is below; none of categories.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        match &self.many {
            Some(sketch) if self.fractions => sketch.quantile(share),
            // A sketch knows a number within a share of it; where all are whole, so is their quantile.
            Some(sketch) => sketch.whole_quantile(share),
            None => {
                let mut sorted = self.few.clone();
                sorted.sort_unstable_by(f64::total_cmp);
                let last = sorted.len().checked_sub(1)?;
                Some(sorted[(share * last as f64).round() as usize])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(feature: u32) -> Signature {
        [Move { feature, way: MoveWay::Up }].into_iter().collect()
    }

    #[test]
    fn counts_of_parts_add_up() {
        let rows = |index: u32| (index % 7, f64::from(index), [(1, index % 3)]);
        let mut whole = Signatures::default();
        let (mut one, mut other) = (Signatures::default(), Signatures::default());
        for index in 0..300 {
            let (feature, size, groups) = rows(index);
            whole.add(signature(feature), &[size], &groups);
            let part = if index < 130 { &mut one } else { &mut other };
            part.add(signature(feature), &[size], &groups);
        }
        one.merge(&other, &[vec![0], vec![0, 1, 2]]);
        assert_eq!((whole.missed, one.missed), (0, 0));
        let counts = |of: &Signatures| {
            let ranked = of.ranked().into_iter();
            let count = |(signature, entry): (&Signature, &SignatureTally)| {
                let groups = (0..3).map(|value| entry.groups[&(1, value)]).collect::<Vec<u64>>();
                (signature.clone(), entry.rows, groups, entry.sizes[0].quantile(0.5))
            };
            ranked.map(count).collect::<Vec<_>>()
        };
        assert_eq!(counts(&whole), counts(&one));
    }

    #[test]
    fn of_too_many_the_commonest_stay_and_what_they_lack_is_known() {
        let mut found = Signatures::default();
        for round in 0..3 {
            for feature in 0..3 * MOST_SIGNATURES as u32 {
                found.add(signature(feature), &[], &[]);
                if feature % 1_000 == round {
                    found.add(signature(1_000_000), &[], &[]);
                }
            }
        }
        assert!(found.entries.len() <= 2 * MOST_SIGNATURES);
        let rows = found.entries[&signature(1_000_000)].rows;
        let exact = 3 * (3 * MOST_SIGNATURES as u64).div_ceil(1_000);
        assert!(
            rows <= exact && exact <= rows + found.missed,
            "{rows} + {} of {exact}",
            found.missed
        );
    }
}
