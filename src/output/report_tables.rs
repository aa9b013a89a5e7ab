//! Schemas of the reports.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};

use super::tables::{METHOD, Nulls, count, described, maybe_number, number, text};

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
