//! Where networks learn: a step of experience and of descent, and the state that a training goes back to or resumes
//! from. In plain memory on a CPU, with tensors on a GPU.

use tch::Tensor;

use super::validate::Quality;
use super::{Problem, TrainSetup};
use crate::encode::Dense;
use crate::error::Result;
use crate::nn::{Autoencoder, Generator, Network, ReplayShape};

/// What an engine begins with.
pub(super) struct EngineInput<'a> {
    pub(super) setup: &'a TrainSetup<'a>,
    pub(super) problem: &'a Problem<'a>,
    pub(super) generator: Generator,
    pub(super) critic: Network,
    /// What D holds of an experience …
    pub(super) replay: ReplayShape,
    /// … and of how many.
    pub(super) capacity: usize,
}

/// A batch of training rows and what is asked of them.
pub(super) struct ActorBatch {
    /// Training rows.
    pub(super) rows: Vec<u32>,
    /// y_T.
    pub(super) y_t: Vec<f32>,
    /// c.
    pub(super) c: Vec<f32>,
    /// ε, or z̃ itself.
    pub(super) noise: Vec<f32>,
    /// Whether z̃ is noise and nothing else.
    pub(super) explores: bool,
}

/// What one update learns from.
pub(super) struct Draw {
    /// Experiences of D.
    pub(super) indexes: Vec<i64>,
    /// Training rows beside them.
    pub(super) examples: Vec<i64>,
}

/// Numbers of the method at a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factors {
    /// Of both optimisers.
    pub(super) rate: f64,
    /// λ_s, as far as it counts.
    pub(super) sparsity: f64,
    /// λ_c, as far as it counts.
    pub(super) consistency: f64,
    /// Weight of the actor's step in the mean of actors.
    pub(super) averaging: f64,
}

/// What the model says about a batch: x̃ where the critic is shown it, and R or which outcome.
pub(super) struct BatchOutcome {
    pub(super) seen: Vec<f32>,
    pub(super) outcomes: Vec<f32>,
}

/// Losses of one update, perhaps still on a device.
pub(super) struct Losses {
    pub(super) critic: Tensor,
    pub(super) actor: Tensor,
    pub(super) sparsity: Tensor,
    pub(super) consistency: Tensor,
}

/// Networks and optimisers at a moment, the actor first: flat weights.
pub(super) struct Snapshot {
    pub(super) networks: [Tensor; 2],
    /// First and second moments, a row each.
    pub(super) moments: [Tensor; 2],
    pub(super) steps: [i64; 2],
    /// The mean of actors.
    pub(super) average: Tensor,
}

impl Snapshot {
    /// Networks and moments under these names.
    pub(super) fn named(&self, names: [&'static str; 4]) -> [(&'static str, Tensor); 4] {
        let [actor, critic] = &self.networks;
        let [of_actor, of_critic] = &self.moments;
        let tensors = [actor, critic, of_actor, of_critic].map(Tensor::shallow_clone);
        let [a, b, c, d] = tensors;
        [(names[0], a), (names[1], b), (names[2], c), (names[3], d)]
    }

    /// What has these names.
    pub(super) fn of(
        names: [&str; 4],
        steps: [i64; 2],
        tensor: impl Fn(&str) -> Result<Tensor>,
        average: Tensor,
    ) -> Result<Snapshot> {
        let networks = [tensor(names[0])?, tensor(names[1])?];
        let moments = [tensor(names[2])?, tensor(names[3])?];
        Ok(Snapshot { networks, moments, steps, average })
    }
}

/// D at a moment.
pub(super) struct ReplayState {
    /// Training row of each experience.
    pub(super) rows: Tensor,
    /// The rest of it.
    pub(super) records: Tensor,
    /// Where writing continues.
    pub(super) next: i64,
}

/// Hears decoded counterfactuals as soon as they are there, and hands them to the model.
pub(super) type SendQuery<'a> = &'a mut dyn FnMut(Dense) -> Result<()>;

/// Says how good a generator is.
pub(super) type Evaluate<'a> = &'a mut dyn FnMut(&Generator) -> Result<Quality>;

/// Networks that learn, and D.
pub(super) trait TrainingEngine {
    /// Lets the actor act and hands on what it did, and descends, if there is something to learn from.
    fn step(
        &mut self,
        actor_batch: &ActorBatch,
        update: Option<(&Draw, Factors)>,
        send: SendQuery<'_>,
    ) -> Result<Option<Losses>>;

    /// Stores what the last step did in D.
    fn remember(&mut self, actor_batch: &ActorBatch, outcome: &BatchOutcome) -> Result<()>;

    /// Experiences in D.
    fn held(&self) -> usize;

    /// Forgets D.
    fn forget(&mut self);

    /// The state of networks and optimisers.
    fn snapshot(&self) -> Result<Snapshot>;

    /// Goes back to it.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<()>;

    /// D, as a checkpoint keeps it.
    fn replay(&self) -> Result<ReplayState>;

    /// Restores it.
    fn restore_replay(&mut self, state: &ReplayState) -> Result<()>;

    /// Whether all weights are numbers.
    fn is_finite(&self) -> bool;

    /// Steps that the actor has taken.
    fn actor_steps(&self) -> i64;

    /// Evaluates the generator with these weights of the actor.
    fn evaluate(&mut self, actor: &Tensor, evaluator: Evaluate<'_>) -> Result<Quality>;

    /// The mean of actors, as flat weights.
    fn average(&self) -> Result<Tensor>;

    /// enc and dec.
    fn autoencoder(&self) -> &Autoencoder;

    /// The generator with these weights of its actor, or its last ones, and the critic.
    fn finish(self: Box<Self>, actor: Option<&Tensor>) -> Result<(Generator, Network)>;
}
