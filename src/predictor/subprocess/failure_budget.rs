//! How much has failed in the whole run, and how much may.

use std::sync::atomic::{AtomicU64, Ordering};

use super::failure::{Cause, Failure};
use crate::error::{Error, Result};

/// Rows that may fail in any case, however small the table or the share.
const ROWS_FORGIVEN: f64 = 8.0;

/// The share is not measured against fewer rows than this: early failures may be bad luck.
const ROWS_MEASURED: u64 = 1000;

/// Time-outs after which a model is given up. Each costs a whole time limit.
const TIME_OUTS_FORGIVEN: u64 = 32;

/// The counts of a run, over all copies of the program.
pub(super) struct FailureBudget {
    program: String,
    share: f64,
    rows: AtomicU64,
    failed: AtomicU64,
    time_outs: AtomicU64,
}

impl FailureBudget {
    /// A run of `program` in which the given share of rows may fail.
    pub(super) fn new(program: String, share: f64) -> Self {
        let zero = || AtomicU64::new(0);
        FailureBudget { program, share, rows: zero(), failed: zero(), time_outs: zero() }
    }

    /// Rows that are about to be scored.
    pub(super) fn asked(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Rows that failed on their own, the last of them for this reason.
    ///
    /// # Errors
    /// When they are more than the job allows.
    pub(super) fn failed(&self, rows: usize, detail: &str) -> Result<()> {
        let failed = self.failed.fetch_add(rows as u64, Ordering::Relaxed) + rows as u64;
        let asked = self.rows.load(Ordering::Relaxed);
        let allowed = (self.share * asked.max(ROWS_MEASURED) as f64).max(ROWS_FORGIVEN).floor();
        if failed as f64 <= allowed {
            return Ok(());
        }
        let problem = format!(
            "{failed} of {asked} rows failed, expected at most {allowed}; the last one {detail}"
        );
        Err(Error::predictor(&self.program, problem).hint(
            "`predictor.max_failed_share` says how many may; a row is rejected if it fails alone",
        ))
    }

    /// A failure of a copy.
    ///
    /// # Errors
    /// When another copy would fail as well, or too many have hung.
    pub(super) fn noted(&self, failure: Failure) -> Result<Failure> {
        if failure.cause == Cause::Refused {
            return Err(failure.into_error(&self.program));
        }
        if failure.cause == Cause::TimedOut {
            let time_outs = self.time_outs.fetch_add(1, Ordering::Relaxed) + 1;
            if time_outs > TIME_OUTS_FORGIVEN {
                return Err(self.given_up(&format!("hung {time_outs} times"), failure));
            }
        }
        Ok(failure)
    }

    /// The error that ends the run.
    pub(super) fn given_up(&self, why: &str, last: Failure) -> Error {
        let problem = format!("{why}; the last time it {}", last.problem);
        Failure { problem, ..last }.into_error(&self.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_measured_once_there_is_enough_to_measure() {
        let failure_budget = FailureBudget::new("scorer".to_string(), 0.01);
        failure_budget.asked(50);
        assert!(failure_budget.failed(10, "died").is_ok());
        let error = failure_budget.failed(1, "died").expect_err("eleven of fifty");
        assert!(
            error.to_string().starts_with(
                "scorer: 11 of 50 rows failed, expected at most 10; the last one died"
            )
        );
        failure_budget.asked(9_950);
        assert!(failure_budget.failed(89, "died").is_ok());
        assert!(failure_budget.failed(1, "died").is_err());
    }

    #[test]
    fn a_few_rows_are_forgiven_even_where_none_may_fail() {
        let failure_budget = FailureBudget::new("scorer".to_string(), 0.0);
        failure_budget.asked(5_000);
        assert!(failure_budget.failed(8, "died").is_ok());
        assert!(failure_budget.failed(1, "died").is_err());
    }
}
