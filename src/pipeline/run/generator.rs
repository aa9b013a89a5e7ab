//! The run's generator: trained here, brought along, or finished before the run was stopped.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::train::{Checkpoint, fit_generator, save_generator};
use super::super::{RunContext, TrainSummary, generator_files};
use super::{JournalLine, Progressed, Stages, refuse_changed};
use crate::artefact::{
    Artefact, GENERATOR_FILE, NEIGHBOURS_FILE, REFERENCE_FILE, WEIGHTS_FILE, load,
};
use crate::document::{inside, read_regular};
use crate::error::{Error, Result};
use crate::output::{GENERATOR, StagedFile, Staging, is_inside, write_synced};
use crate::storage::wait;

/// A finished generator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct GeneratorRecord {
    /// How training went, if there was one.
    pub(super) summary: Option<TrainSummary>,
    /// Tables that came of it.
    pub(super) files: Vec<StagedFile>,
}

/// The files of a generator.
const FILES: [&str; 4] = [GENERATOR_FILE, WEIGHTS_FILE, REFERENCE_FILE, NEIGHBOURS_FILE];

impl GeneratorRecord {
    /// Whether its files are there; loading it tells whether they are what they should be.
    pub(super) fn is_there(&self, staging: &Staging) -> bool {
        let generator = FILES.map(|name| staging.folder().join(GENERATOR).join(name));
        let tables = self.files.iter().map(|file| staging.folder().join(&file.name));
        self.files.iter().all(|file| is_inside(&file.name))
            && generator.into_iter().chain(tables).all(|path| path.is_file())
    }
}

/// The paths of a generator's files in a run's folder.
pub(super) fn files_of_generator() -> Vec<String> {
    FILES.iter().map(|file| format!("{GENERATOR}/{file}")).collect()
}

/// Whether a path in a run's folder is of a generator's file.
pub(super) fn is_of_generator(name: &str) -> bool {
    files_of_generator().iter().any(|file| name == file)
}

impl Stages<'_> {
    /// The generator, in the run's folder and in memory.
    pub(super) fn generator(
        &self,
        staging: &mut Staging,
        progressed: &mut Progressed,
        training: (&RunContext, u64, bool),
    ) -> Result<Artefact> {
        if progressed.generator.is_none() {
            let record = match &self.job.explain.generator {
                Some(folder) => copy(folder, staging)?,
                None => self.train(staging, training)?,
            };
            staging.keep();
            let names = self.upload_generator(staging, &record)?;
            progressed.journal.append(&JournalLine::Generator(Box::new(record.clone())), &names)?;
            progressed.generator = Some(record);
        }
        load(&staging.folder().join(GENERATOR), self.runtime.device)
    }

    /// Puts the generator into the store of the results, if they go to one, and gives the names of its files.
    fn upload_generator(&self, staging: &Staging, record: &GeneratorRecord) -> Result<Vec<String>> {
        let Some(mirror) = staging.mirror() else { return Ok(Vec::new()) };
        let table = |file: &StagedFile| (file.name.clone(), file.bytes, file.sha256.clone());
        let mut files: Vec<(String, u64, String)> = record.files.iter().map(table).collect();
        let generator = generator_files(staging.folder())?.into_iter();
        files.extend(generator.map(|file| (file.path, file.bytes, file.sha256)));
        let names = files.iter().map(|(name, _, _)| name.clone()).collect();
        let folder = staging.folder().to_path_buf();
        wait(async move { mirror.upload(&folder, files).await })?;
        Ok(names)
    }

    /// A generator for this many rows, trained if that is worth it.
    fn train(
        &self,
        staging: &Staging,
        (context, rows, resume): (&RunContext, u64, bool),
    ) -> Result<GeneratorRecord> {
        let (mut job, folder) = (self.job.clone(), staging.checkpoint());
        job.explain.method = job.method_for(rows);
        tracing::info!(method = ?job.explain.method, rows, "chose the method");
        let stores = &self.job.input.stores;
        let unchanged = || refuse_changed(&self.provenance.inputs, &self.stamps, stores);
        let checkpoint = Checkpoint { folder: &folder, resume, unchanged: &unchanged };
        let trained = fit_generator(&job, context, checkpoint, (self.runtime, self.observer))?;
        let files = save_generator(staging, &trained, &self.writer_options()?)?;
        trained.checkpoints.clear();
        Ok(GeneratorRecord { summary: Some(trained.summary), files })
    }
}

/// Copies a generator's files.
fn copy(from: &Path, staging: &Staging) -> Result<GeneratorRecord> {
    let folder = staging.tables(&[GENERATOR])?.join(GENERATOR);
    for name in FILES {
        let content = inside(from, Path::new(name)).and_then(|path| read_regular(&path, u64::MAX));
        let content = content.map_err(|error| {
            Error::input(from.join(name).display().to_string(), format!("cannot be read: {error}"))
                .hint("a generator is the folder `generator` of a published run")
        })?;
        write_synced(&folder.join(name), &content)?;
    }
    Ok(GeneratorRecord::default())
}
