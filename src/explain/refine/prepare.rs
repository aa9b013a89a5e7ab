//! Prepares proposals for a prediction: moves that the model does not notice are undone, broken rules between features
//! are repaired.

use super::query_cache::QueryCache;
use super::{Change, Changes, Proposal};
use crate::metrics::Source;

impl QueryCache<'_> {
    /// Proposals that change no more than the model notices, and keep to the rules between features: those that do not
    /// are repaired. What cannot be is left as it is, and will not be asked about.
    pub(super) fn prepared(
        &self,
        proposals: Vec<Proposal>,
        sources: &[Source],
    ) -> (Vec<Proposal>, Vec<Source>) {
        let (proposals, sources) = self.tightened(proposals, sources);
        self.repaired(proposals, sources)
    }

    /// Proposals without what the model does not notice: numbers as near to the originals as it says the same.
    fn tightened(
        &self,
        proposals: Vec<Proposal>,
        sources: &[Source],
    ) -> (Vec<Proposal>, Vec<Source>) {
        let shared = &self.worker.shared;
        if !shared.refiner.plateaus.are_known() {
            return (proposals, sources.to_vec());
        }
        let tightened = |(Proposal { request, changes }, source): (Proposal, &Source)| {
            let (feasible, original) =
                (self.feasible(request), |feature: usize| self.original(request, feature));
            let ease = |change: &Change| {
                shared.refiner.tightened(feasible, *change, original(change.feature))
            };
            let tightened: Changes = changes.iter().filter_map(ease).collect();
            let better = shared.constraints.is_coherent(&tightened, original);
            // Nothing is asked about the row as it is, unless that was the question.
            let pointless = better && tightened.is_empty() && !changes.is_empty();
            let changes = if better { tightened } else { changes };
            (!pointless).then_some((Proposal { request, changes }, *source))
        };
        proposals.into_iter().zip(sources).filter_map(tightened).unzip()
    }

    fn repaired(
        &self,
        proposals: Vec<Proposal>,
        sources: Vec<Source>,
    ) -> (Vec<Proposal>, Vec<Source>) {
        let constraints = &self.worker.shared.constraints;
        if !constraints.couples_features() {
            return (proposals, sources);
        }
        let mut kept = Vec::with_capacity(proposals.len());
        for (proposal, source) in proposals.into_iter().zip(sources) {
            let Proposal { request, changes } = &proposal;
            let original = |feature: usize| self.original(*request, feature);
            let repairs = constraints.repairs(self.feasible(*request), changes, original);
            if repairs.is_empty() {
                kept.push((proposal, source));
            } else {
                let request = *request;
                kept.extend(
                    repairs.into_iter().map(|changes| (Proposal { request, changes }, source)),
                );
            }
        }
        kept.into_iter().unzip()
    }
}
