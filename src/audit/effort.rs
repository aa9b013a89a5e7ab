//! Effort: how far changes move a row among the training rows. Unlike a cost it has no price in it that could be tuned.

use crate::encode::{Layout, NumericSlots, Slots};
use crate::nearest::{PointColumn, Points};

/// Where numbers stand among those of the training rows, feature by feature.
#[derive(Debug, Clone)]
pub struct Efforts {
    features: Vec<Option<Ranks>>,
}

/// The different numbers of a column, ascending, and how many rows each of them is not below.
#[derive(Debug, Clone)]
struct Ranks {
    numbers: Vec<f64>,
    counts: Vec<u32>,
    /// Where rows are kept standardised, in single precision: so is what is looked up.
    slots: Option<NumericSlots>,
}

impl Efforts {
    /// Of the training rows that a generator keeps.
    pub fn new(points: &Points, layout: &Layout) -> Efforts {
        let columns = points.columns.iter().zip(&layout.slots).enumerate();
        let ranks = columns.map(|(feature, (column, slots))| match (column, slots) {
            (PointColumn::Numbers(standardised), Slots::Numeric(slots)) => {
                match points.exact.get(feature).filter(|exact| !exact.is_empty()) {
                    Some(exact) => Some(Ranks::new(exact.clone(), None)),
                    None => {
                        let numbers = standardised.iter().map(|number| f64::from(*number));
                        Some(Ranks::new(numbers.collect(), Some(slots.clone())))
                    }
                }
            }
            _ => None,
        });
        Efforts { features: ranks.collect() }
    }

    /// The share of training rows between two numbers of a feature.
    pub(super) fn between(&self, feature: usize, one: f64, other: f64) -> f64 {
        let ranks = self.features.get(feature).and_then(Option::as_ref);
        ranks.map_or(0.0, |ranks| (ranks.share(one) - ranks.share(other)).abs())
    }
}

impl Ranks {
    fn new(mut all: Vec<f64>, slots: Option<NumericSlots>) -> Ranks {
        all.retain(|number| !number.is_nan());
        all.sort_unstable_by(f64::total_cmp);
        let (mut numbers, mut counts): (Vec<f64>, Vec<u32>) = (Vec::new(), Vec::new());
        for (rank, number) in (1..).zip(all) {
            if numbers.last() == Some(&number) {
                counts.pop();
            } else {
                numbers.push(number);
            }
            counts.push(rank);
        }
        Ranks { numbers, counts, slots }
    }

    /// The share of rows that are at most this.
    fn share(&self, number: f64) -> f64 {
        let number = match &self.slots {
            Some(slots) => f64::from(slots.standardised(number)),
            None => number,
        };
        let below = self.numbers.partition_point(|known| *known <= number);
        let of = |index: usize| f64::from(self.counts[index]);
        match (below.checked_sub(1), self.counts.len().checked_sub(1)) {
            (Some(index), Some(last)) => of(index) / of(last),
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_is_the_share_of_rows_passed() {
        let exact = vec![vec![10.0, 20.0, 20.0, 40.0, f64::NAN]];
        let points = Points {
            len: 5,
            columns: vec![PointColumn::Numbers(vec![0.0; 5])],
            decisions: vec![0.0; 5],
            exact,
        };
        let slots = NumericSlots { value: 0, null: None, mean: 0.0, std: 1.0, cut: f32::MAX };
        let layout = Layout { width: 1, slots: vec![Slots::Numeric(slots)] };
        let efforts = Efforts::new(&points, &layout);
        let cases = [(10.0, 20.0, 0.5), (20.0, 10.0, 0.5), (5.0, 45.0, 1.0), (21.0, 39.0, 0.0)];
        for (one, other, expected) in cases {
            assert_eq!(efforts.between(0, one, other), expected, "from {one} to {other}");
        }
        let alike = Points { exact: Vec::new(), ..points };
        let efforts = Efforts::new(&alike, &layout);
        assert_eq!(efforts.between(0, -1.0, 1.0), 1.0, "all rows have the mean");
    }
}
