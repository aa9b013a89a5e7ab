//! Delta tables in and out. Logs that nobody should have to write are written here by hand; all others by Python's
//! `deltalake`, which also reads what we write, beside DuckDB.

use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use serde_json::{Value, json};

use crate::fitted::applications;
use crate::util::{Bench, Run, credit, program, project, python, read_table};

/// Rows of the tables here.
const ROWS: u64 = 400;

/// A table of one file with a log of one version, written by hand; `change` spoils its actions.
fn by_hand(bench: &Bench, change: impl FnOnce(&mut Vec<Value>)) -> String {
    let rows = credit(ROWS);
    let file = bench.parquet("lake/part-0.parquet", &rows);
    let kinds =
        |name: &str| match rows.schema().field_with_name(name).map(|of| of.data_type().to_string())
        {
            Ok(kind) if kind == "Int64" => "long",
            Ok(kind) if kind == "Int32" => "integer",
            Ok(kind) if kind == "Float64" => "double",
            Ok(kind) if kind == "Boolean" => "boolean",
            _ => "string",
        };
    let field = |name: &String| json!({ "name": name, "type": kinds(name), "nullable": true, "metadata": {} });
    let schema = rows.schema();
    let fields: Vec<Value> = schema.fields().iter().map(|of| field(of.name())).collect();
    let described = json!({ "type": "struct", "fields": fields }).to_string();
    let mut actions = vec![
        json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } }),
        json!({ "metaData": { "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9", "format": { "provider": "parquet",
            "options": {} }, "schemaString": described, "partitionColumns": [], "configuration": {} } }),
        json!({ "add": { "path": "part-0.parquet", "partitionValues": {}, "modificationTime": 0, "dataChange": true,
            "size": fs::metadata(file).expect("a file").len() } }),
    ];
    change(&mut actions);
    commit(bench, 0, &actions);
    bench.text("lake")
}

/// Writes a version of the log.
fn commit(bench: &Bench, version: u64, actions: &[Value]) {
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    bench.write(&format!("lake/_delta_log/{version:020}.json"), &lines.join("\n"));
}

/// A job that scores a table, with further keys in its description.
fn score(bench: &Bench, table: &str, at: &str, input: &str) -> Run {
    let job = bench.job("TABLE", input, None);
    let delta = format!("{{ url = \"{table}\", format = \"delta\"{at} }}");
    bench.replace("job.toml", "\"TABLE\"", &delta);
    let run = Run::of(program().args(["score", &job, "--format", "json"]));
    let _ = fs::remove_dir_all(bench.path("out"));
    run
}

fn helper(python: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(python);
    command.arg(project().join("tests/python/delta_tables.py")).args(arguments);
    Run::of(&mut command).ok().json()
}

#[test]
fn tables_that_are_more_than_their_files_are_refused_by_name() {
    let protocol = |reader: i32, features: Value| {
        json!({ "protocol": { "minReaderVersion": reader, "minWriterVersion": 7, "readerFeatures": features,
            "writerFeatures": features } })
    };
    let refused = |change: &dyn Fn(&mut Vec<Value>), said: &[&str]| {
        let bench = Bench::new();
        let table = by_hand(&bench, |actions| change(actions));
        score(&bench, &table, "", "").fails(1, said);
    };
    let vector = json!({ "storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40, "cardinality": 6 });
    refused(
        &|actions| {
            actions[0] = protocol(3, json!(["deletionVectors"]));
            actions[2]["add"]["deletionVector"] = vector.clone();
        },
        &["deletion vectors (`part-0.parquet` has one)", "REORG TABLE"],
    );
    refused(
        &|actions| {
            actions[0] = json!({ "protocol": { "minReaderVersion": 2, "minWriterVersion": 5 } });
            let metadata = &mut actions[1]["metaData"];
            metadata["configuration"]["delta.columnMapping.mode"] = json!("name");
            let described = metadata["schemaString"].as_str().expect("a schema");
            let mut schema: Value = serde_json::from_str(described).expect("JSON");
            let fields = schema["fields"].as_array_mut().expect("fields").iter_mut().enumerate();
            fields.for_each(|(id, field)| {
                field["metadata"] = json!({ "delta.columnMapping.id": id + 1,
                    "delta.columnMapping.physicalName": field["name"] });
            });
            metadata["schemaString"] = json!(schema.to_string());
        },
        &["column mapping"],
    );
    refused(&|actions| actions[0] = protocol(3, json!(["frobnicate"])), &["frobnicate"]);
    refused(&|actions| actions[0] = protocol(3, json!(["typeWidening"])), &["typeWidening"]);
    refused(
        &|actions| actions[2]["add"]["path"] = json!("file:///elsewhere/part.parquet"),
        &["not inside its folder", "shallow clones"],
    );
    refused(&|actions| actions[2]["add"]["size"] = json!(7), &["expected 7 by the table's log"]);
    refused(
        &|actions| actions[2]["add"]["path"] = json!("gone.parquet"),
        &["gone.parquet", "belongs to version 0 of the table", "VACUUM"],
    );
}

#[test]
fn what_is_asked_of_a_table_is_checked() {
    let bench = Bench::new();
    let table = by_hand(&bench, |_| {});
    score(&bench, &table, "", "").ok();
    let plain = bench.text("lake/part-0.parquet");
    score(&bench, &table, ", version = 3", "").says(1, &expect![[r#"
        error: DIR/lake: has no version 3 that can be read
          hint: `_delta_log` has a file for each version; old ones are removed by the table's `delta.logRetentionDuration`
          because: Kernel error: Generic delta kernel error: LogSegment end version 0 not the same as the specified end version 3
          because: Generic delta kernel error: LogSegment end version 0 not the same as the specified end version 3
    "#]]);
    score(&bench, &table, ", timestamp = \"2001-01-01T00:00:00Z\"", "").says(
        1,
        &expect![[r#"
        error: DIR/lake: has no version as old as 2001-01-01T00:00:00Z: version 0 is younger
          hint: give a later `timestamp`, or a `version`
    "#]],
    );
    score(&bench, &table, ", timestamp = \"2199-01-01T00:00:00Z\"", "").ok();
    score(&bench, &bench.text(""), "", "").says(
        1,
        &expect![[r#"
        error: DIR/: is not a Delta table: it has no `_delta_log` with a version
          hint: for plain Parquet give the path itself, without `format`
    "#]],
    );
    score(&bench, &plain, "", "").says(1, &expect![[r#"
        error: DIR/lake/part-0.parquet: is not a Delta table: it has no `_delta_log` with a version
          hint: for plain Parquet give the path itself, without `format`
          because: Kernel error: Invalid table location: Path does not exist: "DIR/lake/part-0.parquet/".
          because: Invalid table location: Path does not exist: "DIR/lake/part-0.parquet/".
    "#]]);
    let run = score(&bench, &table, ", version = 1, timestamp = \"yesterday\", colour = 1", "");
    bench.fails_with(
        &run,
        1,
        &expect![[r#"
        error: DIR/job.toml:2: `input.features.colour` is not a known key
          hint: known here: `url`, `format`, `version`, `timestamp`, `catalog`, `warehouse`, `table` and `snapshot`
    "#]],
    );
    let run = score(&bench, &table, ", version = 1, timestamp = \"yesterday\"", "");
    bench.fails_with(&run, 1, &expect![[r#"
        errors:
        DIR/job.toml:2: `input.features.timestamp` is given beside `version`, expected one of them
        DIR/job.toml:2: `input.features.timestamp` is "yesterday", expected a moment such as "2026-11-19T02:00:00Z"
    "#]]);
}

#[test]
fn versions_of_another_writer_are_read_with_their_partitions() {
    let Some(python) = python("versions_of_another_writer_are_read_with_their_partitions") else {
        return;
    };
    let bench = Bench::new();
    let (rows, table) = (bench.parquet("rows.parquet", &credit(ROWS)), bench.text("lake"));
    helper(&python, &["write", &table, &rows]);
    let scored = |at: &str, input: &str| score(&bench, &table, at, input).ok().json();
    let read = |summary: &Value| summary["rows_read"].as_u64().expect("a count");
    let scope =
        |summary: &Value| read(summary) - summary["rows_out_of_scope"].as_u64().expect("a count");
    assert_eq!(read(&scored(", version = 0", "")), ROWS / 2);
    assert_eq!(read(&scored(", version = 1", "")), ROWS);
    assert_eq!(read(&scored("", "")), ROWS + 1);
    // Every partition value in its own type; files of other partitions are not read.
    let first = "night = DATE '2026-11-18' AND zone = 'São/Paulo 100% a=b' AND level = 1 AND fine AND share = 1.5 \
                 AND at = TIMESTAMP '2026-11-18T22:30:00.5Z'";
    let found = scored(", version = 1", &format!("where = \"{first}\""));
    assert_eq!((read(&found), scope(&found)), (ROWS / 2, ROWS / 2));
    let second = "zone IS NULL AND at IS NULL AND share IS NULL AND NOT fine AND level = -2";
    let found = scored(", version = 1", &format!("where = \"{second}\""));
    assert_eq!((read(&found), scope(&found)), (ROWS / 2, ROWS / 2));
    // What cannot be told by partitions alone is left to the scan, and unknown columns are null.
    let either = "level > 0 OR income < 0";
    let found = scored(", version = 1", &format!("where = \"{either}\""));
    assert_eq!((read(&found), scope(&found)), (ROWS, ROWS / 2));
    let found = scored("", "where = \"later IS NULL\"");
    assert_eq!((read(&found), scope(&found)), (ROWS + 1, ROWS));
    let found = scored("", "where = \"night = DATE '2026-11-18'\"\ntrain_where = \"level = -2\"");
    assert_eq!((read(&found), scope(&found)), (ROWS + 1, ROWS / 2));
}

/// A job that commits what it explains to a table, with further keys of `output.table` and of the job.
fn committing(bench: &Bench, table: &str, keys: &str) -> String {
    bench.explain_job(table, "");
    let lake = bench.text("lake");
    let output =
        format!("dir = \"out\"\ntable = {{ url = \"{lake}\", format = \"delta\", {keys} }}\n");
    bench.replace("job.toml", "dir = \"out\"\n", &output);
    lake
}

/// Explains with another seed, into another folder.
fn explain(bench: &Bench, out: &str, more: &[&str]) -> Run {
    let folder = format!("output.dir={}", bench.text(out));
    let seed = format!("runtime.seed={}", out.len());
    bench.does("explain", &[&["--override", &folder, "--override", &seed], more].concat())
}

/// Every row of the runs is in the table once, by both readers, and nothing else but so many.
fn has_rows(python: &Path, lake: &str, runs: &[String], others: u64) {
    let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
    let found = helper(python, &[&["same", lake], &runs[..]].concat());
    let expected = json!({ "missing": 0, "others": others });
    assert_eq!((&found["duckdb"], &found["deltalake"]), (&expected, &expected), "{found}");
    assert!(found["rows"].as_u64() > Some(0), "{found}");
}

#[test]
fn runs_are_committed_once_and_read_by_others() {
    let Some(python) = python("runs_are_committed_once_and_read_by_others") else { return };
    let bench = Bench::new();
    let table = applications(&bench, ROWS, &["--nulls", "0.01"]);
    let lake = committing(&bench, &table, "mode = \"append\"");
    let first = explain(&bench, "one", &[]).ok().json();
    assert_eq!(
        (&first["table"]["version"], &first["table"]["repeated"]),
        (&json!(0), &json!(false))
    );
    assert_eq!(bench.json("one/manifest.json")["summary"]["table"], first["table"]);
    has_rows(&python, &lake, &[bench.text("one")], 0);
    let read = helper(&python, &["read", &lake]);
    assert_eq!((&read["protocol"], &read["run_id"]), (&json!([1, 2]), &first["run_id"]));
    // The same again, looked up or done anew, adds nothing.
    assert_eq!(explain(&bench, "one", &[]).ok().json()["already_published"], true);
    let anew = ["--override", "output.overwrite=true"];
    let again = explain(&bench, "one", &anew).ok().json();
    assert_eq!(
        (&again["table"]["version"], &again["table"]["repeated"]),
        (&json!(0), &json!(true))
    );
    let second = explain(&bench, "second", &[]).ok().json();
    assert_eq!(second["table"]["version"], 1);
    has_rows(&python, &lake, &[bench.text("one"), bench.text("second")], 0);
    let replaced = explain(&bench, "third", &["--override", "output.table.mode=overwrite"]);
    let replaced = replaced.ok().json();
    assert_eq!(replaced["table"]["files_removed"], 2, "{replaced}");
    has_rows(&python, &lake, &[bench.text("third")], 0);
    assert_eq!(
        helper(&python, &["read", &lake, "1"])["rows"].as_u64(),
        first["table"]["rows"].as_u64().map(|rows| 2 * rows)
    );
}

#[test]
fn rejects_and_reports_are_appended_to_tables_beside() {
    let Some(python) = python("rejects_and_reports_are_appended_to_tables_beside") else { return };
    let bench = Bench::new();
    let table = applications(&bench, ROWS, &["--nulls", "0.05"]);
    let lake = committing(&bench, &table, "mode = \"append\", beside = [\"rejects\", \"reports\"]");
    let run = |out: &str, more: &[&str]| {
        let folder = format!("output.dir={}", bench.text(out));
        let seed = format!("runtime.seed={}", out.len());
        bench.does("run", &[&["--override", &folder, "--override", &seed], more].concat())
    };
    let plan = run("one", &["--dry-run"]).ok().json();
    assert_eq!(plan["table"], lake);
    let first = run("one", &[]).ok().json();
    let beside = first["table"]["beside"].as_array().expect("commits").clone();
    assert!(beside.len() > 3, "{first}");
    // The same again, done anew, adds nothing to any of them.
    let anew = run("one", &["--override", "output.overwrite=true"]).ok().json();
    let commits = anew["table"]["beside"].as_array().expect("commits");
    assert!(commits.iter().all(|commit| commit["repeated"] == true), "{anew}");
    run("second", &[]).ok();
    for commit in beside {
        let url = commit["url"].as_str().expect("a path");
        let found = helper(&python, &["read", url]);
        assert_eq!(found["types"]["run_id"], "string", "{found}");
        let part = url.strip_prefix(&format!("{lake}_")).expect("beside the table");
        let name = match part {
            "rejects" => part.to_string(),
            _ => format!("{}.parquet", part.replacen('_', "/", 1).replace("/audit_", "/audit/")),
        };
        let rows = |out: &str| read_table(&bench.path(out).join(&name)).num_rows() as u64;
        assert_eq!(found["rows"].as_u64(), Some(rows("one") + rows("second")), "{name}: {found}");
    }
    has_rows(&python, &lake, &[bench.text("one"), bench.text("second")], 0);
}

#[test]
fn a_night_is_replaced_and_others_stay() {
    let Some(python) = python("a_night_is_replaced_and_others_stay") else { return };
    let bench = Bench::new();
    let (rows, source) = (bench.parquet("rows.parquet", &credit(ROWS)), bench.text("source"));
    helper(&python, &["write", &source, &rows]);
    let lake = committing(
        &bench,
        "SOURCE",
        "mode = \"replace_where\", where = \"night = DATE '${night}'\"",
    );
    let delta = format!("{{ url = \"{source}\", format = \"delta\" }}");
    bench.replace("job.toml", "\"SOURCE\"", &delta);
    bench.replace("job.toml", "key = \"application_id\"", "key = [\"application_id\", \"night\"]\nwhere = \"night = DATE '${night}' AND application_id < 1000000\"");
    bench.replace(
        "job.toml",
        "dir = \"out\"\n",
        "dir = \"out\"\npartition_by = [\"night\", \"status\"]\n",
    );
    let night =
        |out: &str, night: &str| explain(&bench, out, &["--set", &format!("night={night}")]);
    night("a", "2026-11-18").ok();
    night("bb", "2026-11-19").ok();
    has_rows(&python, &lake, &[bench.text("a"), bench.text("bb")], 0);
    let again = night("ccc", "2026-11-19").ok().json();
    assert!(again["table"]["files_removed"].as_u64() > Some(0), "{again}");
    has_rows(&python, &lake, &[bench.text("a"), bench.text("ccc")], 0);
    let read = helper(&python, &["read", &lake]);
    assert_eq!((&read["version"], &read["partitions"]), (&json!(2), &json!(["night", "status"])));
    assert_eq!(read["types"]["night"], "date32[day]", "{read}");
    // Rows of another night than the one that is replaced, and predicates over other columns.
    let wrong =
        ["--set", "night=2026-11-18", "--override", "output.table.where=night = DATE '2026-11-19'"];
    explain(&bench, "dddd", &wrong).says(1, &expect![[r#"
        error: output.table.where: is `night = DATE '2026-11-19'`, which does not hold for the run's rows in `night=2026-11-18/status=already_target`
          hint: limit the run to the same rows with `input.where`
    "#]]);
    let wrong = ["--set", "night=2026-11-18", "--override", "output.table.where=income > 3"];
    explain(&bench, "dddd", &wrong).says(1, &expect![[r#"
        error: output.table.where: is `income > 3`, which is not a predicate over the table: Schema error: No field named income.
        Valid fields are "?table?".night, "?table?".status.
          hint: quote column names with spaces: "Marital Status" = 'Married'
    "#]]);
    assert_eq!(helper(&python, &["read", &lake])["version"], 2);
    assert!(!bench.path("dddd").exists());
}

#[test]
fn other_writers_and_a_run_do_not_lose_each_others_rows() {
    let Some(python) = python("other_writers_and_a_run_do_not_lose_each_others_rows") else {
        return;
    };
    let bench = Bench::new();
    let table = applications(&bench, ROWS, &[]);
    let lake = committing(&bench, &table, "mode = \"append\"");
    explain(&bench, "one", &[]).ok();
    let mut noise = Command::new(&python);
    noise.arg(project().join("tests/python/delta_tables.py")).args(["noise", &lake, "4"]);
    let noise = noise.stdout(std::process::Stdio::piped()).spawn().expect("started");
    let runs: Vec<String> = ["second", "third1", "fourth2"].map(|out| bench.text(out)).into();
    for out in ["second", "third1", "fourth2"] {
        explain(&bench, out, &[]).ok();
    }
    let told = Run::from(noise.wait_with_output().expect("ended")).ok().json();
    let written = told["written"].as_u64().expect("a count");
    assert!(written > 3, "{told}");
    has_rows(&python, &lake, &[&[bench.text("one")], &runs[..]].concat(), written);
}

#[test]
fn tables_that_do_not_suit_a_run_are_refused_early() {
    let Some(python) = python("tables_that_do_not_suit_a_run_are_refused_early") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 50, &[]);
    let lake = committing(&bench, &table, "mode = \"append\"");
    bench.parquet("rows.parquet", &credit(50));
    helper(&python, &["append", &lake, &bench.text("rows.parquet")]);
    let run = explain(&bench, "one", &[]);
    run.fails(
        1,
        &[
            "has no column `target`, which the run has",
            "has the column `income`, which the run does not have",
        ],
    );
    let merge = ["--override", "output.table.schema=merge"];
    let merged = explain(&bench, "one", &merge).ok().json();
    assert_eq!(merged["table"]["version"], 1);
    has_rows(&python, &lake, &[bench.text("one")], 50);
    let by = [
        "--override",
        "output.table.schema=merge",
        "--override",
        "output.partition_by=[\"status\"]",
    ];
    explain(&bench, "second", &by).fails(1, &["is partitioned by [], the run by [\"status\"]"]);
    let itself = ["--override", &format!("output.table.url={table}")];
    explain(&bench, "second", &itself).fails(1, &["output.table.url: is", "(input.features)"]);
    let none = ["--override", "output.table.mode=replace_where"];
    explain(&bench, "second", &none).fails(1, &["`output.table.where` is missing"]);
}

/// A run that is resumed reads the version that it began with, and says which.
#[test]
fn a_resumed_run_reads_the_version_that_it_began_with() {
    let Some(python) = python("a_resumed_run_reads_the_version_that_it_began_with") else { return };
    let bench = Bench::new();
    let source = bench.text("source");
    let rows = bench.parquet("rows.parquet", &credit(40_000));
    helper(&python, &["append", &source, &rows]);
    bench.explain_job("SOURCE", "split_rows = 2000\n");
    bench.replace(
        "job.toml",
        "\"SOURCE\"",
        &format!("{{ url = \"{source}\", format = \"delta\" }}"),
    );
    let mut child = bench.command("explain", &["--threads", "1"]).spawn().expect("started");
    let journal = bench.path(".out.journal/journal.jsonl");
    while !fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() > 2) {
        assert!(child.try_wait().expect("a process").is_none(), "ended early");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    let header = fs::read_to_string(&journal).expect("a journal");
    let header: Value = serde_json::from_str(header.lines().next().expect("a line")).expect("JSON");
    assert_eq!(header["versions"], json!([{ "name": "features", "table": source, "version": 0 }]));
    helper(&python, &["noise", &source, "0.2"]);
    let summary = bench.does("explain", &["--resume"]).ok().json();
    assert!(summary["splits_resumed"].as_u64() > Some(0), "{summary}");
    assert_eq!(summary["rows_read"], 40_000);
    assert_eq!(bench.json("out/manifest.json")["run"]["versions"], header["versions"]);
    // What was published is whole: the next run reads the latest version, and is another one.
    bench.does("explain", &["--resume"]).says(
        1,
        &expect![[r#"
        error: DIR/out: already holds the results of a run
          hint: set `output.overwrite = true` to replace them, or choose another `output.dir`
    "#]],
    );
    let next = bench.does("explain", &["--resume", "--override", "output.overwrite=true"]);
    assert!(next.ok().json()["rows_read"].as_u64() > Some(40_000));
}
