//! Whether a feature schema and the Arrow schema of a table fit each other.

use std::collections::{HashMap, HashSet};

use arrow::datatypes::{DataType, Schema};

use super::column::{ColumnClass, classify, type_name};
use super::schema::{Feature, FeatureKind, FeatureSchema};
use crate::document::did_you_mean;
use crate::error::{Fault, MOST_FAULTS};

/// A column of the table that narrows a feature row by row: `<feature>__min` and its kin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowConstraint {
    /// Index of the feature.
    pub feature: usize,
    /// What the column holds.
    pub bound: Bound,
    /// The column's name.
    pub column: String,
}

/// What a per-row constraint column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Lowest value a counterfactual of this row may have.
    Min,
    /// Highest value.
    Max,
    /// Categories a counterfactual of this row may move to.
    Allowed,
}

const BOUNDS: [(&str, Bound); 3] =
    [("__min", Bound::Min), ("__max", Bound::Max), ("__allowed", Bound::Allowed)];

/// The per-row constraint columns that a table has for the features of a schema.
pub fn row_constraints(schema: &FeatureSchema, table: &Schema) -> Vec<RowConstraint> {
    let mut found = Vec::new();
    let columns: HashSet<&str> = table.fields().iter().map(|field| field.name().as_str()).collect();
    for (feature, name) in schema.names().enumerate() {
        for (suffix, bound) in BOUNDS {
            let column = format!("{name}{suffix}");
            if columns.contains(column.as_str()) {
                found.push(RowConstraint { feature, bound, column });
            }
        }
    }
    found
}

/// Columns that are named like constraints, of features that the schema does not have: what each is, in
/// words.
pub fn stray_constraints(schema: &FeatureSchema, table: &Schema) -> Vec<String> {
    let stem = |column: &str| {
        let mut stems = BOUNDS.iter().filter_map(|(suffix, _)| column.strip_suffix(suffix));
        stems.next().map(str::to_string)
    };
    let names: HashSet<&str> = schema.names().collect();
    let known = |name: &str| names.contains(name);
    let columns = table.fields().iter().map(|field| field.name());
    let strays = columns.filter(|column| !known(column)).filter_map(|column| {
        let stem = stem(column).filter(|stem| !known(stem))?;
        let hint = did_you_mean(&stem, schema.names());
        let hint = hint.map_or(String::new(), |hint| format!("; {hint}"));
        Some(format!("column `{column}` constrains nothing: there is no feature `{stem}`{hint}"))
    });
    strays.collect()
}

/// Everything in which schema and table disagree; `subject` names the table.
pub fn check_columns(schema: &FeatureSchema, table: &Schema, subject: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let columns: HashMap<&str, &DataType> =
        table.fields().iter().map(|field| (field.name().as_str(), field.data_type())).collect();
    for feature in &schema.features {
        match columns.get(feature.name.as_str()) {
            Some(found) => faults.extend(check_type(feature, found, subject)),
            // Nobody reads further hints, and looking for them takes its time.
            None if faults.len() >= MOST_FAULTS => {
                let problem = format!("has no column `{}`", feature.name);
                faults.push(Fault::new(subject, problem));
            }
            None => faults.push(missing_column(&feature.name, table, subject)),
        }
    }
    for constraint in row_constraints(schema, table) {
        faults.extend(check_constraint(schema, &constraint, table, subject));
    }
    faults
}

/// A column that a table lacks.
pub fn missing_column(name: &str, table: &Schema, subject: &str) -> Fault {
    let fault = Fault::new(subject, format!("has no column `{name}`"));
    let names = || table.fields().iter().map(|field| field.name().as_str());
    match did_you_mean(name, names()) {
        Some(hint) => fault.hint(hint),
        None => fault.hint(format!("its columns are {}", abridged(names(), 12))),
    }
}

fn abridged<'n>(names: impl Iterator<Item = &'n str>, most: usize) -> String {
    let all: Vec<&str> = names.collect();
    let shown =
        all.iter().take(most).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if all.len() > most { format!("{shown} and {} more", all.len() - most) } else { shown }
}

fn check_type(feature: &Feature, found: &DataType, subject: &str) -> Option<Fault> {
    use ColumnClass::*;
    let class = classify(found);
    let name = &feature.name;
    let (expected, fits, hint) = match &feature.kind {
        FeatureKind::Numeric(_) => (
            "a number, date or timestamp for a numeric feature",
            matches!(class, Some(Integer | Fraction | Time)),
            match class {
                Some(Text | Boolean) => format!(
                    "store it as `CAST(\"{name}\" AS DOUBLE)`, or declare the feature `categorical`"
                ),
                _ => "leave the column out of the schema, or store it as numbers".to_string(),
            },
        ),
        FeatureKind::Categorical(_) => (
            "text, boolean or whole numbers for a categorical feature",
            matches!(class, Some(Text | Boolean | Integer)),
            match class {
                Some(_) => format!(
                    "store it as `CAST(\"{name}\" AS VARCHAR)`, or declare the feature `numeric`"
                ),
                None => "leave the column out of the schema, or store it as text".to_string(),
            },
        ),
    };
    let problem = format!("column `{name}` is {}, expected {expected}", type_name(found));
    (!fits).then(|| Fault::new(subject, problem).hint(hint))
}

fn check_constraint(
    schema: &FeatureSchema,
    constraint: &RowConstraint,
    table: &Schema,
    subject: &str,
) -> Option<Fault> {
    let feature = &schema.features[constraint.feature];
    let found = table.field_with_name(&constraint.column).ok()?.data_type();
    let numeric = matches!(
        classify(found),
        Some(ColumnClass::Integer | ColumnClass::Fraction | ColumnClass::Time)
    );
    let (expected, fits) = match (constraint.bound, feature.numeric().is_some()) {
        (Bound::Min | Bound::Max, true) => ("a number, date or timestamp", numeric),
        (Bound::Allowed, false) => ("a list of text", is_text_list(found)),
        (Bound::Min | Bound::Max, false) => {
            ("no such column, since the feature is categorical", false)
        }
        (Bound::Allowed, true) => ("no such column, since the feature is numeric", false),
    };
    let problem =
        format!("column `{}` is {}, expected {expected}", constraint.column, type_name(found));
    (!fits).then(|| {
        Fault::new(subject, problem)
            .hint(format!("columns named `{}__…` constrain that feature row by row", feature.name))
    })
}

fn is_text_list(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) => {
            classify(item.data_type()) == Some(ColumnClass::Text)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use arrow::datatypes::Field;

    use super::*;

    fn schema() -> FeatureSchema {
        let text = "[[feature]]\nname = \"age\"\nkind = \"numeric\"\n\
                    [[feature]]\nname = \"job\"\nkind = \"categorical\"\nvalues = [\"a\"]\n";
        FeatureSchema::parse(text, Path::new("f.toml")).expect("a good schema")
    }

    fn table(columns: &[(&str, DataType)]) -> Schema {
        let field = |(name, kind): &(&str, DataType)| Field::new(*name, kind.clone(), true);
        Schema::new(columns.iter().map(field).collect::<Vec<_>>())
    }

    fn faults(columns: &[(&str, DataType)]) -> Vec<String> {
        let faults = check_columns(&schema(), &table(columns), "t.parquet");
        faults
            .iter()
            .map(|fault| format!("{fault} / {}", fault.hint.as_deref().unwrap_or("")))
            .collect()
    }

    #[test]
    fn every_supported_type_is_taken() {
        use DataType::*;
        let texts = [
            Utf8,
            LargeUtf8,
            Utf8View,
            Dictionary(Box::new(Int8), Box::new(Utf8)),
            Boolean,
            UInt16,
        ];
        for job in texts {
            assert!(faults(&[("age", Int32), ("job", job.clone())]).is_empty(), "{job}");
        }
        let times = [Date32, Date64, Timestamp(TimeUnit::Microsecond, Some("UTC".into()))];
        for age in times.into_iter().chain([Float16, Float64, UInt64, Decimal128(10, 2)]) {
            assert!(faults(&[("age", age.clone()), ("job", Utf8)]).is_empty(), "{age}");
        }
    }
    use arrow::datatypes::TimeUnit;

    #[test]
    fn missing_columns_and_wrong_types_are_named_together() {
        let found = faults(&[("agee", DataType::Int32), ("job", DataType::Float64)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("t.parquet: has no column `age` / did you mean `agee`?"),
            "{found:?}"
        );
        assert!(found[1].contains("column `job` is float64, expected text"), "{found:?}");
        let found = faults(&[("age", DataType::Utf8), ("job", DataType::Binary)]);
        assert!(found[0].contains("column `age` is text, expected a number"), "{found:?}");
        assert!(found[0].contains("CAST(\"age\" AS DOUBLE)"), "{found:?}");
        assert!(found[1].contains("column `job` is binary"), "{found:?}");
    }

    #[test]
    fn constraint_columns_are_found_and_checked() {
        let list = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
        let good = [
            ("age", DataType::Int32),
            ("job", DataType::Utf8),
            ("age__max", DataType::Float64),
            ("job__allowed", list),
        ];
        assert!(faults(&good).is_empty());
        let found = row_constraints(&schema(), &table(&good));
        assert_eq!(
            found.iter().map(|found| found.bound).collect::<Vec<_>>(),
            [Bound::Max, Bound::Allowed]
        );
        let bad = faults(&[
            ("age", DataType::Int32),
            ("job", DataType::Utf8),
            ("job__min", DataType::Int8),
        ]);
        assert!(bad[0].contains("`job__min` is int8, expected no such column"), "{bad:?}");
    }
}
