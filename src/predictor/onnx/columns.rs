//! One input tensor per feature, of the type that the model declares.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::types::{Int32Type, Int64Type};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use ort::session::SessionInputValue;
use ort::value::{Outlet, Tensor, TensorElementType, TensorRef};

use super::inputs::{Failed, Named, shape_of};
use super::names::{self, Pairing};
use super::spread::TextTensors;
use super::{convert, said};
use crate::error::{Error, Fault, Kind, Result};
use crate::predictor::{PredictorColumns, RowFailure};

/// How the features of a table become the inputs of a model.
#[derive(Debug)]
pub(super) struct ColumnInputs {
    /// One per feature, in their order.
    pub(super) inputs: Vec<ColumnInput>,
    pub(super) null_text: String,
}

/// How a feature becomes an input.
#[derive(Debug)]
pub(super) struct ColumnInput {
    /// Position in the batch.
    pub(super) column: usize,
    /// The input's name in the model.
    pub(super) name: String,
    pub(super) element: Element,
    /// Whether the tensor is [rows, 1], not [rows].
    pub(super) nested: bool,
}

/// Element types that a column can become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Float,
    Double,
    Int64,
    Int32,
    Bool,
    Text,
}

impl Element {
    fn new(element: TensorElementType) -> Option<Element> {
        Some(match element {
            TensorElementType::Float32 => Element::Float,
            TensorElementType::Float64 => Element::Double,
            TensorElementType::Int64 => Element::Int64,
            TensorElementType::Int32 => Element::Int32,
            TensorElementType::Bool => Element::Bool,
            TensorElementType::String => Element::Text,
            _ => return None,
        })
    }

    /// The name that ONNX has for it.
    fn name(self) -> &'static str {
        match self {
            Element::Float => "float",
            Element::Double => "double",
            Element::Int64 => "int64",
            Element::Int32 => "int32",
            Element::Bool => "bool",
            Element::Text => "string",
        }
    }

    /// Whether a column of that type can become this without loss of meaning.
    fn takes(self, column: &DataType) -> bool {
        match self {
            Element::Float | Element::Double => convert::has_numbers(column),
            Element::Int64 | Element::Int32 => convert::has_integers(column),
            Element::Bool => {
                let values = convert::value_type(column);
                matches!(values, DataType::Boolean | DataType::Null)
            }
            Element::Text => convert::has_text(column),
        }
    }
}

/// What is matched when a model is opened.
struct Matching<'a> {
    model: &'a str,
    inputs: &'a [Outlet],
    rename: &'a BTreeMap<String, String>,
    columns: &'a PredictorColumns,
}

impl ColumnInputs {
    /// Matches the model's inputs with the features.
    ///
    /// # Errors
    /// Every input without a feature, feature without an input, and pair whose types do not fit.
    pub(super) fn plan(
        model: Named<'_>,
        rename: &BTreeMap<String, String>,
        columns: &PredictorColumns,
        null_text: &str,
    ) -> Result<ColumnInputs> {
        let Pairing { rename, by_form } = names::pair(model, rename, columns)?;
        say_pairs(model.name, &by_form);
        let matching =
            Matching { model: model.name, inputs: model.outlets, rename: &rename, columns };
        let (mut inputs, mut faults) = (Vec::new(), Vec::new());
        for (column, feature) in columns.features.names().enumerate() {
            match matching.input(column, feature) {
                Ok(input) => inputs.push(input),
                Err(fault) => faults.push(fault),
            }
        }
        Error::from_faults(Kind::Predictor, faults)?;
        Ok(ColumnInputs { inputs, null_text: null_text.to_string() })
    }

    /// The columns in the types of the tensors, without nulls unless they are texts.
    pub(super) fn prepare(&self, batch: &RecordBatch) -> Result<PreparedBatch, ArrowError> {
        let mut failures = Vec::new();
        let arrays = self.inputs.iter().map(|input| {
            let (array, without_value) = input.prepare(batch.column(input.column))?;
            failures.extend(without_value.into_iter().map(|row| input.no_value(row)));
            Ok(array)
        });
        let arrays = arrays.collect::<Result<_, ArrowError>>()?;
        Ok(PreparedBatch { arrays, failures })
    }

    /// The tensors of a prepared batch, by name. Rows that cannot be told to the model are added to the
    /// failures.
    pub(super) fn tensors<'a>(
        &'a self,
        prepared: &'a mut PreparedBatch,
        spread: &mut TextTensors,
    ) -> Result<Vec<(Cow<'a, str>, SessionInputValue<'a>)>, Failed> {
        let PreparedBatch { arrays, failures } = prepared;
        let pairs = self.inputs.iter().zip(&*arrays);
        pairs
            .map(|(input, array)| {
                let tensor = match input.element {
                    Element::Text => {
                        let texts = convert::texts(array, &self.null_text);
                        input.text_tensor(texts, spread, failures)?
                    }
                    _ => input.tensor(array)?,
                };
                Ok((Cow::from(&input.name), tensor))
            })
            .collect()
    }
}

/// A batch in the types of the model's inputs.
pub(super) struct PreparedBatch {
    pub(super) arrays: Vec<ArrayRef>,
    /// Rows with a value that the model's input has no place for.
    pub(super) failures: Vec<RowFailure>,
}

/// Says, once for each process, which inputs were matched without the job's word.
fn say_pairs(model: &str, pairs: &[(String, String)]) {
    if pairs.is_empty() {
        return;
    }
    let pairs: Vec<String> =
        pairs.iter().map(|(feature, input)| format!("`{feature}` feeds `{input}`")).collect();
    let text = format!(
        "{model}: matched inputs with features whose names differ only in characters that exporters \
         replace: {}",
        pairs.join(", ")
    );
    if said::first_time(&text) {
        tracing::info!("{text}");
    }
}

impl Matching<'_> {
    fn input_name<'a>(&'a self, feature: &'a str) -> &'a str {
        self.rename.get(feature).map_or(feature, String::as_str)
    }

    /// The input that a feature feeds.
    fn input(&self, column: usize, feature: &str) -> Result<ColumnInput, Fault> {
        let name = self.input_name(feature);
        let fault = |problem: String| Fault::new(self.model, problem);
        let outlet = self.inputs.iter().find(|outlet| outlet.name() == name);
        let outlet = outlet.ok_or_else(|| fault(format!("takes no input `{name}`")))?;
        let element = outlet.dtype().tensor_type().and_then(Element::new).ok_or_else(|| {
            fault(format!(
                "input `{name}` takes {}, expected a tensor of string, float, double, int64, int32 \
                 or bool",
                outlet.dtype()
            ))
        })?;
        let shape = shape_of(outlet);
        if shape.len() > 2 || !matches!(shape.get(1), None | Some(-1 | 1)) {
            let problem =
                format!("input `{name}` has the shape {shape:?}, expected [-1, 1] or [-1]");
            return Err(fault(problem)
                .hint("if it is a matrix of all features, set `predictor.inputs = \"matrix\"`"));
        }
        let data_type = self.columns.schema.field(column).data_type();
        if !element.takes(data_type) {
            let problem = format!(
                "input `{name}` takes {}, but column `{feature}` is {data_type}",
                element.name()
            );
            return Err(fault(problem).hint("export the model with the column types of the table"));
        }
        Ok(ColumnInput { column, name: name.to_string(), element, nested: shape.len() == 2 })
    }
}

impl ColumnInput {
    fn shape(&self, rows: usize) -> Vec<usize> {
        if self.nested { vec![rows, 1] } else { vec![rows] }
    }

    /// The column in the tensor's type, and rows that have no value in it.
    pub(super) fn prepare(&self, column: &ArrayRef) -> Result<(ArrayRef, Vec<usize>), ArrowError> {
        Ok(match self.element {
            Element::Float => (Arc::new(convert::reals::<f32>(column)?), Vec::new()),
            Element::Double => (Arc::new(convert::reals::<f64>(column)?), Vec::new()),
            Element::Text => (convert::textual(column)?, Vec::new()),
            Element::Int64 => {
                let numbers = convert::numbers(column, &DataType::Int64)?;
                convert::without_nulls(numbers.as_primitive::<Int64Type>(), 0)
            }
            Element::Int32 => {
                let numbers = convert::numbers(column, &DataType::Int32)?;
                convert::without_nulls(numbers.as_primitive::<Int32Type>(), 0)
            }
            Element::Bool => {
                let flags = convert::numbers(column, &DataType::Boolean)?;
                let rows = (0..flags.len()).filter(|row| flags.is_null(*row)).collect();
                let flags = flags.as_boolean().iter().map(|flag| Some(flag.unwrap_or_default()));
                (Arc::new(flags.collect::<BooleanArray>()), rows)
            }
        })
    }

    fn no_value(&self, row: usize) -> RowFailure {
        RowFailure { row, detail: self.no_value_detail() }
    }

    /// What is said of a row whose value the input has no place for.
    pub(super) fn no_value_detail(&self) -> String {
        let (name, element) = (&self.name, self.element.name());
        format!("`{name}` is null or too large, and the model's input is {element}")
    }

    /// What is said of a row whose text the library would cut.
    pub(super) fn zero_byte_detail(&self) -> String {
        format!("`{}` has a zero byte in its text", self.name)
    }

    /// The tensor of a prepared column: a view of its memory, but for booleans, which are bits there.
    fn tensor<'a>(&self, array: &'a ArrayRef) -> Result<SessionInputValue<'a>, ort::Error> {
        use arrow::array::types::{Float32Type, Float64Type};
        let shape = self.shape(array.len());
        macro_rules! view {
            ($type:ty) => {{
                let values: &[_] = array.as_primitive::<$type>().values();
                TensorRef::from_array_view((shape, values))?.into()
            }};
        }
        Ok(match self.element {
            Element::Float => view!(Float32Type),
            Element::Double => view!(Float64Type),
            Element::Int64 => view!(Int64Type),
            Element::Int32 => view!(Int32Type),
            Element::Bool | Element::Text => {
                let flags: Vec<bool> = array.as_boolean().values().iter().collect();
                Tensor::from_array((shape, flags))?.into()
            }
        })
    }

    fn text_tensor<'a>(
        &self,
        mut texts: Vec<&str>,
        spread: &mut TextTensors,
        failures: &mut Vec<RowFailure>,
    ) -> Result<SessionInputValue<'a>, ort::Error> {
        let mut tensor = |texts: &[&str]| spread.tensor(texts, self.shape(texts.len()));
        // ONNX Runtime takes texts as C does, so a zero byte ends them. It is rare enough not to be
        // looked for unless the tensor was refused.
        let made = tensor(&texts).or_else(|refused| {
            let cut: Vec<usize> =
                (0..texts.len()).filter(|row| texts[*row].contains('\0')).collect();
            if cut.is_empty() {
                return Err(refused);
            }
            for row in cut {
                texts[row] = "";
                failures.push(RowFailure { row, detail: self.zero_byte_detail() });
            }
            tensor(&texts)
        });
        made.map(Into::into)
    }
}
