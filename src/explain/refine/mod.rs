//! What is done about the generator's answers, with the model itself as judge: rows that it left unsolved
//! are repaired, and nothing stays changed that need not be. Every step works on all entries of a block at
//! once and asks the model about all their trials in one go; what an entry gets depends on nothing but its
//! own row.
//!
//! The steps, in order: snap, candidates, neighbours, reversion, shrink, choice, certificate. An answer is
//! only ever replaced by a valid one that costs no more; or, where answers are held to a margin, by one whose
//! greater margin is worth what it costs.

mod arena;
mod candidates;
mod certify;
mod choose;
mod cost;
mod distinct;
mod grow;
mod likeness;
mod margin;
mod neighbours;
mod pairs;
mod plateaus;
mod pool;
mod ranks;
mod reduce;
mod responses;
mod settle;
mod shrink;
mod singles;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use super::{Ledger, Stage, Worker};
use crate::constrain::Constraints;
use crate::encode::Layout;
use crate::error::Result;
use crate::feature::{Cell, Edit as Change, Edits as Changes, FeatureSchema, Rows};
use crate::job::{ExplainJob, ExplainMethod, FirstConditions, Refine, RefineJob, Step};
use crate::metrics::{Source, Status};
use crate::nearest::Points;
use crate::predictor::Scores;

use arena::Arena;
pub(super) use arena::Asked;
pub(super) use cost::Costs;
pub(super) use distinct::hash_of;
use likeness::Likeness;
use neighbours::{Near, Neighbours};
pub(super) use plateaus::Plateaus;
use pool::Pool;

/// Questions about a row that blocks are made for; with more of them, blocks have fewer rows.
const USUAL_QUERIES: usize = 256;
/// Neighbours that compete as a whole where neither one change nor two do.
const COMPETITORS: usize = 1;
/// An answer that costs less is as small as can be hoped for: nobody competes with it.
const CHEAP: f64 = 0.8;
/// Further single changes of an entry whose numbers are moved back.
const FINALISTS: usize = 4;
/// Answers with several changes whose numbers are moved back.
const MULTIPLES: usize = 1;
/// An answer with no more changes is small enough: more are not looked for one by one.
const SMALL: usize = 2;

/// Changes to ask the model about.
#[derive(Debug, Clone, PartialEq)]
struct Trial {
    entry: u32,
    changes: Changes,
}

/// How answers are refined.
pub(super) struct Refiner {
    job: RefineJob,
    method: ExplainMethod,
    layout: Arc<Layout>,
    costs: Costs,
    likeness: Likeness,
    neighbours: Option<Neighbours>,
    plateaus: Plateaus,
    deadline: Option<Instant>,
}

/// What came of entries.
pub(super) struct Outcomes {
    /// The rows as they would have to be; as they are where there is no answer.
    pub(super) rows: Rows,
    /// What the model says about them.
    pub(super) scores: Scores,
    pub(super) valid: Vec<bool>,
    pub(super) status: Vec<Status>,
    /// What found the answer of a solved entry.
    pub(super) source: Vec<Option<Source>>,
    /// Times that the model was asked.
    pub(super) queries: Vec<u32>,
    /// Whether it is proven that there is no answer.
    pub(super) certified: Vec<bool>,
    /// How far inside the target valid answers are; NaN where unknown.
    pub(super) margins: Vec<f64>,
    /// The generator's own answers, to stand in where refinement makes two of a row alike.
    spare: Option<Spare>,
}

/// Answers that may stand in for others.
struct Spare {
    rows: Rows,
    scores: Scores,
    valid: Vec<bool>,
    margins: Vec<f64>,
}

impl Refiner {
    pub(super) fn new(
        job: &ExplainJob,
        schema: &FeatureSchema,
        layout: &Arc<Layout>,
        (points, classes): (Option<Points>, u32),
        plateaus: Plateaus,
    ) -> Refiner {
        let weight = if job.refine.does(Step::Choice) { job.refine.nearness } else { 0.0 };
        let costs = Costs::new(schema, layout);
        let known = points.as_ref();
        let likeness = known.map(|points| Likeness::new(points, (layout, &costs), classes, weight));
        Refiner {
            deadline: job.refine.max_time.and_then(|time| Instant::now().checked_add(time)),
            job: job.refine.clone(),
            method: job.method,
            layout: Arc::clone(layout),
            costs,
            likeness: likeness.unwrap_or_default(),
            neighbours: points.map(|points| Neighbours::new(points, classes)),
            plateaus,
        }
    }

    /// Whether the generator is asked at all.
    pub(super) fn asks_generator(&self) -> bool {
        self.method == ExplainMethod::Generator
    }

    /// How many times the usual number of questions there may be about a row.
    pub(super) fn budgets(&self) -> usize {
        (self.job.queries_per_row as usize).div_ceil(USUAL_QUERIES)
    }

    /// Plausibility that an answer must have.
    pub(super) fn min_plausibility(&self) -> f64 {
        self.job.min_plausibility
    }

    fn does(&self, step: Step) -> bool {
        self.job.does(step)
    }
}

impl Worker {
    /// The best answers to be had for entries, from the generator's on.
    pub(super) fn refine(
        &self,
        asked: &Asked,
        generated: &Rows,
        ledger: &mut Ledger,
    ) -> Result<Outcomes> {
        let mut clock = Instant::now();
        let refiner = &self.shared.refiner;
        let mut arena = Arena::new(self, asked)?;
        let mut pool = Pool::new(arena.len());
        let full = refiner.job.mode == Refine::Full;
        self.begin(&mut arena, &mut pool, generated)?;
        arena.refining = true;
        arena.told(&mut ledger.seconds, (Stage::Generate, Stage::Score), &mut clock);
        if refiner.job.mode != Refine::Off {
            let near = self.repair(&mut arena, &mut pool)?;
            arena.relax(&pool);
            if full {
                self.lessen(&mut arena, &mut pool, near)?;
            }
        }
        if full && refiner.does(Step::Certificate) {
            self.settle(&mut arena, &mut pool)?;
        }
        let mut outcomes = self.choose(&arena, &pool)?;
        // What a drawn condition forbids is not impossible.
        let widest = self.shared.conditions == FirstConditions::Widest;
        if full && widest && refiner.does(Step::Certificate) {
            self.certify(&mut arena, &mut outcomes)?;
        }
        outcomes.queries.clone_from(&arena.queries);
        arena.count_unsolved(&outcomes.status, &mut ledger.unsolved);
        ledger.cut_short += arena.cut_short.iter().filter(|cut| **cut).count() as u64;
        arena.told(&mut ledger.seconds, (Stage::Refine, Stage::Rescore), &mut clock);
        Ok(outcomes)
    }

    /// The first answers: the generator's, small changes put back where the model lets them, or the nearest
    /// training row.
    fn begin(&self, arena: &mut Arena<'_>, pool: &mut Pool, generated: &Rows) -> Result<()> {
        let refiner = &self.shared.refiner;
        if !refiner.asks_generator() {
            let nearest =
                |entry: u32| refiner.nearest(arena, entry).map(|changes| Trial { entry, changes });
            let trials = (0..arena.len() as u32).filter_map(nearest).collect();
            return pool.judge(arena, trials, Source::Neighbour);
        }
        let whole = difference(&self.shared.constraints, generated, &arena.asked.originals);
        // With a single question there is none left for the answer as it was.
        let asks_twice = refiner.job.mode != Refine::Off && refiner.job.queries_per_row > 1;
        let snaps = asks_twice && refiner.does(Step::Snap);
        let all = (0..arena.len() as u32).collect();
        if !snaps {
            return pool.judge_first(arena, as_they_are(&whole, all));
        }
        // Where every answer is to be small, the smaller one is asked about first.
        if refiner.job.mode == Refine::Full {
            pool.judge_first(arena, arena.without_trifles(&whole, all))?;
            let open = pool.open(arena);
            return pool.judge_first(arena, as_they_are(&whole, open));
        }
        pool.judge_first(arena, as_they_are(&whole, all))?;
        let mut others = arena.without_trifles(&whole, pool.open(arena));
        others.retain(|trial| !trial.changes.is_empty());
        pool.judge(arena, others, Source::Generator)
    }

    /// Further answers for entries that have none; gives what is near to every entry that was looked at.
    fn repair(&self, arena: &mut Arena<'_>, pool: &mut Pool) -> Result<Vec<Near>> {
        let refiner = &self.shared.refiner;
        if refiner.asks_generator() && refiner.does(Step::Candidates) {
            self.candidates(arena, pool)?;
        }
        let mut near: Vec<Near> = vec![Near::default(); arena.len()];
        if refiner.neighbours.is_none() || !refiner.does(Step::Neighbours) {
            return Ok(near);
        }
        let open = pool.open(arena);
        for entry in &open {
            near[*entry as usize] = refiner.near(arena, *entry);
        }
        let trials = open.iter().flat_map(|entry| {
            let lists = near[*entry as usize].rows.iter();
            lists.map(|changes| Trial { entry: *entry, changes: changes.clone() })
        });
        pool.judge(arena, trials.collect(), Source::Neighbour)?;
        Ok(near)
    }

    /// Makes answers as small as the model lets them be: single changes first, then two, then the fewest.
    fn lessen(&self, arena: &mut Arena<'_>, pool: &mut Pool, mut near: Vec<Near>) -> Result<()> {
        let refiner = &self.shared.refiner;
        let (reverts, shrinks) = (refiner.does(Step::Reversion), refiner.does(Step::Shrink));
        // Where a generator has proposed answers to many rows, looking at all responses costs more than it gains.
        let looks = reverts && shrinks && !refiner.asks_generator();
        if looks && self.improve_by_responses(arena, pool)? {
            return self.lessen_hard(arena, pool, near);
        }
        let most = if reverts { 1 } else { usize::MAX };
        if reverts {
            self.singles_of_answers(arena, pool, &(0..arena.len() as u32).collect::<Vec<_>>())?;
        }
        if shrinks {
            // What has many changes is shrunk when it has fewer, if that is hoped for.
            self.shrink(arena, pool, (1, most))?;
        }
        if refiner.does(Step::Neighbours) && refiner.neighbours.is_some() {
            // Without a generator, neighbours are all there is: they are asked about every row.
            let searches = !refiner.asks_generator();
            for entry in self.expensive(arena, pool, if searches { 0.0 } else { CHEAP }) {
                let near = &mut near[entry as usize];
                if near.firsts.is_empty() {
                    let look = if searches { Refiner::near } else { Refiner::near_some };
                    *near = look(refiner, arena, entry);
                }
            }
        }
        if reverts {
            self.singles_of_neighbours(arena, pool, &near)?;
        }
        if shrinks {
            self.shrink(arena, pool, (FINALISTS, most))?;
        }
        if reverts {
            self.pairs(arena, pool)?;
            if !refiner.asks_generator() {
                self.grow(arena, pool, &near)?;
            }
            self.reduce(arena, pool, &near)?;
            if shrinks {
                self.shrink(arena, pool, (MULTIPLES, usize::MAX))?;
            }
        }
        if shrinks {
            self.nearer_ranks(arena, pool)?;
        }
        if reverts && shrinks { self.solve_by_responses(arena, pool) } else { Ok(()) }
    }

    /// The same for entries that neither one change nor two solve by what the model has shown.
    fn lessen_hard(
        &self,
        arena: &mut Arena<'_>,
        pool: &mut Pool,
        mut near: Vec<Near>,
    ) -> Result<()> {
        let refiner = &self.shared.refiner;
        let all: Vec<u32> = (0..arena.len() as u32).collect();
        let small =
            |entry: u32| pool.valid(arena, entry as usize).any(|one| one.changes.len() <= SMALL);
        let hard: Vec<u32> = all.iter().copied().filter(|entry| !small(*entry)).collect();
        for entry in &hard {
            if refiner.does(Step::Neighbours) && near[*entry as usize].firsts.is_empty() {
                near[*entry as usize] = refiner.near(arena, *entry);
            }
        }
        all.iter()
            .filter(|entry| hard.binary_search(entry).is_err())
            .for_each(|entry| near[*entry as usize] = Near::default());
        // Reversion goes by how strong changes are on their own.
        self.singles_of_answers(arena, pool, &hard)?;
        self.singles_of_neighbours(arena, pool, &near)?;
        self.pairs(arena, pool)?;
        self.grow(arena, pool, &near)?;
        self.reduce(arena, pool, &near)?;
        self.shrink_of(arena, pool, &hard, (MULTIPLES, usize::MAX))?;
        self.polish(arena, pool, &all)
    }

    /// Entries without an answer that costs at most so much.
    fn expensive(&self, arena: &Arena<'_>, pool: &Pool, limit: f64) -> Vec<u32> {
        let expensive = |entry: &u32| {
            let best = self.best(arena, pool, *entry as usize);
            best.is_none_or(|one| one.cost > limit)
        };
        (0..arena.len() as u32).filter(expensive).collect()
    }
}

/// What differs between rows and originals, row by row, but for what follows from other features.
fn difference(constraints: &Constraints, rows: &Rows, originals: &Rows) -> Vec<Changes> {
    let mut lists: Vec<Changes> = vec![Changes::new(); rows.len];
    for (feature, (new, own)) in rows.cells.iter().zip(&originals.cells).enumerate() {
        if constraints.is_derived(feature) {
            continue;
        }
        for (row, moved) in new.moved_from(own).into_iter().enumerate() {
            if moved {
                lists[row].push(Change { feature, cell: rows.cell(feature, row) });
            }
        }
    }
    lists
}

/// Changes of entries as they are.
fn as_they_are(whole: &[Changes], entries: Vec<u32>) -> Vec<Trial> {
    let trial = |entry: u32| Trial { entry, changes: whole[entry as usize].clone() };
    entries.into_iter().map(trial).collect()
}

impl Arena<'_> {
    /// Changes of entries without those that are too small to be worth telling.
    fn without_trifles(&self, whole: &[Changes], entries: Vec<u32>) -> Vec<Trial> {
        let costs = &self.worker.shared.refiner.costs;
        let worth =
            |entry: u32, change: &Change| match (change.cell, self.own(entry, change.feature)) {
                (Cell::Number(new), Cell::Number(own)) => {
                    (new - own).abs() >= costs.tolerance(change.feature)
                }
                _ => true,
            };
        let mut trials = as_they_are(whole, entries);
        for Trial { entry, changes } in &mut trials {
            changes.retain(|change| worth(*entry, change));
        }
        trials
    }
}
