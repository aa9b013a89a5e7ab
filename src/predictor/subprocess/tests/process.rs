//! Pipes, processes and threads.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::LargeStringArray;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// Whether a process is there and has not ended.
fn is_running(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("State:") && !status.contains("State:\tZ")
}

fn read_pid(file: &Path) -> i32 {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Ok(pid) = text.trim().parse() {
            return pid;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no pid in {}", file.display());
        thread::sleep(Duration::from_millis(5));
    }
}

/// A scorer that leaves its number and that of a child of its own, then ignores the end of its input.
const STUBBORN: &str = "
import subprocess
child = subprocess.Popen(['sleep', '600'])
open('child', 'w').write(str(child.pid))
open('pid', 'w').write(str(os.getpid()))
serve(lambda ids: [parity(ids)])
if os.path.exists('stubborn'): time.sleep(600)
";

#[test]
fn nothing_is_left_running() {
    let Some(scorers) = Scorers::new() else { return };
    for stubborn in [false, true] {
        if stubborn {
            fs::write(scorers.path("stubborn"), "").unwrap();
        }
        let predictor = scorers.open(STUBBORN).unwrap();
        predictor.predict(&ids(0..10)).unwrap();
        let pids = ["pid", "child"].map(|file| read_pid(&scorers.path(file)));
        assert!(pids.iter().all(|&pid| is_running(pid)));
        let start = Instant::now();
        drop(predictor);
        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(!is_running(pids[0]));
        // The child of the program is the system's to reap, a moment later perhaps.
        while is_running(pids[1]) && start.elapsed() < Duration::from_secs(8) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!is_running(pids[1]), "a descendant survives");
    }
}

#[test]
fn a_copy_killed_between_batches_is_replaced() {
    let Some(scorers) = Scorers::new() else { return };
    let mut program =
        scorers.job("open('pid', 'w').write(str(os.getpid()))\nserve(lambda ids: [parity(ids)])");
    program.retries = 1;
    let predictor = open(&program).unwrap();
    predictor.predict(&ids(0..10)).unwrap();
    kill(Pid::from_raw(read_pid(&scorers.path("pid"))), Signal::SIGKILL).unwrap();
    let scores = predictor.predict(&ids(0..10)).unwrap();
    assert!(scores.failures.is_empty());
}

#[test]
fn a_program_that_answers_while_it_reads_does_not_deadlock() {
    // 20 MB each way through `cat`, which holds no more than a pipe's worth itself.
    let batch = values(0..2_500_000);
    let scores = open_cat(1).predict(&batch).unwrap();
    let Outcome::Values(answers) = scores.outcome else { panic!("values were asked for") };
    assert!(answers.iter().enumerate().all(|(row, &value)| value == row as f64));
}

#[test]
fn a_program_that_reads_before_it_answers_does_not_deadlock() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
fields = [('label', pa.int64()), ('probabilities', pa.list_(pa.float64(), 250))]
metadata['overturn.classes'] = str(list(range(250)))
serve(lambda ids: [ids, [[1.0] + [0.0] * 249] * len(ids)], fields, metadata)
";
    let text = "x".repeat(2_000);
    let texts: ArrayRef = Arc::new(LargeStringArray::from(vec![text.as_str(); 10_000]));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..10_000).map(|id| id % 250)));
    let batch = RecordBatch::try_from_iter([("id", numbers), ("text", texts)]).unwrap();
    let program = scorers.job(body);
    let columns = columns(&batch);
    let predictor =
        SubprocessPredictor::open(&classifier(&program), &program, &columns, 1).unwrap();
    let scores = predictor.predict(&batch).unwrap();
    assert!(labels(&scores).iter().enumerate().all(|(row, &label)| label == row as u32 % 250));
}

#[test]
fn threads_share_the_copies() {
    let predictor = open_cat(3);
    assert_eq!(predictor.parallelism(), 3);
    thread::scope(|scope| {
        for thread in 0..6 {
            let predictor = &predictor;
            scope.spawn(move || {
                for round in 0..50 {
                    let first = thread * 1000 + round;
                    let scores = predictor.predict(&values(first..first + 100)).unwrap();
                    let Outcome::Values(answers) = scores.outcome else { panic!("values") };
                    assert!(answers.iter().zip(first..).all(|(&value, id)| value == id as f64));
                }
            });
        }
    });
}

#[test]
fn an_empty_batch_needs_no_program() {
    let scores = open_cat(1).predict(&values(0..0)).unwrap();
    assert_eq!((scores.rows, scores.outcome), (0, Outcome::Values(Vec::new())));
}

#[test]
fn the_environment_tells_version_and_worker() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
names = ['OVERTURN_PROTOCOL', 'OVERTURN_WORKER', 'OMP_NUM_THREADS']
open('environment', 'w').write(' '.join(os.environ[name] for name in names))
serve(lambda ids: [parity(ids)])
";
    let mut program = scorers.job(body);
    program.workers = 2;
    SubprocessPredictor::open(&classifier(&program), &program, &columns(&ids(0..0)), 8).unwrap();
    assert_eq!(fs::read_to_string(scorers.path("environment")).unwrap(), "1 0 4");
}
