//! Progress: bars on a terminal, elsewhere a log line every ten seconds.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use parking_lot::{Mutex, MutexGuard};

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
    stage: Arc<Mutex<Option<StageProgress>>>,
    /// Ends the thread that writes the lines when it is dropped.
    _alive: Sender<()>,
}

/// How far a stage has come.
struct StageProgress {
    name: String,
    /// What is counted: `rows` or `steps`.
    unit: &'static str,
    total: Option<u64>,
    done: u64,
    began: Instant,
}

/// An observer for this run.
pub(super) fn observer(quiet: bool) -> Observer {
    if std::io::stderr().is_terminal() {
        return Arc::new(Bars { bar: Mutex::new(None), shown: !quiet });
    }
    Arc::new(Lines::start(LINE_EVERY, |line| tracing::info!("{line}")))
}

impl Lines {
    /// Hands a line about the current stage to `say` at every interval, also while nothing advances.
    fn start(every: Duration, say: impl Fn(String) + Send + 'static) -> Lines {
        let stage: Arc<Mutex<Option<StageProgress>>> = Arc::default();
        let (alive, ended) = mpsc::channel::<()>();
        let watched = Arc::clone(&stage);
        let lines = move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let stage = watched.lock();
                // A stage that has just begun has nothing to tell yet.
                let line = stage.as_ref().filter(|stage| stage.began.elapsed() >= every / 2);
                let line = line.map(|stage| stage.line(stage.began.elapsed()));
                drop(stage);
                line.into_iter().for_each(&say);
            }
        };
        // Without a thread there are no lines: the work goes on.
        let _ = thread::Builder::new().name("progress".to_string()).spawn(lines);
        Lines { stage, _alive: alive }
    }

    fn lock(&self) -> MutexGuard<'_, Option<StageProgress>> {
        self.stage.lock()
    }

    fn begin(&self, name: &str, unit: &'static str, total: Option<u64>) {
        let (name, began) = (name.to_string(), Instant::now());
        *self.lock() = Some(StageProgress { name, unit, total, done: 0, began });
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
        if let Some(stage) = self.lock().as_mut() {
            stage.done += count;
        }
    }
}

impl StageProgress {
    /// Name, count, rate, and the time left where the total is known.
    fn line(&self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64();
        if self.done == 0 {
            return format!("{}: {seconds:.0} s so far", self.name);
        }
        let rate = self.done as f64 / seconds.max(1e-9);
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
        let bar = self.bar.lock();
        if let Some(bar) = bar.as_ref() {
            bar.set_message(words.to_string());
        }
    }

    fn advance(&self, rows: u64) {
        let bar = self.bar.lock();
        if let Some(bar) = bar.as_ref() {
            bar.inc(rows);
        }
    }
}

impl Bars {
    fn replace(&self, make: impl FnOnce() -> ProgressBar) {
        let mut bar = self.bar.lock();
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
        let mut bar = self.bar.lock();
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
        stage.done = 0;
        assert_eq!(stage.line(elapsed), "explaining: 10 s so far");
    }

    #[test]
    fn lines_come_at_every_interval_and_end_with_the_observer() {
        let (say, said) = mpsc::channel();
        let lines = Lines::start(Duration::from_millis(20), move |line| {
            let _ = say.send(line);
        });
        lines.stage("explaining", Some(100));
        lines.advance(25);
        let patience = Duration::from_secs(10);
        for _ in 0..2 {
            let line = said.recv_timeout(patience).expect("a line without further progress");
            assert!(line.starts_with("explaining: 25 of 100 rows (25 %), "), "{line}");
            assert!(line.ends_with(" s left"), "{line}");
        }
        drop(lines);
        while said.recv_timeout(patience).is_ok() {}
        assert_eq!(said.recv(), Err(mpsc::RecvError), "the thread has ended");
    }
}
