//! Changes that neighbours suggest, taken together one after the other: always the one that brings the model
//! nearest to the target. For entries that neither one change nor two solve, where there is no generator to
//! propose several at once. Needs a model that tells how near it is.

use super::arena::Arena;
use super::neighbours::Near;
use super::pool::Pool;
use super::{Change, Changes, SMALL, Trial};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;

/// Changes that compete to be the next one: the strongest on their own.
const COMPETING: usize = 10;
/// Changes taken together, at most.
const MOST: usize = 8;

/// Changes of an entry that are on their way to the target.
struct Growing {
    entry: u32,
    /// What may be added, the strongest first.
    candidates: Vec<Change>,
    changes: Changes,
    /// How near the model is with them.
    share: f32,
    /// Whether they are valid, or nothing that is added brings the model nearer.
    ended: bool,
}

impl Worker {
    pub(super) fn grow(&self, arena: &mut Arena<'_>, pool: &mut Pool, near: &[Near]) -> Result<()> {
        let small = |entry: usize| pool.valid(arena, entry).any(|one| one.changes.len() <= SMALL);
        let hard = (0..arena.len()).filter(|entry| !small(*entry));
        let mut growing: Vec<Growing> =
            hard.filter_map(|entry| self.seed(arena, entry as u32, &near[entry])).collect();
        for _ in 1..MOST {
            let (trials, of) = proposals(&growing);
            if trials.is_empty() {
                break;
            }
            growing.iter_mut().for_each(|item| item.ended = true);
            let answers = arena.judge(&trials)?;
            for ((trial, index), answer) in trials.into_iter().zip(of).zip(answers) {
                let item: &mut Growing = &mut growing[index];
                let Some(answer) = answer else { continue };
                let share = arena.share(answer).unwrap_or(0.0);
                if share > item.share {
                    item.share = share;
                    item.changes = trial.changes;
                    item.ended = arena.is_valid(answer);
                }
            }
        }
        let grown = growing.into_iter().filter(|item| item.changes.len() > SMALL);
        let trials = grown.map(|item| Trial { entry: item.entry, changes: item.changes });
        // What was asked before is not asked again.
        pool.judge(arena, trials.collect(), Source::Neighbour)
    }

    /// An entry's strongest single change to begin with, if the model tells how strong it is.
    fn seed(&self, arena: &Arena<'_>, entry: u32, near: &Near) -> Option<Growing> {
        let strength = |change: &Change| {
            // Singles were asked about as near to the original as the model says the same.
            let own = arena.own(entry, change.feature);
            let change = self.shared.refiner.eased(arena.room(entry), *change, own)?;
            let known = arena.known(entry, &[change])?;
            Some((arena.share(known)?, change))
        };
        let mut ranked: Vec<(f32, Change)> = near
            .firsts
            .iter()
            .chain(&near.seconds)
            .chain(&near.ends)
            .filter_map(strength)
            .collect();
        ranked.sort_by(|(one, _), (two, _)| two.total_cmp(one));
        let (share, first) = *ranked.first()?;
        let mut candidates: Vec<Change> = ranked.into_iter().map(|(_, change)| change).collect();
        candidates.truncate(COMPETING);
        let changes = Changes::from_slice(&[first]);
        Some(Growing { entry, candidates, changes, share, ended: false })
    }
}

/// What every growing list could become next, and whose each proposal is.
fn proposals(growing: &[Growing]) -> (Vec<Trial>, Vec<usize>) {
    let mut trials = Vec::new();
    let mut of = Vec::new();
    for (index, item) in growing.iter().enumerate().filter(|(_, item)| !item.ended) {
        for candidate in &item.candidates {
            if item.changes.iter().any(|change| change.feature == candidate.feature) {
                continue;
            }
            let mut changes = item.changes.clone();
            changes.push(*candidate);
            changes.sort_by_key(|change| change.feature);
            trials.push(Trial { entry: item.entry, changes });
            of.push(index);
        }
    }
    (trials, of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::Cell;

    fn change(feature: usize) -> Change {
        Change { feature, cell: Cell::Number(1.0) }
    }

    #[test]
    fn what_is_there_is_not_added_again() {
        let item = |ended| Growing {
            entry: 7,
            candidates: vec![change(2), change(0), change(5)],
            changes: Changes::from_slice(&[change(2)]),
            share: 0.1,
            ended,
        };
        let (trials, of) = proposals(&[item(true), item(false)]);
        let features: Vec<Vec<usize>> = trials
            .iter()
            .map(|trial| trial.changes.iter().map(|change| change.feature).collect())
            .collect();
        assert_eq!(features, [[0, 2], [2, 5]]);
        assert_eq!(of, [1, 1], "an ended list grows no more");
    }
}
