//! Arithmetic on several numbers at once: points side by side, powers of two, sines and cosines. Written
//! over arrays of fixed length so that the compiler uses vector registers; what is summed up, and why,
//! is described elsewhere.

use std::f32::consts::{LN_2, PI};

/// Points that are computed side by side. So many that the compiler keeps a loop over them, which it can
/// turn into vector instructions; short loops are unrolled first and then put together badly.
pub(super) const LANES: usize = 64;
/// Dimensions that are gone through at once: those of an encoder's points, without a stop in memory.
const AT_ONCE: usize = 5;
/// Partial sums of lanes, so that no addition has to wait for the one before.
const PARTS: usize = 8;

/// One number for each of the points side by side.
pub(super) type PointLanes = [f32; LANES];

/// Adding and subtracting it rounds a number below 2²² to a whole one, which is then in its low bits.
const ROUNDER: f32 = 12_582_912.0;
/// Larger exponents leave the range of `f32`; the power is nought beside anything else anyhow.
const LARGEST_EXPONENT: f32 = 126.0;

/// 2^x for |x| <= ½ by powers of x, interpolated at Chebyshev's points: relative error 2e-9 before
/// rounding.
const EXP2: [f32; 7] =
    [1.0, LN_2, 0.240_226_5, 0.055_503_27, 0.009_618_057, 0.001_340_042_8, 0.000_154_614_45];
/// sin(πx)/x for |x| <= ½ by powers of x², likewise: error 1e-8.
const SIN: [f32; 5] = [PI, -5.167_710_3, 2.550_077_4, -0.598_290_4, 0.077_655_91];
/// cos(πx) for |x| <= ½ by powers of x², likewise: error 5e-8.
const COS: [f32; 5] = [0.999_999_94, -4.934_793, 4.058_410_6, -1.331_872_9, 0.219_682_42];

/// Does arithmetic with the widest vector instructions that the machine has; it must be inlined as a whole.
/// The numbers are the same with any: each lane is computed on its own, and nothing is contracted.
#[inline(always)]
pub(super) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// Points in groups that lie side by side: per group and dimension one number of each point.
#[derive(Debug, Clone)]
pub(super) struct PackedPoints {
    numbers: Vec<PointLanes>,
    dimension: usize,
    /// Points at the end of the last group that are none.
    pub(super) padding: usize,
}

impl PackedPoints {
    /// Packs points; what is missing in the last group is filled with `filler`.
    pub(super) fn new(points: &[f32], dimension: usize, filler: f32) -> PackedPoints {
        let count = points.len() / dimension;
        let groups = count.div_ceil(LANES);
        let mut numbers = vec![[filler; LANES]; groups * dimension];
        for (row, point) in points.chunks_exact(dimension).enumerate() {
            let group = &mut numbers[row / LANES * dimension..][..dimension];
            group.iter_mut().zip(point).for_each(|(lanes, number)| lanes[row % LANES] = *number);
        }
        PackedPoints { numbers, dimension, padding: groups * LANES - count }
    }

    /// Groups of points.
    pub(super) fn groups(&self) -> usize {
        self.numbers.len() / self.dimension
    }

    /// All groups.
    #[inline(always)]
    pub(super) fn all(&self) -> std::slice::ChunksExact<'_, PointLanes> {
        self.slice(0..self.groups())
    }

    /// Some groups, each a number of lanes as long as a point has dimensions.
    #[inline(always)]
    pub(super) fn slice(
        &self,
        groups: std::ops::Range<usize>,
    ) -> std::slice::ChunksExact<'_, PointLanes> {
        let (start, end) = (groups.start * self.dimension, groups.end * self.dimension);
        self.numbers[start..end].chunks_exact(self.dimension)
    }
}

/// Adds the kernel 2^-d² between a point and those of a group.
#[inline(always)]
pub(super) fn add_kernel(sums: &mut PointLanes, point: &[f32], group: &[PointLanes]) {
    let distances = squared_distances(point, group);
    for (sum, distance) in sums.iter_mut().zip(&distances) {
        *sum += exp2_of_negative(*distance);
    }
}

/// Adds sines and cosines of the angles, in turns, that the points of a group have at a frequency.
#[inline(always)]
pub(super) fn add_waves(
    sums: (&mut PointLanes, &mut PointLanes),
    frequency: &[f32],
    group: &[PointLanes],
) {
    let turns = products(frequency, group);
    let (sines, cosines) = sums;
    for ((sine, cosine), turn) in sines.iter_mut().zip(cosines).zip(&turns) {
        let (more_sine, more_cosine) = sin_cos_of_turns(*turn);
        *sine += more_sine;
        *cosine += more_cosine;
    }
}

/// The sum of all lanes.
#[inline(always)]
pub(super) fn total(lanes: &PointLanes) -> f64 {
    let mut parts = [0.0; PARTS];
    for numbers in lanes.as_chunks::<PARTS>().0 {
        for (part, number) in parts.iter_mut().zip(numbers) {
            *part += f64::from(*number);
        }
    }
    parts.iter().sum()
}

#[inline(always)]
fn squared_distances(point: &[f32], group: &[PointLanes]) -> PointLanes {
    fold(point, group, |sum, number_of_point, other| {
        let gap = number_of_point - other;
        sum + gap * gap
    })
}

#[inline(always)]
fn products(vector: &[f32], group: &[PointLanes]) -> PointLanes {
    fold(vector, group, |sum, factor, number| sum + factor * number)
}

/// Folds, for each point of a group, a vector's numbers and the point's own.
#[inline(always)]
fn fold(vector: &[f32], group: &[PointLanes], step: impl Fn(f32, f32, f32) -> f32) -> PointLanes {
    let mut sums = [0.0; LANES];
    let (several, single) = vector.as_chunks::<AT_ONCE>();
    let (several_lanes, single_lanes) = group.as_chunks::<AT_ONCE>();
    for (numbers, lanes) in several.iter().zip(several_lanes) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            for dimension in 0..AT_ONCE {
                *sum = step(*sum, numbers[dimension], lanes[dimension][lane]);
            }
        }
    }
    for (number, lanes) in single.iter().zip(single_lanes) {
        for (sum, other) in sums.iter_mut().zip(lanes) {
            *sum = step(*sum, *number, *other);
        }
    }
    sums
}

/// 2^-x of x >= 0, to a relative error of 2e-7; NaN gives (almost) nought.
#[inline(always)]
fn exp2_of_negative(number: f32) -> f32 {
    let exponent = if number < LARGEST_EXPONENT { -number } else { -LARGEST_EXPONENT };
    let rounded = exponent + ROUNDER;
    let rest = exponent - (rounded - ROUNDER);
    let fraction = polynomial(&EXP2, rest);
    // The whole part goes into the exponent; the shift drops all of the rounder's bits.
    f32::from_bits(fraction.to_bits().wrapping_add(rounded.to_bits() << 23))
}

/// Sine and cosine of an angle in turns, below 4 million of them, to an error of 1e-6. Beyond, and for
/// NaN, they are of no particular angle but never larger than one.
#[inline(always)]
fn sin_cos_of_turns(turn: f32) -> (f32, f32) {
    // Whole turns are taken off without rounding: that is why angles are in turns.
    let rest = turn - ((turn + ROUNDER) - ROUNDER);
    let rest = if rest < 0.5 { rest } else { 0.5 };
    let rest = if rest > -0.5 { rest } else { -0.5 };
    let square = rest * rest;
    // Half the angle keeps the polynomials short.
    let sine = rest * polynomial(&SIN, square);
    let cosine = polynomial(&COS, square);
    (2.0 * sine * cosine, 1.0 - 2.0 * sine * sine)
}

#[inline(always)]
fn polynomial<const N: usize>(coefficients: &[f32; N], number: f32) -> f32 {
    let mut sum = coefficients[N - 1];
    for coefficient in coefficients[..N - 1].iter().rev() {
        sum = sum * number + coefficient;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_have_a_small_relative_error() {
        let mut worst = 0f64;
        for step in 0..1_000_000u32 {
            let number = step as f32 * 1.2e-4;
            let exact = (-f64::from(number)).exp2();
            let found = f64::from(exp2_of_negative(number));
            worst = worst.max((found / exact - 1.0).abs());
        }
        assert!(worst <= 2e-7, "{worst}");
        assert_eq!(exp2_of_negative(0.0), 1.0);
        for nought in [f32::NAN, f32::INFINITY, 1e30] {
            assert!(exp2_of_negative(nought) < 1e-37);
        }
    }

    #[test]
    fn sines_and_cosines_have_a_small_error() {
        let mut worst = 0f64;
        for step in -1_000_000i32..1_000_000 {
            // Up to 10,000 radians.
            let turn = step as f32 * 1.6e-3;
            let exact = f64::from(turn) * std::f64::consts::TAU;
            let (sine, cosine) = sin_cos_of_turns(turn);
            worst = worst.max((f64::from(sine) - exact.sin()).abs());
            worst = worst.max((f64::from(cosine) - exact.cos()).abs());
        }
        assert!(worst <= 1e-6, "{worst}");
        for odd in [f32::NAN, f32::INFINITY, f32::MAX, -1e20] {
            let (sine, cosine) = sin_cos_of_turns(odd);
            assert!(sine.abs() <= 1.000_001 && cosine.abs() <= 1.000_001);
        }
    }

    #[test]
    fn the_cosine_of_nothing_is_exactly_one() {
        assert_eq!(sin_cos_of_turns(0.0), (0.0, 1.0));
    }

    #[test]
    fn packing_keeps_points_and_fills_up() {
        let points: Vec<f32> = (0..2 * 67).map(|number| number as f32).collect();
        let packed = PackedPoints::new(&points, 2, -1.0);
        assert_eq!((packed.groups(), packed.padding), (2, 61));
        let second = packed.slice(1..2).next().unwrap();
        assert_eq!(second[1][..4], [129.0, 131.0, 133.0, -1.0]);
    }
}
