//! Whether a model answers the same when it is asked again: a few rows in the same batch once more, by
//! another thread, in the opposite order, in small batches and alone. A decision that depends on who else
//! is in the batch, or on chance, cannot be explained.

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;

use super::{NO_CLASS, Outcome, Predictor, Scores, Task};
use crate::error::{Error, Result};

/// How far scores may differ: roundings that depend on the size of a batch are far below.
const TOLERANCE: f64 = 1e-4;
/// Rows of a small batch; a number that batch sizes are seldom a multiple of.
const SMALL_BATCH: usize = 7;
/// Rows that are asked about alone: each is a call.
const ALONE: usize = 8;

/// What asking again found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Repeated {
    /// Rows asked about.
    pub rows: usize,
    /// The first row whose decision differs.
    pub decision: Option<Disagreement>,
    /// Rows whose decision differs.
    pub differing: usize,
    /// Greatest difference of a score, where decisions are the same or a matter of roundings.
    pub score: f64,
    /// Rows whose label is not that of the highest probability.
    pub not_most_probable: usize,
}

/// A row that was decided in two ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// Position among the rows.
    pub row: usize,
    /// The decision in one batch of all rows.
    pub first: String,
    /// The other decision.
    pub second: String,
    /// How it was asked for, such as `in a batch of 7 rows`.
    pub how: String,
    /// Whether the very same batch was answered in two ways.
    pub by_chance: bool,
}

impl Repeated {
    /// Whether scores differ by more than roundings explain.
    pub fn scores_differ(&self) -> bool {
        self.score > TOLERANCE
    }
}

/// One way to ask again: positions, in batches.
struct Regrouping {
    batches: Vec<Vec<u32>>,
    how: String,
    by_chance: bool,
}

/// Asks a model about the same rows in several ways.
///
/// # Errors
/// When the model fails.
pub fn ask_again(predictor: &dyn Predictor, rows: &RecordBatch) -> Result<Repeated> {
    let count = rows.num_rows();
    let mut found = Repeated { rows: count, ..Repeated::default() };
    if count == 0 {
        return Ok(found);
    }
    let first = predictor.predict(rows)?;
    found.not_most_probable = not_most_probable(&first);
    let mut differs = vec![false; count];
    for way in ways(count) {
        for (positions, scores) in ask(predictor, rows, &way)? {
            let pair = RepeatedScores { task: predictor.task(), first: &first, second: &scores };
            for (second, row) in positions.into_iter().enumerate() {
                let row = row as usize;
                let (differing, score) = pair.differ(row, second);
                found.score = found.score.max(score);
                differs[row] |= differing;
                if differing && found.decision.is_none() {
                    found.decision = Some(pair.describe((row, second), &way));
                }
            }
        }
    }
    found.differing = differs.into_iter().filter(|differs| *differs).count();
    Ok(found)
}

fn ways(count: usize) -> Vec<Regrouping> {
    let all: Vec<u32> = (0..count as u32).collect();
    let reversed: Vec<u32> = all.iter().rev().copied().collect();
    let small = |size: usize| all.chunks(size).map(<[u32]>::to_vec);
    let mut ways = vec![Regrouping {
        // Twice at once: copies of a program may differ.
        batches: vec![all.clone(), all.clone()],
        how: "in the same batch again".to_string(),
        by_chance: true,
    }];
    if count > 1 {
        let batches = small(1).take(ALONE).collect();
        ways.extend([
            Regrouping {
                batches: vec![reversed],
                how: "in the opposite order".to_string(),
                by_chance: false,
            },
            Regrouping { batches, how: "alone".to_string(), by_chance: false },
        ]);
    }
    if count > SMALL_BATCH {
        let how = format!("in a batch of {SMALL_BATCH} rows");
        ways.push(Regrouping { batches: small(SMALL_BATCH).collect(), how, by_chance: false });
    }
    ways
}

/// The answers to each batch of a way, with the rows' positions.
fn ask(
    predictor: &dyn Predictor,
    rows: &RecordBatch,
    way: &Regrouping,
) -> Result<Vec<(Vec<u32>, Scores)>> {
    let score = |positions: &Vec<u32>| {
        let batch = take_record_batch(rows, &UInt32Array::from(positions.clone()))
            .map_err(|error| Error::internal("repetition", "rows are lost").source(error))?;
        Ok((positions.clone(), predictor.predict(&batch)?))
    };
    if !way.by_chance {
        return way.batches.iter().map(score).collect();
    }
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            way.batches.iter().map(|positions| scope.spawn(move || score(positions))).collect();
        let panicked = |_| Err(Error::internal("repetition", "a thread panicked"));
        calls.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}

/// Two answers of one model.
struct RepeatedScores<'a> {
    task: &'a Task,
    first: &'a Scores,
    second: &'a Scores,
}

impl RepeatedScores<'_> {
    /// Whether the decisions about a row differ, and the greatest difference of a score.
    fn differ(&self, row: usize, second: usize) -> (bool, f64) {
        match (&self.first.outcome, &self.second.outcome) {
            (Outcome::Values(old), Outcome::Values(new)) => {
                let scale = old.iter().filter(|value| value.is_finite());
                let scale = scale.fold(f64::MIN_POSITIVE, |scale, value| scale.max(value.abs()));
                let difference = gap(old[row], new[second]) / scale;
                (difference > TOLERANCE, difference.min(TOLERANCE))
            }
            (
                Outcome::Classes { labels: old, probabilities: old_shares },
                Outcome::Classes { labels: new, probabilities: new_shares },
            ) => {
                let shares = (
                    shares(old_shares.as_deref(), row, self.first.rows),
                    shares(new_shares.as_deref(), second, self.second.rows),
                );
                let pairs = shares.0.iter().zip(shares.1);
                let score = pairs.map(|(old, new)| gap(*old, *new)).fold(0.0, f64::max);
                // Two classes that are as good as equally probable: a matter of roundings.
                let tie = !shares.0.is_empty() && score <= TOLERANCE;
                (old[row] != new[second] && !tie, score)
            }
            _ => (true, f64::INFINITY),
        }
    }

    fn describe(&self, (row, second): (usize, usize), way: &Regrouping) -> Disagreement {
        let (first, mut second) =
            (self.decision(self.first, row), self.decision(self.second, second));
        if first == second {
            second.push_str(" (other digits)");
        }
        Disagreement { row, first, second, how: way.how.clone(), by_chance: way.by_chance }
    }

    fn decision(&self, scores: &Scores, row: usize) -> String {
        let failure = || {
            let failure = scores.failures.iter().find(|failure| failure.row == row);
            let detail = failure.map_or("no number", |failure| failure.detail.as_str());
            format!("no answer ({detail})")
        };
        match (&scores.outcome, self.task) {
            (Outcome::Values(values), _) if values[row].is_finite() => format!("`{}`", values[row]),
            (Outcome::Classes { labels, .. }, Task::Classification { classes, .. })
                if labels[row] != NO_CLASS =>
            {
                classes.get(labels[row] as usize).map_or_else(failure, |class| format!("`{class}`"))
            }
            _ => failure(),
        }
    }
}

/// The probabilities of a row; none where there are none.
fn shares(all: Option<&[f64]>, row: usize, rows: usize) -> &[f64] {
    let all = all.unwrap_or_default();
    let width = all.len() / rows.max(1);
    &all[row * width..(row + 1) * width]
}

/// Two answers that are no numbers are the same.
fn gap(old: f64, new: f64) -> f64 {
    match (old.is_finite(), new.is_finite()) {
        (true, true) => (old - new).abs(),
        (false, false) => 0.0,
        _ => f64::INFINITY,
    }
}

fn not_most_probable(scores: &Scores) -> usize {
    let Outcome::Classes { labels, probabilities: Some(all) } = &scores.outcome else { return 0 };
    let lower = |(row, label): (usize, &u32)| {
        let shares = shares(Some(all), row, scores.rows);
        let given = shares.get(*label as usize);
        given.is_some_and(|given| shares.iter().any(|share| *share > given + TOLERANCE))
    };
    labels.iter().enumerate().filter(|pair| lower(*pair)).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{AsArray, Float64Array};
    use arrow::datatypes::{DataType, Field, Float64Type, Schema};

    use super::*;

    /// What a model makes of a batch's numbers, and of how often it was asked.
    type Rule = fn(&[f64], usize) -> Vec<f64>;

    struct Model {
        task: Task,
        rule: Rule,
        calls: AtomicUsize,
    }

    impl Predictor for Model {
        fn task(&self) -> &Task {
            &self.task
        }

        fn parallelism(&self) -> usize {
            1
        }

        fn predict(&self, batch: &RecordBatch) -> Result<Scores> {
            let numbers = batch.column(0).as_primitive::<Float64Type>();
            let calls = self.calls.fetch_add(1, Ordering::Relaxed);
            let values = (self.rule)(numbers.values(), calls);
            let outcome = match &self.task {
                Task::Regression => Outcome::Values(values),
                Task::Classification { .. } => Outcome::Classes {
                    labels: values.iter().map(|value| u32::from(*value > 0.5)).collect(),
                    probabilities: Some(values.iter().flat_map(|p| [1.0 - p, *p]).collect()),
                },
            };
            Ok(Scores { rows: numbers.len(), outcome, failures: Vec::new() })
        }
    }

    fn calls(rows: usize, regression: bool, rule: Rule) -> Repeated {
        let classes = ["no".to_string(), "yes".to_string()].into();
        let task = match regression {
            true => Task::Regression,
            false => Task::Classification { classes, probabilities: true },
        };
        let numbers = Float64Array::from_iter_values((0..rows).map(|row| row as f64 / 100.0));
        let schema = Schema::new(vec![Field::new("x", DataType::Float64, true)]);
        let batch =
            RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers)]).expect("a batch");
        ask_again(&Model { task, rule, calls: AtomicUsize::new(0) }, &batch).expect("answers")
    }

    #[test]
    fn honest_models_pass_whatever_the_number_of_rows() {
        let same: Rule = |numbers, _| numbers.to_vec();
        let rounding: Rule = |numbers, calls| {
            numbers
                .iter()
                .map(|x| if *x == 0.5 { 0.5 + 1e-9 * (calls % 2) as f64 } else { *x })
                .collect()
        };
        for rows in [0, 1, 2, 7, 8, 64] {
            for rule in [same, rounding] {
                let found = calls(rows, false, rule);
                assert_eq!((found.rows, found.decision.clone()), (rows, None));
                assert!(!found.scores_differ(), "{found:?}");
                assert_eq!(calls(rows, true, rule).decision, None);
            }
        }
        assert_eq!(calls(64, true, |numbers, _| vec![f64::NAN; numbers.len()]).decision, None);
    }

    #[test]
    fn chance_and_batches_are_told_apart() {
        let chance: Rule = |numbers, calls| numbers.iter().map(|_| (calls % 2) as f64).collect();
        let found = calls(64, false, chance).decision.expect("differs");
        assert!(found.by_chance && found.how == "in the same batch again", "{found:?}");
        let mean: Rule = |numbers, _| {
            let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
            numbers.iter().map(|x| f64::from(u8::from(*x > mean))).collect()
        };
        let found = calls(64, false, mean);
        let difference = found.decision.expect("differs");
        assert!(!difference.by_chance && found.differing > 1, "{difference:?}");
        let order: Rule = |numbers, _| numbers.iter().map(|x| x + numbers[0]).collect();
        let difference = calls(64, true, order).decision.expect("differs");
        assert_eq!(difference.how, "in the opposite order");
        // Decisions stay the same, scores do not.
        let noisy: Rule = |numbers, calls| {
            numbers.iter().map(|x| x.floor() + 0.01 * (calls % 2) as f64).collect()
        };
        let found = calls(64, false, noisy);
        assert!(found.decision.is_none() && found.scores_differ(), "{found:?}");
    }
}
