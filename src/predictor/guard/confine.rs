//! The process that becomes the scorer, after it has given up what the scorer shall not have.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::close;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::{GuardOrder, GuardReport, NetworkAccess, Sandbox, Settings};

/// Becomes the scorer; returns only if that fails.
pub(super) fn confine(order: &GuardOrder) -> ExitCode {
    let report = match become_scorer(order) {
        Ok(gone) => match gone {},
        Err(report) => report,
    };
    report.send();
    ExitCode::from(127)
}

/// What there is no value of.
enum Never {}

fn become_scorer(order: &GuardOrder) -> Result<Never, GuardReport> {
    let failed = |what: &'static str| {
        move |error: nix::Error| GuardReport::Failed(format!("{what}: {}", error.desc()))
    };
    let settings = Settings::parse(&order.settings).ok_or_else(|| {
        GuardReport::Failed("its guard is of another version than overturn".to_string())
    })?;
    close_inherited();
    set_limits(&settings).map_err(failed("its limits cannot be set"))?;
    prctl::set_no_new_privs().map_err(failed("it cannot be denied new privileges"))?;
    let network = cut_off(settings.sandbox)?;
    SigSet::empty().thread_set_mask().map_err(failed("its signals cannot be set"))?;
    // Last of all, since new credentials undo it: the scorer goes with its supervisor.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed("it cannot be tied to its guard"))?;
    if order.is_orphaned() {
        return Err(GuardReport::Failed("its guard is gone".to_string()));
    }
    let (program, arguments) = order.command.split_first().ok_or(GuardReport::NotFound)?;
    GuardReport::Starting(network).send();
    Err(Command::new(program).args(arguments).exec().into())
}

/// Closes files that whoever started overturn left open for everyone.
fn close_inherited() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> =
        open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for file in open.into_iter().filter(|file| *file > 2) {
        // The listing's own is closed already.
        let _: nix::Result<()> = close(file);
    }
}

fn set_limits(settings: &Settings) -> nix::Result<()> {
    // A core dump holds rows of the table.
    let limits = [
        (Resource::RLIMIT_CORE, Some(0), 0),
        (Resource::RLIMIT_AS, settings.memory, 0),
        (Resource::RLIMIT_NOFILE, settings.files, 0),
        (Resource::RLIMIT_NPROC, settings.processes, 0),
        // The first limit is told by a signal that names it, the second kills.
        (Resource::RLIMIT_CPU, settings.cpu_seconds, 1),
    ];
    for (resource, limit, further) in limits {
        if let Some(limit) = limit {
            let (_, most) = getrlimit(resource)?;
            setrlimit(resource, limit.min(most), limit.saturating_add(further).min(most))?;
        }
    }
    Ok(())
}

/// Keeps the scorer from the network, in the way that changes least about it. A filter of system calls
/// leaves user, files and capabilities as they are and is allowed nearly everywhere, in containers too;
/// a namespace is there for kernels without filters.
fn cut_off(sandbox: Sandbox) -> Result<NetworkAccess, GuardReport> {
    if sandbox == Sandbox::Off {
        return Ok(NetworkAccess::Open);
    }
    let Err(unfiltered) = filter_calls() else { return Ok(NetworkAccess::Filtered) };
    let Err(unshared) = isolate() else { return Ok(NetworkAccess::Isolated) };
    let why = format!("{unfiltered}; {unshared}");
    if sandbox == Sandbox::Require {
        return Err(GuardReport::Unconfined(why));
    }
    Ok(NetworkAccess::Unprotected(why))
}

/// Calls by which a process gets at the network through something else than a socket of its own: rings
/// that make calls unseen, and the sockets and memory of other processes of the user.
const WAYS_ROUND: [libc::c_long; 5] = [
    libc::SYS_io_uring_setup,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
];

/// The second numbering of calls that x86-64 kernels may have.
#[cfg(target_arch = "x86_64")]
const NUMBERINGS: &[libc::c_long] = &[0, 0x4000_0000];
#[cfg(not(target_arch = "x86_64"))]
const NUMBERINGS: &[libc::c_long] = &[0];

fn filter_calls() -> Result<(), String> {
    let program = call_filter().map_err(|error| format!("no filter of system calls: {error}"))?;
    seccompiler::apply_filter(&program)
        .map_err(|error| format!("no filter of system calls: {error}"))
}

/// Refuses sockets that are not local, and the ways round.
fn call_filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let local = libc::AF_UNIX as u64;
    let foreign = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, local)?;
    let foreign = SeccompRule::new(vec![foreign])?;
    let mut rules = BTreeMap::new();
    for numbering in NUMBERINGS {
        rules.insert(numbering + libc::SYS_socket, vec![foreign.clone()]);
        rules.extend(WAYS_ROUND.map(|call| (numbering + call, Vec::new())));
    }
    let refuse = SeccompAction::Errno(libc::EACCES as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}

/// Moves into a network namespace that has nothing in it. Without privileges that takes a user namespace
/// too, in which the user stays who it is.
fn isolate() -> Result<(), String> {
    let refused = |error: io::Error| format!("no network namespace: {error}");
    if unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return Ok(());
    }
    // The owner of a process's folder is the one that it runs as.
    let process = fs::metadata("/proc/self").map_err(refused)?;
    let (user, group) = (process.uid(), process.gid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|error| refused(error.into()))?;
    fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{user} {user} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{group} {group} 1")))
        .map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_compiles() {
        assert!(!call_filter().expect("a program").is_empty());
    }
}
