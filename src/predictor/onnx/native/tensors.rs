//! The constants of a model: attributes of its nodes and tensors that stand in the file.

use std::str::from_utf8;

use super::super::graph::GraphNode;
use super::super::protobuf::{Field, fields};
use super::values::{Kind, Value, Words};

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
    pub(super) kind: Kind,
    pub(super) values: Vec<Value>,
}

impl Constant {
    /// Reads a tensor. None for types that no recognised operator takes, and for tensors in other files.
    pub(super) fn read(tensor: &[u8], words: &mut Words) -> Option<Constant> {
        let parts = Parts::read(tensor)?;
        let kind = Kind::of_element(parts.element)?;
        let values = parts.values(kind, words)?;
        let count = parts.dims.iter().try_fold(1usize, |all, dim| all.checked_mul(*dim))?;
        (values.len() == count).then_some(Constant { dims: parts.dims, kind, values })
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
struct Parts<'a> {
    dims: Vec<usize>,
    element: i64,
    raw: Option<&'a [u8]>,
    floats: Vec<f32>,
    doubles: Vec<f64>,
    integers: Vec<i64>,
    texts: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn read(tensor: &'a [u8]) -> Option<Parts<'a>> {
        let mut parts = Parts::default();
        for field in fields(tensor) {
            let Field { number, value, .. } = field.ok()?;
            match number {
                TENSOR_DIMENSIONS => {
                    let dims = value.integers().ok()?;
                    parts.dims.extend(dims.iter().filter_map(|dim| usize::try_from(*dim).ok()));
                }
                TENSOR_TYPE => parts.element = *value.integers().ok()?.last()?,
                TENSOR_FLOAT => parts.floats.extend(floats(value.packed().ok()?)),
                TENSOR_DOUBLE => parts.doubles.extend(doubles(value.packed().ok()?)),
                TENSOR_INT32 | TENSOR_INT64 => parts.integers.extend(value.integers().ok()?),
                TENSOR_STRING => parts.texts.push(value.text().ok()?),
                TENSOR_RAW => parts.raw = Some(value.bytes()),
                TENSOR_LOCATION if value.integers().ok()? != [0] => return None,
                _ => {}
            }
        }
        Some(parts)
    }

    fn values(&self, kind: Kind, words: &mut Words) -> Option<Vec<Value>> {
        let raw = self.raw.unwrap_or_default();
        let from_raw = self.raw.is_some();
        Some(match kind {
            Kind::Float if from_raw => floats(raw).map(Value::Float).collect(),
            Kind::Float => self.floats.iter().copied().map(Value::Float).collect(),
            Kind::Double if from_raw => doubles(raw).map(Value::Double).collect(),
            Kind::Double => self.doubles.iter().copied().map(Value::Double).collect(),
            Kind::Int64 if from_raw => {
                raw.as_chunks().0.iter().map(|b| Value::Int(i64::from_le_bytes(*b))).collect()
            }
            Kind::Int32 if from_raw => {
                let numbers = raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b));
                numbers.map(|number| Value::Int(number.into())).collect()
            }
            Kind::Int64 | Kind::Int32 => self.integers.iter().copied().map(Value::Int).collect(),
            Kind::Bool if from_raw => raw.iter().map(|byte| Value::Bool(*byte != 0)).collect(),
            Kind::Bool => self.integers.iter().map(|flag| Value::Bool(*flag != 0)).collect(),
            Kind::Text => self.texts.iter().map(|text| Value::Text(words.add(text))).collect(),
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
        let mut parts = fields(self.attribute(name)?).filter_map(Result::ok);
        let part = parts.find(|part| part.number == ATTRIBUTE_INT)?;
        part.value.integers().ok()?.last().copied()
    }

    /// A real number; none where the attribute is missing.
    pub(super) fn real(&self, name: &str) -> Option<f32> {
        let mut parts = fields(self.attribute(name)?).filter_map(Result::ok);
        let part = parts.find(|part| part.number == ATTRIBUTE_FLOAT)?;
        floats(part.value.packed().ok()?).next()
    }

    /// A text; none where the attribute is missing.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        let mut parts = fields(self.attribute(name)?).filter_map(Result::ok);
        let part = parts.find(|part| part.number == ATTRIBUTE_TEXT)?;
        from_utf8(part.value.bytes()).ok()
    }

    /// Whole numbers; empty where the attribute is missing.
    pub(super) fn integers(&self, name: &str) -> Vec<i64> {
        let mut all = Vec::new();
        for part in fields(self.attribute(name).unwrap_or_default()).filter_map(Result::ok) {
            if part.number == ATTRIBUTE_INTS {
                all.extend(part.value.integers().unwrap_or_default());
            }
        }
        all
    }

    /// Real numbers; empty where the attribute is missing.
    pub(super) fn reals(&self, name: &str) -> Vec<f32> {
        let mut all = Vec::new();
        for part in fields(self.attribute(name).unwrap_or_default()).filter_map(Result::ok) {
            if part.number == ATTRIBUTE_FLOATS {
                all.extend(floats(part.value.packed().unwrap_or_default()));
            }
        }
        all
    }

    /// Texts; empty where the attribute is missing.
    pub(super) fn texts(&self, name: &str) -> Vec<&'a str> {
        let parts = fields(self.attribute(name).unwrap_or_default()).filter_map(Result::ok);
        let texts = parts.filter(|part| part.number == ATTRIBUTE_STRINGS);
        texts.filter_map(|part| from_utf8(part.value.bytes()).ok()).collect()
    }

    /// The bytes of a tensor of type uint8; none where the attribute is missing.
    pub(super) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let mut parts = fields(self.attribute(name)?).filter_map(Result::ok);
        let part = parts.find(|part| part.number == ATTRIBUTE_TENSOR)?;
        let parts = Parts::read(part.value.bytes())?;
        let small = || parts.integers.iter().map(|number| u8::try_from(*number).ok()).collect();
        match parts.raw {
            _ if parts.element != ELEMENT_BYTE => None,
            Some(raw) => Some(raw.to_vec()),
            None => small(),
        }
    }

    /// A tensor; none where the attribute is missing or its type is not used.
    pub(super) fn constant(&self, name: &str, words: &mut Words) -> Option<Constant> {
        let mut parts = fields(self.attribute(name)?).filter_map(Result::ok);
        let part = parts.find(|part| part.number == ATTRIBUTE_TENSOR)?;
        Constant::read(part.value.bytes(), words)
    }
}
