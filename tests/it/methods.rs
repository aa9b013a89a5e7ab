//! What other methods would have said: runs of DiCE and LORE.

use std::process::Command;

use arrow::array::{Array, AsArray};
use expect_test::expect;

use crate::fitted::{APPROVED, applications};
use crate::util::{Bench, Run, project, python, read_table, same_rows};

const METHODS: [&str; 3] = ["dice_random", "dice_genetic", "lore"];

/// 200 rows in need, of numbers and categories.
fn small_table(test: &str) -> Option<Bench> {
    let python = python(test)?;
    let bench = Bench::new();
    let script = project().join("tests/python/small_tables.py");
    Run::of(Command::new(python).arg(script).args(["--make", "mixed", &bench.text("")])).ok();
    Some(bench)
}

fn counterfactuals(bench: &Bench, out: &str) -> arrow::array::RecordBatch {
    read_table(&bench.path(&format!("{out}/counterfactuals")))
}

/// Neither threads nor batches change what a method finds, and an independent program finds nothing wrong.
#[test]
fn methods_find_the_same_every_time() {
    let Some(bench) = small_table("methods_find_the_same_every_time") else { return };
    let python = python("methods_find_the_same_every_time").expect("there");
    for method in METHODS {
        let given = format!("explain.method={method}");
        let run = |out: &str, more: &[&str]| {
            let dir = format!("output.dir={out}");
            let overrides = ["--override", dir.as_str(), "--override", given.as_str()];
            bench.does("run", &[&overrides, more].concat()).ok().json()
        };
        let (one, two) = (format!("{method}-1"), format!("{method}-2"));
        let split = "explain.split_rows=60";
        let more = ["--threads", "1", "--override", "input.batch_rows=64", "--override", split];
        let summary = run(&one, &more);
        run(&two, &["--threads", "2", "--override", split]);
        assert_eq!(summary["method"], method);
        assert_eq!(summary["sources"][method], summary["statuses"]["solved"], "{summary}");
        assert!(summary["validity"].as_f64() > Some(0.3), "{summary}");
        assert!(summary["queries_per_row"].as_f64() <= Some(256.0), "{summary}");
        let found = counterfactuals(&bench, &one);
        assert!(same_rows(&found, &counterfactuals(&bench, &two)), "{method}");
        let rules = found.column_by_name("rule").expect("a column").as_string::<i32>();
        let valid = found.column_by_name("valid").expect("a column").as_boolean();
        let solved_with_rule =
            (0..found.num_rows()).filter(|row| valid.value(*row) && rules.is_valid(*row)).count();
        let solved = summary["statuses"]["solved"].as_u64().expect("a count") as usize;
        assert_eq!(solved_with_rule, if method == "lore" { solved } else { 0 });
        let script = project().join("tests/python/check_run.py");
        let mut check = Command::new(&python);
        check.arg(script).args([
            bench.text(&one),
            bench.text("table.parquet"),
            bench.text("schema.toml"),
        ]);
        let checked = Run::of(check.args(["--key", "id", "--where", "part = 'need'"])).ok().json();
        assert_eq!(checked["failed"], serde_json::json!([]), "{checked}");
    }
}

#[test]
fn a_method_says_what_it_will_do() {
    let bench = Bench::new();
    let table = applications(&bench, 500, &[]);
    bench.job(&table, "max_reject_share = 0.5", None);
    bench.append("job.toml", &format!("{APPROVED}[explain]\nmethod = \"lore\"\n"));
    let plan = bench.does("run", &["--dry-run"]).ok().json();
    assert_eq!(plan["stages"][0], "read training rows for `lore`, without a generator");
}

#[test]
fn keys_of_dice_belong_to_dice() {
    let bench = Bench::new();
    let table = applications(&bench, 500, &[]);
    let said = |lines: &str| {
        bench.job(&table, "max_reject_share = 0.5", None);
        bench.append("job.toml", &format!("{APPROVED}{lines}"));
        bench.said(&bench.here(&["validate", "job.toml"]))
    };
    expect![[r#"
        error: job.toml:15: `explain.dice` is given, but `explain.method` is `lore`, expected a method of DiCE
    "#]]
        .assert_eq(&said("[explain]\nmethod = \"lore\"\n[explain.dice]\nsparsity = \"binary\"\n"));
    expect![[r#"
        error: job.toml:16: `explain.dice.hard_labels` is given, but `dice_random` looks at labels only
    "#]].assert_eq(&said(
        "[explain]\nmethod = \"dice_random\"\n[explain.dice]\nhard_labels = true\n",
    ));
}
