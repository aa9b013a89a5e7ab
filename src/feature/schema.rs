//! What a column means: kind, values, and how far a counterfactual may move it. As meant; the file as
//! typed is in [`super::spec`].

use serde::{Deserialize, Serialize};

use super::json;
use super::rule::{BrokenPolicy, Derived, Rule, RuleFault};
use super::spec::{Change, GridPolicy, NullPolicy, OutsidePolicy, UnseenPolicy};

/// The features of a table, in the order in which the model and the encoding see them, and what holds between
/// them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredSchema", into = "StoredSchema")]
pub struct FeatureSchema {
    /// At least one; names are unique.
    pub features: Vec<Feature>,
    /// Predicates that every counterfactual keeps.
    pub rules: Vec<Rule>,
    /// Features that follow from others; they never change by themselves.
    pub derived: Vec<Derived>,
}

/// A schema as it is kept with a generator: rules as texts, which are parsed and checked anew.
#[derive(Clone, Serialize, Deserialize)]
struct StoredSchema {
    features: Vec<Feature>,
    rules: Vec<StoredRule>,
    derived: Vec<StoredDerived>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredRule {
    check: String,
    broken: BrokenPolicy,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredDerived {
    name: String,
    value: String,
}

impl From<FeatureSchema> for StoredSchema {
    fn from(schema: FeatureSchema) -> StoredSchema {
        let name = |derived: &Derived| schema.features[derived.feature].name.clone();
        let derived = schema.derived.iter();
        let derived =
            derived.map(|of| StoredDerived { name: name(of), value: of.text.clone() }).collect();
        let rules = schema.rules.into_iter();
        let rules =
            rules.map(|rule| StoredRule { check: rule.text, broken: rule.broken }).collect();
        StoredSchema { features: schema.features, rules, derived }
    }
}

impl TryFrom<StoredSchema> for FeatureSchema {
    type Error = String;

    fn try_from(stored: StoredSchema) -> Result<FeatureSchema, String> {
        let StoredSchema { features, rules, derived } = stored;
        let problem = |text: &str, problem: RuleFault| format!("`{text}` {}", problem.what);
        let rules = rules
            .iter()
            .map(|StoredRule { check, broken }| {
                Rule::parse(check, *broken, &features).map_err(|wrong| problem(check, wrong))
            })
            .collect::<Result<_, _>>()?;
        let derived = derived
            .iter()
            .map(|StoredDerived { name, value }| {
                let feature = features.iter().position(|feature| feature.name == *name);
                let feature = feature.ok_or_else(|| format!("derives `{name}`, no feature"))?;
                Derived::parse(feature, value, &features).map_err(|wrong| problem(value, wrong))
            })
            .collect::<Result<_, _>>()?;
        Ok(FeatureSchema { features, rules, derived })
    }
}

/// One feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Feature {
    /// The column's name.
    pub name: String,
    /// Whether and in which direction a counterfactual may change it.
    pub change: Change,
    /// What a null (or NaN) means.
    pub nulls: NullPolicy,
    /// What a change costs beside changes of other features.
    pub cost: f64,
    /// What it is called among the reasons of a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonCode>,
    /// Numeric or categorical, with what only that kind has.
    pub kind: FeatureKind,
}

/// What a feature is called among the reasons of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonCode {
    /// Its code.
    pub code: String,
    /// What is said where a row's value is lower than that of rows that pass.
    pub low: Option<String>,
    /// What is said where it is higher.
    pub high: Option<String>,
}

/// What kind of values a feature has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FeatureKind {
    /// Numbers, dates and times.
    Numeric(Numeric),
    /// One of a list of values.
    Categorical(Categorical),
}

/// A numeric feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Numeric {
    /// Whole numbers only; `None` follows the column's type.
    pub integer: Option<bool>,
    /// Lowest and highest value a counterfactual may have; `None` takes what training observes.
    pub range: Option<(f64, f64)>,
    /// Counterfactual values are whole steps of this size away from the row's own.
    pub step: Option<f64>,
    /// Which numbers counterfactual values are, where no step says.
    pub grid: GridPolicy,
    /// Smaller changes are not worth telling; `None` takes a share of the standard deviation.
    pub tolerance: Option<f64>,
    /// How far a counterfactual may move from the row's own value.
    pub limit: Option<Limit>,
    /// What a value outside `range` means.
    pub outside: OutsidePolicy,
    /// Stands in for a null under [`NullPolicy::Fill`].
    pub fill: Option<f64>,
}

/// How far a numeric may move from the row's own value, per direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Largest decrease, not negative.
    #[serde(deserialize_with = "json::or_infinity")]
    pub down: f64,
    /// Largest increase, not negative.
    #[serde(deserialize_with = "json::or_infinity")]
    pub up: f64,
    /// Whether the two are shares of the range (the paper's p_min and p_max) or in the feature's units.
    pub share: bool,
}

/// A categorical feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Categorical {
    /// All values, as text, in code order.
    pub values: Vec<String>,
    /// Which of them a counterfactual may move to.
    pub allowed: Vec<bool>,
    /// What a value that is not in the list means.
    pub unseen: UnseenPolicy,
    /// Code that stands in for a null or unseen value under a `fill` policy.
    pub fill: Option<u32>,
    /// Where the values are ordered, the rank of each, the lowest first, in code order.
    pub ranks: Option<Vec<u32>>,
}

impl Categorical {
    /// How many ranks up (or, negative, down) it is from one code to another; none where the values have no
    /// order, or a code is none of them.
    pub fn ranks_up(&self, from: u32, to: u32) -> Option<i64> {
        let rank = |code: u32| self.ranks.as_ref()?.get(code as usize).copied();
        Some(i64::from(rank(to)?) - i64::from(rank(from)?))
    }
}

impl FeatureSchema {
    /// The same with every number of a column's type instead of those that training observed.
    pub fn without_grids(&self) -> FeatureSchema {
        let mut schema = self.clone();
        for feature in &mut schema.features {
            if let FeatureKind::Numeric(numeric) = &mut feature.kind {
                numeric.grid = GridPolicy::None;
            }
        }
        schema
    }

    /// The feature of that name.
    pub fn get(&self, name: &str) -> Option<&Feature> {
        self.features.iter().find(|feature| feature.name == name)
    }

    /// Whether a feature follows from others.
    pub fn is_derived(&self, feature: usize) -> bool {
        self.derived.iter().any(|derived| derived.feature == feature)
    }

    /// Feature names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.features.iter().map(|feature| feature.name.as_str())
    }
}

impl Feature {
    /// The numeric part, if it is one.
    pub fn numeric(&self) -> Option<&Numeric> {
        match &self.kind {
            FeatureKind::Numeric(numeric) => Some(numeric),
            FeatureKind::Categorical(_) => None,
        }
    }

    /// The categorical part, if it is one.
    pub fn categorical(&self) -> Option<&Categorical> {
        match &self.kind {
            FeatureKind::Numeric(_) => None,
            FeatureKind::Categorical(categorical) => Some(categorical),
        }
    }
}
