//! What a job will take of the machine's memory, from what its tables and its model are like.

use super::Inputs;
use crate::feature::FeatureKind;
use crate::job::{Job, MemoryEstimate, TableSizes};
use crate::predictor::Task;

/// The estimate for a job over these tables.
pub(super) fn estimate(job: &Job, inputs: &Inputs, task: &Task, threads: usize) -> MemoryEstimate {
    MemoryEstimate::new(job, &sizes(inputs, task, inputs.features.rows, threads))
}

/// What the estimate needs to know, for so many rows.
pub(super) fn sizes(inputs: &Inputs, task: &Task, rows: u64, threads: usize) -> TableSizes {
    let features = &inputs.schema.features;
    let width = features.iter().map(|feature| match &feature.kind {
        FeatureKind::Numeric(_) => 2,
        FeatureKind::Categorical(categorical) => categorical.values.len() as u64 + 2,
    });
    let classes = match task {
        Task::Classification { classes, .. } => classes.len() as u64,
        Task::Regression => 1,
    };
    TableSizes {
        rows,
        features: features.len() as u64,
        width: width.sum(),
        classes,
        threads: threads as u64,
    }
}
