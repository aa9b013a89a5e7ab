//! Numbers that no machine can hold, files that are none, output that cannot be written: each is told in
//! a sentence, and none ends in a panic.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use expect_test::expect;
use overturn::document::Overrides;
use overturn::feature::FeatureSchema;
use overturn::job::{Job, LIMITS, Placeholders};

use crate::fitted::{APPROVED, QUICK};
use crate::util::{Bench, Run, credit, overturn, program, project, read_table, with_column};

/// Numbers that come out of a slip, a unit or an attack.
const ODD: [&str; 12] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e300",
    "-1e300",
    "5e-324",
    "nan",
    "inf",
    "-inf",
];

fn key_of(limit: &str) -> String {
    match limit {
        "predictor.standardise.mean" => "predictor.standardise.age.mean".to_string(),
        "predictor.standardise.std" => "predictor.standardise.age.std".to_string(),
        key => key.to_string(),
    }
}

#[test]
fn every_number_of_a_job_is_checked_with_the_file() {
    let bench = Bench::new();
    let file = bench.job("t.parquet", "", None);
    let text = fs::read_to_string(&file).expect("readable");
    let placeholders = Placeholders::parse(&[]).expect("none");
    let mut refused = 0;
    for limit in LIMITS {
        let list = limit.key == "autoencoder.hidden";
        let pair = limit.key == "target.range";
        for odd in ODD {
            let value = match () {
                () if list => format!("[{odd}]"),
                () if pair => format!("[{odd}, {odd}]"),
                () => odd.to_string(),
            };
            // On the command line …
            let overrides = Overrides::parse(&[format!("{}={value}", key_of(limit.key))]);
            let given = overrides.and_then(|overrides| {
                Job::parse(&text, Path::new(&file), &placeholders, &overrides)
            });
            // … and in the file.
            let (section, key) = limit.key.rsplit_once('.').expect("a section");
            let more = match text.contains(&format!("[{section}]\n")) {
                true => text
                    .replace(&format!("[{section}]\n"), &format!("[{section}]\n{key} = {value}\n")),
                false => format!("{text}[{section}]\n{key} = {value}\n"),
            };
            let written = Job::parse(&more, Path::new(&file), &placeholders, &Overrides::default());
            refused += usize::from(given.is_err()) + usize::from(written.is_err());
        }
    }
    assert!(refused > LIMITS.len() * 8, "{refused}");
}

#[test]
fn every_number_of_a_schema_is_checked_with_the_file() {
    for odd in ODD {
        for key in ["cost", "step", "tolerance", "fill", "range", "limit.down", "limit.up"] {
            let value = if key == "range" { format!("[{odd}, {odd}]") } else { odd.to_string() };
            let text = format!("[[feature]]\nname = \"x\"\nkind = \"numeric\"\n{key} = {value}\n");
            let found = FeatureSchema::parse(&text, Path::new("s.toml"));
            if ["nan", "inf", "-inf"].contains(&odd) {
                assert!(found.is_err(), "{text}");
            }
        }
    }
}

#[test]
fn numbers_that_cannot_be_held_are_all_listed_at_once() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(200));
    bench.job(&table, "", None);
    let keys = [
        "report.mmd.frequencies",
        "report.mmd.permutations",
        "train.hidden",
        "train.batch",
        "autoencoder.latent",
        "autoencoder.batch",
        "explain.samples",
        "output.row_group_rows",
    ];
    let overrides: Vec<String> =
        keys.iter().map(|key| format!("--override={key}=4000000000000000000")).collect();
    let mut said: Vec<String> = keys
        .iter()
        .map(|key| format!("`{key}` is 4000000000000000000, expected at most"))
        .collect();
    said.push("`train.max_seconds` is 1e+300, expected at most 31536000".to_string());
    for command in ["validate", "run", "train"] {
        let mut program = program();
        program.args([command, &bench.text("job.toml"), "--override", "train.max_seconds=1e300"]);
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        Run::of(program.args(&overrides)).fails(1, &said);
    }
}

#[test]
fn what_takes_more_memory_than_there_is_is_found_before_it_starts() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(200));
    bench.job(&table, "", None);
    let layers = vec!["8192"; 16].join(", ");
    bench.append(
        "job.toml",
        &format!("{APPROVED}[autoencoder]\nbatch = 65536\nhidden = [{layers}]\n"),
    );
    for command in ["validate", "run", "train"] {
        let run = overturn(&[command, &bench.text("job.toml")]);
        run.fails(
            2,
            &[
                "error: autoencoder.batch: needs about",
                "the machine has",
                "hint: lower `autoencoder.batch`",
            ],
        );
    }
    bench.job(&table, "", None);
    let said = overturn(&["validate", &bench.text("job.toml")]).ok().stdout;
    assert!(said.contains("memory") && said.contains("MiB, most of it by `"), "{said}");
}

#[test]
fn numbers_of_the_command_line() {
    let bench = Bench::new();
    let synth = |arguments: &[&str]| {
        let run = overturn(&[&["synth", &bench.text("s")], arguments].concat());
        run.fails(1, &[])
    };
    let run = synth(&["--rows", "18446744073709551615"]);
    bench.fails_with(
        &run,
        1,
        &expect![[r#"
        error: rows: is 18446744073709551615, expected from 1 to 9223372036854775807
    "#]],
    );
    let run = synth(&["--files", "18446744073709551615"]);
    bench.fails_with(
        &run,
        1,
        &expect![[r#"
        error: files: is 18446744073709551615, expected from 1 to 100000 for 1000000 rows
    "#]],
    );
    bench.fails_with(
        &synth(&["--nulls", "nan"]),
        1,
        &expect![[r#"
        error: nulls: is NaN, expected a share from 0 to 1
    "#]],
    );
    let sql =
        |argument: &str| overturn(&["sql", "SELECT 1", "--model=m", "--generator=g", argument]);
    bench.fails_with(
        &sql("--tolerance=nan"),
        1,
        &expect![[r#"
        error: --tolerance: is NaN, expected a number of at least 0
    "#]],
    );
    bench.fails_with(
        &sql("--threads=99999999"),
        1,
        &expect![[r#"
        error: --threads: is 99999999, expected at most 1024
    "#]],
    );
}

#[test]
fn a_key_column_that_is_named_twice() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(200));
    bench.job(&table, "", None);
    bench.replace(
        "job.toml",
        "key = \"application_id\"",
        "key = [\"application_id\", \"application_id\"]",
    );
    let run = overturn(&["validate", &bench.text("job.toml")]);
    bench.fails_with(
        &run,
        1,
        &expect![[r#"
        error: DIR/job.toml:3: `input.key` names the column `application_id` twice
    "#]],
    );
}

/// Runs the program, which must end soon.
fn soon(arguments: &[&str]) -> Run {
    let mut child = program()
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let began = Instant::now();
    while child.try_wait().expect("waited for").is_none() {
        if began.elapsed() > Duration::from_secs(20) {
            child.kill().expect("ended");
            panic!("{arguments:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Run::from(child.wait_with_output().expect("ended"))
}

#[test]
fn pipes_and_devices_are_refused_at_once() {
    let bench = Bench::new();
    let pipe = bench.text("pipe.parquet");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let table = bench.parquet("t.parquet", &credit(200));
    bench.fails_with(
        &soon(&["validate", &pipe]),
        1,
        &expect![[r#"
        error: DIR/pipe.parquet: is a named pipe, expected a file
    "#]],
    );
    bench.fails_with(
        &soon(&["validate", "/dev/zero"]),
        1,
        &expect![[r#"
        error: /dev/zero: is a device, expected a file
    "#]],
    );
    let job = bench.job(&pipe, "", None);
    bench.fails_with(
        &soon(&["validate", &job]),
        1,
        &expect![[r#"
        error: DIR/pipe.parquet: is a named pipe, expected a Parquet file
    "#]],
    );
    bench.fails_with(
        &soon(&["schema", "infer", &pipe]),
        1,
        &expect![[r#"
        error: DIR/pipe.parquet: is a named pipe, expected a Parquet file
    "#]],
    );
    bench.job(&table, &format!("[input.scores]\ntable = \"{pipe}\""), None);
    bench.fails_with(
        &soon(&["validate", &job]),
        1,
        &expect![[r#"
        error: DIR/pipe.parquet: is a named pipe, expected a Parquet file
    "#]],
    );
    bench.job(&table, &format!("schema = \"{pipe}\""), None);
    bench.fails_with(&soon(&["validate", &job]), 1, &expect![[r#"
        error: DIR/job.toml:4: `input.schema` is `DIR/pipe.parquet`, which is a named pipe, expected a file
    "#]]);
    bench.job(&table, "", Some(&format!("kind = \"onnx\"\nmodel = \"{pipe}\"")));
    bench.fails_with(&soon(&["validate", &job]), 1, &expect![[r#"
        error: DIR/job.toml:8: `predictor.model` is `DIR/pipe.parquet`, which is a named pipe, expected a file
    "#]]);
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(200));
    let job = bench.job(&table, "", None);
    let full = |arguments: &[&str]| {
        let full = File::options().write(true).open("/dev/full").expect("there");
        Run::of(program().args(arguments).stdout(full))
    };
    for arguments in [
        &["validate", &job][..],
        &["schema", "show", "job"],
        &["schema", "infer", &table],
        &["synth", &bench.text("s"), "--rows", "100"],
    ] {
        full(arguments).fails(2, &["standard output: cannot be written: No space left"]);
    }
    full(&["score", &job]).says(2, &expect![[r#"
        error: standard output: cannot be written: No space left on device (os error 28)
          hint: the run itself succeeded: what it publishes is published, only its summary could not be printed
    "#]]);
    assert!(bench.path("out/_SUCCESS").exists());
    assert_eq!(full(&["--help"]).code, 2);
    // A reader that has seen enough is none of our business.
    let shell = format!(
        "'{}' schema show job | head -n 1; exit ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_overturn")
    );
    Run::of(Command::new("bash").args(["-c", &shell])).ok();
    // Neither log lines nor errors that cannot be written end in a panic.
    let error = File::options().write(true).open("/dev/full").expect("there");
    let run = Run::of(program().args(["validate", &job]).stderr(error));
    assert_eq!(run.code, 0, "{run:?}");
}

#[test]
fn a_wide_table_is_inferred_in_time_that_grows_with_its_columns() {
    let bench = Bench::new();
    let column = |index: usize| -> (String, ArrayRef) {
        let name = format!("column_{index}");
        match index % 3 {
            0 => (
                name,
                Arc::new(arrow::array::StringArray::from_iter_values(
                    (0..100).map(|row| format!("v{}", row % 3)),
                )),
            ),
            1 => (
                name,
                Arc::new(Float64Array::from_iter_values((0..100).map(|row| f64::from(row) / 7.0))),
            ),
            _ => (
                name,
                Arc::new(arrow::array::Int32Array::from_iter_values((0..100).map(|row| row % 50))),
            ),
        }
    };
    let batch = RecordBatch::try_from_iter((0..1_000).map(column)).expect("a batch");
    let table = bench.parquet("wide.parquet", &batch);
    let began = Instant::now();
    let said = overturn(&["schema", "infer", &table]).ok().stdout;
    let took = began.elapsed();
    assert_eq!(said.matches("[[feature]]").count(), 1_000);
    assert!(said.contains("values = [\"v0\", \"v1\", \"v2\"]"), "{said}");
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn very_many_unknown_keys_and_features() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(200));
    let job = bench.job(&table, "", None);
    let keys: String = (0..100_000).map(|key| format!("key_{key} = 1\n")).collect();
    bench.append("job.toml", &format!("[train]\n{keys}"));
    let run = soon(&["validate", &job]).fails(1, &["is not a known key", "and 99900 more faults"]);
    assert!(run.stderr.len() < 100_000);
    let features: String = (0..100_000)
        .map(|feature| format!("[[feature]]\nname = \"f{feature}\"\nkind = \"numeric\"\n"))
        .collect();
    let schema = bench.write("s.toml", &features);
    bench.job(&table, &format!("schema = \"{schema}\""), None);
    soon(&["validate", &job]).fails(1, &["has no column `f0`", "and 99900 more faults"]);
    fs::write(bench.path("job.toml"), "# \n".repeat(12 << 20)).expect("written");
    soon(&["validate", &job]).fails(1, &["bytes, expected at most"]);
}

/// A table of credit applications with one amount beyond all measure.
fn with_outliers(bench: &Bench, rows: u64, outliers: &[(usize, f64)]) -> String {
    let rows = credit(rows);
    let amounts = rows.column_by_name("loan_amount").expect("there");
    let amounts = cast(amounts, &DataType::Float64).expect("numbers");
    let mut amounts = amounts.as_primitive::<Float64Type>().values().to_vec();
    for (row, value) in outliers {
        amounts[*row] = *value;
    }
    let column: ArrayRef = Arc::new(Float64Array::from(amounts));
    bench.parquet("t.parquet", &with_column(&rows, "loan_amount", Some(column)))
}

/// No number of a table is NaN or infinite.
fn all_finite(table: &RecordBatch) {
    for (field, column) in table.schema().fields().iter().zip(table.columns()) {
        if let Some(numbers) = column.as_primitive_opt::<Float64Type>() {
            assert!(numbers.iter().flatten().all(f64::is_finite), "{}", field.name());
        }
    }
}

#[test]
fn one_outlier_does_not_stop_a_job() {
    let bench = Bench::new();
    let schema = fs::read_to_string(project().join("schemas/credit.toml")).expect("readable");
    let unbounded = "[[feature]]\nname = \"loan_amount\"\nkind = \"numeric\"\n";
    let parts = schema.split("[[feature]]").filter(|part| !part.contains("\"loan_amount\""));
    // Without a range of its own: what training observes is the range.
    let schema =
        bench.write("s.toml", &(parts.collect::<Vec<_>>().join("[[feature]]") + "\n" + unbounded));
    let table = with_outliers(&bench, 2_000, &[(7, 1e300)]);
    let scorer = "['approved' if amount < 9_000 else 'rejected' for amount in batch['loan_amount'].to_pylist()]";
    let Some(python) = crate::util::python("one_outlier_does_not_stop_a_job") else { return };
    bench.write("scorer.py", &crate::fitted::scorer("pass", scorer));
    let command =
        format!("kind = \"subprocess\"\ncommand = [\"{}\", \"./scorer.py\"]", python.display());
    bench.job(&table, &format!("schema = \"{schema}\""), Some(&command));
    bench.append("job.toml", &format!("{APPROVED}{QUICK}"));
    let validated = overturn(&["validate", &bench.text("job.toml")]).ok().stdout;
    assert!(
        validated.contains(
            "column `loan_amount`: 1 value is far from all others: 1e300 where application_id is "
        ),
        "{validated}"
    );
    let mut tables = Vec::new();
    for threads in ["1", "2"] {
        let run =
            overturn(&["run", &bench.text("job.toml"), "--format", "json", "--threads", threads])
                .ok();
        assert!(!run.stderr.contains("diverged"), "{run:?}");
        let found = read_table(&bench.path("out/counterfactuals"));
        all_finite(&found);
        tables.push(found);
        fs::rename(bench.path("out"), bench.path(&format!("out{threads}"))).expect("renamed");
    }
    assert_eq!(tables[0].columns(), tables[1].columns(), "whatever the number of threads");
    let valid = tables[0].column_by_name("valid").expect("there").as_boolean();
    let share = valid.true_count() as f64 / valid.len() as f64;
    assert!(share > 0.9, "{share}");
}
