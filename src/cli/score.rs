//! `overturn score`.

use clap::Args;

use super::print::{Printer, grouped, lines};
use super::{Global, JobArguments, observed};
use crate::error::Result;
use crate::pipeline::{ScoreSummary, score};
use crate::runtime::{Runtime, usage};

/// Score every row in scope with the job's model and publish the table.
///
/// Writes `output.dir` with `scores/` (key, class, a score per class; or the value of a regression),
/// `rejects/` (key, reason, detail), `manifest.json` and `_SUCCESS`. The folder appears whole or not at
/// all.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  overturn score jobs/demo/forest_onnx.toml --set data=table --set out=scores"
)]
pub(super) struct Score {
    #[command(flatten)]
    job: JobArguments,
}

impl Score {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let job = self.job.read()?;
        let runtime = Runtime::start(&job.runtime)?;
        let result = observed(global, |observer| score(&job, &runtime, observer));
        printer.summary(&result?, text);
        Ok(())
    }
}

fn text(summary: &ScoreSummary) -> String {
    let rejected: u64 = summary.rows_rejected.values().sum();
    let mut rows = vec![
        ("rows read".to_string(), grouped(summary.rows_read)),
        ("  out of scope".to_string(), grouped(summary.rows_out_of_scope)),
        ("  scored".to_string(), grouped(summary.rows_scored)),
        ("  rejected".to_string(), grouped(rejected)),
    ];
    for (reason, count) in &summary.rows_rejected {
        rows.push((format!("    {reason}"), grouped(*count)));
    }
    for (class, count) in &summary.classes {
        let share = 100.0 * *count as f64 / summary.rows_scored.max(1) as f64;
        rows.push((format!("class {class}"), format!("{} ({share:.1} %)", grouped(*count))));
    }
    let speed = format!(
        "{:.1} s checking, {:.1} s scoring: {} rows/s",
        summary.check_seconds,
        summary.score_seconds,
        grouped(summary.rows_per_second as u64)
    );
    rows.push(("time".to_string(), speed));
    let used = usage();
    let used = format!("{:.1} s CPU, {} MiB at peak", used.cpu_seconds, used.peak_bytes >> 20);
    rows.push(("used".to_string(), used));
    rows.push(("published".to_string(), summary.output.clone()));
    rows.extend(summary.remarks.iter().map(|text| ("note".to_string(), text.clone())));
    lines(&rows)
}
