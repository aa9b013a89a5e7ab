//! The `[predictor]` section: as typed ([`PredictorSpec`]) and as meant ([`PredictorJob`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::Literal;

/// The model under explanation, seen only through its predictions.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::predictor)]
pub struct PredictorSpec {
    /// How the model is run: inside the program, or as a program of its own.
    pub kind: PredictorKindSpec,
    /// What the model predicts.
    #[serde(default)]
    pub task: TaskSpec,
    /// The class labels in the order of the model's scores. Needed only where the model does not tell.
    #[serde(default)]
    pub classes: Vec<Literal>,
    /// Whether the scores of a classifier are probabilities; `auto` asks the model.
    #[serde(default)]
    pub probabilities: ProbabilitiesSpec,

    /// What happens if the model decides otherwise when it is asked again about the same rows.
    #[serde(default)]
    pub repeatable: RepeatableSpec,

    /// `onnx`: the model file, relative to the job file.
    pub model: Option<PathBuf>,
    /// `onnx`: one input tensor per feature, or one float matrix of all features.
    #[serde(default)]
    pub inputs: InputsSpec,
    /// `onnx`, `inputs = "matrix"`: what a cell of the matrix is.
    #[serde(default)]
    pub encoding: MatrixSpec,
    /// `onnx`: input name for a feature whose name differs in the model.
    #[serde(default)]
    pub rename: BTreeMap<String, String>,
    /// `onnx`, `encoding = "standardised"`: the mean and standard deviation the model was trained with,
    /// for every numeric feature.
    #[serde(default)]
    pub standardise: BTreeMap<String, Standardise>,
    /// `onnx`: what a null text becomes; a null number becomes NaN.
    #[serde(default)]
    pub null_text: String,
    /// `onnx`: what runs the model.
    #[serde(default)]
    pub engine: EngineSpec,

    /// `subprocess`: the program and its arguments. A program or argument with a `/` in it that exists
    /// relative to the job file is taken from there.
    #[serde(default)]
    pub command: Vec<String>,
    /// `subprocess`: how many copies run at once; 0 means one per thread.
    #[serde(default)]
    pub workers: usize,
    /// `subprocess`: seconds a worker may take to start and shake hands.
    #[serde(default = "start_seconds")]
    pub start_seconds: f64,
    /// Seconds a worker may take for one batch; for `onnx`, the model for at most 2,048 rows.
    #[serde(default = "batch_seconds")]
    pub batch_seconds: f64,
    /// `subprocess`: how often a failing batch is tried again with a fresh worker before it is bisected.
    #[serde(default = "retries")]
    pub retries: u32,
    /// `subprocess`: share of rows that may fail on their own before the model itself is held to be broken.
    #[serde(default = "max_failed_share")]
    pub max_failed_share: f64,
    /// `subprocess`: environment variables that the program gets beside the usual ones: `NAME` as it is
    /// here, `PREFIX*` all that begin so, `NAME=value` with this value.
    #[serde(default)]
    pub environment: Vec<String>,
    /// `subprocess`: whether the program is kept from the network.
    #[serde(default)]
    pub sandbox: SandboxSpec,
    /// `subprocess`: what each process of the program may use at most.
    #[serde(default)]
    pub limits: LimitsSpec,
}

/// What runs an ONNX model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EngineSpec {
    /// The program itself where it knows every operator and gives the same predictions, else ONNX Runtime.
    #[default]
    Auto,
    /// ONNX Runtime.
    OnnxRuntime,
}

/// Whether scorer programs are kept from the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxSpec {
    /// Where the system allows it; a warning says where it does not.
    #[default]
    Auto,
    /// No.
    Off,
    /// Yes; an error where the system does not allow it.
    Require,
}

/// What each process of a scorer program may use at most.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::limits)]
pub struct LimitsSpec {
    /// Address space, such as `"8GiB"`: at least 64MiB. No limit unless given: some runtimes reserve far
    /// more than they use.
    pub memory: Option<String>,
    /// Open files. Unless given, what the system sets.
    pub files: Option<u64>,
    /// Processes and threads of the user that runs overturn, all programs taken together.
    /// No limit unless given.
    pub processes: Option<u64>,
    /// Seconds of processor time. No limit unless given.
    pub cpu_seconds: Option<u64>,
}

/// What each process of a scorer program may use at most, checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Open files.
    pub files: Option<u64>,
    /// Processes and threads of the user.
    pub processes: Option<u64>,
    /// Seconds of processor time.
    pub cpu_seconds: Option<u64>,
}

pub(super) fn start_seconds() -> f64 {
    60.0
}

pub(super) fn batch_seconds() -> f64 {
    120.0
}

pub(super) fn retries() -> u32 {
    1
}

pub(super) fn max_failed_share() -> f64 {
    0.01
}

/// How the model is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PredictorKindSpec {
    /// An ONNX file: trees and linear models are scored by the program itself, all others by ONNX Runtime.
    Onnx,
    /// Any program that reads Arrow on its standard input and writes Arrow to its standard output.
    Subprocess,
}

/// What the model predicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskSpec {
    /// A class label, and a score per class if the model has one.
    #[default]
    Classification,
    /// A number.
    Regression,
}

/// Whether a classifier's scores are probabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbabilitiesSpec {
    /// Ask the model.
    #[default]
    Auto,
    /// Scores are probabilities; a row that does not sum to one is an error.
    Given,
    /// Scores are something else (margins, votes) and are not used.
    None,
}

/// What happens if a model decides otherwise when it is asked again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepeatableSpec {
    /// It is an error: a counterfactual is valid only if the decision stays what it is.
    #[default]
    Require,
    /// It is a warning and a remark in the summary, for models that are noisy by design.
    Warn,
    /// It is not looked at.
    Off,
}

/// Classes that a model may have. Answers, targets and reports hold a number for each of them.
pub const MOST_CLASSES: usize = 1000;

/// How features reach an ONNX model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputsSpec {
    /// One tensor of shape [rows, 1] per feature, of the type the model declares.
    #[default]
    Columns,
    /// One float tensor of shape [rows, width].
    Matrix,
}

/// What a cell of the input matrix is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MatrixSpec {
    /// Every feature as it is; all must be numeric or boolean.
    #[default]
    Raw,
    /// Numerics as they are, categoricals as the position of their value in the feature schema.
    Codes,
    /// Numerics standardised and first, then a one-hot block per categorical, in the feature schema's
    /// order.
    Standardised,
}

/// Mean and standard deviation a model was trained with.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::standardise)]
pub struct Standardise {
    /// Subtracted first.
    pub mean: f64,
    /// Divided by.
    pub std: f64,
}

/// The model to explain, complete and checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictorJob {
    /// What it predicts.
    pub task: TaskSpec,
    /// Class labels in score order; empty if the model is to be asked.
    pub classes: Vec<String>,
    /// Whether scores are probabilities.
    pub probabilities: ProbabilitiesSpec,
    /// What happens if it decides otherwise when it is asked again.
    pub repeatable: RepeatableSpec,
    /// How it is run.
    pub kind: PredictorKind,
}

/// How a model is run, with what only that way needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PredictorKind {
    /// By ONNX Runtime.
    Onnx(OnnxJob),
    /// As a program of its own.
    Subprocess(SubprocessJob),
}

/// An ONNX model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OnnxJob {
    /// The model file.
    pub model: PathBuf,
    /// How features become inputs.
    pub inputs: OnnxInputs,
    /// What a null text becomes.
    pub null_text: String,
    /// What runs it.
    #[serde(default)]
    pub engine: EngineSpec,
    /// Limit for one run of the model.
    #[serde(default = "batch_limit")]
    pub batch_limit: Duration,
}

/// The limit of models that were described before there was one.
fn batch_limit() -> Duration {
    Duration::from_secs_f64(batch_seconds())
}

/// How features become the inputs of an ONNX model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum OnnxInputs {
    /// One tensor per feature, under these names where they differ from the feature's.
    Columns {
        /// Feature name → input name.
        rename: BTreeMap<String, String>,
    },
    /// One matrix, each feature a column as it is.
    Raw,
    /// One matrix, categoricals as the position of their value in the feature schema.
    Codes,
    /// One matrix, numerics standardised and first, then one-hot blocks.
    Standardised {
        /// Numeric feature → statistics.
        standardise: BTreeMap<String, Standardise>,
    },
}

/// A scorer program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubprocessJob {
    /// Program and arguments, paths resolved.
    pub command: Vec<String>,
    /// Where it is started: the job file's folder.
    pub folder: PathBuf,
    /// How many run at once; 0 means one per thread.
    pub workers: usize,
    /// Limit for start and handshake.
    pub start_limit: Duration,
    /// Limit for one batch.
    pub batch_limit: Duration,
    /// Further tries for a failing batch before it is bisected.
    pub retries: u32,
    /// Share of rows that may fail on their own.
    pub max_failed_share: f64,
    /// Environment variables beside the usual ones: `NAME`, `PREFIX*` or `NAME=value`.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Whether it is kept from the network.
    #[serde(default)]
    pub sandbox: SandboxSpec,
    /// What each of its processes may use at most.
    #[serde(default)]
    pub limits: Limits,
}
