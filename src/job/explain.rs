//! The `[explain]` section: which generator, how many counterfactuals a row, and how they are refined.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ComparedMethod;

/// How rows are explained.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::explain)]
pub struct ExplainSpec {
    /// The folder of a fitted generator. Where none is named, `run` does as `method` says; `explain` needs it.
    pub generator: Option<PathBuf>,
    /// How counterfactuals are found.
    pub method: ExplainMethod,
    /// Several methods in one run: the table has a row for each of them, by its column `method`, and reports are by
    /// method. The first, or the one that `method` names, is published: the audit, gates and the summary are of it.
    /// Each is refined as it would be alone.
    pub compare: Vec<ExplainMethod>,
    /// Counterfactuals for each row and target: the first may change all that is allowed, each
    /// further one a random part of it. Equal ones are given once.
    pub samples: usize,
    /// What the first counterfactual of a row may change. By default all that is allowed.
    pub conditions: FirstConditions,
    /// Rows of a split: a range of the table that is explained, written and journalled as a whole. By default a
    /// 64th of the table, and at least 16,384.
    #[schemars(extend("x-formerly" = "unit_rows"))]
    pub split_rows: Option<u64>,
    /// How the generator's proposals are refined, each checked with the model. By default `full`.
    pub refine: Option<Refine>,
    /// Times that the model is asked about one counterfactual, at most.
    pub queries_per_row: u32,
    /// Seconds after which refinement stops: rows keep what was found until then. Results depend on the
    /// machine if it is reached. By default there is no limit.
    pub max_seconds: Option<f64>,
    /// Features that a counterfactual may change, at most. By default any number.
    pub max_changes: Option<u32>,
    /// Plausibility that a counterfactual must have, from 0 to 1: the share of held-out rows of the data that are at
    /// least as far from training rows as it is. A row for which none is found is `unsolved`. By default 0:
    /// any will do.
    pub min_plausibility: f64,
    /// Training rows of the target that are looked at for each row.
    pub neighbours: usize,
    /// Weight of plausibility against cost when a counterfactual is chosen: what its changes gain in closeness to
    /// training rows of the target, in units of cost.
    #[schemars(extend("x-formerly" = "nearness"))]
    pub plausibility_weight: f64,
    /// Whether counterfactuals keep to what all training rows keep to: numbers of which one is never above the
    /// other, categories that never go together. Rules of the feature schema hold in any case.
    pub coherence: Coherence,
    /// How far inside the target's decision refinement keeps counterfactuals, from 0.5 at the border to 1; 0 for
    /// anywhere inside. A row for which none gets so far keeps one that is valid. By default 0.55; where the
    /// model gives probabilities as far as it is cheap, without further changes.
    pub min_score: Option<f64>,
    /// Steps of the refinement that are left out.
    pub skip: Vec<Step>,
    /// How DiCE works, where `method` is one of its two.
    pub dice: DiceSpec,
}

impl Default for ExplainSpec {
    fn default() -> Self {
        ExplainSpec {
            generator: None,
            method: ExplainMethod::Auto,
            compare: Vec::new(),
            samples: 1,
            conditions: FirstConditions::Widest,
            split_rows: None,
            refine: None,
            queries_per_row: 256,
            max_seconds: None,
            max_changes: None,
            min_plausibility: 0.0,
            neighbours: 20,
            plausibility_weight: 0.3,
            coherence: Coherence::Observed,
            min_score: None,
            skip: Vec::new(),
            dice: DiceSpec::default(),
        }
    }
}

/// How counterfactuals are found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExplainMethod {
    /// A generator where training it costs less than searching for every row in scope, else `search`.
    #[default]
    Auto,
    /// The method of this program: the fitted generator, refined. `generator` means the same.
    #[serde(alias = "generator")]
    #[schemars(extend("x-also" = "generator"))]
    Cfrl,
    /// Training rows of the target, refined: nothing is trained.
    Search,
    /// The nearest training row of the target that keeps to the constraints, as it is.
    Nearest,
    /// DiCE, random sampling: random values in one more feature every round.
    DiceRandom,
    /// DiCE, genetic: bred from the nearest training rows of the target.
    DiceGenetic,
    /// LORE: rules of a decision tree that is learnt around each row. The table's column `rule` has them.
    Lore,
}

/// What DiCE does beyond its published defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiceSpec {
    /// Whether `dice_genetic` looks at the model's labels only, not at its probabilities.
    pub hard_labels: bool,
    /// How small changes of numbers are moved back after the fact. By default `linear` for `dice_random` and
    /// `binary` for `dice_genetic`.
    pub sparsity: Option<SparsitySearch>,
}

/// How numbers move back towards the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SparsitySearch {
    /// Step by step.
    Linear,
    /// By bisection.
    Binary,
    /// Not at all.
    Off,
}

/// Whether counterfactuals keep to what all training rows keep to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Coherence {
    /// They do.
    #[default]
    Observed,
    /// Only to the rules of the feature schema.
    Off,
}

impl ExplainMethod {
    /// Whether it is one of the methods that the generator is compared with, which are not refined unless asked for.
    pub fn is_rival(self) -> bool {
        matches!(
            self,
            ExplainMethod::Nearest
                | ExplainMethod::DiceRandom
                | ExplainMethod::DiceGenetic
                | ExplainMethod::Lore
        )
    }

    /// Whether it is one of DiCE's.
    pub fn is_dice(self) -> bool {
        matches!(self, ExplainMethod::DiceRandom | ExplainMethod::DiceGenetic)
    }

    /// Its name in a job.
    pub fn name(self) -> &'static str {
        match self {
            ExplainMethod::Auto => "auto",
            ExplainMethod::Cfrl => "cfrl",
            ExplainMethod::Search => "search",
            ExplainMethod::Nearest => "nearest",
            ExplainMethod::DiceRandom => "dice_random",
            ExplainMethod::DiceGenetic => "dice_genetic",
            ExplainMethod::Lore => "lore",
        }
    }

    /// What `auto` means with a generator at hand: one that has learnt nothing is not asked.
    pub fn with_generator(self, learnt: bool) -> ExplainMethod {
        match self {
            ExplainMethod::Auto if learnt => ExplainMethod::Cfrl,
            ExplainMethod::Auto => ExplainMethod::Search,
            decided => decided,
        }
    }
}

/// What the first counterfactual of a row may change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FirstConditions {
    /// All that is allowed.
    #[default]
    Widest,
    /// A random part of it, drawn by the row's key as for further ones: the paper's diverse counterfactuals.
    Drawn,
}

/// How the generator's proposals are refined.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Refine {
    /// Nothing.
    Off,
    /// Rows that it leaves unsolved get further candidates and neighbours.
    Repair,
    /// Also, the change is minimised while the prediction stays at the target.
    Full,
}

/// A step of the refinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Small changes go back first.
    Snap,
    /// Further proposals of the generator for rows that are still unsolved.
    Candidates,
    /// Training rows of the target.
    Neighbours,
    /// Changed features are put back.
    Reversion,
    /// Changed numbers move towards the original.
    Shrink,
    /// Plausibility counts when a counterfactual is chosen.
    Choice,
    /// Small spaces are searched exhaustively.
    Certificate,
}

/// How rows are explained, paths resolved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct ExplainJob {
    /// The generator's folder; without one it is trained.
    pub generator: Option<PathBuf>,
    /// How counterfactuals are found: the method that is published.
    pub method: ExplainMethod,
    /// Methods that are compared with it, in the same run.
    #[serde(default)]
    pub compare: Vec<ComparedMethod>,
    /// Counterfactuals for each row and target, at most.
    pub samples: usize,
    /// What the first of them may change.
    pub conditions: FirstConditions,
    /// Rows of a split.
    pub split_rows: Option<u64>,
    /// Whether they keep to what training rows keep to.
    pub coherence: Coherence,
    /// How DiCE works.
    pub dice: DiceSpec,
    /// How counterfactuals are refined.
    pub refine: RefineJob,
}

/// How counterfactuals are refined.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct RefineJob {
    /// How much.
    pub mode: Refine,
    /// Times that the model is asked about one counterfactual, at most.
    pub queries_per_row: u32,
    /// When it stops.
    pub max_time: Option<Duration>,
    /// Features that a counterfactual may change, at most.
    pub max_changes: Option<u32>,
    /// Plausibility that a counterfactual must have.
    pub min_plausibility: f64,
    /// Training rows that are looked at for each row.
    pub neighbours: usize,
    /// Weight of plausibility against cost.
    pub plausibility_weight: f64,
    /// How far inside the target's decision counterfactuals are kept; none for as far as it is cheap.
    pub min_score: Option<f64>,
    /// Steps that are left out.
    pub skip: Vec<Step>,
}

impl RefineJob {
    pub(super) fn new(spec: ExplainSpec, (mode, max_time): (Refine, Option<Duration>)) -> Self {
        RefineJob {
            mode,
            queries_per_row: spec.queries_per_row,
            max_time,
            max_changes: spec.max_changes,
            min_plausibility: spec.min_plausibility,
            neighbours: spec.neighbours,
            plausibility_weight: spec.plausibility_weight,
            min_score: spec.min_score,
            skip: spec.skip,
        }
    }

    /// Whether a step is done.
    pub fn does(&self, step: Step) -> bool {
        !self.skip.contains(&step)
    }
}

impl ExplainJob {
    /// One counterfactual a row, with everything as usual but for how much is refined.
    pub fn usual(mode: Refine) -> ExplainJob {
        let spec = ExplainSpec::default();
        ExplainJob {
            generator: None,
            method: spec.method,
            compare: Vec::new(),
            samples: spec.samples,
            conditions: spec.conditions,
            split_rows: spec.split_rows,
            coherence: spec.coherence,
            dice: spec.dice,
            refine: RefineJob::new(spec, (mode, None)),
        }
    }

    /// Whether counterfactuals are looked for among training rows.
    pub fn needs_neighbours(&self) -> bool {
        let refine = &self.refine;
        let looked_for = refine.neighbours > 0 && refine.does(Step::Neighbours);
        let compared = refine.plausibility_weight > 0.0 && refine.does(Step::Choice);
        self.method != ExplainMethod::Cfrl
            || (refine.mode != Refine::Off && (looked_for || compared))
    }
}
