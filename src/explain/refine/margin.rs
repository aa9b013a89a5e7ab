//! How far inside its target a counterfactual has to be while it is refined. A request is held to the job's margin
//! until repair is done; if nothing has reached it by then, to as much of it as something has. A model that
//! gives labels only is asked about rows near to a counterfactual instead.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::candidate_set::CandidateSet;
use super::query_cache::{PredictionIndex, QueryCache, hash};
use super::{Change, Changes, Proposal};
use crate::encode::Slots;
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::job::Refine;
use crate::predictor::Task;

/// The least margin where the job says none and the model gives no probabilities.
const USUAL: f64 = 0.55;
/// Rows near to a counterfactual that a model without probabilities is asked about: with the counterfactual itself a
/// share in fifths, for four more questions about each valid proposal.
const NEARBY: u64 = 4;
/// How far their numbers are from the counterfactual's, in standard deviations of the feature.
const APART: f64 = 0.1;
/// Parts of the margin that requests are held to where the whole is out of reach. Without them a request that
/// misses a high margin by little would be refined down to the border, and hold worse than with a low one.
const PARTS: u32 = 4;
/// What a counterfactual that certainly holds is worth more than one that certainly does not, in the unit of costs.
/// Rows for which a margin is cheap get more of it than others. Less than a feature's penalty: no further feature
/// changes for it.
const SURVIVAL_VALUE: f64 = 2.0;
/// What every changed feature counts beyond its cost where a margin is worth something: further changes are the
/// easiest way to one, and a long list of changes is hard to act on.
const FEATURE_PENALTY: f64 = 2.0;
/// The same of a category beyond that: most bring more margin than a number that stops where it may.
const CATEGORY_PENALTY: f64 = 0.5;
/// Share of counterfactuals that held when models were trained again, by margin: rounded from counterfactuals of
/// `tests/margin.sh` to rows of training splits. Of models that look at numbers smoothly …
const SURVIVAL: Survival = [
    (0.5, 0.44),
    (0.52, 0.5),
    (0.55, 0.62),
    (0.6, 0.76),
    (0.65, 0.84),
    (0.7, 0.88),
    (0.8, 0.93),
    (0.9, 0.96),
    (1.0, 0.97),
];
/// … and of models that show breakpoints: ensembles of trees differ more from one training to the next.
const SURVIVAL_OF_TREES: Survival = [
    (0.5, 0.31),
    (0.52, 0.35),
    (0.55, 0.42),
    (0.6, 0.51),
    (0.65, 0.59),
    (0.7, 0.69),
    (0.8, 0.82),
    (0.9, 0.91),
    (1.0, 0.95),
];

/// Margins, and the share of counterfactuals that are expected to hold.
type Survival = [(f64, f64); 9];

/// What counterfactuals are held to.
pub(super) struct RequiredMargins {
    /// The least margin; 0 for none.
    least: f64,
    /// Whether rows near to counterfactuals must be asked about to know it.
    pub(super) probes: bool,
    /// Whether a margin beyond the least is worth something: where it is a probability.
    margin_counts: bool,
    /// Share of counterfactuals that are expected to hold.
    survival: &'static Survival,
    /// What every request is held to; 0 for validity alone.
    thresholds: Vec<f64>,
    /// Of every counterfactual its request …
    requests: Vec<u32>,
    /// … whether it is valid, however near to the border …
    decided: Vec<bool>,
    /// … and how far inside it is.
    margins: Vec<f64>,
}

impl RequiredMargins {
    pub(super) fn new(worker: &Worker, requests: usize) -> RequiredMargins {
        let job = &worker.shared.refiner.job;
        let task = worker.shared.predictor.task();
        let tells = !matches!(task, Task::Classification { probabilities: false, .. });
        let gives_probabilities = matches!(task, Task::Classification { probabilities: true, .. });
        let asked = match job.min_score {
            _ if job.mode == Refine::Off => Some(0.0),
            // Margin is bought where it is worth its price, and forced on nobody.
            None if gives_probabilities => None,
            asked => Some(asked.unwrap_or(USUAL)),
        };
        let least = asked.unwrap_or(0.0);
        RequiredMargins {
            least,
            probes: least > 0.0 && !tells,
            margin_counts: gives_probabilities && asked != Some(0.0),
            survival: match worker.shared.refiner.plateaus.are_known() {
                true => &SURVIVAL_OF_TREES,
                false => &SURVIVAL,
            },
            thresholds: vec![least; requests],
            requests: Vec::new(),
            decided: Vec::new(),
            margins: Vec::new(),
        }
    }

    /// Of every counterfactual its request.
    pub(super) fn requests(&self) -> &[u32] {
        &self.requests
    }

    /// Adds counterfactuals; gives which of them are what their requests are held to.
    pub(super) fn record(
        &mut self,
        requests: &[u32],
        decided: Vec<bool>,
        margins: Vec<f64>,
    ) -> Vec<bool> {
        let predictions = requests.iter().zip(&decided).zip(&margins);
        let reached = predictions.map(|((request, decided), margin)| {
            *decided && reaches(*margin, self.thresholds[*request as usize])
        });
        let reached = reached.collect();
        self.requests.extend(requests);
        self.decided.extend(decided);
        self.margins.extend(margins);
        reached
    }
}

impl QueryCache<'_> {
    /// Whether a counterfactual is valid, however near to the border.
    pub(in crate::explain) fn decides(&self, prediction: PredictionIndex) -> bool {
        self.required.decided[prediction as usize]
    }

    /// How far inside its target a counterfactual is; NaN where that is not known.
    pub(super) fn margin(&self, prediction: PredictionIndex) -> f64 {
        self.required.margins[prediction as usize]
    }

    /// Whether a further margin counts beside cost.
    pub(super) fn margin_counts(&self) -> bool {
        self.required.margin_counts
    }

    /// What a counterfactual's margin is worth, in the unit of costs: that of all models, if there are some beside the
    /// predictor.
    pub(super) fn margin_value(&self, prediction: PredictionIndex) -> f64 {
        self.value_of_margin(self.margin_together(prediction))
    }

    /// The same of a margin.
    pub(super) fn value_of_margin(&self, margin: f64) -> f64 {
        let RequiredMargins { margin_counts, survival, .. } = &self.required;
        if *margin_counts { SURVIVAL_VALUE * survival_at(survival, margin) } else { 0.0 }
    }

    /// What a change counts beyond its cost.
    pub(super) fn change_penalty(&self, change: &Change) -> f64 {
        match change.cell {
            _ if !self.required.margin_counts => 0.0,
            Cell::Number(_) => FEATURE_PENALTY,
            Cell::Code(_) => FEATURE_PENALTY + CATEGORY_PENALTY,
        }
    }

    /// Whether a valid counterfactual with such a margin is what a request is held to.
    pub(super) fn reaches(&self, request: u32, margin: f64) -> bool {
        reaches(margin, self.required.thresholds[request as usize])
    }

    /// Holds requests that nothing has reached the margin for to what something has, from here on.
    pub(super) fn relax(&mut self, candidates: &CandidateSet) {
        if self.required.least <= 0.0 {
            return;
        }
        for request in candidates.open(self) {
            let inside =
                candidates.by_request[request as usize].iter().filter(|one| self.is_inside(one));
            let best = inside.map(|one| self.margin(one.prediction)).fold(0.0, f64::max);
            // What too few of the models beside the predictor accept may have the margin all the same.
            if !self.reaches(request, best) {
                self.required.thresholds[request as usize] = part_of(self.required.least, best);
            }
        }
        let RequiredMargins { thresholds, requests, decided, margins, .. } = &self.required;
        let predictions = requests.iter().zip(decided).zip(margins);
        let robust = (0u32..).zip(requests).map(|(index, request)| self.is_robust(*request, index));
        let robust: Vec<bool> = robust.collect();
        let found = self.valid.iter_mut().zip(&robust).zip(predictions);
        for ((valid, robust), ((request, decided), margin)) in found {
            let threshold = thresholds[*request as usize];
            if threshold < self.required.least {
                *valid = *decided && *robust && reaches(*margin, threshold);
            }
        }
    }

    /// Asks about rows near to valid proposals, of which a share must agree.
    pub(super) fn probe(
        &mut self,
        proposals: &[Proposal],
        found: &[Option<PredictionIndex>],
    ) -> Result<()> {
        let mut probes: Vec<Proposal> = Vec::new();
        // Counterfactuals, and where their probes end.
        let mut ends: Vec<(PredictionIndex, usize)> = Vec::new();
        for (proposal, prediction) in proposals.iter().zip(found) {
            let unknown = |prediction: &PredictionIndex| {
                self.decides(*prediction) && self.margin(*prediction).is_nan()
            };
            let Some(prediction) = prediction.filter(unknown) else { continue };
            if self.required.thresholds[proposal.request as usize] > 0.0 {
                probes.extend((0..NEARBY).map(|number| self.nearby(proposal, number)));
                ends.push((prediction, probes.len()));
            }
        }
        let probed = self.predict_unprobed(&probes)?;
        let mut first = 0;
        for (prediction, end) in ends {
            let probed: Option<Vec<PredictionIndex>> = probed[first..end].iter().copied().collect();
            first = end;
            // Without a question left, it is not known.
            let Some(probed) = probed else { continue };
            if probed.iter().all(|nearby| *nearby == prediction) {
                // No row is near: nothing speaks against it, but how far inside it is stays unknown.
                let request = self.required.requests[prediction as usize];
                self.valid[prediction as usize] = self.is_robust(request, prediction);
                continue;
            }
            let agreeing = probed.iter().filter(|nearby| self.decides(**nearby)).count();
            let margin = (1 + agreeing) as f64 / (1 + probed.len()) as f64;
            self.required.margins[prediction as usize] = margin;
            let request = self.required.requests[prediction as usize];
            self.valid[prediction as usize] = self.is_robust(request, prediction)
                && reaches(margin, self.required.thresholds[request as usize]);
        }
        Ok(())
    }

    /// A row near to a proposal: all numbers that may move do a little, drawn by row and proposal. Where none may,
    /// it is the proposal itself.
    fn nearby(&self, Proposal { request, changes }: &Proposal, number: u64) -> Proposal {
        let seed = self.batch.seeds[*request as usize] ^ hash(changes);
        let seed = xxh3_64_with_seed(&number.to_le_bytes(), seed);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let feasible = self.feasible(*request);
        let mut moved = Changes::new();
        for (feature, slots) in self.worker.shared.refiner.layout.slots.iter().enumerate() {
            let original = self.original(*request, feature);
            let changed = changes.iter().find(|change| change.feature == feature);
            let mut cell = changed.map_or(original, |change| change.cell);
            if let (Slots::Numeric(slots), Cell::Number(value), Cell::Number(original)) =
                (slots, cell, original)
            {
                let off: f64 = StandardNormal.sample(&mut random);
                if !value.is_nan() && !original.is_nan() {
                    cell = Cell::Number(feasible.number(
                        feature,
                        value + off * APART * slots.std,
                        original,
                    ));
                }
            }
            if changed.is_some() || cell != original {
                moved.push(Change { feature, cell });
            }
        }
        Proposal { request: *request, changes: moved }
    }
}

/// Whether a valid counterfactual is as far inside as its request is held to.
fn reaches(margin: f64, threshold: f64) -> bool {
    threshold <= 0.0 || margin >= threshold
}

/// Share of counterfactuals with such a margin that are expected to hold.
fn survival_at(survival: &Survival, margin: f64) -> f64 {
    let within = |pair: &&[(f64, f64)]| margin <= pair[1].0;
    match survival.windows(2).find(within) {
        // Below the border, or not known.
        Some(_) if margin < survival[0].0 => survival[0].1,
        Some(pair) => {
            let ((low, from), (high, to)) = (pair[0], pair[1]);
            from + (to - from) * (margin - low) / (high - low)
        }
        None if margin.is_nan() => survival[0].1,
        None => survival[survival.len() - 1].1,
    }
}

/// The greatest part of a margin above the border that a counterfactual has reached; 0 if none.
fn part_of(least: f64, reached: f64) -> f64 {
    let part = |number: u32| 0.5 + (least - 0.5) * f64::from(number) / f64::from(PARTS);
    let parts = (1..PARTS).rev().map(part);
    parts.filter(|_| least > 0.5).find(|part| reached >= *part).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_held_to_the_greatest_part_that_was_reached() {
        let of = |reached| part_of(0.9, reached);
        assert_eq!((of(0.89), of(0.8), of(0.75), of(0.6)), (0.8, 0.8, 0.7, 0.6));
        assert_eq!((of(0.59), of(0.0)), (0.0, 0.0));
        assert_eq!(part_of(0.4, 0.39), 0.0);
    }

    #[test]
    fn the_farther_inside_the_surer() {
        for survival in [&SURVIVAL, &SURVIVAL_OF_TREES] {
            let at = |margin| survival_at(survival, margin);
            let (least, most) = (survival[0].1, survival[8].1);
            assert_eq!((at(f64::NAN), at(0.3), at(0.5), at(1.0)), (least, least, least, most));
            let middle = (survival[5].1 + survival[6].1) / 2.0;
            assert!((at(0.75) - middle).abs() < 1e-12);
            let shares: Vec<f64> = (50..=100).map(|margin| at(f64::from(margin) / 100.0)).collect();
            assert!(shares.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn what_is_not_known_reaches_no_bar_but_none() {
        assert!(reaches(f64::NAN, 0.0) && !reaches(f64::NAN, 0.5) && reaches(0.5, 0.5));
    }
}
