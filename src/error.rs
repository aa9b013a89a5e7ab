//! The one error type, sorted by who must act on it, and the exit codes that follow from that.
//!
//! An error is a list of faults (usually one): a file with five mistakes is reported once, with all
//! five. Library errors are only ever sources; what a user reads first is our own sentence.

use std::fmt;

/// A boxed foreign error, kept as the cause of one of ours.
pub type BoxedError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// What every fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who must act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The author of the job or feature schema: a file cannot be used as written.
    Spec,
    /// The author of the feature schema: it and the table disagree.
    Schema,
    /// Whoever delivers the tables: missing, unreadable, empty or contradictory data.
    Input,
    /// Whoever delivers the model: it does not load, or its predictions cannot be used.
    Predictor,
    /// The author of the job: training came to no usable generator.
    Training,
    /// The author of the job: a run did not reach what the job demands of it.
    Gate,
    /// Whoever runs the machine: the output cannot be written.
    Output,
    /// Whoever runs the machine: memory, disk or a device is lacking.
    Resources,
    /// We: a bug. Nothing a user writes may cause it.
    Internal,
    /// Nobody: a signal (its number) asked the program to stop.
    Interrupted(i32),
}

/// One thing that is wrong: where, what was found against what was expected, and what may help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file, key, column or program concerned.
    pub subject: String,
    /// What was found and what was expected.
    pub problem: String,
    /// What the reader can do about it.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault without a hint.
    pub fn new(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Fault { subject: subject.into(), problem: problem.into(), hint: None }
    }

    /// Adds what the reader can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.problem)
    }
}

/// Faults that are listed; of more, only the number is told.
pub const MOST_FAULTS: usize = 100;

/// Why something could not be done.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    faults: Vec<Fault>,
    source: Option<BoxedError>,
}

impl Error {
    /// An error with a single fault.
    pub fn new(kind: Kind, subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Error { kind, faults: vec![Fault::new(subject, problem)], source: None }
    }

    /// An error with every fault that was found; `Ok` when there is none.
    pub fn from_faults(kind: Kind, faults: Vec<Fault>) -> Result<()> {
        if faults.is_empty() { Ok(()) } else { Err(Error::of_faults(kind, faults)) }
    }

    /// An error with faults that there are. Of very many, the first are listed and the others counted.
    pub fn of_faults(kind: Kind, mut faults: Vec<Fault>) -> Self {
        if faults.len() > MOST_FAULTS {
            let more = faults.len() - MOST_FAULTS;
            faults.truncate(MOST_FAULTS);
            faults.push(Fault::new("…", format!("and {more} more faults of this kind")));
        }
        Error { kind, faults, source: None }
    }

    /// The job or schema file cannot be used as written.
    pub fn spec(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::new(Kind::Spec, subject, problem)
    }

    /// Schema and table disagree.
    pub fn schema(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::new(Kind::Schema, subject, problem)
    }

    /// The tables cannot be used as delivered.
    pub fn input(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::new(Kind::Input, subject, problem)
    }

    /// The model cannot be used as delivered.
    pub fn predictor(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::new(Kind::Predictor, subject, problem)
    }

    /// Training came to no usable generator.
    pub fn training(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::new(Kind::Training, subject, problem)
    }

    /// The output cannot be written.
    pub fn output(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::new(Kind::Output, subject, problem)
    }

    /// Memory, disk or a device is lacking.
    pub fn resources(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::new(Kind::Resources, subject, problem)
    }

    /// A bug of ours.
    pub fn internal(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::new(Kind::Internal, subject, problem)
            .hint("this is a bug in overturn; please report it with the command and the log")
    }

    /// A signal asked the program to stop.
    pub fn interrupted(signal: i32) -> Self {
        Error::new(Kind::Interrupted(signal), "overturn", "stopped by a signal, nothing published")
    }

    /// Adds a hint to the last fault.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(fault) = self.faults.last_mut() {
            fault.hint = Some(hint.into());
        }
        self
    }

    /// Keeps the foreign error that caused this one.
    #[must_use]
    pub fn source(mut self, source: impl Into<BoxedError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Who must act.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// All that is wrong.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The process's exit code: 1 the user can fix it, 2 the rest, 3 a gate of the job, 128 + n for signal n.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Spec | Kind::Schema | Kind::Input | Kind::Predictor => 1,
            Kind::Training | Kind::Output | Kind::Resources | Kind::Internal => 2,
            Kind::Gate => 3,
            Kind::Interrupted(signal) => 128 + signal as u8,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
            if let Some(hint) = &fault.hint {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_who_must_act() {
        assert_eq!(Error::spec("job.toml", "is empty").exit_code(), 1);
        assert_eq!(Error::predictor("model.onnx", "is corrupt").exit_code(), 1);
        assert_eq!(Error::output("out", "is read-only").exit_code(), 2);
        assert_eq!(Error::interrupted(15).exit_code(), 143);
    }

    #[test]
    fn all_faults_are_shown_with_their_hints() {
        let faults = vec![Fault::new("a", "is 0").hint("use 1"), Fault::new("b", "is missing")];
        let error = Error::from_faults(Kind::Spec, faults).expect_err("two faults are an error");
        assert_eq!(error.to_string(), "a: is 0\n  hint: use 1\nb: is missing");
    }
}
