//! From what was typed to what is meant: paths, derived values, and the checks that need more than one
//! key. Every fault is noted and resolving goes on, so that all are reported at once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{
    AutoencoderJob, AutoencoderSpec, Bytes, ExplainJob, ExplainMethod, ExplainSpec, InputJob,
    InputSpec, InputsSpec, Job, JobSpec, KindSpec, Limits, LimitsSpec, MOST_ENCODERS, MOST_THREADS,
    MatrixSpec, Method, MmdSpace, OnnxInputs, OnnxJob, OutputJob, OutputSpec, PredictorJob,
    PredictorKind, PredictorSpec, Preset, Refine, RefineJob, ReportJob, ReportSpec, RewardKind,
    RuntimeJob, RuntimeSpec, SandboxSpec, ScoresJob, SubprocessJob, Target, TargetSpec,
    TargetsKind, TaskSpec, TrainJob, TrainLimits, TrainRows, TrainSpec, predictor,
};
use crate::document::Place;
use crate::error::Fault;

/// Collects faults while it resolves.
pub(super) struct Resolver<'a> {
    place: &'a Place,
    /// Where relative paths start. Absolute, since a scorer is started in another folder than ours.
    folder: PathBuf,
    pub(super) faults: Vec<Fault>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(place: &'a Place) -> Self {
        let folder = std::path::absolute(place.folder());
        let folder = folder.unwrap_or_else(|_| place.folder().to_path_buf());
        Resolver { place, folder, faults: Vec::new() }
    }

    /// The job as meant; `None` only where a fault was noted.
    pub(super) fn job(&mut self, spec: JobSpec) -> Option<Job> {
        let task = spec.predictor.task;
        let input = self.input(spec.input);
        let predictor = self.predictor(spec.predictor);
        let target = spec.target.map(|target| self.target(target, task));
        let autoencoder = self.autoencoder(spec.autoencoder, spec.train.preset);
        let train = self.train(spec.train, task);
        let explain = self.explain(spec.explain);
        let report = self.report(spec.report);
        let output = self.output(spec.output);
        let runtime = self.runtime(&spec.runtime);
        Some(Job {
            input,
            predictor: predictor?,
            target: target.flatten(),
            autoencoder,
            train: train?,
            explain,
            report,
            output,
            runtime: runtime?,
        })
    }

    fn input(&mut self, spec: InputSpec) -> InputJob {
        let key = spec.key.into_vec();
        self.require(!key.is_empty(), "input.key", "is empty, expected at least one column");
        self.require(spec.batch_rows > 0, "input.batch_rows", "is 0, expected at least 1");
        self.share(spec.max_reject_share, "input.max_reject_share");
        let features = self.tables(spec.features.into_vec(), "input.features");
        let scores = spec.scores.map(|scores| {
            self.share(scores.parity_tolerance, "input.scores.parity_tolerance");
            ScoresJob {
                table: self.tables(scores.table.into_vec(), "input.scores.table"),
                decision: scores.decision,
                parity_rows: scores.parity_rows,
                parity_tolerance: scores.parity_tolerance,
            }
        });
        InputJob {
            features,
            schema: self.existing(&spec.schema, "input.schema"),
            key,
            scores,
            train_predicate: spec.train_where.or_else(|| spec.predicate.clone()),
            predicate: spec.predicate,
            batch_rows: spec.batch_rows,
            max_reject_share: spec.max_reject_share,
        }
    }

    fn tables(&mut self, paths: Vec<String>, key: &str) -> Vec<String> {
        self.require(!paths.is_empty(), key, "is empty, expected at least one path");
        paths.iter().map(|path| self.path(Path::new(path)).display().to_string()).collect()
    }

    fn predictor(&mut self, spec: PredictorSpec) -> Option<PredictorJob> {
        self.irrelevant(&spec);
        let regression = spec.task == TaskSpec::Regression;
        let no_classes = !regression || spec.classes.is_empty();
        self.require(no_classes, "predictor.classes", "is given, but a regression has no classes");
        let classes: Vec<String> = spec.classes.iter().map(ToString::to_string).collect();
        let unique: std::collections::HashSet<&String> = classes.iter().collect();
        self.require(unique.len() == classes.len(), "predictor.classes", "names a class twice");
        let kind = match spec.kind {
            KindSpec::Onnx => PredictorKind::Onnx(self.onnx(&spec)?),
            KindSpec::Subprocess => PredictorKind::Subprocess(self.subprocess(&spec)?),
        };
        Some(PredictorJob { task: spec.task, classes, probabilities: spec.probabilities, kind })
    }

    /// Keys that belong to the other kind are a misunderstanding worth pointing out.
    fn irrelevant(&mut self, spec: &PredictorSpec) {
        let onnx = spec.kind == KindSpec::Onnx;
        let foreign = [
            ("command", onnx && !spec.command.is_empty()),
            ("model", !onnx && spec.model.is_some()),
            ("rename", !onnx && !spec.rename.is_empty()),
            ("standardise", !onnx && !spec.standardise.is_empty()),
            ("null_text", !onnx && !spec.null_text.is_empty()),
            ("workers", onnx && spec.workers != 0),
            ("start_seconds", onnx && spec.start_seconds != predictor::start_seconds()),
            ("retries", onnx && spec.retries != predictor::retries()),
            ("max_failed_share", onnx && spec.max_failed_share != predictor::max_failed_share()),
            ("environment", onnx && !spec.environment.is_empty()),
            ("sandbox", onnx && spec.sandbox != SandboxSpec::default()),
            ("limits.memory", onnx && spec.limits.memory.is_some()),
            ("limits.files", onnx && spec.limits.files.is_some()),
            ("limits.processes", onnx && spec.limits.processes.is_some()),
            ("limits.cpu_seconds", onnx && spec.limits.cpu_seconds.is_some()),
        ];
        let kind = if onnx { "onnx" } else { "subprocess" };
        for (key, given) in foreign {
            let problem =
                format!("is given, but `predictor.kind` is `{kind}`, which has no use for it");
            self.require(!given, &format!("predictor.{key}"), &problem);
        }
    }

    fn onnx(&mut self, spec: &PredictorSpec) -> Option<OnnxJob> {
        let Some(model) = &spec.model else {
            self.require(false, "predictor.model", "is missing, expected the path of an ONNX file");
            return None;
        };
        for (name, given) in &spec.standardise {
            let good = given.std.is_finite() && given.std > 0.0 && given.mean.is_finite();
            let key = format!("predictor.standardise.{name}");
            self.require(good, &key, "has a standard deviation that is not above 0");
        }
        let columns = spec.inputs == InputsSpec::Columns;
        let standardised = !columns && spec.encoding == MatrixSpec::Standardised;
        for (key, useless, why) in [
            ("rename", !columns && !spec.rename.is_empty(), "`inputs` is `matrix`"),
            (
                "standardise",
                !standardised && !spec.standardise.is_empty(),
                "`encoding` is not `standardised`",
            ),
        ] {
            let problem = format!("is given, but {why}, which has no use for it");
            self.require(!useless, &format!("predictor.{key}"), &problem);
        }
        let inputs = match (spec.inputs, spec.encoding) {
            (InputsSpec::Columns, _) => OnnxInputs::Columns { rename: spec.rename.clone() },
            (InputsSpec::Matrix, MatrixSpec::Raw) => OnnxInputs::Raw,
            (InputsSpec::Matrix, MatrixSpec::Codes) => OnnxInputs::Codes,
            (InputsSpec::Matrix, MatrixSpec::Standardised) => {
                OnnxInputs::Standardised { standardise: spec.standardise.clone() }
            }
        };
        let model = self.existing(model, "predictor.model");
        let batch_limit = self.seconds(spec.batch_seconds, "predictor.batch_seconds")?;
        Some(OnnxJob { model, inputs, null_text: spec.null_text.clone(), batch_limit })
    }

    fn subprocess(&mut self, spec: &PredictorSpec) -> Option<SubprocessJob> {
        if spec.command.is_empty() {
            let problem = "is missing, expected a program and its arguments";
            self.require(false, "predictor.command", problem);
            return None;
        }
        self.share(spec.max_failed_share, "predictor.max_failed_share");
        let command = spec.command.iter().map(|argument| self.argument(argument)).collect();
        Some(SubprocessJob {
            command,
            folder: self.folder.clone(),
            workers: spec.workers,
            start_limit: self.seconds(spec.start_seconds, "predictor.start_seconds")?,
            batch_limit: self.seconds(spec.batch_seconds, "predictor.batch_seconds")?,
            retries: spec.retries,
            max_failed_share: spec.max_failed_share,
            environment: self.environment(&spec.environment),
            sandbox: spec.sandbox,
            limits: self.limits(&spec.limits),
        })
    }

    /// Names, prefixes and settings of environment variables.
    fn environment(&mut self, listed: &[String]) -> Vec<String> {
        for entry in listed {
            let (name, _) = entry.split_once('=').unwrap_or((entry, ""));
            let name = if entry.contains('=') { name } else { name.trim_end_matches('*') };
            let stars = entry.len() - name.len() <= 1 || entry.contains('=');
            let usual = |c: char| !c.is_whitespace() && !matches!(c, '*' | '=' | '\0');
            let good = name.chars().all(usual) && stars && !entry.contains('\0');
            let good = good && (!name.is_empty() || entry == "*");
            let problem = format!(
                "holds {entry:?}, expected `NAME`, `PREFIX*` or `NAME=value`, without spaces in the name"
            );
            self.require(good, "predictor.environment", &problem);
        }
        listed.to_vec()
    }

    fn limits(&mut self, spec: &LimitsSpec) -> Limits {
        let mut memory = None;
        if let Some(text) = &spec.memory {
            memory = Bytes::parse(text).filter(|memory| *memory >= SMALLEST_MEMORY);
            let problem =
                format!("is \"{text}\", expected a size of at least 64MiB, such as \"8GiB\"");
            self.require(memory.is_some(), "predictor.limits.memory", &problem);
        }
        for (key, limit, least, most) in [
            ("files", spec.files, 16, 1 << 20),
            ("processes", spec.processes, 1, 1 << 22),
            ("cpu_seconds", spec.cpu_seconds, 1, 31_536_000),
        ] {
            let found = limit.unwrap_or(least);
            let problem = format!("is {found}, expected {least} to {most}");
            let good = (least..=most).contains(&found);
            self.require(good, &format!("predictor.limits.{key}"), &problem);
        }
        let memory = memory.map(|memory| memory.0);
        let LimitsSpec { files, processes, cpu_seconds, .. } = *spec;
        Limits { memory, files, processes, cpu_seconds }
    }

    /// An argument that names something beside the job file becomes its full path.
    fn argument(&self, argument: &str) -> String {
        let path = self.path(Path::new(argument));
        let beside = argument.contains('/') && path.exists();
        if beside { path.display().to_string() } else { argument.to_string() }
    }

    fn target(&mut self, spec: TargetSpec, task: TaskSpec) -> Option<Target> {
        let half = spec.tolerance;
        self.require(half >= 0.0, "target.tolerance", "is negative, expected at least 0");
        let classes = [
            spec.class.map(|class| Target::Class(class.to_string())),
            spec.flip.then_some(Target::Flip),
            spec.every.then_some(Target::Every),
        ];
        let values = [
            spec.value.map(|value| Target::Range { low: value - half, high: value + half }),
            spec.range.map(|[low, high]| Target::Range { low, high }),
        ];
        let class_given = classes.iter().any(Option::is_some);
        let value_given = values.iter().any(Option::is_some);
        let regression = task == TaskSpec::Regression;
        self.require(
            !(regression && class_given),
            "target",
            "names classes, but the task is a regression",
        );
        self.require(
            regression || !value_given,
            "target",
            "names a value, but the task is a classification",
        );
        let column = spec.column.map(|name| Target::Column { name, tolerance: half });
        let mut given: Vec<Target> =
            classes.into_iter().chain(values).chain([column]).flatten().collect();
        let problem = format!("names {} targets, expected exactly one", given.len());
        self.require(given.len() == 1, "target", &problem);
        let target = given.pop()?;
        if let Target::Range { low, high } = target {
            self.require(low <= high, "target.range", "is empty, expected its lower end first");
        }
        Some(target)
    }

    fn autoencoder(&mut self, spec: AutoencoderSpec, preset: Preset) -> AutoencoderJob {
        let usual = Numbers::of_autoencoder(preset);
        let steps = spec.steps.unwrap_or(usual.steps);
        let batch = spec.batch.or(usual.batch).unwrap_or(AUTOENCODER_BATCH);
        let learning_rate = spec.learning_rate.unwrap_or(usual.learning_rate);
        let layers = spec.hidden.iter().flatten().chain(&spec.latent);
        self.require(
            layers.into_iter().all(|width| *width > 0),
            "autoencoder",
            "has a layer of width 0, expected at least 1",
        );
        self.at_least_one(steps, "autoencoder.steps");
        self.at_least_one(batch, "autoencoder.batch");
        self.rate(learning_rate, "autoencoder.learning_rate");
        let most = spec.min_quality <= 1.0;
        self.require(most, "autoencoder.min_quality", "is above 1, which nothing reaches");
        AutoencoderJob {
            kind: spec.kind,
            hidden: spec.hidden,
            latent: spec.latent,
            steps,
            batch,
            learning_rate,
            min_quality: spec.min_quality,
        }
    }

    fn train(&mut self, spec: TrainSpec, task: TaskSpec) -> Option<TrainJob> {
        for (key, count) in [
            ("train.max_steps", spec.max_steps.unwrap_or(1)),
            ("train.validate_every", spec.validate_every),
            ("train.validation_rows", spec.validation_rows),
            ("train.test_rows", spec.test_rows),
            ("train.patience", spec.patience),
            ("train.hidden", spec.hidden),
            ("train.batch", spec.batch.unwrap_or(1)),
            ("train.max_rows", spec.max_rows.unwrap_or(1)),
        ] {
            self.at_least_one(count, key);
        }
        for (key, weight) in
            [("train.sparsity", spec.sparsity), ("train.consistency", spec.consistency)]
        {
            let good = weight.is_none_or(|weight| weight.is_finite() && weight >= 0.0);
            self.require(good, key, "is negative, expected a weight of at least 0");
        }
        let labels_only = task == TaskSpec::Classification || spec.targets == TargetsKind::Label;
        self.require(
            labels_only,
            "train.targets",
            "asks for classes, but the task is a regression",
        );
        let max_time = self.seconds(spec.max_seconds, "train.max_seconds");
        let checkpoint_every = self.seconds(spec.checkpoint_seconds, "train.checkpoint_seconds");
        Some(TrainJob {
            from: spec.from.as_ref().map(|path| self.existing(path, "train.from")),
            rows: TrainRows {
                max_rows: spec.max_rows,
                validation_rows: spec.validation_rows,
                test_predicate: spec.test_where.clone(),
                test_rows: spec.test_rows,
            },
            method: self.method(&spec),
            limits: TrainLimits {
                max_steps: spec.max_steps.unwrap_or(Numbers::of_actor(spec.preset).steps),
                max_time: max_time?,
                validate_every: spec.validate_every,
                patience: spec.patience,
                checkpoint_every: checkpoint_every?,
            },
        })
    }

    fn method(&mut self, spec: &TrainSpec) -> Method {
        let usual = Numbers::of_actor(spec.preset);
        let learning_rate = spec.learning_rate.unwrap_or(usual.learning_rate);
        self.rate(learning_rate, "train.learning_rate");
        Method {
            preset: spec.preset,
            batch: spec.batch.or(usual.batch),
            hidden: spec.hidden,
            learning_rate,
            sparsity: spec.sparsity,
            consistency: spec.consistency,
            reward: spec.reward.or((spec.preset == Preset::Paper).then_some(RewardKind::Label)),
            targets: spec.targets,
            balance: spec.balance,
        }
    }

    fn at_least_one(&mut self, count: usize, key: &str) {
        self.require(count > 0, key, "is 0, expected at least 1");
    }

    fn rate(&mut self, rate: f64, key: &str) {
        let problem = format!("is {rate}, expected a rate above 0 and at most 1");
        self.require(rate > 0.0 && rate <= 1.0, key, &problem);
    }

    fn explain(&mut self, spec: ExplainSpec) -> ExplainJob {
        self.at_least_one(spec.samples, "explain.samples");
        self.require(spec.unit_rows != Some(0), "explain.unit_rows", "is 0, expected at least 1");
        let most = spec.samples <= MOST_SAMPLES;
        let problem = format!("is {}, expected at most {MOST_SAMPLES}", spec.samples);
        self.require(most, "explain.samples", &problem);
        let generator =
            spec.generator.as_ref().map(|path| self.existing(path, "explain.generator"));
        ExplainJob {
            generator,
            method: spec.method,
            samples: spec.samples,
            conditions: spec.conditions,
            unit_rows: spec.unit_rows,
            refine: self.refine(spec),
        }
    }

    fn refine(&mut self, spec: ExplainSpec) -> RefineJob {
        let nearest = spec.method == ExplainMethod::Nearest;
        let mode = spec.refine.unwrap_or(if nearest { Refine::Off } else { Refine::Full });
        let alone = !nearest || mode == Refine::Off;
        let problem =
            "is given, but `explain.method` is `nearest`, which gives training rows as they are";
        self.require(alone, "explain.refine", problem);
        self.at_least_one(spec.queries_per_row as usize, "explain.queries_per_row");
        let most = spec.queries_per_row <= MOST_QUERIES;
        let problem = format!("is {}, expected at most {MOST_QUERIES}", spec.queries_per_row);
        self.require(most, "explain.queries_per_row", &problem);
        if let Some(changes) = spec.max_changes {
            self.at_least_one(changes as usize, "explain.max_changes");
            let problem = "is given, but only `refine = \"full\"` puts changes back";
            self.require(mode == Refine::Full, "explain.max_changes", problem);
        }
        let good = spec.nearness.is_finite() && spec.nearness >= 0.0;
        let problem = format!("is {}, expected a weight of at least 0", spec.nearness);
        self.require(good, "explain.nearness", &problem);
        let most = spec.neighbours <= MOST_NEIGHBOURS;
        let problem = format!("is {}, expected at most {MOST_NEIGHBOURS}", spec.neighbours);
        self.require(most, "explain.neighbours", &problem);
        RefineJob {
            mode,
            queries_per_row: spec.queries_per_row,
            max_time: spec
                .max_seconds
                .and_then(|seconds| self.seconds(seconds, "explain.max_seconds")),
            max_changes: spec.max_changes,
            neighbours: spec.neighbours,
            nearness: spec.nearness,
            skip: spec.skip,
        }
    }

    fn report(&mut self, spec: ReportSpec) -> ReportJob {
        let mmd = &spec.mmd;
        self.at_least_one(mmd.encoders, "report.mmd.encoders");
        let problem = format!("is {}, expected at least 2", mmd.frequencies);
        self.require(mmd.frequencies >= 2, "report.mmd.frequencies", &problem);
        let problem = format!("is {}, expected at most {MOST_ENCODERS}", mmd.encoders);
        self.require(mmd.encoders <= MOST_ENCODERS, "report.mmd.encoders", &problem);
        let gates = &spec.gates;
        for (share, key) in [
            (gates.min_validity, "report.gates.min_validity"),
            (gates.max_reject_share, "report.gates.max_reject_share"),
        ] {
            self.share(share.unwrap_or(0.0), key);
        }
        let ratio = gates.max_mmd_ratio.is_none_or(|ratio| ratio > 0.0);
        self.require(ratio, "report.gates.max_mmd_ratio", "is not above 0");
        let measured = gates.max_mmd_ratio.is_none() || mmd.space != MmdSpace::None;
        let problem = "is given, but `report.mmd.space` is `none`: there will be no MMD";
        self.require(measured, "report.gates.max_mmd_ratio", problem);
        let mut by = spec.by.clone();
        by.sort_unstable();
        by.dedup();
        self.require(by.len() == spec.by.len(), "report.by", "names a column twice");
        ReportJob { by: spec.by, mmd: spec.mmd, gates: spec.gates }
    }

    fn output(&mut self, spec: OutputSpec) -> OutputJob {
        self.require(spec.row_group_rows > 0, "output.row_group_rows", "is 0, expected at least 1");
        OutputJob {
            dir: self.path(&spec.dir),
            overwrite: spec.overwrite,
            row_group_rows: spec.row_group_rows,
            partition_by: spec.partition_by,
            metrics: spec.metrics.map(|path| self.path(&path)),
        }
    }

    fn runtime(&mut self, spec: &RuntimeSpec) -> Option<RuntimeJob> {
        let memory = Bytes::parse(&spec.memory);
        let problem = format!("is \"{}\", expected a size such as \"4GiB\"", spec.memory);
        self.require(memory.is_some(), "runtime.memory", &problem);
        let memory = memory?;
        let enough = memory >= SMALLEST_MEMORY;
        self.require(
            enough,
            "runtime.memory",
            "is below 64MiB, which is too little to scan a table",
        );
        let few = spec.threads <= MOST_THREADS;
        let problem = format!("is {}, expected at most {MOST_THREADS}", spec.threads);
        self.require(few, "runtime.threads", &problem);
        Some(RuntimeJob { threads: spec.threads, memory, device: spec.device, seed: spec.seed })
    }

    fn require(&mut self, condition: bool, key: &str, problem: &str) {
        if !condition {
            self.faults.push(self.place.fault(key, problem));
        }
    }

    fn share(&mut self, share: f64, key: &str) {
        let problem = format!("is {share}, expected a share from 0 to 1");
        self.require((0.0..=1.0).contains(&share), key, &problem);
    }

    fn seconds(&mut self, seconds: f64, key: &str) -> Option<Duration> {
        let duration = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
        self.require(
            duration.is_some(),
            key,
            &format!("is {seconds}, expected more than 0 seconds"),
        );
        duration
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    fn existing(&mut self, path: &Path, key: &str) -> PathBuf {
        let path = self.path(path);
        let problem = format!("is `{}`, which does not exist", path.display());
        self.require(path.exists(), key, &problem);
        path
    }
}

/// Rows per step of the autoencoder, unless the preset says otherwise.
const AUTOENCODER_BATCH: usize = 256;

/// Numbers of a preset.
struct Numbers {
    steps: usize,
    /// Rows per step, where the preset says so.
    batch: Option<usize>,
    learning_rate: f64,
}

impl Numbers {
    const PAPER: Numbers = Numbers { steps: 100_000, batch: Some(128), learning_rate: 1e-3 };

    fn of_autoencoder(preset: Preset) -> Numbers {
        match preset {
            Preset::Default => Numbers { steps: 4_000, batch: None, learning_rate: 2e-3 },
            Preset::Paper => Numbers::PAPER,
        }
    }

    fn of_actor(preset: Preset) -> Numbers {
        match preset {
            Preset::Default => Numbers { steps: 5_000, batch: None, learning_rate: 2e-3 },
            Preset::Paper => Numbers::PAPER,
        }
    }
}

/// More counterfactuals for one row than anybody reads; a batch of them must fit into memory.
const MOST_SAMPLES: usize = 1000;

/// More questions about one row than any search here has use for; all answers of a block are held in memory.
const MOST_QUERIES: u32 = 10_000;

/// More training rows beside one row than its answers could use.
const MOST_NEIGHBOURS: usize = 1000;

/// Below this the engine cannot hold a few batches of a wide table.
const SMALLEST_MEMORY: Bytes = Bytes(64 << 20);
