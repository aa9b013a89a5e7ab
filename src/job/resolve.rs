//! From what was typed to what is meant: paths, derived values, and the checks that need more than one
//! key. Every fault is noted and resolving goes on, so that all are reported at once.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::{
    AuditJob, AuditSpec, AutoencoderJob, AutoencoderSpec, Bytes, Device, DiceSpec, ExplainJob,
    ExplainMethod, ExplainSpec, InputJob, InputSpec, Job, JobSpec, Method, MmdSpace, OutputJob,
    OutputSpec, PredictorJob, PredictorSpec, Preset, Refine, RefineJob, ReportJob, ReportSpec,
    RewardKind, RobustJob, RobustSpec, RuntimeJob, RuntimeSpec, ScoresJob, Section, Target,
    TargetSpec, TargetsKind, TaskSpec, TrainJob, TrainLimits, TrainRows, TrainSpec, compare,
    method,
};
use crate::document::KeyPositions;
use crate::error::Fault;
use crate::storage::Stores;

/// Models beside the predictor, at most: each is asked about everything that the predictor accepts.
const MOST_ROBUST: usize = 64;

/// Collects faults while it resolves.
pub(super) struct JobResolver<'a> {
    pub(super) positions: &'a KeyPositions,
    /// Where relative paths start. Absolute, since a scorer is started in another folder than ours.
    pub(super) folder: PathBuf,
    pub(super) faults: Vec<Fault>,
}

impl<'a> JobResolver<'a> {
    pub(super) fn new(positions: &'a KeyPositions) -> Self {
        let folder = std::path::absolute(positions.folder());
        let folder = folder.unwrap_or_else(|_| positions.folder().to_path_buf());
        JobResolver { positions, folder, faults: Vec::new() }
    }

    /// The job as meant; `None` only where a fault was noted.
    pub(super) fn job(&mut self, spec: JobSpec) -> Option<Job> {
        let task = spec.predictor.task;
        let (stores, faults) = spec.storage.resolve(self.positions);
        self.faults.extend(faults);
        let input = self.input(spec.input, stores.clone());
        let retrained = self.retrained("report.retrained", &spec.report.retrained, &spec.predictor);
        let robust = self.robust(&spec.robust, &spec.report, &spec.predictor);
        let predictor = self.predictor(spec.predictor);
        let target = spec.target.map(|target| self.target(target, task));
        let trains = differs(&spec.autoencoder) || differs(&spec.train);
        let autoencoder = self.autoencoder(spec.autoencoder, spec.train.preset);
        let train = self.train(spec.train, task);
        let explain = self.explain(spec.explain, trains);
        let audit = self.audit(spec.audit, &spec.report);
        let report = self.report(spec.report, retrained);
        let output = self.output(spec.output, stores);
        let runtime = self.runtime(&spec.runtime);
        let lineage = self.lineage(spec.lineage);
        let copies = output.url.iter().map(|url| (output.dir.clone(), url.to_string())).collect();
        Some(Job {
            file: std::path::absolute(self.positions.file()).unwrap_or_default(),
            input,
            predictor: predictor?,
            target: target.flatten(),
            autoencoder,
            train: train?,
            explain,
            robust,
            report,
            audit,
            output,
            runtime: runtime?,
            lineage,
            copies,
        })
    }

    fn input(&mut self, spec: InputSpec, stores: Stores) -> InputJob {
        let key = spec.key.into_vec();
        self.require(!key.is_empty(), "input.key", "is empty, expected at least one column");
        self.once(&key, "input.key");
        let (features, features_at) = self.table(spec.features, "input.features");
        let scores = spec.scores.map(|scores| {
            let (table, table_at) = self.table(scores.table, "input.scores.table");
            ScoresJob {
                table,
                table_at,
                decision: scores.decision,
                parity_rows: scores.parity_rows,
                parity_tolerance: scores.parity_tolerance,
            }
        });
        InputJob {
            features,
            features_at,
            schema: self.existing_file(&spec.schema, "input.schema"),
            key,
            scores,
            train_predicate: spec.train_where.or_else(|| spec.predicate.clone()),
            predicate: spec.predicate,
            batch_rows: spec.batch_rows,
            max_reject_share: spec.max_reject_share,
            stores,
        }
    }

    fn target(&mut self, spec: TargetSpec, task: TaskSpec) -> Option<Target> {
        let half = spec.tolerance;
        let exact = spec.value.is_some() && half == 0.0 && task == TaskSpec::Regression;
        self.require(
            !exact,
            "target.value",
            "has no `tolerance`: a model with continuous values meets a single one only by chance; \
             expected a `tolerance` above 0, or a `range`",
        );
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
                patience: spec.patience.unwrap_or(Numbers::patience(spec.preset)),
                checkpoint_every: checkpoint_every?,
            },
        })
    }

    fn method(&mut self, spec: &TrainSpec) -> Method {
        let usual = Numbers::of_actor(spec.preset);
        let learning_rate = spec.learning_rate.unwrap_or(usual.learning_rate);
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

    /// Refuses a column that is named more than once.
    fn once(&mut self, columns: &[String], key: &str) {
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = columns.iter().find(|column| !seen.insert(column.as_str())) {
            self.require(false, key, &format!("names the column `{twice}` twice"));
        }
    }

    fn explain(&mut self, spec: ExplainSpec, trains: bool) -> ExplainJob {
        let generator =
            spec.generator.as_ref().map(|path| self.existing(path, "explain.generator"));
        for (key, problem) in compare::faults(&spec) {
            self.require(false, key, &problem);
        }
        ExplainJob {
            generator,
            method: method::settled(&spec, trains),
            compare: compare::others(&spec),
            samples: spec.samples,
            conditions: spec.conditions,
            split_rows: spec.split_rows,
            coherence: spec.coherence,
            dice: self.dice(&spec),
            refine: self.refine(spec),
        }
    }

    fn dice(&mut self, spec: &ExplainSpec) -> DiceSpec {
        let (given, methods) = (spec.dice, compare::named(spec));
        let some = given != DiceSpec::default();
        let dice = methods.iter().any(|method| method.is_dice());
        let problem = match methods.as_slice() {
            [one] => {
                format!(
                    "is given, but `explain.method` is `{}`, expected a method of DiCE",
                    one.name()
                )
            }
            _ => "is given, but `explain.compare` names no method of DiCE".to_string(),
        };
        self.require(!some || dice, "explain.dice", &problem);
        let problem = "is given, but `dice_random` looks at labels only";
        let hard = given.hard_labels && dice && !methods.contains(&ExplainMethod::DiceGenetic);
        self.require(!hard, "explain.dice.hard_labels", problem);
        given
    }

    fn refine(&mut self, spec: ExplainSpec) -> RefineJob {
        let methods = compare::named(&spec);
        let mode = compare::refine_of(&spec, compare::published(&spec).unwrap_or(spec.method));
        let full = methods.iter().all(|method| compare::refine_of(&spec, *method) == Refine::Full);
        let searched = spec.refine.is_none_or(|mode| mode == Refine::Full)
            || !methods.contains(&ExplainMethod::Search);
        let key = if spec.compare.is_empty() { "method` is" } else { "compare` names" };
        let problem =
            format!("is given, but `explain.{key} `search`, which is `refine = \"full\"`");
        self.require(searched, "explain.refine", &problem);
        if spec.max_changes.is_some() {
            let problem = "is given, but only `refine = \"full\"` puts changes back";
            self.require(full, "explain.max_changes", problem);
        }
        let seconds = spec.max_seconds;
        let max_time = seconds.and_then(|seconds| self.seconds(seconds, "explain.max_seconds"));
        RefineJob::new(spec, (mode, max_time))
    }

    fn robust(&mut self, spec: &RobustSpec, report: &ReportSpec, of: &PredictorSpec) -> RobustJob {
        const KEY: &str = "robust.models";
        let listed = spec.models.len();
        let problem = format!("names {listed} models, expected at most {MOST_ROBUST}");
        self.require(listed <= MOST_ROBUST, KEY, &problem);
        let problem = "is given, but `robust.models` names no model";
        self.require(listed > 0 || !differs(spec), "robust.share", problem);
        let gate = report.gates.min_robust.is_none() || listed > 0;
        self.require(gate, "report.gates.min_robust", problem);
        RobustJob { models: self.retrained(KEY, &spec.models, of), share: spec.share }
    }

    fn report(&mut self, spec: ReportSpec, retrained: Vec<PredictorJob>) -> ReportJob {
        let mmd = &spec.mmd;
        let gates = &spec.gates;
        let measured = gates.max_mmd_ratio.is_none() || mmd.space != MmdSpace::None;
        let problem = "is given, but `report.mmd.space` is `none`: there will be no MMD";
        self.require(measured, "report.gates.max_mmd_ratio", problem);
        self.once(&spec.by, "report.by");
        let survival = gates.min_survival.is_none() || !spec.retrained.is_empty();
        let problem =
            "is given, but `report.retrained` names no model to hold counterfactuals against";
        self.require(survival, "report.gates.min_survival", problem);
        ReportJob { by: spec.by, mmd: spec.mmd, retrained, gates: spec.gates }
    }

    fn audit(&mut self, spec: AuditSpec, report: &ReportSpec) -> AuditJob {
        let by = spec.by.unwrap_or_else(|| report.by.clone());
        self.once(&by, "audit.by");
        self.once(spec.protected.as_deref().unwrap_or_default(), "audit.protected");
        for column in spec.reference.keys().filter(|column| !by.contains(column)) {
            let problem =
                format!("names the column `{column}`, expected one of `audit.by`: {by:?}");
            self.require(false, "audit.reference", &problem);
        }
        let mut sections = spec.sections.unwrap_or_else(|| {
            let stability = spec.previous.is_some().then_some(Section::Stability);
            Section::OF_TABLES.into_iter().chain(stability).collect()
        });
        sections.sort_unstable();
        let unique = sections.windows(2).all(|pair| pair[0] != pair[1]);
        self.require(unique, "audit.sections", "names a section twice");
        let compared = !sections.contains(&Section::Stability) || spec.previous.is_some();
        let problem = "names `stability`, but `audit.previous` names no run to compare with";
        self.require(compared, "audit.sections", problem);
        let gap =
            report.gates.max_gap.is_none() || (sections.contains(&Section::Gaps) && !by.is_empty());
        let problem = "is given, but no gaps are told: `audit.by` names no column, or `audit.sections` \
                       leaves out `gaps`";
        self.require(gap, "report.gates.max_gap", problem);
        for (key, gate) in [
            ("report.gates.min_recourse_validity", report.gates.min_recourse_validity),
            ("report.gates.max_needless_churn", report.gates.max_needless_churn),
        ] {
            let compared = gate.is_none() || sections.contains(&Section::Stability);
            let problem = "is given, but no run is compared with: `audit.previous` names none, or \
                           `audit.sections` leaves out `stability`";
            self.require(compared, key, problem);
        }
        let previous = spec.previous.map(|path| self.existing(&path, "audit.previous"));
        let mut budgets = spec.budgets;
        budgets.sort_by(f64::total_cmp);
        budgets.dedup();
        AuditJob {
            by,
            reference: spec.reference,
            label: spec.label,
            tolerance: spec.tolerance,
            budgets,
            min_cell: spec.min_cell,
            previous,
            reasons: spec.reasons,
            queries: spec.queries,
            protected: spec.protected,
            sections,
            page_rows: spec.page.rows,
        }
    }

    fn output(&mut self, spec: OutputSpec, stores: Stores) -> OutputJob {
        self.once(&spec.partition_by, "output.partition_by");
        let (dir, url) = self.output_dir(&spec.dir);
        OutputJob {
            dir,
            url,
            stores,
            overwrite: spec.overwrite,
            keep: spec.keep,
            row_group_rows: spec.row_group_rows,
            partition_by: spec.partition_by,
            metrics: spec.metrics.map(|path| self.local_or_url(&path, "output.metrics")),
            table: spec.table.map(|table| self.table_output(table)),
        }
    }

    fn runtime(&mut self, spec: &RuntimeSpec) -> Option<RuntimeJob> {
        let device = self.device(&spec.device);
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
        let few = memory <= LARGEST_MEMORY;
        self.require(few, "runtime.memory", "is above 1024TiB, which no machine has");
        Some(RuntimeJob { threads: spec.threads, memory, device: device?, seed: spec.seed })
    }

    fn device(&mut self, text: &str) -> Option<Device> {
        let device = Device::parse(text);
        let problem = format!(
            "is \"{text}\", expected `auto`, `cpu`, `cuda` or a GPU's number such as `cuda:1`"
        );
        self.require(device.is_some(), "runtime.device", &problem);
        device
    }

    pub(super) fn require(&mut self, condition: bool, key: &str, problem: &str) {
        if !condition {
            self.faults.push(self.positions.fault(key, problem));
        }
    }

    /// Seconds as a duration. Those outside their limits have been found with the file; what is too short to
    /// be one is found here.
    pub(super) fn seconds(&mut self, seconds: f64, key: &str) -> Option<Duration> {
        let duration = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
        if seconds > 0.0 && seconds < 1.0 {
            let problem = format!("is {seconds}, expected at least a nanosecond");
            self.require(duration.is_some(), key, &problem);
        }
        duration
    }
}

/// Whether a section says anything but its defaults.
fn differs<T: Default + Serialize>(section: &T) -> bool {
    let as_json = |section: &T| serde_json::to_value(section).ok();
    as_json(section) != as_json(&T::default())
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

    /// Evaluations without improvement, unless the job says otherwise.
    fn patience(preset: Preset) -> usize {
        match preset {
            Preset::Default => 4,
            Preset::Paper => 20,
        }
    }

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

/// Below this the engine cannot hold a few batches of a wide table.
pub(super) const SMALLEST_MEMORY: Bytes = Bytes(64 << 20);

/// More than any machine has.
const LARGEST_MEMORY: Bytes = Bytes(1 << 50);
