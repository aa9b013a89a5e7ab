//! R: what a prediction is worth, and whether it reaches its target.

use super::{TargetCodec, Targets};
use crate::job::RewardKind;
use crate::predictor::{NO_CLASS, Outcome, Scores};

/// How much of a class's reward is for coming near. More makes the critic's work easier, but the edge
/// between valid and not worth less, and validity falls.
const NEAR_SHARE_OF_CLASSES: f32 = 0.2;
/// The same for a value's range, which is harder to hit than a class.
const NEAR_SHARE_OF_RANGES: f32 = 0.5;

/// Values a prediction.
#[derive(Debug, Clone)]
pub struct Rewarder {
    /// How much of the reward is for coming near; the rest is for being valid.
    near_share: f32,
    /// For regressions, the scale on which being off is measured.
    scale: f64,
}

impl Rewarder {
    /// R of every row, from 0 to 1.
    pub fn rewards(&self, scores: &Scores, targets: &Targets) -> Vec<f32> {
        let valid = is_valid(scores, targets);
        let valid = valid.iter().map(|valid| if *valid { 1.0 } else { 0.0 });
        let share = self.near_share;
        match closeness(scores, targets, self.scale).filter(|_| share > 0.0) {
            Some(near) => {
                let pairs = valid.zip(near);
                pairs.map(|(valid, near)| (1.0 - share) * valid + share * near).collect()
            }
            None => valid.collect(),
        }
    }

    /// What the model decided, as numbers for a critic that predicts outcomes: a slot for every class
    /// and one for no prediction. Where coming near counts, part of it is the model's own probabilities.
    pub fn outcomes(&self, scores: &Scores, classes: usize) -> Vec<f32> {
        let mut values = vec![0.0; scores.rows * (classes + 1)];
        let Outcome::Classes { labels, probabilities } = &scores.outcome else { return values };
        let share = self.near_share;
        for (row, (encoded, label)) in values.chunks_exact_mut(classes + 1).zip(labels).enumerate()
        {
            let slot = if *label == NO_CLASS { classes } else { *label as usize };
            encoded[slot] = 1.0;
            if let Some(all) = probabilities.as_ref().filter(|_| share > 0.0 && slot < classes) {
                let of_row = &all[row * classes..(row + 1) * classes];
                if of_row.iter().all(|part| part.is_finite()) {
                    encoded.iter_mut().for_each(|value| *value *= 1.0 - share);
                    encoded
                        .iter_mut()
                        .zip(of_row)
                        .for_each(|(to, from)| *to += share * *from as f32);
                }
            }
        }
        values
    }

    /// The rewarder of a codec: how far off a regression is counts in its standard deviations.
    pub fn new(kind: RewardKind, codec: &TargetCodec) -> Rewarder {
        let (near_share, scale) = match codec {
            TargetCodec::Classes { .. } => (NEAR_SHARE_OF_CLASSES, 1.0),
            TargetCodec::Range { std, .. } => (NEAR_SHARE_OF_RANGES, *std),
        };
        let near_share = if kind == RewardKind::Label { 0.0 } else { near_share };
        Rewarder { near_share, scale }
    }
}

/// Whether each prediction reaches its target. A row without a prediction does not.
pub fn is_valid(scores: &Scores, targets: &Targets) -> Vec<bool> {
    match (&scores.outcome, targets) {
        (
            Outcome::Classes { labels, probabilities },
            Targets::Classes { classes, probabilities: least },
        ) => {
            let width = probabilities.as_ref().map_or(0, |all| all.len() / labels.len().max(1));
            let share = |row: usize, class: u32| {
                probabilities.as_ref().map_or(1.0, |all| all[row * width + class as usize])
            };
            let rows = labels.iter().zip(classes).zip(least).enumerate();
            rows.map(|(row, ((label, class), least))| {
                label == class && (*least <= 0.0 || share(row, *class) >= f64::from(*least))
            })
            .collect()
        }
        (Outcome::Classes { labels, .. }, Targets::Distributions { classes, .. }) => {
            labels.iter().zip(classes).map(|(label, class)| label == class).collect()
        }
        (Outcome::Values(values), Targets::Ranges { low, high }) => values
            .iter()
            .zip(low.iter().zip(high))
            .map(|(value, (low, high))| (*low..=*high).contains(value))
            .collect(),
        _ => vec![false; scores.rows],
    }
}

/// How near a prediction came, 1 where it reaches its target: the target class's probability against the
/// most probable one's, the overlap of two distributions, the closeness of a value to its range. None
/// where the model gives labels only.
fn closeness(scores: &Scores, targets: &Targets, scale: f64) -> Option<Vec<f32>> {
    match (&scores.outcome, targets) {
        (Outcome::Classes { probabilities: Some(all), .. }, Targets::Classes { classes, .. }) => {
            let rows = all.chunks_exact(all.len() / classes.len().max(1)).zip(classes);
            Some(rows.map(|(row, class)| ratio(row, *class as usize)).collect())
        }
        (
            Outcome::Classes { probabilities: Some(all), .. },
            Targets::Distributions { values, classes },
        ) => {
            let width = values.len() / classes.len().max(1);
            let rows = all.chunks_exact(width).zip(values.chunks_exact(width));
            Some(rows.map(|(found, target)| overlap(found, target)).collect())
        }
        (Outcome::Values(values), Targets::Ranges { low, high }) => {
            let rows = values.iter().zip(low.iter().zip(high));
            Some(
                rows.map(|(value, (low, high))| range_closeness(*value, *low, *high, scale))
                    .collect(),
            )
        }
        _ => None,
    }
}

fn ratio(row: &[f64], class: usize) -> f32 {
    let most = row.iter().copied().fold(0.0, f64::max);
    let share = row[class] / most;
    if share.is_finite() { share.clamp(0.0, 1.0) as f32 } else { 0.0 }
}

fn overlap(found: &[f64], target: &[f32]) -> f32 {
    let pairs = found.iter().zip(target);
    let common: f64 = pairs.map(|(found, target)| found.min(f64::from(*target))).sum();
    if common.is_finite() { common.clamp(0.0, 1.0) as f32 } else { 0.0 }
}

fn range_closeness(value: f64, low: f64, high: f64, scale: f64) -> f32 {
    // NaN is not near, though `max` would overlook it.
    let off = if value.is_nan() { value } else { (low - value).max(value - high).max(0.0) / scale };
    if off.is_finite() { (-off).exp() as f32 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictor::RowFailure;

    fn example_scores() -> Scores {
        Scores {
            rows: 3,
            outcome: Outcome::Classes {
                labels: vec![0, 1, NO_CLASS],
                probabilities: Some(vec![0.6, 0.4, 0.1, 0.9, f64::NAN, f64::NAN]),
            },
            failures: vec![RowFailure { row: 2, detail: String::new() }],
        }
    }

    #[test]
    fn labels_are_worth_one_or_nothing_and_probabilities_what_they_come_near() {
        let targets = Targets::Classes { classes: vec![1, 1, 1], probabilities: vec![0.0; 3] };
        let label = Rewarder { near_share: 0.0, scale: 1.0 };
        assert_eq!(label.rewards(&example_scores(), &targets), [0.0, 1.0, 0.0]);
        let near = Rewarder { near_share: 0.5, scale: 1.0 };
        let rewards = near.rewards(&example_scores(), &targets);
        assert!((rewards[0] - 0.5 * 0.4 / 0.6).abs() < 1e-6, "{rewards:?}");
        assert_eq!(rewards[1..], [1.0, 0.0]);
    }

    #[test]
    fn outcomes_are_the_decision_or_partly_the_probabilities_and_one_is_no_answer() {
        let label = Rewarder { near_share: 0.0, scale: 1.0 };
        let encoded = label.outcomes(&example_scores(), 2);
        assert_eq!(encoded, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
        let near = Rewarder { near_share: 0.5, scale: 1.0 };
        let encoded = near.outcomes(&example_scores(), 2);
        for (found, expected) in encoded.iter().zip([0.8, 0.2, 0.0, 0.05, 0.95, 0.0, 0.0, 0.0, 1.0])
        {
            assert!((found - expected).abs() < 1e-6, "{encoded:?}");
        }
    }

    #[test]
    fn a_demanded_probability_must_be_reached() {
        let targets =
            Targets::Classes { classes: vec![0, 1, 0], probabilities: vec![0.7, 0.7, 0.0] };
        assert_eq!(is_valid(&example_scores(), &targets), [false, true, false]);
    }

    #[test]
    fn values_are_valid_inside_their_range_and_worth_their_closeness() {
        let scores = Scores {
            rows: 3,
            outcome: Outcome::Values(vec![1.0, 3.0, f64::NAN]),
            failures: Vec::new(),
        };
        let targets = Targets::Ranges { low: vec![0.0; 3], high: vec![2.0; 3] };
        assert_eq!(is_valid(&scores, &targets), [true, false, false]);
        let near = Rewarder { near_share: 0.5, scale: 2.0 };
        let rewards = near.rewards(&scores, &targets);
        assert!((rewards[1] - 0.5 * (-0.5f32).exp()).abs() < 1e-6, "{rewards:?}");
        assert_eq!((rewards[0], rewards[2]), (1.0, 0.0));
    }
}
