//! Where trials are judged: the entries that are being refined, what the model said of every trial so far,
//! and how often it may still be asked. Whoever proposes trials need not remember them: what was asked
//! before is not asked again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::RecordBatch;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::margin::Bar;
use super::{Change, Changes, Trial};
use crate::constrain::{Conditions, Room, RowBounds};
use crate::error::{Error, Result};
use crate::explain::{Stage, StageSeconds, Worker, take};
use crate::feature::{Cell, Rows};
use crate::metrics::{Source, Status};
use crate::predictor::{
    Ended, Goal, Outcome, Reach, Region, Responses, Scores, Search, Variant, Variants, Verdict,
};
use crate::stop;
use crate::target::{Wishes, is_valid, margins};

/// Trials that the model is asked about at once: more would not be faster, only larger.
const MOST_AT_ONCE: usize = 16_384;

/// What is to be refined, an entry for each counterfactual that is asked for.
pub(in crate::explain) struct Asked {
    /// The rows as they are.
    pub(in crate::explain) originals: Rows,
    /// The same in the table's types.
    pub(in crate::explain) before: RecordBatch,
    /// What is wanted of them.
    pub(in crate::explain) wishes: Wishes,
    /// What the model decided about them.
    pub(in crate::explain) decided: Scores,
    /// What may change …
    pub(in crate::explain) conditions: Conditions,
    /// … and the rows' own bounds.
    pub(in crate::explain) bounds: RowBounds,
    /// Seeds of their random numbers.
    pub(in crate::explain) seeds: Vec<u64>,
    /// 0 for the first of a row and wish, which may change all that is allowed.
    pub(in crate::explain) draws: Vec<u32>,
}

/// Place of an answer among all answers of an arena.
pub(super) type Answer = u32;

/// Entries, trials and answers.
pub(super) struct Arena<'a> {
    pub(super) worker: &'a Worker,
    pub(super) asked: &'a Asked,
    /// Times that the model was asked, by entry.
    pub(super) queries: Vec<u32>,
    /// Entries whose refinement was cut short by the clock.
    pub(super) cut_short: Vec<bool>,
    /// Entries for which it is proven that nothing reaches the target …
    pub(super) impossible: Vec<bool>,
    /// … and those whose search ended before it was over.
    pub(super) unsearched: Vec<bool>,
    /// Whether the clock counts: the first answers are asked for in any case.
    pub(super) refining: bool,
    /// Seconds that the model took.
    model_seconds: f64,
    budget: u32,
    deadline: Option<Instant>,
    known: HashMap<(u32, u64), Answer>,
    answers: Scores,
    /// Whether answers are what their entries are held to.
    pub(super) valid: Vec<bool>,
    /// What gets the wanted decision, but is less plausible than an answer must be.
    implausible: Vec<bool>,
    shares: Vec<f32>,
    pub(super) bar: Bar,
    /// What takes single cells, if the model can.
    variants: Option<Box<dyn Variants + 'a>>,
}

impl<'a> Arena<'a> {
    pub(super) fn new(worker: &'a Worker, asked: &'a Asked) -> Result<Arena<'a>> {
        let entries = asked.originals.len;
        let refiner = &worker.shared.refiner;
        Ok(Arena {
            worker,
            asked,
            queries: vec![0; entries],
            cut_short: vec![false; entries],
            impossible: vec![false; entries],
            unsearched: vec![false; entries],
            refining: false,
            model_seconds: 0.0,
            budget: refiner.job.queries_per_row,
            deadline: refiner.deadline,
            known: HashMap::new(),
            answers: Scores::empty(worker.shared.predictor.task()),
            valid: Vec::new(),
            implausible: Vec::new(),
            shares: Vec::new(),
            bar: Bar::new(worker, entries),
            variants: worker.shared.predictor.variants(&asked.before)?,
        })
    }

    /// Searches what an entry's row may become for what reaches its target; counts as one question. None where the
    /// model shows no bounds, or nothing more may be asked.
    pub(super) fn search(
        &mut self,
        entry: u32,
        reach: &[Reach],
        (trees, accept): (usize, Accept<'_, 'a>),
    ) -> Result<Option<Ended>> {
        // The model, which looks for requests to stop, is not asked in between.
        stop::check()?;
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.cut_short[entry as usize] |= late;
        if self.is_spent(entry) {
            return Ok(None);
        }
        let Some(mut variants) = self.variants.take() else { return Ok(None) };
        let goal = goal(&self.asked.wishes, entry as usize);
        let began = Instant::now();
        let arena: &Arena<'a> = self;
        let mut accept = |region: &Region| accept(arena, region);
        let search = Search { trees, accept: &mut accept };
        let copy = Variant { row: entry, edits: &[] };
        let searched = variants.search((&copy, reach), goal, search);
        self.model_seconds += began.elapsed().as_secs_f64();
        self.variants = Some(variants);
        let searched = searched?;
        self.queries[entry as usize] += u32::from(searched.is_some());
        Ok(searched.map(|searched| searched.ended))
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.asked.originals.len
    }

    /// What an entry's row may become.
    pub(super) fn room(&self, entry: u32) -> Room<'a> {
        let Asked { conditions, bounds, .. } = self.asked;
        self.worker.shared.constraints.room(conditions, bounds, entry as usize)
    }

    /// A value of an entry's row as it is.
    pub(super) fn own(&self, entry: u32, feature: usize) -> Cell {
        self.asked.originals.cell(feature, entry as usize)
    }

    /// Times that the model may still be asked about an entry.
    pub(super) fn left(&self, entry: u32) -> u32 {
        self.budget - self.queries[entry as usize]
    }

    /// Whether nothing more can be asked about an entry: for want of questions, or of time.
    pub(super) fn is_spent(&self, entry: u32) -> bool {
        self.left(entry) == 0 || self.cut_short[entry as usize]
    }

    /// Whether an answer is what its entry wants, with the margin that it is held to, and as plausible as it must be.
    pub(super) fn is_valid(&self, answer: Answer) -> bool {
        self.valid[answer as usize]
    }

    /// Whether an answer is refused for nothing but its plausibility.
    pub(super) fn is_implausible(&self, answer: Answer) -> bool {
        self.implausible[answer as usize]
    }

    /// Whether the model has said nothing of a trial.
    pub(super) fn has_failed(&self, answer: Answer) -> bool {
        let failures = &self.answers.failures;
        failures.binary_search_by_key(&(answer as usize), |failure| failure.row).is_ok()
    }

    /// How near an answer is to what its entry wants, where the model tells: the wanted class's probability.
    pub(super) fn share(&self, answer: Answer) -> Option<f32> {
        Some(self.shares[answer as usize]).filter(|share| !share.is_nan())
    }

    /// The answers at these places.
    pub(super) fn scores(&self, answers: &[Answer]) -> Scores {
        self.answers.take(answers)
    }

    /// The answer to a trial that was judged before.
    pub(super) fn known(&self, entry: u32, changes: &[Change]) -> Option<Answer> {
        self.known.get(&(entry, hash(changes))).copied()
    }

    /// What the model says of trials; none where one breaks a rule between features, or an entry's budget, or
    /// the time, is used up.
    pub(super) fn judge(&mut self, trials: &[Trial]) -> Result<Vec<Option<Answer>>> {
        let found = self.judge_these(trials)?;
        if self.bar.probes {
            self.probe(trials, &found)?;
        }
        Ok(found)
    }

    /// The same, without a look at what is near to them.
    pub(super) fn judge_these(&mut self, trials: &[Trial]) -> Result<Vec<Option<Answer>>> {
        let over = |deadline: Instant| Instant::now() >= deadline;
        let late = self.refining && self.deadline.is_some_and(over);
        let (constraints, asked_of) = (&self.worker.shared.constraints, self.asked);
        let incoherent = |trial: &Trial| {
            let row = trial.entry as usize;
            let original = |feature: usize| asked_of.originals.cell(feature, row);
            !constraints.is_coherent(&trial.changes, original)
        };
        let mut asked: Vec<u32> = Vec::with_capacity(trials.len());
        let mut found = Vec::with_capacity(trials.len());
        for (place, trial) in (0u32..).zip(trials) {
            let next = (self.answers.rows + asked.len()) as Answer;
            let queries = &mut self.queries[trial.entry as usize];
            found.push(match self.known.entry((trial.entry, hash(&trial.changes))) {
                Entry::Occupied(known) => Some(*known.get()),
                // What breaks a rule is no answer, whatever the model says.
                Entry::Vacant(_) if incoherent(trial) => None,
                Entry::Vacant(_) if late => {
                    self.cut_short[trial.entry as usize] = true;
                    None
                }
                Entry::Vacant(_) if *queries >= self.budget => None,
                Entry::Vacant(new) => {
                    new.insert(next);
                    *queries += 1;
                    asked.push(place);
                    Some(next)
                }
            });
        }
        for some in asked.chunks(MOST_AT_ONCE) {
            self.ask(trials, some)?;
        }
        Ok(found)
    }

    /// Asks the model about some of the trials.
    fn ask(&mut self, trials: &[Trial], some: &[u32]) -> Result<()> {
        let trials: Vec<&Trial> = some.iter().map(|place| &trials[*place as usize]).collect();
        let entries: Vec<u32> = trials.iter().map(|trial| trial.entry).collect();
        let scores = match self.variants.is_some() {
            true => self.ask_by_cells(&trials)?,
            false => self.ask_by_rows(&trials, &entries)?,
        };
        let shared = &self.worker.shared;
        let wishes = self.asked.wishes.take(&entries);
        let reached = is_valid(&scores, &wishes);
        let implausible = shared
            .implausible(|| self.changed(&trials, &self.asked.originals.take(&entries)), &reached);
        let both = reached.into_iter().zip(&implausible);
        let decides = both.map(|(reached, implausible)| reached && !implausible).collect();
        let margins = margins(&scores, &wishes, &shared.codec);
        let valid = self.bar.hold(&entries, decides, margins);
        self.valid.extend(valid);
        self.implausible.extend(implausible);
        self.shares.extend(shares(&scores, &wishes));
        self.answers.append(scores);
        Ok(())
    }

    /// Asks about the cells that trials change, which the model can be told without a batch of whole rows.
    fn ask_by_cells(&mut self, trials: &[&Trial]) -> Result<Scores> {
        let (constraints, originals) = (&self.worker.shared.constraints, &self.asked.originals);
        let all: Vec<Cow<'_, [Change]>> = trials
            .iter()
            .map(|trial| {
                let original = |feature: usize| originals.cell(feature, trial.entry as usize);
                let followed = constraints.follow(&trial.changes, original);
                followed.unwrap_or(Cow::Borrowed(&trial.changes))
            })
            .collect();
        let copies = trials.iter().zip(&all);
        let copies: Vec<Variant<'_>> =
            copies.map(|(trial, edits)| Variant { row: trial.entry, edits }).collect();
        let began = Instant::now();
        let variants = self.variants.as_mut();
        let scores = variants.map(|variants| variants.predict(&copies));
        self.model_seconds += began.elapsed().as_secs_f64();
        scores.unwrap_or_else(|| Err(Error::internal("refining", "the model takes no cells")))
    }

    /// Asks about whole rows in the table's types.
    fn ask_by_rows(&mut self, trials: &[&Trial], entries: &[u32]) -> Result<Scores> {
        let shared = &self.worker.shared;
        let originals = self.asked.originals.take(entries);
        let rows = self.changed(trials, &originals);
        let before = take(&self.asked.before, entries)?;
        let batch = shared.writer.write(&rows, &originals, &before)?;
        let began = Instant::now();
        let scores = shared.predictor.predict(&batch)?;
        self.model_seconds += began.elapsed().as_secs_f64();
        Ok(scores)
    }

    /// The rows of trials, from their originals.
    fn changed(&self, trials: &[&Trial], originals: &Rows) -> Rows {
        let mut rows = originals.clone();
        for (row, trial) in trials.iter().enumerate() {
            let original = |feature: usize| originals.cell(feature, row);
            self.worker.shared.constraints.apply(&mut rows, row, &trial.changes, original);
        }
        rows
    }

    /// What the model would say of entries' rows with changes if one more feature changed, as far as it may; nothing
    /// of entries about which nothing more may be asked. None where the model does not show it. Each counts as one
    /// question.
    pub(super) fn responses(
        &mut self,
        rows: &[(u32, Changes, Vec<Reach>)],
    ) -> Result<Option<Vec<Option<Responses>>>> {
        let Some(variants) = self.variants.as_mut() else { return Ok(None) };
        let mut found: Vec<Option<Responses>> = vec![None; rows.len()];
        let left: Vec<usize> = (0..rows.len())
            .filter(|at| {
                let entry = rows[*at].0 as usize;
                let left = self.queries[entry] < self.budget && !self.cut_short[entry];
                self.queries[entry] += u32::from(left);
                left
            })
            .collect();
        let copies = left.iter().map(|at| {
            let (entry, changes, reach) = &rows[*at];
            (Variant { row: *entry, edits: changes }, &reach[..])
        });
        let copies: Vec<(Variant<'_>, &[Reach])> = copies.collect();
        let began = Instant::now();
        let told = variants.responses(&copies)?;
        self.model_seconds += began.elapsed().as_secs_f64();
        let Some(told) = told else {
            left.iter().for_each(|at| self.queries[rows[*at].0 as usize] -= 1);
            return Ok(None);
        };
        left.into_iter().zip(told).for_each(|(at, told)| found[at] = Some(told));
        Ok(Some(found))
    }

    /// Counts entries without an answer by what kept them from one.
    pub(super) fn count_unsolved(&self, status: &[Status], into: &mut BTreeMap<String, u64>) {
        let mut implausible = vec![false; self.len()];
        for (entry, refused) in self.bar.entries().iter().zip(&self.implausible) {
            implausible[*entry as usize] |= refused;
        }
        let unsolved = (0u32..).zip(status).filter(|(_, status)| **status == Status::Unsolved);
        for (entry, _) in unsolved {
            let cause = match entry as usize {
                place if self.cut_short[place] => "time_spent",
                _ if self.left(entry) == 0 => "questions_spent",
                place if implausible[place] => "implausible_only",
                place if self.unsearched[place] => "search_spent",
                _ => "nothing_left_to_try",
            };
            *into.entry(cause.to_string()).or_default() += 1;
        }
    }

    /// Adds the time since a moment to two stages, what was our own work and what the model took.
    pub(super) fn told(
        &mut self,
        seconds: &mut StageSeconds,
        (own, model): (Stage, Stage),
        since: &mut Instant,
    ) {
        let asked = std::mem::take(&mut self.model_seconds);
        seconds.clock(own, since);
        seconds.add_to(own, -asked);
        seconds.add_to(model, asked);
    }

    /// The row of an entry with changes.
    pub(super) fn row(&self, entry: u32, changes: &[Change]) -> Rows {
        let mut row = self.asked.originals.take(&[entry]);
        for change in changes {
            row.set(change.feature, 0, change.cell);
        }
        row
    }

    /// Rows with changes, an entry's own each.
    pub(super) fn rows<'c>(&self, changes: impl Iterator<Item = &'c Changes>) -> Rows {
        let mut rows = self.asked.originals.clone();
        for (row, changes) in changes.enumerate() {
            let original = |feature: usize| self.asked.originals.cell(feature, row);
            self.worker.shared.constraints.apply(&mut rows, row, changes, original);
        }
        rows
    }

    /// Trials that change no more than the model notices, and keep to the rules between features: those that do not
    /// are repaired. What cannot be is left as it is, and will not be asked about.
    pub(super) fn prepared(
        &self,
        trials: Vec<Trial>,
        means: &[Source],
    ) -> (Vec<Trial>, Vec<Source>) {
        let (trials, means) = self.eased(trials, means);
        self.repaired(trials, means)
    }

    /// Trials without what the model does not notice: numbers as near to the originals as it says the same.
    fn eased(&self, trials: Vec<Trial>, means: &[Source]) -> (Vec<Trial>, Vec<Source>) {
        let shared = &self.worker.shared;
        if !shared.refiner.plateaus.are_known() {
            return (trials, means.to_vec());
        }
        let eased = |(Trial { entry, changes }, by): (Trial, &Source)| {
            let (room, own) = (self.room(entry), |feature: usize| self.own(entry, feature));
            let ease = |change: &Change| shared.refiner.eased(room, *change, own(change.feature));
            let eased: Changes = changes.iter().filter_map(ease).collect();
            let better = shared.constraints.is_coherent(&eased, own);
            // Nothing is asked about the row as it is, unless that was the question.
            let pointless = better && eased.is_empty() && !changes.is_empty();
            let changes = if better { eased } else { changes };
            (!pointless).then_some((Trial { entry, changes }, *by))
        };
        trials.into_iter().zip(means).filter_map(eased).unzip()
    }

    fn repaired(&self, trials: Vec<Trial>, means: Vec<Source>) -> (Vec<Trial>, Vec<Source>) {
        let constraints = &self.worker.shared.constraints;
        if !constraints.couples_features() {
            return (trials, means);
        }
        let mut kept = Vec::with_capacity(trials.len());
        for (trial, by) in trials.into_iter().zip(means) {
            let Trial { entry, changes } = &trial;
            let original = |feature: usize| self.own(*entry, feature);
            let repairs = constraints.repairs(self.room(*entry), changes, original);
            if repairs.is_empty() {
                kept.push((trial, by));
            } else {
                let entry = *entry;
                kept.extend(repairs.into_iter().map(|changes| (Trial { entry, changes }, by)));
            }
        }
        kept.into_iter().unzip()
    }
}

/// Decides about regions that reach a target.
pub(super) type Accept<'f, 'a> = &'f mut dyn FnMut(&Arena<'a>, &Region) -> Verdict;

/// What the model should say of an entry's row.
fn goal(wishes: &Wishes, entry: usize) -> Goal {
    match wishes {
        Wishes::Classes { classes, .. } | Wishes::Distributions { classes, .. } => {
            Goal::Class(classes[entry])
        }
        Wishes::Ranges { low, high } => Goal::Between(low[entry], high[entry]),
    }
}

/// A hash of changes; with the entry's number as good as the row itself.
pub(super) fn hash(changes: &[Change]) -> u64 {
    let mut seed = changes.len() as u64;
    for change in changes {
        let bits = match change.cell {
            Cell::Number(number) => number.to_bits(),
            Cell::Code(code) => u64::from(code),
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(change.feature as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&bits.to_le_bytes());
        seed = xxh3_64_with_seed(&bytes, seed);
    }
    seed
}

/// The wanted class's probability; NaN where the model gives none.
fn shares(scores: &Scores, wishes: &Wishes) -> Vec<f32> {
    match (&scores.outcome, wishes.classes()) {
        (Outcome::Classes { probabilities: Some(all), .. }, Some(classes)) => {
            let width = all.len() / classes.len().max(1);
            let share = |(row, class): (usize, &u32)| all[row * width + *class as usize] as f32;
            classes.iter().enumerate().map(share).collect()
        }
        (Outcome::Values(values), None) => {
            let Wishes::Ranges { low, high } = wishes else { return vec![f32::NAN; values.len()] };
            let ends = low.iter().zip(high);
            // The nearer to the range, the greater.
            let off = |(value, (low, high)): (&f64, (&f64, &f64))| {
                let off = (low - value).max(value - high).max(0.0);
                // A value that is none is not near, though `max` would overlook it.
                if value.is_nan() { f32::NAN } else { -off as f32 }
            };
            values.iter().zip(ends).map(off).collect()
        }
        _ => vec![f32::NAN; scores.rows],
    }
}
