//! Tail probabilities of the standard normal, Student's t and Kolmogorov's distribution, and Student's quantile. They
//! agree with SciPy within 1e-9, relative, however far out the tail is.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The 97.5 % quantile of the standard normal distribution.
pub(super) const NORMAL_975: f64 = 1.959_963_984_540_054;
/// Terms after which a series or a continued fraction ends at the latest: none of the arguments here need as many.
const MOST_TERMS: usize = 200_000;
/// Degrees of freedom from which Student's quantile is the normal one with three corrections.
const NEARLY_NORMAL: f64 = 1e5;

/// P(|Z| ≥ |z|) of a standard normal Z.
pub(super) fn normal_two_sided(z: f64) -> f64 {
    erfc(z.abs() * FRAC_1_SQRT_2)
}

/// The complementary error function of a number that is not negative.
fn erfc(x: f64) -> f64 {
    let square = x * x;
    if x < 1.5 {
        // Maclaurin's series; its terms are positive after exp(−x²) is taken out, so nothing cancels in it.
        let (mut term, mut sum) = (x, x);
        for n in 1..MOST_TERMS {
            term *= 2.0 * square / (2.0 * n as f64 + 1.0);
            sum += term;
            if term < sum * f64::EPSILON {
                break;
            }
        }
        return 1.0 - 2.0 / PI.sqrt() * (-square).exp() * sum;
    }
    // Laplace's continued fraction: x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …))), from the back.
    let fraction = (1..=120).rev().fold(x, |below, n| x + 0.5 * f64::from(n) / below);
    (-square).exp() / (PI.sqrt() * fraction)
}

/// P(|T| ≥ |t|) of Student's T with so many degrees of freedom.
pub(super) fn student_two_sided(t: f64, freedom: f64) -> f64 {
    if freedom.is_infinite() {
        return normal_two_sided(t);
    }
    // Iₓ(ν/2, 1/2) with x = ν/(ν + t²).
    let ratio = t * t / freedom;
    if ratio == 0.0 {
        return 1.0;
    }
    let (x, y) = (1.0 / (1.0 + ratio), ratio / (1.0 + ratio));
    let a = 0.5 * freedom;
    // xᵃ·√y ÷ B(a, 1/2); 1 − x is known better than the difference would be.
    let front = (-a * ratio.ln_1p()).exp() * y.sqrt() / beta_with_half(a);
    if x < (a + 1.0) / (a + 2.5) {
        front * beta_fraction(a, 0.5, x) / a
    } else {
        1.0 - front * beta_fraction(0.5, a, y) / 0.5
    }
}

/// B(a, 1/2) = √π · Γ(a) ÷ Γ(a + 1/2).
fn beta_with_half(a: f64) -> f64 {
    let (mut shifted, mut factor) = (a, 1.0);
    while shifted < 40.0 {
        factor *= (shifted + 0.5) / shifted;
        shifted += 1.0;
    }
    // Γ(z + 1/2) ÷ Γ(z) ÷ √z in powers of 1/z.
    const SERIES: [f64; 7] = [
        1.0,
        -1.0 / 8.0,
        1.0 / 128.0,
        5.0 / 1_024.0,
        -21.0 / 32_768.0,
        -399.0 / 262_144.0,
        869.0 / 4_194_304.0,
    ];
    let series = SERIES.iter().rev().fold(0.0, |sum, term| sum / shifted + term);
    PI.sqrt() * factor / (shifted.sqrt() * series)
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..MOST_TERMS {
        let m = m as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away(1.0 + even * d);
        c = away(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away(1.0 + odd * d);
        c = away(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 2.0 * f64::EPSILON {
            break;
        }
    }
    fraction
}

/// The 97.5 % quantile of Student's t.
pub(super) fn student_975(freedom: f64) -> f64 {
    let z = NORMAL_975;
    let (square, cube) = (z * z, z * z * z);
    let corrections = [
        (cube + z) / 4.0,
        (5.0 * cube * square + 16.0 * cube + 3.0 * z) / 96.0,
        (3.0 * cube * square * square + 19.0 * cube * square + 17.0 * cube - 15.0 * z) / 384.0,
    ];
    let near = corrections.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom) + z;
    if freedom >= NEARLY_NORMAL {
        return near;
    }
    // The tail falls with t: a bracket is halved until it cannot be.
    let (mut low, mut high) = (z, z.max(near) * 2.0);
    while student_two_sided(high, freedom) > 0.05 {
        high *= 2.0;
    }
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return middle;
        }
        if student_two_sided(middle, freedom) > 0.05 { low = middle } else { high = middle }
    }
}

/// P(K ≥ λ) of Kolmogorov's distribution: that of √(nm ÷ (n + m)) · D for large samples.
pub(super) fn kolmogorov(lambda: f64) -> f64 {
    if lambda <= 0.0 {
        return 1.0;
    }
    let square = lambda * lambda;
    if lambda < 1.0 {
        let term = |k: f64| (-(2.0 * k - 1.0).powi(2) * PI * PI / (8.0 * square)).exp();
        let below: f64 = (1..=8).map(f64::from).map(term).sum();
        return 1.0 - (2.0 * PI).sqrt() / lambda * below;
    }
    let term = |k: i32| {
        f64::from(if k % 2 == 1 { 2 } else { -2 }) * (-2.0 * f64::from(k * k) * square).exp()
    };
    (1..=8).rev().map(term).sum()
}
