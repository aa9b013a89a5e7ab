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
//! 16. The actor's step uses the critic of the step before: the two descend side by side.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::autoencoder::cosine;
use super::engine::{Acting, Draw, Engine, Factors, Losses, Told};
use super::explore::vary;
use super::judge::Judge;
use super::sample::Picked;
use super::start::adapts;
use super::table::Examples;
use super::{Problem, Setup};
use crate::constrain::Conditions;
use crate::encode::{Dense, Encoder};
use crate::error::{Error, Result};
use crate::job::{Method, Preset};
use crate::nn::{ActorShape, Form};
use crate::target::{Rewarder, RowOrder, TargetSampler, Wishes};

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
pub(super) const CATEGORY_WEIGHT: f64 = 0.95;
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
    pub(super) source: BatchSource<'a>,
    pub(super) shape: ActorShape,
    pub(super) order: RowOrder,
    pub(super) engine: Box<dyn Engine + 'a>,
    /// Steps done.
    pub(super) step: usize,
    /// How much of λ_s counts: less while the actor is not valid often enough.
    pub(super) eased: f64,
    /// Slows learning down after it diverged.
    pub(super) rate_factor: f64,
    /// Sum and number of rewards since they were last asked for.
    pub(super) rewards: (f64, usize),
}

/// Where batches come from: all that a step reads beside the networks.
pub(super) struct BatchSource<'a> {
    pub(super) setup: &'a Setup<'a>,
    pub(super) problem: &'a Problem<'a>,
    pub(super) details: Details,
    /// Rows per step.
    pub(super) batch: usize,
    pub(super) lambda_s: f64,
    pub(super) lambda_c: f64,
    pub(super) sampler: TargetSampler,
    /// Training rows for a critic that tells outcomes apart.
    pub(super) examples: Examples,
    /// Whether the critic tells outcomes apart.
    pub(super) tells: bool,
    /// Numbers of an action.
    pub(super) action: usize,
}

/// What the model is asked about a batch, but for the rows themselves.
struct Asked {
    picked: Picked,
    conditions: Conditions,
    wishes: Wishes,
}

/// What the model is asked about a batch.
struct Question {
    decoded: Dense,
    asked: Asked,
}

/// What the model says about it, and R.
struct Answer {
    rewards: Vec<f32>,
    told: Told,
}

/// The two ends of the model's thread.
struct Model {
    ask: SyncSender<Question>,
    answers: Receiver<Result<Answer>>,
}

impl Model {
    fn gone() -> Error {
        Error::internal("training", "the model's thread has ended")
    }

    fn answer(&self) -> Result<Answer> {
        self.answers.recv().map_err(|_| Model::gone())?
    }
}

impl<'a> Learner<'a> {
    /// Takes steps until `after` says to end.
    pub(super) fn learn(
        &mut self,
        judge: &Judge,
        mut after: impl FnMut(&mut Self, Option<&Losses>) -> Result<bool>,
    ) -> Result<()> {
        let answerer = Answerer::of(self, judge);
        std::thread::scope(|scope| {
            let (ask, questions) = sync_channel::<Question>(1);
            let (tell, answers) = sync_channel::<Result<Answer>>(1);
            // M runs on a thread of its own, while the networks learn.
            let thread = std::thread::Builder::new().name("training-model".to_string());
            let answer = move || {
                for question in questions {
                    if tell.send(answerer.answer(&question)).is_err() {
                        break;
                    }
                }
            };
            thread
                .spawn_scoped(scope, answer)
                .map_err(|error| Error::resources("threads", "cannot be started").source(error))?;
            let model = Model { ask, answers };
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
    fn take_step(&mut self, model: &Model) -> Result<Option<Losses>> {
        let random = &mut self.setup.streams.random(&format!("step {}", self.step));
        let (deviation, factors) = (self.deviation(), self.factors());
        let rows = self.order.next(self.source.batch);
        let (acting, asked) = self.source.act(rows, deviation, random)?;
        let draw = self.source.draw(self.engine.held(), random);
        let source = &self.source;
        let mut asked = Some(asked);
        let mut ask = |mut decoded: Dense| {
            let Some(asked) = asked.take() else { return Err(Model::gone()) };
            source.vary(&mut decoded, (&acting.rows, &asked.wishes), random);
            model.ask.send(Question { decoded, asked }).map_err(|_| Model::gone())
        };
        let update = draw.as_ref().map(|draw| (draw, factors));
        let losses = self.engine.step(&acting, update, &mut ask)?;
        let answer = model.answer()?;
        self.rewards.0 += answer.rewards.iter().map(|reward| f64::from(*reward)).sum::<f64>();
        self.rewards.1 += answer.rewards.len();
        // Stores (x, z, y_M, y_T, c, z̃, x̃, R) in D.
        self.engine.remember(&acting, &answer.told)?;
        self.step += 1;
        Ok(losses)
    }

    /// The standard deviation of ε; none while z̃ is uniform.
    fn deviation(&self) -> Option<f64> {
        let explores = self.step < EXPLORATION && !self.source.problem.warm;
        (!explores).then(|| (NOISE - LEAST_NOISE) * self.falling() + LEAST_NOISE)
    }

    pub(super) fn factors(&self) -> Factors {
        let grown = self.grown();
        let falling = self.falling().max(LEAST_RATE);
        Factors {
            rate: self.setup.train.method.learning_rate * self.rate_factor * falling,
            sparsity: self.source.lambda_s * grown * self.eased,
            consistency: self.source.lambda_c * grown,
            averaging: if self.source.details.falling { AVERAGING } else { 1.0 },
        }
    }

    /// How much of λ_s and λ_c counts already: at first an actor learns to be valid at all, unless it has, or
    /// no change at all is worth infinitely little, as it is to a critic that tells outcomes apart.
    fn grown(&self) -> f64 {
        let share = self.step as f64 / self.setup.train.limits.max_steps as f64;
        let BatchSource { details, problem, tells, .. } = &self.source;
        if details.falling && !problem.warm && !tells { (share / GROWING).min(1.0) } else { 1.0 }
    }

    /// Whether λ_s and λ_c count in full: before, a generator need not get better.
    pub(super) fn is_settled(&self) -> bool {
        self.grown() >= 1.0
    }

    /// From 1 to 0 over the training, or always 1.
    fn falling(&self) -> f64 {
        let share = self.step as f64 / self.setup.train.limits.max_steps as f64;
        if self.source.details.falling { cosine(share) } else { 1.0 }
    }

    /// Goes on after so many steps, as far as rows are concerned.
    pub(super) fn skip_to(&mut self, step: usize) {
        for _ in self.step..step {
            self.order.next(self.source.batch);
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

/// Turns questions into answers, on the model's thread.
struct Answerer<'j> {
    judge: &'j Judge,
    rewarder: Rewarder,
    encoder: &'j Encoder,
    /// Whether the critic is shown the post-processed row.
    shows: bool,
    /// Classes, where the critic tells outcomes apart.
    classes: Option<usize>,
}

impl<'j> Answerer<'j> {
    fn of(learner: &Learner<'j>, judge: &'j Judge) -> Answerer<'j> {
        Answerer {
            judge,
            rewarder: learner.source.problem.rewarder.clone(),
            encoder: &learner.setup.encoder,
            shows: learner.source.details.form == Form::Relative,
            classes: learner.shape.classes(),
        }
    }

    fn answer(&self, question: &Question) -> Result<Answer> {
        let Question { decoded, asked } = question;
        let judged = self.judge.judge(decoded, &asked.picked, &asked.conditions)?;
        let rewards = self.rewarder.rewards(&judged.scores, &asked.wishes);
        let seen =
            if self.shows { self.encoder.encode_rows(&judged.rows).values } else { Vec::new() };
        let answers = match self.classes {
            Some(classes) => self.rewarder.outcomes(&judged.scores, classes),
            None => rewards.clone(),
        };
        Ok(Answer { rewards, told: Told { seen, answers } })
    }
}

impl BatchSource<'_> {
    /// What the actor is asked, and all of the model's question but the answer to that.
    fn act(
        &self,
        rows: Vec<u32>,
        deviation: Option<f64>,
        random: &mut ChaCha8Rng,
    ) -> Result<(Acting, Asked)> {
        let picked = self.problem.sample.pick(&rows)?;
        let wishes = self.wishes(&rows, random);
        let conditions = self.conditions(&picked, random);
        let count = rows.len() * self.action;
        let noise: Vec<f32> = match deviation {
            None => (0..count).map(|_| random.random_range(-1.0..=1.0)).collect(),
            Some(deviation) => {
                let one = |_| random.sample::<f32, _>(StandardNormal) * deviation as f32;
                (0..count).map(one).collect()
            }
        };
        let (y_t, c) = (self.problem.codec.wishes(&wishes), conditions.values.clone());
        let acting = Acting { rows, y_t, c, noise, explores: deviation.is_none() };
        Ok((acting, Asked { picked, conditions, wishes }))
    }

    /// What an update learns from, once D holds enough.
    fn draw(&self, held: usize, random: &mut ChaCha8Rng) -> Option<Draw> {
        if held < WARM_UP * self.batch {
            return None;
        }
        let places = (0..self.batch).map(|_| random.random_range(0..held as i64)).collect();
        let examples = self.examples.draw((EXAMPLES * self.batch as f64) as usize, random);
        Some(Draw { places, examples })
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
    fn vary(
        &self,
        decoded: &mut Dense,
        (rows, wishes): (&[u32], &Wishes),
        random: &mut ChaCha8Rng,
    ) {
        if let Some(wanted) = wishes.classes().filter(|_| self.tells) {
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
}
