//! One copy of the program with its pipes: a batch goes out, an answer comes in, within a time limit.
//!
//! Both pipes are non-blocking and watched together, by the calling thread: whichever is ready is
//! served, so that a program that begins to answer before it has read everything cannot deadlock with
//! us, however large the batch.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::failure::{Failure, Occasion};
use super::incoming::{Incoming, Interruption, excerpt, printed_text, read_available};
use super::process::{Process, ScorerCommand, describe};
use super::stderr::Stderr;
use crate::predictor::guard::{GuardReport, NetworkAccess, report};
use crate::stop;

/// How long a program may take to exit once its standard input is closed, before it is killed.
const EXIT_PATIENCE: Duration = Duration::from_secs(3);

/// How long we wait for the exit status of a program that closed its output.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);

/// How long we wait for the last lines of a program that is gone.
const STDERR_PATIENCE: Duration = Duration::from_millis(200);

/// How long a program that no longer reads may take to close its output.
const DEAF_PATIENCE: Duration = Duration::from_secs(2);

/// Between two looks at whether the answer is still waited for.
const STOP_POLL: Duration = Duration::from_millis(50);

/// A copy of the program that has shaken hands.
pub(super) struct ScorerProcess {
    // Before the pipes: the program is gone before anything waits for their end.
    process: Process,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    incoming: Incoming,
    stderr: Stderr,
    hung_up: Option<Instant>,
    program: ScorerCommand,
    /// How it is kept from the network, if its guard has told.
    pub(super) network: Option<NetworkAccess>,
    /// Set when nobody wants its answers any more.
    stopped: Arc<AtomicBool>,
}

/// What is sent, and how long the answer may take.
pub(super) struct BatchRequest<'a> {
    pub(super) message: &'a [u8],
    pub(super) occasion: Occasion,
    pub(super) limit: Duration,
    /// Most bytes that the answer may have.
    pub(super) most_bytes: usize,
    /// Set when nobody wants the answer any more.
    pub(super) stopped: &'a Arc<AtomicBool>,
}

impl ScorerProcess {
    /// Starts copy number `index` and shakes hands. Gives the schema of its answers.
    pub(super) fn start(
        program: &ScorerCommand,
        index: usize,
        hello: &BatchRequest<'_>,
    ) -> Result<(ScorerProcess, SchemaRef), Failure> {
        let (process, pipes) = program.start(index)?;
        let stderr = Stderr::drain(pipes.stderr, index)
            .map_err(|error| Failure::broke(format!("cannot be listened to: {error}")))?;
        let mut worker = ScorerProcess {
            process,
            stdin: Some(pipes.stdin),
            stdout: pipes.stdout,
            incoming: Incoming::default(),
            stderr,
            hung_up: None,
            program: program.clone(),
            network: None,
            stopped: Arc::clone(hello.stopped),
        };
        if worker.process.guarded {
            let heard = worker.hear_guard(hello);
            worker.network =
                heard.map_err(|failure| worker.post_mortem(failure, hello.occasion))?;
        }
        worker.ask(hello)?;
        let schema = worker.incoming.schema().cloned();
        Ok((worker, schema.ok_or_else(|| Failure::refused("answered without a schema"))?))
    }

    /// Sends a batch and waits for its answer. After a failure the program is gone.
    pub(super) fn ask(&mut self, request: &BatchRequest<'_>) -> Result<RecordBatch, Failure> {
        let answer = self.exchange(request).and_then(|answer| {
            let (asked, answered) = (request.rows(), answer.num_rows());
            let problem = || format!("answered {answered} rows, expected {asked}");
            if asked == answered { Ok(answer) } else { Err(Failure::broke(problem())) }
        });
        answer.map_err(|failure| self.post_mortem(failure, request.occasion))
    }

    /// Reads the line in which the guard says how it starts the program.
    fn hear_guard(&mut self, hello: &BatchRequest<'_>) -> Result<Option<NetworkAccess>, Failure> {
        let (start, mut line) = (Instant::now(), Vec::new());
        while line.last() != Some(&b'\n') && line.len() < report::LONGEST {
            hello.refuse_stopped()?;
            let left = hello.limit.saturating_sub(start.elapsed()).min(STOP_POLL);
            let ready = self.wait(false, left)?;
            let ready = ready.ok_or_else(|| Failure::timed_out(hello.limit, hello.occasion))?;
            let mut byte = [0];
            match self.stdout.read(&mut byte) {
                _ if !ready.read => {}
                Ok(1) => line.push(byte[0]),
                Err(error) if is_passing(&error) => {}
                _ => return Err(self.explain(Interruption::Closed)),
            }
        }
        match GuardReport::parse(&line) {
            Some(GuardReport::Starting(network)) => Ok(Some(network)),
            Some(report) => Err(self.program.not_started(&report)),
            None => Err(printed(&excerpt(&line))),
        }
    }

    fn exchange(&mut self, request: &BatchRequest<'_>) -> Result<RecordBatch, Failure> {
        self.refuse_surplus()?;
        let start = Instant::now();
        let (mut unsent, mut limit) = (request.message, request.limit);
        let mut silence = Failure::timed_out(request.limit, request.occasion);
        loop {
            request.refuse_stopped()?;
            let left = limit.saturating_sub(start.elapsed()).min(STOP_POLL);
            let Some(ready) = self.wait(!unsent.is_empty(), left)? else { return Err(silence) };
            if ready.is_idle() && self.process.guarded && self.process.has_ended() {
                // A descendant may hold the pipe open when the guard was killed.
                return Err(self.explain(Interruption::Closed));
            }
            if ready.write && !self.send(&mut unsent) {
                // Most likely it is exiting, which its output will tell in a moment.
                (unsent, limit) = (&[], limit.min(start.elapsed() + DEAF_PATIENCE));
                silence = Failure::broke("closed its standard input before it had read a batch");
            }
            if ready.read {
                match self.incoming.receive(&mut self.stdout, request.most_bytes) {
                    Ok(Some(answer)) => return complete(answer, unsent),
                    Ok(None) => {}
                    Err(interruption) => return Err(self.explain(interruption)),
                }
            }
        }
    }

    /// Waits until a pipe can be served. `None` when time is up.
    fn wait(&self, sending: bool, patience: Duration) -> Result<Option<Ready>, Failure> {
        let stdin = self.stdin.as_ref().filter(|_| sending);
        let mut pipes = vec![PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN)];
        pipes.extend(stdin.map(|stdin| PollFd::new(stdin.as_fd(), PollFlags::POLLOUT)));
        // Rounded up: zero milliseconds would turn the last one into a busy loop.
        let milliseconds = (patience.as_millis() + 1).min(i32::MAX as u128);
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        match poll(&mut pipes, timeout) {
            Ok(0) if !patience.is_zero() => Ok(Some(Ready { read: false, write: false })),
            Ok(0) => Ok(None),
            Err(Errno::EINTR) => Ok(Some(Ready { read: false, write: false })),
            Err(error) => Err(Failure::broke(format!("its pipes cannot be watched: {error}"))),
            Ok(_) => {
                let ready = |pipe: &PollFd<'_>| pipe.any().unwrap_or(true);
                Ok(Some(Ready { read: ready(&pipes[0]), write: pipes.get(1).is_some_and(ready) }))
            }
        }
    }

    /// Sends what the pipe takes. `false` when the program no longer reads.
    fn send(&mut self, unsent: &mut &[u8]) -> bool {
        let Some(stdin) = &mut self.stdin else { return false };
        match stdin.write(unsent) {
            Ok(sent) => *unsent = &unsent[sent..],
            Err(error) => return is_passing(&error),
        }
        true
    }

    /// Whatever can be read before anything was asked is not an answer to it. An Arrow message there
    /// means that an earlier batch was answered twice: then nobody knows which answers are whose.
    fn refuse_surplus(&mut self) -> Result<(), Failure> {
        let mut surplus = Vec::new();
        read_available(&mut self.stdout, &mut surplus);
        match surplus.first() {
            None => Ok(()),
            Some(0xFF) => Err(Failure::refused("answered more batches than it was sent")
                .hint("write one batch for each batch read, in the same order")),
            Some(_) => {
                let text = printed_text(&mut self.stdout, surplus);
                Err(self.explain(Interruption::Text(text)))
            }
        }
    }

    fn explain(&mut self, interruption: Interruption) -> Failure {
        match interruption {
            Interruption::Text(text) => match GuardReport::parse(&text) {
                Some(report) if self.process.guarded => self.program.not_started(&report),
                _ => printed(&excerpt(&text)),
            },
            Interruption::Broken(reason) => Failure::broke(format!(
                "sent an Arrow message that cannot be read: {reason}"
            ))
            .hint(
                "nothing but one uncompressed Arrow IPC stream may be written to standard output",
            ),
            Interruption::Ended => Failure::broke("ended its stream while more was asked of it")
                .hint("answer until standard input ends"),
            Interruption::Closed => match self.process.end(STATUS_PATIENCE) {
                Some(status) => ended(status),
                None => Failure::broke("closed its standard output without exiting"),
            },
        }
    }

    /// Ends the program and completes the failure with what only then is known.
    fn post_mortem(&mut self, failure: Failure, occasion: Occasion) -> Failure {
        self.process.kill();
        let patience = if self.is_stopped() { Duration::ZERO } else { STDERR_PATIENCE };
        let last_lines = self.stderr.last_lines(patience);
        Failure { occasion: Some(occasion), last_lines, ..failure }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || stop::requested().is_some()
    }

    /// Closes the program's standard input, which asks it to exit.
    pub(super) fn hang_up(&mut self) {
        self.stdin = None;
        self.hung_up.get_or_insert_with(Instant::now);
    }
}

impl Drop for ScorerProcess {
    fn drop(&mut self) {
        self.hang_up();
        let waited = self.hung_up.map_or(Duration::ZERO, |hung_up| hung_up.elapsed());
        let patience = if self.is_stopped() { Duration::ZERO } else { EXIT_PATIENCE };
        self.process.end(patience.saturating_sub(waited));
    }
}

impl BatchRequest<'_> {
    /// Nothing is lost with a handshake; an answer may be the last of a step of training.
    fn refuse_stopped(&self) -> Result<(), Failure> {
        let pressing = match self.occasion {
            Occasion::Handshake => stop::requested().is_some(),
            Occasion::Batch(_) => stop::is_pressing(),
        };
        if pressing || self.stopped.load(Ordering::Relaxed) {
            return Err(Failure::refused("was stopped with the run"));
        }
        Ok(())
    }

    fn rows(&self) -> usize {
        match self.occasion {
            Occasion::Handshake => 0,
            Occasion::Batch(rows) => rows,
        }
    }
}

/// Whether a pipe may be tried again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// An end that nobody asked for; where a limit of the job may be the reason, it is named.
fn ended(status: ExitStatus) -> Failure {
    let failure = Failure::exited(describe(status));
    if status.signal() == Some(Signal::SIGXCPU as i32) {
        return failure.hint("`predictor.limits.cpu_seconds` limits its processor time");
    }
    failure
}

/// Which pipes can be served.
struct Ready {
    read: bool,
    write: bool,
}

impl Ready {
    fn is_idle(&self) -> bool {
        !self.read && !self.write
    }
}

fn complete(answer: RecordBatch, unsent: &[u8]) -> Result<RecordBatch, Failure> {
    if unsent.is_empty() {
        return Ok(answer);
    }
    Err(Failure::broke("answered a batch before it had read it"))
}

fn printed(text: &str) -> Failure {
    let problem = format!("wrote {text} to its standard output where an Arrow stream was expected");
    Failure::broke(problem).hint("print to standard error; standard output carries the answers")
}
