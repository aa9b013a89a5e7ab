//! The feature schema file as typed (`schemas/*.toml`), and its way to a checked [`FeatureSchema`].

use std::collections::{HashMap, HashSet};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::resolve_rules::RuleResolver;
use super::rule::BrokenPolicy;
use super::schema::{Categorical, Feature, FeatureKind, FeatureSchema, Limit, Numeric, ReasonCode};
use crate::document::{self, Document, KeyPositions, Literal, Overrides, did_you_mean};
use crate::error::{Error, Fault, Kind, MOST_FAULTS, Result};

/// A feature schema: what the columns of a table mean and how a counterfactual may change them.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchemaSpec {
    /// The features, in the order in which the model takes them. Columns that are not listed are ignored.
    pub feature: Vec<FeatureSpec>,
    /// Predicates over features that every counterfactual keeps.
    #[serde(default)]
    pub rule: Vec<RuleSpec>,
    /// Features that follow from others: the model sees them, nobody changes them.
    #[serde(default)]
    pub derived: Vec<DerivedSpec>,
}

/// A rule between features.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// An SQL predicate over features, such as `late_12m <= late_total`. As with SQL's `CHECK`, a null breaks
    /// nothing.
    pub check: String,
    /// What the rule means for a row that breaks it already.
    #[serde(default)]
    pub broken: BrokenPolicy,
}

/// A feature that follows from others.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DerivedSpec {
    /// The numeric feature's name.
    pub name: String,
    /// How it is computed from other features, such as `debt / income`.
    pub value: String,
}

/// One feature.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = limits::feature)]
pub struct FeatureSpec {
    /// The column's name.
    pub name: String,
    /// `numeric` (also dates and times) or `categorical`.
    pub kind: FeatureKindSpec,
    /// Whether, and in which direction, a counterfactual may change the feature.
    #[serde(default)]
    pub change: Change,
    /// What a null (or NaN) means.
    #[serde(default)]
    pub nulls: NullPolicy,
    /// Stands in for nulls and unseen categories where their policy is `fill`.
    pub fill: Option<Literal>,
    /// What a change costs beside changes of other features: with 2, two other features (or twice as large
    /// a change) are rather changed. By default 1.
    pub cost: Option<f64>,
    /// What the feature is called among candidate reasons (`audit.reasons`).
    pub reason: Option<ReasonSpec>,

    /// Numeric: the type of counterfactual values. By default the column's own.
    #[serde(rename = "type")]
    pub output_type: Option<NumericType>,
    /// Numeric: lowest and highest value a counterfactual may have. By default what training observes.
    pub range: Option<[f64; 2]>,
    /// Numeric: counterfactual values are multiples of this step, counted from the row's own value. By
    /// default `grid` says which values they are.
    pub step: Option<f64>,
    /// Numeric: without a `step`, counterfactual values are multiples of the step that training values have
    /// (`observed`: 0.005, 0.1, 100), or any number of the column's type (`none`).
    #[serde(default)]
    pub grid: GridPolicy,
    /// Numeric: smaller changes than this are put back where the model lets them. By default a twentieth of the
    /// standard deviation.
    pub tolerance: Option<f64>,
    /// Numeric: how far a counterfactual may move from the row's own value.
    pub limit: Option<LimitSpec>,
    /// Numeric: what an input value outside `range` means.
    #[serde(default)]
    pub outside: OutsidePolicy,

    /// Categorical: all values of the column. May be left out where `order` names them.
    #[serde(default)]
    pub values: Vec<Literal>,
    /// Categorical: the values a counterfactual may move to. By default all.
    pub allowed: Option<Vec<Literal>>,
    /// Categorical: all values from the lowest to the highest, where they have an order: `change` may then be
    /// `increase` or `decrease`, and a change costs more the more values it passes.
    pub order: Option<Vec<Literal>>,
    /// Categorical: what an input value that is not in `values` means.
    #[serde(default)]
    pub unseen: UnseenPolicy,
}

/// What kind of values a feature has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeatureKindSpec {
    /// Numbers, dates and times.
    Numeric,
    /// One of a list of values.
    Categorical,
}

/// The type of a numeric feature's counterfactual values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NumericType {
    /// Whole numbers.
    Integer,
    /// Any number.
    Float,
}

/// Whether and in which direction a counterfactual may change a feature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Freely, within its range and limits.
    #[default]
    Any,
    /// Not at all.
    Never,
    /// Upwards only; of a categorical feature by its `order`.
    Increase,
    /// Downwards only; of a categorical feature by its `order`.
    Decrease,
}

/// Which numbers counterfactual values of a numeric feature are, where it has no `step`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GridPolicy {
    /// Multiples of the step that nearly all training values have; where they have none, of a power of ten
    /// that is at most a thousandth of their standard deviation.
    #[default]
    Observed,
    /// Any number of the column's type.
    None,
}

/// What a null means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NullPolicy {
    /// The row is set aside, with the reason, in the rejects table.
    #[default]
    Reject,
    /// A state of its own: the model gets the null, and a counterfactual keeps it.
    Carry,
    /// The row is treated as if it held `fill`.
    Fill,
}

/// What a category outside the list means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnseenPolicy {
    /// The row is set aside, with the reason, in the rejects table.
    #[default]
    Reject,
    /// A state of its own: the model gets the value as it is; a counterfactual may keep it or move to a
    /// listed one.
    Carry,
    /// The row is treated as if it held `fill`.
    Fill,
}

/// What a number outside the declared range means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutsidePolicy {
    /// The row is used as it is; the range still binds what a counterfactual changes it to.
    #[default]
    Carry,
    /// The row is set aside, with the reason, in the rejects table.
    Reject,
}

/// How far a counterfactual may move from the row's own value.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = limits::limit)]
pub struct LimitSpec {
    /// Largest decrease. By default unlimited.
    pub down: Option<f64>,
    /// Largest increase. By default unlimited.
    pub up: Option<f64>,
    /// `absolute`: in the feature's own units; `share`: as a share of its range.
    #[serde(default)]
    pub unit: LimitUnit,
}

/// What a feature is called among candidate reasons.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonSpec {
    /// Its code.
    pub code: String,
    /// What is said where a row's value is lower than that of rows that pass. Of a category without an order, the
    /// one of `low` and `high` that is given is said.
    pub low: Option<String>,
    /// What is said where it is higher.
    pub high: Option<String>,
}

/// The unit of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitUnit {
    /// The feature's own units.
    #[default]
    Absolute,
    /// A share of the range, 0 to 1.
    Share,
}

impl FeatureSchema {
    /// Reads and resolves a feature schema file.
    ///
    /// # Errors
    /// All faults of the file at once.
    pub fn read(file: &Path) -> Result<FeatureSchema> {
        resolve(document::read(file)?)
    }

    /// As [`FeatureSchema::read`], from text; `file` is for messages.
    pub fn parse(text: &str, file: &Path) -> Result<FeatureSchema> {
        resolve(document::parse_with(text, file, &|text, _| Ok(text), &Overrides::default())?)
    }
}

fn resolve(document: Document<SchemaSpec>) -> Result<FeatureSchema> {
    let mut faults = document.out_of_range;
    if document.value.feature.is_empty() {
        faults.push(document.positions.fault("feature", "is empty, expected at least one feature"));
    }
    let mut names = HashSet::new();
    let mut features = Vec::with_capacity(document.value.feature.len());
    for spec in &document.value.feature {
        let spec = spec.clone();
        let mut resolver = FeatureResolver {
            positions: &document.positions,
            name: spec.name.clone(),
            faults: &mut faults,
        };
        resolver.require(names.insert(spec.name.clone()), "name", "stands for two features");
        features.push(resolver.feature(spec));
    }
    let SchemaSpec { rule, derived, .. } = &document.value;
    let between = RuleResolver { positions: &document.positions, faults: &mut faults };
    let (rules, derived) = between.resolve(rule, derived, &mut features);
    Error::from_faults(Kind::Spec, faults)?;
    Ok(FeatureSchema { features, rules, derived })
}

/// The lowest and highest value of every number of a feature schema, in its JSON Schema.
mod limits {
    use schemars::Schema;

    use crate::document::{Low, NumberLimit, write_limits};

    /// The difference of two numbers is a number.
    const FARTHEST: f64 = 1e300;
    const FAR: &str = "the difference of two numbers must be one";
    /// What is a million times as dear is as good as fixed, and networks count in 32 bits.
    const DEAR: &str = "what is a million times as dear is as good as fixed";
    const STEPS: &str = "a number is counted in steps";

    const LIMITS: &[NumberLimit] = &[
        NumberLimit { key: "feature.cost", low: Low::From(0.0), high: 1e6, why: DEAR },
        NumberLimit { key: "feature.range", low: Low::From(-FARTHEST), high: FARTHEST, why: FAR },
        NumberLimit { key: "feature.step", low: Low::Above(0.0), high: FARTHEST, why: STEPS },
        NumberLimit { key: "feature.tolerance", low: Low::From(0.0), high: FARTHEST, why: FAR },
        NumberLimit { key: "feature.limit.down", low: Low::From(0.0), high: FARTHEST, why: FAR },
        NumberLimit { key: "feature.limit.up", low: Low::From(0.0), high: FARTHEST, why: FAR },
    ];

    pub(super) fn feature(schema: &mut Schema) {
        write_limits("feature", LIMITS, schema);
    }

    pub(super) fn limit(schema: &mut Schema) {
        write_limits("feature.limit", LIMITS, schema);
    }
}

/// Resolves one feature, noting faults as it goes.
struct FeatureResolver<'a> {
    positions: &'a KeyPositions,
    name: String,
    faults: &'a mut Vec<Fault>,
}

impl FeatureResolver<'_> {
    fn feature(&mut self, spec: FeatureSpec) -> Feature {
        let categorical = spec.kind == FeatureKindSpec::Categorical;
        self.irrelevant(&spec);
        let needs_fill =
            spec.nulls == NullPolicy::Fill || (categorical && spec.unseen == UnseenPolicy::Fill);
        self.require(
            !needs_fill || spec.fill.is_some(),
            "fill",
            "is missing, expected the value to fill in",
        );
        let problem =
            "is given, but neither `nulls` nor `unseen` is `fill`: nothing would be filled in";
        self.require(needs_fill || spec.fill.is_none(), "fill", problem);
        let cost = spec.cost.unwrap_or(1.0);
        let kind = if categorical {
            FeatureKind::Categorical(self.categorical(&spec))
        } else {
            FeatureKind::Numeric(self.numeric(&spec))
        };
        let reason =
            spec.reason.map(|ReasonSpec { code, low, high }| ReasonCode { code, low, high });
        Feature { name: spec.name, change: spec.change, nulls: spec.nulls, cost, reason, kind }
    }

    /// Keys that belong to the other kind are a misunderstanding worth pointing out.
    fn irrelevant(&mut self, spec: &FeatureSpec) {
        let numeric = spec.kind == FeatureKindSpec::Numeric;
        let one_way = matches!(spec.change, Change::Increase | Change::Decrease);
        let foreign = [
            ("values", numeric && !spec.values.is_empty()),
            ("allowed", numeric && spec.allowed.is_some()),
            ("order", numeric && spec.order.is_some()),
            ("range", !numeric && spec.range.is_some()),
            ("type", !numeric && spec.output_type.is_some()),
            ("step", !numeric && spec.step.is_some()),
            ("grid", !numeric && spec.grid != GridPolicy::Observed),
            ("tolerance", !numeric && spec.tolerance.is_some()),
            ("limit", !numeric && spec.limit.is_some()),
        ];
        let kind = if numeric { "numeric" } else { "categorical" };
        for (key, given) in foreign {
            self.require(!given, key, &format!("has no meaning for a {kind} feature"));
        }
        if !numeric && one_way && spec.order.is_none() {
            let problem = "has a direction, but a categorical feature has no order";
            let hint = "give it one: `order = [\"low\", \"mid\", \"high\"]`, all values from the lowest to the highest";
            let fault = self.fault("change", problem).hint(hint);
            self.faults.push(fault);
        }
    }

    fn numeric(&mut self, spec: &FeatureSpec) -> Numeric {
        let range = spec.range.map(|[low, high]| (low, high));
        if let Some((low, high)) = range {
            let problem = format!("is [{low}, {high}], expected its lower end first");
            self.require(low <= high, "range", &problem);
        }
        let fill = spec.fill.as_ref().and_then(Literal::as_number);
        let numeric_fill = fill.is_some() == spec.fill.is_some();
        self.require(numeric_fill, "fill", "is not a number, but the feature is numeric");
        Numeric {
            integer: spec.output_type.map(|kind| kind == NumericType::Integer),
            range,
            step: spec.step,
            grid: spec.grid,
            tolerance: spec.tolerance,
            limit: spec.limit.map(|limit| self.limit(limit)),
            outside: spec.outside,
            fill,
        }
    }

    fn limit(&mut self, spec: LimitSpec) -> Limit {
        let share = spec.unit == LimitUnit::Share;
        let most = if share { 1.0 } else { f64::INFINITY };
        let mut bound = |key, given: Option<f64>| {
            let bound = given.unwrap_or(most);
            let expected = if share { "from 0 to 1" } else { "of at least 0" };
            let problem = format!("is {bound}, expected a number {expected}");
            self.require((0.0..=most).contains(&bound), key, &problem);
            bound
        };
        Limit { down: bound("limit.down", spec.down), up: bound("limit.up", spec.up), share }
    }

    fn categorical(&mut self, spec: &FeatureSpec) -> Categorical {
        let texts =
            |list: &[Literal]| list.iter().map(ToString::to_string).collect::<Vec<String>>();
        let order = spec.order.as_deref().map(texts);
        let values = match &order {
            Some(order) if spec.values.is_empty() => order.clone(),
            _ => texts(&spec.values),
        };
        self.require(!values.is_empty(), "values", "is missing, expected the feature's values");
        let unique: HashSet<&String> = values.iter().collect();
        self.require(unique.len() == values.len(), "values", "names a value twice");
        let allowed = spec.allowed.as_ref().map(|allowed| {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            for value in allowed.iter().filter(|value| !unique.contains(value)) {
                self.unknown("allowed", value, &values);
            }
            allowed.into_iter().collect::<HashSet<String>>()
        });
        let fill = spec.fill.as_ref().and_then(|fill| {
            let fill = fill.to_string();
            let code = values.iter().position(|value| *value == fill);
            if code.is_none() {
                self.unknown("fill", &fill, &values);
            }
            code.map(|code| code as u32)
        });
        let ranks = order.and_then(|order| self.ranks(&order, &values));
        let may = |value: &String| allowed.as_ref().is_none_or(|allowed| allowed.contains(value));
        let allowed = values.iter().map(may).collect();
        Categorical { allowed, values, unseen: spec.unseen, fill, ranks }
    }

    /// The rank of every value in an order, which names each of them once.
    fn ranks(&mut self, order: &[String], values: &[String]) -> Option<Vec<u32>> {
        let listed: HashSet<&String> = values.iter().collect();
        let mut rank_of: HashMap<&String, u32> = HashMap::with_capacity(order.len());
        for (rank, value) in (0u32..).zip(order) {
            let known = listed.contains(value);
            if !known {
                self.unknown("order", value, values);
            }
            let again = known && rank_of.insert(value, rank).is_some();
            self.require(!again, "order", &format!("names `{value}` twice"));
        }
        let missing: Vec<&String> =
            values.iter().filter(|value| !rank_of.contains_key(value)).collect();
        if let Some(first) = missing.first() {
            let more = match missing.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let problem = format!("misses `{first}`{more} of `values`, expected all of them");
            self.require(false, "order", &problem);
            return None;
        }
        values.iter().map(|value| rank_of.get(value).copied()).collect()
    }

    fn unknown(&mut self, key: &str, value: &str, values: &[String]) {
        let fault = self.fault(key, &format!("names `{value}`, which is not one of `values`"));
        // Nobody reads further hints, and looking for them takes its time.
        let few = self.faults.len() < MOST_FAULTS;
        let known = values.iter().map(String::as_str).take(if few { usize::MAX } else { 0 });
        self.faults.push(match did_you_mean(value, known) {
            Some(hint) => fault.hint(hint),
            None => fault,
        });
    }

    fn require(&mut self, condition: bool, key: &str, problem: &str) {
        if !condition {
            let fault = self.fault(key, problem);
            self.faults.push(fault);
        }
    }

    fn fault(&self, key: &str, problem: &str) -> Fault {
        self.positions.fault(&format!("feature[{}].{key}", self.name), problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FeatureSchema> {
        FeatureSchema::parse(text, Path::new("f.toml"))
    }

    #[test]
    fn a_schema_is_resolved_with_its_defaults() {
        let schema = parse(
            r#"
            [[feature]]
            name = "age"
            kind = "numeric"
            range = [18, 95]
            change = "increase"
            limit = { up = 0.2, unit = "share" }
            [[feature]]
            name = "job"
            kind = "categorical"
            values = ["clerk", 7, true]
            allowed = ["clerk"]
            "#,
        )
        .expect("a good schema");
        let age = schema.get("age").and_then(Feature::numeric).expect("numeric");
        assert_eq!(age.range, Some((18.0, 95.0)));
        assert_eq!(age.limit, Some(Limit { down: 1.0, up: 0.2, share: true }));
        let job = schema.get("job").and_then(Feature::categorical).expect("categorical");
        assert_eq!(job.values, ["clerk", "7", "true"]);
        assert_eq!(job.allowed, [true, false, false]);
        assert_eq!(schema.features[1].nulls, NullPolicy::Reject);
    }

    #[test]
    fn every_fault_of_a_schema_is_listed() {
        let error = parse(
            r#"
[[feature]]
name = "age"
kind = "numeric"
range = [95, 18]
step = 0
values = ["a"]
nulls = "fill"
[[feature]]
name = "age"
kind = "categorical"
change = "increase"
values = ["clerk", "clerk"]
allowed = ["clark"]
"#,
        )
        .expect_err("full of faults")
        .to_string();
        for expected in [
            "f.toml:5: `feature[age].range` is [95, 18], expected its lower end first",
            "`feature[age].step` is 0, expected more than 0",
            "`feature[age].values` has no meaning for a numeric feature",
            "`feature[age].fill` is missing",
            "`feature[age].name` stands for two features",
            "`feature[age].change` has a direction",
            "`feature[age].values` names a value twice",
            "`feature[age].allowed` names `clark`, which is not one of `values`\n  hint: did you mean `clerk`?",
        ] {
            assert!(error.contains(expected), "{expected}\nnot in\n{error}");
        }
    }

    #[test]
    fn an_order_gives_ranks_and_makes_directions_possible() {
        let text = |lists: &str| {
            format!(
                "[[feature]]\nname = \"size\"\nkind = \"categorical\"\nchange = \"increase\"\n{lists}\n"
            )
        };
        let of = |lists: &str| parse(&text(lists)).expect("a good schema").features.remove(0);
        let size = of(r#"order = ["low", "mid", "high"]"#);
        let size = size.categorical().expect("categorical");
        assert_eq!(size.values, ["low", "mid", "high"]);
        assert_eq!(size.ranks, Some(vec![0, 1, 2]));
        let size = of("values = [\"high\", \"low\", 3]\norder = [\"low\", 3, \"high\"]");
        let size = size.categorical().expect("categorical");
        assert_eq!((size.values[0].as_str(), &size.ranks), ("high", &Some(vec![2, 0, 1])));
        assert_eq!((size.ranks_up(1, 0), size.ranks_up(0, 2)), (Some(2), Some(-1)));
        assert_eq!(size.ranks_up(1, 9), None);
    }

    #[test]
    fn an_order_that_is_none_is_refused() {
        let faults = |keys: &str| {
            let text = format!("[[feature]]\nname = \"size\"\nkind = {keys}\n");
            parse(&text).expect_err("no order").to_string()
        };
        let categorical = |order: &str| {
            faults(&format!("\"categorical\"\nvalues = [\"s\", \"m\", \"l\"]\norder = {order}"))
        };
        let error = categorical("[\"s\"]");
        assert!(
            error.contains("`feature[size].order` misses `m` and 1 more of `values`"),
            "{error}"
        );
        let error = categorical("[\"s\", \"m\", \"l\", \"m\"]");
        assert!(error.contains("`feature[size].order` names `m` twice"), "{error}");
        let error = categorical("[\"s\", \"m\", \"l\", \"xl\"]");
        assert!(error.contains("names `xl`, which is not one of `values`"), "{error}");
        let error = faults("\"numeric\"\norder = [1, 2]");
        assert!(error.contains("`feature[size].order` has no meaning for a numeric"), "{error}");
        let error = faults("\"categorical\"\nvalues = [\"s\"]\nchange = \"decrease\"");
        assert!(
            error.contains("has a direction, but a categorical feature has no order"),
            "{error}"
        );
        assert!(error.contains("hint: give it one: `order = ["), "{error}");
    }
}
