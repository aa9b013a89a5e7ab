//! Answers that were found so far, by entry.

use super::arena::{Answer, Arena};
use super::{Change, Changes, Trial};
use crate::error::Result;
use crate::metrics::Source;

/// An answer, valid or not.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) changes: Changes,
    pub(super) answer: Answer,
    /// What found it, if it is valid.
    pub(super) by: Source,
    /// Whether its numbers were moved back.
    pub(super) shrunk: bool,
    /// What its changes cost …
    pub(super) cost: f64,
    /// … and that less what they gain in likeness and margin.
    pub(super) score: f64,
}

impl Attempt {
    fn new(arena: &Arena<'_>, Trial { entry, changes }: Trial, (answer, by): Judged) -> Attempt {
        let (cost, score) = worth(arena, entry, &changes, answer);
        Attempt { changes, answer, by, shrunk: false, cost, score }
    }

    /// Whether changes that were found on the way from it are better: all are if margins count for nothing.
    pub(super) fn yields_to(&self, arena: &Arena<'_>, trial: &Trial, answer: Answer) -> bool {
        let score = || worth(arena, trial.entry, &trial.changes, answer).1;
        arena.is_valid(answer) && (!arena.prizes_margins() || score() < self.score)
    }

    /// Becomes what was found on the way from it.
    pub(super) fn adopt(
        &mut self,
        arena: &Arena<'_>,
        entry: u32,
        changes: Changes,
        answer: Answer,
    ) {
        (self.cost, self.score) = worth(arena, entry, &changes, answer);
        (self.changes, self.answer) = (changes, answer);
    }
}

/// An answer, and what found it.
type Judged = (Answer, Source);

/// Cost and score of an entry's changes.
fn worth(arena: &Arena<'_>, entry: u32, changes: &[Change], answer: Answer) -> (f64, f64) {
    let costs = &arena.worker.shared.refiner.costs;
    let cost = costs.total(changes, |feature| arena.own(entry, feature));
    (cost, arena.worker.score(arena, entry, changes) - arena.prize(answer))
}

/// Answers by entry.
pub(super) struct Pool {
    pub(super) attempts: Vec<Vec<Attempt>>,
    /// What the generator proposed, whatever became of it.
    pub(super) first: Vec<Option<Attempt>>,
    /// Single changes that were tried.
    pub(super) singles: Vec<Vec<Single>>,
}

/// A single change that was tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Single {
    pub(super) change: Change,
    pub(super) answer: Answer,
    /// Where it comes from.
    pub(super) by: Source,
}

impl Pool {
    pub(super) fn new(entries: usize) -> Pool {
        Pool {
            attempts: vec![Vec::new(); entries],
            first: vec![None; entries],
            singles: vec![Vec::new(); entries],
        }
    }

    /// Adds trials that were judged.
    pub(super) fn judge(
        &mut self,
        arena: &mut Arena<'_>,
        trials: Vec<Trial>,
        by: Source,
    ) -> Result<()> {
        let means = vec![by; trials.len()];
        self.judge_each(arena, trials, &means)
    }

    /// The same for trials that come from different means.
    pub(super) fn judge_each(
        &mut self,
        arena: &mut Arena<'_>,
        trials: Vec<Trial>,
        means: &[Source],
    ) -> Result<()> {
        let (trials, means) = arena.prepared(trials, means);
        let answers = arena.judge(&trials)?;
        for ((trial, answer), by) in trials.into_iter().zip(answers).zip(&means) {
            if let Some(answer) = answer {
                let entry = trial.entry as usize;
                self.attempts[entry].push(Attempt::new(arena, trial, (answer, *by)));
            }
        }
        Ok(())
    }

    /// The same for the generator's own answers. Of two the valid one counts, else the first.
    pub(super) fn judge_first(&mut self, arena: &mut Arena<'_>, trials: Vec<Trial>) -> Result<()> {
        self.judge(arena, trials, Source::Generator)?;
        for (first, attempts) in self.first.iter_mut().zip(&self.attempts) {
            let valid = attempts.iter().find(|attempt| arena.is_answer(attempt));
            let inside = || attempts.iter().find(|attempt| arena.is_inside(attempt));
            *first = valid.or_else(inside).or(attempts.first()).cloned();
        }
        Ok(())
    }

    /// Adds a single change that was judged; among the answers if it is valid, with margin or without.
    pub(super) fn tried(
        &mut self,
        arena: &Arena<'_>,
        trial: Trial,
        answer: Option<Answer>,
        by: Source,
    ) {
        let Some(answer) = answer else { return };
        let entry = trial.entry as usize;
        // What had to move along is no single change any more.
        if let [change] = trial.changes[..] {
            self.singles[entry].push(Single { change, answer, by });
        }
        if arena.decides(answer) {
            self.attempts[entry].push(Attempt::new(arena, trial, (answer, by)));
        }
    }

    /// Entries without a valid answer that may be given.
    pub(super) fn open(&self, arena: &Arena<'_>) -> Vec<u32> {
        let entries = (0u32..).zip(&self.attempts);
        entries
            .filter(|(_, attempts)| !attempts.iter().any(|one| arena.is_answer(one)))
            .map(|(entry, _)| entry)
            .collect()
    }

    /// The valid answers of an entry.
    pub(super) fn valid<'p>(
        &'p self,
        arena: &'p Arena<'_>,
        entry: usize,
    ) -> impl Iterator<Item = &'p Attempt> {
        self.attempts[entry].iter().filter(|attempt| arena.is_valid(attempt.answer))
    }
}
