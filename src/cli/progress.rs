//! Progress: bars on a terminal, elsewhere a log line every ten seconds.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::print::grouped;
use crate::pipeline::{Observer, Progress};

/// Between two log lines about the same stage.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What a person at a terminal sees.
struct Bars {
    bar: Mutex<Option<ProgressBar>>,
    shown: bool,
}

/// What a log says of a long stage.
struct Lines {
    stage: Mutex<Option<StageProgress>>,
}

/// How far a stage has come.
struct StageProgress {
    name: String,
    /// What is counted: `rows` or `steps`.
    unit: &'static str,
    total: Option<u64>,
    done: u64,
    began: Instant,
    last_line: Instant,
}

/// An observer for this run.
pub(super) fn observer(quiet: bool) -> Observer {
    if std::io::stderr().is_terminal() {
        return Arc::new(Bars { bar: Mutex::new(None), shown: !quiet });
    }
    Arc::new(Lines { stage: Mutex::new(None) })
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Option<StageProgress>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, name: &str, unit: &'static str, total: Option<u64>) {
        let now = Instant::now();
        let name = name.to_string();
        *self.lock() =
            Some(StageProgress { name, unit, total, done: 0, began: now, last_line: now });
    }
}

impl Progress for Lines {
    fn stage(&self, name: &str, rows: Option<u64>) {
        tracing::debug!(rows, "{name}");
        self.begin(name, "rows", rows);
    }

    fn steps(&self, name: &str, steps: u64) {
        tracing::debug!(steps, "{name}");
        self.begin(name, "steps", Some(steps));
    }

    fn advance(&self, count: u64) {
        let mut stage = self.lock();
        let Some(stage) = stage.as_mut() else { return };
        stage.done += count;
        let now = Instant::now();
        if now.duration_since(stage.last_line) >= LINE_EVERY {
            stage.last_line = now;
            tracing::info!("{}", stage.line(now.duration_since(stage.began)));
        }
    }
}

impl StageProgress {
    /// Name, count, rate, and the time left where the total is known.
    fn line(&self, elapsed: Duration) -> String {
        let rate = self.done as f64 / elapsed.as_secs_f64().max(1e-9);
        let (name, unit, done) = (&self.name, self.unit, grouped(self.done));
        let speed = grouped(rate as u64);
        match self.total {
            Some(total) => {
                let left = total.saturating_sub(self.done) as f64 / rate.max(1e-9);
                let (share, total) = (100 * self.done / total.max(1), grouped(total));
                format!(
                    "{name}: {done} of {total} {unit} ({share} %), {speed} {unit}/s, {left:.0} s left"
                )
            }
            None => format!("{name}: {done} {unit}, {speed} {unit}/s"),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_count_rate_and_time_left() {
        let now = Instant::now();
        let mut stage = StageProgress {
            name: "explaining".to_string(),
            unit: "rows",
            total: Some(1_000_000),
            done: 250_000,
            began: now,
            last_line: now,
        };
        let elapsed = Duration::from_secs(10);
        assert_eq!(
            stage.line(elapsed),
            "explaining: 250,000 of 1,000,000 rows (25 %), 25,000 rows/s, 30 s left"
        );
        stage.total = None;
        assert_eq!(stage.line(elapsed), "explaining: 250,000 rows, 25,000 rows/s");
        (stage.total, stage.done) = (Some(0), 5);
        assert!(stage.line(Duration::ZERO).ends_with("0 s left"));
    }
}
