//! Bars that have to be met, measured so that a busy machine cannot decide: what is compared takes turns
//! within one run, and the median of the rounds counts.

use std::io::Write;
use std::time::Instant;

/// Rounds that the contestants take turns in.
const ROUNDS: usize = 7;

/// One pass over the work by one contestant; gives the seconds it took.
pub(crate) type Pass<'a> = dyn FnMut() -> f64 + 'a;

/// The seconds that work takes.
#[allow(dead_code, reason = "some benches count CPU seconds")]
pub(crate) fn seconds(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64()
}

/// Lets the contestants take turns and gives the seconds of each, round by round. Every other round goes
/// backwards: nobody always comes first. A pass before them warms caches and is not counted.
pub(crate) fn take_turns(contestants: &mut [&mut Pass<'_>]) -> Vec<Vec<f64>> {
    for pass in contestants.iter_mut() {
        pass();
    }
    let mut seconds = vec![Vec::with_capacity(ROUNDS); contestants.len()];
    for round in 0..ROUNDS {
        for turn in 0..contestants.len() {
            let who = if round % 2 == 0 { turn } else { contestants.len() - 1 - turn };
            seconds[who].push(contestants[who]());
        }
    }
    seconds
}

/// The number in the middle.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Whether the bars are to be measured: benchmarks can also be tried, listed or profiled.
pub(crate) fn is_measured() -> bool {
    let asked = |option: &str| std::env::args().any(|argument| argument == option);
    let otherwise = ["--test", "--list", "--profile-time"];
    asked("--bench") && !otherwise.into_iter().any(asked)
}

/// Says a line: the last lines of a benchmark are for people who do not read the rest.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A bar to be reached, or to be kept below.
#[allow(dead_code, reason = "some benches are held against others")]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bar {
    /// So much at least.
    Least(f64),
    /// So much at most.
    Most(f64),
}

/// Says whether a bar is met.
#[allow(dead_code, reason = "some benches are held against others")]
pub(crate) fn verdict(found: f64, bar: Bar) -> String {
    let (met, sign, bar) = match bar {
        Bar::Least(bar) => (found >= bar, ">=", bar),
        Bar::Most(bar) => (found <= bar, "<=", bar),
    };
    format!("({sign} {bar}: {})", if met { "met" } else { "MISSED" })
}
