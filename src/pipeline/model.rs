//! What must not change about a model while it is used: its files, and what it answers.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::StreamExt;
use sha2::{Digest, Sha256};
use tokio::task::block_in_place;

use super::{Inputs, Scope};
use crate::document::read_regular;
use crate::error::{Error, Result};
use crate::explain::RobustModels;
use crate::feature::{RowValidator, key_hashes};
use crate::job::{Job, PredictorJob, PredictorKind, RepeatableSpec};
use crate::output::{RunProvenance, hex};
use crate::predictor::{self, Disagreement, Predictor, Repeated, Task, ask_again};

/// Rows that a model is asked about again …
const ASKED_ROWS: usize = 64;
/// … of so many that are read.
const READ_ROWS: usize = 1024;
/// Bytes of a feature schema's file.
const LARGEST_SCHEMA: u64 = 1 << 30;
/// Seed of the hashes by which they are chosen.
const SEED: u64 = 0;

/// The files that decisions depend on beside the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelProvenance {
    /// SHA-256 of the model.
    pub(super) model: String,
    /// SHA-256 of the models beside it.
    pub(super) robust: Vec<String>,
    /// SHA-256 of the feature schema's file.
    pub(super) schema: String,
}

impl ModelProvenance {
    /// Reads the files of a job.
    pub(super) fn read(job: &Job) -> Result<ModelProvenance> {
        let schema = read_regular(&job.input.schema, LARGEST_SCHEMA).map_err(|error| {
            Error::input(job.input.schema.display().to_string(), format!("cannot be read: {error}"))
        })?;
        let model = predictor::fingerprint(&job.predictor)?;
        let robust = job.robust.models.iter().map(predictor::fingerprint);
        let robust = robust.collect::<Result<_>>()?;
        Ok(ModelProvenance { model, robust, schema: hex(&Sha256::digest(&schema)) })
    }

    /// What a run has noted of them.
    pub(super) fn of(provenance: &RunProvenance) -> ModelProvenance {
        let RunProvenance { model, robust, schema, .. } = provenance.clone();
        ModelProvenance { model, robust, schema }
    }

    /// Refuses files that are no longer what they were.
    pub(super) fn refuse_changed(&self, job: &Job) -> Result<()> {
        let now = ModelProvenance::read(job)?;
        if now.schema != self.schema {
            let shown = job.input.schema.display().to_string();
            return Err(Error::input(shown, "was changed while it was used")
                .hint("run again, without `--resume`, when nobody writes to it"));
        }
        let models = std::iter::once(&job.predictor).chain(&job.robust.models);
        let before = std::iter::once(&self.model).chain(&self.robust);
        let now = std::iter::once(&now.model).chain(&now.robust);
        let mut models = models.zip(before.zip(now));
        let Some((model, (before, now))) = models.find(|(_, (before, now))| before != now) else {
            return Ok(());
        };
        let problem =
            format!("was changed while it was used: its SHA-256 was {before}, now it is {now}");
        let hint = match model.kind {
            PredictorKind::Onnx(_) => "run again, without `--resume`, when nobody writes to it",
            PredictorKind::Subprocess(_) => {
                "files and folders that `predictor.command` names are part of the model: the program must not \
                 write to them; run again, without `--resume`"
            }
        };
        Err(Error::predictor(shown(model), problem).hint(hint))
    }
}

/// Opens another model than the job's, which a key names. It must decide between the same classes.
///
/// # Errors
/// When it cannot be opened, or decides something else.
pub(super) fn open_other(
    model: &PredictorJob,
    key: &str,
    (inputs, threads): (&Inputs, usize),
    task: &Task,
) -> Result<Arc<dyn Predictor>> {
    let opened = predictor::open(model, &inputs.predictor_columns(), threads)?;
    let sorted = |task: &Task| match task {
        Task::Regression => Vec::new(),
        Task::Classification { classes, .. } => {
            let mut classes = classes.to_vec();
            classes.sort();
            classes
        }
    };
    let (found, expected) = (sorted(opened.task()), sorted(task));
    if found == expected {
        return Ok(opened);
    }
    opened.stop();
    let problem = format!("has the classes {found:?}, expected {expected:?}");
    Err(Error::predictor(shown(model), problem)
        .hint(format!("`{key}` names other trainings of the same model")))
}

/// Opens the models beside the predictor.
///
/// # Errors
/// When one of them cannot be opened, or decides something else.
pub(super) fn open_robust(
    job: &Job,
    (inputs, threads): (&Inputs, usize),
    task: &Task,
) -> Result<RobustModels> {
    let listed = job.robust.models.iter();
    let opened = listed.map(|model| open_other(model, "robust.models", (inputs, threads), task));
    RobustModels::new(opened.collect::<Result<_>>()?, job.robust.needed(), task)
}

/// The model's name in messages.
pub(super) fn shown(job: &PredictorJob) -> String {
    match &job.kind {
        PredictorKind::Onnx(model) => model.model.display().to_string(),
        PredictorKind::Subprocess(program) => program.command.join(" "),
    }
}

/// Asks the model about a few rows in several ways; gives what is odd about the answers.
///
/// # Errors
/// When it fails, or decides otherwise when it is asked again and the job does not allow that.
pub(super) async fn check_repeatable(
    job: &Job,
    inputs: &Inputs,
    scope: Scope<'_>,
    predictor: &Arc<dyn Predictor>,
) -> Result<Vec<String>> {
    if job.predictor.repeatable == RepeatableSpec::Off {
        return Ok(Vec::new());
    }
    let Some((keys, features)) = few_rows(inputs, scope).await? else { return Ok(Vec::new()) };
    let repeated = block_in_place(|| ask_again(predictor.as_ref(), &features))?;
    let model = shown(&job.predictor);
    let mut remarks = Vec::new();
    if let Some(difference) = &repeated.decision {
        let problem = difference_text(difference, &repeated, &named_key(&keys, difference.row)?);
        if job.predictor.repeatable == RepeatableSpec::Require {
            return Err(Error::predictor(model, problem).hint(hint(difference)));
        }
        remarks.push(format!("the model {problem}"));
    }
    if repeated.scores_differ() {
        remarks.push(format!(
            "the model's scores differ by up to {:.4} when the same {} rows are asked about again, in other \
             batches",
            repeated.score, repeated.rows
        ));
    }
    if repeated.not_most_probable > 0 {
        remarks.push(format!(
            "the model's label is not its most probable class for {} of {} rows; the label counts",
            repeated.not_most_probable, repeated.rows
        ));
    }
    remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
    Ok(remarks)
}

/// What was assumed about the model, unless stored decisions are compared with its own.
pub(super) fn assumed(job: &Job, predictor: &dyn Predictor) -> Option<String> {
    let compared = job.input.scores.as_ref().is_some_and(|scores| scores.parity_rows > 0);
    let text = predictor.assumed().filter(|_| !compared)?;
    tracing::warn!("{text}");
    Some(text.to_string())
}

fn difference_text(difference: &Disagreement, repeated: &Repeated, key: &str) -> String {
    let Disagreement { first, second, how, .. } = difference;
    format!(
        "decides otherwise when it is asked again: the row {key} was {first} in a batch of {} rows and \
         {second} {how} ({} of {} rows differ)",
        repeated.rows, repeated.differing, repeated.rows
    )
}

fn hint(difference: &Disagreement) -> String {
    let cause = if difference.by_chance {
        "its predictions depend on chance or on what it was asked before: fix its seed, or take it out of \
         training mode"
    } else {
        "its predictions depend on the other rows of a batch: take statistics over a batch out of it"
    };
    format!("{cause}; for a model that is meant to do so set `predictor.repeatable = \"warn\"`")
}

/// Keys and features of some rows that can be used: those with the least hashes among the first.
async fn few_rows(inputs: &Inputs, scope: Scope<'_>) -> Result<Option<(RecordBatch, RecordBatch)>> {
    let lost = |error| Error::internal("repetition", "a column is lost").source(error);
    let mut stream = inputs.engine.scan(inputs.plan(scope)).await?.stream()?;
    let validator = RowValidator::new(&inputs.schema);
    let (mut keys, mut features, mut rows) = (Vec::new(), Vec::new(), 0);
    while rows < READ_ROWS
        && let Some(batch) = stream.next().await
    {
        let batch = batch?;
        let batch = batch.slice(0, batch.num_rows().min(READ_ROWS - rows));
        let validated =
            validator.validate_rows(&batch.project(&inputs.feature_columns).map_err(lost)?)?;
        let key = batch.project(&inputs.key).map_err(lost)?;
        let key = match &validated.rows {
            Some(rows) => take_record_batch(&key, rows).map_err(lost)?,
            None => key,
        };
        rows += key.num_rows();
        keys.push(key);
        features.push(validated.features);
    }
    if rows == 0 {
        return Ok(None);
    }
    let whole = |parts: &[RecordBatch]| concat_batches(&parts[0].schema(), parts).map_err(lost);
    let (keys, features) = (whole(&keys)?, whole(&features)?);
    let hashes = key_hashes(&keys, SEED)?;
    let mut chosen: Vec<u32> = (0..rows as u32).collect();
    chosen.sort_by_key(|row| hashes[*row as usize]);
    chosen.truncate(ASKED_ROWS);
    let chosen = UInt32Array::from(chosen);
    let take = |batch: &RecordBatch| take_record_batch(batch, &chosen).map_err(lost);
    Ok(Some((take(&keys)?, take(&features)?)))
}

/// A row's key, such as `application_id = 17`.
pub(super) fn named_key(keys: &RecordBatch, row: usize) -> Result<String> {
    let options = FormatOptions::new().with_null("null");
    let schema = keys.schema();
    let column = |(field, column): (&arrow::datatypes::FieldRef, &arrow::array::ArrayRef)| {
        let column: &dyn Array = column.as_ref();
        let shown = ArrayFormatter::try_new(column, &options)
            .map_err(|error| Error::internal("key", "cannot be shown").source(error))?;
        Ok(format!("{} = {}", field.name(), shown.value(row)))
    };
    let parts: Result<Vec<String>> =
        schema.fields().iter().zip(keys.columns()).map(column).collect();
    Ok(parts?.join(", "))
}
