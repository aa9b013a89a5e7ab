//! Names and schemas of what a run writes. The one place that knows a file name.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

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

/// Path of a table's part, by the partition that wrote it.
pub fn part_name(table: &str, partition: usize) -> String {
    format!("{table}/part-{partition:05}.parquet")
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
            fields.push(Arc::new(Field::new("class", DataType::Utf8, false)));
            let scored = classes.iter().filter(|_| probabilities);
            fields.extend(scored.map(|class| {
                Arc::new(Field::new(format!("score_{class}"), DataType::Float64, false))
            }));
        }
        None => fields.push(Arc::new(Field::new("value", DataType::Float64, false))),
    }
    Arc::new(Schema::new(fields))
}

/// The rows that were set aside: key columns, `reason`, `detail`.
pub fn rejects_schema(key: &[FieldRef]) -> SchemaRef {
    let mut fields = key.to_vec();
    fields.push(Arc::new(Field::new("reason", DataType::Utf8, false)));
    fields.push(Arc::new(Field::new("detail", DataType::Utf8, false)));
    Arc::new(Schema::new(fields))
}

/// The training curve: a row per judgement on the validation rows.
pub fn training_schema() -> SchemaRef {
    let numbers = [
        "seconds",
        "reward",
        "critic_loss",
        "actor_loss",
        "sparsity_loss",
        "consistency_loss",
        "validity",
        "l0",
        "l1",
        "n_changed",
    ];
    let mut fields = vec![Field::new("step", DataType::Int64, false)];
    fields.extend(numbers.map(|name| Field::new(name, DataType::Float64, false)));
    fields.push(Field::new("best", DataType::Boolean, false));
    Arc::new(Schema::new(fields))
}
