//! What a column means (`spec` as typed, `schema` as meant), what was seen in it (`stats`), whether the
//! schema fits a table's Arrow types (`check`), which rows can be used under its policies (`validate`), and
//! those rows in plain memory (`rows`).

mod check;
mod column;
mod exact;
mod findings;
mod histogram;
mod json;
mod key;
mod multiples;
mod resolve_rules;
mod rows;
mod rule;
mod schema;
mod spec;
mod stats;
mod validate;

pub use check::{
    Bound, RowConstraint, check_columns, missing_column, row_constraints, stray_constraints,
};
pub use column::{
    CategoryIndex, ColumnClass, NULL_CODE, UNSEEN_CODE, classify, from_numbers, from_texts,
    numbers, type_name, whole_range,
};
pub(crate) use exact::{ExactSum, mean_and_squares};
pub use findings::Findings;
pub use key::key_hashes;
pub use multiples::Multiples;
pub use rows::{Cell, Cells, Edit, Edits, PARALLEL_ROWS, RowReader, RowWriter, Rows};
pub use rule::{
    ArithmeticOperator, BrokenPolicy, ComparisonOperator, Derived, NumberExpression, Rule,
    RuleFault, Truth, sql_name,
};
pub use schema::{Categorical, Feature, FeatureKind, FeatureSchema, Limit, Numeric, ReasonCode};
pub use spec::{
    Change, DerivedSpec, FeatureSpec, GridPolicy, LimitSpec, LimitUnit, NullPolicy, NumericType,
    OutsidePolicy, ReasonSpec, RuleSpec, SchemaSpec, UnseenPolicy,
};
pub use stats::{
    CategoricalStats, FeatureStats, NumericStats, QUANTILE_SHARES, Stats, StatsAccumulator,
};
pub use validate::{Reason, Reject, RowValidator, ValidatedRows};
