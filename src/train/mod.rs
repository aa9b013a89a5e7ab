//! Fits the generator: the autoencoder, then the actor and the critic against the model. Engine-free: it
//! gets rows in memory and gives back networks, figures and a training curve.

mod autoencoder;
mod cfrl;
mod checkpoint;
mod device;
mod engine;
mod evaluator;
mod explore;
mod host;
mod repairs;
mod rows;
mod start;
mod table;
#[cfg(test)]
mod tests;
mod training_loop;
mod training_rows;
mod validate;

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use serde::{Deserialize, Serialize};
use tch::Device;

use crate::artefact::Artefact;
use crate::constrain::Constraints;
use crate::encode::{Dense, Encoder};
use crate::error::{Error, Kind, Result};
use crate::feature::FeatureSchema;
use crate::job::{AutoencoderJob, RewardKind, Target, TrainJob};
use crate::nn::{ActorShape, Autoencoder, Generator, Network, TensorLayout, to_tensor};
use crate::predictor::Predictor;
use crate::runtime::Streams;
use crate::target::{Rewarder, TargetCodec, TargetSampler};

pub use autoencoder::AutoencoderFigures;
pub use checkpoint::{Checkpoints, Fingerprint};
pub use evaluator::Evaluator;
pub use training_loop::Ending;
pub use training_rows::TrainingRows;
pub use validate::{ClassQuality, Quality};

use cfrl::Learner;
use training_loop::TrainingLoop;
use validate::{Bridges, Validation};

/// What training needs to know and to use.
pub struct TrainSetup<'a> {
    /// How the generator is trained.
    pub train: &'a TrainJob,
    /// The autoencoder.
    pub autoencoder: &'a AutoencoderJob,
    /// The job's target, if it has one.
    pub target: Option<&'a Target>,
    /// What columns mean.
    pub schema: Arc<FeatureSchema>,
    /// Rows to numbers.
    pub encoder: Encoder,
    /// What may change.
    pub constraints: Arc<Constraints>,
    /// The model.
    pub predictor: Arc<dyn Predictor>,
    /// Where tensors live.
    pub device: Device,
    /// Random streams.
    pub streams: Streams,
    /// The signal that asks training to end; 0 for none.
    pub stop: &'a AtomicI32,
    /// Where checkpoints go.
    pub checkpoints: Option<&'a Checkpoints>,
    /// Hears how it goes.
    pub listener: &'a (dyn Fn(Event) + Sync),
}

/// What happens during training.
#[derive(Debug, Clone)]
pub enum Event {
    /// A stage of so many steps begins.
    Stage(&'static str, u64),
    /// So many steps more are done.
    Steps(u64),
    /// The generator was evaluated.
    Point(Point),
}

/// A point of the training curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Steps done.
    pub step: u64,
    /// Seconds since the actor's first step.
    pub seconds: f64,
    /// Mean reward since the last point.
    pub reward: f64,
    /// The critic's loss.
    pub critic_loss: f64,
    /// The actor's whole loss.
    pub actor_loss: f64,
    /// L_1 and L_0 parts of its sparsity.
    pub sparsity_loss: f64,
    /// Its consistency.
    pub consistency_loss: f64,
    /// On the validation rows.
    pub quality: Quality,
    /// Whether it is the best so far.
    pub best: bool,
}

/// What is to be learnt, in numbers.
struct Problem<'a> {
    training_rows: &'a TrainingRows,
    /// Rows to train on; those after them are for validation.
    train: usize,
    /// All rows, on the host.
    encoded: Dense,
    codec: TargetCodec,
    sampler: TargetSampler,
    rewarder: Rewarder,
    /// Whether training starts from an earlier generator.
    warm: bool,
}

/// What learning starts from.
struct Start {
    autoencoder: Autoencoder,
    tensor_layout: TensorLayout,
    /// An earlier generator's actor and critic.
    networks: Option<(Network, Network)>,
}

/// A generator, and how it came about.
#[derive(Debug)]
pub struct Fitted {
    /// enc, dec and μ.
    pub generator: Generator,
    /// Q.
    pub critic: Network,
    /// Shape of actor and critic.
    pub shape: ActorShape,
    /// Decisions and targets as numbers.
    pub codec: TargetCodec,
    /// Decisions that were asked for.
    pub sampler: TargetSampler,
    /// The autoencoder's figures.
    pub autoencoder: AutoencoderFigures,
    /// The training curve.
    pub curve: Vec<Point>,
    /// Steps of actor and critic.
    pub steps: usize,
    /// Why there are no more.
    pub ending: Ending,
    /// On the validation rows.
    pub validation: Quality,
}

/// Which rows to train on and what to start from.
pub struct FitInput<'a> {
    /// Rows, those for validation last.
    pub training_rows: &'a TrainingRows,
    /// How many are trained on; if all, validation is on the same.
    pub train: usize,
    /// An earlier generator to start from.
    pub from: Option<Artefact>,
    /// Whether to resume from a checkpoint, if there is one.
    pub resume: bool,
    /// Whether anything is expected of the generator: not where training rows alone are asked for.
    pub learns: bool,
}

/// Fits a generator.
///
/// # Errors
/// When there is nothing to learn, the model fails, or learning diverges or comes to nothing.
pub fn fit(setup: &TrainSetup<'_>, input: FitInput<'_>) -> Result<Fitted> {
    let FitInput { training_rows, train, from, resume, learns } = input;
    let problem = Problem::new(setup, training_rows, train, from.is_some())?;
    let saved = match setup.checkpoints.filter(|_| resume) {
        Some(checkpoints) => checkpoints.load()?,
        None => None,
    };
    let (start, figures) = problem.start(setup, from, saved.as_ref())?;
    let mut learner = Learner::new(setup, &problem, start)?;
    let bridges = Bridges::new(setup, &problem.codec);
    let random = &mut setup.streams.random("validation");
    let validation = Validation::new(
        training_rows,
        &problem.validation_rows(),
        &problem.sampler,
        &bridges,
        random,
    )?;
    (setup.listener)(Event::Stage("training", setup.train.limits.max_steps as u64));
    let mut training = TrainingLoop::new(setup, &validation, &bridges, figures.clone());
    if let Some(saved) = &saved {
        training.resume(&mut learner, saved)?;
    }
    if !training.is_over(&learner) {
        let learnt = learner
            .learn(&bridges.evaluator, |learner, losses| training.after_step(learner, losses));
        if let Err(error) = learnt {
            // An update may be done whose experience is missing. The checkpoint before it is the better
            // one to resume from; this one is better than none.
            if error.kind() == Kind::Predictor && !checkpoint::exists(setup.checkpoints) {
                training.save_or_warn(&learner);
            }
            return Err(error);
        }
        // If what follows fails, it need not be learnt again.
        training.save_or_warn(&learner);
    }
    let (shape, steps, actor_steps) = (learner.shape, learner.step, learner.engine.actor_steps());
    let (generator, critic) = learner.engine.finish(training.best())?;
    let validation = validation.quality(&generator, &bridges)?;
    if learns {
        refuse_nothing(setup, (steps, actor_steps), &validation)?;
    }
    let (ending, curve) = (training.ending.unwrap_or(Ending::MaxSteps), training.curve);
    let (codec, sampler) = (problem.codec.clone(), problem.sampler.clone());
    let autoencoder = figures;
    Ok(Fitted {
        generator,
        critic,
        shape,
        codec,
        sampler,
        autoencoder,
        curve,
        steps,
        ending,
        validation,
    })
}

/// Evaluates a fitted generator on other rows.
///
/// # Errors
/// When the model fails.
pub fn evaluate_on(
    setup: &TrainSetup<'_>,
    fitted: &Fitted,
    training_rows: &TrainingRows,
) -> Result<Quality> {
    let bridges = Bridges::new(setup, &fitted.codec);
    let rows: Vec<u32> = (0..training_rows.rows.len as u32).collect();
    let random = &mut setup.streams.random("test");
    let rows = Validation::new(training_rows, &rows, &fitted.sampler, &bridges, random)?;
    rows.quality(&fitted.generator, &bridges)
}

impl<'a> Problem<'a> {
    fn new(
        setup: &TrainSetup<'_>,
        training_rows: &'a TrainingRows,
        train: usize,
        warm: bool,
    ) -> Result<Problem<'a>> {
        let method = &setup.train.method;
        let codec =
            TargetCodec::new(setup.predictor.task(), method.targets, &training_rows.scores)?;
        let sampler = TargetSampler::new(&codec, &training_rows.scores, setup.target);
        // A class is had or not; a range is too narrow an aim to be found by chance.
        let usual = match codec {
            TargetCodec::Classes { .. } => RewardKind::Label,
            TargetCodec::Range { .. } => RewardKind::Probability,
        };
        let rewarder = Rewarder::new(method.reward.unwrap_or(usual), &codec);
        let encoded = setup.encoder.encode_rows(&training_rows.rows);
        Ok(Problem { training_rows, train, encoded, codec, sampler, rewarder, warm })
    }

    /// Rows that are not trained on; all, if there is none.
    fn validation_rows(&self) -> Vec<u32> {
        let all = self.training_rows.rows.len;
        let first = if self.train < all { self.train } else { 0 };
        (first as u32..all as u32).collect()
    }

    /// The autoencoder and, where there is an earlier generator, its actor and critic.
    fn start(
        &self,
        setup: &TrainSetup<'_>,
        from: Option<Artefact>,
        saved: Option<&checkpoint::Saved>,
    ) -> Result<(Start, AutoencoderFigures)> {
        let layout = setup.encoder.layout();
        let tensor_layout =
            TensorLayout::new(layout, setup.constraints.numeric_ranges(), setup.device);
        if let Some(Artefact { description, generator, critic, .. }) = from {
            let figures = description.figures.get("autoencoder").cloned().unwrap_or_default();
            let mut figures: AutoencoderFigures =
                serde_json::from_value(figures).unwrap_or_default();
            // What it is made of is told by the generator itself; figures are but remembered.
            figures.used = description.autoencoder.is_some();
            figures.hidden = description.autoencoder.unwrap_or(figures.hidden);
            let Generator { autoencoder, actor, .. } = generator;
            let start = Start { autoencoder, tensor_layout, networks: Some((actor, critic)) };
            return Ok((start, figures));
        }
        if let Some(saved) = saved {
            let figures = saved.state.autoencoder.clone();
            let autoencoder = autoencoder::restore(saved, layout, setup.device)?;
            return Ok((Start { autoencoder, tensor_layout, networks: None }, figures));
        }
        let (values, width) = (&self.encoded.values, layout.width);
        let first = self.validation_rows()[0] as usize;
        let held_out = to_tensor(&values[first * width..], width, setup.device)?;
        let train = &values[..self.train * width];
        let (autoencoder, figures) = autoencoder::fit(setup, train, &held_out, &tensor_layout)?;
        Ok((Start { autoencoder, tensor_layout, networks: None }, figures))
    }
}

fn refuse_nothing(
    setup: &TrainSetup<'_>,
    (steps, actor_steps): (usize, i64),
    validation: &Quality,
) -> Result<()> {
    if actor_steps == 0 {
        let problem = format!(
            "ended after {steps} steps; the first {} only gather what is learnt from",
            cfrl::WARM_UP
        );
        return Err(Error::training("training", problem)
            .hint("raise `train.max_steps` or `train.max_seconds`"));
    }
    if validation.validity > 0.0 {
        return Ok(());
    }
    let target = match setup.target {
        Some(Target::Class(class)) => format!("the class `{class}`"),
        Some(Target::Range { low, high }) => format!("a value from {low} to {high}"),
        _ => "another decision".to_string(),
    };
    let problem =
        format!("failed: the model predicts {target} for 0 of {} validation rows", validation.rows);
    Err(Error::training("training", problem).hint(
        "check that the model ever decides so, that the schema lets the features change that it \
         depends on, or raise `train.max_steps`",
    ))
}

/// An error if a signal has asked to end.
fn stopped(setup: &TrainSetup<'_>) -> Result<()> {
    match setup.stop.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(Error::interrupted(signal)),
    }
}
