//! Changes that neighbours suggest, taken together one after the other: always the one that brings the model
//! nearest to the target. For requests that neither one change nor two solve, where there is no generator to
//! propose several at once. Needs a model that gives probabilities or values.

use super::candidate_set::CandidateSet;
use super::neighbours::NearbyChanges;
use super::query_cache::QueryCache;
use super::{Change, Changes, Proposal, SMALL};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;

/// Changes that compete to be the next one: the strongest on their own.
const COMPETING: usize = 10;
/// Changes taken together, at most.
const MOST: usize = 8;

/// Changes of a request that are on their way to the target.
struct Growing {
    request: u32,
    /// What may be added, the strongest first.
    additions: Vec<Change>,
    changes: Changes,
    /// How near the model is with them.
    share: f32,
    /// Whether they are valid, or nothing that is added brings the model nearer.
    ended: bool,
}

impl Worker {
    pub(super) fn grow(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        nearby: &[NearbyChanges],
    ) -> Result<()> {
        let small =
            |request: usize| candidates.valid(cache, request).any(|one| one.changes.len() <= SMALL);
        let hard = (0..cache.len()).filter(|request| !small(*request));
        let mut growing: Vec<Growing> =
            hard.filter_map(|request| self.seed(cache, request as u32, &nearby[request])).collect();
        for _ in 1..MOST {
            let proposals = extensions(&growing);
            if proposals.is_empty() {
                break;
            }
            growing.iter_mut().for_each(|item| item.ended = true);
            // What breaks a rule between features takes its partner along.
            let sources = vec![Source::Neighbour; proposals.len()];
            let (proposals, _) = cache.prepared(proposals, &sources);
            let predictions = cache.predict(&proposals)?;
            for (proposal, prediction) in proposals.into_iter().zip(predictions) {
                let of = growing.binary_search_by_key(&proposal.request, |item| item.request);
                let Ok(index) = of else { continue };
                let item: &mut Growing = &mut growing[index];
                let Some(prediction) = prediction else { continue };
                let share = cache.share(prediction).unwrap_or(0.0);
                if share > item.share {
                    item.share = share;
                    item.changes = proposal.changes;
                    item.ended = cache.is_valid(prediction);
                }
            }
        }
        let extended = growing.into_iter().filter(|item| item.changes.len() > SMALL);
        let proposals =
            extended.map(|item| Proposal { request: item.request, changes: item.changes });
        // What was asked before is not asked again.
        candidates.evaluate(cache, proposals.collect(), Source::Neighbour)
    }

    /// A request's strongest single change to begin with, if the model gives a probability or a value.
    fn seed(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
        nearby: &NearbyChanges,
    ) -> Option<Growing> {
        let strength = |change: &Change| {
            // Singles were asked about as near to the original as the model says the same.
            let original = cache.original(request, change.feature);
            let change =
                self.shared.refiner.tightened(cache.feasible(request), *change, original)?;
            let known = cache.cached(request, &[change])?;
            Some((cache.share(known)?, change))
        };
        let mut ranked: Vec<(f32, Change)> = nearby
            .first_changes
            .iter()
            .chain(&nearby.second_changes)
            .chain(&nearby.ends)
            .filter_map(strength)
            .collect();
        ranked.sort_by(|(one, _), (two, _)| two.total_cmp(one));
        let (share, first) = *ranked.first()?;
        let mut additions: Vec<Change> = ranked.into_iter().map(|(_, change)| change).collect();
        additions.truncate(COMPETING);
        let changes = Changes::from_slice(&[first]);
        Some(Growing { request, additions, changes, share, ended: false })
    }
}

/// What every growing list could become next.
fn extensions(growing: &[Growing]) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    for item in growing.iter().filter(|item| !item.ended) {
        for addition in &item.additions {
            if item.changes.iter().any(|change| change.feature == addition.feature) {
                continue;
            }
            let mut changes = item.changes.clone();
            changes.push(*addition);
            changes.sort_by_key(|change| change.feature);
            proposals.push(Proposal { request: item.request, changes });
        }
    }
    proposals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::Cell;

    fn change(feature: usize) -> Change {
        Change { feature, cell: Cell::Number(1.0) }
    }

    #[test]
    fn what_is_there_is_not_added_again() {
        let item = |request, ended| Growing {
            request,
            additions: vec![change(2), change(0), change(5)],
            changes: Changes::from_slice(&[change(2)]),
            share: 0.1,
            ended,
        };
        let proposals = extensions(&[item(6, true), item(7, false)]);
        let features: Vec<Vec<usize>> = proposals
            .iter()
            .map(|proposal| proposal.changes.iter().map(|change| change.feature).collect())
            .collect();
        assert_eq!(features, [[0, 2], [2, 5]]);
        let of = |request| proposals.iter().filter(|of| of.request == request).count();
        assert_eq!((of(6), of(7)), (0, 2), "an ended list grows no more");
    }
}
