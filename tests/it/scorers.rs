//! Scorer programs that misbehave, seen from the outside: what is said, what is published.

use std::path::Path;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use expect_test::expect;

use crate::util::{Bench, Run, credit, overturn, python, read_table};

/// A scorer whose answer to a batch is the text that is put in.
pub fn scorer(answer: &str) -> String {
    format!(
        r#"
import os, sys, time
answers = os.fdopen(os.dup(1), "wb")
import pyarrow as pa
batches = pa.ipc.open_stream(sys.stdin.buffer)
schema = pa.schema([("label", pa.string())], {{"overturn.protocol": "1", "overturn.classes": '["no", "yes"]'}})
with pa.ipc.new_stream(answers, schema) as stream:
    for batch in batches:
        ages = batch["age"].to_pylist()
        labels = ["yes" if age > 40 else "no" for age in ages]
        if batch.num_rows:
            {answer}
        stream.write_batch(pa.record_batch([pa.array(labels, pa.string())], schema=schema))
        answers.flush()
"#
    )
}

fn score(bench: &Bench, python: &Path, script: &str, more: &str) -> Run {
    let table = bench.parquet("t.parquet", &credit(2000));
    bench.write("scorer.py", script);
    let predictor = format!(
        "kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]\nworkers = 1\n{more}"
    );
    overturn(&["score", &bench.job(&table, "", Some(&predictor)), "--format", "json"])
}

#[test]
fn rows_that_kill_the_scorer_are_found_and_rejected() {
    let Some(python) = python("rows_that_kill_the_scorer_are_found_and_rejected") else { return };
    let bench = Bench::new();
    let table = credit(2000);
    let incomes = table.column_by_name("income").expect("there");
    let poison = arrow::util::display::array_value_to_string(incomes, 1234).expect("text");
    let script = scorer(&format!(
        "if any(abs(v - {poison}) < 1e-6 for v in batch['income'].to_pylist()): os._exit(9)"
    ));
    let summary = score(&bench, &python, &script, "").ok().json();
    let rejected = summary["rows_rejected"]["predictor_failed"].as_u64().expect("some");
    let rejects = read_table(&bench.path("out/rejects"));
    assert_eq!(rejects.num_rows() as u64, rejected);
    let keys: Vec<i64> = rejects.column(0).as_primitive::<Int64Type>().values().to_vec();
    assert!(keys.contains(&1235), "{keys:?}");
    let detail =
        rejects.column_by_name("detail").expect("there").as_string::<i32>().value(0).to_string();
    assert!(detail.contains("exited with status 9"), "{detail}");
    assert_eq!(summary["rows_scored"].as_u64(), Some(2000 - rejected));
}

#[test]
fn a_scorer_that_prints_never_answers_or_answers_short() {
    let Some(python) = python("a_scorer_that_prints_never_answers_or_answers_short") else {
        return;
    };
    let limits = "batch_seconds = 1\nretries = 0";
    for (script, said) in [
        ("print('Loading the model ...')\n".to_string(), "Loading the model"),
        (scorer("time.sleep(60)"), "predictor.batch_seconds"),
        (scorer("labels.pop()"), "expected"),
        (scorer("os._exit(3)"), "exited with status 3"),
        ("import sys\nsys.exit('no model here')\n".to_string(), "no model here"),
    ] {
        let bench = Bench::new();
        score(&bench, &python, &script, limits).fails(1, &["error: scorer.py: ", said]);
        assert!(!bench.path("out").exists() && !bench.path(".out.staging").exists());
    }
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(10));
    let job = |command: &str| {
        bench.job(&table, "", Some(&format!("kind = \"subprocess\"\ncommand = [{command:?}]")))
    };
    overturn(&["score", &job("no-such-scorer")]).says(1, &expect![[r#"
        error: no-such-scorer: the program `no-such-scorer` was not found, expected a path or a program on the `PATH` in the handshake
          hint: `predictor.command` names it; it is started in `DIR`
    "#]]);
    bench.write("scorer", "not executable");
    overturn(&["score", &job("./scorer")]).says(
        1,
        &expect![[r#"
        error: scorer: `DIR/./scorer` is not executable in the handshake
          hint: set its executable bit, or name its interpreter first
    "#]],
    );
}

#[test]
fn a_scorer_that_floods_standard_error_does_not_hang_or_flood_the_log() {
    let Some(python) = python("a_scorer_that_floods_standard_error_does_not_hang_or_flood_the_log")
    else {
        return;
    };
    let bench = Bench::new();
    let run = score(
        &bench,
        &python,
        &scorer("[sys.stderr.write('noise ' * 20 + '\\n') for _ in range(200_000)]"),
        "repeatable = \"off\"",
    )
    .ok();
    assert_eq!(run.json()["rows_scored"], 2000);
    assert!(run.stderr.len() < 2_000_000, "{} bytes of log", run.stderr.len());
}
