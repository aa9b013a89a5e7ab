//! Names and schemas of what a run writes. The one place that knows a file name.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use serde_json::{Value, json};

use super::audit_tables::{
    audit_at_bound_schema, audit_changes_schema, audit_curves_schema, audit_gaps_schema,
    audit_groups_schema,
};
use super::question_tables::{
    action_sets_schema, actions_schema, binding_schema, explicit_schema, reason_counts_schema,
    reasons_schema, responsiveness_schema, robustness_schema, second_search_schema,
};
use super::report_tables::{
    agreement_schema, coverage_schema, features_schema, mmd_schema, plausibility_schema,
    robust_schema, rules_schema, sparsity_schema, survival_schema, training_schema,
    validity_schema,
};
use super::stability_tables::{audit_stability_schema, stability_schema};
use crate::error::{Error, Result};

/// Written last: its presence says that a folder is a whole run's result.
pub const SUCCESS_FILE: &str = "_SUCCESS";
/// What the run was, and what it wrote.
pub const MANIFEST_FILE: &str = "manifest.json";
/// Folder of the score table.
pub const SCORES: &str = "scores";
/// Folder of the rows that were set aside.
pub const REJECTS: &str = "rejects";

/// Folder of the fitted generator.
pub const GENERATOR: &str = "generator";
/// Folder of the reports.
pub const REPORTS: &str = "reports";
/// The training curve, among the reports.
pub const TRAINING_REPORT: &str = "training.parquet";
/// Folder of the counterfactual table.
pub const COUNTERFACTUALS: &str = "counterfactuals";
/// What is finished of a run that is not, a line each; beside the run's folder, never in it.
pub const JOURNAL_FILE: &str = "journal.jsonl";

/// Path of a report.
pub fn report_name(report: &str) -> String {
    format!("{REPORTS}/{report}.parquet")
}

/// Path of a table's part, by the number of its split, or of the partition that wrote it.
pub fn part_name(table: &str, number: usize) -> String {
    format!("{table}/part-{number:05}.parquet")
}

/// Path of a further file of a part, where its rows go to more folders than files can be open at once.
pub(super) fn further_part_name(table: &str, partition: usize, round: usize) -> String {
    format!("{table}/part-{partition:05}-{round}.parquet")
}

/// Whether a path is of a table's part.
pub fn is_part(path: &str, partition: usize) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let rest = name.strip_prefix(&format!("part-{partition:05}"));
    rest.is_some_and(|rest| rest == ".parquet" || rest.starts_with('-'))
}

/// The score table of a classifier: key columns, `class`, and `score_<class>` for each class if the model
/// gives probabilities. Of a regression: key columns and `value`.
pub fn score_schema(
    key: &[FieldRef],
    classes: Option<&[String]>,
    probabilities: bool,
) -> SchemaRef {
    let mut fields = key.to_vec();
    match classes {
        Some(classes) => {
            fields.push(text("class", "the model's decision"));
            let scored = classes.iter().filter(|_| probabilities);
            fields.extend(scored.map(|class| {
                number(&format!("score_{class}"), "the model's probability of the class")
            }));
        }
        None => fields.push(number("value", "the model's value")),
    }
    Arc::new(Schema::new(fields))
}

/// The rows that were set aside: key columns, `reason`, `detail`.
pub fn rejects_schema(key: &[FieldRef]) -> SchemaRef {
    let mut fields = key.to_vec();
    fields.push(described(
        "reason",
        DataType::Utf8,
        Nulls::Never,
        "null, infinite, outside_range, unseen_category, predictor_failed or no_target",
    ));
    fields.push(described(
        "detail",
        DataType::Utf8,
        Nulls::Never,
        "which column, and what was found",
    ));
    Arc::new(Schema::new(fields))
}

/// Whether a column can be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nulls {
    Never,
    Possible,
}

/// A column that says what it is: the description travels with the files.
pub(super) fn described(name: &str, data_type: DataType, nulls: Nulls, meaning: &str) -> FieldRef {
    let metadata = [("description".to_string(), meaning.to_string())].into();
    Arc::new(Field::new(name, data_type, nulls == Nulls::Possible).with_metadata(metadata))
}

pub(super) fn number(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Float64, Nulls::Never, meaning)
}

pub(super) fn maybe_number(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Float64, Nulls::Possible, meaning)
}

pub(super) fn count(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Int64, Nulls::Never, meaning)
}

pub(super) fn maybe_count(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Int64, Nulls::Possible, meaning)
}

pub(super) fn text(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Utf8, Nulls::Never, meaning)
}

/// The column of tables that says which method's rows are which.
pub const METHOD: &str = "method";

/// The column of the counterfactual table that says whether a row is the same as another night.
pub const ROW_HASH: &str = "row_hash";

/// What one change is.
pub fn change_fields() -> Fields {
    let field = |name| Field::new(name, DataType::Utf8, false);
    Fields::from(vec![field("feature"), field("from"), field("to")])
}

/// An item of the list of changes.
pub fn change_item() -> FieldRef {
    Arc::new(Field::new("item", DataType::Struct(change_fields()), false))
}

/// The counterfactual table: key columns, the target, what came of it, what changes, and the whole
/// counterfactual as `cf_<feature>` in the input's own types.
pub fn counterfactual_schema(
    key: &[FieldRef],
    features: &[FieldRef],
    regression: bool,
) -> SchemaRef {
    let mut fields = key.to_vec();
    fields.push(text(METHOD, "the method, as `explain.method` names it"));
    fields.push(described(
        "sample",
        DataType::Int32,
        Nulls::Never,
        "number of the counterfactual within its row and method, from 0",
    ));
    fields.push(text("target", "the target class, or range of values"));
    push_predictions(&mut fields, regression);
    push_outcome(&mut fields);
    push_changes(&mut fields);
    fields.extend(features.iter().map(|feature| {
        let name = format!("cf_{}", feature.name());
        described(&name, feature.data_type().clone(), Nulls::Possible, "the counterfactual's value")
    }));
    Arc::new(Schema::new(fields))
}

/// What the model says of a row and of its counterfactual.
fn push_predictions(fields: &mut Vec<FieldRef>, regression: bool) {
    if regression {
        fields.push(number("original_value", "the model's value for the row"));
        fields.push(original_score());
        fields.push(maybe_number("cf_value", "the model's value for the counterfactual"));
    } else {
        fields.push(text("original_class", "the model's decision about the row"));
        fields.push(original_score());
        let meaning = "the model's decision about the counterfactual; null if it gave none";
        fields.push(described("cf_class", DataType::Utf8, Nulls::Possible, meaning));
    }
    fields.push(maybe_number(
        "cf_score",
        "probability of the target class for the counterfactual, if the model gives probabilities",
    ));
    fields.push(maybe_number(
        "margin",
        "how far inside the target a valid counterfactual is, from 0.5 at the border to 1; null if unknown",
    ));
}

/// What became of a row.
fn push_outcome(fields: &mut Vec<FieldRef>) {
    fields.push(text("status", "solved, unsolved, already_target or infeasible"));
    fields.push(described(
        "source",
        DataType::Utf8,
        Nulls::Possible,
        "what found the counterfactual: generator, candidate, neighbour, or the method's name; null if not solved",
    ));
    fields.push(described(
        "rule",
        DataType::Utf8,
        Nulls::Possible,
        "`lore`: the local rule that the counterfactual follows from; null for other methods",
    ));
    fields.push(described(
        "valid",
        DataType::Boolean,
        Nulls::Never,
        "whether the model's decision about the counterfactual is the target",
    ));
    fields.push(described(
        "queries",
        DataType::Int32,
        Nulls::Never,
        "times that the model was asked about counterfactuals of the row",
    ));
    fields.push(described(
        "certified",
        DataType::Boolean,
        Nulls::Never,
        "true if every allowed change was tried or excluded and none reaches the target",
    ));
    fields.push(described(
        "robust",
        DataType::Int32,
        Nulls::Possible,
        "models of `robust.models` that predict the target for the counterfactual; null without such models, or if not solved",
    ));
    fields.push(maybe_number(
        "robustness_cost",
        "what it costs more than the cheapest counterfactual that was seen and that too few of `robust.models` accept; null where too few accept this one",
    ));
}

/// What changes, and how much.
fn push_changes(fields: &mut Vec<FieldRef>) {
    fields.push(maybe_number(
        "cost",
        "what the changes cost, as refinement counts it; null if not solved",
    ));
    fields.push(number("l0", "changed categorical features ÷ categorical features"));
    fields.push(number("l1", "mean |Δ| over standardised numeric features"));
    fields.push(described("n_changed", DataType::Int32, Nulls::Never, "changed features"));
    fields.push(maybe_number(
        "plausibility",
        "share of held-out rows that are at least as far from training rows: 1 is near; null if not solved",
    ));
    fields.push(described(
        ROW_HASH,
        DataType::Int64,
        Nulls::Never,
        "hash of the row's features, its own bounds and target: another where any of them is",
    ));
    fields.push(described(
        "changes",
        DataType::List(change_item()),
        Nulls::Never,
        "what changes: feature, from, to",
    ));
}

/// Written for regressions too, so that all tables have the same columns.
fn original_score() -> FieldRef {
    maybe_number(
        "original_score",
        "probability of the target for the original; null for regressions, models without probabilities, and decisions from a score table",
    )
}

/// Refuses key columns with names that tables have themselves.
///
/// # Errors
/// Names the first of them.
pub fn refuse_taken(key: &[FieldRef], schemas: &[&SchemaRef]) -> Result<()> {
    let taken = |field: &&FieldRef| {
        let fields_of_table = schemas.iter().flat_map(|schema| &schema.fields()[key.len()..]);
        fields_of_table.into_iter().any(|fields_of_table| fields_of_table.name() == field.name())
    };
    match key.iter().find(taken) {
        None => Ok(()),
        Some(field) => {
            let problem = format!("names `{}`, a column that the output has itself", field.name());
            Err(Error::spec("input.key", problem).hint("rename the column in the table"))
        }
    }
}

/// Columns beside the key that may become folders: those with few values.
const FOLDER_COLUMNS: [&str; 8] =
    ["method", "sample", "target", "original_class", "cf_class", "status", "source", "valid"];

/// Refuses columns that cannot become folders.
///
/// # Errors
/// Names the first of them.
pub fn refuse_folders(key: &[FieldRef], by: &[String]) -> Result<()> {
    let mut known: Vec<&str> = key.iter().map(|field| field.name().as_str()).collect();
    known.extend(FOLDER_COLUMNS);
    for (position, name) in by.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            let problem = format!("names `{name}`, expected one of {}", known.join(", "));
            return Err(Error::spec("output.partition_by", problem));
        }
        if by[..position].contains(name) {
            return Err(Error::spec("output.partition_by", format!("names `{name}` twice")));
        }
    }
    Ok(())
}

/// Every table with its columns, for `schemas/tables.json`.
pub fn describe_tables() -> Value {
    let stand_in =
        |name: &str, meaning: &str| described(name, DataType::Null, Nulls::Never, meaning);
    let key = [stand_in("<key>", "the key columns, in the input's own types")];
    let features = [stand_in("<feature>", "")];
    let by = ["<by>".to_string()];
    let classes = ["<class>".to_string()];
    let tables: [(&str, SchemaRef); 32] = [
        ("counterfactuals", counterfactual_schema(&key, &features, false)),
        ("counterfactuals of a regression", counterfactual_schema(&key, &features, true)),
        ("rejects", rejects_schema(&key)),
        ("scores", score_schema(&key, Some(&classes), true)),
        ("scores of a regression", score_schema(&key, None, false)),
        ("reports/coverage", coverage_schema(&by)),
        ("reports/validity", validity_schema(&by)),
        ("reports/sparsity", sparsity_schema(&by)),
        ("reports/plausibility", plausibility_schema(&by)),
        ("reports/features", features_schema(&by)),
        ("reports/mmd", mmd_schema(&by)),
        ("reports/agreement", agreement_schema()),
        ("reports/rules", rules_schema()),
        ("reports/survival", survival_schema()),
        ("reports/robust", robust_schema(&by)),
        ("reports/stability", stability_schema(&key)),
        ("reports/training", training_schema()),
        ("reports/audit/groups", audit_groups_schema()),
        ("reports/audit/curves", audit_curves_schema()),
        ("reports/audit/gaps", audit_gaps_schema()),
        ("reports/audit/changes", audit_changes_schema()),
        ("reports/audit/at_bound", audit_at_bound_schema()),
        ("reports/audit/actions", actions_schema()),
        ("reports/audit/action_sets", action_sets_schema()),
        ("reports/audit/binding", binding_schema()),
        ("reports/audit/responsiveness", responsiveness_schema()),
        ("reports/audit/robustness", robustness_schema()),
        ("reports/audit/explicit", explicit_schema()),
        ("reports/audit/second_search", second_search_schema()),
        ("reports/audit/reason_counts", reason_counts_schema()),
        ("reports/reasons", reasons_schema(&key)),
        ("reports/audit/stability", audit_stability_schema()),
    ];
    let column = |field: &FieldRef| {
        let data_type = type_name(field.data_type());
        json!({
            "name": field.name(),
            "type": data_type,
            "nullable": field.is_nullable(),
            "description": field.metadata().get("description"),
        })
    };
    let described = |(name, schema): &(&str, SchemaRef)| {
        (name.to_string(), schema.fields().iter().map(column).collect::<Value>())
    };
    tables.iter().map(described).collect::<serde_json::Map<String, Value>>().into()
}

fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "as in the input".to_string(),
        DataType::List(item) => format!("List({})", type_name(item.data_type())),
        DataType::Struct(fields) => {
            let part = |part: &FieldRef| format!("{} {}", part.name(), type_name(part.data_type()));
            format!("Struct({})", fields.iter().map(part).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
