//! How counterfactuals do under the models beside the predictor. They are asked about what the predictor accepts, and
//! about nothing else; what too few of them accept is not valid, so that every step keeps what holds. A request for
//! which nothing holds under as many as it should is held, in the end, to as many as something does.

use std::time::Instant;

use super::candidate_set::{Candidate, CandidateSet};
use super::query_cache::{PredictionIndex, QueryCache};
use super::{Changes, Proposal};
use crate::error::Result;
use crate::explain::Worker;
use crate::explain::robust::RobustModels;
use crate::job::Refine;
use crate::predictor::{Reach, Responses, Scores, Values, Variant, Variants};
use crate::target::{Targets, margins};

/// Of a counterfactual that the models were not asked about.
const NOT_ASKED: u32 = u32::MAX;

/// What the models beside the predictor say.
pub(super) struct RobustChecks<'a> {
    models: &'a RobustModels,
    /// What takes single cells, of models that can.
    variants: Vec<Option<Box<dyn Variants + 'a>>>,
    /// Under how many of them a counterfactual must hold, by request.
    needed: Vec<u32>,
    /// Under how many it does, by prediction …
    held: Vec<u32>,
    /// … and how far inside the target it is under those that tell: sum and number of their margins.
    margins: Vec<(f64, u32)>,
    /// Times that they were asked, by request.
    pub(super) queries: Vec<u32>,
    /// The cheapest changes that the predictor accepts and too few of them do, with their cost, by request.
    fragile: Vec<Option<(f64, Changes)>>,
}

/// What the predictor shows along features, cut where any of the models says something else.
pub(super) struct Shown {
    pub(super) values: Vec<(usize, Values)>,
    /// What the predictor says.
    pub(super) scores: Scores,
    /// Under how many models each value holds; none where they do not show it, or need not be asked.
    pub(super) held: Option<Vec<u32>>,
    /// How far inside the target it is under the model that decides whether enough do; infinite without models.
    pub(super) weakest: Vec<f64>,
    /// Sum and number of the models' margins; empty without models.
    others: Vec<(f64, u32)>,
}

impl<'a> RobustChecks<'a> {
    pub(super) fn new(
        worker: &'a Worker,
        (before, requests): (&arrow::array::RecordBatch, usize),
    ) -> Result<RobustChecks<'a>> {
        let models = &worker.shared.robust;
        let refines = worker.shared.refiner.job.mode != Refine::Off;
        let variants = models.models().iter().map(|model| model.predictor.variants(before));
        Ok(RobustChecks {
            models,
            variants: variants.collect::<Result<_>>()?,
            needed: vec![if refines { models.needed() } else { 0 }; requests],
            held: Vec::new(),
            margins: Vec::new(),
            queries: vec![0; requests],
            fragile: vec![None; requests],
        })
    }

    /// What takes single cells of a model.
    pub(super) fn variants(&mut self, model: usize) -> Option<&mut (dyn Variants + 'a)> {
        self.variants[model].as_deref_mut()
    }

    /// Whether a counterfactual holds under as many as its request is held to.
    fn reaches(&self, request: u32, held: u32) -> bool {
        let needed = self.needed[request as usize];
        needed == 0 || (held != NOT_ASKED && held >= needed)
    }
}

impl<'a> QueryCache<'a> {
    /// Under how many models beside the predictor a counterfactual holds; none where they were not asked.
    pub(super) fn held(&self, prediction: PredictionIndex) -> Option<u32> {
        let held = self.robust.held.get(prediction as usize).copied();
        held.filter(|held| *held != NOT_ASKED)
    }

    /// How far inside its target a counterfactual is on average, under the predictor and the models that tell.
    pub(super) fn margin_together(&self, prediction: PredictionIndex) -> f64 {
        let others = self.robust.margins.get(prediction as usize).copied();
        together(self.margin(prediction), others.unwrap_or_default())
    }

    /// Whether a counterfactual holds under as many models as its request is held to.
    pub(super) fn is_robust(&self, request: u32, prediction: PredictionIndex) -> bool {
        let held = self.robust.held.get(prediction as usize).copied();
        self.robust.reaches(request, held.unwrap_or(NOT_ASKED))
    }

    /// What a counterfactual costs more than the cheapest one that was seen and holds under too few models; none of one
    /// that holds under too few itself.
    pub(super) fn robustness_cost(
        &self,
        request: u32,
        (prediction, cost): (PredictionIndex, f64),
    ) -> Option<f64> {
        let held = self.held(prediction)?;
        let enough = held >= self.robust.models.needed();
        let fragile =
            self.robust.fragile[request as usize].as_ref().map_or(cost, |(cost, _)| *cost);
        enough.then_some((cost - fragile).max(0.0))
    }

    /// Asks the models about those of some proposals that the predictor accepts.
    pub(super) fn query_robust(
        &mut self,
        proposals: &[&Proposal],
        accepted: &[bool],
    ) -> Result<()> {
        let models = self.robust.models;
        if models.is_empty() {
            return Ok(());
        }
        let asked: Vec<usize> = (0..proposals.len()).filter(|index| accepted[*index]).collect();
        let first = self.robust.held.len();
        self.robust.held.resize(first + proposals.len(), NOT_ASKED);
        self.robust.margins.resize(first + proposals.len(), (0.0, 0));
        if asked.is_empty() {
            return Ok(());
        }
        let some: Vec<&Proposal> = asked.iter().map(|index| proposals[*index]).collect();
        let requests: Vec<u32> = some.iter().map(|proposal| proposal.request).collect();
        let targets = self.batch.targets.take(&requests);
        let mut held = vec![0u32; some.len()];
        let codec = &self.worker.shared.codec;
        for (number, model) in models.models().iter().enumerate() {
            let scores = self.ask(Some(number), &some, &requests)?;
            let holds = model.holds(&scores, &targets);
            held.iter_mut().zip(holds).for_each(|(held, holds)| *held += u32::from(holds));
            for (index, margin) in asked.iter().zip(model.margins(&scores, &targets, codec)) {
                add(&mut self.robust.margins[first + index], margin);
            }
        }
        for ((index, proposal), held) in asked.into_iter().zip(some).zip(held) {
            self.robust.held[first + index] = held;
            self.robust.queries[proposal.request as usize] += models.models().len() as u32;
        }
        Ok(())
    }

    /// Of the last predictions, which were valid but for the models, those that hold; the cost of the others is noted.
    pub(super) fn record_robust(&mut self, proposals: &[&Proposal], valid: Vec<bool>) -> Vec<bool> {
        if self.robust.models.is_empty() {
            return valid;
        }
        let first = self.robust.held.len() - proposals.len();
        let mut robust = vec![false; proposals.len()];
        for (index, proposal) in proposals.iter().enumerate().filter(|(index, _)| valid[*index]) {
            robust[index] = self.is_robust(proposal.request, (first + index) as PredictionIndex);
            if !robust[index] {
                self.note_fragile(proposal.request, &proposal.changes);
            }
        }
        robust
    }

    /// Notes what changes cost that the predictor accepts and too few models do.
    pub(super) fn note_fragile(&mut self, request: u32, changes: &Changes) {
        if self.worker.may_change(changes) {
            let costs = &self.worker.shared.refiner.costs;
            let cost = costs.total(changes, |feature| self.original(request, feature));
            let least = &mut self.robust.fragile[request as usize];
            if least.as_ref().is_none_or(|(least, _)| cost < *least) {
                *least = Some((cost, changes.clone()));
            }
        }
    }

    /// The cheapest changes of a request that the predictor accepts and too few models do.
    pub(super) fn fragile(&self, request: u32) -> Option<Changes> {
        self.robust.fragile[request as usize].as_ref().map(|(_, changes)| changes.clone())
    }

    /// Holds requests for which nothing holds under enough models to as many as something does, from here on; gives
    /// those of them that have a counterfactual.
    pub(super) fn relax_robust(&mut self, candidates: &CandidateSet) -> Vec<u32> {
        if self.robust.models.is_empty() {
            return Vec::new();
        }
        let open = candidates.open(self);
        for request in open.iter().copied() {
            let found = candidates.by_request[request as usize].iter();
            let inside = found.filter(|one| self.is_inside(one));
            let margin = |one: &&Candidate| self.reaches(request, self.margin(one.prediction));
            let held = inside.filter(margin).filter_map(|one| self.held(one.prediction));
            let most = held.max().unwrap_or(0);
            self.robust.needed[request as usize] = most;
        }
        let requests = self.required.requests().to_vec();
        for (prediction, request) in (0u32..).zip(requests) {
            let relaxed = open.binary_search(&request).is_ok();
            if relaxed && self.decides(prediction) && !self.is_valid(prediction) {
                let inside = self.reaches(request, self.margin(prediction));
                self.valid[prediction as usize] = inside && self.is_robust(request, prediction);
            }
        }
        let still = candidates.open(self);
        open.into_iter().filter(|request| still.binary_search(request).is_err()).collect()
    }

    /// What the models beside the predictor show of rows: by row those of all models, or nothing where one of them
    /// shows nothing. Each counts as one question.
    pub(super) fn robust_responses(
        &mut self,
        rows: &[(u32, Changes, Vec<Reach>)],
        shown: &[Option<Responses>],
    ) -> Result<Vec<Vec<Responses>>> {
        let mut by_row: Vec<Vec<Responses>> = vec![Vec::new(); rows.len()];
        let looked_at = |(at, shown): (usize, &Option<Responses>)| {
            let needed = self.robust.needed[rows[at].0 as usize] > 0;
            (shown.is_some() && needed).then_some(at)
        };
        let asked: Vec<usize> = shown.iter().enumerate().filter_map(looked_at).collect();
        if self.robust.models.is_empty() || asked.is_empty() {
            return Ok(by_row);
        }
        let copies = asked.iter().map(|at| {
            let (request, changes, reach) = &rows[*at];
            (Variant { row: *request, edits: changes }, &reach[..])
        });
        let copies: Vec<(Variant<'_>, &[Reach])> = copies.collect();
        let began = Instant::now();
        let mut by_model = Vec::new();
        for variants in &mut self.robust.variants {
            let Some(variants) = variants else { return Ok(by_row) };
            let Some(found) = variants.responses(&copies)? else { return Ok(by_row) };
            by_model.push(found);
        }
        self.add_model_time(began);
        for found in by_model {
            asked.iter().zip(found).for_each(|(at, found)| by_row[*at].push(found));
        }
        for at in asked {
            let models = self.robust.variants.len() as u32;
            self.robust.queries[rows[at].0 as usize] += models;
        }
        Ok(by_row)
    }

    /// What the predictor shows of a request's row beside what the models do.
    pub(super) fn beside_models(
        &self,
        request: u32,
        Responses { values, scores }: Responses,
        others: &[Responses],
    ) -> Shown {
        if others.is_empty() {
            let weakest = vec![f64::INFINITY; values.len()];
            return Shown { values, scores, held: None, weakest, others: Vec::new() };
        }
        let cut = cut(&values, others);
        let from: Vec<u32> = cut.iter().map(|value| index_of(&values, value) as u32).collect();
        let codec = &self.worker.shared.codec;
        let mut held = vec![0u32; cut.len()];
        let mut inside: Vec<Vec<f64>> = vec![Vec::with_capacity(others.len()); cut.len()];
        let mut sums = vec![(0.0, 0); cut.len()];
        for (model, shown) in self.robust.models.models().iter().zip(others) {
            let targets = self.batch.targets.take(&vec![request; shown.values.len()]);
            let holds = model.holds(&shown.scores, &targets);
            let margins = model.margins(&shown.scores, &targets, codec);
            for (at, value) in cut.iter().enumerate() {
                let index = index_of(&shown.values, value);
                let holds = holds.get(index).copied().unwrap_or(false);
                let margin = margins.get(index).copied().unwrap_or(0.0);
                held[at] += u32::from(holds);
                add(&mut sums[at], margin);
                let known = !margin.is_nan();
                inside[at].push(if known { margin } else { f64::from(u8::from(holds)) });
            }
        }
        let needed = self.robust.needed[request as usize] as usize;
        let weakest = inside.into_iter().map(|margins| nth_greatest(margins, needed)).collect();
        Shown { values: cut, scores: scores.take(&from), held: Some(held), weakest, others: sums }
    }

    /// Whether a value that holds under so many models would do; where they do not show it, it is found out by asking.
    pub(super) fn would_be_robust(&self, request: u32, held: Option<u32>) -> bool {
        held.is_none_or(|held| self.robust.reaches(request, held))
    }
}

impl Shown {
    /// How far inside the target each value is under the predictor.
    pub(super) fn margins(&self, targets: &Targets, worker: &Worker) -> Vec<f64> {
        margins(&self.scores, targets, &worker.shared.codec)
    }

    /// The average of the predictor's margins, and those that the models tell.
    pub(super) fn together(&self, margins: &[f64]) -> Vec<f64> {
        let others = self.others.iter().copied().chain(std::iter::repeat((0.0, 0)));
        margins.iter().zip(others).map(|(own, others)| together(*own, others)).collect()
    }

    /// Under how many models a value holds, where that is known.
    pub(super) fn held_at(&self, at: usize) -> Option<u32> {
        self.held.as_ref().map(|held| held[at])
    }
}

/// Adds a margin to others, if it is known.
fn add((sum, number): &mut (f64, u32), margin: f64) {
    if !margin.is_nan() {
        *sum += margin;
        *number += 1;
    }
}

/// The average of a margin and others.
fn together(own: f64, (sum, number): (f64, u32)) -> f64 {
    (own + sum) / (1.0 + f64::from(number))
}

/// The values of a model's responses, cut where others have another value.
fn cut(values: &[(usize, Values)], others: &[Responses]) -> Vec<(usize, Values)> {
    let mut cut = Vec::with_capacity(values.len());
    for of in values.chunk_by(|one, two| one.0 == two.0) {
        let (feature, Values::Numbers(low, _)) = of[0] else {
            cut.extend_from_slice(of);
            continue;
        };
        let ends = others.iter().flat_map(|other| &other.values).chain(of);
        let mut ends: Vec<f64> = ends
            .filter_map(|(other, values)| match values {
                Values::Numbers(_, high) if *other == feature => Some(*high),
                _ => None,
            })
            .collect();
        ends.sort_by(f64::total_cmp);
        ends.dedup();
        let mut low = low;
        for high in ends {
            cut.push((feature, Values::Numbers(low, high)));
            low = high;
        }
    }
    cut
}

/// The index of the value of a model's responses that holds another; beyond them if there is none.
fn index_of(values: &[(usize, Values)], (feature, value): &(usize, Values)) -> usize {
    let first = values.partition_point(|(of, _)| of < feature);
    let last = values.partition_point(|(of, _)| of <= feature);
    let group = &values[first..last];
    let at = match value {
        Values::Numbers(_, high) => group.partition_point(|(_, values)| match values {
            Values::Numbers(_, end) => end < high,
            Values::Code(_) => true,
        }),
        Values::Code(_) => group.iter().position(|(_, of)| of == value).unwrap_or(group.len()),
    };
    if at < group.len() { first + at } else { values.len() }
}

/// The number that so many are at least as great as: infinite for none of them.
fn nth_greatest(mut numbers: Vec<f64>, number: usize) -> f64 {
    numbers.sort_by(|one, two| two.total_cmp(one));
    number.checked_sub(1).map_or(f64::INFINITY, |at| numbers.get(at).copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictor::Outcome;

    fn responses(values: Vec<(usize, Values)>) -> Responses {
        let outcome = Outcome::Values(vec![0.0; values.len()]);
        let scores = Scores { rows: values.len(), outcome, failures: Vec::new() };
        Responses { values, scores }
    }

    #[test]
    fn values_are_cut_where_any_model_says_something_else() {
        let numbers = |low, high| Values::Numbers(low, high);
        let own = vec![(0, numbers(0.0, 2.0)), (0, numbers(2.0, 9.0)), (3, Values::Code(1))];
        let other = vec![(0, numbers(0.0, 5.0)), (0, numbers(5.0, 9.0)), (3, Values::Code(1))];
        let found = cut(&own, &[responses(other.clone())]);
        let expected = [numbers(0.0, 2.0), numbers(2.0, 5.0), numbers(5.0, 9.0)];
        assert_eq!(found[..3], expected.map(|values| (0, values)));
        assert_eq!(found[3..], [(3, Values::Code(1))]);
        let of = |values: &[(usize, Values)]| -> Vec<usize> {
            found.iter().map(|value| index_of(values, value)).collect()
        };
        assert_eq!((of(&own), of(&other)), (vec![0, 1, 1, 2], vec![0, 0, 1, 2]));
        assert_eq!(index_of(&own, &(3, Values::Code(7))), 3, "beyond them");
    }

    #[test]
    fn the_weakest_of_those_that_are_needed_decides() {
        let margins = vec![0.9, 0.2, 0.6];
        let of = |needed| nth_greatest(margins.clone(), needed);
        assert_eq!((of(1), of(2), of(3), of(4)), (0.9, 0.6, 0.2, 0.0));
        assert!(of(0).is_infinite());
    }
}
