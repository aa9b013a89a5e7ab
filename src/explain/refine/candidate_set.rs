//! Candidates: proposals with their prediction, cost and score, by request.

use super::query_cache::{PredictionIndex, QueryCache};
use super::{Change, Changes, Proposal};
use crate::error::Result;
use crate::metrics::Source;

/// A proposal that the model has predicted, valid or not.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) changes: Changes,
    pub(super) prediction: PredictionIndex,
    /// What proposed it.
    pub(super) source: Source,
    /// Whether its numbers were moved back.
    pub(super) shrunk: bool,
    /// What its changes cost …
    pub(super) cost: f64,
    /// … and that less what they gain in plausibility and margin.
    pub(super) score: f64,
}

impl Candidate {
    fn new(
        cache: &QueryCache<'_>,
        Proposal { request, changes }: Proposal,
        (prediction, source): SourcedPrediction,
    ) -> Candidate {
        let (cost, score) = worth(cache, request, &changes, prediction);
        Candidate { changes, prediction, source, shrunk: false, cost, score }
    }

    /// Whether changes that were found on the way from it are better: all are if margins count for nothing.
    pub(super) fn yields_to(
        &self,
        cache: &QueryCache<'_>,
        proposal: &Proposal,
        prediction: PredictionIndex,
    ) -> bool {
        let score = || worth(cache, proposal.request, &proposal.changes, prediction).1;
        cache.is_valid(prediction) && (!cache.margin_counts() || score() < self.score)
    }

    /// Becomes what was found on the way from it.
    pub(super) fn adopt(
        &mut self,
        cache: &QueryCache<'_>,
        request: u32,
        changes: Changes,
        prediction: PredictionIndex,
    ) {
        (self.cost, self.score) = worth(cache, request, &changes, prediction);
        (self.changes, self.prediction) = (changes, prediction);
    }
}

/// A prediction, and what proposed it.
type SourcedPrediction = (PredictionIndex, Source);

/// Cost and score of a request's changes.
fn worth(
    cache: &QueryCache<'_>,
    request: u32,
    changes: &[Change],
    prediction: PredictionIndex,
) -> (f64, f64) {
    let costs = &cache.worker.shared.refiner.costs;
    let cost = costs.total(changes, |feature| cache.original(request, feature));
    (cost, cache.worker.score(cache, request, changes) - cache.margin_value(prediction))
}

/// Candidates by request.
pub(super) struct CandidateSet {
    pub(super) by_request: Vec<Vec<Candidate>>,
    /// What the generator, or another method that asks the model itself, proposed, whatever became of it.
    pub(super) generated: Vec<Option<Candidate>>,
    /// Single changes that were tried.
    pub(super) singles: Vec<Vec<Single>>,
}

/// A single change that was tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Single {
    pub(super) change: Change,
    pub(super) prediction: PredictionIndex,
    /// Where it comes from.
    pub(super) source: Source,
}

impl CandidateSet {
    pub(super) fn new(requests: usize) -> CandidateSet {
        CandidateSet {
            by_request: vec![Vec::new(); requests],
            generated: vec![None; requests],
            singles: vec![Vec::new(); requests],
        }
    }

    /// Adds proposals that were evaluated.
    pub(super) fn evaluate(
        &mut self,
        cache: &mut QueryCache<'_>,
        proposals: Vec<Proposal>,
        source: Source,
    ) -> Result<()> {
        let sources = vec![source; proposals.len()];
        self.evaluate_each(cache, proposals, &sources)
    }

    /// The same for proposals that come from different means.
    pub(super) fn evaluate_each(
        &mut self,
        cache: &mut QueryCache<'_>,
        proposals: Vec<Proposal>,
        sources: &[Source],
    ) -> Result<()> {
        let (proposals, sources) = cache.prepared(proposals, sources);
        let predictions = cache.predict(&proposals)?;
        for ((proposal, prediction), source) in proposals.into_iter().zip(predictions).zip(&sources)
        {
            if let Some(prediction) = prediction {
                let request = proposal.request as usize;
                self.by_request[request].push(Candidate::new(
                    cache,
                    proposal,
                    (prediction, *source),
                ));
            }
        }
        Ok(())
    }

    /// The same for proposals of a method that asked the model itself: they stay as they are.
    pub(super) fn evaluate_as_proposed(
        &mut self,
        cache: &mut QueryCache<'_>,
        proposals: Vec<Proposal>,
        source: Source,
    ) -> Result<()> {
        let predictions = cache.predict(&proposals)?;
        for (proposal, prediction) in proposals.into_iter().zip(predictions) {
            if let Some(prediction) = prediction {
                let request = proposal.request as usize;
                let candidate = Candidate::new(cache, proposal, (prediction, source));
                self.generated[request] = Some(candidate.clone());
                self.by_request[request].push(candidate);
            }
        }
        Ok(())
    }

    /// The same for the generator's own proposals. Of two the valid one counts, else the first.
    pub(super) fn evaluate_generated(
        &mut self,
        cache: &mut QueryCache<'_>,
        proposals: Vec<Proposal>,
    ) -> Result<()> {
        self.evaluate(cache, proposals, Source::Generator)?;
        for (first, found) in self.generated.iter_mut().zip(&self.by_request) {
            let valid = found.iter().find(|candidate| cache.is_counterfactual(candidate));
            let inside = || found.iter().find(|candidate| cache.is_inside(candidate));
            *first = valid.or_else(inside).or(found.first()).cloned();
        }
        Ok(())
    }

    /// Adds a single change that was evaluated; among the counterfactuals if it is valid, with margin or without.
    pub(super) fn tried(
        &mut self,
        cache: &QueryCache<'_>,
        proposal: Proposal,
        prediction: Option<PredictionIndex>,
        source: Source,
    ) {
        let Some(prediction) = prediction else { return };
        let request = proposal.request as usize;
        // What had to move along is no single change any more.
        if let [change] = proposal.changes[..] {
            self.singles[request].push(Single { change, prediction, source });
        }
        if cache.decides(prediction) {
            self.by_request[request].push(Candidate::new(cache, proposal, (prediction, source)));
        }
    }

    /// Requests without a valid counterfactual that may be given.
    pub(super) fn open(&self, cache: &QueryCache<'_>) -> Vec<u32> {
        let requests = (0u32..).zip(&self.by_request);
        requests
            .filter(|(_, found)| !found.iter().any(|one| cache.is_counterfactual(one)))
            .map(|(request, _)| request)
            .collect()
    }

    /// The valid counterfactuals of a request.
    pub(super) fn valid<'p>(
        &'p self,
        cache: &'p QueryCache<'_>,
        request: usize,
    ) -> impl Iterator<Item = &'p Candidate> {
        self.by_request[request].iter().filter(|candidate| cache.is_valid(candidate.prediction))
    }
}
