//! The copies of the program: who may use which, and a fresh one where one has failed.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use arrow::array::RecordBatch;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::answer::Contract;
use super::failure::{Cause, Failure, Occasion};
use super::process::ScorerCommand;
use super::protocol::Outgoing;
use super::worker::{BatchRequest, ScorerProcess};
use crate::job::PredictorJob;
use crate::predictor::guard::NetworkAccess;
use crate::predictor::{Scores, Task};
use crate::stop;

/// Most bytes of a handshake: a schema with its metadata, and a batch without rows.
const HANDSHAKE_BYTES: usize = 64 << 20;

/// How often in a row a copy may fail to start before the program is held to be broken.
const STARTS: u32 = 3;

/// Pause before a copy is started again; doubled after every failure without a success between.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What every copy is started with and held to.
pub(super) struct WorkerTerms {
    pub(super) job: PredictorJob,
    pub(super) program: ScorerCommand,
    pub(super) outgoing: Outgoing,
    pub(super) hello: Vec<u8>,
    pub(super) start_limit: Duration,
    pub(super) batch_limit: Duration,
    /// Set when the run has ended before its work was done.
    pub(super) stopped: Arc<AtomicBool>,
}

/// The place of one copy. It is empty before the first use and after a failure.
pub(super) struct WorkerSlot {
    index: usize,
    copy: Option<(ScorerProcess, Contract)>,
    /// Failures since the last success.
    failures: u32,
}

impl WorkerSlot {
    /// An empty place.
    pub(super) fn new(index: usize) -> Self {
        WorkerSlot { index, copy: None, failures: 0 }
    }

    /// Starts the copy and says what its answers are.
    pub(super) fn open(&mut self, terms: &WorkerTerms) -> Result<Task, Failure> {
        let (limit, occasion) = (terms.start_limit, Occasion::Handshake);
        let (message, stopped) = (&terms.hello[..], &terms.stopped);
        let hello = BatchRequest { message, occasion, limit, most_bytes: HANDSHAKE_BYTES, stopped };
        let (worker, schema) = ScorerProcess::start(&terms.program, self.index, &hello)?;
        let contract = Contract::new(&terms.job, &schema)?;
        let task = contract.task.clone();
        self.copy = Some((worker, contract));
        Ok(task)
    }

    /// How the copy is kept from the network, if its guard has told.
    pub(super) fn network(&self) -> Option<&NetworkAccess> {
        self.copy.as_ref().and_then(|(worker, _)| worker.network.as_ref())
    }

    /// One try to score a batch, on a fresh copy if need be.
    pub(super) fn score(
        &mut self,
        terms: &WorkerTerms,
        task: &Task,
        batch: &RecordBatch,
    ) -> Result<Scores, Failure> {
        self.ensure_open(terms, task)?;
        let message = terms.outgoing.message(batch)?;
        let scores = self.ask(terms, &message, batch.num_rows());
        match &scores {
            Ok(_) => self.failures = 0,
            Err(_) => {
                self.copy = None;
                self.failures += 1;
            }
        }
        scores
    }

    fn ask(&mut self, terms: &WorkerTerms, message: &[u8], rows: usize) -> Result<Scores, Failure> {
        let Some((worker, contract)) = &mut self.copy else {
            return Err(Failure::broke("is not running"));
        };
        let (limit, occasion) = (terms.batch_limit, Occasion::Batch(rows));
        let (most_bytes, stopped) = (contract.most_bytes(rows), &terms.stopped);
        contract.scores(&worker.ask(&BatchRequest {
            message,
            occasion,
            limit,
            most_bytes,
            stopped,
        })?)
    }

    fn ensure_open(&mut self, terms: &WorkerTerms, task: &Task) -> Result<(), Failure> {
        let mut starts = 0;
        while self.copy.is_none() {
            if stop::requested().is_some() {
                return Err(Failure::refused("was stopped with the run"));
            }
            thread::sleep(pause(self.failures));
            starts += 1;
            match self.open(terms) {
                Ok(answers) if answers == *task => {}
                Ok(_) => {
                    return Err(Failure::refused("has other classes than when it started first"));
                }
                Err(failure) if failure.cause == Cause::Refused => return Err(failure),
                Err(failure) if starts == STARTS => {
                    return Err(Failure { cause: Cause::Refused, ..failure });
                }
                Err(failure) => {
                    self.failures += 1;
                    tracing::warn!(worker = self.index, reason = failure.detail(), "no start");
                }
            }
        }
        Ok(())
    }
}

/// The pause before a start, after so many failures in a row.
fn pause(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        _ => FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE),
    }
}

/// The slots, each lent to one caller at a time.
pub(super) struct WorkerPool {
    /// Last returned, first lent: a copy that runs is preferred to one yet to be started.
    free: Mutex<Vec<WorkerSlot>>,
    returned: Condvar,
}

impl WorkerPool {
    /// A pool of these slots, the first of which is lent first.
    pub(super) fn new(mut slots: Vec<WorkerSlot>) -> Self {
        slots.reverse();
        WorkerPool { free: Mutex::new(slots), returned: Condvar::new() }
    }

    /// A slot, as soon as one is free.
    pub(super) fn lend(&self) -> Lent<'_> {
        let mut free = self.lock();
        loop {
            if let Some(slot) = free.pop() {
                return Lent { pool: self, slot: Some(slot) };
            }
            self.returned.wait(&mut free);
        }
    }

    /// Waits until so many slots have come back, but not for ever.
    pub(super) fn await_all(&self, slots: usize, patience: Duration) {
        let out = |free: &mut Vec<WorkerSlot>| free.len() < slots;
        self.returned.wait_while_for(&mut self.lock(), out, patience);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<WorkerSlot>> {
        self.free.lock()
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        // All are asked to exit before any is waited for.
        for (worker, _) in self.lock().iter_mut().filter_map(|slot| slot.copy.as_mut()) {
            worker.hang_up();
        }
    }
}

/// A slot that goes back to its pool.
pub(super) struct Lent<'a> {
    pool: &'a WorkerPool,
    slot: Option<WorkerSlot>,
}

impl Deref for Lent<'_> {
    type Target = WorkerSlot;

    fn deref(&self) -> &WorkerSlot {
        self.slot.as_ref().expect("a slot is given back only on drop")
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut WorkerSlot {
        self.slot.as_mut().expect("a slot is given back only on drop")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.pool.lock().extend(self.slot.take());
        // All: whoever stops the run may be waiting beside those who want a slot.
        self.pool.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let pauses = [0, 1, 2, 3, 40].map(|failures| pause(failures).as_millis());
        assert_eq!(pauses, [0, 50, 100, 200, 1000]);
    }

    #[test]
    fn the_slot_used_last_is_lent_first() {
        let pool = WorkerPool::new((0..3).map(WorkerSlot::new).collect());
        assert_eq!(pool.lend().index, 0);
        let (first, second) = (pool.lend(), pool.lend());
        assert_eq!((first.index, second.index), (0, 1));
        drop(second);
        drop(first);
        assert_eq!(pool.lend().index, 0);
    }
}
