//! The journal of a run: what is finished, a line for each split, and whether a run can resume from it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::execute::is_there;
use super::generator::{GeneratorRecord, is_of_generator};
use super::{Stages, provenance};
use crate::engine::SplitRecord;
use crate::error::{Error, Fault, Kind, Result};
use crate::job::Job;
use crate::output::{
    JOURNAL_FILE, Journal, Mirror, OpenedJournal, RunProvenance, Staging, journal_of, parse_journal,
};

/// A line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalLine {
    Generator(Box<GeneratorRecord>),
    Split(Box<SplitRecord>),
}

/// Version of what the lines of a journal are. The first had counts for reports, and files beside it.
pub(super) const JOURNAL_FORMAT: u32 = 2;

/// The first line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct JournalHeader {
    #[serde(default = "first_format")]
    pub(super) format: u32,
    #[serde(flatten)]
    pub(super) provenance: RunProvenance,
}

fn first_format() -> u32 {
    1
}

/// What was finished before, and the journal to continue.
pub(super) struct Progressed {
    pub(super) journal: Journal,
    pub(super) generator: Option<GeneratorRecord>,
    /// By the number of the split.
    pub(super) records: BTreeMap<usize, SplitRecord>,
}

impl Stages<'_> {
    /// The journal of this run: a fresh one, or that of the run to be resumed.
    pub(super) fn journal(&self, staging: &Staging, resume: bool) -> Result<Progressed> {
        let path = staging.journal().join(JOURNAL_FILE);
        let header = Journal::header::<JournalHeader>(&path).filter(|_| resume);
        if let Some(header) = &header {
            self.refuse_format(header.format)?;
            self.refuse_other(&header.provenance)?;
        }
        let found: Option<OpenedJournal<JournalHeader, JournalLine>> =
            if header.is_some() { Journal::open(&path)? } else { None };
        if let Some(found) = found {
            return progressed(found, staging);
        }
        staging.start_over()?;
        let header = JournalHeader { format: JOURNAL_FORMAT, provenance: self.provenance.clone() };
        let journal = Journal::create(&path, &header, staging.mirror())?;
        Ok(Progressed { journal, generator: None, records: BTreeMap::new() })
    }

    /// Only what this version has written can be resumed.
    fn refuse_format(&self, format: u32) -> Result<()> {
        if format == JOURNAL_FORMAT {
            return Ok(());
        }
        let problem = format!(
            "cannot be resumed: its journal has format {format}, expected {JOURNAL_FORMAT}"
        );
        Err(Error::input(self.job.output.shown(), problem).hint(
            "another version of overturn has begun the run: resume with that one, or run without \
             `--resume` to start over",
        ))
    }

    /// Only the very same run can be resumed.
    fn refuse_other(&self, found: &RunProvenance) -> Result<()> {
        if found.fingerprint == self.provenance.fingerprint {
            return Ok(());
        }
        let fault = |what: &str| {
            Fault::new(
                self.job.output.shown(),
                format!("cannot be resumed: the {what} changed since the run was stopped"),
            )
            .hint("run without `--resume` to start over")
        };
        let mut faults: Vec<Fault> =
            provenance::differences(found, &self.provenance).into_iter().map(fault).collect();
        if faults.is_empty() {
            faults.push(fault("job, or the version of overturn,"));
        }
        Error::from_faults(Kind::Input, faults)
    }
}

/// What of a journal can be used: splits whose files are there. All other files are removed: they are halves, or of
/// a run before.
fn progressed(
    found: OpenedJournal<JournalHeader, JournalLine>,
    staging: &Staging,
) -> Result<Progressed> {
    let (mut generator, mut records) = (None, BTreeMap::new());
    for entry in found.entries {
        match entry {
            JournalLine::Generator(record) => {
                generator = Some(*record).filter(|record| record.is_there(staging));
                // Splits of another generator are of no use.
                records.clear();
            }
            JournalLine::Split(record) => {
                records.entry(record.split).or_insert(*record);
            }
        }
    }
    records.retain(|_, record| generator.is_some() && is_there(record, staging));
    let files = records.values().flat_map(|record| &record.files);
    let files = generator.iter().flat_map(|record: &GeneratorRecord| &record.files).chain(files);
    let known: HashSet<&str> = files.map(|file| file.name.as_str()).collect();
    let generated = generator.is_some();
    staging.sweep(&|name| known.contains(name) || (generated && is_of_generator(name)))?;
    tracing::info!(splits = records.len(), "resuming from the journal");
    let journal = found.journal.mirrored(staging.mirror());
    Ok(Progressed { journal, generator, records })
}

/// The run that was stopped before it could publish, on this machine or in the store of its results.
pub(super) fn begun(job: &Job) -> Result<Option<RunProvenance>> {
    let reads = job.input.scores.as_ref().and_then(|scores| scores.table_at.as_ref());
    let versioned = reads.or(job.input.features_at.as_ref()).is_some();
    // Only versions are taken from it: where there are none, the store need not be asked.
    let line = if versioned { Mirror::unfinished(&job.output)? } else { None };
    let header = line.and_then(|line| serde_json::from_value::<JournalHeader>(line).ok());
    Ok(header.map(|header| header.provenance).or_else(|| unfinished(&job.output.dir)))
}

/// The run that was stopped before it could publish into a folder, if there is one.
pub(super) fn unfinished(folder: &Path) -> Option<RunProvenance> {
    let header = Journal::header::<JournalHeader>(&journal_of(folder).join(JOURNAL_FILE))?;
    Some(header.provenance)
}

/// Finished pieces that the bytes of a journal tell of; none if it tells nothing. For tests of what damaged ones
/// come to.
pub fn journal_pieces(content: &[u8]) -> Option<usize> {
    parse_journal::<JournalHeader, JournalLine>(content).map(|found| found.entries.len())
}
