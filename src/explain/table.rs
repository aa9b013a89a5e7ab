//! Answers as rows of the counterfactual table.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    StringBuilder,
};

use super::admit::Usable;
use super::ask::Answers;
use super::changes::changes;
use super::fit::range_name;
use super::{Explainer, project, take};
use crate::error::{Error, Result};
use crate::feature::key_hashes;
use crate::metrics::Source;
use crate::predictor::{Outcome, Scores, Task};
use crate::target::Wishes;

impl Explainer {
    /// The rows of the counterfactual table, in the order of the answers.
    pub(super) fn table(&self, usable: &Usable, answers: &Answers) -> Result<RecordBatch> {
        let key = project(&usable.all, &self.columns.key)?;
        let mut columns = take(&key, &answers.rows)?.columns().to_vec();
        columns.push(Arc::new(Int32Array::from(answers.samples.clone())));
        columns.push(self.wanted_names(&answers.wishes));
        columns.extend(self.before_and_after(answers));
        columns.push(known_numbers(&answers.margins));
        let status = answers.status.iter().map(|status| status.name());
        columns.push(Arc::new(StringArray::from_iter_values(status)));
        let source = answers.source.iter().map(|source| source.map(Source::name));
        columns.push(Arc::new(StringArray::from_iter(source)));
        columns.push(Arc::new(BooleanArray::from(answers.valid.clone())));
        let queries = answers.queries.iter().map(|queries| *queries as i32);
        columns.push(Arc::new(Int32Array::from_iter_values(queries)));
        columns.push(Arc::new(BooleanArray::from(answers.certified.clone())));
        columns.push(known_numbers(&answers.costs));
        let found = &answers.distances;
        columns.push(Arc::new(Float64Array::from(found.l0.clone())));
        columns.push(Arc::new(Float64Array::from(found.l1.clone())));
        let changed = found.changed.iter().map(|changed| *changed as i32);
        columns.push(Arc::new(Int32Array::from_iter_values(changed)));
        columns.push(known_numbers(&answers.plausibility));
        columns.push(self.row_hashes(usable, &answers.rows)?);
        let batches = (&answers.before, &answers.after);
        let Answers { originals, counterfactuals, .. } = answers;
        let changed = self.constraints.without_derived(counterfactuals, originals);
        columns.push(changes(originals, &changed, batches)?);
        columns.extend(answers.after.columns().iter().cloned());
        RecordBatch::try_new(Arc::clone(&self.counterfactuals), columns)
            .map_err(|error| Error::internal("counterfactuals", "columns do not fit").source(error))
    }

    /// Hashes of what decides about rows beside the model: features as they were read, bounds, the wanted value.
    fn row_hashes(&self, usable: &Usable, rows: &[u32]) -> Result<ArrayRef> {
        let bounds = self.columns.constraints.iter();
        let bounds = bounds.filter_map(|of| usable.all.schema().index_of(&of.column).ok());
        let mut read = self.columns.features.clone();
        read.extend(bounds.chain(self.columns.target));
        let hashes = key_hashes(&project(&usable.all, &read)?, 0)?;
        let hashes = rows.iter().map(|row| hashes[*row as usize] as u64 as i64);
        Ok(Arc::new(Int64Array::from_iter_values(hashes)))
    }

    fn wanted_names(&self, wishes: &Wishes) -> ArrayRef {
        match wishes {
            Wishes::Ranges { low, high } => {
                let names = low.iter().zip(high).map(|(low, high)| range_name(*low, *high));
                Arc::new(StringArray::from_iter_values(names))
            }
            Wishes::Classes { classes, .. } | Wishes::Distributions { classes, .. } => {
                self.class_names(classes)
            }
        }
    }

    /// What the model says of the originals and of the counterfactuals: the decision, and the target's probability.
    fn before_and_after(&self, answers: &Answers) -> Vec<ArrayRef> {
        let columns = |scores: &Scores| -> [ArrayRef; 2] {
            match &scores.outcome {
                Outcome::Values(values) => [known_numbers(values), nulls(values.len())],
                Outcome::Classes { labels, probabilities } => {
                    let wanted = answers.wishes.classes();
                    let known = probabilities.as_ref().zip(wanted);
                    let scores = known.map(|(all, wanted)| probabilities_of(all, wanted));
                    [self.class_names(labels), scores.unwrap_or_else(|| nulls(labels.len()))]
                }
            }
        };
        [columns(&answers.decided), columns(&answers.scores)].concat()
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
    known_numbers(&classes.iter().enumerate().map(one).collect::<Vec<_>>())
}

fn nulls(rows: usize) -> ArrayRef {
    Arc::new(Float64Array::from(vec![None; rows]))
}

/// Numbers, with null for NaN.
fn known_numbers(values: &[f64]) -> ArrayRef {
    let known = values.iter().map(|value| (!value.is_nan()).then_some(*value));
    Arc::new(Float64Array::from_iter(known))
}
