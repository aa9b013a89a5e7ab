//! `overturn audit`.

use std::path::PathBuf;

use clap::Args;

use super::print::Printer;
use super::run::conclude;
use super::{Global, observed};
use crate::error::Result;
use crate::pipeline::{audit, published_job};
use crate::runtime::Runtime;

/// Make the audit of a published run anew, by other groups for example.
///
/// Reads the job from the run's manifest, counts its tables again beside the input, and replaces the audit's tables and
/// its page in one step. Counterfactuals and other reports stay as they are. The input must still be where it was
/// read, unchanged.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  overturn audit out/explained --by sex --by region")]
pub(super) struct AuditArguments {
    /// The published folder: a path, or a URL (`s3://`, `gs://`, `az://`).
    folder: PathBuf,
    /// Columns whose values are groups, in place of `audit.by`; give it more than once for more.
    #[arg(long, value_name = "COLUMN")]
    by: Vec<String>,
}

impl AuditArguments {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let job = published_job(&self.folder, &self.by)?;
        let runtime = Runtime::start(&job.runtime)?;
        let result = observed(global, |observer| audit(&job, &runtime, observer));
        conclude(&result?, printer)
    }
}
