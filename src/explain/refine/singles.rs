//! Reversion of all changes but one: most rows need no more than a single change, and the quickest way to
//! it is to try those that were proposed one by one.

use super::arena::Arena;
use super::neighbours::Near;
use super::pool::Pool;
use super::{Change, Changes, Trial};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;

/// Changes of an answer that are tried one by one, the dearest first.
const OF_ANSWERS: usize = 6;
/// Features whose first change from neighbours is tried at once: those that make a row likest.
const OF_NEIGHBOURS: usize = 4;
/// Further changes that are tried where none was valid.
const FURTHER: usize = 4;
/// Ends of what numbers may become that are tried where no single change was valid; all where nothing is.
const ENDS: usize = 16;

impl Worker {
    /// Tries the changes of these entries' answers one by one.
    pub(super) fn singles_of_answers(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        entries: &[u32],
    ) -> Result<()> {
        let costs = &self.shared.refiner.costs;
        let mut trials = Vec::new();
        for entry in entries.iter().copied() {
            let cost = |change: &Change| costs.of(change, arena.own(entry, change.feature));
            let attempts = &pool.attempts[entry as usize];
            let best = attempts.iter().find(|attempt| arena.is_valid(attempt.answer));
            let Some(attempt) = best.or(attempts.first()) else { continue };
            let mut changes = attempt.changes.clone();
            changes.sort_by(|one, two| cost(two).total_cmp(&cost(one)));
            let some = changes.into_iter().take(OF_ANSWERS);
            trials.extend(some.map(|change| (single(entry, change), attempt.by)));
        }
        self.try_singles(arena, pool, trials)
    }

    /// Tries changes that neighbours suggest: for each feature its first, those that make the row likest to
    /// theirs before the others; where none is valid, some more of them.
    pub(super) fn singles_of_neighbours(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        near: &[Near],
    ) -> Result<()> {
        let by = Source::Neighbour;
        // Without a generator, nobody else has anything to propose.
        let searches = !self.shared.refiner.asks_generator();
        let (at_once, further) =
            if searches { (usize::MAX, usize::MAX) } else { (OF_NEIGHBOURS, FURTHER) };
        let likest = |(entry, near): (u32, &Near)| {
            let changes = self.likest(arena, entry, &near.firsts);
            changes.into_iter().take(at_once).map(move |change| (single(entry, change), by))
        };
        let trials = (0u32..).zip(near).flat_map(likest).collect();
        self.try_singles(arena, pool, trials)?;
        let solved = |entry: u32| {
            let mut singles = pool.singles[entry as usize].iter();
            singles.any(|single| arena.is_valid(single.answer))
        };
        let unsolved = pool.open(arena);
        let others = |(entry, near): (u32, &Near)| {
            let firsts = self.likest(arena, entry, &near.firsts).into_iter().skip(at_once);
            let seconds = self.likest(arena, entry, &near.seconds);
            let more = firsts.chain(seconds).take(further);
            let lost = unsolved.binary_search(&entry).is_ok();
            let ends = near.ends.iter().copied().take(if lost { usize::MAX } else { ENDS });
            let more: Vec<Change> = more.chain(ends).collect();
            more.into_iter().map(move |change| (single(entry, change), by))
        };
        let open = (0u32..).zip(near).filter(|(entry, _)| !solved(*entry));
        let trials = open.flat_map(others).collect();
        self.try_singles(arena, pool, trials)
    }

    /// Changes in the order of how much they make an entry's row like those of the wanted decision.
    fn likest(&self, arena: &Arena<'_>, entry: u32, changes: &[Change]) -> Vec<Change> {
        let likeness = &self.shared.refiner.likeness;
        let gain = |change: &Change| {
            let own = arena.own(entry, change.feature);
            likeness.plain(&arena.asked.wishes, entry as usize, change, own)
        };
        let mut ranked: Vec<(f64, Change)> =
            changes.iter().map(|change| (gain(change), *change)).collect();
        ranked.sort_by(|(one, _), (two, _)| two.total_cmp(one));
        ranked.into_iter().map(|(_, change)| change).collect()
    }

    fn try_singles(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        trials: Vec<(Trial, Source)>,
    ) -> Result<()> {
        let (trials, means): (Vec<Trial>, Vec<Source>) = trials.into_iter().unzip();
        let (trials, means) = arena.prepared(trials, &means);
        let answers = arena.judge(&trials)?;
        for ((trial, by), answer) in trials.into_iter().zip(means).zip(answers) {
            pool.tried(arena, trial, answer, by);
        }
        Ok(())
    }
}

fn single(entry: u32, change: Change) -> Trial {
    Trial { entry, changes: Changes::from_slice(&[change]) }
}
