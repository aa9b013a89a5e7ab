//! Changed numbers move back towards the original by bisection, in their own type and step, as far as the
//! model lets them. A request's best counterfactual goes first; another is worth its questions only if it can still
//! become better than that.

use super::candidate_set::{Candidate, CandidateSet, Single};
use super::query_cache::QueryCache;
use super::{Change, Proposal};
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;

/// Halvings for one number, at most.
const HALVINGS: usize = 10;

/// Rounds for counterfactuals with several changes.
const ROUNDS_OF_SEVERAL: usize = 1;

/// How many counterfactuals of a request are shrunk, one a round, and the most changes that they may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShrinkLimits {
    pub(super) rounds: usize,
    pub(super) most_changes: usize,
}

impl ShrinkLimits {
    /// For counterfactuals with any number of changes.
    pub(super) fn of_several() -> ShrinkLimits {
        ShrinkLimits { rounds: ROUNDS_OF_SEVERAL, most_changes: usize::MAX }
    }
}

/// A counterfactual while it is refined.
struct ShrunkCandidate {
    request: u32,
    candidate: Candidate,
    /// Features whose numbers are to be moved back, the most expensive first.
    features: Vec<usize>,
    /// What it has to become better than; infinite for the request's best.
    score_limit: f64,
    /// Features whose numbers a rule between features has kept from going back.
    hindered: Vec<usize>,
}

/// A number on its way back.
struct Number {
    item: usize,
    feature: usize,
    /// Too far back.
    low: f64,
    /// Far enough.
    high: f64,
    /// Where it has to get to before anything else is worth a question.
    first: Option<f64>,
    /// The number that is tried next.
    next: f64,
}

impl Worker {
    /// Moves the numbers of every request's best counterfactuals back, as many counterfactuals as are said, and with no
    /// more changes: the best first, the next one if it can still become better than that.
    pub(super) fn shrink(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        limits: ShrinkLimits,
    ) -> Result<()> {
        for _ in 0..limits.rounds {
            let mut items: Vec<ShrunkCandidate> = Vec::new();
            for request in 0..cache.len() as u32 {
                items.extend(self.item(cache, candidates, request, limits.most_changes));
            }
            self.shrink_items(cache, candidates, items)?;
        }
        Ok(())
    }

    /// The same of some requests, however many changes their counterfactuals have.
    pub(super) fn shrink_of(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        requests: &[u32],
    ) -> Result<()> {
        for _ in 0..ROUNDS_OF_SEVERAL {
            let mut items: Vec<ShrunkCandidate> = Vec::new();
            for request in requests {
                items.extend(self.item(cache, candidates, *request, usize::MAX));
            }
            self.shrink_items(cache, candidates, items)?;
        }
        Ok(())
    }

    fn shrink_items(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        mut items: Vec<ShrunkCandidate>,
    ) -> Result<()> {
        self.move_back(cache, candidates, &mut items)?;
        if self.shared.constraints.couples_features() {
            self.free_partners(cache, candidates, &mut items)?;
        }
        for ShrunkCandidate { request, candidate, .. } in items {
            candidates.by_request[request as usize].push(candidate);
        }
        Ok(())
    }

    /// The best counterfactual of a request whose numbers were not moved back yet, unless that cannot make it the best
    /// of all.
    fn item(
        &self,
        cache: &QueryCache<'_>,
        candidates: &mut CandidateSet,
        request: u32,
        most_changes: usize,
    ) -> Option<ShrunkCandidate> {
        let whole = self.best(cache, candidates, request as usize);
        let whole = whole.map_or(f64::INFINITY, |candidate| candidate.score);
        let found = &mut candidates.by_request[request as usize];
        let fresh = found.iter_mut().filter(|candidate| {
            let small = candidate.changes.len() <= most_changes && self.may_show(candidate);
            !candidate.shrunk && small && cache.is_valid(candidate.prediction)
        });
        let candidate = fresh.min_by(|one, two| one.score.total_cmp(&two.score))?;
        candidate.shrunk = true;
        let features = self.numbers(cache, request, candidate);
        let score_limit = if candidate.score > whole { whole } else { f64::INFINITY };
        let hopeful = !features.is_empty() && self.least(cache, request, candidate) < score_limit;
        let candidate = candidate.clone();
        hopeful.then(|| ShrunkCandidate {
            request,
            candidate,
            features,
            score_limit,
            hindered: Vec::new(),
        })
    }

    /// Features with changed numbers, the most expensive first.
    fn numbers(&self, cache: &QueryCache<'_>, request: u32, candidate: &Candidate) -> Vec<usize> {
        let costs = &self.shared.refiner.costs;
        let mut found: Vec<(f64, usize)> = candidate
            .changes
            .iter()
            .filter(|change| matches!(change.cell, Cell::Number(_)))
            .map(|change| {
                (costs.of(change, cache.original(request, change.feature)), change.feature)
            })
            .collect();
        found.sort_by(|one, two| two.0.total_cmp(&one.0));
        found.into_iter().map(|(_, feature)| feature).collect()
    }

    fn move_back(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        items: &mut [ShrunkCandidate],
    ) -> Result<()> {
        let most = items.iter().map(|item| item.features.len()).max().unwrap_or(0);
        for index in 0..most {
            let number = |(item, at): (usize, &ShrunkCandidate)| {
                let singles = &candidates.singles[at.request as usize];
                let number = self.number(cache, singles, at, *at.features.get(index)?)?;
                Some(Number { item, ..number })
            };
            let mut numbers: Vec<Number> = items.iter().enumerate().filter_map(number).collect();
            for _ in 0..HALVINGS {
                let middle = |number: Number| {
                    let next = self.middle(cache, items[number.item].request, &number)?;
                    Some(Number { next, ..number })
                };
                numbers = numbers.into_iter().filter_map(middle).collect();
                if numbers.is_empty() {
                    break;
                }
                self.halve(cache, candidates, items, &mut numbers)?;
            }
        }
        Ok(())
    }

    /// What was moved for a rule's sake, or kept from going back by one, may go now that other numbers have
    /// gone back: as a whole if it can, else as far as it can.
    fn free_partners(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        items: &mut [ShrunkCandidate],
    ) -> Result<()> {
        let several = |item: &ShrunkCandidate| item.candidate.changes.len() > 1;
        let most =
            items.iter().filter(|item| several(item)).map(|item| item.candidate.changes.len());
        for index in (0..most.max().unwrap_or(0)).rev() {
            let (mut proposals, mut of) = (Vec::new(), Vec::new());
            for (number, item) in items.iter().enumerate().filter(|(_, item)| several(item)) {
                if index < item.candidate.changes.len() {
                    let mut changes = item.candidate.changes.clone();
                    changes.remove(index);
                    proposals.push(Proposal { request: item.request, changes });
                    of.push(number);
                }
            }
            let predictions = cache.predict(&proposals)?;
            for ((proposal, number), prediction) in proposals.into_iter().zip(of).zip(predictions) {
                if let Some(prediction) =
                    prediction.filter(|prediction| cache.is_valid(*prediction))
                {
                    items[number].candidate.adopt(
                        cache,
                        proposal.request,
                        proposal.changes,
                        prediction,
                    );
                }
            }
        }
        for item in items.iter_mut() {
            item.features = std::mem::take(&mut item.hindered);
            item.score_limit = f64::INFINITY;
        }
        self.move_back(cache, candidates, items)
    }

    /// One number of a counterfactual, and how far back it certainly cannot go.
    fn number(
        &self,
        cache: &QueryCache<'_>,
        singles: &[Single],
        at: &ShrunkCandidate,
        feature: usize,
    ) -> Option<Number> {
        let change = at.candidate.changes.iter().find(|change| change.feature == feature)?;
        let (Cell::Number(high), Cell::Number(original)) =
            (change.cell, cache.original(at.request, feature))
        else {
            return None;
        };
        let mut number = Number { item: 0, feature, low: original, high, first: None, next: high };
        if at.candidate.changes.len() == 1 {
            number.low = farthest_failure(cache, singles, &number);
            number.low = self.beyond(feature, number.low, high);
            number.first = self.break_even(cache, at, &number, original);
            let better = number.first.is_none_or(|first| between(first, number.low, high));
            return better.then_some(number);
        }
        Some(number)
    }

    /// The number at which a single change is as good as the request's best counterfactual.
    fn break_even(
        &self,
        cache: &QueryCache<'_>,
        at: &ShrunkCandidate,
        number: &Number,
        original: f64,
    ) -> Option<f64> {
        if at.score_limit.is_infinite() {
            return None;
        }
        // What a change costs, less what it gains, grows evenly with its size.
        let (least, now) = (self.least(cache, at.request, &at.candidate), at.candidate.score);
        let share = (at.score_limit - least) / (now - least);
        let even = original + share.clamp(0.0, 1.0) * (number.high - original);
        Some(cache.feasible(at.request).number(number.feature, even, original))
            .filter(|_| share < 1.0)
    }

    /// The next number to try; none if there is none, or it is not worth a question.
    fn middle(&self, cache: &QueryCache<'_>, request: u32, number: &Number) -> Option<f64> {
        if let Some(first) = number.first {
            return Some(first);
        }
        let Number { feature, low, high, .. } = *number;
        let Cell::Number(original) = cache.original(request, feature) else { return None };
        if (high - low).abs() <= self.shared.refiner.costs.tolerance(feature) {
            return None;
        }
        let feasible = cache.feasible(request);
        let middle = feasible.number(feature, low + (high - low) / 2.0, original);
        let change = Change { feature, cell: Cell::Number(middle) };
        // The nearest number for which the model says the same, if that has not failed yet.
        let tightened = self.shared.refiner.tightened(feasible, change, Cell::Number(original));
        match tightened.map(|change| change.cell) {
            Some(Cell::Number(tightened)) if between(tightened, low, high) => Some(tightened),
            _ => between(middle, low, high).then_some(middle),
        }
    }

    /// The last number on the way to another for which the model says the same as for one that has failed.
    fn beyond(&self, feature: usize, failed: f64, high: f64) -> f64 {
        let plateau = self.shared.refiner.plateaus.around(feature, failed);
        plateau.map_or(failed, |plateau| {
            if plateau.contains(high) { failed } else { plateau.end_towards(high) }
        })
    }

    fn halve(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
        items: &mut [ShrunkCandidate],
        numbers: &mut [Number],
    ) -> Result<()> {
        let proposal = |number: &Number| {
            let item = &items[number.item];
            let moved = |change: &Change| {
                let cell = Cell::Number(number.next);
                if change.feature == number.feature { Change { cell, ..*change } } else { *change }
            };
            Proposal {
                request: item.request,
                changes: item.candidate.changes.iter().map(moved).collect(),
            }
        };
        let proposals: Vec<Proposal> = numbers.iter().map(proposal).collect();
        let predictions = cache.predict(&proposals)?;
        for ((number, proposal), prediction) in numbers.iter_mut().zip(proposals).zip(predictions) {
            let Some(prediction) = prediction else {
                let given_up = cache.is_spent(proposal.request) || number.first.is_some();
                // Without a question left, what was found so far is what there is; what breaks a rule is no
                // counterfactual.
                number.low = if given_up { number.high } else { number.next };
                number.first = None;
                let hindered = &mut items[number.item].hindered;
                if !hindered.contains(&number.feature) {
                    hindered.push(number.feature);
                }
                continue;
            };
            if let [change] = proposal.changes[..] {
                let source = items[number.item].candidate.source;
                candidates.singles[proposal.request as usize].push(Single {
                    change,
                    prediction,
                    source,
                });
            }
            let candidate = &mut items[number.item].candidate;
            if candidate.yields_to(cache, &proposal, prediction) {
                number.high = number.next;
                candidate.adopt(cache, proposal.request, proposal.changes, prediction);
            } else {
                // What cannot get to where it would be better is given up.
                number.low = match number.first {
                    Some(_) => number.high,
                    None => self.beyond(number.feature, number.next, number.high),
                };
            }
            number.first = None;
        }
        Ok(())
    }
}

/// Whether a number lies between two others, and is neither.
fn between(number: f64, low: f64, high: f64) -> bool {
    (number - low) * (number - high) < 0.0
}

/// The farthest number, short of the valid one, that is known not to be valid on its own.
fn farthest_failure(cache: &QueryCache<'_>, singles: &[Single], number: &Number) -> f64 {
    let failed = singles.iter().filter_map(|single| match single.change.cell {
        Cell::Number(value)
            if single.change.feature == number.feature && !cache.is_valid(single.prediction) =>
        {
            Some(value)
        }
        _ => None,
    });
    let nearer = |one: f64, two: f64| {
        if (number.high - two).abs() < (number.high - one).abs() { two } else { one }
    };
    failed.filter(|value| between(*value, number.low, number.high)).fold(number.low, nearer)
}
