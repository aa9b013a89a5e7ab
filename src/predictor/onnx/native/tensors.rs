//! The constants of a model: attributes of its nodes and tensors that stand in the file.

use std::str::from_utf8;

use super::super::graph::GraphNode;
use super::super::protobuf::{Field, fields};
use super::values::{ElementType, TextCodes, Value};

// Field numbers of onnx.proto.
const ATTRIBUTE_FLOAT: u64 = 2;
const ATTRIBUTE_INT: u64 = 3;
const ATTRIBUTE_TEXT: u64 = 4;
const ATTRIBUTE_TENSOR: u64 = 5;
const ATTRIBUTE_FLOATS: u64 = 7;
const ATTRIBUTE_INTS: u64 = 8;
const ATTRIBUTE_STRINGS: u64 = 9;
const TENSOR_DIMENSIONS: u64 = 1;
const TENSOR_TYPE: u64 = 2;
const TENSOR_FLOAT: u64 = 4;
const TENSOR_INT32: u64 = 5;
const TENSOR_STRING: u64 = 6;
const TENSOR_INT64: u64 = 7;
const TENSOR_RAW: u64 = 9;
const TENSOR_DOUBLE: u64 = 10;
const TENSOR_LOCATION: u64 = 14;
const ELEMENT_BYTE: i64 = 2;

/// A tensor that stands in the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constant {
    pub(super) dims: Vec<usize>,
    pub(super) kind: ElementType,
    pub(super) values: Vec<Value>,
}

impl Constant {
    /// Reads a tensor. None for types that no recognised operator takes, and for tensors in other files.
    pub(super) fn read(tensor: &[u8], words: &mut TextCodes) -> Option<Constant> {
        let fields_of_tensor = TensorFields::read(tensor)?;
        let kind = ElementType::of_element(fields_of_tensor.element)?;
        let values = fields_of_tensor.values(kind, words)?;
        let count =
            fields_of_tensor.dims.iter().try_fold(1usize, |all, dim| all.checked_mul(*dim))?;
        (values.len() == count).then_some(Constant { dims: fields_of_tensor.dims, kind, values })
    }

    /// The whole numbers of a shape, of axes or of positions.
    pub(super) fn integers(&self) -> Option<Vec<i64>> {
        let integer = |value: &Value| match value {
            Value::Int(number) => Some(*number),
            _ => None,
        };
        self.values.iter().map(integer).collect()
    }
}

/// The fields of a tensor.
#[derive(Default)]
struct TensorFields<'a> {
    dims: Vec<usize>,
    element: i64,
    raw: Option<&'a [u8]>,
    floats: Vec<f32>,
    doubles: Vec<f64>,
    integers: Vec<i64>,
    texts: Vec<&'a str>,
}

impl<'a> TensorFields<'a> {
    fn read(tensor: &'a [u8]) -> Option<TensorFields<'a>> {
        let mut fields_of_tensor = TensorFields::default();
        for field in fields(tensor) {
            let Field { number, value, .. } = field.ok()?;
            match number {
                TENSOR_DIMENSIONS => {
                    let dims = value.integers().ok()?;
                    fields_of_tensor
                        .dims
                        .extend(dims.iter().filter_map(|dim| usize::try_from(*dim).ok()));
                }
                TENSOR_TYPE => fields_of_tensor.element = *value.integers().ok()?.last()?,
                TENSOR_FLOAT => fields_of_tensor.floats.extend(floats(value.packed().ok()?)),
                TENSOR_DOUBLE => fields_of_tensor.doubles.extend(doubles(value.packed().ok()?)),
                TENSOR_INT32 | TENSOR_INT64 => {
                    fields_of_tensor.integers.extend(value.integers().ok()?);
                }
                TENSOR_STRING => fields_of_tensor.texts.push(value.text().ok()?),
                TENSOR_RAW => fields_of_tensor.raw = Some(value.bytes()),
                TENSOR_LOCATION if value.integers().ok()? != [0] => return None,
                _ => {}
            }
        }
        Some(fields_of_tensor)
    }

    fn values(&self, kind: ElementType, words: &mut TextCodes) -> Option<Vec<Value>> {
        let raw = self.raw.unwrap_or_default();
        let from_raw = self.raw.is_some();
        Some(match kind {
            ElementType::Float if from_raw => floats(raw).map(Value::Float).collect(),
            ElementType::Float => self.floats.iter().copied().map(Value::Float).collect(),
            ElementType::Double if from_raw => doubles(raw).map(Value::Double).collect(),
            ElementType::Double => self.doubles.iter().copied().map(Value::Double).collect(),
            ElementType::Int64 if from_raw => {
                raw.as_chunks().0.iter().map(|b| Value::Int(i64::from_le_bytes(*b))).collect()
            }
            ElementType::Int32 if from_raw => {
                let numbers = raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b));
                numbers.map(|number| Value::Int(number.into())).collect()
            }
            ElementType::Int64 | ElementType::Int32 => {
                self.integers.iter().copied().map(Value::Int).collect()
            }
            ElementType::Bool if from_raw => {
                raw.iter().map(|byte| Value::Bool(*byte != 0)).collect()
            }
            ElementType::Bool => self.integers.iter().map(|flag| Value::Bool(*flag != 0)).collect(),
            ElementType::Text => {
                self.texts.iter().map(|text| Value::Text(words.add(text))).collect()
            }
        })
    }
}

fn floats(packed: &[u8]) -> impl Iterator<Item = f32> {
    packed.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

fn doubles(packed: &[u8]) -> impl Iterator<Item = f64> {
    packed.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes))
}

impl<'a> GraphNode<'a> {
    /// A whole number; none where the attribute is missing.
    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        let mut attributes = fields(self.attribute(name)?).filter_map(Result::ok);
        let attribute = attributes.find(|attribute| attribute.number == ATTRIBUTE_INT)?;
        attribute.value.integers().ok()?.last().copied()
    }

    /// A real number; none where the attribute is missing.
    pub(super) fn real(&self, name: &str) -> Option<f32> {
        let mut attributes = fields(self.attribute(name)?).filter_map(Result::ok);
        let attribute = attributes.find(|attribute| attribute.number == ATTRIBUTE_FLOAT)?;
        floats(attribute.value.packed().ok()?).next()
    }

    /// A text; none where the attribute is missing.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        let mut attributes = fields(self.attribute(name)?).filter_map(Result::ok);
        let attribute = attributes.find(|attribute| attribute.number == ATTRIBUTE_TEXT)?;
        from_utf8(attribute.value.bytes()).ok()
    }

    /// Whole numbers; empty where the attribute is missing.
    pub(super) fn integers(&self, name: &str) -> Vec<i64> {
        let mut all = Vec::new();
        for attribute in fields(self.attribute(name).unwrap_or_default()).filter_map(Result::ok) {
            if attribute.number == ATTRIBUTE_INTS {
                all.extend(attribute.value.integers().unwrap_or_default());
            }
        }
        all
    }

    /// Real numbers; empty where the attribute is missing.
    pub(super) fn reals(&self, name: &str) -> Vec<f32> {
        let mut all = Vec::new();
        for attribute in fields(self.attribute(name).unwrap_or_default()).filter_map(Result::ok) {
            if attribute.number == ATTRIBUTE_FLOATS {
                all.extend(floats(attribute.value.packed().unwrap_or_default()));
            }
        }
        all
    }

    /// Texts; empty where the attribute is missing.
    pub(super) fn texts(&self, name: &str) -> Vec<&'a str> {
        let attributes = fields(self.attribute(name).unwrap_or_default()).filter_map(Result::ok);
        let texts = attributes.filter(|attribute| attribute.number == ATTRIBUTE_STRINGS);
        texts.filter_map(|attribute| from_utf8(attribute.value.bytes()).ok()).collect()
    }

    /// The bytes of a tensor of type uint8; none where the attribute is missing.
    pub(super) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let mut attributes = fields(self.attribute(name)?).filter_map(Result::ok);
        let attribute = attributes.find(|attribute| attribute.number == ATTRIBUTE_TENSOR)?;
        let attributes = TensorFields::read(attribute.value.bytes())?;
        let small =
            || attributes.integers.iter().map(|number| u8::try_from(*number).ok()).collect();
        match attributes.raw {
            _ if attributes.element != ELEMENT_BYTE => None,
            Some(raw) => Some(raw.to_vec()),
            None => small(),
        }
    }

    /// A tensor; none where the attribute is missing or its type is not used.
    pub(super) fn constant(&self, name: &str, words: &mut TextCodes) -> Option<Constant> {
        let mut attributes = fields(self.attribute(name)?).filter_map(Result::ok);
        let attribute = attributes.find(|attribute| attribute.number == ATTRIBUTE_TENSOR)?;
        Constant::read(attribute.value.bytes(), words)
    }
}
