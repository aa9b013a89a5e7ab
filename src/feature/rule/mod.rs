//! Rules between columns: predicates that every counterfactual must keep (`[[rule]]`), and columns that follow
//! from others (`[[derived]]`). Parsed once from SQL ([`parse`]), evaluated on cells without an engine
//! ([`truth`]).

mod parse;
mod truth;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use truth::{ArithmeticOperator, ComparisonOperator, NumberExpression, Truth};

use super::rows::Cell;
use super::schema::Feature;

/// What a rule means for a row whose original breaks it already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BrokenPolicy {
    /// The counterfactual may break it too, but not by more.
    #[default]
    KeepNoWorse,
    /// The rule does not apply to the row.
    Ignore,
    /// The row is set aside, with the reason, in the rejects table.
    Reject,
}

/// A predicate that counterfactuals keep.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// As it was written, or found.
    pub text: String,
    /// What it means for rows that break it already.
    pub broken: BrokenPolicy,
    /// What it says.
    pub truth: Truth,
    /// The features that it reads, each once, ascending.
    pub features: Vec<usize>,
}

/// A feature that follows from others.
#[derive(Debug, Clone, PartialEq)]
pub struct Derived {
    /// Its index.
    pub feature: usize,
    /// How it is computed, as it was written.
    pub text: String,
    /// The same, parsed.
    pub number: NumberExpression,
    /// The features that it is computed from, each once, ascending.
    pub inputs: Vec<usize>,
}

impl Rule {
    /// Parses a predicate over features.
    ///
    /// # Errors
    /// What is wrong with it, and a hint where there is one.
    pub fn parse(
        text: &str,
        broken: BrokenPolicy,
        features: &[Feature],
    ) -> Result<Rule, RuleFault> {
        Ok(Rule::new(text.trim().to_string(), broken, parse::truth(text, features)?))
    }

    /// A rule that says this.
    pub fn new(text: String, broken: BrokenPolicy, truth: Truth) -> Rule {
        let mut features = Vec::new();
        truth.visit_features(&mut |feature| features.push(feature));
        features.sort_unstable();
        features.dedup();
        Rule { text, broken, truth, features }
    }

    /// Whether a row may become another: the rule holds there (a null breaks nothing, as in SQL's `CHECK`), or
    /// the row breaks it already and the policy lets it.
    pub fn allows(&self, new: impl Fn(usize) -> Cell, original: impl Fn(usize) -> Cell) -> bool {
        if self.truth.holds(&new) != Some(false) {
            return true;
        }
        match self.broken {
            BrokenPolicy::Ignore | BrokenPolicy::Reject => {
                self.truth.holds(&original) == Some(false)
            }
            BrokenPolicy::KeepNoWorse => {
                self.truth.holds(&original) == Some(false)
                    && self.truth.excess(&new) <= self.truth.excess(&original)
            }
        }
    }
}

impl Derived {
    /// Parses how a feature is computed.
    ///
    /// # Errors
    /// What is wrong with it, and a hint where there is one.
    pub fn parse(feature: usize, text: &str, features: &[Feature]) -> Result<Derived, RuleFault> {
        let number = parse::number(text, features)?;
        let mut inputs = Vec::new();
        number.visit_features(&mut |feature| inputs.push(feature));
        inputs.sort_unstable();
        inputs.dedup();
        Ok(Derived { feature, text: text.trim().to_string(), number, inputs })
    }

    /// The feature's declared range as a rule: nothing else keeps what follows within it.
    pub fn range_rule(&self, features: &[Feature]) -> Option<Rule> {
        let feature = &features[self.feature];
        let (low, high) = feature.numeric()?.range?;
        let text = format!("{} BETWEEN {low} AND {high}", sql_name(&feature.name));
        Rule::parse(&text, BrokenPolicy::KeepNoWorse, features).ok()
    }
}

/// Words that cannot be columns' names in SQL without quotes.
#[rustfmt::skip]
const RESERVED: [&str; 59] = [
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "between", "both", "by", "case", "cast", "check",
    "collate", "column", "constraint", "create", "cross", "default", "desc", "distinct", "else", "end", "except",
    "exists", "false", "for", "foreign", "from", "full", "group", "having", "in", "inner", "interval", "into", "is",
    "join", "left", "like", "limit", "natural", "not", "null", "offset", "on", "or", "order", "primary", "right",
    "select", "table", "then", "true", "union", "unique", "when", "where",
];

/// A column's name as SQL takes it: in quotes unless it is plain.
pub fn sql_name(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let plain = plain && starts && !RESERVED.contains(&name);
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFault {
    /// What was found, and what was expected.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl RuleFault {
    fn new(what: impl Into<String>) -> RuleFault {
        RuleFault { what: what.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> RuleFault {
        RuleFault { hint: Some(hint.into()), ..self }
    }
}
