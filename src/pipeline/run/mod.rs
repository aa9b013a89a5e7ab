//! `overturn run`: a generator (trained, or brought along), every row in scope explained split by split, the
//! reports, and all of it published as one folder. `overturn explain` is the same without training and
//! reports. Every finished split is journalled, so that a killed run resumes where it stopped.

mod columns;
mod compare;
mod dry;
mod execute;
mod figures;
mod generator;
mod journal;
mod lineage;
mod nights;
mod prometheus;
mod publish;
mod questions;
mod rereport;
mod shard;
mod spot;
mod summary;
mod survival;
mod table;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::overlaps::check_overlaps;
use super::partitions::{
    check_class_folders, check_groups, check_key_folders, check_label, check_segments,
};
use super::validate::{check_generator, check_target};
use super::{
    Inputs, Observer, RunContext, Scope, assumed, check_repeatable, replace, seconds_since,
    versions,
};
use crate::artefact::{Artefact, Description, load_neighbours};
use crate::error::{Error, Result};
use crate::explain::{ExplainSetup, Explainer, check_fit};
use crate::job::{ExplainMethod, Job, Target, TaskSpec};
use crate::lineage::Lineage;
use crate::output::{
    COUNTERFACTUALS, GENERATOR, Manifest, Mirror, Opened, REJECTS, RunProvenance, SUCCESS_FILE,
    Shard, Staging, WriterOptions, counterfactual_schema, refuse_folders, refuse_taken,
    rejects_schema, tidy,
};
use crate::runtime::Runtime;
use crate::storage::is_url;

use super::provenance::{self, Stamp, gather as gather_provenance, refuse_changed};
use columns::ScanColumns;
pub(super) use columns::check_segment_columns;
pub use dry::{DryRun, dry_run};
use execute::Done;
pub use journal::journal_pieces;
use journal::{JOURNAL_FORMAT, JournalHeader, JournalLine, Progressed, begun, unfinished};
pub(super) use nights::previous_run;
use publish::Finished;
pub use publish::gate_error;
pub(super) use questions::check_questions;
pub use rereport::{audit, published_job, report};
pub use shard::{ShardSummary, publish, run_shard};
pub use summary::{
    AgreementSummary, Example, MethodSummary, RunSummary, Seconds, StabilitySummary, TargetSummary,
};

/// How much of the whole is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// Training (unless the job brings a generator), explaining, reports.
    Run,
    /// Explaining with the job's generator.
    Explain,
    /// Reports of a published run.
    Report,
    /// The audit of a published run, whose other reports stay as they are.
    Audit,
}

impl RunMode {
    /// The command's name.
    pub fn name(self) -> &'static str {
        match self {
            RunMode::Run => "run",
            RunMode::Explain => "explain",
            RunMode::Report => "report",
            RunMode::Audit => "audit",
        }
    }

    /// Whether it works on a run that was published.
    fn works_on_published(self) -> bool {
        matches!(self, RunMode::Report | RunMode::Audit)
    }
}

/// What a run shares with its stages.
struct Stages<'a> {
    job: &'a Job,
    mode: RunMode,
    /// What makes, or has made, the tables.
    command: RunMode,
    target: &'a Target,
    inputs: Arc<Inputs>,
    columns: ScanColumns,
    provenance: RunProvenance,
    /// The input files as they were when they were hashed.
    stamps: Vec<Stamp>,
    runtime: &'a Runtime,
    observer: &'a Observer,
    /// The store of the results, if they go to one.
    mirror: Option<Arc<Mirror>>,
    /// Which of the splits are explained here, if not all.
    shard: Option<Shard>,
}

/// What a run begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// Nothing.
    Afresh,
    /// What a stopped run has finished.
    Resume,
    /// What shards have finished.
    Shards,
}

/// Rows in scope, whose keys were found to be good.
struct Keyed {
    rows: u64,
    seconds: f64,
}

/// Explains every row in scope and publishes the tables.
///
/// # Errors
/// Whatever stops it; nothing is published then, and what is finished stays for `resume`.
pub fn run(
    job: &Job,
    (mode, resume): (RunMode, bool),
    runtime: &Runtime,
    observer: &Observer,
) -> Result<RunSummary> {
    let begin = if resume { Begin::Resume } else { Begin::Afresh };
    lineage::with_events(job, mode, |lineage| {
        explain_all(job, (mode, begin), (runtime, observer), lineage)
    })
}

fn explain_all(
    job: &Job,
    (mode, begin): (RunMode, Begin),
    (runtime, observer): (&Runtime, &Observer),
    lineage: &Lineage,
) -> Result<RunSummary> {
    let began = Instant::now();
    // What is published is whole: only a run that was stopped is resumed.
    let earlier = match begin {
        Begin::Afresh => None,
        Begin::Resume => begun(job)?,
        Begin::Shards => shard::provenance_of_shards(job),
    };
    let job = &earlier.map_or_else(|| job.clone(), |read| provenance::pinned(job, &read));
    let mut stages = Stages::new(job, mode, runtime, observer)?;
    stages.tell(lineage);
    if let Some(mut summary) = stages.published(begin != Begin::Afresh)? {
        // The job's gates and metrics may be others than before.
        summary.gates = stages.gates(&summary);
        stages.write_metrics(&mut summary);
        return Ok(summary);
    }
    stages.check_table()?;
    let keyed = stages.check_keys()?;
    let context = RunContext::open(job, Arc::clone(&stages.inputs), runtime)?;
    let context = context.with_robust(job, runtime.threads)?;
    let explained = stages.explained(&context, keyed, begin);
    let (staging, mut finished) = explained.inspect_err(|_| context.stop())?;
    // Reports need no model of the job's.
    drop(context);
    finished.began = began;
    stages.publish(staging, finished)
}

impl<'a> Stages<'a> {
    fn new(
        job: &'a Job,
        mode: RunMode,
        runtime: &'a Runtime,
        observer: &'a Observer,
    ) -> Result<Stages<'a>> {
        let target = job.target.as_ref().ok_or_else(|| {
            Error::spec("target", "is missing, expected what the model should decide instead")
                .hint("add a section such as\n    [target]\n    class = \"approved\"")
        })?;
        if mode == RunMode::Explain && job.explain.generator.is_none() {
            let problem = "is missing, expected the folder of a fitted generator";
            return Err(Error::spec("explain.generator", problem)
                .hint("`overturn train` makes one; `overturn run` trains and explains"));
        }
        let inputs = Inputs::open(&job.input, &job.runtime, runtime.threads)?;
        let columns = ScanColumns::new(job, &inputs)?;
        check_output_names(job, &inputs)?;
        check_overlaps(job, &inputs)?;
        let (provenance, stamps) = gather_provenance(job, mode.name(), &inputs, runtime)?;
        let inputs = Arc::new(inputs);
        let command = mode;
        Ok(Stages {
            job,
            mode,
            command,
            target,
            inputs,
            columns,
            provenance,
            stamps,
            runtime,
            observer,
            mirror: None,
            shard: None,
        })
    }

    /// All up to the tables: the generator, and every row in scope explained.
    fn explained(
        &self,
        context: &RunContext,
        keyed: Keyed,
        begin: Begin,
    ) -> Result<(Staging, Finished)> {
        // What is resumed was checked when it began.
        let (afresh, resume) = (begin == Begin::Afresh, begin == Begin::Resume);
        let remarks = if afresh { self.check_early(context)? } else { Vec::new() };
        let mut staging = match &self.mirror {
            Some(mirror) => Staging::for_store(&self.job.output.dir, Arc::clone(mirror), resume)?,
            None => {
                let open = if resume { Staging::resume } else { Staging::begin };
                open(&self.job.output.dir, replace(self.job))?
            }
        };
        if begin == Begin::Shards {
            self.take_shards(&staging)?;
        }
        let mut progressed = self.journal(&staging, !afresh)?;
        let training = (context, keyed.rows, resume);
        let artefact = self.generator(&mut staging, &mut progressed, training)?;
        let generator = progressed.generator.take().unwrap_or_default();
        let mut done = self.explain(&mut staging, progressed, (context, &artefact), keyed)?;
        done.remarks.extend(remarks);
        let began = Instant::now();
        Ok((staging, Finished { done, generator, artefact, began, before: None }))
    }

    /// The summary of a run that has published the very same. One that is to be replaced is looked at only
    /// to resume a run that was killed: it may have been killed just after publishing.
    fn published(&mut self, resume: bool) -> Result<Option<RunSummary>> {
        match Mirror::open(&self.job.output, &self.provenance, resume)? {
            None => Ok(self.published_here(resume)),
            Some(Opened::Ready(mirror)) => {
                self.mirror = Some(mirror);
                Ok(None)
            }
            Some(Opened::Published(manifest)) => {
                let shown = self.job.output.shown();
                let summary = serde_json::from_value::<RunSummary>(manifest.summary);
                let broken = |error| Error::output(shown, "has another summary").source(error);
                Ok(Some(summary.map_err(broken)?.repeated()))
            }
        }
    }

    fn published_here(&self, resume: bool) -> Option<RunSummary> {
        let folder = &self.job.output.dir;
        let replace = self.job.output.overwrite && !resume;
        if replace || !folder.join(SUCCESS_FILE).exists() {
            return None;
        }
        let manifest = Manifest::read(folder).ok()?;
        if manifest.run.as_ref()?.fingerprint != self.provenance.fingerprint {
            return None;
        }
        if let Some(difference) = manifest.first_difference(folder) {
            tracing::warn!("{} was published before, but {difference}", folder.display());
            return None;
        }
        let summary: RunSummary = serde_json::from_value(manifest.summary).ok()?;
        if unfinished(folder).is_none_or(|other| other.fingerprint == self.provenance.fingerprint) {
            tidy(folder, self.job.output.keep);
        }
        Some(summary.repeated())
    }

    /// Counts the rows in scope and refuses keys that do not tell them apart, before anything long starts.
    fn check_keys(&self) -> Result<Keyed> {
        let (inputs, began) = (&self.inputs, Instant::now());
        self.observer.stage("checking keys", None);
        let scope = Scope::explained(&self.job.input);
        let rows = self.runtime.block_on(inputs.check_keys(&self.job.input, scope))?;
        self.runtime.block_on(check_key_folders(self.job, inputs))?;
        if self.mode != RunMode::Explain {
            self.runtime.block_on(check_segments(self.job, inputs))?;
            self.runtime.block_on(check_groups(self.job, inputs))?;
        }
        Ok(Keyed { rows, seconds: seconds_since(began) })
    }

    /// Finds what would stop the run later, perhaps after hours of training: a target, a generator or a score
    /// table that does not go with the model, a model that decides by chance. Gives what is odd, but usable.
    fn check_early(&self, context: &RunContext) -> Result<Vec<String>> {
        let (job, inputs, predictor) = (self.job, &self.inputs, &context.predictor);
        let task = predictor.task();
        check_class_folders(job, task)?;
        match &job.explain.generator {
            Some(folder) => check_generator(folder, job, (inputs, task), self.runtime)?,
            // Where there is nothing to train, they are looked at soon enough.
            None => {
                self.runtime.block_on(context.decisions(job, self.observer))?;
            }
        }
        let scope = Scope::explained(&job.input);
        let repeated = check_repeatable(job, inputs, scope, predictor);
        let mut remarks = self.runtime.block_on(repeated)?;
        remarks.extend(assumed(job, predictor.as_ref()));
        if self.mode != RunMode::Explain {
            self.runtime.block_on(check_label(job, inputs, task))?;
        }
        self.check_retrained(task)?;
        self.previous(task)?;
        Ok(remarks)
    }

    /// Explains what is left.
    fn explain(
        &self,
        staging: &mut Staging,
        progressed: Progressed,
        (context, artefact): (&RunContext, &Artefact),
        keyed: Keyed,
    ) -> Result<Done> {
        let (job, predictor) = (self.job, context.predictor.as_ref());
        self.runtime.for_explaining();
        let shown = staging.folder().join(GENERATOR);
        let shown = job.explain.generator.as_deref().unwrap_or(&shown).display().to_string();
        check_fit(&artefact.description, &self.inputs.schema, predictor.task(), &shown)?;
        staging.tables(&[COUNTERFACTUALS, REJECTS])?;
        let work = self.work(staging, progressed, (artefact, keyed), context);
        let mut done = self.runtime.block_on(work)?;
        done.remarks.extend(self.spot_check(staging.folder(), &done, predictor)?);
        Ok(done)
    }

    /// Everything that the engine has a part in.
    async fn work(
        &self,
        staging: &mut Staging,
        progressed: Progressed,
        (artefact, keyed): (&Artefact, Keyed),
        context: &RunContext,
    ) -> Result<Done> {
        let (job, inputs) = (self.job, &self.inputs);
        let began = Instant::now();
        let mut remarks: Vec<String> =
            self.other_model(&artefact.description).into_iter().collect();
        let distributions = artefact.description.targets.tells_distributions();
        let decisions = if distributions && inputs.scores.is_some() {
            let text = "the score table is not used: the generator gets whole distributions";
            remarks.push(text.to_string());
            None
        } else {
            context.decisions(job, self.observer).await?
        };
        remarks.extend(self.searched(&artefact.description, keyed.rows));
        if let Some(found) = &decisions {
            remarks.push(format!("{} decisions taken from the score table", found.len()));
        }
        let folder = staging.folder().join(GENERATOR);
        let neighbours = Some(load_neighbours(&folder, &artefact.description)?);
        let explainer = Explainer::new(
            artefact.generator.replica()?,
            ExplainSetup {
                description: &artefact.description,
                schema: Arc::clone(&inputs.schema),
                table: self.columns.schema(inputs),
                columns: self.columns.indexes.clone(),
                predictor: Arc::clone(&context.predictor),
                robust: context.robust.clone(),
                decisions,
                target: self.target,
                explain: &job.explain,
                neighbours,
                streams: self.runtime.streams(),
            },
        )?;
        let check_seconds = keyed.seconds + seconds_since(began);
        let explained = self.execute(staging, progressed, (Arc::new(explainer), keyed.rows));
        let mut done = explained.await?;
        (done.check_seconds, done.remarks) = (check_seconds, remarks);
        Ok(done)
    }

    /// What is to be said where there is no generator to ask.
    fn searched(&self, description: &Description, rows: u64) -> Option<String> {
        let explain = &self.job.explain;
        let method = explain.method.with_generator(description.learnt);
        (method == ExplainMethod::Search).then(|| explain.searched(rows))
    }

    /// What is to be said of a generator that was trained against another model than the job's.
    fn other_model(&self, description: &Description) -> Option<String> {
        let other = description.origin.model != self.provenance.model;
        other.then(|| {
            let text = "the generator was trained against another model or command: all counterfactuals are \
                        this model's, but the rows that they are looked for among and compared with \
                        (MMD²) are as the other one decided; train again for figures of this one";
            tracing::warn!("{text}");
            text.to_string()
        })
    }

    fn writer_options(&self) -> Result<WriterOptions> {
        let metadata = vec![
            ("overturn.run_id".to_string(), self.provenance.run_id.clone()),
            ("overturn.versions".to_string(), versions()?.to_string()),
        ];
        Ok(WriterOptions { row_group_rows: self.job.output.row_group_rows, metadata })
    }
}

/// Refuses key columns and folders that the tables have no room for, and a path for metrics that cannot be written.
pub(super) fn check_output_names(job: &Job, inputs: &Inputs) -> Result<()> {
    let (key, features) = (inputs.key_fields(), inputs.feature_fields());
    let regression = job.predictor.task == TaskSpec::Regression;
    let counterfactuals = counterfactual_schema(&key, &features, regression);
    refuse_taken(&key, &[&counterfactuals, &rejects_schema(&key)])?;
    refuse_folders(&key, &job.output.partition_by)?;
    let local = job.output.metrics.as_ref().filter(|path| !is_url(&path.to_string_lossy()));
    let folder = local.and_then(|path| path.parent());
    match folder.filter(|folder| *folder != Path::new("") && !folder.is_dir()) {
        None => Ok(()),
        Some(folder) => {
            let problem = format!("lies in `{}`, which is no folder", folder.display());
            Err(Error::spec("output.metrics", problem).hint("make the folder first"))
        }
    }
}
