//! `overturn validate`: everything that can be known before a run, without writing anything.

use std::path::Path;

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, Field};
use futures::StreamExt;
use serde::Serialize;
use tokio::task::block_in_place;

use super::model::{open_robust, shown};
use super::overlaps::check_overlaps;
use super::parity::{ParityCheck, ParitySummary};
use super::partitions::{
    check_class_folders, check_groups, check_key_folders, check_label, check_segments,
};
use super::run::{check_output_names, check_questions, previous_run};
use super::{
    CheckSummary, Inputs, ModelProvenance, Observer, Scope, assumed, check_repeatable, memory,
};
use crate::artefact::{Artefact, load, load_neighbours};
use crate::error::{Error, Result};
use crate::explain::{check_fit, check_plausibility};
use crate::feature::{RowValidator, type_name};
use crate::job::{Job, MemoryEstimate, Target, available_memory};
use crate::output::Mirror;
use crate::predictor::{self, NO_CLASS, Outcome, Predictor, Task};
use crate::runtime::Runtime;

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

/// Checks a job against its tables and its model.
///
/// # Errors
/// The first kind of fault found, with all of that kind.
pub fn validate(job: &Job, runtime: &Runtime, observer: &Observer) -> Result<ValidateSummary> {
    let inputs = Inputs::open(&job.input, &job.runtime, runtime.threads)?;
    check_overlaps(job, &inputs)?;
    Mirror::probe(&job.output)?;
    // What is found out about the model's files here would stop a run.
    ModelProvenance::read(job)?;
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
        let parity = ParityCheck::of_table((job, &inputs), predictor.as_ref(), observer).await?;
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
        let fits_task = match &scores.outcome {
            Outcome::Classes { labels, .. } => labels.iter().any(|label| *label != NO_CLASS),
            Outcome::Values(values) => values.iter().any(|value| value.is_finite()),
        };
        if !fits_task {
            let problem = format!("predicts nothing for any of the first {} rows", rows.num_rows());
            return Err(Error::predictor(name, problem)
                .hint("check that its scores are numbers, and the columns that it is given"));
        }
        return Ok(());
    }
    Ok(())
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
                           rows of a target class to compare with";
            Err(Error::spec("report.gates.max_mmd_ratio", problem).hint("remove the gate"))
        }
        (Target::Column { name, .. }, _) => {
            let found = inputs.features.schema.field_with_name(name);
            found.map_or(Ok(()), |field| check_target_column(field, task))
        }
        _ => Ok(()),
    }
}

/// Refuses a column that cannot hold targets.
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
