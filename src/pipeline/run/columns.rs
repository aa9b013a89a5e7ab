//! Which columns a run reads, and what they are for.

use std::sync::Arc;

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};

use super::super::Inputs;
use super::questions::check_questions;
use crate::error::{Error, Fault, Kind, Result};
use crate::explain::Columns;
use crate::feature::{missing_column, type_name};
use crate::job::{Job, Target};
use crate::output::report_columns;

/// Columns of the feature table, in the order in which they are read, and their indexes.
pub(super) struct ScanColumns {
    /// What is explained: key, features, constraints, target.
    pub(super) names: Vec<String>,
    pub(super) indexes: Columns,
    /// What reports compare with: key, features, segments.
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
        let indexes = Columns {
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
    Error::from_faults(Kind::Spec, segment_faults(job, inputs))
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
        Ok(field) => (!can_cast_types(field.data_type(), &DataType::Utf8)).then(|| {
            let problem = format!(
                "names `{name}` of type {}, which has no text",
                type_name(field.data_type())
            );
            Fault::new("report.by", problem)
        }),
    };
    job.report.by.iter().filter_map(fault).collect()
}
