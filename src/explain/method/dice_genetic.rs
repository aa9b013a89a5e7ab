//! DiCE, genetic: a small population of rows, from the nearest ones of the target, is bred for a weighted sum of
//! losses.
//!
//! From Mothilal, Sharma and Tan, *Explaining Machine Learning Classifiers through Diverse Counterfactual
//! Explanations* (2020), Schleich et al., *GeCo* (2021), and version 0.12 of the package of the former
//! (`method = "genetic"`), without its code:
//!
//! | taken | |
//! |---|---|
//! | population | 10 for a counterfactual: the nearest training rows of the target, held to what may change; further ones at random |
//! | loss | hinge + 0.2 × proximity + 0.2 × sparsity |
//! | hinge | max(0, greatest probability of another class − probability of the target); for a range the distance to it |
//! | proximity | Σ w·\|Δ\| ÷ Σ w over numbers, scaled to 0…1 by the training range; w is the inverse of the median absolute deviation |
//! | sparsity | changed features ÷ features |
//! | next generation | the fittest, and children of two of the fitter half: a gene is the first parent's (40 %), the second's (40 %) or random (20 %) |
//! | end | the loss of the fittest changes by at most 0.01 five times in a row while it is valid; at most 500 generations |
//! | hard labels | `explain.dice.hard_labels`: probabilities are 1 for the predicted class and 0 for others (the paper's *binary*) |
//! | after the fact | binary search over small changes of numbers ([`super::sparsity`]) |
//!
//! Where the package and its documentation differ, this is the documentation: parents are of the fitter half (the
//! package takes the half that comes first in the order of the values), mutated numbers are drawn from the whole range
//! (the package takes its lower end), and the search after the fact is done (the package leaves it out). Deviations are
//! measured on the scale of the differences that they weigh. The diversity term needs several counterfactuals of one
//! search and has no part here. The distance of the first rows is that of [`super::nearest`].
//!
//! The budget is the row's `queries_per_row`, an eighth of it kept for the search after the fact. A generation of all
//! rows at work is one call of the model.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::sparsity::{KEPT_PART, PosthocSparsity};
use super::spread::{FeatureSpread, spreads};
use super::variables::{VariableValues, Variables, stream};
use super::{CounterfactualMethod, Proposals};
use crate::error::Result;
use crate::explain::refine::{Changes, PredictionIndex, Proposal, QueryCache, Refiner};
use crate::feature::Cell;
use crate::job::{ExplainJob, SparsitySearch};
use crate::metrics::Source;
use crate::predictor::{Outcome, Scores};
use crate::target::Targets;

/// Rows of a population.
const POPULATION: usize = 10;
/// Weight of proximity.
const PROXIMITY: f64 = 0.2;
/// Weight of sparsity.
const SPARSITY: f64 = 0.2;
/// Share of genes from each parent.
const INHERITED: f64 = 0.4;
/// A change of the loss that is none …
const STILL: f64 = 0.01;
/// … so many times in a row ends the search.
const STILL_TIMES: u32 = 5;
/// Generations, at most.
const GENERATIONS: u32 = 500;

/// Breeds counterfactuals.
pub(super) struct DiceGenetic {
    hard_labels: bool,
    sparsity: PosthocSparsity,
    /// Of numeric features the weight of a difference.
    weights: Vec<Option<f64>>,
    total_weight: f64,
}

/// The population of one request.
struct Population {
    variables: Variables,
    random: ChaCha8Rng,
    members: Vec<VariableValues>,
    /// The fittest of the last generation, and whether it is valid.
    fittest: Option<(Changes, bool)>,
    best: f64,
    still: u32,
    generations: u32,
    kept: u32,
}

/// A member with its loss and what the model said.
struct Bred {
    member: VariableValues,
    changes: Changes,
    loss: f64,
    valid: bool,
}

impl DiceGenetic {
    pub(super) fn new(job: &ExplainJob, refiner: &Refiner) -> DiceGenetic {
        let spreads = spreads(refiner);
        // |Δ| ÷ range, times range ÷ deviation.
        let inverse = |spread: &Option<FeatureSpread>| {
            let FeatureSpread { range, mad, .. } = spread.filter(|spread| spread.range > 0.0)?;
            Some((1.0 / mad, range / mad))
        };
        let pairs: Vec<Option<(f64, f64)>> = spreads.iter().map(inverse).collect();
        let search = job.dice.sparsity.unwrap_or(SparsitySearch::Binary);
        DiceGenetic {
            hard_labels: job.dice.hard_labels,
            sparsity: PosthocSparsity::new(search, &spreads),
            weights: pairs.iter().map(|pair| pair.map(|(by_one, _)| by_one)).collect(),
            total_weight: pairs.iter().flatten().map(|(_, weight)| weight).sum(),
        }
    }
}

impl CounterfactualMethod for DiceGenetic {
    fn source(&self) -> Source {
        Source::DiceGenetic
    }

    fn propose(&self, cache: &mut QueryCache<'_>) -> Result<Proposals> {
        let mut all: Vec<Population> =
            (0..cache.len() as u32).map(|request| Population::new(cache, request)).collect();
        loop {
            let open: Vec<usize> = (0..all.len()).filter(|at| all[*at].is_open(cache)).collect();
            if open.is_empty() {
                break;
            }
            let mut proposals: Vec<Proposal> = Vec::new();
            for index in &open {
                all[*index].settle(cache);
                proposals.extend(all[*index].proposals());
            }
            let predictions = cache.predict_unprobed(&proposals)?;
            let mut predictions_left = predictions.into_iter();
            for index in open {
                let population = &mut all[index];
                let of_population: Vec<_> =
                    predictions_left.by_ref().take(population.members.len()).collect();
                let bred = self.bred(cache, population, &of_population);
                population.breed(cache, bred);
            }
        }
        let fittest = |population: Population| population.fittest.map(|(changes, _)| changes);
        let mut found: Vec<Option<Changes>> = all.into_iter().map(fittest).collect();
        self.sparsity.apply(cache, &mut found)?;
        Ok(Proposals::plain(found))
    }
}

impl DiceGenetic {
    /// The members of a population with their losses, the fittest first.
    fn bred(
        &self,
        cache: &QueryCache<'_>,
        population: &mut Population,
        predictions: &[Option<PredictionIndex>],
    ) -> Vec<Bred> {
        let known: Vec<PredictionIndex> = predictions.iter().flatten().copied().collect();
        let mut scores = cache.scores(&known);
        if let (true, Outcome::Classes { probabilities, .. }) =
            (self.hard_labels, &mut scores.outcome)
        {
            *probabilities = None;
        }
        let request = population.variables.request as usize;
        let mut scored = 0;
        let mut bred = Vec::with_capacity(predictions.len());
        for (member, prediction) in
            std::mem::take(&mut population.members).into_iter().zip(predictions)
        {
            // What was not asked about has no loss.
            let Some(prediction) = prediction else { continue };
            let shortfall = shortfall(&scores, scored, &cache.batch.targets, request);
            scored += 1;
            let changes = population.variables.changes(&member);
            let loss = shortfall + self.distance(&population.variables, &member, changes.len());
            let loss = if loss.is_nan() { f64::INFINITY } else { loss };
            bred.push(Bred { member, changes, loss, valid: cache.decides(*prediction) });
        }
        bred.sort_by(|one, two| one.loss.total_cmp(&two.loss));
        bred
    }

    /// Proximity and sparsity, weighted.
    fn distance(&self, variables: &Variables, member: &[Cell], changed: usize) -> f64 {
        let pairs = variables.all.iter().zip(member);
        let far = |(variable, value): (&super::variables::Variable, &Cell)| match (
            self.weights[variable.feature],
            variable.original,
            value,
        ) {
            (Some(weight), Cell::Number(original), Cell::Number(number)) => {
                weight * (number - original).abs()
            }
            _ => 0.0,
        };
        let far: f64 = pairs.map(far).sum();
        let proximity = if self.total_weight > 0.0 { far / self.total_weight } else { 0.0 };
        PROXIMITY * proximity + SPARSITY * changed as f64 / self.weights.len() as f64
    }
}

/// How far a prediction is from the target: DiCE's hinge loss.
fn shortfall(scores: &Scores, scored: usize, targets: &Targets, request: usize) -> f64 {
    match (&scores.outcome, targets) {
        (Outcome::Values(values), Targets::Ranges { low, high }) => {
            let value = values[scored];
            if value.is_nan() {
                return f64::NAN;
            }
            (low[request] - value).max(value - high[request]).max(0.0)
        }
        (Outcome::Classes { labels, probabilities }, targets) => {
            let Some(target) = targets.classes().map(|classes| classes[request]) else {
                return f64::NAN;
            };
            match probabilities {
                Some(all) => {
                    let width = all.len() / labels.len().max(1);
                    let shares = &all[scored * width..(scored + 1) * width];
                    hinge(shares, target as usize)
                }
                None => f64::from(u8::from(labels[scored] != target)),
            }
        }
        _ => f64::NAN,
    }
}

/// By how much the most probable other class is ahead of the target; NaN where the model has said nothing.
fn hinge(shares: &[f64], target: usize) -> f64 {
    let others = shares.iter().enumerate().filter(|(class, _)| *class != target);
    let most = others.map(|(_, share)| *share).fold(f64::NEG_INFINITY, f64::max);
    let ahead = most - shares[target];
    if ahead.is_nan() { f64::NAN } else { ahead.max(0.0) }
}

impl Population {
    fn new(cache: &QueryCache<'_>, request: u32) -> Population {
        let variables = Variables::new(cache, request);
        let mut random = stream(cache, request);
        let refiner = &cache.worker.shared.refiner;
        let nearest = refiner.toward_nearest(cache, request, POPULATION);
        let mut members: Vec<VariableValues> =
            nearest.iter().map(|changes| variables.values(changes)).collect();
        members.dedup();
        while members.len() < POPULATION {
            let draw = |index: usize| variables.draw(cache, index, &mut random);
            members.push((0..variables.all.len()).map(draw).collect());
        }
        Population {
            kept: cache.left(request) / KEPT_PART,
            variables,
            random,
            members,
            fittest: None,
            best: f64::INFINITY,
            still: 0,
            generations: 0,
        }
    }

    fn is_open(&self, cache: &QueryCache<'_>) -> bool {
        let request = self.variables.request;
        let asks = cache.left(request) > self.kept && !cache.is_spent(request);
        let changing = self.still < STILL_TIMES && self.generations < GENERATIONS;
        asks && changing && !self.variables.all.is_empty()
    }

    /// Members that keep to the rules between features, each once, and no more than may be asked about.
    fn settle(&mut self, cache: &QueryCache<'_>) {
        let Population { variables, members, .. } = self;
        let mut kept: Vec<VariableValues> = Vec::with_capacity(members.len());
        for member in members.drain(..) {
            let member = variables.coherent(cache, member);
            if !kept.contains(&member) {
                kept.push(member);
            }
        }
        kept.truncate(((cache.left(variables.request) - self.kept) as usize).max(1));
        *members = kept;
    }

    fn proposals(&self) -> impl Iterator<Item = Proposal> {
        let request = self.variables.request;
        let changes = |member: &VariableValues| self.variables.changes(member);
        self.members.iter().map(move |member| Proposal { request, changes: changes(member) })
    }

    /// Makes the next generation.
    fn breed(&mut self, cache: &QueryCache<'_>, bred: Vec<Bred>) {
        self.generations += 1;
        let Some(fittest) = bred.first() else {
            // Nothing keeps to the rules: only other draws may.
            let draw = |index: usize| self.variables.draw(cache, index, &mut self.random);
            self.members = vec![(0..self.variables.all.len()).map(draw).collect()];
            self.still += 1;
            return;
        };
        let alike = (self.best - fittest.loss).abs() <= STILL && fittest.valid;
        self.still = if alike { self.still + 1 } else { 0 };
        self.best = fittest.loss;
        self.fittest = Some((fittest.changes.clone(), fittest.valid));
        let half = (bred.len() / 2).max(1);
        let mut members = vec![fittest.member.clone()];
        while members.len() < POPULATION {
            let parent = |random: &mut ChaCha8Rng| &bred[random.random_range(0..half)].member;
            let parents = (parent(&mut self.random), parent(&mut self.random));
            members.push(self.child(cache, parents));
        }
        self.members = members;
    }

    fn child(
        &mut self,
        cache: &QueryCache<'_>,
        (one, two): (&VariableValues, &VariableValues),
    ) -> VariableValues {
        let Population { variables, random, .. } = self;
        let gene = |index: usize| match random.random_range(0.0..1.0) {
            share if share < INHERITED => one[index],
            share if share < 2.0 * INHERITED => two[index],
            _ => variables.draw(cache, index, random),
        };
        (0..variables.all.len()).map(gene).collect()
    }
}
