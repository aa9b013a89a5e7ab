//! `overturn train`.

use clap::Args;

use super::print::{Printer, grouped, lines};
use super::{Global, JobArguments, observed};
use crate::error::Result;
use crate::pipeline::{TrainSummary, train};
use crate::runtime::{Runtime, usage};
use crate::train::Quality;

/// Train the job's counterfactual generator and publish it.
///
/// Writes `output.dir` with `generator/` (weights and what they mean), `reports/training.parquet` (the
/// training curve), `manifest.json` and `_SUCCESS`. The folder appears whole or not at all. While it
/// trains, a checkpoint stands beside it; a killed or failed run resumes from there with `--resume`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  overturn train jobs/demo/train.toml --set data=table --set out=trained"
)]
pub(super) struct Train {
    #[command(flatten)]
    job: JobArguments,
    /// Resume from the checkpoint that a killed or failed run left; start afresh if there is none.
    #[arg(long)]
    resume: bool,
}

impl Train {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let job = self.job.read()?;
        let runtime = Runtime::start(&job.runtime)?;
        let result = observed(global, |observer| train(&job, self.resume, &runtime, observer));
        printer.summary(&result?, text);
        Ok(())
    }
}

fn text(summary: &TrainSummary) -> String {
    let autoencoder = &summary.autoencoder;
    let mut rows = vec![
        ("rows read".to_string(), grouped(summary.rows_read)),
        ("  out of scope".to_string(), grouped(summary.rows_read - summary.rows_in_scope)),
        ("  trained on".to_string(), grouped(summary.rows_trained as u64)),
        ("  rejected".to_string(), grouped(summary.rows_rejected as u64)),
        (
            "autoencoder".to_string(),
            if autoencoder.used {
                format!(
                    "latent {}, quality {:.3} (accuracy {:.3}, squared error {:.4}), {:.1} s",
                    autoencoder.latent,
                    autoencoder.quality,
                    autoencoder.accuracy,
                    autoencoder.squared_error,
                    autoencoder.seconds
                )
            } else {
                "none".to_string()
            },
        ),
        (
            "steps".to_string(),
            format!(
                "{} at {:.0} a second; ended by {}",
                grouped(summary.steps as u64),
                summary.steps_per_second,
                summary.ended_by
            ),
        ),
        ("validation".to_string(), quality(&summary.validation)),
    ];
    rows.extend(summary.test.iter().map(|test| ("test".to_string(), quality(test))));
    let speed =
        format!("{:.1} s loading, {:.1} s training", summary.load_seconds, summary.train_seconds);
    rows.push(("time".to_string(), speed));
    let used = usage();
    let used = format!("{:.1} s CPU, {} MiB at peak", used.cpu_seconds, used.peak_bytes >> 20);
    rows.push(("used".to_string(), used));
    rows.push(("published".to_string(), summary.output.clone()));
    rows.extend(summary.remarks.iter().map(|text| ("note".to_string(), text.clone())));
    lines(&rows)
}

fn quality(quality: &Quality) -> String {
    format!(
        "validity {:.1} %, L0 {:.3}, L1 {:.3}, {:.2} features changed ({} rows)",
        100.0 * quality.validity,
        quality.l0,
        quality.l1,
        quality.changed,
        grouped(quality.rows as u64)
    )
}
