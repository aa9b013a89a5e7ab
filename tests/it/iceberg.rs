//! Iceberg tables in and out, through a REST catalogue on loopback that stands on pyiceberg. pyiceberg and DuckDB read
//! what we append.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use expect_test::expect;
use serde_json::{Value, json};

use crate::fitted::applications;
use crate::util::{Bench, Run, credit, program, project, python};

/// Rows of the tables here.
const ROWS: u64 = 400;

/// A catalogue, which ends with its standard input.
struct Lake {
    bench: Bench,
    python: PathBuf,
    address: String,
    server: Child,
}

impl Drop for Lake {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Lake {
    fn new(test: &str, settings: &[&str]) -> Option<Lake> {
        let (python, bench) = (python(test)?, Bench::new());
        let mut command = Command::new(&python);
        command.arg(project().join("tests/python/iceberg_server.py")).arg(bench.path("warehouse"));
        let command = command.args(settings).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().expect("started");
        let mut port = String::new();
        let out = server.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut port).expect("readable");
        assert!(!port.is_empty(), "no pyiceberg in {}: run jobs/setup.sh", python.display());
        let address = format!("http://127.0.0.1:{}", port.trim());
        Some(Lake { bench, python, address, server })
    }

    fn helper(&self, command: &str, table: &str, more: &[&str]) -> Value {
        helper(&self.python, &[&[command, &self.address, table], more].concat())
    }

    /// A table of two nights, and a third snapshot with a column more.
    fn nights(&self, table: &str, format: &str) -> Value {
        let rows = self.bench.parquet("rows.parquet", &credit(ROWS));
        self.helper("write", table, &[&rows, format])
    }

    /// A job that scores a table, with further keys in its description and in `[input]`.
    fn score(&self, table: &str, at: &str, input: &str) -> Run {
        let table = format!("catalog = \"{}\", table = \"{table}\"{at}", self.address);
        self.score_of(&table, input)
    }

    fn score_of(&self, table: &str, input: &str) -> Run {
        let job = self.bench.job("TABLE", input, None);
        let table = format!("{{ {table}, format = \"iceberg\" }}");
        self.bench.replace("job.toml", "\"TABLE\"", &table);
        let run = Run::of(program().args(["score", &job, "--format", "json"]));
        let _ = fs::remove_dir_all(self.bench.path("out"));
        run
    }

    /// A job that appends what it explains to a table.
    fn appending(&self, input: &str, table: &str, keys: &str) {
        self.bench.explain_job(input, "");
        let output = format!(
            "dir = \"out\"\ntable = {{ catalog = \"{}\", table = \"{table}\", format = \"iceberg\", {keys} }}\n",
            self.address
        );
        self.bench.replace("job.toml", "dir = \"out\"\n", &output);
    }

    /// Explains with another seed, into another folder.
    fn explain(&self, out: &str, more: &[&str]) -> Run {
        let folder = format!("output.dir={}", self.bench.text(out));
        let seed = format!("runtime.seed={}", out.len());
        let sets = ["--override", &folder, "--override", &seed];
        self.bench.does("explain", &[&sets, more].concat())
    }

    /// Every row of the runs is in the table once, by both readers, and nothing else but so many.
    fn has_rows(&self, table: &str, outs: &[&str], others: u64) {
        let outs: Vec<String> = outs.iter().map(|out| self.bench.text(out)).collect();
        let outs: Vec<&str> = outs.iter().map(String::as_str).collect();
        let found = self.helper("same", table, &outs);
        let expected = json!({ "missing": 0, "others": others });
        assert_eq!((&found["duckdb"], &found["pyiceberg"]), (&expected, &expected), "{found}");
        assert!(found["rows"].as_u64() > Some(0), "{found}");
    }
}

fn helper(python: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(python);
    command.arg(project().join("tests/python/iceberg_tables.py")).args(arguments);
    Run::of(&mut command).ok().json()
}

#[test]
fn snapshots_of_another_writer_are_read_with_their_partitions() {
    let Some(lake) = Lake::new("snapshots_of_another_writer_are_read_with_their_partitions", &[])
    else {
        return;
    };
    let read = |summary: &Value| summary["rows_read"].as_u64().expect("a count");
    let scope =
        |summary: &Value| read(summary) - summary["rows_out_of_scope"].as_u64().expect("a count");
    for (table, format) in [("lake.old", "1"), ("lake.nights", "2")] {
        let made = lake.nights(table, format);
        let scored = |at: &str, input: &str| lake.score(table, at, input).ok().json();
        let snapshot = |index: usize| format!(", snapshot = {}", made["snapshots"][index]);
        assert_eq!(read(&scored(&snapshot(0), "")), ROWS / 2);
        assert_eq!(read(&scored(&snapshot(1), "")), ROWS);
        assert_eq!(read(&scored("", "")), ROWS + 1);
        // Every partition value in its own type; files of other partitions are not read.
        let first = "night = DATE '2026-11-18' AND zone = 'São/Paulo 100% a=b' AND level = 1 AND fine \
                     AND share = 1.5 AND at = TIMESTAMP '2026-11-18T22:30:00.5Z'";
        let found = scored(&snapshot(1), &format!("where = \"{first}\""));
        assert_eq!((read(&found), scope(&found)), (ROWS / 2, ROWS / 2));
        let second = "zone IS NULL AND at IS NULL AND share IS NULL AND NOT fine AND level = -2";
        let found = scored(&snapshot(1), &format!("where = \"{second}\""));
        assert_eq!((read(&found), scope(&found)), (ROWS / 2, ROWS / 2));
        // Unknown columns are null.
        let found = scored("", "where = \"later IS NULL\"");
        assert_eq!((read(&found), scope(&found)), (ROWS + 1, ROWS));
        let metadata = made["metadata"].as_str().expect("a path");
        let found = lake.score_of(&format!("url = \"{metadata}\""), "").ok().json();
        assert_eq!(read(&found), ROWS + 1);
    }
    let made = lake.nights("lake.other", "2");
    let moment = made["moments"][0].as_i64().expect("a moment") + 20;
    let moment = format!("1970-01-01T00:00:00Z{moment}");
    assert!(moment.len() > 20);
    lake.score("lake.other", ", timestamp = \"2199-01-01T00:00:00Z\"", "").ok();
    lake.score("lake.other", ", timestamp = \"2001-01-01T00:00:00Z\"", "")
        .fails(1, &["has no snapshot as old as 2001-01-01T00:00:00Z"]);
    lake.score("lake.other", ", snapshot = 7", "").fails(1, &["has no snapshot 7"]);
    lake.score("lake.nothing", "", "").fails(1, &["does not exist in the catalogue"]);
    let plain = lake.bench.text("rows.parquet");
    lake.score_of(&format!("url = \"{plain}\""), "")
        .fails(1, &["is no metadata of an Iceberg table"]);
}

#[test]
fn columns_that_names_would_mistake_are_refused() {
    let Some(lake) = Lake::new("columns_that_names_would_mistake_are_refused", &[]) else { return };
    let rows = lake.bench.parquet("rows.parquet", &credit(ROWS));
    lake.helper("append", "lake.renamed", &[&rows]);
    lake.score("lake.renamed", "", "").ok();
    lake.helper("rename", "lake.renamed", &["income", "earnings"]);
    // The snapshot has the schema in which it was written.
    lake.score("lake.renamed", "", "").ok();
    lake.helper("append", "lake.renewed", &[&rows]);
    lake.helper("renew", "lake.renewed", &["income"]);
    lake.score("lake.renewed", "", "")
        .fails(1, &["has another column `income`", "rewrite_data_files"]);
}

#[test]
fn what_is_asked_of_a_catalogue_is_checked() {
    let Some(lake) =
        Lake::new("what_is_asked_of_a_catalogue_is_checked", &["--token", "opensesame"])
    else {
        return;
    };
    let job = |table: &str| lake.score_of(table, "");
    let run = job(
        "url = \"x\", version = 1, catalog = \"lake\", table = \"nights\", timestamp = \"soon\"",
    );
    lake.bench.fails_with(&run, 1, &expect![[r#"
        errors:
        DIR/job.toml:2: `input.features.version` is given, but tables of this format have a `snapshot`
        DIR/job.toml:2: `input.features.timestamp` is given beside `snapshot`, expected one of them
        DIR/job.toml:2: `input.features.timestamp` is "soon", expected a moment such as "2026-11-19T02:00:00Z"
        DIR/job.toml:2: `input.features.url` is given beside `catalog`, expected one of them
        DIR/job.toml:2: `input.features.catalog` is "lake", expected the address of a REST catalogue, such as "https://catalog.example.com"
        DIR/job.toml:2: `input.features.table` is "nights", expected a name such as "lake.applications"
    "#]]);
    let run = job("catalog = \"https://user:secret@lake.example.com\", table = \"lake.nights\"");
    run.fails(1, &["`input.features.catalog` holds credentials"]);
    lake.score("lake.nights", "", "")
        .fails(1, &["does not let us in: 401", "ICEBERG_CATALOG_TOKEN"]);
    let job = lake.bench.text("job.toml");
    let with = |name: &str, value: &str| Run::of(program().args(["score", &job]).env(name, value));
    with("ICEBERG_CATALOG_TOKEN", "opensesame").fails(1, &["does not exist in the catalogue"]);
    let refused = with("ICEBERG_CATALOG_TOKEN", "planted-token-0003");
    assert!(!refused.stderr.contains("planted-token-0003"), "{}", refused.stderr);
    refused.fails(1, &["does not let us in: 401"]);
    let refused = with("ICEBERG_CATALOG_CREDENTIAL", "planted:planted-secret-0004");
    assert!(!refused.stderr.contains("planted-secret-0004"), "{}", refused.stderr);
    refused.fails(1, &["gives no key", "check `ICEBERG_CATALOG_CREDENTIAL`"]);
    lake.bench.replace("job.toml", &lake.address, "http://lake.example.com");
    with("ICEBERG_CATALOG_TOKEN", "opensesame").fails(1, &["is plain http", "use https"]);
    lake.bench.replace("job.toml", "http://lake.example.com", "http://127.0.0.1:9");
    with("X", "").fails(1, &["the catalogue cannot be reached"]);
}

#[test]
fn runs_are_appended_once_and_read_by_others() {
    let Some(lake) = Lake::new("runs_are_appended_once_and_read_by_others", &[]) else { return };
    let table = applications(&lake.bench, ROWS, &["--nulls", "0.01"]);
    lake.appending(&table, "lake.recourse", "mode = \"append\"");
    let first = lake.explain("one", &[]).ok().json();
    assert_eq!(first["table"]["repeated"], false, "{first}");
    lake.has_rows("lake.recourse", &["one"], 0);
    let read = lake.helper("read", "lake.recourse", &[]);
    assert_eq!(read["snapshot"], first["table"]["version"]);
    assert_eq!(read["summary"]["overturn.run-id"], first["run_id"]);
    assert_eq!(read["types"]["target"], "string", "{read}");
    // The same again, done anew, adds nothing.
    let anew = lake.explain("one", &["--override", "output.overwrite=true"]).ok().json();
    assert_eq!(
        (&anew["table"]["version"], &anew["table"]["repeated"]),
        (&first["table"]["version"], &json!(true))
    );
    lake.explain("second", &[]).ok();
    lake.has_rows("lake.recourse", &["one", "second"], 0);
    let read = lake.helper("read", "lake.recourse", &[]);
    assert_eq!(read["snapshots"], 2, "{read}");
    assert_eq!(read["summary"]["total-records"], json!(read["rows"].to_string()), "{read}");
    // The snapshot before is as it was.
    let before = first["table"]["version"].to_string();
    let before = lake.helper("read", "lake.recourse", &[&before]);
    assert_eq!(before["rows"], first["table"]["rows"]);
    // Partitions, in a table of its own.
    let by = ["--override", "output.partition_by=[\"status\", \"target\"]"];
    lake.explain("third", &by)
        .fails(1, &["is partitioned by [], the run by [\"status\", \"target\"]"]);
    let by = [&by[..], &["--override", "output.table.table=lake.parted"]].concat();
    lake.explain("third", &by).ok();
    lake.explain("fourth", &by).ok();
    lake.has_rows("lake.parted", &["third", "fourth"], 0);
    let read = lake.helper("read", "lake.parted", &[]);
    assert_eq!(read["partitions"], json!(["status", "target"]));
    // What we wrote we read as another does.
    let parted =
        format!("catalog = \"{}\", table = \"lake.parted\", format = \"iceberg\"", lake.address);
    let counted = |predicate: &str| {
        let job = lake.bench.job("TABLE", &format!("where = \"{predicate}\""), None);
        lake.bench.replace("job.toml", "\"TABLE\"", &format!("{{ {parted} }}"));
        Run::of(program().args(["validate", &job]))
    };
    // Its columns are no applications: it is opened, and refused for that alone.
    counted("status = 'found'").fails(1, &["income"]);
}

#[test]
fn tables_that_cannot_be_appended_to_are_refused_early() {
    let Some(lake) = Lake::new("tables_that_cannot_be_appended_to_are_refused_early", &[]) else {
        return;
    };
    let table = applications(&lake.bench, 50, &[]);
    let rows = lake.bench.parquet("rows.parquet", &credit(50));
    lake.helper("append", "lake.recourse", &[&rows]);
    lake.appending(&table, "lake.recourse", "mode = \"append\"");
    lake.explain("one", &[]).fails(
        1,
        &[
            "has no column `target`, which the run has",
            "has the column `income`, which the run has not",
        ],
    );
    let nowhere = ["--override", "output.table.table=nowhere.recourse"];
    lake.explain("one", &nowhere).fails(2, &["does not exist, nor does its namespace"]);
    let run = lake.explain("one", &["--override", "output.table.mode=overwrite"]);
    run.fails(
        1,
        &["`output.table.mode` replaces rows, expected `append`", "manifests of other writers"],
    );
    let run = lake.explain("one", &["--override", "output.table.schema=merge"]);
    run.fails(1, &["`output.table.schema` is `merge`, expected `strict`"]);
    lake.helper("write", "lake.old", &[&rows, "1"]);
    lake.explain("one", &["--override", "output.table.table=lake.old"])
        .fails(1, &["is a table of format version 1, expected 2", "upgrade it"]);
    assert!(!lake.bench.path("one").exists());
}

#[test]
fn appends_of_runs_and_of_another_writer_are_all_kept_although_answers_are_lost() {
    let faults = ["--lose", "0.3", "--fail", "0.2"];
    let test = "appends_of_runs_and_of_another_writer_are_all_kept_although_answers_are_lost";
    let Some(lake) = Lake::new(test, &faults) else { return };
    let table = applications(&lake.bench, ROWS, &[]);
    lake.appending(&table, "lake.recourse", "mode = \"append\"");
    let outs = ["a", "bb", "ccc", "dddd", "eeeee"];
    for out in outs {
        let summary = lake.explain(out, &[]).ok().json();
        assert!(summary["table"]["version"].is_u64(), "{summary}");
    }
    lake.has_rows("lake.recourse", &outs, 0);
}

/// A run that is resumed reads the snapshot that it began with, although others have committed since.
#[test]
fn a_resumed_run_reads_the_snapshot_that_it_began_with() {
    let Some(lake) = Lake::new("a_resumed_run_reads_the_snapshot_that_it_began_with", &[]) else {
        return;
    };
    let bench = &lake.bench;
    let rows = bench.parquet("rows.parquet", &credit(40_000));
    let made = lake.helper("append", "lake.source", &[&rows]);
    bench.explain_job("SOURCE", "split_rows = 2000\n");
    let source = format!(
        "{{ catalog = \"{}\", table = \"lake.source\", format = \"iceberg\" }}",
        lake.address
    );
    bench.replace("job.toml", "\"SOURCE\"", &source);
    let mut child = bench.command("explain", &["--threads", "1"]).spawn().expect("started");
    let journal = bench.path(".out.journal/journal.jsonl");
    while !fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() > 2) {
        assert!(child.try_wait().expect("a process").is_none(), "ended early");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    let noise = lake.helper("noise", "lake.source", &["1"]);
    assert!(noise["written"].as_u64() > Some(0), "{noise}");
    let summary = bench.does("explain", &["--resume"]).ok().json();
    assert!(summary["splits_resumed"].as_u64() > Some(0), "{summary}");
    assert_eq!(summary["rows_read"], 40_000);
    let versions = &bench.json("out/manifest.json")["run"]["versions"];
    assert_eq!(versions[0]["version"], made["snapshot"], "{versions}");
}
