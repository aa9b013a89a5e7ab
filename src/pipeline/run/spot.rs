//! The last question to the model: some counterfactuals, as they stand in the files that are about to be
//! published, in other batches than before. Their decisions must be those that are written there.

use std::fs::File;
use std::path::Path;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, filter_record_batch, take_record_batch};
use arrow::datatypes::Float64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::super::model::{named_key, shown};
use super::Stages;
use super::execute::Done;
use crate::error::{Error, Result};
use crate::job::RepeatableSpec;
use crate::metrics::Status;
use crate::output::COUNTERFACTUALS;
use crate::predictor::{Outcome, Predictor, Task};
use crate::report::written_features;

/// Counterfactuals that are asked about again.
const ASKED: usize = 256;
/// In batches of so many; a number that batch sizes are seldom a multiple of.
const BATCH: usize = 37;
/// How far a regression's value may be from the one that is written, as a share of the greatest.
const TOLERANCE: f64 = 1e-4;

impl Stages<'_> {
    /// Asks the model again about some of the counterfactuals in a folder; gives what is odd, but allowed.
    ///
    /// # Errors
    /// When it fails, or decides otherwise and the job does not allow that.
    pub(super) fn spot_check(
        &self,
        folder: &Path,
        done: &Done,
        predictor: &dyn Predictor,
    ) -> Result<Option<String>> {
        if self.job.predictor.repeatable == RepeatableSpec::Off {
            return Ok(None);
        }
        let (mut left, mut asked, mut different) = (ASKED, 0, Vec::new());
        for file in done.files().filter(|file| file.name.starts_with(COUNTERFACTUALS)) {
            if left == 0 {
                break;
            }
            let Some(rows) = self.solved(&folder.join(&file.name), left)? else { continue };
            left -= rows.num_rows();
            asked += rows.num_rows();
            different.extend(self.ask_about(&rows, predictor)?);
        }
        let Some(first) = different.first() else { return Ok(None) };
        let problem = format!(
            "decides otherwise about {} of {asked} counterfactuals when it is asked again: {first}",
            different.len()
        );
        if self.job.predictor.repeatable == RepeatableSpec::Require {
            return Err(Error::predictor(shown(&self.job.predictor), problem).hint(
                "nothing is published; for a model that is meant to do so set `predictor.repeatable = \"warn\"`",
            ));
        }
        tracing::warn!("the model {problem}");
        Ok(Some(format!("the model {problem}")))
    }

    /// The first rows of a file that have a valid counterfactual; none where a column is a folder's name.
    fn solved(&self, path: &Path, most: usize) -> Result<Option<RecordBatch>> {
        let unreadable = |error: parquet::errors::ParquetError| {
            Error::output(path.display().to_string(), "cannot be read back").source(error)
        };
        let file = File::open(path).map_err(parquet::errors::ParquetError::from);
        let reader = file.and_then(ParquetRecordBatchReaderBuilder::try_new).map_err(unreadable)?;
        let reader = reader.with_batch_size(4 * ASKED).build().map_err(unreadable)?;
        let lost = |error| Error::internal("last check", "a column is lost").source(error);
        for batch in reader {
            let batch = batch.map_err(lost)?;
            let columns = (batch.column_by_name("status"), batch.column_by_name(self.answer()));
            let (Some(status), Some(answer)) = columns else { return Ok(None) };
            let complete = self.inputs.schema.names().all(|name| has(&batch, name));
            if !complete {
                return Ok(None);
            }
            let status = cast(status, &arrow::datatypes::DataType::Utf8).map_err(lost)?;
            let status = status.as_string::<i32>();
            let good = (0..batch.num_rows()).map(|row| {
                let solved = status.is_valid(row) && status.value(row) == Status::Solved.name();
                Some(solved && answer.is_valid(row))
            });
            let rows = filter_record_batch(&batch, &BooleanArray::from_iter(good)).map_err(lost)?;
            if rows.num_rows() > 0 {
                return Ok(Some(rows.slice(0, rows.num_rows().min(most))));
            }
        }
        Ok(None)
    }

    /// The column with the model's decision about a counterfactual.
    fn answer(&self) -> &'static str {
        if self.is_regression() { "cf_value" } else { "cf_class" }
    }

    /// What differs, in words.
    fn ask_about(&self, rows: &RecordBatch, predictor: &dyn Predictor) -> Result<Vec<String>> {
        let lost = |error| Error::internal("last check", "a column is lost").source(error);
        let features = written_features(rows, &self.inputs.predictor_columns().schema)?;
        let backwards: Vec<u32> = (0..rows.num_rows() as u32).rev().collect();
        let written = self.written(rows)?;
        let mut different = Vec::new();
        for indices in backwards.chunks(BATCH) {
            let batch =
                take_record_batch(&features, &UInt32Array::from(indices.to_vec())).map_err(lost)?;
            let scores = predictor.predict(&batch)?;
            let now: Vec<SpotDecision> = answers(&scores.outcome, predictor.task());
            for (index, now) in indices.iter().zip(now) {
                let row = *index as usize;
                if !written.1[row].agrees(&now, written.0) {
                    let key =
                        named_key(&rows.project(&self.key_indices(rows)).map_err(lost)?, row)?;
                    let before = written.1[row].text();
                    different
                        .push(format!("for {key} {before} is written, now it is {}", now.text()));
                }
            }
        }
        Ok(different)
    }

    fn key_indices(&self, rows: &RecordBatch) -> Vec<usize> {
        let index = |name: &String| rows.schema().index_of(name).ok();
        self.job.input.key.iter().filter_map(index).collect()
    }

    /// The scale of the decisions that are written, and these.
    fn written(&self, rows: &RecordBatch) -> Result<(f64, Vec<SpotDecision>)> {
        let lost = |error| Error::internal("last check", "a column is lost").source(error);
        let column = rows.column_by_name(self.answer());
        let column = column.ok_or_else(|| Error::internal("last check", "has no decisions"))?;
        if !self.is_regression() {
            let texts = cast(column, &arrow::datatypes::DataType::Utf8).map_err(lost)?;
            let texts = texts.as_string::<i32>().iter();
            return Ok((
                0.0,
                texts.map(|text| SpotDecision::Class(text.map(String::from))).collect(),
            ));
        }
        let values = cast(column, &arrow::datatypes::DataType::Float64).map_err(lost)?;
        let values = values.as_primitive::<Float64Type>().values().to_vec();
        let scale = values.iter().fold(f64::MIN_POSITIVE, |scale, value| scale.max(value.abs()));
        Ok((scale, values.into_iter().map(SpotDecision::Value).collect()))
    }
}

fn has(batch: &RecordBatch, feature: &str) -> bool {
    batch.column_by_name(&format!("cf_{feature}")).is_some()
}

/// A decision.
enum SpotDecision {
    Class(Option<String>),
    Value(f64),
}

impl SpotDecision {
    fn agrees(&self, other: &SpotDecision, scale: f64) -> bool {
        match (self, other) {
            (SpotDecision::Class(left), SpotDecision::Class(right)) => left == right,
            (SpotDecision::Value(left), SpotDecision::Value(right)) => {
                (left - right).abs() <= TOLERANCE * scale
            }
            _ => false,
        }
    }

    fn text(&self) -> String {
        match self {
            SpotDecision::Class(Some(class)) => format!("`{class}`"),
            SpotDecision::Value(value) if value.is_finite() => format!("`{value}`"),
            _ => "no answer".to_string(),
        }
    }
}

fn answers(outcome: &Outcome, task: &Task) -> Vec<SpotDecision> {
    match (outcome, task) {
        (Outcome::Classes { labels, .. }, Task::Classification { classes, .. }) => {
            let class = |label: &u32| SpotDecision::Class(classes.get(*label as usize).cloned());
            labels.iter().map(class).collect()
        }
        (Outcome::Values(values), _) => {
            values.iter().map(|value| SpotDecision::Value(*value)).collect()
        }
        (Outcome::Classes { labels, .. }, _) => {
            labels.iter().map(|_| SpotDecision::Class(None)).collect()
        }
    }
}
