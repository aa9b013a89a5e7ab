//! The `[report]` section: segments, MMD, and the gates that a run must pass to be published.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PredictorJob;

/// Random encoders that a generator keeps.
pub const MOST_ENCODERS: usize = 32;

/// What is reported.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReportSpec {
    /// Columns of the feature table whose values divide the rows into segments: texts, whole numbers or
    /// booleans. Every combination that occurs is a segment.
    pub by: Vec<String>,
    /// How like rows of the target class counterfactuals are.
    pub mmd: MmdSpec,
    /// Other trainings of the model, such as last month's, or copies trained on bootstrap samples:
    /// `reports/survival` says how many of the valid counterfactuals each of them decides as the target too. A path
    /// takes the place of `predictor.model`, a list of texts that of `predictor.command`; all else is as in
    /// `[predictor]`.
    pub retrained: Vec<RetrainedSpec>,
    /// What a run must reach to be published.
    pub gates: GatesSpec,
}

/// Another training of the model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RetrainedSpec {
    /// An ONNX file, relative to the job file.
    Model(PathBuf),
    /// A program and its arguments.
    Command(Vec<String>),
}

/// Target-conditional MMD² of counterfactuals against training rows of the target class.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::mmd)]
pub struct MmdSpec {
    /// What rows are compared in.
    pub space: MmdSpace,
    /// Random encoders whose figures are averaged, at most 32.
    pub encoders: usize,
    /// Counterfactuals of each target that are compared, chosen by key; 0 for all of them.
    pub rows: u64,
    /// Kernel values up to which MMD² is computed exactly; beyond them by random Fourier features.
    pub pairs: u64,
    /// Random Fourier features per encoder.
    pub frequencies: usize,
    /// Permutations for a p-value; 0 for none.
    pub permutations: usize,
}

/// What rows are compared in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MmdSpace {
    /// The outputs of random untrained encoders 32-16-5, as in the paper.
    #[default]
    Encoder,
    /// The standardised features themselves.
    Raw,
    /// No MMD.
    None,
}

impl MmdSpace {
    /// Its name in jobs and reports.
    pub fn name(self) -> &'static str {
        match self {
            MmdSpace::Encoder => "encoder",
            MmdSpace::Raw => "raw",
            MmdSpace::None => "none",
        }
    }
}

impl Default for MmdSpec {
    fn default() -> Self {
        MmdSpec {
            space: MmdSpace::Encoder,
            encoders: 10,
            rows: 1_000,
            pairs: 400_000_000,
            frequencies: 256,
            permutations: 0,
        }
    }
}

/// What a run must reach to be published. A run that fails a gate is kept under a name that readers skip.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::gates)]
pub struct GatesSpec {
    /// Least share of the rows that need a counterfactual and get a valid one.
    pub min_validity: Option<f64>,
    /// Most that MMD² may be as a multiple of that of the rows left as they are, for every target class.
    pub max_mmd_ratio: Option<f64>,
    /// Most that may be rejected of the rows in scope.
    pub max_reject_share: Option<f64>,
    /// Least median of `plausibility` over the valid counterfactuals.
    pub min_median_plausibility: Option<f64>,
    /// Least share of the valid counterfactuals that hold under the models of `report.retrained`, on average.
    pub min_survival: Option<f64>,
    /// Least share of the valid counterfactuals that hold under as many models as `robust.share` asks for.
    pub min_robust: Option<f64>,
    /// Least share of the valid counterfactuals of `audit.previous` that still hold, of rows that are still there.
    pub min_recourse_validity: Option<f64>,
    /// Most of the counterfactuals that are others than in `audit.previous` though the earlier ones still hold and
    /// cost no more, as a share of the rows that have one in both runs.
    pub max_needless_churn: Option<f64>,
    /// Most that the share of a group's refused rows that get a valid counterfactual may differ from that of its reference
    /// group, among the groups of `audit.by` where Holm's p is at most 0.05. Gaps that the section `second_search`
    /// finds to be the search's do not count.
    pub max_gap: Option<f64>,
}

/// What is reported, checked.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct ReportJob {
    /// Segment columns.
    pub by: Vec<String>,
    /// MMD.
    pub mmd: MmdSpec,
    /// Other trainings of the model.
    pub retrained: Vec<PredictorJob>,
    /// Gates.
    pub gates: GatesSpec,
}
