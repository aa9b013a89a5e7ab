//! Several methods in one run: what each of them says is what it would say alone, and every row is accounted for.

use arrow::array::{AsArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::Int32Type;
use expect_test::expect;
use serde_json::{Value, json};

use crate::fitted::{APPROVED, applications};
use crate::util::{Bench, overturn, python, read_table, same_rows};

const COMPARE: &str = "explain.compare=[\"cfrl\", \"dice_random\", \"lore\"]";
const METHODS: [&str; 3] = ["cfrl", "dice_random", "lore"];

/// A job about 300 rows, some of which are rejects, with the fitted generator.
fn bench(lines: &str) -> (Bench, String) {
    let bench = Bench::new();
    let table = applications(&bench, 300, &[]);
    bench.explain_job(&table, lines);
    (bench, table)
}

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let texts = batch.column_by_name(column).expect(column).as_string::<i32>();
    texts.iter().map(|text| text.unwrap_or_default().to_string()).collect()
}

/// The rows of a method.
fn of(batch: &RecordBatch, method: &str) -> RecordBatch {
    let rows = texts(batch, "method").into_iter().zip(0u32..).filter(|(found, _)| found == method);
    let rows: Vec<u32> = rows.map(|(_, row)| row).collect();
    take_record_batch(batch, &UInt32Array::from(rows)).expect("rows")
}

fn first_samples(batch: &RecordBatch) -> usize {
    let samples = batch.column_by_name("sample").expect("there").as_primitive::<Int32Type>();
    samples.values().iter().filter(|sample| **sample == 0).count()
}

#[test]
fn every_method_says_what_it_says_alone() {
    let (bench, table) = bench("samples = 2\n");
    let summary = bench.does("run", &["--override", COMPARE]).ok().json();
    let together = read_table(&bench.path("out/counterfactuals"));
    assert_eq!(summary["method"], "cfrl");
    for method in METHODS {
        let (given, out) = (format!("explain.method={method}"), format!("output.dir={method}"));
        let alone = bench.does("run", &["--override", &given, "--override", &out]).ok().json();
        let rows = read_table(&bench.path(&format!("{method}/counterfactuals")));
        assert!(same_rows(&of(&together, method), &rows), "{method}");
        let listed = summary["methods"].as_array().expect("methods").iter();
        let figures = listed.clone().find(|of| of["method"] == method).expect(method);
        for figure in ["validity", "l0", "l1", "n_changed", "plausibility", "queries_per_row"] {
            assert_eq!(figures[figure], alone[figure], "{figure} of {method}");
        }
        let explained = summary["rows_explained"].as_u64().expect("a count") as usize;
        assert_eq!(first_samples(&of(&together, method)), explained, "{method}");
        for report in ["coverage", "validity", "sparsity", "plausibility", "features", "mmd"] {
            let read =
                |out: &str| read_table(&bench.path(&format!("{out}/reports/{report}.parquet")));
            let (all, own) = (of(&read("out"), method), read(method));
            // Of several methods, sources that found nothing for one of them are told of all.
            assert!(report == "coverage" || same_rows(&all, &own), "{report} of {method}");
        }
    }
    assert_eq!(summary["statuses"], bench.json("cfrl/manifest.json")["summary"]["statuses"]);
    let counterfactuals = summary["counterfactuals"].as_u64().expect("a count") as usize;
    assert_eq!(counterfactuals, together.num_rows());
    assert_eq!(
        bench.json("out/manifest.json")["summary"]["agreement"].as_array().map(Vec::len),
        Some(3)
    );
    overturn(&["verify", &bench.text("out")]).ok();
    let Some(python) = python("every_method_says_what_it_says_alone") else { return };
    let checked = bench.check(&python, &format!("{table}/*.parquet"), &[]);
    assert_eq!(checked["failed"], json!([]), "{checked}");
    assert_eq!(checked["agreement"]["pairs"], 6, "{checked}");
}

#[test]
fn rows_of_one_row_stand_together_in_the_order_of_the_methods() {
    let (bench, _) = bench("");
    let named = ["--override", "explain.method=lore"];
    let partitioned =
        ["--override", "output.dir=parts", "--override", "output.partition_by=[\"method\"]"];
    bench.does("run", &[&["--override", COMPARE], &named[..]].concat()).ok();
    bench.does("run", &[&["--override", COMPARE], &named[..], &partitioned[..]].concat()).ok();
    let together = read_table(&bench.path("out/counterfactuals"));
    let found = texts(&together, "method");
    assert!(found.chunks(3).all(|of| of == ["lore", "cfrl", "dice_random"]), "{found:?}");
    let names = bench.names("parts/counterfactuals");
    assert_eq!(names, ["method=cfrl", "method=dice_random", "method=lore"]);
    overturn(&["verify", &bench.text("parts")]).ok();
    // Reports are of the tables, wherever their rows are.
    let read = |out: &str| read_table(&bench.path(&format!("{out}/reports/agreement.parquet")));
    assert!(same_rows(&read("out"), &read("parts")));
}

#[test]
fn reports_are_made_anew_of_all_methods() {
    let (bench, _) = bench("");
    let by = ["--override", "report.by=[\"region\"]"];
    bench.does("run", &[&["--override", COMPARE], &by[..]].concat()).ok();
    let read = |report: &str| read_table(&bench.path(&format!("out/reports/{report}.parquet")));
    let reports = ["coverage", "validity", "sparsity", "agreement"];
    let before: Vec<RecordBatch> = reports.iter().map(|report| read(report)).collect();
    bench.does("report", &[&["--override", COMPARE], &by[..]].concat()).ok();
    for (report, before) in reports.iter().zip(&before) {
        assert!(same_rows(before, &read(report)), "{report}");
    }
    let page = std::fs::read_to_string(bench.path("out/reports/audit.html")).expect("a page");
    assert!(page.contains("What other methods say") && page.contains("cfrl and dice_random"));
}

#[test]
fn threads_and_splits_change_nothing() {
    let (bench, _) = bench("");
    let run = |out: &str, more: &[&str]| -> Value {
        let dir = format!("output.dir={out}");
        let overrides = ["--override", COMPARE, "--override", &dir];
        bench.does("run", &[&overrides, more].concat()).ok().json()
    };
    let splits = "explain.split_rows=50";
    let one = run("one", &["--threads", "1", "--override", splits]);
    let two =
        run("two", &["--threads", "2", "--override", splits, "--override", "input.batch_rows=32"]);
    let read = |out: &str| read_table(&bench.path(&format!("{out}/counterfactuals")));
    assert!(same_rows(&read("one"), &read("two")));
    assert_eq!((&one["methods"], &one["agreement"]), (&two["methods"], &two["agreement"]));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let bench = Bench::new();
    let table = applications(&bench, 50, &[]);
    let said = |lines: &str| {
        bench.job(&table, "max_reject_share = 0.5", None);
        bench.append("job.toml", &format!("{APPROVED}{lines}"));
        bench.said(&bench.here(&["validate", "job.toml"]))
    };
    expect![[r#"
        error: job.toml:14: `explain.compare` names `lore` twice
    "#]]
    .assert_eq(&said("[explain]\ncompare = [\"lore\", \"cfrl\", \"lore\"]\n"));
    expect![[r#"
        error: job.toml:14: `explain.method` is `nearest`, expected one of those that `explain.compare` names: lore, cfrl
    "#]]
    .assert_eq(&said("[explain]\nmethod = \"nearest\"\ncompare = [\"lore\", \"cfrl\"]\n"));
    expect![[r#"
        error: job.toml:14: `explain.compare` names `auto`, expected the methods themselves
    "#]]
    .assert_eq(&said("[explain]\ncompare = [\"lore\", \"auto\"]\n"));
}

/// The word that was used before means the same.
#[test]
fn generator_is_another_word_for_cfrl() {
    let (bench, _) = bench("");
    let run = |out: &str, method: &str| {
        let (dir, method) = (format!("output.dir={out}"), format!("explain.method={method}"));
        bench.does("run", &["--override", &dir, "--override", &method]).ok().json()
    };
    let (new, old) = (run("new", "cfrl"), run("old", "generator"));
    assert_eq!((&new["method"], &old["method"]), (&json!("cfrl"), &json!("cfrl")));
    let read = |out: &str| read_table(&bench.path(&format!("{out}/counterfactuals")));
    assert!(same_rows(&read("new"), &read("old")));
}
