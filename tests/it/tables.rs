//! Tables in and out: layouts on disk, Arrow types, statistics and scores, with pyarrow, NumPy and DuckDB
//! as the other side.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::Int64Type;
use expect_test::expect;
use overturn::engine::{Engine, EngineOptions, ScanPlan, gather_stats};
use overturn::feature::{FeatureSchema, FeatureStats, Stats};
use overturn::job::{Bytes, Device, RuntimeJob};
use overturn::runtime::Runtime;

use crate::util::{
    Bench, Run, credit, overturn, program, project, python, read_table, run_python, with_column,
};

/// Key → class and first score of a score table.
fn scores(path: &Path) -> BTreeMap<i64, (String, f64)> {
    let table = read_table(path);
    let keys =
        table.column_by_name("application_id").expect("a key").as_primitive::<Int64Type>().clone();
    let classes = table.column_by_name("class").expect("a class").as_string::<i32>().clone();
    let first = table.column_by_name("score_approved").expect("a score").clone();
    let first = first.as_any().downcast_ref::<Float64Array>().expect("numbers").clone();
    (0..table.num_rows())
        .map(|row| (keys.value(row), (classes.value(row).to_string(), first.value(row))))
        .collect()
}

#[test]
fn scores_do_not_depend_on_threads_batches_or_layout() {
    let bench = Bench::new();
    let table = credit(20_000);
    bench.parquet("one.parquet", &table);
    for part in 0..4 {
        bench.parquet(&format!("many/nested/{part}.parquet"), &table.slice(part * 5000, 5000));
    }
    bench.write("many/_metadata.parquet", "skipped");
    bench.write("many/.hidden/x.parquet", "skipped");
    let mut found = Vec::new();
    for (table, input, threads) in [
        ("one.parquet", "", "1"),
        ("one.parquet", "batch_rows = 777", "2"),
        ("many", "", "3"),
        ("many/*/*.parquet", "batch_rows = 100", "2"),
    ] {
        let job = bench.job(table, input, None);
        let summary =
            overturn(&["score", &job, "--threads", threads, "--format", "json"]).ok().json();
        assert_eq!(summary["rows_scored"], 20_000, "{table} {input}");
        found.push(scores(&bench.path("out/scores")));
        std::fs::remove_dir_all(bench.path("out")).expect("removed");
    }
    assert_eq!(found[0].len(), 20_000);
    for other in &found[1..] {
        assert!(found[0] == *other);
    }
}

#[test]
fn hive_partitions_are_columns() {
    let bench = Bench::new();
    let table = credit(2000);
    bench.parquet("plain.parquet", &table);
    bench.score("plain.parquet", "").ok();
    let plain = scores(&bench.path("out/scores"));
    std::fs::remove_dir_all(bench.path("out")).expect("removed");
    let sexes = table.column_by_name("sex").expect("there").as_string::<i32>().clone();
    for sex in ["female", "male"] {
        let rows = (0..table.num_rows() as u32).filter(|row| sexes.value(*row as usize) == sex);
        let rows = arrow::array::UInt32Array::from_iter_values(rows);
        let part = arrow::compute::take_record_batch(&table, &rows).expect("taken");
        bench.parquet(
            &format!("hive/year=2026/sex={sex}/a.parquet"),
            &with_column(&part, "sex", None),
        );
    }
    bench.score("hive", "where = \"year = 2026\"").ok();
    assert!(plain == scores(&bench.path("out/scores")));
    std::fs::remove_dir_all(bench.path("out")).expect("removed");
    let summary = bench.score("hive", "where = \"sex = 'male' AND year > 2000\"").ok().json();
    let males = sexes.iter().flatten().filter(|sex| *sex == "male").count();
    assert_eq!(summary["rows_scored"], males);
    assert_eq!(summary["rows_out_of_scope"], 2000 - males);
    bench.parquet("hive/stray.parquet", &with_column(&table.slice(0, 5), "sex", None));
    bench.score("hive", "").says(
        1,
        &expect![[r#"
        error: DIR/hive/year=2026/sex=female/a.parquet: lies in folders ["year", "sex"], expected []
          hint: all files of a hive-partitioned table need the same `name=value` folders
    "#]],
    );
}

#[test]
fn a_small_memory_limit_and_one_row_are_enough() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(50_000));
    let job = bench.job(&table, "", None);
    let text = std::fs::read_to_string(&job).expect("readable") + "[runtime]\nmemory = \"64MiB\"\n";
    std::fs::write(&job, text).expect("written");
    overturn(&["score", &job]).ok();
    std::fs::remove_dir_all(bench.path("out")).expect("removed");
    bench.parquet("t.parquet", &credit(1));
    assert_eq!(bench.score(&table, "").ok().json()["rows_scored"], 1);
}

#[test]
fn every_row_is_scored_out_of_scope_or_rejected_with_a_reason() {
    let bench = Bench::new();
    let mut table = credit(1000);
    let spoil = |table: &RecordBatch, name: &str, rows: &[usize], value: Option<&str>| {
        let column = table.column_by_name(name).expect("there").as_string::<i32>().clone();
        let changed = column.iter().enumerate();
        let changed: StringArray =
            changed.map(|(row, old)| if rows.contains(&row) { value } else { old }).collect();
        with_column(table, name, Some(Arc::new(changed)))
    };
    table = spoil(&table, "employment", &[3, 500], Some("astronaut"));
    table = spoil(&table, "marital_status", &[3, 4], None);
    table = spoil(&table, "purpose", &[7], Some("a new purpose")); // the schema fills it
    table = spoil(&table, "region", &[8], Some("atlantis")); // the schema carries it
    let path = bench.parquet("t.parquet", &table);
    let summary = bench.score(&path, "where = \"application_id <= 900\"").ok().json();
    let rejected = serde_json::json!({"null": 1, "unseen_category": 2});
    assert_eq!(summary["rows_rejected"], rejected);
    assert_eq!(summary["rows_out_of_scope"], 100);
    assert_eq!(summary["rows_scored"], 897);
    let rejects = read_table(&bench.path("out/rejects"));
    let reasons: Vec<String> = (0..3)
        .map(|row| {
            let text = |name: &str| {
                rejects
                    .column_by_name(name)
                    .expect("there")
                    .as_string::<i32>()
                    .value(row)
                    .to_string()
            };
            let key = rejects.column(0).as_primitive::<Int64Type>().value(row);
            format!("{key} {} {}", text("reason"), text("detail"))
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "4 unseen_category `employment` is \"astronaut\", which is not one of its values",
            "5 null `marital_status` is null",
            "501 unseen_category `employment` is \"astronaut\", which is not one of its values",
        ]
    );
}

#[test]
fn stored_scores_are_joined_and_compared_with_the_model() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(3000));
    bench.score(&table, "").ok();
    let stored = read_table(&bench.path("out/scores"));
    std::fs::rename(bench.path("out"), bench.path("stored")).expect("moved");
    let input = "[input.scores]\ntable = \"stored/scores\"\n";
    let job = |input: &str| bench.job(&table, input, None);
    let parity =
        overturn(&["validate", &job(input), "--format", "json"]).ok().json()["parity"].clone();
    assert_eq!(
        parity,
        serde_json::json!({"rows_without_score": 0, "rows_compared": 1000, "rows_different": 0})
    );

    let half = bench.parquet("half.parquet", &stored.slice(0, 1500));
    let input = format!("[input.scores]\ntable = \"{half}\"\n");
    let parity =
        overturn(&["validate", &job(&input), "--format", "json"]).ok().json()["parity"].clone();
    assert_eq!(parity["rows_without_score"], 1500);

    let flipped: StringArray = stored
        .column_by_name("class")
        .expect("there")
        .as_string::<i32>()
        .iter()
        .map(|class| class.map(|class| if class == "approved" { "rejected" } else { "approved" }))
        .collect();
    let wrong =
        bench.parquet("wrong.parquet", &with_column(&stored, "class", Some(Arc::new(flipped))));
    let input = format!("[input.scores]\ntable = \"{wrong}\"\n");
    overturn(&["validate", &job(&input)]).says(1, &expect![[r#"
        error: DIR/wrong.parquet: 1000 of 1000 stored decisions are not the model's (100.00 %, at most 0.10 % may be)
          hint: the scores come from another model, another version of it, or other features; score again with `overturn score`
    "#]]);

    let input = format!("[input.scores]\ntable = \"{wrong}\"\ndecision = \"klass\"\n");
    overturn(&["validate", &job(&input)]).says(
        1,
        &expect![[r#"
        error: DIR/wrong.parquet: has no column `klass`
          hint: did you mean `class`?
    "#]],
    );
}

#[test]
fn duckdb_and_pyarrow_read_the_score_table() {
    let Some(python) = python("duckdb_and_pyarrow_read_the_score_table") else { return };
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(5000));
    bench.score(&table, "").ok();
    let script = r#"
import sys, json, duckdb, pyarrow.parquet as pq
out = sys.argv[1]
rows, keys, bad = duckdb.execute("""
    SELECT count(*), count(DISTINCT application_id),
           count(*) FILTER (abs(score_approved + score_rejected - 1) > 1e-5
                            OR (class = 'approved') <> (score_approved >= score_rejected))
    FROM read_parquet(?)""", [out + "/scores/*.parquet"]).fetchone()
assert (rows, keys, bad) == (5000, 5000, 0), (rows, keys, bad)
table = pq.read_table(out + "/scores")
assert [str(f.type) for f in table.schema] == ["int64", "string", "double", "double"], table.schema
rejects = pq.read_table(out + "/rejects")
assert rejects.num_rows == 0 and rejects.schema.names == ["application_id", "reason", "detail"]
file = pq.ParquetFile(out + "/scores/part-00000.parquet")
column = file.metadata.row_group(0).column(0)
assert column.is_stats_set and column.compression == "ZSTD"
assert b"overturn.versions" in file.metadata.metadata
"#;
    run_python(&python, script, &[&bench.text("out")]);
}

/// Every type that a feature can have, written by pyarrow; statistics by NumPy, as JSON.
const ORACLE: &str = r#"
import sys, json, decimal, datetime
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
rng = np.random.default_rng(0)
n = 20_000
whole = {name: pa.array(rng.integers(0, 100, n), type=getattr(pa, name)())
         for name in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]}
real = {name: pa.array(rng.lognormal(3, 2, n).astype(np.float32), type=getattr(pa, name)()) for name in ["float32", "float64"]}
real["float16"] = pa.array(rng.normal(size=n).astype(np.float16))
# Far from zero and close together: what a naive sum of squares gets wrong.
real["far"] = pa.array(1e9 + rng.normal(size=n))
real["gaps"] = pa.array([None if i % 7 == 0 else float("nan") if i % 7 == 1 else float(i) for i in range(n)], type=pa.float64())
other = {
    "decimal": pa.array([decimal.Decimal(int(v)).scaleb(-2) for v in rng.integers(-10**6, 10**6, n)], type=pa.decimal128(12, 2)),
    "date": pa.array([datetime.date(2020, 1, 1) + datetime.timedelta(days=int(d)) for d in rng.integers(0, 2000, n)]),
    "timestamp": pa.array(rng.integers(1.6e15, 1.7e15, n), type=pa.timestamp("us")),
}
values = ["a", "b", "c"]
picks = rng.integers(0, 4, n)
texts = [None if p == 3 else values[p] for p in picks]
labels = {
    "utf8": pa.array(texts), "large_utf8": pa.array(texts, type=pa.large_string()),
    "view": pa.array(texts, type=pa.string_view()), "dictionary": pa.array(texts).dictionary_encode(),
}
flags = pa.array([bool(b) for b in rng.integers(0, 2, n)])
codes = pa.array(rng.integers(1, 4, n), type=pa.int16())
table = pa.table({"id": pa.array(np.arange(n)), **whole, **real, **other, **labels, "flag": flags, "code": codes})
pq.write_table(table, sys.argv[1], row_group_size=3000)
shares = [0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0]
def numbers(column):
    if pa.types.is_date(column.type): column = column.cast(pa.int32())
    if pa.types.is_timestamp(column.type): column = column.cast(pa.int64())
    if pa.types.is_decimal(column.type): column = column.cast(pa.float64())
    return np.array([np.nan if v is None else v for v in column.to_pylist()], dtype=np.float64)
found = {}
for name in list(whole) + list(real) + list(other):
    all_ = numbers(table[name]); x = all_[~np.isnan(all_)]; wide = x.astype(np.longdouble)
    found[name] = {"count": len(x), "nulls": int(np.isnan(all_).sum()), "min": x.min(), "max": x.max(),
                   "mean": float(wide.mean()), "std": float(wide.std()), "low": list(np.quantile(x, shares, method="lower")), "high": list(np.quantile(x, shares, method="higher"))}
found["categories"] = [int((picks == p).sum()) for p in range(4)]
found["flags"] = [flags.to_pylist().count(False), flags.to_pylist().count(True)]
found["codes"] = [codes.to_pylist().count(v) for v in (1, 2, 3)]
print(json.dumps(found))
"#;

const NUMERIC: [&str; 16] = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "far",
    "gaps",
    "decimal",
    "date",
    "timestamp",
];

fn oracle_schema() -> FeatureSchema {
    let mut text = String::new();
    for name in NUMERIC {
        text += &format!("[[feature]]\nname = \"{name}\"\nkind = \"numeric\"\nnulls = \"carry\"\n");
    }
    for (name, values) in [
        ("utf8", "[\"a\", \"b\", \"c\"]"),
        ("large_utf8", "[\"a\", \"b\", \"c\"]"),
        ("view", "[\"a\", \"b\", \"c\"]"),
        ("dictionary", "[\"a\", \"b\", \"c\"]"),
        ("flag", "[false, true]"),
        ("code", "[1, 2, 3]"),
    ] {
        text += &format!(
            "[[feature]]\nname = \"{name}\"\nkind = \"categorical\"\nnulls = \"carry\"\nvalues = {values}\n"
        );
    }
    FeatureSchema::parse(&text, Path::new("oracle.toml")).expect("a good schema")
}

fn statistics(table: &str, schema: &FeatureSchema, partitions: usize, batch_rows: usize) -> Stats {
    let job = RuntimeJob { threads: 2, memory: Bytes(1 << 30), device: Device::Cpu, seed: 0 };
    let runtime = Runtime::start(&job).expect("started");
    let engine = Engine::new(EngineOptions { partitions, batch_rows, memory_bytes: 1 << 30 })
        .expect("started");
    let table = engine.open("features", &[table.to_string()]).expect("opened");
    let columns: Vec<String> = schema.names().map(String::from).collect();
    runtime
        .block_on(async {
            let plan = ScanPlan { table: &table, predicate: None, columns: &columns, scores: None };
            let scan = engine.scan(plan).await?;
            let places: Vec<usize> = (0..columns.len()).collect();
            gather_stats(&scan, schema, places.into(), Arc::new(|_| {})).await
        })
        .expect("gathered")
}

fn close(found: f64, expected: &serde_json::Value, tolerance: f64, what: &str) {
    let expected = expected.as_f64().expect("a number");
    let scale = expected.abs().max(1e-9);
    assert!((found - expected).abs() <= tolerance * scale, "{what}: {found}, expected {expected}");
}

#[test]
fn statistics_of_every_type_agree_with_numpy_and_do_not_depend_on_the_partitions() {
    let test = "statistics_of_every_type_agree_with_numpy_and_do_not_depend_on_the_partitions";
    let Some(python) = python(test) else { return };
    let bench = Bench::new();
    let table = bench.text("types.parquet");
    let oracle: serde_json::Value =
        serde_json::from_str(&run_python(&python, ORACLE, &[&table])).expect("JSON");
    let schema = oracle_schema();
    let stats = statistics(&table, &schema, 1, 8192);
    assert!(stats == statistics(&table, &schema, 3, 1000), "order and grouping must not matter");
    for (name, seen) in schema.names().zip(&stats.features) {
        match seen {
            FeatureStats::Numeric(seen) => {
                let expected = &oracle[name];
                assert_eq!(expected["count"].as_u64(), Some(seen.count), "{name}");
                assert_eq!(expected["nulls"].as_u64(), Some(seen.nulls), "{name}");
                close(seen.min, &expected["min"], 0.0, name);
                close(seen.max, &expected["max"], 0.0, name);
                close(seen.mean, &expected["mean"], 1e-12, name);
                close(seen.std, &expected["std"], 1e-9, name);
                for (index, found) in seen.quantiles.iter().enumerate() {
                    let at = |end: &str| expected[end][index].as_f64().expect("a number");
                    let (low, high) = (at("low"), at("high"));
                    let slack = 0.004 * low.abs().max(high.abs());
                    let range = low - slack..=high + slack;
                    assert!(range.contains(found), "{name} {index}: {found} not in {range:?}");
                }
            }
            FeatureStats::Categorical(seen) => {
                let expected = match name {
                    "flag" => oracle["flags"].clone(),
                    "code" => oracle["codes"].clone(),
                    _ => serde_json::json!(oracle["categories"].as_array().expect("counts")[..3]),
                };
                assert_eq!(serde_json::json!(seen.counts), expected, "{name}");
            }
        }
    }
}

#[test]
fn lists_and_other_types_are_refused_by_name() {
    let bench = Bench::new();
    let table = credit(10);
    let list = arrow::array::ListArray::from_iter_primitive::<Int64Type, _, _>(
        (0..10).map(|_| Some(vec![Some(1)])),
    );
    let path = bench.parquet("t.parquet", &with_column(&table, "age", Some(Arc::new(list))));
    bench.score(&path, "").says(1, &expect![[r#"
        error: DIR/t.parquet: column `age` is list(int64), expected a number, date or timestamp for a numeric feature
          hint: leave the column out of the schema, or store it as numbers
    "#]]);
}

#[test]
fn per_row_constraint_columns_are_found() {
    let bench = Bench::new();
    let table = credit(100);
    let limit: Arc<dyn Array> = Arc::new(Float64Array::from(vec![50_000.0; 100]));
    let table = with_column(&table, "income__max", Some(limit));
    let path = bench.parquet("t.parquet", &table);
    let summary =
        overturn(&["validate", &bench.job(&path, "", None), "--format", "json"]).ok().json();
    assert_eq!(summary["constraint_columns"], serde_json::json!(["income__max"]));
    let wrong: Arc<dyn Array> = Arc::new(StringArray::from(vec!["x"; 100]));
    let path = bench.parquet("t.parquet", &with_column(&table, "income__max", Some(wrong)));
    overturn(&["validate", &bench.job(&path, "", None)]).says(
        1,
        &expect![[r#"
        error: DIR/t.parquet: column `income__max` is text, expected a number, date or timestamp
          hint: columns named `income__…` constrain that feature row by row
    "#]],
    );
}

#[test]
fn bare_names_and_globs_start_from_the_current_folder() {
    let bench = Bench::new();
    bench.parquet("t.parquet", &credit(100));
    let infer = |table: &str| {
        Run::of(program().current_dir(bench.path("")).args(["schema", "infer", table]))
    };
    for table in ["t.parquet", "*.parquet", "./t.parquet", "."] {
        let inferred = infer(table).ok().stdout;
        assert!(inferred.contains("name = \"age\""), "{table}: {inferred}");
    }
    infer("none.parquet").says(
        1,
        &expect![[r#"
        error: none.parquet: does not exist, expected a Parquet file, a folder or a glob
          hint: relative paths start from the current folder
    "#]],
    );
}

#[test]
fn a_column_that_some_files_lack_is_told() {
    let bench = Bench::new();
    let table = credit(100);
    bench.parquet("t/a.parquet", &table);
    bench.parquet("t/b.parquet", &with_column(&table, "region", None));
    bench.parquet("t/c.parquet", &with_column(&table, "region", None));
    let said = overturn(&["schema", "infer", &bench.text("t")]).ok().stderr;
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("missing in some")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    for expected in ["column `region` is missing in some files", "files=2", "b.parquet"] {
        assert!(lines[0].contains(expected), "{expected} not in {said}");
    }
}

#[test]
fn whole_numbers_beyond_64_bits_are_inferred_as_floats() {
    let bench = Bench::new();
    let numbers: Arc<dyn Array> = Arc::new(UInt64Array::from(vec![0, 5, u64::MAX]));
    let table = bench.parquet("t.parquet", &with_column(&credit(3), "counter", Some(numbers)));
    let inferred = overturn(&["schema", "infer", &table]).ok().stdout;
    assert!(inferred.contains("range = [0, 1.8446744073709552e19] # observed"), "{inferred}");
    FeatureSchema::parse(&inferred, Path::new("inferred.toml")).expect("a good schema");
}

#[test]
fn text_files_are_refused_with_the_command_that_converts_them() {
    let bench = Bench::new();
    bench.write("t/a.csv", "application_id,income\n1,2\n");
    bench.write("rows.jsonl", "{\"application_id\": 1}\n");
    bench.score("t/a.csv", "").says(
        1,
        &expect![[r#"
        error: DIR/t/a.csv: is a CSV file, expected Parquet
          hint: convert it: duckdb -c "COPY (FROM 'DIR/t/a.csv') TO 'DIR/t/a.parquet'"
    "#]],
    );
    bench.score("t", "").says(
        1,
        &expect![[r#"
        error: DIR/t: holds no Parquet file
          hint: convert it: duckdb -c "COPY (FROM 'DIR/t/a.csv') TO 'DIR/t/a.parquet'"
    "#]],
    );
    bench.score("rows.jsonl", "").says(
        1,
        &expect![[r#"
        error: DIR/rows.jsonl: is a JSON file, expected Parquet
          hint: convert it: duckdb -c "COPY (FROM 'DIR/rows.jsonl') TO 'DIR/rows.parquet'"
    "#]],
    );
}

#[test]
fn a_value_without_tolerance_is_refused_for_a_regression() {
    let bench = Bench::new();
    bench.parquet("t.parquet", &credit(10));
    let model = project().join("jobs/demo/logistic.onnx");
    let model = format!("kind = \"onnx\"\ntask = \"regression\"\nmodel = \"{}\"", model.display());
    let job = bench.job("t.parquet", "", Some(&model));
    bench.append("job.toml", "[target]\nvalue = 5.0\n");
    overturn(&["validate", &job]).says(1, &expect![[r#"
        error: DIR/job.toml:13: `target.value` has no `tolerance`: a model with continuous values meets a single one only by chance; expected a `tolerance` above 0, or a `range`
    "#]]);
}
