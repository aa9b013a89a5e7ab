//! What changes cost: a part for each changed feature, a part for how far a number or an ordered category
//! moves, both by the feature's own cost.

use super::{Change, Refiner};
use crate::constrain::Constraints;
use crate::encode::{Layout, Slots};
use crate::feature::{Cell, FeatureSchema, Rows};

/// What a changed number costs before it has moved, in standard deviations: few changed features are worth
/// more than small ones.
const NUMBER: f64 = 0.3;
/// What a changed category costs at least, in the same unit …
const CATEGORY: f64 = 1.1;
/// … and for every numeric that there is to a categorical: L0 and L1 are means over features, and one of few
/// categories weighs more in the one than one of many numbers in the other.
const CATEGORY_OF_FEW: f64 = 1.5;
/// The part of an ordered category's price that does not depend on how many ranks it moves.
const ORDERED: f64 = 0.5;
/// A change below this share of a standard deviation is not worth telling.
const BELOW_TOLERANCE: f64 = 0.05;

/// What changes cost.
#[derive(Debug, Clone)]
pub(in crate::explain) struct Costs {
    features: Vec<FeatureCost>,
}

#[derive(Debug, Clone)]
struct FeatureCost {
    /// Of changing it at all.
    fixed: f64,
    /// Of moving a number by one; 0 for a category.
    by_one: f64,
    /// Smaller moves do not count; 0 for a category.
    tolerance: f64,
    std: f64,
    /// Ranks of an ordered category, by code, and what a change costs more for each that it moves.
    ranks: Option<(Vec<u32>, f64)>,
}

impl Costs {
    pub(in crate::explain) fn new(schema: &FeatureSchema, layout: &Layout) -> Costs {
        let category = category_price(layout);
        let features = schema.features.iter().zip(&layout.slots).map(|(feature, slots)| {
            let tolerance = feature.numeric().and_then(|numeric| numeric.tolerance);
            match slots {
                Slots::Numeric(slots) => FeatureCost {
                    fixed: NUMBER * feature.cost,
                    by_one: feature.cost / slots.std,
                    tolerance: tolerance.unwrap_or(BELOW_TOLERANCE * slots.std),
                    std: slots.std,
                    ranks: None,
                },
                Slots::Categorical(_) => {
                    let price = category * feature.cost;
                    let ranks = feature.categorical().and_then(|of| of.ranks.clone());
                    let ranks = ranks.map(|ranks| {
                        let by_rank = rank_price(ranks.len(), price);
                        (ranks, by_rank)
                    });
                    FeatureCost {
                        fixed: if ranks.is_some() { ORDERED * price } else { price },
                        by_one: 0.0,
                        tolerance: 0.0,
                        std: 1.0,
                        ranks,
                    }
                }
            }
        });
        Costs { features: features.collect() }
    }

    /// The cost of one change.
    pub(super) fn of(&self, change: &Change, original: Cell) -> f64 {
        let feature = &self.features[change.feature];
        match (change.cell, original) {
            (Cell::Number(new), Cell::Number(original)) => {
                feature.fixed + feature.by_one * (new - original).abs()
            }
            (Cell::Code(new), Cell::Code(original)) => feature.category(new, original),
            _ => feature.fixed,
        }
    }

    /// The cost of changing a category to another.
    pub(super) fn category(&self, feature: usize, new: u32, original: u32) -> f64 {
        self.features[feature].category(new, original)
    }

    /// The values of an ordered category between two, from the nearer one of `low` on; empty where there is
    /// no order.
    pub(super) fn between(&self, feature: usize, low: u32, high: u32) -> Vec<u32> {
        let Some((ranks, _)) = &self.features[feature].ranks else { return Vec::new() };
        let rank = |code: u32| ranks.get(code as usize).copied();
        let (Some(from), Some(to)) = (rank(low), rank(high)) else { return Vec::new() };
        let inside = |rank: u32| rank > from.min(to) && rank < from.max(to);
        let codes = (0u32..).zip(ranks).filter(|(_, rank)| inside(**rank));
        let mut codes: Vec<(u32, u32)> =
            codes.map(|(code, rank)| (rank.abs_diff(from), code)).collect();
        codes.sort_unstable();
        codes.into_iter().map(|(_, code)| code).collect()
    }

    /// The cost of changes of a row whose values are `original`.
    pub(super) fn total(&self, changes: &[Change], original: impl Fn(usize) -> Cell) -> f64 {
        changes.iter().map(|change| self.of(change, original(change.feature))).sum()
    }

    /// The cost of moving a number by one standard deviation, or of changing a category (an ordered one by
    /// a rank).
    pub(super) fn scale(&self, feature: usize) -> f64 {
        let cost = &self.features[feature];
        let by_rank = cost.ranks.as_ref().map_or(0.0, |(_, by_rank)| *by_rank);
        if cost.by_one > 0.0 { cost.by_one * cost.std } else { cost.fixed + by_rank }
    }

    /// The standard deviation of a number; 1 for a category.
    pub(super) fn std(&self, feature: usize) -> f64 {
        self.features[feature].std
    }

    /// Smaller moves of a number do not count.
    pub(super) fn tolerance(&self, feature: usize) -> f64 {
        self.features[feature].tolerance
    }
}

impl Refiner {
    /// What changes of a row cost.
    pub(in crate::explain) fn cost(
        &self,
        edits: &[Change],
        originally: impl Fn(usize) -> Cell,
    ) -> f64 {
        self.costs.total(edits, originally)
    }

    /// What rows cost, as written to the table. A feature that follows from others costs nothing by itself.
    pub(in crate::explain) fn costs_of(
        &self,
        rows: &Rows,
        originals: &Rows,
        constraints: &Constraints,
    ) -> Vec<f64> {
        self.costs.of_rows(rows, originals, constraints)
    }
}

impl Costs {
    /// What rows cost. A feature that follows from others costs nothing by itself.
    pub(in crate::explain) fn of_rows(
        &self,
        rows: &Rows,
        originals: &Rows,
        constraints: &Constraints,
    ) -> Vec<f64> {
        let mut costs = vec![0.0; rows.len];
        for (feature, (new, original)) in rows.cells.iter().zip(&originals.cells).enumerate() {
            if constraints.is_derived(feature) {
                continue;
            }
            for (row, moved) in new.moved_from(original).into_iter().enumerate() {
                if moved {
                    let change = Change { feature, cell: rows.cell(feature, row) };
                    costs[row] += self.of(&change, originals.cell(feature, row));
                }
            }
        }
        costs
    }
}

impl FeatureCost {
    /// Between values that have no rank, a change costs what it does on average.
    fn category(&self, new: u32, original: u32) -> f64 {
        let Some((ranks, by_rank)) = &self.ranks else { return self.fixed };
        match (ranks.get(new as usize), ranks.get(original as usize)) {
            (Some(new), Some(original)) => {
                self.fixed + by_rank * f64::from(new.abs_diff(*original))
            }
            _ => self.fixed / ORDERED,
        }
    }
}

/// What a rank costs, so that the mean over all pairs of different values is the price: two of so many are
/// a third of their number and one apart, on average.
fn rank_price(values: usize, price: f64) -> f64 {
    (1.0 - ORDERED) * price * 3.0 / (values as f64 + 1.0)
}

/// What a changed category costs in a table of such features.
fn category_price(layout: &Layout) -> f64 {
    let numerics = layout.slots.iter().filter(|slots| matches!(slots, Slots::Numeric(_))).count();
    let categoricals = layout.slots.len() - numerics;
    CATEGORY.max(CATEGORY_OF_FEW * numerics as f64 / categoricals.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::feature::{StatsAccumulator, UNSEEN_CODE};

    #[test]
    fn an_ordered_category_costs_more_the_farther_it_moves() {
        let text = "[[feature]]\nname = \"plain\"\nkind = \"categorical\"\nvalues = [\"a\", \"b\", \"c\", \"d\"]\n\
                    [[feature]]\nname = \"rank\"\nkind = \"categorical\"\nvalues = [\"d\", \"a\", \"b\", \"c\"]\n\
                    order = [\"a\", \"b\", \"c\", \"d\"]\n";
        let schema = FeatureSchema::parse(text, Path::new("f.toml")).expect("a good schema");
        let layout = Layout::new(&schema, &StatsAccumulator::new(&schema).finish());
        let costs = Costs::new(&schema, &layout);
        let of = |feature, new: u32, original: u32| {
            costs.of(&Change { feature, cell: Cell::Code(new) }, Cell::Code(original))
        };
        let price = of(0, 0, 3);
        // Codes of `rank` are d, a, b, c.
        let (one, two, three) = (of(1, 2, 1), of(1, 1, 3), of(1, 0, 1));
        assert!(0.5 * price < one && one < two && two < three, "{one} {two} {three}");
        let pairs = (0..4).flat_map(|one| (0..4).map(move |two| (one, two)));
        let costs_of: Vec<f64> =
            pairs.filter(|(one, two)| one != two).map(|(one, two)| of(1, one, two)).collect();
        let mean = costs_of.iter().sum::<f64>() / costs_of.len() as f64;
        assert!((mean - price).abs() < 1e-12, "{mean} {price}");
        assert!((of(1, 0, UNSEEN_CODE) - price).abs() < 1e-12);
        assert_eq!(costs.between(1, 1, 0), [2, 3]);
        assert_eq!(costs.between(1, 0, 1), [3, 2]);
        assert!(costs.between(0, 0, 3).is_empty());
    }
}
