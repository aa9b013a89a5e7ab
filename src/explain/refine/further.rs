//! Counterfactuals that the predictor accepts, and too few of the models beside it, are pushed further: their numbers
//! beyond where the predictor lets go, and two of them together. What holds then is made small again. Where nothing
//! does, the request is held to as many models as its best counterfactual holds under.

use super::candidate_set::{Candidate, CandidateSet};
use super::query_cache::QueryCache;
use super::{Change, Proposal};
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::job::Refine;
use crate::metrics::Source;

/// How much farther numbers are moved.
const FARTHER: [f64; 3] = [1.5, 2.5, 5.0];
/// Counterfactuals of a request that are pushed further, and joined: those under which the most models hold.
const PUSHED: usize = 3;

impl Worker {
    /// Pushes counterfactuals further until they hold, and settles for fewer models where nothing does.
    pub(super) fn settle_for_fewer(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> Result<()> {
        if self.shared.robust.needed() == 0 || self.shared.robust.is_empty() {
            return Ok(());
        }
        let open = candidates.open(cache);
        // What models have shown of them was not asked about as long as something else could hold.
        let fragile = |request: &u32| {
            let changes = cache.fragile(*request)?;
            self.is_coherent(cache, *request, &changes)
                .then_some(Proposal { request: *request, changes })
        };
        let fragile = open.iter().filter_map(fragile).collect();
        candidates.evaluate(cache, fragile, Source::Candidate)?;
        let mut proposals = Vec::new();
        let mut sources = Vec::new();
        for request in open.iter().copied() {
            for (proposal, source) in self.pushed(cache, candidates, request) {
                proposals.push(proposal);
                sources.push(source);
            }
        }
        candidates.evaluate_each(cache, proposals, &sources)?;
        let still = candidates.open(cache);
        let mut found: Vec<u32> =
            open.into_iter().filter(|one| still.binary_search(one).is_err()).collect();
        found.extend(cache.relax_robust(candidates));
        found.sort_unstable();
        if self.shared.refiner.job.mode == Refine::Full {
            // Requests that the models have led astray are searched once more by the predictor alone.
            self.solve_by_responses(cache, candidates)?;
            self.reduce_some(cache, candidates, &found)?;
            self.shrink_of(cache, candidates, &found)?;
            self.polish(cache, candidates, &found)?;
        }
        Ok(())
    }

    /// Counterfactuals of a request that the predictor accepts, moved further, and joined.
    fn pushed(
        &self,
        cache: &QueryCache<'_>,
        candidates: &CandidateSet,
        request: u32,
    ) -> Vec<(Proposal, Source)> {
        let inside = candidates.by_request[request as usize].iter();
        let mut inside: Vec<&Candidate> = inside.filter(|one| cache.is_inside(one)).collect();
        let held = |one: &Candidate| cache.held(one.prediction).unwrap_or(0);
        inside.sort_by(|one, two| held(two).cmp(&held(one)).then(one.score.total_cmp(&two.score)));
        inside.truncate(PUSHED);
        let feasible = cache.feasible(request);
        let farther = |change: &Change, times: f64| {
            let Change { feature, cell } = *change;
            match (cell, cache.original(request, feature)) {
                (Cell::Number(new), Cell::Number(original)) if !(new - original).is_nan() => {
                    let moved = original + times * (new - original);
                    let cell = Cell::Number(feasible.number(feature, moved, original));
                    Change { feature, cell }
                }
                _ => *change,
            }
        };
        let mut pushed = Vec::new();
        for one in &inside {
            for times in FARTHER {
                let changes = one.changes.iter().map(|change| farther(change, times)).collect();
                pushed.push((Proposal { request, changes }, one.source));
            }
        }
        for (index, one) in inside.iter().enumerate() {
            for two in &inside[..index] {
                let mut changes = two.changes.clone();
                let new =
                    |change: &&Change| !two.changes.iter().any(|of| of.feature == change.feature);
                changes.extend(one.changes.iter().filter(new).copied());
                changes.sort_by_key(|change| change.feature);
                if changes.len() > two.changes.len() {
                    pushed.push((Proposal { request, changes }, two.source));
                }
            }
        }
        pushed
    }
}
