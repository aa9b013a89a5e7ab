//! How numbers spread in training rows: what DiCE and LORE measure distances by.

use crate::encode::Slots;
use crate::explain::refine::Refiner;
use crate::nearest::Index;

/// Share of the smallest deviations from the median up to which DiCE takes a change for small.
const SMALL_SHARE: f64 = 0.1;

/// Of one numeric feature, in the column's own unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FeatureSpread {
    /// From the least to the greatest number.
    pub(super) range: f64,
    /// Median absolute deviation from the median; 1 where that is 0.
    pub(super) mad: f64,
    /// The tenth part of different numbers' deviations from their median.
    pub(super) small: f64,
}

/// Spreads by feature; none for categories, and for numbers of which no training row has one.
pub(super) fn spreads(refiner: &Refiner) -> Vec<Option<FeatureSpread>> {
    let index = refiner.training_rows();
    let slots = refiner.layout().slots.iter().enumerate();
    slots.map(|(feature, slots)| spread(index?, feature, slots)).collect()
}

fn spread(index: &Index, feature: usize, slots: &Slots) -> Option<FeatureSpread> {
    let Slots::Numeric(slots) = slots else { return None };
    let rows = 0..index.len() as u32;
    let numbers = rows.map(|row| f64::from(index.number(feature, row)) * slots.std + slots.mean);
    of_numbers(numbers.filter(|number| !number.is_nan()).collect())
}

fn of_numbers(mut numbers: Vec<f64>) -> Option<FeatureSpread> {
    numbers.sort_unstable_by(f64::total_cmp);
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    let mad = quantile(&deviations(&numbers), 0.5);
    numbers.dedup();
    Some(FeatureSpread {
        range: last - first,
        mad: if mad > 0.0 { mad } else { 1.0 },
        small: quantile(&deviations(&numbers), SMALL_SHARE),
    })
}

/// Deviations of ascending numbers from their median, ascending.
fn deviations(numbers: &[f64]) -> Vec<f64> {
    let median = quantile(numbers, 0.5);
    let mut deviations: Vec<f64> = numbers.iter().map(|number| (number - median).abs()).collect();
    deviations.sort_unstable_by(f64::total_cmp);
    deviations
}

/// A quantile of ascending numbers, linear between two of them.
fn quantile(numbers: &[f64], share: f64) -> f64 {
    let at = share * (numbers.len() - 1) as f64;
    let (below, above) = (numbers[at.floor() as usize], numbers[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn spreads_are_those_of_numpy() {
        // numpy: median 3, MAD median(|x − 3|) = 1; different numbers 1, 2, 3, 4, 20: quantile(|x − 3|, 0.1) = 0.4.
        let found = of_numbers(vec![3.0, 1.0, 2.0, 3.0, 4.0, 20.0, 3.0]).expect("a spread");
        assert_eq!((found.range, found.mad), (19.0, 1.0));
        assert!((found.small - 0.4).abs() < 1e-12, "{}", found.small);
        let constant = of_numbers(vec![5.0; 3]).expect("a spread");
        assert_eq!(constant, FeatureSpread { range: 0.0, mad: 1.0, small: 0.0 });
        assert_eq!(of_numbers(Vec::new()), None);
    }
}
