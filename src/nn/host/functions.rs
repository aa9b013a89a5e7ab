//! Functions of single numbers that the compiler turns into vector instructions, and sums in a fixed order of
//! partial sums. All are inlined where the instructions of the machine are known.

use std::f32::consts::LOG2_E;

use pulp::{Arch, NullaryFnOnce};

/// Partial sums, so that no addition waits for the one before.
const LANES: usize = 16;

/// Beyond it tanh is one in 32 bits.
const TANH_END: f32 = 7.905_311;
/// tanh as a quotient of powers of x²: the numerator's, highest first, times x …
const TANH_ABOVE: [f32; 7] = [
    -2.760_768_5e-16,
    2.000_188e-13,
    -8.604_672e-11,
    5.122_297e-8,
    1.485_722_4e-5,
    6.372_619_3e-4,
    4.893_524_6e-3,
];
/// … and the denominator's.
const TANH_BELOW: [f32; 4] = [1.198_258_4e-6, 1.185_347e-4, 2.268_434_6e-3, 4.893_525e-3];

/// e^x for |x| ≤ ½ ln 2, beyond 1 + x: powers of x, highest first, times x².
const EXP: [f32; 6] =
    [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
/// ln 2 in two parts, the first of few bits.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// e^x below it has no normal number.
const EXP_LOW: f32 = -87.0;
/// e^x above it is near the greatest number.
const EXP_HIGH: f32 = 88.0;

/// ln(1 + x) for a number from √½ to √2 that is one more than x: powers of x, highest first, times x³.
const LN: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_8e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    1.0 / 3.0,
];
/// Bits of a number's fraction, and those of ½.
const FRACTION: u32 = 0x007f_ffff;
const HALF: u32 = 0x3f00_0000;

/// tanh, to a few units of the last place.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    // Not `clamp`: a NaN must stay one.
    let x = if x > TANH_END { TANH_END } else { x };
    let x = if x < -TANH_END { -TANH_END } else { x };
    let square = x * x;
    let above = powers(&TANH_ABOVE, square) * x;
    above / powers(&TANH_BELOW, square)
}

/// e^x, to a few units of the last place; nearly nought for what is far below it.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let x = if x < EXP_LOW { EXP_LOW } else { x };
    let x = if x > EXP_HIGH { EXP_HIGH } else { x };
    let whole = (x * LOG2_E + 0.5).floor();
    let rest = x - whole * LN_2[0] - whole * LN_2[1];
    let value = powers(&EXP, rest) * rest * rest + rest + 1.0;
    // A NaN has no exponent, and stays what it is.
    let exponent = (whole as i32 + 127) << 23;
    value * f32::from_bits(exponent as u32)
}

/// ln of a positive number that is neither very small nor infinite.
#[inline(always)]
fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    let exponent = ((bits >> 23) as i32 - 126) as f32;
    let fraction = f32::from_bits(bits & FRACTION | HALF);
    let small = fraction < std::f32::consts::FRAC_1_SQRT_2;
    let exponent = if small { exponent - 1.0 } else { exponent };
    let rest = if small { fraction + fraction - 1.0 } else { fraction - 1.0 };
    let square = rest * rest;
    let curved = powers(&LN, rest) * rest * square + LN_2[1] * exponent - 0.5 * square;
    // A NaN has bits like any number; it stays one.
    rest + curved + LN_2[0] * exponent + x * 0.0
}

/// The inverse of tanh, for what lies between −1 and 1.
#[inline(always)]
fn atanh(x: f32) -> f32 {
    0.5 * ln((1.0 + x) / (1.0 - x))
}

/// The inverse of tanh of all numbers, none farther from nought than this, which is less than one.
pub fn atanh_all(values: &mut [f32], most: f32) {
    Arch::new().dispatch(AtanhAll(values, most));
}

struct AtanhAll<'a>(&'a mut [f32], f32);

impl NullaryFnOnce for AtanhAll<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let AtanhAll(values, most) = self;
        values.iter_mut().for_each(|value| *value = atanh(value.clamp(-most, most)));
    }
}

/// tanh of all numbers.
pub fn tanh_all(values: &mut [f32]) {
    Arch::new().dispatch(TanhAll(values));
}

struct TanhAll<'a>(&'a mut [f32]);

impl NullaryFnOnce for TanhAll<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.0.iter_mut().for_each(|value| *value = tanh(*value));
    }
}

#[inline(always)]
fn powers<const COUNT: usize>(factors: &[f32; COUNT], x: f32) -> f32 {
    factors.iter().fold(0.0, |sum, factor| sum * x + factor)
}

/// The sum of some numbers.
#[inline(always)]
pub(super) fn sum(values: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().sum();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane += value);
    }
    folded(lanes) + rest
}

/// The sum of the products of some numbers.
#[inline(always)]
pub(super) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (lefts, rights) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest = lefts.remainder().iter().zip(rights.remainder());
    let rest: f32 = rest.map(|(left, right)| left * right).sum();
    for (left, right) in lefts.zip(rights) {
        for ((lane, left), right) in lanes.iter_mut().zip(left).zip(right) {
            *lane += left * right;
        }
    }
    folded(lanes) + rest
}

#[inline(always)]
fn folded(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The index of the greatest number, the first of equals.
#[inline(always)]
pub(super) fn greatest(values: &[f32]) -> usize {
    let later = |best: usize, index: usize| if values[index] > values[best] { index } else { best };
    (1..values.len()).fold(0, later)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_agree_with_the_library_s() {
        for step in -4_000..4_000 {
            let x = step as f32 * 0.003;
            let wide = f64::from(x);
            assert!((f64::from(tanh(x)) - wide.tanh()).abs() < 5e-7, "tanh {x}: {}", tanh(x));
            assert!(tanh(x).abs() <= 1.0, "{x}");
            let relative = f64::from(exp(x)) / wide.exp() - 1.0;
            assert!(relative.abs() < 5e-7, "exp {x}: {}", exp(x));
        }
        for step in -9_999..10_000 {
            let x = step as f32 * 1e-4;
            let (found, expected) = (f64::from(atanh(x)), f64::from(x).atanh());
            assert!((found - expected).abs() < 3e-7 * (1.0 + expected.abs()), "atanh {x}: {found}");
        }
        let mut ends = [-1.0, 0.0, 2.0, f32::NAN];
        atanh_all(&mut ends, 1.0 - 1e-6);
        assert!(ends[0] < -7.0 && ends[1] == 0.0 && ends[2] > 7.0 && ends[3].is_nan());
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(tanh(0.0), 0.0);
        assert!(exp(-1e30) < 1e-37 && exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }

    #[test]
    fn sums_have_every_number() {
        for count in [0usize, 1, 15, 16, 17, 75, 256] {
            let values: Vec<f32> = (0..count).map(|index| index as f32).collect();
            let expected = (count * count.saturating_sub(1) / 2) as f32;
            assert_eq!(sum(&values), expected);
            assert_eq!(dot(&values, &vec![2.0; count]), 2.0 * expected);
        }
        assert_eq!(greatest(&[1.0, 3.0, 3.0, 2.0]), 1);
    }
}
