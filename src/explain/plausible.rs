//! How plausible counterfactuals are, and which counterfactuals are refused or preferred for it.

use std::sync::Arc;

use super::Explainer;
use super::explained::Finding;
use crate::encode::Layout;
use crate::error::{Error, Result};
use crate::feature::Rows;
use crate::job::ExplainJob;
use crate::metrics::Status;
use crate::nearest::{LEAST_POINTS, Plausibility, Points};

/// What counterfactuals are compared with.
pub(super) fn comparison(
    job: &ExplainJob,
    points: Option<&Points>,
    layout: &Arc<Layout>,
) -> Result<Option<Arc<Plausibility>>> {
    check_plausibility(job, points.map_or(0, |points| points.len))?;
    Ok(points.and_then(|points| Plausibility::new(points, layout)).map(Arc::new))
}

/// Refuses to demand plausibility where there are too few training rows to tell it by.
///
/// # Errors
/// Names the key, the rows found and those expected.
pub fn check_plausibility(job: &ExplainJob, rows: usize) -> Result<()> {
    let least = job.refine.min_plausibility;
    if rows >= LEAST_POINTS || least == 0.0 {
        return Ok(());
    }
    let problem = format!(
        "is {least}, but the generator keeps {rows} training rows to compare with, expected {LEAST_POINTS} or more"
    );
    let hint = "remove the key, or train on more rows";
    Err(Error::input("explain.min_plausibility", problem).hint(hint))
}

impl Explainer {
    /// The plausibility of counterfactuals; NaN for rows that are not solved.
    pub(super) fn plausibility_of(&self, counterfactuals: &Rows, findings: &[Finding]) -> Vec<f64> {
        let plausibility = self.plausibility.as_ref();
        let one = |(row, finding): (usize, &Finding)| {
            let measured = plausibility.filter(|_| finding.status == Status::Solved);
            measured.map_or(f64::NAN, |plausibility| plausibility.of(counterfactuals, row))
        };
        findings.iter().enumerate().map(one).collect()
    }

    /// Which of the rows that reaches the target are less plausible than a counterfactual must be. The rows are
    /// only made where that matters.
    pub(super) fn implausible(&self, rows: impl FnOnce() -> Rows, reached: &[bool]) -> Vec<bool> {
        let least = self.refiner.min_plausibility();
        match self.plausibility.as_ref().filter(|_| least > 0.0) {
            None => vec![false; reached.len()],
            Some(plausibility) => {
                let rows = rows();
                let below = |(row, reached): (usize, &bool)| {
                    *reached && plausibility.of(&rows, row) < least
                };
                reached.iter().enumerate().map(below).collect()
            }
        }
    }
}
