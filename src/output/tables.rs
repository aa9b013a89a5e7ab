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

/// Columns that reports have themselves, whatever the segments.
pub fn report_columns() -> Vec<String> {
    let reports = [
        coverage_schema,
        validity_schema,
        sparsity_schema,
        plausibility_schema,
        features_schema,
        mmd_schema,
        robust_schema,
    ];
    let names = |schema: SchemaRef| -> Vec<String> {
        schema.fields().iter().map(|field| field.name().clone()).collect()
    };
    reports.iter().flat_map(|report| names(report(&[]))).collect()
}

/// What the reports begin with: whose figures they are.
fn group_fields(by: &[String]) -> Vec<FieldRef> {
    let mut fields = vec![
        text(METHOD, "whose counterfactuals the figures are of; the published method comes first"),
        text("level", "all, target or segment: what the figures of the row are of"),
        described(
            "target",
            DataType::Utf8,
            Nulls::Possible,
            "the target class, or range of values; null at level `all`",
        ),
    ];
    let meaning = "the segment's value at level `segment`, else null";
    fields.extend(by.iter().map(|name| described(name, DataType::Utf8, Nulls::Possible, meaning)));
    fields
}

fn report(by: &[String], fields_of_table: Vec<FieldRef>) -> SchemaRef {
    let mut fields = group_fields(by);
    fields.extend(fields_of_table);
    Arc::new(Schema::new(fields))
}

/// Rows by status.
pub fn coverage_schema(by: &[String]) -> SchemaRef {
    let fields_of_table = vec![
        text("status", "as in the counterfactual table; `rejected` at level `all`"),
        described(
            "source",
            DataType::Utf8,
            Nulls::Possible,
            "as in the counterfactual table: `solved` has a row for each; null for other statuses",
        ),
        count("rows", "rows and targets with it"),
        number("share", "their share of those of the same level, target and segment"),
        count("queries", "times that the model was asked about their counterfactuals"),
        count("certified", "those that are proven infeasible"),
    ];
    report(by, fields_of_table)
}

/// How many counterfactuals reach the target.
pub fn validity_schema(by: &[String]) -> SchemaRef {
    let fields_of_table = vec![
        count("rows", "counterfactuals that were needed: not of rows that have the decision"),
        count("valid", "those that reach the target"),
        maybe_number("validity", "valid ÷ rows; null where none was needed"),
        number("low", "lower end of the 95 % Wilson interval"),
        number("high", "its upper end"),
        maybe_number("margin_mean", "mean `margin` of the valid ones, where it is known"),
        maybe_number("margin_p05", "its 5 % quantile, within 1 %"),
        maybe_number("margin_p25", "its 25 % quantile, within 1 %"),
    ];
    report(by, fields_of_table)
}

/// Shares at which quantiles are reported.
pub const QUANTILES: [(&str, f64); 4] = [("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p95", 0.95)];

/// How far counterfactuals are from their rows.
pub fn sparsity_schema(by: &[String]) -> SchemaRef {
    let mut fields_of_table = vec![
        text("over", "`valid` counterfactuals or `all` that were needed"),
        count("rows", "how many they are"),
    ];
    for measure in ["l0", "l1", "n_changed"] {
        fields_of_table.push(maybe_number(&format!("{measure}_mean"), "its mean"));
        let meaning = "its quantile, within 1 %";
        let quantile = |(name, _)| maybe_number(&format!("{measure}_{name}"), meaning);
        fields_of_table.extend(QUANTILES.map(quantile));
    }
    report(by, fields_of_table)
}

/// Shares at which quantiles of plausibility are reported: what is low is of interest.
pub const LOW_QUANTILES: [(&str, f64); 3] = [("p05", 0.05), ("p25", 0.25), ("p50", 0.5)];

/// How plausible valid counterfactuals are.
pub fn plausibility_schema(by: &[String]) -> SchemaRef {
    let mut fields_of_table = vec![
        count("rows", "valid counterfactuals whose plausibility is known"),
        maybe_number("plausibility_mean", "its mean: 0.5 if they were like held-out rows"),
    ];
    let meaning = "its quantile, within 1 %";
    let quantile = |(name, _)| maybe_number(&format!("plausibility_{name}"), meaning);
    fields_of_table.extend(LOW_QUANTILES.map(quantile));
    report(by, fields_of_table)
}

/// Where methods agree: a row for each pair of them.
pub fn agreement_schema() -> SchemaRef {
    let mut fields = vec![
        text(METHOD, "one method; the published one comes first"),
        text("other", "the other one"),
        text("level", "all or target: what the figures of the row are of"),
        described(
            "target",
            DataType::Utf8,
            Nulls::Possible,
            "the target class, or range of values; null at level `all`",
        ),
        count("rows", "rows and targets that needed a counterfactual: first samples"),
        count("both", "those for which both methods have a valid one"),
        count("method_only", "those for which only `method` has"),
        count("other_only", "those for which only `other` has"),
        count("neither", "those for which neither has"),
        count("same_features", "of `both`: the same features change"),
        maybe_number("same_features_share", "same_features ÷ both; null where both is 0"),
        count(
            "same_directions",
            "of `same_features`: every number moves the same way, categories become the same",
        ),
        maybe_number("same_directions_share", "same_directions ÷ both"),
    ];
    for (measure, meaning) in [
        ("cost", "mean cost over `both`"),
        ("l0", "mean share of changed categorical features over `both`"),
        ("l1", "mean |Δ| over standardised numeric features over `both`"),
        ("n_changed", "mean number of changed features over `both`"),
    ] {
        fields.push(maybe_number(&format!("{measure}_mean"), &format!("{meaning}, of `method`")));
        fields.push(maybe_number(&format!("other_{measure}_mean"), "the same of `other`"));
    }
    Arc::new(Schema::new(fields))
}

/// How many counterfactuals hold under other trainings of the model.
pub fn survival_schema() -> SchemaRef {
    let model = "the model: its file or command; null for the mean over all of them";
    let fields_of_table = vec![
        described("model", DataType::Utf8, Nulls::Possible, model),
        described("sha256", DataType::Utf8, Nulls::Possible, "SHA-256 of the model"),
        count("rows", "valid counterfactuals that were needed"),
        maybe_number(
            "survival",
            "share of them that the model decides as the target; null without any",
        ),
        maybe_number(
            "low",
            "lower end of its 95 % Wilson interval; least of the models, for the mean",
        ),
        maybe_number("high", "its upper end; greatest of the models, for the mean"),
    ];
    report(&[], fields_of_table)
}

/// How counterfactuals do under the models beside the predictor.
pub fn robust_schema(by: &[String]) -> SchemaRef {
    let fields_of_table = vec![
        count(
            "rows",
            "valid counterfactuals that were needed, and that the models were asked about",
        ),
        count("models", "models of `robust.models`"),
        count("needed", "models under which a counterfactual must hold: `robust.share` of them"),
        count("robust", "counterfactuals that hold under so many"),
        maybe_number("share", "robust ÷ rows; null without any"),
        number("low", "lower end of its 95 % Wilson interval"),
        number("high", "its upper end"),
        maybe_number("models_mean", "models under which a counterfactual holds, on average"),
        maybe_number("cost_mean", "mean `cost` of the robust ones"),
        maybe_number(
            "robustness_cost_mean",
            "mean `robustness_cost`: how much of that being robust costs, at least",
        ),
        maybe_number("robustness_cost_p50", "its median, within 1 %"),
        maybe_number("robustness_cost_p95", "its 95 % quantile, within 1 %"),
    ];
    report(by, fields_of_table)
}

/// How features change.
pub fn features_schema(by: &[String]) -> SchemaRef {
    let fields_of_table = vec![
        text("feature", "the feature"),
        count("rows", "valid counterfactuals"),
        count("changed", "those in which it changes"),
        number("share", "changed ÷ rows"),
        count("increased", "numbers that go up"),
        count("decreased", "numbers that go down"),
        maybe_number("median_change", "median |Δ| of changed numbers, in the column's unit"),
        described(
            "commonest_value",
            DataType::Utf8,
            Nulls::Possible,
            "what changed categories become most often",
        ),
    ];
    report(by, fields_of_table)
}

/// How close counterfactuals are to rows of the target class.
pub fn mmd_schema(by: &[String]) -> SchemaRef {
    let fields_of_table = vec![
        text("over", "`all` counterfactuals or the `valid` ones"),
        text("space", "`encoder`: outputs of random encoders; `raw`: standardised features"),
        number("mmd2", "MMD² against training rows of the target class, mean over the encoders"),
        number("spread", "its standard deviation over the encoders"),
        maybe_number("low", "lower end of a 95 % interval, from a block estimate"),
        maybe_number("high", "its upper end"),
        text("estimator", "`exact`, or `fourier`: random Fourier features"),
        number("error", "stated error of the estimator: 0 if exact"),
        count("rows", "counterfactuals compared"),
        count("reference_rows", "training rows compared with"),
        number("bandwidth", "σ of the kernel, from the training rows; mean over the encoders"),
        count("encoders", "random encoders averaged; 1 for raw features"),
        maybe_number(
            "held_out_mmd2",
            "MMD² of rows of the class that were not trained on: the floor",
        ),
        count("held_out_rows", "how many they are"),
        maybe_number("unchanged_mmd2", "MMD² of the explained rows left as they are"),
        maybe_number("ratio", "mmd2 ÷ unchanged_mmd2"),
        maybe_number("p_value", "(1 + b) ÷ (1 + B) by permutation, if asked for"),
    ];
    report(by, fields_of_table)
}

/// What counterfactuals keep to between features.
pub fn rules_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("source", "`schema`: written there; `observed`: all training rows keep to it"),
        text("kind", "`rule`, `derived`, `order` or `combination`"),
        text("rule", "the predicate, or what a derived feature is computed by"),
    ]))
}

/// The training curve: a row per evaluation on the validation rows.
pub fn training_schema() -> SchemaRef {
    let numbers = [
        ("seconds", "since training began"),
        ("reward", "mean reward of the last steps"),
        ("critic_loss", "the critic's loss"),
        ("actor_loss", "the actor's loss"),
        ("sparsity_loss", "its part for sparsity"),
        ("consistency_loss", "its part for consistency"),
        ("validity", "share of validation rows that reach the target"),
        ("l0", "changed categorical features ÷ categorical features, over valid rows"),
        ("l1", "mean |Δ| over standardised numeric features, over valid rows"),
        ("n_changed", "changed features, over valid rows"),
    ];
    let mut fields = vec![count("step", "steps so far")];
    fields.extend(numbers.map(|(name, meaning)| number(name, meaning)));
    let meaning = "whether the generator was the best so far";
    fields.push(described("best", DataType::Boolean, Nulls::Never, meaning));
    Arc::new(Schema::new(fields))
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
