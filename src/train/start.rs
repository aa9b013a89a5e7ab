//! What learning starts with: μ and Q, an empty D, and the weights of the losses.

use tch::no_grad;

use super::cfrl::{Adams, Details, LEAST_EASED, Learner, WARM_UP};
use super::table::{Examples, Table};
use super::{Problem, Setup, Start};
use crate::error::Result;
use crate::job::{Balance, TargetsKind};
use crate::nn::{ActorShape, Adam, Form, Generator, Network, Replay, ReplayShape, to_tensor};
use crate::target::{RowOrder, TargetCodec};

/// Bytes that the replay buffer may take; a table with thousands of categories gets a shorter one.
const REPLAY_BYTES: u64 = 256 << 20;
/// Experiences that the replay buffer holds: the paper's 1,000 batches of 128.
const REPLAY_ROWS: usize = 128_000;
/// λ_s for a critic that tells outcomes apart, without an autoencoder a quarter of it: −log Q weighs more than −Q
/// where a row is far from valid.
const OUTCOME_SPARSITY: f64 = 1.6;

impl<'a> Learner<'a> {
    /// Initialises μ and Q at random (or from an earlier generator), and an empty D.
    pub(super) fn new(
        setup: &'a Setup<'a>,
        problem: &'a Problem<'a>,
        start: Start,
    ) -> Result<Learner<'a>> {
        let (method, device) = (&setup.train.method, setup.device);
        let details = Details::of(method);
        let with = start.autoencoder.is_trained();
        let lambda = |given: Option<f64>, with_autoencoder, without| {
            given.unwrap_or(if with { with_autoencoder } else { without })
        };
        let codec = &problem.codec;
        let (target, conditions) = (codec.wish_width() as i64, setup.constraints.width() as i64);
        let shape = ActorShape {
            latent: start.autoencoder.latent(),
            direct: 0,
            wishes: codec.decision_width() as i64 + target + conditions,
            hidden: method.hidden as i64,
            form: details.form,
            outcomes: outcomes(setup, codec, details.form),
        }
        .moving(&start.autoencoder, &start.places);
        let width = setup.encoder.layout().width;
        let (mut actor, mut critic) = match start.networks {
            Some(networks) => networks,
            None => random_networks(setup, shape)?,
        };
        actor.trainable(true);
        critic.trainable(true);
        let seen = if details.form == Form::Relative { width as i64 } else { 0 };
        let kept = ReplayShape {
            target,
            conditions,
            latent: if shape.outcomes > 0 { 0 } else { shape.action() },
            seen,
            answer: shape.outcomes.max(1),
        };
        let sample = problem.sample;
        let decisions =
            to_tensor(&codec.decisions(&sample.scores)?, codec.decision_width(), device)?;
        let adams = Adams { actor: Adam::new(&actor), critic: Adam::new(&critic) };
        let average = actor.flat().copy();
        let generator =
            Generator { autoencoder: start.autoencoder, actor, places: start.places, shape };
        let adapts = shape.classes().is_some() && method.sparsity.is_none();
        let balanced = sample.labels().filter(|_| method.balance == Balance::Rows);
        Ok(Learner {
            lambda_s: match shape.classes() {
                Some(_) => lambda(method.sparsity, OUTCOME_SPARSITY, 0.25 * OUTCOME_SPARSITY),
                None => lambda(method.sparsity, 0.5, 0.1),
            },
            lambda_c: lambda(method.consistency, 0.5, 0.0),
            sampler: problem.sampler.clone(),
            examples: Examples::new(problem, shape.classes().unwrap_or(0)),
            order: RowOrder::new(problem.train, balanced, &mut setup.streams.random("rows")),
            table: no_grad(|| Table::new(&generator, &problem.encoded, &decisions)),
            replay: Replay::new(kept, capacity(kept, method.batch), device),
            setup,
            problem,
            details,
            shape,
            generator,
            critic,
            average,
            adams,
            step: 0,
            eased: if adapts { LEAST_EASED } else { 1.0 },
            rate_factor: 1.0,
            rewards: (0.0, 0),
        })
    }
}

/// Outcomes that the critic tells apart: where wishes are labels, every answer of the model teaches it about
/// all of them at once.
fn outcomes(setup: &Setup<'_>, codec: &TargetCodec, form: Form) -> i64 {
    let labels = setup.train.method.targets == TargetsKind::Label;
    match codec {
        TargetCodec::Classes { classes, .. } if labels && form == Form::Relative => {
            classes.len() as i64 + 1
        }
        _ => 0,
    }
}

/// μ and Q with random weights.
fn random_networks(setup: &Setup<'_>, shape: ActorShape) -> Result<(Network, Network)> {
    let random = &mut setup.streams.random("actor and critic");
    let actor = Network::new(shape.actor(), random, setup.device)?;
    let critic = shape.critic(setup.encoder.layout().width);
    Ok((actor, Network::new(critic, random, setup.device)?))
}

/// Experiences that D holds.
fn capacity(kept: ReplayShape, batch: usize) -> usize {
    let fit = (REPLAY_BYTES / kept.bytes()) as usize;
    REPLAY_ROWS.min(fit).max(2 * WARM_UP * batch)
}
