//! Reversion, change by change, for requests that no single change solves: first the few changes that look
//! strongest are tried together, then what is left is put back one by one, or in groups where there is much.

use super::candidate_set::{Candidate, CandidateSet};
use super::neighbours::NearbyChanges;
use super::query_cache::{PredictionIndex, QueryCache};
use super::{COMPETITORS, Change, Changes, Proposal, SMALL};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;

/// How many of the strongest changes are tried together.
const STRONGEST: [usize; 11] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Counterfactuals of a request that are reduced.
const REDUCED: usize = 1;
/// Groups of changes that are put back in one round, at most.
const GROUPS: usize = 12;
/// Rounds of putting back, at most.
const ROUNDS: usize = 6;

/// A counterfactual while it is refined.
struct ReducedCandidate {
    request: u32,
    candidate: Candidate,
}

impl Worker {
    pub(super) fn reduce(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        nearby: &[NearbyChanges],
    ) -> Result<()> {
        let searches = !self.shared.refiner.asks_generator();
        let small =
            |request: usize| candidates.valid(cache, request).any(|one| one.changes.len() <= SMALL);
        let hard: Vec<u32> = (0..cache.len())
            .filter(|request| !small(*request))
            .map(|request| request as u32)
            .collect();
        let proposals = hard.iter().flat_map(|request| {
            let lists = nearby[*request as usize].rows.iter().take(COMPETITORS);
            lists.map(|changes| Proposal { request: *request, changes: changes.clone() })
        });
        candidates.evaluate(cache, proposals.collect(), Source::Neighbour)?;
        let mut items: Vec<ReducedCandidate> = Vec::new();
        for request in hard {
            let valid = candidates.valid(cache, request as usize);
            items.extend(
                valid.take(REDUCED).map(|one| ReducedCandidate { request, candidate: one.clone() }),
            );
            // Where counterfactuals are searched for, the first one is a whole row of the training data, and not all
            // there is.
            let best = self.best(cache, candidates, request as usize);
            let other = best.filter(|best| {
                let known = items.last().filter(|item| item.request == request);
                searches && known.is_none_or(|item| item.candidate.prediction != best.prediction)
            });
            items.extend(other.map(|one| ReducedCandidate { request, candidate: one.clone() }));
        }
        self.reduce_items(cache, candidates, items)
    }

    /// Reduces the best counterfactuals of these requests.
    pub(super) fn reduce_some(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        requests: &[u32],
    ) -> Result<()> {
        let item = |request: &u32| {
            let best = self.best(cache, candidates, *request as usize)?;
            Some(ReducedCandidate { request: *request, candidate: best.clone() })
        };
        let items = requests.iter().filter_map(item).collect();
        self.reduce_items(cache, candidates, items)
    }

    fn reduce_items(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        mut items: Vec<ReducedCandidate>,
    ) -> Result<()> {
        self.strongest(cache, &mut items)?;
        self.put_back(cache, &mut items)?;
        for ReducedCandidate { request, candidate } in items {
            candidates.by_request[request as usize].push(candidate);
        }
        Ok(())
    }

    /// Replaces counterfactuals by the fewest of their strongest changes that are valid together.
    fn strongest(&self, cache: &mut QueryCache<'_>, items: &mut [ReducedCandidate]) -> Result<()> {
        let mut proposals = Vec::new();
        let mut of = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let ranked = self.ranked(cache, item);
            for size in STRONGEST.into_iter().filter(|size| *size < ranked.len()) {
                let mut changes = Changes::from_slice(&ranked[..size]);
                changes.sort_by_key(|change| change.feature);
                proposals.push(Proposal { request: item.request, changes });
                of.push(index);
            }
        }
        let predictions = cache.predict(&proposals)?;
        for ((proposal, index), prediction) in proposals.into_iter().zip(of).zip(predictions) {
            let fewer = proposal.changes.len() < items[index].candidate.changes.len();
            let better = |prediction: &PredictionIndex| {
                items[index].candidate.yields_to(cache, &proposal, *prediction)
            };
            if let Some(prediction) = prediction.filter(|prediction| fewer && better(prediction)) {
                items[index].adopt(cache, proposal.changes, prediction);
            }
        }
        Ok(())
    }

    /// The changes of a counterfactual, those first that bring the model nearest on their own; where it does not
    /// tell, the largest first.
    fn ranked(&self, cache: &QueryCache<'_>, item: &ReducedCandidate) -> Changes {
        let costs = &self.shared.refiner.costs;
        let strength = |change: &Change| {
            let known = cache.cached(item.request, &[*change]);
            let share = known.and_then(|prediction| cache.share(prediction));
            let cost = costs.of(change, cache.original(item.request, change.feature));
            (share.unwrap_or(f32::NEG_INFINITY), cost)
        };
        let mut ranked: Vec<((f32, f64), Change)> =
            item.candidate.changes.iter().map(|change| (strength(change), *change)).collect();
        ranked.sort_by(|(one, _), (two, _)| two.0.total_cmp(&one.0).then(two.1.total_cmp(&one.1)));
        ranked.into_iter().map(|(_, change)| change).collect()
    }

    /// Puts changes back, the most expensive first, as long as counterfactuals stay valid.
    fn put_back(&self, cache: &mut QueryCache<'_>, items: &mut [ReducedCandidate]) -> Result<()> {
        let mut left: Vec<Vec<Changes>> =
            items.iter().map(|item| self.groups(cache, item)).collect();
        for _ in 0..ROUNDS {
            let found = self.put_back_each(cache, items, &left)?;
            if found.iter().all(Vec::is_empty) {
                break;
            }
            self.put_back_many(cache, items, &found)?;
            for ((item, left), found) in items.iter().zip(&mut left).zip(found) {
                // What could be put back alone and was not, may be after what was put back now; a group that
                // could not may have parts that can.
                let coarse = left.iter().any(|group| group.len() > 1);
                *left = if coarse {
                    self.groups(cache, item)
                } else {
                    let there = |group: &Changes| item.candidate.changes.contains(&group[0]);
                    found.into_iter().filter(there).collect()
                };
            }
        }
        Ok(())
    }

    /// Changes of a counterfactual in groups, the most expensive first.
    fn groups(&self, cache: &QueryCache<'_>, item: &ReducedCandidate) -> Vec<Changes> {
        let costs = &self.shared.refiner.costs;
        let cost = |change: &Change| costs.of(change, cache.original(item.request, change.feature));
        let mut changes = item.candidate.changes.clone();
        changes.sort_by(|one, two| cost(two).total_cmp(&cost(one)));
        changes.chunks(changes.len().div_ceil(GROUPS).max(1)).map(Changes::from_slice).collect()
    }

    /// The groups that can be put back alone; one of them is.
    fn put_back_each(
        &self,
        cache: &mut QueryCache<'_>,
        items: &mut [ReducedCandidate],
        left: &[Vec<Changes>],
    ) -> Result<Vec<Vec<Changes>>> {
        let mut proposals = Vec::new();
        let mut of = Vec::new();
        for (index, (item, groups)) in items.iter().zip(left).enumerate() {
            for group in groups.iter().filter(|group| group.len() < item.candidate.changes.len()) {
                proposals.push(Proposal { request: item.request, changes: item.without(&[group]) });
                of.push((index, group));
            }
        }
        let predictions = cache.predict(&proposals)?;
        let mut found: Vec<Vec<Changes>> = vec![Vec::new(); items.len()];
        let mut best: Vec<Option<(Changes, PredictionIndex)>> = vec![None; items.len()];
        for ((proposal, (index, group)), prediction) in
            proposals.into_iter().zip(of).zip(predictions)
        {
            let better = |prediction: &PredictionIndex| {
                items[index].candidate.yields_to(cache, &proposal, *prediction)
            };
            if let Some(prediction) = prediction.filter(better) {
                found[index].push(group.clone());
                best[index].get_or_insert((proposal.changes, prediction));
            }
        }
        // Groups are in order of cost, so the first is the best. With several, more than one may go at once.
        for ((item, best), found) in items.iter_mut().zip(best).zip(&found) {
            if let Some((changes, prediction)) = best.filter(|_| found.len() == 1) {
                item.adopt(cache, changes, prediction);
            }
        }
        Ok(found)
    }

    /// Puts as many of the groups back together as can be.
    fn put_back_many(
        &self,
        cache: &mut QueryCache<'_>,
        items: &mut [ReducedCandidate],
        found: &[Vec<Changes>],
    ) -> Result<()> {
        let mut proposals = Vec::new();
        let mut of = Vec::new();
        for (index, (item, groups)) in items.iter().zip(found).enumerate() {
            let several = groups.len() > 1;
            for count in (1..=groups.len()).filter(|_| several) {
                let groups: Vec<&Changes> = groups[..count].iter().collect();
                let changes = item.without(&groups);
                if !changes.is_empty() {
                    proposals.push(Proposal { request: item.request, changes });
                    of.push(index);
                }
            }
        }
        let predictions = cache.predict(&proposals)?;
        for ((proposal, index), prediction) in proposals.into_iter().zip(of).zip(predictions) {
            let better = |prediction: &PredictionIndex| {
                items[index].candidate.yields_to(cache, &proposal, *prediction)
            };
            if let Some(prediction) = prediction.filter(better) {
                items[index].adopt(cache, proposal.changes, prediction);
            }
        }
        Ok(())
    }
}

impl ReducedCandidate {
    fn adopt(&mut self, cache: &QueryCache<'_>, changes: Changes, prediction: PredictionIndex) {
        self.candidate.adopt(cache, self.request, changes, prediction);
        self.candidate.shrunk = false;
    }

    /// The changes without some groups of them.
    fn without(&self, groups: &[&Changes]) -> Changes {
        let gone = |change: &Change| groups.iter().any(|group| group.contains(change));
        self.candidate.changes.iter().filter(|change| !gone(change)).copied().collect()
    }
}
