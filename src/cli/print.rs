//! The only way to standard output and standard error.

use std::cell::RefCell;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;
use tracing_subscriber::fmt::format::Writer as FormatWriter;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::{Global, LogFormat, SummaryFormat};
use crate::error::{Error, Fault, Kind, Result};

/// Prints results and errors.
#[derive(Debug)]
pub(super) struct Printer {
    format: SummaryFormat,
    log: LogFormat,
    /// Why data could not be written.
    failure: RefCell<Option<io::Error>>,
}

impl Printer {
    pub(super) fn new(global: &Global) -> Printer {
        Printer { format: global.format, log: global.log, failure: RefCell::default() }
    }

    /// Data, as it is.
    pub(super) fn data(&self, text: &str) {
        if let Err(error) = written(text.trim_end()) {
            self.failure.replace(Some(error));
        }
    }

    /// Whether all data could be written; `done` says what holds all the same.
    ///
    /// # Errors
    /// When some could not.
    pub(super) fn finish(&self, done: &str) -> Result<()> {
        match self.failure.take() {
            Some(error) => Err(unwritable(&error, done)),
            None => Ok(()),
        }
    }

    /// A summary: JSON on one line, or what `text` makes of it.
    pub(super) fn summary<T: Serialize>(&self, summary: &T, text: impl FnOnce(&T) -> String) {
        match self.format {
            SummaryFormat::Text => self.data(&text(summary)),
            SummaryFormat::Json => match serde_json::to_string(summary) {
                Ok(json) => self.data(&json),
                Err(error) => tracing::error!("the summary has no JSON: {error}"),
            },
        }
    }

    /// An error with its faults, hints and causes; a line of the log where that is JSON.
    pub(super) fn error(&self, error: &Error) {
        if self.log == LogFormat::Json {
            let fault = |fault: &Fault| json!({ "subject": fault.subject, "problem": fault.problem, "hint": fault.hint });
            let line = json!({
                "timestamp": timestamp(),
                "level": "ERROR",
                "message": error.to_string(),
                "faults": error.faults().iter().map(fault).collect::<Vec<_>>(),
                "causes": causes(error).collect::<Vec<_>>(),
                "exit_code": error.exit_code(),
            });
            let _ = writeln!(std::io::stderr().lock(), "{line}");
            return;
        }
        let mut text = String::new();
        if matches!(error.kind(), Kind::Interrupted(_)) {
            text.push_str("interrupted: ");
        } else {
            text.push_str(if error.faults().len() > 1 { "errors:\n" } else { "error: " });
        }
        text.push_str(&error.to_string());
        for cause in causes(error) {
            text.push_str(&format!("\n  because: {}", cause.replace('\n', "\n  ")));
        }
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// Writes data. A reader that has gone away (`| head`) has seen enough.
fn written(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Standard output cannot be written.
pub(super) fn unwritable(error: &io::Error, done: &str) -> Error {
    Error::output("standard output", format!("cannot be written: {error}")).hint(done)
}

/// Now, as log lines tell it.
fn timestamp() -> String {
    let mut text = String::new();
    let _ = SystemTime.format_time(&mut FormatWriter::new(&mut text));
    text
}

/// What an error comes from, the nearest cause first.
fn causes(error: &Error) -> impl Iterator<Item = String> {
    let first = std::error::Error::source(error);
    std::iter::successors(first, |cause| cause.source()).map(ToString::to_string)
}

/// A number with separators between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Lines of a summary: names on the left, values in a column.
pub(super) fn lines(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let texts: Vec<String> = [0, 999, 1000, 1_234_567].into_iter().map(grouped).collect();
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
