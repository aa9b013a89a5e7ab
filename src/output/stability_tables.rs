//! Schemas of what is told of a run beside an earlier one: by key, and by group and cause.

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};

use super::audit_tables::audit_schema;
use super::tables::{Nulls, count, described, maybe_count, maybe_number, text};

/// Name of both tables.
pub const STABILITY: &str = "stability";

fn flag(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Boolean, Nulls::Never, meaning)
}

fn maybe_flag(name: &str, meaning: &str) -> FieldRef {
    described(name, DataType::Boolean, Nulls::Possible, meaning)
}

/// Key by key, what became of the previous run's counterfactuals: a row for each key and target that both runs have,
/// where either run needed a counterfactual.
pub fn stability_schema(key: &[FieldRef]) -> SchemaRef {
    let mut fields = key.to_vec();
    fields.extend([
        text("target", "the target class, or range of values"),
        text(
            "cause",
            "what changed: `row`, `model`, `configuration`, several joined by `+`; `generator` if only that did; \
             `none`",
        ),
        described(
            "previous_status",
            DataType::Utf8,
            Nulls::Possible,
            "the row's `status` in the previous run; null if it had another target there",
        ),
        text("status", "its `status` now"),
        flag("yesterday_valid", "whether the previous run had a valid counterfactual of the row"),
        maybe_flag(
            "still_valid",
            "whether the model predicts the target for the row as it is now with what it has not made yet of the \
             previous changes; null without such, or where `audit.queries` was spent",
        ),
        maybe_flag("still_allowed", "whether the constraints allow those changes of the row as it is now"),
        flag("decision_flip", "whether the model's decision about the row is another"),
        maybe_flag("same_features", "whether both counterfactuals change the same features; null without both"),
        maybe_flag("same_answer", "whether they change them to the same values"),
        maybe_number("jaccard", "features that both change ÷ features that either changes"),
        maybe_number("previous_cost", "`cost` of the previous counterfactual"),
        maybe_number("carried_cost", "what those of its changes cost that the row as it is now has not made yet"),
        maybe_number("cost_delta", "`cost` now − `previous_cost`; null without both"),
        maybe_flag(
            "needless",
            "whether the counterfactual is another, though the previous one is still valid and allowed and costs \
             no more; null without both",
        ),
        flag(
            "broken_promise",
            "whether the row has made all changes of the previous counterfactual, or more, and is refused all the \
             same",
        ),
    ]);
    std::sync::Arc::new(Schema::new(fields))
}

/// The same by target, group and cause.
pub fn audit_stability_schema() -> SchemaRef {
    let mut fields_of_table = vec![
        described(
            "cause",
            DataType::Utf8,
            Nulls::Possible,
            "what changed, as in `stability`; null for all causes together",
        ),
        count("rows", "rows that both runs have"),
        maybe_count("appeared", "rows that only this run has; null by cause"),
        maybe_count("vanished", "rows that only the previous run has; null by group or cause"),
        count("needed", "rows of both runs that needed a counterfactual in either"),
        flag("suppressed", "whether `needed` is below `audit.min_cell`: figures are null"),
        count("decision_flips", "rows about which the decision is another"),
    ];
    fields_of_table.extend(share("decision_churn", "decision_flips ÷ rows"));
    fields_of_table.extend([
        count("promised", "rows with a valid previous counterfactual"),
        count("asked", "those of them that the model was asked about again"),
        count("still_valid", "those of them for which it predicts the target"),
    ]);
    fields_of_table.extend(share("recourse_validity", "still_valid ÷ asked"));
    fields_of_table.extend([
        count(
            "still_allowed",
            "rows of `promised` whose previous changes the constraints still allow",
        ),
        count("broken_promises", "those that have made the changes and are refused all the same"),
        count("paired", "rows with a valid counterfactual in both runs"),
        count("same_features", "those of them with the same changed features"),
        count("same_answer", "those of them with the same changes"),
        maybe_number("answer_churn", "1 − mean of `jaccard` over `paired`"),
        count("needless", "rows of `paired` whose counterfactual changed without need"),
    ]);
    fields_of_table.extend(share(
        "needless_churn",
        "needless ÷ those of `paired` that the model was asked about",
    ));
    fields_of_table.extend([
        maybe_number("cost_drift", "mean `cost_delta` over `paired`"),
        maybe_number(
            "cost_drift_low",
            "lower end of its 95 % interval: mean ± 1.96 standard errors",
        ),
        maybe_number("cost_drift_high", "its upper end"),
    ]);
    audit_schema(fields_of_table)
}

/// A share with its interval.
fn share(name: &str, meaning: &str) -> [FieldRef; 3] {
    [
        maybe_number(name, meaning),
        maybe_number(&format!("{name}_low"), "lower end of its 95 % Wilson interval"),
        maybe_number(&format!("{name}_high"), "its upper end"),
    ]
}
