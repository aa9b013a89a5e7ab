//! From a batch of feature columns to the model's input tensors, and through the model.

use std::borrow::Cow;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use ort::session::{RunOptions, SessionOutputs};
use ort::value::Outlet;

use super::columns::ColumnInputs;
use super::matrix::MatrixForm;
use super::pool::SessionScorer;
use crate::error::{BoxedError, Error, Result};
use crate::job::{OnnxInputs, OnnxJob};
use crate::predictor::{PredictorColumns, RowFailure};

/// How the features of a table become the inputs of a model.
#[derive(Debug)]
pub(super) enum FeatureInputs {
    /// One tensor per feature.
    Columns(ColumnInputs),
    /// One matrix of all features.
    Matrix(MatrixForm),
}

/// A model's name in messages, and its inputs or outputs.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    pub(super) outlets: &'a [Outlet],
}

/// Why tensors could not be made or scored.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    #[error(transparent)]
    Onnx(#[from] ort::Error),
}

impl Failed {
    /// The library's own error.
    pub(super) fn into_source(self) -> BoxedError {
        match self {
            Failed::Arrow(error) => error.into(),
            Failed::Onnx(error) => Box::new(error),
        }
    }
}

/// The declared shape of a tensor, -1 where it is free; empty if nothing is declared.
pub(super) fn shape_of(outlet: &Outlet) -> &[i64] {
    outlet.dtype().tensor_shape().map_or(&[], |shape| shape)
}

impl FeatureInputs {
    /// Matches the model's inputs with the features.
    ///
    /// # Errors
    /// When the two do not agree.
    pub(super) fn plan(
        model: Named<'_>,
        job: &OnnxJob,
        columns: &PredictorColumns,
    ) -> Result<FeatureInputs> {
        for outlet in model.outlets {
            check_rows(model.name, outlet)?;
        }
        Ok(match &job.inputs {
            OnnxInputs::Columns { rename } => {
                FeatureInputs::Columns(ColumnInputs::plan(model, rename, columns, &job.null_text)?)
            }
            encoding => {
                FeatureInputs::Matrix(MatrixForm::plan(model, encoding, columns, &job.null_text)?)
            }
        })
    }

    /// Runs a batch through the model. Also returns the rows that could not be told to it; their
    /// outputs mean nothing.
    pub(super) fn run<'s>(
        &self,
        scorer: &'s mut SessionScorer,
        batch: &RecordBatch,
        options: &'s RunOptions,
    ) -> Result<(SessionOutputs<'s>, Vec<RowFailure>), Failed> {
        match self {
            FeatureInputs::Matrix(matrix) => {
                let input = (Cow::from(&matrix.name), matrix.tensor(batch)?);
                Ok((scorer.session.run_with_options(vec![input], options)?, Vec::new()))
            }
            FeatureInputs::Columns(columns) => {
                let mut prepared = columns.prepare(batch)?;
                let tensors = columns.tensors(&mut prepared, &mut scorer.spread)?;
                let outputs = scorer.session.run_with_options(tensors, options)?;
                Ok((outputs, prepared.failures))
            }
        }
    }
}

/// A model that was exported for a fixed number of rows cannot score batches.
fn check_rows(model: &str, outlet: &Outlet) -> Result<()> {
    match shape_of(outlet).first() {
        Some(rows) if *rows >= 0 => {
            let problem = format!(
                "input `{}` takes exactly {rows} rows at a time, expected any number",
                outlet.name()
            );
            Err(Error::predictor(model, problem)
                .hint("export the model with a free first dimension"))
        }
        _ => Ok(()),
    }
}
