//! One running copy of the program: how it is started, ended and made sure to be gone.
//!
//! A copy leads its own process group, so that its descendants go with it and a terminal's Ctrl-C
//! reaches overturn alone, which then ends the copies in order.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::failure::Failure;
use super::protocol::VERSION;

/// Between two looks at whether a program has ended.
const EXIT_POLL: Duration = Duration::from_millis(2);

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
pub(super) struct Program {
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// Where it is started.
    pub(super) folder: PathBuf,
    /// Threads that each copy may use.
    pub(super) threads: usize,
}

/// A started copy. Its process group is killed and the copy reaped when this is dropped.
pub(super) struct Process {
    child: Child,
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

impl Program {
    /// Starts copy number `worker`.
    pub(super) fn start(&self, worker: usize) -> Result<(Process, Pipes), Failure> {
        let mut child = self.spawn(worker).map_err(|error| self.not_started(&error))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stderr = child.stderr.take();
        let process = Process { child, reaped: false, status: None };
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(Failure::refused("was started without pipes"));
        };
        let prepared = unblock(&stdin).and_then(|()| unblock(&stdout));
        prepared.map_err(|error| Failure::refused(format!("has unusable pipes: {error}")))?;
        Ok((process, Pipes { stdin, stdout, stderr }))
    }

    fn spawn(&self, worker: usize) -> io::Result<Child> {
        let (program, arguments) =
            self.command.split_first().ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("OVERTURN_PROTOCOL", VERSION).env("OVERTURN_WORKER", worker.to_string());
        for variable in THREAD_VARIABLES {
            if std::env::var_os(variable).is_none() {
                command.env(variable, self.threads.to_string());
            }
        }
        command.spawn()
    }

    fn not_started(&self, error: &io::Error) -> Failure {
        let program = self.command.first().map_or("", String::as_str);
        let folder = self.folder.display();
        match error.kind() {
            io::ErrorKind::NotFound if !self.folder.is_dir() => {
                Failure::refused(format!("cannot be started in `{folder}`, which is no folder"))
            }
            io::ErrorKind::NotFound => Failure::refused(format!(
                "the program `{program}` was not found, expected a path or a program on the `PATH`"
            ))
            .hint(format!("`predictor.command` names it; it is started in `{folder}`")),
            io::ErrorKind::PermissionDenied => {
                Failure::refused(format!("`{program}` is not executable"))
                    .hint("set its executable bit, or name its interpreter first")
            }
            _ => Failure::broke(format!("`{program}` cannot be started: {error}")),
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
        let start = Instant::now();
        while !self.has_ended() && start.elapsed() < patience {
            thread::sleep(EXIT_POLL);
        }
        let on_its_own = self.has_ended();
        self.kill();
        self.status.filter(|_| on_its_own)
    }

    /// Kills what is left of the process group. The leader is reaped only after that: until then its
    /// number, which is also the group's, cannot be given to anybody else.
    pub(super) fn kill(&mut self) {
        if !self.reaped {
            // Fails if nobody is left, which is as well.
            let _: nix::Result<()> = killpg(self.group(), Signal::SIGKILL);
            self.status = self.child.wait().ok();
            self.reaped = true;
        }
    }

    fn has_ended(&self) -> bool {
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
        Program { command, folder: PathBuf::new(), threads: 1 }.name()
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
