//! Drains a program's standard error into the log, so that a talkative program neither blocks on a full
//! pipe nor floods us, and keeps its last words for the error message.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::process::ChildStderr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Lines kept for an error message: a traceback's end fits.
const LINES_KEPT: usize = 12;

/// Bytes kept of one line; the rest of it is dropped.
const LINE_LENGTH: usize = 1000;

/// Lines logged per second; the rest is counted.
const LINES_PER_SECOND: u32 = 20;

/// What a program says on its standard error.
pub(super) struct Stderr {
    shared: Arc<StderrState>,
}

#[derive(Default)]
struct StderrState {
    heard: Mutex<Heard>,
    closed: Condvar,
}

#[derive(Default)]
struct Heard {
    last_lines: VecDeque<String>,
    closed: bool,
}

impl Stderr {
    /// Starts to drain. The thread ends with the pipe and is not joined: a descendant of the program
    /// that left its process group may hold the pipe open for as long as it likes.
    pub(super) fn drain(pipe: ChildStderr, worker: usize) -> io::Result<Stderr> {
        let shared = Arc::new(StderrState::default());
        let listener = Arc::clone(&shared);
        thread::Builder::new()
            .name(format!("scorer-{worker}-stderr"))
            .spawn(move || listen(pipe, worker, &listener))?;
        Ok(Stderr { shared })
    }

    /// The last lines, once the pipe is closed or `patience` has run out.
    pub(super) fn last_lines(&self, patience: Duration) -> Vec<String> {
        let mut heard = self.shared.lock();
        self.shared.closed.wait_while_for(&mut heard, |heard| !heard.closed, patience);
        heard.last_lines.iter().cloned().collect()
    }
}

impl StderrState {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock()
    }

    fn keep(&self, line: &str) {
        let mut heard = self.lock();
        if heard.last_lines.len() == LINES_KEPT {
            heard.last_lines.pop_front();
        }
        heard.last_lines.push_back(line.to_string());
    }
}

fn listen(mut pipe: impl Read, worker: usize, shared: &StderrState) {
    let (mut lines, mut gate) = (LineSplitter::default(), LineQuota::new(Instant::now()));
    let mut hear = |line: &str| {
        shared.keep(line);
        match gate.pass(Instant::now()) {
            LogGate::Shut => {}
            LogGate::Open { left_out: 0 } => {
                tracing::info!(target: "overturn::scorer", worker, "{line}");
            }
            LogGate::Open { left_out } => {
                tracing::info!(target: "overturn::scorer", worker, left_out, "{line}");
            }
        }
    };
    let mut chunk = [0; 16 << 10];
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => lines.push(&chunk[..read], &mut hear),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    lines.end(&mut hear);
    shared.lock().closed = true;
    shared.closed.notify_all();
}

/// Cuts bytes into lines of bounded length.
#[derive(Default)]
struct LineSplitter {
    unfinished: Vec<u8>,
}

impl LineSplitter {
    fn push(&mut self, bytes: &[u8], hear: &mut impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_LENGTH.saturating_sub(self.unfinished.len());
            self.unfinished.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end(hear);
            }
        }
    }

    fn end(&mut self, hear: &mut impl FnMut(&str)) {
        let line = String::from_utf8_lossy(&self.unfinished);
        let line = line.trim_end();
        if !line.is_empty() {
            hear(line);
        }
        self.unfinished.clear();
    }
}

/// Lets so many lines per second into the log and counts the others.
struct LineQuota {
    second: Instant,
    passed: u32,
    left_out: u64,
}

/// Whether a line goes into the log.
#[derive(Debug, PartialEq, Eq)]
enum LogGate {
    /// It does, after so many that did not.
    Open { left_out: u64 },
    /// It does not.
    Shut,
}

impl LineQuota {
    fn new(now: Instant) -> Self {
        LineQuota { second: now, passed: 0, left_out: 0 }
    }

    fn pass(&mut self, now: Instant) -> LogGate {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.passed) = (now, 0);
        }
        if self.passed == LINES_PER_SECOND {
            self.left_out += 1;
            return LogGate::Shut;
        }
        self.passed += 1;
        LogGate::Open { left_out: std::mem::take(&mut self.left_out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_bounded() {
        let (mut lines, mut heard) = (LineSplitter::default(), Vec::new());
        let mut hear = |line: &str| heard.push(line.to_string());
        lines.push(b"one\ntw", &mut hear);
        lines.push(b"o\n\n", &mut hear);
        lines.push(&[b'x'; 3 * LINE_LENGTH], &mut hear);
        lines.end(&mut hear);
        assert_eq!(heard[..2], ["one", "two"]);
        assert_eq!(heard[2].len(), LINE_LENGTH);
    }

    #[test]
    fn a_flood_is_counted_not_logged() {
        let start = Instant::now();
        let mut gate = LineQuota::new(start);
        let open = (0..1000).filter(|_| gate.pass(start) != LogGate::Shut).count();
        assert_eq!(open, LINES_PER_SECOND as usize);
        let later = start + Duration::from_millis(1001);
        assert_eq!(gate.pass(later), LogGate::Open { left_out: 980 });
    }
}
