//! A scalar as typed in a file, where its type does not matter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A category, class label or stand-in as typed: text, number or boolean. Categories and labels are
/// compared as text.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Literal {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
}

impl Literal {
    /// The number it stands for, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Literal::Integer(value) => Some(*value as f64),
            Literal::Number(value) => Some(*value),
            Literal::Boolean(_) | Literal::Text(_) => None,
        }
    }
}

impl std::fmt::Display for Literal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Literal::Boolean(value) => write!(f, "{value}"),
            Literal::Integer(value) => write!(f, "{value}"),
            Literal::Number(value) => write!(f, "{value}"),
            Literal::Text(value) => f.write_str(value),
        }
    }
}
