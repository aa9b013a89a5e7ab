//! What columns are that are neither key nor, perhaps, feature: the label, and what divides reports.

use std::collections::BTreeMap;

use super::inputs::ModelInputs;
use super::{Guess, InitTable};
use crate::engine::ColumnProfile;
use crate::feature::ColumnClass;
use crate::output::report_columns;
use crate::predictor::Task;

/// Names of labels.
const LABEL_NAMES: [&str; 9] =
    ["label", "labels", "target", "class", "outcome", "response", "decision", "y", "target_label"];

/// Names of columns by which reports are usually divided, in the order in which they are taken.
const SEGMENT_NAMES: [&str; 12] = [
    "region",
    "country",
    "state",
    "sex",
    "gender",
    "segment",
    "age_group",
    "branch",
    "channel",
    "product",
    "group",
    "category",
];

/// Values of a column that divides reports, at most.
const MOST_SEGMENTS: usize = 12;
/// Further columns that are named, at most.
const MOST_NAMED: usize = 5;

/// The column with what the model was trained to predict, if it can be told.
pub(super) fn find_label(
    source: &InitTable<'_>,
    inputs: &ModelInputs,
    (task, ignore): (&Task, &BTreeMap<String, String>),
) -> Option<Guess<String>> {
    let taken = inputs.taken();
    let free = |column: &&ColumnProfile| {
        let name = column.name.as_str();
        !ignore.contains_key(name) && taken.as_ref().is_none_or(|taken| !taken.contains(name))
    };
    let free: Vec<&ColumnProfile> = source.profiles.iter().filter(free).collect();
    let Task::Classification { classes, .. } = task else {
        let label = free.iter().find(|column| is_named_like_label(column) && is_number(column))?;
        let why = format!("`{}` is named like a label", label.name);
        return Some(Guess { value: label.name.clone(), why: Some(why) });
    };
    let labels: Vec<&&ColumnProfile> =
        free.iter().filter(|column| holds_classes(column, classes)).collect();
    let named = labels.iter().find(|column| is_named_like_label(column));
    // Zeros and ones are the values of many columns.
    let certain = !inputs.takes_all() || classes.iter().any(|class| class.parse::<f64>().is_err());
    let label = match (named, &labels[..]) {
        (Some(label), _) => label,
        (None, [label]) if certain => label,
        _ => return None,
    };
    let why = format!("the values of `{}` are the model's classes", label.name);
    Some(Guess { value: label.name.clone(), why: Some(why) })
}

/// Whether a column is named as labels are.
pub(super) fn is_named_like_label(column: &ColumnProfile) -> bool {
    LABEL_NAMES.contains(&column.name.to_lowercase().as_str())
}

fn is_number(column: &ColumnProfile) -> bool {
    matches!(column.class, Some(ColumnClass::Integer | ColumnClass::Fraction))
}

/// Whether a column has at least two of the classes, and nothing else.
fn holds_classes(column: &ColumnProfile, classes: &[String]) -> bool {
    let digit = |value: &str| match value {
        "false" => "0".to_string(),
        "true" => "1".to_string(),
        value => value.to_string(),
    };
    let is_class = |value: &String| {
        let flag = column.class == Some(ColumnClass::Boolean);
        classes.contains(value) || (flag && classes.contains(&digit(value)))
    };
    column.listed.as_ref().is_some_and(|values| values.len() > 1 && values.iter().all(is_class))
}

/// A column by whose values reports are divided: one with few of them, by its name if there are several.
pub(super) fn guess_segments(
    profiles: &[ColumnProfile],
    key: &[String],
    label: Option<&Guess<String>>,
) -> Guess<Vec<String>> {
    let taken = report_columns();
    let candidates = |column: &&ColumnProfile| {
        let other =
            key.contains(&column.name) || label.is_some_and(|label| label.value == column.name);
        let category = matches!(column.class, Some(ColumnClass::Text | ColumnClass::Boolean));
        let few = column
            .listed
            .as_ref()
            .is_some_and(|values| (2..=MOST_SEGMENTS).contains(&values.len()));
        category && few && !other && !taken.contains(&column.name)
    };
    let candidates: Vec<&ColumnProfile> = profiles.iter().filter(candidates).collect();
    let by_name = SEGMENT_NAMES
        .iter()
        .find_map(|name| candidates.iter().find(|column| column.name.to_lowercase() == *name));
    let Some(column) = by_name.or(candidates.first()) else {
        let why = format!("no column has 2 to {MOST_SEGMENTS} different texts, or booleans");
        return Guess { value: Vec::new(), why: Some(why) };
    };
    let others: Vec<String> = candidates
        .iter()
        .filter(|other| other.name != column.name)
        .map(|other| format!("`{}`", other.name))
        .take(MOST_NAMED)
        .collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!("; so could be {}", others.join(", "))
    };
    let count = column.listed.as_ref().map_or(0, Vec::len);
    let why = format!("`{}` has only {count} different values{others}", column.name);
    Guess { value: vec![column.name.clone()], why: Some(why) }
}
