//! The sole owner of threads, device and seeds. Everything follows from one `threads` number: the Tokio
//! runtime that drives the query engine, the rayon pool for loops outside it, and torch's own threads,
//! which take turns and do not nest. Also the one place where signals are heard.

mod device;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{OnceLock, RwLock};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, raise};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::task::{JoinError, JoinHandle};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};
use crate::job::{Device, RuntimeJob};
use crate::stop;

pub use device::Gpus;

/// How long the program may take to end after a signal, before it is ended wherever it is. Ending there is
/// as safe as being killed: what is published appears in one step.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(1400);

/// Threads beside those of the engine and of the loops: signals, training, its model, scorers' pipes.
const FURTHER_THREADS: usize = 6;

/// Threads that read and write logs of tables.
const LOG_THREADS: usize = 2;

/// How long blocking work may take to notice that the program is ending.
const SHUTDOWN: Duration = Duration::from_millis(200);

/// Threads, device and seed of a run.
#[derive(Debug)]
pub struct Runtime {
    /// Cores in use.
    pub threads: usize,
    /// Where tensors live.
    pub device: tch::Device,
    seed: u64,
    tokio: Option<tokio::runtime::Runtime>,
}

impl Runtime {
    /// Starts what there is one of. Called once, first thing.
    ///
    /// # Errors
    /// When the device that the job wants is not there.
    pub fn start(job: &RuntimeJob) -> Result<Runtime> {
        let device = choose_device(job.device)?;
        let threads = if job.threads == 0 { available_threads() } else { job.threads };
        probe_threads(2 * threads + FURTHER_THREADS)?;
        build_pool(threads)?;
        tch::set_num_threads(threads as i32);
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("overturn-engine")
            // Each thread has torch's number of threads to itself, and a new one starts with all cores.
            .on_thread_start(|| tch::set_num_threads(1))
            .enable_all()
            .build()
            .map_err(no_threads)?;
        Ok(Runtime { threads, device, seed: job.seed, tokio: Some(tokio) })
    }

    /// Runs a future to its end, or to a SIGINT or SIGTERM, whichever comes first. The one `block_on`.
    ///
    /// # Errors
    /// The future's own, or [`Error::interrupted`].
    pub fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(tokio) = &self.tokio else {
            return Err(Error::internal("runtime", "used after its end"));
        };
        tokio.block_on(async {
            let result = tokio::select! {
                biased;
                signal = stop::wait() => Err(Error::interrupted(signal)),
                result = future => result,
            };
            // A future that was busy when the signal came tells what the stop did to it.
            match (result, stop::requested()) {
                (Err(_), Some(signal)) => Err(Error::interrupted(signal)),
                (result, _) => result,
            }
        })
    }

    /// Whether a signal has come, for work outside of [`Runtime::block_on`] that takes long.
    ///
    /// # Errors
    /// [`Error::interrupted`] if one has.
    pub fn check_signals(&self) -> Result<()> {
        stop::check()
    }

    /// Gives torch the threads that training does best with. That is one: on a CPU networks learn without
    /// torch, and what it is left with, judging on the validation rows, is little.
    pub fn for_training(&self) {
        tch::set_num_threads(1);
    }

    /// Gives torch one thread: the cores go to the partitions of the query engine.
    pub fn for_explaining(&self) {
        tch::set_num_threads(1);
    }

    /// Where tensors live, in words.
    pub fn device_name(&self) -> String {
        device::name(self.device)
    }

    /// The job's random streams.
    pub fn streams(&self) -> Streams {
        Streams { seed: self.seed }
    }
}

/// Runs a future that reads or writes a table's log to its end, or to a signal, on threads of its own: where tables
/// are opened, a job's [`Runtime`] is not always at hand.
///
/// # Errors
/// The future's own, or [`Error::interrupted`].
pub fn block_on_log<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let tokio = log_threads()?;
    let heard = async {
        tokio::select! {
            biased;
            signal = stop::wait() => Err(Error::interrupted(signal)),
            result = future => result,
        }
    };
    // A thread that drives another runtime may not wait for this one.
    let waited = thread::scope(|scope| scope.spawn(|| tokio.block_on(heard)).join());
    waited.unwrap_or_else(|_| Err(Error::internal("a table's log", "its reader panicked")))
}

/// Runs a future that talks to a server to its end, for so long at most, also after a signal.
pub fn block_on_wire<T: Send>(
    future: impl Future<Output = T> + Send,
    patience: Duration,
) -> Option<T> {
    let tokio = log_threads().ok()?;
    let limited = async { tokio::time::timeout(patience, future).await.ok() };
    thread::scope(|scope| scope.spawn(|| tokio.block_on(limited)).join()).ok().flatten()
}

/// Threads for what waits for others more than it works.
fn log_threads() -> Result<&'static tokio::runtime::Runtime> {
    static LOGS: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    if let Some(tokio) = LOGS.get() {
        return Ok(tokio);
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let built = builder.worker_threads(LOG_THREADS).thread_name("overturn-log").enable_all();
    let built = built.build().map_err(no_threads)?;
    Ok(LOGS.get_or_init(|| built))
}

/// A task on the engine's threads; dropped, it is stopped where it next waits.
#[derive(Debug)]
pub struct Spawned<T>(JoinHandle<Result<T>>);

/// Starts a task, to be awaited inside of [`Runtime::block_on`].
pub fn spawn<T: Send + 'static>(
    task: impl Future<Output = Result<T>> + Send + 'static,
) -> Spawned<T> {
    Spawned(tokio::spawn(task))
}

impl<T> Future for Spawned<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let lost = |error: JoinError| Err(Error::internal("a task", error.to_string()));
        Pin::new(&mut self.0).poll(context).map(|ended| ended.unwrap_or_else(lost))
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Hears SIGINT and SIGTERM from now on, on a thread of its own, as requests to [`stop`]. A program that
/// has not ended soon after is handed to `overdue`, which must end it. Called once, before any other thread
/// is started: threads inherit that these signals are not for them.
///
/// # Errors
/// When the thread cannot be started.
pub fn hear_signals(overdue: fn(Error)) -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    let unheard = |error| Error::resources("signals", "cannot be heard").source(error);
    signals.thread_block().map_err(|error| unheard(io::Error::from(error)))?;
    let hear = move || {
        let signal = loop {
            if let Ok(signal) = signals.wait() {
                break signal as i32;
            }
        };
        stop::request(signal);
        thread::sleep(SIGNAL_PATIENCE);
        overdue(Error::interrupted(signal));
    };
    thread::Builder::new().name("signals".to_string()).spawn(hear).map_err(no_threads)?;
    Ok(())
}

/// Ends the process by the signal that an exit code stands for, at once and without any tidying up.
pub fn end_by(exit_code: u8) {
    let Ok(signal) = Signal::try_from(i32::from(exit_code) - 128) else { return };
    let mut heard = SigSet::empty();
    heard.add(signal);
    // Here alone nothing blocks it, and nothing handles it.
    let _: nix::Result<()> = heard.thread_unblock().and_then(|()| raise(signal));
}

/// The error of a thread that could not be started.
fn no_threads(error: io::Error) -> Error {
    Error::resources("threads", "cannot be started").source(error).hint(
        "lower `runtime.threads`, or raise the limits of the system (`ulimit -u`, `ulimit -v`, `pids.max`)",
    )
}

/// Starts so many threads for a moment. Libraries panic or abort where one of theirs cannot be started;
/// found here, it is an error.
fn probe_threads(count: usize) -> Result<()> {
    let gate = RwLock::new(());
    thread::scope(|scope| {
        // All wait here, so that they are there at the same time.
        let closed = gate.write();
        let wait = || drop(gate.read());
        let start = |_| thread::Builder::new().spawn_scoped(scope, wait).map(|_| ());
        let started = (0..count).try_for_each(start);
        drop(closed);
        started.map_err(no_threads)
    })
}

/// The pool for loops outside the engine. A second call finds it built; its size was the same machine's.
fn build_pool(threads: usize) -> Result<()> {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        Err(error) if std::error::Error::source(&error).is_some() => {
            Err(no_threads(io::Error::other(error)))
        }
        _ => Ok(()),
    }
}

/// Random streams, all from one seed.
#[derive(Debug, Clone, Copy)]
pub struct Streams {
    seed: u64,
}

impl Streams {
    /// The streams of a seed.
    pub fn new(seed: u64) -> Streams {
        Streams { seed }
    }

    /// A stream of its own for each purpose.
    pub fn random(self, stream: &str) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed_of(stream))
    }

    /// The seed that all come from.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// The seed of a stream.
    pub fn seed_of(self, stream: &str) -> u64 {
        xxh3_64_with_seed(stream.as_bytes(), self.seed)
    }
}

impl Drop for Runtime {
    /// Does not wait for a model that is still computing: after a signal nobody waits for its predictions.
    fn drop(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_timeout(SHUTDOWN);
        }
    }
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The device that the job wants; where it may be any, the log says which it is and why.
fn choose_device(requested: Device) -> Result<tch::Device> {
    let chosen = device::choose(requested, Gpus::find)?;
    if requested == Device::Auto {
        let (device, reason) = (device::name(chosen.device), chosen.reason);
        tracing::info!(device, reason, "chose the device");
    }
    Ok(chosen.device)
}

/// The libtorch release that the binary was built against.
pub fn libtorch_version() -> &'static str {
    env!("OVERTURN_LIBTORCH_VERSION")
}

/// What the process has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Processor time of this process and of the children it has waited for.
    pub cpu_seconds: f64,
    /// Most memory it ever held.
    pub peak_bytes: u64,
}

/// What the process has used so far; zeros where the system does not tell.
pub fn usage() -> Usage {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let seconds = |who| {
        let used = getrusage(who).ok();
        used.map_or(0, |used| (used.user_time() + used.system_time()).num_microseconds()) as f64
            / 1e6
    };
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    Usage {
        cpu_seconds: seconds(UsageWho::RUSAGE_SELF) + seconds(UsageWho::RUSAGE_CHILDREN),
        peak_bytes: usage.map_or(0, |usage| usage.max_rss() as u64 * 1024),
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;
    use crate::job::Bytes;

    fn job(device: Device) -> RuntimeJob {
        RuntimeJob { threads: 2, memory: Bytes(1 << 30), device, seed: 7 }
    }

    #[test]
    fn streams_are_reproducible_and_distinct() {
        let runtime = Runtime::start(&job(Device::Cpu)).expect("started");
        let draw = |name| runtime.streams().random(name).next_u64();
        assert_eq!(draw("noise"), draw("noise"));
        assert_ne!(draw("noise"), draw("shuffle"));
    }

    #[test]
    fn a_missing_gpu_is_an_error_that_says_so() {
        if tch::Cuda::is_available() {
            return;
        }
        let error = Runtime::start(&job(Device::Cuda(None))).expect_err("no GPU");
        assert!(
            error.to_string().starts_with("runtime.device: is `cuda`, but libtorch "),
            "{error}"
        );
    }
}
