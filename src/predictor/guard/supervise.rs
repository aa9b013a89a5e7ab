//! The process that outlives the scorer by a moment.

use std::ffi::CString;
use std::fs::{self, File};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};

use super::{CONFINE, GuardOrder, GuardReport};

/// Signals that mean: end. The first is also what comes when overturn is gone.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// How long killed processes are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two looks at whether they are gone.
const GLANCE: Duration = Duration::from_millis(2);

/// Starts the scorer and waits for its end, or for a signal. Ends as the scorer ended.
pub(super) fn supervise(order: &GuardOrder) -> ExitCode {
    let mut signals = SigSet::empty();
    ENDING.into_iter().chain([Signal::SIGCHLD]).for_each(|signal| signals.add(signal));
    // In this order: a parent that is gone before it is asked for leaves another one.
    let prepared = signals
        .thread_block()
        .and_then(|()| prctl::set_pdeathsig(ENDING[0]))
        .and_then(|()| prctl::set_child_subreaper(true));
    if order.is_orphaned() {
        return ended_by(Signal::SIGTERM);
    }
    let scorer = match prepared.map_err(std::io::Error::from).and_then(|()| start(order)) {
        Ok(scorer) => scorer,
        Err(error) => {
            GuardReport::Failed(format!("its guard cannot work: {error}")).send();
            return ExitCode::from(1);
        }
    };
    let _: nix::Result<()> = prctl::set_name(&CString::new("scorer-guard").unwrap_or_default());
    release_pipes();
    let ended = wait(&signals, scorer);
    kill_descendants();
    match ended {
        Some(WaitStatus::Exited(_, code)) => ExitCode::from(code as u8),
        Some(WaitStatus::Signaled(_, signal, _)) => ended_by(signal),
        _ => ended_by(Signal::SIGTERM),
    }
}

/// Starts the next step. It stays in the process group, so that whoever kills the group kills it.
fn start(order: &GuardOrder) -> std::io::Result<Pid> {
    let mut command = Command::new("/proc/self/exe");
    command.args([CONFINE, &std::process::id().to_string(), &order.settings]);
    let child = command.args(&order.command).spawn()?;
    Ok(Pid::from_raw(child.id() as i32))
}

/// Lets go of the scorer's pipes, whose other ends wait for the scorer to close them.
fn release_pipes() {
    if let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") {
        let _: nix::Result<()> = dup2_stdin(&nothing)
            .and_then(|()| dup2_stdout(&nothing))
            .and_then(|()| dup2_stderr(&nothing));
    }
}

/// How the scorer ended; `None` if it is to be ended.
fn wait(signals: &SigSet, scorer: Pid) -> Option<WaitStatus> {
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {
                if let Some(ended) = reap(scorer) {
                    return Some(ended);
                }
            }
            Err(Errno::EINTR) => {}
            _ => return None,
        }
    }
}

/// Reaps all that have ended, adopted ones too; gives the end of the scorer.
fn reap(scorer: Pid) -> Option<WaitStatus> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(_) => return None,
            Ok(ended) if ended.pid() == Some(scorer) => return Some(ended),
            Ok(_) => {}
        }
    }
}

/// Kills children until there are none: those of a killed one are adopted, and are next.
fn kill_descendants() {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => return,
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_) => {}
            }
        }
        for child in children() {
            let _: nix::Result<()> = kill(child, Signal::SIGKILL);
        }
        thread::sleep(GLANCE);
    }
}

/// The processes whose parent this one is.
fn children() -> Vec<Pid> {
    let own_pid = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent_and_pid = processes.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // After the name, which may hold anything: the state, then the parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.to_string();
        Some((parent, pid))
    });
    parent_and_pid
        .filter(|(parent, _)| *parent == own_pid)
        .map(|(_, pid)| Pid::from_raw(pid))
        .collect()
}

/// Ends by the signal that ended the scorer, so that overturn sees the same.
fn ended_by(signal: Signal) -> ExitCode {
    let mut unblocked = SigSet::empty();
    unblocked.add(signal);
    let _: nix::Result<()> = unblocked.thread_unblock();
    // Twice: the first SIGSEGV or SIGBUS reaches a handler of the Rust runtime, which then lets go.
    let _: nix::Result<()> = raise(signal).and_then(|()| raise(signal));
    // A signal that is ignored here (SIGPIPE): as shells tell it.
    ExitCode::from(128 + signal as u8)
}
