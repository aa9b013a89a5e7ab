//! Changed numbers move back towards the original by bisection, in their own type and step, as far as the
//! model lets them. An entry's best answer goes first; another is worth its questions only if it can still
//! become better than that.

use super::arena::Arena;
use super::pool::{Attempt, Pool, Single};
use super::{Change, Trial};
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;

/// Halvings for one number, at most.
const HALVINGS: usize = 10;

/// An answer at work.
struct Item {
    entry: u32,
    attempt: Attempt,
    /// Features whose numbers are to be moved back, the dearest first.
    features: Vec<usize>,
    /// What it has to become better than; infinite for the entry's best.
    bar: f64,
    /// Features whose numbers a rule between features has kept from going back.
    hindered: Vec<usize>,
}

/// A number on its way back.
struct Number {
    item: usize,
    feature: usize,
    /// Too far back.
    low: f64,
    /// Far enough.
    high: f64,
    /// Where it has to get to before anything else is worth a question.
    first: Option<f64>,
}

impl Worker {
    /// Moves the numbers of every entry's best answers back, as many answers as are said, and with no more
    /// changes: the best first, the next one if it can still become better than that.
    pub(super) fn shrink(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        limits: (usize, usize),
    ) -> Result<()> {
        let all: Vec<u32> = (0..arena.len() as u32).collect();
        self.shrink_of(arena, pool, &all, limits)
    }

    /// The same of some entries.
    pub(super) fn shrink_of(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        entries: &[u32],
        (answers, changes): (usize, usize),
    ) -> Result<()> {
        for _ in 0..answers {
            let mut items: Vec<Item> = Vec::new();
            for entry in entries {
                items.extend(self.item(arena, pool, (*entry, changes)));
            }
            self.move_back(arena, pool, &mut items)?;
            if self.shared.constraints.couples_features() {
                self.free_partners(arena, pool, &mut items)?;
            }
            for Item { entry, attempt, .. } in items {
                pool.attempts[entry as usize].push(attempt);
            }
        }
        Ok(())
    }

    /// The best answer of an entry whose numbers were not moved back yet, unless that cannot make it the best
    /// of all.
    fn item(
        &self,
        arena: &Arena<'_>,
        pool: &mut Pool,
        (entry, changes): (u32, usize),
    ) -> Option<Item> {
        let whole = self.best(arena, pool, entry as usize);
        let whole = whole.map_or(f64::INFINITY, |attempt| attempt.score);
        let attempts = &mut pool.attempts[entry as usize];
        let fresh = attempts.iter_mut().filter(|attempt| {
            let small = attempt.changes.len() <= changes && self.may_show(attempt);
            !attempt.shrunk && small && arena.is_valid(attempt.answer)
        });
        let attempt = fresh.min_by(|one, two| one.score.total_cmp(&two.score))?;
        attempt.shrunk = true;
        let features = self.numbers(arena, entry, attempt);
        let bar = if attempt.score > whole { whole } else { f64::INFINITY };
        let hopeful = !features.is_empty() && self.least(arena, entry, attempt) < bar;
        let attempt = attempt.clone();
        hopeful.then(|| Item { entry, attempt, features, bar, hindered: Vec::new() })
    }

    /// Features with changed numbers, the dearest first.
    fn numbers(&self, arena: &Arena<'_>, entry: u32, attempt: &Attempt) -> Vec<usize> {
        let costs = &self.shared.refiner.costs;
        let mut found: Vec<(f64, usize)> = attempt
            .changes
            .iter()
            .filter(|change| matches!(change.cell, Cell::Number(_)))
            .map(|change| (costs.of(change, arena.own(entry, change.feature)), change.feature))
            .collect();
        found.sort_by(|one, two| two.0.total_cmp(&one.0));
        found.into_iter().map(|(_, feature)| feature).collect()
    }

    fn move_back(&self, arena: &mut Arena<'_>, pool: &mut Pool, items: &mut [Item]) -> Result<()> {
        let most = items.iter().map(|item| item.features.len()).max().unwrap_or(0);
        for place in 0..most {
            let number = |(item, at): (usize, &Item)| self.number(arena, pool, (item, at), place);
            let mut numbers: Vec<Number> = items.iter().enumerate().filter_map(number).collect();
            for _ in 0..HALVINGS {
                let (left, middles): (Vec<Number>, Vec<f64>) = numbers
                    .into_iter()
                    .filter_map(|mut number| {
                        let middle = self.middle(arena, items[number.item].entry, &mut number)?;
                        Some((number, middle))
                    })
                    .unzip();
                numbers = left;
                if numbers.is_empty() {
                    break;
                }
                self.halve(arena, (pool, items), &mut numbers, &middles)?;
            }
        }
        Ok(())
    }

    /// What was moved for a rule's sake, or kept from going back by one, may go now that other numbers have
    /// gone back: as a whole if it can, else as far as it can.
    fn free_partners(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        items: &mut [Item],
    ) -> Result<()> {
        let several = |item: &Item| item.attempt.changes.len() > 1;
        let most = items.iter().filter(|item| several(item)).map(|item| item.attempt.changes.len());
        for place in (0..most.max().unwrap_or(0)).rev() {
            let (mut trials, mut of) = (Vec::new(), Vec::new());
            for (number, item) in items.iter().enumerate().filter(|(_, item)| several(item)) {
                if place < item.attempt.changes.len() {
                    let mut changes = item.attempt.changes.clone();
                    changes.remove(place);
                    trials.push(Trial { entry: item.entry, changes });
                    of.push(number);
                }
            }
            let answers = arena.judge(&trials)?;
            for ((trial, number), answer) in trials.into_iter().zip(of).zip(answers) {
                if let Some(answer) = answer.filter(|answer| arena.is_valid(*answer)) {
                    items[number].attempt.adopt(arena, trial.entry, trial.changes, answer);
                }
            }
        }
        for item in items.iter_mut() {
            item.features = std::mem::take(&mut item.hindered);
            item.bar = f64::INFINITY;
        }
        self.move_back(arena, pool, items)
    }

    /// One number of an answer, and how far back it certainly cannot go.
    fn number(
        &self,
        arena: &Arena<'_>,
        pool: &Pool,
        (item, at): (usize, &Item),
        place: usize,
    ) -> Option<Number> {
        let feature = *at.features.get(place)?;
        let change = at.attempt.changes.iter().find(|change| change.feature == feature)?;
        let (Cell::Number(high), Cell::Number(own)) = (change.cell, arena.own(at.entry, feature))
        else {
            return None;
        };
        let mut number = Number { item, feature, low: own, high, first: None };
        if at.attempt.changes.len() == 1 {
            number.low = farthest_failure(arena, &pool.singles[at.entry as usize], &number);
            number.low = self.beyond(feature, number.low, high);
            number.first = self.break_even(arena, at, &number, own);
            let better = number.first.is_none_or(|first| between(first, number.low, high));
            return better.then_some(number);
        }
        Some(number)
    }

    /// The number at which a single change is as good as the entry's best answer.
    fn break_even(&self, arena: &Arena<'_>, at: &Item, number: &Number, own: f64) -> Option<f64> {
        if at.bar.is_infinite() {
            return None;
        }
        // What a change costs, less what it gains, grows evenly with its size.
        let (least, now) = (self.least(arena, at.entry, &at.attempt), at.attempt.score);
        let share = (at.bar - least) / (now - least);
        let even = own + share.clamp(0.0, 1.0) * (number.high - own);
        Some(arena.room(at.entry).number(number.feature, even, own)).filter(|_| share < 1.0)
    }

    /// The next number to try; none if there is none, or it is not worth a question.
    fn middle(&self, arena: &Arena<'_>, entry: u32, number: &mut Number) -> Option<f64> {
        if let Some(first) = number.first {
            return Some(first);
        }
        let Number { feature, low, high, .. } = *number;
        let Cell::Number(own) = arena.own(entry, feature) else { return None };
        if (high - low).abs() <= self.shared.refiner.costs.tolerance(feature) {
            return None;
        }
        let room = arena.room(entry);
        let middle = room.number(feature, low + (high - low) / 2.0, own);
        let change = Change { feature, cell: Cell::Number(middle) };
        // The nearest number for which the model says the same, if that has not failed yet.
        let eased = self.shared.refiner.eased(room, change, Cell::Number(own));
        match eased.map(|change| change.cell) {
            Some(Cell::Number(eased)) if between(eased, low, high) => Some(eased),
            _ => between(middle, low, high).then_some(middle),
        }
    }

    /// The last number on the way to another for which the model says the same as for one that has failed.
    fn beyond(&self, feature: usize, failed: f64, high: f64) -> f64 {
        let plateau = self.shared.refiner.plateaus.around(feature, failed);
        plateau.map_or(failed, |plateau| {
            if plateau.contains(high) { failed } else { plateau.end_towards(high) }
        })
    }

    fn halve(
        &self,
        arena: &mut Arena<'_>,
        (pool, items): (&mut Pool, &mut [Item]),
        numbers: &mut [Number],
        middles: &[f64],
    ) -> Result<()> {
        let trial = |(number, middle): (&Number, &f64)| {
            let item = &items[number.item];
            let moved = |change: &Change| {
                let cell = Cell::Number(*middle);
                if change.feature == number.feature { Change { cell, ..*change } } else { *change }
            };
            Trial { entry: item.entry, changes: item.attempt.changes.iter().map(moved).collect() }
        };
        let trials: Vec<Trial> = numbers.iter().zip(middles).map(trial).collect();
        let answers = arena.judge(&trials)?;
        for (((number, middle), trial), answer) in
            numbers.iter_mut().zip(middles).zip(trials).zip(answers)
        {
            let Some(answer) = answer else {
                let given_up = arena.is_spent(trial.entry) || number.first.is_some();
                // Without a question left, what was found so far is what there is; what breaks a rule is no answer.
                number.low = if given_up { number.high } else { *middle };
                number.first = None;
                let hindered = &mut items[number.item].hindered;
                if !hindered.contains(&number.feature) {
                    hindered.push(number.feature);
                }
                continue;
            };
            if let [change] = trial.changes[..] {
                let by = items[number.item].attempt.by;
                pool.singles[trial.entry as usize].push(Single { change, answer, by });
            }
            let attempt = &mut items[number.item].attempt;
            if attempt.yields_to(arena, &trial, answer) {
                number.high = *middle;
                attempt.adopt(arena, trial.entry, trial.changes, answer);
            } else {
                // What cannot get to where it would be better is given up.
                number.low = match number.first {
                    Some(_) => number.high,
                    None => self.beyond(number.feature, *middle, number.high),
                };
            }
            number.first = None;
        }
        Ok(())
    }
}

/// Whether a number lies between two others, and is neither.
fn between(number: f64, low: f64, high: f64) -> bool {
    (number - low) * (number - high) < 0.0
}

/// The farthest number, short of the valid one, that is known not to be valid on its own.
fn farthest_failure(arena: &Arena<'_>, singles: &[Single], number: &Number) -> f64 {
    let failed = singles.iter().filter_map(|single| match single.change.cell {
        Cell::Number(value)
            if single.change.feature == number.feature && !arena.is_valid(single.answer) =>
        {
            Some(value)
        }
        _ => None,
    });
    let nearer = |one: f64, two: f64| {
        if (number.high - two).abs() < (number.high - one).abs() { two } else { one }
    };
    failed.filter(|value| between(*value, number.low, number.high)).fold(number.low, nearer)
}
