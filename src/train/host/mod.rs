//! Learning in plain memory, on a CPU. The critic descends beside the actor, on a thread of the pool: each of the two
//! sees the other as it was before the step, so that neither waits and nothing depends on which is faster.

mod actor;
mod critic;
mod table;

use std::sync::Arc;

use tch::Tensor;

use super::engine::{
    ActorBatch, BatchOutcome, Draw, EngineInput, Evaluate, Factors, Losses, ReplayState, SendQuery,
    Snapshot, TrainingEngine,
};
use super::repairs::Repairs;
use super::table::EncodedDecisions;
use super::validate::Quality;
use crate::encode::{Dense, Layout};
use crate::error::Result;
use crate::nn::host::{HostAdam, HostAutoencoder, HostFeatures, HostNetwork, HostReplay, average};
use crate::nn::{ActorShape, Autoencoder, Form, Generator, Network, to_numbers};

use actor::{ActorLosses, ActorWork};
use critic::CriticWork;
use table::HostTable;

/// What both descents read.
struct Networks<'a> {
    shape: ActorShape,
    features: HostFeatures,
    autoencoder: HostAutoencoder,
    actor: HostNetwork,
    critic: HostNetwork,
    table: HostTable<'a>,
    replay: HostReplay,
    /// What holds between features, if anything does.
    repairs: Option<Repairs<'a>>,
}

/// Networks that learn in plain memory.
pub(super) struct HostEngine<'a> {
    networks: Networks<'a>,
    /// The actor's optimiser and the critic's.
    adams: [HostAdam; 2],
    average: Vec<f32>,
    /// z̃ of the last step.
    last_action: Vec<f32>,
    actor_work: ActorWork,
    critic_work: CriticWork,
    layout: Arc<Layout>,
    /// To be evaluated, and to be given back.
    generator: Generator,
    critic: Network,
}

impl<'a> HostEngine<'a> {
    /// Networks at the start of a training, and an empty D of this shape and capacity.
    pub(super) fn new(input: EngineInput<'a>) -> Result<HostEngine<'a>> {
        let EngineInput { setup, problem, generator, critic, replay, capacity } = input;
        let shape = generator.shape;
        let layout = Arc::clone(setup.encoder.layout());
        let ranges = setup.constraints.numeric_ranges();
        let features =
            HostFeatures::new(&layout, ranges, (shape, generator.autoencoder.is_trained()));
        let autoencoder = HostAutoencoder::of(&generator.autoencoder)?;
        let copy =
            |network: &Network| HostNetwork::new(network.shape(), &to_numbers(network.flat())?);
        let (actor, critic_network) = (copy(&generator.actor)?, copy(&critic)?);
        let decisions = problem.codec.decisions(&problem.training_rows.scores)?;
        let width = problem.codec.decision_width();
        let decisions = EncodedDecisions { values: &decisions, width };
        let table = HostTable::new(&features, &autoencoder, &problem.encoded, decisions);
        let adams = [&actor, &critic_network].map(|network| HostAdam::new(network.weights().len()));
        Ok(HostEngine {
            average: actor.weights().to_vec(),
            networks: Networks {
                shape,
                features,
                autoencoder,
                actor,
                critic: critic_network,
                table,
                replay: HostReplay::new(replay, capacity),
                repairs: Repairs::new(setup, problem).filter(|_| shape.form == Form::Relative),
            },
            adams,
            last_action: Vec::new(),
            actor_work: ActorWork::default(),
            critic_work: CriticWork::default(),
            layout,
            generator,
            critic,
        })
    }

    /// The actor acts, and the model is asked.
    fn act(&mut self, actor_batch: &ActorBatch, send: SendQuery<'_>) -> Result<()> {
        let HostEngine { networks, actor_work, last_action, layout, .. } = self;
        act(networks, actor_batch, (actor_work, last_action), layout).and_then(send)
    }

    fn descend_critic(&mut self, rate: f64) {
        let gradient = &self.critic_work.gradient;
        let adam = &mut self.adams[1];
        self.networks.critic.update(|weights| adam.step(weights, gradient, rate));
    }

    fn descend_actor(&mut self, factors: Factors) {
        let HostEngine { networks, adams, actor_work, average: mean, .. } = self;
        let gradient = &actor_work.gradient;
        networks.actor.update(|weights| adams[0].step(weights, gradient, factors.rate));
        average(mean, networks.actor.weights(), factors.averaging);
    }

    /// One after the other: the actor meets the critic of the same step, as in the paper's reference.
    fn step_in_turn(&mut self, draw: &Draw, factors: Factors) -> (f32, ActorLosses) {
        let critic = self.networks.descend_critic(draw, &mut self.critic_work);
        self.descend_critic(factors.rate);
        let actor = self.networks.descend_actor(draw, factors, &mut self.actor_work);
        self.descend_actor(factors);
        (critic, actor)
    }

    /// Side by side.
    fn step_together(
        &mut self,
        actor_batch: &ActorBatch,
        (draw, factors): (&Draw, Factors),
        send: SendQuery<'_>,
    ) -> Result<(f32, ActorLosses)> {
        let HostEngine { networks, actor_work, critic_work, last_action, layout, .. } = self;
        let networks = &*networks;
        let mut of_critic = 0.0;
        let of_actor = rayon::in_place_scope(|scope| {
            scope.spawn(|_| of_critic = networks.descend_critic(draw, critic_work));
            act(networks, actor_batch, (actor_work, last_action), layout).and_then(send)?;
            Ok(networks.descend_actor(draw, factors, actor_work))
        })?;
        self.descend_critic(factors.rate);
        self.descend_actor(factors);
        Ok((of_critic, of_actor))
    }
}

fn act(
    networks: &Networks<'_>,
    actor_batch: &ActorBatch,
    (work, last_action): (&mut ActorWork, &mut Vec<f32>),
    layout: &Arc<Layout>,
) -> Result<Dense> {
    networks.act(actor_batch, work);
    std::mem::swap(&mut work.actions, last_action);
    let (rows, width) = (actor_batch.rows.len(), networks.features.width);
    let values = work.decoding.decoded.clone();
    Ok(Dense { rows, width, values, layout: Arc::clone(layout) })
}

impl TrainingEngine for HostEngine<'_> {
    fn step(
        &mut self,
        actor_batch: &ActorBatch,
        update: Option<(&Draw, Factors)>,
        send: SendQuery<'_>,
    ) -> Result<Option<Losses>> {
        let Some((draw, factors)) = update else {
            self.act(actor_batch, send)?;
            return Ok(None);
        };
        let (critic, actor) = if self.networks.shape.form == Form::Paper {
            self.act(actor_batch, send)?;
            self.step_in_turn(draw, factors)
        } else {
            self.step_together(actor_batch, (draw, factors), send)?
        };
        let number = |value: f32| Tensor::from(value);
        Ok(Some(Losses {
            critic: number(critic),
            actor: number(actor.total),
            sparsity: number(actor.sparsity),
            consistency: number(actor.consistency),
        }))
    }

    fn remember(&mut self, actor_batch: &ActorBatch, outcome: &BatchOutcome) -> Result<()> {
        let Networks { shape, replay, .. } = &mut self.networks;
        let count = actor_batch.rows.len();
        let action = if shape.classes().is_some() { 0 } else { self.last_action.len() / count };
        let part = |values: &'_ [f32], row: usize| {
            let width = values.len() / count;
            row * width..(row + 1) * width
        };
        for (index, row) in actor_batch.rows.iter().enumerate() {
            let parts = [
                &actor_batch.y_t[part(&actor_batch.y_t, index)],
                &actor_batch.c[part(&actor_batch.c, index)],
                &self.last_action[index * action..(index + 1) * action],
                &outcome.seen[part(&outcome.seen, index)],
                &outcome.outcomes[part(&outcome.outcomes, index)],
            ];
            replay.append(*row, &parts);
        }
        Ok(())
    }

    fn held(&self) -> usize {
        self.networks.replay.len()
    }

    fn forget(&mut self) {
        self.networks.replay.clear();
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let networks = [&self.networks.actor, &self.networks.critic];
        let moments = |adam: &HostAdam| {
            Tensor::cat(&[Tensor::from_slice(&adam.first), Tensor::from_slice(&adam.second)], 0)
                .view([2, -1])
        };
        Ok(Snapshot {
            networks: networks.map(|network| Tensor::from_slice(network.weights())),
            moments: [moments(&self.adams[0]), moments(&self.adams[1])],
            steps: [self.adams[0].steps, self.adams[1].steps],
            average: self.average()?,
        })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        let [actor, critic] = &snapshot.networks;
        let (actor, critic) = (to_numbers(actor)?, to_numbers(critic)?);
        self.networks.actor.update(|weights| weights.copy_from_slice(&actor));
        self.networks.critic.update(|weights| weights.copy_from_slice(&critic));
        let saved = snapshot.moments.iter().zip(snapshot.steps);
        for (adam, (moments, steps)) in self.adams.iter_mut().zip(saved) {
            adam.first = to_numbers(&moments.get(0))?;
            adam.second = to_numbers(&moments.get(1))?;
            adam.steps = steps;
        }
        self.average = to_numbers(&snapshot.average)?;
        Ok(())
    }

    fn replay(&self) -> Result<ReplayState> {
        let ([rows, records], next) = self.networks.replay.state()?;
        Ok(ReplayState { rows, records, next })
    }

    fn restore_replay(&mut self, state: &ReplayState) -> Result<()> {
        self.networks.replay.restore(&state.rows, &state.records, state.next)
    }

    fn is_finite(&self) -> bool {
        let networks = [&self.networks.actor, &self.networks.critic];
        networks.iter().all(|network| network.weights().iter().all(|weight| weight.is_finite()))
    }

    fn actor_steps(&self) -> i64 {
        self.adams[0].steps
    }

    fn average(&self) -> Result<Tensor> {
        Ok(Tensor::from_slice(&self.average))
    }

    fn evaluate(&mut self, actor: &Tensor, evaluator: Evaluate<'_>) -> Result<Quality> {
        self.generator.actor.set(actor);
        evaluator(&self.generator)
    }

    fn autoencoder(&self) -> &Autoencoder {
        &self.generator.autoencoder
    }

    fn finish(self: Box<Self>, actor: Option<&Tensor>) -> Result<(Generator, Network)> {
        let original = || Tensor::from_slice(self.networks.actor.weights());
        self.generator.actor.set(&actor.map_or_else(original, Tensor::shallow_clone));
        self.critic.set(&Tensor::from_slice(self.networks.critic.weights()));
        Ok((self.generator, self.critic))
    }
}
