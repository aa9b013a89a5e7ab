//! Refinement as its user sees it: certificates held against an exhaustive search, budgets, limits, and the
//! nearest training row on its own.

use std::path::Path;
use std::process::Command;

use expect_test::expect;
use serde_json::Value;

use crate::fitted::{APPROVED, QUICK, applications};
use crate::util::{Bench, Run, project, python};

fn small_space(python: &Path, arguments: &[&str]) -> Run {
    let script = project().join("tests/python/small_space.py");
    Run::of(Command::new(python).arg(script).args(arguments))
}

/// Every row that can be solved is, and what is called infeasible is proven so: also with few changes.
#[test]
fn certificates_are_those_of_an_exhaustive_search() {
    let Some(python) = python("certificates_are_those_of_an_exhaustive_search") else { return };
    let bench = Bench::new();
    let folder = bench.text("");
    small_space(&python, &["make", &folder]).ok();
    bench.append("job.toml", &format!("{QUICK}[explain]\nqueries_per_row = 400\n"));
    bench.does("run", &[]).ok();
    let found = small_space(&python, &["check", &folder]).ok().json();
    for kind in ["already", "solved", "infeasible"] {
        assert!(found["found"][kind].as_u64() > Some(30), "{found}");
    }
    let generator = format!("generator = \"{}\"\nmax_changes = 1", bench.text("generator"));
    std::fs::rename(bench.path("out"), bench.path("first")).expect("moved");
    std::fs::rename(bench.path("first/generator"), bench.path("generator")).expect("moved");
    bench.replace(
        "job.toml",
        "queries_per_row = 400",
        &format!("queries_per_row = 400\n{generator}"),
    );
    bench.does("run", &[]).ok();
    let fewer = small_space(&python, &["check", &folder, "1"]).ok().json();
    assert!(fewer["found"]["infeasible"].as_u64() > found["found"]["infeasible"].as_u64());
}

/// A run with the fitted generator, and a second opinion on it.
fn explained(bench: &Bench, table: &str, python: &Path, lines: &str) -> Value {
    bench.explain_job(table, lines);
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\noverwrite = true");
    let summary = bench.does("run", &[]).ok().json();
    bench.check(python, table, &[]);
    summary
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number: {value}"))
}

#[test]
fn more_is_solved_and_less_is_changed() {
    let Some(python) = python("more_is_solved_and_less_is_changed") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 3000, &[]);
    let off = explained(&bench, &table, &python, "refine = \"off\"\n");
    let repair = explained(&bench, &table, &python, "refine = \"repair\"\n");
    let full = explained(&bench, &table, &python, "");
    assert!(number(&repair["validity"]) > number(&off["validity"]), "{repair}");
    assert_eq!(off["queries_per_row"], 1.0);
    assert!(number(&full["validity"]) >= number(&repair["validity"]), "{full}");
    assert!(number(&full["n_changed"]) < 0.6 * number(&off["n_changed"]), "{full}");
    assert!(number(&full["l1"]) < number(&off["l1"]), "{full}");
    let few = explained(&bench, &table, &python, "queries_per_row = 3\nmax_changes = 2\n");
    assert!(number(&few["queries_per_row"]) <= 3.0, "{few}");
    let late = explained(&bench, &table, &python, "max_seconds = 0.000001\n");
    assert!(late["remarks"].to_string().contains("`explain.max_seconds` was reached"), "{late}");
    // The generator's answers are asked about in any case.
    assert!(number(&late["validity"]) >= number(&off["validity"]), "{late}");
    let once = explained(&bench, &table, &python, "queries_per_row = 1\n");
    assert_eq!(once["validity"], off["validity"]);
    explained(&bench, &table, &python, "samples = 3\nmax_changes = 1\n");
    let steps =
        ["snap", "candidates", "neighbours", "reversion", "shrink", "choice", "certificate"];
    let all: Vec<String> = steps.iter().map(|step| format!("\"{step}\"")).collect();
    let none = explained(&bench, &table, &python, &format!("skip = [{}]\n", all.join(", ")));
    assert_eq!(none["statuses"], off["statuses"], "no step is left");
}

/// Answers that must be plausible are, or are not given; and the run as a whole may be held to it.
#[test]
fn implausible_answers_are_refused() {
    let Some(python) = python("implausible_answers_are_refused") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 2000, &["--nulls", "0.02"]);
    let any = explained(&bench, &table, &python, "");
    let found = bench.check(&python, &table, &[]);
    assert!(found["plausibility"]["compared"].as_u64() > Some(100), "{found}");
    // The second opinion goes through all that is demanded of answers.
    let bar = explained(&bench, &table, &python, "min_plausibility = 0.5\n");
    assert!(number(&bar["plausibility"]) > number(&any["plausibility"]), "{bar}");
    assert!(number(&bar["statuses"]["unsolved"]) > number(&any["statuses"]["unsolved"]), "{bar}");
    let causes = bar["unsolved"].as_object().expect("counts by cause");
    let counted: f64 = causes.values().map(number).sum();
    assert_eq!(counted, number(&bar["statuses"]["unsolved"]), "{bar}");
    assert!(number(&bar["unsolved"]["implausible_only"]) > 0.0, "{bar}");
    let remarks = bar["remarks"].to_string();
    assert!(remarks.contains("counterfactuals were not found: "), "{remarks}");
    assert!(remarks.contains("none as plausible as `explain.min_plausibility`"), "{remarks}");
    let once = explained(&bench, &table, &python, "min_plausibility = 0.5\nqueries_per_row = 1\n");
    assert!(number(&once["unsolved"]["questions_spent"]) > 0.0, "{once}");
    explained(&bench, &table, &python, "min_plausibility = 0.5\nrefine = \"off\"\n");
    explained(&bench, &table, &python, "min_plausibility = 0.5\nsamples = 3\n");
    let gate = "[report.gates]\nmin_median_plausibility = 0.999\n";
    bench.explain_job(&table, gate);
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\noverwrite = true");
    bench.does("run", &[]).fails(3, &["report.gates.min_median_plausibility"]);
}

/// The nearest training row needs no generator that has learnt anything.
#[test]
fn the_nearest_training_row_alone() {
    let Some(python) = python("the_nearest_training_row_alone") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 2000, &[]);
    // With what applicants may change hardly anybody can become somebody else.
    let schema = std::fs::read_to_string(project().join("schemas/credit.toml")).expect("readable");
    let binds = |line: &&str| {
        ["change", "limit", "allowed", "step"].iter().any(|key| line.starts_with(key))
    };
    let free: Vec<&str> = schema.lines().filter(|line| !binds(line)).collect();
    bench.write("schema.toml", &free.join("\n"));
    bench.job(&table, "schema = \"schema.toml\"\nmax_reject_share = 0.5", None);
    bench.append("job.toml", &format!("{APPROVED}[explain]\nmethod = \"nearest\"\n"));
    let summary = bench.does("run", &[]).ok().json();
    bench.check(&python, &table, &["--schema", &bench.text("schema.toml")]);
    assert!(number(&summary["validity"]) > 0.99, "{summary}");
    assert_eq!(summary["sources"]["generator"], 0);
    assert_eq!(summary["training"]["steps"], 1);
    let generator = format!("generator = \"{}\"", bench.text("out/generator"));
    bench.replace("job.toml", "method = \"nearest\"", &generator);
    bench.replace("job.toml", "dir = \"out\"", "dir = \"again\"");
    let asked = ["--override", "explain.method=generator"];
    bench.does("run", &asked).says(
        1,
        &expect![[r#"
        error: generator: has learnt nothing: it was made by a run that needed no training
          hint: train one with `overturn train`, or set `explain.method = "search"`
    "#]],
    );
    // What has learnt nothing need not be asked.
    let searched = bench.does("run", &[]).ok().json();
    assert_eq!(searched["method"], "search");
    assert!(number(&searched["l1"]) < number(&summary["l1"]), "{searched}");
    assert!(
        searched["remarks"]
            .to_string()
            .contains("that `explain.generator` names has learnt nothing"),
        "{searched}"
    );
}

/// A generator that has learnt nothing does nothing at all where categories decide: no reason to refuse it when
/// it is not asked.
#[test]
fn the_nearest_training_row_where_an_untrained_generator_is_never_valid() {
    let Some(python) = python("the_nearest_training_row_where_an_untrained…") else { return };
    let bench = Bench::new();
    small_space(&python, &["make", &bench.text("")]).ok();
    bench.append("job.toml", "[explain]\nmethod = \"nearest\"\n");
    let summary = bench.does("run", &[]).ok().json();
    assert_eq!(summary["training"]["validation"]["validity"], 0.0, "{summary}");
    assert!(number(&summary["validity"]) > 0.2, "{summary}");
}

#[test]
fn faults_of_the_section_are_told() {
    let bench = Bench::new();
    let table = applications(&bench, 50, &[]);
    let faults = [
        "refine = \"most\"",
        "method = \"search\"\nrefine = \"repair\"",
        "refine = \"repair\"\nmax_changes = 2",
        "queries_per_row = 0",
        "queries_per_row = 4294967295",
        "max_seconds = 0",
        "plausibility_weight = -1",
        "nearness = 0.3",
        "unit_rows = 2000",
        "min_plausibility = 1.5",
        "neighbours = 5000",
        "skip = [\"shrnk\"]",
    ];
    let refusal = |lines: &str| {
        bench.job(&table, "", None);
        bench.append("job.toml", &format!("{APPROVED}[explain]\n{lines}\n"));
        bench.refusal(lines, &bench.does("validate", &[]))
    };
    expect![[r##"
        # refine = "most"
        error: DIR/job.toml:14: `explain.refine` is "most", expected `off`, `repair` or `full`

        # method = "search"
        refine = "repair"
        error: DIR/job.toml:15: `explain.refine` is given, but `explain.method` is `search`, which is `refine = "full"`

        # refine = "repair"
        max_changes = 2
        error: DIR/job.toml:15: `explain.max_changes` is given, but only `refine = "full"` puts changes back

        # queries_per_row = 0
        error: DIR/job.toml:14: `explain.queries_per_row` is 0, expected at least 1
          hint: all proposals of a block are held in memory

        # queries_per_row = 4294967295
        error: DIR/job.toml:14: `explain.queries_per_row` is 4294967295, expected at most 10000
          hint: all proposals of a block are held in memory

        # max_seconds = 0
        error: DIR/job.toml:14: `explain.max_seconds` is 0, expected more than 0
          hint: a year is as good as no limit

        # plausibility_weight = -1
        error: DIR/job.toml:14: `explain.plausibility_weight` is -1, expected at least 0
          hint: networks count in 32 bits

        # nearness = 0.3
        error: DIR/job.toml:14: `explain.nearness` was renamed, expected `plausibility_weight`
          hint: write `plausibility_weight` instead of `nearness`

        # unit_rows = 2000
        error: DIR/job.toml:14: `explain.unit_rows` was renamed, expected `split_rows`
          hint: write `split_rows` instead of `unit_rows`

        # min_plausibility = 1.5
        error: DIR/job.toml:14: `explain.min_plausibility` is 1.5, expected at most 1
          hint: it is a share

        # neighbours = 5000
        error: DIR/job.toml:14: `explain.neighbours` is 5000, expected at most 1000
          hint: more are of no use to one row

        # skip = ["shrnk"]
        error: DIR/job.toml:14: `explain.skip[0]` is "shrnk", expected `snap`, `candidates`, `neighbours`, `reversion`, `shrink`, `choice` or `certificate`
          hint: did you mean `shrink`?

    "##]].assert_eq(&faults.map(refusal).concat());
}
