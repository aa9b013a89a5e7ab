//! How much liker rows of the wanted decision a change makes a row: which way such rows differ from the
//! others, feature by feature. Cheap enough for every trial, where a search for the nearest row is not.

use std::collections::BTreeMap;

use super::Change;
use crate::encode::{Layout, Slots};
use crate::feature::Cell;
use crate::nearest::{PointColumn, Points};
use crate::target::Wishes;

/// Training rows looked at: enough for means.
const ROWS: usize = 50_000;
/// The steepest that a number's likeness may be: moving on must never pay for itself.
const STEEPEST: f64 = 0.5;

/// By class, what a change gains.
#[derive(Debug, Clone, Default)]
pub(super) struct Likeness {
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

impl Likeness {
    /// What makes rows like those of each class. Values of a regression have no classes, and no likeness.
    pub(super) fn new(points: &Points, layout: &Layout, classes: u32, weight: f64) -> Likeness {
        let rows = points.len.min(ROWS);
        let steepest = STEEPEST / weight.max(f64::MIN_POSITIVE);
        let slopes = |class: u32| -> Vec<Slope> {
            let inside: Vec<bool> =
                points.decisions[..rows].iter().map(|of| *of == f64::from(class)).collect();
            let columns = points.columns.iter().zip(&layout.slots);
            columns.map(|(column, slots)| slope(column, slots, &inside, steepest)).collect()
        };
        Likeness { classes: (0..classes).map(|class| (class, slopes(class))).collect(), weight }
    }

    /// What a change gains for an entry that wants this, in units of cost.
    pub(super) fn gain(&self, wishes: &Wishes, entry: usize, change: &Change, own: Cell) -> f64 {
        self.weight * self.plain(wishes, entry, change, own)
    }

    /// The same, whatever likeness weighs.
    pub(super) fn plain(&self, wishes: &Wishes, entry: usize, change: &Change, own: Cell) -> f64 {
        let class = wishes.classes().map(|classes| classes[entry]);
        let slopes = class.and_then(|class| self.classes.get(&class));
        match (slopes.and_then(|slopes| slopes.get(change.feature)), change.cell, own) {
            (Some(Slope::Number(by_one)), Cell::Number(new), Cell::Number(own)) => {
                by_one * (new - own)
            }
            (Some(Slope::Codes(shares)), Cell::Code(new), Cell::Code(own)) => {
                let share = |code: u32| shares.get(code as usize).copied().unwrap_or(0.0);
                share(new) - share(own)
            }
            _ => 0.0,
        }
    }
}

/// The difference between rows inside a class and the others.
fn slope(column: &PointColumn, slots: &Slots, inside: &[bool], steepest: f64) -> Slope {
    match (column, slots) {
        (PointColumn::Numbers(numbers), Slots::Numeric(slots)) => {
            let mut sums = [(0.0, 0.0); 2];
            for (number, inside) in numbers.iter().zip(inside).filter(|(of, _)| !of.is_nan()) {
                let (sum, count) = &mut sums[usize::from(*inside)];
                *sum += f64::from(*number);
                *count += 1.0;
            }
            let [others, class] = sums.map(|(sum, count)| sum / f64::max(count, 1.0));
            Slope::Number((class - others).clamp(-steepest, steepest) / slots.std)
        }
        (PointColumn::Codes(codes), Slots::Categorical(slots)) => {
            let mut counts = [vec![0.0; slots.values], vec![0.0; slots.values]];
            let mut totals = [0.0; 2];
            for (code, inside) in codes.iter().zip(inside) {
                totals[usize::from(*inside)] += 1.0;
                if let Some(count) = counts[usize::from(*inside)].get_mut(usize::from(*code)) {
                    *count += 1.0;
                }
            }
            let [others, class] = counts;
            let [all_others, all_class] = totals.map(|total| f64::max(total, 1.0));
            let pairs = class.into_iter().zip(others);
            Slope::Codes(pairs.map(|(of, other)| of / all_class - other / all_others).collect())
        }
        _ => Slope::Number(0.0),
    }
}
