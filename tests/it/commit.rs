//! What is published, when, and what is left of a run that does not get that far.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::util::{Bench, credit, overturn, program, python, read_table};

/// A scorer that shakes hands and then takes its time.
const SLOW: &str = r#"
import os, sys, time
answers = os.fdopen(os.dup(1), "wb"); os.dup2(2, 1)
import pyarrow as pa
batches = pa.ipc.open_stream(sys.stdin.buffer)
schema = pa.schema([("label", pa.string())], {"overturn.protocol": "1", "overturn.classes": '["a", "b"]'})
with pa.ipc.new_stream(answers, schema) as stream:
    for batch in batches:
        if batch.num_rows:
            print("scoring", flush=True)
            time.sleep(60)
        stream.write_batch(pa.record_batch([pa.array(["a"] * batch.num_rows)], schema=schema))
        answers.flush()
"#;

/// A job that hangs in its first batch.
fn slow_job(bench: &Bench, table: &str, python: &Path) -> String {
    bench.write("slow.py", SLOW);
    let predictor =
        format!("kind = \"subprocess\"\ncommand = [{python:?}, \"./slow.py\"]\nworkers = 1");
    bench.job(table, "", Some(&predictor))
}

#[test]
fn a_published_folder_is_whole_and_describes_itself() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(3000));
    bench.score(&table, "where = \"age < 40\"").ok();
    let mut names: Vec<_> = fs::read_dir(bench.path("out"))
        .expect("published")
        .flatten()
        .map(|entry| entry.file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    assert_eq!(names, ["_SUCCESS", "manifest.json", "rejects", "scores"]);
    let manifest = fs::read_to_string(bench.path("out/manifest.json")).expect("readable");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    let scores = read_table(&bench.path("out/scores"));
    let listed = manifest["tables"].as_array().expect("a list").iter();
    let rows: u64 = listed
        .filter(|entry| entry["path"].as_str().expect("a path").starts_with("scores/"))
        .map(|entry| entry["rows"].as_u64().expect("a number"))
        .sum();
    assert_eq!(rows, scores.num_rows() as u64);
    assert_eq!(manifest["summary"]["rows_scored"].as_u64(), Some(rows));
    assert_eq!(read_table(&bench.path("out/rejects")).num_rows(), 0);
}

#[test]
fn earlier_results_are_replaced_only_when_the_job_says_so() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(100));
    bench.score(&table, "").ok();
    bench.score(&table, "").says(
        1,
        &expect![[r#"
        error: DIR/out: already holds the results of a run
          hint: set `output.overwrite = true` to replace them, or choose another `output.dir`
    "#]],
    );
    let job = bench.job(&table, "where = \"age < 30\"", None);
    let text = fs::read_to_string(&job)
        .expect("readable")
        .replace("dir = \"out\"", "dir = \"out\"\noverwrite = true");
    fs::write(&job, text).expect("written");
    overturn(&["score", &job]).ok();
    assert!(read_table(&bench.path("out/scores")).num_rows() < 100);
    assert!(!bench.path(".out.staging").exists() && !bench.path(".out.lock").exists());
}

#[test]
fn an_output_that_cannot_be_written() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(100));
    // A file where a folder is needed stops everybody, root included.
    bench.write("file", "");
    let job = bench.job(&table, "", None);
    let text =
        fs::read_to_string(&job).expect("readable").replace("dir = \"out\"", "dir = \"file/out\"");
    fs::write(&job, text).expect("written");
    overturn(&["score", &job]).says(
        2,
        &expect![[r#"
        error: DIR/file/out: its folder cannot be created: File exists (os error 17)
          hint: check the folder's permissions and the free space, or choose another `output.dir`
    "#]],
    );
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !root {
        fs::create_dir(bench.path("closed")).expect("a folder");
        fs::set_permissions(bench.path("closed"), fs::Permissions::from_mode(0o555))
            .expect("closed");
        let job = bench.job(&table, "", None);
        let text = fs::read_to_string(&job)
            .expect("readable")
            .replace("dir = \"out\"", "dir = \"closed/out\"");
        fs::write(&job, text).expect("written");
        overturn(&["score", &job]).fails(2, &["closed/out: cannot be written"]);
    }
}

#[test]
fn sigterm_in_mid_run_publishes_nothing() {
    let Some(python) = python("sigterm_in_mid_run_publishes_nothing") else { return };
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(300));
    let job = slow_job(&bench, &table, &python);
    let mut child =
        program().args(["score", &job]).stderr(Stdio::piped()).spawn().expect("started");
    // The scorer says on its standard error, which is logged, that a batch has reached it.
    let mut stderr = child.stderr.take().expect("piped");
    let mut said = String::new();
    let mut byte = [0u8; 1];
    while !said.contains("scoring") {
        let read = stderr.read(&mut byte).expect("readable");
        assert!(read > 0, "ended early: {said}");
        said.push(char::from(byte[0]));
    }
    let told = Instant::now();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("signalled");
    let status = child.wait().expect("ended");
    stderr.read_to_string(&mut said).expect("readable");
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(told.elapsed() < Duration::from_secs(10), "took {:?}", told.elapsed());
    for left in ["out", ".out.staging", ".out.lock"] {
        assert!(!bench.path(left).exists(), "{left} is left");
    }
}

#[test]
fn a_killed_run_leaves_nothing_that_a_reader_or_the_next_run_minds() {
    let Some(python) = python("a_killed_run_leaves_nothing_that_a_reader_or_the_next_run_minds")
    else {
        return;
    };
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(300));
    let job = slow_job(&bench, &table, &python);
    let mut child = program().args(["score", &job]).stderr(Stdio::null()).spawn().expect("started");
    let began = Instant::now();
    while !bench.path(".out.staging").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(!bench.path("out").exists());
    bench.score(&table, "").ok();
    assert_eq!(read_table(&bench.path("out/scores")).num_rows(), 300);
    assert!(!bench.path(".out.staging").exists());
}
