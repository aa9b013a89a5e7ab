//! How far inside its target an answer has to be while it is refined. An entry is held to the job's margin
//! until repair is done; if nothing has reached it by then, to as much of it as something has. A model that
//! gives labels only is asked about rows near to an answer instead.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::arena::{Answer, Arena, hash};
use super::pool::Pool;
use super::{Change, Changes, Trial};
use crate::encode::Slots;
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::job::Refine;
use crate::predictor::Task;

/// Rows near to an answer that a model without probabilities is asked about: with the answer itself a share
/// in fifths, for four more questions about each valid trial.
const NEARBY: u64 = 4;
/// How far their numbers are from the answer's, in standard deviations of the feature.
const APART: f64 = 0.1;
/// Parts of the margin that entries are held to where the whole is out of reach. Without them an entry that
/// misses a high margin by little would be refined down to the border, and hold worse than with a low one.
const PARTS: u32 = 4;
/// What an answer that certainly holds is worth more than one that certainly does not, in the unit of costs. Rows
/// for which a further margin is cheap get more of it than is asked for, others no more than that.
const WORTH: f64 = 2.0;
/// What every changed feature counts beyond its cost where a margin is worth something: further changes are the
/// easiest way to one, and a long list of changes is hard to act on.
const FEATURE: f64 = 2.0;
/// The same of a category beyond that: most bring more margin than a number that stops where it may.
const CATEGORY: f64 = 0.5;
/// Share of answers that held when models were trained again, by margin: rounded from answers of `tests/margin.sh` to
/// rows of training splits, when margins did not count yet.
const HELD: [(f64, f64); 9] = [
    (0.5, 0.42),
    (0.52, 0.5),
    (0.55, 0.6),
    (0.6, 0.7),
    (0.65, 0.77),
    (0.7, 0.84),
    (0.8, 0.91),
    (0.9, 0.94),
    (1.0, 0.96),
];

/// What answers are held to.
pub(super) struct Bar {
    /// The least margin; 0 for none.
    least: f64,
    /// Whether rows near to answers must be asked about to know it.
    pub(super) probes: bool,
    /// Whether a margin beyond the least is worth something: where it is a probability.
    prizes: bool,
    /// What every entry is held to; 0 for validity alone.
    bars: Vec<f64>,
    /// Of every answer its entry …
    entries: Vec<u32>,
    /// … whether it is valid, however near to the border …
    decided: Vec<bool>,
    /// … and how far inside it is.
    margins: Vec<f64>,
}

impl Bar {
    pub(super) fn new(worker: &Worker, entries: usize) -> Bar {
        let job = &worker.shared.refiner.job;
        let least = if job.mode == Refine::Off { 0.0 } else { job.min_score };
        let task = worker.shared.predictor.task();
        let tells = !matches!(task, Task::Classification { probabilities: false, .. });
        Bar {
            least,
            probes: least > 0.0 && !tells,
            prizes: least > 0.0 && matches!(task, Task::Classification { probabilities: true, .. }),
            bars: vec![least; entries],
            entries: Vec::new(),
            decided: Vec::new(),
            margins: Vec::new(),
        }
    }

    /// Of every answer its entry.
    pub(super) fn entries(&self) -> &[u32] {
        &self.entries
    }

    /// Adds answers; gives which of them are what their entries are held to.
    pub(super) fn hold(
        &mut self,
        entries: &[u32],
        decided: Vec<bool>,
        margins: Vec<f64>,
    ) -> Vec<bool> {
        let answers = entries.iter().zip(&decided).zip(&margins);
        let held = answers.map(|((entry, decided), margin)| {
            *decided && reaches(*margin, self.bars[*entry as usize])
        });
        let held = held.collect();
        self.entries.extend(entries);
        self.decided.extend(decided);
        self.margins.extend(margins);
        held
    }
}

impl Arena<'_> {
    /// Whether an answer is valid, however near to the border.
    pub(super) fn decides(&self, answer: Answer) -> bool {
        self.bar.decided[answer as usize]
    }

    /// How far inside its target an answer is; NaN where that is not known.
    pub(super) fn margin(&self, answer: Answer) -> f64 {
        self.bar.margins[answer as usize]
    }

    /// Whether a further margin counts beside cost.
    pub(super) fn prizes_margins(&self) -> bool {
        self.bar.prizes
    }

    /// What an answer's margin is worth, in the unit of costs.
    pub(super) fn prize(&self, answer: Answer) -> f64 {
        self.prize_of(self.margin(answer))
    }

    /// The same of a margin.
    pub(super) fn prize_of(&self, margin: f64) -> f64 {
        if self.bar.prizes { WORTH * held(margin) } else { 0.0 }
    }

    /// What a change counts beyond its cost.
    pub(super) fn burden(&self, change: &Change) -> f64 {
        match change.cell {
            _ if !self.bar.prizes => 0.0,
            Cell::Number(_) => FEATURE,
            Cell::Code(_) => FEATURE + CATEGORY,
        }
    }

    /// Whether a valid answer with such a margin is what an entry is held to.
    pub(super) fn reaches(&self, entry: u32, margin: f64) -> bool {
        reaches(margin, self.bar.bars[entry as usize])
    }

    /// Holds entries that nothing has reached the margin for to what something has, from here on.
    pub(super) fn relax(&mut self, pool: &Pool) {
        if self.bar.least <= 0.0 {
            return;
        }
        for entry in pool.open(self) {
            let inside = pool.attempts[entry as usize].iter().filter(|one| self.is_inside(one));
            let best = inside.map(|one| self.margin(one.answer)).fold(0.0, f64::max);
            self.bar.bars[entry as usize] = part_of(self.bar.least, best);
        }
        let Bar { bars, entries, decided, margins, .. } = &self.bar;
        let answers = entries.iter().zip(decided).zip(margins);
        for (valid, ((entry, decided), margin)) in self.valid.iter_mut().zip(answers) {
            let bar = bars[*entry as usize];
            if bar < self.bar.least {
                *valid = *decided && reaches(*margin, bar);
            }
        }
    }

    /// Asks about rows near to valid trials, of which a share must agree.
    pub(super) fn probe(&mut self, trials: &[Trial], found: &[Option<Answer>]) -> Result<()> {
        let mut probes: Vec<Trial> = Vec::new();
        // Answers, and where their probes end.
        let mut ends: Vec<(Answer, usize)> = Vec::new();
        for (trial, answer) in trials.iter().zip(found) {
            let unknown = |answer: &Answer| self.decides(*answer) && self.margin(*answer).is_nan();
            let Some(answer) = answer.filter(unknown) else { continue };
            if self.bar.bars[trial.entry as usize] > 0.0 {
                probes.extend((0..NEARBY).map(|number| self.nearby(trial, number)));
                ends.push((answer, probes.len()));
            }
        }
        let told = self.judge_these(&probes)?;
        let mut first = 0;
        for (answer, end) in ends {
            let told: Option<Vec<Answer>> = told[first..end].iter().copied().collect();
            first = end;
            // Without a question left, it is not known.
            let Some(told) = told else { continue };
            if told.iter().all(|near| *near == answer) {
                // No row is near: nothing speaks against it, but how far inside it is stays unknown.
                self.valid[answer as usize] = true;
                continue;
            }
            let agreeing = told.iter().filter(|near| self.decides(**near)).count();
            let margin = (1 + agreeing) as f64 / (1 + told.len()) as f64;
            self.bar.margins[answer as usize] = margin;
            let entry = self.bar.entries[answer as usize];
            self.valid[answer as usize] = reaches(margin, self.bar.bars[entry as usize]);
        }
        Ok(())
    }

    /// A row near to a trial: all numbers that may move do a little, drawn by row and trial. Where none may,
    /// it is the trial itself.
    fn nearby(&self, Trial { entry, changes }: &Trial, number: u64) -> Trial {
        let seed = self.asked.seeds[*entry as usize] ^ hash(changes);
        let seed = xxh3_64_with_seed(&number.to_le_bytes(), seed);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let room = self.room(*entry);
        let mut near = Changes::new();
        for (feature, slots) in self.worker.shared.refiner.layout.slots.iter().enumerate() {
            let own = self.own(*entry, feature);
            let changed = changes.iter().find(|change| change.feature == feature);
            let mut cell = changed.map_or(own, |change| change.cell);
            if let (Slots::Numeric(slots), Cell::Number(value), Cell::Number(own)) =
                (slots, cell, own)
            {
                let off: f64 = StandardNormal.sample(&mut random);
                if !value.is_nan() && !own.is_nan() {
                    cell = Cell::Number(room.number(feature, value + off * APART * slots.std, own));
                }
            }
            if changed.is_some() || cell != own {
                near.push(Change { feature, cell });
            }
        }
        Trial { entry: *entry, changes: near }
    }
}

/// Whether a valid answer is as far inside as its entry is held to.
fn reaches(margin: f64, bar: f64) -> bool {
    bar <= 0.0 || margin >= bar
}

/// Share of answers with such a margin that are expected to hold.
fn held(margin: f64) -> f64 {
    let within = |pair: &&[(f64, f64)]| margin <= pair[1].0;
    match HELD.windows(2).find(within) {
        // Below the border, or not known.
        Some(_) if margin < HELD[0].0 => HELD[0].1,
        Some(pair) => {
            let ((low, from), (high, to)) = (pair[0], pair[1]);
            from + (to - from) * (margin - low) / (high - low)
        }
        None if margin.is_nan() => HELD[0].1,
        None => HELD[HELD.len() - 1].1,
    }
}

/// The greatest part of a margin above the border that an answer has reached; 0 if none.
fn part_of(least: f64, reached: f64) -> f64 {
    let part = |number: u32| 0.5 + (least - 0.5) * f64::from(number) / f64::from(PARTS);
    let parts = (1..PARTS).rev().map(part);
    parts.filter(|_| least > 0.5).find(|part| reached >= *part).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_held_to_the_greatest_part_that_was_reached() {
        let of = |reached| part_of(0.9, reached);
        assert_eq!((of(0.89), of(0.8), of(0.75), of(0.6)), (0.8, 0.8, 0.7, 0.6));
        assert_eq!((of(0.59), of(0.0)), (0.0, 0.0));
        assert_eq!(part_of(0.4, 0.39), 0.0);
    }

    #[test]
    fn the_farther_inside_the_surer() {
        assert_eq!((held(f64::NAN), held(0.3), held(0.5), held(1.0)), (0.42, 0.42, 0.42, 0.96));
        assert!((held(0.75) - 0.875).abs() < 1e-12);
        let shares: Vec<f64> = (50..=100).map(|margin| held(f64::from(margin) / 100.0)).collect();
        assert!(shares.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn what_is_not_known_reaches_no_bar_but_none() {
        assert!(reaches(f64::NAN, 0.0) && !reaches(f64::NAN, 0.5) && reaches(0.5, 0.5));
    }
}
