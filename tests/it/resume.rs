//! Runs that do not come to their end: killed, told to stop, out of space, or not the only ones. Whatever
//! happens, readers see a whole run or none, and `--resume` ends with the same rows.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::fitted::{APPROVED, LITTLE, QUICK, applications, scorer, with_generator};
use crate::util::{Bench, Run, python, read_table, same_rows};

/// Kills of one run, at random moments. `tests/kill.sh` does 500.
const KILLS: u64 = 4;

/// A run of many small pieces.
fn prepared(rows: u64, lines: &str) -> Bench {
    let bench = Bench::new();
    let table = applications(&bench, rows, &["--files", "2", "--nulls", "0.01"]);
    bench.explain_job(&table, &format!("split_rows = 2000\n{lines}"));
    bench
}

/// What a reader would take from a run.
fn tables(bench: &Bench) -> Vec<RecordBatch> {
    let mut found = vec![
        read_table(&bench.path("out/counterfactuals")),
        read_table(&bench.path("out/rejects")),
    ];
    let reports = ["coverage", "validity", "sparsity", "plausibility", "features", "mmd"];
    let report = |name| read_table(&bench.path(&format!("out/reports/{name}.parquet")));
    found.extend(reports.map(report));
    found
}

fn finished_splits(bench: &Bench) -> usize {
    let journal = fs::read_to_string(bench.path(".out.journal/journal.jsonl")).unwrap_or_default();
    journal.lines().filter(|line| line.starts_with("{\"split\"")).count()
}

/// Waits until so many pieces are finished.
fn wait_for_splits(child: &mut Child, bench: &Bench, splits: usize) {
    let began = Instant::now();
    while finished_splits(bench) < splits {
        assert!(began.elapsed() < Duration::from_secs(120), "never happened");
        assert!(child.try_wait().expect("a process").is_none(), "ended early");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).expect("signalled");
}

fn ended(child: Child) -> Run {
    Run::from(child.wait_with_output().expect("ended"))
}

/// Looks at the output over and over: it must be whole whenever it is there.
fn is_whole(out: &Path) -> bool {
    if !out.exists() {
        return true;
    }
    let text = fs::read_to_string(out.join("manifest.json")).unwrap_or_default();
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(tables) = manifest["tables"].as_array() else { return false };
    let there = |table: &serde_json::Value| {
        let path = out.join(table["path"].as_str().unwrap_or("?"));
        fs::metadata(path).is_ok_and(|file| Some(file.len()) == table["bytes"].as_u64())
    };
    out.join("_SUCCESS").exists() && tables.iter().all(there)
}

#[test]
fn killed_at_any_moment_it_ends_with_the_same_rows() {
    let whole = prepared(24_000, "samples = 2\n");
    let began = Instant::now();
    whole.does("run", &[]).ok();
    let usual = began.elapsed();
    let expected = tables(&whole);
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let bench = prepared(24_000, "samples = 2\n");
    let (out, over) = (bench.path("out"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                assert!(is_whole(&out), "a reader saw part of a run");
                looks += 1;
            }
            looks
        });
        for kills in 0..KILLS {
            let mut child = bench.command("run", &["--resume"]).spawn().expect("started");
            // Later and later, so that something is finished each time.
            let share = random.random_range(0.2..1.0) * (kills + 1) as f64 / KILLS as f64;
            std::thread::sleep(usual.mul_f64(share));
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
        bench.does("run", &["--resume"]).ok();
        over.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("a reader") > 0);
    });
    for (found, expected) in tables(&bench).iter().zip(&expected) {
        assert!(same_rows(found, expected), "another table than without a kill");
    }
    bench.nothing_is_left();
}

#[test]
fn only_unfinished_pieces_are_done_again() {
    let bench = prepared(30_000, "");
    let mut child = bench.command("run", &["--threads", "1"]).spawn().expect("started");
    wait_for_splits(&mut child, &bench, 3);
    child.kill().expect("killed");
    child.wait().expect("ended");
    let finished = finished_splits(&bench);
    // A piece that was done twice counts once.
    let journal = fs::read_to_string(bench.path(".out.journal/journal.jsonl")).expect("readable");
    let twice = journal.lines().find(|line| line.starts_with("{\"split\"")).expect("a split");
    bench.append(".out.journal/journal.jsonl", &format!("{twice}\n"));
    // A piece that was being written, and one of another run: neither may be published.
    bench.write(".out.staging/counterfactuals/part-00999.parquet", "half");
    bench.write(".out.staging/counterfactuals/status=x/part-00000.parquet", "old");
    // An attempt that is refused loses nothing.
    bench.append("job.toml", "[report]\nby = [\"region\"]\n");
    bench.does("run", &["--resume"]).says(1, &expect![[r#"
        error: DIR/out: cannot be resumed: the job, or the version of overturn, changed since the run was stopped
          hint: run without `--resume` to start over
    "#]]);
    bench.replace("job.toml", "[report]\nby = [\"region\"]\n", "");
    // A journal of another version is left as it is.
    let journal = fs::read_to_string(bench.path(".out.journal/journal.jsonl")).expect("readable");
    bench.write(".out.journal/journal.jsonl", &journal.replacen("{\"format\":2,", "{", 1));
    bench.does("run", &["--resume"]).says(1, &expect![[r#"
        error: DIR/out: cannot be resumed: its journal has format 1, expected 2
          hint: another version of overturn has begun the run: resume with that one, or run without `--resume` to start over
    "#]]);
    bench.write(".out.journal/journal.jsonl", &journal);
    let summary = bench.does("run", &["--resume"]).ok().json();
    assert_eq!(summary["splits_resumed"], finished);
    assert_eq!(summary["rows_read"], 30_000);
    let parts = bench.names("out/counterfactuals");
    assert_eq!(parts.len() as u64, summary["splits"].as_u64().expect("a count"), "{parts:?}");
    assert!(parts.iter().all(|part| part.ends_with(".parquet")), "{parts:?}");
}

#[test]
fn a_table_that_changes_in_between() {
    let bench = prepared(30_000, "");
    let mut child = bench.command("run", &[]).spawn().expect("started");
    wait_for_splits(&mut child, &bench, 1);
    child.kill().expect("killed");
    child.wait().expect("ended");
    fs::remove_dir_all(bench.path("applications")).expect("removed");
    applications(&bench, 29_000, &["--files", "2"]);
    bench.does("run", &["--resume"]).says(
        1,
        &expect![[r#"
        error: DIR/out: cannot be resumed: the tables changed since the run was stopped
          hint: run without `--resume` to start over
    "#]],
    );
    bench.does("run", &[]).ok();
    assert_eq!(read_table(&bench.path("out/counterfactuals")).num_rows(), 29_000);
    bench.nothing_is_left();
}

#[test]
fn told_to_stop_it_stops_and_can_go_on() {
    let bench = prepared(30_000, "samples = 4\n");
    for (number, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let before = finished_splits(&bench);
        let mut child = bench.command("run", &["--resume"]).spawn().expect("started");
        wait_for_splits(&mut child, &bench, before + 1);
        let told = Instant::now();
        signal(&child, number);
        ended(child).fails(code, &["interrupted"]);
        assert!(told.elapsed() < Duration::from_secs(10), "took {:?}", told.elapsed());
        assert!(!bench.path("out").exists() && !bench.path(".out.lock").exists());
    }
    let summary = bench.does("run", &["--resume"]).ok().json();
    assert!(summary["splits_resumed"].as_u64() >= Some(2), "{summary}");
    bench.nothing_is_left();
}

/// A run that trains first: what is trained is not trained again.
#[test]
fn killed_after_training_it_keeps_the_generator() {
    let bench = Bench::new();
    let table = applications(&bench, 20_000, &[]);
    bench.job(&table, "max_reject_share = 0.5", None);
    bench.append("job.toml", &format!("{APPROVED}{QUICK}[explain]\nsplit_rows = 2000\n"));
    let mut child = bench.command("run", &[]).spawn().expect("started");
    wait_for_splits(&mut child, &bench, 1);
    child.kill().expect("killed");
    child.wait().expect("ended");
    let weights = |folder: &str| {
        fs::read(bench.path(folder).join("generator/weights.safetensors")).expect("readable")
    };
    let before = weights(".out.staging");
    let run = bench.does("run", &["--resume"]).ok();
    assert!(!run.stderr.contains("training"), "{}", run.stderr);
    assert!(weights("out") == before);
    assert_eq!(run.json()["training"]["steps"], 600);
    assert!(bench.names("out/reports").contains(&"training.parquet".to_string()));
}

#[test]
fn the_same_again_is_no_work_and_another_is_refused() {
    let bench = prepared(6000, "");
    let first = bench.does("run", &[]).ok().json();
    let before = fs::read(bench.path("out/manifest.json")).expect("readable");
    let second = bench.does("run", &["--threads", "1"]).ok().json();
    assert_eq!(second["already_published"], true);
    assert_eq!(second["run_id"], first["run_id"]);
    assert!(fs::read(bench.path("out/manifest.json")).expect("readable") == before);
    bench.replace("job.toml", "split_rows = 2000", "split_rows = 2000\nsamples = 2");
    bench.does("run", &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: already holds the results of a run
          hint: set `output.overwrite = true` to replace them, or choose another `output.dir`
    "#]],
    );
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\noverwrite = true");
    let third = bench.does("run", &[]).ok().json();
    assert_eq!(third["already_published"], false);
    assert_ne!(third["run_id"], first["run_id"]);
    // What another job has finished is not thrown away for reports or for a run that has nothing to do.
    bench.replace("job.toml", "samples = 2", "samples = 3");
    let mut child = bench.command("run", &["--threads", "1"]).spawn().expect("started");
    wait_for_splits(&mut child, &bench, 1);
    child.kill().expect("killed");
    child.wait().expect("ended");
    bench.replace("job.toml", "samples = 3", "samples = 2");
    bench.does("report", &[]).says(
        2,
        &expect![[r#"
        error: DIR/out: has an unfinished run HASH beside it
          hint: finish it with `overturn run JOB --resume`, or start it over, first
    "#]],
    );
    assert_eq!(bench.does("run", &["--resume"]).ok().json()["already_published"], true);
    assert!(finished_splits(&bench) >= 1);
    fs::remove_dir_all(bench.path(".out.journal")).expect("removed");
    fs::remove_dir_all(bench.path(".out.staging")).expect("removed");
    // Killed between publishing and clearing up, it has nothing left to do.
    bench.write(".out.journal/journal.jsonl", "{}\n");
    assert_eq!(bench.does("run", &["--resume"]).ok().json()["already_published"], true);
    bench.nothing_is_left();
}

#[test]
fn two_runs_at_once_cannot_both_publish() {
    let bench = prepared(40_000, "samples = 3\n");
    let mut first = bench.command("run", &[]).spawn().expect("started");
    wait_for_splits(&mut first, &bench, 1);
    // It holds still meanwhile, or it would be done before the others have begun.
    signal(&first, Signal::SIGSTOP);
    bench.does("run", &[]).says(
        2,
        &expect![[r#"
        error: DIR/out: is being written by another run
          hint: wait for it to end, or choose another `output.dir`
    "#]],
    );
    bench.does("run", &["--resume"]).says(
        2,
        &expect![[r#"
        error: DIR/out: is being written by another run
          hint: wait for it to end, or choose another `output.dir`
    "#]],
    );
    signal(&first, Signal::SIGCONT);
    ended(first).ok();
    assert!(is_whole(&bench.path("out")));
}

/// Runs where no file may become longer than so many KiB, as on a disk that is nearly full.
fn run_in_little_space(bench: &Bench, kibibytes: u64) -> Run {
    let script = format!("trap '' XFSZ; ulimit -f {kibibytes}; exec \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_overturn"), "run"]);
    command.arg(bench.path("job.toml")).arg("--resume").stdin(Stdio::null()).env_remove("RUST_LOG");
    Run::of(&mut command)
}

#[test]
fn a_disk_that_is_full_and_one_that_may_not_be_written() {
    let lines = "samples = 8\n";
    let roomy = prepared(40_000, lines);
    roomy.replace("job.toml", "split_rows = 2000", "split_rows = 20000");
    roomy.does("run", &[]).ok();
    let size = |name: &str| fs::metadata(roomy.path("out").join(name)).expect("there").len();
    let part = size("counterfactuals/part-00000.parquet");
    assert!(part > size("generator/reference.safetensors") + 4096, "the part is the largest file");
    let bench = prepared(40_000, lines);
    bench.replace("job.toml", "split_rows = 2000", "split_rows = 20000");
    // Which of the file's writers meets the end of the disk depends on a few bytes.
    run_in_little_space(&bench, part / 1024 - 1)
        .fails(2, &["counterfactuals/part-0", "cannot be written: ", "hint: check the free space"]);
    assert!(!bench.path("out").exists());
    bench.does("run", &["--resume"]).ok();
    for (found, expected) in tables(&bench).iter().zip(&tables(&roomy)) {
        assert!(same_rows(found, expected));
    }
    bench.nothing_is_left();
    // Nobody, root included, can make a folder there.
    bench.replace("job.toml", "dir = \"out\"", "dir = \"/proc/overturn/out\"");
    bench.does("run", &[]).says(2, &expect![[r#"
        error: /proc/overturn/out: its folder cannot be created: No such file or directory (os error 2)
          hint: check the folder's permissions and the free space, or choose another `output.dir`
    "#]]);
}

/// A tiny file system that really is full, where the machine lets us make one.
#[test]
fn a_file_system_without_space() {
    let bench = prepared(12_000, "");
    fs::create_dir(bench.path("small")).expect("a folder");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(bench.path("small"))
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return;
    }
    bench.replace("job.toml", "dir = \"out\"", "dir = \"small/out\"");
    let run = bench.does("run", &[]);
    let left = bench.path("small/out").exists();
    let enlarged = Command::new("mount")
        .args(["-o", "remount,size=64m"])
        .arg(bench.path("small"))
        .status()
        .expect("mount runs");
    let resumed = enlarged.success().then(|| bench.does("run", &["--resume"]));
    let whole = is_whole(&bench.path("small/out")) && bench.path("small/out").exists();
    let read_only = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(bench.path("small"))
        .status()
        .expect("mount runs");
    bench.replace("job.toml", "small/out", "small/again");
    let refused = read_only.success().then(|| bench.does("run", &[]));
    let unmounted = Command::new("umount").arg(bench.path("small")).status().expect("umount runs");
    assert!(unmounted.success());
    run.says(2, &expect![[r#"
        error: DIR/small/.out.staging/generator/reference.safetensors: cannot be written: No space left on device (os error 28)
          hint: check the free space and the permissions of `output.dir`
    "#]]);
    assert!(!left, "something was published");
    if let Some(resumed) = resumed {
        resumed.ok();
        assert!(whole);
    }
    if let Some(refused) = refused {
        refused.fails(2, &["Read-only file system", "hint: "]);
    }
}

/// The model dies in the middle: what is finished stays.
#[test]
fn a_model_that_dies_in_mid_run() {
    let Some(python) = python("a_model_that_dies_in_mid_run") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 12_000, &[]);
    let breaks = "if place == 9 and not os.path.exists('repaired'): open('broken', 'w').close(); os._exit(9)";
    bench.write("scorer.py", &scorer(breaks, LITTLE));
    let predictor = format!(
        "kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]\nworkers = 1\nretries = 0\n\
         repeatable = \"off\""
    );
    bench.job(&table, "max_reject_share = 0.5", Some(&predictor));
    let explain = with_generator("split_rows = 2000\nrefine = \"off\"\n");
    bench.append("job.toml", &format!("{APPROVED}{explain}"));
    bench.does("run", &["--threads", "1"]).says(
        1,
        &expect![[r#"
        error: scorer.py: exited with status 1 in the handshake; its standard error ended with
            out of order
    "#]],
    );
    assert!(!bench.path("out").exists());
    let finished = finished_splits(&bench);
    assert!(finished >= 1, "{finished}");
    bench.write("repaired", "");
    bench.append("scorer.py", "# another version\n");
    bench.does("run", &["--resume"]).says(
        1,
        &expect![[r#"
        error: DIR/out: cannot be resumed: the model changed since the run was stopped
          hint: run without `--resume` to start over
    "#]],
    );
    bench.replace("scorer.py", "# another version\n", "");
    let summary = bench.does("run", &["--resume"]).ok().json();
    assert_eq!(summary["splits_resumed"], finished);
    assert_eq!(summary["rows_explained"], 12_000);
}
