//! Refines the generator's proposals, each checked with the model: rows that it left unsolved
//! are repaired, and nothing stays changed that need not be. Every step works on all requests of a block at
//! once and asks the model about all their proposals in one go; what a request gets depends on nothing but its
//! own row.
//!
//! The steps, in order: snap, candidates, neighbours, reversion, shrink, choice, certificate. A counterfactual is
//! only ever replaced by a valid one that costs no more; or, where counterfactuals are held to a margin, by one whose
//! greater margin is worth what it costs.

mod candidate_set;
mod certify;
mod choose;
mod clearance;
mod cost;
mod distinct;
mod further;
mod grow;
mod linear_plausibility;
mod margin;
mod neighbours;
mod pairs;
mod plateaus;
mod prepare;
mod query_cache;
mod ranks;
mod reduce;
mod resample;
mod responses;
mod robust;
mod settle;
mod shrink;
mod singles;

#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;
use std::time::Instant;

use super::explained::Finding;
use super::method::Proposals;
use super::{ExplainStats, Stage, Worker};
use crate::constrain::Constraints;
use crate::encode::Layout;
use crate::error::Result;
use crate::feature::{Cell, FeatureSchema, Rows};
pub(super) use crate::feature::{Edit as Change, Edits as Changes};
use crate::job::{ExplainJob, ExplainMethod, FirstConditions, Refine, RefineJob, Step};
use crate::metrics::Source;
use crate::nearest::Points;
use crate::predictor::Scores;

use candidate_set::CandidateSet;
pub(super) use cost::Costs;
pub(super) use distinct::hash_of;
use linear_plausibility::{FeatureScale, LinearPlausibility};
use neighbours::{NearbyChanges, Neighbours};
pub(super) use plateaus::Plateaus;
pub(super) use query_cache::{PredictionIndex, QueryCache, RequestBatch};
use shrink::ShrinkLimits;

/// Questions about a row that blocks are made for; with more of them, blocks have fewer rows.
const USUAL_QUERIES: usize = 256;
/// Neighbours that compete as a whole where neither one change nor two do.
const COMPETITORS: usize = 1;
/// A counterfactual that costs less is as small as can be hoped for: nobody competes with it.
const CHEAP: f64 = 0.8;
/// Further single changes of a request whose numbers are moved back.
const FINALISTS: usize = 4;
/// A counterfactual with no more changes is small enough: more are not looked for one by one.
const SMALL: usize = 2;

/// Changes to ask the model about.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Proposal {
    pub(super) request: u32,
    pub(super) changes: Changes,
}

/// How counterfactuals are refined.
pub(super) struct Refiner {
    job: RefineJob,
    method: ExplainMethod,
    layout: Arc<Layout>,
    costs: Costs,
    linear_plausibility: LinearPlausibility,
    neighbours: Option<Neighbours>,
    plateaus: Plateaus,
    deadline: Option<Instant>,
}

/// What was found for the requests of a batch.
pub(super) struct Outcomes {
    /// Counterfactuals; originals for requests without one.
    pub(super) rows: Rows,
    /// What the model says about them.
    pub(super) scores: Scores,
    pub(super) findings: Vec<Finding>,
    /// The rules that proposals follow from, for methods that learn rules.
    pub(super) rules: Vec<Option<Arc<str>>>,
    /// The generator's proposals, for rows of which refinement makes two counterfactuals alike.
    fallback: Option<Fallback>,
}

/// Counterfactuals that replace others.
struct Fallback {
    /// What made them.
    source: Source,
    rows: Rows,
    scores: Scores,
    valid: Vec<bool>,
    margins: Vec<f64>,
    /// Under how many models beside the predictor they hold.
    robust: Vec<Option<u32>>,
}

/// What a refiner is made of.
pub(super) struct RefinerSetup<'a> {
    pub(super) job: &'a ExplainJob,
    pub(super) schema: &'a FeatureSchema,
    pub(super) layout: Arc<Layout>,
    /// Training rows, if any are compared with.
    pub(super) points: Option<Points>,
    /// The model's classes; 0 for a regression.
    pub(super) classes: u32,
    pub(super) plateaus: Plateaus,
}

impl Refiner {
    pub(super) fn new(setup: RefinerSetup<'_>) -> Refiner {
        let RefinerSetup { job, schema, layout, points, classes, plateaus } = setup;
        let weight =
            if job.refine.does(Step::Choice) { job.refine.plausibility_weight } else { 0.0 };
        let costs = Costs::new(schema, &layout);
        let linear_plausibility = points.as_ref().map(|points| {
            let slots = layout.slots.iter().enumerate();
            let scale = |(feature, slots)| FeatureScale { slots, cost: costs.scale(feature) };
            LinearPlausibility::new(points, classes, weight, slots.map(scale))
        });
        Refiner {
            deadline: job.refine.max_time.and_then(|time| Instant::now().checked_add(time)),
            job: job.refine.clone(),
            method: job.method,
            layout,
            costs,
            linear_plausibility: linear_plausibility.unwrap_or_default(),
            neighbours: points.map(|points| Neighbours::new(points, classes)),
            plateaus,
        }
    }

    /// What the numbers of an encoded row mean.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The method whose proposals are refined.
    pub(super) fn method(&self) -> ExplainMethod {
        self.method
    }

    /// Whether the generator is asked at all.
    pub(super) fn asks_generator(&self) -> bool {
        self.method == ExplainMethod::Cfrl
    }

    /// How many times the usual number of questions there may be about a row.
    pub(super) fn budgets(&self) -> usize {
        (self.job.queries_per_row as usize).div_ceil(USUAL_QUERIES)
    }

    /// Plausibility that a counterfactual must have.
    pub(super) fn min_plausibility(&self) -> f64 {
        self.job.min_plausibility
    }

    fn does(&self, step: Step) -> bool {
        self.job.does(step)
    }
}

impl Worker {
    /// The best counterfactuals to be had for requests, from what the method proposes on.
    pub(super) fn explain_batch(
        &self,
        batch: &RequestBatch,
        stats: &mut ExplainStats,
    ) -> Result<Outcomes> {
        let clock = Instant::now();
        let mut cache = QueryCache::new(self, batch)?;
        cache.refining = self.shared.method.asks_often();
        let proposals = self.shared.method.propose(&mut cache)?;
        self.refine(cache, proposals, clock, stats)
    }

    /// The best counterfactuals to be had from proposals, which took since a moment.
    fn refine(
        &self,
        mut cache: QueryCache<'_>,
        proposals: Proposals,
        mut clock: Instant,
        stats: &mut ExplainStats,
    ) -> Result<Outcomes> {
        let refiner = &self.shared.refiner;
        let mut candidates = CandidateSet::new(cache.len());
        let full = refiner.job.mode == Refine::Full;
        self.begin(&mut cache, &mut candidates, &proposals.changes)?;
        cache.refining = true;
        cache.record_time(&mut stats.seconds, (Stage::Generate, Stage::Score), &mut clock);
        if refiner.job.mode != Refine::Off {
            let nearby = self.repair(&mut cache, &mut candidates)?;
            cache.relax(&candidates);
            if full {
                self.minimise(&mut cache, &mut candidates, nearby)?;
                if refiner.does(Step::Shrink) {
                    self.finish_numbers(&mut cache, &mut candidates)?;
                }
            }
            self.settle_for_fewer(&mut cache, &mut candidates)?;
        }
        if full && refiner.does(Step::Certificate) {
            self.settle(&mut cache, &mut candidates)?;
        }
        let mut outcomes = self.choose(&cache, &candidates)?;
        // What a drawn condition forbids is not impossible.
        let widest = self.shared.conditions == FirstConditions::Widest;
        if full && widest && refiner.does(Step::Certificate) {
            self.certify(&mut cache, &mut outcomes)?;
        }
        let queries = cache.queries.iter().zip(&cache.robust.queries);
        for (finding, (own, others)) in outcomes.findings.iter_mut().zip(queries) {
            finding.queries = own + others;
        }
        outcomes.rules = proposals.rules();
        cache.count_unsolved(&outcomes.findings, &mut stats.unsolved);
        stats.cut_short += cache.cut_short.iter().filter(|cut| **cut).count() as u64;
        cache.record_time(&mut stats.seconds, (Stage::Refine, Stage::Rescore), &mut clock);
        Ok(outcomes)
    }

    /// The first proposals: those of the method. Of the generator's, small changes are put back where the
    /// model lets them.
    fn begin(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        proposed: &[Option<Changes>],
    ) -> Result<()> {
        let refiner = &self.shared.refiner;
        if !refiner.asks_generator() {
            let proposal = |(request, changes): (u32, &Option<Changes>)| {
                changes.clone().map(|changes| Proposal { request, changes })
            };
            let proposals = (0u32..).zip(proposed).filter_map(proposal).collect();
            return match self.shared.method.source() {
                Source::Neighbour => candidates.evaluate(cache, proposals, Source::Neighbour),
                source => candidates.evaluate_as_proposed(cache, proposals, source),
            };
        }
        let whole: Vec<Changes> =
            proposed.iter().map(|changes| changes.clone().unwrap_or_default()).collect();
        // With a single question there is none left for the counterfactual as it was.
        let asks_twice = refiner.job.mode != Refine::Off && refiner.job.queries_per_row > 1;
        let snaps = asks_twice && refiner.does(Step::Snap);
        let all = (0..cache.len() as u32).collect();
        if !snaps {
            return candidates.evaluate_generated(cache, as_they_are(&whole, all));
        }
        // Where every counterfactual is to be small, the smaller one is asked about first.
        if refiner.job.mode == Refine::Full {
            candidates.evaluate_generated(cache, cache.without_small_changes(&whole, all))?;
            let open = candidates.open(cache);
            return candidates.evaluate_generated(cache, as_they_are(&whole, open));
        }
        candidates.evaluate_generated(cache, as_they_are(&whole, all))?;
        let mut others = cache.without_small_changes(&whole, candidates.open(cache));
        others.retain(|proposal| !proposal.changes.is_empty());
        candidates.evaluate(cache, others, Source::Generator)
    }

    /// Further counterfactuals for requests that have none; gives what is near to every request that was looked at.
    fn repair(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> Result<Vec<NearbyChanges>> {
        let refiner = &self.shared.refiner;
        if refiner.asks_generator() && refiner.does(Step::Candidates) {
            self.resample(cache, candidates)?;
        }
        let mut nearby: Vec<NearbyChanges> = vec![NearbyChanges::default(); cache.len()];
        if refiner.neighbours.is_none() || !refiner.does(Step::Neighbours) {
            return Ok(nearby);
        }
        let open = candidates.open(cache);
        for request in &open {
            nearby[*request as usize] = refiner.nearby(cache, *request);
        }
        let proposals = open.iter().flat_map(|request| {
            let lists = nearby[*request as usize].rows.iter();
            lists.map(|changes| Proposal { request: *request, changes: changes.clone() })
        });
        candidates.evaluate(cache, proposals.collect(), Source::Neighbour)?;
        Ok(nearby)
    }

    /// Makes counterfactuals as small as the model lets them be: single changes first, then two, then the fewest.
    fn minimise(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        mut nearby: Vec<NearbyChanges>,
    ) -> Result<()> {
        let refiner = &self.shared.refiner;
        let (reverts, shrinks) = (refiner.does(Step::Reversion), refiner.does(Step::Shrink));
        // Where a generator has proposed counterfactuals to many rows, looking at all responses costs more than it
        // gains.
        let looks = reverts && shrinks && !refiner.asks_generator();
        if looks && self.improve_by_responses(cache, candidates)? {
            return self.minimise_hard(cache, candidates, nearby);
        }
        let most = if reverts { 1 } else { usize::MAX };
        if reverts {
            self.singles_of_candidates(
                cache,
                candidates,
                &(0..cache.len() as u32).collect::<Vec<_>>(),
            )?;
        }
        if shrinks {
            // What has many changes is shrunk when it has fewer, if that is hoped for.
            self.shrink(cache, candidates, ShrinkLimits { rounds: 1, most_changes: most })?;
        }
        if refiner.does(Step::Neighbours) && refiner.neighbours.is_some() {
            // Without a generator, neighbours are all there is: they are asked about every row.
            let searches = !refiner.asks_generator();
            for request in self.expensive(cache, candidates, if searches { 0.0 } else { CHEAP }) {
                let nearby = &mut nearby[request as usize];
                if nearby.first_changes.is_empty() {
                    let look = if searches { Refiner::nearby } else { Refiner::nearby_sampled };
                    *nearby = look(refiner, cache, request);
                }
            }
        }
        if reverts {
            self.singles_of_neighbours(cache, candidates, &nearby)?;
        }
        if shrinks {
            self.shrink(cache, candidates, ShrinkLimits { rounds: FINALISTS, most_changes: most })?;
        }
        if reverts {
            self.pairs(cache, candidates)?;
            if !refiner.asks_generator() {
                self.grow(cache, candidates, &nearby)?;
            }
            self.reduce(cache, candidates, &nearby)?;
            if shrinks {
                self.shrink(cache, candidates, ShrinkLimits::of_several())?;
            }
        }
        if shrinks {
            self.nearer_ranks(cache, candidates)?;
        }
        if reverts && shrinks { self.solve_by_responses(cache, candidates) } else { Ok(()) }
    }

    /// The same for requests that neither one change nor two solve by what the model has shown.
    fn minimise_hard(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        mut nearby: Vec<NearbyChanges>,
    ) -> Result<()> {
        let refiner = &self.shared.refiner;
        let all: Vec<u32> = (0..cache.len() as u32).collect();
        let small = |request: u32| {
            candidates.valid(cache, request as usize).any(|one| one.changes.len() <= SMALL)
        };
        let hard: Vec<u32> = all.iter().copied().filter(|request| !small(*request)).collect();
        for request in &hard {
            if refiner.does(Step::Neighbours) && nearby[*request as usize].first_changes.is_empty()
            {
                nearby[*request as usize] = refiner.nearby(cache, *request);
            }
        }
        all.iter()
            .filter(|request| hard.binary_search(request).is_err())
            .for_each(|request| nearby[*request as usize] = NearbyChanges::default());
        // Reversion goes by how strong changes are on their own.
        self.singles_of_candidates(cache, candidates, &hard)?;
        self.singles_of_neighbours(cache, candidates, &nearby)?;
        self.pairs(cache, candidates)?;
        self.grow(cache, candidates, &nearby)?;
        self.reduce(cache, candidates, &nearby)?;
        self.shrink_of(cache, candidates, &hard)?;
        self.polish(cache, candidates, &all)
    }

    /// Requests without a counterfactual that costs at most so much.
    fn expensive(&self, cache: &QueryCache<'_>, candidates: &CandidateSet, limit: f64) -> Vec<u32> {
        let expensive = |request: &u32| {
            let best = self.best(cache, candidates, *request as usize);
            best.is_none_or(|one| one.cost > limit)
        };
        (0..cache.len() as u32).filter(expensive).collect()
    }
}

/// What differs between rows and originals, row by row, but for what follows from other features.
pub(super) fn difference(constraints: &Constraints, rows: &Rows, originals: &Rows) -> Vec<Changes> {
    let mut lists: Vec<Changes> = vec![Changes::new(); rows.len];
    for (feature, (new, original)) in rows.cells.iter().zip(&originals.cells).enumerate() {
        if constraints.is_derived(feature) {
            continue;
        }
        for (row, moved) in new.moved_from(original).into_iter().enumerate() {
            if moved {
                lists[row].push(Change { feature, cell: rows.cell(feature, row) });
            }
        }
    }
    lists
}

/// Changes of requests as they are.
fn as_they_are(whole: &[Changes], requests: Vec<u32>) -> Vec<Proposal> {
    let proposal = |request: u32| Proposal { request, changes: whole[request as usize].clone() };
    requests.into_iter().map(proposal).collect()
}

impl QueryCache<'_> {
    /// Changes of requests without those that are too small to be worth telling.
    fn without_small_changes(&self, whole: &[Changes], requests: Vec<u32>) -> Vec<Proposal> {
        let costs = &self.worker.shared.refiner.costs;
        let worth = |request: u32, change: &Change| match (
            change.cell,
            self.original(request, change.feature),
        ) {
            (Cell::Number(new), Cell::Number(original)) => {
                (new - original).abs() >= costs.tolerance(change.feature)
            }
            _ => true,
        };
        let mut proposals = as_they_are(whole, requests);
        for Proposal { request, changes } in &mut proposals {
            changes.retain(|change| worth(*request, change));
        }
        proposals
    }
}
