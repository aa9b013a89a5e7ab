//! The critic's part of a step.

use super::Networks;
use crate::nn::host::{Pass, critic_loss, outcome_loss};
use crate::train::engine::Draw;

/// Memory of the critic, from step to step.
#[derive(Default)]
pub(super) struct CriticWork {
    /// Gradient of its weights.
    pub(super) gradient: Vec<f32>,
    pass: Pass,
    outcomes: Vec<f32>,
}

impl Networks<'_> {
    /// The gradient of L_Q: −mean log Q(M(x̃) | x̃), on training rows as well, or mean (Q(s, z̃, x̃) − R)².
    pub(super) fn descend_critic(&self, draw: &Draw, work: &mut CriticWork) -> f32 {
        work.outcomes.clear();
        if self.shape.classes().is_some() {
            self.show_rows(draw, work);
        } else {
            self.show_critic_input(draw, work);
        }
        let CriticWork { pass, outcomes, gradient } = work;
        self.critic.forward(pass);
        let (of_output, output) = pass.gradient_of_output();
        let loss = if self.shape.classes().is_some() {
            outcome_loss(output, outcomes, of_output, self.shape.outcomes as usize)
        } else {
            critic_loss(output, outcomes, of_output)
        };
        gradient.resize(self.critic.weights().len(), 0.0);
        self.critic.backward(pass, Some(gradient), false);
        loss
    }

    /// Rows that the model was asked about, and training rows.
    fn show_rows(&self, draw: &Draw, work: &mut CriticWork) {
        let (seen, outcomes) = (self.replay.seen(), self.replay.outcomes());
        let width = self.features.width;
        let count = draw.indexes.len() + draw.examples.len();
        let (of_experiences, of_examples) =
            work.pass.input(count, width).split_at_mut(draw.indexes.len() * width);
        for (input, slot) in of_experiences.chunks_exact_mut(width).zip(&draw.indexes) {
            let record = self.replay.record(*slot as usize);
            input.copy_from_slice(&record[seen.clone()]);
            work.outcomes.extend_from_slice(&record[outcomes.clone()]);
        }
        for (input, row) in of_examples.chunks_exact_mut(width).zip(&draw.examples) {
            input.copy_from_slice(self.table.x(*row as u32));
            work.outcomes.extend_from_slice(self.table.decision(*row as u32));
            // A training row has an outcome.
            work.outcomes.push(0.0);
        }
    }

    /// s, z̃ and x̃.
    fn show_critic_input(&self, draw: &Draw, work: &mut CriticWork) {
        let (state, outcomes) = (self.table.state_width(), self.replay.outcomes());
        let width = state + outcomes.start;
        let input = work.pass.input(draw.indexes.len(), width).chunks_exact_mut(width);
        for (input, slot) in input.zip(&draw.indexes) {
            let record = self.replay.record(*slot as usize);
            input[..state].copy_from_slice(self.table.state(self.replay.row(*slot as usize)));
            input[state..].copy_from_slice(&record[..outcomes.start]);
            work.outcomes.extend_from_slice(&record[outcomes.clone()]);
        }
    }
}
