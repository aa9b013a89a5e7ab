//! What a method varies: the features of one request's row that may change, and the values that they may take.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::encode::Slots;
use crate::explain::refine::{Change, Changes, QueryCache};
use crate::feature::Cell;

/// Values of a row's variables, in their order.
pub(super) type VariableValues = Vec<Cell>;

/// A feature that may change.
pub(super) struct Variable {
    pub(super) feature: usize,
    pub(super) original: Cell,
    choices: Choices,
}

/// What a feature may become.
enum Choices {
    /// Any allowed number from the first to the second.
    Numbers(f64, f64),
    /// One of these categories; the original is among them.
    Codes(Vec<u32>),
}

/// The features of a request's row that may change, in the schema's order.
pub(super) struct Variables {
    pub(super) request: u32,
    pub(super) all: Vec<Variable>,
}

/// The random numbers of a request: drawn by what its row says, and by the number of the counterfactual.
pub(super) fn stream(cache: &QueryCache<'_>, request: u32) -> ChaCha8Rng {
    let (seed, draw) = (cache.batch.seeds[request as usize], cache.batch.draws[request as usize]);
    ChaCha8Rng::seed_from_u64(xxh3_64_with_seed(&draw.to_le_bytes(), seed))
}

impl Variables {
    /// Those of a request. Features that follow from others are none.
    pub(super) fn new(cache: &QueryCache<'_>, request: u32) -> Variables {
        let shared = &cache.worker.shared;
        let variable = |(feature, slots): (usize, &Slots)| {
            let original = cache.original(request, feature);
            let free = !shared.constraints.is_derived(feature);
            let choices = free.then(|| choices(cache, request, feature, slots)).flatten()?;
            Some(Variable { feature, original, choices })
        };
        let slots = shared.encoder.layout().slots.iter();
        Variables { request, all: slots.enumerate().filter_map(variable).collect() }
    }

    /// The row as it is.
    pub(super) fn originals(&self) -> VariableValues {
        self.all.iter().map(|variable| variable.original).collect()
    }

    /// A value of one of the variables: an allowed number, all of its range being equally likely, or a category.
    pub(super) fn draw(
        &self,
        cache: &QueryCache<'_>,
        index: usize,
        random: &mut ChaCha8Rng,
    ) -> Cell {
        let variable = &self.all[index];
        match &variable.choices {
            Choices::Numbers(low, high) => {
                let number = low + (high - low) * random.random_range(0.0..=1.0);
                self.allowed(cache, index, Cell::Number(number))
            }
            Choices::Codes(codes) => Cell::Code(codes[random.random_range(0..codes.len())]),
        }
    }

    /// The allowed value of a variable that is nearest to another: for a category that or the original.
    pub(super) fn allowed(&self, cache: &QueryCache<'_>, index: usize, value: Cell) -> Cell {
        let variable = &self.all[index];
        cache.feasible(self.request).toward(variable.feature, value, variable.original)
    }

    /// What differs from the row as it is.
    pub(super) fn changes(&self, values: &[Cell]) -> Changes {
        let pairs = self.all.iter().zip(values);
        let changed = pairs.filter(|(variable, value)| **value != variable.original);
        changed
            .map(|(variable, value)| Change { feature: variable.feature, cell: *value })
            .collect()
    }

    /// The row with changes.
    pub(super) fn values(&self, changes: &[Change]) -> VariableValues {
        let value = |variable: &Variable| {
            let changed = changes.iter().find(|change| change.feature == variable.feature);
            changed.map_or(variable.original, |change| change.cell)
        };
        self.all.iter().map(value).collect()
    }

    /// Values that keep to the rules between features: those given, or the first way to repair them. What cannot be
    /// repaired stays as it is, and will not be predicted.
    pub(super) fn coherent(
        &self,
        cache: &QueryCache<'_>,
        values: VariableValues,
    ) -> VariableValues {
        let constraints = &cache.worker.shared.constraints;
        if !constraints.couples_features() {
            return values;
        }
        let original = |feature: usize| cache.original(self.request, feature);
        let feasible = cache.feasible(self.request);
        let repairs = constraints.repairs(feasible, &self.changes(&values), original);
        repairs.first().map_or(values, |changes| self.values(changes))
    }
}

fn choices(cache: &QueryCache<'_>, request: u32, feature: usize, slots: &Slots) -> Option<Choices> {
    let feasible = cache.feasible(request);
    match (slots, cache.original(request, feature)) {
        (Slots::Numeric(_), Cell::Number(original)) => {
            let (low, high) = feasible.interval(feature, original)?;
            let several = low < high || low != original;
            (several && low.is_finite() && high.is_finite()).then_some(Choices::Numbers(low, high))
        }
        (Slots::Categorical(slots), Cell::Code(original)) => {
            let allowed =
                |code: &u32| *code != original && feasible.allows(feature, *code, original);
            let mut codes: Vec<u32> = (0..slots.values as u32).filter(allowed).collect();
            if codes.is_empty() {
                return None;
            }
            codes.push(original);
            Some(Choices::Codes(codes))
        }
        _ => None,
    }
}
