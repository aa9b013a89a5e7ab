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
//! 5. The actor says how far the latent moves, and the decoder how far features move; beside that it moves
//!    features itself, and trifling moves are none ([`Form::Relative`]). z_cf and z̃ below stand for both.
//! 6. The critic is shown x̃: what R depends on. It then has the model to learn, not the model behind the
//!    decoder. The gradient reaches the actor through pp, straight-through for categories.
//! 7. Sparsity is measured on pp(dec(z_cf), c) rather than on dec(z_cf): what a constraint undoes is free.
//! 8. Half of the conditions are as wide as the schema allows, which is what explanations ask for and what
//!    the paper's draws hardly ever contain.
//! 9. For a regression, half of R says how near the value came.
//! 10. Where wishes are labels, the critic does not learn R but the model's decision, with a logarithmic loss,
//!     and the actor descends on −log Q(y_T | x_cf). One answer teaches it about every class at once, which
//!     rare ones need; training rows, whose decisions are known, teach it too; and an actor that is far from
//!     valid is told so, while −Q is flat there. Else the critic learns R, and λ_s and λ_c grow from nothing:
//!     an actor that may first learn to be valid is not caught where no change at all is the nearest optimum.
//! 11. The learning rate and the noise fall along a cosine, and the actor that is kept is the mean of those
//!     of the last steps: a latent must be hit closely, and the mean is less shaken by single batches.
//! 12. λ_s, unless the job gives it, falls while validity on the validation rows is too low (or they are too
//!     few to tell), and rises again when it is not: models with ragged borders, as deep trees have them, need
//!     larger moves.
//! 13. No row is asked to become what it is: explanations never ask that.
//! 14. Some experiences undo a part of what the actor did, or graft single values of a row of the wanted class
//!     instead: what a change is worth shows where it is missing.
//! 15. Where labels of more than two classes are asked for, a batch has 256 rows: each class has fewer of them.

use std::sync::mpsc::sync_channel;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use tch::{Kind, Tensor, no_grad};

use super::autoencoder::cosine;
use super::explore::vary;
use super::judge::Judge;
use super::sample::Picked;
use super::start::adapts;
use super::table::{Examples, Known, Table};
use super::{Problem, Setup};
use crate::constrain::Conditions;
use crate::encode::Dense;
use crate::error::{Error, Result};
use crate::job::{Method, Preset};
use crate::nn::{
    ActorShape, Adam, Experiences, Form, Generator, Network, Replay, consistency_loss, critic_loss,
    outcome_loss, output_sparsity, sparsity_loss, to_dense, to_tensor,
};
use crate::target::{RowOrder, TargetSampler, Wishes};

/// Steps in which z̃ is uniform in [−1, 1].
const EXPLORATION: usize = 100;
/// Batches of experience before the first update.
pub(super) const WARM_UP: usize = 10;
/// Standard deviation of ε, to begin with …
const NOISE: f64 = 0.1;
/// … and, where it falls, in the end: the critic then sees the edge between two decisions sharply, and the
/// actor need not keep far from it.
const LEAST_NOISE: f64 = 0.02;
/// What the falling learning rate falls to.
const LEAST_RATE: f64 = 0.01;
/// Share of the training in which λ_s and λ_c grow from nothing, for a critic that gives R itself.
const GROWING: f64 = 0.4;
/// Share of λ_s that counts at the beginning, and while the actor is valid fairly often.
pub(super) const FAIRLY_EASED: f64 = 0.45;
/// By what factors that share falls and rises, at most, at one judgement.
const EASIER: f64 = 0.8;
const HARDER: f64 = 1.25;
/// What a changed category weighs beside a numeric's standard deviation, both as means over features.
const CATEGORY_WEIGHT: f64 = 0.95;
/// Training rows that the critic sees for every experience.
const EXAMPLES: f64 = 0.5;
/// Weight of an actor's step in the mean of actors: those of about 500 steps count.
const AVERAGING: f64 = 0.002;

/// What the presets differ in, beside the keys of the job file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Details {
    pub(super) form: Form,
    /// Share of conditions as wide as the schema allows.
    wide_share: f64,
    /// Whether learning rate and noise fall, and the actor is the mean of the last ones.
    falling: bool,
}

impl Details {
    pub(super) fn of(method: &Method) -> Details {
        match method.preset {
            Preset::Paper => Details { form: Form::Paper, wide_share: 0.0, falling: false },
            Preset::Default => Details { form: Form::Relative, wide_share: 0.5, falling: true },
        }
    }
}

/// What learning works with and on.
pub(super) struct Learner<'a> {
    pub(super) setup: &'a Setup<'a>,
    pub(super) problem: &'a Problem<'a>,
    pub(super) details: Details,
    /// Rows per step.
    pub(super) batch: usize,
    pub(super) lambda_s: f64,
    pub(super) lambda_c: f64,
    pub(super) sampler: TargetSampler,
    pub(super) order: RowOrder,
    /// Training rows for a critic that tells outcomes apart.
    pub(super) examples: Examples,
    pub(super) table: Table,
    pub(super) shape: ActorShape,
    pub(super) generator: Generator,
    pub(super) critic: Network,
    /// The actor's weights, averaged over the last steps.
    pub(super) average: Tensor,
    pub(super) adams: Adams,
    pub(super) replay: Replay,
    /// Steps done.
    pub(super) step: usize,
    /// How much of λ_s counts: less while the actor is not valid often enough.
    pub(super) eased: f64,
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

/// A batch on its way through the model.
struct Experience {
    /// Indices of training rows, on the host.
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

/// What the model says: R, x̃ where the critic is shown it, and the outcome where it tells them apart.
struct Answer {
    rewards: Vec<f32>,
    seen: Vec<f32>,
    outcomes: Vec<f32>,
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
        let classes = self.shape.classes();
        std::thread::scope(|scope| {
            let (ask, questions) = sync_channel::<Question>(1);
            let (tell, answers) = sync_channel::<Result<Answer>>(1);
            // M runs on a thread of its own, while this one descends.
            let model = std::thread::Builder::new().name("training-model".to_string());
            let ask_model = move || {
                for asked in questions {
                    let judged = judge.judge(&asked.decoded, &asked.picked, &asked.conditions);
                    let answer = judged.map(|judged| Answer {
                        rewards: rewarder.rewards(&judged.scores, &asked.wishes),
                        seen: if shows {
                            encoder.encode_rows(&judged.rows).values
                        } else {
                            Vec::new()
                        },
                        outcomes: classes.map_or_else(Vec::new, |classes| {
                            rewarder.outcomes(&judged.scores, classes)
                        }),
                    });
                    if tell.send(answer).is_err() {
                        break;
                    }
                }
            };
            model
                .spawn_scoped(scope, ask_model)
                .map_err(|error| Error::resources("threads", "cannot be started").source(error))?;
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
        let rows = self.order.next(self.batch);
        let picked = self.problem.sample.pick(&rows)?;
        let wishes = self.wishes(&rows, random);
        let conditions = self.conditions(&picked, random);

        let codec = &self.problem.codec;
        let y_t = to_tensor(&codec.wishes(&wishes), codec.wish_width(), device)?;
        let c = to_tensor(&conditions.values, conditions.width, device)?;
        let indices: Vec<i64> = rows.iter().map(|row| i64::from(*row)).collect();
        let indices = Tensor::from_slice(&indices);
        let known = self.table.known(&indices)?;
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
        // The one time in a step that the host waits for the device: the model is on the host.
        let mut decoded = to_dense(&decoded, self.setup.encoder.layout())?;
        self.vary(&mut decoded, &rows, &wishes, random);
        let question = Question { decoded, picked, conditions, wishes };
        Ok((Experience { rows: indices, y_t, c, z_tilde }, question))
    }

    /// y_T of rows: not what they have already, unless the paper's method is wanted.
    fn wishes(&self, rows: &[u32], random: &mut ChaCha8Rng) -> Wishes {
        match self.problem.sample.labels().filter(|_| self.details.form == Form::Relative) {
            Some(labels) => {
                let own: Vec<u32> = rows.iter().map(|row| labels[*row as usize]).collect();
                self.sampler.draw_unlike(&own, random)
            }
            None => self.sampler.draw(rows.len(), random),
        }
    }

    /// Lets some rows try less than the actor does, where the critic learns from any trial.
    fn vary(&self, decoded: &mut Dense, rows: &[u32], wishes: &Wishes, random: &mut ChaCha8Rng) {
        if let Some(wanted) = wishes.classes().filter(|_| self.shape.classes().is_some()) {
            let others: Vec<i64> =
                wanted.iter().map(|class| self.examples.of(*class, random)).collect();
            vary(decoded, &self.problem.encoded, (rows, &others), random);
        }
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
        let values: Vec<f32> = std::iter::repeat_with(draw).take(self.batch * width).collect();
        to_tensor(&values, width, self.setup.device)
    }

    /// Stores (x, z, y_M, y_T, c, z̃, x̃, R) in D.
    fn remember(&mut self, experience: &Experience, answer: &Answer) -> Result<()> {
        self.rewards.0 += answer.rewards.iter().map(|reward| f64::from(*reward)).sum::<f64>();
        self.rewards.1 += answer.rewards.len();
        let device = self.setup.device;
        let rewards = || to_tensor(&answer.rewards, 1, device);
        let seen = || to_tensor(&answer.seen, self.table.width(), device);
        let Experience { rows, y_t, c, z_tilde } = experience;
        match (self.details.form, self.shape.classes()) {
            (Form::Paper, _) => self.replay.append(rows, &[y_t, c, z_tilde, &rewards()?]),
            (Form::Relative, None) => {
                let (seen, rewards) = (seen()?, rewards()?);
                self.replay.append(rows, &[y_t, c, z_tilde, &seen, &rewards]);
            }
            (Form::Relative, Some(classes)) => {
                let (seen, outcomes) = (seen()?, to_tensor(&answer.outcomes, classes + 1, device)?);
                self.replay.append(rows, &[y_t, c, &seen, &outcomes]);
            }
        }
        Ok(())
    }

    /// Samples a batch of experiences uniformly from D, and takes one step of gradient descent for the
    /// critic, then one for the actor.
    fn update(&mut self, random: &mut ChaCha8Rng) -> Result<Option<Losses>> {
        let held = self.replay.len() as i64;
        if held < (WARM_UP * self.batch) as i64 {
            return Ok(None);
        }
        let places: Vec<i64> = (0..self.batch).map(|_| random.random_range(0..held)).collect();
        let examples = self.examples.draw((EXAMPLES * self.batch as f64) as usize, random);
        self.descend_on(&places, examples).map(Some)
    }

    /// The same on these experiences of D and these training rows.
    pub(super) fn descend_on(&mut self, places: &[i64], examples: Vec<i64>) -> Result<Losses> {
        let batch = self.replay.sample(&Tensor::from_slice(places))?;
        let known = self.table.known(&batch.rows)?;
        let critic = self.descend_critic(&batch, &known, examples)?;
        self.descend_actor(&batch, &known, critic)
    }

    fn descend_critic(
        &mut self,
        batch: &Experiences,
        known: &Known,
        examples: Vec<i64>,
    ) -> Result<Tensor> {
        let loss = if self.shape.classes().is_some() {
            // L_Q = −mean log Q(M(x̃) | x̃), on training rows as well
            let examples = self.table.known(&Tensor::from_slice(&examples))?;
            let rows = Tensor::cat(&[batch.seen(), examples.x], 0);
            let decisions = examples.decisions.pad([0, 1], "constant", 0.0);
            let outcomes = Tensor::cat(&[batch.answers(), decisions], 0);
            outcome_loss(&self.critic.forward(&rows), &outcomes)
        } else {
            // L_Q = mean (Q(s, z̃, x̃) − R)²
            let q = self.critic.forward(&Tensor::cat(&[&known.state, &batch.deeds()], 1));
            critic_loss(&q, &batch.answers())
        };
        let gradient = self.critic.gradient(&loss)?;
        self.adams.critic.step(&self.critic, &gradient, self.rate());
        Ok(loss)
    }

    fn descend_actor(
        &mut self,
        batch: &Experiences,
        known: &Known,
        critic: Tensor,
    ) -> Result<Losses> {
        let (x, c, rate) = (&known.x, batch.conditions(), self.rate());
        let s = Tensor::cat(&[&known.state, &batch.wishes()], 1);

        // L_μ = −mean Q(s, z_cf, x_cf) + λ_s L_sparsity + λ_c L_consist
        let z_cf = self.generator.act(&s);
        let decoded = self.generator.decode(&z_cf, x, &known.base);
        let places = &self.generator.places;
        let (x_cf, parts) = match self.details.form {
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
        let (l_max, weight) = match (self.details.form, self.shape.classes()) {
            (Form::Paper, _) => (-self.value(&[&s, &z_cf]), 1.0),
            (Form::Relative, None) => (-self.value(&[&s, &z_cf, &x_cf]), 1.0),
            (Form::Relative, Some(_)) => {
                (outcome_loss(&self.critic.forward(&x_cf), &batch.targets()), CATEGORY_WEIGHT)
            }
        };
        let sparsity = parts.numeric + parts.categorical * weight;
        let grown = self.grown();
        let mut actor = l_max + &sparsity * (self.lambda_s * grown * self.eased);
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

    /// mean Q
    fn value(&self, judged: &[&Tensor]) -> Tensor {
        self.critic.forward(&Tensor::cat(judged, 1)).mean(Kind::Float)
    }

    fn rate(&self) -> f64 {
        let falling = self.falling().max(LEAST_RATE);
        self.setup.train.method.learning_rate * self.rate_factor * falling
    }

    /// How much of λ_s and λ_c counts already: at first an actor learns to be valid at all, unless it has, or
    /// no change at all is worth infinitely little, as it is to a critic that tells outcomes apart.
    fn grown(&self) -> f64 {
        let share = self.step as f64 / self.setup.train.limits.max_steps as f64;
        let grows = self.details.falling && !self.problem.warm && self.shape.classes().is_none();
        if grows { (share / GROWING).min(1.0) } else { 1.0 }
    }

    /// From 1 to 0 over the training, or always 1.
    fn falling(&self) -> f64 {
        let share = self.step as f64 / self.setup.train.limits.max_steps as f64;
        if self.details.falling { cosine(share) } else { 1.0 }
    }

    /// Goes on after so many steps, as far as rows are concerned.
    pub(super) fn skip_to(&mut self, step: usize) {
        for _ in self.step..step {
            self.order.next(self.batch);
        }
        self.step = step;
    }

    /// Lets λ_s, where it follows validity, count a little more or less: on the way to this share.
    pub(super) fn ease(&mut self, share: f64) {
        if adapts(&self.setup.train.method, self.shape) {
            self.eased = share.clamp(self.eased * EASIER, self.eased * HARDER);
        }
    }

    /// Mean reward since this was last asked.
    pub(super) fn mean_reward(&mut self) -> f64 {
        let (sum, count) = std::mem::take(&mut self.rewards);
        sum / count.max(1) as f64
    }
}
