//! How much more plausible beside training rows of the target a change makes a row: which way such rows differ from the
//! others, feature by feature. Cheap enough for every proposal, where a search for the nearest row is not.

use std::collections::BTreeMap;

use super::Change;
use crate::encode::Slots;
use crate::feature::Cell;
use crate::nearest::{PointColumn, Points};
use crate::target::Targets;

/// Training rows looked at: enough for means.
const ROWS: usize = 50_000;
/// The steepest that a number's plausibility may be, as a share of what it costs to move: moving on must never
/// pay for itself …
const STEEPEST: f64 = 0.5;
/// … and the most that a category's may be, as a share of its price: nor must a change.
const MOST_OF_PRICE: f64 = 0.9;

/// By class, what a change gains.
#[derive(Debug, Clone, Default)]
pub(super) struct LinearPlausibility {
    classes: BTreeMap<u32, Vec<Slope>>,
    weight: f64,
}

/// What the values of one feature gain.
#[derive(Debug, Clone)]
enum Slope {
    /// By one, in the feature's own unit.
    Number(f64),
    /// By code.
    Codes(Vec<f64>),
}

/// A feature's slots, and the cost of moving it by its unit.
pub(super) struct FeatureScale<'a> {
    pub(super) slots: &'a Slots,
    pub(super) cost: f64,
}

/// The class of each training row.
struct RowClasses {
    of: Vec<usize>,
    count: usize,
}

impl LinearPlausibility {
    /// What makes rows like those of each class. Values of a regression have no classes, and no plausibility.
    pub(super) fn new<'s>(
        points: &Points,
        classes: u32,
        weight: f64,
        scales: impl Iterator<Item = FeatureScale<'s>>,
    ) -> LinearPlausibility {
        if classes == 0 {
            return LinearPlausibility::default();
        }
        let rows = points.len.min(ROWS);
        let weighed = weight.max(f64::MIN_POSITIVE);
        let of = points.decisions[..rows].iter().map(|class| *class as usize).collect();
        let classes = RowClasses { of, count: classes as usize };
        let mut by_class: Vec<Vec<Slope>> = vec![Vec::new(); classes.count];
        for (column, FeatureScale { slots, cost }) in points.columns.iter().zip(scales) {
            let slopes = slopes(column, slots, &classes, cost / weighed);
            by_class.iter_mut().zip(slopes).for_each(|(all, slope)| all.push(slope));
        }
        LinearPlausibility { classes: (0u32..).zip(by_class).collect(), weight }
    }

    /// What a change gains for a request that wants this, in units of cost.
    pub(super) fn gain(
        &self,
        targets: &Targets,
        request: usize,
        change: &Change,
        original: Cell,
    ) -> f64 {
        self.weight * self.plain(targets, request, change, original)
    }

    /// The same, whatever plausibility weighs.
    pub(super) fn plain(
        &self,
        targets: &Targets,
        request: usize,
        change: &Change,
        original: Cell,
    ) -> f64 {
        let class = targets.classes().map(|classes| classes[request]);
        let slopes = class.and_then(|class| self.classes.get(&class));
        match (slopes.and_then(|slopes| slopes.get(change.feature)), change.cell, original) {
            (Some(Slope::Number(by_one)), Cell::Number(new), Cell::Number(original)) => {
                by_one * (new - original)
            }
            (Some(Slope::Codes(shares)), Cell::Code(new), Cell::Code(original)) => {
                let share = |code: u32| shares.get(code as usize).copied().unwrap_or(0.0);
                share(new) - share(original)
            }
            _ => 0.0,
        }
    }
}

/// By class, the difference between its rows and the others, as far as the feature's price allows.
fn slopes(column: &PointColumn, slots: &Slots, classes: &RowClasses, price: f64) -> Vec<Slope> {
    let RowClasses { of, count: classes } = classes;
    match (column, slots) {
        (PointColumn::Numbers(numbers), Slots::Numeric(slots)) => {
            let mut sums = vec![(0.0, 0.0); *classes];
            for (number, class) in numbers.iter().zip(of).filter(|(of, _)| !of.is_nan()) {
                sums[*class].0 += f64::from(*number);
                sums[*class].1 += 1.0;
            }
            let all = sums.iter().fold((0.0, 0.0), |all, of| (all.0 + of.0, all.1 + of.1));
            let steepest = STEEPEST * price;
            let slope = |(sum, count): &(f64, f64)| {
                let off = difference((*sum, *count), all);
                Slope::Number(off.clamp(-steepest, steepest) / slots.std)
            };
            sums.iter().map(slope).collect()
        }
        (PointColumn::Codes(codes), Slots::Categorical(slots)) => {
            let mut counts = vec![vec![0.0; slots.values]; *classes];
            let mut totals = vec![0.0; *classes];
            for (code, class) in codes.iter().zip(of) {
                totals[*class] += 1.0;
                if let Some(count) = counts[*class].get_mut(usize::from(*code)) {
                    *count += 1.0;
                }
            }
            let rows: f64 = totals.iter().sum();
            let of_code = |code: usize| counts.iter().map(|of: &Vec<f64>| of[code]).sum::<f64>();
            let all: Vec<f64> = (0..slots.values).map(of_code).collect();
            let slope = |(counts, total): (&Vec<f64>, &f64)| {
                let pairs = counts.iter().zip(&all);
                let shares = pairs.map(|(of, all)| difference((*of, *total), (*all, rows)));
                Slope::Codes(within(shares.collect(), MOST_OF_PRICE * price))
            };
            counts.iter().zip(&totals).map(slope).collect()
        }
        _ => vec![Slope::Number(0.0); *classes],
    }
}

/// Shares, made smaller if need be: no two of them are farther apart than this.
fn within(mut shares: Vec<f64>, farthest: f64) -> Vec<f64> {
    // A value that was never seen has a share of 0.
    let (low, high) = shares
        .iter()
        .fold((0.0_f64, 0.0_f64), |(low, high), share| (low.min(*share), high.max(*share)));
    if high - low > farthest {
        let factor = farthest / (high - low);
        shares.iter_mut().for_each(|share| *share *= factor);
    }
    shares
}

/// The mean of a part of rows less that of the rest, from sums and counts; 0 where one of them is empty.
fn difference((sum, count): (f64, f64), (all, rows): (f64, f64)) -> f64 {
    let others = rows - count;
    if count == 0.0 || others == 0.0 { 0.0 } else { sum / count - (all - sum) / others }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plausibility_never_pays_for_a_change() {
        let shares = within(vec![0.9, -0.6, 0.2], 0.5);
        let (low, high) = (shares[1], shares[0]);
        assert!((high - low - 0.5).abs() < 1e-12, "{shares:?}");
        assert!((shares[2] / high - 0.2 / 0.9).abs() < 1e-12, "in proportion: {shares:?}");
        // A value that was never seen has a share of 0, and counts.
        assert_eq!(within(vec![0.9, 0.6], 0.45), [0.45, 0.3]);
        assert_eq!(within(vec![0.2, -0.2], 0.5), [0.2, -0.2], "what is cheap enough stays");
        assert_eq!(within(vec![0.2, -0.2], 0.0), [0.0, 0.0], "what costs nothing gains nothing");
    }
}
