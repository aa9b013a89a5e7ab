//! Where a model that shows its breakpoints says the same: between two of them a number may move back towards
//! the original without a question.

use std::sync::Arc;

use super::{Change, Refiner};
use crate::constrain::{Constraints, FeasibleSet};
use crate::feature::{Cell, FeatureSchema};
use crate::predictor::Predictor;

/// Steps from a breakpoint to the next allowed number, at most: rounding is off by one at most, what is further
/// away is no neighbour.
const STEPS: usize = 2;

/// The breakpoints of every feature; none where the model shows none.
#[derive(Debug, Clone, Default)]
pub(in crate::explain) struct Plateaus {
    features: Vec<Option<Arc<[f64]>>>,
}

/// Numbers for which the model says the same: above `low`, and up to `high` itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plateau {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Plateaus {
    /// What a model shows of features. One that others follow from has no plateaus: what follows moves with it.
    pub(in crate::explain) fn new(
        predictor: &dyn Predictor,
        schema: &FeatureSchema,
        constraints: &Constraints,
    ) -> Plateaus {
        let shown = |index: usize| {
            let numeric = schema.features[index].numeric();
            let free = numeric.filter(|_| !constraints.is_followed(index));
            free.and_then(|_| predictor.breakpoints(index))
        };
        Plateaus { features: (0..schema.features.len()).map(shown).collect() }
    }

    /// Whether the model shows anything.
    pub(super) fn are_known(&self) -> bool {
        self.features.iter().any(Option::is_some)
    }

    /// The plateau of a number.
    pub(super) fn around(&self, feature: usize, number: f64) -> Option<Plateau> {
        let breakpoints = self.features.get(feature)?.as_deref()?;
        let above = breakpoints.partition_point(|point| *point < number);
        let low = above.checked_sub(1).map_or(f64::NEG_INFINITY, |below| breakpoints[below]);
        Some(Plateau { low, high: breakpoints.get(above).copied().unwrap_or(f64::INFINITY) })
    }

    /// The allowed number nearest to the original for which the model says the same as for this one; none if that
    /// is the original.
    fn nearest(
        &self,
        feasible: FeasibleSet<'_>,
        feature: usize,
        number: f64,
        original: f64,
    ) -> Option<f64> {
        let Some(plateau) = self.around(feature, number) else { return Some(number) };
        if original.is_nan() || number.is_nan() {
            return Some(number);
        }
        if plateau.contains(original) {
            return None;
        }
        let side = if original < number { 1.0 } else { -1.0 };
        let nearer = |next: &f64| (number - next) * side >= 0.0;
        Some(plateau.nearest_to(feasible, feature, original).filter(nearer).unwrap_or(number))
    }
}

impl Plateau {
    /// Of its numbers the allowed one that is nearest to an original outside of it.
    pub(super) fn nearest_to(
        &self,
        feasible: FeasibleSet<'_>,
        feature: usize,
        original: f64,
    ) -> Option<f64> {
        let (edge, side) = if original <= self.low { (self.low, 1.0) } else { (self.high, -1.0) };
        let mut next = feasible.number(feature, edge, original);
        for _ in 0..STEPS {
            if self.contains(next) {
                break;
            }
            next = feasible.beside(feature, next, original, side);
        }
        self.contains(next).then_some(next)
    }

    pub(super) fn contains(&self, number: f64) -> bool {
        self.low < number && number <= self.high
    }

    /// The end of the plateau towards a number beyond it.
    pub(super) fn end_towards(&self, number: f64) -> f64 {
        if number > self.high { self.high } else { self.low.next_up() }
    }
}

impl Refiner {
    /// A change to the number nearest to the original for which the model says the same; none if the model says the
    /// same without the change.
    pub(super) fn tightened(
        &self,
        feasible: FeasibleSet<'_>,
        change: Change,
        original: Cell,
    ) -> Option<Change> {
        let (Cell::Number(number), Cell::Number(original)) = (change.cell, original) else {
            return Some(change);
        };
        let nearest = self.plateaus.nearest(feasible, change.feature, number, original);
        nearest.map(|number| Change { cell: Cell::Number(number), ..change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plateau_ends_with_its_breakpoint() {
        let plateaus = Plateaus { features: vec![Some(Arc::from([1.0, 2.0])), None] };
        let around = |number| plateaus.around(0, number).map(|found| (found.low, found.high));
        assert_eq!(around(1.0), Some((f64::NEG_INFINITY, 1.0)));
        assert_eq!(around(1.5), Some((1.0, 2.0)));
        assert_eq!(around(2.5), Some((2.0, f64::INFINITY)));
        assert_eq!(plateaus.around(1, 1.5), None);
        let plateau = Plateau { low: 1.0, high: 2.0 };
        assert_eq!((plateau.end_towards(7.0), plateau.end_towards(0.0)), (2.0, 1f64.next_up()));
        assert!(plateau.contains(2.0) && !plateau.contains(1.0));
    }
}
