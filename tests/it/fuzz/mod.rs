//! Fuzzing without special compilers: everything that reads bytes from outside is fed files that were changed by
//! a seeded mutator. An input may be accepted or refused; it must not panic, abort, overflow the stack, take
//! longer than [`LONGEST`] or more than [`MEMORY`] of memory.
//!
//! Each target runs in a process of its own, this test binary started again, since aborts and stack overflows
//! cannot be caught. `cargo test` does a short round; `tests/fuzz.sh` a long one. What was found is below
//! `OVERTURN_FUZZ_OUT`; inputs that once failed belong into `tests/fuzz/<target>/`, where every round begins.

mod mutate;
mod seeds;
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use serde_json::{Value, json};

use self::mutate::{Mutator, tokens};
use self::targets::{TARGETS, Taken, Target, scratch};
use crate::util::project;

/// Time for one input, at most.
const LONGEST: Duration = Duration::from_secs(20);
/// Memory of a process, at most: an input of a few kilobytes that wants more is a fault.
const MEMORY: u64 = 6 << 30;
/// Growth of resident memory over a round, at most.
const GROWTH_MIB: u64 = 1024;
/// Stack of the fuzzed thread: as much as the main thread of a program has.
const STACK: usize = 8 << 20;
/// Crashes of a target after which it is given up.
const MOST_CRASHES: u64 = 5;
/// Inputs and seconds for each target in the short round.
const SHORT: [(&str, u64, f64); TARGETS.len()] = [
    ("onnx", 20_000, 1.5),
    ("answers", 5_000, 1.5),
    ("journal", 4_000, 1.5),
    ("manifest", 4_000, 1.5),
    ("schema", 2_000, 1.5),
    ("job", 2_000, 1.5),
    ("tensors", 2_000, 1.5),
    ("generator", 1_000, 1.5),
    ("predicate", 2_000, 2.0),
    ("validate", 100, 2.0),
];

/// What a process is asked for.
#[derive(Debug, Clone)]
struct Task {
    target: String,
    inputs: u64,
    seconds: f64,
    seed: u64,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("OVERTURN_FUZZ_{name}")).ok().filter(|value| !value.is_empty())
}

fn number<T: std::str::FromStr>(name: &str, default: T) -> T {
    let Some(text) = variable(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("OVERTURN_FUZZ_{name} is `{text}`, expected a number"))
}

#[test]
fn mutated_files_are_accepted_or_refused() {
    let out = scratch();
    let tasks = SHORT.map(|(target, inputs, seconds)| Task {
        target: target.to_string(),
        inputs,
        seconds,
        seed: 1,
    });
    let results = round(&tasks, out.path());
    for result in &results {
        assert!(result["inputs"].as_u64() > Some(0), "{result}");
        assert_eq!(result["failures"], json!([]), "{}", found_in(out.path()));
    }
}

/// The first bytes of what was found, since the folder is gone with the test.
fn found_in(out: &Path) -> String {
    let files = fs::read_dir(out.join("found")).into_iter().flatten().flatten();
    let shown = files.map(|entry| {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        format!("{:?}: {}", entry.file_name(), bytes[..bytes.len().min(2000)].escape_ascii())
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// The long round of `tests/fuzz.sh`.
#[test]
#[ignore = "takes as long as it is told to: tests/fuzz.sh"]
fn long_round() {
    let Some(out) = variable("OUT").map(PathBuf::from) else { return };
    let wanted: Vec<String> = variable("TARGETS")
        .map_or(TARGETS.map(str::to_string).to_vec(), |names| {
            names.split(',').map(str::to_string).collect()
        });
    let tasks: Vec<Task> = wanted
        .into_iter()
        .map(|target| {
            let inputs = number("INPUTS", 1_000_000);
            let inputs = if target == "validate" { number("VALIDATE", 20_000) } else { inputs };
            Task { target, inputs, seconds: number("SECONDS", 600.0), seed: number("SEED", 1) }
        })
        .collect();
    let results = round(&tasks, &out);
    let failed = results.iter().filter(|result| result["failures"] != json!([])).count();
    fs::write(out.join("fuzz.json"), json!(results).to_string()).expect("written");
    assert_eq!(failed, 0, "see {}", out.join("found").display());
}

/// Runs all tasks, two at a time.
fn round(tasks: &[Task], out: &Path) -> Vec<Value> {
    fs::create_dir_all(out.join("found")).expect("a folder");
    let seeds = seeds::make(out);
    let (next, results) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let result = fuzz(task, &seeds, out);
                    say(&result);
                    results.lock().expect("no panic").push(result);
                }
            });
        }
    });
    results.into_inner().expect("no panic")
}

fn say(result: &Value) {
    if variable("OUT").is_some() {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "{result}");
    }
}

/// One target, in as many processes as it takes: one that dies leaves the input it died of.
fn fuzz(task: &Task, seeds: &Path, out: &Path) -> Value {
    let mut total = json!({"target": task.target, "inputs": 0, "accepted": 0, "internal": 0,
        "seconds": 0.0, "slowest_seconds": 0.0, "grown_mib": 0, "failures": []});
    let (began, mut deaths) = (Instant::now(), 0);
    loop {
        let done = total["inputs"].as_u64().unwrap_or(0);
        let seconds = task.seconds - began.elapsed().as_secs_f64();
        if done >= task.inputs || deaths >= MOST_CRASHES || (deaths > 0 && seconds <= 0.0) {
            break;
        }
        let left =
            Task { inputs: task.inputs - done, seed: task.seed + 1000 * deaths, ..task.clone() };
        let work = scratch();
        let status =
            start(&Task { seconds, ..left }, seeds, work.path(), out).wait().expect("ended");
        let result = fs::read(work.path().join("result.json")).unwrap_or_default();
        add(&mut total, &serde_json::from_slice(&result).unwrap_or_default());
        if status.success() {
            break;
        }
        deaths += 1;
        let kept = out.join("found").join(format!("{}-death-{deaths}", task.target));
        let _ = fs::copy(work.path().join("current"), &kept);
        let log = fs::read_to_string(work.path().join("log")).unwrap_or_default();
        let said: Vec<&str> = log.lines().filter(|line| !line.is_empty()).take(3).collect();
        push_failure(&mut total, &format!("{status}: {}, see {}", said.join(" "), kept.display()));
    }
    if total["grown_mib"].as_u64() > Some(GROWTH_MIB) {
        let grown = format!("memory grew by {} MiB", total["grown_mib"]);
        push_failure(&mut total, &grown);
    }
    total
}

fn push_failure(total: &mut Value, failure: &str) {
    if let Some(failures) = total["failures"].as_array_mut() {
        failures.push(json!(failure));
    }
}

fn add(total: &mut Value, result: &Value) {
    for key in ["inputs", "accepted", "internal"] {
        total[key] = json!(total[key].as_u64().unwrap_or(0) + result[key].as_u64().unwrap_or(0));
    }
    let seconds = |value: &Value, key: &str| value[key].as_f64().unwrap_or(0.0);
    total["seconds"] = json!(seconds(total, "seconds") + seconds(result, "seconds"));
    let slowest = seconds(total, "slowest_seconds").max(seconds(result, "slowest_seconds"));
    total["slowest_seconds"] = json!(slowest);
    total["grown_mib"] = json!(total["grown_mib"].as_u64().max(result["grown_mib"].as_u64()));
    for failure in result["failures"].as_array().into_iter().flatten() {
        push_failure(total, failure.as_str().unwrap_or_default());
    }
}

fn start(task: &Task, seeds: &Path, work: &Path, out: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["fuzz::worker", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("OVERTURN_FUZZ_TARGET", &task.target).env("OVERTURN_FUZZ_SEEDS", seeds);
    command.env("OVERTURN_FUZZ_INPUTS", task.inputs.to_string());
    command.env("OVERTURN_FUZZ_SECONDS", task.seconds.to_string());
    command.env("OVERTURN_FUZZ_SEED", task.seed.to_string());
    command.env("OVERTURN_FUZZ_WORK", work).env("OVERTURN_FUZZ_OUT", out).env("RUST_LOG", "off");
    let log = fs::File::create(work.join("log")).expect("a file");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("started")
}

/// The process of one target; nothing when it is not started by a round.
#[test]
#[ignore = "started by the rounds"]
fn worker() {
    let (Some(target), Some(work), Some(seeds)) =
        (variable("TARGET"), variable("WORK"), variable("SEEDS"))
    else {
        return;
    };
    setrlimit(Resource::RLIMIT_DATA, MEMORY, MEMORY).expect("a limit");
    setrlimit(Resource::RLIMIT_CORE, 0, 0).expect("a limit");
    let task = Task {
        target,
        inputs: number("INPUTS", 1),
        seconds: number("SECONDS", 1.0),
        seed: number("SEED", 0),
    };
    let fed = move || Feeder::new(&task, PathBuf::from(work), Path::new(&seeds)).feed(&task);
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(fed).expect("a thread");
    thread.join().expect("the harness itself is sound");
}

/// Feeds one target and keeps the account.
struct Feeder {
    target: Target,
    mutator: Mutator,
    work: PathBuf,
    found: PathBuf,
    /// Milliseconds since `began` at which the current input was begun.
    began_input: Arc<AtomicU64>,
    began: Instant,
    panics: Arc<Mutex<String>>,
    seen: BTreeSet<String>,
    account: Account,
}

#[derive(Default)]
struct Account {
    inputs: u64,
    accepted: u64,
    internal: u64,
    slowest: Duration,
    failures: Vec<String>,
    memory: u64,
}

impl Feeder {
    fn new(task: &Task, work: PathBuf, seeds: &Path) -> Feeder {
        let mut target = Target::open(&task.target, seeds);
        let dictionary = project().join("tests/fuzz").join(format!("{}.dict", task.target));
        let corpus = std::mem::take(&mut target.corpus);
        let mutator = Mutator::new(task.seed, target.form, corpus, tokens(&dictionary));
        let found = PathBuf::from(variable("OUT").expect("given")).join("found");
        let panics: Arc<Mutex<String>> = Arc::default();
        let last = Arc::clone(&panics);
        // Panics that are caught on purpose are quiet; those that get here are counted.
        std::panic::set_hook(Box::new(move |info| {
            if let Ok(mut last) = last.lock() {
                *last = info.location().map_or_else(String::new, ToString::to_string);
            }
        }));
        Feeder {
            target,
            mutator,
            work,
            found,
            began_input: Arc::default(),
            began: Instant::now(),
            panics,
            seen: BTreeSet::new(),
            account: Account::default(),
        }
    }

    /// The corpus as it is, then as many changed inputs as there is time for.
    fn feed(mut self, task: &Task) {
        self.watch();
        for entry in self.mutator.corpus().to_vec() {
            self.input(task, &entry);
        }
        self.account.memory = resident_mib();
        let limit = Duration::from_secs_f64(task.seconds.max(0.1));
        while self.account.inputs < task.inputs && self.began.elapsed() < limit {
            let input = self.mutator.next_input();
            self.input(task, &input);
            if self.account.inputs.is_multiple_of(1000) {
                self.write_account();
            }
        }
        self.write_account();
    }

    fn input(&mut self, task: &Task, input: &[u8]) {
        fs::write(self.work.join("current"), input).expect("a writable folder");
        let began = Instant::now();
        self.began_input.store(self.began.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        let run = &mut self.target.run;
        let taken = catch_unwind(AssertUnwindSafe(|| run(input)));
        self.began_input.store(0, Ordering::Relaxed);
        self.account.slowest = self.account.slowest.max(began.elapsed());
        self.account.inputs += 1;
        match taken {
            Ok(Taken::Accepted) => self.account.accepted += 1,
            Ok(Taken::Refused) => {}
            Ok(Taken::Internal) => {
                self.account.internal += 1;
                self.keep(task, "internal", input);
            }
            Err(_) => self.panicked(task, input),
        }
    }

    fn panicked(&mut self, task: &Task, input: &[u8]) {
        let place = self.panics.lock().map_or_else(|_| String::new(), |last| last.clone());
        if self.seen.insert(place.clone()) {
            let kept = self.keep(task, "panic", input);
            self.account.failures.push(format!("panic at {place}, see {}", kept.display()));
            self.write_account();
        }
    }

    /// Stores an input, up to a number that somebody will look at.
    fn keep(&self, task: &Task, kind: &str, input: &[u8]) -> PathBuf {
        let number = self.account.internal + self.seen.len() as u64;
        let path = self.found.join(format!("{}-{kind}-{}-{number}", task.target, task.seed));
        if number <= 20 {
            let _ = fs::write(&path, input);
        }
        path
    }

    /// Ends the process when an input takes too long.
    fn watch(&self) {
        let (began_input, began) = (Arc::clone(&self.began_input), self.began);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(200));
                let start = began_input.load(Ordering::Relaxed);
                let now = began.elapsed().as_millis() as u64;
                if start > 0 && now.saturating_sub(start) > LONGEST.as_millis() as u64 {
                    std::process::abort();
                }
            }
        });
    }

    fn write_account(&self) {
        let account = &self.account;
        let grown = resident_mib().saturating_sub(account.memory);
        let result = json!({"inputs": account.inputs, "accepted": account.accepted,
            "internal": account.internal, "seconds": self.began.elapsed().as_secs_f64(),
            "slowest_seconds": account.slowest.as_secs_f64(), "grown_mib": grown,
            "failures": account.failures});
        fs::write(self.work.join("result.json"), result.to_string()).expect("a writable folder");
    }
}

/// The most memory that this process has had, in MiB.
fn resident_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
