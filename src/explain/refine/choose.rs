//! The choice among valid answers: the least cost, and likeness to rows of the wanted decision. Of answers that
//! cost the same the most plausible one.

use super::arena::{Answer, Arena};
use super::pool::{Attempt, Pool};
use super::{Change, Changes, Outcomes, Refiner, Spare};
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::job::Step;
use crate::metrics::Status;

/// Answers whose costs differ by less than this share cost the same.
const TIE: f64 = 0.01;

impl Worker {
    /// The best valid answer of every entry; else what the generator proposed.
    pub(super) fn choose(&self, arena: &Arena<'_>, pool: &Pool) -> Result<Outcomes> {
        let chosen: Vec<Option<&Attempt>> =
            (0..arena.len()).map(|entry| self.choice(arena, pool, entry)).collect();
        let shown: Vec<Option<&Attempt>> = chosen
            .iter()
            .zip(&pool.first)
            .map(|(chosen, first)| chosen.or(first.as_ref().filter(|one| arena.may_show(one))))
            .collect();
        let none = Changes::new();
        let rows = arena.rows(shown.iter().map(|shown| shown.map_or(&none, |one| &one.changes)));
        let valid: Vec<bool> = chosen.iter().map(Option::is_some).collect();
        let status = |chosen: &Option<&Attempt>| match chosen {
            Some(_) => Status::Solved,
            None => Status::Unsolved,
        };
        let margin = |one: &Attempt| arena.margin(one.answer);
        let margins = chosen.iter().map(|chosen| chosen.map_or(f64::NAN, margin)).collect();
        let mut scores = self.shared.blank(&arena.asked.decided);
        let (places, answers): (Vec<u32>, Vec<u32>) = (0u32..)
            .zip(&shown)
            .filter_map(|(entry, shown)| shown.map(|one| (entry, one.answer)))
            .unzip();
        scores.put(&places, &arena.scores(&answers));
        Ok(Outcomes {
            rows,
            scores,
            status: chosen.iter().map(status).collect(),
            source: chosen.iter().map(|chosen| chosen.map(|one| one.by)).collect(),
            certified: vec![false; valid.len()],
            margins,
            queries: Vec::new(),
            spare: (self.shared.samples > 1).then(|| spare(arena, pool)),
            valid,
        })
    }

    /// Whether an answer changes no more features than it may.
    pub(super) fn may_show(&self, attempt: &Attempt) -> bool {
        let most = self.shared.refiner.job.max_changes;
        most.is_none_or(|most| attempt.changes.len() <= most as usize)
    }

    /// The best valid answer of an entry; among those that cost as little, the most plausible one.
    fn choice<'p>(&self, arena: &Arena<'_>, pool: &'p Pool, entry: usize) -> Option<&'p Attempt> {
        let best = self.best(arena, pool, entry)?;
        let Some(plausibility) = &self.shared.plausibility else { return Some(best) };
        if !self.shared.refiner.does(Step::Choice) {
            return Some(best);
        }
        let slack = TIE * best.cost;
        let ties = |one: &&Attempt| {
            one.answer != best.answer
                && one.cost <= best.cost + slack
                && one.score <= best.score + slack
                && one.changes.len() <= best.changes.len()
        };
        let mut tied = self.within_cost(arena, pool, entry).filter(ties).peekable();
        if tied.peek().is_none() {
            return Some(best);
        }
        let worth = |one: &'p Attempt| {
            let row = arena.row(entry as u32, &one.changes);
            (plausibility.of(&row, 0), one)
        };
        let better = |best: (f64, &'p Attempt), other: (f64, &'p Attempt)| match other.0 > best.0 {
            true => other,
            false => best,
        };
        Some(tied.map(worth).fold(worth(best), better).1)
    }

    pub(super) fn best<'p>(
        &self,
        arena: &Arena<'_>,
        pool: &'p Pool,
        entry: usize,
    ) -> Option<&'p Attempt> {
        let valid = self.within_cost(arena, pool, entry);
        valid.min_by(|one, two| one.score.total_cmp(&two.score))
    }

    /// The valid answers of an entry that cost no more than what the generator proposed; all where a greater margin
    /// may cost something.
    fn within_cost<'p>(
        &self,
        arena: &Arena<'_>,
        pool: &'p Pool,
        entry: usize,
    ) -> impl Iterator<Item = &'p Attempt> {
        let first = pool.first[entry].as_ref().filter(|one| arena.is_answer(one));
        let first = first.filter(|_| !arena.prizes_margins());
        let most = first.map_or(f64::INFINITY, |one| one.cost);
        let attempts = pool.attempts[entry].iter();
        attempts.filter(move |one| arena.is_answer(one) && one.cost <= most)
    }

    /// The score that an answer tends to when its numbers are moved back.
    pub(super) fn least(&self, arena: &Arena<'_>, entry: u32, attempt: &Attempt) -> f64 {
        let moved_back = |change: &Change| match arena.own(entry, change.feature) {
            cell @ Cell::Number(_) => Change { cell, ..*change },
            Cell::Code(_) => *change,
        };
        let moved: Changes = attempt.changes.iter().map(moved_back).collect();
        self.score(arena, entry, &moved) - arena.prize(attempt.answer)
    }

    /// What changes cost, less what they gain in likeness: the smaller the better. Where margins are worth something,
    /// every change counts more.
    pub(super) fn score(&self, arena: &Arena<'_>, entry: u32, changes: &[Change]) -> f64 {
        let Refiner { costs, likeness, .. } = &self.shared.refiner;
        let part = |change: &Change| {
            let own = arena.own(entry, change.feature);
            let gain = likeness.gain(&arena.asked.wishes, entry as usize, change, own);
            costs.of(change, own) + arena.burden(change) - gain
        };
        changes.iter().map(part).sum()
    }
}

/// The generator's own answers.
fn spare(arena: &Arena<'_>, pool: &Pool) -> Spare {
    let none = Changes::new();
    let first = || pool.first.iter().map(Option::as_ref);
    let answers: Vec<Answer> = first().flatten().map(|one| one.answer).collect();
    let places: Vec<u32> =
        (0u32..).zip(first()).filter(|(_, one)| one.is_some()).map(|(entry, _)| entry).collect();
    let mut scores = arena.worker.shared.blank(&arena.asked.decided);
    scores.put(&places, &arena.scores(&answers));
    Spare {
        rows: arena.rows(first().map(|one| one.map_or(&none, |one| &one.changes))),
        scores,
        valid: first().map(|one| one.is_some_and(|one| arena.is_inside(one))).collect(),
        margins: first().map(|one| one.map_or(f64::NAN, |one| arena.margin(one.answer))).collect(),
    }
}

impl Arena<'_> {
    /// Whether a proposal that is not valid may be shown: one that gets the wanted decision would be taken for an
    /// answer.
    fn may_show(&self, attempt: &Attempt) -> bool {
        self.worker.may_show(attempt) && !self.is_implausible(attempt.answer)
    }

    /// Whether an attempt is valid, and changes no more than it may.
    pub(super) fn is_answer(&self, attempt: &Attempt) -> bool {
        self.is_valid(attempt.answer) && self.worker.may_show(attempt)
    }

    /// The same, however near to the border.
    pub(super) fn is_inside(&self, attempt: &Attempt) -> bool {
        self.decides(attempt.answer) && self.worker.may_show(attempt)
    }
}
