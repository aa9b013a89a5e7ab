//! How far inside its target a prediction is.

use super::{TargetCodec, Targets};
use crate::predictor::{Outcome, Scores};

/// How far inside the target each prediction is, on one scale for all models: 0.5 at the border, 1 at most.
///
/// For classes p ÷ (p + q): p is the probability of the target class, q that of the most probable other one.
/// With two classes that is p. For a range 0.5 + d ÷ 2u, no more than 1: d is the distance to the nearer end,
/// u half the range's width or, where that is less, a standard deviation of the model's values.
///
/// NaN where the model does not tell.
pub fn margins(scores: &Scores, targets: &Targets, codec: &TargetCodec) -> Vec<f64> {
    match (&scores.outcome, targets) {
        (
            Outcome::Classes { probabilities: Some(all), .. },
            Targets::Classes { classes, .. } | Targets::Distributions { classes, .. },
        ) => {
            let width = (all.len() / classes.len().max(1)).max(1);
            let rows = all.chunks_exact(width).zip(classes);
            rows.map(|(row, class)| against_runner_up(row, *class as usize)).collect()
        }
        (Outcome::Values(values), Targets::Ranges { low, high }) => {
            let most = if let TargetCodec::Range { std, .. } = codec { *std } else { 1.0 };
            let rows = values.iter().zip(low.iter().zip(high));
            rows.map(|(value, (low, high))| within(*value, (*low, *high), most)).collect()
        }
        _ => vec![f64::NAN; scores.rows],
    }
}

/// The probability of a class against that of the most probable other one.
fn against_runner_up(probabilities: &[f64], class: usize) -> f64 {
    let target = probabilities[class];
    let others = probabilities.iter().enumerate().filter(|(other, _)| *other != class);
    let runner_up = others.map(|(_, share)| *share).fold(0.0, f64::max);
    // A pair of zeros is 0 ÷ 0: not known.
    target / (target + runner_up)
}

/// How far inside a range a value is; `most` is the longest way that counts.
fn within(value: f64, (low, high): (f64, f64), most: f64) -> f64 {
    let inside = (value - low).min(high - value);
    let unit = ((high - low) / 2.0).min(most);
    match value.is_nan() {
        true => f64::NAN,
        false if unit > 0.0 => (0.5 + 0.5 * inside / unit).clamp(0.0, 1.0),
        false if inside >= 0.0 => 1.0,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::job::TargetsKind;

    fn classes(probabilities: Option<Vec<f64>>, labels: Vec<u32>) -> Scores {
        let rows = labels.len();
        Scores { rows, outcome: Outcome::Classes { labels, probabilities }, failures: Vec::new() }
    }

    fn codec(names: &[&str]) -> TargetCodec {
        let classes = names.iter().map(ToString::to_string).collect();
        TargetCodec::Classes { classes, kind: TargetsKind::Label }
    }

    #[test]
    fn a_class_is_held_against_the_runner_up() {
        let codec = codec(&["a", "b", "c"]);
        let scores = classes(Some(vec![0.3, 0.5, 0.2, 0.0, 0.0, 0.0]), vec![1, 0]);
        let found = margins(&scores, &codec.labels(vec![1, 0]), &codec);
        assert_eq!(found[0], 0.5 / 0.8);
        assert!(found[1].is_nan());
        let found = margins(&scores, &codec.labels(vec![2, 1]), &codec);
        assert_eq!(found[0], 0.2 / 0.7);
    }

    #[test]
    fn labels_alone_tell_nothing() {
        let codec = codec(&["a", "b"]);
        let found = margins(&classes(None, vec![0, 1]), &codec.labels(vec![1, 1]), &codec);
        assert!(found.len() == 2 && found.iter().all(|margin| margin.is_nan()));
    }

    #[test]
    fn a_value_is_held_against_the_nearer_end() {
        let codec = TargetCodec::Range { mean: 0.0, std: 4.0 };
        let values = vec![10.0, 12.0, 15.0, 20.0, 9.0, f64::NAN];
        let scores = Scores { rows: 6, outcome: Outcome::Values(values), failures: Vec::new() };
        let targets = |high: f64| Targets::Ranges { low: vec![10.0; 6], high: vec![high; 6] };
        let found = margins(&scores, &targets(20.0), &codec);
        assert_eq!(found[..4], [0.5, 0.75, 1.0, 0.5]);
        assert!(found[4] < 0.5 && found[5].is_nan());
        // A range without an end to speak of counts in standard deviations.
        assert_eq!(margins(&scores, &targets(1e9), &codec)[..4], [0.5, 0.75, 1.0, 1.0]);
        assert_eq!(margins(&scores, &targets(10.0), &codec)[..2], [1.0, 0.0]);
    }

    proptest! {
        #[test]
        fn of_two_classes_it_is_the_probability(share in 0.0f64..=1.0) {
            let codec = codec(&["a", "b"]);
            let scores = classes(Some(vec![1.0 - share, share]), vec![0]);
            let found = margins(&scores, &codec.labels(vec![1]), &codec);
            prop_assert!((found[0] - share).abs() < 1e-12);
        }

        #[test]
        fn the_most_probable_class_is_inside(shares in prop::collection::vec(0.001f64..1.0, 2..8)) {
            let codec = codec(&vec!["x"; shares.len()]);
            let most = shares.iter().copied().fold(0.0, f64::max);
            for (class, share) in shares.iter().enumerate() {
                let scores = classes(Some(shares.clone()), vec![0]);
                let found = margins(&scores, &codec.labels(vec![class as u32]), &codec)[0];
                prop_assert_eq!(found >= 0.5, *share >= most, "{}", found);
            }
        }
    }
}
