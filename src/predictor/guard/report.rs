//! What the guard tells overturn, as lines on the scorer's standard output before the scorer has begun to
//! write there: one that says how it is confined, and one more only if it could not be started after all.

use std::fmt;
use std::io::{self, Write};

/// What every line begins with.
const PREFIX: &str = "overturn-guard: ";

/// Longer than any line.
pub(crate) const LONGEST: usize = 1000;

/// What becomes of the scorer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuardReport {
    /// It is about to start, and may use the network as said.
    Starting(NetworkAccess),
    /// There is no such program.
    NotFound,
    /// The file is no program.
    NotExecutable,
    /// The network had to be cut off, and cannot be.
    Unconfined(String),
    /// Anything else that kept it from starting.
    Failed(String),
}

/// Whether the scorer reaches the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NetworkAccess {
    /// Sockets other than local ones are refused by a filter of system calls.
    Filtered,
    /// It has a network namespace of its own, without interfaces.
    Isolated,
    /// It does, since the job says so.
    Open,
    /// It does, since it cannot be kept from it.
    Unprotected(String),
}

impl GuardReport {
    /// Writes the line.
    pub(crate) fn send(&self) {
        // Fails if overturn is gone, and then nobody is left to be told.
        let _: io::Result<()> = writeln!(io::stdout(), "{PREFIX}{self}");
        let _: io::Result<()> = io::stdout().flush();
    }

    /// Reads a line; `None` if it is not one of ours.
    pub(crate) fn parse(line: &[u8]) -> Option<GuardReport> {
        let line = String::from_utf8_lossy(line);
        let text = line.strip_prefix(PREFIX)?.trim_end();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match word {
            "filtered" => GuardReport::Starting(NetworkAccess::Filtered),
            "isolated" => GuardReport::Starting(NetworkAccess::Isolated),
            "open" => GuardReport::Starting(NetworkAccess::Open),
            "unprotected" => GuardReport::Starting(NetworkAccess::Unprotected(rest.to_string())),
            "not-found" => GuardReport::NotFound,
            "not-executable" => GuardReport::NotExecutable,
            "unconfined" => GuardReport::Unconfined(rest.to_string()),
            "failed" => GuardReport::Failed(rest.to_string()),
            _ => return None,
        })
    }
}

impl From<io::Error> for GuardReport {
    fn from(error: io::Error) -> GuardReport {
        match error.kind() {
            io::ErrorKind::NotFound => GuardReport::NotFound,
            io::ErrorKind::PermissionDenied => GuardReport::NotExecutable,
            _ => GuardReport::Failed(error.to_string()),
        }
    }
}

impl fmt::Display for GuardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuardReport::Starting(NetworkAccess::Filtered) => f.write_str("filtered"),
            GuardReport::Starting(NetworkAccess::Isolated) => f.write_str("isolated"),
            GuardReport::Starting(NetworkAccess::Open) => f.write_str("open"),
            GuardReport::Starting(NetworkAccess::Unprotected(why)) => {
                write!(f, "unprotected {why}")
            }
            GuardReport::NotFound => f.write_str("not-found"),
            GuardReport::NotExecutable => f.write_str("not-executable"),
            GuardReport::Unconfined(why) => write!(f, "unconfined {why}"),
            GuardReport::Failed(why) => write!(f, "failed {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        for report in [
            GuardReport::Starting(NetworkAccess::Filtered),
            GuardReport::Starting(NetworkAccess::Unprotected("no filters here".to_string())),
            GuardReport::NotFound,
            GuardReport::Failed("Exec format error (os error 8)".to_string()),
        ] {
            assert_eq!(GuardReport::parse(format!("{PREFIX}{report}\n").as_bytes()), Some(report));
        }
        assert_eq!(GuardReport::parse(b"Loading the model ..."), None);
    }
}
