//! `overturn init`: a first job and its feature schema, from a table and a model. What neither of them tells is guessed,
//! and every guess is said.

mod columns;
mod first_predictions;
mod inputs;
mod key;
mod matrix;
mod target;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::Observer;
use crate::engine::{
    ColumnProfile, Engine, EngineOptions, InferOptions, Inferred, Table, infer_from,
    observed_rules, profile,
};
use crate::error::{Error, Kind, Result};
use crate::feature::{FeatureSchema, missing_column};
use crate::job::{PredictorJob, TaskSpec};
use crate::output::{refuse_existing, resolved, write_new};
use crate::predictor::{self, Task, describe_onnx};
use crate::runtime::Runtime;

use columns::{find_label, guess_segments};
use first_predictions::FirstPredictions;
use inputs::{ModelInputs, PredictorForm};
use key::KeySearch;
use target::guess_target;

/// Names of the files that are written.
const JOB: &str = "job.toml";
const SCHEMA: &str = "schema.toml";
/// The folder of results that the job names.
const RESULTS: &str = "explained";

/// More distinct texts than this are not a category, unless the model takes them.
const MOST_CATEGORIES: usize = 100;
/// Rows that the engine hands out at a time.
const BATCH_ROWS: usize = 8192;
/// What the engine may use before it spills.
const MEMORY: u64 = 2 << 30;

/// What a first job is made from.
#[derive(Debug, Clone)]
pub struct InitRequest {
    /// Parquet file, folder, glob or hive-partitioned folder.
    pub table: String,
    /// The model.
    pub model: InitModel,
    /// Key columns; guessed if there are none.
    pub key: Vec<String>,
    /// Columns that are no features.
    pub ignore: Vec<String>,
    /// What the model answers, where it is not to be asked.
    pub task: Option<TaskSpec>,
    /// Its classes in the order of the scores, where it does not tell.
    pub classes: Vec<String>,
    /// Where both files are written.
    pub folder: PathBuf,
}

/// The model of a first job.
#[derive(Debug, Clone)]
pub enum InitModel {
    /// An ONNX file.
    Onnx(PathBuf),
    /// A program and its arguments.
    Scorer(Vec<String>),
}

/// A first job, as it was written.
#[derive(Debug, Clone, Serialize)]
pub struct InitSummary {
    /// The job file.
    pub job: String,
    /// The feature schema.
    pub schema: String,
    /// Rows of the table.
    pub rows: u64,
    /// Key columns.
    pub key: Vec<String>,
    /// The model's classes; empty for a regression.
    pub classes: Vec<String>,
    /// Whether the model gives probabilities.
    pub probabilities: bool,
    /// Columns that became features.
    pub features: Vec<String>,
    /// Columns that did not, with the reason.
    pub left_out: Vec<(String, String)>,
    /// The target, as the job has it.
    pub target: String,
    /// Columns whose values divide reports.
    pub segments: Vec<String>,
    /// What was guessed, and why.
    pub guesses: Vec<String>,
    /// What is odd about the model's predictions.
    pub remarks: Vec<String>,
}

/// A value that neither table nor model tells, and what it was guessed from.
#[derive(Debug, Clone)]
struct Guess<T> {
    value: T,
    /// A sentence; none if the user gave the value.
    why: Option<String>,
}

/// What is known of the table.
struct InitTable<'a> {
    request: &'a InitRequest,
    engine: Engine,
    table: Table,
    profiles: Vec<ColumnProfile>,
}

/// All that is written.
struct FirstJob {
    key: Guess<Vec<String>>,
    form: Guess<PredictorForm>,
    label: Option<Guess<String>>,
    target: Guess<String>,
    segments: Guess<Vec<String>>,
    inferred: Inferred,
    rules: String,
    first_predictions: FirstPredictions,
}

/// Writes a first job and its schema; both or none.
///
/// # Errors
/// When one of them exists, table and model do not fit, or nothing can be written.
pub fn init(request: &InitRequest, runtime: &Runtime, observer: &Observer) -> Result<InitSummary> {
    let files = [JOB, SCHEMA].map(|name| in_folder(&request.folder, name));
    refuse_existing(&files)?;
    refuse_results_in_table(request)?;
    let interface = match &request.model {
        InitModel::Onnx(path) => {
            let described = describe_onnx(path, request.task, &request.classes);
            Some(described.map_err(|error| with_other_ways(error, path))?)
        }
        InitModel::Scorer(_) => None,
    };
    let engine = Engine::new(EngineOptions {
        partitions: runtime.threads,
        batch_rows: BATCH_ROWS,
        memory_bytes: MEMORY,
    })?;
    let table = engine.open("features", std::slice::from_ref(&request.table))?;
    check_names(request, &table)?;
    let inputs = ModelInputs::find(request, interface.as_ref(), &table)?;
    let options = inputs.needs(&table, interface.map(|of| of.orders).unwrap_or_default());
    observer.stage("looking at columns", None);
    let profiles = runtime.block_on(profile(&engine, &table, &options.profile()))?;
    let source = InitTable { request, engine, table, profiles };
    let job = source.first_job((&inputs, options), runtime, observer)?;
    let [job_file, schema_file] = files;
    let [job_text, schema_text] = [job.job_text(&source), job.schema_text()];
    write_new(&[(&schema_file, &schema_text), (&job_file, &job_text)])?;
    Ok(job.summary(source.table.rows, [&job_file, &schema_file]))
}

/// A hint for models that are not exported yet.
fn with_other_ways(error: Error, model: &Path) -> Error {
    let exported = model.extension().is_some_and(|ending| ending == "onnx");
    if exported || error.faults().iter().any(|fault| fault.hint.is_some()) {
        return error;
    }
    error.hint("export the model to ONNX, or name a program that serves it: `--scorer COMMAND`")
}

/// A file of a folder, named without the current one.
fn in_folder(folder: &Path, name: &str) -> PathBuf {
    if folder == Path::new(".") { PathBuf::from(name) } else { folder.join(name) }
}

/// Results in the folder of the table would be part of the table.
fn refuse_results_in_table(request: &InitRequest) -> Result<()> {
    let results = request.folder.join(RESULTS);
    let resolved_paths = resolved(&results).ok().zip(resolved(Path::new(&request.table)).ok());
    if !resolved_paths.is_some_and(|(results, table)| table.is_dir() && results.starts_with(table))
    {
        return Ok(());
    }
    let problem = format!("holds `{}`, where the results would be written", results.display());
    Err(Error::spec(&request.table, problem)
        .hint("start in another folder, or name one by `--out DIR`"))
}

/// Refuses columns of the command line that the table does not have.
fn check_names(request: &InitRequest, table: &Table) -> Result<()> {
    let given = request.key.iter().chain(&request.ignore);
    let missing = given.filter(|name| table.schema.column_with_name(name).is_none());
    let faults = missing.map(|name| missing_column(name, &table.schema, &table.shown));
    Error::from_faults(Kind::Spec, faults.collect())
}

impl InitTable<'_> {
    /// Everything that is written, tried out on the first rows.
    fn first_job(
        &self,
        (inputs, mut options): (&ModelInputs, InferOptions),
        runtime: &Runtime,
        observer: &Observer,
    ) -> Result<FirstJob> {
        observer.stage("looking for a key", None);
        let search = KeySearch { source: self, taken: inputs.taken() };
        let key = runtime.block_on(search.find())?;
        options.ignore = self.left_out(&key.value);
        let task = match inputs.task() {
            Some(task) => task,
            None => self.ask_program(&options, runtime)?,
        };
        let label = find_label(self, inputs, (&task, &options.ignore));
        let form = inputs.form(self, &task, (&mut options.ignore, label.as_ref()))?;
        let label = label.filter(|label| options.ignore.contains_key(&label.value));
        let inferred = infer_from(&self.table, &self.profiles, &options);
        form.value.refuse_left_out(self, &inferred)?;
        observer.stage("looking at what holds between columns", None);
        let rules = runtime.block_on(observed_rules(&self.engine, &self.table, &inferred.text))?;
        observer.stage("asking the model", None);
        let first_predictions = self.try_out(&inferred, &form.value, runtime)?;
        let segments = guess_segments(&self.profiles, &key.value, label.as_ref());
        let target = guess_target(&first_predictions);
        Ok(FirstJob { key, form, label, target, segments, inferred, rules, first_predictions })
    }

    /// Columns that are no features whatever the model takes.
    fn left_out(&self, key: &[String]) -> BTreeMap<String, String> {
        let ignored_columns = self.request.ignore.iter().map(|name| (name, "left out as asked"));
        let key = key.iter().map(|name| (name, "it is the key"));
        let all = key.chain(ignored_columns);
        all.map(|(name, reason)| (name.clone(), reason.to_string())).collect()
    }

    /// What a program answers, which it says when it is started with columns.
    fn ask_program(&self, options: &InferOptions, runtime: &Runtime) -> Result<Task> {
        let inferred = infer_from(&self.table, &self.profiles, options);
        let form = PredictorForm::program(self.request.task, &self.request.classes);
        let (predictor, _) = self.open(&inferred, &form, runtime)?;
        let task = predictor.task().clone();
        predictor.stop();
        Ok(task)
    }

    /// The model with the inferred features.
    fn open(
        &self,
        inferred: &Inferred,
        form: &PredictorForm,
        runtime: &Runtime,
    ) -> Result<(Arc<dyn predictor::Predictor>, Arc<FeatureSchema>)> {
        let schema = Arc::new(FeatureSchema::parse(&inferred.text, Path::new(SCHEMA))?);
        let columns = first_predictions::model_columns(&schema, &self.table);
        let (argument, settings) = form.settings(&self.request.model);
        let job = PredictorJob::of_argument(argument, settings)?;
        Ok((predictor::open(&job, &columns, runtime.threads)?, schema))
    }
}
