//! Predicates that are too much, blow up, or cannot be computed: the expression is blamed, soon.

use std::time::{Duration, Instant};

use expect_test::expect;

use crate::fitted::{applications, generator};
use crate::util::{Bench, Run, credit, overturn, program, project};

fn validate(bench: &Bench, predicate: &str) -> Run {
    let argument = format!("input.where={predicate}");
    let began = Instant::now();
    let run =
        Run::of(program().args(["validate", &bench.text("job.toml"), "--override", &argument]));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    run
}

fn bench() -> Bench {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(400));
    bench.job(&table, "", None);
    bench
}

#[test]
fn long_predicates_are_planned_or_refused() {
    let bench = bench();
    let chain = |terms: usize, word: &str| vec!["age <> 1000"; terms].join(word);
    validate(&bench, &chain(1_000, " AND ")).ok();
    let different: Vec<String> = (0..1_000).map(|term| format!("age = {term}")).collect();
    validate(&bench, &different.join(" OR ")).ok();
    let values: Vec<String> = (0..10_000).map(|value| value.to_string()).collect();
    validate(&bench, &format!("age IN ({})", values.join(", "))).ok();
    for predicate in [
        chain(5_000, " OR "),
        format!("age > 0{}", " + 0".repeat(5_000)),
        format!("CASE {} ELSE true END", "WHEN age = 1 THEN true ".repeat(600)),
    ] {
        validate(&bench, &predicate)
            .fails(1, &["input.where: has ", "words and signs, expected at most 3000"]);
    }
    for deep in [
        format!("{}age > 0{}", "(".repeat(500), ")".repeat(500)),
        format!("{} age > 0", "NOT ".repeat(1_000)),
        format!("{}age > 0", "- ".repeat(300)),
    ] {
        validate(&bench, &deep).fails(1, &["input.where: is `"]);
    }
}

#[test]
fn functions_that_make_much_of_little_are_refused() {
    let bench = bench();
    let predicates = [
        "repeat('a', 2000000000) = purpose",
        "array_length(range(0, 9000000000)) > age",
        "lpad(purpose, 2000000000) = 'a'",
        "rpad(purpose, application_id, 'x') = 'a'",
    ];
    let refusal = |predicate| bench.refusal(predicate, &validate(&bench, predicate));
    expect![[r#"
        # repeat('a', 2000000000) = purpose
        error: input.where: calls `repeat`, whose result may be of any size: it is not allowed here

        # array_length(range(0, 9000000000)) > age
        error: input.where: calls `range`, whose result may be of any size: it is not allowed here

        # lpad(purpose, 2000000000) = 'a'
        error: input.where: makes texts up to 2000000000 times as long, expected at most 10000 times

        # rpad(purpose, application_id, 'x') = 'a'
        error: input.where: calls `rpad` without a constant length of at most 10000

    "#]]
    .assert_eq(&predicates.map(refusal).concat());
    validate(&bench, "lpad(purpose, 20) <> replace(purpose, 'a', 'bb')").ok();
}

#[test]
fn an_expression_that_cannot_be_computed_is_blamed() {
    let bench = bench();
    for predicate in
        ["1 / (age - age) > 0", "1 / 0 > age", "CAST(purpose AS INT) = 1", "purpose ~ '('"]
    {
        let run = validate(&bench, predicate);
        assert_eq!(run.code, 1, "{predicate}: {run:?}");
        assert!(run.stderr.contains("error: input.where: is `"), "{predicate}: {}", run.stderr);
        assert!(!run.stderr.contains("damaged") && !run.stderr.contains("bug"), "{}", run.stderr);
    }
}

#[test]
fn queries_have_the_same_limits() {
    let bench = Bench::new();
    let table = format!("a={}", applications(&bench, 200, &[]));
    let generator = generator().display().to_string();
    let model = project().join("jobs/demo/logistic.onnx").display().to_string();
    let ask = |query: &str| {
        let given = ["--generator", &generator, "--model", &model, "--table", &table];
        overturn(&[&["sql", query], &given[..]].concat())
    };
    ask("SELECT repeat('a', 2000000000) FROM a").says(
        1,
        &expect![[r#"
        error: query: calls `repeat`, whose result may be of any size: it is not allowed here
    "#]],
    );
    ask("SELECT lpad('a', 2000000000) FROM a").says(
        1,
        &expect![[r#"
        error: query: makes texts up to 2000000000 times as long, expected at most 10000 times
    "#]],
    );
    let chain = vec!["age = 1"; 5_000].join(" OR ");
    ask(&format!("SELECT 1 FROM a WHERE {chain}")).says(1, &expect![[r#"
        error: query: has 15003 words and signs, expected at most 3000
          hint: write `column IN (a, b, …)` for many comparisons, or give the table a column to filter by
    "#]]);
    ask("SELECT 1 / (age - age) FROM a").says(
        1,
        &expect![[r#"
        error: query: is `SELECT 1 / (age - age) FROM a`, which cannot be computed for every row
          hint: a divisor may be 0: write `NULLIF(divisor, 0)`, and `TRY_CAST` for `CAST`
          because: Arrow error: Divide by zero error
    "#]],
    );
    ask("SELECT count(*) FROM a").ok();
}
