//! `overturn init`: first jobs that can be validated and run as they are, and what is said where there is none.
//! `UPDATE_EXPECT=1` writes the expected texts anew.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use expect_test::{Expect, expect};
use serde_json::Value;

use crate::util::{Bench, Run, credit, program, project, python, read_table, with_column};

/// Credit applications beside the demo's model.
fn applications(rows: u64) -> Bench {
    let bench = Bench::new();
    bench.parquet("t.parquet", &credit(rows));
    bench
}

/// The path of the demo's logistic regression, which takes a column for each input.
fn model() -> String {
    project().join("jobs/demo/logistic.onnx").display().to_string()
}

impl Bench {
    fn init(&self, table: &str, more: &[&str]) -> Run {
        self.here(&[&["init", table, "--model", &model()], more].concat())
    }

    /// It must fail, say so, and write nothing.
    fn refuses(&self, table: &str, more: &[&str], expected: &Expect) {
        let before = self.names("");
        self.fails_with(&self.init(table, more), 1, expected);
        assert_eq!(self.names(""), before, "nothing is written");
    }

    fn text_of(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("readable")
    }
}

#[test]
fn a_first_job_says_what_it_guesses_and_runs() {
    let bench = applications(600);
    let run = bench.init("t.parquet", &[]).ok();
    expect![[r#"
        rows      600
        key       application_id
        model     2 classes with probabilities: approved, rejected
        features  16 of 19 columns
        target    class = "approved"
        segments  region
        written   job.toml, schema.toml
        Check the guesses in both files, then: overturn validate job.toml
    "#]]
    .assert_eq(&bench.placed(&run.stdout));
    expect![[r#"
        INFO PROJECT/jobs/demo/logistic.onnx: is scored by the program itself
        INFO left out `application_id`: it is the key
        INFO left out `applied_on`: the model does not take it
        INFO left out `approved`: it looks like the label: the values of `approved` are the model's classes
        INFO guessed key application_id: every row has a value of its own in `application_id`, and is named like one
        INFO guessed label approved: the values of `approved` are the model's classes
        INFO guessed target class = "approved": `rejected` reads like a refusal, so that `approved` is what people want
        INFO guessed segments region: `region` has only 5 different values; so could be `employment`, `housing`, `education`, `purpose`, `marital_status`
    "#]].assert_eq(&bench.logged(&run));
    expect![[r##"
        # A first job, written by `overturn init`. What it guessed is marked as such: check it. `overturn schema show
        # job --markdown` prints every key.

        [input]
        # The table: a Parquet file, a folder, a glob, or a list of those. Relative paths start from this file's
        # folder.
        features = "t.parquet"
        # What its columns mean, and what a counterfactual may change about them.
        schema = "schema.toml"
        # The column or columns that identify a row.
        # guessed: every row has a value of its own in `application_id`, and is named like one
        key = "application_id"
        # Only some of the rows: an SQL predicate over the columns of the table.
        # where = "applied_on >= date '2026-01-01'"

        [predictor]
        kind = "onnx"
        model = "PROJECT/jobs/demo/logistic.onnx"
        inputs = "columns"

        [target]
        # What the model should predict.
        # Classes, with how many of the first 600 rows have them: approved (426), rejected (174).
        # guessed: `rejected` reads like a refusal, so that `approved` is what people want
        class = "approved"
        # flip = true # the other class
        # every = true # every other class, a counterfactual for each

        [report]
        # Reports have figures for the rows with each value of these columns, too.
        # guessed: `region` has only 5 different values; so could be `employment`, `housing`, `education`, `purpose`,
        # `marital_status`
        by = ["region"]

        [output]
        # The folder that appears, whole, when the job is done.
        dir = "explained"
    "##]].assert_eq(&bench.placed(&bench.text_of("job.toml")));
    let schema = bench.text_of("schema.toml");
    assert!(!schema.contains("the model's codes"), "it encodes categories itself: {schema}");
    let head: Vec<&str> = schema.lines().take(20).collect();
    expect![[r##"
        # Feature schema, first version, inferred from 600 rows of t.parquet.
        # Now say what people can change: `change = "never"` for what nobody can or should (sex, place
        # of birth), `"increase"` or `"decrease"` for what moves one way (age), and tighten `range`,
        # `step`, `limit` and `allowed`. Columns that are not features here are ignored.

        # `application_id` is no feature: it is the key

        # `applied_on` is no feature: the model does not take it

        [[feature]]
        name = "age"
        kind = "numeric"
        change = "any"
        range = [18, 77] # observed
        type = "integer"

        [[feature]]
        name = "income"
        kind = "numeric"
        change = "any"
    "##]].assert_eq(&bench.placed(&head.join("\n")));
    bench.here(&["validate", "job.toml"]).ok();
    let summary = bench.here(&["run", "job.toml", "--format", "json"]).ok().json();
    assert_eq!(summary["rows_explained"], 600, "{summary}");
    assert_eq!(bench.names(""), ["explained", "job.toml", "schema.toml", "t.parquet"]);
}

/// What a case of `init_models.py` came to.
fn outcome(name: &str, summary: &Value, job: &str, run: &Value) -> String {
    let texts = |key: &str| -> Vec<String> {
        let list = summary[key].as_array().expect("a list").iter();
        list.map(|text| text.as_str().expect("text").to_string()).collect()
    };
    let encoding = job.lines().find_map(|line| line.strip_prefix("encoding = "));
    assert_eq!(run["rows_explained"], 600, "{name}: {run}");
    assert!(
        run["rows_rejected"].as_object().is_some_and(serde_json::Map::is_empty),
        "{name}: {run}"
    );
    format!(
        "{name}: {} of {}; {}; {}\n",
        encoding.unwrap_or("columns"),
        texts("features").join(" "),
        if texts("classes").is_empty() {
            "regression".to_string()
        } else {
            texts("classes").join(" ")
        },
        summary["target"].as_str().expect("text")
    )
}

#[test]
fn ordinary_exports_give_jobs_that_validate_and_run() {
    let Some(python) = python("ordinary_exports_give_jobs_that_validate_and_run") else { return };
    let bench = Bench::new();
    let mut command = Command::new(python);
    command.arg(project().join("tests/python/init_models.py")).arg(bench.path(""));
    let made = Run::of(&mut command).ok().stdout;
    let cases: BTreeSet<&str> = made.lines().collect();
    let mut outcomes = String::new();
    for name in cases {
        let folder = bench.path(name);
        let does = |arguments: &[&str]| {
            let mut command = program();
            Run::of(command.current_dir(&folder).args(arguments).args(["--format", "json"]))
                .ok()
                .json()
        };
        let summary = does(&["init", "table.parquet", "--model", "model.onnx"]);
        assert_eq!(summary["key"][0], "client_id", "{name}: {summary}");
        does(&["validate", "job.toml"]);
        let run = does(&["run", "job.toml"]);
        let job = fs::read_to_string(folder.join("job.toml")).expect("readable");
        outcomes.push_str(&outcome(name, &summary, &job, &run));
    }
    expect![[r#"
        boosting_worth: "raw" of age tenure income rate; regression; range = [1.22, 3.15]
        catboost: "raw" of age tenure income rate; 0 1; flip = true
        catboost_grades: "raw" of age tenure income rate; 0 1 2; every = true
        catboost_worth: "raw" of age tenure income rate; regression; range = [1.38, 2.96]
        codes: "codes" of age job tenure income region rate; 0 1; flip = true
        dummies: "standardised" of age job tenure income region rate; 0 1; flip = true
        forest: "raw" of age tenure income rate; 0 1; flip = true
        forest_words: "raw" of age tenure income rate; low middle top; every = true
        forest_worth: "raw" of age tenure income rate; regression; range = [1.55, 4.72]
        histogram: "raw" of age tenure income rate; 0 1; flip = true
        histogram_worth: "raw" of age tenure income rate; regression; range = [1.42, 3.39]
        lightgbm: "raw" of age tenure income rate; 0 1; flip = true
        lightgbm_grades: "raw" of age tenure income rate; 0 1 2; every = true
        lightgbm_worth: "raw" of age tenure income rate; regression; range = [1.34, 3.35]
        logistic: "raw" of age tenure income rate; low middle top; every = true
        pipeline: columns of age tenure income region rate job-title; approved rejected; class = "approved"
        pipeline_worth: columns of age tenure income region rate job-title; regression; range = [1.88, 6.11]
        scores_only: "raw" of age tenure income rate; 0 1 2; every = true
        xgboost: "raw" of age tenure income rate; 0 1; flip = true
        xgboost_grades: "raw" of age tenure income rate; 0 1 2; every = true
        xgboost_worth: "raw" of age tenure income rate; regression; range = [1.69, 5.11]
    "#]].assert_eq(&outcomes);
}

#[test]
fn no_file_is_replaced() {
    let bench = applications(50);
    bench.write("schema.toml", "mine");
    bench.refuses(
        "t.parquet",
        &[],
        &expect![[r#"
        error: schema.toml: exists already, and no file is replaced
          hint: remove or rename it, or name another folder by `--out DIR`
    "#]],
    );
    bench.write("job.toml", "mine, too");
    bench.refuses(
        "t.parquet",
        &[],
        &expect![[r#"
        errors:
        job.toml: exists already, and no file is replaced
          hint: remove or rename it, or name another folder by `--out DIR`
        schema.toml: exists already, and no file is replaced
          hint: remove or rename it, or name another folder by `--out DIR`
    "#]],
    );
    assert_eq!(bench.text_of("schema.toml") + &bench.text_of("job.toml"), "minemine, too");
    bench.init("t.parquet", &["--out", "new/folder"]).ok();
    assert_eq!(bench.names("new/folder"), ["job.toml", "schema.toml"]);
    bench.here(&["validate", "new/folder/job.toml"]).ok();
}

#[test]
fn a_key_is_needed() {
    let bench = Bench::new();
    let rows = credit(300);
    let without = with_column(&rows, "application_id", None);
    bench.parquet("none.parquet", &without);
    bench.refuses("none.parquet", &[], &expect![[r#"
        error: none.parquet: has no evident key, expected a column of texts or whole numbers in which every row has a value of its own
          hint: name the key by `--key COLUMN`, one for each of its columns; a table without a key gets one by duckdb -c "COPY (SELECT row_number() OVER () AS row_id, * FROM 'none.parquet') TO 'with_key.parquet'"
    "#]]);
    let customers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..300).map(|row| row / 2)));
    bench.parquet("twice.parquet", &with_column(&without, "customer_id", Some(customers)));
    bench.refuses("twice.parquet", &[], &expect![[r#"
        error: twice.parquet: has no evident key, expected a column of texts or whole numbers in which every row has a value of its own (`customer_id` has values more than once)
          hint: name the key by `--key COLUMN`, one for each of its columns; a table without a key gets one by duckdb -c "COPY (SELECT row_number() OVER () AS row_id, * FROM 'twice.parquet') TO 'with_key.parquet'"
    "#]]);
    bench.refuses("twice.parquet", &["--key", "customer_id"], &expect![[r#"
        error: twice.parquet: key `customer_id` is not unique: 150 keys occur more than once (0; 1; 10)
          hint: name a column that every row has a value of its own in, or further columns by more `--key`
    "#]]);
    bench.refuses(
        "twice.parquet",
        &["--key", "customer"],
        &expect![[r#"
        error: twice.parquet: has no column `customer`
          hint: did you mean `customer_id`?
    "#]],
    );
    let visits: ArrayRef = Arc::new(Int64Array::from_iter_values((0..300).map(|row| row % 2)));
    let both = read_table(&bench.path("twice.parquet"));
    bench.parquet("both.parquet", &with_column(&both, "visit", Some(visits)));
    bench.init("both.parquet", &["--key", "customer_id", "--key", "visit"]).ok();
    assert!(bench.text_of("job.toml").contains("\nkey = [\"customer_id\", \"visit\"]\n"));
    bench.here(&["validate", "job.toml"]).ok();
}

#[test]
fn inputs_that_the_table_lacks_are_named() {
    let bench = Bench::new();
    let rows = credit(50);
    let income = rows.column_by_name("income").expect("there").clone();
    let fewer = with_column(&with_column(&rows, "income", None), "debt", None);
    bench.parquet("fewer.parquet", &fewer);
    bench.refuses("fewer.parquet", &[], &expect![[r#"
        error: fewer.parquet: has no column for the inputs `income`, `debt` of PROJECT/jobs/demo/logistic.onnx, expected one for each input
          hint: add what the model was trained with to the table
    "#]]);
    let other = with_column(&with_column(&rows, "income", None), "incomes", Some(income));
    bench.parquet("other.parquet", &other);
    bench.refuses("other.parquet", &[], &expect![[r#"
        error: other.parquet: has no column for the input `income` of PROJECT/jobs/demo/logistic.onnx, expected one for each input
          hint: `income` looks like the column `incomes`: rename the column in the table, or write a schema by `overturn schema infer` and pair them in `[predictor.rename]`
    "#]]);
    bench.parquet("t.parquet", &rows);
    bench.refuses("t.parquet", &["--ignore", "age"], &expect![[r#"
        error: t.parquet: has no column for the input `age` of PROJECT/jobs/demo/logistic.onnx, expected one for each input
          hint: add what the model was trained with to the table
    "#]]);
}

#[test]
fn tables_and_models_that_are_none_are_refused() {
    let bench = applications(50);
    bench.write("rows.csv", "application_id,income\n1,2\n");
    bench.refuses(
        "rows.csv",
        &[],
        &expect![[r#"
        error: DIR/rows.csv: is a CSV file, expected Parquet
          hint: convert it: duckdb -c "COPY (FROM 'DIR/rows.csv') TO 'DIR/rows.parquet'"
    "#]],
    );
    bench.refuses(
        "nowhere",
        &[],
        &expect![[r#"
        error: nowhere: does not exist, expected a Parquet file, a folder or a glob
          hint: relative paths start from the current folder
    "#]],
    );
    let empty: RecordBatch = credit(10).slice(0, 0);
    bench.parquet("empty.parquet", &empty);
    bench.refuses(
        "empty.parquet",
        &[],
        &expect![[r#"
        error: empty.parquet: has no rows to infer a schema from
    "#]],
    );
    // The results would be part of the table.
    bench.refuses(
        ".",
        &[],
        &expect![[r#"
        error: .: holds `./explained`, where the results would be written
          hint: start in another folder, or name one by `--out DIR`
    "#]],
    );
    let joblib = project().join("jobs/demo/forest.joblib").display().to_string();
    let run = bench.here(&["init", "t.parquet", "--model", &joblib]).fails(1, &[]);
    expect![[r#"
        error: PROJECT/jobs/demo/forest.joblib: cannot be read as an ONNX model; it is cut short or something else
          hint: export the model to ONNX, or name a program that serves it: `--scorer COMMAND`
          because: the bytes are not a whole protocol buffer with a graph in it
    "#]].assert_eq(&bench.said(&run));
    let run = bench.here(&["init", "t.parquet", "--model", "none.onnx"]).fails(1, &[]);
    expect![[r#"
        error: none.onnx: cannot be read
          because: No such file or directory (os error 2)
    "#]]
    .assert_eq(&bench.said(&run));
}

#[test]
fn a_matrix_that_columns_fill_in_several_ways_is_asked_about() {
    let Some(python) = python("a_matrix_that_columns_fill_in_several_ways_is_asked_about") else {
        return;
    };
    let bench = Bench::new();
    let mut command = Command::new(python);
    Run::of(command.arg(project().join("tests/python/init_models.py")).arg(bench.path(""))).ok();
    let rows = read_table(&bench.path("forest/table.parquet"));
    let visits: ArrayRef = Arc::new(Int64Array::from_iter_values((0..600).map(|row| row % 50)));
    bench.parquet("forest/more.parquet", &with_column(&rows, "visits", Some(visits)));
    // A table with a feature less: what was to be predicted is not taken for one.
    bench.parquet("forest/fewer.parquet", &with_column(&rows, "rate", None));
    let init = |arguments: &[&str]| {
        let arguments = [&["init", "--model", "forest/model.onnx"], arguments].concat();
        bench.here(&arguments)
    };
    let run = init(&["forest/more.parquet"]).fails(1, &[]);
    expect![[r#"
        error: forest/model.onnx: takes 4 numbers of each row, but `forest/more.parquet` has 5 columns of numbers (`age`, `tenure`, `income`, `rate`, `visits`) and 0 of categories (none); `outcome` looks like the label
          hint: leave out those that the model was not trained with: `--ignore COLUMN` for each; features keep the table's order
    "#]].assert_eq(&bench.said(&run));
    let run = init(&["forest/fewer.parquet"]).fails(1, &[]);
    expect![[r#"
        error: forest/model.onnx: takes 4 numbers of each row, but `forest/fewer.parquet` has 3 columns of numbers (`age`, `tenure`, `income`) and 0 of categories (none); `outcome` looks like the label
          hint: add the columns to the table that the model was trained with
    "#]].assert_eq(&bench.said(&run));
    init(&["forest/more.parquet", "--ignore", "visits"]).ok();
    bench.here(&["validate", "job.toml"]).ok();
    // Every row alike: something is in another order than in training, perhaps.
    let same: ArrayRef = Arc::new(Int64Array::from_iter_values((0..600).map(|_| 20)));
    let flat = ["age", "tenure", "income", "rate"]
        .iter()
        .fold(rows, |rows, name| with_column(&rows, name, Some(Arc::clone(&same))));
    bench.parquet("forest/same.parquet", &flat);
    let run = init(&["forest/same.parquet", "--out", "same"]).ok();
    let logged = bench.logged(&run);
    assert!(logged.contains("for all of the first 600 rows: check that columns"), "{logged}");
}

#[test]
fn a_program_gets_all_columns_but_key_and_label() {
    let Some(python) = python("a_program_gets_all_columns_but_key_and_label") else { return };
    let bench = applications(300);
    bench.write("scorer.py", &crate::fitted::scorer("pass", crate::fitted::LITTLE));
    let command = format!("'{}' scorer.py", python.display());
    let run = bench.here(&["init", "t.parquet", "--scorer", &command, "--format", "json"]).ok();
    let summary = run.json();
    let left_out: Vec<&str> = summary["left_out"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one[0].as_str())
        .collect();
    assert_eq!(left_out, ["application_id", "approved"], "{summary}");
    assert_eq!(summary["target"], "class = \"approved\"");
    bench.here(&["validate", "job.toml"]).ok();
    let run = bench.here(&["init", "t.parquet"]).fails(1, &[]);
    expect![[r#"
        error: the following required arguments were not provided:
          <--model <FILE>|--scorer <COMMAND>>

        Usage: overturn init <--model <FILE>|--scorer <COMMAND>> <TABLE>

        For more information, try '--help'.
    "#]]
    .assert_eq(&bench.said(&run));
}
