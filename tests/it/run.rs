//! What a run writes: every row accounted for, every figure what the tables say, whatever the target, the
//! threads and the batches.

use std::fs;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Float64Array, Int64Array, ListBuilder, RecordBatch, StringArray,
    StringBuilder,
};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use expect_test::expect;
use serde_json::{Value, json};

use crate::fitted::{APPROVED, LITTLE, QUICK, applications, scorer, with_generator};
use crate::util::{Bench, credit, python, read_table, run_python, same_rows, with_column};

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a count: {value}"))
}

/// Rows with an answer, whatever found it.
fn solved(summary: &Value) -> u64 {
    number(&summary["statuses"]["solved"])
}

fn texts(table: &RecordBatch, name: &str) -> Vec<String> {
    let column = table.column_by_name(name).unwrap_or_else(|| panic!("the column {name}"));
    let texts = column.as_string::<i32>();
    texts.iter().map(|text| text.unwrap_or("null").to_string()).collect()
}

#[test]
fn a_run_from_table_to_reports() {
    let Some(python) = python("a_run_from_table_to_reports") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 6000, &["--files", "3", "--nulls", "0.02"]);
    bench.job(&table, "max_reject_share = 0.5\nwhere = \"loan_amount < 20000\"", None);
    bench.append("job.toml", &format!("{APPROVED}{QUICK}[report]\nby = [\"region\", \"sex\"]\n"));
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\nmetrics = \"metrics.prom\"");
    let summary = bench.does("run", &[]).ok().json();
    assert_eq!(
        bench.names("out"),
        ["_SUCCESS", "counterfactuals", "generator", "manifest.json", "rejects", "reports"]
    );
    let reports = [
        "coverage",
        "features",
        "mmd",
        "plausibility",
        "rules",
        "sparsity",
        "training",
        "validity",
    ];
    let parquet = |name: &&str| format!("{name}.parquet");
    let mut expected = vec!["audit".to_string(), "audit.html".to_string()];
    expected.extend(reports.iter().map(parquet));
    assert_eq!(bench.names("out/reports"), expected);
    let audit = ["at_bound", "changes", "curves", "gaps", "groups"];
    let expected: Vec<String> = audit.iter().map(parquet).collect();
    assert_eq!(bench.names("out/reports/audit"), expected);
    bench.nothing_is_left();
    let found = bench.check(&python, &table, &["--where", "loan_amount < 20000"]);
    assert_eq!(found["accounting"]["rows"], 6000);
    assert!(number(&found["accounting"]["out_of_scope"]) > 500, "{found}");
    assert!(number(&found["accounting"]["rejected"]) > 0, "{found}");
    assert_eq!(found["constraints"]["violations"], 0);
    assert!(solved(&summary) > 100, "{summary}");

    let mmd = read_table(&bench.path("out/reports/mmd.parquet"));
    assert_eq!(texts(&mmd, "level")[0], "target");
    let of = |name: &str| mmd.column_by_name(name).expect("a column").as_primitive::<Float64Type>();
    assert!(of("held_out_mmd2").value(0) < of("unchanged_mmd2").value(0), "the floor is below");
    assert!(of("spread").value(0) > 0.0 && of("bandwidth").value(0) > 0.0);

    let metrics = fs::read_to_string(bench.path("metrics.prom")).expect("readable");
    let lines = [
        format!("overturn_rows{{status=\"solved\"}} {}\n", solved(&summary)),
        format!("overturn_solved{{source=\"generator\"}} {}\n", summary["sources"]["generator"]),
    ];
    assert!(lines.iter().all(|line| metrics.contains(line)), "{metrics}");
    assert!(metrics.contains("overturn_published 1\n"), "{metrics}");
    let manifest = bench.json("out/manifest.json");
    for key in ["run_id", "fingerprint", "inputs", "model", "schema", "generator", "seed", "device"]
    {
        assert!(!manifest["run"][key].is_null(), "{key} is missing");
    }
    assert_eq!(manifest["run"]["inputs"].as_array().map(Vec::len), Some(3));
    assert_eq!(number(&manifest["run"]["inputs"][0]["rows"]), 2000);
    assert_eq!(manifest["job"]["input"]["predicate"], "loan_amount < 20000");
}

/// Columns, types and meanings are those that `schemas/tables.json` tells.
#[test]
fn tables_are_as_documented() {
    let bench = Bench::new();
    let table = applications(&bench, 900, &[]);
    bench.job(&table, "max_reject_share = 0.5", None);
    bench.append("job.toml", &format!("{APPROVED}{QUICK}[report]\nby = [\"region\"]\n"));
    bench.replace("job.toml", "max_steps = 600", "max_steps = 400");
    bench.does("run", &[]).ok();
    let told = fs::read_to_string(crate::util::project().join("schemas/tables.json"));
    let told: Value = serde_json::from_str(&told.expect("readable")).expect("JSON");
    let features: Vec<String> = read_features();
    for (name, path) in [
        ("counterfactuals", "out/counterfactuals"),
        ("rejects", "out/rejects"),
        ("reports/coverage", "out/reports/coverage.parquet"),
        ("reports/validity", "out/reports/validity.parquet"),
        ("reports/sparsity", "out/reports/sparsity.parquet"),
        ("reports/plausibility", "out/reports/plausibility.parquet"),
        ("reports/features", "out/reports/features.parquet"),
        ("reports/mmd", "out/reports/mmd.parquet"),
        ("reports/rules", "out/reports/rules.parquet"),
        ("reports/training", "out/reports/training.parquet"),
    ] {
        let found = read_table(&bench.path(path)).schema();
        let mut columns = found.fields().iter();
        for column in told[name].as_array().expect("columns") {
            let known = |key: &str| column[key].as_str().unwrap_or_default();
            let names: Vec<String> = match known("name") {
                "<key>" => vec!["application_id".to_string()],
                "<by>" => vec!["region".to_string()],
                "cf_<feature>" => features.iter().map(|name| format!("cf_{name}")).collect(),
                own => vec![own.to_string()],
            };
            for expected in names {
                let field = columns.next().unwrap_or_else(|| panic!("{name} lacks {expected}"));
                assert_eq!(field.name(), &expected, "{name}");
                if known("type") != "as in the input" {
                    let own = field.data_type().to_string();
                    assert!(own == known("type") || own.starts_with("List("), "{expected}: {own}");
                    let meaning = field.metadata().get("description").map(String::as_str);
                    assert_eq!(meaning, Some(known("description")), "{name}, {expected}");
                }
            }
        }
        assert!(columns.next().is_none(), "{name} has columns that are not documented");
    }
}

/// Names of the features of the credit schema.
fn read_features() -> Vec<String> {
    let file = crate::util::project().join("schemas/credit.toml");
    let schema = overturn::feature::FeatureSchema::read(&file).expect("a schema");
    schema.names().map(String::from).collect()
}

/// The summary for people: figures by target, and what to change to what.
#[test]
fn a_summary_that_people_read() {
    let bench = Bench::new();
    let table = applications(&bench, 1500, &[]);
    bench.explain_job(&table, "");
    let text = crate::util::overturn(&["run", &bench.text("job.toml")]).ok().stdout;
    for expected in ["rows read", "1,500", "solved", "rows/s", "target", "MMD²", "published"] {
        assert!(text.contains(expected), "{expected:?} not in\n{text}");
    }
    let examples = text.lines().filter(|line| line.contains("rejected → approved if")).count();
    assert_eq!(examples, 3, "{text}");
    assert!(text.contains(" changes from "), "{text}");
}

/// Nulls, infinities, unseen categories, values outside the range, and rows on which the model fails.
#[test]
fn dirty_rows_are_accounted_for() {
    let Some(python) = python("dirty_rows_are_accounted_for") else { return };
    const POISON: f64 = 12_345.0;
    let bench = Bench::new();
    let rows = credit(3000);
    let spoil = |name: &str, every: usize, value: Option<f64>| -> ArrayRef {
        let column = rows.column_by_name(name).expect("there").as_primitive::<Float64Type>();
        let cell = |(row, own): (usize, Option<f64>)| if row % every == 0 { value } else { own };
        Arc::new(Float64Array::from_iter(column.iter().enumerate().map(cell)))
    };
    let dirty = with_column(&rows, "loan_amount", Some(spoil("loan_amount", 997, Some(POISON))));
    let dirty = with_column(&dirty, "income", Some(spoil("income", 101, None)));
    let dirty = with_column(&dirty, "debt", Some(spoil("debt", 211, Some(f64::INFINITY))));
    let housing = dirty.column_by_name("housing").expect("there").as_string::<i32>();
    let housing = housing.iter().enumerate();
    let housing = housing.map(|(row, own)| if row % 307 == 0 { Some("a boat") } else { own });
    let dirty = with_column(&dirty, "housing", Some(Arc::new(StringArray::from_iter(housing))));
    let table = bench.parquet("t.parquet", &dirty);
    let poisoned = "if 12_345.0 in batch['loan_amount'].to_pylist(): sys.exit('poison')";
    bench.write("scorer.py", &scorer(poisoned, LITTLE));
    let predictor = format!(
        "kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]\nworkers = 2\nretries = 0\n\
         max_failed_share = 0.5"
    );
    bench.job(&table, "max_reject_share = 0.5", Some(&predictor));
    bench.append("job.toml", &format!("{APPROVED}{}", with_generator("split_rows = 1000\n")));
    let summary = bench.does("run", &[]).ok().json();
    for reason in ["null", "infinite", "unseen_category", "predictor_failed"] {
        assert!(number(&summary["rows_rejected"][reason]) > 0, "{reason}: {summary}");
    }
    let rejected: u64 =
        summary["rows_rejected"].as_object().expect("reasons").values().map(number).sum();
    assert_eq!(number(&summary["rows_explained"]) + rejected, 3000);
    let found = bench.check(&python, &table, &[]);
    assert_eq!(found["accounting"]["rejected"], rejected);
    let rejects = read_table(&bench.path("out/rejects"));
    assert_eq!(rejects.num_rows() as u64, rejected);
    let details = texts(&rejects, "detail");
    assert!(details.iter().any(|detail| detail.contains("a boat")), "{details:?}");
}

#[test]
fn values_do_not_depend_on_threads_or_batches() {
    let bench = Bench::new();
    let table = applications(&bench, 70_000, &["--files", "2"]);
    bench.explain_job(&table, "split_rows = 30000\n");
    bench.append("job.toml", "[report]\nby = [\"region\"]\n");
    let mut known: Option<(Vec<RecordBatch>, Value)> = None;
    for (threads, batch_rows) in [("1", 8192), ("2", 8192), ("4", 8192), ("2", 1024), ("2", 65_536)]
    {
        let out = format!("out-{threads}-{batch_rows}");
        let job = fs::read_to_string(bench.path("job.toml")).expect("readable");
        let varied = job
            .replace("dir = \"out\"", &format!("dir = \"{out}\""))
            .replace("max_reject_share", &format!("batch_rows = {batch_rows}\nmax_reject_share"));
        fs::write(bench.path("varied.toml"), varied).expect("written");
        let varied = bench.text("varied.toml");
        crate::util::overturn(&["run", &varied, "--threads", threads]).ok();
        let tables =
            ["counterfactuals", "rejects", "reports/mmd.parquet", "reports/sparsity.parquet"]
                .map(|table| read_table(&bench.path(&out).join(table)));
        let names = json!(bench.names(&format!("{out}/counterfactuals")));
        match &known {
            None => known = Some((tables.to_vec(), names)),
            Some((expected, parts)) => {
                assert_eq!(&names, parts);
                for (found, expected) in tables.iter().zip(expected) {
                    assert!(
                        same_rows(found, expected),
                        "{threads} threads, batches of {batch_rows}"
                    );
                }
            }
        }
    }
}

#[test]
fn several_counterfactuals_a_row() {
    let Some(python) = python("several_counterfactuals_a_row") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 9000, &[]);
    bench.explain_job(&table, "samples = 6\nsplit_rows = 4000\n");
    let summary = bench.does("run", &["--threads", "2"]).ok().json();
    bench.check(&python, &table, &[]);
    let found = read_table(&bench.path("out/counterfactuals"));
    assert_eq!(number(&summary["counterfactuals"]), found.num_rows() as u64);
    let needed = solved(&summary) + number(&summary["statuses"]["unsolved"]);
    let more = found.num_rows() as u64 - number(&summary["rows_explained"]);
    assert!(more > needed, "{more} further ones of {needed} rows");
    // Equal ones are given once, and the first is the one that a run without samples gives.
    let script = "import sys, duckdb\n\
        rows = duckdb.read_parquet(sys.argv[1] + '/*.parquet')\n\
        same = 'count(*) = count(DISTINCT (application_id, target, changes))'\n\
        print(rows.aggregate(same).fetchall()[0][0])";
    let said = run_python(&python, script, &[&bench.text("out/counterfactuals")]);
    assert_eq!(said.trim(), "True");
    bench.replace("job.toml", "samples = 6", "samples = 1");
    bench.replace("job.toml", "dir = \"out\"", "dir = \"single\"");
    bench.does("run", &["--threads", "1"]).ok();
    let single = read_table(&bench.path("single/counterfactuals"));
    let samples = found.column_by_name("sample").expect("there").as_primitive::<Int32Type>();
    let firsts: arrow::array::BooleanArray =
        samples.iter().map(|sample| Some(sample == Some(0))).collect();
    let firsts = arrow::compute::filter_record_batch(&found, &firsts).expect("filtered");
    assert_eq!(firsts.num_rows(), single.num_rows());
    assert!(texts(&firsts, "cf_employment") == texts(&single, "cf_employment"));
}

#[test]
fn hive_folders() {
    let Some(python) = python("hive_folders") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 3000, &[]);
    bench.explain_job(&table, "split_rows = 1000\n");
    bench.replace(
        "job.toml",
        "dir = \"out\"",
        "dir = \"out\"\npartition_by = [\"status\", \"valid\"]",
    );
    bench.does("run", &[]).ok();
    bench.check(&python, &table, &[]);
    let script = "import sys, pyarrow.dataset as ds\n\
        table = ds.dataset(sys.argv[1], partitioning='hive').to_table()\n\
        print(table.num_rows, sorted(set(table['status'].to_pylist())))";
    let said = run_python(&python, script, &[&bench.text("out/counterfactuals")]);
    assert!(said.starts_with("3000 ['already_target'"), "{said}");
    bench.replace("job.toml", "\"valid\"]", "\"region\"]");
    bench.replace("job.toml", "dir = \"out\"", "dir = \"other\"");
    bench.does("run", &[]).says(1, &expect![[r#"
        error: output.partition_by: names `region`, expected one of application_id, method, sample, target, original_class, cf_class, status, source, valid
    "#]]);
}

#[test]
fn the_other_class_of_two_or_what_a_column_says() {
    let Some(python) = python("the_other_class_of_two_or_what_a_column_says") else { return };
    let bench = Bench::new();
    let rows = credit(1200);
    let wanted = (0..1200).map(|row| match row % 4 {
        0 => None,
        1 => Some("approved"),
        2 => Some("rejected"),
        _ => Some("maybe"),
    });
    let rows = with_column(&rows, "wanted", Some(Arc::new(StringArray::from_iter(wanted))));
    let table = bench.parquet("t.parquet", &rows);
    bench.explain_job(&table, "");
    bench.replace("job.toml", "max_reject_share = 0.5", "max_reject_share = 0.6");
    bench.replace("job.toml", "class = \"approved\"", "column = \"wanted\"");
    let summary = bench.does("run", &[]).ok().json();
    assert_eq!(summary["rows_rejected"], json!({ "no_target": 600 }));
    bench.check(&python, &table, &[]);
    let rejects = read_table(&bench.path("out/rejects"));
    let details = texts(&rejects, "detail");
    assert!(details.contains(&"the target column is null".to_string()));
    assert!(
        details
            .contains(&"the target column says `maybe`, expected a class of the model".to_string())
    );

    bench.replace("job.toml", "column = \"wanted\"", "flip = true");
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\noverwrite = true");
    let summary = bench.does("run", &[]).ok().json();
    assert_eq!(summary["targets"].as_array().map(Vec::len), Some(2));
    assert_eq!(summary["statuses"]["already_target"], 0);
    bench.check(&python, &table, &[]);
}

#[test]
fn every_class_and_ranges_of_values() {
    let Some(python) = python("every_class_and_ranges_of_values") else { return };
    // With less weight on small changes: a short training would otherwise settle for none.
    let short = format!("{QUICK}sparsity = 0.1\nconsistency = 0.0\n");
    let check = |bench: &Bench| {
        let (table, schema) = (bench.text("table.parquet"), bench.text("schema.toml"));
        bench.check(&python, &table, &[&schema, "--schema", "--key", "id"])
    };
    let bench = Bench::new();
    bench.known(&python, "seven", Some(900));
    let job = fs::read_to_string(bench.path("job.toml")).expect("readable");
    assert!(job.contains("key = \"id\""), "{job}");
    bench.append("job.toml", &short);
    replace_target(&bench, "every = true");
    let summary = bench.does("run", &[]).ok().json();
    assert_eq!(summary["targets"].as_array().map(Vec::len), Some(7));
    assert_eq!(number(&summary["counterfactuals"]), 6 * number(&summary["rows_explained"]));
    check(&bench);
    // Several answers to every target, in folders: counted anew, they are the same.
    bench.append("job.toml", "[explain]\nsamples = 3\n");
    bench.replace(
        "job.toml",
        "dir = \"out\"",
        "dir = \"out\"\noverwrite = true\npartition_by = [\"status\", \"target\", \"sample\"]",
    );
    bench.does("run", &[]).ok();
    check(&bench);
    bench.does("report", &[]).ok();
    check(&bench);

    let bench = Bench::new();
    bench.known(&python, "regression", Some(900));
    bench.append("job.toml", &short);
    let summary = bench.does("run", &[]).ok().json();
    assert_eq!(summary["targets"].as_array().map(Vec::len), Some(1));
    let found = read_table(&bench.path("out/counterfactuals"));
    for column in ["original_value", "cf_value"] {
        assert!(found.column_by_name(column).is_some(), "{column} is missing");
    }
    check(&bench);
    // What each row wants, from a column.
    let rows = read_table(&bench.path("table.parquet"));
    let values =
        found.column_by_name("original_value").expect("there").as_primitive::<Float64Type>();
    let wanted = Float64Array::from_iter(values.iter().map(|value| value.map(|value| value + 0.5)));
    let ids = found.column_by_name("id").expect("a key").as_primitive::<Int64Type>();
    let own = rows.column_by_name("id").expect("a key").as_primitive::<Int64Type>();
    assert_eq!(ids.values(), own.values(), "all rows, in their order");
    bench.parquet("table.parquet", &with_column(&rows, "wanted", Some(Arc::new(wanted))));
    replace_target(&bench, "column = \"wanted\"\ntolerance = 0.4");
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\noverwrite = true");
    let summary = bench.does("run", &[]).ok().json();
    assert_eq!(summary["targets"][0]["target"], "by row");
    check(&bench);
    bench.does("report", &[]).ok();
    check(&bench);
}

/// Puts another line into the section `[target]`.
fn replace_target(bench: &Bench, line: &str) {
    let job = fs::read_to_string(bench.path("job.toml")).expect("readable");
    let mut lines: Vec<&str> = Vec::new();
    let mut inside = false;
    for own in job.lines() {
        inside = if own.starts_with('[') { own == "[target]" } else { inside };
        if !inside {
            lines.push(own);
        }
    }
    let job = format!("{}\n[target]\n{line}\n", lines.join("\n"));
    fs::write(bench.path("job.toml"), job).expect("written");
}

#[test]
fn stored_decisions_and_rows_without_one() {
    let Some(python) = python("stored_decisions_and_rows_without_one") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 4000, &[]);
    bench.explain_job(&table, "");
    bench.does("run", &[]).ok();
    let plain = read_table(&bench.path("out/counterfactuals"));
    bench.score(&table, "").says(
        1,
        &expect![[r#"
        error: DIR/out: already holds the results of a run
          hint: set `output.overwrite = true` to replace them, or choose another `output.dir`
    "#]],
    );
    bench.job(&table, "where = \"application_id < 3000\"", None);
    bench.replace("job.toml", "dir = \"out\"", "dir = \"scored\"");
    bench.does("score", &[]).ok();
    bench.explain_job(&table, "");
    let scores = format!("[input.scores]\ntable = \"{}\"\n", bench.text("scored/scores"));
    bench.append("job.toml", &scores);
    bench.replace("job.toml", "dir = \"out\"", "dir = \"stored\"");
    let summary = bench.does("run", &[]).ok().json();
    let remarks = summary["remarks"].to_string();
    assert!(remarks.contains("decisions taken from the score table"), "{remarks}");
    assert!(
        remarks.contains("rows without a stored decision were scored by the model"),
        "{remarks}"
    );
    let stored = read_table(&bench.path("stored/counterfactuals"));
    for column in ["original_class", "cf_class", "status", "cf_employment"] {
        assert!(texts(&plain, column) == texts(&stored, column), "{column} differs");
    }
    let manifest = bench.json("stored/manifest.json");
    let inputs = manifest["run"]["inputs"].to_string();
    assert!(inputs.contains("applications") && inputs.contains("scored/scores"), "{inputs}");
    drop(python);
}

#[test]
fn constraints_of_single_rows() {
    let Some(python) = python("constraints_of_single_rows") else { return };
    let bench = Bench::new();
    let rows = credit(2000);
    let amounts = rows.column_by_name("loan_amount").expect("there").as_primitive::<Float64Type>();
    let least = amounts.iter().map(|amount| amount.map(|amount| amount - 300.0));
    let rows =
        with_column(&rows, "loan_amount__min", Some(Arc::new(Float64Array::from_iter(least))));
    let mut allowed = ListBuilder::new(StringBuilder::new());
    for row in 0..2000 {
        allowed.append_value(if row % 2 == 0 { vec![Some("employed")] } else { vec![] });
    }
    let allowed: ArrayRef = Arc::new(allowed.finish());
    let rows = with_column(&rows, "employment__allowed", Some(allowed));
    let table = bench.parquet("t.parquet", &rows);
    // The fewest changes need no loan_amount, which may hardly change; the generator's own do.
    for (refine, changed) in [("repair", "loan_amount"), ("full", "income")] {
        bench.explain_job(&table, &format!("samples = 3\nrefine = \"{refine}\"\n"));
        bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\noverwrite = true");
        bench.does("run", &[]).ok();
        let found = bench.check(&python, &table, &[]);
        assert_eq!(found["constraints"]["violations"], 0);
        assert!(number(&found["constraints"]["changed"][changed]) > 0, "{found}");
    }
}

#[test]
fn a_schema_under_which_some_rows_can_do_nothing() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(400));
    let schema = fs::read_to_string(crate::util::project().join("schemas/credit.toml"));
    let schema = schema.expect("readable");
    let mut fixed = String::new();
    let mut name = "";
    for line in schema.lines() {
        name =
            line.strip_prefix("name = ").map_or(name, |rest| rest.split('#').next().unwrap_or(""));
        let constrains =
            ["change", "limit", "allowed", "step"].iter().any(|key| line.starts_with(key));
        if !constrains {
            fixed.push_str(&format!("{line}\n"));
        }
        if line.starts_with("kind") {
            let change = if name.contains("late_payments") { "decrease" } else { "never" };
            fixed.push_str(&format!("change = \"{change}\"\n"));
        }
    }
    bench.write("schema.toml", &fixed);
    bench.job(&table, "schema = \"schema.toml\"\nmax_reject_share = 0.5", None);
    bench.append("job.toml", &format!("{APPROVED}{}", with_generator("refine = \"off\"\n")));
    let summary = bench.does("run", &[]).ok().json();
    let infeasible = number(&summary["statuses"]["infeasible"]);
    assert!(infeasible > 10, "{summary}");
    let found = read_table(&bench.path("out/counterfactuals"));
    let late = found.column_by_name("cf_late_payments").expect("there");
    let late = arrow::compute::cast(late, &arrow::datatypes::DataType::Int64).expect("numbers");
    let late: &Int64Array = late.as_primitive();
    for (status, late) in texts(&found, "status").iter().zip(late.iter()) {
        assert!(status != "infeasible" || late == Some(0), "{status} {late:?}");
    }
}

#[test]
fn gates_that_a_run_fails() {
    let Some(python) = python("gates_that_a_run_fails") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 2000, &[]);
    bench.explain_job(&table, "");
    bench.append("job.toml", "[report.gates]\nmin_validity = 1.0\nmax_mmd_ratio = 0.0001\n");
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\nmetrics = \"metrics.prom\"");
    let run = bench.does("run", &[]).fails(
        3,
        &[
            "report.gates.min_validity: is 1, the run has 0.",
            "max_mmd_ratio (approved)",
            "_out.failed",
        ],
    );
    assert_eq!(run.json()["gates"][0]["passed"], false);
    assert!(!bench.path("out").exists());
    bench.nothing_is_left();
    assert!(!bench.names("_out.failed").contains(&"_SUCCESS".to_string()));
    assert!(bench.names("_out.failed").contains(&"manifest.json".to_string()));
    let metrics = fs::read_to_string(bench.path("metrics.prom")).expect("readable");
    assert!(metrics.contains("overturn_published 0\n"), "{metrics}");
    // What was published before stays, and a second failure replaces the first.
    bench.replace("job.toml", "min_validity = 1.0\nmax_mmd_ratio = 0.0001", "min_validity = 0.0");
    bench.does("run", &[]).ok();
    bench.check(&python, &table, &[]);
    let before = fs::read(bench.path("out/manifest.json")).expect("readable");
    bench.replace("job.toml", "min_validity = 0.0", "min_validity = 1.0");
    bench
        .does("run", &[])
        .fails(3, &["report.gates.min_validity", "published before the job demanded this"]);
    bench.replace("job.toml", "dir = \"out\"", "dir = \"out\"\noverwrite = true");
    bench.does("run", &[]).fails(3, &["report.gates.min_validity"]);
    assert!(fs::read(bench.path("out/manifest.json")).expect("readable") == before);
}

#[test]
fn a_dry_run_writes_nothing() {
    let bench = Bench::new();
    let table = applications(&bench, 2000, &["--files", "2"]);
    bench.explain_job(&table, "split_rows = 1000\n");
    let plan = bench.does("run", &["--dry-run"]).ok().json();
    assert_eq!(
        (&plan["rows"], &plan["files"], &plan["splits"]),
        (&json!(2000), &json!(2), &json!(2))
    );
    assert!(plan["explaining_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{plan}");
    assert_eq!(plan["stages"].as_array().map(Vec::len), Some(5));
    let lines = plan["plan"].as_array().expect("lines").iter();
    let lines: Vec<&str> = lines.filter_map(Value::as_str).map(str::trim_start).collect();
    let begin = ["ExplainSplitExec: ", "DataSourceExec: partitions=2", "each split", "DataSource"];
    assert_eq!(lines.len(), begin.len(), "{lines:?}");
    assert!(lines.iter().zip(begin).all(|(line, begin)| line.starts_with(begin)), "{lines:?}");
    let text = crate::util::overturn(&["run", &bench.text("job.toml"), "--dry-run"]).ok().stdout;
    assert!(text.contains("2,000 in 2 files") && text.contains("publish "), "{text}");
    assert_eq!(bench.names(""), ["applications", "job.toml"]);
}

#[test]
fn explaining_alone_and_reporting_later() {
    let Some(python) = python("explaining_alone_and_reporting_later") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 5000, &["--files", "2", "--nulls", "0.01"]);
    bench.explain_job(&table, "split_rows = 2000\nsamples = 2\n");
    bench.does("report", &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: is not the folder of a published run
          hint: `overturn run` or `overturn explain` makes one
    "#]],
    );
    bench.does("explain", &[]).ok();
    assert!(!bench.names("out").contains(&"reports".to_string()));
    bench.check(&python, &table, &[]);
    bench.does("report", &[]).ok();
    bench.nothing_is_left();
    bench.check(&python, &table, &[]);
    // The reports are those of a run that does all at once.
    let reported = ["coverage", "validity", "sparsity", "plausibility", "features", "mmd"];
    let tables = |out: &str| {
        reported.map(|name| read_table(&bench.path(&format!("{out}/reports/{name}.parquet"))))
    };
    bench.replace("job.toml", "dir = \"out\"", "dir = \"whole\"");
    bench.does("run", &[]).ok();
    for ((name, found), expected) in reported.iter().zip(tables("out")).zip(tables("whole")) {
        assert!(same_rows(&found, &expected), "{name} is another");
    }
    // By other segments, with the tables as they were.
    bench.replace("job.toml", "dir = \"whole\"", "dir = \"out\"");
    bench.append("job.toml", "[report]\nby = [\"region\"]\n");
    let before = fs::read(bench.path("out/counterfactuals/part-00001.parquet")).expect("readable");
    bench.does("report", &[]).ok();
    bench.check(&python, &table, &[]);
    let coverage = read_table(&bench.path("out/reports/coverage.parquet"));
    assert!(texts(&coverage, "region").contains(&"north".to_string()));
    let after = fs::read(bench.path("out/counterfactuals/part-00001.parquet")).expect("readable");
    assert!(before == after);
    // What was made by another job, or from another table, is not reported on.
    bench.replace("job.toml", "samples = 2", "samples = 3");
    bench.does("report", &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: was made before `[explain]` changed
          hint: only `[report]` and `[audit]` may be others than the run's; run the job again
    "#]],
    );
    bench.replace("job.toml", "samples = 3", "samples = 2");
    applications(&Bench::new(), 10, &[]);
    fs::remove_dir_all(bench.path("applications")).expect("removed");
    applications(&bench, 5001, &["--files", "2"]);
    bench.does("report", &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: was made before the tables changed
          hint: only `[report]` and `[audit]` may be others than the run's; run the job again
    "#]],
    );
}

#[test]
fn what_cannot_be_explained() {
    let bench = Bench::new();
    let rows = credit(300);
    let table = bench.parquet("t.parquet", &rows);
    let refused = |lines: &str, said: &[&str]| {
        bench.explain_job(&table, lines);
        bench.does("run", &[]).fails(1, said);
        assert!(!bench.path("out").exists());
        bench.nothing_is_left();
    };
    refused("samples = 0\n", &["`explain.samples` is 0, expected at least 1"]);
    refused("split_rows = 0\n", &["`explain.split_rows` is 0, expected at least 1"]);
    refused("[report]\nby = [\"regoin\"]\n", &["regoin", "did you mean `region`"]);
    refused("[report]\nby = [\"status\"]\n", &["names `status`, a column that reports have"]);
    refused(
        "[report.mmd]\nspace = \"none\"\n[report.gates]\nmax_mmd_ratio = 1\n",
        &["`report.gates.max_mmd_ratio` is given, but `report.mmd.space` is `none`"],
    );
    refused("[report.mmd]\nencoders = 99\n", &["`report.mmd.encoders` is 99, expected at most 32"]);
    refused("[report.gates]\nmin_validity = 2\n", &["`report.gates.min_validity` is 2"]);
    bench.explain_job(&table, "");
    bench.replace("job.toml", "class = \"approved\"", "class = \"aproved\"");
    bench.does("run", &[]).says(
        1,
        &expect![[r#"
        error: target.class: is `aproved`, expected one of ["approved", "rejected"]
          hint: did you mean `approved`?
    "#]],
    );
    bench.explain_job(&table, "");
    bench.replace(
        "job.toml",
        "max_reject_share",
        "where = \"applied_on < now()\"\nmax_reject_share",
    );
    bench.does("run", &[]).says(1, &expect![[r#"
        error: input.where: is `applied_on < now()`, which calls a function whose result changes by itself, such as now() or random()
          hint: rows in scope must be the same when a run is resumed; give the date with `--set date=…` and write `'${date}'`
    "#]]);
    bench.explain_job(&table, "");
    bench.replace("job.toml", APPROVED, "");
    bench.does("run", &[]).says(
        1,
        &expect![[r#"
        error: target: is missing, expected what the model should decide instead
          hint: add a section such as
            [target]
            class = "approved"
    "#]],
    );
    bench.job(&table, "", None);
    bench.append("job.toml", APPROVED);
    bench.does("explain", &[]).says(
        1,
        &expect![[r#"
        error: explain.generator: is missing, expected the folder of a fitted generator
          hint: `overturn train` makes one; `overturn run` trains and explains
    "#]],
    );
    // A generator for other features.
    let schema = fs::read_to_string(crate::util::project().join("schemas/credit.toml"));
    let other = schema.expect("readable").replace("\"widowed\"]", "\"widowed\", \"it depends\"]");
    bench.write("schema.toml", &other);
    bench.job(&table, "schema = \"schema.toml\"", None);
    bench.append("job.toml", &format!("{APPROVED}{}", with_generator("")));
    bench.does("run", &[]).says(1, &expect![[r#"
        error: TMP/fitted/out/generator: has other values or policies for the feature `marital_status` than the schema
          hint: train a generator for this schema and model
    "#]]);
    // What is wrong with the keys is found before a generator is taken or learnt.
    let doubled = arrow::compute::concat_batches(&rows.schema(), [&rows, &rows.slice(0, 3)]);
    for (name, rows, said) in [
        ("doubled", doubled.expect("one table"), "is not unique: 3 keys occur more than once"),
        ("none", rows.slice(0, 0), "none.parquet: has no rows"),
    ] {
        let bench = Bench::new();
        let table = bench.parquet(&format!("{name}.parquet"), &rows);
        bench.explain_job(&table, "");
        bench.does("run", &[]).fails(1, &[said]);
        bench.nothing_is_left();
    }
    // A key that is called as a column of the output.
    let ids = rows.column_by_name("application_id").expect("there").clone();
    let renamed = with_column(&with_column(&rows, "application_id", None), "status", Some(ids));
    let table = bench.parquet("renamed.parquet", &renamed);
    bench.explain_job(&table, "");
    bench.replace("job.toml", "key = \"application_id\"", "key = \"status\"");
    bench.does("run", &[]).says(
        1,
        &expect![[r#"
        error: input.key: names `status`, a column that the output has itself
          hint: rename the column in the table
    "#]],
    );
}
