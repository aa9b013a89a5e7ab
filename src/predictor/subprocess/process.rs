//! One running copy of the program: how it is started, ended and made sure to be gone.
//!
//! A copy leads its own process group, so that its descendants go with it and a terminal's Ctrl-C
//! reaches overturn alone, which then ends the copies in order. Under the guard, which is the usual way,
//! the guard leads the group and ends as the copy ends.

use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::environment;
use super::failure::Failure;
use super::launch;
use super::protocol::VERSION;
use crate::job::{SandboxSpec, SubprocessJob};
use crate::predictor::guard::{GuardReport, Sandbox, Settings};

/// Between two looks at whether a program has ended.
const EXIT_POLL: Duration = Duration::from_millis(2);

/// How long the guard may take to end its copy and itself, before the group is killed.
const GUARD_PATIENCE: Duration = Duration::from_millis(500);

/// Room in a pipe, where the system allows it: fewer turns between the two programs.
const PIPE_BYTES: i32 = 1 << 20;

/// What numeric libraries read to know how many threads to use. Several copies that each take every
/// core would only get in each other's way.
const THREAD_VARIABLES: [&str; 3] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];

/// Programs that say less than the script they run.
const INTERPRETERS: [&str; 8] =
    ["python", "pypy", "Rscript", "julia", "node", "java", "sh", "bash"];

/// How a copy is started.
#[derive(Debug, Clone)]
pub(super) struct ScorerCommand {
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// Where it is started.
    pub(super) folder: PathBuf,
    /// Threads that each copy may use.
    pub(super) threads: usize,
    /// Environment variables that the job adds.
    pub(super) environment: Vec<String>,
    /// What a copy is held to.
    pub(super) settings: Settings,
}

/// A started copy. Its process group is killed and the copy reaped when this is dropped.
pub(super) struct Process {
    child: Child,
    /// Whether the guard is between us and the copy.
    pub(super) guarded: bool,
    /// Whether it has been reaped, after which its number may be somebody else's.
    reaped: bool,
    status: Option<ExitStatus>,
}

/// The pipes of a copy; the first two do not block.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl ScorerCommand {
    /// The program of a job, each copy of which may use so many threads.
    pub(super) fn new(job: &SubprocessJob, threads: usize) -> ScorerCommand {
        let sandbox = match job.sandbox {
            SandboxSpec::Auto => Sandbox::Auto,
            SandboxSpec::Off => Sandbox::Off,
            SandboxSpec::Require => Sandbox::Require,
        };
        let crate::job::Limits { memory, files, processes, cpu_seconds } = job.limits;
        ScorerCommand {
            command: job.command.clone(),
            folder: job.folder.clone(),
            threads,
            environment: job.environment.clone(),
            settings: Settings { sandbox, memory, files, processes, cpu_seconds },
        }
    }

    /// Starts copy number `worker`.
    pub(super) fn start(&self, worker: usize) -> Result<(Process, Pipes), Failure> {
        let (mut child, guarded) = self.spawn(worker)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stderr = child.stderr.take();
        let process = Process { child, guarded, reaped: false, status: None };
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(Failure::refused("was started without pipes"));
        };
        let prepared = unblock(&stdin).and_then(|()| unblock(&stdout));
        prepared.map_err(|error| Failure::refused(format!("has unusable pipes: {error}")))?;
        Ok((process, Pipes { stdin, stdout, stderr }))
    }

    /// Starts the copy, or its guard; says which.
    fn spawn(&self, worker: usize) -> Result<(Child, bool), Failure> {
        let guarded = launch::guarded(self.settings, &self.command);
        let is_guarded = guarded.is_some();
        if !is_guarded && self.settings.sandbox == Sandbox::Require {
            return Err(self.not_started(&GuardReport::Unconfined("it has no guard".to_string())));
        }
        let mut command = match (guarded, self.command.split_first()) {
            (Some(command), _) => command,
            (None, Some((program, arguments))) => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            (None, None) => return Err(self.not_started(&GuardReport::NotFound)),
        };
        self.prepare(&mut command, worker);
        let child = launch::launch(command).map_err(|error| self.not_started(&error.into()))?;
        Ok((child, is_guarded))
    }

    fn prepare(&self, command: &mut Command, worker: usize) {
        command.current_dir(&self.folder).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let variables = environment::allowed(std::env::vars_os(), &self.environment);
        let is_set = |name: &str| variables.iter().any(|(found, _)| found == name);
        let unset = THREAD_VARIABLES.into_iter().filter(|name| !is_set(name));
        let threads: Vec<_> = unset.map(|name| (name, self.threads.to_string())).collect();
        command.env_clear().envs(variables).envs(threads);
        command.env("OVERTURN_PROTOCOL", VERSION).env("OVERTURN_WORKER", worker.to_string());
    }

    /// Why a copy could not be started.
    pub(super) fn not_started(&self, report: &GuardReport) -> Failure {
        let program = self.command.first().map_or("", String::as_str);
        let folder = self.folder.display();
        match report {
            GuardReport::NotFound if !self.folder.is_dir() => {
                Failure::refused(format!("cannot be started in `{folder}`, which is no folder"))
            }
            GuardReport::NotFound => Failure::refused(format!(
                "the program `{program}` was not found, expected a path or a program on the `PATH`"
            ))
            .hint(format!("`predictor.command` names it; it is started in `{folder}`")),
            GuardReport::NotExecutable => {
                Failure::refused(format!("`{program}` is not executable"))
                    .hint("set its executable bit, or name its interpreter first")
            }
            GuardReport::Unconfined(why) => Failure::refused(format!(
                "cannot be kept from the network ({why}), but `predictor.sandbox` is `require`"
            ))
            .hint(
                "run where system-call filters are allowed, or set `predictor.sandbox` to `auto`",
            ),
            GuardReport::Failed(why) => {
                Failure::broke(format!("`{program}` cannot be started: {why}"))
            }
            GuardReport::Starting(_) => Failure::broke(format!("`{program}` was started twice")),
        }
    }

    /// What messages call it: the script rather than its interpreter.
    pub(super) fn name(&self) -> String {
        let (program, arguments) = match self.command.split_first() {
            Some((program, arguments)) => (file_name(program), arguments),
            None => return String::new(),
        };
        let interpreter = program.trim_end_matches(|end: char| end.is_ascii_digit() || end == '.');
        let inline = |argument: &&String| *argument == "-c" || *argument == "-e";
        let script =
            arguments.iter().find(|argument| !argument.starts_with('-') || inline(argument));
        match script.filter(|script| INTERPRETERS.contains(&interpreter) && !inline(script)) {
            Some(script) => file_name(script),
            None => program,
        }
    }
}

fn file_name(path: &str) -> String {
    let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| path.to_string())
}

fn unblock(pipe: &impl AsFd) -> nix::Result<()> {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // A wish: the system may limit the memory that pipes take.
    let _: nix::Result<i32> = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    Ok(())
}

impl Process {
    /// How the program ended, if it does so within `patience`; otherwise it is killed.
    pub(super) fn end(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.await_end(patience);
        let on_its_own = self.has_ended();
        self.kill();
        self.status.filter(|_| on_its_own)
    }

    /// Kills what is left of the process group. The leader is reaped only after that: until then its
    /// number, which is also the group's, cannot be given to anybody else.
    pub(super) fn kill(&mut self) {
        if !self.reaped {
            if self.guarded && !self.has_ended() {
                // The guard knows of descendants that have left the group.
                let _: nix::Result<()> = kill(self.group(), Signal::SIGTERM);
                self.await_end(GUARD_PATIENCE);
            }
            // Fails if nobody is left, which is as well.
            let _: nix::Result<()> = killpg(self.group(), Signal::SIGKILL);
            self.status = self.child.wait().ok();
            self.reaped = true;
        }
    }

    fn await_end(&self, patience: Duration) {
        let start = Instant::now();
        while !self.has_ended() && start.elapsed() < patience {
            thread::sleep(EXIT_POLL);
        }
    }

    /// Whether it has ended, or its guard has.
    pub(super) fn has_ended(&self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        self.reaped
            || !matches!(
                waitid(Id::Pid(self.group()), look),
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)
            )
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a program ended, in words.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(name) => format!("was killed by signal {signal} ({name})"),
            Err(_) => format!("was killed by signal {signal}"),
        },
        (None, None) => "ended".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(command: &[&str]) -> String {
        let command = command.iter().map(|&part| part.to_string()).collect();
        let (folder, environment) = (PathBuf::new(), Vec::new());
        ScorerCommand { command, folder, threads: 1, environment, settings: Settings::default() }
            .name()
    }

    #[test]
    fn messages_name_the_script() {
        assert_eq!(name(&["/opt/bin/python3", "-u", "jobs/scorer.py", "model"]), "scorer.py");
        assert_eq!(name(&["bin/scorer", "model.bin"]), "scorer");
        assert_eq!(name(&["python3.11"]), "python3.11");
        assert_eq!(name(&["/bin/sh", "-c", "cat /dev/null"]), "sh");
        assert_eq!(name(&["shap-scorer", "model.bin"]), "shap-scorer");
    }
}
