//! The job file: as typed ([`JobSpec`]), and as meant ([`Job`]) with paths resolved, placeholders
//! filled and every fault found. Each stage is handed its own part, never the whole.

mod audit;
mod compare;
mod explain;
mod input;
mod limits;
mod lineage;
mod memory;
mod method;
mod output;
mod paths;
mod placeholders;
mod predictor;
mod report;
mod resolve;
mod resolve_predictor;
mod robust;
mod runtime;
mod storage;
mod tables;
mod target;
mod train;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{self, Overrides};
use crate::error::{Error, Kind, Result};

pub use audit::{AuditJob, AuditPageSpec, AuditSpec, MOST_BUDGETS, Section};
pub use compare::ComparedMethod;
pub use explain::{
    Coherence, DiceSpec, ExplainJob, ExplainMethod, ExplainSpec, FirstConditions, Refine,
    RefineJob, SparsitySearch, Step,
};
pub use input::{
    IcebergTable, InputJob, InputSpec, OneOrMany, ScoresJob, ScoresSpec, TableAt, TableFormat,
    TableSpec, VersionedSpec,
};
pub use limits::{FARTHEST, LIMITS};
pub use lineage::{LineageJob, LineageSpec};
pub use memory::{MemoryEstimate, TableSizes, available_memory};
pub use output::{
    Beside, CommitMode, OutputJob, OutputSpec, SchemaMode, TableOutputJob, TableOutputSpec,
};
pub use paths::scratch_of;
pub use placeholders::Placeholders;
pub use predictor::{
    EngineSpec, InputsSpec, Limits, LimitsSpec, MOST_CLASSES, MatrixSpec, OnnxInputs, OnnxJob,
    PredictorJob, PredictorKind, PredictorKindSpec, PredictorSpec, ProbabilitiesSpec,
    RepeatableSpec, SandboxSpec, Standardise, SubprocessJob, TaskSpec,
};
pub use report::{
    GatesSpec, MOST_ENCODERS, MmdSpace, MmdSpec, ReportJob, ReportSpec, RetrainedSpec,
};
pub use robust::{RobustJob, RobustSpec};
pub use runtime::{Bytes, Device, MOST_THREADS, RuntimeJob, RuntimeSpec};
pub use storage::StorageSpec;
pub use target::{Target, TargetSpec};
pub use train::{
    AutoencoderJob, AutoencoderKind, AutoencoderSpec, Balance, Method, Preset, RewardKind,
    TargetsKind, TrainJob, TrainLimits, TrainRows, TrainSpec,
};

/// A job: which table, which model, where to.
///
/// Text values may hold `${name}` placeholders, filled by `--set name=value`; `$${` is a literal `${`.
/// Relative paths start from the job file's folder.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Tables in.
    pub input: InputSpec,
    /// The model under explanation.
    pub predictor: PredictorSpec,
    /// What the model should decide instead.
    pub target: Option<TargetSpec>,
    /// The autoencoder in whose latent space counterfactuals are searched.
    #[serde(default)]
    pub autoencoder: AutoencoderSpec,
    /// How the generator is trained.
    #[serde(default)]
    pub train: TrainSpec,
    /// How rows are explained.
    #[serde(default)]
    pub explain: ExplainSpec,
    /// Models beside the predictor under which counterfactuals must hold too.
    #[serde(default)]
    pub robust: RobustSpec,
    /// What is reported.
    #[serde(default)]
    pub report: ReportSpec,
    /// What is told of groups.
    #[serde(default)]
    pub audit: AuditSpec,
    /// Where the results go.
    pub output: OutputSpec,
    /// What the machine may give. Does not change results.
    #[serde(default)]
    pub runtime: RuntimeSpec,
    /// Who is told of runs. Does not change results.
    #[serde(default)]
    pub lineage: LineageSpec,
    /// Options of object stores, by bucket.
    #[serde(default)]
    pub storage: StorageSpec,
}

/// A job, complete and valid.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Job {
    /// Where it was read from. No part of what it says.
    #[serde(skip)]
    pub file: PathBuf,
    /// Tables in.
    pub input: InputJob,
    /// The model.
    pub predictor: PredictorJob,
    /// The target; commands that need one ask for it.
    pub target: Option<Target>,
    /// The autoencoder.
    pub autoencoder: AutoencoderJob,
    /// How the generator is trained.
    pub train: TrainJob,
    /// How rows are explained.
    pub explain: ExplainJob,
    /// Models beside the predictor.
    #[serde(default)]
    pub robust: RobustJob,
    /// What is reported.
    pub report: ReportJob,
    /// What is told of groups.
    #[serde(default)]
    pub audit: AuditJob,
    /// Where to.
    pub output: OutputJob,
    /// Threads, memory, device, seed.
    pub runtime: RuntimeJob,
    /// Who is told of runs.
    #[serde(skip)]
    pub lineage: LineageJob,
    /// Files of this machine that stand for URLs of the job: where they are, and the URL. No part of what it says.
    #[serde(skip)]
    pub copies: Vec<(PathBuf, String)>,
}

impl PredictorJob {
    /// A model that is named by an argument of the command line; `settings` are keys of `[predictor]`.
    ///
    /// # Errors
    /// All faults of the settings at once.
    pub fn of_argument(argument: &str, settings: serde_json::Value) -> Result<PredictorJob> {
        let spec: PredictorSpec = serde_json::from_value(settings)
            .map_err(|error| Error::spec(argument, "cannot be used").source(error))?;
        let positions = document::KeyPositions::argument(argument);
        let mut resolver = resolve::JobResolver::new(&positions);
        let job = resolver.predictor(spec);
        Error::from_faults(Kind::Spec, resolver.faults)?;
        job.ok_or_else(|| Error::internal("model", "an unresolved model has no fault"))
    }
}

impl Job {
    /// The job as it was meant, with URLs rather than the places of their copies: the same on every machine.
    pub fn as_json(&self) -> serde_json::Value {
        let mut json = serde_json::to_value(self).unwrap_or_default();
        paths::name_urls(&mut json, &self.copies);
        json
    }

    /// How a path of the job is called: by its URL, where it is a copy.
    pub fn shown(&self, path: &Path) -> String {
        let copy = self.copies.iter().find(|(copy, _)| copy == path);
        copy.map_or_else(|| path.display().to_string(), |(_, url)| url.clone())
    }

    /// Reads and resolves a job file, some of whose keys have other values in this run.
    ///
    /// # Errors
    /// All faults of the file at once.
    pub fn read(file: &Path, placeholders: &Placeholders, overrides: &Overrides) -> Result<Job> {
        let text = document::read_text(file)?;
        Job::parse(&text, file, placeholders, overrides)
    }

    /// As [`Job::read`], from text; `file` is for messages and relative paths.
    ///
    /// # Errors
    /// All faults of the text at once.
    pub fn parse(
        text: &str,
        file: &Path,
        placeholders: &Placeholders,
        overrides: &Overrides,
    ) -> Result<Job> {
        let fill = |text: String, _: &str| placeholders.fill(&text);
        let document = document::parse_with::<JobSpec>(text, file, &fill, overrides)?;
        let mut resolver = resolve::JobResolver::new(&document.positions);
        resolver.faults.extend(document.out_of_range);
        resolver.faults.extend(placeholders.unused());
        let job = resolver.job(document.value);
        Error::from_faults(Kind::Spec, resolver.faults)?;
        job.ok_or_else(|| Error::internal("job", "an unresolved job has no fault"))
    }
}
