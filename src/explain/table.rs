//! Counterfactuals as rows of the counterfactual table.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    StringBuilder,
};

use super::changes::changes;
use super::explained::{ExplainedRows, Measures};
use super::fit::range_name;
use super::valid_rows::ValidRows;
use super::{Explainer, project, take};
use crate::error::{Error, Result};
use crate::feature::key_hashes;
use crate::metrics::Source;
use crate::predictor::{Outcome, Scores, Task};
use crate::target::Targets;

impl Explainer {
    /// The rows of the counterfactual table, in the order of the requests.
    pub(super) fn table(
        &self,
        valid_rows: &ValidRows,
        explained: &ExplainedRows,
    ) -> Result<RecordBatch> {
        let key = project(&valid_rows.all, &self.columns.key)?;
        let mut columns = take(&key, &explained.rows)?.columns().to_vec();
        let method = self.refiner.method().name();
        columns.push(Arc::new(StringArray::from(vec![method; explained.rows.len()])));
        columns.push(Arc::new(Int32Array::from(explained.samples.clone())));
        columns.push(self.target_names(&explained.targets));
        columns.extend(self.before_and_after(explained));
        let findings = explained.findings.iter();
        columns.push(nan_as_null(findings.clone().map(|finding| finding.margin)));
        let status = findings.clone().map(|finding| finding.status.name());
        columns.push(Arc::new(StringArray::from_iter_values(status)));
        let source = findings.clone().map(|finding| finding.source.map(Source::name));
        columns.push(Arc::new(StringArray::from_iter(source)));
        columns
            .push(Arc::new(StringArray::from_iter(explained.rules.iter().map(Option::as_deref))));
        let valid: Vec<bool> = findings.clone().map(|finding| finding.valid).collect();
        columns.push(Arc::new(BooleanArray::from(valid)));
        let queries = findings.clone().map(|finding| finding.queries as i32);
        columns.push(Arc::new(Int32Array::from_iter_values(queries)));
        let certified: Vec<bool> = findings.map(|finding| finding.certified).collect();
        columns.push(Arc::new(BooleanArray::from(certified)));
        let findings = explained.findings.iter();
        let robust = findings.clone().map(|finding| finding.robust.map(|held| held as i32));
        columns.push(Arc::new(Int32Array::from_iter(robust)));
        columns.push(Arc::new(Float64Array::from_iter(findings.map(|one| one.robustness_cost))));
        let Measures { distances, costs, plausibility } = &explained.measures;
        columns.push(nan_as_null(costs.iter().copied()));
        columns.push(Arc::new(Float64Array::from(distances.l0.clone())));
        columns.push(Arc::new(Float64Array::from(distances.l1.clone())));
        let changed = distances.changed.iter().map(|changed| *changed as i32);
        columns.push(Arc::new(Int32Array::from_iter_values(changed)));
        columns.push(nan_as_null(plausibility.iter().copied()));
        columns.push(self.row_hashes(valid_rows, &explained.rows)?);
        let batches = (&explained.before, &explained.after);
        let ExplainedRows { originals, counterfactuals, .. } = explained;
        let changed = self.constraints.without_derived(counterfactuals, originals);
        columns.push(changes(originals, &changed, batches)?);
        columns.extend(explained.after.columns().iter().cloned());
        RecordBatch::try_new(Arc::clone(&self.counterfactuals), columns)
            .map_err(|error| Error::internal("counterfactuals", "columns do not fit").source(error))
    }

    /// Hashes of what decides about rows beside the model: features as they were read, bounds, the target value.
    fn row_hashes(&self, valid_rows: &ValidRows, rows: &[u32]) -> Result<ArrayRef> {
        let bounds = self.columns.constraints.iter();
        let bounds = bounds.filter_map(|of| valid_rows.all.schema().index_of(&of.column).ok());
        let mut read = self.columns.features.clone();
        read.extend(bounds.chain(self.columns.target));
        let hashes = key_hashes(&project(&valid_rows.all, &read)?, 0)?;
        let hashes = rows.iter().map(|row| hashes[*row as usize] as u64 as i64);
        Ok(Arc::new(Int64Array::from_iter_values(hashes)))
    }

    fn target_names(&self, targets: &Targets) -> ArrayRef {
        match targets {
            Targets::Ranges { low, high } => {
                let names = low.iter().zip(high).map(|(low, high)| range_name(*low, *high));
                Arc::new(StringArray::from_iter_values(names))
            }
            Targets::Classes { classes, .. } | Targets::Distributions { classes, .. } => {
                self.class_names(classes)
            }
        }
    }

    /// What the model says of the originals and of the counterfactuals: the decision, and the target's probability.
    fn before_and_after(&self, explained: &ExplainedRows) -> Vec<ArrayRef> {
        let columns = |scores: &Scores| -> [ArrayRef; 2] {
            match &scores.outcome {
                Outcome::Values(values) => {
                    [nan_as_null(values.iter().copied()), nulls(values.len())]
                }
                Outcome::Classes { labels, probabilities } => {
                    let targets = explained.targets.classes();
                    let known = probabilities.as_ref().zip(targets);
                    let scores = known.map(|(all, targets)| probabilities_of(all, targets));
                    [self.class_names(labels), scores.unwrap_or_else(|| nulls(labels.len()))]
                }
            }
        };
        [columns(&explained.decided), columns(&explained.scores)].concat()
    }

    /// Names of classes; null where the model gave none.
    fn class_names(&self, labels: &[u32]) -> ArrayRef {
        let Task::Classification { classes, .. } = self.predictor.task() else {
            return Arc::new(StringArray::from(vec![None::<&str>; labels.len()]));
        };
        let mut names = StringBuilder::with_capacity(labels.len(), labels.len() * 8);
        for label in labels {
            names.append_option(classes.get(*label as usize));
        }
        Arc::new(names.finish())
    }
}

/// Each row's probability of a class, out of those of all classes.
fn probabilities_of(all: &[f64], classes: &[u32]) -> ArrayRef {
    let width = all.len() / classes.len().max(1);
    let one = |(row, class): (usize, &u32)| all[row * width + *class as usize];
    nan_as_null(classes.iter().enumerate().map(one))
}

fn nulls(rows: usize) -> ArrayRef {
    Arc::new(Float64Array::from(vec![None; rows]))
}

/// Numbers, with null for NaN.
fn nan_as_null(values: impl Iterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter(values.map(|value| (!value.is_nan()).then_some(value))))
}
