//! Quantiles of a stream in bounded memory, independent of its order: counts per bin, where a bin is
//! the numbers that share sign, exponent and the first eight bits of their fraction. A quantile is
//! therefore within 0.4 % of its value, and exact where a bin holds a single value (all whole numbers
//! below 512, most small sets).

use hashbrown::HashMap;

/// Low bits of a number's order key that a bin does not distinguish.
const DROPPED_BITS: u32 = 44;

/// Counts per bin.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    bins: HashMap<u32, Bin>,
}

#[derive(Debug, Clone, Copy)]
struct Bin {
    count: u64,
    low: f64,
    high: f64,
}

impl Histogram {
    /// Counts a finite number.
    pub(super) fn add(&mut self, number: f64) {
        let bin = Bin { count: 1, low: number, high: number };
        self.put((order_key(number) >> DROPPED_BITS) as u32, bin);
    }

    /// Adds another histogram's counts.
    pub(super) fn merge(&mut self, other: &Histogram) {
        for (key, bin) in &other.bins {
            self.put(*key, *bin);
        }
    }

    fn put(&mut self, key: u32, more: Bin) {
        let bin = self.bins.entry(key).or_insert(Bin { count: 0, ..more });
        bin.count += more.count;
        bin.low = bin.low.min(more.low);
        bin.high = bin.high.max(more.high);
    }

    /// The values below which the given shares of the numbers lie; empty if nothing was counted.
    pub(super) fn quantiles(&self, shares: &[f64]) -> Vec<f64> {
        let mut bins: Vec<(&u32, &Bin)> = self.bins.iter().collect();
        bins.sort_unstable_by_key(|(key, _)| **key);
        let total: u64 = bins.iter().map(|(_, bin)| bin.count).sum();
        if total == 0 {
            return Vec::new();
        }
        shares.iter().map(|share| at_rank(&bins, share * (total - 1) as f64)).collect()
    }
}

/// The number at a rank, interpolated inside its bin.
fn at_rank(bins: &[(&u32, &Bin)], rank: f64) -> f64 {
    let mut before = 0.0;
    for (_, bin) in bins {
        let count = bin.count as f64;
        if rank < before + count {
            let inside = if bin.count > 1 { (rank - before) / (count - 1.0) } else { 0.0 };
            return bin.low + (bin.high - bin.low) * inside.clamp(0.0, 1.0);
        }
        before += count;
    }
    bins.last().map_or(f64::NAN, |(_, bin)| bin.high)
}

/// A key that sorts as the numbers do.
fn order_key(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_whole_numbers_have_exact_quantiles() {
        let mut histogram = Histogram::default();
        (0..=100).for_each(|number| histogram.add(f64::from(number)));
        assert_eq!(histogram.quantiles(&[0.0, 0.25, 0.5, 1.0]), [0.0, 25.0, 50.0, 100.0]);
        assert!(Histogram::default().quantiles(&[0.5]).is_empty());
    }

    proptest! {
        #[test]
        fn quantiles_are_close_to_the_sorted_ones(mut numbers in prop::collection::vec(-1e6f64..1e6, 1..300)) {
            let mut histogram = Histogram::default();
            numbers.iter().for_each(|number| histogram.add(*number));
            numbers.sort_by(f64::total_cmp);
            for share in [0.0, 0.1, 0.5, 0.9, 1.0] {
                let rank = share * (numbers.len() - 1) as f64;
                let (low, high) = (numbers[rank.floor() as usize], numbers[rank.ceil() as usize]);
                let found = histogram.quantiles(&[share])[0];
                let slack = 0.004 * low.abs().max(high.abs());
                prop_assert!(found >= low - slack && found <= high + slack, "{} not in {}..{}", found, low, high);
            }
        }
    }
}
