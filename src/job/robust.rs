//! The `[robust]` section: models beside the predictor under which counterfactuals must hold too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PredictorJob, RetrainedSpec};

/// Models beside the predictor under which counterfactuals must hold too, so that they last when the model is
/// replaced: last night's, challengers, copies trained on bootstrap samples.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::robust)]
pub struct RobustSpec {
    /// The models. A path or URL takes the place of `predictor.model`, a list of texts that of `predictor.command`;
    /// all else is as in `[predictor]`. They are asked about what the predictor accepts, and about nothing else.
    pub models: Vec<RetrainedSpec>,
    /// Least share of the models that must predict the target for a counterfactual; 0 only counts them. A row for
    /// which no counterfactual gets so far keeps the one under which the most hold.
    pub share: f64,
}

impl Default for RobustSpec {
    fn default() -> Self {
        RobustSpec { models: Vec::new(), share: 0.8 }
    }
}

/// Models beside the predictor, paths resolved.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
pub struct RobustJob {
    /// The models.
    pub models: Vec<PredictorJob>,
    /// Least share of them that must predict the target.
    pub share: f64,
}

impl RobustJob {
    /// How many of the models must predict the target.
    pub fn needed(&self) -> u32 {
        // A share of .8 of five is four, whatever .8 × 5 is in binary.
        (self.share * self.models.len() as f64 - 1e-9).ceil().max(0.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{PredictorKind, ProbabilitiesSpec, RepeatableSpec, SubprocessJob, TaskSpec};

    fn robust(models: usize, share: f64) -> RobustJob {
        let program = SubprocessJob {
            command: vec!["model".to_string()],
            folder: "/".into(),
            workers: 0,
            start_limit: std::time::Duration::from_secs(1),
            batch_limit: std::time::Duration::from_secs(1),
            retries: 0,
            max_failed_share: 0.0,
            environment: Vec::new(),
            sandbox: crate::job::SandboxSpec::Auto,
            limits: crate::job::Limits::default(),
        };
        let model = PredictorJob {
            task: TaskSpec::Classification,
            classes: Vec::new(),
            probabilities: ProbabilitiesSpec::Auto,
            repeatable: RepeatableSpec::Off,
            kind: PredictorKind::Subprocess(program),
        };
        RobustJob { models: vec![model; models], share }
    }

    #[test]
    fn a_share_is_a_number_of_models() {
        for (models, share, needed) in
            [(5, 0.8, 4), (5, 0.81, 5), (10, 0.3, 3), (3, 0.0, 0), (3, 1.0, 3), (0, 0.8, 0)]
        {
            assert_eq!(robust(models, share).needed(), needed, "{share} of {models}");
        }
    }
}
