//! Where a row's allowed space is small, an unsolved row is searched exhaustively: what is found is the
//! cheapest counterfactual there is, and if nothing is, that there is none is proven.

use super::query_cache::{PredictionIndex, QueryCache};
use super::{Change, Changes, Outcomes, Proposal};
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::metrics::{Source, Status};

/// Proposals that are made at once, about: spaces of many rows would not fit into memory together.
const PORTION: usize = 65_536;

/// The spaces of some requests, one after the other.
#[derive(Default)]
struct Portion {
    proposals: Vec<Proposal>,
    /// Requests, and where their proposals end.
    ends: Vec<(u32, usize)>,
}

impl Portion {
    fn add(&mut self, request: u32, space: Vec<Changes>) {
        self.proposals.extend(space.into_iter().map(|changes| Proposal { request, changes }));
        self.ends.push((request, self.proposals.len()));
    }
}

impl Worker {
    /// Searches the small spaces of unsolved requests.
    pub(super) fn certify(
        &self,
        cache: &mut QueryCache<'_>,
        outcomes: &mut Outcomes,
    ) -> Result<()> {
        // A further sample may change less than its row may, so nothing is proven by it.
        let open = |request: &u32| {
            outcomes.findings[*request as usize].status == Status::Unsolved
                && cache.batch.draws[*request as usize] == 0
        };
        let open: Vec<u32> = (0..cache.len() as u32).filter(open).collect();
        let mut portion = Portion::default();
        for request in open {
            if cache.impossible[request as usize] {
                self.prove(cache, request, outcomes);
                continue;
            }
            if let Some(space) = self.space(cache, request) {
                portion.add(request, space);
            }
            if portion.proposals.len() >= PORTION {
                self.search(cache, std::mem::take(&mut portion), outcomes)?;
            }
        }
        self.search(cache, portion, outcomes)
    }

    /// Tries a portion.
    fn search(
        &self,
        cache: &mut QueryCache<'_>,
        Portion { proposals, ends }: Portion,
        outcomes: &mut Outcomes,
    ) -> Result<()> {
        let predictions = cache.predict(&proposals)?;
        let mut first = 0;
        for (request, end) in ends {
            let found = proposals[first..end].iter().zip(predictions[first..end].iter().copied());
            let found: Vec<(&Proposal, Option<PredictionIndex>)> = found.collect();
            self.conclude(cache, request, &found, outcomes);
            first = end;
        }
        Ok(())
    }

    /// All that a request's row may become; none if that is more than the model may be asked about.
    fn space(&self, cache: &QueryCache<'_>, request: u32) -> Option<Vec<Changes>> {
        let most = cache.left(request) as usize;
        let allowed = self.shared.refiner.job.max_changes.map_or(usize::MAX, |most| most as usize);
        let feasible = cache.feasible(request);
        let mut space: Vec<Changes> = vec![Changes::new()];
        for feature in 0..cache.batch.originals.cells.len() {
            let original: Cell = cache.original(request, feature);
            let options = feasible.options(feature, original, most)?;
            let before = space.len();
            for cell in options {
                for index in 0..before {
                    if space[index].len() < allowed {
                        let mut changes = space[index].clone();
                        changes.push(Change { feature, cell });
                        space.push(changes);
                    }
                }
                if space.len() > most + 1 {
                    return None;
                }
            }
        }
        space.swap_remove(0);
        let constraints = &self.shared.constraints;
        space.retain(|changes| {
            constraints.is_coherent(changes, |feature| cache.original(request, feature))
        });
        Some(space)
    }

    fn conclude(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
        found: &[(&Proposal, Option<PredictionIndex>)],
        outcomes: &mut Outcomes,
    ) {
        let costs = &self.shared.refiner.costs;
        let cost = |proposal: &Proposal| {
            costs.total(&proposal.changes, |feature| cache.original(request, feature))
        };
        // What the model has not answered proves nothing, nor what is refused though it gets the decision.
        let fails = |prediction: PredictionIndex| {
            !cache.has_failed(prediction) && !cache.is_implausible(prediction)
        };
        let all_fail = found.iter().all(|(_, prediction)| prediction.is_some_and(fails));
        let valid = found.iter().filter_map(|(proposal, prediction)| {
            let prediction = prediction.filter(|prediction| cache.is_valid(*prediction))?;
            Some((*proposal, prediction))
        });
        let best = valid.min_by(|(one, _), (two, _)| cost(one).total_cmp(&cost(two)));
        match best {
            Some((proposal, prediction)) => {
                outcomes.show(cache, request, &proposal.changes);
                outcomes.scores.put(&[request], &cache.scores(&[prediction]));
                let finding = &mut outcomes.findings[request as usize];
                finding.margin = cache.margin(prediction);
                finding.robust = cache.held(prediction);
                finding.robustness_cost =
                    cache.robustness_cost(request, (prediction, cost(proposal)));
                (finding.valid, finding.status) = (true, Status::Solved);
                finding.source = Some(Source::Candidate);
            }
            None if all_fail => self.prove(cache, request, outcomes),
            None => {}
        }
    }

    /// Notes that nothing reaches a request's target.
    fn prove(&self, cache: &QueryCache<'_>, request: u32, outcomes: &mut Outcomes) {
        outcomes.show(cache, request, &Changes::new());
        let decided = self.shared.with_probability_slots(&cache.batch.decided.take(&[request]));
        outcomes.scores.put(&[request], &decided);
        let finding = &mut outcomes.findings[request as usize];
        (finding.certified, finding.status) = (true, Status::Infeasible);
    }
}

impl Outcomes {
    /// Gives a request's row these changes, and no other.
    fn show(&mut self, cache: &QueryCache<'_>, request: u32, changes: &Changes) {
        for feature in 0..self.rows.cells.len() {
            self.rows.set(feature, request as usize, cache.original(request, feature));
        }
        let original = |feature: usize| cache.original(request, feature);
        cache.worker.shared.constraints.apply(&mut self.rows, request as usize, changes, original);
    }
}
