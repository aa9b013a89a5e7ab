//! Schemas of the tables that questions to the model are told in: sections of the audit that ask, and candidate reasons.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};

use super::audit_tables::audit_schema;
use super::tables::{Nulls, count, described, maybe_count, maybe_number, number, text};

fn maybe_text(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Utf8, Nulls::Possible, meaning)
}

fn flag(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Boolean, Nulls::Never, meaning)
}

/// A share of rows, null in a cell that is too small, with its interval.
fn share_of(name: &str, meaning: &str) -> [FieldRef; 3] {
    [
        maybe_number(name, &format!("{meaning}; null below `audit.min_cell`")),
        maybe_number("low", "lower end of its 95 % Wilson interval"),
        maybe_number("high", "its upper end"),
    ]
}

/// What single actions reach for all.
pub fn actions_schema() -> SchemaRef {
    let mut fields_of_table = vec![
        count(
            "action",
            "number of the action within the target: by how common its changes are, then by size",
        ),
        text("changes", "what it changes: `income +5000, housing = own`"),
        text(
            "size",
            "the quantile of how far numbers move in counterfactuals that change the same: p50, p75, p90",
        ),
        count("rows", "rows that need another decision, chosen by key, for which it was tried"),
        count(
            "applicable",
            "those whose constraints allow it; the model is asked about them alone",
        ),
        count("flipped", "those that it takes to the target"),
    ];
    fields_of_table.extend(share_of("effectiveness", "flipped ÷ rows"));
    fields_of_table.extend([
        maybe_number("cost_mean", "mean cost of the flipped rows' changes"),
        maybe_count(
            "chosen",
            "its place among the actions that are chosen together, from 1; null if it is not",
        ),
    ]);
    audit_schema(fields_of_table)
}

/// What a few actions reach together.
pub fn action_sets_schema() -> SchemaRef {
    let mut fields_of_table = vec![
        count("rows", "rows that need another decision for which the chosen actions were tried"),
        count(
            "chosen",
            "actions that were chosen together, one after the other, for all rows of the target",
        ),
        count("flipped", "rows that at least one of them takes to the target"),
    ];
    fields_of_table.extend(share_of("effectiveness", "flipped ÷ rows"));
    fields_of_table.extend([
        maybe_number(
            "cost_mean",
            "mean over the flipped rows of the least cost among the chosen actions that flip them",
        ),
        count("actions", "actions that were tried"),
        maybe_count("choices", "those that take at least `choice` of the group to the target"),
        number("choice", "the share of a group from which on an action counts as a choice for it"),
    ]);
    audit_schema(fields_of_table)
}

/// Which constraint shuts rows out.
pub fn binding_schema() -> SchemaRef {
    let mut fields_of_table = vec![
        maybe_text("feature", "the constraint's feature; null where it is no feature's"),
        text(
            "constraint",
            "never, direction, range, limit, allowed, row_bound, rule, max_changes, min_plausibility; `none`: \
             nothing is lifted",
        ),
        text("detail", "what it says"),
        count("rows", "rows without a counterfactual, chosen by key, that were searched again"),
        count("solved_if_lifted", "those that have one without this constraint"),
    ];
    fields_of_table.extend(share_of("share", "solved_if_lifted ÷ rows"));
    fields_of_table.push(count(
        "only_this",
        "those that have one without this constraint, and without no other single one",
    ));
    audit_schema(fields_of_table)
}

/// How much single features can do.
pub fn responsiveness_schema() -> SchemaRef {
    let mut fields_of_table = vec![
        text("feature", "the feature"),
        count(
            "rows",
            "rows that need another decision, chosen by key, whose constraints allow it to change",
        ),
        count("values", "values that were tried: all that are allowed, or 32 spread over them"),
        count("reached", "those that take their row to the target alone"),
        maybe_number("responsiveness", "mean over the rows of the share of their values that do"),
        count("responsive", "rows for which at least one value does"),
    ];
    fields_of_table.extend(share_of("share", "responsive ÷ rows"));
    audit_schema(fields_of_table)
}

/// Whether answers stand small errors.
pub fn robustness_schema() -> SchemaRef {
    audit_schema(vec![
        count("rows", "valid counterfactuals, chosen by key"),
        count("copies", "noisy copies of each"),
        count("held", "copies that the model still decides as the target"),
        maybe_number(
            "validity",
            "mean over the counterfactuals of the share of their copies that hold",
        ),
        maybe_number("fragility", "1 − validity"),
        count("broken", "counterfactuals of which at least one copy does not hold"),
    ])
}

/// Whether a protected feature decides by itself.
pub fn explicit_schema() -> SchemaRef {
    let mut fields_of_table = vec![
        text("feature", "the protected feature"),
        count("rows", "rows of any decision, chosen by key"),
        count("copies", "copies with another value of the feature and all else as it is"),
        count("flipped", "copies about which the model decides otherwise"),
        maybe_number("share", "flipped ÷ copies; null below `audit.min_cell`"),
        count("rows_flipped", "rows of which at least one copy is decided otherwise"),
    ];
    fields_of_table.extend(share_of("rows_share", "rows_flipped ÷ rows"));
    audit_schema(fields_of_table)
}

/// Whether gaps are the search's.
pub fn second_search_schema() -> SchemaRef {
    audit_schema(vec![
        text("metric", "`recourse_rate`, or `cost_mean` of valid counterfactuals"),
        count("rows", "rows of the group that need another decision, chosen by key"),
        maybe_number("figure", "the run's; null below `audit.min_cell`"),
        maybe_number(
            "figure_again",
            "that of the second search, with four times `explain.queries_per_row`",
        ),
        maybe_number(
            "gap",
            "the run's figure − that of the reference group, of the chosen rows alone",
        ),
        maybe_number("gap_again", "the same of the second search"),
        maybe_number("moved", "|gap_again − gap|"),
        maybe_number(
            "tolerance",
            "how far it may move: `audit.tolerance`, for costs as a share of the reference's",
        ),
        maybe_text(
            "verdict",
            "`holds`, or `inconclusive`: the gap may be the search's; null if unknown",
        ),
    ])
}

/// Candidate reasons of refused rows.
pub fn reasons_schema(key: &[FieldRef]) -> SchemaRef {
    let mut fields = key.to_vec();
    fields.extend([
        text("target", "the target class, or range of values"),
        count("rank", "from 1, the strongest, to 4 at most"),
        text("feature", "the feature"),
        maybe_text("direction", "`low` or `high` beside the reference; null of a category without an order"),
        text("code", "the code that the feature schema gives it"),
        maybe_text("text", "the schema's text for the direction"),
        number(
            "contribution",
            "mean over 16 rows that just pass of f(row with their value of the feature) − f(row): f is the \
             probability of the target; where the model gives labels only whether it is the target; for a range \
             minus the distance to it",
        ),
        maybe_text("reference", "what those rows have: the median, or the commonest category"),
        flag("actionable", "whether the row's constraints allow the feature to change"),
        flag("in_recourse", "whether the row's counterfactual changes it"),
        flag(
            "reason_without_recourse",
            "whether the feature cannot change, or the row has no counterfactual",
        ),
        count("further_reasons", "features that speak against the row, too, beyond the fourth"),
    ]);
    Arc::new(Schema::new(fields))
}

/// Candidate reasons by group.
pub fn reason_counts_schema() -> SchemaRef {
    let mut fields_of_table = vec![
        text("feature", "the feature"),
        maybe_text("direction", "as in `reasons`"),
        text("code", "the code that the feature schema gives it"),
        maybe_text("text", "the schema's text for the direction"),
        count("rows", "rows whose reasons were looked for"),
        count("named", "those that have it among their first four"),
    ];
    fields_of_table.extend(share_of("share", "named ÷ rows"));
    fields_of_table.extend([
        count("first", "those that have it first"),
        count("without_recourse", "those for which it is a reason without recourse"),
        maybe_number("contribution_mean", "its mean contribution where it is named"),
    ]);
    audit_schema(fields_of_table)
}
