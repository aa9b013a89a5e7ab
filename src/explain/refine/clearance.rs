//! Where the numbers of a counterfactual stop: where the model begins to predict the target, or, where margins are
//! worth something, a little farther: a model that is trained again begins a little elsewhere, and a small step beyond
//! costs little.

use super::candidate_set::CandidateSet;
use super::query_cache::QueryCache;
use super::{Change, Changes, Proposal};
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;

/// How far, in standard deviations.
const CLEARANCE: f64 = 0.05;

impl Worker {
    /// Moves the changed numbers of every request's best counterfactual to where they stop.
    pub(super) fn finish_numbers(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> Result<()> {
        match cache.margin_counts() {
            true => self.step_beyond(cache, candidates),
            false => self.stop_at_edges(cache, candidates),
        }
    }

    /// To the nearest numbers for which the model says the same.
    fn stop_at_edges(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> Result<()> {
        let (mut proposals, mut sources) = (Vec::new(), Vec::new());
        for request in 0..cache.len() as u32 {
            let Some(best) = self.best(cache, candidates, request as usize) else { continue };
            let feasible = cache.feasible(request);
            let is_edge = |change: &Change| {
                let original = cache.original(request, change.feature);
                self.shared.refiner.tightened(feasible, *change, original) == Some(*change)
            };
            if !best.changes.iter().all(is_edge) {
                proposals.push(Proposal { request, changes: best.changes.clone() });
                sources.push(best.source);
            }
        }
        candidates.evaluate_each(cache, proposals, &sources)
    }

    /// A little farther, where the counterfactual stays as far inside its target.
    fn step_beyond(&self, cache: &mut QueryCache<'_>, candidates: &mut CandidateSet) -> Result<()> {
        let (mut proposals, mut of) = (Vec::new(), Vec::new());
        for request in 0..cache.len() {
            let Some(best) = self.best(cache, candidates, request) else { continue };
            let changes: Changes =
                best.changes.iter().map(|change| self.beyond_by(cache, request, change)).collect();
            if changes != best.changes {
                proposals.push(Proposal { request: request as u32, changes });
                of.push(best.prediction);
            }
        }
        let predictions = cache.predict(&proposals)?;
        for ((proposal, before), prediction) in proposals.into_iter().zip(of).zip(predictions) {
            let farther =
                |of: &u32| cache.is_valid(*of) && cache.margin(*of) >= cache.margin(before);
            let Some(prediction) = prediction.filter(farther) else { continue };
            let found = &mut candidates.by_request[proposal.request as usize];
            let Some(best) = found.iter_mut().find(|one| one.prediction == before) else {
                continue;
            };
            // What the step is worth is not in its score, which stays what made it the best.
            let score = best.score;
            best.adopt(cache, proposal.request, proposal.changes, prediction);
            best.score = score;
        }
        Ok(())
    }

    /// A change a little farther from the original, as far as that is allowed.
    fn beyond_by(&self, cache: &QueryCache<'_>, request: usize, change: &Change) -> Change {
        let (Cell::Number(number), Cell::Number(original)) =
            (change.cell, cache.original(request as u32, change.feature))
        else {
            return *change;
        };
        let step = CLEARANCE * self.shared.refiner.costs.std(change.feature);
        let proposed = number + step.copysign(number - original);
        let feasible = cache.feasible(request as u32);
        let moved = feasible.number(change.feature, proposed, original);
        let farther = (moved - original).abs() > (number - original).abs();
        if farther { Change { cell: Cell::Number(moved), ..*change } } else { *change }
    }
}
