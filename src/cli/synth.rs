//! `overturn synth`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::print::{Printer, grouped, lines};
use super::{Global, observer};
use crate::error::Result;
use crate::synth::{self, Synth as Table};

/// Make a table of credit applications for demonstrations and benchmarks.
///
/// The same rows and seed give the same table, whatever the number of cores and files.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  overturn synth table --rows 1000000")]
pub(super) struct SynthArguments {
    /// The folder to make.
    dir: PathBuf,
    /// How many applications.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Into how many files.
    #[arg(long, default_value_t = 4)]
    files: usize,
    /// Share of nulls in the columns that can have them.
    #[arg(long, default_value_t = 0.0)]
    nulls: f64,
}

impl SynthArguments {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let began = Instant::now();
        let table =
            Table { rows: self.rows, seed: self.seed, files: self.files, null_share: self.nulls };
        let progress = observer(global);
        progress.stage("making rows", Some(self.rows));
        let made = synth::write(&table, &self.dir, &|rows| progress.advance(rows))?;
        drop(progress);
        let seconds = began.elapsed().as_secs_f64();
        let summary = json!({
            "rows": made.rows,
            "files": made.files,
            "bytes": made.bytes,
            "approved_share": made.approved_share,
            "seconds": seconds,
            "output": self.dir.display().to_string(),
        });
        printer.summary(&summary, |_| {
            lines(&[
                ("rows".to_string(), grouped(made.rows)),
                ("files".to_string(), format!("{} ({} MB)", made.files, made.bytes / 1_000_000)),
                ("approved".to_string(), format!("{:.1} %", 100.0 * made.approved_share)),
                ("time".to_string(), format!("{seconds:.1} s")),
                ("written".to_string(), self.dir.display().to_string()),
            ])
        });
        Ok(())
    }
}
