//! Reversion of all changes but one: most rows need no more than a single change, and the quickest way to
//! it is to try those that were proposed one by one.

use super::candidate_set::CandidateSet;
use super::neighbours::NearbyChanges;
use super::query_cache::QueryCache;
use super::{Change, Changes, Proposal};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;

/// Changes of a counterfactual that are tried one by one, the most expensive first.
const OF_ANSWERS: usize = 6;
/// Features whose first change from neighbours is tried at once: the most plausible ones.
const OF_NEIGHBOURS: usize = 4;
/// Further changes that are tried where none was valid.
const FURTHER: usize = 4;
/// Ends of what numbers may become that are tried where no single change was valid; all where nothing is.
const ENDS: usize = 16;

impl Worker {
    /// Tries the changes of these requests' counterfactuals one by one.
    pub(super) fn singles_of_candidates(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        requests: &[u32],
    ) -> Result<()> {
        let costs = &self.shared.refiner.costs;
        let mut proposals = Vec::new();
        for request in requests.iter().copied() {
            let cost = |change: &Change| costs.of(change, cache.original(request, change.feature));
            let found = &candidates.by_request[request as usize];
            let best = found.iter().find(|candidate| cache.is_valid(candidate.prediction));
            let Some(candidate) = best.or(found.first()) else { continue };
            let mut changes = candidate.changes.clone();
            changes.sort_by(|one, two| cost(two).total_cmp(&cost(one)));
            let some = changes.into_iter().take(OF_ANSWERS);
            proposals.extend(some.map(|change| (single(request, change), candidate.source)));
        }
        self.try_singles(cache, candidates, proposals)
    }

    /// Tries changes that neighbours suggest: for each feature its first, those that make the row most plausible beside
    /// theirs before the others; where none is valid, some more of them.
    pub(super) fn singles_of_neighbours(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        nearby: &[NearbyChanges],
    ) -> Result<()> {
        let source = Source::Neighbour;
        // Without a generator, nobody else has anything to propose.
        let searches = !self.shared.refiner.asks_generator();
        let (at_once, further) =
            if searches { (usize::MAX, usize::MAX) } else { (OF_NEIGHBOURS, FURTHER) };
        let by_plausibility = |(request, nearby): (u32, &NearbyChanges)| {
            let changes = self.by_plausibility(cache, request, &nearby.first_changes);
            changes.into_iter().take(at_once).map(move |change| (single(request, change), source))
        };
        let proposals = (0u32..).zip(nearby).flat_map(by_plausibility).collect();
        self.try_singles(cache, candidates, proposals)?;
        let solved = |request: u32| {
            let mut singles = candidates.singles[request as usize].iter();
            singles.any(|single| cache.is_valid(single.prediction))
        };
        let unsolved = candidates.open(cache);
        let others = |(request, nearby): (u32, &NearbyChanges)| {
            let first_changes = self
                .by_plausibility(cache, request, &nearby.first_changes)
                .into_iter()
                .skip(at_once);
            let second_changes = self.by_plausibility(cache, request, &nearby.second_changes);
            let more = first_changes.chain(second_changes).take(further);
            let lost = unsolved.binary_search(&request).is_ok();
            let ends = nearby.ends.iter().copied().take(if lost { usize::MAX } else { ENDS });
            let more: Vec<Change> = more.chain(ends).collect();
            more.into_iter().map(move |change| (single(request, change), source))
        };
        let open = (0u32..).zip(nearby).filter(|(request, _)| !solved(*request));
        let proposals = open.flat_map(others).collect();
        self.try_singles(cache, candidates, proposals)
    }

    /// Changes in the order of how much they make a request's row like those of the target.
    fn by_plausibility(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
        changes: &[Change],
    ) -> Vec<Change> {
        let linear_plausibility = &self.shared.refiner.linear_plausibility;
        let gain = |change: &Change| {
            let original = cache.original(request, change.feature);
            linear_plausibility.plain(&cache.batch.targets, request as usize, change, original)
        };
        let mut ranked: Vec<(f64, Change)> =
            changes.iter().map(|change| (gain(change), *change)).collect();
        ranked.sort_by(|(one, _), (two, _)| two.total_cmp(one));
        ranked.into_iter().map(|(_, change)| change).collect()
    }

    fn try_singles(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        proposals: Vec<(Proposal, Source)>,
    ) -> Result<()> {
        let (proposals, sources): (Vec<Proposal>, Vec<Source>) = proposals.into_iter().unzip();
        let (proposals, sources) = cache.prepared(proposals, &sources);
        let predictions = cache.predict(&proposals)?;
        for ((proposal, source), prediction) in proposals.into_iter().zip(sources).zip(predictions)
        {
            candidates.tried(cache, proposal, prediction, source);
        }
        Ok(())
    }
}

fn single(request: u32, change: Change) -> Proposal {
    Proposal { request, changes: Changes::from_slice(&[change]) }
}
