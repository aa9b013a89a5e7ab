//! What happens to a batch that fails: it is tried again, then in ever smaller parts, until the rows that
//! fail on their own are found.
//!
//! A row is rejected if and only if it fails alone, so the same rows are rejected whatever the batches
//! were, as far as the program is deterministic.

use std::ops::Range;

use super::failure::{Cause, Failure};
use super::failure_budget::FailureBudget;
use crate::error::Result;
use crate::predictor::{NO_CLASS, Outcome, RowFailure, Scores, Task};

/// Parts into which failing rows are split. A failure costs a restart, often seconds, and a success next
/// to nothing: one bad row of 8192 costs 4 failures this way, 13 with halves.
const PIECES: usize = 16;

/// Rows tried one by one before a batch is split. If none of them is answered, it is not the rows.
const PROBES: usize = 8;

/// The same where the program hangs: each costs a whole time limit.
const PROBES_OF_A_HANG: usize = 3;

/// Whatever scores a part of the batch with one try.
pub(super) trait RangeScorer {
    /// The part's scores, or why it failed this time.
    fn attempt(&mut self, rows: Range<usize>) -> Result<Scores, Failure>;
}

/// The way of one batch through its tries.
pub(super) struct Rescue<'a, A> {
    pub(super) attempt: &'a mut A,
    pub(super) failure_budget: &'a FailureBudget,
    pub(super) task: &'a Task,
    /// Further tries for the whole batch, and for a row alone.
    pub(super) retries: u32,
}

impl<A: RangeScorer> Rescue<'_, A> {
    /// Scores a batch of so many rows; those that fail alone are in [`Scores::failures`].
    ///
    /// # Errors
    /// When it is not single rows that fail.
    pub(super) fn score(&mut self, rows: usize) -> Result<Scores> {
        self.failure_budget.asked(rows);
        let mut found = Scores::empty(self.task);
        let Some(failure) = self.try_again(0..rows, &mut found)? else { return Ok(found) };
        if rows == 1 {
            self.reject(&failure, &mut found)?;
            return Ok(found);
        }
        tracing::warn!(
            rows,
            reason = failure.detail(),
            "a batch failed, its rows are scored apart"
        );
        self.probe(rows, failure)?;
        self.split(0..rows, &mut found)?;
        tracing::warn!(rows, rejected = found.failures.len(), "scored apart");
        Ok(found)
    }

    /// One try and the job's retries. The last failure, if all fail.
    fn try_again(&mut self, rows: Range<usize>, found: &mut Scores) -> Result<Option<Failure>> {
        let mut failure = self.try_once(rows.clone(), found)?;
        for _ in 0..self.retries {
            if failure.is_some() {
                failure = self.try_once(rows.clone(), found)?;
            }
        }
        Ok(failure)
    }

    fn try_once(&mut self, rows: Range<usize>, found: &mut Scores) -> Result<Option<Failure>> {
        match self.attempt.attempt(rows) {
            Ok(scores) => {
                if let Some(last) = scores.failures.last() {
                    self.failure_budget.failed(scores.failures.len(), &last.detail)?;
                }
                found.append(scores);
                Ok(None)
            }
            Err(failure) => self.failure_budget.noted(failure).map(Some),
        }
    }

    /// Tries rows from all over the batch until one is answered.
    fn probe(&mut self, rows: usize, mut last: Failure) -> Result<()> {
        let mut tried = 0;
        loop {
            let probes = if last.cause == Cause::TimedOut { PROBES_OF_A_HANG } else { PROBES };
            if rows <= probes {
                return Ok(());
            }
            if tried >= probes {
                let why = format!("answered none of {tried} rows tried one by one");
                return Err(self.failure_budget.given_up(&why, last));
            }
            let row = tried * rows / probes;
            match self.attempt.attempt(row..row + 1) {
                Ok(_) => return Ok(()),
                Err(failure) => last = self.failure_budget.noted(failure)?,
            }
            tried += 1;
        }
    }

    /// Scores rows that failed together, in parts.
    fn split(&mut self, rows: Range<usize>, found: &mut Scores) -> Result<()> {
        for part in parts(&rows) {
            if part.len() == 1 {
                if let Some(failure) = self.try_again(part, found)? {
                    self.reject(&failure, found)?;
                }
            } else if self.try_once(part.clone(), found)?.is_some() {
                self.split(part, found)?;
            }
        }
        Ok(())
    }

    fn reject(&mut self, failure: &Failure, found: &mut Scores) -> Result<()> {
        let detail = failure.detail();
        self.failure_budget.failed(1, &detail)?;
        found.append(unanswered(self.task, detail));
        Ok(())
    }
}

/// Splits rows into parts of nearly equal size, at least one row each.
fn parts(rows: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let (start, length) = (rows.start, rows.len());
    let count = length.min(PIECES);
    (0..count).map(move |part| start + part * length / count..start + (part + 1) * length / count)
}

/// The scores of one row that has none.
fn unanswered(task: &Task, detail: String) -> Scores {
    let outcome = match task {
        Task::Regression => Outcome::Values(vec![f64::NAN]),
        Task::Classification { classes, probabilities } => {
            let probabilities = probabilities.then(|| vec![f64::NAN; classes.len()]);
            Outcome::Classes { labels: vec![NO_CLASS], probabilities }
        }
    };
    Scores { rows: 1, outcome, failures: vec![RowFailure { row: 0, detail }] }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A model that gives each row its number and breaks on some rows, or always.
    struct Fake {
        poison: Vec<usize>,
        always: Option<Cause>,
        failures: usize,
    }

    impl RangeScorer for Fake {
        fn attempt(&mut self, rows: Range<usize>) -> Result<Scores, Failure> {
            if self.always.is_some() || self.poison.iter().any(|row| rows.contains(row)) {
                self.failures += 1;
                let cause = self.always.unwrap_or(Cause::Broke);
                return Err(Failure { cause, ..Failure::broke("died") });
            }
            let values = rows.clone().map(|row| row as f64).collect();
            Ok(Scores { rows: rows.len(), outcome: Outcome::Values(values), failures: Vec::new() })
        }
    }

    fn score(fake: &mut Fake, rows: usize, share: f64) -> Result<Scores> {
        let failure_budget = FailureBudget::new("scorer".to_string(), share);
        Rescue {
            attempt: fake,
            failure_budget: &failure_budget,
            task: &Task::Regression,
            retries: 1,
        }
        .score(rows)
    }

    #[test]
    fn one_bad_row_costs_few_restarts() {
        let mut fake = Fake { poison: vec![5000], always: None, failures: 0 };
        let scores = score(&mut fake, 8192, 0.01).unwrap();
        assert_eq!(scores.failures, [RowFailure { row: 5000, detail: "died".to_string() }]);
        assert_eq!(fake.failures, 2 + 3 + 2, "the batch twice, three levels, the row twice");
    }

    #[test]
    fn a_model_that_always_fails_is_given_up() {
        for (cause, tries) in [(Cause::Broke, 2 + PROBES), (Cause::TimedOut, 2 + PROBES_OF_A_HANG)]
        {
            let mut fake = Fake { poison: Vec::new(), always: Some(cause), failures: 0 };
            let error = score(&mut fake, 100_000, 0.5).expect_err("nothing was ever answered");
            assert!(error.to_string().contains("rows tried one by one"), "{error}");
            assert_eq!(fake.failures, tries);
        }
    }

    #[test]
    fn too_many_bad_rows_end_the_run() {
        let mut fake = Fake { poison: (100..900).collect(), always: None, failures: 0 };
        let error = score(&mut fake, 1000, 0.01).expect_err("most rows fail");
        assert!(error.to_string().contains("11 of 1000 rows failed"), "{error}");
    }

    proptest! {
        #[test]
        fn exactly_the_bad_rows_are_rejected(
            rows in 1_usize..3000,
            poison in prop::collection::btree_set(0_usize..3000, 0..8),
        ) {
            let poison: Vec<_> = poison.into_iter().filter(|&row| row < rows).collect();
            let mut fake = Fake { poison: poison.clone(), always: None, failures: 0 };
            let scores = score(&mut fake, rows, 0.5).unwrap();
            let rejected: Vec<_> = scores.failures.iter().map(|failure| failure.row).collect();
            prop_assert_eq!(&rejected, &poison);
            prop_assert_eq!(scores.rows, rows);
            let Outcome::Values(values) = scores.outcome else { panic!("values were given") };
            for (row, value) in values.into_iter().enumerate() {
                prop_assert!(value == row as f64 || poison.contains(&row) && value.is_nan());
            }
        }
    }
}
