//! Whether two groups differ: intervals of the difference of two shares and of two means, p-values, and p-values
//! adjusted for how many there are. Everything is two-sided and at 95 %.

mod distributions;

#[cfg(test)]
mod tests;

use super::wilson::{Interval, wilson};
use distributions::{kolmogorov, normal_two_sided, student_975, student_two_sided};

/// So many of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Successes.
    pub part: u64,
    /// Trials.
    pub whole: u64,
}

/// Numbers of a group: how many, their mean, and the sum of their squared deviations from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Σ (x − mean)².
    pub squares: f64,
}

/// How far two groups are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contrast {
    /// The first less the second.
    pub difference: f64,
    /// 95 % interval of the difference.
    pub interval: Option<Interval>,
    /// p-value of no difference.
    pub p: Option<f64>,
}

impl Share {
    /// Its value; none of nothing.
    pub fn value(&self) -> Option<f64> {
        (self.whole > 0).then(|| self.part as f64 / self.whole as f64)
    }

    fn interval(&self) -> Interval {
        wilson(self.part, self.whole)
    }
}

/// Two shares: Newcombe's interval, made of Wilson's two, and the z-test with the pooled share. None where one of them
/// is of nothing.
pub fn compare_shares(one: Share, other: Share) -> Option<Contrast> {
    let (first, second) = (one.value()?, other.value()?);
    let interval = recovered((first, one.interval()), (second, other.interval()));
    let (n, m) = (one.whole as f64, other.whole as f64);
    let pooled = (one.part + other.part) as f64 / (n + m);
    let deviation = (pooled * (1.0 - pooled) * (1.0 / n + 1.0 / m)).sqrt();
    let difference = first - second;
    // All or none in both: the shares are the same.
    let p = if deviation > 0.0 { normal_two_sided(difference / deviation) } else { 1.0 };
    Some(Contrast { difference, interval: Some(interval), p: Some(p) })
}

/// The interval of a difference from those of its two sides (the method of variance estimates recovery). Of Wilson's
/// intervals it makes Newcombe's.
pub fn recovered(one: (f64, Interval), other: (f64, Interval)) -> Interval {
    let ((first, one), (second, other)) = (one, other);
    let difference = first - second;
    let below = (first - one.low).hypot(other.high - second);
    let above = (one.high - first).hypot(second - other.low);
    Interval { low: difference - below, high: difference + above }
}

/// Two means: Welch's interval and t-test. None where a group has none or a single number.
pub fn compare_means(one: Mean, other: Mean) -> Option<Contrast> {
    if one.count < 2 || other.count < 2 {
        return None;
    }
    let part = |of: Mean| of.squares / (of.count - 1) as f64 / of.count as f64;
    let (first, second) = (part(one), part(other));
    let (difference, sum) = (one.mean - other.mean, first + second);
    if sum <= 0.0 {
        // Nothing varies: what is different surely is.
        let (interval, p) = (Interval { low: difference, high: difference }, difference == 0.0);
        let p = Some(f64::from(u8::from(p)));
        return Some(Contrast { difference, interval: Some(interval), p });
    }
    let share = |part: f64, of: Mean| part / sum * (part / sum) / (of.count - 1) as f64;
    let freedom = 1.0 / (share(first, one) + share(second, other));
    let deviation = sum.sqrt();
    let half = student_975(freedom) * deviation;
    let interval = Interval { low: difference - half, high: difference + half };
    let p = student_two_sided(difference / deviation, freedom);
    Some(Contrast { difference, interval: Some(interval), p: Some(p) })
}

/// The greatest difference of two curves, after Kolmogorov and Smirnov: p for large samples, and an interval made of
/// Massart's bands around either curve, each at 97.5 %.
pub fn compare_curves(difference: f64, (one, other): (u64, u64)) -> Option<Contrast> {
    if one == 0 || other == 0 {
        return None;
    }
    let (n, m) = (one as f64, other as f64);
    let p = kolmogorov(difference * (n * m / (n + m)).sqrt());
    let band = |count: f64| ((2.0f64 / 0.025).ln() / (2.0 * count)).sqrt();
    let half = band(n) + band(m);
    let interval =
        Interval { low: (difference - half).max(0.0), high: (difference + half).min(1.0) };
    Some(Contrast { difference, interval: Some(interval), p: Some(p) })
}

/// p-values after Holm: the chance that any of them is this low by chance is held. In the order of `p`.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let tests = p.len() as f64;
    let mut highest = 0.0f64;
    adjusted(p, order(p).into_iter().enumerate(), |rank, p| {
        highest = highest.max((tests - rank as f64) * p).min(1.0);
        highest
    })
}

/// p-values after Benjamini and Yekutieli: the share of false ones among those this low is held, however they depend
/// on each other. In the order of `p`.
pub fn benjamini_yekutieli(p: &[f64]) -> Vec<f64> {
    let tests = p.len() as f64;
    let harmonic: f64 = (1..=p.len()).map(|rank| 1.0 / rank as f64).sum();
    let mut lowest = 1.0f64;
    adjusted(p, order(p).into_iter().enumerate().rev(), |rank, p| {
        lowest = lowest.min(p * tests * harmonic / (rank + 1) as f64);
        lowest
    })
}

fn order(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|left, right| p[*left].total_cmp(&p[*right]));
    order
}

fn adjusted(
    p: &[f64],
    ranked: impl Iterator<Item = (usize, usize)>,
    mut adjust: impl FnMut(usize, f64) -> f64,
) -> Vec<f64> {
    let mut found = vec![0.0; p.len()];
    ranked.for_each(|(rank, index)| found[index] = adjust(rank, p[index]));
    found
}
