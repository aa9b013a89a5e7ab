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

    /// Bins that hold numbers: no more than there are different ones.
    pub(super) fn len(&self) -> usize {
        self.bins.len()
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

/// Values at each end that never count as the middle: one in so many …
const TRIMMED_SHARE: u64 = 1_000;
/// … or so many of a small table …
const TRIMMED: u64 = 3;
/// … unless it is so small that they would be more than one in twenty.
const TRIMMED_MOST: u64 = 20;
/// How far the middle reaches beyond what is left, in lengths of that.
const REACH: f64 = 10.0;
/// Values outside the middle count for nothing where they would make the deviation so many times as large.
/// No table of measurements comes near; a slip of the pen, a filler such as 1e30 or a broken sensor does.
const DOMINATED: f64 = 1_000.0;

impl Histogram {
    /// Mean and standard deviation of the middle, where the few values outside of it dominate those of all;
    /// `std` is that of all, none if it is beyond what numbers can say.
    pub(super) fn middle(&self, std: Option<f64>) -> Option<(f64, f64)> {
        let mut bins: Vec<(&u32, &Bin)> = self.bins.iter().collect();
        bins.sort_unstable_by_key(|(key, _)| **key);
        let bins: Vec<&Bin> = bins.into_iter().map(|(_, bin)| bin).collect();
        let total: u64 = bins.iter().map(|bin| bin.count).sum();
        let trimmed = (total / TRIMMED_SHARE).max(TRIMMED.min(total / TRIMMED_MOST));
        let low = end(bins.iter().copied(), trimmed)?.low;
        let high = end(bins.iter().rev().copied(), trimmed)?.high;
        let reach = REACH * (high - low);
        let inside = |bin: &&Bin| bin.low >= low - reach && bin.high <= high + reach;
        let (mean, deviation) = moments(bins.into_iter().filter(inside));
        match std {
            Some(std) if std <= DOMINATED * deviation || deviation == 0.0 => None,
            _ => Some((mean, deviation)),
        }
    }
}

/// The bin of the value before which so many others come.
fn end<'b>(bins: impl Iterator<Item = &'b Bin>, before: u64) -> Option<&'b Bin> {
    let mut left = before;
    for bin in bins {
        if left < bin.count {
            return Some(bin);
        }
        left -= bin.count;
    }
    None
}

/// Mean and standard deviation of values, each of which is taken for the middle of its bin. In units of the
/// largest, so that no square leaves the range of numbers.
fn moments<'b>(bins: impl Iterator<Item = &'b Bin> + Clone) -> (f64, f64) {
    let unit = bins.clone().map(|bin| bin.low.abs().max(bin.high.abs())).fold(0.0, f64::max);
    let total: u64 = bins.clone().map(|bin| bin.count).sum();
    if unit == 0.0 || total == 0 {
        return (0.0, 0.0);
    }
    let total = total as f64;
    let middle = |bin: &Bin| 0.5 * (bin.low / unit) + 0.5 * (bin.high / unit);
    let mean: f64 = bins.clone().map(|bin| bin.count as f64 * middle(bin)).sum::<f64>() / total;
    let square = |bin: &Bin| bin.count as f64 * (middle(bin) - mean).powi(2);
    let squares: f64 = bins.map(square).sum();
    // Of values that are all alike, what rounding leaves is no deviation.
    let deviation = (squares / total).sqrt();
    (mean * unit, if deviation < 1e-12 { 0.0 } else { deviation * unit })
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

    #[test]
    fn a_few_values_far_away_are_left_out() {
        let mut histogram = Histogram::default();
        (0..2_000).for_each(|number| histogram.add(f64::from(number % 100)));
        let plain = |histogram: &Histogram| histogram.middle(Some(28.9));
        assert_eq!(plain(&histogram), None, "all alike");
        histogram.add(1e300);
        histogram.add(-1e250);
        let (mean, std) = histogram.middle(None).expect("dominated");
        assert!((mean - 49.5).abs() < 1.0 && (std - 28.9).abs() < 1.0, "{mean} {std}");
        assert!(histogram.middle(Some(1e5)).is_some() && histogram.middle(Some(2e4)).is_none());
    }

    #[test]
    fn values_of_any_size_have_moments() {
        for size in [f64::MAX, 1e300, 1e-300, 5e-324] {
            let mut histogram = Histogram::default();
            (0..100).for_each(|number| histogram.add(if number % 2 == 0 { size } else { -size }));
            let (mean, std) = histogram.middle(None).expect("asked for");
            assert!(mean.abs() <= std && std.is_finite() && std > 0.0, "{size}: {mean} {std}");
        }
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
