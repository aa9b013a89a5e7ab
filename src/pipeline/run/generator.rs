//! The run's generator: trained here, brought along, or finished before the run was stopped.

use std::fs::{self, File};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::TrainSummary;
use super::super::train::{fit_generator, save_generator};
use super::{Entry, Progressed, Stages};
use crate::error::{Error, Result};
use crate::nn::{Artefact, GENERATOR_FILE, REFERENCE_FILE, WEIGHTS_FILE, load};
use crate::output::{GENERATOR, StagedFile, Staging};

/// A finished generator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct GeneratorRecord {
    /// How training went, if there was one.
    pub(super) summary: Option<TrainSummary>,
    /// Tables that came of it.
    pub(super) files: Vec<StagedFile>,
}

impl Stages<'_> {
    /// The generator, in the run's folder and in memory.
    pub(super) fn generator(
        &self,
        staging: &mut Staging,
        progressed: &mut Progressed,
        resume: bool,
    ) -> Result<Artefact> {
        if progressed.generator.is_none() {
            let record = match &self.job.explain.generator {
                Some(folder) => copy(folder, staging)?,
                None => self.train(staging, resume)?,
            };
            staging.keep();
            let entry = progressed.journal.append(&Entry::Generator(record))?;
            if let Entry::Generator(record) = entry {
                progressed.generator = Some(record);
            }
        }
        load(&staging.folder().join(GENERATOR), self.runtime.device)
    }

    fn train(&self, staging: &Staging, resume: bool) -> Result<GeneratorRecord> {
        let (job, checkpoint) = (self.job, staging.checkpoint());
        let trained = fit_generator(job, &checkpoint, resume, (self.runtime, self.observer))?;
        let files = save_generator(staging, &trained, job.output.row_group_rows)?;
        trained.checkpoints.clear();
        Ok(GeneratorRecord { summary: Some(trained.summary), files })
    }
}

/// Copies a generator's files.
fn copy(from: &Path, staging: &Staging) -> Result<GeneratorRecord> {
    let folder = staging.tables(&[GENERATOR])?.join(GENERATOR);
    for name in [GENERATOR_FILE, WEIGHTS_FILE, REFERENCE_FILE] {
        let path = folder.join(name);
        let copied = fs::copy(from.join(name), &path).and_then(|_| File::open(&path)?.sync_all());
        copied.map_err(|error| {
            let shown = from.join(name).display().to_string();
            Error::input(shown, format!("cannot be copied to the run's folder: {error}"))
        })?;
    }
    Ok(GeneratorRecord::default())
}
