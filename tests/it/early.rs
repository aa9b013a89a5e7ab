//! What stops a run is found before anything long begins, by `validate` and by the run itself.

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, StringArray};
use expect_test::{Expect, expect};

use crate::fitted::{APPROVED, scorer};
use crate::util::{Bench, credit, overturn, project, python, read_table, with_column};

/// A training that would not end while a test waits for it.
const ENDLESS: &str = "[train]\nmax_steps = 100000000\npatience = 100000000\n";

/// Credit applications and a job that trains without end.
fn endless() -> (Bench, String) {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(400));
    bench.job(&table, "", None);
    bench.append("job.toml", &format!("{APPROVED}{ENDLESS}"));
    (bench, table)
}

/// Both commands refuse the job, and nothing is left.
fn refused(bench: &Bench, expected: &Expect) {
    let [validated, run] = ["validate", "run"].map(|command| bench.does(command, &[]));
    bench.fails_with(&validated, 1, expected);
    assert_eq!(bench.said(&run), bench.said(&validated), "both say the same");
    assert_eq!(run.code, 1, "{run:#?}");
    assert!(!bench.path("out").exists());
    bench.nothing_is_left();
}

#[test]
fn a_key_that_the_output_has_no_room_for() {
    let (bench, _) = endless();
    let rows = credit(400);
    let ids = rows.column_by_name("application_id").expect("there").clone();
    bench.parquet("t.parquet", &with_column(&rows, "cf_age", Some(ids)));
    bench.replace("job.toml", "key = \"application_id\"", "key = \"cf_age\"");
    refused(
        &bench,
        &expect![[r#"
        error: input.key: names `cf_age`, a column that the output has itself
          hint: rename the column in the table
    "#]],
    );
}

#[test]
fn more_segments_than_a_report_can_show() {
    let (bench, _) = endless();
    bench.parquet("t.parquet", &credit(1001));
    bench.append("job.toml", "[report]\nby = [\"application_id\"]\n");
    let said = "report.by: names `application_id`, which gives more than 1000 segments";
    for command in ["validate", "run"] {
        bench.does(command, &[]).fails(1, &[said, "name columns with few values"]);
    }
    bench.nothing_is_left();
}

#[test]
fn metrics_without_a_folder() {
    let (bench, _) = endless();
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\nmetrics = \"nowhere/x.prom\"");
    refused(
        &bench,
        &expect![[r#"
        error: output.metrics: lies in `DIR/nowhere`, which is no folder
          hint: make the folder first
    "#]],
    );
}

#[test]
fn a_score_table_of_another_model() {
    let (bench, table) = endless();
    bench.score(&table, "").ok();
    fs::rename(bench.path("out"), bench.path("scored")).expect("renamed");
    let stored = read_table(&bench.path("scored/scores"));
    let labels = stored.column_by_name("class").expect("there").as_string::<i32>();
    let other = labels.iter().map(|label| label.map(|_| "rejected"));
    let other: ArrayRef = Arc::new(StringArray::from_iter(other));
    let wrong = bench.parquet("wrong.parquet", &with_column(&stored, "class", Some(other)));
    bench.job(&table, &format!("[input.scores]\ntable = \"{wrong}\""), None);
    bench.append("job.toml", &format!("{APPROVED}{ENDLESS}"));
    refused(
        &bench,
        &expect![[r#"
        error: DIR/wrong.parquet: 287 of 400 stored decisions are not the model's (71.75 %, at most 0.10 % may be)
          hint: the scores come from another model, another version of it, or other features; score again with `overturn score`
    "#]],
    );
}

#[test]
fn a_generator_of_another_schema_or_a_damaged_one() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(300));
    bench.explain_job(&table, "");
    let whole = crate::fitted::generator();
    fs::create_dir(bench.path("g")).expect("made");
    for name in fs::read_dir(whole).expect("readable").flatten() {
        fs::copy(name.path(), bench.path("g").join(name.file_name())).expect("copied");
    }
    bench.replace("job.toml", &whole.display().to_string(), "g");
    let neighbours = bench.path("g/neighbours.safetensors");
    let bytes = fs::read(&neighbours).expect("readable");
    fs::write(&neighbours, &bytes[..bytes.len() / 2]).expect("written");
    // The place that the job names, not that of a hidden copy.
    let run = bench.does("run", &[]).says(
        1,
        &expect![[r#"
        error: DIR/g/neighbours.safetensors: is not the file that `generator.json` describes
          hint: train the generator again
    "#]],
    );
    assert!(!run.stderr.contains(".out.staging"), "{}", run.stderr);
    fs::write(&neighbours, bytes).expect("written");
    let schema = fs::read_to_string(project().join("schemas/credit.toml")).expect("readable");
    let other = schema.replace("\"widowed\"]", "\"widowed\", \"it depends\"]");
    bench.write("schema.toml", &other);
    let known = project().join("schemas/credit.toml").display().to_string();
    bench.replace("job.toml", &known, "schema.toml");
    refused(
        &bench,
        &expect![[r#"
        error: DIR/g: has other values or policies for the feature `marital_status` than the schema
          hint: train a generator for this schema and model
    "#]],
    );
}

/// Its answers are the present model's, but what they are compared with is not.
#[test]
fn a_generator_of_another_model_is_remarked_on() {
    let Some(python) = python("a_generator_of_another_model_is_remarked_on") else { return };
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(300));
    let said = |bench: &Bench| bench.does("run", &[]).ok().json()["remarks"].to_string();
    bench.explain_job(&table, "");
    assert!(!said(&bench).contains("another model"));
    bench.write("scorer.py", &scorer("pass", crate::fitted::LITTLE));
    let predictor = format!("kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]");
    bench.job(&table, "max_reject_share = 0.5", Some(&predictor));
    bench.append("job.toml", &format!("{APPROVED}{}", crate::fitted::with_generator("")));
    bench.replace("job.toml", "dir = \"out\"", "dir = \"other\"");
    let remarks = said(&bench);
    assert!(remarks.contains("was trained against another model or command"), "{remarks}");
}

#[test]
fn models_that_load_and_do_not_answer() {
    let Some(python) = python("models_that_load_and_do_not_answer") else { return };
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(100));
    bench.write("scorer.py", &scorer("sys.exit('not today')", "[]"));
    let predictor =
        format!("kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]\nretries = 0");
    let job = bench.job(&table, "", Some(&predictor));
    overturn(&["validate", &job]).says(
        1,
        &expect![[r#"
        error: scorer.py: exited with status 1 in the handshake; its standard error ended with
            not today
    "#]],
    );
}

#[test]
fn constraint_columns_of_no_feature() {
    let bench = Bench::new();
    let rows = credit(100);
    let least: ArrayRef = Arc::new(Float64Array::from(vec![0.0; 100]));
    let rows = with_column(&rows, "loan_amuont__min", Some(least));
    let job = bench.job(&bench.parquet("t.parquet", &rows), "", None);
    let run = overturn(&["validate", &job, "--format", "json"]).ok();
    let text = "column `loan_amuont__min` constrains nothing: there is no feature `loan_amuont`; did \
                you mean `loan_amount`?";
    assert!(run.stderr.contains(text), "{}", run.stderr);
    assert!(run.json()["remarks"].to_string().contains(text), "{}", run.stdout);
}

#[test]
fn keys_of_the_job_that_would_do_nothing() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(100));
    let job = bench.job(&table, "", None);
    let validate = |given: &str| overturn(&["validate", &job, "--override", given]);
    for key in ["workers=2", "retries=9", "start_seconds=5", "max_failed_share=0.5"] {
        let name = key.split('=').next().unwrap_or(key);
        validate(&format!("predictor.{key}")).fails(
            1,
            &[&format!("--override: `predictor.{name}` is given, but `predictor.kind` is `onnx`")],
        );
    }
    let run = validate("predictor.standardise={age={mean=1.0,std=2.0}}");
    bench.fails_with(&run, 1, &expect![[r#"
        error: --override: `predictor.standardise` is given, but `encoding` is not `standardised`, which has no use for it
    "#]]);
    bench.fails_with(
        &validate("report.gates.min_validity=nan"),
        1,
        &expect![[r#"
        error: --override: gives `report.gates.min_validity` the value nan, expected a finite number
    "#]],
    );
    bench.fails_with(
        &validate("runtime.threads=100000"),
        1,
        &expect![[r#"
        error: --override: `runtime.threads` is 100000, expected at most 1024
          hint: no machine has more cores
    "#]],
    );
    bench.fails_with(
        &overturn(&["validate", &job, "--threads", "100000"]),
        1,
        &expect![[r#"
        error: --threads: is 100000, expected at most 1024
    "#]],
    );
}
