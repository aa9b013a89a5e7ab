//! What the command line says and how it ends.

use expect_test::{expect, expect_file};

use crate::util::{Bench, credit, overturn};

/// Help pages stand in `help/`; `UPDATE_EXPECT=1` writes them anew.
#[test]
fn help_teaches_and_names_every_command() {
    let page = |arguments: &[&str], name: &str| {
        let help = overturn(arguments).ok().stdout;
        expect_file![format!("help/{name}.txt")].assert_eq(&help);
        help
    };
    let help = page(&["--help"], "overturn");
    let commands = help.split("Commands:\n").nth(1).expect("commands").lines();
    let commands = commands.take_while(|line| line.starts_with("  "));
    let commands = commands.filter(|line| !line.starts_with("   "));
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 10, "{help}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        let help = page(&[command, "--help"], command);
        let has_commands = help.contains("Commands:\n");
        assert!(has_commands || help.contains("Example:\n  overturn "), "{help}");
    }
    for command in ["infer", "show"] {
        page(&["schema", command, "--help"], &format!("schema_{command}"));
    }
    overturn(&["refine"]).says(
        1,
        &expect![[r#"
        error: unrecognized subcommand 'refine'

          tip: a similar subcommand exists: 'train'

        Usage: overturn [OPTIONS] <COMMAND>

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn the_version_names_what_results_depend_on() {
    let version = overturn(&["--version"]).ok().stdout;
    for expected in ["overturn 0.", "libtorch 2.13.0", "ONNX Runtime 1.31", "DataFusion 55."] {
        assert!(version.contains(expected), "{expected} not in {version}");
    }
}

#[test]
fn summaries_are_text_or_one_json_object() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(500));
    let job = bench.job(&table, "", None);
    let text = overturn(&["validate", &job]).ok();
    assert!(text.stdout.contains("rows           500\n"), "{}", text.stdout);
    assert!(text.stdout.ends_with("The job can run.\n"), "{}", text.stdout);
    let json = overturn(&["validate", &job, "--format", "json"]).ok().json();
    assert_eq!(json["rows_in_scope"], 500);
    assert_eq!(json["classes"], serde_json::json!(["approved", "rejected"]));
    assert!(!bench.path("out").exists(), "validating writes nothing");
}

#[test]
fn a_key_of_the_job_can_be_overridden() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(500));
    let job = bench.job(&table, "", None);
    let validate = |given: &str| overturn(&["validate", &job, "--override", given]);
    let json = overturn(&[
        "validate",
        &job,
        "--format",
        "json",
        "--override",
        "input.where=application_id <= 100",
    ]);
    assert_eq!(json.ok().json()["rows_in_scope"], 100);
    validate("explain.refine=none").says(
        1,
        &expect![[r#"
        error: --override: `explain.refine` is "none", expected `off`, `repair` or `full`
    "#]],
    );
    validate("explain.refien=off").says(
        1,
        &expect![[r#"
        error: --override: `explain.refien` is not a known key
          hint: did you mean `refine`?
    "#]],
    );
    validate("explain").says(
        1,
        &expect![[r#"
        error: --override: is `explain`, expected `section.key=value`
    "#]],
    );
}

#[test]
fn logs_can_be_json_and_stay_off_standard_output() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(200));
    let run = overturn(&["schema", "infer", &table, "--log", "json"]).ok();
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert!(!lines.is_empty(), "a column is left out, and that is said");
    for line in lines {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(event["level"].is_string() && event["message"].is_string(), "{line}");
    }
    assert!(run.stdout.starts_with("# Feature schema"), "{}", run.stdout);
    let run = overturn(&["validate", "nowhere.toml", "--log", "json"]).fails(1, &[]);
    let last = run.stderr.lines().last().expect("a line");
    let event: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert_eq!((&event["level"], &event["exit_code"]), (&"ERROR".into(), &1.into()));
    assert!(event["timestamp"].is_string() && event["message"].is_string(), "{last}");
    assert!(event["faults"][0]["subject"].to_string().contains("nowhere.toml"), "{last}");
}

#[test]
fn placeholders_are_filled_and_strays_are_named() {
    let bench = Bench::new();
    bench.parquet("day=2026-11-16/t.parquet", &credit(100));
    let job = bench.job("day=${day}", "", None);
    overturn(&["validate", &job, "--set", "day=2026-11-16"]).ok();
    overturn(&["validate", &job]).says(
        1,
        &expect![[r#"
        error: DIR/job.toml:2: `input.features` has the placeholder `${day}`, which has no value
          hint: pass `--set day=…`
    "#]],
    );
    overturn(&["validate", &job, "--set", "day=2026-11-16", "--set", "dya=x"]).says(
        1,
        &expect![[r#"
            error: --set: no `${dya}` in the job file
              hint: did you mean `day`?
        "#]],
    );
    overturn(&["validate", &job, "--set", "day"]).says(
        1,
        &expect![[r#"
        error: --set: `day` has no value, expected `name=value`
    "#]],
    );
}

#[test]
fn inferring_a_schema_gives_one_that_fits_its_table() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(3000));
    let ignore = ["--ignore", "approved", "--ignore", "applied_on"];
    let inferred = overturn(&[&["schema", "infer", &table][..], &ignore].concat()).ok().stdout;
    for expected in [
        "# `application_id` is no feature: nearly every value is different",
        "# `approved` is no feature: left out as asked",
        "name = \"age\"\nkind = \"numeric\"\nchange = \"any\"\nrange = [18, ",
        "type = \"integer\"",
        "name = \"sex\"\nkind = \"categorical\"\nchange = \"any\"\nvalues = [\"",
    ] {
        assert!(inferred.contains(expected), "{expected}\nnot in\n{inferred}");
    }
    bench.write("inferred.toml", &inferred);
    let job = bench.job(&table, "schema = \"inferred.toml\"", None);
    overturn(&["validate", &job]).ok();

    let guarded = overturn(&["schema", "infer", &table, "--max-categories", "2"]).ok().stdout;
    assert!(guarded.contains("# `employment` is no feature: "), "{guarded}");
    assert!(guarded.contains("too many for a category (limit 2)"), "{guarded}");
    overturn(&["schema", "infer", &table, "--ignore", "aproved"]).says(
        1,
        &expect![[r#"
        error: DIR/t.parquet: has no column `aproved`
          hint: did you mean `approved`?
    "#]],
    );
    let taken = bench.write("taken.toml", "");
    overturn(&["schema", "infer", &table, "--output", &taken]).says(
        2,
        &expect![[r#"
        error: DIR/taken.toml: cannot be written: File exists (os error 17)
          hint: an existing file is not replaced; remove it, or choose another name
    "#]],
    );
}
