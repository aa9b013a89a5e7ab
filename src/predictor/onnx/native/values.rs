//! Single values of a model, and the functions of one or two of them that operators apply to every cell: the
//! same types and the same order of operations as in ONNX Runtime, so that results are the same to the last bit.

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;

/// Element types of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementType {
    Float,
    Double,
    Int64,
    Int32,
    Bool,
    Text,
}

impl ElementType {
    /// The type with that number in onnx.proto.
    pub(super) fn of_element(element: i64) -> Option<ElementType> {
        Some(match element {
            1 => ElementType::Float,
            11 => ElementType::Double,
            7 => ElementType::Int64,
            6 => ElementType::Int32,
            9 => ElementType::Bool,
            8 => ElementType::Text,
            _ => return None,
        })
    }

    /// Whether it is a real number.
    pub(super) fn is_real(self) -> bool {
        matches!(self, ElementType::Float | ElementType::Double)
    }
}

/// One element of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Float(f32),
    Double(f64),
    /// Of 32 or 64 bits.
    Int(i64),
    Bool(bool),
    /// Position among the [`TextCodes`], or [`OTHER`].
    Text(u32),
}

/// A text that stands nowhere in the model. Operators can tell it from those that do, and no more.
pub(super) const OTHER: u32 = u32::MAX;

/// The texts that stand in a model.
#[derive(Debug, Clone, Default)]
pub(super) struct TextCodes {
    codes: HashMap<String, u32>,
    texts: Vec<String>,
}

impl TextCodes {
    /// The number of a text, which is one of the model's from now on.
    pub(super) fn add(&mut self, text: &str) -> u32 {
        if let Some(code) = self.codes.get(text) {
            return *code;
        }
        let code = self.texts.len() as u32;
        self.codes.insert(text.to_string(), code);
        self.texts.push(text.to_string());
        code
    }

    /// The number of a text, or [`OTHER`].
    pub(super) fn find(&self, text: &str) -> u32 {
        self.codes.get(text).copied().unwrap_or(OTHER)
    }

    /// The text with that number.
    pub(super) fn text(&self, code: u32) -> Option<&str> {
        self.texts.get(code as usize).map(String::as_str)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }
}

impl Value {
    /// Whether it is a NaN.
    pub(super) fn is_nan(self) -> bool {
        match self {
            Value::Float(number) => number.is_nan(),
            Value::Double(number) => number.is_nan(),
            Value::Int(_) | Value::Bool(_) | Value::Text(_) => false,
        }
    }

    /// The number as a real one; a flag is one or zero.
    pub(super) fn real(self) -> f64 {
        match self {
            Value::Float(number) => number.into(),
            Value::Double(number) => number,
            Value::Int(number) => number as f64,
            Value::Bool(flag) => f64::from(u8::from(flag)),
            Value::Text(_) => f64::NAN,
        }
    }

    /// The number as a single one, rounded once.
    pub(super) fn single(self) -> f32 {
        match self {
            Value::Float(number) => number,
            Value::Double(number) => number as f32,
            Value::Int(number) => number as f32,
            Value::Bool(flag) => f32::from(u8::from(flag)),
            Value::Text(_) => f32::NAN,
        }
    }

    fn integer(self) -> i64 {
        match self {
            Value::Float(number) => truncated(number.into()),
            Value::Double(number) => truncated(number),
            Value::Int(number) => number,
            Value::Bool(flag) => flag.into(),
            Value::Text(_) => 0,
        }
    }

    /// The same in another type.
    pub(super) fn cast(self, to: ElementType) -> Value {
        match to {
            ElementType::Float => Value::Float(self.single()),
            ElementType::Double => Value::Double(self.real()),
            ElementType::Int64 => Value::Int(self.integer()),
            ElementType::Int32 => Value::Int(i64::from(self.integer() as i32)),
            ElementType::Bool => Value::Bool(match self {
                Value::Bool(flag) => flag,
                Value::Int(number) => number != 0,
                other => other.real() != 0.0,
            }),
            ElementType::Text => self,
        }
    }

    /// How two values of one type compare; none for NaN.
    fn order(self, other: Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Float(one), Value::Float(two)) => one.partial_cmp(&two),
            (Value::Double(one), Value::Double(two)) => one.partial_cmp(&two),
            (Value::Int(one), Value::Int(two)) => Some(one.cmp(&two)),
            (Value::Bool(one), Value::Bool(two)) => Some(one.cmp(&two)),
            (Value::Text(one), Value::Text(two)) => Some(one.cmp(&two)),
            _ => None,
        }
    }

    /// Whether two values of one type are equal.
    pub(super) fn equals(self, other: Value) -> bool {
        self.order(other) == Some(Ordering::Equal)
    }
}

/// As x86 converts: the least number stands for all that have no counterpart.
fn truncated(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// A function of one value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unary {
    Cast(ElementType),
    /// One where the value is this one, else zero.
    OneHot(Value),
    /// Another value for each that is listed.
    Lookup(Arc<Lookup>),
    /// The second where the value is the first; a NaN is itself here.
    Impute(Value, Value),
    /// Less the first, times the second.
    Scale(f32, f32),
    /// Whether it is larger than this, as a number.
    Binarize(f32),
    /// The element of a list at this position.
    Pick(Arc<[Value]>),
    IsNan,
    Not,
    Neg,
    Abs,
    Sqrt,
}

/// What a label encoder knows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lookup {
    /// By the value's [`key`].
    pub(super) values: HashMap<u64, Value>,
    pub(super) otherwise: Value,
}

/// What values are looked up by. All NaN are the same, and so are the zeros.
pub(super) fn key(value: Value) -> u64 {
    match value {
        value if value.is_nan() => f64::NAN.to_bits(),
        Value::Float(number) => (f64::from(number) + 0.0).to_bits(),
        Value::Double(number) => (number + 0.0).to_bits(),
        Value::Int(number) => number as u64,
        Value::Bool(flag) => flag.into(),
        Value::Text(code) => code.into(),
    }
}

impl Unary {
    /// The type of its result.
    pub(super) fn kind(&self, of: ElementType) -> ElementType {
        match self {
            Unary::Cast(kind) => *kind,
            Unary::OneHot(_) | Unary::Scale(..) => ElementType::Float,
            Unary::Lookup(lookup) => kind_of(lookup.otherwise),
            Unary::Pick(values) => values.first().map_or(of, |value| kind_of(*value)),
            Unary::IsNan | Unary::Not => ElementType::Bool,
            _ => of,
        }
    }

    /// Its result.
    pub(super) fn apply(&self, value: Value) -> Value {
        match self {
            Unary::Cast(kind) => value.cast(*kind),
            Unary::OneHot(one) => Value::Float(f32::from(u8::from(value.equals(*one)))),
            Unary::Lookup(lookup) => {
                lookup.values.get(&key(value)).copied().unwrap_or(lookup.otherwise)
            }
            Unary::Impute(replaced, imputed) => {
                let gap = value.equals(*replaced) || (value.is_nan() && replaced.is_nan());
                if gap { *imputed } else { value }
            }
            Unary::Scale(offset, scale) => Value::Float(match value {
                Value::Double(x) => ((x - f64::from(*offset)) * f64::from(*scale)) as f32,
                other => (other.single() - offset) * scale,
            }),
            Unary::Binarize(threshold) => {
                Value::Float(f32::from(u8::from(value.single() > *threshold)))
            }
            Unary::Pick(values) => {
                let at = value.integer();
                let at = if at < 0 { at + values.len() as i64 } else { at };
                let found = usize::try_from(at).ok().and_then(|at| values.get(at));
                found.copied().unwrap_or(Value::Float(f32::NAN))
            }
            Unary::IsNan => Value::Bool(value.is_nan()),
            Unary::Not => Value::Bool(!matches!(value, Value::Bool(true))),
            Unary::Neg => arithmetic(value, |x| -x, |x| -x, i64::wrapping_neg),
            Unary::Abs => arithmetic(value, f32::abs, f64::abs, i64::wrapping_abs),
            Unary::Sqrt => arithmetic(value, f32::sqrt, f64::sqrt, |x| x),
        }
    }
}

fn arithmetic(
    value: Value,
    single: impl Fn(f32) -> f32,
    double: impl Fn(f64) -> f64,
    whole: impl Fn(i64) -> i64,
) -> Value {
    match value {
        Value::Float(number) => Value::Float(single(number)),
        Value::Double(number) => Value::Double(double(number)),
        Value::Int(number) => Value::Int(whole(number)),
        other => other,
    }
}

/// The type of a value; whole numbers count as those of 64 bits.
pub(super) fn kind_of(value: Value) -> ElementType {
    match value {
        Value::Float(_) => ElementType::Float,
        Value::Double(_) => ElementType::Double,
        Value::Int(_) => ElementType::Int64,
        Value::Bool(_) => ElementType::Bool,
        Value::Text(_) => ElementType::Text,
    }
}

/// A function of two values of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    And,
    Or,
}

impl Binary {
    /// The operator of that name.
    pub(super) fn named(operator: &str) -> Option<Binary> {
        Some(match operator {
            "Add" | "Sum" => Binary::Add,
            "Sub" => Binary::Sub,
            "Mul" => Binary::Mul,
            "Div" => Binary::Div,
            "Less" => Binary::Less,
            "LessOrEqual" => Binary::LessOrEqual,
            "Greater" => Binary::Greater,
            "GreaterOrEqual" => Binary::GreaterOrEqual,
            "Equal" => Binary::Equal,
            "And" => Binary::And,
            "Or" => Binary::Or,
            _ => return None,
        })
    }

    /// Whether its result is of the type of what it is given.
    pub(super) fn is_arithmetic(self) -> bool {
        matches!(self, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div)
    }

    /// Its result.
    pub(super) fn apply(self, one: Value, two: Value) -> Value {
        if self.is_arithmetic() {
            return self.calculate(one, two);
        }
        let order = one.order(two);
        Value::Bool(match self {
            Binary::Less => order == Some(Ordering::Less),
            Binary::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Binary::Greater => order == Some(Ordering::Greater),
            Binary::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            Binary::And => one == Value::Bool(true) && two == Value::Bool(true),
            Binary::Or => one == Value::Bool(true) || two == Value::Bool(true),
            _ => order == Some(Ordering::Equal),
        })
    }

    fn calculate(self, one: Value, two: Value) -> Value {
        match (one, two) {
            (Value::Float(one), Value::Float(two)) => Value::Float(match self {
                Binary::Add => one + two,
                Binary::Sub => one - two,
                Binary::Mul => one * two,
                _ => one / two,
            }),
            (Value::Double(one), Value::Double(two)) => Value::Double(match self {
                Binary::Add => one + two,
                Binary::Sub => one - two,
                Binary::Mul => one * two,
                _ => one / two,
            }),
            (Value::Int(one), Value::Int(two)) => Value::Int(match self {
                Binary::Add => one.wrapping_add(two),
                Binary::Sub => one.wrapping_sub(two),
                Binary::Mul => one.wrapping_mul(two),
                _ => one.checked_div(two).unwrap_or(0),
            }),
            _ => Value::Float(f32::NAN),
        }
    }
}
