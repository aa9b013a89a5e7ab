//! `overturn validate`.

use clap::Args;

use super::print::{Printer, grouped, lines};
use super::{Global, JobArguments, observer};
use crate::error::Result;
use crate::pipeline::{ValidateSummary, validate};
use crate::runtime::Runtime;

/// Check a job: its file, schema, tables and model. Writes nothing.
///
/// Lists every fault of a file at once. Reads the tables once, opens the model, and scores a sample again
/// where the job has a score table.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  overturn validate jobs/demo/forest_onnx.toml --set data=table --set out=scores"
)]
pub(super) struct Validate {
    #[command(flatten)]
    job: JobArguments,
}

impl Validate {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let job = self.job.read()?;
        let runtime = Runtime::start(&job.runtime)?;
        let summary = validate(&job, &runtime, &observer(global))?;
        printer.summary(&summary, text);
        Ok(())
    }
}

fn text(summary: &ValidateSummary) -> String {
    let check = &summary.check;
    let mut rows = vec![
        ("rows".to_string(), grouped(check.rows)),
        ("rows in scope".to_string(), grouped(check.rows_in_scope)),
        (
            "features".to_string(),
            format!(
                "{} numeric, {} categorical",
                check.numeric_features, check.categorical_features
            ),
        ),
    ];
    if !check.constraint_columns.is_empty() {
        rows.push(("per-row constraints".to_string(), check.constraint_columns.join(", ")));
    }
    let probabilities = if summary.probabilities { " with probabilities" } else { "" };
    let model = match &summary.classes[..] {
        [] => "regression".to_string(),
        classes => format!("{} classes{probabilities}: {}", classes.len(), classes.join(", ")),
    };
    rows.push(("model".to_string(), model));
    if let Some(parity) = &summary.parity {
        let found = format!(
            "{} of {} stored decisions differ, {} rows without one",
            grouped(parity.rows_different),
            grouped(parity.rows_compared),
            grouped(parity.rows_without_score)
        );
        rows.push(("score table".to_string(), found));
    }
    let largest = summary.memory.parts.first().map_or("nothing", |(key, _)| key);
    let megabytes = grouped(summary.memory.total().div_ceil(1 << 20));
    rows.push(("memory".to_string(), format!("about {megabytes} MiB, most of it by `{largest}`")));
    rows.extend(check.rejections.iter().map(|text| ("will be rejected".to_string(), text.clone())));
    rows.extend(check.remarks.iter().map(|text| ("note".to_string(), text.clone())));
    format!("{}The job can run.", lines(&rows))
}
