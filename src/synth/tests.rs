use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

use super::table::BLOCK_ROWS;
use super::*;
use crate::document::Overrides;
use crate::feature::{FeatureKind, FeatureSchema, NullPolicy};
use crate::job::{Job, Placeholders};

/// Ends in the middle of a block, so that partial blocks are covered.
const ROWS: u64 = 3 * BLOCK_ROWS + 1_234;

fn synth() -> Synth {
    Synth { rows: ROWS, seed: 7, files: 1, null_share: 0.0 }
}

/// Writes the table with that many threads and reads it back, file by file.
fn table(synth: &Synth, threads: usize) -> RecordBatch {
    let dir = TempDir::new().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let summary = pool.install(|| write(synth, dir.path(), &|_| {})).unwrap();
    let paths = parts(dir.path());
    assert_eq!((summary.rows, summary.files), (synth.rows, paths.len()));
    assert_eq!(summary.bytes, paths.iter().map(|path| path.metadata().unwrap().len()).sum::<u64>());
    let batches: Vec<RecordBatch> = paths
        .iter()
        .flat_map(|path| {
            let file = File::open(path).unwrap();
            ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap()
        })
        .map(|batch| batch.unwrap())
        .collect();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

fn parts(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn numbers(table: &RecordBatch, name: &str) -> Vec<f64> {
    let column = table.column_by_name(name).unwrap();
    match column.data_type() {
        DataType::Float64 => column.as_primitive::<Float64Type>().values().to_vec(),
        _ => column.as_primitive::<Int32Type>().values().iter().map(|v| f64::from(*v)).collect(),
    }
}

fn is(table: &RecordBatch, name: &str, value: &str) -> Vec<f64> {
    let column = table.column_by_name(name).unwrap().as_string::<i32>();
    column.iter().map(|text| if text == Some(value) { 1.0 } else { 0.0 }).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn correlation(left: &[f64], right: &[f64]) -> f64 {
    let (left_mean, right_mean) = (mean(left), mean(right));
    let moment = |a: &[f64], a_mean: f64, b: &[f64], b_mean: f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - a_mean) * (b - b_mean)).sum()
    };
    moment(left, left_mean, right, right_mean)
        / (moment(left, left_mean, left, left_mean) * moment(right, right_mean, right, right_mean))
            .sqrt()
}

#[test]
fn rows_do_not_depend_on_threads_or_files() {
    let one = table(&Synth { null_share: 0.1, ..synth() }, 1);
    for (files, threads) in [(1, 3), (2, 1), (5, 2), (64, 3)] {
        let other = table(&Synth { files, null_share: 0.1, ..synth() }, threads);
        assert_eq!(one, other, "{files} files, {threads} threads");
    }
}

#[test]
fn a_longer_table_begins_with_the_shorter_one() {
    let short = Synth { rows: BLOCK_ROWS + 10, null_share: 0.1, ..synth() };
    let long = table(&Synth { rows: BLOCK_ROWS + 2_000, ..short.clone() }, 1);
    let short = table(&short, 1);
    assert_eq!(short, long.slice(0, short.num_rows()));
}

#[test]
fn another_seed_gives_other_rows() {
    let one = table(&synth(), 2);
    let other = table(&Synth { seed: 8, ..synth() }, 2);
    assert_eq!(&one["application_id"], &other["application_id"]);
    assert_ne!(&one["income"], &other["income"]);
}

#[test]
fn keys_count_from_one() {
    let table = table(&Synth { files: 3, ..synth() }, 2);
    let keys = table["application_id"].as_primitive::<Int64Type>().values();
    assert!(keys.iter().copied().eq(1..=ROWS as i64));
    // Blocks must not repeat each other.
    let incomes = numbers(&table, "income");
    let starts: HashSet<String> =
        incomes.chunks(BLOCK_ROWS as usize).map(|block| format!("{:?}", &block[..8])).collect();
    assert_eq!(starts.len(), 4);
}

#[test]
fn nulls_are_there_when_asked_for_and_change_nothing_else() {
    let without = table(&synth(), 2);
    let with = table(&Synth { null_share: 0.05, ..synth() }, 2);
    assert!(without.columns().iter().all(|column| column.null_count() == 0));
    let mut names = Vec::new();
    for (field, (full, holed)) in
        without.schema().fields().iter().zip(without.columns().iter().zip(with.columns()))
    {
        let share = holed.null_count() as f64 / ROWS as f64;
        if share > 0.0 {
            assert!((0.045..0.055).contains(&share), "{}: {share}", field.name());
            names.push(field.name().clone());
        } else {
            assert_eq!(full, holed, "{}", field.name());
        }
    }
    assert_eq!(names, ["savings", "credit_history_months", "housing", "education"]);
    let (full, holed) = (&without["savings"], &with["savings"]);
    let (full, holed) = (full.as_primitive::<Float64Type>(), holed.as_primitive::<Float64Type>());
    assert!(holed.iter().zip(full).all(|(holed, full)| holed.is_none() || holed == full));
}

#[test]
fn numbers_are_skewed_and_rounded_like_real_ones() {
    let table = table(&synth(), 2);
    for name in ["income", "debt", "savings", "loan_amount"] {
        let values = numbers(&table, name);
        assert!(mean(&values) > 1.1 * median(&values), "{name} is not skewed");
        assert!(values.iter().all(|value| value % 100.0 == 0.0), "{name} is not in hundreds");
    }
    let incomes = numbers(&table, "income");
    assert!((25_000.0..45_000.0).contains(&median(&incomes)), "{}", median(&incomes));
    let late = numbers(&table, "late_payments");
    assert!(late.iter().filter(|count| **count == 0.0).count() as u64 > ROWS / 2);
    assert!(numbers(&table, "loan_term_months").iter().all(|months| months % 6.0 == 0.0));
    let ages = numbers(&table, "age");
    let history = numbers(&table, "credit_history_months");
    let possible = ages.iter().zip(&history).all(|(age, months)| *months <= (age - 17.0) * 12.0);
    assert!(possible, "a history older than adulthood");
}

#[test]
fn columns_hang_together() {
    let table = table(&synth(), 2);
    let number = |name| numbers(&table, name);
    let approved = is(&table, "approved", "approved");
    let unemployed = is(&table, "employment", "unemployed");
    let expected_positive = [
        (number("age"), number("credit_history_months"), 0.5),
        (number("age"), is(&table, "housing", "own"), 0.2),
        (number("income"), is(&table, "education", "postgraduate"), 0.1),
        (number("income"), is(&table, "region", "capital"), 0.1),
        (number("income"), number("savings"), 0.2),
        (number("income"), number("loan_amount"), 0.2),
        (number("loan_amount"), number("loan_term_months"), 0.4),
        (unemployed.clone(), number("late_payments"), 0.05),
        (number("income"), approved.clone(), 0.1),
        (number("credit_history_months"), approved.clone(), 0.1),
        (number("savings"), approved.clone(), 0.05),
    ];
    for (position, (left, right, least)) in expected_positive.iter().enumerate() {
        let found = correlation(left, right);
        assert!(found > *least, "pair {position}: {found}, expected more than {least}");
    }
    let expected_negative = [
        (unemployed, number("income")),
        (number("late_payments"), approved.clone()),
        (number("debt"), approved.clone()),
        (number("loan_amount"), approved.clone()),
        (is(&table, "sex", "female"), number("income")),
        (is(&table, "sex", "female"), approved),
    ];
    for (position, (left, right)) in expected_negative.iter().enumerate() {
        let found = correlation(left, right);
        assert!(found < -0.01, "pair {position}: {found}, expected less than -0.01");
    }
}

#[test]
fn approvals_are_as_common_and_as_predictable_as_intended() {
    let mut dice = dice::Dice::for_values(1, 0);
    let odds: Vec<f64> =
        (0..50_000).map(|_| rule::approval(&applicant::Applicant::draw(&mut dice))).collect();
    let share = mean(&odds);
    assert!((0.60..0.75).contains(&share), "approved: {share}");
    let best = mean(&odds.iter().map(|odds| odds.max(1.0 - odds)).collect::<Vec<_>>());
    assert!((0.88..0.92).contains(&best), "best possible accuracy: {best}");
}

#[test]
fn progress_and_summary_agree_with_the_table() {
    let (dir, seen) = (TempDir::new().unwrap(), AtomicU64::new(0));
    let observe = |rows| {
        seen.fetch_add(rows, Ordering::Relaxed);
    };
    let summary = write(&synth(), &dir.path().join("new/folder"), &observe).unwrap();
    assert_eq!(seen.into_inner(), ROWS);
    let approved = mean(&is(&table(&synth(), 1), "approved", "approved"));
    assert!((summary.approved_share - approved).abs() < 1e-12);
}

#[test]
fn a_folder_in_use_is_left_alone() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let error = write(&synth(), dir.path(), &|_| {}).unwrap_err();
    assert_eq!(error.kind(), Kind::Output);
    assert!(error.to_string().contains("is not empty"), "{error}");
    assert_eq!(parts(dir.path()).len(), 1);
    let error = write(&synth(), &dir.path().join("notes.txt"), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("notes.txt: cannot be used as a folder"), "{error}");
}

#[test]
fn impossible_tables_are_refused_with_every_fault() {
    let dir = TempDir::new().unwrap();
    let wrong = Synth { rows: 0, seed: 0, files: 0, null_share: f64::NAN };
    let error = write(&wrong, dir.path(), &|_| {}).unwrap_err();
    assert_eq!((error.kind(), error.faults().len()), (Kind::Spec, 3), "{error}");
    let error = write(&Synth { rows: 3, files: 4, ..synth() }, dir.path(), &|_| {}).unwrap_err();
    assert_eq!(error.to_string(), "files: is 4, expected from 1 to 3 for 3 rows");
}

#[test]
fn the_shipped_schema_describes_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = FeatureSchema::read(&root.join("schemas/credit.toml")).unwrap();
    let table = table(&synth(), 2);
    assert_eq!(schema.features.len(), 16);
    for feature in &schema.features {
        let name = feature.name.as_str();
        let column = table.column_by_name(name).unwrap_or_else(|| panic!("no column {name}"));
        match &feature.kind {
            FeatureKind::Numeric(numeric) => {
                let integer = matches!(column.data_type(), DataType::Int32);
                assert_eq!(numeric.integer, Some(integer), "{name}");
                let (low, high) = numeric.range.unwrap();
                let inside = numbers(&table, name).iter().all(|v| (low..=high).contains(v));
                assert!(inside, "{name} leaves its range");
            }
            FeatureKind::Categorical(categorical) => {
                let seen: HashSet<_> = column.as_string::<i32>().iter().flatten().collect();
                let listed = categorical.values.iter().map(String::as_str).collect::<HashSet<_>>();
                assert_eq!(seen, listed, "{name}");
            }
        }
        let schema = table.schema();
        let nullable = schema.field_with_name(name).unwrap().is_nullable();
        assert!(nullable || feature.nulls == NullPolicy::Reject, "{name} is never null");
    }
}

#[test]
fn the_demo_jobs_resolve() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/demo");
    for name in ["forest_onnx.toml", "forest_python.toml", "logistic_onnx.toml"] {
        let mut values = vec!["data=in".to_string(), "out=out".to_string()];
        if name.contains("python") {
            values.push("python=python3".to_string());
        }
        let placeholders = Placeholders::parse(&values).unwrap();
        let job = Job::read(&folder.join(name), &placeholders, &Overrides::default()).unwrap();
        assert_eq!(job.input.key, ["application_id"], "{name}");
        FeatureSchema::read(&job.input.schema).unwrap();
    }
}

/// What other tools make of the files: plain types, no dictionaries, nulls where they may be.
const READ_BACK: &str = r#"
import sys, duckdb, pyarrow as pa, pyarrow.dataset as ds
table = ds.dataset(sys.argv[1], format="parquet").to_table()
types = {field.name: str(field.type) for field in table.schema}
expected = {"application_id": "int64", "applied_on": "date32[day]", "age": "int32",
            "income": "double", "late_payments": "int32", "employment": "string",
            "housing": "string", "approved": "string"}
assert {name: types[name] for name in expected} == expected, types
assert table["application_id"].null_count == 0 and table["housing"].null_count > 0
rows, keys, first, last = duckdb.sql(
    f"select count(*), count(distinct application_id), min(applied_on), max(applied_on) "
    f"from '{sys.argv[1]}/*.parquet'").fetchall()[0]
assert rows == keys == table.num_rows, (rows, keys, table.num_rows)
assert (str(first), str(last)) == ("2025-01-01", "2025-12-31"), (first, last)
columns = duckdb.sql(f"describe select * from '{sys.argv[1]}/*.parquet'").fetchall()
kinds = {name: kind for name, kind, *_ in columns}
assert kinds["housing"] == "VARCHAR" and kinds["income"] == "DOUBLE" and kinds["age"] == "INTEGER", kinds
"#;

#[test]
fn other_tools_read_plain_types() {
    let Some(python) = std::env::var_os("OVERTURN_PYTHON") else {
        return eprintln!("skipped: OVERTURN_PYTHON is not set");
    };
    let dir = TempDir::new().unwrap();
    write(&Synth { files: 2, null_share: 0.02, ..synth() }, dir.path(), &|_| {}).unwrap();
    let output = Command::new(python).args(["-c", READ_BACK]).arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
