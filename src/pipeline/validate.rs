//! `overturn validate`: everything that can be known before a run, without writing anything.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{can_cast_types, cast, take_record_batch};
use arrow::datatypes::{DataType, Field};
use futures::StreamExt;
use serde::Serialize;
use tokio::task::block_in_place;

use super::model::{open_robust, shown};
use super::partitions::{
    check_class_folders, check_groups, check_key_folders, check_label, check_segments,
};
use super::places::check_places;
use super::run::{check_output_names, check_questions, previous_run};
use super::{CheckSummary, Inputs, ModelFacts, Observer, Scope, assumed, check_repeatable, memory};
use crate::artefact::{Artefact, load, load_neighbours};
use crate::engine::ScanPlan;
use crate::error::{Error, Result};
use crate::explain::{Decisions, check_fit, check_plausibility};
use crate::feature::{RowValidator, numbers, type_name};
use crate::job::{Job, MemoryEstimate, ScoresJob, Target, available_memory};
use crate::output::Mirror;
use crate::predictor::{self, NO_CLASS, Outcome, Predictor, Scores, Task};
use crate::runtime::Runtime;

/// Two regressions agree within this share of the larger one.
const VALUE_TOLERANCE: f64 = 1e-5;
/// Rows that a model is tried out on.
const TRIED_ROWS: usize = 16;

/// What a validation found.
#[derive(Debug, Clone, Serialize)]
pub struct ValidateSummary {
    /// What the tables hold.
    #[serde(flatten)]
    pub check: CheckSummary,
    /// The model's classes; empty for a regression.
    pub classes: Vec<String>,
    /// Whether the model gives probabilities.
    pub probabilities: bool,
    /// How the score table compares, if there is one.
    pub parity: Option<ParitySummary>,
    /// What a run will take of the machine's memory, part by part.
    pub memory: MemoryEstimate,
}

/// How a score table compares with the model.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ParitySummary {
    /// Rows in scope without a stored decision.
    pub rows_without_score: u64,
    /// Rows scored again.
    pub rows_compared: u64,
    /// Rows on which the stored decision is not the model's.
    pub rows_different: u64,
}

/// Checks a job against its tables and its model.
///
/// # Errors
/// The first kind of fault found, with all of that kind.
pub fn validate(job: &Job, runtime: &Runtime, observer: &Observer) -> Result<ValidateSummary> {
    let inputs = Inputs::open(&job.input, &job.runtime, runtime.threads)?;
    check_places(job, &inputs)?;
    Mirror::probe(&job.output)?;
    // What is found out about the model's files here would stop a run.
    ModelFacts::read(job)?;
    let predictor = predictor::open(&job.predictor, &inputs.predictor_columns(), runtime.threads)?;
    runtime.check_signals()?;
    check_target(job, &inputs, predictor.task())?;
    let robust = open_robust(job, (&inputs, runtime.threads), predictor.task())?;
    check_class_folders(job, predictor.task())?;
    if job.target.is_some() {
        check_output_names(job, &inputs)?;
        check_questions(job, &inputs.schema)?;
    }
    previous_run(job, &inputs, predictor.task())?;
    if let Some(folder) = &job.explain.generator {
        check_generator(folder, job, (&inputs, predictor.task()), runtime)?;
    }
    let memory = memory::estimate(job, &inputs, predictor.task(), runtime.threads);
    let enough = memory.check(available_memory());
    let result = runtime.block_on(async {
        enough?;
        let scope = Scope::explained(&job.input);
        let mut check = inputs.check(&job.input, scope, observer).await?;
        check_key_folders(job, &inputs).await?;
        check_segments(job, &inputs).await?;
        check_groups(job, &inputs).await?;
        check_label(job, &inputs, predictor.task()).await?;
        check.remarks.extend(inputs.contradictions(scope).await?);
        try_out(job, &inputs, ("predictor", predictor.as_ref())).await?;
        for (model, opened) in job.robust.models.iter().zip(robust.predictors()) {
            try_out(job, &inputs, (&shown(model), opened)).await?;
        }
        check.remarks.extend(check_repeatable(job, &inputs, scope, &predictor).await?);
        check.remarks.extend(assumed(job, predictor.as_ref()));
        let parity = parity(job, &inputs, predictor.as_ref(), observer).await?;
        let (classes, probabilities) = match predictor.task() {
            Task::Classification { classes, probabilities } => (classes.to_vec(), *probabilities),
            Task::Regression => (Vec::new(), false),
        };
        Ok(ValidateSummary { check, classes, probabilities, parity, memory })
    });
    if result.is_err() {
        predictor.stop();
        robust.stop();
    }
    result
}

/// Whether a generator is whole, and made for the job's features and decisions. What is wrong is told of the
/// place that the job names, before it is copied anywhere.
pub(super) fn check_generator(
    folder: &Path,
    job: &Job,
    (inputs, task): (&Inputs, &Task),
    runtime: &Runtime,
) -> Result<()> {
    let Artefact { description, .. } = load(folder, runtime.device)?;
    check_fit(&description, &inputs.schema, task, &folder.display().to_string())?;
    let points = load_neighbours(folder, &description)?;
    check_plausibility(&job.explain, points.len)
}

/// Asks the model about the first rows that can be used: what can be loaded may still not answer.
async fn try_out(
    job: &Job,
    inputs: &Inputs,
    (name, predictor): (&str, &dyn Predictor),
) -> Result<()> {
    let scan = inputs.engine.scan(inputs.plan(Scope::explained(&job.input))).await?;
    let (mut stream, validator) = (scan.stream()?, RowValidator::new(&inputs.schema));
    while let Some(batch) = stream.next().await {
        let batch = batch?
            .project(&inputs.feature_columns)
            .map_err(|error| Error::internal("validation", "a column is lost").source(error))?;
        let rows =
            validator.validate_rows(&batch.slice(0, batch.num_rows().min(TRIED_ROWS)))?.features;
        if rows.num_rows() == 0 {
            continue;
        }
        let scores = block_in_place(|| predictor.predict(&rows))?;
        let answers = match &scores.outcome {
            Outcome::Classes { labels, .. } => labels.iter().any(|label| *label != NO_CLASS),
            Outcome::Values(values) => values.iter().any(|value| value.is_finite()),
        };
        if !answers {
            let problem = format!("predicts nothing for any of the first {} rows", rows.num_rows());
            return Err(Error::predictor(name, problem)
                .hint("check that its scores are numbers, and the columns that it is given"));
        }
        return Ok(());
    }
    Ok(())
}

/// Holds a score table against the model, if there is one.
pub(super) async fn parity(
    job: &Job,
    inputs: &Inputs,
    predictor: &dyn Predictor,
    observer: &Observer,
) -> Result<Option<ParitySummary>> {
    match (&job.input.scores, &inputs.scores) {
        (Some(scores), Some(_)) => {
            observer.stage("comparing scores", Some(inputs.features.rows));
            Ok(Some(compare(job, inputs, scores, predictor, observer).await?))
        }
        _ => Ok(None),
    }
}

/// Holds stored decisions against the model on the first rows in scope that have one.
pub(super) async fn hold_against(
    job: &Job,
    inputs: &Inputs,
    predictor: &dyn Predictor,
    (scores, decisions): (&ScoresJob, &Decisions),
) -> Result<()> {
    let mut stream =
        inputs.engine.scan(inputs.plan(Scope::explained(&job.input))).await?.stream()?;
    let validator = RowValidator::new(&inputs.schema);
    let lost = |error| Error::internal("parity", "a column is lost").source(error);
    let mut parity = ParitySummary::default();
    while (parity.rows_compared as usize) < scores.parity_rows
        && let Some(batch) = stream.next().await
    {
        let batch = batch?;
        let stored = decisions.column(&batch.project(&inputs.key).map_err(lost)?)?;
        let known: Vec<u32> =
            (0..batch.num_rows() as u32).filter(|row| stored.is_valid(*row as usize)).collect();
        let left = scores.parity_rows - parity.rows_compared as usize;
        let known = UInt32Array::from_iter_values(known.into_iter().take(left));
        let rows = take_record_batch(&batch, &known).map_err(lost)?;
        let stored = arrow::compute::take(&stored, &known, None).map_err(lost)?;
        let compared = (&rows, &stored);
        block_in_place(|| compare_rows(compared, inputs, &validator, predictor, &mut parity))?;
    }
    check_parity(job, scores, parity).map(|_| ())
}

pub(super) fn check_target(job: &Job, inputs: &Inputs, task: &Task) -> Result<()> {
    let Some(target) = &job.target else { return Ok(()) };
    match (target, task) {
        (Target::Class(class), Task::Classification { classes, .. })
            if !classes.contains(class) =>
        {
            let error =
                Error::spec("target.class", format!("is `{class}`, expected one of {classes:?}"));
            let known = classes.iter().map(String::as_str);
            Err(match crate::document::did_you_mean(class, known) {
                Some(hint) => error.hint(hint),
                None => error,
            })
        }
        (Target::Flip, Task::Classification { classes, .. }) if classes.len() != 2 => {
            let problem =
                format!("is true, but the model has {} classes, expected 2", classes.len());
            Err(Error::spec("target.flip", problem).hint("name a `class`, a `column` or `every`"))
        }
        (Target::Column { name, .. }, _)
            if inputs.features.schema.column_with_name(name).is_none() =>
        {
            let table = &inputs.features;
            let fault = crate::feature::missing_column(name, &table.schema, &table.shown);
            Error::from_faults(crate::error::Kind::Spec, vec![fault])
        }
        (Target::Column { .. }, Task::Regression) if job.report.gates.max_mmd_ratio.is_some() => {
            let problem = "is given, but every row of `target.column` has a range of its own: there are no \
                           rows of a wanted class to compare with";
            Err(Error::spec("report.gates.max_mmd_ratio", problem).hint("remove the gate"))
        }
        (Target::Column { name, .. }, _) => {
            let found = inputs.features.schema.field_with_name(name);
            found.map_or(Ok(()), |field| check_target_column(field, task))
        }
        _ => Ok(()),
    }
}

/// Refuses a column that cannot say what is wanted.
fn check_target_column(field: &Field, task: &Task) -> Result<()> {
    let found = field.data_type();
    let (fits, expected) = match task {
        Task::Regression => (found.is_numeric(), "numbers"),
        Task::Classification { .. } => {
            (!found.is_nested() && can_cast_types(found, &DataType::Utf8), "class labels")
        }
    };
    if fits {
        return Ok(());
    }
    let problem =
        format!("names `{}` of type {}, expected {expected}", field.name(), type_name(found));
    Err(Error::spec("target.column", problem))
}

/// Streams features and stored decisions side by side; the first rows are scored again.
async fn compare(
    job: &Job,
    inputs: &Inputs,
    scores: &ScoresJob,
    predictor: &dyn Predictor,
    observer: &Observer,
) -> Result<ParitySummary> {
    let table =
        inputs.scores.as_ref().map(|table| (table, &job.input.key[..], scores.decision.as_str()));
    let scan = inputs
        .engine
        .scan(ScanPlan { scores: table, ..inputs.plan(Scope::explained(&job.input)) })
        .await?;
    let validator = RowValidator::new(&inputs.schema);
    let mut parity = ParitySummary::default();
    let mut stream = scan.stream()?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let decision = batch.column(batch.num_columns() - 1);
        parity.rows_without_score += decision.null_count() as u64;
        observer.advance(batch.num_rows() as u64);
        let left = (scores.parity_rows as u64).saturating_sub(parity.rows_compared) as usize;
        if left > 0 {
            let batch = batch.slice(0, left.min(batch.num_rows()));
            let compared = (&batch, batch.column(batch.num_columns() - 1));
            block_in_place(|| compare_rows(compared, inputs, &validator, predictor, &mut parity))?;
        }
    }
    check_parity(job, scores, parity)
}

fn compare_rows(
    (batch, stored): (&RecordBatch, &ArrayRef),
    inputs: &Inputs,
    validator: &RowValidator,
    predictor: &dyn Predictor,
    parity: &mut ParitySummary,
) -> Result<()> {
    let lost = |error| Error::internal("parity", "a column is lost").source(error);
    let features = batch.project(&inputs.feature_columns).map_err(lost)?;
    let validated = validator.validate_rows(&features)?;
    let mut decision: ArrayRef = Arc::clone(stored);
    if let Some(rows) = &validated.rows {
        decision = arrow::compute::take(&decision, rows, None).map_err(lost)?;
    }
    if validated.features.num_rows() == 0 {
        return Ok(());
    }
    let scores = predictor.predict(&validated.features)?;
    let (compared, different) = differences(&decision, &scores, predictor.task())?;
    parity.rows_compared += compared;
    parity.rows_different += different;
    Ok(())
}

fn differences(decision: &ArrayRef, scores: &Scores, task: &Task) -> Result<(u64, u64)> {
    let known = (0..decision.len()).filter(|row| decision.is_valid(*row));
    let wrong_type = |error| {
        let problem = format!("is {}, expected the model's decision", decision.data_type());
        Error::input("input.scores.decision", problem).source(error)
    };
    let agree: Box<dyn Fn(usize) -> bool> = match (&scores.outcome, task) {
        (Outcome::Classes { labels, .. }, Task::Classification { classes, .. }) => {
            let stored = cast(decision, &DataType::Utf8).map_err(wrong_type)?;
            Box::new(move |row| {
                let class = classes.get(labels[row] as usize);
                class.is_some_and(|class| stored.as_string::<i32>().value(row) == class)
            })
        }
        (Outcome::Values(values), _) => {
            let stored = numbers(decision)?;
            Box::new(move |row| {
                let (stored, found) = (stored.value(row), values[row]);
                (stored - found).abs() <= VALUE_TOLERANCE * stored.abs().max(found.abs()).max(1.0)
            })
        }
        _ => return Err(Error::internal("parity", "answers do not fit the model's task")),
    };
    let (mut compared, mut different) = (0, 0);
    for row in known {
        compared += 1;
        different += u64::from(!agree(row));
    }
    Ok((compared, different))
}

fn check_parity(job: &Job, scores: &ScoresJob, parity: ParitySummary) -> Result<ParitySummary> {
    let shown = scores.table.join(", ");
    if parity.rows_compared == 0 && scores.parity_rows > 0 {
        return Err(Error::input(shown, "has no row whose key occurs in the feature table")
            .hint(format!("rows are joined on `{}`", job.input.key.join(", "))));
    }
    let share = parity.rows_different as f64 / parity.rows_compared.max(1) as f64;
    if share > scores.parity_tolerance {
        let problem = format!(
            "{} of {} stored decisions are not the model's ({:.2} %, at most {:.2} % may be)",
            parity.rows_different,
            parity.rows_compared,
            100.0 * share,
            100.0 * scores.parity_tolerance
        );
        return Err(Error::input(shown, problem).hint(
            "the scores come from another model, another version of it, or other features; score again \
             with `overturn score`",
        ));
    }
    Ok(parity)
}
