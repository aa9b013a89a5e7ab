//! DiCE's search after the fact: numbers that were changed by little move back towards the original as long as the
//! prediction stays at the target. From Mothilal, Sharma and Tan, *Explaining Machine Learning Classifiers through
//! Diverse Counterfactual Explanations* (2020), and version 0.12 of the authors' package:
//!
//! - a change is small if it is at most the lesser of the feature's median absolute deviation (1 where that is 0) and
//!   the 10 % quantile of its different values' deviations from their median;
//! - features with the largest such bound come first;
//! - *linear* takes one step of the feature at a time, *binary* tries the original first and then bisects. A step is
//!   that of the feature, and at least a twentieth of its bound; numbers within a hundredth are not told apart (the
//!   package goes by the decimals that it finds in a column).
//!
//! One question about every request at work is one call of the model. Steps are those that the constraints allow.

use super::spread::FeatureSpread;
use crate::constrain::FeasibleSet;
use crate::error::Result;
use crate::explain::refine::{Changes, Proposal, QueryCache};
use crate::feature::Cell;
use crate::job::SparsitySearch;

/// Steps of the linear search, at most.
const STEPS: f64 = 20.0;
/// Parts of a bound that bisection tells apart.
const BISECTIONS: f64 = 100.0;

/// Part of a budget that methods keep for it.
pub(super) const KEPT_PART: u32 = 8;

/// How numbers move back.
pub(super) struct PosthocSparsity {
    search: SparsitySearch,
    /// Numeric features and up to where a change is small, the largest first.
    bounds: Vec<(usize, f64)>,
}

/// A counterfactual whose numbers move back.
struct MoveBack {
    request: u32,
    changes: Changes,
    /// The feature that is looked at, in the order of the bounds.
    at: usize,
    state: MoveState,
    tried: Changes,
    number: f64,
}

/// What is known of the feature that is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
enum MoveState {
    /// Nothing.
    Fresh,
    /// It has moved.
    Moving,
    /// The original does not do; this number is the nearest to the counterfactual's that does not.
    Between(f64),
}

impl PosthocSparsity {
    pub(super) fn new(
        search: SparsitySearch,
        spreads: &[Option<FeatureSpread>],
    ) -> PosthocSparsity {
        let small = |(feature, spread): (usize, &Option<FeatureSpread>)| {
            spread.map(|spread| (feature, spread.small.min(spread.mad)))
        };
        let mut bounds: Vec<(usize, f64)> = spreads
            .iter()
            .enumerate()
            .filter_map(small)
            .filter(|(_, bound)| *bound > 0.0)
            .collect();
        bounds.sort_by(|(_, one), (_, two)| two.total_cmp(one));
        PosthocSparsity { search, bounds }
    }

    /// Moves the numbers of valid proposals back; others stay as they are.
    pub(super) fn apply(
        &self,
        cache: &mut QueryCache<'_>,
        found: &mut [Option<Changes>],
    ) -> Result<()> {
        if self.search == SparsitySearch::Off {
            return Ok(());
        }
        let valid = |(request, changes): (u32, &Option<Changes>)| {
            let changes = changes.as_ref()?;
            let prediction = cache.cached(request, changes)?;
            cache.decides(prediction).then(|| MoveBack::new(request, changes.clone()))
        };
        let mut walks: Vec<MoveBack> = (0u32..).zip(&*found).filter_map(valid).collect();
        loop {
            let moves = |walk: &mut MoveBack| self.advance(cache, walk);
            let moving: Vec<usize> = walks
                .iter_mut()
                .enumerate()
                .filter_map(|(index, walk)| moves(walk).then_some(index))
                .collect();
            if moving.is_empty() {
                break;
            }
            let proposal = |index: &usize| {
                let MoveBack { request, tried, .. } = &walks[*index];
                Proposal { request: *request, changes: tried.clone() }
            };
            let proposals: Vec<Proposal> = moving.iter().map(proposal).collect();
            let predictions = cache.predict_unprobed(&proposals)?;
            for (index, prediction) in moving.into_iter().zip(predictions) {
                let valid = prediction.is_some_and(|prediction| cache.decides(prediction));
                walks[index].learn(self.search, valid);
            }
        }
        for walk in walks {
            found[walk.request as usize] = Some(walk.changes);
        }
        Ok(())
    }

    /// Finds what to try next; false if there is nothing, or no question is left.
    fn advance(&self, cache: &QueryCache<'_>, walk: &mut MoveBack) -> bool {
        while let Some((feature, bound)) = self.bounds.get(walk.at) {
            if cache.is_spent(walk.request) {
                return false;
            }
            if walk.prepare(cache, self.search, (*feature, *bound)) {
                return true;
            }
            walk.next_feature();
        }
        false
    }
}

impl MoveBack {
    fn new(request: u32, changes: Changes) -> MoveBack {
        let tried = Changes::new();
        MoveBack { request, changes, at: 0, state: MoveState::Fresh, tried, number: 0.0 }
    }

    fn next_feature(&mut self) {
        (self.at, self.state) = (self.at + 1, MoveState::Fresh);
    }

    /// Prepares the next try of a feature; false if there is none.
    fn prepare(
        &mut self,
        cache: &QueryCache<'_>,
        search: SparsitySearch,
        (feature, bound): (usize, f64),
    ) -> bool {
        let Cell::Number(original) = cache.original(self.request, feature) else { return false };
        let changed = self.changes.iter().find(|change| change.feature == feature);
        let Some(Cell::Number(now)) = changed.map(|change| change.cell) else { return false };
        if self.state == MoveState::Fresh && (now - original).abs() > bound {
            return false;
        }
        if self.state == MoveState::Fresh && self.changes.len() == 1 {
            // The row as it is was decided otherwise.
            self.state = MoveState::Between(original);
        }
        let moved = MovedNumber { feature, bound, original, now };
        let feasible = cache.feasible(self.request);
        let number = match (search, self.state) {
            (SparsitySearch::Binary, MoveState::Between(beyond)) => moved.middle(feasible, beyond),
            (SparsitySearch::Binary, _) => Some(original),
            _ => Some(moved.step(feasible)),
        };
        let Some(number) = number else { return false };
        self.number = number;
        self.tried = self.changes.clone();
        match self.tried.iter_mut().find(|change| change.feature == feature) {
            Some(change) if number != original => change.cell = Cell::Number(number),
            _ => self.tried.retain(|change| change.feature != feature),
        }
        !self.tried.is_empty()
    }

    /// Takes what the model said of the last try.
    fn learn(&mut self, search: SparsitySearch, valid: bool) {
        if valid {
            std::mem::swap(&mut self.changes, &mut self.tried);
            if self.state == MoveState::Fresh {
                self.state = MoveState::Moving;
            }
            return;
        }
        match search {
            SparsitySearch::Binary => self.state = MoveState::Between(self.number),
            _ => self.next_feature(),
        }
    }
}

/// A number that moves back.
struct MovedNumber {
    feature: usize,
    bound: f64,
    original: f64,
    now: f64,
}

impl MovedNumber {
    /// One step nearer to the original, or the original.
    fn step(&self, feasible: FeasibleSet<'_>) -> f64 {
        let MovedNumber { feature, bound, original, now } = *self;
        let side = (original - now).signum();
        let step = feasible.beside(feature, now, original, side);
        let least = feasible.number(feature, now + side * bound / STEPS, original);
        let far = |number: f64| (number - now).abs();
        let next = if far(least) > far(step) { least } else { step };
        let between = (next - original) * (now - original) > 0.0
            && (next - original).abs() < (now - original).abs();
        if between { next } else { original }
    }

    /// Halfway to a number that does not do; none where the two are not told apart.
    fn middle(&self, feasible: FeasibleSet<'_>, beyond: f64) -> Option<f64> {
        let MovedNumber { feature, bound, original, now } = *self;
        let middle = feasible.number(feature, now + (beyond - now) / 2.0, original);
        let near = (beyond - now).abs() <= bound / BISECTIONS;
        (!near && middle != now && middle != beyond).then_some(middle)
    }
}
