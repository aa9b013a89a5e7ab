//! Whether the program was asked to stop. Signals reach [`request`] from the one thread that hears them;
//! whatever takes long looks here, since a future that is busy cannot be told otherwise.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::error::{Error, Result};

/// The first signal and when it came.
static REQUEST: OnceLock<(i32, Instant)> = OnceLock::new();

/// Wakes futures that wait for the request.
static REQUESTED: Notify = Notify::const_new();

/// How long an answer of the model that is under way may still take: with it a step of training ends and
/// leaves a clean checkpoint.
const ANSWER_PATIENCE: Duration = Duration::from_millis(400);

/// Asks the program to stop. The first request counts.
pub fn request(signal: i32) {
    REQUEST.get_or_init(|| (signal, Instant::now()));
    REQUESTED.notify_waiters();
}

/// The signal that asked the program to stop, if one did.
pub fn requested() -> Option<i32> {
    REQUEST.get().map(|(signal, _)| *signal)
}

/// Whether a request is so old that answers under way are given up too.
pub fn is_pressing() -> bool {
    REQUEST.get().is_some_and(|(_, at)| at.elapsed() >= ANSWER_PATIENCE)
}

/// # Errors
/// [`Error::interrupted`] if the program was asked to stop.
pub fn check() -> Result<()> {
    requested().map_or(Ok(()), |signal| Err(Error::interrupted(signal)))
}

/// Waits for a request; gives its signal.
pub async fn wait() -> i32 {
    loop {
        let notified = REQUESTED.notified();
        let mut notified = std::pin::pin!(notified);
        // Registered before the look, or a request between the two would be missed.
        notified.as_mut().enable();
        if let Some(signal) = requested() {
            return signal;
        }
        notified.await;
    }
}
