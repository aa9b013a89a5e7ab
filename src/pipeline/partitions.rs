//! Whether the columns of `output.partition_by` can become folders without losing a value, and those of `report.by`
//! segments, as far as that can be known before anything long starts.

use super::run::check_segment_columns;
use super::{Inputs, Scope};
use crate::audit::{MOST_GROUPS, too_many};
use crate::engine::distinct_values;
use crate::error::{Error, Fault, Kind, Result};
use crate::job::{Job, Target};
use crate::metrics::MOST_SEGMENTS;
use crate::output::{MOST_FOLDERS, folder_name};
use crate::predictor::Task;

/// Columns whose values are the model's classes.
const CLASS_COLUMNS: [&str; 3] = ["target", "original_class", "cf_class"];
/// Values listed in one error.
const FAULTS_SHOWN: usize = 10;
/// Values named in one message.
const VALUES_SHOWN: usize = 10;

/// Refuses key columns with too many values, or with one that no folder can be named after.
///
/// # Errors
/// Names column and value.
pub(super) async fn check_key_folders(job: &Job, inputs: &Inputs) -> Result<()> {
    let by = job.output.partition_by.iter();
    let columns: Vec<String> = by.filter(|name| job.input.key.contains(name)).cloned().collect();
    if columns.is_empty() || job.target.is_none() {
        return Ok(());
    }
    let predicate = inputs.plan(Scope::explained(&job.input)).predicate;
    let table = &inputs.features;
    let found = distinct_values(&inputs.engine, table, (&columns, predicate), MOST_FOLDERS).await?;
    if found.len() > MOST_FOLDERS {
        let problem = format!(
            "names `{}`, which gives more than {MOST_FOLDERS} folders",
            columns.join("`, `")
        );
        return Err(Error::spec("output.partition_by", problem)
            .hint("name columns with few values, such as `target` or `status`"));
    }
    let mut faults = Vec::new();
    for values in &found {
        let named = columns.iter().zip(values);
        faults.extend(named.filter_map(|(name, value)| folder_name(name, value.as_deref()).err()));
    }
    refuse(faults)
}

/// Refuses segment columns with more values than a report can show.
///
/// # Errors
/// Names the columns.
pub(super) async fn check_segments(job: &Job, inputs: &Inputs) -> Result<()> {
    let by = &job.report.by;
    if by.is_empty() || job.target.is_none() {
        return Ok(());
    }
    check_segment_columns(job, inputs)?;
    let predicate = inputs.plan(Scope::explained(&job.input)).predicate;
    let scanned_columns = (&by[..], predicate);
    let found =
        distinct_values(&inputs.engine, &inputs.features, scanned_columns, MOST_SEGMENTS).await?;
    if found.len() <= MOST_SEGMENTS {
        return Ok(());
    }
    let columns = by.join("`, `");
    let problem = format!("names `{columns}`, which gives more than {MOST_SEGMENTS} segments");
    Err(Error::spec("report.by", problem)
        .hint("name columns with few values, such as a region or an age band"))
}

/// Refuses columns of the audit with more values than a page can show, and reference groups that nobody is in.
///
/// # Errors
/// Names the columns.
pub(super) async fn check_groups(job: &Job, inputs: &Inputs) -> Result<()> {
    if job.audit.sections.is_empty() || job.target.is_none() {
        return Ok(());
    }
    check_segment_columns(job, inputs)?;
    let predicate = inputs.plan(Scope::explained(&job.input)).predicate;
    let mut faults = Vec::new();
    for name in &job.audit.by {
        let scanned_columns = (std::slice::from_ref(name), predicate);
        let found =
            distinct_values(&inputs.engine, &inputs.features, scanned_columns, MOST_GROUPS).await?;
        if found.len() > MOST_GROUPS {
            faults.push(too_many(name));
        } else if let Some(reference) = job.audit.reference.get(name) {
            let values = || found.iter().filter_map(|values| values.first()?.as_deref());
            if !values().any(|value| value == reference) {
                let shown: Vec<&str> = values().take(VALUES_SHOWN).collect();
                let problem = format!("names `{reference}`, which no row has in `{name}`");
                let hint = format!("its values are `{}`", shown.join("`, `"));
                faults.push(Fault::new(format!("audit.reference.{name}"), problem).hint(hint));
            }
        }
    }
    Error::from_faults(Kind::Spec, faults)
}

/// Refuses labels that the model does not know.
///
/// # Errors
/// Names the column, and some of its values.
pub(super) async fn check_label(job: &Job, inputs: &Inputs, task: &Task) -> Result<()> {
    let Some(label) = job.audit.label.as_ref().filter(|_| !job.audit.sections.is_empty()) else {
        return Ok(());
    };
    let Task::Classification { classes, .. } = task else {
        return number_label(job, inputs, label);
    };
    let predicate = inputs.plan(Scope::explained(&job.input)).predicate;
    let (scanned_columns, most) =
        ((std::slice::from_ref(label), predicate), classes.len() + VALUES_SHOWN);
    let found = distinct_values(&inputs.engine, &inputs.features, scanned_columns, most).await?;
    let values = found.into_iter().filter_map(|values| values.into_iter().next()?);
    let other: Vec<String> = values.filter(|value| !classes.contains(value)).collect();
    if other.is_empty() {
        return Ok(());
    }
    let shown = other[..other.len().min(VALUES_SHOWN)].join("`, `");
    let problem = format!("names `{label}`, which holds `{shown}`, no classes of the model");
    let known: Vec<&str> = classes.iter().map(String::as_str).take(VALUES_SHOWN).collect();
    Err(Error::spec("audit.label", problem).hint(format!(
        "name a column with `{}`, or nulls where it is not known",
        known.join("`, `")
    )))
}

/// A regression's label is a number, and its target the same range for all rows.
fn number_label(job: &Job, inputs: &Inputs, label: &str) -> Result<()> {
    if matches!(job.target, Some(Target::Column { .. })) {
        let problem = "is given, but `target.column` wants another value of every row";
        return Err(Error::spec("audit.label", problem).hint("it goes with a range for all rows"));
    }
    let field = inputs.features.schema.field_with_name(label);
    if field.is_ok_and(|field| field.data_type().is_numeric()) {
        return Ok(());
    }
    let problem = format!("names `{label}`, which is no number: the model's values are");
    Err(Error::spec("audit.label", problem))
}

/// Refuses classes that no folder can be named after.
///
/// # Errors
/// Names column and class.
pub(super) fn check_class_folders(job: &Job, task: &Task) -> Result<()> {
    let Task::Classification { classes, .. } = task else { return Ok(()) };
    let by = job.output.partition_by.iter().filter(|name| CLASS_COLUMNS.contains(&name.as_str()));
    let faults = by.flat_map(|name| {
        classes.iter().filter_map(move |class| folder_name(name, Some(class)).err())
    });
    refuse(faults.collect())
}

fn refuse(mut faults: Vec<Fault>) -> Result<()> {
    faults.sort_by(|left, right| left.problem.cmp(&right.problem));
    faults.dedup();
    faults.truncate(FAULTS_SHOWN);
    Error::from_faults(Kind::Input, faults)
}
