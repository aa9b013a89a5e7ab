//! The whole algorithm: CFRL, a one-step actor-critic (DDPG) in the autoencoder's latent space, as in
//! Algorithm 1 of Samoilescu, Van Looveren and Klaise (2021), in the paper's symbols:
//!
//! ```text
//! x  row, encoded      y_M  the model's decision    z_cf = μ(s), the counterfactual's latent
//! z  = enc(x)          y_T  the wanted decision     z̃    = clip(z_cf + ε, −1, 1), ε Gaussian
//! c  conditions        s    = (z, y_M, y_T, c)      x̃    = pp(dec(z̃), c),  R = f(M(x̃), y_T)
//! ```
//!
//! Where `preset = "paper"` deviates from the paper:
//!
//! 1. Losses are means over features and latent places where the paper writes sums, the categorical
//!    sparsity is a straight-through estimate, and the actor's step uses the critic of the same step: all
//!    as in the paper's reference implementation, to which λ = 0.5 refers.
//! 2. R of a batch arrives while the update of that step runs, so a batch is replayed from the next step
//!    on. The actor that made it is the same.
//! 3. The allowed category is the one with the largest logit among the allowed, not the largest product
//!    of softmax and mask, which can underflow and then picks what is forbidden.
//! 4. Exploration ends and learning begins after exactly 100 and 10 batches (the reference: 101 and 12).
//!
//! The default preset deviates further:
//!
//! 5. The actor says how far the latent moves, and the decoder how far numerics move; beside that it moves
//!    numerics itself ([`Form::Relative`]). z_cf and z̃ below stand for both.
//! 6. The critic is shown x̃ beside s and z̃: what R depends on. It then has the model to learn, not the
//!    model behind the decoder. The gradient reaches the actor through pp, straight-through for categories.
//! 7. Sparsity is measured on pp(dec(z_cf), c) rather than on dec(z_cf): what a constraint undoes is free.
//! 8. Half of the conditions are as wide as the schema allows, which is what explanations ask for and what
//!    the paper's draws hardly ever contain.
//! 9. For a regression, half of R says how near the value came.
//! 10. λ_s and λ_c grow from nothing: an actor that may first learn to be valid is not caught where no change
//!     at all is the nearest optimum.
//! 11. The learning rate and the noise fall along a cosine, and the actor that is kept is the mean of those
//!     of the last steps: a latent must be hit closely, and the mean is less shaken by single batches.

use std::sync::mpsc::sync_channel;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use tch::{Kind, Tensor, no_grad};

use super::autoencoder::cosine;
use super::judge::Judge;
use super::sample::Picked;
use super::{Problem, Setup};
use crate::constrain::Conditions;
use crate::encode::Dense;
use crate::error::{Error, Result};
use crate::job::{Balance, Method, Preset};
use crate::nn::{
    ActorShape, Adam, Experiences, Form, Generator, Network, Replay, ReplayShape, consistency_loss,
    critic_loss, output_sparsity, sparsity_loss, to_dense, to_tensor,
};
use crate::target::{RowOrder, TargetSampler, Wishes};

/// Bytes that the replay buffer may take; a table with thousands of categories gets a shorter one.
const REPLAY_BYTES: u64 = 256 << 20;
/// Experiences that the replay buffer holds: the paper's 1,000 batches of 128.
const REPLAY_ROWS: usize = 128_000;
/// Steps in which z̃ is uniform in [−1, 1].
const EXPLORATION: usize = 100;
/// Batches of experience before the first update.
const WARM_UP: usize = 10;
/// Standard deviation of ε, to begin with …
const NOISE: f64 = 0.1;
/// … and, where it falls, in the end: the critic then sees the edge between two decisions sharply, and the
/// actor need not keep far from it.
const LEAST_NOISE: f64 = 0.02;
/// What the falling learning rate falls to.
const LEAST_RATE: f64 = 0.01;
/// Share of the training in which λ_s and λ_c grow from nothing.
const GROWING: f64 = 0.4;
/// Weight of an actor's step in the mean of actors: those of about 500 steps count.
const AVERAGING: f64 = 0.002;

/// What the presets differ in, beside the keys of the job file.
#[derive(Debug, Clone, Copy)]
struct Details {
    form: Form,
    /// Share of conditions as wide as the schema allows.
    wide_share: f64,
    /// Whether learning rate and noise fall, and the actor is the mean of the last ones.
    falling: bool,
}

impl Details {
    fn of(method: &Method) -> Details {
        match method.preset {
            Preset::Paper => Details { form: Form::Paper, wide_share: 0.0, falling: false },
            Preset::Default => Details { form: Form::Relative, wide_share: 0.5, falling: true },
        }
    }
}

/// What learning works with and on.
pub(super) struct Learner<'a> {
    setup: &'a Setup<'a>,
    problem: &'a Problem<'a>,
    details: Details,
    lambda_s: f64,
    lambda_c: f64,
    pub(super) sampler: TargetSampler,
    order: RowOrder,
    table: Table,
    pub(super) shape: ActorShape,
    pub(super) generator: Generator,
    pub(super) critic: Network,
    /// The actor's weights, averaged over the last steps.
    pub(super) average: Tensor,
    pub(super) adams: Adams,
    pub(super) replay: Replay,
    /// Steps done.
    pub(super) step: usize,
    /// Slows learning down after it diverged.
    pub(super) rate_factor: f64,
    /// Sum and number of rewards since they were last asked for.
    pub(super) rewards: (f64, usize),
}

/// Optimisers of actor and critic.
pub(super) struct Adams {
    pub(super) actor: Adam,
    pub(super) critic: Adam,
}

/// Training rows as tensors, side by side: x, the numerics of dec(z), z, y_M.
struct Table {
    matrix: Tensor,
    width: i64,
    numerics: i64,
    state: i64,
}

/// Some of them.
struct Known {
    x: Tensor,
    /// Numerics of dec(z).
    base: Tensor,
    /// z and y_M.
    state: Tensor,
}

/// A batch on its way through the model.
struct Experience {
    rows: Tensor,
    y_t: Tensor,
    c: Tensor,
    z_tilde: Tensor,
}

/// What the model is asked about it.
struct Question {
    decoded: Dense,
    picked: Picked,
    conditions: Conditions,
    wishes: Wishes,
}

/// What the model says: R, and x̃ where the critic is shown it.
struct Answer {
    rewards: Vec<f32>,
    seen: Vec<f32>,
}

/// Losses of one update, still on the device.
pub(super) struct Losses {
    pub(super) critic: Tensor,
    pub(super) actor: Tensor,
    pub(super) sparsity: Tensor,
    pub(super) consistency: Tensor,
}

impl<'a> Learner<'a> {
    /// Takes steps until `after` says to end.
    pub(super) fn learn(
        &mut self,
        judge: &Judge,
        mut after: impl FnMut(&mut Self, Option<&Losses>) -> Result<bool>,
    ) -> Result<()> {
        let rewarder = self.problem.rewarder.clone();
        let (encoder, shows) = (&self.setup.encoder, self.details.form == Form::Relative);
        std::thread::scope(|scope| {
            let (ask, questions) = sync_channel::<Question>(1);
            let (tell, answers) = sync_channel::<Result<Answer>>(1);
            // M runs on a thread of its own, while this one descends.
            scope.spawn(move || {
                for asked in questions {
                    let judged = judge.judge(&asked.decoded, &asked.picked, &asked.conditions);
                    let answer = judged.map(|judged| Answer {
                        rewards: rewarder.rewards(&judged.scores, &asked.wishes),
                        seen: if shows {
                            encoder.encode_rows(&judged.rows).values
                        } else {
                            Vec::new()
                        },
                    });
                    if tell.send(answer).is_err() {
                        break;
                    }
                }
            });
            let gone = || Error::internal("training", "the model's thread has ended");
            loop {
                let random = &mut self.setup.streams.random(&format!("step {}", self.step));
                let (experience, question) = self.act(random)?;
                ask.send(question).map_err(|_| gone())?;
                let losses = self.update(random)?;
                let answer = answers.recv().map_err(|_| gone())??;
                self.remember(&experience, &answer)?;
                self.step += 1;
                if after(self, losses.as_ref())? {
                    return Ok(());
                }
            }
        })
    }

    /// Samples x, constructs random y_T and c, and computes z̃ and dec(z̃).
    fn act(&mut self, random: &mut ChaCha8Rng) -> Result<(Experience, Question)> {
        let device = self.setup.device;
        let rows = self.order.next(self.batch());
        let picked = self.problem.sample.pick(&rows)?;
        let wishes = self.sampler.draw(rows.len(), random);
        let conditions = self.conditions(&picked, random);

        let codec = &self.problem.codec;
        let y_t = to_tensor(&codec.wishes(&wishes), codec.wish_width(), device)?;
        let c = to_tensor(&conditions.values, conditions.width, device)?;
        let rows: Vec<i64> = rows.iter().map(|row| i64::from(*row)).collect();
        let rows = Tensor::from_slice(&rows).to_device(device);
        let known = self.table.known(&rows);
        let z_tilde = if self.step < EXPLORATION && !self.problem.warm {
            self.noise(|| random.random_range(-1.0..=1.0))?
        } else {
            let deviation = (NOISE - LEAST_NOISE) * self.falling() + LEAST_NOISE;
            let noise =
                self.noise(|| random.sample::<f32, _>(StandardNormal) * deviation as f32)?;
            let s = Tensor::cat(&[&known.state, &y_t, &c], 1);
            no_grad(|| (self.generator.act(&s) + noise).clamp(-1.0, 1.0))
        };
        let decoded = no_grad(|| self.generator.decode(&z_tilde, &known.x, &known.base));
        let decoded = to_dense(&decoded, self.setup.encoder.layout())?;
        let question = Question { decoded, picked, conditions, wishes };
        Ok((Experience { rows, y_t, c, z_tilde }, question))
    }

    fn conditions(&self, picked: &Picked, random: &mut ChaCha8Rng) -> Conditions {
        let widest = self.setup.constraints.widest(&picked.rows, &picked.bounds);
        let mut drawn = self.setup.constraints.draw(&widest, &picked.rows, random);
        let width = drawn.width;
        if self.details.wide_share > 0.0 {
            let rows = drawn.values.chunks_exact_mut(width).zip(widest.values.chunks_exact(width));
            for (row, wide) in rows {
                if random.random_bool(self.details.wide_share) {
                    row.copy_from_slice(wide);
                }
            }
        }
        drawn
    }

    fn noise(&self, draw: impl FnMut() -> f32) -> Result<Tensor> {
        let width = self.shape.action() as usize;
        let values: Vec<f32> = std::iter::repeat_with(draw).take(self.batch() * width).collect();
        to_tensor(&values, width, self.setup.device)
    }

    /// Stores (x, z, y_M, y_T, c, z̃, x̃, R) in D.
    fn remember(&mut self, experience: &Experience, answer: &Answer) -> Result<()> {
        self.rewards.0 += answer.rewards.iter().map(|reward| f64::from(*reward)).sum::<f64>();
        self.rewards.1 += answer.rewards.len();
        let device = self.setup.device;
        let rewards = to_tensor(&answer.rewards, 1, device)?;
        let Experience { rows, y_t, c, z_tilde } = experience;
        if answer.seen.is_empty() {
            self.replay.append(rows, &[y_t, c, z_tilde, &rewards]);
        } else {
            let seen = to_tensor(&answer.seen, self.table.width as usize, device)?;
            self.replay.append(rows, &[y_t, c, z_tilde, &seen, &rewards]);
        }
        Ok(())
    }

    /// Samples a batch of experiences uniformly from D, and takes one step of gradient descent for the
    /// critic, then one for the actor.
    fn update(&mut self, random: &mut ChaCha8Rng) -> Result<Option<Losses>> {
        let held = self.replay.len() as i64;
        if held < (WARM_UP * self.batch()) as i64 {
            return Ok(None);
        }
        let places: Vec<i64> = (0..self.batch()).map(|_| random.random_range(0..held)).collect();
        self.descend_on(&places).map(Some)
    }

    /// The same on these experiences of D.
    pub(super) fn descend_on(&mut self, places: &[i64]) -> Result<Losses> {
        let batch = self.replay.sample(&Tensor::from_slice(places).to_device(self.setup.device));
        let known = self.table.known(&batch.rows);
        self.descend(&batch, &known)
    }

    fn descend(&mut self, batch: &Experiences, known: &Known) -> Result<Losses> {
        let (x, c, rate) = (&known.x, batch.conditions(), self.rate());
        let s = Tensor::cat(&[&known.state, &batch.wishes()], 1);

        // L_Q = mean (Q(s, z̃, x̃) − R)²
        let q = self.critic.forward(&Tensor::cat(&[&known.state, &batch.deeds()], 1));
        let critic = critic_loss(&q, &batch.rewards());
        let gradient = self.critic.gradient(&critic)?;
        self.adams.critic.step(&self.critic, &gradient, rate);

        // L_μ = −mean Q(s, z_cf, x_cf) + λ_s L_sparsity + λ_c L_consist
        let z_cf = self.generator.act(&s);
        let decoded = self.generator.decode(&z_cf, x, &known.base);
        let places = &self.generator.places;
        let (x_cf, judged, parts) = match self.details.form {
            Form::Paper => {
                let x_cf = places.post_process(&decoded.detach(), x, &c);
                (x_cf, Tensor::cat(&[&s, &z_cf], 1), sparsity_loss(&decoded, x, places))
            }
            Form::Relative => {
                let x_cf = places.post_process(&decoded, x, &c);
                let judged = Tensor::cat(&[&s, &z_cf, &x_cf], 1);
                let parts = output_sparsity(&x_cf, x, places);
                (x_cf, judged, parts)
            }
        };
        let l_max = -self.critic.forward(&judged).mean(Kind::Float);
        let sparsity = parts.numeric + parts.categorical;
        let grown = self.grown();
        let mut actor = l_max + &sparsity * (self.lambda_s * grown);
        let mut consistency = Tensor::zeros([], (Kind::Float, self.setup.device));
        if self.lambda_c > 0.0 {
            let again = no_grad(|| self.generator.autoencoder.encode(&x_cf));
            consistency = consistency_loss(&self.generator.latent_of(&z_cf), &again);
            actor += &consistency * (self.lambda_c * grown);
        }
        let gradient = self.generator.actor.gradient(&actor)?;
        self.adams.actor.step(&self.generator.actor, &gradient, rate);
        let weight = if self.details.falling { AVERAGING } else { 1.0 };
        let _ = no_grad(|| self.average.lerp_(self.generator.actor.flat(), weight));
        Ok(Losses { critic, actor, sparsity, consistency })
    }

    fn batch(&self) -> usize {
        self.setup.train.method.batch
    }

    fn rate(&self) -> f64 {
        let falling = self.falling().max(LEAST_RATE);
        self.setup.train.method.learning_rate * self.rate_factor * falling
    }

    /// How much of λ_s and λ_c counts already: at first an actor learns to be valid at all, unless it has.
    fn grown(&self) -> f64 {
        let share = self.step as f64 / self.setup.train.limits.max_steps as f64;
        let grows = self.details.falling && !self.problem.warm;
        if grows { (share / GROWING).min(1.0) } else { 1.0 }
    }

    /// From 1 to 0 over the training, or always 1.
    fn falling(&self) -> f64 {
        let share = self.step as f64 / self.setup.train.limits.max_steps as f64;
        if self.details.falling { cosine(share) } else { 1.0 }
    }
}

impl Table {
    fn new(generator: &Generator, rows: &Tensor, decisions: &Tensor) -> Table {
        let z = generator.autoencoder.encode(rows);
        let base = generator.base(&z);
        Table {
            matrix: Tensor::cat(&[rows, &base, &z, decisions], 1),
            width: rows.size()[1],
            numerics: base.size()[1],
            state: z.size()[1] + decisions.size()[1],
        }
    }

    fn known(&self, rows: &Tensor) -> Known {
        let known = self.matrix.index_select(0, rows);
        Known {
            x: known.narrow(1, 0, self.width),
            base: known.narrow(1, self.width, self.numerics),
            state: known.narrow(1, self.width + self.numerics, self.state),
        }
    }
}

impl<'a> Learner<'a> {
    /// Initialises μ and Q at random (or from an earlier generator), and an empty D.
    pub(super) fn new(
        setup: &'a Setup<'a>,
        problem: &'a Problem<'a>,
        start: super::Start,
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
            numerics: if details.form == Form::Relative { start.places.numerics } else { 0 },
            wishes: codec.decision_width() as i64 + target + conditions,
            hidden: method.hidden as i64,
            form: details.form,
        };
        let width = setup.encoder.layout().width;
        let (mut actor, mut critic) = match start.networks {
            Some(networks) => networks,
            None => random_networks(setup, shape)?,
        };
        actor.trainable(true);
        critic.trainable(true);
        let seen = if details.form == Form::Relative { width as i64 } else { 0 };
        let kept = ReplayShape { target, conditions, latent: shape.action(), seen };
        let sample = problem.sample;
        let decisions =
            to_tensor(&codec.decisions(&sample.scores)?, codec.decision_width(), device)?;
        let adams = Adams { actor: Adam::new(&actor), critic: Adam::new(&critic) };
        let average = actor.flat().copy();
        let generator = Generator {
            autoencoder: start.autoencoder,
            actor,
            places: start.places,
            form: details.form,
        };
        let balanced = sample.labels().filter(|_| method.balance == Balance::Rows);
        Ok(Learner {
            lambda_s: lambda(method.sparsity, 0.5, 0.1),
            lambda_c: lambda(method.consistency, 0.5, 0.0),
            sampler: problem.sampler.clone(),
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
            rate_factor: 1.0,
            rewards: (0.0, 0),
        })
    }

    /// Goes on after so many steps, as far as rows are concerned.
    pub(super) fn skip_to(&mut self, step: usize) {
        for _ in self.step..step {
            self.order.next(self.batch());
        }
        self.step = step;
    }

    /// Mean reward since this was last asked.
    pub(super) fn mean_reward(&mut self) -> f64 {
        let (sum, count) = std::mem::take(&mut self.rewards);
        sum / count.max(1) as f64
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
