//! What counterfactuals keep to between features, as a table.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};

use crate::constrain::Observed;
use crate::error::{Error, Result};
use crate::feature::{Derived, FeatureSchema};
use crate::output::rules_schema;

/// The rules of a schema and those observed in training rows.
///
/// # Errors
/// Only if there is a bug.
pub fn rules(schema: &FeatureSchema, observed: &Observed) -> Result<RecordBatch> {
    let derived = |of: &Derived| format!("{} = {}", schema.features[of.feature].name, of.text);
    let mut rows: Vec<[String; 3]> = Vec::new();
    let mut add = |source: &str, kind: &str, text: String| {
        rows.push([source.to_string(), kind.to_string(), text]);
    };
    schema.rules.iter().for_each(|rule| add("schema", "rule", rule.text.clone()));
    schema.derived.iter().for_each(|of| add("schema", "derived", derived(of)));
    for (kind, text) in observed.texts() {
        add("observed", kind, text);
    }
    let column = |index: usize| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row[index])))
    };
    RecordBatch::try_new(rules_schema(), (0..3).map(column).collect())
        .map_err(|error| Error::internal("reports", "columns do not fit").source(error))
}
