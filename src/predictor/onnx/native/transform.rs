//! The transformations of scores that ONNX Runtime's tree and linear operators know, with its formulas: in single
//! precision, whatever the scores are.

use super::trees::Real;

/// What becomes of a row's scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transform {
    None,
    Logistic,
    Softmax,
    SoftmaxZero,
    Probit,
}

impl Transform {
    /// The transformation of that name.
    pub(super) fn named(name: &str) -> Option<Transform> {
        Some(match name {
            "NONE" => Transform::None,
            "LOGISTIC" => Transform::Logistic,
            "SOFTMAX" => Transform::Softmax,
            "SOFTMAX_ZERO" => Transform::SoftmaxZero,
            "PROBIT" => Transform::Probit,
            _ => return None,
        })
    }

    /// The transformation with that number.
    pub(super) fn numbered(number: i64) -> Option<Transform> {
        Some(match number {
            0 => Transform::None,
            1 => Transform::Softmax,
            2 => Transform::Logistic,
            3 => Transform::SoftmaxZero,
            4 => Transform::Probit,
            _ => return None,
        })
    }

    /// Transforms the scores of a row with more than one of them.
    pub(super) fn apply<T: Real>(self, scores: &mut [T]) {
        match self {
            Transform::None => {}
            Transform::Logistic => scores.iter_mut().for_each(|score| *score = logistic(*score)),
            Transform::Probit => scores.iter_mut().for_each(|score| *score = probit(*score)),
            Transform::Softmax => softmax(scores),
            Transform::SoftmaxZero => softmax_zero(scores),
        }
    }
}

/// The logistic function.
pub(super) fn logistic<T: Real>(score: T) -> T {
    let score = score.single();
    let upper = 1.0 / (1.0 + (-score.abs()).exp());
    T::from_single(if score < 0.0 { 1.0 - upper } else { upper })
}

/// The inverse of the normal distribution, nearly.
pub(super) fn probit<T: Real>(score: T) -> T {
    T::from_single(std::f32::consts::SQRT_2 * inverse_error(2.0 * score.single() - 1.0))
}

fn inverse_error(x: f32) -> f32 {
    let sign = if x < 0.0 { -1.0 } else { 1.0 };
    let log = ((1.0 - x) * (1.0 + x)).ln();
    let v = 2.0 / (std::f32::consts::PI * 0.147) + 0.5 * log;
    let v2 = 1.0 / 0.147 * log;
    sign * (-v + (v * v - v2).sqrt()).sqrt()
}

fn highest<T: Real>(scores: &[T]) -> f32 {
    scores
        .iter()
        .fold(f32::MIN, |max, score| if score.single() > max { score.single() } else { max })
}

fn softmax<T: Real>(scores: &mut [T]) {
    let highest = highest(scores);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = T::from_single((score.single() - highest).exp());
        sum += score.single();
    }
    scores.iter_mut().for_each(|score| *score = T::from_single(score.single() / sum));
}

/// As [`softmax`], but a score of nought stays one.
fn softmax_zero<T: Real>(scores: &mut [T]) {
    let highest = highest(scores);
    let shrink = (-highest).exp();
    let mut sum: f32 = 0.0;
    for score in scores.iter_mut() {
        let single = score.single();
        if single.abs() > 0.000_000_1 {
            *score = T::from_single((single - highest).exp());
            sum += score.single();
        } else {
            *score = *score * T::from_single(shrink);
        }
    }
    scores.iter_mut().for_each(|score| *score = *score / T::from_single(sum));
}
