//! The step that a column's numbers have: the decimals or round multiples that nearly all of them share.
//! Counted value by value, so that neither the order of rows nor of batches matters.

use arrow::datatypes::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};

/// Whole multiples of a step, kept as a fraction of whole numbers so that 3 · 0.1 is 0.3: `n · stride /
/// per_one` is the float nearest to the decimal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Multiples {
    /// Units in a step.
    pub stride: f64,
    /// Units in one.
    pub per_one: f64,
    /// Whether training values have this step; otherwise they have none, and it is one that is fine beside
    /// their spread.
    pub observed: bool,
}

/// Share of the numbers that must be multiples of a step. Zero is one of every step and does not count.
const SHARE: f64 = 0.99;
/// Steps in a standard deviation, at least, where the numbers have no step of their own.
const FINE: f64 = 1_000.0;
/// Smallest and largest power of ten in a step.
const EXPONENTS: std::ops::RangeInclusive<i32> = -12..=12;
/// Digits after the point that are tried, one after the other.
const DIGITS: [i32; 5] = [0, 3, 6, 9, 12];
/// Numbers with more digits than this are as floats come.
const MOST_UNITS: f64 = 1e13;
/// The same for single precision.
const MOST_SINGLE_UNITS: f64 = 1e7;
/// Different numbers, at least, for a step that is coarser than their last digit …
const DISTINCT: usize = 4;
/// … and how unlikely it must be that so many of them share it by chance.
const CHANCE: f64 = 1e-4;
/// Largest power of ten that is exact in `f64`.
const EXACT_POWER: i32 = 22;

impl Multiples {
    /// The distance between two of them.
    pub fn step(&self) -> f64 {
        self.stride / self.per_one
    }

    /// The nearest of them.
    #[inline]
    pub fn nearest(&self, number: f64) -> f64 {
        self.at(self.count(number).round_ties_even())
    }

    /// How many steps a number is from zero.
    #[inline]
    pub fn count(&self, number: f64) -> f64 {
        number * self.per_one / self.stride
    }

    /// So many steps. Adding zero takes the sign from a negative zero.
    #[inline]
    pub fn at(&self, count: f64) -> f64 {
        count * self.stride / self.per_one + 0.0
    }

    /// The next of them above (1) or below (-1) a number.
    pub fn beside(&self, number: f64, side: f64) -> f64 {
        let count = self.count(number);
        let nearest = count.round_ties_even();
        let next = if self.is_one(number) {
            nearest + side
        } else if side > 0.0 {
            count.ceil()
        } else {
            count.floor()
        };
        self.at(next)
    }

    /// Whether a number is one of them, but for what binary fractions of single precision lose.
    pub fn is_one(&self, number: f64) -> bool {
        let count = self.count(number);
        let rounding = f64::from(f32::EPSILON) * count.abs();
        (count - count.round_ties_even()).abs() <= (1e-6 + rounding).min(0.1)
    }

    /// Whether it can have been found in a table.
    pub fn is_sound(&self) -> bool {
        let whole = |number: f64| number >= 1.0 && number.fract() == 0.0 && number <= 1e22;
        whole(self.stride) && whole(self.per_one)
    }

    fn of(unit: DecimalUnit, observed: bool) -> Multiples {
        let power = |exponent: i32| 10f64.powi(exponent);
        let (stride, per_one) = match unit.exponent {
            exponent if exponent < 0 => (unit.multiple, power(-exponent)),
            exponent => (unit.multiple * power(exponent), 1.0),
        };
        Multiples { stride, per_one, observed }
    }
}

/// `multiple · 10^exponent`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DecimalUnit {
    multiple: f64,
    exponent: i32,
}

/// Multiples of a power of ten: a value's last digits, without zeros, are in one of these classes.
const MULTIPLES: [u64; 4] = [1, 2, 5, 25];

/// Counts of the numbers of a column by the steps that they have.
#[derive(Debug, Clone, Default)]
pub(super) struct StepCounts {
    column: Option<NumberKind>,
    zeros: u64,
    others: u64,
    counts: Vec<u64>,
}

/// What numbers of a column are looked for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum NumberKind {
    Double,
    Single,
    /// Whole numbers and decimals: their type has a step of its own.
    Exact,
    /// So many units in a second.
    Time(i64),
    /// Too short a type for decimals to be seen.
    None,
}

impl NumberKind {
    fn of(data_type: &DataType) -> NumberKind {
        match data_type {
            DataType::Float64 => NumberKind::Double,
            DataType::Float32 => NumberKind::Single,
            DataType::Float16 | DataType::Date32 => NumberKind::None,
            DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => {
                NumberKind::Time(1_000)
            }
            DataType::Timestamp(TimeUnit::Second, _) => NumberKind::Time(1),
            DataType::Timestamp(TimeUnit::Microsecond, _) => NumberKind::Time(1_000_000),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => NumberKind::Time(1_000_000_000),
            _ => NumberKind::Exact,
        }
    }
}

/// Seconds in a second, minute, hour and day: steps that times have.
const SECONDS: [i64; 4] = [1, 60, 3_600, 86_400];

impl StepCounts {
    /// Says what the column's type is; before any number of it.
    pub(super) fn begin(&mut self, data_type: &DataType) {
        if self.column.is_none() {
            self.column = Some(NumberKind::of(data_type));
            self.counts = vec![0; EXPONENTS.count() * MULTIPLES.len()];
        }
    }

    /// Counts a finite number.
    #[inline]
    pub(super) fn add(&mut self, number: f64) {
        if number == 0.0 {
            self.zeros += 1;
            return;
        }
        let slot = match self.column {
            Some(NumberKind::Double | NumberKind::Exact) => {
                decimal(number, MOST_UNITS, 4.0 * f64::EPSILON)
            }
            Some(NumberKind::Single) => {
                decimal(number, MOST_SINGLE_UNITS, 0.505 * f64::from(f32::EPSILON))
            }
            Some(NumberKind::Time(per_second)) => time(number, per_second),
            Some(NumberKind::None) | None => None,
        };
        match slot {
            Some(slot) => self.counts[slot] += 1,
            None => self.others += 1,
        }
    }

    /// Adds another's counts.
    pub(super) fn merge(&mut self, other: &StepCounts) {
        if self.column.is_none() {
            self.column = other.column;
            self.counts.resize(other.counts.len(), 0);
        }
        self.zeros += other.zeros;
        self.others += other.others;
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
    }

    /// The step of the numbers, of which about `distinct` are different.
    pub(super) fn finish(&self, distinct: usize, std: f64) -> Option<Multiples> {
        let found = match self.column? {
            NumberKind::None => return None,
            NumberKind::Time(per_second) => return self.time_step(per_second),
            NumberKind::Double | NumberKind::Single | NumberKind::Exact => {
                self.decimal_step(distinct)
            }
        };
        let floats = matches!(self.column, Some(NumberKind::Double | NumberKind::Single));
        let fine = || fine_step(std).filter(|_| floats);
        found.map(|unit| Multiples::of(unit, true)).or_else(fine)
    }

    fn enough(&self, covered: u64) -> bool {
        let all = self.others + self.counts.iter().sum::<u64>();
        all > 0 && covered as f64 >= SHARE * all as f64
    }

    /// The coarsest step that nearly all numbers have, if that can hardly be chance.
    fn decimal_step(&self, distinct: usize) -> Option<DecimalUnit> {
        let digit = EXPONENTS.rev().filter(|exponent| *exponent <= 0);
        let mut digit = digit.map(|exponent| DecimalUnit { multiple: 1.0, exponent });
        let digit = digit.find(|unit| self.enough(self.covered(*unit)))?;
        // Zero is no number that could have been another.
        let distinct = distinct.saturating_sub(usize::from(self.zeros > 0));
        let by_design = |unit: &DecimalUnit| {
            let coarser = unit.multiple * 10f64.powi(unit.exponent - digit.exponent);
            let chance = coarser.powf(-(distinct.min(64) as f64));
            *unit == digit || (distinct >= DISTINCT && chance <= CHANCE)
        };
        let coarsest_first = EXPONENTS.rev().flat_map(|exponent| {
            let of = |multiple, exponent| DecimalUnit { multiple, exponent };
            [of(5.0, exponent), of(25.0, exponent - 1), of(2.0, exponent), of(1.0, exponent)]
        });
        let mut steps = coarsest_first.filter(|unit| EXPONENTS.contains(&unit.exponent));
        steps.find(|unit| by_design(unit) && self.enough(self.covered(*unit)))
    }

    /// Numbers that are multiples of a step, without zeros.
    fn covered(&self, unit: DecimalUnit) -> u64 {
        let mut sum = 0;
        for (slot, count) in self.counts.iter().enumerate() {
            let exponent = EXPONENTS.start() + (slot / MULTIPLES.len()) as i32;
            let digits = MULTIPLES[slot % MULTIPLES.len()];
            let scaled = match exponent - unit.exponent {
                0 => digits,
                1 => 10 * digits,
                // A hundred is a multiple of every one of them.
                2.. => 100,
                _ => continue,
            };
            if scaled.is_multiple_of(unit.multiple as u64) {
                sum += count;
            }
        }
        sum
    }

    /// The coarsest step of times that nearly all have.
    fn time_step(&self, per_second: i64) -> Option<Multiples> {
        let mut found = None;
        for (slot, seconds) in SECONDS.into_iter().enumerate() {
            if self.enough(self.counts[slot..SECONDS.len()].iter().sum()) {
                found = Some((seconds * per_second) as f64);
            }
        }
        let stride = found.filter(|stride| *stride > 1.0)?;
        Some(Multiples { stride, per_one: 1.0, observed: true })
    }
}

/// Where a number is counted, by its last digits: none if it has more of them than people write.
#[inline]
fn decimal(number: f64, most: f64, rounding: f64) -> Option<usize> {
    for digits in DIGITS {
        let scaled = number.abs() * POWERS[digits as usize];
        if scaled >= most {
            return None;
        }
        let whole = scaled.round_ties_even();
        if (scaled - whole).abs() <= rounding * scaled {
            return Some(slot(whole as u64, -digits));
        }
    }
    None
}

const POWERS: [f64; 13] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12];

/// Where `whole · 10^exponent` is counted.
fn slot(mut whole: u64, mut exponent: i32) -> usize {
    while whole.is_multiple_of(10) && exponent < *EXPONENTS.end() {
        whole /= 10;
        exponent += 1;
    }
    let class = MULTIPLES.iter().rposition(|multiple| whole.is_multiple_of(*multiple)).unwrap_or(0);
    (exponent - EXPONENTS.start()) as usize * MULTIPLES.len() + class
}

/// Where a time is counted: by the longest of [`SECONDS`] that it is a multiple of.
fn time(number: f64, per_second: i64) -> Option<usize> {
    SECONDS.iter().rposition(|seconds| (number as i64) % (seconds * per_second) == 0)
}

/// A power of ten that is fine beside a spread.
fn fine_step(std: f64) -> Option<Multiples> {
    let exponent = (std / FINE).log10().floor();
    let exact = exponent.abs() <= f64::from(EXACT_POWER);
    exact.then(|| Multiples::of(DecimalUnit { multiple: 1.0, exponent: exponent as i32 }, false))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn counted(numbers: &[f64], data_type: &DataType) -> StepCounts {
        let mut counts = StepCounts::default();
        counts.begin(data_type);
        numbers.iter().for_each(|number| counts.add(*number));
        counts
    }

    fn found(numbers: &[f64], data_type: &DataType) -> Option<(f64, bool)> {
        let mut distinct = numbers.to_vec();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>();
        let std = (variance / numbers.len() as f64).sqrt();
        let found = counted(numbers, data_type).finish(distinct.len(), std);
        found.map(|found| (found.step(), found.observed))
    }

    fn run(step: f64, per: f64) -> Vec<f64> {
        (0..100).map(|slot| f64::from(slot * 7 % 100) * step / per).collect()
    }

    #[test]
    fn columns_have_the_steps_that_people_write() {
        let double = &DataType::Float64;
        for (stride, per) in [(5.0, 1e3), (1.0, 10.0), (25.0, 100.0), (100.0, 1.0), (2.0, 1.0)] {
            assert_eq!(found(&run(stride, per), double), Some((stride / per, true)));
            let single: Vec<f64> =
                run(stride, per).iter().map(|number| f64::from(*number as f32)).collect();
            assert_eq!(found(&single, &DataType::Float32), Some((stride / per, true)));
        }
        assert_eq!(found(&run(50.0, 1.0), &DataType::Int64), Some((50.0, true)));
        assert_eq!(found(&run(1.0, 100.0), &DataType::Decimal128(9, 2)), Some((0.01, true)));
    }

    #[test]
    fn few_different_numbers_say_nothing_of_a_coarse_step() {
        let double = &DataType::Float64;
        assert_eq!(found(&[0.0, 1.0, 1.0, 0.0], double), Some((1.0, true)));
        assert_eq!(found(&[0.0, 5000.0, 5000.0, 0.0], double), Some((1.0, true)));
        assert_eq!(found(&[0.25, 0.5, 0.75, 1.0, 1.25], double), Some((0.25, true)));
    }

    #[test]
    fn one_in_a_hundred_may_be_off_and_zeros_do_not_count() {
        let mut numbers = run(1.0, 10.0);
        numbers.push(0.123_456_789_1);
        assert_eq!(found(&numbers, &DataType::Float64), Some((0.1, true)));
        numbers.push(0.987_654_321_3);
        assert_eq!(found(&numbers, &DataType::Float64).map(|found| found.0), Some(1e-10));
        let mut numbers = vec![0.0; 10_000];
        numbers.extend((1..50).map(|slot| f64::from(slot).sqrt()));
        assert_eq!(found(&numbers, &DataType::Float64), Some((1e-4, false)));
    }

    #[test]
    fn numbers_without_a_step_get_one_that_is_fine_beside_their_spread() {
        let noise = |scale: f64| -> Vec<f64> {
            (1..500).map(|slot| (f64::from(slot) * 0.7).sin() * scale).collect()
        };
        assert_eq!(found(&noise(1.0), &DataType::Float64), Some((1e-4, false)));
        assert_eq!(found(&noise(1e6), &DataType::Float64), Some((100.0, false)));
        let single: Vec<f64> = noise(1.0).iter().map(|number| f64::from(*number as f32)).collect();
        assert_eq!(found(&single, &DataType::Float32), Some((1e-4, false)));
        assert_eq!(found(&noise(1.0), &DataType::Float16), None);
        assert_eq!(found(&[0.0; 9], &DataType::Float64), None);
        assert_eq!(found(&[1.0 / 3.0; 9], &DataType::Float64), None, "without a spread");
    }

    #[test]
    fn times_have_the_steps_of_clocks() {
        let unit = DataType::Timestamp(TimeUnit::Microsecond, None);
        let days: Vec<f64> = (19_000..19_100).map(|day| f64::from(day) * 86_400e6).collect();
        assert_eq!(found(&days, &unit), Some((86_400e6, true)));
        let minutes: Vec<f64> = days.iter().map(|day| day + 61.0 * 60e6).collect();
        assert_eq!(found(&minutes, &unit), Some((60e6, true)));
        let fine: Vec<f64> = days.iter().map(|day| day + 17.0).collect();
        assert_eq!(found(&fine, &unit), None);
    }

    proptest! {
        #[test]
        fn multiples_are_what_their_decimal_says(count in -1_000_000i64..1_000_000, exponent in -9i32..=6, multiple in select(vec![1.0, 2.0, 5.0, 25.0])) {
            let multiples = Multiples::of(DecimalUnit { multiple, exponent }, true);
            let number = multiples.at(count as f64);
            let decimal: f64 = format!("{}e{exponent}", count * multiple as i64).parse().expect("a number");
            prop_assert_eq!(number, decimal);
            prop_assert_eq!(multiples.nearest(number + 0.3 * multiples.step()), number);
        }

        #[test]
        fn the_order_of_numbers_does_not_matter(mut numbers in prop::collection::vec(prop_oneof![Just(0.5), -1e6f64..1e6, (-500i32..500).prop_map(|n| f64::from(n) / 100.0)], 1..80), cut in 0usize..80) {
            let cut = cut.min(numbers.len());
            let double = &DataType::Float64;
            let whole = counted(&numbers, double);
            let mut merged = counted(&numbers[cut..], double);
            merged.merge(&counted(&numbers[..cut], double));
            numbers.reverse();
            for other in [merged, counted(&numbers, double)] {
                prop_assert_eq!(whole.finish(9, 1.0), other.finish(9, 1.0));
            }
        }
    }
}
