//! What a run must reach to be published.

use serde::{Deserialize, Serialize};

use crate::job::GatesSpec;

/// What a run reached.
#[derive(Debug, Clone, Default)]
pub struct Reached {
    /// Share of the counterfactuals needed that are valid; none if none was needed.
    pub validity: Option<f64>,
    /// Share of the rows in scope that were rejected.
    pub reject_share: f64,
    /// Median plausibility of the valid counterfactuals; none if there is none.
    pub plausibility: Option<f64>,
    /// Share of the valid counterfactuals that hold under retrained models; none if none was asked.
    pub survival: Option<f64>,
    /// Share of the valid counterfactuals that hold under enough models beside the predictor; none if there is none.
    pub robust: Option<f64>,
    /// Share of the previous run's counterfactuals that still hold; none if no run is compared with, or it has none.
    pub recourse_validity: Option<f64>,
    /// Share of the counterfactuals that changed without need; none in the same way.
    pub needless_churn: Option<f64>,
    /// The widest gap between groups that is not by chance; none if no groups could be compared.
    pub gap: Option<f64>,
    /// MMD² as a multiple of that of the rows left as they are, by target.
    pub mmd_ratios: Vec<(String, Option<f64>)>,
}

/// One gate and whether the run passes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Its key in the job.
    pub gate: String,
    /// What is demanded.
    pub limit: f64,
    /// What was reached.
    pub found: Option<f64>,
    /// Whether that is enough. What could not be measured is not, but validity and plausibility where nothing
    /// was needed are.
    pub passed: bool,
}

/// Holds a run against its gates.
pub fn check_gates(gates: &GatesSpec, reached: &Reached) -> Vec<Gate> {
    let mut checked = Vec::new();
    let mut add = |gate: String, limit: f64, found: Option<f64>, passed: bool| {
        checked.push(Gate { gate, limit, found, passed });
    };
    if let Some(least) = gates.min_validity {
        let passed = reached.validity.is_none_or(|found| found >= least);
        add("report.gates.min_validity".to_string(), least, reached.validity, passed);
    }
    if let Some(most) = gates.max_reject_share {
        let found = reached.reject_share;
        add("report.gates.max_reject_share".to_string(), most, Some(found), found <= most);
    }
    if let Some(least) = gates.min_median_plausibility {
        let found = reached.plausibility;
        let passed = found.map_or(reached.validity.is_none(), |found| found >= least);
        add("report.gates.min_median_plausibility".to_string(), least, found, passed);
    }
    if let Some(least) = gates.min_survival {
        let found = reached.survival;
        let passed = found.map_or(reached.validity.is_none(), |found| found >= least);
        add("report.gates.min_survival".to_string(), least, found, passed);
    }
    if let Some(least) = gates.min_robust {
        let found = reached.robust;
        let passed = found.map_or(reached.validity.is_none(), |found| found >= least);
        add("report.gates.min_robust".to_string(), least, found, passed);
    }
    // Where the previous run has told nothing, nothing can have become of it.
    if let Some(least) = gates.min_recourse_validity {
        let found = reached.recourse_validity;
        let passed = found.is_none_or(|found| found >= least);
        add("report.gates.min_recourse_validity".to_string(), least, found, passed);
    }
    if let Some(most) = gates.max_needless_churn {
        let found = reached.needless_churn;
        let passed = found.is_none_or(|found| found <= most);
        add("report.gates.max_needless_churn".to_string(), most, found, passed);
    }
    if let Some(most) = gates.max_gap {
        let found = reached.gap;
        let passed = found.map_or(reached.validity.is_none(), |found| found <= most);
        add("report.gates.max_gap".to_string(), most, found, passed);
    }
    if let Some(most) = gates.max_mmd_ratio {
        for (target, found) in &reached.mmd_ratios {
            let gate = format!("report.gates.max_mmd_ratio ({target})");
            add(gate, most, *found, found.is_some_and(|found| found <= most));
        }
    }
    checked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reached_is_held_against_every_limit() {
        let gates = GatesSpec {
            min_validity: Some(0.9),
            max_mmd_ratio: Some(1.1),
            max_reject_share: Some(0.01),
            min_median_plausibility: Some(0.2),
            min_survival: Some(0.8),
            min_robust: Some(0.9),
            min_recourse_validity: Some(0.9),
            max_needless_churn: Some(0.1),
            max_gap: Some(0.1),
        };
        let reached = Reached {
            validity: Some(0.95),
            reject_share: 0.02,
            plausibility: Some(0.2),
            survival: Some(0.79),
            robust: Some(0.95),
            recourse_validity: Some(0.9),
            needless_churn: Some(0.11),
            gap: Some(0.1),
            mmd_ratios: vec![("yes".to_string(), Some(1.0)), ("no".to_string(), None)],
        };
        let passed: Vec<bool> =
            check_gates(&gates, &reached).iter().map(|gate| gate.passed).collect();
        assert_eq!(
            passed,
            [true, false, true, false, true, true, false, true, true, false],
            "what cannot be measured fails"
        );
        assert!(check_gates(&GatesSpec::default(), &reached).is_empty());
    }

    #[test]
    fn answers_that_were_needed_must_be_measured_for_their_plausibility() {
        let gates = GatesSpec { min_median_plausibility: Some(0.2), ..GatesSpec::default() };
        let passes = |validity: Option<f64>, plausibility: Option<f64>| {
            let reached = Reached { validity, plausibility, ..Reached::default() };
            check_gates(&gates, &reached)[0].passed
        };
        assert!(passes(None, None), "nothing was needed");
        assert!(!passes(Some(0.0), None), "needed, and none is valid");
        assert!(!passes(Some(1.0), Some(0.19)));
    }
}
