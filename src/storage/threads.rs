//! The threads that requests run on. Cores that are busy with a model would let connections time out, so requests
//! have threads of their own, which start when the first store is opened.

use std::future::Future;
use std::sync::{OnceLock, mpsc};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};

/// Requests wait for the network: two threads are enough for any number of them.
const THREADS: usize = 2;

static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();

/// Where requests run.
pub(super) fn handle() -> Result<Handle> {
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        let built =
            builder.worker_threads(THREADS).thread_name("overturn-store").enable_all().build();
        built.map_err(|error| error.to_string())
    });
    match runtime {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(error) => Err(Error::resources("threads", format!("cannot be started: {error}"))),
    }
}

/// Runs requests to their end from code that is not async. May be called from any thread. A signal needs no
/// attention here: the program ends by itself soon after it, wherever it is.
///
/// # Errors
/// The future's own.
pub fn wait<T: Send + 'static>(
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    handle()?.spawn(async move {
        let _ = sender.send(future.await);
    });
    receiver.recv().unwrap_or_else(|_| Err(Error::internal("storage", "a request has panicked")))
}
