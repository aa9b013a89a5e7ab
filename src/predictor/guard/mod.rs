//! What stands between overturn and a scorer program: a process that starts it, confined, and ends it with
//! all its descendants when it is told to, or when overturn is gone.
//!
//! Two steps, both of them this code in a process of its own. *Supervise* is the child of overturn and
//! adopts whatever descends from it, so that no descendant escapes by leaving the process group. *Confine*
//! is its child: it gives up what the scorer shall not have and becomes the scorer.
//!
//! The binary `overturn-guard` is made of this module alone, so it uses nothing else of the crate.

mod confine;
pub(crate) mod report;
mod supervise;

use std::ffi::OsString;
use std::os::unix::process::parent_id;
use std::process::ExitCode;

pub(crate) use report::{GuardReport, NetworkAccess};

/// The name of the guard's own binary, beside overturn's.
pub(crate) const BINARY: &str = "overturn-guard";

/// The command that supervises.
pub(crate) const SUPERVISE: &str = "supervise-scorer";

/// The command that confines.
const CONFINE: &str = "confine-scorer";

/// What a scorer is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Settings {
    /// Whether the network is to be cut off.
    pub(crate) sandbox: Sandbox,
    /// Bytes of address space of a process.
    pub(crate) memory: Option<u64>,
    /// Open files of a process.
    pub(crate) files: Option<u64>,
    /// Processes and threads of the user.
    pub(crate) processes: Option<u64>,
    /// Seconds of processor time of a process.
    pub(crate) cpu_seconds: Option<u64>,
}

/// Whether the network is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sandbox {
    /// Where the system allows it.
    #[default]
    Auto,
    /// No.
    Off,
    /// Yes, or the scorer is not started.
    Require,
}

impl Settings {
    /// As one argument of the guard.
    pub(crate) fn to_argument(self) -> String {
        let sandbox = match self.sandbox {
            Sandbox::Auto => "auto",
            Sandbox::Off => "off",
            Sandbox::Require => "require",
        };
        let limits = [self.memory, self.files, self.processes, self.cpu_seconds];
        let limits = limits.map(|limit| limit.map_or("-".to_string(), |limit| limit.to_string()));
        format!("{sandbox},{}", limits.join(","))
    }

    fn parse(text: &str) -> Option<Settings> {
        let mut parts = text.split(',');
        let sandbox = match parts.next()? {
            "auto" => Sandbox::Auto,
            "off" => Sandbox::Off,
            "require" => Sandbox::Require,
            _ => return None,
        };
        let mut limit = || match parts.next()? {
            "-" => Some(None),
            number => number.parse().ok().map(Some),
        };
        let (memory, files, processes, cpu_seconds) = (limit()?, limit()?, limit()?, limit()?);
        parts.next().is_none().then_some(Settings {
            sandbox,
            memory,
            files,
            processes,
            cpu_seconds,
        })
    }
}

/// What one step is asked to do.
struct GuardOrder {
    /// The process that asked; if it is not the parent any more, it is gone.
    parent: u32,
    /// As text, to be handed on.
    settings: String,
    /// The scorer and its arguments.
    command: Vec<OsString>,
}

impl GuardOrder {
    fn is_orphaned(&self) -> bool {
        parent_id() != self.parent
    }
}

/// Does what the command line says, if it is one of the guard's.
pub(crate) fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let step = arguments.next()?;
    let step = match step.to_str()? {
        SUPERVISE => supervise::supervise,
        CONFINE => confine::confine,
        _ => return None,
    };
    let mut text = || arguments.next().and_then(|argument| argument.into_string().ok());
    let (parent, settings) = (text().and_then(|pid| pid.parse().ok()), text());
    Some(match (parent, settings) {
        (Some(parent), Some(settings)) => {
            step(&GuardOrder { parent, settings, command: arguments.collect() })
        }
        _ => ExitCode::from(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_command_line() {
        let settings = Settings {
            sandbox: Sandbox::Require,
            memory: Some(1 << 40),
            files: None,
            processes: Some(0),
            cpu_seconds: Some(7),
        };
        for settings in [settings, Settings::default()] {
            assert_eq!(Settings::parse(&settings.to_argument()), Some(settings));
        }
        for bad in ["", "auto", "auto,1,2,3", "auto,1,2,3,4,5", "on,-,-,-,-", "auto,x,-,-,-"] {
            assert_eq!(Settings::parse(bad), None, "{bad}");
        }
    }
}
