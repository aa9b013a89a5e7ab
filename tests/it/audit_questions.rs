//! Sections of the audit for which the model is asked: planted truths, figures worked out anew, budgets, bad input.

use std::path::Path;
use std::process::Command;

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type};
use expect_test::expect;
use serde_json::Value;

use crate::util::{Bench, Run, program, project, python, read_table};

const SCRIPT: &str = "tests/python/audit_questions.py";

const TABLES: [&str; 9] = [
    "audit/actions",
    "audit/action_sets",
    "audit/binding",
    "audit/responsiveness",
    "audit/robustness",
    "audit/explicit",
    "audit/second_search",
    "audit/reason_counts",
    "reasons",
];

impl Bench {
    /// The planted table and its job.
    fn planted(&self, python: &Path, further: &[&str]) {
        let mut command = Command::new(python);
        command.arg(project().join(SCRIPT)).args(["make", &self.text("")]).args(further);
        Run::of(&mut command).ok();
    }

    /// What is worked out anew, and differs.
    fn checked(&self, python: &Path) -> Value {
        let mut command = Command::new(python);
        command.arg(project().join(SCRIPT)).args(["check", &self.text("")]);
        let run = Run::of(&mut command);
        assert_eq!(run.code, 0, "{run:#?}");
        run.json()
    }

    fn asks(&self, arguments: &[&str]) -> Run {
        let job = self.text("job.toml");
        Run::of(program().arg(arguments[0]).arg(&job).args(&arguments[1..]))
    }

    /// The bytes of every table for which the model was asked.
    fn asked_tables(&self, folder: &str) -> Vec<Vec<u8>> {
        let path = |name: &&str| self.path(&format!("{folder}/reports/{name}.parquet"));
        TABLES.iter().map(|name| std::fs::read(path(name)).expect("a table")).collect()
    }
}

/// Questions that the log says were asked, over all sections.
fn asked(run: &Run) -> u64 {
    let lines = run.stderr.lines().filter_map(|line| line.split_once("` has asked "));
    let counts = lines.map(|(_, rest)| rest.split(' ').next().expect("a count"));
    counts.map(|count| count.parse::<u64>().expect("a count")).sum()
}

#[test]
fn planted_truths_are_found_and_every_figure_is_what_numpy_makes_of_it() {
    let Some(python) = python("planted_truths_are_found") else { return };
    let bench = Bench::new();
    bench.planted(&python, &[]);
    let run = bench.asks(&["run"]).ok();
    assert!(asked(&run) > 100_000, "there is something to tell: {}", run.stderr);
    let told = bench.checked(&python);
    assert!(told["best action"].as_f64().expect("a share") > 0.85, "{told}");
    assert!(told["stuck"].as_u64().expect("rows") > 30, "{told}");
    assert_eq!(told["explicit"], 0, "the model does not decide by sex");

    // Made anew from the published tables, the same bytes.
    let before = bench.asked_tables("out");
    bench.asks(&["report"]).ok();
    assert!(before == bench.asked_tables("out"), "`report` tells the same as `run`");

    // Other threads, other splits: the same tables.
    bench.replace("job.toml", "[explain]", "[runtime]\nthreads = 1\n[explain]\nsplit_rows = 170");
    bench.replace("job.toml", "dir = \"out\"", "dir = \"other\"");
    bench.asks(&["run"]).ok();
    for name in TABLES {
        let of =
            |folder: &str| read_table(&bench.path(&format!("{folder}/reports/{name}.parquet")));
        assert_eq!(of("out").columns(), of("other").columns(), "{name}");
    }
}

#[test]
fn a_model_that_decides_by_a_protected_feature_is_found_out() {
    let Some(python) = python("a_model_that_decides_by_a_protected_feature") else { return };
    let bench = Bench::new();
    bench.planted(&python, &["unfair"]);
    bench.asks(&["run"]).ok();
    let told = bench.checked(&python);
    assert!(told["explicit"].as_u64().expect("rows") > 100, "{told}");
}

#[test]
fn questions_keep_to_what_the_job_allows_and_say_so() {
    let Some(python) = python("questions_keep_to_what_the_job_allows") else { return };
    let bench = Bench::new();
    bench.planted(&python, &[]);
    bench.replace("job.toml", "queries = 10000000", "queries = 30000");
    let run = bench.asks(&["run"]).ok();
    assert!((10_000..=30_000).contains(&asked(&run)), "{}", run.stderr);
    assert!(run.stderr.contains("`reasons` may ask "), "{}", run.stderr);
    assert!(run.stdout.contains("`reasons` tells of "), "{}", run.stdout);
    let reasons = read_table(&bench.path("out/reports/reasons.parquet"));
    let counts = read_table(&bench.path("out/reports/audit/reason_counts.parquet"));
    let rows = counts.column_by_name("rows").expect("there").as_primitive::<Int64Type>();
    assert!(reasons.num_rows() > 0 && rows.value(0) < 900, "a sample");
    bench.replace("job.toml", "queries = 30000", "queries = 0");
    bench.replace("job.toml", "dir = \"out\"", "dir = \"none\"");
    assert_eq!(asked(&bench.asks(&["run"]).ok()), 0);
}

#[test]
fn programs_that_give_labels_only_are_asked_too() {
    let Some(python) = python("programs_that_give_labels_only") else { return };
    let bench = Bench::new();
    let mut command = Command::new(&python);
    command.arg(project().join("tests/python/small_space.py")).args(["make", &bench.text("")]);
    Run::of(&mut command).ok();
    bench.replace("schema.toml", "kind =", "reason = { code = \"R\", high = \"Bad\" }\nkind =");
    bench.append(
        "job.toml",
        "[audit]\nby = [\"shape\"]\nreasons = true\nprotected = [\"origin\"]\nsections = [\"actions\", \
         \"binding\", \"responsiveness\", \"robustness\", \"explicit\", \"second_search\"]\n",
    );
    let run = bench.asks(&["run"]).ok();
    assert!(asked(&run) > 10_000, "{}", run.stderr);
    let reasons = read_table(&bench.path("out/reports/reasons.parquet"));
    let shares = reasons.column_by_name("contribution").expect("there");
    let shares = shares.as_primitive::<Float64Type>();
    assert!(!shares.is_empty(), "there are reasons");
    // Shares of the sixteen copies that reach the target.
    let whole = |share: f64| (share * 16.0).fract() == 0.0 && share > 0.0 && share <= 1.0;
    assert!(shares.iter().flatten().all(whole), "{shares:?}");
    let rows = read_table(&bench.path("out/reports/audit/binding.parquet"));
    let kinds: Vec<&str> = rows
        .column_by_name("constraint")
        .expect("there")
        .as_string::<i32>()
        .iter()
        .flatten()
        .collect();
    for kind in ["none", "never", "allowed", "direction", "row_bound"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
}

#[test]
fn what_cannot_be_asked_is_refused_before_anything_is_done() {
    let Some(python) = python("what_cannot_be_asked_is_refused") else { return };
    let bench = Bench::new();
    bench.planted(&python, &[]);
    bench.replace("schema.toml", "reason = { code = \"R3\" }\n", "");
    bench.replace("schema.toml", "reason = { code = \"R5\", low = \"No permit\" }\n", "");
    let run = bench.asks(&["validate"]);
    bench.fails_with(
        &run,
        1,
        &expect![[r#"
        errors:
        DIR/schema.toml: feature `age`: reason: has no code, which `audit.reasons` tells of it
          hint: give it one, such as `reason = { code = "12", low = "Income too low" }`
        DIR/schema.toml: feature `permit`: reason: has no code, which `audit.reasons` tells of it
          hint: give it one, such as `reason = { code = "12", low = "Income too low" }`
    "#]],
    );
    assert_eq!(bench.asks(&["run"]).code, 1, "a run refuses it, too");
    bench.replace("job.toml", "reasons = true", "protected = [\"sex\", \"gender\"]");
    bench.fails_with(&bench.asks(&["validate"]), 1, &expect![[r#"
        error: audit.protected: names `gender`, expected one of the features income, savings, age, sex, permit
          hint: what the model does not see, it cannot decide by
    "#]]);
    bench.replace("job.toml", "protected = [\"sex\", \"gender\"]\n", "");
    bench.replace("job.toml", "by = [\"sex\", \"area\"]", "by = [\"area\"]");
    bench.fails_with(
        &bench.asks(&["validate"]),
        1,
        &expect![[r#"
        error: audit.sections: names `explicit`, but no column of `audit.by` is a feature
          hint: name features in `audit.protected`
    "#]],
    );
    bench.replace("job.toml", "sections = [\"actions\"", "reasons = true\nsections = [\"actions\"");
    bench.replace("job.toml", "\"explicit\", ", "");
    bench.replace("job.toml", "class = \"yes\"", "flip = true");
    bench.fails_with(&bench.asks(&["validate"]), 1, &expect![[r#"
        error: audit.reasons: compares rows with others at the target, but with `target.flip` or `target.every` no row is
          hint: name a class: `target.class`
    "#]]);
    assert!(!bench.path("out").exists());
}

/// The model dies while the audit asks it: nothing is published, and what was explained is gone on with.
#[test]
fn a_model_that_dies_while_the_audit_asks_it() {
    let Some(python) = python("a_model_that_dies_while_the_audit_asks_it") else { return };
    let bench = Bench::new();
    let table = crate::fitted::applications(&bench, 1_500, &[]);
    let first =
        "if os.path.exists('dying') and place == 2: open('broken', 'w').close(); os._exit(9)";
    // The second program that is started is the audit's.
    let starts = "import os\nopen('starts', 'a').write('x')\n\
                  if os.path.getsize('starts') == 2 and not os.path.exists('repaired'): open('dying', 'w').close()\n";
    let script = crate::fitted::scorer(first, crate::fitted::LITTLE);
    bench.write("scorer.py", &format!("{starts}{script}"));
    let predictor = format!(
        "kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]\nworkers = 1\nretries = 0\n\
         repeatable = \"off\""
    );
    bench.job(&table, "max_reject_share = 0.5", Some(&predictor));
    bench.append(
        "job.toml",
        "[target]\nclass = \"approved\"\n[explain]\nmethod = \"search\"\nmin_score = 0\n[report]\n\
         mmd.space = \"none\"\n[audit]\nby = [\"region\"]\nsections = [\"groups\", \"responsiveness\"]\n",
    );
    bench.does("run", &["--threads", "1"]).fails(1, &["scorer.py"]);
    assert!(bench.path("dying").exists(), "{} starts", bench.text("starts"));
    assert!(!bench.path("out").exists());
    bench.write("repaired", "");
    std::fs::remove_file(bench.path("dying")).expect("removed");
    let _ = std::fs::remove_file(bench.path("broken"));
    let summary = bench.does("run", &["--resume", "--threads", "1"]).ok().json();
    assert_eq!(summary["splits_resumed"], summary["splits"], "nothing is explained again");
    assert!(bench.path("out/reports/audit/responsiveness.parquet").exists());
}
