//! The actor's part of a step: it acts, and it descends.

use super::Networks;
use crate::nn::Form;
use crate::nn::host::{
    Decoding, HostRows, HostSparsity, Pass, PostProcessing, consistency_loss, outcome_loss,
    tanh_all,
};
use crate::train::cfrl::CATEGORY_WEIGHT;
use crate::train::engine::{ActorBatch, Draw, Factors};
use crate::train::repairs::ActorRows;

/// Memory of the actor, from step to step.
#[derive(Default)]
pub(super) struct ActorWork {
    /// z_cf or z̃, and moves of single features.
    pub(super) actions: Vec<f32>,
    /// Gradient of the actor's weights.
    pub(super) gradient: Vec<f32>,
    /// Decoded counterfactuals.
    pub(super) decoding: Decoding,
    rows: HostRows,
    settling: PostProcessing,
    actor: Pass,
    critic: Pass,
    encoder: Pass,
    of_actions: Vec<f32>,
    of_rows: Vec<f32>,
}

/// Losses of one descent of the actor.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ActorLosses {
    pub(super) total: f32,
    pub(super) sparsity: f32,
    pub(super) consistency: f32,
}

impl Networks<'_> {
    /// z̃ of training rows, and its decoding.
    pub(super) fn act(&self, actor_batch: &ActorBatch, work: &mut ActorWork) {
        let count = actor_batch.rows.len();
        let (target, condition) = (actor_batch.y_t.len() / count, actor_batch.c.len() / count);
        work.rows.x.clear();
        work.rows.base.clear();
        for row in &actor_batch.rows {
            work.rows.x.extend_from_slice(self.table.x(*row));
            work.rows.base.extend_from_slice(self.table.base(*row));
        }
        if actor_batch.explores {
            work.actions.clone_from(&actor_batch.noise);
        } else {
            let state = self.table.state_width();
            let width = state + target + condition;
            let input = work.actor.input(count, width).chunks_exact_mut(width);
            for (index, (input, row)) in input.zip(&actor_batch.rows).enumerate() {
                input[..state].copy_from_slice(self.table.state(*row));
                input[state..state + target]
                    .copy_from_slice(&actor_batch.y_t[index * target..][..target]);
                input[state + target..]
                    .copy_from_slice(&actor_batch.c[index * condition..][..condition]);
            }
            self.move_from(actor_batch.rows.iter().copied(), work);
            for (action, noise) in work.actions.iter_mut().zip(&actor_batch.noise) {
                *action = (*action + noise).clamp(-1.0, 1.0);
            }
        }
        let ActorWork { actions, decoding, rows, .. } = work;
        self.features.decode(&self.autoencoder, (actions, rows), decoding);
    }

    /// μ(s) of the input that was written, for these training rows.
    fn move_from(&self, rows: impl Iterator<Item = u32>, work: &mut ActorWork) {
        self.actor.forward(&mut work.actor);
        work.actions.clear();
        work.actions.extend_from_slice(work.actor.output());
        if self.shape.form == Form::Relative {
            for (action, row) in work.actions.chunks_exact_mut(self.features.action()).zip(rows) {
                let start = self.table.start(row);
                action.iter_mut().zip(start).for_each(|(moved, start)| *moved += start);
            }
            tanh_all(&mut work.actions);
        }
    }

    /// The gradient of L_μ = −mean Q(s, z_cf, x_cf) + λ_s L_sparsity + λ_c L_consist.
    pub(super) fn descend_actor(
        &self,
        draw: &Draw,
        factors: Factors,
        work: &mut ActorWork,
    ) -> ActorLosses {
        self.gather(draw, work);
        let of = draw.indexes.iter().map(|slot| self.replay.row(*slot as usize));
        self.move_from(of.clone(), work);
        let ActorWork { actions, decoding, rows, settling, of_actions, of_rows, .. } = work;
        self.features.decode(&self.autoencoder, (actions, rows), decoding);
        self.features.settle(&decoding.decoded, rows, settling);
        if let Some(repairs) = &self.repairs {
            let HostRows { conditions, .. } = rows;
            let (of, decoded) = (&of.collect::<Vec<u32>>(), &decoding.decoded);
            let actor_rows = ActorRows { rows: of, decoded, conditions };
            repairs.apply(&actor_rows, &mut settling.rows);
        }
        of_actions.clear();
        of_actions.resize(actions.len(), 0.0);
        of_rows.clear();
        of_rows.resize(rows.x.len(), 0.0);
        let mut losses = ActorLosses { total: self.value(draw, work), ..ActorLosses::default() };
        let classes = self.shape.classes().is_some();
        let category = if classes { CATEGORY_WEIGHT } else { 1.0 };
        let weights = [factors.sparsity, factors.sparsity * category].map(|weight| weight as f32);
        let HostSparsity { numeric, categorical } = self.back_to_actions(weights, work);
        losses.sparsity = numeric + categorical * category as f32;
        losses.total += losses.sparsity * factors.sparsity as f32;
        if factors.consistency > 0.0 {
            let ActorWork { encoder, settling, of_actions, actions, .. } = work;
            let again = self.autoencoder.encode(&settling.rows, self.features.width, encoder);
            let weighted = (factors.consistency as f32, &mut of_actions[..]);
            losses.consistency = consistency_loss(actions, again, self.shape, weighted);
            losses.total += losses.consistency * factors.consistency as f32;
        }
        self.back_to_weights(work);
        losses
    }

    /// Rows of D, and the actor's input.
    fn gather(&self, draw: &Draw, work: &mut ActorWork) {
        let (targets, conditions) = (self.replay.targets(), self.replay.conditions());
        let state = self.table.state_width();
        let width = state + conditions.end;
        let HostRows { x, base, conditions: c } = &mut work.rows;
        [&mut *x, &mut *base, &mut *c].into_iter().for_each(Vec::clear);
        let input = work.actor.input(draw.indexes.len(), width).chunks_exact_mut(width);
        for (input, slot) in input.zip(&draw.indexes) {
            let (row, record) =
                (self.replay.row(*slot as usize), self.replay.record(*slot as usize));
            x.extend_from_slice(self.table.x(row));
            base.extend_from_slice(self.table.base(row));
            c.extend_from_slice(&record[conditions.clone()]);
            input[..state].copy_from_slice(self.table.state(row));
            input[state..].copy_from_slice(&record[targets.start..conditions.end]);
        }
    }

    /// −mean Q, or −log Q(y_T | x_cf), with the gradients of actions and of post-processed rows.
    fn value(&self, draw: &Draw, work: &mut ActorWork) -> f32 {
        let count = draw.indexes.len();
        let (width, action) = (self.features.width, self.features.action());
        let ActorWork { actions, settling, critic, of_actions, of_rows, actor, .. } = work;
        if self.shape.classes().is_some() {
            critic.input(count, width).copy_from_slice(&settling.rows);
            self.critic.forward(critic);
            let targets = self.replay.targets();
            let target: Vec<f32> = draw
                .indexes
                .iter()
                .flat_map(|slot| &self.replay.record(*slot as usize)[targets.clone()])
                .copied()
                .collect();
            let (gradient, logits) = critic.gradient_of_output();
            let loss = outcome_loss(logits, &target, gradient, self.shape.outcomes as usize);
            self.critic.backward(critic, None, true);
            of_rows.copy_from_slice(critic.gradient());
            return loss;
        }
        let state = actor.latents().len() / count;
        let shown = if self.shape.form == Form::Relative { width } else { 0 };
        let all = state + action + shown;
        let input = critic.input(count, all).chunks_exact_mut(all).enumerate();
        for (row, input) in input {
            input[..state].copy_from_slice(&actor.latents()[row * state..][..state]);
            input[state..state + action].copy_from_slice(&actions[row * action..][..action]);
            input[state + action..].copy_from_slice(&settling.rows[row * width..][..shown]);
        }
        self.critic.forward(critic);
        let (gradient, values) = critic.gradient_of_output();
        gradient.fill(-1.0 / count as f32);
        let loss = -values.iter().sum::<f32>() / count as f32;
        self.critic.backward(critic, None, true);
        for (row, gradient) in critic.gradient().chunks_exact(all).enumerate() {
            of_actions[row * action..][..action].copy_from_slice(&gradient[state..state + action]);
            of_rows[row * width..][..shown].copy_from_slice(&gradient[state + action..]);
        }
        loss
    }

    /// Sparsity, and its gradient and that of post-processed rows, back to the actions.
    fn back_to_actions(&self, weights: [f32; 2], work: &mut ActorWork) -> HostSparsity {
        let ActorWork { decoding, rows, settling, of_actions, of_rows, .. } = work;
        let features = &self.features;
        let sparsity = if self.shape.form == Form::Paper {
            features.decoded_sparsity(&decoding.decoded, &rows.x, (weights, of_rows))
        } else {
            let weighted = (weights, &mut of_rows[..]);
            let sparsity = features.output_sparsity(&settling.rows, &rows.x, weighted);
            features.settle_back(of_rows, (&decoding.decoded, rows), settling);
            sparsity
        };
        features.decode_back(&self.autoencoder, (of_rows, of_actions), decoding);
        sparsity
    }

    fn back_to_weights(&self, work: &mut ActorWork) {
        let ActorWork { actions, of_actions, actor, gradient, .. } = work;
        let (of_output, _) = actor.gradient_of_output();
        of_output.copy_from_slice(of_actions);
        if self.shape.form == Form::Relative {
            for (gradient, action) in of_output.iter_mut().zip(actions) {
                *gradient *= 1.0 - *action * *action;
            }
        }
        gradient.resize(self.actor.weights().len(), 0.0);
        self.actor.backward(actor, Some(gradient), false);
    }
}
