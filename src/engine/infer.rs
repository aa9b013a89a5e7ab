//! A first version of a feature schema, as TOML with comments, from what was seen in the columns of a table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::profile::{ColumnProfile, MOST_LISTED, ProfileOptions, profile};
use super::session::Engine;
use super::table::Table;
use crate::document::{toml_number, toml_text};
use crate::error::Result;
use crate::feature::{ColumnClass, type_name};

/// How a schema is inferred.
#[derive(Debug, Clone, Default)]
pub struct InferOptions {
    /// More distinct texts than this are not a category.
    pub max_categories: usize,
    /// Columns to leave out (keys, labels, splits), each with the reason.
    pub ignore: BTreeMap<String, String>,
    /// Columns that the model takes: identifiers and many categories are features, too.
    pub needed: BTreeSet<String>,
    /// Those of them that are categories whatever their type.
    pub categories: BTreeSet<String>,
    /// Categories in the order of their codes, by the feature they belong to where that is known.
    pub orders: Vec<(Option<String>, Vec<String>)>,
}

impl InferOptions {
    /// What has to be known of the columns.
    pub fn profile(&self) -> ProfileOptions {
        ProfileOptions {
            ignore: self.ignore.keys().cloned().collect(),
            max_categories: self.max_categories,
            list: self.needed.iter().cloned().collect(),
            codes: self.categories.iter().cloned().collect(),
        }
    }

    /// More texts than this are not a category of that column.
    fn most_categories(&self, name: &str) -> usize {
        if self.needed.contains(name) { MOST_LISTED } else { self.max_categories }
    }

    fn class(&self, column: &ColumnProfile) -> Option<ColumnClass> {
        let category = self.categories.contains(&column.name);
        if category { Some(ColumnClass::Text) } else { column.class }
    }
}

/// An inferred schema.
#[derive(Debug, Clone)]
pub struct Inferred {
    /// TOML with comments.
    pub text: String,
    /// Columns that became features, in the table's order.
    pub features: Vec<String>,
    /// Columns that were left out, with the reason.
    pub left_out: Vec<(String, String)>,
}

/// What a column becomes.
enum InferredColumn {
    Feature(String),
    LeftOut(String),
}

/// Infers a schema for all columns of a table.
///
/// # Errors
/// When the table has no rows, or cannot be read.
pub async fn infer(engine: &Engine, table: &Table, options: &InferOptions) -> Result<Inferred> {
    let profiles = profile(engine, table, &options.profile()).await?;
    Ok(infer_from(table, &profiles, options))
}

/// The same from what was seen in the columns already.
pub fn infer_from(table: &Table, profiles: &[ColumnProfile], options: &InferOptions) -> Inferred {
    let by_name: BTreeMap<&str, &ColumnProfile> =
        profiles.iter().map(|profile| (profile.name.as_str(), profile)).collect();
    let mut inferred = Inferred { text: header(table), features: Vec::new(), left_out: Vec::new() };
    for field in table.schema.fields() {
        let name = field.name();
        let verdict = match (options.ignore.get(name), by_name.get(name.as_str())) {
            (Some(reason), _) => InferredColumn::LeftOut(reason.clone()),
            (None, Some(profile)) => verdict(profile, options),
            (None, None) => continue,
        };
        match verdict {
            InferredColumn::Feature(entry) => {
                inferred.features.push(name.clone());
                inferred.text.push_str(&entry);
            }
            InferredColumn::LeftOut(reason) => {
                let _ = write!(inferred.text, "\n# `{name}` is no feature: {reason}\n");
                inferred.left_out.push((name.clone(), reason));
            }
        }
    }
    inferred
}

fn header(table: &Table) -> String {
    format!(
        "# Feature schema, first version, inferred from {} rows of {}.\n\
         # Now say what people can change: `change = \"never\"` for what nobody can or should (sex, place\n\
         # of birth), `\"increase\"` or `\"decrease\"` for what moves one way (age), and tighten `range`,\n\
         # `step`, `limit` and `allowed`. Columns that are not features here are ignored.\n",
        table.rows, table.shown
    )
}

/// What becomes of a column.
fn verdict(column: &ColumnProfile, options: &InferOptions) -> InferredColumn {
    let Some(class) = options.class(column).filter(|_| column.class.is_some()) else {
        let reason = format!("its type, {}, is not supported", type_name(&column.data_type));
        return InferredColumn::LeftOut(reason);
    };
    if column.values == 0 {
        return InferredColumn::LeftOut("every value is null".to_string());
    }
    if column.is_constant() {
        return InferredColumn::Feature(constant(column, class));
    }
    let needed = options.needed.contains(&column.name);
    match class {
        ColumnClass::Text | ColumnClass::Boolean => categorical(column, options),
        ColumnClass::Integer if column.is_identifier() && !needed => {
            let reason = "nearly every value is different, so it looks like an identifier";
            let reason = format!("{reason} (declare it by hand if it is a measurement)");
            InferredColumn::LeftOut(reason)
        }
        ColumnClass::Integer | ColumnClass::Fraction | ColumnClass::Time => {
            InferredColumn::Feature(numeric(column, class))
        }
    }
}

fn too_many(found: &str, guard: usize) -> InferredColumn {
    let reason = format!("{found} different texts are too many for a category (limit {guard})");
    InferredColumn::LeftOut(format!("{reason}; it may be an identifier or free text"))
}

fn numeric(column: &ColumnProfile, class: ColumnClass) -> String {
    let mut entry = entry_head(column, "numeric");
    if let Some([min, max]) = &column.extremes {
        let _ = writeln!(entry, "range = [{min}, {max}] # observed");
    }
    match class {
        ColumnClass::Integer => {
            entry.push_str("type = \"integer\"\n");
        }
        ColumnClass::Time => {
            let unit = type_name(&column.data_type);
            let _ = writeln!(entry, "# {unit}, as a number in its own unit");
        }
        _ => {}
    }
    let finer = |step: &f64| class != ColumnClass::Integer || *step > 1.0;
    if let Some(step) = column.step.filter(finer).map(toml_number) {
        let _ = writeln!(
            entry,
            "# nearly all values are multiples of {step}, and so will counterfactual values be; for others:\n\
             # step = {step} # counted from the row's own value, or grid = \"none\""
        );
    }
    if column.is_code() {
        entry.push_str(&codes(column.listed.clone().unwrap_or_default()));
    }
    entry
}

/// A column that has one value only: the model may take it, and nothing can change in it.
fn constant(column: &ColumnProfile, class: ColumnClass) -> String {
    let value = column.extremes.as_ref().map_or("", |[min, _]| min);
    let (kind, line) = match class {
        ColumnClass::Text | ColumnClass::Boolean => {
            ("categorical", format!("values = [{}]", category(column, value)))
        }
        _ => ("numeric", format!("range = [{value}, {value}] # observed")),
    };
    let entry = entry_head(column, kind);
    let reason = "# constant: kept because a model that was trained with it needs it";
    let entry = entry.replace("change = \"any\"\n", &format!("change = \"never\" {reason}\n"));
    let integer = if class == ColumnClass::Integer { "type = \"integer\"\n" } else { "" };
    format!("{entry}{line}\n{integer}")
}

/// What to say of a column whose values may be codes.
fn codes(mut values: Vec<String>) -> String {
    sort_as_numbers(&mut values);
    format!(
        "# only {} different values; if they are codes, not amounts, write instead:\n\
         # kind = \"categorical\"\n# values = [{}]\n",
        values.len(),
        values.join(", ")
    )
}

fn sort_as_numbers(values: &mut [String]) {
    values.sort_by_key(|value| value.parse::<i128>().unwrap_or(i128::MAX));
}

fn categorical(column: &ColumnProfile, options: &InferOptions) -> InferredColumn {
    let guard = options.most_categories(&column.name);
    let Some(mut values) = column.listed.clone() else {
        let found = column.distinct.map_or("very many".to_string(), |many| format!("about {many}"));
        return too_many(&found, guard);
    };
    if values.len() > guard {
        return too_many(&format!("more than {guard}"), guard);
    }
    if column.class == Some(ColumnClass::Integer) {
        sort_as_numbers(&mut values);
    }
    let mut entry = entry_head(column, "categorical");
    if let Some(order) = known_order(column, &values, &options.orders) {
        values.clone_from(order);
        entry.push_str("# in the order of the model's codes\n");
    }
    let list: Vec<String> = values.iter().map(|value| category(column, value)).collect();
    let _ = writeln!(entry, "values = [{}]", list.join(", "));
    InferredColumn::Feature(entry)
}

/// The order that a model tells of these values.
fn known_order<'o>(
    column: &ColumnProfile,
    values: &[String],
    orders: &'o [(Option<String>, Vec<String>)],
) -> Option<&'o Vec<String>> {
    let same = |order: &&Vec<String>| {
        let mut sorted = (*order).clone();
        sorted.sort_unstable();
        sorted == values
    };
    let is_of_column =
        |feature: &Option<String>| feature.as_ref().is_none_or(|name| *name == column.name);
    let orders = orders.iter().filter(|(feature, _)| is_of_column(feature)).map(|(_, order)| order);
    orders.into_iter().find(same)
}

/// A value of a category as it is written: only texts have quotes.
fn category(column: &ColumnProfile, value: &str) -> String {
    match column.class {
        Some(ColumnClass::Boolean | ColumnClass::Integer) => value.to_string(),
        _ => toml_text(value),
    }
}

fn entry_head(column: &ColumnProfile, kind: &str) -> String {
    let mut entry = format!(
        "\n[[feature]]\nname = {}\nkind = \"{kind}\"\nchange = \"any\"\n",
        toml_text(&column.name)
    );
    let nulls = column.rows - column.values;
    if nulls > 0 {
        let share = 100.0 * nulls as f64 / column.rows as f64;
        let _ = writeln!(
            entry,
            "nulls = \"carry\" # {nulls} nulls ({share:.2} %); or \"reject\", \"fill\""
        );
    }
    entry
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn categories_stand_in_the_order_of_the_models_codes() {
        let texts =
            |values: &[&str]| -> Vec<String> { values.iter().map(ToString::to_string).collect() };
        let column = ColumnProfile {
            name: "job".to_string(),
            data_type: DataType::Utf8,
            class: Some(ColumnClass::Text),
            rows: 9,
            values: 9,
            distinct: Some(3),
            extremes: Some(["clerk".to_string(), "pilot".to_string()]),
            step: None,
            listed: Some(texts(&["clerk", "nurse", "pilot"])),
        };
        let entry = |feature: Option<&str>, order: &[&str]| {
            let orders = vec![(feature.map(String::from), texts(order))];
            let options = InferOptions { max_categories: 9, orders, ..InferOptions::default() };
            match verdict(&column, &options) {
                InferredColumn::Feature(entry) => entry,
                InferredColumn::LeftOut(reason) => panic!("{reason}"),
            }
        };
        let model = "codes\nvalues = [\"pilot\", \"clerk\", \"nurse\"]\n";
        let alphabet = "values = [\"clerk\", \"nurse\", \"pilot\"]\n";
        for (feature, order, expected) in [
            (None, ["pilot", "clerk", "nurse"], model),
            (Some("job"), ["pilot", "clerk", "nurse"], model),
            (Some("home"), ["pilot", "clerk", "nurse"], alphabet),
            (None, ["pilot", "clerk", "poet"], alphabet),
        ] {
            let found = entry(feature, &order);
            assert!(found.ends_with(expected), "{found}");
        }
    }
}
