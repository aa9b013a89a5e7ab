//! What a run works with: tables, keys, model and score table, each opened and checked once, for training and
//! explaining alike.

use std::cell::OnceCell;
use std::sync::Arc;

use super::model::open_robust;
use super::parity::ParityCheck;
use super::validate::check_target;
use super::{Inputs, Observer};
use crate::engine::{StoredScores, gather_decisions};
use crate::error::Result;
use crate::explain::{Decisions, RobustModels};
use crate::job::Job;
use crate::predictor::{self, Predictor};
use crate::runtime::Runtime;

/// What a run works with.
pub(super) struct RunContext {
    /// Tables, and what their columns mean; which keys were checked.
    pub(super) inputs: Arc<Inputs>,
    /// The model.
    pub(super) predictor: Arc<dyn Predictor>,
    /// Models beside it, for explaining.
    pub(super) robust: RobustModels,
    /// What the score table says, once it was read and compared with the model.
    decisions: OnceCell<Option<Arc<Decisions>>>,
}

impl RunContext {
    /// Opens the model of a job.
    ///
    /// # Errors
    /// When it cannot be opened, or the job's target is not one of its decisions.
    pub(super) fn open(job: &Job, inputs: Arc<Inputs>, runtime: &Runtime) -> Result<RunContext> {
        let columns = inputs.predictor_columns();
        let predictor = predictor::open(&job.predictor, &columns, runtime.threads)?;
        check_target(job, &inputs, predictor.task()).inspect_err(|_| predictor.stop())?;
        let robust = RobustModels::default();
        Ok(RunContext { inputs, predictor, robust, decisions: OnceCell::new() })
    }

    /// Opens the models beside the predictor too.
    ///
    /// # Errors
    /// When one of them cannot be opened, or decides something else.
    pub(super) fn with_robust(mut self, job: &Job, threads: usize) -> Result<RunContext> {
        let robust = open_robust(job, (&self.inputs, threads), self.predictor.task());
        self.robust = robust.inspect_err(|_| self.predictor.stop())?;
        Ok(self)
    }

    /// Gives up whatever the models are still computing.
    pub(super) fn stop(&self) {
        self.predictor.stop();
        self.robust.stop();
    }

    /// The decisions of the score table, if there is one, held against the model.
    ///
    /// # Errors
    /// When it is not the model's.
    pub(super) async fn decisions(
        &self,
        job: &Job,
        observer: &Observer,
    ) -> Result<Option<Arc<Decisions>>> {
        if let Some(known) = self.decisions.get() {
            return Ok(known.clone());
        }
        let (inputs, predictor) = (&self.inputs, self.predictor.as_ref());
        let found = match (&job.input.scores, &inputs.scores) {
            (Some(scores), Some(table)) => {
                observer.stage("comparing scores", None);
                let stored = StoredScores {
                    scores: table,
                    features: &inputs.features,
                    key: &job.input.key,
                    decision: &scores.decision,
                };
                let found = gather_decisions(&inputs.engine, &stored, predictor.task()).await?;
                ParityCheck::of_decisions((job, inputs), predictor, (scores, &found)).await?;
                Some(Arc::new(found))
            }
            _ => None,
        };
        Ok(self.decisions.get_or_init(|| found).clone())
    }
}
