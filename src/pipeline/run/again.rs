//! `overturn report`: the reports of a published run made anew from its tables, for example by other
//! segments. The run's folder is replaced in one step, its tables untouched.

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::super::{Observer, versions};
use super::execute::Done;
use super::finish::Finished;
use super::generator::GeneratorRecord;
use super::summary::RunSummary;
use super::{Part, Stages, facts, unfinished};
use crate::artefact::load;
use crate::engine::SplitRecord;
use crate::error::{Error, Fault, Kind, Result};
use crate::explain::check_fit;
use crate::job::Job;
use crate::output::{
    COUNTERFACTUALS, GENERATOR, MANIFEST_FILE, Manifest, REJECTS, REPORTS, Replace, RunFacts,
    SUCCESS_FILE, StagedFile, Staging, TRAINING_REPORT, is_part, resolved,
};
use crate::runtime::Runtime;

/// A published run.
pub(super) struct Published {
    /// What has made its tables.
    command: Part,
    facts: RunFacts,
    manifest: Manifest,
    files: Vec<StagedFile>,
}

/// Makes the reports of a published run anew and puts them in the place of the old.
///
/// # Errors
/// When there is no such run, or its tables no longer go with the job's; the run stays as it is then.
pub fn report(job: &Job, runtime: &Runtime, observer: &Observer) -> Result<RunSummary> {
    let began = Instant::now();
    let published = Published::read(&job.output.dir)?;
    if let Some(other) = unfinished(&job.output.dir) {
        let problem = format!("has an unfinished run {} beside it", other.run_id);
        return Err(Error::output(job.output.dir.display().to_string(), problem)
            .hint("finish it with `overturn run JOB --resume`, or start it over, first"));
    }
    let mut stages = Stages::new(job, published.command, runtime, observer)?;
    published.refuse_others(&stages)?;
    stages.part = Part::Report;
    refuse_itself(job)?;
    stages.facts = published.facts_of(&stages)?;
    let keyed = stages.check_keys()?;
    let replace = Replace { allowed: true, keep: job.output.keep };
    let staging = Staging::begin(&job.output.dir, replace)?;
    staging.start_over()?;
    // Reports that are stopped are begun anew.
    staging.clear_journal();
    link(&job.output.dir, staging.folder())?;
    staging.tables(&[REPORTS])?;
    let artefact = load(&staging.folder().join(GENERATOR), runtime.device)?;
    let task = artefact.description.targets.task();
    let shown = job.output.dir.join(GENERATOR).display().to_string();
    check_fit(&artefact.description, &stages.inputs.schema, &task, &shown)?;
    let record = |split| {
        let files = published.of_split(split);
        SplitRecord { split, files, ..SplitRecord::default() }
    };
    let splits = stages.splits().into_iter().map(|split| (split.clone(), record(split.index)));
    let splits = splits.collect();
    let done = Done { splits, rows_in_scope: keyed.rows, ..Done::default() };
    let generator = published.generator();
    let before = published.summary();
    stages.finish(staging, Finished { done, generator, artefact, began, before })
}

/// A run cannot be compared with itself.
fn refuse_itself(job: &Job) -> Result<()> {
    let same = |folder: &Path| resolved(folder).ok() == resolved(&job.output.dir).ok();
    let Some(folder) = job.audit.previous.as_deref().filter(|folder| same(folder)) else {
        return Ok(());
    };
    let problem = format!("is `{}`, the run itself", folder.display());
    Err(Error::spec("audit.previous", problem)
        .hint("name a run that it has replaced: `.<dir>.previous-…` beside it, while `output.keep` keeps it"))
}

impl Published {
    pub(super) fn read(folder: &Path) -> Result<Published> {
        let shown = folder.display().to_string();
        let none = |problem: &str| {
            Error::input(&shown, problem).hint("`overturn run` or `overturn explain` makes one")
        };
        if !folder.join(SUCCESS_FILE).exists() {
            return Err(none("is not the folder of a published run"));
        }
        let manifest = Manifest::read(folder)?;
        let command = [Part::Run, Part::Explain];
        let command = command.into_iter().find(|part| manifest.command == part.name());
        let command = command.ok_or_else(|| none("holds no counterfactuals, expected a run's"))?;
        let facts = manifest.run.clone().ok_or_else(|| none("does not say what it worked on"))?;
        let files = manifest.tables.iter().cloned().map(StagedFile::from).collect();
        Ok(Published { command, facts, files, manifest })
    }

    /// What the run said at its end.
    pub(super) fn summary(&self) -> Option<RunSummary> {
        serde_json::from_value(self.manifest.summary.clone()).ok()
    }

    /// Rows can be told from the tables only if those are what they were, and made by the same job.
    fn refuse_others(&self, stages: &Stages<'_>) -> Result<()> {
        let mut differences: Vec<String> = facts::differences(&self.facts, &stages.facts)
            .into_iter()
            // That of a run that has trained is not known to the job.
            .filter(|what| *what != "generator" || stages.job.explain.generator.is_some())
            // Reports may compare with another run than before.
            .filter(|what| *what != facts::PREVIOUS)
            .map(|what| format!("the {what}"))
            .collect();
        let job = facts::settings(serde_json::to_value(stages.job).unwrap_or_default());
        let made_by = facts::settings(self.manifest.job.clone());
        let sections = job.as_object().into_iter().flat_map(serde_json::Map::keys);
        let told = |section: &str| section == "report" || section == "audit";
        let changed = |section: &&String| !told(section) && job[*section] != made_by[*section];
        differences.extend(sections.filter(changed).map(|section| format!("`[{section}]`")));
        let fault = |what: String| {
            let problem = format!("was made before {what} changed");
            Fault::new(stages.job.output.dir.display().to_string(), problem).hint(
                "only `[report]` and `[audit]` may be others than the run's; run the job again",
            )
        };
        Error::from_faults(Kind::Input, differences.into_iter().map(fault).collect())
    }

    /// The same run, but one that a run of this job, with its `[report]`, would not do again.
    fn facts_of(&self, stages: &Stages<'_>) -> Result<RunFacts> {
        let mut facts = self.facts.clone();
        facts.previous.clone_from(&stages.facts.previous);
        if self.manifest.versions == versions()? {
            facts.fingerprint = stages.facts.fingerprint.clone();
        }
        Ok(facts)
    }

    /// What stays as it was beside the tables.
    fn generator(&self) -> GeneratorRecord {
        let training = format!("{REPORTS}/{TRAINING_REPORT}");
        GeneratorRecord {
            summary: serde_json::from_value(self.manifest.summary["training"].clone())
                .unwrap_or_default(),
            files: self.files.iter().filter(|file| file.name == training).cloned().collect(),
        }
    }

    /// The files of a split, whatever folders they are in.
    fn of_split(&self, split: usize) -> Vec<StagedFile> {
        let tables = |file: &&StagedFile| {
            let table = file.name.starts_with(COUNTERFACTUALS) || file.name.starts_with(REJECTS);
            table && is_part(&file.name, split)
        };
        self.files.iter().filter(tables).cloned().collect()
    }
}

/// The run's folder once more, with the same files in it, but for what is made anew.
fn link(from: &Path, to: &Path) -> Result<()> {
    let cannot = |error: std::io::Error| {
        Error::output(to.display().to_string(), format!("cannot be written: {error}"))
    };
    for entry in fs::read_dir(from).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let (path, place) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir_all(&place).map_err(cannot)?;
            link(&path, &place)?;
        } else if kept_as_it_is(&path) {
            fs::hard_link(&path, &place).map_err(cannot)?;
        }
    }
    Ok(())
}

fn kept_as_it_is(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut folders = path.ancestors().skip(1).take(2).filter_map(Path::file_name);
    let report = folders.any(|folder| folder == REPORTS);
    let remade = name == MANIFEST_FILE || name == SUCCESS_FILE;
    !remade && (!report || name == TRAINING_REPORT)
}
