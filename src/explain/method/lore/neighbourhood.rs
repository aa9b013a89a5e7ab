//! Rows near to a row, on both sides of the model's border.

use hashbrown::HashSet;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::RULES;
use crate::encode::Slots;
use crate::explain::method::spread::FeatureSpread;
use crate::explain::method::variables::{VariableValues, Variables, stream};
use crate::explain::refine::{PredictionIndex, Proposal, QueryCache};
use crate::feature::Cell;
use crate::nearest::{NULL_POINT, UNSEEN_POINT};

/// Generations of a neighbourhood.
const GENERATIONS: u32 = 10;
/// Probability of a crossover of two parents.
const CROSSOVER: f64 = 0.5;
/// Probability that a child mutates.
const MUTATION: f64 = 0.2;
/// Members of a tournament.
const TOURNAMENT: usize = 3;
/// Rows of a population, at least and at most.
const SIZES: (u32, u32) = (4, 500);
/// Populations × this part of the budget would be all of it: children are mostly known rows.
const BUDGET_PART: u32 = 5;

/// The neighbourhood of one request's row.
pub(super) struct Neighbourhood {
    pub(super) variables: Variables,
    random: ChaCha8Rng,
    distance: Distance,
    /// Parents that shall keep the decision, and such that shall reach the target.
    populations: [Vec<VariableValues>; 2],
    size: usize,
    generations: u32,
    kept: u32,
    /// Children that wait for their predictions, by population.
    children: [Vec<VariableValues>; 2],
    seen: HashSet<PredictionIndex>,
    /// All rows that were predicted, and whether they reach the target.
    pub(super) scored: Vec<(VariableValues, bool)>,
}

/// How far values are from the row as it is.
#[derive(Debug, Clone)]
struct Distance {
    /// By variable: the range of a number, none for a category.
    ranges: Vec<Option<f64>>,
    features: f64,
    numerics: f64,
}

impl Distance {
    fn new(
        cache: &QueryCache<'_>,
        variables: &Variables,
        spreads: &[Option<FeatureSpread>],
    ) -> Distance {
        let slots = &cache.worker.shared.encoder.layout().slots;
        let numeric = |slots: &&Slots| matches!(slots, Slots::Numeric(_));
        let range = |feature: usize| match &slots[feature] {
            Slots::Numeric(slots) => {
                let range = spreads[feature].map(|spread| spread.range);
                Some(range.filter(|range| *range > 0.0).unwrap_or(slots.std))
            }
            Slots::Categorical(_) => None,
        };
        Distance {
            ranges: variables.all.iter().map(|variable| range(variable.feature)).collect(),
            features: slots.len() as f64,
            numerics: slots.iter().filter(numeric).count() as f64,
        }
    }

    /// From the row as it is.
    fn of(&self, variables: &Variables, values: &[Cell]) -> f64 {
        let (mut differing, mut squares) = (0.0, 0.0);
        for ((variable, value), range) in variables.all.iter().zip(values).zip(&self.ranges) {
            match (variable.original, value, range) {
                (Cell::Number(original), Cell::Number(number), Some(range)) => {
                    squares += ((number - original) / range).powi(2);
                }
                (original, value, _) => differing += f64::from(u8::from(original != *value)),
            }
        }
        let numbers = (squares / self.numerics.max(1.0)).sqrt() * self.numerics;
        (differing + numbers) / self.features
    }
}

impl Neighbourhood {
    pub(super) fn new(
        cache: &QueryCache<'_>,
        request: u32,
        spreads: &[Option<FeatureSpread>],
    ) -> Neighbourhood {
        let variables = Variables::new(cache, request);
        let budget = cache.left(request);
        let size = (budget / (2 * BUDGET_PART)).clamp(SIZES.0, SIZES.1) as usize;
        let copies = vec![variables.originals(); size];
        Neighbourhood {
            random: stream(cache, request),
            distance: Distance::new(cache, &variables, spreads),
            populations: [copies.clone(), copies],
            size,
            generations: 0,
            // Rules must be asked about, too.
            kept: (RULES as u32).min(budget / 4),
            children: Default::default(),
            seen: HashSet::new(),
            scored: vec![(variables.originals(), false)],
            variables,
        }
    }

    /// How far values are from the row as it is.
    pub(super) fn distance(&self, values: &[Cell]) -> f64 {
        self.distance.of(&self.variables, values)
    }

    pub(super) fn is_open(&self, cache: &QueryCache<'_>) -> bool {
        let request = self.variables.request;
        let asks = cache.left(request) > self.kept && !cache.is_spent(request);
        asks && self.generations < GENERATIONS && !self.variables.all.is_empty()
    }

    /// Makes children of both populations and proposes them.
    pub(super) fn breed(&mut self, cache: &QueryCache<'_>, into: &mut Vec<Proposal>) {
        let request = self.variables.request;
        let mut most = (cache.left(request) - self.kept) as usize;
        for side in 0..2 {
            let mut children = self.crossed(side);
            for child in &mut children {
                if self.random.random_range(0.0..1.0) < MUTATION {
                    self.mutate(cache, child);
                }
            }
            let coherent = |child: VariableValues| self.variables.coherent(cache, child);
            let mut children: Vec<VariableValues> = children.into_iter().map(coherent).collect();
            // What is known costs nothing, but which it is only the cache knows.
            children.retain(|child| {
                let changes = self.variables.changes(child);
                let known = changes.is_empty() || cache.cached(request, &changes).is_some();
                let room = known || most > 0;
                most -= usize::from(!known && room);
                room
            });
            let propose = |child: &VariableValues| Proposal {
                request,
                changes: self.variables.changes(child),
            };
            let changed = children.iter().map(propose);
            into.extend(changed.filter(|proposal| !proposal.changes.is_empty()));
            self.children[side] = children;
        }
        self.generations += 1;
    }

    /// Children of pairs of parents: exchanged between two points, or copies.
    fn crossed(&mut self, side: usize) -> Vec<VariableValues> {
        let Neighbourhood { populations, random, variables, size, .. } = self;
        let (parents, genes) = (&populations[side], variables.all.len());
        let mut children = Vec::with_capacity(*size);
        while children.len() < *size {
            let mut pick = || parents[random.random_range(0..parents.len())].clone();
            let (mut one, mut two) = (pick(), pick());
            if random.random_range(0.0..1.0) < CROSSOVER {
                let ends = (random.random_range(0..=genes), random.random_range(0..=genes));
                let range = ends.0.min(ends.1)..ends.0.max(ends.1);
                one[range.clone()].swap_with_slice(&mut two[range]);
            }
            children.extend([one, two]);
        }
        children.truncate(*size);
        children
    }

    /// Gives some genes values of training rows, as far as they are allowed.
    fn mutate(&mut self, cache: &QueryCache<'_>, child: &mut VariableValues) {
        let Neighbourhood { variables, random, .. } = self;
        for _ in 0..random.random_range(1..=variables.all.len()) {
            let index = random.random_range(0..variables.all.len());
            child[index] = match seen_value(cache, variables.all[index].feature, random) {
                Some(value) => variables.allowed(cache, index, value),
                None => variables.draw(cache, index, random),
            };
        }
    }

    /// Takes the predictions of what was proposed, and selects the next parents.
    pub(super) fn learn(
        &mut self,
        cache: &QueryCache<'_>,
        predictions: &[Option<PredictionIndex>],
    ) {
        let mut predictions = predictions.iter();
        for side in 0..2 {
            let mut fit: Vec<(f64, VariableValues)> = Vec::with_capacity(self.size);
            for child in std::mem::take(&mut self.children[side]) {
                let same = self.variables.changes(&child).is_empty();
                let reached = match same {
                    true => false,
                    false => {
                        let Some(prediction) = predictions.next().copied().flatten() else {
                            continue;
                        };
                        let reached = cache.decides(prediction);
                        if self.seen.insert(prediction) {
                            self.scored.push((child.clone(), reached));
                        }
                        reached
                    }
                };
                let class_fits = f64::from(u8::from(reached == (side == 1)));
                let near = 1.0 - self.distance(&child);
                fit.push((class_fits + near - f64::from(u8::from(same)), child));
            }
            if !fit.is_empty() {
                self.populations[side] = self.selected(&fit);
            }
        }
    }

    /// The winners of tournaments.
    fn selected(&mut self, fit: &[(f64, VariableValues)]) -> Vec<VariableValues> {
        let random = &mut self.random;
        let mut winner = || {
            let drawn = (0..TOURNAMENT).map(|_| &fit[random.random_range(0..fit.len())]);
            drawn.max_by(|one, two| one.0.total_cmp(&two.0)).map(|(_, values)| values.clone())
        };
        (0..self.size).filter_map(|_| winner()).collect()
    }
}

/// The value of a training row, drawn at random.
fn seen_value(cache: &QueryCache<'_>, feature: usize, random: &mut ChaCha8Rng) -> Option<Cell> {
    let shared = &cache.worker.shared;
    let index = shared.refiner.training_rows().filter(|index| !index.is_empty())?;
    let row = random.random_range(0..index.len() as u32);
    match &shared.encoder.layout().slots[feature] {
        Slots::Numeric(slots) => {
            let number = f64::from(index.number(feature, row)) * slots.std + slots.mean;
            (!number.is_nan()).then_some(Cell::Number(number))
        }
        Slots::Categorical(_) => match index.code(feature, row) {
            NULL_POINT | UNSEEN_POINT => None,
            code => Some(Cell::Code(u32::from(code))),
        },
    }
}
