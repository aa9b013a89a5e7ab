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
pub(crate) enum Report {
    /// It is about to start, and may use the network as said.
    Starting(Network),
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
pub(crate) enum Network {
    /// Sockets other than local ones are refused by a filter of system calls.
    Filtered,
    /// It has a network namespace of its own, without interfaces.
    Isolated,
    /// It does, since the job says so.
    Open,
    /// It does, since it cannot be kept from it.
    Unprotected(String),
}

impl Report {
    /// Writes the line.
    pub(crate) fn send(&self) {
        // Fails if overturn is gone, and then nobody is left to be told.
        let _: io::Result<()> = writeln!(io::stdout(), "{PREFIX}{self}");
        let _: io::Result<()> = io::stdout().flush();
    }

    /// Reads a line; `None` if it is not one of ours.
    pub(crate) fn parse(line: &[u8]) -> Option<Report> {
        let line = String::from_utf8_lossy(line);
        let text = line.strip_prefix(PREFIX)?.trim_end();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match word {
            "filtered" => Report::Starting(Network::Filtered),
            "isolated" => Report::Starting(Network::Isolated),
            "open" => Report::Starting(Network::Open),
            "unprotected" => Report::Starting(Network::Unprotected(rest.to_string())),
            "not-found" => Report::NotFound,
            "not-executable" => Report::NotExecutable,
            "unconfined" => Report::Unconfined(rest.to_string()),
            "failed" => Report::Failed(rest.to_string()),
            _ => return None,
        })
    }
}

impl From<io::Error> for Report {
    fn from(error: io::Error) -> Report {
        match error.kind() {
            io::ErrorKind::NotFound => Report::NotFound,
            io::ErrorKind::PermissionDenied => Report::NotExecutable,
            _ => Report::Failed(error.to_string()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Starting(Network::Filtered) => f.write_str("filtered"),
            Report::Starting(Network::Isolated) => f.write_str("isolated"),
            Report::Starting(Network::Open) => f.write_str("open"),
            Report::Starting(Network::Unprotected(why)) => write!(f, "unprotected {why}"),
            Report::NotFound => f.write_str("not-found"),
            Report::NotExecutable => f.write_str("not-executable"),
            Report::Unconfined(why) => write!(f, "unconfined {why}"),
            Report::Failed(why) => write!(f, "failed {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        for report in [
            Report::Starting(Network::Filtered),
            Report::Starting(Network::Unprotected("no filters here".to_string())),
            Report::NotFound,
            Report::Failed("Exec format error (os error 8)".to_string()),
        ] {
            assert_eq!(Report::parse(format!("{PREFIX}{report}\n").as_bytes()), Some(report));
        }
        assert_eq!(Report::parse(b"Loading the model ..."), None);
    }
}
