//! Small tables: answers without a generator.

use std::process::Command;

use serde_json::Value;

use crate::fitted::{APPROVED, LITTLE, QUICK, applications, scorer};
use crate::util::{Bench, Run, overturn, project, python};

/// CPU seconds that the small table may take: ten are promised, machines of CI are slow.
const MOST_SECONDS: f64 = 30.0;

/// 800 rows to train on, 200 in need, all settings as they are by default.
fn small_table(test: &str) -> Option<Bench> {
    let python = python(test)?;
    let bench = Bench::new();
    let script = project().join("tests/python/small_tables.py");
    let folder = bench.text("");
    Run::of(Command::new(python).arg(script).args(["--make", "mixed", &folder])).ok();
    Some(bench)
}

#[test]
fn a_small_table_is_searched_without_a_generator() {
    let Some(bench) = small_table("a_small_table_is_searched_without_a_generator") else { return };
    let plan = bench.does("run", &["--dry-run"]).ok().json();
    assert_eq!(plan["stages"][0], "search among training rows, without a generator");
    assert_eq!(plan["training_seconds"], 0.0);
    let summary = bench.does("run", &[]).ok().json();
    assert_eq!((&summary["method"], &summary["validity"]), (&"search".into(), &1.0.into()));
    assert_eq!(summary["targets"][0]["needed"], 200, "{summary}");
    assert_eq!(summary["statuses"]["solved"], 200, "{summary}");
    assert_eq!(summary["sources"]["generator"], 0, "{summary}");
    assert_eq!(summary["training"]["rows_trained"], 640, "the others are held out");
    let said = "counterfactuals were searched from training rows, without a generator: to train one would cost more \
                than to search for 200 rows; `explain.method = \"cfrl\"` trains one";
    assert!(
        summary["remarks"].as_array().is_some_and(|all| all.contains(&said.into())),
        "{summary}"
    );
    let manifest = bench.json("out/manifest.json");
    assert_eq!(manifest["summary"]["method"], "search");
    assert_eq!(manifest["job"]["explain"]["method"], "auto");
    let seconds = summary["cpu_seconds"].as_f64().expect("seconds");
    assert!(seconds <= MOST_SECONDS, "{seconds} CPU seconds");
}

/// What bounds of a forest prove, ONNX Runtime confirms for everything that rows may become.
#[test]
fn infeasible_rows_of_a_forest_are_proven_by_bounds() {
    let Some(python) = python("infeasible_rows_of_a_forest_are_proven_by_bounds") else { return };
    let bench = Bench::new();
    let folder = bench.text("");
    let script = project().join("tests/python/proven.py");
    let program = env!("CARGO_BIN_EXE_overturn");
    Run::of(Command::new(&python).arg(&script).args(["make", program, &folder])).ok();
    let summary = bench.does("run", &[]).ok().json();
    assert!(summary["queries_per_row"].as_f64().is_some_and(|queries| queries < 60.0), "{summary}");
    let found = Run::of(Command::new(&python).arg(&script).args(["check", &folder])).ok().json();
    assert_eq!(found["infeasible"], 200, "{found}");
    assert!(found["asked"].as_u64().is_some_and(|asked| asked > 10_000), "{found}");
}

/// What a search calls infeasible is proven, and it solves all others.
#[test]
fn a_search_finds_what_an_exhaustive_one_does() {
    let Some(python) = python("a_search_finds_what_an_exhaustive_one_does") else { return };
    let bench = Bench::new();
    let folder = bench.text("");
    let script = project().join("tests/python/small_space.py");
    let small_space =
        |what: &str| Run::of(Command::new(&python).arg(&script).args([what, &folder])).ok();
    small_space("make");
    bench.append("job.toml", "[explain]\nqueries_per_row = 400\n");
    assert_eq!(bench.does("run", &[]).ok().json()["method"], "search");
    let found = small_space("check").json();
    assert_eq!(found["wrong"], 0, "{found}");
    for kind in ["already", "solved", "infeasible"] {
        assert!(found["found"][kind].as_u64() > Some(30), "{found}");
    }
}

/// Neither threads nor batches change what a search finds.
#[test]
fn a_search_finds_the_same_every_time() {
    let Some(bench) = small_table("a_search_finds_the_same_every_time") else { return };
    let run = |dir: &str, more: &[&str]| -> Value {
        let dir = format!("output.dir={dir}");
        let summary =
            bench.does("run", &[&["--override", dir.as_str()], more].concat()).ok().json();
        ["l0", "l1", "n_changed", "queries_per_row"]
            .map(|name| summary[name].clone())
            .to_vec()
            .into()
    };
    let one = run("one", &["--threads", "1", "--override", "input.batch_rows=64"]);
    assert_eq!(one, run("two", &["--threads", "2"]));
}

/// What decides is the job and the number of rows.
#[test]
fn what_makes_a_job_train() {
    let bench = Bench::new();
    let table = applications(&bench, 2000, &[]);
    let first_stage = |lines: &str, more: &[&str]| -> String {
        bench.job(&table, "max_reject_share = 0.5", None);
        bench.append("job.toml", &format!("{APPROVED}{lines}"));
        let plan = bench.does("run", &[&["--dry-run"], more].concat()).ok().json();
        plan["stages"][0].as_str().expect("a stage").to_string()
    };
    let searches = "search among training rows, without a generator";
    assert_eq!(first_stage("", &[]), searches);
    assert_eq!(first_stage("[explain]\nsamples = 8\n", &[]), searches);
    let trains = [
        "[explain]\nmethod = \"generator\"\n",
        "[explain]\nrefine = \"repair\"\n",
        "[explain]\nskip = [\"neighbours\"]\n",
        "[explain]\nsamples = 9\n",
        QUICK,
    ];
    for lines in trains {
        let found = first_stage(lines, &[]);
        assert!(found.starts_with("train a generator: at most "), "{lines}: {found}");
    }
}

/// Rows in scope that are all rejected, as a single one is, are searched from the other rows of the table.
#[test]
fn rows_of_one_decision_are_searched_from_other_rows() {
    let Some(python) = python("rows_of_one_decision_are_searched_from_other_rows") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 2000, &[]);
    bench.write("scorer.py", &scorer("pass", LITTLE));
    let predictor = format!("kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]");
    let scope = "max_reject_share = 0.5\nwhere = \"loan_amount >= 9000 AND application_id < 12\"";
    bench.job(&table, scope, Some(&predictor));
    bench.append("job.toml", APPROVED);
    let summary = bench.does("run", &[]).ok().json();
    assert_eq!(summary["method"], "search", "{summary}");
    let (solved, asked) = (&summary["statuses"]["solved"], &summary["rows_explained"]);
    assert!(solved.as_u64().is_some_and(|solved| solved > 0) && solved == asked, "{summary}");
    let said = "rows of `input.where` all have the same decision: trained on all rows of the table; \
                `input.train_where` says which";
    let remarks = summary["training"]["remarks"].to_string();
    assert!(remarks.contains(said), "{remarks}");
    // Whoever says which rows to train on gets those, and is told what is wrong with them.
    let only = format!("train_where = \"loan_amount >= 9000\"\n{scope}");
    bench.replace("job.toml", scope, &only);
    bench
        .does("run", &["--override", "output.overwrite=true"])
        .fails(1, &["decides `rejected` for all"]);
}

/// SQL with what a search has left: training rows without a generator that has learnt anything.
#[test]
fn sql_searches_too() {
    let Some(bench) = small_table("sql_searches_too") else { return };
    bench.does("run", &[]).ok();
    let query =
        "SELECT id, counterfactual('good')['valid'] AS valid FROM t WHERE part = 'need' LIMIT 5";
    let generator = format!("--generator={}", bench.text("out/generator"));
    let model = format!("--model={}", bench.text("model.onnx"));
    let table = format!("t={}", bench.text("table.parquet"));
    let run =
        overturn(&["sql", query, &generator, &model, "--table", &table, "--format", "json"]).ok();
    let valid = run.stdout.matches("\"valid\":true").count();
    assert_eq!(valid, 5, "{}", run.stdout);
}
