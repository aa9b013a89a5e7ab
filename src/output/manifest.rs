//! What a run was and what it wrote, as JSON beside its tables.

use serde::Serialize;
use serde_json::Value;

use super::writer::StagedFile;

/// The content of `manifest.json`.
#[derive(Debug, Clone, Serialize)]
pub struct Manifest {
    /// The command that made the run.
    pub command: String,
    /// Versions of this program and of what it stands on.
    pub versions: Value,
    /// The job as resolved.
    pub job: Value,
    /// Counts and timings, as in the summary.
    pub summary: Value,
    /// Every table, file by file.
    pub tables: Vec<TableEntry>,
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
