//! From the columns of a batch to what the features of a recognised model are given, and the same for single
//! changed values: a value in the type of the table's column first, then in that of the model's input.

use arrow::array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::super::columns::{ColumnInput, ColumnInputs, Element};
use super::super::convert::{self, Code, CodesByText};
use super::super::inputs::FeatureInputs;
use super::super::matrix::{BlockCells, MatrixForm, UNSEEN};
use super::engine::{ChangedValue, InputColumn};
use super::layout::{FeatureEncoding, FeatureSlots};
use super::program::Input;
use super::scalar;
use super::values::{ElementType, OTHER, TextCodes, Value};
use crate::feature::{Cell, FeatureSchema, NULL_CODE, from_texts};
use crate::job::Standardise;
use crate::predictor::{PredictorColumns, RowFailure};

/// The states of a text: the model's words, another text, and one that cannot be told to ONNX Runtime.
const BEYOND_WORDS: usize = 2;

/// One feature's column in the model's terms, with the rows that the model's input has no place for.
type EncodedColumn = (InputColumn, Vec<RowFailure>);

/// How a changed value enters the model.
#[derive(Debug, Clone)]
enum ChangeEncoding {
    /// By code of the category, the null last. None where the table's column cannot hold the category.
    Codes(Vec<Option<Result<ChangedValue, String>>>),
    /// Any number.
    Numbers,
    /// It cannot be told without a batch.
    Unknown,
}

/// What all features of a model are given.
#[derive(Debug)]
pub(super) struct FeatureSources {
    words: TextCodes,
    /// Per feature, the type of its column.
    types: Vec<DataType>,
    changes: Vec<ChangeEncoding>,
}

/// The inputs of a model as the program reads them.
pub(super) fn inputs(inputs: &FeatureInputs) -> Vec<Input> {
    match inputs {
        FeatureInputs::Columns(columns) => columns
            .inputs
            .iter()
            .zip(0..)
            .map(|(input, slot)| Input {
                name: input.name.clone(),
                kind: kind(input.element),
                dims: if input.nested { vec![1] } else { Vec::new() },
                slot,
            })
            .collect(),
        FeatureInputs::Matrix(matrix) => {
            let kind = if matrix.double { ElementType::Double } else { ElementType::Float };
            vec![Input { name: matrix.name.clone(), kind, dims: vec![matrix.width], slot: 0 }]
        }
    }
}

fn kind(element: Element) -> ElementType {
    match element {
        Element::Float => ElementType::Float,
        Element::Double => ElementType::Double,
        Element::Int64 => ElementType::Int64,
        Element::Int32 => ElementType::Int32,
        Element::Bool => ElementType::Bool,
        Element::Text => ElementType::Text,
    }
}

/// The features of a model, given the words that stand in it.
pub(super) fn features(inputs: &FeatureInputs, words: &TextCodes) -> Vec<FeatureSlots> {
    match inputs {
        FeatureInputs::Columns(columns) => {
            let texts = || {
                let words = (0..words.len() as u32).chain([OTHER; BEYOND_WORDS]);
                FeatureEncoding::States(words.map(|word| vec![Value::Text(word)]).collect())
            };
            let encoding = |input: &ColumnInput| match input.element {
                Element::Text => texts(),
                _ => FeatureEncoding::Number,
            };
            let inputs = columns.inputs.iter().zip(0..);
            inputs
                .map(|(input, slot)| FeatureSlots {
                    slots: slot..slot + 1,
                    encoding: encoding(input),
                })
                .collect()
        }
        FeatureInputs::Matrix(matrix) => {
            let mut blocks: Vec<_> = matrix.blocks.iter().collect();
            blocks.sort_by_key(|block| block.column);
            blocks.iter().map(|block| feature(block.at, &block.cells, matrix.double)).collect()
        }
    }
}

fn feature(at: usize, cells: &BlockCells, double: bool) -> FeatureSlots {
    let real = |number: f64| real(number, double);
    let (width, encoding) = match cells {
        BlockCells::Number | BlockCells::Standard(_) => (1, FeatureEncoding::Number),
        BlockCells::Code(codes) => {
            let codes = (0..codes.len()).map(|code| code as f64).chain([f64::NAN, UNSEEN]);
            (1, FeatureEncoding::States(codes.map(|code| vec![real(code)]).collect()))
        }
        BlockCells::OneHot(codes) => {
            let width = codes.len();
            let state = |state: usize| {
                (0..width).map(|at| real(f64::from(u8::from(at == state)))).collect::<Vec<_>>()
            };
            (width, FeatureEncoding::States((0..width + 2).map(state).collect()))
        }
    };
    FeatureSlots { slots: at as u32..(at + width) as u32, encoding }
}

fn real(number: f64, double: bool) -> Value {
    if double { Value::Double(number) } else { Value::Float(number as f32) }
}

impl FeatureSources {
    /// Prepares the changes that the features may have.
    pub(super) fn new(
        inputs: &FeatureInputs,
        words: TextCodes,
        columns: &PredictorColumns,
    ) -> FeatureSources {
        let types: Vec<DataType> =
            columns.schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let mut sources = FeatureSources { words, types, changes: Vec::new() };
        let features = &columns.features;
        sources.changes = (0..features.features.len())
            .map(|at| sources.changes_of(inputs, features, at))
            .collect();
        sources
    }

    fn changes_of(
        &self,
        inputs: &FeatureInputs,
        features: &FeatureSchema,
        at: usize,
    ) -> ChangeEncoding {
        let data_type = &self.types[at];
        if let Some(categorical) = features.features[at].categorical() {
            let texts = categorical.values.iter().map(|text| Some(text.as_str())).chain([None]);
            let table = from_texts(texts, data_type).ok();
            let converted =
                table.and_then(|table| Some((self.column(inputs, at, &table).ok()?, table)));
            return converted.map_or(ChangeEncoding::Unknown, |((column, failures), table)| {
                let change = |row: usize| {
                    let misfit = table.is_null(row) && row + 1 < table.len();
                    let failed = failures.iter().find(|failure| failure.row == row);
                    (!misfit).then(|| match failed {
                        Some(failure) => Err(failure.detail.clone()),
                        None => Ok(column.change(row)),
                    })
                };
                ChangeEncoding::Codes((0..table.len()).map(change).collect())
            });
        }
        let text = match inputs {
            FeatureInputs::Columns(columns) => columns.inputs[at].element == Element::Text,
            FeatureInputs::Matrix(_) => false,
        };
        if text || !scalar::is_known(data_type) {
            ChangeEncoding::Unknown
        } else {
            ChangeEncoding::Numbers
        }
    }

    /// What the codes of a categorical feature are to the model, the null last, and nothing of a numeric one; none
    /// where changes of the feature cannot be told.
    pub(super) fn states(&self, feature: usize) -> Option<Option<Vec<Option<ChangedValue>>>> {
        match &self.changes[feature] {
            ChangeEncoding::Codes(codes) => {
                let converted = |code: &Option<Result<ChangedValue, String>>| {
                    code.as_ref().and_then(|change| change.as_ref().ok().copied())
                };
                Some(Some(codes.iter().map(converted).collect()))
            }
            ChangeEncoding::Numbers => Some(None),
            ChangeEncoding::Unknown => None,
        }
    }

    /// Whether changes of all features can be told without a batch, given the originals.
    pub(super) fn can_change(&self, originals: &RecordBatch) -> bool {
        let known = self.changes.iter().all(|changes| !matches!(changes, ChangeEncoding::Unknown));
        let columns = originals.columns().iter().zip(&self.changes);
        let exact = |(column, changes): (&ArrayRef, &ChangeEncoding)| {
            !matches!(changes, ChangeEncoding::Numbers) || scalar::is_exact(column)
        };
        known && columns.into_iter().all(exact)
    }

    /// The columns of a batch in the model's terms.
    pub(super) fn columns(
        &self,
        inputs: &FeatureInputs,
        batch: &RecordBatch,
    ) -> Result<(Vec<InputColumn>, Vec<Vec<RowFailure>>), ArrowError> {
        let converted = batch.columns().iter().enumerate();
        let converted = converted.map(|(at, column)| self.column(inputs, at, column));
        Ok(converted.collect::<Result<Vec<EncodedColumn>, _>>()?.into_iter().unzip())
    }

    fn column(
        &self,
        inputs: &FeatureInputs,
        at: usize,
        column: &ArrayRef,
    ) -> Result<EncodedColumn, ArrowError> {
        match inputs {
            FeatureInputs::Columns(columns) => self.single(columns, at, column),
            FeatureInputs::Matrix(matrix) => Ok((block(matrix, at, column)?, Vec::new())),
        }
    }

    fn single(
        &self,
        columns: &ColumnInputs,
        at: usize,
        column: &ArrayRef,
    ) -> Result<EncodedColumn, ArrowError> {
        let input = &columns.inputs[at];
        if input.element == Element::Text {
            let texts = convert::textual(column)?;
            let texts = convert::texts(&texts, &columns.null_text);
            return Ok(self.texts(input, &texts));
        }
        let (array, gaps) = input.prepare(column)?;
        let failure = |row| RowFailure { row, detail: input.no_value_detail() };
        Ok((
            InputColumn::Numbers(values(&array, input.element)),
            gaps.into_iter().map(failure).collect(),
        ))
    }

    fn texts(&self, input: &ColumnInput, texts: &[&str]) -> EncodedColumn {
        let other = self.words.len() as u32;
        let mut failures = Vec::new();
        let state = |(row, text): (usize, &&str)| match self.words.find(text) {
            OTHER if text.contains('\0') => {
                failures.push(RowFailure { row, detail: input.zero_byte_detail() });
                other + 1
            }
            OTHER => other,
            word => word,
        };
        (InputColumn::States(texts.iter().enumerate().map(state).collect()), failures)
    }

    /// A changed value in the model's terms: none where the table's column cannot hold it, and the reason where
    /// the model's input cannot.
    pub(super) fn change(
        &self,
        inputs: &FeatureInputs,
        feature: usize,
        cell: Cell,
    ) -> Option<Result<ChangedValue, &str>> {
        match (&self.changes[feature], cell) {
            (ChangeEncoding::Codes(codes), Cell::Code(code)) => {
                let at = if code == NULL_CODE { codes.len() - 1 } else { code as usize };
                let change = codes.get(at)?.as_ref()?;
                Some(change.as_ref().map(|change| *change).map_err(String::as_str))
            }
            (ChangeEncoding::Numbers, Cell::Number(number)) => {
                Some(self.number(inputs, feature, number).ok_or("").map(ChangedValue::Number))
            }
            _ => None,
        }
    }

    /// A number in the type of a feature's input; none for a null in an input that has no place for it.
    pub(super) fn number(
        &self,
        inputs: &FeatureInputs,
        feature: usize,
        number: f64,
    ) -> Option<Value> {
        let stored = scalar::stored(number, &self.types[feature]);
        match inputs {
            FeatureInputs::Columns(columns) => {
                scalar::converted(stored, kind(columns.inputs[feature].element))
            }
            FeatureInputs::Matrix(matrix) => {
                let block = matrix.blocks.iter().find(|block| block.column == feature)?;
                let kind = if matrix.double { ElementType::Double } else { ElementType::Float };
                match block.cells {
                    BlockCells::Standard(Standardise { mean, std }) => {
                        let number = scalar::converted(stored, ElementType::Double)?.real();
                        Some(real((number - mean) / std, matrix.double))
                    }
                    _ => scalar::converted(stored, kind),
                }
            }
        }
    }

    /// What is said of a change that the feature's input has no place for.
    pub(super) fn refusal(inputs: &FeatureInputs, feature: usize) -> String {
        match inputs {
            FeatureInputs::Columns(columns) => columns.inputs[feature].no_value_detail(),
            FeatureInputs::Matrix(_) => String::new(),
        }
    }
}

impl InputColumn {
    /// A row's value.
    pub(super) fn change(&self, row: usize) -> ChangedValue {
        match self {
            InputColumn::States(states) => ChangedValue::State(states[row]),
            InputColumn::Numbers(numbers) => ChangedValue::Number(numbers[row]),
        }
    }
}

/// A prepared column as values.
fn values(array: &ArrayRef, element: Element) -> Vec<Value> {
    macro_rules! all {
        ($type:ty, $value:expr) => {
            array.as_primitive::<$type>().values().iter().copied().map($value).collect()
        };
    }
    match element {
        Element::Float => all!(Float32Type, Value::Float),
        Element::Double => all!(Float64Type, Value::Double),
        Element::Int64 => all!(Int64Type, Value::Int),
        Element::Int32 => all!(Int32Type, |number| Value::Int(number.into())),
        Element::Bool | Element::Text => {
            array.as_boolean().values().iter().map(Value::Bool).collect()
        }
    }
}

/// What a feature puts into a matrix.
fn block(matrix: &MatrixForm, at: usize, column: &ArrayRef) -> Result<InputColumn, ArrowError> {
    let Some(block) = matrix.blocks.iter().find(|block| block.column == at) else {
        return Err(ArrowError::InvalidArgumentError("a feature fills no cell".to_string()));
    };
    Ok(match &block.cells {
        BlockCells::Number if matrix.double => {
            let numbers = convert::reals::<f64>(column)?;
            InputColumn::Numbers(numbers.values().iter().copied().map(Value::Double).collect())
        }
        BlockCells::Number => {
            let numbers = convert::reals::<f32>(column)?;
            InputColumn::Numbers(numbers.values().iter().copied().map(Value::Float).collect())
        }
        BlockCells::Standard(Standardise { mean, std }) => {
            let numbers = convert::reals::<f64>(column)?;
            let standard = numbers.values().iter().map(|number| (number - mean) / std);
            InputColumn::Numbers(standard.map(|number| real(number, matrix.double)).collect())
        }
        BlockCells::Code(codes) | BlockCells::OneHot(codes) => {
            InputColumn::States(states(codes, column)?)
        }
    })
}

/// The states of categories: their codes, then the null's, then that of unseen ones.
fn states(codes: &CodesByText, column: &ArrayRef) -> Result<Vec<u32>, ArrowError> {
    let unknown = codes.len() as u32;
    let state = |code: Code| match code {
        Code::Known(code) => code,
        Code::Null => unknown,
        Code::Unseen => unknown + 1,
    };
    Ok(codes.of(column)?.into_iter().map(state).collect())
}
