//! `overturn report`: the reports of a published run made anew from its tables, for example by other
//! segments. The run's folder is replaced in one step, its tables untouched.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use super::super::fetch::{fetch, fetch_run};
use super::super::partitions::check_label;
use super::super::{Observer, versions};
use super::execute::Done;
use super::generator::GeneratorRecord;
use super::publish::Finished;
use super::summary::RunSummary;
use super::{RunMode, Stages, provenance, unfinished};
use crate::artefact::load;
use crate::engine::SplitRecord;
use crate::error::{Error, Fault, Kind, Result};
use crate::explain::check_fit;
use crate::job::{Job, OutputJob, PredictorJob, PredictorKind, Section, scratch_of};
use crate::output::{
    AUDIT, COUNTERFACTUALS, GENERATOR, MANIFEST_FILE, Manifest, Mirror, Opened, PreviousFound,
    REJECTS, REPORTS, Replace, RunProvenance, SUCCESS_FILE, StagedFile, Staging, TRAINING_REPORT,
    find_previous, is_part, report_name, resolved,
};
use crate::runtime::Runtime;
use crate::storage::{ObjectUrl, Stores, is_url};

/// What the audit makes among the reports, beside its own folder.
const AUDITED: [&str; 3] = ["audit.html", "stability.parquet", "reasons.parquet"];

/// A published run.
pub(super) struct Published {
    /// What has made its tables.
    command: RunMode,
    provenance: RunProvenance,
    manifest: Manifest,
    files: Vec<StagedFile>,
}

/// Makes the reports of a published run anew and puts them in the place of the old.
///
/// # Errors
/// When there is no such run, or its tables no longer go with the job's; the run stays as it is then.
pub fn report(job: &Job, runtime: &Runtime, observer: &Observer) -> Result<RunSummary> {
    remake(job, RunMode::Report, (runtime, observer))
}

/// The same for the audit alone: the other reports stay as they are.
///
/// # Errors
/// As [`report`].
pub fn audit(job: &Job, runtime: &Runtime, observer: &Observer) -> Result<RunSummary> {
    remake(job, RunMode::Audit, (runtime, observer))
}

fn remake(
    job: &Job,
    mode: RunMode,
    (runtime, observer): (&Runtime, &Observer),
) -> Result<RunSummary> {
    let began = Instant::now();
    let url = job.output.url.as_ref().map(|url| PathBuf::from(url.to_string()));
    let folder = fetch_run(url.as_deref().unwrap_or(&job.output.dir), &job.output.stores)?;
    let published = Published::read(&folder)?;
    if let Some(other) = unfinished(&job.output.dir).filter(|_| url.is_none()) {
        let problem = format!("has an unfinished run {} beside it", other.run_id);
        return Err(Error::output(job.output.dir.display().to_string(), problem)
            .hint("finish it with `overturn run JOB --resume`, or start it over, first"));
    }
    let job = &provenance::pinned(job, &published.provenance);
    let mut stages = Stages::new(job, published.command, runtime, observer)?;
    published.refuse_others(&stages)?;
    // A run without reports gets them all, so that its page can tell of them.
    let mode = if published.is_reported() { mode } else { RunMode::Report };
    stages.mode = mode;
    refuse_itself(job)?;
    stages.provenance = published.provenance_of(&stages)?;
    let keyed = stages.check_keys()?;
    let staging = staging_of(job, &stages.provenance)?;
    staging.start_over()?;
    // Reports that are stopped are begun anew.
    staging.clear_journal();
    link(&folder, staging.folder(), mode)?;
    staging.tables(&[REPORTS])?;
    let artefact = load(&staging.folder().join(GENERATOR), runtime.device)?;
    let task = artefact.description.targets.task();
    let shown = format!("{}/{GENERATOR}", job.output.shown());
    check_fit(&artefact.description, &stages.inputs.schema, &task, &shown)?;
    runtime.block_on(check_label(job, &stages.inputs, &task))?;
    let record = |split| {
        let files = published.of_split(split);
        SplitRecord { split, files, ..SplitRecord::default() }
    };
    let splits = stages.splits().into_iter().map(|split| (split.clone(), record(split.index)));
    let splits = splits.collect();
    let done = Done { splits, rows_in_scope: keyed.rows, ..Done::default() };
    let generator = published.generator(mode);
    let before = published.summary();
    stages.publish(staging, Finished { done, generator, artefact, began, before })
}

/// Where reports are made: beside the run, or for the store that it is in, whose results they replace.
fn staging_of(job: &Job, provenance: &RunProvenance) -> Result<Staging> {
    let output = OutputJob { overwrite: true, ..job.output.clone() };
    match Mirror::open(&output, provenance, false)? {
        Some(Opened::Ready(mirror)) => Staging::for_store(&job.output.dir, mirror, false),
        Some(Opened::Published(_)) => Err(Error::internal("reports", "are not made anew")),
        None => {
            let replace = Replace { allowed: true, keep: job.output.keep };
            Staging::begin(&job.output.dir, replace)
        }
    }
}

/// A run cannot be compared with itself.
fn refuse_itself(job: &Job) -> Result<()> {
    let same = |folder: &Path| match &job.output.url {
        Some(url) => job.shown(folder) == url.to_string(),
        None => resolved(folder).ok() == resolved(&job.output.dir).ok(),
    };
    let Some(folder) = job.audit.previous.as_deref().filter(|folder| same(folder)) else {
        return Ok(());
    };
    let problem = format!("is `{}`, the run itself", job.shown(folder));
    Err(Error::spec("audit.previous", problem)
        .hint("name a run that it has replaced: `.<dir>.previous-…` beside it, while `output.keep` keeps it"))
}

/// The job of a published run, to make its reports anew with: by these groups, or its own if there are none. A manifest
/// is data from outside: no program that it names is started.
///
/// # Errors
/// When there is no such run, or it has a job that this version does not know.
pub fn published_job(folder: &Path, by: &[String]) -> Result<Job> {
    let text = folder.to_string_lossy();
    let url = match is_url(&text) {
        true => Some(
            ObjectUrl::parse(&text)
                .map_err(|problem| Error::spec(text.as_ref(), format!("is a URL {problem}")))?,
        ),
        false => None,
    };
    // Its options are in no manifest: the environment's must do.
    let published = Published::read(&fetch_run(folder, &Stores::default())?)?;
    let shown = folder.display().to_string();
    let made = &published.manifest.job;
    let mut job: Job = serde_json::from_value(made.clone()).map_err(|error| {
        let problem = format!("was made by a job that this version does not know: {error}");
        Error::input(&shown, problem)
            .hint("make it anew with `overturn report JOB`, by its job file")
    })?;
    let retrained = ("report.retrained", &job.report.retrained);
    let robust = ("robust.models", &job.robust.models);
    let program = |model: &PredictorJob| matches!(model.kind, PredictorKind::Subprocess(_));
    for (key, models) in [retrained, robust] {
        if models.iter().any(program) && (key != "robust.models" || job.audit.asks()) {
            let problem =
                format!("names programs in `{key}`, which are not started for a manifest");
            return Err(Error::input(shown, problem)
                .hint("`overturn report JOB` starts those of a job file"));
        }
    }
    published.find_previous_of(&mut job, folder)?;
    if made.get("audit").is_none() {
        job.audit.by.clone_from(&job.report.by);
    }
    if !by.is_empty() {
        refuse_twice(by)?;
        job.audit.reference.retain(|name, _| by.contains(name));
        job.audit.by = by.to_vec();
    }
    job.output.dir = match &url {
        Some(url) => scratch_of(url)?,
        None => std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf()),
    };
    job.copies.extend(url.iter().map(|url| (job.output.dir.clone(), url.to_string())));
    // A copy of results in a store is a folder of this machine.
    job.output.url = url;
    job.output.overwrite = true;
    fetch(job)
}

fn refuse_twice(by: &[String]) -> Result<()> {
    let twice = by.iter().enumerate().find(|(position, name)| by[..*position].contains(name));
    match twice {
        Some((_, name)) => Err(Error::spec("--by", format!("names the column `{name}` twice"))),
        None => Ok(()),
    }
}

impl Published {
    /// Where the run is now that this one was compared with; one that is gone is no longer compared with.
    fn find_previous_of(&self, job: &mut Job, folder: &Path) -> Result<()> {
        let previous =
            self.provenance.previous.as_ref().filter(|_| job.audit.has(Section::Stability));
        let Some(previous) = previous else { return Ok(()) };
        if matches!(job.predictor.kind, PredictorKind::Subprocess(_)) {
            let problem = "was compared with an earlier run by a model that is a program, which is not started for a \
                           manifest";
            return Err(Error::input(folder.display().to_string(), problem)
                .hint("`overturn report JOB` starts that of a job file"));
        }
        if is_url(&previous.path) {
            job.audit.previous = Some(PathBuf::from(&previous.path));
            return Ok(());
        }
        job.audit.previous = match find_previous(previous, folder) {
            PreviousFound::There(position) => Some(position),
            PreviousFound::Gone(why) | PreviousFound::Changed(why) => {
                tracing::warn!("`{}` is not compared with again: {why}", previous.path);
                job.audit.sections.retain(|section| *section != Section::Stability);
                None
            }
        };
        Ok(())
    }

    pub(super) fn read(folder: &Path) -> Result<Published> {
        let shown = folder.display().to_string();
        let none = |problem: &str| {
            Error::input(&shown, problem).hint("`overturn run` or `overturn explain` makes one")
        };
        if !folder.join(SUCCESS_FILE).exists() {
            return Err(none("is not the folder of a published run"));
        }
        let manifest = Manifest::read(folder)?;
        let command = [RunMode::Run, RunMode::Explain];
        let command = command.into_iter().find(|mode| manifest.command == mode.name());
        let command = command.ok_or_else(|| none("holds no counterfactuals, expected a run's"))?;
        let provenance =
            manifest.run.clone().ok_or_else(|| none("does not say what it worked on"))?;
        let files = manifest.tables.iter().cloned().map(StagedFile::from).collect();
        Ok(Published { command, provenance, files, manifest })
    }

    /// Whether it has reports, and said what they came to.
    fn is_reported(&self) -> bool {
        let reports = |file: &StagedFile| file.name == report_name("validity");
        self.command == RunMode::Run && self.summary().is_some() && self.files.iter().any(reports)
    }

    /// What the run said at its end.
    pub(super) fn summary(&self) -> Option<RunSummary> {
        serde_json::from_value(self.manifest.summary.clone()).ok()
    }

    /// Rows can be told from the tables only if those are what they were, and made by the same job.
    fn refuse_others(&self, stages: &Stages<'_>) -> Result<()> {
        let mut differences: Vec<String> =
            provenance::differences(&self.provenance, &stages.provenance)
                .into_iter()
                // That of a run that has trained is not known to the job.
                .filter(|what| *what != "generator" || stages.job.explain.generator.is_some())
                // Reports may compare with another run than before.
                .filter(|what| *what != provenance::PREVIOUS)
                .map(|what| format!("the {what}"))
                .collect();
        let job = settings(stages.job.as_json());
        let made_by = settings(self.manifest.job.clone());
        let sections = job.as_object().into_iter().flat_map(serde_json::Map::keys);
        let changed = |section: &&String| {
            *section != "report" && *section != "audit" && job[*section] != made_by[*section]
        };
        differences.extend(sections.filter(changed).map(|section| format!("`[{section}]`")));
        let fault = |what: String| {
            let problem = format!("was made before {what} changed");
            Fault::new(stages.job.output.shown(), problem).hint(
                "only `[report]` and `[audit]` may be others than the run's; run the job again",
            )
        };
        Error::from_faults(Kind::Input, differences.into_iter().map(fault).collect())
    }

    /// The same run, but one that a run of this job, with its `[report]` and `[audit]`, would not do again.
    fn provenance_of(&self, stages: &Stages<'_>) -> Result<RunProvenance> {
        let mut provenance = self.provenance.clone();
        provenance.previous.clone_from(&stages.provenance.previous);
        if self.manifest.versions == versions()? {
            provenance.fingerprint = stages.provenance.fingerprint.clone();
        }
        Ok(provenance)
    }

    /// What stays as it was beside the tables.
    fn generator(&self, mode: RunMode) -> GeneratorRecord {
        let stays = |file: &&StagedFile| {
            file.name.starts_with(REPORTS) && stays(Path::new(&file.name), mode)
        };
        GeneratorRecord {
            summary: serde_json::from_value(self.manifest.summary["training"].clone())
                .unwrap_or_default(),
            files: self.files.iter().filter(stays).cloned().collect(),
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

/// What of a job must be as it was. The tables are known by the manifest beside them, wherever they were moved to.
fn settings(job: Value) -> Value {
    let mut settings = provenance::settings(job);
    if let Some(dir) = settings.pointer_mut("/output/dir") {
        *dir = Value::Null;
    }
    settings
}

/// The run's folder once more, with the same files in it, but for what is made anew.
fn link(from: &Path, to: &Path, mode: RunMode) -> Result<()> {
    let cannot = |error: std::io::Error| {
        Error::output(to.display().to_string(), format!("cannot be written: {error}"))
    };
    for entry in fs::read_dir(from).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let (path, position) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir_all(&position).map_err(cannot)?;
            link(&path, &position, mode)?;
        } else if stays(&path, mode) {
            let linked = fs::hard_link(&path, &position);
            linked.or_else(|_| fs::copy(&path, &position).map(|_| ())).map_err(cannot)?;
        }
    }
    Ok(())
}

/// Whether a file is not made anew.
fn stays(path: &Path, mode: RunMode) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parent = |path: &Path| path.parent().and_then(Path::file_name).map(ToOwned::to_owned);
    let audited = path.parent().filter(|_| parent(path).is_some_and(|of| of == AUDIT));
    let report = parent(audited.unwrap_or(path)).is_some_and(|parent| parent == REPORTS);
    let remade = name == MANIFEST_FILE || name == SUCCESS_FILE;
    let of_audit = audited.is_some() || AUDITED.contains(&name.as_ref());
    !remade && (!report || name == TRAINING_REPORT || (mode == RunMode::Audit && !of_audit))
}
