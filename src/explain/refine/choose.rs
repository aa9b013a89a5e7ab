//! The choice among valid counterfactuals: the least cost, and plausibility beside rows of the target. Of
//! counterfactuals that cost the same the most plausible one.

use super::candidate_set::{Candidate, CandidateSet};
use super::query_cache::{PredictionIndex, QueryCache};
use super::{Change, Changes, Fallback, Outcomes, Refiner};
use crate::error::Result;
use crate::explain::Worker;
use crate::explain::explained::Finding;
use crate::feature::Cell;
use crate::job::Step;
use crate::metrics::Status;

/// Counterfactuals whose costs differ by less than this share cost the same.
const TIE: f64 = 0.01;

impl Worker {
    /// The best valid counterfactual of every request; else what the generator proposed.
    pub(super) fn choose(
        &self,
        cache: &QueryCache<'_>,
        candidates: &CandidateSet,
    ) -> Result<Outcomes> {
        let chosen: Vec<Option<&Candidate>> =
            (0..cache.len()).map(|request| self.choice(cache, candidates, request)).collect();
        let shown: Vec<Option<&Candidate>> = chosen
            .iter()
            .zip(&candidates.generated)
            .map(|(chosen, first)| chosen.or(first.as_ref().filter(|one| cache.may_show(one))))
            .collect();
        let none = Changes::new();
        let rows = cache.rows(shown.iter().map(|shown| shown.map_or(&none, |one| &one.changes)));
        let finding = |(request, chosen): (u32, &Option<&Candidate>)| Finding {
            status: if chosen.is_some() { Status::Solved } else { Status::Unsolved },
            source: chosen.map(|one| one.source),
            valid: chosen.is_some(),
            queries: 0,
            certified: false,
            margin: chosen.map_or(f64::NAN, |one| cache.margin(one.prediction)),
            robust: chosen.and_then(|one| cache.held(one.prediction)),
            robustness_cost: chosen
                .and_then(|one| cache.robustness_cost(request, (one.prediction, one.cost))),
        };
        let mut scores = self.shared.with_probability_slots(&cache.batch.decided);
        let (indexes, predictions): (Vec<u32>, Vec<u32>) = (0u32..)
            .zip(&shown)
            .filter_map(|(request, shown)| shown.map(|one| (request, one.prediction)))
            .unzip();
        scores.put(&indexes, &cache.scores(&predictions));
        Ok(Outcomes {
            rows,
            scores,
            findings: (0u32..).zip(&chosen).map(finding).collect(),
            rules: Vec::new(),
            fallback: (self.shared.samples > 1).then(|| fallback(cache, candidates)),
        })
    }

    /// Whether a counterfactual changes no more features than it may.
    pub(super) fn may_show(&self, candidate: &Candidate) -> bool {
        self.may_change(&candidate.changes)
    }

    /// Whether changes are no more than there may be.
    pub(super) fn may_change(&self, changes: &Changes) -> bool {
        let most = self.shared.refiner.job.max_changes;
        most.is_none_or(|most| changes.len() <= most as usize)
    }

    /// The best valid counterfactual of a request; among those that cost as little, the most plausible one.
    fn choice<'p>(
        &self,
        cache: &QueryCache<'_>,
        candidates: &'p CandidateSet,
        request: usize,
    ) -> Option<&'p Candidate> {
        let best = self.best(cache, candidates, request)?;
        let Some(plausibility) = &self.shared.plausibility else { return Some(best) };
        if !self.shared.refiner.does(Step::Choice) {
            return Some(best);
        }
        let slack = TIE * best.cost;
        let ties = |one: &&Candidate| {
            one.prediction != best.prediction
                && one.cost <= best.cost + slack
                && one.score <= best.score + slack
                && one.changes.len() <= best.changes.len()
        };
        let mut tied = self.within_cost(cache, candidates, request).filter(ties).peekable();
        if tied.peek().is_none() {
            return Some(best);
        }
        let worth = |one: &'p Candidate| {
            let row = cache.row(request as u32, &one.changes);
            (plausibility.of(&row, 0), one)
        };
        let better =
            |best: (f64, &'p Candidate), other: (f64, &'p Candidate)| match other.0 > best.0 {
                true => other,
                false => best,
            };
        Some(tied.map(worth).fold(worth(best), better).1)
    }

    pub(super) fn best<'p>(
        &self,
        cache: &QueryCache<'_>,
        candidates: &'p CandidateSet,
        request: usize,
    ) -> Option<&'p Candidate> {
        let valid = self.within_cost(cache, candidates, request);
        valid.min_by(|one, two| one.score.total_cmp(&two.score))
    }

    /// The valid counterfactuals of a request that cost no more than what the generator proposed; all where a greater
    /// margin may cost something.
    fn within_cost<'p>(
        &self,
        cache: &QueryCache<'_>,
        candidates: &'p CandidateSet,
        request: usize,
    ) -> impl Iterator<Item = &'p Candidate> {
        let first =
            candidates.generated[request].as_ref().filter(|one| cache.is_counterfactual(one));
        let first = first.filter(|_| !cache.margin_counts());
        let most = first.map_or(f64::INFINITY, |one| one.cost);
        let found = candidates.by_request[request].iter();
        found.filter(move |one| cache.is_counterfactual(one) && one.cost <= most)
    }

    /// The score that a counterfactual tends to when its numbers are moved back.
    pub(super) fn least(&self, cache: &QueryCache<'_>, request: u32, candidate: &Candidate) -> f64 {
        let moved_back = |change: &Change| match cache.original(request, change.feature) {
            cell @ Cell::Number(_) => Change { cell, ..*change },
            Cell::Code(_) => *change,
        };
        let moved: Changes = candidate.changes.iter().map(moved_back).collect();
        self.score(cache, request, &moved) - cache.margin_value(candidate.prediction)
    }

    /// What changes cost, less what they gain in plausibility: the smaller the better. Where margins are worth
    /// something, every change counts more.
    pub(super) fn score(&self, cache: &QueryCache<'_>, request: u32, changes: &[Change]) -> f64 {
        let Refiner { costs, linear_plausibility, .. } = &self.shared.refiner;
        let part = |change: &Change| {
            let original = cache.original(request, change.feature);
            let gain =
                linear_plausibility.gain(&cache.batch.targets, request as usize, change, original);
            costs.of(change, original) + cache.change_penalty(change) - gain
        };
        changes.iter().map(part).sum()
    }
}

/// The generator's own counterfactuals.
fn fallback(cache: &QueryCache<'_>, candidates: &CandidateSet) -> Fallback {
    let none = Changes::new();
    let first = || candidates.generated.iter().map(Option::as_ref);
    let predictions: Vec<PredictionIndex> = first().flatten().map(|one| one.prediction).collect();
    let indexes: Vec<u32> = (0u32..)
        .zip(first())
        .filter(|(_, one)| one.is_some())
        .map(|(request, _)| request)
        .collect();
    let mut scores = cache.worker.shared.with_probability_slots(&cache.batch.decided);
    scores.put(&indexes, &cache.scores(&predictions));
    Fallback {
        source: cache.worker.shared.method.source(),
        rows: cache.rows(first().map(|one| one.map_or(&none, |one| &one.changes))),
        scores,
        valid: first().map(|one| one.is_some_and(|one| cache.is_inside(one))).collect(),
        margins: first()
            .map(|one| one.map_or(f64::NAN, |one| cache.margin(one.prediction)))
            .collect(),
        robust: first().map(|one| cache.held(one?.prediction)).collect(),
    }
}

impl QueryCache<'_> {
    /// Whether a proposal that is not valid may be shown: one that reaches the target would be taken for an
    /// counterfactual.
    fn may_show(&self, candidate: &Candidate) -> bool {
        self.worker.may_show(candidate) && !self.is_implausible(candidate.prediction)
    }

    /// Whether a candidate is valid, and changes no more than it may.
    pub(super) fn is_counterfactual(&self, candidate: &Candidate) -> bool {
        self.is_valid(candidate.prediction) && self.worker.may_show(candidate)
    }

    /// The same, however near to the border.
    pub(super) fn is_inside(&self, candidate: &Candidate) -> bool {
        self.decides(candidate.prediction) && self.worker.may_show(candidate)
    }
}
