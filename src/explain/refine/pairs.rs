//! Two changes together, for requests that no single one solves, or only dearly: of the features that bring
//! the model nearest on their own, each with the cheapest value that does so. Needs a model that tells how
//! near it is.

use super::candidate_set::{CandidateSet, Single};
use super::query_cache::QueryCache;
use super::{Changes, Proposal};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;

/// A counterfactual that costs less needs no pair to compete with it.
const EXPENSIVE: f64 = 2.5;
/// Features that are paired.
const FEATURES: usize = 4;
/// Share of a feature's greatest gain that a cheaper value must bring.
const NEARLY: f32 = 0.8;

impl Worker {
    pub(super) fn pairs(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> Result<()> {
        let (mut proposals, mut sources) = (Vec::new(), Vec::new());
        for request in self.expensive(cache, candidates, EXPENSIVE) {
            let strong = self.strong(cache, candidates, request);
            for (index, one) in strong.iter().enumerate() {
                for two in &strong[..index] {
                    let mut changes = Changes::from_slice(&[one.change, two.change]);
                    changes.sort_by_key(|change| change.feature);
                    proposals.push(Proposal { request, changes });
                    // What takes a neighbour's word is a neighbour's.
                    let same = one.source == two.source;
                    sources.push(if same { one.source } else { Source::Neighbour });
                }
            }
        }
        candidates.evaluate_each(cache, proposals, &sources)
    }

    /// The strongest change of each of the strongest features.
    fn strong(
        &self,
        cache: &QueryCache<'_>,
        candidates: &CandidateSet,
        request: u32,
    ) -> Vec<Single> {
        let costs = &self.shared.refiner.costs;
        let singles = &candidates.singles[request as usize];
        // About the row as it is the model need not have been asked; some change hardly matters.
        let shares = singles.iter().filter_map(|single| cache.share(single.prediction));
        let base = shares.fold(f32::INFINITY, f32::min);
        let gain = |single: &Single| cache.share(single.prediction).map(|share| share - base);
        let mut features: Vec<usize> = singles.iter().map(|single| single.change.feature).collect();
        features.sort_unstable();
        features.dedup();
        let mut strong: Vec<(f32, Single)> = Vec::new();
        for feature in features {
            let of = || singles.iter().filter(|single| single.change.feature == feature);
            let most = of().filter_map(gain).fold(0f32, f32::max);
            let enough = of().filter(|one| gain(one).is_some_and(|gain| gain >= NEARLY * most));
            let cost = |single: &Single| {
                costs.of(&single.change, cache.original(request, single.change.feature))
            };
            let cheapest = enough.min_by(|one, two| cost(one).total_cmp(&cost(two)));
            strong.extend(cheapest.filter(|_| most > 0.0).map(|single| (most, *single)));
        }
        strong.sort_by(|(one, _), (two, _)| two.total_cmp(one));
        strong.into_iter().take(FEATURES).map(|(_, single)| single).collect()
    }
}
