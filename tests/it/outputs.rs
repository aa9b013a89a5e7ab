//! What is replaced, what never is, what stays beside a run, and whether a published run can be proven whole.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, StringArray};
use expect_test::expect;
use serde_json::{Value, json};

use crate::fitted::{APPROVED, QUICK, applications, generator};
use crate::util::{
    Bench, Run, credit, overturn, project, python, read_table, run_python, with_column,
};

/// A job that scores a small table, with further lines in its section `[output]`.
fn scoring(output: &str) -> Bench {
    let bench = Bench::new();
    let table = bench.parquet("table/t.parquet", &credit(200));
    bench.job(&table, "", None);
    bench.append("job.toml", output);
    bench
}

/// Every file below a folder, with its content.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(snapshot(&path));
        } else {
            let content = fs::read(&path).expect("readable");
            found.push((path, content));
        }
    }
    found.sort();
    found
}

/// Hidden names that begin so.
fn hidden(bench: &Bench, start: &str) -> Vec<String> {
    bench.names("").into_iter().filter(|name| name.starts_with(start)).collect()
}

fn verify(bench: &Bench, arguments: &[&str]) -> Run {
    let out = bench.text("out");
    overturn(&[&["verify", &out, "--format", "json"], arguments].concat())
}

/// Another program's table, complete with the marker that Spark writes.
#[test]
fn a_foreign_table_with_a_success_marker_is_never_replaced() {
    let bench = scoring("overwrite = true\n");
    bench.write("out/_SUCCESS", "");
    bench.parquet("out/part-00000-c000.snappy.parquet", &credit(10));
    bench.append("job.toml", &format!("{APPROVED}{QUICK}"));
    let before = snapshot(&bench.path("out"));
    for command in ["score", "validate", "train", "run"] {
        bench.does(command, &[]).fails(1, &["out: holds files that are not the results of a run"]);
    }
    // A manifest of somebody else's does not make it ours, nor does a damaged one.
    for manifest in ["{}", "{\"command\": \"score\"", "[[[[", "{\"tables\": []}"] {
        bench.write("out/manifest.json", manifest);
        bench.does("score", &[]).fails(1, &["not the results of a run", "manifest.json"]);
        bench.does("report", &[]).fails(1, &["manifest.json: is not a manifest of overturn"]);
    }
    fs::remove_file(bench.path("out/manifest.json")).expect("removed");
    assert!(snapshot(&bench.path("out")) == before);
}

/// A run that somebody has put a file into, or taken one from, is not replaced either.
#[test]
fn a_run_that_is_not_whole_or_holds_more_is_not_replaced() {
    let bench = scoring("overwrite = true\n");
    bench.does("score", &[]).ok();
    bench.write("out/scores/notes.txt", "mine");
    bench.does("score", &[]).says(1, &expect![[r#"
        error: DIR/out: is not what its manifest says, and is not replaced: it holds `scores/notes.txt`, which its manifest does not list
          hint: `overturn verify` lists all differences; move the folder away, or choose another
    "#]]);
    fs::remove_file(bench.path("out/scores/notes.txt")).expect("removed");
    let part = bench.path("out/scores/part-00000.parquet");
    fs::rename(&part, bench.path("part")).expect("moved");
    bench.does("score", &[]).says(1, &expect![[r#"
        error: DIR/out: is not what its manifest says, and is not replaced: it lacks `scores/part-00000.parquet`
          hint: `overturn verify` lists all differences; move the folder away, or choose another
    "#]]);
    fs::rename(bench.path("part"), &part).expect("moved back");
    bench.does("score", &[]).ok();
}

#[test]
fn an_output_that_touches_what_the_job_reads() {
    let bench = scoring("");
    bench.parquet("days/day=1/t.parquet", &credit(50));
    let root = project().display().to_string();
    fs::copy(format!("{root}/jobs/demo/logistic.onnx"), bench.path("m.onnx")).expect("copied");
    fs::create_dir(bench.path("models")).expect("made");
    fs::copy(bench.path("m.onnx"), bench.path("models/m.onnx")).expect("copied");
    fs::create_dir(bench.path("schemas")).expect("made");
    fs::copy(format!("{root}/schemas/credit.toml"), bench.path("schemas/s.toml")).expect("copied");
    symlink("table", bench.path("linked")).expect("made");
    symlink("models", bench.path("to_models")).expect("made");
    let table = "input.features=";
    for (settings, said) in [
        // The table: the same, inside, around; through links and `..`.
        (vec![format!("{table}table"), "output.dir=table".into()], "is the same as"),
        (vec![format!("{table}table"), "output.dir=table/out".into()], "lies in"),
        (vec![format!("{table}table/t.parquet"), "output.dir=table".into()], "holds"),
        (vec![format!("{table}table"), "output.dir=linked".into()], "is the same as"),
        (vec![format!("{table}linked"), "output.dir=table/out".into()], "lies in"),
        (vec![format!("{table}table"), "output.dir=days/../table/x".into()], "lies in"),
        (vec![format!("{table}table"), "output.dir=.".into()], "holds"),
        // Globs: what they find, and what they would find.
        (vec![format!("{table}days/*/t.parquet"), "output.dir=days/day=1".into()], "holds"),
        (
            vec![format!("{table}days/day=*/t.parquet"), "output.dir=days/day=2".into()],
            "is found by",
        ),
        (
            vec![format!("{table}days/**/t.parquet"), "output.dir=days/new/out".into()],
            "is found by",
        ),
        (vec![format!("{table}days/*/t.parquet"), "output.dir=days".into()], "holds"),
        // Model, schema, job.
        (
            vec!["predictor.model=models/m.onnx".into(), "output.dir=models".into()],
            "predictor.model",
        ),
        (vec!["predictor.model=to_models/m.onnx".into(), "output.dir=models".into()], "holds"),
        (vec!["input.schema=schemas/s.toml".into(), "output.dir=schemas".into()], "input.schema"),
        // Generators.
        (
            vec![
                format!("explain.generator={}", generator().display()),
                format!("output.dir={}", generator().parent().expect("a folder").display()),
            ],
            "explain.generator",
        ),
        (
            vec![
                format!("train.from={}", generator().display()),
                format!("output.dir={}/inside", generator().display()),
            ],
            "train.from",
        ),
    ] {
        let mut arguments = vec!["--override".to_string(), "output.overwrite=true".to_string()];
        for setting in &settings {
            let (key, value) = setting.split_once('=').expect("a setting");
            arguments.extend(["--override".to_string(), format!("{key}='{value}'")]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        for command in ["validate", "score"] {
            let run = bench.does(command, &arguments);
            assert_eq!(run.code, 1, "{settings:?}: {run:#?}");
            assert!(run.stderr.contains("output.dir: is `"), "{settings:?}: {}", run.stderr);
            assert!(run.stderr.contains(said), "{settings:?}: {said} not in {}", run.stderr);
        }
    }
    // Beside them all is well.
    for settings in [["table", "tables"], ["table/*.parquet", "table/out"]] {
        let [features, dir] = settings.map(|text| format!("'{text}'"));
        let (features, dir) = (format!("input.features={features}"), format!("output.dir={dir}"));
        bench.does("validate", &["--override", &features, "--override", &dir]).ok();
    }
}

#[test]
fn a_scorer_of_the_job_is_not_overwritten() {
    let Some(python) = python("a_scorer_of_the_job_is_not_overwritten") else { return };
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(50));
    bench.write("code/scorer.py", &crate::fitted::scorer("pass", crate::fitted::LITTLE));
    let predictor = format!("kind = \"subprocess\"\ncommand = [{python:?}, \"./code/scorer.py\"]");
    bench.job(&table, "", Some(&predictor));
    bench.replace("job.toml", "dir = \"out\"", "dir = \"code\"\noverwrite = true");
    bench.does("score", &[]).says(1, &expect![[r#"
        error: output.dir: is `DIR/code`, which holds `DIR/code/scorer.py` (predictor.command), expected a folder apart from what the job reads
          hint: choose another `output.dir`
    "#]]);
}

#[test]
fn replaced_runs_stay_until_the_next_ones_succeed() {
    let bench = scoring("overwrite = true\n");
    let run_id = |bench: &Bench| {
        let manifest = bench.json("out/manifest.json");
        manifest["run"]["run_id"].as_str().expect("a name").to_string()
    };
    bench.does("score", &[]).ok();
    let first = run_id(&bench);
    assert!(hidden(&bench, ".out").is_empty());
    // A reader that has opened a file, and one that comes back by name.
    let mut reader = File::open(bench.path("out/scores/part-00000.parquet")).expect("open");
    let before = fs::read(bench.path("out/scores/part-00000.parquet")).expect("readable");
    bench.does("score", &["--override", "input.where=\"age < 40\""]).ok();
    let second = run_id(&bench);
    let kept = hidden(&bench, ".out");
    assert_eq!(kept, [format!(".out.previous-00001-{first}")]);
    let mut content = Vec::new();
    reader.read_to_end(&mut content).expect("readable");
    assert!(content == before);
    let old = bench.path(&kept[0]).join("scores/part-00000.parquet");
    assert!(fs::read(old).expect("readable") == before);
    overturn(&["verify", &bench.text(&kept[0])]).ok();
    // A run that fails takes nothing away; the same again is a run of its own.
    bench.does("score", &["--override", "input.where=\"age < -1\""]).says(
        1,
        &expect![[r#"
        error: DIR/table/t.parquet: none of its 200 rows satisfies `input.where`: age < -1
    "#]],
    );
    assert_eq!(hidden(&bench, ".out"), kept);
    bench.does("score", &[]).ok();
    assert_eq!(hidden(&bench, ".out"), [format!(".out.previous-00002-{second}")]);
    bench.does("score", &["--override", "output.keep=2"]).ok();
    assert_eq!(hidden(&bench, ".out").len(), 2);
    bench.does("score", &["--override", "output.keep=0"]).ok();
    assert!(hidden(&bench, ".out").is_empty());
    bench.does("score", &["--override", "output.keep=101"]).says(
        1,
        &expect![[r#"
        error: --override: `output.keep` is 101, expected at most 100
          hint: each takes as much space as a run
    "#]],
    );
}

/// Killed between the exchange of old and new and the old one's move to its hidden name.
#[test]
fn a_replacement_that_was_cut_short_loses_nothing() {
    let bench = scoring("overwrite = true\n");
    bench.does("score", &[]).ok();
    let old = snapshot(&bench.path("out"));
    fs::rename(bench.path("out"), bench.path("old")).expect("moved");
    bench.does("score", &["--override", "input.where=\"age < 40\""]).ok();
    fs::rename(bench.path("old"), bench.path(".out.staging")).expect("moved");
    let new = fs::metadata(bench.path("out")).expect("there");
    let (device, inode) = {
        use std::os::unix::fs::MetadataExt;
        (new.dev(), new.ino())
    };
    bench.write(".out.lock", &format!("replacing {device} {inode}\n"));
    bench.does("score", &["--override", "output.keep=5"]).ok();
    let kept = hidden(&bench, ".out.previous-00001");
    let found: Vec<Vec<u8>> =
        snapshot(&bench.path(&kept[0])).into_iter().map(|(_, content)| content).collect();
    assert!(found == old.into_iter().map(|(_, content)| content).collect::<Vec<_>>());
    assert_eq!(hidden(&bench, ".out").len(), 2, "{:?}", hidden(&bench, ".out"));
}

#[test]
fn an_output_that_is_a_link_stays_one() {
    let bench = scoring("overwrite = true\n");
    symlink("elsewhere/real", bench.path("out")).expect("made");
    let run = bench.does("score", &["-v"]).ok();
    assert!(run.stderr.contains("is a symbolic link: the folder is"), "{}", run.stderr);
    bench.does("score", &[]).ok();
    assert!(fs::symlink_metadata(bench.path("out")).expect("there").is_symlink());
    assert!(bench.path("elsewhere/real/_SUCCESS").exists());
    assert_eq!(bench.names("elsewhere").len(), 2, "{:?}", bench.names("elsewhere"));
    // To another program's folder.
    fs::remove_file(bench.path("out")).expect("removed");
    bench.write("foreign/_SUCCESS", "");
    symlink("foreign", bench.path("out")).expect("made");
    bench.does("score", &[]).says(1, &expect![[r#"
        error: DIR/out: holds files that are not the results of a run: DIR/foreign/manifest.json: cannot be read: No such file or directory (os error 2)
          hint: choose another `output.dir`; nothing but results of overturn is ever replaced
    "#]]);
    assert_eq!(bench.names("foreign"), ["_SUCCESS"]);
}

#[test]
fn leftovers_that_no_run_left_are_not_touched() {
    let bench = scoring("overwrite = true\n");
    bench.write("data/precious", "1");
    for name in [".out.staging", ".out.journal", ".out.checkpoint"] {
        symlink("data", bench.path(name)).expect("made");
        bench.does("score", &[]).fails(2, &[name, "is no folder", "hint: move it away"]);
        fs::remove_file(bench.path(name)).expect("still a link");
        bench.write(&format!("{name}/precious"), "1");
        bench.does("score", &[]).fails(2, &[name, "holds `precious`"]);
        assert!(bench.path(name).join("precious").exists());
        fs::remove_dir_all(bench.path(name)).expect("removed");
    }
    symlink("data/precious", bench.path(".out.lock")).expect("made");
    bench.does("score", &[]).says(
        2,
        &expect![[r#"
        error: DIR/out: cannot be written: Too many levels of symbolic links (os error 40)
          hint: check the folder's permissions and the free space, or choose another `output.dir`
    "#]],
    );
    fs::remove_file(bench.path(".out.lock")).expect("removed");
    assert_eq!(fs::read_to_string(bench.path("data/precious")).expect("there"), "1");
    bench.does("score", &[]).ok();
}

#[test]
fn metrics_never_take_the_place_of_anything_else() {
    let bench = Bench::new();
    let table = bench.parquet("table/t.parquet", &credit(300));
    bench.explain_job(&table, "");
    let path = |name: &str| format!("output.metrics='{}'", bench.text(name));
    nix::unistd::mkfifo(&bench.path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("socket")).expect("made");
    symlink("/dev/null", bench.path("to_null")).expect("made");
    symlink("job.toml", bench.path("to_job")).expect("made");
    let job = fs::read(bench.path("job.toml")).expect("readable");
    for metrics in
        ["output.metrics='/dev/null'".to_string(), path("fifo"), path("socket"), path("to_null")]
    {
        for command in ["validate", "run"] {
            bench.does(command, &["--override", &metrics]).fails(1, &["no regular file"]);
        }
    }
    for name in ["job.toml", "to_job", "table/t.parquet"] {
        bench.does("run", &["--override", &path(name)]).fails(1, &["output.metrics: is `"]);
    }
    bench.does("run", &["--override", &path("out/x.prom")]).says(
        1,
        &expect![[r#"
        error: output.metrics: lies in `DIR/out`, which is no folder
          hint: make the folder first
    "#]],
    );
    assert!(fs::read(bench.path("job.toml")).expect("readable") == job);
    let null = fs::metadata("/dev/null").expect("there").file_type();
    assert!(null.is_char_device());
    assert!(fs::metadata(bench.path("fifo")).expect("there").file_type().is_fifo());
    // A link to a file stays, and the file is replaced.
    bench.write("real.prom", "old");
    symlink("real.prom", bench.path("link.prom")).expect("made");
    bench.does("run", &["--override", &path("link.prom")]).ok();
    assert!(fs::symlink_metadata(bench.path("link.prom")).expect("there").is_symlink());
    assert!(fs::read_to_string(bench.path("real.prom")).expect("there").contains("overturn_rows"));
}

/// The run is published by then: that nobody will see its figures is a warning.
#[test]
fn metrics_that_cannot_be_written_do_not_fail_a_published_run() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(300));
    bench.explain_job(&table, "");
    fs::create_dir(bench.path("metrics")).expect("made");
    // Nobody, root included, can make a file in the place of this folder's temporary one.
    bench.write("metrics/.x.prom.new/full", "");
    let metrics = format!("output.metrics='{}'", bench.text("metrics/x.prom"));
    for _ in 0..2 {
        let run = bench.does("run", &["--override", &metrics]).ok();
        assert!(run.stderr.contains("the metrics were not written"), "{}", run.stderr);
        let remarks = run.json()["remarks"].to_string();
        assert!(remarks.contains("the metrics were not written"), "{remarks}");
    }
    assert!(bench.path("out/_SUCCESS").exists());
    bench.nothing_is_left();
}

/// Contents count, not sizes and times.
#[test]
fn inputs_are_known_by_their_content() {
    let bench = Bench::new();
    let rows = credit(2000);
    let table = bench.parquet("t.parquet", &rows);
    bench.explain_job(&table, "");
    let scored = bench.parquet("s.parquet", &credit(10));
    let first = bench.does("run", &[]).ok().json();
    let manifest = bench.json("out/manifest.json");
    let input = &manifest["run"]["inputs"][0];
    let expected = Run::of(std::process::Command::new("sha256sum").arg(&table)).ok().stdout;
    assert!(expected.starts_with(input["sha256"].as_str().expect("a hash")), "{input}");
    assert_eq!(bench.does("run", &[]).ok().json()["already_published"], true);
    // The same size, the same times, one byte of padding in the footer's text another.
    let path = Path::new(&table);
    let before = fs::metadata(path).expect("there").modified().expect("a time");
    let mut content = fs::read(path).expect("readable");
    let place = content.windows(10).rposition(|part| part == b"parquet-rs").expect("its writer");
    content[place] = b'P';
    fs::write(path, &content).expect("written");
    File::options().write(true).open(path).and_then(|file| file.set_modified(before)).expect("set");
    bench.does("run", &["--override", "output.dir=other"]).ok();
    bench.does("run", &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: already holds the results of a run
          hint: set `output.overwrite = true` to replace them, or choose another `output.dir`
    "#]],
    );
    let other = bench.json("other/manifest.json");
    assert_eq!(other["run"]["inputs"][0]["modified"], input["modified"]);
    assert_ne!(other["run"]["inputs"][0]["sha256"], input["sha256"]);
    assert_ne!(other["run"]["run_id"], first["run_id"]);
    verify(&bench, &[]).ok();
    verify(&bench, &["--inputs"]).says(
        1,
        &expect![[r#"
        error: DIR/out: DIR/t.parquet: has another content than the run read
    "#]],
    );
    drop(scored);
}

/// A resumed run does not mix two tables, even if they look the same from outside.
#[test]
fn a_table_with_another_content_is_not_resumed_with() {
    let bench = Bench::new();
    let table = applications(&bench, 30_000, &["--files", "2"]);
    bench.explain_job(&table, "split_rows = 2000\n");
    let mut child = bench.command("run", &["--threads", "1"]).spawn().expect("started");
    let journal = bench.path(".out.journal/journal.jsonl");
    let began = std::time::Instant::now();
    while !fs::read_to_string(&journal).unwrap_or_default().contains("{\"split\"") {
        assert!(began.elapsed() < Duration::from_secs(120), "never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    let file = crate::util::files_below(Path::new(&table), "parquet").remove(0);
    let before = fs::metadata(&file).expect("there").modified().expect("a time");
    let mut content = fs::read(&file).expect("readable");
    let place = content.windows(8).rposition(|part| part == b"overturn" || part == b"parquet-");
    content[place.expect("its writer")] ^= 0x20;
    fs::write(&file, &content).expect("written");
    File::options()
        .write(true)
        .open(&file)
        .and_then(|file| file.set_modified(before))
        .expect("set");
    bench.does("run", &["--resume"]).says(
        1,
        &expect![[r#"
        error: DIR/out: cannot be resumed: the tables changed since the run was stopped
          hint: run without `--resume` to start over
    "#]],
    );
}

/// Changes one byte of a file.
fn flip(path: &Path) {
    let mut file = File::options().read(true).write(true).open(path).expect("open");
    let middle = file.metadata().expect("there").len() / 2;
    let mut byte = [0];
    file.seek(SeekFrom::Start(middle)).and_then(|_| file.read_exact(&mut byte)).expect("read");
    file.seek(SeekFrom::Start(middle)).expect("there");
    file.write_all(&[byte[0] ^ 1]).expect("written");
}

fn differences(run: &Run) -> String {
    run.json()["differences"].to_string()
}

#[test]
fn every_kind_of_published_folder_can_be_verified() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(600));
    bench.explain_job(&table, "samples = 2\n");
    for command in ["explain", "report", "run", "score"] {
        bench.does(command, &["--override", "output.overwrite=true"]).ok();
        let found = verify(&bench, &["--inputs"]).ok().json();
        assert_eq!(found["differences"], json!([]), "{command}");
        assert_eq!(found["inputs"], 1);
        let made_by = if command == "report" { "explain" } else { command };
        assert_eq!(found["command"], made_by);
    }
    let trained = generator().parent().expect("a folder").display().to_string();
    let run = overturn(&["verify", &trained, "--inputs"]).ok();
    assert!(run.stdout.contains("as published"), "{}", run.stdout);
    // With hive folders, one of which is by sample.
    bench.append("job.toml", "[report]\nby = [\"region\"]\n");
    let folders = "output.partition_by=[\"status\", \"sample\"]";
    bench.does("run", &["--override", "output.overwrite=true", "--override", folders]).ok();
    verify(&bench, &[]).ok();
}

#[test]
fn every_kind_of_damage_is_found() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(400));
    bench.explain_job(&table, "");
    bench.does("run", &[]).ok();
    let part = "out/counterfactuals/part-00000.parquet";
    let restore = |name: &str, content: &[u8]| fs::write(bench.path(name), content).expect("back");
    for name in [part, "out/generator/weights.safetensors", "out/generator/generator.json"] {
        let content = fs::read(bench.path(name)).expect("readable");
        flip(&bench.path(name));
        let run = verify(&bench, &[]).fails(1, &[name.trim_start_matches("out/"), "SHA-256"]);
        assert!(differences(&run).contains("SHA-256"), "{}", run.stdout);
        restore(name, &content[..content.len() - 7]);
        verify(&bench, &[]).fails(1, &[name.trim_start_matches("out/"), "bytes, expected"]);
        fs::remove_file(bench.path(name)).expect("removed");
        verify(&bench, &[]).fails(1, &[name.trim_start_matches("out/"), "is missing"]);
        symlink("/etc/passwd", bench.path(name)).expect("made");
        let run = verify(&bench, &[]).fails(1, &["is not a regular file, and was not opened"]);
        fs::remove_file(bench.path(name)).expect("removed");
        nix::unistd::mkfifo(&bench.path(name), nix::sys::stat::Mode::S_IRWXU).expect("made");
        verify(&bench, &[]).fails(1, &["is not a regular file, and was not opened"]);
        fs::remove_file(bench.path(name)).expect("removed");
        restore(name, &content);
        drop(run);
    }
    bench.write("out/reports/more.parquet", "");
    verify(&bench, &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: reports/more.parquet: is not listed in the manifest
    "#]],
    );
    fs::remove_file(bench.path("out/reports/more.parquet")).expect("removed");
    let success = fs::read_to_string(bench.path("out/_SUCCESS")).expect("readable");
    fs::remove_file(bench.path("out/_SUCCESS")).expect("removed");
    verify(&bench, &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: _SUCCESS: is missing
    "#]],
    );
    bench.write("out/_SUCCESS", "");
    verify(&bench, &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: _SUCCESS: holds no SHA-256, expected that of `manifest.json`
    "#]],
    );
    bench.write("out/_SUCCESS", &success.replace(&success[..4], "0000"));
    verify(&bench, &[]).says(1, &expect![[r#"
        error: DIR/out: _SUCCESS: says that `manifest.json` has the SHA-256 HASH, found HASH: one of the two was changed
    "#]]);
    bench.write("out/_SUCCESS", &success);
    verify(&bench, &[]).ok();
    // A blank at the end of the manifest changes nothing that it says.
    bench.append("out/manifest.json", "\n");
    verify(&bench, &[]).says(1, &expect![[r#"
        error: DIR/out: _SUCCESS: says that `manifest.json` has the SHA-256 HASH, found HASH: one of the two was changed
    "#]]);
    let manifest = fs::read_to_string(bench.path("out/manifest.json")).expect("readable");
    bench.write("out/manifest.json", manifest.trim_end());
    verify(&bench, &[]).ok();
    overturn(&["verify", &bench.text("nowhere")]).says(
        1,
        &expect![[r#"
        error: DIR/nowhere/manifest.json: cannot be read: No such file or directory (os error 2)
    "#]],
    );
}

#[test]
fn a_manifest_is_not_trusted() {
    let bench = scoring("");
    bench.does("score", &[]).ok();
    let whole = bench.json("out/manifest.json");
    let tampered = |change: &dyn Fn(&mut Value), said: &[&str]| {
        let mut manifest = whole.clone();
        change(&mut manifest);
        bench.write("out/manifest.json", &manifest.to_string());
        verify(&bench, &[]).fails(1, said)
    };
    let rows = whole["tables"][0]["rows"].as_u64().expect("a count");
    tampered(&|all| all["tables"][0]["rows"] = json!(rows + 1), &["rows, expected"]);
    tampered(&|all| all["summary"]["rows_scored"] = json!(199), &["counts: ", "expected 199"]);
    tampered(&|all| all["summary"]["rows_read"] = json!(1), &["rows_out_of_scope + rows_scored"]);
    tampered(&|all| all["summary"] = json!(null), &["counts: ", "not known"]);
    for path in ["/etc/passwd", "../job.toml", "scores/../../job.toml", ""] {
        tampered(&|all| all["tables"][0]["path"] = json!(path), &["a path inside the folder"]);
    }
    tampered(&|all| all["tables"][0]["bytes"] = json!(u64::MAX), &["bytes, expected"]);
    tampered(&|all| all["tables"] = json!("many"), &["is not a manifest of overturn"]);
    tampered(&|all| all["command"] = json!("rm -rf /"), &["names the command"]);
    let nested = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    bench.write("out/manifest.json", &nested);
    verify(&bench, &[]).says(1, &expect![[r#"
        error: DIR/out/manifest.json: is not a manifest of overturn: invalid type: sequence, expected u32 at line 1 column 1
          hint: it may have been cut short, or belong to another program
    "#]]);
    // Sparse: 1 TB that is not read.
    let file = File::create(bench.path("out/manifest.json")).expect("made");
    file.set_len(1 << 40).expect("long");
    verify(&bench, &[]).says(1, &expect![[r#"
        error: DIR/out/manifest.json: cannot be read: has 1099511627776 bytes, expected at most 67108864
    "#]]);
    fs::remove_file(bench.path("out/manifest.json")).expect("removed");
    nix::unistd::mkfifo(&bench.path("out/manifest.json"), nix::sys::stat::Mode::S_IRWXU)
        .expect("made");
    verify(&bench, &[]).says(
        1,
        &expect![[r#"
        error: DIR/out/manifest.json: cannot be read: is a named pipe, expected a file
    "#]],
    );
}

/// A job that explains rows with a text as part of their key, and makes folders of it.
fn by_city(values: &[&str], rows: usize) -> (Bench, RecordRows) {
    let bench = Bench::new();
    let cities: Vec<String> = (0..rows).map(|row| values[row % values.len()].to_string()).collect();
    let column: ArrayRef = Arc::new(StringArray::from(cities.clone()));
    let batch = with_column(&credit(rows as u64), "city", Some(column));
    let table = bench.parquet("t.parquet", &batch);
    bench.explain_job(&table, "");
    bench.replace("job.toml", "key = \"application_id\"", "key = [\"application_id\", \"city\"]");
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\npartition_by = [\"city\"]");
    (bench, cities)
}

type RecordRows = Vec<String>;

#[test]
fn folder_values_without_a_name_are_refused_before_anything_long() {
    let long = "x".repeat(300);
    let many: Vec<String> = (0..5000).map(|number| format!("c{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (values, said) in [
        (vec!["a", ""], "names `city`, whose value '' cannot be told from a null"),
        (vec!["a", "__HIVE_DEFAULT_PARTITION__"], "whose value '__HIVE_DEFAULT_PARTITION__'"),
        (vec!["a", &long], "bytes, expected at most 255"),
        (many, "names `city`, which gives more than 4096 folders"),
    ] {
        let rows = values.len().max(20);
        let (bench, _) = by_city(&values, rows);
        for command in ["validate", "run"] {
            bench.does(command, &[]).fails(1, &["output.partition_by: ", said]);
        }
        assert!(!bench.path("out").exists());
        bench.nothing_is_left();
        // Rows out of scope do not matter.
        let scope = "input.where=\"city = 'a'\"";
        if values.contains(&"a") {
            bench.does("validate", &["--override", scope]).ok();
        }
    }
}

/// DuckDB and pyarrow give back every value that a folder was named after.
#[test]
fn folders_give_every_value_back() {
    let Some(python) = python("folders_give_every_value_back") else { return };
    let strange = [
        "plain",
        "São Paulo",
        "a/b",
        "a=b",
        "50 %",
        "%41",
        "a+b",
        " lead",
        "tab\tnew\nline",
        "..",
        "\"quoted\"",
        "it's",
        "back\\slash",
        "日本",
        "#?&;",
        "{x}",
        "NULL",
    ];
    let mut values: Vec<String> = strange.map(String::from).to_vec();
    // More folders than a unit may have files open.
    values.extend((0..300).map(|number| format!("city {number}")));
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let (bench, cities) = by_city(&values, 640);
    bench.does("run", &[]).ok();
    verify(&bench, &[]).ok();
    let script = "import sys, json, duckdb, pyarrow.dataset as ds\n\
         folder = sys.argv[1]\n\
         rows = duckdb.sql(f\"SELECT application_id, city FROM read_parquet('{folder}/**/*.parquet', \
         hive_partitioning = true, hive_types_autocast = false)\").fetchall()\n\
         # DuckDB before 2.0 takes a folder named NULL for a null; no value here is one.\n\
         rows = [(key, 'NULL' if city is None else city) for key, city in rows]\n\
         table = ds.dataset(folder, format='parquet', partitioning=ds.HivePartitioning.discover()).to_table()\n\
         other = list(zip(table['application_id'].to_pylist(), map(str, table['city'].to_pylist())))\n\
         assert sorted(rows) == sorted(other), 'DuckDB and pyarrow disagree'\n\
         print(json.dumps(sorted(rows)))";
    let found = run_python(&python, script, &[&bench.text("out/counterfactuals")]);
    let found: Vec<(i64, String)> = serde_json::from_str(&found).expect("JSON");
    let ids = read_table(&bench.path("t.parquet"));
    let ids = ids.column_by_name("application_id").expect("there").clone();
    let ids = arrow::compute::cast(&ids, &arrow::datatypes::DataType::Int64).expect("numbers");
    let ids = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(&ids);
    let mut expected: Vec<(i64, String)> = ids.values().iter().copied().zip(cities).collect();
    expected.sort();
    assert!(found == expected, "a value is lost");
    // The reports are made from folders too.
    bench.does("report", &[]).ok();
    verify(&bench, &[]).ok();
}
