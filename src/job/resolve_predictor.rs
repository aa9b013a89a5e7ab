//! Resolves what a job says of its model, and of other trainings of it.

use std::path::Path;

use super::resolve::{JobResolver, SMALLEST_MEMORY};
use super::{
    Bytes, EngineSpec, InputsSpec, Limits, LimitsSpec, MOST_CLASSES, MatrixSpec, OnnxInputs,
    OnnxJob, PredictorJob, PredictorKind, PredictorKindSpec, PredictorSpec, RetrainedSpec,
    SandboxSpec, SubprocessJob, TaskSpec, predictor,
};

/// Other trainings of a model, at most: all of them are open at once.
const MOST_RETRAINED: usize = 1_000;

impl JobResolver<'_> {
    pub(super) fn predictor(&mut self, spec: PredictorSpec) -> Option<PredictorJob> {
        self.irrelevant(&spec);
        let regression = spec.task == TaskSpec::Regression;
        let no_classes = !regression || spec.classes.is_empty();
        self.require(no_classes, "predictor.classes", "is given, but a regression has no classes");
        let classes: Vec<String> = spec.classes.iter().map(ToString::to_string).collect();
        let unique: std::collections::HashSet<&String> = classes.iter().collect();
        self.require(unique.len() == classes.len(), "predictor.classes", "names a class twice");
        let problem = format!("names {} classes, expected at most {MOST_CLASSES}", classes.len());
        self.require(classes.len() <= MOST_CLASSES, "predictor.classes", &problem);
        let kind = match spec.kind {
            PredictorKindSpec::Onnx => PredictorKind::Onnx(self.onnx(&spec)?),
            PredictorKindSpec::Subprocess => PredictorKind::Subprocess(self.subprocess(&spec)?),
        };
        let (probabilities, repeatable) = (spec.probabilities, spec.repeatable);
        Some(PredictorJob { task: spec.task, classes, probabilities, repeatable, kind })
    }

    /// Keys that belong to the other kind are a misunderstanding worth pointing out.
    fn irrelevant(&mut self, spec: &PredictorSpec) {
        let onnx = spec.kind == PredictorKindSpec::Onnx;
        let foreign = [
            ("command", onnx && !spec.command.is_empty()),
            ("model", !onnx && spec.model.is_some()),
            ("rename", !onnx && !spec.rename.is_empty()),
            ("standardise", !onnx && !spec.standardise.is_empty()),
            ("null_text", !onnx && !spec.null_text.is_empty()),
            ("engine", !onnx && spec.engine != EngineSpec::default()),
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
        let model = self.existing_file(model, "predictor.model");
        let batch_limit = self.seconds(spec.batch_seconds, "predictor.batch_seconds")?;
        let (null_text, engine) = (spec.null_text.clone(), spec.engine);
        Some(OnnxJob { model, inputs, null_text, engine, batch_limit })
    }

    fn subprocess(&mut self, spec: &PredictorSpec) -> Option<SubprocessJob> {
        if spec.command.is_empty() {
            let problem = "is missing, expected a program and its arguments";
            self.require(false, "predictor.command", problem);
            return None;
        }
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

    /// Other trainings of a model, as a key lists them: as it, but for its file or command.
    pub(super) fn retrained(
        &mut self,
        key: &str,
        listed: &[RetrainedSpec],
        of: &PredictorSpec,
    ) -> Vec<PredictorJob> {
        let problem = format!("names {} models, expected at most {MOST_RETRAINED}", listed.len());
        self.require(listed.len() <= MOST_RETRAINED, key, &problem);
        let mut models = Vec::new();
        for entry in listed {
            let mut spec = of.clone();
            let kind = match entry {
                RetrainedSpec::Model(model) => {
                    spec.model = Some(self.existing_file(model, key));
                    PredictorKindSpec::Onnx
                }
                RetrainedSpec::Command(command) => {
                    spec.command.clone_from(command);
                    PredictorKindSpec::Subprocess
                }
            };
            let expected = match of.kind {
                PredictorKindSpec::Onnx => "a path for each model, as `predictor.kind` is `onnx`",
                PredictorKindSpec::Subprocess => {
                    "a list `[program, argument, …]` for each, as `predictor.kind` is `subprocess`"
                }
            };
            let found = serde_json::to_string(entry).unwrap_or_default();
            self.require(kind == of.kind, key, &format!("holds {found}, expected {expected}"));
            // What is wrong with all the rest is told of the model itself.
            let faults_before = self.faults.len();
            models.extend(self.predictor(spec).filter(|_| kind == of.kind));
            self.faults.truncate(faults_before);
        }
        models
    }
}
