//! Sessions shared by the threads that score. A session runs one batch at a time, so there are several,
//! and a caller who finds none idle waits.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use ort::session::Session;
use parking_lot::{Condvar, Mutex};

use super::runtime;
use super::spread::TextTensors;

/// Idle sessions of one model.
#[derive(Debug)]
pub(super) struct SessionPool {
    idle: Mutex<Vec<SessionScorer>>,
    returned: Condvar,
    size: usize,
}

/// What a thread needs to score.
#[derive(Debug)]
pub(super) struct SessionScorer {
    /// The model.
    pub(super) session: Session,
    /// What makes its text inputs.
    pub(super) spread: TextTensors,
}

/// Memory that copies of the model may take. Each session holds its own, and a forest is two to four
/// times as large in memory as in its file.
const COPIES_BYTES: usize = 2 << 30;
const MEMORY_PER_FILE_BYTE: usize = 4;

/// How many sessions, and threads in each: as many sessions as threads, with one thread each.
///
/// Measured by the test `measure` in `tests.rs` (50 trees of depth 12 on 8 numbers and 6 texts, batches
/// of 8,192 rows, two cores, ONNX Runtime 1.31): two sessions of one thread score 485,000 rows a
/// second, one session of two threads 439,000, and 387,000 in batches of 2,048, since not every
/// operator is split. One thread per session also keeps the answers the same whatever the number of
/// threads: several threads add up small batches in another order. So a session only gets more of them
/// where the model is too large to be copied.
fn layout(model_bytes: usize, threads: usize) -> (usize, usize) {
    let threads = threads.max(1);
    let copies = COPIES_BYTES / (model_bytes * MEMORY_PER_FILE_BYTE).max(1);
    let sessions = copies.clamp(1, threads);
    (sessions, threads / sessions)
}

impl SessionPool {
    /// Loads the model as often as pays on that many threads.
    pub(super) fn open(
        model: &[u8],
        folder: &Path,
        threads: usize,
    ) -> Result<SessionPool, ort::Error> {
        let (size, threads) = layout(model.len(), threads);
        let scorers = (0..size).map(|_| {
            let session = runtime::session(model, folder, threads)?;
            Ok(SessionScorer { session, spread: TextTensors::open()? })
        });
        let idle = Mutex::new(scorers.collect::<Result<_, ort::Error>>()?);
        Ok(SessionPool { idle, returned: Condvar::new(), size })
    }

    /// How many sessions there are.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Between one and `most` idle sessions; waits for the first.
    pub(super) fn lease(&self, most: usize) -> Vec<Lease<'_>> {
        let mut idle = self.idle.lock();
        self.returned.wait_while(&mut idle, |idle| idle.is_empty());
        let left = idle.len().saturating_sub(most.max(1));
        let taken = idle.split_off(left);
        taken.into_iter().map(|scorer| Lease { pool: self, scorer: Some(scorer) }).collect()
    }
}

/// A session that goes back to its pool.
pub(super) struct Lease<'p> {
    pool: &'p SessionPool,
    scorer: Option<SessionScorer>,
}

impl Deref for Lease<'_> {
    type Target = SessionScorer;
    fn deref(&self) -> &SessionScorer {
        self.scorer.as_ref().expect("a lease has its session until it is dropped")
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut SessionScorer {
        self.scorer.as_mut().expect("a lease has its session until it is dropped")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut idle = self.pool.idle.lock();
        idle.extend(self.scorer.take());
        drop(idle);
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_models_are_copied_and_large_ones_are_not() {
        assert_eq!(layout(3 << 20, 8), (8, 1));
        assert_eq!(layout(3 << 20, 0), (1, 1));
        assert_eq!(layout(256 << 20, 8), (2, 4));
        assert_eq!(layout(8 << 30, 8), (1, 8));
    }
}
