//! Bad input: each fault with its message, its exit code, and nothing written.

use std::fs;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};

use crate::util::{Bench, credit, overturn, project, read_table, with_column};

/// Scores a table with one column replaced; the run must fail, and write nothing.
fn spoiled(column: &str, values: Option<ArrayRef>, code: i32, said: &[&str]) {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &with_column(&credit(300), column, values));
    bench.score(&table, "").fails(code, said);
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
    overturn(&["validate", &job]).fails(
        1,
        &[
            "job.toml:3: `input.kye` is not a known key\n  hint: did you mean `key`?",
            "`input.key` is missing",
            "job.toml:7: `predictor.kind` is \"onxx\", expected `onnx` or `subprocess`\n  hint: did you mean `onnx`?",
            "job.toml:9: `output.dir` is 3, expected text",
            "job.toml:10: `otput` is not a known key\n  hint: did you mean `output`?",
        ],
    );
    let job = bench.write(
        "job.toml",
        "[input]\nfeatures = \"t.parquet\"\nkey = \"id\"\nschema = \"none.toml\"\nbatch_rows = 0\n\
         [predictor]\nkind = \"onnx\"\nmodel = \"none.onnx\"\ncommand = [\"x\"]\n[output]\ndir = \"o\"\n\
         [runtime]\nmemory = \"much\"\n",
    );
    overturn(&["validate", &job]).fails(
        1,
        &[
            "`input.batch_rows` is 0, expected at least 1",
            "none.toml`, which does not exist",
            "none.onnx`, which does not exist",
            "`predictor.command` is given, but `predictor.kind` is `onnx`",
            "`runtime.memory` is \"much\", expected a size such as \"4GiB\"",
        ],
    );
    overturn(&["validate", &bench.text("no.toml")])
        .fails(1, &["no.toml: cannot be read", "because: No such file"]);
}

#[test]
fn a_missing_file() {
    let bench = Bench::new();
    bench
        .score("nowhere.parquet", "")
        .fails(1, &["nowhere.parquet: does not exist, expected a Parquet file"]);
    fs::create_dir(bench.path("empty")).expect("a folder");
    bench.score("empty", "").fails(1, &["empty: holds no Parquet file"]);
    bench.score("*.nothing", "").fails(1, &["*.nothing: holds no Parquet file"]);
}

#[test]
fn a_missing_column() {
    spoiled("income", None, 1, &["t.parquet: has no column `income`", "hint: its columns are"]);
    spoiled("application_id", None, 1, &["has no column `application_id`"]);
}

#[test]
fn a_column_of_the_wrong_type() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["12"; 300]));
    spoiled(
        "income",
        Some(texts),
        1,
        &[
            "column `income` is text, expected a number",
            "hint: store it as `CAST(\"income\" AS DOUBLE)`",
        ],
    );
    let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.5; 300]));
    spoiled(
        "housing",
        Some(numbers),
        1,
        &["column `housing` is float64, expected text", "CAST(\"housing\" AS VARCHAR)"],
    );
    let bytes = cast(&StringArray::from(vec!["x"; 300]), &DataType::Binary).expect("bytes");
    spoiled("housing", Some(bytes), 1, &["column `housing` is binary, expected text"]);
}

#[test]
fn duplicate_and_null_keys() {
    let keys: Int64Array = (0..300).map(|row| Some(if row < 4 { 7 } else { row })).collect();
    spoiled(
        "application_id",
        Some(Arc::new(keys)),
        1,
        &[
            "key `application_id` is not unique: 1 keys occur more than once (7)",
            "hint: name further columns",
        ],
    );
    let keys: Int64Array = (0..300).map(|row| (row > 2).then_some(row)).collect();
    spoiled("application_id", Some(Arc::new(keys)), 1, &["key `application_id` is null in 3 rows"]);
}

#[test]
fn a_column_of_nulls() {
    spoiled(
        "income",
        Some(new_null_array(&DataType::Float64, 300)),
        1,
        &["column `income` is null in every row", "hint: leave it out of the schema"],
    );
}

#[test]
fn unseen_categories_beyond_what_may_be_rejected() {
    let housing: StringArray =
        (0..300).map(|row| Some(if row % 2 == 0 { "rent" } else { "remt" })).collect();
    spoiled(
        "housing",
        Some(Arc::new(housing)),
        1,
        &[
            "column `housing`: 150 rows are not one of its values: \"remt\" (50.00 %)",
            "did you mean `rent`?",
            "input.max_reject_share: 50.00 % of the rows would be rejected, at most 5.00 % may be",
        ],
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
    spoiled("income", Some(all_nan), 1, &["column `income` is null in every row"]);
    let half = floats(|row, value| Some(if row % 2 == 0 { f64::NEG_INFINITY } else { value }));
    spoiled("income", Some(half), 1, &["column `income`: 150 rows are infinite (50.00 %)"]);
}

#[test]
fn an_empty_table_and_an_empty_scope() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(10).slice(0, 0));
    bench.score(&table, "").fails(1, &["t.parquet: has no rows"]);
    let table = bench.parquet("t.parquet", &credit(10));
    bench
        .score(&table, "where = \"age > 1000\"")
        .fails(1, &["none of its 10 rows satisfies `input.where`: age > 1000"]);
    bench.score(&table, "where = \"agee > 1\"").fails(1, &["input.where: is `agee > 1`", "agee"]);
    bench.score(&table, "where = \"age >\"").fails(1, &["input.where: is `age >`"]);
}

#[test]
fn a_parquet_file_cut_in_half() {
    let bench = Bench::new();
    let table = bench.parquet("t/a.parquet", &credit(300));
    let whole = fs::read(&table).expect("readable");
    fs::write(bench.path("t/b.parquet"), &whole[..whole.len() / 2]).expect("written");
    bench.score("t", "").fails(1, &["b.parquet: is not a whole Parquet file", "cut short"]);
    fs::write(bench.path("t/b.parquet"), b"").expect("written");
    bench.score("t", "").fails(1, &["b.parquet: is not a whole Parquet file (0 bytes)"]);
}

#[test]
fn a_parquet_file_damaged_in_the_middle() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(5000));
    let mut bytes = fs::read(&table).expect("readable");
    let middle = bytes.len() / 2;
    bytes[4..middle].fill(0xff);
    fs::write(&table, bytes).expect("written");
    bench
        .score(&table, "")
        .fails(1, &["t.parquet: cannot be read", "damaged beyond its footer", "because: "]);
    assert!(!bench.path("out").exists());
}

#[test]
fn files_that_disagree() {
    let bench = Bench::new();
    let batch = credit(20);
    bench.parquet("t/a.parquet", &batch);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; 20]));
    bench.parquet("t/b.parquet", &with_column(&batch, "age", Some(texts)));
    bench.score("t", "").fails(1, &["b.parquet: column `age` is text, but int", "a.parquet`"]);
}

#[test]
fn models_that_cannot_be_used() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(50));
    let score = |predictor: &str| overturn(&["score", &bench.job(&table, "", Some(predictor))]);
    bench.write("broken.onnx", "this is no model");
    score("kind = \"onnx\"\nmodel = \"broken.onnx\"").fails(1, &["broken.onnx: "]);
    let root = project().display();
    let schema = "[[feature]]\nname = \"age\"\nkind = \"numeric\"\n";
    bench.write("short.toml", schema);
    let onnx = format!("kind = \"onnx\"\nmodel = \"{root}/jobs/demo/logistic.onnx\"");
    let job = bench.job(&table, "schema = \"short.toml\"", Some(&onnx));
    overturn(&["score", &job]).fails(1, &["logistic.onnx: "]);
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
    bench
        .score(&table, "where = \"random() > 0.5\"")
        .fails(1, &["input.where", "whose result changes by itself"]);
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
    overturn(&["schema", "infer", &table])
        .fails(1, &["t.parquet: has two columns `x`", "hint: write it again"]);
}
