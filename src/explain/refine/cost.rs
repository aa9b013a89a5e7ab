//! What changes cost: a part for each changed feature, a part for how far a number moves, both by the
//! feature's own cost.

use super::Change;
use crate::encode::{Layout, Slots};
use crate::feature::{Cell, FeatureSchema};

/// What a changed number costs before it has moved, in standard deviations: few changed features are worth
/// more than small ones.
const NUMBER: f64 = 0.3;
/// What a changed category costs at least, in the same unit …
const CATEGORY: f64 = 1.1;
/// … and for every numeric that there is to a categorical: L0 and L1 are means over features, and one of few
/// categories weighs more in the one than one of many numbers in the other.
const CATEGORY_OF_FEW: f64 = 1.5;
/// A change below this share of a standard deviation is not worth telling.
const TRIFLE: f64 = 0.05;

/// What changes cost.
#[derive(Debug, Clone)]
pub(super) struct Costs {
    features: Vec<FeatureCost>,
}

#[derive(Debug, Clone)]
struct FeatureCost {
    /// Of changing it at all.
    fixed: f64,
    /// Of moving a number by one; 0 for a category.
    by_one: f64,
    /// Smaller moves are trifles; 0 for a category.
    tolerance: f64,
    std: f64,
}

impl Costs {
    pub(super) fn new(schema: &FeatureSchema, layout: &Layout) -> Costs {
        let category = category_price(layout);
        let features = schema.features.iter().zip(&layout.slots).map(|(feature, slots)| {
            let tolerance = feature.numeric().and_then(|numeric| numeric.tolerance);
            match slots {
                Slots::Numeric(slots) => FeatureCost {
                    fixed: NUMBER * feature.cost,
                    by_one: feature.cost / slots.std,
                    tolerance: tolerance.unwrap_or(TRIFLE * slots.std),
                    std: slots.std,
                },
                Slots::Categorical(_) => FeatureCost {
                    fixed: category * feature.cost,
                    by_one: 0.0,
                    tolerance: 0.0,
                    std: 1.0,
                },
            }
        });
        Costs { features: features.collect() }
    }

    /// The cost of one change.
    pub(super) fn of(&self, change: &Change, own: Cell) -> f64 {
        let feature = &self.features[change.feature];
        match (change.cell, own) {
            (Cell::Number(new), Cell::Number(own)) => {
                feature.fixed + feature.by_one * (new - own).abs()
            }
            _ => feature.fixed,
        }
    }

    /// The cost of changes of a row whose values are `own`.
    pub(super) fn total(&self, changes: &[Change], own: impl Fn(usize) -> Cell) -> f64 {
        changes.iter().map(|change| self.of(change, own(change.feature))).sum()
    }

    /// The cost of moving a number by one standard deviation, or of changing a category.
    pub(super) fn scale(&self, feature: usize) -> f64 {
        let cost = &self.features[feature];
        if cost.by_one > 0.0 { cost.by_one * cost.std } else { cost.fixed }
    }

    /// Smaller moves of a number are trifles.
    pub(super) fn tolerance(&self, feature: usize) -> f64 {
        self.features[feature].tolerance
    }
}

/// What a changed category costs in a table of such features.
fn category_price(layout: &Layout) -> f64 {
    let numerics = layout.slots.iter().filter(|slots| matches!(slots, Slots::Numeric(_))).count();
    let categoricals = layout.slots.len() - numerics;
    CATEGORY.max(CATEGORY_OF_FEW * numerics as f64 / categoricals.max(1) as f64)
}
