//! Why one copy of the program failed, in the words a user reads.

use std::fmt;
use std::time::Duration;

use crate::error::Error;

/// What is to be done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The program ended by itself: a fresh copy may do better.
    Exited,
    /// It did something that leaves its stream unusable. As above.
    Broke,
    /// It gave no answer in time. As above, but finding the offending rows costs a limit per try.
    TimedOut,
    /// It is not the program that was expected, or its earlier answers are in doubt: nothing to retry.
    Refused,
}

/// What the program was doing when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// Starting and answering the batch of zero rows.
    Handshake,
    /// Scoring a batch of so many rows.
    Batch(usize),
}

impl Occasion {
    /// The job file's key for the time limit.
    pub(super) fn key(self) -> &'static str {
        match self {
            Occasion::Handshake => "predictor.start_seconds",
            Occasion::Batch(_) => "predictor.batch_seconds",
        }
    }
}

impl fmt::Display for Occasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Occasion::Handshake => f.write_str("in the handshake"),
            Occasion::Batch(1) => f.write_str("on a batch of 1 row"),
            Occasion::Batch(rows) => write!(f, "on a batch of {rows} rows"),
        }
    }
}

/// One failure of one copy of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// What is to be done about it.
    pub(super) cause: Cause,
    /// What happened, without the program's name.
    pub(super) problem: String,
    /// What the reader can do about it.
    pub(super) hint: Option<String>,
    /// When it happened.
    pub(super) occasion: Option<Occasion>,
    /// The last lines the program wrote to its standard error.
    pub(super) last_lines: Vec<String>,
}

impl Failure {
    /// An end that nobody asked for.
    pub(super) fn exited(problem: impl Into<String>) -> Self {
        Failure::new(Cause::Exited, problem)
    }

    /// A failure that a fresh copy may not have.
    pub(super) fn broke(problem: impl Into<String>) -> Self {
        Failure::new(Cause::Broke, problem)
    }

    /// A failure that would come again.
    pub(super) fn refused(problem: impl Into<String>) -> Self {
        Failure::new(Cause::Refused, problem)
    }

    /// No answer in time.
    pub(super) fn timed_out(limit: Duration, occasion: Occasion) -> Self {
        let (seconds, key) = (limit.as_secs_f64(), occasion.key());
        let problem = format!("gave no answer within {seconds} s (`{key}`) and was killed");
        Failure::new(Cause::TimedOut, problem)
    }

    fn new(cause: Cause, problem: impl Into<String>) -> Self {
        let (problem, last_lines) = (problem.into(), Vec::new());
        Failure { cause, problem, hint: None, occasion: None, last_lines }
    }

    /// Adds what the reader can do about it.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The failure in one line, as the reason for which a row is rejected. What a program said last
    /// belongs to it only where the program then exited.
    pub(super) fn detail(&self) -> String {
        match self.last_lines.last() {
            Some(line) if self.cause == Cause::Exited => format!("{}: {line}", self.problem),
            _ => self.problem.clone(),
        }
    }

    /// The failure of the program as a whole.
    pub(super) fn into_error(self, program: &str) -> Error {
        let error = Error::predictor(program, self.to_string());
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        if let Some(occasion) = self.occasion {
            write!(f, " {occasion}")?;
        }
        if !self.last_lines.is_empty() {
            write!(f, "; its standard error ended with\n    {}", self.last_lines.join("\n    "))?;
        }
        Ok(())
    }
}
