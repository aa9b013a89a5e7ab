//! Which columns a run reads, and what they are for.

use std::sync::Arc;

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::super::Inputs;
use super::questions::check_questions;
use crate::error::{Error, Fault, Kind, Result};
use crate::explain::ColumnIndices;
use crate::feature::{missing_column, type_name};
use crate::job::{Job, Target};
use crate::output::report_columns;

/// Columns of the feature table, in the order in which they are read, and their indexes.
pub(super) struct ScanColumns {
    /// What is explained: key, features, constraints, target.
    pub(super) names: Vec<String>,
    pub(super) indexes: ColumnIndices,
    /// What reports compare with: key, features, segments; and what the audit does: groups, label, constraints.
    pub(super) reported: Vec<String>,
    /// Indexes of the segments among them.
    pub(super) segments: Vec<usize>,
}

impl ScanColumns {
    pub(super) fn new(job: &Job, inputs: &Inputs) -> Result<ScanColumns> {
        check_segment_columns(job, inputs)?;
        check_questions(job, &inputs.schema)?;
        let (mut names, mut reported) = (inputs.columns.clone(), inputs.columns.clone());
        for constraint in &inputs.constraints {
            index_of(&mut names, &constraint.column);
        }
        let target = match &job.target {
            Some(Target::Column { name, .. }) => Some(index_of(&mut names, name)),
            _ => None,
        };
        let segments = job.report.by.iter().map(|name| index_of(&mut reported, name)).collect();
        for name in audited(job, inputs) {
            index_of(&mut reported, &name);
        }
        let indexes = ColumnIndices {
            key: inputs.key.to_vec(),
            features: inputs.feature_columns.to_vec(),
            constraints: inputs.constraints.clone(),
            target,
        };
        Ok(ScanColumns { names, indexes, reported, segments })
    }

    /// The schema of the batches that are explained.
    pub(super) fn schema(&self, inputs: &Inputs) -> SchemaRef {
        let field = |name: &String| -> Option<FieldRef> {
            let (index, _) = inputs.features.schema.column_with_name(name)?;
            Some(Arc::clone(&inputs.features.schema.fields()[index]))
        };
        Arc::new(Schema::new(self.names.iter().filter_map(field).collect::<Vec<_>>()))
    }
}

/// Columns that the audit needs beside the features.
fn audited(job: &Job, inputs: &Inputs) -> Vec<String> {
    if job.audit.sections.is_empty() {
        return Vec::new();
    }
    let constraints = inputs.constraints.iter().map(|constraint| &constraint.column);
    job.audit.by.iter().chain(&job.audit.label).chain(constraints).cloned().collect()
}

/// Where a name stands among others; added if it is new.
pub(super) fn index_of(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_string());
        names.len() - 1
    })
}

/// Refuses segment columns that are not there, have no text or the name of a report's own column.
///
/// # Errors
/// All that is wrong with them.
pub(in crate::pipeline) fn check_segment_columns(job: &Job, inputs: &Inputs) -> Result<()> {
    let mut faults = segment_faults(job, inputs);
    faults.extend(audit_faults(job, inputs));
    Error::from_faults(Kind::Spec, faults)
}

/// Columns of the audit that are not there, or have no text.
fn audit_faults(job: &Job, inputs: &Inputs) -> Vec<Fault> {
    let table = &inputs.features;
    let by = job.audit.by.iter().filter(|name| !job.report.by.contains(name));
    let by = by.map(|name| ("audit.by", name));
    let label = job.audit.label.iter().map(|name| ("audit.label", name));
    let fault = |(key, name): (&str, &String)| match table.schema.field_with_name(name) {
        Err(_) => {
            let hint = missing_column(name, &table.schema, &table.shown).hint;
            let problem = format!("names `{name}`, which is no column of {}", table.shown);
            Some(Fault { hint, ..Fault::new(key, problem) })
        }
        Ok(field) => no_text(key, field),
    };
    by.chain(label).filter_map(fault).collect()
}

fn no_text(key: &str, field: &Field) -> Option<Fault> {
    (!can_cast_types(field.data_type(), &DataType::Utf8)).then(|| {
        let (name, of) = (field.name(), type_name(field.data_type()));
        Fault::new(key, format!("names `{name}` of type {of}, which has no text"))
    })
}

fn segment_faults(job: &Job, inputs: &Inputs) -> Vec<Fault> {
    let table = &inputs.features;
    let taken = report_columns();
    let fault = |name: &String| match table.schema.field_with_name(name) {
        _ if taken.contains(name) => {
            let problem = format!("names `{name}`, a column that reports have themselves");
            Some(Fault::new("report.by", problem).hint("rename the column in the table"))
        }
        Err(_) => Some(missing_column(name, &table.schema, &table.shown)),
        Ok(field) => no_text("report.by", field),
    };
    job.report.by.iter().filter_map(fault).collect()
}
