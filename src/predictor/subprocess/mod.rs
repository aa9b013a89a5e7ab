//! A model that is a program of its own: any program that reads Arrow and writes Arrow.
//!
//! # The scorer protocol
//!
//! overturn starts the program once per worker and speaks with it over its standard input and output,
//! as two [Arrow IPC streams](https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format).
//! A program that serves scikit-learn and XGBoost models is `jobs/scorers/sklearn_scorer.py`; thirty
//! lines in any language with an Arrow library make another.
//!
//! 1. *Handshake.* overturn writes the schema of its stream and, at once, a batch of zero rows. The
//!    columns are the feature columns in the feature schema's order, in the table's own types, except
//!    that text always arrives as `utf8` and dictionaries arrive as plain columns. The schema's metadata
//!    holds `overturn.protocol` = `1` and `overturn.task` = `classification` or `regression`.
//!    The program answers with the schema of its own stream and a batch of zero rows, within
//!    `predictor.start_seconds`. Its schema's metadata holds `overturn.protocol` = `1` and, for a
//!    classifier, `overturn.classes`: a JSON list of the class labels in the order of the probabilities.
//! 2. *Batches.* For each batch that it reads, the program writes one batch of as many rows, in the same
//!    order, and flushes, within `predictor.batch_seconds`.
//! 3. *End.* overturn closes the program's standard input, the program exits. One that is still there
//!    three seconds later is killed, with all its descendants.
//!
//! | task | column | type | |
//! |---|---|---|---|
//! | classification | `label` | text, whole number, boolean, or a dictionary of these | compared with the classes as text |
//! | | `probabilities` | list or fixed-size list of floats | optional; one per class, in the order of the classes |
//! | regression | `value` | any number | |
//!
//! Other columns are ignored. Buffers are not compressed. Nothing but the stream may be written to
//! standard output: print to standard error, which goes to overturn's log.
//!
//! The environment is an allow-list (`environment.rs`) with what `predictor.environment` adds. It holds
//! `OVERTURN_PROTOCOL` = `1` and `OVERTURN_WORKER`, the number of the worker, from 0. `OMP_NUM_THREADS`, `OPENBLAS_NUM_THREADS` and `MKL_NUM_THREADS` are set to the worker's share of
//! the threads unless they are set already. The working directory is the job file's.
//!
//! *Failures.* A program that exits, hangs, or answers with the wrong number of rows is killed and
//! started again, and the batch is tried `predictor.retries` more times. Then the batch is split until
//! the rows that fail on their own are found. Those rows, and rows whose answer is null, no class, not
//! finite or no probability, are rejected with the reason; all others keep their answers. When more than
//! `predictor.max_failed_share` of the rows fail (and more than eight), or none of several rows tried one
//! by one is answered, the program itself is held to be broken and the run ends.

mod answer;
mod bisect;
mod environment;
mod failure;
mod failure_budget;
mod incoming;
mod launch;
mod pool;
mod process;
mod protocol;
mod stderr;
#[cfg(test)]
mod tests;
mod worker;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use arrow::array::RecordBatch;

use self::bisect::{RangeScorer, Rescue};
use self::failure::Failure;
use self::failure_budget::FailureBudget;
use self::pool::{Lent, WorkerPool, WorkerSlot, WorkerTerms};
use self::process::ScorerCommand;
use self::protocol::Outgoing;
use super::guard::NetworkAccess;
use super::{Predictor, PredictorColumns, Scores, Task};

pub(super) use self::launch::supervise_scorers;
use crate::error::{Error, Fault, Kind, Result};
use crate::job::{PredictorJob, SubprocessJob};

/// How long a stop waits for the copies to be gone.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A model that is a program of its own.
pub(super) struct SubprocessPredictor {
    task: Task,
    terms: WorkerTerms,
    pool: WorkerPool,
    workers: usize,
    retries: u32,
    failure_budget: FailureBudget,
    /// Why the program was given up, so that other threads need not find out for themselves.
    given_up: OnceLock<Vec<Fault>>,
}

impl SubprocessPredictor {
    /// Starts a first copy of the program and shakes hands; others are started when they are needed.
    ///
    /// # Errors
    /// When the program does not start, or is not one that speaks the protocol and answers the job.
    pub(super) fn open(
        job: &PredictorJob,
        program: &SubprocessJob,
        columns: &PredictorColumns,
        threads: usize,
    ) -> Result<SubprocessPredictor> {
        let workers = if program.workers == 0 { threads } else { program.workers }.max(1);
        let start = ScorerCommand::new(program, (threads / workers).max(1));
        let name = start.name();
        let mut slots: Vec<_> = (0..workers).map(WorkerSlot::new).collect();
        let (terms, task) = WorkerTerms::new(job, program, columns, start)
            .and_then(|terms| slots[0].open(&terms).map(|task| (terms, task)))
            .map_err(|failure| failure.into_error(&name))?;
        tell_confinement(slots[0].network(), &program.environment);
        let failure_budget = FailureBudget::new(name, program.max_failed_share);
        let (pool, retries) = (WorkerPool::new(slots), program.retries);
        Ok(SubprocessPredictor {
            task,
            terms,
            pool,
            workers,
            retries,
            failure_budget,
            given_up: OnceLock::new(),
        })
    }

    fn score(&self, batch: &RecordBatch) -> Result<Scores> {
        let mut attempt = BatchAttempt { predictor: self, slot: self.pool.lend(), batch };
        let (failure_budget, task, retries) = (&self.failure_budget, &self.task, self.retries);
        Rescue { attempt: &mut attempt, failure_budget, task, retries }.score(batch.num_rows())
    }
}

/// Bytes of an answer that is fuzzed, at most.
const FUZZED_BYTES: usize = 1 << 20;

/// Reads bytes as a program's answers, from the handshake to the last score; returns how many batches could
/// be used. For fuzzing: no process is started.
#[doc(hidden)]
pub fn read_answers(job: &PredictorJob, mut bytes: &[u8]) -> usize {
    let (mut incoming, mut used) = (incoming::Incoming::default(), 0);
    while let Ok(Some(batch)) = incoming.receive(&mut bytes, FUZZED_BYTES) {
        let contract = incoming.schema().map(|schema| answer::Contract::new(job, schema));
        let Some(Ok(contract)) = contract else { break };
        used += usize::from(contract.scores(&batch).is_ok());
    }
    used
}

/// Says once what scorers can reach.
fn tell_confinement(network: Option<&NetworkAccess>, listed: &[String]) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        for name in environment::missing(listed) {
            tracing::warn!("`predictor.environment` lists `{name}`, which is not set");
        }
        match network {
            Some(NetworkAccess::Filtered) => {
                tracing::info!("scorers are cut off from the network by a filter of system calls");
            }
            Some(NetworkAccess::Isolated) => {
                tracing::info!("scorers are cut off from the network by a namespace");
            }
            Some(NetworkAccess::Open) => {
                tracing::info!("scorers reach the network: `predictor.sandbox` is `off`");
            }
            Some(NetworkAccess::Unprotected(why)) => {
                tracing::warn!(
                    "scorers reach the network: this system allows no way to cut it off: {why}"
                );
            }
            None => tracing::warn!("scorers are started without a guard, and reach the network"),
        }
        if !matches!(network, None | Some(NetworkAccess::Open)) {
            // Or they could read this process's environment and memory.
            let _: nix::Result<()> = nix::sys::prctl::set_dumpable(false);
        }
    });
}

impl WorkerTerms {
    fn new(
        job: &PredictorJob,
        limits: &SubprocessJob,
        columns: &PredictorColumns,
        program: ScorerCommand,
    ) -> Result<WorkerTerms, Failure> {
        let outgoing = Outgoing::new(&columns.schema, job.task);
        let (hello, job) = (outgoing.hello()?, job.clone());
        let (start_limit, batch_limit) = (limits.start_limit, limits.batch_limit);
        let stopped = Arc::new(AtomicBool::new(false));
        Ok(WorkerTerms { job, program, outgoing, hello, start_limit, batch_limit, stopped })
    }
}

impl Predictor for SubprocessPredictor {
    fn task(&self) -> &Task {
        &self.task
    }

    fn parallelism(&self) -> usize {
        self.workers
    }

    fn predict(&self, batch: &RecordBatch) -> Result<Scores> {
        if let Some(faults) = self.given_up.get() {
            Error::from_faults(Kind::Predictor, faults.clone())?;
        }
        if batch.num_rows() == 0 {
            return Ok(Scores::empty(&self.task));
        }
        self.score(batch).inspect_err(|error| {
            self.given_up.get_or_init(|| error.faults().to_vec());
        })
    }

    /// Copies that are at work are killed, however long their answer would have taken.
    fn stop(&self) {
        self.terms.stopped.store(true, Ordering::Relaxed);
        self.pool.await_all(self.workers, STOP_PATIENCE);
    }
}

/// The parts of a batch, each tried on the same slot.
struct BatchAttempt<'a> {
    predictor: &'a SubprocessPredictor,
    slot: Lent<'a>,
    batch: &'a RecordBatch,
}

impl RangeScorer for BatchAttempt<'_> {
    fn attempt(&mut self, rows: Range<usize>) -> Result<Scores, Failure> {
        let part = self.batch.slice(rows.start, rows.len());
        self.slot.score(&self.predictor.terms, &self.predictor.task, &part)
    }
}
