//! The audit of a run: what has to be known before its tables are read back, and its sections, in order, after that.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use sha2::{Digest, Sha256};

use super::Inputs;
use super::chain::past;
use crate::artefact::{Artefact, load_neighbours};
use crate::audit::page::{PageContext, render};
use crate::audit::{AuditCounts, AuditSetup, Auditor, Efforts, GroupCounts};
use crate::audit::{at_bound, changes, curves, gaps, groups};
use crate::error::Result;
use crate::explain::target_names;
use crate::feature::FeatureStats;
use crate::job::{Job, Section, Target};
use crate::output::{AUDIT, FileEntry, GENERATOR, Manifest, Staging, audit_page_name, hex};

/// A run whose tables were read back.
pub(super) struct CountedRun<'a> {
    /// The job.
    pub(super) job: &'a Job,
    /// What targets are called, in the order of their numbers.
    pub(super) targets: &'a [String],
    /// The table, and what its columns mean.
    pub(super) inputs: &'a Inputs,
    /// Counts of groups.
    pub(super) counts: &'a GroupCounts,
}

/// The audit's tables, and what gates ask of them.
#[derive(Default)]
pub(super) struct Audited {
    /// By the name of the report, such as `audit/groups`.
    pub(super) tables: Vec<(String, RecordBatch)>,
    /// What `max_gap` is held against.
    pub(super) widest_gap: Option<f64>,
    /// What was told of fewer rows than it would have been with more questions.
    pub(super) remarks: Vec<String>,
}

/// What counts groups while the tables are read back; none if no section asks for it.
///
/// # Errors
/// When the generator's training rows cannot be read.
pub(super) fn auditor(
    (job, target): (&Job, &Target),
    inputs: &Inputs,
    (folder, artefact): (&Path, &Artefact),
) -> Result<Option<Arc<Auditor>>> {
    if job.audit.sections.is_empty() {
        return Ok(None);
    }
    let description = &artefact.description;
    let points = load_neighbours(&folder.join(GENERATOR), description)?;
    let seen = description.stats.features.iter().map(|seen| match seen {
        FeatureStats::Numeric(seen) => (seen.min, seen.max),
        FeatureStats::Categorical(_) => (f64::NAN, f64::NAN),
    });
    Ok(Some(Arc::new(Auditor {
        job: job.audit.clone(),
        schema: Arc::clone(&inputs.schema),
        constraints: inputs.constraints.clone(),
        targets: target_names(target, &description.targets.task()),
        target: target.clone(),
        efforts: Efforts::new(&points, &description.layout),
        seen: seen.collect(),
    })))
}

impl CountedRun<'_> {
    /// The sections, in order. Each that is further from the counts is a line here.
    ///
    /// # Errors
    /// Whatever stops a section.
    pub(super) fn sections(&self) -> Result<Audited> {
        let mut audited = Audited::default();
        self.of_counts(&mut audited)?;
        Ok(audited)
    }

    /// What needs nothing but the counts.
    fn of_counts(&self, audited: &mut Audited) -> Result<()> {
        let (counts, schema) = (self.counts, &self.inputs.schema);
        let setup = AuditSetup { job: &self.job.audit, targets: self.targets };
        for section in self.job.audit.sections.iter().copied() {
            let table = match section {
                Section::Groups => groups(&setup, counts, schema.features.len())?,
                Section::Curves => curves(&setup, counts)?,
                Section::Gaps => {
                    let gaps = gaps(&setup, counts)?;
                    audited.widest_gap = gaps.widest;
                    gaps.table
                }
                Section::Changes => changes(&setup, counts, schema)?,
                Section::AtBound => at_bound(&setup, counts, schema)?,
                _ => continue,
            };
            audited.tables.push((format!("{AUDIT}/{}", section.name()), table));
        }
        Ok(())
    }
}

/// Writes the audit's page, made of what is staged and will stand in `place`, and lists it in the manifest.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write_page(staging: &Staging, manifest: &mut Manifest, place: &Path) -> Result<()> {
    let (past, past_end) = past(manifest, place);
    let page =
        render(staging.folder(), &PageContext { past, past_end, ..PageContext::of(manifest)? })?;
    let path = audit_page_name();
    staging.write(&path, &page)?;
    let (bytes, sha256) = (page.len() as u64, hex(&Sha256::digest(&page)));
    manifest.pages.push(FileEntry { path, bytes, sha256 });
    Ok(())
}

/// Adds the counts of a split.
pub(super) fn merge(total: &mut Option<AuditCounts>, split: Option<AuditCounts>) {
    match (total, split) {
        (Some(total), Some(split)) => total.merge(&split),
        (total @ None, split) => *total = split,
        (Some(_), None) => {}
    }
}
