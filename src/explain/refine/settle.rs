//! Rows without a counterfactual where the model shows bounds of what it says: everything that they may become is
//! searched, region by region, until one reaches the target or it is proven that none does.

use super::candidate_set::CandidateSet;
use super::plateaus::Plateau;
use super::query_cache::QueryCache;
use super::{Change, Changes, Proposal};
use crate::error;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::metrics::Source;
use crate::predictor::{Ended, Reach, Region, Verdict};

/// Trees that are looked through for one row, at most: what 800 regions of a forest of 50 trees take, some
/// milliseconds. Most rows need a few regions.
const TREES: usize = 40_000;
/// Numbers that are gone through, at most, to be certain that none of a region is allowed.
const NUMBERS: usize = 4_096;

impl Worker {
    /// Finds counterfactuals for requests that have none, or proves that there is none.
    pub(super) fn settle(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> error::Result<()> {
        if self.follows_formulas() {
            return Ok(());
        }
        let mut proposals = Vec::new();
        for request in candidates.open(cache) {
            let reach = self.reach(cache, request, |_| true);
            let mut found = None;
            let mut accept = |cache: &QueryCache<'_>, region: &Region| {
                let (verdict, changes) = self.nearest_in(cache, request, region);
                found = changes;
                verdict
            };
            let Some(ended) = cache.search(request, &reach, (TREES, &mut accept))? else {
                continue;
            };
            cache.impossible[request as usize] = ended == Ended::Impossible;
            cache.unsearched[request as usize] = ended == Ended::Unknown;
            proposals.extend(found.map(|changes| Proposal { request, changes }));
        }
        let requests: Vec<u32> = proposals.iter().map(|proposal| proposal.request).collect();
        candidates.evaluate(cache, proposals, Source::Candidate)?;
        self.reduce_some(cache, candidates, &requests)?;
        self.shrink_of(cache, candidates, &requests)?;
        self.polish(cache, candidates, &requests)
    }

    /// The changes that bring a request's row into a region at the least cost, if rules let it be there.
    fn nearest_in(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
        region: &Region,
    ) -> (Verdict, Option<Changes>) {
        let change = |(feature, within): &(usize, Reach)| {
            self.nearest_change(cache, request, (*feature, within))
        };
        let changes: Changes = match region.iter().map(change).collect::<Result<_, _>>() {
            Ok(changes) => changes,
            Err(verdict) => return (verdict, None),
        };
        let most = self.shared.refiner.job.max_changes;
        let few = most.is_none_or(|most| changes.len() <= most as usize);
        if few && self.is_coherent(cache, request, &changes) {
            (Verdict::Taken, Some(changes))
        } else {
            (Verdict::Refused, None)
        }
    }

    /// The least change of a feature to an allowed value of a region; else whether it is certain that none is allowed.
    fn nearest_change(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
        (feature, within): (usize, &Reach),
    ) -> Result<Change, Verdict> {
        match (within, cache.original(request, feature)) {
            (Reach::Numbers(low, high), Cell::Number(original)) => {
                let plateau = Plateau { low: low.next_down(), high: *high };
                let feasible = cache.feasible(request);
                if let Some(number) = plateau.nearest_to(feasible, feature, original) {
                    return Ok(Change { feature, cell: Cell::Number(number) });
                }
                // A proof needs more than that the nearest numbers lie outside.
                let allowed = feasible.options(feature, Cell::Number(original), NUMBERS);
                let inside =
                    |cell: &Cell| matches!(cell, Cell::Number(one) if plateau.contains(*one));
                match allowed {
                    Some(all) if !all.iter().any(inside) => Err(Verdict::Empty),
                    _ => Err(Verdict::Refused),
                }
            }
            (Reach::Codes(codes), _) => {
                let changes = codes.iter().map(|code| Change { feature, cell: Cell::Code(*code) });
                let cost = |change: &Change| self.cost(cache, request, change);
                let least = changes.min_by(|one, two| cost(one).total_cmp(&cost(two)));
                least.ok_or(Verdict::Empty)
            }
            _ => Err(Verdict::Refused),
        }
    }
}
