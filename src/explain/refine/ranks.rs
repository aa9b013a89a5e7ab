//! Ordered categories move back towards the original: where a counterfactual passes several values of an order,
//! those between are tried, the nearest to the original first.

use super::candidate_set::CandidateSet;
use super::query_cache::QueryCache;
use super::{Change, Proposal};
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;

/// Values between that are tried for one change.
const BETWEEN: usize = 4;

impl Worker {
    /// Tries the values between of every ordered category that a request's best counterfactual changes.
    pub(super) fn nearer_ranks(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> Result<()> {
        let costs = &self.shared.refiner.costs;
        let (mut proposals, mut sources) = (Vec::new(), Vec::new());
        for request in 0..cache.len() as u32 {
            let Some(best) = self.best(cache, candidates, request as usize) else { continue };
            let feasible = cache.feasible(request);
            for change in &best.changes {
                let Change { feature, cell: Cell::Code(new) } = *change else { continue };
                let Cell::Code(original) = cache.original(request, feature) else { continue };
                let between = costs.between(feature, original, new).into_iter();
                let between = between.filter(|code| feasible.allows(feature, *code, original));
                for code in between.take(BETWEEN) {
                    let mut changes = best.changes.clone();
                    let nearer = Change { feature, cell: Cell::Code(code) };
                    changes.iter_mut().filter(|one| *one == change).for_each(|one| *one = nearer);
                    proposals.push(Proposal { request, changes });
                    sources.push(best.source);
                }
            }
        }
        candidates.evaluate_each(cache, proposals, &sources)
    }
}
