//! Learning with tensors, on a GPU: the same steps as in [`super::host`], with gradients by libtorch.

use std::sync::Arc;

use tch::{Kind, Tensor, no_grad};

use super::cfrl::CATEGORY_WEIGHT;
use super::engine::{
    Acting, Ask, Draw, Engine, Factors, Judging, Losses, ReplayState, Snapshot, Told,
};
use super::table::{Known, Table};
use super::validate::Quality;
use super::{Problem, Setup};
use crate::encode::Layout;
use crate::error::Result;
use crate::nn::{
    ActorShape, Adam, Autoencoder, Experiences, Form, Generator, Network, Replay, ReplayShape,
    consistency_loss, critic_loss, outcome_loss, output_sparsity, sparsity_loss, to_dense,
    to_tensor,
};

/// Networks that learn on a device.
pub(super) struct DeviceEngine {
    device: tch::Device,
    layout: Arc<Layout>,
    shape: ActorShape,
    table: Table,
    generator: Generator,
    critic: Network,
    average: Tensor,
    /// The actor's optimiser and the critic's.
    adams: [Adam; 2],
    replay: Replay,
    /// z̃ of the last step.
    acted: Option<Tensor>,
}

impl DeviceEngine {
    /// Networks at the start of a training, and an empty D of this shape and capacity.
    pub(super) fn new(
        (setup, problem): (&Setup<'_>, &Problem<'_>),
        (mut generator, mut critic): (Generator, Network),
        (kept, capacity): (ReplayShape, usize),
    ) -> Result<DeviceEngine> {
        generator.actor.trainable(true);
        critic.trainable(true);
        let decisions = problem.codec.decisions(&problem.sample.scores)?;
        let decisions = (&decisions[..], problem.codec.decision_width());
        let device = setup.device;
        Ok(DeviceEngine {
            device,
            layout: Arc::clone(setup.encoder.layout()),
            shape: generator.shape,
            table: no_grad(|| Table::new(&generator, &problem.encoded, decisions, device))?,
            average: generator.actor.flat().copy(),
            adams: [Adam::new(&generator.actor), Adam::new(&critic)],
            replay: Replay::new(kept, capacity, device),
            acted: None,
            generator,
            critic,
        })
    }

    fn matrix(&self, values: &[f32], rows: usize) -> Result<Tensor> {
        to_tensor(values, values.len() / rows, self.device)
    }

    /// Computes z̃ and dec(z̃).
    fn act(&mut self, acting: &Acting, ask: Ask<'_>) -> Result<()> {
        let known = self.table.known(&indices(&acting.rows))?;
        let count = acting.rows.len();
        let noise = self.matrix(&acting.noise, count)?;
        let z_tilde = if acting.explores {
            noise
        } else {
            let (y_t, c) = (self.matrix(&acting.y_t, count)?, self.matrix(&acting.c, count)?);
            let s = Tensor::cat(&[&known.state, &y_t, &c], 1);
            no_grad(|| (self.generator.act(&s) + noise).clamp(-1.0, 1.0))
        };
        let decoded = no_grad(|| self.generator.decode(&z_tilde, &known.x, &known.base));
        self.acted = Some(z_tilde);
        // The one time in a step that the host waits for the device: the model is on the host.
        ask(to_dense(&decoded, &self.layout)?)
    }

    /// The loss of the critic.
    fn critic_loss(&self, batch: &Experiences, known: &Known, examples: &[i64]) -> Result<Tensor> {
        if self.shape.classes().is_none() {
            // L_Q = mean (Q(s, z̃, x̃) − R)²
            let q = self.critic.forward(&Tensor::cat(&[&known.state, &batch.deeds()], 1));
            return Ok(critic_loss(&q, &batch.answers()));
        }
        // L_Q = −mean log Q(M(x̃) | x̃), on training rows as well
        let examples = self.table.known(&Tensor::from_slice(examples))?;
        let rows = Tensor::cat(&[batch.seen(), examples.x], 0);
        let decisions = examples.decisions.pad([0, 1], "constant", 0.0);
        let outcomes = Tensor::cat(&[batch.answers(), decisions], 0);
        Ok(outcome_loss(&self.critic.forward(&rows), &outcomes))
    }

    /// The losses of the actor, in which the critic's is none yet.
    fn actor_losses(&self, batch: &Experiences, known: &Known, factors: Factors) -> Losses {
        let (x, c) = (&known.x, batch.conditions());
        let s = Tensor::cat(&[&known.state, &batch.wishes()], 1);

        // L_μ = −mean Q(s, z_cf, x_cf) + λ_s L_sparsity + λ_c L_consist
        let z_cf = self.generator.act(&s);
        let decoded = self.generator.decode(&z_cf, x, &known.base);
        let places = &self.generator.places;
        let (x_cf, parts) = match self.shape.form {
            Form::Paper => {
                let x_cf = places.post_process(&decoded.detach(), x, &c);
                (x_cf, sparsity_loss(&decoded, x, places))
            }
            Form::Relative => {
                let x_cf = places.post_process(&decoded, x, &c);
                let parts = output_sparsity(&x_cf, x, places);
                (x_cf, parts)
            }
        };
        let (l_max, weight) = match (self.shape.form, self.shape.classes()) {
            (Form::Paper, _) => (-self.value(&[&s, &z_cf]), 1.0),
            (Form::Relative, None) => (-self.value(&[&s, &z_cf, &x_cf]), 1.0),
            (Form::Relative, Some(_)) => {
                (outcome_loss(&self.critic.forward(&x_cf), &batch.targets()), CATEGORY_WEIGHT)
            }
        };
        let sparsity = parts.numeric + parts.categorical * weight;
        let mut actor = l_max + &sparsity * factors.sparsity;
        let mut consistency = Tensor::zeros([], (Kind::Float, self.device));
        if factors.consistency > 0.0 {
            let again = no_grad(|| self.generator.autoencoder.encode(&x_cf));
            consistency = consistency_loss(&self.generator.latent_of(&z_cf), &again);
            actor += &consistency * factors.consistency;
        }
        Losses { critic: Tensor::new(), actor, sparsity, consistency }
    }

    /// mean Q
    fn value(&self, judged: &[&Tensor]) -> Tensor {
        self.critic.forward(&Tensor::cat(judged, 1)).mean(Kind::Float)
    }

    fn descend(&mut self, draw: &Draw, factors: Factors) -> Result<Losses> {
        let batch = self.replay.sample(&Tensor::from_slice(&draw.places))?;
        let known = self.table.known(&batch.rows)?;
        let critic = self.critic_loss(&batch, &known, &draw.examples)?;
        let of_critic = self.critic.gradient(&critic)?;
        // In the paper's reference the actor meets the critic of the same step, else that of the step before.
        let in_turn = self.shape.form == Form::Paper;
        if in_turn {
            self.adams[1].step(&self.critic, &of_critic, factors.rate);
        }
        let losses = self.actor_losses(&batch, &known, factors);
        let of_actor = self.generator.actor.gradient(&losses.actor)?;
        if !in_turn {
            self.adams[1].step(&self.critic, &of_critic, factors.rate);
        }
        self.adams[0].step(&self.generator.actor, &of_actor, factors.rate);
        let _ = no_grad(|| self.average.lerp_(self.generator.actor.flat(), factors.averaging));
        Ok(Losses { critic, ..losses })
    }
}

/// Training rows as a tensor on the host.
fn indices(rows: &[u32]) -> Tensor {
    Tensor::from_slice(&rows.iter().map(|row| i64::from(*row)).collect::<Vec<_>>())
}

impl Engine for DeviceEngine {
    fn step(
        &mut self,
        acting: &Acting,
        update: Option<(&Draw, Factors)>,
        ask: Ask<'_>,
    ) -> Result<Option<Losses>> {
        self.act(acting, ask)?;
        update.map(|(draw, factors)| self.descend(draw, factors)).transpose()
    }

    fn remember(&mut self, acting: &Acting, told: &Told) -> Result<()> {
        let count = acting.rows.len();
        let (y_t, c) = (self.matrix(&acting.y_t, count)?, self.matrix(&acting.c, count)?);
        let answers = self.matrix(&told.answers, count)?;
        let mut parts = vec![y_t, c];
        if self.shape.classes().is_none() {
            parts.extend(self.acted.take());
        }
        if self.shape.form == Form::Relative {
            parts.push(self.matrix(&told.seen, count)?);
        }
        parts.push(answers);
        self.replay.append(&indices(&acting.rows), &parts.iter().collect::<Vec<_>>());
        Ok(())
    }

    fn held(&self) -> usize {
        self.replay.len()
    }

    fn forget(&mut self) {
        self.replay.clear();
    }

    fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot {
            networks: [&self.generator.actor, &self.critic].map(|network| network.flat().copy()),
            moments: [self.adams[0].moments.copy(), self.adams[1].moments.copy()],
            steps: [self.adams[0].steps, self.adams[1].steps],
            average: self.average.copy(),
        })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.generator.actor.set(&snapshot.networks[0]);
        self.critic.set(&snapshot.networks[1]);
        let saved = snapshot.moments.iter().zip(snapshot.steps);
        for (adam, (moments, steps)) in self.adams.iter_mut().zip(saved) {
            adam.moments = moments.to_device(self.device).copy();
            adam.steps = steps;
        }
        self.average = snapshot.average.to_device(self.device).copy();
        Ok(())
    }

    fn replay(&self) -> Result<ReplayState> {
        let [rows, records] = self.replay.state();
        Ok(ReplayState { rows, records, next: self.replay.next() })
    }

    fn restore_replay(&mut self, state: &ReplayState) -> Result<()> {
        self.replay.restore(&state.rows, &state.records, state.next);
        Ok(())
    }

    fn is_finite(&self) -> bool {
        self.generator.actor.is_finite() && self.critic.is_finite()
    }

    fn actor_steps(&self) -> i64 {
        self.adams[0].steps
    }

    fn average(&self) -> Result<Tensor> {
        Ok(self.average.copy())
    }

    fn judge(&mut self, actor: &Tensor, judge: Judging<'_>) -> Result<Quality> {
        let own = self.generator.actor.flat().copy();
        self.generator.actor.set(actor);
        let quality = judge(&self.generator);
        self.generator.actor.set(&own);
        quality
    }

    fn autoencoder(&self) -> &Autoencoder {
        &self.generator.autoencoder
    }

    fn finish(mut self: Box<Self>, actor: Option<&Tensor>) -> Result<(Generator, Network)> {
        if let Some(actor) = actor {
            self.generator.actor.set(actor);
        }
        self.generator.actor.trainable(false);
        self.critic.trainable(false);
        Ok((self.generator, self.critic))
    }
}
