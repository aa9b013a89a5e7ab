//! The sole owner of threads, device and seeds. Everything follows from one `threads` number: the Tokio
//! runtime that drives the query engine, the rayon pool for loops outside it, and torch's own threads,
//! which take turns and do not nest. Also the one place where signals are heard.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::signal::unix::{Signal, SignalKind, signal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};
use crate::job::{Device, RuntimeJob};

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
    /// Heard from the first [`Runtime::block_on`] on, also between two of them.
    signals: Mutex<Option<Signals>>,
}

impl Runtime {
    /// Starts what there is one of. Called once, first thing.
    ///
    /// # Errors
    /// When the device that the job wants is not there.
    pub fn start(job: &RuntimeJob) -> Result<Runtime> {
        let device = choose_device(job.device)?;
        let threads = if job.threads == 0 { available_threads() } else { job.threads };
        // A second call finds the global pool built; its size was the same machine's.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
        tch::set_num_threads(threads as i32);
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("overturn-engine")
            // Each thread has torch's number of threads to itself, and a new one starts with all cores.
            .on_thread_start(|| tch::set_num_threads(1))
            .enable_all()
            .build()
            .map_err(|error| Error::resources("threads", "cannot be started").source(error))?;
        Ok(Runtime {
            threads,
            device,
            seed: job.seed,
            tokio: Some(tokio),
            signals: Mutex::default(),
        })
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
            let known = self.signals().take();
            let mut signals = known.map_or_else(Signals::listen, Ok)?;
            let result = tokio::select! {
                biased;
                _ = signals.interrupt.recv() => Err(Error::interrupted(nix::libc::SIGINT)),
                _ = signals.terminate.recv() => Err(Error::interrupted(nix::libc::SIGTERM)),
                result = future => result,
            };
            *self.signals() = Some(signals);
            result
        })
    }

    fn signals(&self) -> MutexGuard<'_, Option<Signals>> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a signal has come, for work outside of [`Runtime::block_on`] that takes long.
    ///
    /// # Errors
    /// [`Error::interrupted`] if one has.
    pub fn check_signals(&self) -> Result<()> {
        let mut signals = self.signals();
        let Some(Signals { interrupt, terminate }) = &mut *signals else { return Ok(()) };
        let mut context = Context::from_waker(Waker::noop());
        let kinds = [(interrupt, nix::libc::SIGINT), (terminate, nix::libc::SIGTERM)];
        for (signal, number) in kinds {
            if let Poll::Ready(Some(())) = signal.poll_recv(&mut context) {
                return Err(Error::interrupted(number));
            }
        }
        Ok(())
    }

    /// Gives torch the threads that training does best with. On a CPU that is one: at the method's batch
    /// sizes a second thread gains little when it is free and costs a multiple when it is not, and the
    /// model needs a core as well.
    pub fn for_training(&self) {
        tch::set_num_threads(1);
    }

    /// Gives torch one thread: the cores go to the partitions of the query engine.
    pub fn for_explaining(&self) {
        tch::set_num_threads(1);
    }

    /// Where tensors live, in words.
    pub fn device_name(&self) -> String {
        match self.device {
            tch::Device::Cuda(index) => format!("cuda:{index}"),
            _ => "cpu".to_string(),
        }
    }

    /// The job's random streams.
    pub fn streams(&self) -> Streams {
        Streams { seed: self.seed }
    }
}

/// The signals that end a run.
#[derive(Debug)]
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Signals> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Error::resources("signals", "cannot be heard").source(error))
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
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
    /// Does not wait for a model that is still computing: after a signal nobody wants its answer.
    fn drop(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_timeout(SHUTDOWN);
        }
    }
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn choose_device(wanted: Device) -> Result<tch::Device> {
    match wanted {
        Device::Cpu => Ok(tch::Device::Cpu),
        Device::Auto => Ok(tch::Device::cuda_if_available()),
        Device::Cuda if tch::Cuda::is_available() => Ok(tch::Device::Cuda(0)),
        Device::Cuda => Err(Error::resources(
            "runtime.device",
            "is `cuda`, but libtorch sees no GPU",
        )
        .hint(
            "use `device = \"auto\"`, or set the project up with `OVERTURN_CUDA=1 jobs/setup.sh` \
                 on a machine with a GPU",
        )),
    }
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
    let own = getrusage(UsageWho::RUSAGE_SELF).ok();
    Usage {
        cpu_seconds: seconds(UsageWho::RUSAGE_SELF) + seconds(UsageWho::RUSAGE_CHILDREN),
        peak_bytes: own.map_or(0, |own| own.max_rss() as u64 * 1024),
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
        let error = Runtime::start(&job(Device::Cuda)).expect_err("no GPU");
        assert!(error.to_string().contains("libtorch sees no GPU"), "{error}");
    }
}
