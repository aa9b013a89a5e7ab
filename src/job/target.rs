//! The `[target]` section: what the model should decide instead.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::Literal;

/// What the model should decide instead. Exactly one of the keys, `tolerance` aside.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = super::limits::target)]
pub struct TargetSpec {
    /// Classification: this class, for every row.
    pub class: Option<Literal>,
    /// Classification with two classes: the other one.
    #[serde(default)]
    pub flip: bool,
    /// The class or value in this column of the feature table.
    pub column: Option<String>,
    /// Classification: every class but the row's own, a counterfactual for each.
    #[serde(default)]
    pub every: bool,
    /// Regression: this value, give or take `tolerance`.
    pub value: Option<f64>,
    /// Regression: any value between these two.
    pub range: Option<[f64; 2]>,
    /// Regression: how far from the target value still counts.
    #[serde(default)]
    pub tolerance: f64,
}

/// The target.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub enum Target {
    /// This class.
    Class(String),
    /// The other class of two.
    Flip,
    /// What this column says; `tolerance` for a regression.
    Column {
        /// Column of the feature table.
        name: String,
        /// How far off still counts.
        tolerance: f64,
    },
    /// Every class but the row's own.
    Every,
    /// A value between the two, ends included.
    Range {
        /// Lowest.
        low: f64,
        /// Highest.
        high: f64,
    },
}
