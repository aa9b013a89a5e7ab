//! Ends runs of the model that take too long, or that nobody waits for any more. ONNX Runtime looks at the
//! request between two operators, loops included; one operator is never cut short.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ort::session::RunOptions;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::stop;

/// Between two looks at the runs.
const GLANCE: Duration = Duration::from_millis(20);

/// The runs of one model.
pub(super) struct Watch {
    shared: Arc<WatchState>,
    /// Limit for one run.
    pub(super) limit: Duration,
}

#[derive(Default)]
struct WatchState {
    runs: Mutex<Runs>,
    begun: Condvar,
}

#[derive(Default)]
struct Runs {
    running: Vec<(u64, Arc<RunOptions>, Instant)>,
    next: u64,
    /// Set when the runs are to end.
    stopped: bool,
    /// Set when no run can follow.
    closed: bool,
}

impl WatchState {
    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock()
    }
}

/// A run under watch.
pub(super) struct WatchedRun<'w> {
    watch: &'w Watch,
    id: u64,
    /// What the model is to be run with.
    pub(super) options: Arc<RunOptions>,
    began: Instant,
}

impl Watch {
    /// Starts to watch.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) fn start(limit: Duration) -> Result<Watch> {
        let shared = Arc::new(WatchState::default());
        let watched = Arc::clone(&shared);
        thread::Builder::new()
            .name("onnx-watch".to_string())
            .spawn(move || watch(&watched, limit))
            .map_err(|error| Error::resources("threads", "cannot be started").source(error))?;
        Ok(Watch { shared, limit })
    }

    /// A run that begins now.
    pub(super) fn run(&self) -> Result<WatchedRun<'_>, ort::Error> {
        let (options, began) = (Arc::new(RunOptions::new()?), Instant::now());
        let mut runs = self.shared.lock();
        if runs.stopped {
            return Err(ort::Error::new("it was stopped with the run"));
        }
        let id = runs.next;
        runs.next += 1;
        runs.running.push((id, Arc::clone(&options), began));
        drop(runs);
        self.shared.begun.notify_one();
        Ok(WatchedRun { watch: self, id, options, began })
    }

    /// Ends all runs.
    pub(super) fn stop(&self) {
        self.shared.lock().stopped = true;
        self.shared.begun.notify_one();
    }
}

impl WatchedRun<'_> {
    /// Whether it has taken longer than it may.
    pub(super) fn is_overdue(&self) -> bool {
        self.began.elapsed() > self.watch.limit
    }
}

impl Drop for WatchedRun<'_> {
    fn drop(&mut self) {
        self.watch.shared.lock().running.retain(|(id, _, _)| *id != self.id);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.begun.notify_one();
    }
}

fn watch(shared: &WatchState, limit: Duration) {
    let mut runs = shared.lock();
    while !runs.closed {
        let stopped = runs.stopped || stop::is_pressing();
        for (_, options, began) in &runs.running {
            if stopped || began.elapsed() > limit {
                // Fails only without a library, and then nothing runs.
                let _ = options.terminate();
            }
        }
        if runs.running.is_empty() {
            shared.begun.wait(&mut runs);
        } else {
            shared.begun.wait_for(&mut runs, GLANCE);
        }
    }
}
