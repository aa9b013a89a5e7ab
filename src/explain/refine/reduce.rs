//! Reversion, change by change, for entries that no single change solves: first the few changes that look
//! strongest are tried together, then what is left is put back one by one, or in groups where there is much.

use super::arena::{Answer, Arena};
use super::neighbours::Near;
use super::pool::{Attempt, Pool};
use super::{COMPETITORS, Change, Changes, SMALL, Trial};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;

/// How many of the strongest changes are tried together.
const STRONGEST: [usize; 11] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Answers of an entry that are reduced.
const REDUCED: usize = 1;
/// Groups of changes that are put back in one round, at most.
const GROUPS: usize = 12;
/// Rounds of putting back, at most.
const ROUNDS: usize = 6;

/// An answer at work.
struct Item {
    entry: u32,
    attempt: Attempt,
}

impl Worker {
    pub(super) fn reduce(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        near: &[Near],
    ) -> Result<()> {
        let searches = !self.shared.refiner.asks_generator();
        let small = |entry: usize| pool.valid(arena, entry).any(|one| one.changes.len() <= SMALL);
        let hard: Vec<u32> =
            (0..arena.len()).filter(|entry| !small(*entry)).map(|entry| entry as u32).collect();
        let trials = hard.iter().flat_map(|entry| {
            let lists = near[*entry as usize].rows.iter().take(COMPETITORS);
            lists.map(|changes| Trial { entry: *entry, changes: changes.clone() })
        });
        pool.judge(arena, trials.collect(), Source::Neighbour)?;
        let mut items: Vec<Item> = Vec::new();
        for entry in hard {
            let valid = pool.valid(arena, entry as usize);
            items.extend(valid.take(REDUCED).map(|one| Item { entry, attempt: one.clone() }));
            // Where answers are searched for, the first one is a whole row of the training data, and not all there is.
            let best = self.best(arena, pool, entry as usize);
            let other = best.filter(|best| {
                let known = items.last().filter(|item| item.entry == entry);
                searches && known.is_none_or(|item| item.attempt.answer != best.answer)
            });
            items.extend(other.map(|one| Item { entry, attempt: one.clone() }));
        }
        self.reduce_items(arena, pool, items)
    }

    /// Reduces the best answers of these entries.
    pub(super) fn reduce_some(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        entries: &[u32],
    ) -> Result<()> {
        let item = |entry: &u32| {
            let best = self.best(arena, pool, *entry as usize)?;
            Some(Item { entry: *entry, attempt: best.clone() })
        };
        let items = entries.iter().filter_map(item).collect();
        self.reduce_items(arena, pool, items)
    }

    fn reduce_items(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        mut items: Vec<Item>,
    ) -> Result<()> {
        self.strongest(arena, &mut items)?;
        self.put_back(arena, &mut items)?;
        for Item { entry, attempt } in items {
            pool.attempts[entry as usize].push(attempt);
        }
        Ok(())
    }

    /// Replaces answers by the fewest of their strongest changes that are valid together.
    fn strongest(&self, arena: &mut Arena<'_>, items: &mut [Item]) -> Result<()> {
        let mut trials = Vec::new();
        let mut of = Vec::new();
        for (place, item) in items.iter().enumerate() {
            let ranked = self.ranked(arena, item);
            for size in STRONGEST.into_iter().filter(|size| *size < ranked.len()) {
                let mut changes = Changes::from_slice(&ranked[..size]);
                changes.sort_by_key(|change| change.feature);
                trials.push(Trial { entry: item.entry, changes });
                of.push(place);
            }
        }
        let answers = arena.judge(&trials)?;
        for ((trial, place), answer) in trials.into_iter().zip(of).zip(answers) {
            let fewer = trial.changes.len() < items[place].attempt.changes.len();
            let better = |answer: &Answer| items[place].attempt.yields_to(arena, &trial, *answer);
            if let Some(answer) = answer.filter(|answer| fewer && better(answer)) {
                items[place].adopt(arena, trial.changes, answer);
            }
        }
        Ok(())
    }

    /// The changes of an answer, those first that bring the model nearest on their own; where it does not
    /// tell, the largest first.
    fn ranked(&self, arena: &Arena<'_>, item: &Item) -> Changes {
        let costs = &self.shared.refiner.costs;
        let strength = |change: &Change| {
            let known = arena.known(item.entry, &[*change]);
            let share = known.and_then(|answer| arena.share(answer));
            let cost = costs.of(change, arena.own(item.entry, change.feature));
            (share.unwrap_or(f32::NEG_INFINITY), cost)
        };
        let mut ranked: Vec<((f32, f64), Change)> =
            item.attempt.changes.iter().map(|change| (strength(change), *change)).collect();
        ranked.sort_by(|(one, _), (two, _)| two.0.total_cmp(&one.0).then(two.1.total_cmp(&one.1)));
        ranked.into_iter().map(|(_, change)| change).collect()
    }

    /// Puts changes back, the dearest first, as long as answers stay valid.
    fn put_back(&self, arena: &mut Arena<'_>, items: &mut [Item]) -> Result<()> {
        let mut left: Vec<Vec<Changes>> =
            items.iter().map(|item| self.groups(arena, item)).collect();
        for _ in 0..ROUNDS {
            let found = self.put_back_each(arena, items, &left)?;
            if found.iter().all(Vec::is_empty) {
                break;
            }
            self.put_back_many(arena, items, &found)?;
            for ((item, left), found) in items.iter().zip(&mut left).zip(found) {
                // What could be put back alone and was not, may be after what was put back now; a group that
                // could not may have parts that can.
                let coarse = left.iter().any(|group| group.len() > 1);
                *left = if coarse {
                    self.groups(arena, item)
                } else {
                    let there = |group: &Changes| item.attempt.changes.contains(&group[0]);
                    found.into_iter().filter(there).collect()
                };
            }
        }
        Ok(())
    }

    /// Changes of an answer in groups, the dearest first.
    fn groups(&self, arena: &Arena<'_>, item: &Item) -> Vec<Changes> {
        let costs = &self.shared.refiner.costs;
        let cost = |change: &Change| costs.of(change, arena.own(item.entry, change.feature));
        let mut changes = item.attempt.changes.clone();
        changes.sort_by(|one, two| cost(two).total_cmp(&cost(one)));
        changes.chunks(changes.len().div_ceil(GROUPS).max(1)).map(Changes::from_slice).collect()
    }

    /// The groups that can be put back alone; one of them is.
    fn put_back_each(
        &self,
        arena: &mut Arena<'_>,
        items: &mut [Item],
        left: &[Vec<Changes>],
    ) -> Result<Vec<Vec<Changes>>> {
        let mut trials = Vec::new();
        let mut of = Vec::new();
        for (place, (item, groups)) in items.iter().zip(left).enumerate() {
            for group in groups.iter().filter(|group| group.len() < item.attempt.changes.len()) {
                trials.push(Trial { entry: item.entry, changes: item.without(&[group]) });
                of.push((place, group));
            }
        }
        let answers = arena.judge(&trials)?;
        let mut found: Vec<Vec<Changes>> = vec![Vec::new(); items.len()];
        let mut best: Vec<Option<(Changes, Answer)>> = vec![None; items.len()];
        for ((trial, (place, group)), answer) in trials.into_iter().zip(of).zip(answers) {
            let better = |answer: &Answer| items[place].attempt.yields_to(arena, &trial, *answer);
            if let Some(answer) = answer.filter(better) {
                found[place].push(group.clone());
                best[place].get_or_insert((trial.changes, answer));
            }
        }
        // Groups are in order of cost, so the first is the best. With several, more than one may go at once.
        for ((item, best), found) in items.iter_mut().zip(best).zip(&found) {
            if let Some((changes, answer)) = best.filter(|_| found.len() == 1) {
                item.adopt(arena, changes, answer);
            }
        }
        Ok(found)
    }

    /// Puts as many of the groups back together as can be.
    fn put_back_many(
        &self,
        arena: &mut Arena<'_>,
        items: &mut [Item],
        found: &[Vec<Changes>],
    ) -> Result<()> {
        let mut trials = Vec::new();
        let mut of = Vec::new();
        for (place, (item, groups)) in items.iter().zip(found).enumerate() {
            let several = groups.len() > 1;
            for count in (1..=groups.len()).filter(|_| several) {
                let groups: Vec<&Changes> = groups[..count].iter().collect();
                let changes = item.without(&groups);
                if !changes.is_empty() {
                    trials.push(Trial { entry: item.entry, changes });
                    of.push(place);
                }
            }
        }
        let answers = arena.judge(&trials)?;
        for ((trial, place), answer) in trials.into_iter().zip(of).zip(answers) {
            let better = |answer: &Answer| items[place].attempt.yields_to(arena, &trial, *answer);
            if let Some(answer) = answer.filter(better) {
                items[place].adopt(arena, trial.changes, answer);
            }
        }
        Ok(())
    }
}

impl Item {
    fn adopt(&mut self, arena: &Arena<'_>, changes: Changes, answer: Answer) {
        self.attempt.adopt(arena, self.entry, changes, answer);
        self.attempt.shrunk = false;
    }

    /// The changes without some groups of them.
    fn without(&self, groups: &[&Changes]) -> Changes {
        let gone = |change: &Change| groups.iter().any(|group| group.contains(change));
        self.attempt.changes.iter().filter(|change| !gone(change)).copied().collect()
    }
}
