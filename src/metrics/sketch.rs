//! Quantiles of non-negative numbers in little memory, to within 1 %: counts per bucket, where a bucket
//! is the numbers that share exponent and the first six bits of their fraction. Counts can be added up
//! over batches and files in any order; what the numbers mean is the caller's business.

use crate::feature::ExactSum;

/// Low bits of a number that its bucket does not distinguish. Six bits of fraction are left, so a
/// bucket's middle is within 1/128 of everything in it.
const DROPPED_BITS: u32 = 46;
/// Buckets below infinity.
const BUCKETS: u32 = 0x7ff << (52 - DROPPED_BITS);
/// Buckets that are made room for at either side of a new one: an octave, so that growth is seldom.
const ROOM: u32 = 1 << (52 - DROPPED_BITS);

/// Counts of non-negative numbers, with their exact number, sum and extremes.
#[derive(Debug, Clone)]
pub struct Sketch {
    count: u64,
    zeros: u64,
    /// Does not depend on the order in which files and splits are read.
    sum: ExactSum,
    min: f64,
    max: f64,
    /// The bucket of the first of `counts`.
    first: u32,
    counts: Vec<u64>,
}

impl Default for Sketch {
    fn default() -> Self {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        let sum = ExactSum::default();
        Sketch { count: 0, zeros: 0, sum, min, max, first: 0, counts: Vec::new() }
    }
}

impl Sketch {
    /// An empty one.
    pub fn new() -> Sketch {
        Sketch::default()
    }

    /// Counts a number; negative ones, infinity and NaN are ignored.
    #[inline]
    pub fn add(&mut self, number: f64) {
        if !(0.0..f64::INFINITY).contains(&number) {
            return;
        }
        self.count += 1;
        self.sum.add(number);
        self.min = if number < self.min { number } else { self.min };
        self.max = if number > self.max { number } else { self.max };
        if number == 0.0 {
            self.zeros += 1;
        } else {
            self.put((number.to_bits() >> DROPPED_BITS) as u32, 1);
        }
    }

    /// Adds another sketch's counts.
    pub fn merge(&mut self, other: &Sketch) {
        self.count += other.count;
        self.zeros += other.zeros;
        self.sum.merge(&other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        other.buckets().for_each(|(bucket, count)| self.put(bucket, count));
    }

    /// What is left without a sketch whose numbers are all in it. Its extremes are known to within 1 %.
    pub fn without(&self, part: &Sketch) -> Sketch {
        let mut left = self.clone();
        left.count -= part.count;
        left.zeros -= part.zeros;
        left.sum.subtract(&part.sum);
        let counts = &mut left.counts;
        part.buckets().for_each(|(bucket, count)| counts[(bucket - left.first) as usize] -= count);
        let first = left.buckets().map(|(bucket, _)| middle(bucket)).next();
        let last = left.buckets().map(|(bucket, _)| middle(bucket)).last();
        let zero = (left.zeros > 0).then_some(0.0);
        left.min = zero.or(first).unwrap_or(f64::INFINITY);
        left.max = last.or(zero).unwrap_or(f64::NEG_INFINITY);
        left
    }

    /// Numbers counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Zeros among them.
    pub fn zeros(&self) -> u64 {
        self.zeros
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum.value()
    }

    /// The least; none if nothing was counted.
    pub fn min(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min)
    }

    /// The greatest; none if nothing was counted.
    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }

    /// Their mean; none if nothing was counted.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum() / self.count as f64)
    }

    /// The number that a share of the others lies below, to within 1 %; the ends and zeros are exact.
    /// None if nothing was counted.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.count.checked_sub(1)?;
        self.ranked((share.clamp(0.0, 1.0) * last as f64).round() as u64)
    }

    /// The number that so many others come before, to within 1 %; the ends and zeros are exact. None if there are not
    /// as many.
    pub fn ranked(&self, rank: u64) -> Option<f64> {
        let last = self.count.checked_sub(1).filter(|last| rank <= *last)?;
        if rank == 0 || rank >= last {
            return Some(if rank == 0 { self.min } else { self.max });
        }
        let mut before = self.zeros;
        if rank < before {
            return Some(0.0);
        }
        for (bucket, count) in self.buckets() {
            before += count;
            if rank < before {
                return Some(middle(bucket).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// The same where all numbers are whole: up to 128 the very number. A bucket's middle would be rounded up to the
    /// next one from 64 on, where buckets are one wide.
    pub fn whole_quantile(&self, share: f64) -> Option<f64> {
        self.quantile(share).map(f64::floor)
    }

    /// The buckets that hold something, in order, with their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (self.first..).zip(self.counts.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// How many numbers are at most this; exactly, if it is a [`Sketch::edge`].
    pub fn up_to(&self, edge: f64) -> u64 {
        if edge == 0.0 {
            return self.zeros;
        }
        let last = edge.to_bits() >> DROPPED_BITS;
        let counted = self.buckets().take_while(|(bucket, _)| u64::from(*bucket) <= last);
        self.zeros + counted.map(|(_, count)| count).sum::<u64>()
    }

    /// The greatest number that is not told apart from this one: a number that is not negative.
    pub fn edge(number: f64) -> f64 {
        if number == 0.0 {
            0.0
        } else {
            f64::from_bits(number.to_bits() | ((1 << DROPPED_BITS) - 1))
        }
    }

    #[inline]
    fn put(&mut self, bucket: u32, count: u64) {
        // Below the first, the difference wraps round to beyond the last.
        if bucket.wrapping_sub(self.first) as usize >= self.counts.len() {
            self.make_room(bucket);
        }
        self.counts[(bucket - self.first) as usize] += count;
    }

    #[cold]
    fn make_room(&mut self, bucket: u32) {
        let (mut low, mut high) =
            (bucket.saturating_sub(ROOM), bucket.saturating_add(ROOM).min(BUCKETS));
        if !self.counts.is_empty() {
            low = low.min(self.first);
            high = high.max(self.first + self.counts.len() as u32);
        }
        let mut counts = vec![0; (high - low) as usize];
        let kept = self.first.saturating_sub(low) as usize;
        counts[kept..kept + self.counts.len()].copy_from_slice(&self.counts);
        (self.first, self.counts) = (low, counts);
    }
}

impl PartialEq for Sketch {
    /// The room made for further buckets says nothing.
    fn eq(&self, other: &Sketch) -> bool {
        let numbers = |sketch: &Sketch| (sketch.count, sketch.zeros, sketch.sum());
        numbers(self) == numbers(other)
            && (self.min, self.max) == (other.min, other.max)
            && self.buckets().eq(other.buckets())
    }
}

/// The number in the middle of a bucket.
fn middle(bucket: u32) -> f64 {
    f64::from_bits((u64::from(bucket) << DROPPED_BITS) | (1 << (DROPPED_BITS - 1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sketch(numbers: &[f64]) -> Sketch {
        let mut sketch = Sketch::new();
        numbers.iter().for_each(|number| sketch.add(*number));
        sketch
    }

    #[test]
    fn whole_numbers_come_back_whole() {
        for number in 0..128 {
            let number = f64::from(number);
            // Neither the least nor the greatest, which are known exactly.
            let found = sketch(&[0.0, number, number, number, 1000.0]);
            assert_eq!(found.whole_quantile(0.5), Some(number));
        }
        for number in (128..5000).step_by(7) {
            let number = f64::from(number);
            let found = sketch(&[0.0, number, number, number, 9000.0]).whole_quantile(0.5);
            let found = found.expect("numbers were counted");
            assert!(found.fract() == 0.0 && (found - number).abs() <= 0.01 * number, "{found}");
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        let empty = Sketch::new();
        assert_eq!((empty.quantile(0.5), empty.mean(), empty.min()), (None, None, None));
    }

    #[test]
    fn zeros_and_ends_are_exact() {
        let found = sketch(&[0.0, 0.0, 0.0, 7.77, 123.456]);
        assert_eq!((found.count(), found.zeros()), (5, 3));
        assert_eq!(found.quantile(0.5), Some(0.0));
        assert_eq!((found.quantile(0.0), found.quantile(1.0)), (Some(0.0), Some(123.456)));
        assert_eq!(found.mean(), Some((7.77 + 123.456) / 5.0));
    }

    #[test]
    fn numbers_that_cannot_be_counted_are_ignored() {
        let found = sketch(&[-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2.0, -0.0]);
        assert_eq!((found.count(), found.zeros(), found.max()), (2, 1, Some(2.0)));
    }

    #[test]
    fn the_whole_range_of_numbers_fits() {
        let found = sketch(&[f64::MAX, f64::MIN_POSITIVE, 5e-324, 1.0]);
        assert_eq!(found.buckets().count(), 4);
        assert_eq!((found.min(), found.max()), (Some(5e-324), Some(f64::MAX)));
    }

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent(mut numbers in prop::collection::vec(prop_oneof![Just(0.0), 0f64..1e3, 1e-9f64..1e-3, 1e3f64..1e12], 1..300), share in 0.0f64..=1.0) {
            let found = sketch(&numbers).quantile(share).unwrap();
            numbers.sort_by(f64::total_cmp);
            let exact = numbers[(share * (numbers.len() - 1) as f64).round() as usize];
            prop_assert!((found - exact).abs() <= 0.01 * exact, "{} instead of {}", found, exact);
        }

        #[test]
        fn what_is_up_to_an_edge_is_counted_exactly(numbers in prop::collection::vec(prop_oneof![Just(0.0), 0f64..1e3], 1..300), at in 0usize..300) {
            let edge = Sketch::edge(numbers[at % numbers.len()]);
            let below = numbers.iter().filter(|number| **number <= edge).count();
            prop_assert_eq!(sketch(&numbers).up_to(edge), below as u64);
        }

        #[test]
        fn merging_in_any_order_gives_the_same_buckets(numbers in prop::collection::vec(0f64..1e6, 0..200), cut in 0usize..200) {
            let (left, right) = numbers.split_at(cut.min(numbers.len()));
            let whole = sketch(&numbers);
            let (mut forwards, mut backwards) = (sketch(left), sketch(right));
            forwards.merge(&sketch(right));
            backwards.merge(&sketch(left));
            prop_assert!(whole.buckets().eq(forwards.buckets()));
            prop_assert_eq!(&forwards, &backwards);
            prop_assert_eq!(whole.sum().to_bits(), forwards.sum().to_bits());
            prop_assert_eq!((whole.count(), whole.min(), whole.max()), (forwards.count(), forwards.min(), forwards.max()));
        }

        #[test]
        fn the_order_of_numbers_does_not_matter(numbers in prop::collection::vec(0f64..1e6, 0..200)) {
            let backwards: Vec<f64> = numbers.iter().rev().copied().collect();
            prop_assert_eq!(sketch(&numbers).sum().to_bits(), sketch(&backwards).sum().to_bits());
        }
    }
}
