//! Progress bars, on a terminal only; stages as log lines everywhere.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::print::grouped;
use crate::pipeline::{Observer, Progress};

/// What a person at a terminal sees.
struct Bars {
    bar: Mutex<Option<ProgressBar>>,
    shown: bool,
}

/// An observer for this run.
pub(super) fn observer(quiet: bool) -> Observer {
    let shown = !quiet && std::io::stderr().is_terminal();
    Arc::new(Bars { bar: Mutex::new(None), shown })
}

impl Progress for Bars {
    fn stage(&self, name: &str, rows: Option<u64>) {
        tracing::debug!(rows, "{name}");
        self.replace(|| new_bar(name, rows));
    }

    fn steps(&self, name: &str, steps: u64) {
        tracing::debug!(steps, "{name}");
        self.replace(|| new_step_bar(name, steps));
    }

    fn state(&self, words: &str) {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = bar.as_ref() {
            bar.set_message(words.to_string());
        }
    }

    fn advance(&self, rows: u64) {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = bar.as_ref() {
            bar.inc(rows);
        }
    }
}

impl Bars {
    fn replace(&self, make: impl FnOnce() -> ProgressBar) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = bar.take() {
            done.finish_and_clear();
        }
        if self.shown {
            *bar = Some(make());
        }
    }
}

fn new_step_bar(name: &str, steps: u64) -> ProgressBar {
    let template =
        "{prefix:<20} {bar:30} {human_pos}/{human_len} steps  {steps_speed}  {eta} left  {msg}";
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("steps_speed", step_speed));
    }
    bar.with_prefix(name.to_string())
}

fn step_speed(state: &ProgressState, text: &mut dyn std::fmt::Write) {
    let _ = write!(text, "{:.0} steps/s", state.per_sec());
}

fn new_bar(name: &str, rows: Option<u64>) -> ProgressBar {
    let template = match rows {
        Some(_) => "{msg:<20} {bar:30} {human_pos}/{human_len} rows  {speed}  {eta} left",
        None => "{msg:<20} {spinner} {elapsed}",
    };
    let bar = rows.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("speed", speed));
    }
    bar.with_message(name.to_string())
}

/// Rows a second, whole and grouped.
fn speed(state: &ProgressState, text: &mut dyn std::fmt::Write) {
    let _ = write!(text, "{} rows/s", grouped(state.per_sec() as u64));
}

impl Drop for Bars {
    fn drop(&mut self) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = bar.take() {
            bar.finish_and_clear();
        }
    }
}
