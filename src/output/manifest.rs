//! What a run was and what it wrote, as JSON beside its tables.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::writer::StagedFile;

/// The content of `manifest.json`.
#[derive(Debug, Clone, Serialize)]
pub struct Manifest {
    /// The command that made the run.
    pub command: String,
    /// Versions of this program and of what it stands on.
    pub versions: Value,
    /// What the run worked on, for runs that can be resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunFacts>,
    /// The job as resolved.
    pub job: Value,
    /// Counts and timings, as in the summary.
    pub summary: Value,
    /// Every table, file by file.
    pub tables: Vec<TableEntry>,
}

/// What a run worked on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Name of the run: the same for the same work.
    pub run_id: String,
    /// SHA-256 of all that follows and of the job's settings: equal for runs that give the same tables.
    pub fingerprint: String,
    /// Files of the feature table and the score table.
    pub inputs: Vec<InputFile>,
    /// SHA-256 of the model's file, or of the command that runs it.
    pub model: String,
    /// SHA-256 of the feature schema.
    pub schema: String,
    /// SHA-256 of the generator's weights; empty before it is trained.
    pub generator: String,
    /// Seed of the random streams.
    pub seed: u64,
    /// Where tensors were.
    pub device: String,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Absolute path.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// Nanoseconds of its modification time since 1970.
    pub modified: u64,
    /// Rows, by its footer.
    pub rows: u64,
}

/// One file of a table.
#[derive(Debug, Clone, Serialize)]
pub struct TableEntry {
    /// Path relative to the manifest.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// Size.
    pub bytes: u64,
    /// SHA-256 of the content.
    pub sha256: String,
}

impl From<StagedFile> for TableEntry {
    fn from(file: StagedFile) -> Self {
        TableEntry { path: file.name, rows: file.rows, bytes: file.bytes, sha256: file.sha256 }
    }
}
