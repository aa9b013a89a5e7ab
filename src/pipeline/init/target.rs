//! What the model should predict: the favourable class where one reads like a refusal, else the other class, every
//! class, or the upper part of what a regression predicts.

use super::Guess;
use super::first_predictions::FirstPredictions;
use crate::document::{toml_number, toml_text};
use crate::predictor::Task;

/// Classes that nobody wants to be in.
const REFUSALS: [&str; 16] = [
    "rejected",
    "reject",
    "refused",
    "denied",
    "deny",
    "declined",
    "decline",
    "bad",
    "fail",
    "failed",
    "no",
    "negative",
    "default",
    "churn",
    "churned",
    "ineligible",
];

/// Classes up to which a counterfactual is looked for towards each.
const FEW_CLASSES: usize = 5;

/// Digits of the numbers that are guessed.
const DIGITS: i32 = 3;

/// The line of `[target]`, and further ones as comments.
pub(super) fn guess_target(first_predictions: &FirstPredictions) -> Guess<String> {
    match &first_predictions.task {
        Task::Regression => range(&first_predictions.values()),
        Task::Classification { classes, .. } => {
            class(classes, &first_predictions.counts(), first_predictions.answered())
        }
    }
}

fn class(classes: &[String], counts: &[usize], rows: usize) -> Guess<String> {
    let refused = |class: &&String| REFUSALS.contains(&class.to_lowercase().as_str());
    let refusals: Vec<&String> = classes.iter().filter(refused).collect();
    let others: Vec<&String> = classes.iter().filter(|class| !refusals.contains(class)).collect();
    let (line, why) = match (&refusals[..], &others[..]) {
        ([refused], [approved]) => (
            format!("class = {}", class_value(approved)),
            format!("`{refused}` reads like a refusal, so that `{approved}` is what people want"),
        ),
        _ if classes.len() == 2 => (
            "flip = true".to_string(),
            "there are two classes: the target of each row is the other one".to_string(),
        ),
        _ if classes.len() <= FEW_CLASSES => (
            "every = true".to_string(),
            format!(
                "there are {} classes: every class but the row's own is a target",
                classes.len()
            ),
        ),
        _ => {
            let most = (0..classes.len()).rev().max_by_key(|class| counts[*class]).unwrap_or(0);
            let found = format!("{} of the first {rows} rows", counts[most]);
            (
                format!("class = {}", class_value(&classes[most])),
                format!("of {} classes it is predicted most often, for {found}", classes.len()),
            )
        }
    };
    Guess { value: line, why: Some(why) }
}

/// Whole numbers as they are, all else as texts.
pub(super) fn class_value(class: &str) -> String {
    let number = class.parse::<i64>().is_ok_and(|number| number.to_string() == class);
    if number { class.to_string() } else { toml_text(class) }
}

/// The upper quarter.
fn range(values: &[f64]) -> Guess<String> {
    let (low, high) = match values {
        [] => (0.0, 0.0),
        values => (values[(values.len() - 1) * 3 / 4], values[values.len() - 1]),
    };
    let [low, high] =
        if low < high { [rounded(low, f64::floor), rounded(high, f64::ceil)] } else { [low, high] };
    let why = format!(
        "the upper quarter of what the model predicts for the first {} rows, rounded",
        values.len()
    );
    Guess {
        value: format!("range = [{}, {}]", toml_number(low), toml_number(high)),
        why: Some(why),
    }
}

/// A number with few digits.
fn rounded(number: f64, round: fn(f64) -> f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let decimals = DIGITS - 1 - number.abs().log10().floor() as i32;
    let power = 10f64.powi(decimals.abs());
    // Dividing by a power of ten, which is a whole number, keeps the digits few.
    let found =
        if decimals >= 0 { round(number * power) / power } else { round(number / power) * power };
    if found.is_finite() { found } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let counts: Vec<usize> = (0..names.len()).map(|class| class % 7).collect();
        class(&names, &counts, 100).value
    }

    #[test]
    fn the_target_follows_from_the_classes() {
        assert_eq!(classes(&["approved", "rejected"]), "class = \"approved\"");
        assert_eq!(classes(&["No", "Yes"]), "class = \"Yes\"");
        assert_eq!(classes(&["0", "1"]), "flip = true");
        assert_eq!(classes(&["bad", "no"]), "flip = true", "none is wanted");
        assert_eq!(classes(&["low", "middle", "top"]), "every = true");
        assert_eq!(classes(&["0", "1", "2", "3", "4", "5", "6", "7"]), "class = 6");
        assert_eq!(classes(&["only"]), "every = true");
    }

    #[test]
    fn ranges_have_few_digits_and_hold_the_upper_quarter() {
        let values: Vec<f64> = (0..1000).map(|value| f64::from(value) * 1.2345).collect();
        assert_eq!(range(&values).value, "range = [924, 1240]");
        assert_eq!(range(&[2.5; 8]).value, "range = [2.5, 2.5]");
        assert_eq!(
            range(&[-0.4, -0.3, -0.012_345, -0.001_234_5]).value,
            "range = [-0.0124, -0.00123]"
        );
        assert_eq!(rounded(0.012_345, f64::ceil), 0.0124);
        assert_eq!(rounded(-123_456.0, f64::floor), -124_000.0);
    }
}
