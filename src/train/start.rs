//! What learning starts with: μ and Q, an empty D, and the weights of the losses.

use tch::Device;

use super::cfrl::{BatchSource, FAIR_SPARSITY_SCALE, Learner, PresetOptions, WARM_UP};
use super::device::DeviceEngine;
use super::engine::{EngineInput, TrainingEngine};
use super::host::HostEngine;
use super::table::Examples;
use super::{Problem, Start, TrainSetup};
use crate::error::Result;
use crate::job::{Balance, Method, TargetsKind};
use crate::nn::{ActorShape, Form, Generator, Network, ReplayShape};
use crate::target::{RowOrder, TargetCodec};

/// Bytes that the replay buffer may take; a table with thousands of categories gets a shorter one.
const REPLAY_BYTES: u64 = 256 << 20;
/// Experiences that the replay buffer holds: the paper's 1,000 batches of 128.
const REPLAY_ROWS: usize = 128_000;
/// Rows per step for up to two classes …
const BATCH: usize = 128;
/// … and for more.
const BATCH_OF_MANY: usize = 256;
/// λ_s for a critic that predicts outcomes, without an autoencoder a sixth of it: −log Q weighs more than −Q
/// where a row is far from valid.
const OUTCOME_SPARSITY: f64 = 2.4;

impl<'a> Learner<'a> {
    /// Initialises μ and Q at random (or from an earlier generator), and an empty D.
    pub(super) fn new(
        setup: &'a TrainSetup<'a>,
        problem: &'a Problem<'a>,
        start: Start,
    ) -> Result<Learner<'a>> {
        let method = &setup.train.method;
        let options = PresetOptions::of(method);
        let input = engine_input(setup, problem, start)?;
        let Generator { shape, autoencoder, .. } = &input.generator;
        let (shape, trained) = (*shape, autoencoder.is_trained());
        let (lambda_s, lambda_c) = lambdas(setup, shape, trained);
        let batch = batch(method, shape);
        let balanced = problem.training_rows.labels().filter(|_| method.balance == Balance::Rows);
        let source = BatchSource {
            setup,
            problem,
            options,
            batch,
            lambda_s,
            lambda_c,
            sampler: problem.sampler.clone(),
            examples: Examples::new(problem, shape.classes().unwrap_or(0)),
            predicts_outcomes: shape.classes().is_some(),
            action: shape.action() as usize,
        };
        Ok(Learner {
            order: RowOrder::new(problem.train, balanced, &mut setup.streams.random("rows")),
            engine: engine(input)?,
            setup,
            source,
            shape,
            step: 0,
            sparsity_scale: if adapts(method, shape) { FAIR_SPARSITY_SCALE } else { 1.0 },
            rate_factor: 1.0,
            rewards: (0.0, 0),
        })
    }
}

/// What learns: plain memory on a CPU, tensors elsewhere.
fn engine<'a>(input: EngineInput<'a>) -> Result<Box<dyn TrainingEngine + 'a>> {
    Ok(if input.setup.device == Device::Cpu {
        Box::new(HostEngine::new(input)?)
    } else {
        Box::new(DeviceEngine::new(input)?)
    })
}

/// μ and Q, an earlier generator's or random ones, and what D is to hold.
pub(super) fn engine_input<'a>(
    setup: &'a TrainSetup<'a>,
    problem: &'a Problem<'a>,
    start: Start,
) -> Result<EngineInput<'a>> {
    let method = &setup.train.method;
    let shape = actor_shape(setup, problem, &start, PresetOptions::of(method).form);
    let (actor, critic) = match start.networks {
        Some(networks) => networks,
        None => random_networks(setup, shape)?,
    };
    let replay = replay_shape(setup, &problem.codec, shape);
    let generator = Generator {
        autoencoder: start.autoencoder,
        actor,
        tensor_layout: start.tensor_layout,
        shape,
    };
    let capacity = capacity(replay, batch(method, shape));
    Ok(EngineInput { setup, problem, generator, critic, replay, capacity })
}

/// What the actor is given and what it moves.
fn actor_shape(
    setup: &TrainSetup<'_>,
    problem: &Problem<'_>,
    start: &Start,
    form: Form,
) -> ActorShape {
    let codec = &problem.codec;
    let inputs = codec.decision_width() + codec.target_width() + setup.constraints.width();
    ActorShape {
        latent: start.autoencoder.latent(),
        direct: 0,
        inputs: inputs as i64,
        hidden: setup.train.method.hidden as i64,
        form,
        outcomes: outcomes(setup, codec, form),
    }
    .moving(&start.autoencoder, &start.tensor_layout)
}

/// λ_s and λ_c: the job's, or by what the critic learns and whether there is an autoencoder.
fn lambdas(setup: &TrainSetup<'_>, shape: ActorShape, trained: bool) -> (f64, f64) {
    let method = &setup.train.method;
    let (with, without) = match shape.classes() {
        Some(_) => (OUTCOME_SPARSITY, OUTCOME_SPARSITY / 6.0),
        None => (0.5, 0.1),
    };
    let lambda_s = method.sparsity.unwrap_or(if trained { with } else { without });
    let lambda_c = method.consistency.unwrap_or(if trained { 0.5 } else { 0.0 });
    (lambda_s, lambda_c)
}

/// Whether λ_s follows validity: where the critic predicts outcomes, unless the job gives it.
pub(super) fn adapts(method: &Method, shape: ActorShape) -> bool {
    shape.classes().is_some() && method.sparsity.is_none()
}

/// Rows per step; where the job does not say, by the classes: among many, fewer rows want each.
fn batch(method: &Method, shape: ActorShape) -> usize {
    let classes = shape.classes().unwrap_or(0);
    method.batch.unwrap_or(if classes > 2 { BATCH_OF_MANY } else { BATCH })
}

/// What D keeps of an experience.
fn replay_shape(setup: &TrainSetup<'_>, codec: &TargetCodec, shape: ActorShape) -> ReplayShape {
    let width = setup.encoder.layout().width as i64;
    ReplayShape {
        target: codec.target_width() as i64,
        conditions: setup.constraints.width() as i64,
        latent: if shape.outcomes > 0 { 0 } else { shape.action() },
        seen: if shape.form == Form::Relative { width } else { 0 },
        outcome: shape.outcomes.max(1),
    }
}

/// Outcomes that the critic predicts: where targets are labels, every prediction of the model teaches it about
/// all of them at once.
fn outcomes(setup: &TrainSetup<'_>, codec: &TargetCodec, form: Form) -> i64 {
    let labels = setup.train.method.targets == TargetsKind::Label;
    match codec {
        TargetCodec::Classes { classes, .. } if labels && form == Form::Relative => {
            classes.len() as i64 + 1
        }
        _ => 0,
    }
}

/// μ and Q with random weights.
fn random_networks(setup: &TrainSetup<'_>, shape: ActorShape) -> Result<(Network, Network)> {
    let random = &mut setup.streams.random("actor and critic");
    let actor = Network::new(shape.actor(), random, setup.device)?;
    let critic = shape.critic(setup.encoder.layout().width);
    Ok((actor, Network::new(critic, random, setup.device)?))
}

/// Experiences that D holds.
fn capacity(replay: ReplayShape, batch: usize) -> usize {
    let fit = (REPLAY_BYTES / replay.bytes()) as usize;
    REPLAY_ROWS.min(fit).max(2 * WARM_UP * batch)
}
