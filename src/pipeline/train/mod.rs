//! `overturn train`: rows into memory, the model's answers about them, the generator, the artefact.

mod load;
mod neighbours;
mod origin;
mod publish;
mod reference;
mod warm;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::overlaps::check_overlaps;
use super::provenance::{gather as gather_provenance, refuse_changed};
use super::{
    CheckSummary, Inputs, ModelProvenance, Observer, RunContext, Scope, check_repeatable, memory,
    seconds_since, staging,
};
use crate::artefact::{Artefact, Description, ModelForm};
use crate::constrain::{Constraints, Observed};
use crate::encode::Encoder;
use crate::error::{Error, Kind, Result};
use crate::feature::{Rows, Stats};
use crate::job::{AutoencoderKind, Coherence, ExplainMethod, Job, available_memory};
use crate::nearest::Points;
use crate::nn::out_of_memory;
use crate::output::{Manifest, RunProvenance, SUCCESS_FILE, tidy};
use crate::predictor::{self, Outcome, Predictor, Task};
use crate::runtime::Runtime;
use crate::train::{
    AutoencoderFigures, Checkpoints, Ending, Event, FitInput, Fitted, Point, Quality, TrainSetup,
    evaluate_on, fit,
};

use load::Loaded;
pub(super) use publish::save_generator;

/// Rows up to here are all trained on and all validated on: setting some aside would leave too few of both.
const FEW_ROWS: usize = 50;

/// How long a step may take to end after a signal …
const PATIENCE: Duration = Duration::from_secs(1);
/// … and how often it is looked whether it has.
const GLANCE: Duration = Duration::from_millis(10);

/// What a training run did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainSummary {
    /// Rows of the feature table.
    pub rows_read: u64,
    /// Rows that `input.train_where` selects.
    pub rows_in_scope: u64,
    /// Rows trained on.
    pub rows_trained: usize,
    /// Rows that cannot be used.
    pub rows_rejected: usize,
    /// Steps of actor and critic.
    pub steps: usize,
    /// Why there were no more.
    pub ended_by: Ending,
    /// Steps a second.
    pub steps_per_second: f64,
    /// Seconds for checks, reading and scoring the rows.
    pub load_seconds: f64,
    /// Seconds for the autoencoder, the actor and the critic.
    pub train_seconds: f64,
    /// The autoencoder's figures.
    pub autoencoder: AutoencoderFigures,
    /// The generator on rows kept aside during training.
    pub validation: Quality,
    /// The generator on the rows of `train.test_where`.
    pub test: Option<Quality>,
    /// Where the generator is.
    pub output: String,
    /// What is odd, but usable.
    pub remarks: Vec<String>,
}

/// Trains the generator of a job and publishes it.
///
/// # Errors
/// Whatever stops it; nothing is published then, and a checkpoint is left where there is something to go
/// on from.
pub fn train(
    job: &Job,
    resume: bool,
    runtime: &Runtime,
    observer: &Observer,
) -> Result<TrainSummary> {
    let inputs = Inputs::open(&job.input, &job.runtime, runtime.threads)?;
    check_overlaps(job, &inputs)?;
    let (provenance, stamps) = gather_provenance(job, "train", &inputs, runtime)?;
    if let Some(summary) = published(job, &provenance).filter(|_| resume) {
        tidy(&job.output.dir, job.output.keep);
        return Ok(summary);
    }
    let staging = staging(job, &provenance)?;
    let context = RunContext::open(job, Arc::new(inputs), runtime)?;
    let unchanged = || refuse_changed(&provenance.inputs, &stamps, &job.input.stores);
    let folder = staging.checkpoint();
    let checkpoint = Checkpoint { folder: &folder, resume, unchanged: &unchanged };
    let trained = fit_generator(&told_to_train(job), &context, checkpoint, (runtime, observer))?;
    ModelProvenance::of(&provenance).refuse_changed(job)?;
    publish::publish(job, staging, &trained, provenance)?;
    trained.checkpoints.clear();
    Ok(trained.summary)
}

/// The summary of the very same training, if it has published: it may have been killed just after that.
fn published(job: &Job, provenance: &RunProvenance) -> Option<TrainSummary> {
    let folder = &job.output.dir;
    let manifest = Manifest::read(folder).ok()?;
    let same = manifest.run.as_ref()?.fingerprint == provenance.fingerprint;
    if !same || !folder.join(SUCCESS_FILE).exists() || manifest.first_difference(folder).is_some() {
        return None;
    }
    let mut summary: TrainSummary = serde_json::from_value(manifest.summary).ok()?;
    summary.remarks.push("published before: nothing was done".to_string());
    Some(summary)
}

/// A trained generator, to be written somewhere.
pub(super) struct Trained {
    pub(super) artefact: Artefact,
    /// Training rows to look for answers among.
    pub(super) neighbours: Points,
    pub(super) curve: Vec<Point>,
    pub(super) summary: TrainSummary,
    /// To be cleared once the generator is safe.
    pub(super) checkpoints: Checkpoints,
}

/// Where training leaves what it can be resumed from.
pub(super) struct Checkpoint<'a> {
    pub(super) folder: &'a Path,
    /// Whether it resumes from there.
    pub(super) resume: bool,
    /// Asked once the rows are in memory: whether the tables are still what they were.
    pub(super) unchanged: &'a dyn Fn() -> Result<()>,
}

/// What holds in all training rows, as far as counterfactuals are to keep it.
fn observed(job: &Job, inputs: &Inputs, rows: &Rows) -> Observed {
    match job.explain.coherence {
        Coherence::Observed => {
            let bounded: Vec<usize> = inputs.constraints.iter().map(|of| of.feature).collect();
            Observed::find(rows, rows.len, &inputs.schema)
                .without_formulas_of(&inputs.schema, &bounded)
        }
        Coherence::Off => Observed::default(),
    }
}

/// Trains the generator of a job.
pub(super) fn fit_generator(
    job: &Job,
    context: &RunContext,
    checkpoint: Checkpoint<'_>,
    (runtime, observer): (&Runtime, &Observer),
) -> Result<Trained> {
    let began = Instant::now();
    let (job, resume) = (&without_need(job), checkpoint.resume);
    let RunContext { inputs, predictor, .. } = context;
    memory::estimate(job, inputs, predictor.task(), runtime.threads)
        .check(available_memory())
        .inspect_err(|_| predictor.stop())?;
    let source = load::RowSource { job, inputs, runtime, observer };
    let result = runtime.block_on(async {
        let mut loaded = source.load(predictor).await?;
        let predicate = job.input.train_predicate.as_deref();
        let scope = Scope { key: "input.train_where", predicate };
        loaded.remarks.extend(check_repeatable(job, inputs, scope, predictor).await?);
        Ok(loaded)
    });
    let loaded = result.inspect_err(|_| predictor.stop())?;
    (checkpoint.unchanged)().inspect_err(|_| predictor.stop())?;
    let from = warm::start(job, inputs, &loaded, runtime)?;
    let stats = from.as_ref().map_or(&loaded.check.stats, |from| &from.description.stats).clone();
    let rows = &loaded.sample.rows;
    let observed = observed(job, inputs, rows);
    let fixed = Fixed::new(inputs, &stats, observed, predictor::fingerprint(&job.predictor)?);
    refuse(inputs, &fixed, &loaded, predictor.task())?;
    let origin = origin::of(&fixed, &loaded.sample, runtime)?;
    let checkpoints = Checkpoints::new(
        checkpoint.folder.to_path_buf(),
        origin::fingerprint(job, &origin, &loaded.sample)?,
    );
    if !resume {
        checkpoints.clear();
    }
    let predictor = Arc::clone(predictor);
    let trainer =
        TrainerThread { job, inputs, fixed: &fixed, predictor, checkpoints: &checkpoints };
    let load_seconds = seconds_since(began);
    let began = Instant::now();
    let (fitted, test) = trainer.teach(&loaded, from, resume, runtime, observer)?;
    let mut summary = summarise(&loaded, &fitted, test);
    summary.load_seconds = load_seconds;
    summary.train_seconds = seconds_since(began);
    summary.output = job.output.shown();
    let reference = reference::gather(&fixed, &loaded, runtime);
    let neighbours = neighbours::gather(&fixed, &loaded);
    let Fitted { generator, critic, curve, .. } = fitted;
    let mut description =
        describe(job, inputs, &stats, (fitted.shape, fitted.codec), &summary, origin)?;
    description.observed = fixed.observed;
    let artefact = Artefact { description, generator, critic, reference };
    Ok(Trained { artefact, neighbours, curve, summary, checkpoints })
}

/// The job, where `auto` means a generator: whoever calls `train` wants one.
fn told_to_train(job: &Job) -> Job {
    let mut job = job.clone();
    job.explain.method = job.explain.method.with_generator(true);
    job
}

/// Whether a job's generator is to learn anything.
fn learns(job: &Job) -> bool {
    job.explain.method == ExplainMethod::Cfrl || job.explain.others_ask_generator()
}

/// The job, with as little training as can be where nobody will ask the generator.
fn without_need(job: &Job) -> Job {
    let mut job = job.clone();
    if !learns(&job) {
        job.autoencoder.kind = AutoencoderKind::Never;
        job.train.limits.max_steps = 1;
        job.train.from = None;
    }
    job
}

/// What follows from schema and statistics.
struct Fixed {
    /// SHA-256 of the model.
    model: String,
    encoder: Encoder,
    /// What holds between features in all rows.
    observed: Observed,
    constraints: Arc<Constraints>,
}

impl Fixed {
    fn new(inputs: &Inputs, stats: &Stats, observed: Observed, model: String) -> Fixed {
        let encoder = Encoder::new(Arc::clone(&inputs.schema), stats);
        let columns = inputs.predictor_columns().schema;
        let layout = Arc::clone(encoder.layout());
        let constraints = Constraints::new(Arc::clone(&inputs.schema), stats, layout, &columns)
            .with_observed(&observed);
        Fixed { model, encoder, observed, constraints: Arc::new(constraints) }
    }
}

/// Runs the training on a thread of its own.
struct TrainerThread<'a> {
    job: &'a Job,
    inputs: &'a Inputs,
    fixed: &'a Fixed,
    predictor: Arc<dyn Predictor>,
    checkpoints: &'a Checkpoints,
}

impl TrainerThread<'_> {
    fn teach(
        &self,
        loaded: &Loaded,
        from: Option<Artefact>,
        resume: bool,
        runtime: &Runtime,
        observer: &Observer,
    ) -> Result<(Fitted, Option<Quality>)> {
        let stop = AtomicI32::new(0);
        let listener = |event: Event| tell(observer, event);
        let setup = self.setup(runtime, &stop, &listener);
        let (training_rows, train) = (&loaded.sample, loaded.train);
        let input = FitInput { training_rows, train, from, resume, learns: learns(self.job) };
        let test = loaded.test.as_ref();
        let work = move |done: tokio::sync::oneshot::Sender<()>| {
            let fitted = fit(&setup, input)?;
            let test = test.map(|test| evaluate_on(&setup, &fitted, test)).transpose()?;
            drop(done);
            Ok((fitted, test))
        };
        runtime.for_training();
        std::thread::scope(|scope| {
            let (done, ended) = tokio::sync::oneshot::channel();
            let spawned = std::thread::Builder::new().name("training".to_string());
            let thread = spawned
                .spawn_scoped(scope, move || work(done))
                .map_err(|error| Error::resources("threads", "cannot be started").source(error))?;
            // Waits for the thread to end, or for a signal.
            let waited = runtime.block_on(async { ended.await.map_or_else(|_| Ok(()), Ok) });
            if let Err(Kind::Interrupted(signal)) = waited.as_ref().map_err(Error::kind) {
                stop.store(signal, Ordering::Relaxed);
                let asked = Instant::now();
                // A step ends soon, and leaves a clean checkpoint; a model that hangs does not.
                while !thread.is_finished() && asked.elapsed() < PATIENCE {
                    std::thread::sleep(GLANCE);
                }
                self.predictor.stop();
            }
            let result = thread.join().unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
            // The thread's own word on why it ended may be that its model was stopped.
            waited.and(result)
        })
    }

    fn setup<'s>(
        &'s self,
        runtime: &Runtime,
        stop: &'s AtomicI32,
        listener: &'s (dyn Fn(Event) + Sync),
    ) -> TrainSetup<'s> {
        TrainSetup {
            train: &self.job.train,
            autoencoder: &self.job.autoencoder,
            target: self.job.target.as_ref(),
            schema: Arc::clone(&self.inputs.schema),
            encoder: self.fixed.encoder.clone(),
            constraints: Arc::clone(&self.fixed.constraints),
            predictor: Arc::clone(&self.predictor),
            device: runtime.device,
            streams: runtime.streams(),
            stop,
            checkpoints: Some(self.checkpoints),
            listener,
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    if let Some(error) = text.and_then(out_of_memory) {
        return error;
    }
    Error::internal("training", text.unwrap_or("ended without a word").to_string())
}

fn tell(observer: &Observer, event: Event) {
    match event {
        Event::Stage(name, steps) => observer.steps(name, steps),
        Event::Steps(steps) => observer.advance(steps),
        Event::Point(point) => {
            let Point { step, reward, critic_loss, actor_loss, quality, .. } = point;
            let Quality { validity, l0, l1, .. } = quality;
            observer.state(&format!(
                "validity {:.1} %  L0 {l0:.3}  L1 {l1:.3}  reward {reward:.3}  losses \
                 {critic_loss:.4} {actor_loss:.3}",
                100.0 * validity
            ));
            tracing::debug!(step, reward, validity, l0, l1, critic_loss, actor_loss, "evaluated");
        }
    }
}

/// What makes training pointless.
fn refuse(inputs: &Inputs, fixed: &Fixed, loaded: &Loaded, task: &Task) -> Result<()> {
    if fixed.constraints.changeable().is_empty() {
        return Err(Error::schema(
            "feature schema",
            "lets no feature change: there is nothing to learn",
        )
        .hint("give some feature `change = \"any\"`, a range, or further `allowed` values"));
    }
    let scores = &loaded.sample.scores;
    if let Outcome::Values(values) = &scores.outcome {
        let mut known = values.iter().filter(|value| value.is_finite());
        let first = known.next();
        if known.all(|value| Some(value) == first) {
            let said = first.map_or("no value".to_string(), |value| format!("the value {value}"));
            let problem = format!("gives {said} for all {} training rows", scores.rows);
            return Err(Error::predictor("predictor", format!("{problem}, expected several"))
                .hint("check the model, and the rows that `input.train_where` selects"));
        }
    }
    if let (Task::Classification { classes, .. }, Outcome::Classes { labels, .. }) =
        (task, &scores.outcome)
    {
        let mut predicted = labels.iter().filter(|label| (**label as usize) < classes.len());
        let Some(first) = predicted.next().map(|label| &classes[*label as usize]) else {
            let problem = format!("decides nothing about any of {} training rows", scores.rows);
            let said = scores.failures.first().map(|failure| failure.detail.as_str());
            return Err(Error::predictor("predictor", problem).hint(format!(
                "check what the model predicts; for the first it gives: {}",
                said.unwrap_or("a score of NaN")
            )));
        };
        let same = predicted.all(|label| classes[*label as usize] == *first);
        if same {
            let problem = format!(
                "decides `{first}` for all {} training rows, expected two decisions",
                scores.rows
            );
            return Err(Error::predictor("predictor", problem).hint(format!(
                "check the model, and the rows that `input.train_where` selects from {}",
                inputs.features.shown
            )));
        }
    }
    Ok(())
}

fn summarise(loaded: &Loaded, fitted: &Fitted, test: Option<Quality>) -> TrainSummary {
    let CheckSummary { rows, rows_in_scope, remarks, .. } = &loaded.check;
    let mut remarks = remarks.clone();
    remarks.extend(loaded.remarks.clone());
    if !fitted.autoencoder.used && fitted.autoencoder.steps > 0 {
        remarks.push(format!(
            "the autoencoder reconstructs too badly (quality {:.3}): trained without it",
            fitted.autoencoder.quality
        ));
    }
    let seconds = fitted.curve.last().map_or(0.0, |point| point.seconds);
    TrainSummary {
        rows_read: *rows,
        rows_in_scope: *rows_in_scope,
        rows_trained: loaded.train,
        rows_rejected: loaded.rejected,
        steps: fitted.steps,
        ended_by: fitted.ending,
        steps_per_second: fitted.steps as f64 / seconds.max(1e-9),
        load_seconds: 0.0,
        train_seconds: 0.0,
        autoencoder: fitted.autoencoder.clone(),
        validation: fitted.validation.clone(),
        test,
        output: String::new(),
        remarks,
    }
}

fn describe(
    job: &Job,
    inputs: &Inputs,
    stats: &Stats,
    (actor, targets): (crate::nn::ActorShape, crate::target::TargetCodec),
    summary: &TrainSummary,
    origin: crate::artefact::Origin,
) -> Result<Description> {
    let mut figures = serde_json::to_value(summary)
        .map_err(|error| Error::internal("generator", "has no JSON").source(error))?;
    // No path stands in an artefact.
    figures.as_object_mut().map(|figures| figures.remove("output"));
    let columns = inputs.predictor_columns().schema;
    let types = columns.fields().iter().map(|field| field.data_type().to_string());
    let encoder = Encoder::new(Arc::clone(&inputs.schema), stats);
    Ok(Description {
        format: Description::format(),
        schema: inputs.schema.as_ref().clone(),
        column_types: types.collect(),
        stats: stats.clone(),
        observed: Observed::default(),
        layout: encoder.layout().as_ref().clone(),
        targets,
        autoencoder: summary.autoencoder.used.then(|| summary.autoencoder.hidden.clone()),
        actor,
        learnt: learns(job),
        method: job.train.method.clone(),
        figures,
        model: ModelForm::of(&job.predictor),
        origin,
    })
}
