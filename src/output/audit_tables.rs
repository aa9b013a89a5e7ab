//! Schemas of the audit's tables, `reports/audit/<name>.parquet`. Each begins with whose figures a row has.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use super::tables::{Nulls, REPORTS, count, described, maybe_count, maybe_number, number, text};

/// Folder of the audit's tables, among the reports.
pub const AUDIT: &str = "audit";
/// The audit's page, among the reports.
pub const AUDIT_PAGE: &str = "audit.html";

/// Path of a table of the audit.
pub fn audit_table_name(table: &str) -> String {
    format!("{REPORTS}/{AUDIT}/{table}.parquet")
}

/// Path of the audit's page.
pub fn audit_page_name() -> String {
    format!("{REPORTS}/{AUDIT_PAGE}")
}

fn maybe_text(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Utf8, Nulls::Possible, meaning)
}

fn flag(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Boolean, Nulls::Never, meaning)
}

/// What every table of the audit begins with: the target and the group.
pub fn audit_group_fields() -> Vec<FieldRef> {
    vec![
        text("target", "the target class, or range of values"),
        maybe_text("attribute", "the column whose value makes the group; null for all rows"),
        maybe_text("value", "the group's value; null for all rows, and for the group of the nulls"),
    ]
}

/// A table of the audit with columns of its own.
pub fn audit_schema(fields_of_table: Vec<FieldRef>) -> SchemaRef {
    let mut fields = audit_group_fields();
    fields.extend(fields_of_table);
    Arc::new(Schema::new(fields))
}

fn suppressed() -> FieldRef {
    flag(
        "suppressed",
        "whether fewer than `audit.min_cell` rows need the decision: figures are null",
    )
}

/// Who is refused, who has an answer, and at what cost.
pub fn audit_groups_schema() -> SchemaRef {
    let mut fields_of_table = vec![
        count("rows", "rows explained"),
        count("needed", "those that need another decision"),
        count("valid", "those of them with a valid counterfactual"),
        count("infeasible", "those of them that are proven infeasible"),
        count("unsolved", "those of them with neither"),
        count("already_target", "rows that have the decision"),
        flag("reference", "whether other groups of the attribute are compared with this one"),
        suppressed(),
    ];
    fields_of_table.extend(share_fields("refusal", "needed ÷ rows"));
    fields_of_table.extend(share_fields("recourse", "valid ÷ needed"));
    fields_of_table.extend([
        maybe_number("preclusion_least", "infeasible ÷ needed: so many are surely shut out"),
        maybe_number("preclusion_most", "(infeasible + unsolved) ÷ needed: no more can be"),
        maybe_number("cost_mean", "mean `cost` of the valid counterfactuals"),
        maybe_number("n_changed_mean", "their mean `n_changed`"),
        maybe_number(
            "effort_mean",
            "their mean effort: Σ |Q(new) − Q(old)| over changed numbers, Q the share of training rows at or below, \
             and 1 for every changed category",
        ),
        maybe_number(
            "cost_p50",
            "median cost over `needed`, infinite without a valid counterfactual; null if it is infinite; within 1 %",
        ),
        maybe_number("cost_p90", "90 % quantile of the same"),
        maybe_number("social_burden", "Σ cost of the valid counterfactuals ÷ rows"),
        maybe_number("single_change_share", "share of the valid counterfactuals that change one feature"),
        maybe_count("positives", "rows that `audit.label` says to be of the target"),
        maybe_count("false_negatives", "those of them that need another decision"),
        maybe_number("false_negative_rate", "false_negatives ÷ positives"),
        maybe_number(
            "false_negative_burden",
            "mean cost of the valid counterfactuals of false negatives",
        ),
        maybe_number(
            "nawb",
            "100 · false_negative_rate · mean of effort ÷ features, over valid counterfactuals of false negatives",
        ),
        count("queries", "times that the model was asked about the needed counterfactuals"),
        maybe_number("queries_mean", "queries ÷ needed"),
        count("by_generator", "solved rows whose counterfactual the generator found"),
        count("by_candidate", "those from further proposals or search"),
        count("by_neighbour", "those from training rows"),
        count("by_other", "those of another method"),
    ]);
    audit_schema(fields_of_table)
}

/// A share with its interval.
fn share_fields(name: &str, meaning: &str) -> [FieldRef; 3] {
    [
        maybe_number(&format!("{name}_rate"), meaning),
        maybe_number(&format!("{name}_low"), "lower end of its 95 % Wilson interval"),
        maybe_number(&format!("{name}_high"), "its upper end"),
    ]
}

/// Which share has an answer within which cost.
pub fn audit_curves_schema() -> SchemaRef {
    audit_schema(vec![
        number(
            "budget",
            "a cost: one of `audit.budgets`, or a quantile of the costs of all rows of the target",
        ),
        maybe_number(
            "quantile",
            "which quantile, to within 1 % of the cost; null for `audit.budgets`",
        ),
        count("needed", "rows that need another decision"),
        maybe_count("reached", "those with a valid counterfactual of no more than this cost"),
        maybe_number("effectiveness", "reached ÷ needed"),
        maybe_number("low", "lower end of its 95 % Wilson interval"),
        maybe_number("high", "its upper end"),
        suppressed(),
    ])
}

/// How far groups are apart.
pub fn audit_gaps_schema() -> SchemaRef {
    audit_schema(vec![
        text(
            "against",
            "`reference`: the reference group of the attribute; `rest`: all its other groups",
        ),
        maybe_text(
            "other",
            "the reference group's value; null for `rest`, and for the group of the nulls",
        ),
        text(
            "metric",
            "a column of `groups`; `effectiveness` within a budget; or `curve`, the greatest difference of \
             effectiveness at any budget (the two-sample statistic of Kolmogorov and Smirnov)",
        ),
        maybe_number("budget", "the budget of `effectiveness`; where `curve` is widest"),
        maybe_number("figure", "the group's"),
        maybe_number("other_figure", "that of what it is compared with"),
        maybe_number("difference", "figure − other_figure"),
        maybe_number("ratio", "figure ÷ other_figure"),
        maybe_number("low", "lower end of the 95 % interval of the difference"),
        maybe_number("high", "its upper end"),
        text("interval", "`newcombe`, `welch`, `mover` (quantiles) or `band` (curves)"),
        maybe_number(
            "p",
            "p-value of no difference: z of two shares, Welch's t, Kolmogorov–Smirnov",
        ),
        maybe_number(
            "p_holm",
            "the same after Holm, over all rows of the table with this `against`",
        ),
        maybe_number("p_by", "after Benjamini and Yekutieli, over the same rows"),
        described(
            "cost_agrees",
            DataType::Boolean,
            Nulls::Possible,
            "whether means of `cost`, `n_changed` and effort differ in the same direction; null if the metric \
             is not of costs",
        ),
        maybe_number("tolerance", "how far apart is still alike, in the metric's own unit"),
        maybe_text(
            "verdict",
            "`within`: the whole interval is inside the tolerance; `exceeds`: all of it is outside, p_holm is \
             at most 0.05 and costs agree; else `inconclusive`; null where suppressed",
        ),
        flag(
            "suppressed",
            "whether either has fewer than `audit.min_cell` rows that need the decision",
        ),
    ])
}

/// A change that is part of a signature.
pub fn audit_change_fields() -> Fields {
    let field = |name, nullable| Field::new(name, DataType::Utf8, nullable);
    let number = |name| Field::new(name, DataType::Float64, true);
    Fields::from(vec![
        field("feature", false),
        // `up`, `down`, or `to` a category.
        field("direction", false),
        // The category.
        field("value", true),
        number("p50"),
        number("p75"),
        number("p90"),
    ])
}

/// Which changes are commonest.
pub fn audit_changes_schema() -> SchemaRef {
    let item = Field::new("item", DataType::Struct(audit_change_fields()), false);
    audit_schema(vec![
        described(
            "rank",
            DataType::Int64,
            Nulls::Possible,
            "place of the signature among those of all rows of the target, from 1; null for all others together",
        ),
        maybe_text(
            "signature",
            "what changes, in which direction: `age up, job to sales`; null for all others together",
        ),
        described(
            "changes",
            DataType::List(Arc::new(item)),
            Nulls::Never,
            "the same in parts; p50, p75 and p90 are quantiles of how far numbers move, over all rows of the \
             target, within 1 %",
        ),
        count("valid", "valid counterfactuals of the group"),
        maybe_count("rows", "those with the signature"),
        maybe_number("share", "rows ÷ valid"),
        maybe_number("cumulative", "share of this and all signatures of lower rank"),
        maybe_number(
            "difference",
            "share − that of the attribute's other groups; null for all rows",
        ),
        maybe_number("low", "lower end of its 95 % interval, after Newcombe"),
        maybe_number("high", "its upper end"),
        count(
            "missed",
            "most rows of the signature that may be counted with all others; 0 unless there are very many signatures",
        ),
        suppressed(),
    ])
}

/// Which answers sit exactly on a bound.
pub fn audit_at_bound_schema() -> SchemaRef {
    audit_schema(vec![
        text("feature", "the feature"),
        text(
            "bound",
            "`range_low`, `range_high`: the schema's range, or that of the training rows; `limit_low`, `limit_high`: \
             as far as `limit` lets it move; `row_low`, `row_high`: the row's own `__min` and `__max`; \
             `allowed_first`, `allowed_last`: the ends of an order",
        ),
        count("valid", "valid counterfactuals of the group"),
        maybe_count("changed", "those in which the feature changes"),
        maybe_count("rows", "those of them that sit exactly on the bound"),
        maybe_number("share", "rows ÷ changed"),
        suppressed(),
    ])
}
