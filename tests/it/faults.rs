//! Bad input: each fault with its message, its exit code, and nothing written.

use std::fs;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use expect_test::{Expect, expect};

use crate::util::{Bench, credit, overturn, project, read_table, with_column};

/// Scores a table with one column replaced; the run must fail, and write nothing.
fn spoiled(column: &str, values: Option<ArrayRef>, expected: &Expect) {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &with_column(&credit(300), column, values));
    bench.fails_with(&bench.score(&table, ""), 1, expected);
    assert!(!bench.path("out").exists() && !bench.path(".out.staging").exists());
}

fn floats(change: impl Fn(usize, f64) -> Option<f64>) -> ArrayRef {
    let income = credit(300).column_by_name("income").expect("there").clone();
    let income = cast(&income, &DataType::Float64).expect("numbers");
    let income = income.as_any().downcast_ref::<Float64Array>().expect("numbers").clone();
    let changed = income.iter().enumerate().map(|(row, value)| change(row, value.unwrap_or(0.0)));
    Arc::new(changed.collect::<Float64Array>())
}

#[test]
fn every_fault_of_a_job_file_at_once() {
    let bench = Bench::new();
    let job = bench.write(
        "job.toml",
        "[input]\nfeatures = \"t.parquet\"\nkye = \"id\"\nschema = \"none.toml\"\nbatch_rows = 0\n\
         [predictor]\nkind = \"onxx\"\n[output]\ndir = 3\n[otput]\n",
    );
    bench.fails_with(
        &overturn(&["validate", &job]),
        1,
        &expect![[r#"
        errors:
        DIR/job.toml:3: `input.kye` is not a known key
          hint: did you mean `key`?
        DIR/job.toml:1: `input.key` is missing, expected text or a list
        DIR/job.toml:7: `predictor.kind` is "onxx", expected `onnx` or `subprocess`
          hint: did you mean `onnx`?
        DIR/job.toml:9: `output.dir` is 3, expected text
        DIR/job.toml:10: `otput` is not a known key
          hint: did you mean `output`?
        DIR/job.toml:5: `input.batch_rows` is 0, expected at least 1
          hint: a batch is held in memory many times over
    "#]],
    );
    let job = bench.write(
        "job.toml",
        "[input]\nfeatures = \"t.parquet\"\nkey = \"id\"\nschema = \"none.toml\"\nbatch_rows = 0\n\
         [predictor]\nkind = \"onnx\"\nmodel = \"none.onnx\"\ncommand = [\"x\"]\n[output]\ndir = \"o\"\n\
         [runtime]\nmemory = \"much\"\n",
    );
    bench.fails_with(&overturn(&["validate", &job]), 1, &expect![[r#"
        errors:
        DIR/job.toml:5: `input.batch_rows` is 0, expected at least 1
          hint: a batch is held in memory many times over
        DIR/job.toml:4: `input.schema` is `DIR/none.toml`, which does not exist
        DIR/job.toml:9: `predictor.command` is given, but `predictor.kind` is `onnx`, which has no use for it
        DIR/job.toml:8: `predictor.model` is `DIR/none.onnx`, which does not exist
        DIR/job.toml:13: `runtime.memory` is "much", expected a size such as "4GiB"
    "#]]);
    bench.fails_with(
        &overturn(&["validate", &bench.text("no.toml")]),
        1,
        &expect![[r#"
        error: DIR/no.toml: cannot be read
          because: No such file or directory (os error 2)
    "#]],
    );
}

#[test]
fn a_missing_file() {
    let bench = Bench::new();
    bench.fails_with(
        &bench.score("nowhere.parquet", ""),
        1,
        &expect![[r#"
        error: DIR/nowhere.parquet: does not exist, expected a Parquet file, a folder or a glob
          hint: in a job file, relative paths start from its folder
    "#]],
    );
    fs::create_dir(bench.path("empty")).expect("a folder");
    bench.fails_with(
        &bench.score("empty", ""),
        1,
        &expect![[r#"
        error: DIR/empty: holds no Parquet file
          hint: files must end in .parquet; names that start with `_` or `.` are skipped
    "#]],
    );
    bench.fails_with(
        &bench.score("*.nothing", ""),
        1,
        &expect![[r#"
        error: DIR/*.nothing: holds no Parquet file
          hint: files must end in .parquet; names that start with `_` or `.` are skipped
    "#]],
    );
}

#[test]
fn a_missing_column() {
    spoiled(
        "income",
        None,
        &expect![[r#"
        error: DIR/t.parquet: has no column `income`
          hint: its columns are `application_id`, `applied_on`, `age`, `debt`, `savings`, `loan_amount`, `loan_term_months`, `credit_history_months`, `late_payments`, `open_accounts`, `employment`, `housing` and 6 more
    "#]],
    );
    spoiled(
        "application_id",
        None,
        &expect![[r#"
        error: DIR/t.parquet: has no column `application_id`
          hint: its columns are `applied_on`, `age`, `income`, `debt`, `savings`, `loan_amount`, `loan_term_months`, `credit_history_months`, `late_payments`, `open_accounts`, `employment`, `housing` and 6 more
    "#]],
    );
}

#[test]
fn a_column_of_the_wrong_type() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["12"; 300]));
    spoiled(
        "income",
        Some(texts),
        &expect![[r#"
        error: DIR/t.parquet: column `income` is text, expected a number, date or timestamp for a numeric feature
          hint: store it as `CAST("income" AS DOUBLE)`, or declare the feature `categorical`
    "#]],
    );
    let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.5; 300]));
    spoiled(
        "housing",
        Some(numbers),
        &expect![[r#"
        error: DIR/t.parquet: column `housing` is float64, expected text, boolean or whole numbers for a categorical feature
          hint: store it as `CAST("housing" AS VARCHAR)`, or declare the feature `numeric`
    "#]],
    );
    let bytes = cast(&StringArray::from(vec!["x"; 300]), &DataType::Binary).expect("bytes");
    spoiled(
        "housing",
        Some(bytes),
        &expect![[r#"
        error: DIR/t.parquet: column `housing` is binary, expected text, boolean or whole numbers for a categorical feature
          hint: leave the column out of the schema, or store it as text
    "#]],
    );
}

#[test]
fn duplicate_and_null_keys() {
    let keys: Int64Array = (0..300).map(|row| Some(if row < 4 { 7 } else { row })).collect();
    spoiled(
        "application_id",
        Some(Arc::new(keys)),
        &expect![[r#"
        error: DIR/t.parquet: key `application_id` is not unique: 1 keys occur more than once (7)
          hint: name further columns in `input.key`, or remove the duplicates
    "#]],
    );
    let keys: Int64Array = (0..300).map(|row| (row > 2).then_some(row)).collect();
    spoiled(
        "application_id",
        Some(Arc::new(keys)),
        &expect![[r#"
        errors:
        DIR/t.parquet: key `application_id` is null in 3 rows
          hint: every row needs a key; filter them with `input.where`
        DIR/t.parquet: key `application_id` is not unique: 1 keys occur more than once (null)
          hint: name further columns in `input.key`, or remove the duplicates
    "#]],
    );
}

#[test]
fn a_column_of_nulls() {
    spoiled(
        "income",
        Some(new_null_array(&DataType::Float64, 300)),
        &expect![[r#"
        error: DIR/t.parquet: column `income` is null in every row
          hint: leave it out of the schema, or repair the table
    "#]],
    );
}

#[test]
fn unseen_categories_beyond_what_may_be_rejected() {
    let housing: StringArray =
        (0..300).map(|row| Some(if row % 2 == 0 { "rent" } else { "remt" })).collect();
    spoiled(
        "housing",
        Some(Arc::new(housing)),
        &expect![[r#"
        errors:
        DIR/t.parquet: column `housing`: 150 rows are not one of its values: "remt" (50.00 %)
          hint: did you mean `rent`? Otherwise add them to `values`, or use `unseen = "carry"` or `unseen = "fill"`
        input.max_reject_share: 50.00 % of the rows would be rejected, at most 5.00 % may be
    "#]],
    );
}

#[test]
fn nan_and_infinity_are_set_aside_with_their_reasons() {
    let income = floats(|row, value| match row {
        3 => Some(f64::NAN),
        5 => Some(f64::INFINITY),
        7 => None,
        _ => Some(value),
    });
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &with_column(&credit(300), "income", Some(income)));
    let summary = bench.score(&table, "").ok().json();
    assert_eq!(summary["rows_scored"], 297);
    assert_eq!(summary["rows_rejected"], serde_json::json!({"infinite": 1, "null": 2}));
    let rejects = read_table(&bench.path("out/rejects"));
    assert_eq!(rejects.num_rows(), 3);
    let details = rejects.column_by_name("detail").expect("there");
    let details = details.as_any().downcast_ref::<StringArray>().expect("texts");
    assert!(details.iter().flatten().any(|detail| detail == "`income` is inf"), "{details:?}");

    let all_nan = floats(|_, _| Some(f64::NAN));
    spoiled(
        "income",
        Some(all_nan),
        &expect![[r#"
        error: DIR/t.parquet: column `income` is null in every row
          hint: leave it out of the schema, or repair the table
    "#]],
    );
    let half = floats(|row, value| Some(if row % 2 == 0 { f64::NEG_INFINITY } else { value }));
    spoiled(
        "income",
        Some(half),
        &expect![[r#"
        errors:
        DIR/t.parquet: column `income`: 150 rows are infinite (50.00 %)
          hint: infinite numbers are always rejected
        input.max_reject_share: 50.00 % of the rows would be rejected, at most 5.00 % may be
    "#]],
    );
}

#[test]
fn an_empty_table_and_an_empty_scope() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(10).slice(0, 0));
    bench.fails_with(
        &bench.score(&table, ""),
        1,
        &expect![[r#"
        error: DIR/t.parquet: has no rows
    "#]],
    );
    let table = bench.parquet("t.parquet", &credit(10));
    bench.fails_with(
        &bench.score(&table, "where = \"age > 1000\""),
        1,
        &expect![[r#"
        error: DIR/t.parquet: none of its 10 rows satisfies `input.where`: age > 1000
    "#]],
    );
    bench.fails_with(&bench.score(&table, "where = \"agee > 1\""), 1, &expect![[r#"
        error: input.where: is `agee > 1`, which is not a predicate over the table: Schema error: No field named agee. Did you mean 'features.age'?
        Valid fields are features.application_id, features.applied_on, features.age, features.income, features.debt, features.savings, features.loan_amount, features.loan_term_months, features.credit_history_months, features.late_payments, feat… (471 bytes)
          hint: quote column names with spaces: "Marital Status" = 'Married'
    "#]]);
    bench.fails_with(&bench.score(&table, "where = \"age >\""), 1, &expect![[r#"
        error: input.where: is `age >`, which is not a predicate over the table: SQL error: ParserError("Expected: an expression, found: EOF")
          hint: quote column names with spaces: "Marital Status" = 'Married'
    "#]]);
}

#[test]
fn a_parquet_file_cut_in_half() {
    let bench = Bench::new();
    let table = bench.parquet("t/a.parquet", &credit(300));
    let whole = fs::read(&table).expect("readable");
    fs::write(bench.path("t/b.parquet"), &whole[..whole.len() / 2]).expect("written");
    bench.fails_with(&bench.score("t", ""), 1, &expect![[r#"
        error: DIR/t/b.parquet: is not a whole Parquet file (9921 bytes): Parquet error: Invalid Parquet file. Corrupt footer
          hint: it may have been cut short, or is still being written
    "#]]);
    fs::write(bench.path("t/b.parquet"), b"").expect("written");
    bench.fails_with(&bench.score("t", ""), 1, &expect![[r#"
        error: DIR/t/b.parquet: is not a whole Parquet file (0 bytes): EOF: Parquet file too small. Size is 0 but need 8
          hint: it may have been cut short, or is still being written
    "#]]);
}

#[test]
fn a_parquet_file_damaged_in_the_middle() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(5000));
    let mut bytes = fs::read(&table).expect("readable");
    let middle = bytes.len() / 2;
    bytes[4..middle].fill(0xff);
    fs::write(&table, bytes).expect("written");
    bench.score(&table, "").says(1, &expect![[r#"
        error: DIR/t.parquet: cannot be read to its end
          hint: a file may be damaged beyond its footer
          because: Arrow error: Parquet argument error: Parquet error: Unexpected struct field type 15
    "#]]);
    assert!(!bench.path("out").exists());
}

#[test]
fn files_that_disagree() {
    let bench = Bench::new();
    let batch = credit(20);
    bench.parquet("t/a.parquet", &batch);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; 20]));
    bench.parquet("t/b.parquet", &with_column(&batch, "age", Some(texts)));
    bench.fails_with(
        &bench.score("t", ""),
        1,
        &expect![[r#"
        error: DIR/t/b.parquet: column `age` is text, but int32 in `DIR/t/a.parquet`
          hint: the files of a table must agree; rewrite one of them with a cast
    "#]],
    );
}

#[test]
fn models_that_cannot_be_used() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(50));
    let score = |predictor: &str| overturn(&["score", &bench.job(&table, "", Some(predictor))]);
    bench.write("broken.onnx", "this is no model");
    bench.fails_with(
        &score("kind = \"onnx\"\nmodel = \"broken.onnx\""),
        1,
        &expect![[r#"
        error: DIR/broken.onnx: cannot be read as an ONNX model; it is cut short or something else
          because: the bytes are not a whole protocol buffer with a graph in it
    "#]],
    );
    let root = project().display();
    let schema = "[[feature]]\nname = \"age\"\nkind = \"numeric\"\n";
    bench.write("short.toml", schema);
    let onnx = format!("kind = \"onnx\"\nmodel = \"{root}/jobs/demo/logistic.onnx\"");
    let job = bench.job(&table, "schema = \"short.toml\"", Some(&onnx));
    bench.fails_with(&overturn(&["score", &job]), 1, &expect![[r#"
        error: PROJECT/jobs/demo/logistic.onnx: inputs and features do not match: no feature feeds the inputs `income`, `debt`, `savings`, `loan_amount`, `loan_term_months`, `credit_history_months`, `late_payments`, `open_accounts` and 7 more
          hint: add the inputs to the feature schema and take out features that the model does not know, or pair them in `[predictor.rename]` as `"feature" = "input"`
    "#]]);
    assert!(!bench.path("out").exists());
}

#[test]
fn predicates_that_need_more_than_a_row() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(50));
    for (predicate, found) in [
        ("max(age) > 3", "the aggregate function `max`"),
        ("age > 3 AND count(*) > 1", "the aggregate function `count`"),
        ("row_number() over () < 3", "the window function `row_number`"),
        ("age > (SELECT 1)", "a subquery"),
        ("age > $1", "the parameter `$1`"),
    ] {
        let said = format!("input.where: is `{predicate}`, which has {found}, expected only");
        bench.score(&table, &format!("where = \"{predicate}\"")).fails(1, &[said.as_str()]);
    }
    bench.fails_with(&bench.score(&table, "where = \"random() > 0.5\""), 1, &expect![[r#"
        error: input.where: is `random() > 0.5`, which calls a function whose result changes by itself, such as now() or random()
          hint: rows in scope must be the same when a run is resumed; give the date with `--set date=…` and write `'${date}'`
    "#]]);
    assert!(!bench.path("out").exists());
}

#[test]
fn two_columns_of_one_name() {
    let bench = Bench::new();
    let field = Field::new("x", DataType::Int64, true);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let schema = Arc::new(Schema::new(vec![field.clone(), field]));
    let batch = RecordBatch::try_new(schema, vec![Arc::clone(&values), values]).expect("fits");
    let table = bench.parquet("t.parquet", &batch);
    bench.fails_with(
        &overturn(&["schema", "infer", &table]),
        1,
        &expect![[r#"
        error: DIR/t.parquet: has two columns `x`, expected every name once
          hint: write it again with one of them renamed or left out
    "#]],
    );
}
