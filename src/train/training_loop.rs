//! The course of a training: evaluates it now and then, keeps the best weights, saves checkpoints, goes back
//! when it diverges, and says when it is over.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tch::Tensor;

use super::cfrl::{FAIR_SPARSITY_SCALE, Learner};
use super::checkpoint::{CheckpointState, Saved, StoppingCounters};
use super::engine::{Losses, ReplayState, Snapshot};
use super::validate::{Bridges, Quality, Validation};
use super::{AutoencoderFigures, Event, Point, TrainSetup};
use crate::error::{Error, Result};
use crate::job::{Balance, TrainLimits};
use crate::nn::Autoencoder;

/// A training has collapsed when validity stays below this share of the best …
const COLLAPSE_SHARE: f64 = 0.5;
/// … that was at least this …
const COLLAPSE_FROM: f64 = 0.2;
/// … for so many evaluations.
const COLLAPSE_AFTER: usize = 4;
/// How much more slowly a training learns after it was rolled back.
const SLOWER: f64 = 0.3;
/// Validity below which a generator is still learning to be valid at all: patience is not tried.
const VALID_AT_ALL: f64 = 0.5;
/// Validity, as far as it is assured, from which all of λ_s counts.
const VALID_ENOUGH: f64 = 0.988;
/// Below this one, in the second half of a training, it counts as little …
const VALID_TOO_SELDOM: f64 = 0.93;
/// … as this share, and in between as [`FAIR_SPARSITY_SCALE`].
const POOR_SPARSITY_SCALE: f64 = 0.25;
/// Least weight of a target that never fails, when targets are balanced.
const LEAST_WEIGHT: f64 = 0.1;

/// Names of tensors in a checkpoint: networks and moments …
const NOW: [&str; 4] = ["actor", "critic", "actor_moments", "critic_moments"];
/// … and the same at the best evaluation.
const BEST: [&str; 4] = ["good_actor", "good_critic", "good_actor_moments", "good_critic_moments"];

/// How far a training has come.
pub(super) struct TrainingLoop<'a> {
    setup: &'a TrainSetup<'a>,
    pub(super) validation: &'a Validation,
    pub(super) bridges: &'a Bridges<'a>,
    autoencoder: AutoencoderFigures,
    pub(super) curve: Vec<Point>,
    /// Score and weights of the best actor.
    best: Option<(f64, Tensor)>,
    /// Networks and optimisers at that time.
    best_snapshot: Option<Snapshot>,
    counts: StoppingCounters,
    /// Why it ended, once it has.
    pub(super) ending: Option<Ending>,
    clock: Clock,
}

/// When things happened.
struct Clock {
    /// This process began to learn.
    began: Instant,
    /// What earlier ones took, from whose checkpoint it resumes.
    before: Duration,
    /// The last checkpoint was written.
    saved: Instant,
}

impl Clock {
    fn new() -> Clock {
        let now = Instant::now();
        Clock { began: now, before: Duration::ZERO, saved: now }
    }

    fn elapsed(&self) -> Duration {
        self.before + self.began.elapsed()
    }
}

/// Why a training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps are done.
    MaxSteps,
    /// The time is over.
    MaxSeconds,
    /// Evaluations on the validation rows no longer got better.
    Patience,
    /// Validity collapsed twice.
    Collapse,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ending::MaxSteps => "`train.max_steps`",
            Ending::MaxSeconds => "`train.max_seconds`",
            Ending::Patience => "`train.patience`",
            Ending::Collapse => "a collapse",
        })
    }
}

/// How a training goes wrong.
#[derive(Debug, Clone, Copy)]
enum Divergence {
    /// Losses or weights are NaN.
    NoNumbers,
    /// The generator has forgotten what it could do.
    Collapse { best: f64, now: f64 },
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Divergence::NoNumbers => write!(f, "losses or weights are NaN or infinite"),
            Divergence::Collapse { best, now } => {
                write!(f, "validity has collapsed from {best:.3} to {now:.3}")
            }
        }
    }
}

impl<'a> TrainingLoop<'a> {
    pub(super) fn new(
        setup: &'a TrainSetup<'a>,
        validation: &'a Validation,
        bridges: &'a Bridges<'a>,
        autoencoder: AutoencoderFigures,
    ) -> TrainingLoop<'a> {
        TrainingLoop {
            setup,
            validation,
            bridges,
            autoencoder,
            curve: Vec::new(),
            best: None,
            best_snapshot: None,
            counts: StoppingCounters::default(),
            ending: None,
            clock: Clock::new(),
        }
    }

    fn limits(&self) -> &TrainLimits {
        &self.setup.train.limits
    }

    /// Whether nothing is left to be learnt, as when a resumed training had already ended.
    pub(super) fn is_over(&mut self, learner: &Learner<'_>) -> bool {
        let out_of_time = self.clock.elapsed() >= self.limits().max_time && self.best.is_some();
        self.ends(learner.step, out_of_time)
    }

    /// Whether it ends here, and remembers why.
    fn ends(&mut self, step: usize, out_of_time: bool) -> bool {
        let limits = self.limits();
        self.ending = match () {
            () if self.counts.collapsed => Some(Ending::Collapse),
            () if step >= limits.max_steps => Some(Ending::MaxSteps),
            () if self.counts.since >= limits.patience => Some(Ending::Patience),
            () if out_of_time => Some(Ending::MaxSeconds),
            () => None,
        };
        self.ending.is_some()
    }

    /// Called after every step; whether it was the last.
    pub(super) fn after_step(
        &mut self,
        learner: &mut Learner<'_>,
        losses: Option<&Losses>,
    ) -> Result<bool> {
        let out_of_time = self.clock.elapsed() >= self.limits().max_time;
        let every = self.limits().validate_every;
        let last = self.ends(learner.step, out_of_time);
        if let Some(losses) = losses
            && (last || learner.step.is_multiple_of(every))
        {
            self.evaluate(learner, losses)?;
            (self.setup.listener)(Event::Steps((learner.step - 1) as u64 % every as u64 + 1));
        }
        let signal = self.setup.stop.load(Ordering::Relaxed);
        if signal != 0 {
            self.save(learner)?;
            return Err(Error::interrupted(signal));
        }
        let ends = self.ends(learner.step, out_of_time);
        if !ends && self.clock.saved.elapsed() >= self.limits().checkpoint_every {
            self.save_or_warn(learner);
        }
        Ok(ends)
    }

    fn evaluate(&mut self, learner: &mut Learner<'_>, losses: &Losses) -> Result<()> {
        let quality = self.quality(learner)?;
        let value = |tensor: &Tensor| tensor.double_value(&[]);
        let best = self.best.as_ref().is_none_or(|(score, _)| quality.score() > *score);
        let point = Point {
            step: learner.step as u64,
            seconds: self.clock.elapsed().as_secs_f64(),
            reward: learner.mean_reward(),
            critic_loss: value(&losses.critic),
            actor_loss: value(&losses.actor),
            sparsity_loss: value(&losses.sparsity),
            consistency_loss: value(&losses.consistency),
            quality,
            best,
        };
        if let Some(reason) = self.diverged(learner, &point) {
            return self.roll_back(learner, reason);
        }
        if best {
            self.keep(learner, point.quality.score())?;
        } else if learner.is_settled() && point.quality.validity >= VALID_AT_ALL {
            self.counts.since += 1;
        }
        self.balance(learner, &point.quality);
        self.scale_sparsity(learner, &point.quality);
        (self.setup.listener)(Event::Point(point.clone()));
        self.curve.push(point);
        Ok(())
    }

    /// Of the averaged actor, which is the one that is kept.
    fn quality(&self, learner: &mut Learner<'_>) -> Result<Quality> {
        let average = learner.engine.average()?;
        let mut quality = |generator: &_| self.validation.quality(generator, self.bridges);
        learner.engine.evaluate(&average, &mut quality)
    }

    fn keep(&mut self, learner: &Learner<'_>, score: f64) -> Result<()> {
        self.counts.since = 0;
        self.best = Some((score, learner.engine.average()?));
        // Should it be gone back to, the mean of actors begins anew.
        let now = learner.engine.snapshot()?;
        self.best_snapshot = Some(Snapshot { average: now.networks[0].copy(), ..now });
        Ok(())
    }

    /// Lets an actor move farther that is not valid often enough, and holds it to small changes when it is.
    fn scale_sparsity(&self, learner: &mut Learner<'_>, quality: &Quality) {
        // Every actor is poor at first, and one that has learnt to move far seldom unlearns it.
        let late = 2 * learner.step >= self.limits().max_steps;
        learner.scale_sparsity(match quality.assured_validity() {
            poor if late && poor < VALID_TOO_SELDOM => POOR_SPARSITY_SCALE,
            fair if fair < VALID_ENOUGH => FAIR_SPARSITY_SCALE,
            _ => 1.0,
        });
    }

    fn balance(&self, learner: &mut Learner<'_>, quality: &Quality) {
        if self.setup.train.method.balance == Balance::Targets {
            let failing = |class: u32| {
                let found = quality.by_class.iter().find(|entry| entry.class == class);
                found.map_or(1.0, |entry| 1.0 - entry.validity).max(LEAST_WEIGHT)
            };
            learner.source.sampler.weigh(failing);
        }
    }

    fn diverged(&mut self, learner: &Learner<'_>, point: &Point) -> Option<Divergence> {
        let finite = point.critic_loss.is_finite() && point.actor_loss.is_finite();
        if !finite || !learner.engine.is_finite() {
            return Some(Divergence::NoNumbers);
        }
        let best = self.curve.iter().map(|point| point.quality.validity).fold(0.0, f64::max);
        let now = point.quality.validity;
        self.counts.poor = if best >= COLLAPSE_FROM && now < COLLAPSE_SHARE * best {
            self.counts.poor + 1
        } else {
            0
        };
        (self.counts.poor >= COLLAPSE_AFTER).then_some(Divergence::Collapse { best, now })
    }

    /// Goes back to the networks of the best evaluation, once. After that a collapse ends the training with
    /// the best weights: they are as good as they were before.
    fn roll_back(&mut self, learner: &mut Learner<'_>, reason: Divergence) -> Result<()> {
        let step = learner.step;
        if self.counts.rollbacks > 0 && matches!(reason, Divergence::Collapse { .. }) {
            tracing::warn!(
                step,
                "training diverged again ({reason}); it ends with the best weights"
            );
            self.counts.collapsed = true;
            return Ok(());
        }
        let Some(best_snapshot) =
            self.best_snapshot.as_ref().filter(|_| self.counts.rollbacks == 0)
        else {
            let problem = format!("diverged at step {step}: {reason}");
            return Err(Error::training("training", problem).hint(
                "lower `train.learning_rate`, or check that the model's predictions depend on the features",
            ));
        };
        tracing::warn!(step, "training diverged ({reason}); going back, and on more slowly");
        learner.engine.restore(best_snapshot)?;
        // It may hold what a broken actor did.
        learner.engine.forget();
        learner.rate_factor *= SLOWER;
        self.counts.rollbacks += 1;
        (self.counts.poor, self.counts.since) = (0, 0);
        Ok(())
    }

    /// A checkpoint that cannot be written does not end a training that may still come to its end; the
    /// one before it stays.
    pub(super) fn save_or_warn(&mut self, learner: &Learner<'_>) {
        if let Err(error) = self.save(learner) {
            tracing::warn!("no checkpoint at step {}: {error}", learner.step);
        }
        self.clock.saved = Instant::now();
    }

    fn save(&self, learner: &Learner<'_>) -> Result<()> {
        let Some(checkpoints) = self.setup.checkpoints else { return Ok(()) };
        let (now, replay) = (learner.engine.snapshot()?, learner.engine.replay()?);
        let mut tensors = Vec::from(now.named(NOW));
        tensors.push(("average", now.average.shallow_clone()));
        tensors.push(("replay_rows", replay.rows));
        tensors.push(("replay_records", replay.records));
        if let Some((_, best)) = &self.best {
            tensors.push(("best", best.shallow_clone()));
        }
        if let Some(best_snapshot) = &self.best_snapshot {
            tensors.extend(best_snapshot.named(BEST));
        }
        if let Autoencoder::Trained { encoder, decoder } = learner.engine.autoencoder() {
            tensors.push(("encoder", encoder.flat().shallow_clone()));
            tensors.push(("decoder", decoder.flat().shallow_clone()));
        }
        let state = CheckpointState {
            fingerprint: checkpoints.fingerprint().clone(),
            tensors: String::new(),
            step: learner.step,
            adam_steps: now.steps,
            replay_next: replay.next,
            sparsity_scale: learner.sparsity_scale,
            rate_factor: learner.rate_factor,
            rewards: learner.rewards,
            seconds: self.clock.elapsed().as_secs_f64(),
            counts: self.counts,
            best_steps: self.best_snapshot.as_ref().map(|best_snapshot| best_snapshot.steps),
            best_score: self.best.as_ref().map(|(score, _)| *score),
            autoencoder: self.autoencoder.clone(),
            curve: self.curve.clone(),
        };
        checkpoints.save(state, &tensors)
    }

    /// Resumes from a checkpoint.
    pub(super) fn resume(&mut self, learner: &mut Learner<'_>, saved: &Saved) -> Result<()> {
        let state = &saved.state;
        let tensor = |name: &str| Ok::<_, Error>(saved.tensor(name)?.shallow_clone());
        let snapshot = |names, steps, average: &str| {
            Snapshot::of(names, steps, |name| tensor(name), tensor(average)?)
        };
        learner.engine.restore(&snapshot(NOW, state.adam_steps, "average")?)?;
        let (rows, records) = (tensor("replay_rows")?, tensor("replay_records")?);
        let replay = ReplayState { rows, records, next: state.replay_next };
        learner.engine.restore_replay(&replay)?;
        learner.sparsity_scale = state.sparsity_scale;
        learner.rate_factor = state.rate_factor;
        learner.rewards = state.rewards;
        learner.skip_to(state.step);
        if let Some(score) = state.best_score {
            self.best = Some((score, tensor("best")?));
        }
        if let Some(steps) = state.best_steps {
            self.best_snapshot = Some(snapshot(BEST, steps, "good_actor")?);
        }
        if let Some(last) = state.curve.last() {
            self.balance(learner, &last.quality);
        }
        self.curve.clone_from(&state.curve);
        self.counts = state.counts;
        self.clock.before = Duration::from_secs_f64(state.seconds);
        tracing::info!(step = state.step, "resuming from a checkpoint");
        (self.setup.listener)(Event::Steps(state.step as u64));
        Ok(())
    }

    /// The best weights of the actor that there were.
    pub(super) fn best(&self) -> Option<&Tensor> {
        self.best.as_ref().map(|(_, best)| best)
    }
}
