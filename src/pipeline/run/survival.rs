//! Whether counterfactuals hold under other trainings of the model, told from the table as it was written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use rayon::prelude::*;

use super::super::model::{open_other, shown};
use super::Stages;
use crate::error::{Error, Result};
use crate::job::{PredictorJob, Target};
use crate::metrics::Status;
use crate::output::{COUNTERFACTUALS, StagedFile, counterfactual_schema};
use crate::predictor::{self, Outcome, Predictor, Task};
use crate::report::{
    Retrained, column, read, written_features, written_of_method, written_statuses,
};

/// Counts by target: counterfactuals asked about, and those that hold.
type SurvivalCounts = BTreeMap<String, (u64, u64)>;

impl Stages<'_> {
    /// Refuses models that cannot be asked in the place of the job's, before anything long starts.
    pub(super) fn check_retrained(&self, task: &Task) -> Result<()> {
        let listed = &self.job.report.retrained;
        let by_row = matches!(self.target, Target::Column { .. }) && self.is_regression();
        if by_row && !listed.is_empty() {
            let problem =
                "is given, but the value that `target.column` wants of a row is not in the table";
            return Err(Error::spec("report.retrained", problem)
                .hint("it goes with classes, and with a range of values for all rows"));
        }
        listed.iter().try_for_each(|model| self.open_retrained(model, task).map(drop))
    }

    fn open_retrained(&self, model: &PredictorJob, task: &Task) -> Result<Arc<dyn Predictor>> {
        open_other(model, "report.retrained", (&self.inputs, self.runtime.threads), task)
    }

    /// Asks each of the job's retrained models about all valid counterfactuals.
    pub(super) fn survival(
        &self,
        folder: &Path,
        files: &[StagedFile],
        task: &Task,
    ) -> Result<Vec<Retrained>> {
        if !self.reports_anew() {
            return Ok(Vec::new());
        }
        let tables: Vec<&StagedFile> =
            files.iter().filter(|file| file.name.starts_with(COUNTERFACTUALS)).collect();
        let mut found = Vec::new();
        for (index, model) in self.job.report.retrained.iter().enumerate() {
            self.runtime.check_signals()?;
            tracing::info!(model = shown(model), number = index + 1, "asking a retrained model");
            let opened = self.open_retrained(model, task)?;
            let of_file = |file: &&StagedFile| self.held_in(folder, file, opened.as_ref());
            let counted: Vec<SurvivalCounts> =
                tables.par_iter().map(of_file).collect::<Result<_>>()?;
            let mut targets = SurvivalCounts::new();
            for (target, (rows, held)) in counted.into_iter().flatten() {
                let sum = targets.entry(target).or_default();
                *sum = (sum.0 + rows, sum.1 + held);
            }
            let sha256 = predictor::fingerprint(model)?;
            found.push(Retrained { model: shown(model), sha256, targets });
        }
        Ok(found)
    }

    /// Valid counterfactuals of a file, and for how many of them a model predicts the target.
    fn held_in(
        &self,
        folder: &Path,
        file: &StagedFile,
        model: &dyn Predictor,
    ) -> Result<SurvivalCounts> {
        let columns = self.inputs.predictor_columns().schema;
        let table = counterfactual_schema(
            &self.inputs.key_fields(),
            &self.inputs.feature_fields(),
            self.is_regression(),
        );
        let mut counts = SurvivalCounts::new();
        for batch in read(folder, &file.name, &table)? {
            let batch = written_of_method(batch?, self.job.explain.published())?;
            let batch = solved(&batch)?;
            if batch.num_rows() == 0 {
                continue;
            }
            let scores = model.predict(&written_features(&batch, &columns)?)?;
            let targets = column(&batch, "target")?.as_string::<i32>();
            for (row, target) in targets.iter().enumerate() {
                let target = target.unwrap_or_default();
                let held = self.holds(&scores.outcome, (model.task(), row), target);
                let sum = counts.entry(target.to_string()).or_default();
                *sum = (sum.0 + 1, sum.1 + u64::from(held));
            }
        }
        Ok(counts)
    }

    /// Whether a model predicts the target for a row. A row that it fails on does not hold.
    fn holds(&self, outcome: &Outcome, (task, row): (&Task, usize), target: &str) -> bool {
        match (outcome, task, self.target) {
            (Outcome::Classes { labels, .. }, Task::Classification { classes, .. }, _) => {
                classes.get(labels[row] as usize).is_some_and(|class| class == target)
            }
            (Outcome::Values(values), _, Target::Range { low, high }) => {
                (*low..=*high).contains(&values[row])
            }
            _ => false,
        }
    }
}

/// The rows with a valid counterfactual that was needed.
fn solved(batch: &RecordBatch) -> Result<RecordBatch> {
    let statuses = written_statuses(batch)?;
    let valid = column(batch, "valid")?.as_boolean();
    let needed = statuses
        .iter()
        .zip(valid)
        .map(|(status, valid)| Some(*status != Status::AlreadyTarget && valid.unwrap_or(false)));
    filter_record_batch(batch, &BooleanArray::from_iter(needed))
        .map_err(|error| Error::internal("reports", "rows do not fit").source(error))
}
