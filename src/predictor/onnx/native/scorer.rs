//! A recognised model between record batches and answers.

use std::sync::OnceLock;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use parking_lot::Mutex;

use super::super::graph::Graph;
use super::super::inputs::FeatureInputs;
use super::super::labels::Labels;
use super::super::outputs::{Given, Outputs};
use super::engine::{
    ChangedValue, Encoded, EngineScores, InputColumn, NativeEngine, NativeScratch, RowVariant,
};
use super::machine::{Machine, TypedModel};
use super::program::Program;
use super::responses::Whole;
use super::sources::{self, FeatureSources};
use super::values::{TextCodes, Value};
use crate::predictor::{PredictorColumns, RowFailure};

/// A model that is scored here.
#[derive(Debug)]
pub(in super::super) struct Native {
    pub(super) engine: NativeEngine,
    pub(super) sources: FeatureSources,
    /// Memory of callers that are done.
    scratch: Mutex<Vec<NativeScratch>>,
    /// The trees in the terms of the table's features, made when first asked for; none where that cannot be.
    whole: OnceLock<Option<Whole>>,
}

/// Why rows cannot be scored here.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Refused {
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    #[error("an encoder of the model does not know the category of a row")]
    Category,
}

/// Rows in the model's terms, and those that cannot be told to it.
#[derive(Debug)]
pub(super) struct EncodedRows {
    pub(super) encoded: Encoded,
    /// Per feature.
    pub(super) failures: Vec<Vec<RowFailure>>,
}

impl Native {
    /// Recognises a model; none if it is to be left to ONNX Runtime.
    pub(in super::super) fn recognise(
        graph: &Graph<'_>,
        inputs: &FeatureInputs,
        outputs: &Outputs,
        columns: &PredictorColumns,
    ) -> Option<Native> {
        let (scores, label) = outputs.names();
        let output_names: Vec<&str> = scores.into_iter().chain(label).collect();
        let program = Program::read(graph, &sources::inputs(inputs), &output_names)?;
        let features = sources::features(inputs, &program.words);
        let sources = FeatureSources::new(inputs, program.words.clone(), columns);
        let engine = NativeEngine::new(program, features, scores, label)?;
        Some(Native { engine, sources, scratch: Mutex::default(), whole: OnceLock::new() })
    }

    /// The answers for a batch, and the rows that cannot be told to the model.
    pub(in super::super) fn score(
        &self,
        inputs: &FeatureInputs,
        batch: &RecordBatch,
    ) -> Result<(Answered<'_>, Vec<RowFailure>), Refused> {
        let encoded_rows = self.encode(inputs, batch)?;
        self.check(encoded_rows.encoded.columns.iter().enumerate())?;
        let questions = (0..batch.num_rows()).map(|row| (row, &[][..]));
        let answers = self.answer(&encoded_rows.encoded, questions);
        Ok((answers, encoded_rows.failures.into_iter().flatten().collect()))
    }

    /// A batch in the model's terms.
    pub(super) fn encode(
        &self,
        inputs: &FeatureInputs,
        batch: &RecordBatch,
    ) -> Result<EncodedRows, Refused> {
        let (columns, failures) = self.sources.columns(inputs, batch)?;
        Ok(EncodedRows { encoded: self.engine.encode(columns, batch.num_rows()), failures })
    }

    /// Answers questions about encoded rows.
    pub(super) fn answer<'q>(
        &self,
        encoded: &Encoded,
        questions: impl Iterator<Item = RowVariant<'q>> + Clone,
    ) -> Answered<'_> {
        let spare = || self.scratch.lock();
        let mut scratch = spare().pop().unwrap_or_default();
        let answers = self.engine.answer(encoded, questions, &mut scratch);
        spare().push(scratch);
        Answered { answers, words: &self.engine.program.words }
    }

    /// The answers from what the only part says of some rows.
    pub(super) fn concluded(&self, scores: Vec<f64>, labels: Vec<u32>) -> Answered<'_> {
        let answers = self.engine.conclude((scores, labels), &mut NativeScratch::default());
        Answered { answers, words: &self.engine.program.words }
    }

    /// The trees in the terms of the table's features.
    pub(super) fn whole(&self, inputs: &FeatureInputs, features: usize) -> Option<&Whole> {
        self.whole.get_or_init(|| Whole::new(self, inputs, features)).as_ref()
    }

    /// Refuses what ONNX Runtime refuses: the whole batch, if an encoder does not know a category.
    fn check<'c>(
        &self,
        columns: impl Iterator<Item = (usize, &'c InputColumn)>,
    ) -> Result<(), Refused> {
        for (feature, column) in columns {
            if let (InputColumn::States(states), true) = (column, self.is_strict(feature)) {
                for state in states {
                    self.check_change((feature, ChangedValue::State(*state)))?;
                }
            }
        }
        Ok(())
    }

    fn is_strict(&self, feature: usize) -> bool {
        self.engine.refused[feature].contains(&true)
    }

    /// The same for one changed value.
    pub(super) fn check_change(
        &self,
        (feature, change): (usize, ChangedValue),
    ) -> Result<(), Refused> {
        let refused = &self.engine.refused[feature];
        match change {
            ChangedValue::State(state) if refused.get(state as usize) == Some(&true) => {
                Err(Refused::Category)
            }
            _ => Ok(()),
        }
    }

    /// How far its scores may be from ONNX Runtime's: nought where both do the same sums in the same order.
    pub(in super::super) fn tolerance(&self) -> f64 {
        let mut submodels = self.engine.program.submodels.iter();
        let exact = submodels.all(|submodel| match &submodel.machine {
            Machine::Single(TypedModel::Trees(forest)) => forest.is_plain(),
            Machine::Double(TypedModel::Trees(forest)) => forest.is_plain(),
            _ => false,
        });
        if exact { 0.0 } else { 1e-6 }
    }
}

/// What a recognised model gave for some rows.
#[derive(Debug)]
pub(in super::super) struct Answered<'n> {
    answers: EngineScores,
    words: &'n TextCodes,
}

impl Given for Answered<'_> {
    fn numbers(&self, _output: &str) -> Option<Result<Vec<f64>, ort::Error>> {
        Some(Ok(self.answers.scores.clone()))
    }

    fn classes(
        &self,
        _output: &str,
        labels: &Labels,
    ) -> Result<Result<Vec<u32>, String>, ort::Error> {
        let mut known: Vec<(Value, u32)> = Vec::new();
        let mut class = |label: &Value| {
            if let Some((_, class)) = known.iter().find(|(value, _)| value == label) {
                return Ok(*class);
            }
            let class = match label {
                Value::Int(number) => labels.of_integer(*number),
                Value::Bool(flag) => labels.of_flag(*flag),
                Value::Text(word) => labels.of_text(self.words.text(*word).unwrap_or_default()),
                other => Err(other.real().to_string()),
            }?;
            known.push((*label, class));
            Ok(class)
        };
        Ok(self.answers.labels.iter().map(&mut class).collect())
    }
}
