//! Doors for fuzzing: what a run reads of an earlier one, without the run around it.

use std::path::Path;

use super::again::Published;
use super::{Entry, RunSummary};
use crate::output::{Found, Journal, RunFacts};

/// Reads a journal as a resumed run does; returns how many entries could be used.
#[doc(hidden)]
pub fn read_journal(path: &Path) -> Option<usize> {
    Journal::header::<RunFacts>(path)?;
    let found: Found<RunFacts, Entry> = Journal::open(path).ok()??;
    Some(found.entries.len())
}

/// Reads the manifest of a folder as `report` does; returns whether it is one of a run with a summary.
#[doc(hidden)]
pub fn read_manifest(folder: &Path) -> Option<bool> {
    let published = Published::read(folder).ok()?;
    Some(published.summary().is_some_and(|summary: RunSummary| summary.repeated().rows_read > 0))
}
