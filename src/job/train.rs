//! The `[autoencoder]` and `[train]` sections: how the generator is learnt. The defaults are one set for
//! all tables; what depends on the table (latent size, λ without an autoencoder) is a rule in the code.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The autoencoder in whose latent space counterfactuals are searched.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::autoencoder)]
pub struct AutoencoderSpec {
    /// `auto` trains one and does without it where it reconstructs too badly; `always` fails then;
    /// `never` does without (the paper's variant: tanh of the standardised row).
    pub kind: AutoencoderKind,
    /// Widths of the hidden layers. By default 128; none for a table of few categoricals only.
    pub hidden: Option<Vec<usize>>,
    /// Width of the latent. By default 15, and seven eighths of the features from 18 features on.
    pub latent: Option<usize>,
    /// Training steps. By default 4,000.
    pub steps: Option<usize>,
    /// Rows per step. By default 256.
    pub batch: Option<usize>,
    /// Adam's learning rate at the start; it falls to nothing along a cosine. By default 0.002.
    pub learning_rate: Option<f64>,
    /// Least share of what there is to reconstruct: 1 is perfect, 0 no better than each feature's mean or
    /// most frequent value.
    pub min_quality: f64,
}

/// Whether there is an autoencoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AutoencoderKind {
    /// If it reconstructs well enough.
    #[default]
    Auto,
    /// In any case; too bad a one is an error.
    Always,
    /// No: tanh of the standardised row.
    Never,
}

impl Default for AutoencoderSpec {
    fn default() -> Self {
        AutoencoderSpec {
            kind: AutoencoderKind::Auto,
            hidden: None,
            latent: None,
            steps: None,
            batch: None,
            learning_rate: None,
            min_quality: 0.5,
        }
    }
}

/// How the generator is trained.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::train)]
pub struct TrainSpec {
    /// Start from an earlier run's generator (its folder), if it was made for the same schema and layout.
    pub from: Option<PathBuf>,
    /// Rows to train on, at most; a sample by key if there are more. By default what the memory limit holds.
    pub max_rows: Option<usize>,
    /// Rows kept aside to evaluate the generator while it learns.
    pub validation_rows: usize,
    /// SQL predicate: rows on which the finished generator is evaluated. They are never trained on.
    pub test_where: Option<String>,
    /// How many of them, at most.
    pub test_rows: usize,

    /// Steps, at most: each is one batch of experience and one update. By default 5,000.
    pub max_steps: Option<usize>,
    /// Seconds for the actor and critic, at most.
    pub max_seconds: f64,
    /// Steps between two evaluations on the validation rows.
    pub validate_every: usize,
    /// Evaluations without improvement after which training ends before its last step. Those are not counted in which
    /// less than half of the rows are valid, nor those while λ grows (where targets are no labels). By default 4, and
    /// 20 with the paper's preset; 1000000000 is never.
    pub patience: Option<usize>,
    /// Seconds between two checkpoints.
    pub checkpoint_seconds: f64,

    /// `default`, or the paper's method and numbers (100,000 steps of 128 rows at 0.001, for the
    /// autoencoder too).
    pub preset: Preset,
    /// Rows per step. By default 128, and 256 where there are more than two classes.
    pub batch: Option<usize>,
    /// Width of the actor's and the critic's two hidden layers.
    pub hidden: usize,
    /// Adam's learning rate of actor and critic at the start; it falls along a cosine. By default 0.002.
    pub learning_rate: Option<f64>,
    /// λ_s, the weight of sparsity. By default up to 2.4, 0.4 without an autoencoder, and less while validity is
    /// too low; for regressions, targets other than labels and the paper's preset 0.5, and 0.1 without an
    /// autoencoder.
    pub sparsity: Option<f64>,
    /// λ_c, the weight of consistency. By default 0.5, and 0 without an autoencoder.
    pub consistency: Option<f64>,
    /// What the model's prediction is worth: `label` (1 for the target, else 0) or `probability`
    /// (also how near it came). By default `label` for classes and `probability` for regressions.
    pub reward: Option<RewardKind>,
    /// What the generator is told and asked for: labels, the target class's probability, or the whole
    /// distribution.
    pub targets: TargetsKind,
    /// Class balance, for rare classes.
    pub balance: Balance,
}

/// A set of defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Ours.
    #[default]
    Default,
    /// The paper's.
    Paper,
}

/// What the model's prediction is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RewardKind {
    /// 1 for the target, else 0.
    Label,
    /// Mostly for the decision, a class's or a range's, and a part for how near the model came to it.
    Probability,
}

/// What the generator is told and asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetsKind {
    /// The predicted and the target class.
    #[default]
    Label,
    /// The target class, and the probability that it should have at least.
    Probability,
    /// The predicted and the target distribution over all classes.
    Distribution,
}

/// Class balance of what is trained on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Rows as they come, targets uniform.
    #[default]
    None,
    /// Rows of every predicted class equally often.
    Rows,
    /// Targets that fail on the validation rows more often.
    Targets,
}

impl Default for TrainSpec {
    fn default() -> Self {
        TrainSpec {
            from: None,
            max_rows: None,
            validation_rows: 1_000,
            test_where: None,
            test_rows: 1_000,
            max_steps: None,
            max_seconds: 3_600.0,
            validate_every: 250,
            patience: None,
            checkpoint_seconds: 60.0,
            preset: Preset::Default,
            batch: None,
            hidden: 256,
            learning_rate: None,
            sparsity: None,
            consistency: None,
            reward: None,
            targets: TargetsKind::Label,
            balance: Balance::None,
        }
    }
}

/// How the generator is trained, resolved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct TrainJob {
    /// An earlier generator to start from.
    pub from: Option<PathBuf>,
    /// What is trained and evaluated on.
    pub rows: TrainRows,
    /// When training ends.
    pub limits: TrainLimits,
    /// What is done in each step.
    pub method: Method,
}

/// Rows to train and to evaluate on.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct TrainRows {
    /// To train on, at most.
    pub max_rows: Option<usize>,
    /// Kept aside for validation.
    pub validation_rows: usize,
    /// Which rows the finished generator is evaluated on.
    pub test_predicate: Option<String>,
    /// How many, at most.
    pub test_rows: usize,
}

/// When training ends, and when it is evaluated and saved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct TrainLimits {
    /// Steps, at most.
    pub max_steps: usize,
    /// Time, at most.
    pub max_time: Duration,
    /// Steps between evaluations.
    pub validate_every: usize,
    /// Evaluations without improvement until the end.
    pub patience: usize,
    /// Time between checkpoints.
    pub checkpoint_every: Duration,
}

/// The numbers of the method. Two generators with the same numbers, data and seed are the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Which set of defaults, and of details that have no key of their own.
    pub preset: Preset,
    /// Rows per step; by default by the number of classes.
    pub batch: Option<usize>,
    /// Width of the hidden layers.
    pub hidden: usize,
    /// Learning rate.
    pub learning_rate: f64,
    /// λ_s, if given.
    pub sparsity: Option<f64>,
    /// λ_c, if given.
    pub consistency: Option<f64>,
    /// What a prediction is worth; by default by what the model gives.
    pub reward: Option<RewardKind>,
    /// What is asked for.
    pub targets: TargetsKind,
    /// Class balance.
    pub balance: Balance,
}

/// The autoencoder, resolved. What is `None` follows from the table.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct AutoencoderJob {
    /// Whether there is one.
    pub kind: AutoencoderKind,
    /// Widths of the hidden layers.
    pub hidden: Option<Vec<usize>>,
    /// Width of the latent.
    pub latent: Option<usize>,
    /// Training steps.
    pub steps: usize,
    /// Rows per step.
    pub batch: usize,
    /// Learning rate.
    pub learning_rate: f64,
    /// Least quality.
    pub min_quality: f64,
}
