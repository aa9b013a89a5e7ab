//! The whole algorithm: CFRL, a one-step actor-critic (DDPG) in the autoencoder's latent space, as in
//! Algorithm 1 of Samoilescu, Van Looveren and Klaise (2021), in the paper's symbols:
//!
//! ```text
//! x  row, encoded      y_M  the model's decision    z_cf = μ(s), the counterfactual's latent
//! z  = enc(x)          y_T  the target     z̃    = clip(z_cf + ε, −1, 1), ε Gaussian
//! c  conditions        s    = (z, y_M, y_T, c)      x̃    = pp(dec(z̃), c),  R = f(M(x̃), y_T)
//! ```
//!
//! Where `preset = "paper"` deviates from the paper:
//!
//! 1. Losses are means over features and latent numbers where the paper writes sums, the categorical
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
//!    features itself, and moves below a tolerance are none ([`Form::Relative`]). z_cf and z̃ below stand for both.
//! 6. The critic is shown x̃: what R depends on. It then has the model to learn, not the model behind the
//!    decoder. The gradient reaches the actor through pp, straight-through for categories.
//! 7. Sparsity is measured on pp(dec(z_cf), c) rather than on dec(z_cf): what a constraint undoes is free.
//! 8. Half of the conditions are as wide as the schema allows, which is what explanations ask for and what
//!    the paper's draws hardly ever contain.
//! 9. For a regression, half of R says how near the value came.
//! 10. Where targets are labels, the critic does not learn R but the model's decision, with a logarithmic loss,
//!     and the actor descends on −log Q(y_T | x_cf). One prediction teaches it about every class at once, which
//!     rare ones need; training rows, whose decisions are known, teach it too; and an actor that is far from
//!     valid is told so, while −Q is flat there. Else the critic learns R, and λ_s and λ_c grow from nothing:
//!     an actor that may first learn to be valid is not caught where no change at all is the nearest optimum.
//! 11. The learning rate and the noise fall along a cosine, and the actor that is kept is the mean of those
//!     of the last steps: a latent must be hit closely, and the mean is less shaken by single batches.
//! 12. λ_s, unless the job gives it, falls while validity on the validation rows is too low (or they are too
//!     few to tell), and rises again when it is not: models with ragged borders, as deep trees have them, need
//!     larger moves.
//! 13. No row is asked to become what it is: explanations never ask that.
//! 14. Some experiences undo a part of what the actor did, or graft single values of a row of the target class
//!     instead: what a change is worth shows where it is missing.
//! 15. Where labels of more than two classes are asked for, a batch has 256 rows: each class has fewer of them.
//! 16. The actor's step uses the critic of the step before: the two descend side by side.
//! 17. Where rules hold between features, pp repairs what breaks them: x̃ and, in the actor's step, x_cf.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::autoencoder::cosine;
use super::engine::{ActorBatch, BatchOutcome, Draw, Factors, Losses, TrainingEngine};
use super::evaluator::Evaluator;
use super::explore::vary;
use super::start::adapts;
use super::table::Examples;
use super::training_rows::Picked;
use super::{Problem, TrainSetup};
use crate::constrain::Conditions;
use crate::encode::{Dense, Encoder};
use crate::error::{Error, Result};
use crate::job::{Method, Preset};
use crate::nn::{ActorShape, Form};
use crate::target::{Rewarder, RowOrder, TargetSampler, Targets};

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
pub(super) const FAIR_SPARSITY_SCALE: f64 = 0.45;
/// By what factors that share falls and rises, at most, at one evaluation.
const SLOWEST_SCALE: f64 = 0.8;
const FASTEST_SCALE: f64 = 1.25;
/// What a changed category weighs beside a numeric's standard deviation, both as means over features.
pub(super) const CATEGORY_WEIGHT: f64 = 0.95;
/// Training rows that the critic sees for every experience.
const EXAMPLES: f64 = 0.5;
/// Weight of an actor's step in the mean of actors: those of about 500 steps count.
const AVERAGING: f64 = 0.002;

/// What the presets differ in, beside the keys of the job file.
#[derive(Debug, Clone, Copy)]
pub(super) struct PresetOptions {
    pub(super) form: Form,
    /// Share of conditions as wide as the schema allows.
    wide_share: f64,
    /// Whether learning rate and noise fall, and the actor is the mean of the last ones.
    decays: bool,
}

impl PresetOptions {
    pub(super) fn of(method: &Method) -> PresetOptions {
        match method.preset {
            Preset::Paper => PresetOptions { form: Form::Paper, wide_share: 0.0, decays: false },
            Preset::Default => {
                PresetOptions { form: Form::Relative, wide_share: 0.5, decays: true }
            }
        }
    }
}

/// What learning works with and on.
pub(super) struct Learner<'a> {
    pub(super) setup: &'a TrainSetup<'a>,
    pub(super) source: BatchSource<'a>,
    pub(super) shape: ActorShape,
    pub(super) order: RowOrder,
    pub(super) engine: Box<dyn TrainingEngine + 'a>,
    /// Steps done.
    pub(super) step: usize,
    /// How much of λ_s counts: less while the actor is not valid often enough.
    pub(super) sparsity_scale: f64,
    /// Slows learning down after it diverged.
    pub(super) rate_factor: f64,
    /// Sum and number of rewards since they were last asked for.
    pub(super) rewards: (f64, usize),
}

/// Where batches come from: all that a step reads beside the networks.
pub(super) struct BatchSource<'a> {
    pub(super) setup: &'a TrainSetup<'a>,
    pub(super) problem: &'a Problem<'a>,
    pub(super) options: PresetOptions,
    /// Rows per step.
    pub(super) batch: usize,
    pub(super) lambda_s: f64,
    pub(super) lambda_c: f64,
    pub(super) sampler: TargetSampler,
    /// Training rows for a critic that predicts outcomes.
    pub(super) examples: Examples,
    /// Whether the critic predicts outcomes.
    pub(super) predicts_outcomes: bool,
    /// Numbers of an action.
    pub(super) action: usize,
}

/// What the model is asked about a batch, but for the rows themselves.
struct QueryContext {
    picked: Picked,
    conditions: Conditions,
    targets: Targets,
}

/// What the model is asked about a batch.
struct ModelQuery {
    decoded: Dense,
    context: QueryContext,
}

/// What the model says about it, and R.
struct ModelReply {
    rewards: Vec<f32>,
    outcome: BatchOutcome,
}

/// The two ends of the model's thread.
struct ModelChannel {
    queries: SyncSender<ModelQuery>,
    replies: Receiver<Result<ModelReply>>,
}

impl ModelChannel {
    fn gone() -> Error {
        Error::internal("training", "the model's thread has ended")
    }

    fn reply(&self) -> Result<ModelReply> {
        self.replies.recv().map_err(|_| ModelChannel::gone())?
    }
}

impl<'a> Learner<'a> {
    /// Takes steps until `after` says to end.
    pub(super) fn learn(
        &mut self,
        evaluator: &Evaluator,
        mut after: impl FnMut(&mut Self, Option<&Losses>) -> Result<bool>,
    ) -> Result<()> {
        let model_thread = ModelThread::of(self, evaluator);
        std::thread::scope(|scope| {
            let (queries, incoming) = sync_channel::<ModelQuery>(1);
            let (tell, replies) = sync_channel::<Result<ModelReply>>(1);
            // M runs on a thread of its own, while the networks learn.
            let thread = std::thread::Builder::new().name("training-model".to_string());
            let reply = move || {
                for query in incoming {
                    if tell.send(model_thread.reply(&query)).is_err() {
                        break;
                    }
                }
            };
            thread
                .spawn_scoped(scope, reply)
                .map_err(|error| Error::resources("threads", "cannot be started").source(error))?;
            let model = ModelChannel { queries, replies };
            loop {
                let losses = self.take_step(&model)?;
                if after(self, losses.as_ref())? {
                    return Ok(());
                }
            }
        })
    }

    /// Samples x, constructs random y_T and c, computes z̃ and dec(z̃), asks the model, and meanwhile takes one step of
    /// gradient descent for critic and actor on experiences sampled uniformly from D.
    fn take_step(&mut self, model: &ModelChannel) -> Result<Option<Losses>> {
        let random = &mut self.setup.streams.random(&format!("step {}", self.step));
        let (deviation, factors) = (self.deviation(), self.factors());
        let rows = self.order.next(self.source.batch);
        let (actor_batch, context) = self.source.act(rows, deviation, random)?;
        let draw = self.source.draw(self.engine.held(), random);
        let source = &self.source;
        let mut context = Some(context);
        let mut send = |mut decoded: Dense| {
            let Some(context) = context.take() else { return Err(ModelChannel::gone()) };
            source.vary(&mut decoded, (&actor_batch.rows, &context.targets), random);
            model.queries.send(ModelQuery { decoded, context }).map_err(|_| ModelChannel::gone())
        };
        let update = draw.as_ref().map(|draw| (draw, factors));
        let losses = self.engine.step(&actor_batch, update, &mut send)?;
        let reply = model.reply()?;
        self.rewards.0 += reply.rewards.iter().map(|reward| f64::from(*reward)).sum::<f64>();
        self.rewards.1 += reply.rewards.len();
        // Stores (x, z, y_M, y_T, c, z̃, x̃, R) in D.
        self.engine.remember(&actor_batch, &reply.outcome)?;
        self.step += 1;
        Ok(losses)
    }

    /// The standard deviation of ε; none while z̃ is uniform.
    fn deviation(&self) -> Option<f64> {
        let explores = self.step < EXPLORATION && !self.source.problem.warm;
        (!explores).then(|| (NOISE - LEAST_NOISE) * self.cosine_decay() + LEAST_NOISE)
    }

    pub(super) fn factors(&self) -> Factors {
        let warmup = self.loss_warmup();
        let decay = self.cosine_decay().max(LEAST_RATE);
        Factors {
            rate: self.setup.train.method.learning_rate * self.rate_factor * decay,
            sparsity: self.source.lambda_s * warmup * self.sparsity_scale,
            consistency: self.source.lambda_c * warmup,
            averaging: if self.source.options.decays { AVERAGING } else { 1.0 },
        }
    }

    /// How much of λ_s and λ_c counts already: at first an actor learns to be valid at all, unless it has, or
    /// no change at all is worth infinitely little, as it is to a critic that predicts outcomes.
    fn loss_warmup(&self) -> f64 {
        let share = self.step as f64 / self.setup.train.limits.max_steps as f64;
        let BatchSource { options, problem, predicts_outcomes, .. } = &self.source;
        if options.decays && !problem.warm && !predicts_outcomes {
            (share / GROWING).min(1.0)
        } else {
            1.0
        }
    }

    /// Whether λ_s and λ_c count in full: before, a generator need not get better.
    pub(super) fn is_settled(&self) -> bool {
        self.loss_warmup() >= 1.0
    }

    /// From 1 to 0 over the training, or always 1.
    fn cosine_decay(&self) -> f64 {
        let share = self.step as f64 / self.setup.train.limits.max_steps as f64;
        if self.source.options.decays { cosine(share) } else { 1.0 }
    }

    /// Resumes after so many steps, as far as rows are concerned.
    pub(super) fn skip_to(&mut self, step: usize) {
        for _ in self.step..step {
            self.order.next(self.source.batch);
        }
        self.step = step;
    }

    /// Lets λ_s, where it follows validity, count a little more or less: on the way to this share.
    pub(super) fn scale_sparsity(&mut self, share: f64) {
        if adapts(&self.setup.train.method, self.shape) {
            self.sparsity_scale = share
                .clamp(self.sparsity_scale * SLOWEST_SCALE, self.sparsity_scale * FASTEST_SCALE);
        }
    }

    /// Mean reward since this was last asked.
    pub(super) fn mean_reward(&mut self) -> f64 {
        let (sum, count) = std::mem::take(&mut self.rewards);
        sum / count.max(1) as f64
    }
}

/// Turns queries into replies, on the model's thread.
struct ModelThread<'j> {
    evaluator: &'j Evaluator,
    rewarder: Rewarder,
    encoder: &'j Encoder,
    /// Whether the critic is shown the post-processed row.
    shows: bool,
    /// Classes, where the critic predicts outcomes.
    classes: Option<usize>,
}

impl<'j> ModelThread<'j> {
    fn of(learner: &Learner<'j>, evaluator: &'j Evaluator) -> ModelThread<'j> {
        ModelThread {
            evaluator,
            rewarder: learner.source.problem.rewarder.clone(),
            encoder: &learner.setup.encoder,
            shows: learner.source.options.form == Form::Relative,
            classes: learner.shape.classes(),
        }
    }

    fn reply(&self, query: &ModelQuery) -> Result<ModelReply> {
        let ModelQuery { decoded, context } = query;
        let evaluated = self.evaluator.evaluate(decoded, &context.picked, &context.conditions)?;
        let rewards = self.rewarder.rewards(&evaluated.scores, &context.targets);
        let seen =
            if self.shows { self.encoder.encode_rows(&evaluated.rows).values } else { Vec::new() };
        let outcomes = match self.classes {
            Some(classes) => self.rewarder.outcomes(&evaluated.scores, classes),
            None => rewards.clone(),
        };
        Ok(ModelReply { rewards, outcome: BatchOutcome { seen, outcomes } })
    }
}

impl BatchSource<'_> {
    /// What the actor is asked, and all of the model's question but the answer to that.
    fn act(
        &self,
        rows: Vec<u32>,
        deviation: Option<f64>,
        random: &mut ChaCha8Rng,
    ) -> Result<(ActorBatch, QueryContext)> {
        let picked = self.problem.training_rows.pick(&rows)?;
        let targets = self.targets(&rows, random);
        let conditions = self.conditions(&picked, random);
        let count = rows.len() * self.action;
        let noise: Vec<f32> = match deviation {
            None => (0..count).map(|_| random.random_range(-1.0..=1.0)).collect(),
            Some(deviation) => {
                let one = |_| random.sample::<f32, _>(StandardNormal) * deviation as f32;
                (0..count).map(one).collect()
            }
        };
        let (y_t, c) = (self.problem.codec.encode_targets(&targets), conditions.values.clone());
        let actor_batch = ActorBatch { rows, y_t, c, noise, explores: deviation.is_none() };
        Ok((actor_batch, QueryContext { picked, conditions, targets }))
    }

    /// What an update learns from, once D holds enough.
    fn draw(&self, held: usize, random: &mut ChaCha8Rng) -> Option<Draw> {
        if held < WARM_UP * self.batch {
            return None;
        }
        let indexes = (0..self.batch).map(|_| random.random_range(0..held as i64)).collect();
        let examples = self.examples.draw((EXAMPLES * self.batch as f64) as usize, random);
        Some(Draw { indexes, examples })
    }

    /// y_T of rows: not what they have already, unless the paper's method is asked for.
    fn targets(&self, rows: &[u32], random: &mut ChaCha8Rng) -> Targets {
        match self.problem.training_rows.labels().filter(|_| self.options.form == Form::Relative) {
            Some(labels) => {
                let original: Vec<u32> = rows.iter().map(|row| labels[*row as usize]).collect();
                self.sampler.draw_unlike(&original, random)
            }
            None => self.sampler.draw(rows.len(), random),
        }
    }

    /// Lets some rows try less than the actor does, where the critic learns from any trial.
    fn vary(
        &self,
        decoded: &mut Dense,
        (rows, targets): (&[u32], &Targets),
        random: &mut ChaCha8Rng,
    ) {
        if let Some(target) = targets.classes().filter(|_| self.predicts_outcomes) {
            let others: Vec<i64> =
                target.iter().map(|class| self.examples.of(*class, random)).collect();
            vary(decoded, &self.problem.encoded, (rows, &others), random);
        }
    }

    fn conditions(&self, picked: &Picked, random: &mut ChaCha8Rng) -> Conditions {
        let widest = self.setup.constraints.widest(&picked.rows, &picked.bounds);
        let mut drawn = self.setup.constraints.draw(&widest, &picked.rows, random);
        let width = drawn.width;
        if self.options.wide_share > 0.0 {
            let rows = drawn.values.chunks_exact_mut(width).zip(widest.values.chunks_exact(width));
            for (row, wide) in rows {
                if random.random_bool(self.options.wide_share) {
                    row.copy_from_slice(wide);
                }
            }
        }
        drawn
    }
}
