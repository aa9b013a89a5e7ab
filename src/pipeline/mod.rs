//! The order of the stages, and nothing else: open, check, score, publish.

mod audit;
mod chain;
mod context;
mod fetch;
mod init;
mod inputs;
mod memory;
mod model;
mod overlaps;
mod parity;
mod partitions;
mod provenance;
mod run;
mod score;
mod sql;
mod train;
mod validate;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};

use crate::engine::datafusion_version;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::output::{
    FileEntry, FolderEntry, GENERATOR, MANIFEST_FORMAT, Manifest, Mirror, Opened, Replace,
    RunProvenance, StagedFile, Staging, list, sha256_of,
};
use crate::predictor::onnxruntime_version;
use crate::runtime::libtorch_version;

pub use chain::Chain;
use context::RunContext;
pub use fetch::fetch;
pub use init::{InitModel, InitRequest, InitSummary, init};
pub use inputs::{CheckSummary, Inputs, Scope};
use model::{ModelProvenance, assumed, check_repeatable};
pub use parity::ParitySummary;
pub use run::{
    AgreementSummary, DryRun, Example, MethodSummary, RunMode, RunSummary, Seconds, ShardSummary,
    StabilitySummary, TargetSummary, audit, dry_run, gate_error, journal_pieces, publish,
    published_job, report, run, run_shard,
};
pub use score::{ScoreSummary, score};
pub use sql::{ModelSource, Query, sql};
pub use train::{TrainSummary, train};
pub use validate::{ValidateSummary, validate};
pub use verify::{Difference, Verified, difference_error, verify};

/// Hears how far a stage has come. The command line shows it; tests and batch runs do not care.
pub trait Progress: Send + Sync {
    /// A stage begins; so many rows lie before it, where that is known.
    fn stage(&self, name: &str, rows: Option<u64>);
    /// So many rows more are done.
    fn advance(&self, rows: u64);
    /// A stage of training begins, with so many steps before it.
    fn steps(&self, name: &str, steps: u64) {
        self.stage(name, Some(steps));
    }
    /// How training stands, in a few words.
    fn state(&self, _words: &str) {}
}

/// Hears nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _rows: Option<u64>) {}
    fn advance(&self, _rows: u64) {}
}

/// Progress as stages carry it about.
pub type Observer = Arc<dyn Progress>;

/// Versions of this program and of what it stands on.
///
/// # Errors
/// When ONNX Runtime cannot be loaded.
pub fn versions() -> Result<Value> {
    Ok(json!({
        "overturn": env!("CARGO_PKG_VERSION"),
        "libtorch": libtorch_version(),
        "onnxruntime": onnxruntime_version()?,
        "datafusion": datafusion_version(),
    }))
}

/// What a run was and what it wrote into a folder.
fn manifest(
    command: &str,
    run: RunProvenance,
    (job, summary): (&Job, &impl Serialize),
    (files, folder): (Vec<StagedFile>, &Path),
) -> Result<Manifest> {
    let broken = |error| Error::internal("manifest", "has no JSON").source(error);
    Ok(Manifest {
        format: MANIFEST_FORMAT,
        command: command.to_string(),
        versions: versions()?,
        run: Some(run),
        job: job.as_json(),
        summary: serde_json::to_value(summary).map_err(broken)?,
        tables: files.into_iter().map(Into::into).collect(),
        generator: generator_files(folder)?,
        pages: Vec::new(),
    })
}

/// The generator's files in a run's folder, if there are any.
fn generator_files(folder: &Path) -> Result<Vec<FileEntry>> {
    let generator = folder.join(GENERATOR);
    if !generator.is_dir() {
        return Ok(Vec::new());
    }
    let unreadable = |error: std::io::Error| {
        let shown = generator.display().to_string();
        Error::output(shown, format!("cannot be read back: {error}"))
    };
    let files = list(&generator).map_err(unreadable)?.into_iter();
    let entry = |(name, _): (String, FolderEntry)| {
        let (bytes, sha256) = sha256_of(&generator.join(&name)).map_err(unreadable)?;
        Ok(FileEntry { path: format!("{GENERATOR}/{name}"), bytes, sha256 })
    };
    files.map(entry).collect()
}

/// How a job's earlier results may be replaced.
fn replace(job: &Job) -> Replace {
    Replace { allowed: job.output.overwrite, keep: job.output.keep }
}

/// Where results of a command that does not resume are put together.
fn staging(job: &Job, run: &RunProvenance) -> Result<Staging> {
    match Mirror::open(&job.output, run, false)? {
        None => Staging::begin(&job.output.dir, replace(job)),
        Some(Opened::Ready(mirror)) => Staging::for_store(&job.output.dir, mirror, false),
        Some(Opened::Published(_)) => {
            Err(Error::output(job.output.shown(), "already holds the results of this very run")
                .hint("choose another `output.dir`, or set `overwrite = true` in [output]"))
        }
    }
}

/// Seconds since a moment.
fn seconds_since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64()
}
