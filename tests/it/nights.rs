//! A run beside the one before it: causes, promises, the chain of manifests.

use std::fs;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type};
use expect_test::expect;
use serde_json::{Value, json};

use crate::fitted::applications;
use crate::util::{Bench, Run, overturn, project, python, read_table, run_python};

/// The table of the second night: some rows have done what they were told, others changed, are gone, or are new.
const SECOND_NIGHT: &str = r#"
import sys, glob, pyarrow, pyarrow.parquet as parquet
before, out, after = sys.argv[1:4]
read = lambda folder: pyarrow.concat_tables([parquet.read_table(f) for f in sorted(glob.glob(folder + "/*.parquet"))])
table, told = read(before), {row["application_id"]: row for row in read(out + "/counterfactuals").to_pylist()}
rows = table.to_pylist()
for number, row in enumerate(rows):
    answer = told.get(row["application_id"])
    if answer and answer["status"] == "solved" and number % 3 == 0:
        for change in answer["changes"]:
            row[change["feature"]] = answer["cf_" + change["feature"]]
    elif number % 7 == 1:
        row["income"] = row["income"] and row["income"] - 12000
        row["debt"] = row["debt"] and max(0.0, row["debt"] - 4000)
rows = rows[60:]
last = max(row["application_id"] for row in rows)
rows += [{**row, "application_id": last + 1 + number} for number, row in enumerate(rows[:50])]
import os
os.makedirs(after)
parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), after + "/t.parquet", row_group_size=700)
"#;

/// A first night in `out`, by the demo's logistic regression.
fn first_night(rows: u64) -> (Bench, String) {
    let bench = Bench::new();
    let table = applications(&bench, rows, &["--files", "2"]);
    bench.explain_job(&table, "");
    bench.append("job.toml", "[report]\nby = [\"region\"]\nmmd.space = \"none\"\n");
    bench.does("run", &[]).ok();
    (bench, table)
}

/// A night in another folder, compared with the first.
fn next_night(bench: &Bench, out: &str, more: &[&str]) -> Run {
    let mut arguments = vec![format!("output.dir={out}"), "audit.previous=out".to_string()];
    arguments.extend(more.iter().map(ToString::to_string));
    let arguments: Vec<&str> =
        arguments.iter().flat_map(|argument| ["--override", argument.as_str()]).collect();
    bench.does("run", &arguments)
}

/// Figures of everybody by cause: rows, promised, still valid, paired, needless.
fn by_cause(bench: &Bench, out: &str) -> Vec<(Option<String>, [i64; 5])> {
    let table = read_table(&bench.path(&format!("{out}/reports/audit/stability.parquet")));
    let text = |name: &str| table.column_by_name(name).expect("there").as_string::<i32>().clone();
    let (attributes, causes) = (text("attribute"), text("cause"));
    let count = |name: &str, row: usize| {
        table.column_by_name(name).expect("there").as_primitive::<Int64Type>().value(row)
    };
    let names = ["rows", "promised", "still_valid", "paired", "needless"];
    (0..table.num_rows())
        .filter(|row| attributes.is_null(*row))
        .map(|row| {
            let cause = causes.is_valid(row).then(|| causes.value(row).to_string());
            (cause, names.map(|name| count(name, row)))
        })
        .collect()
}

#[test]
fn a_second_night_is_told_by_cause() {
    let Some(python) = python("a_second_night_is_told_by_cause") else { return };
    let (bench, table) = first_night(2_000);
    // Nothing changed.
    let summary = next_night(&bench, "same", &[]).ok().json();
    let told = &summary["stability"];
    assert_eq!(told["changed"], json!([]));
    assert_eq!([&told["appeared"], &told["vanished"], &told["decision_flips"]], [0, 0, 0]);
    assert_eq!(told["recourse_validity"], 1.0);
    assert_eq!([&told["answer_churn"], &told["needless_churn"], &told["cost_drift"]], [0.0; 3]);
    let causes = by_cause(&bench, "same");
    let [(None, all), (Some(none), same)] = &causes[..] else { panic!("{causes:?}") };
    assert!(none == "none" && all == same && all[1] > 200, "{causes:?}");
    assert_eq!([all[1], all[1], 0], [all[2], all[3], all[4]]);

    // The configuration: the same rows, the same model, answers farther inside.
    let summary = next_night(&bench, "inside", &["explain.min_score=0.7"]).ok().json();
    assert_eq!(summary["stability"]["changed"], json!(["`[explain]`"]));
    let causes = by_cause(&bench, "inside");
    assert_eq!(causes[1].0.as_deref(), Some("configuration"));
    assert!(causes.len() == 2 && causes[1].1[4] > 100, "cheaper ones still hold: {causes:?}");

    // Rows and the model: some rows have made the changes, and are decided by another model.
    let arguments = [table, bench.text("out"), bench.text("second")];
    let [before, out, after] = arguments.each_ref().map(String::as_str);
    run_python(&python, SECOND_NIGHT, &[before, out, after]);
    let features = format!("input.features={after}");
    let forest = project().join("jobs/demo/forest.onnx").display().to_string();
    let other = format!("predictor.model={forest}");
    let oracle = project().join("tests/python/nights_oracle.py").display().to_string();
    let recount = |out: &str, model: &str| -> Value {
        let mut command = std::process::Command::new(&python);
        command.args([
            &oracle,
            &bench.text("out"),
            &bench.text(out),
            before,
            after,
            model,
            "region",
        ]);
        Run::of(&mut command).ok().json()
    };
    next_night(&bench, "rows", &[&features]).ok();
    let logistic = project().join("jobs/demo/logistic.onnx").display().to_string();
    let told = recount("rows", &logistic);
    assert_eq!(told["causes"].as_object().expect("causes").len(), 2, "none and row: {told}");
    assert_eq!(told["broken"], 0, "the same model keeps what it promised");
    assert!(told["refused"].as_u64() > Some(0), "some changes are no longer allowed: {told}");
    next_night(&bench, "model", &[&other]).ok();
    let causes = by_cause(&bench, "model");
    assert_eq!(causes[1].0.as_deref(), Some("model"));
    assert!(causes.len() == 2 && causes[1].1[2] < causes[1].1[1], "{causes:?}");
    next_night(&bench, "both", &[&features, &other]).ok();
    let told = recount("both", &forest);
    assert!(told["causes"]["model"].as_u64() > Some(100), "{told}");
    assert!(told["causes"]["row+model"].as_u64() > Some(100), "{told}");
    assert!(told["broken"].as_u64() > Some(10), "another model breaks promises: {told}");
    overturn(&["verify", &bench.text("both")]).ok();
}

#[test]
fn gates_hold_a_night_back_and_questions_are_limited() {
    let (bench, _) = first_night(1_000);
    let gates = ["report.gates.max_needless_churn=0.01", "explain.min_score=0.7"];
    next_night(&bench, "churned", &gates)
        .fails(3, &["report.gates.max_needless_churn: is 0.01, the run has 0."]);
    assert!(bench.path("_churned.failed").exists() && !bench.path("churned").exists());
    let kept = ["report.gates.min_recourse_validity=1.0", "report.gates.max_needless_churn=0.0"];
    next_night(&bench, "kept", &kept).ok();
    let summary = next_night(&bench, "asked", &["audit.queries=50"]).ok().json();
    let told = &summary["stability"];
    let (asked, promised) = (told["asked"].as_u64(), told["promised"].as_u64());
    assert!(asked < Some(100) && asked > Some(10) && promised > Some(100), "{told}");
    assert_eq!(told["recourse_validity"], 1.0);
    next_night(&bench, "asked_not", &["audit.queries=0"]).ok();
    let rows = read_table(&bench.path("asked_not/reports/stability.parquet"));
    let column = |name: &str| rows.column_by_name(name).expect("there");
    assert_eq!(column("still_valid").null_count(), rows.num_rows());
    let costs = column("carried_cost").as_primitive::<Float64Type>();
    assert!(costs.null_count() < rows.num_rows(), "what costs no question is told");

    // The same reports made anew, compared with another run, then with none.
    bench.append("job.toml", "[audit]\nprevious = \"asked\"\n");
    let anew = bench.does("report", &[]).ok().json();
    assert_eq!(anew["stability"]["recourse_validity"], 1.0);
    let manifest = bench.json("out/manifest.json");
    let asked = bench.json("asked/manifest.json");
    assert_eq!(manifest["run"]["previous"]["run_id"], asked["run"]["run_id"]);
    // The run as it was before is kept beside, and the one in between was compared with that.
    let verified = overturn(&["verify", &bench.text("out"), "--format", "json"]).ok().json();
    assert_eq!(verified["previous"], json!({ "runs": 2, "end": null }));
    bench.replace("job.toml", "\"asked\"", "\"out\"");
    bench.does("report", &[]).fails(1, &["audit.previous: is `", "the run itself"]);
    bench.replace("job.toml", "previous = \"out\"", "");
    bench.does("report", &[]).ok();
    assert!(!bench.path("out/reports/stability.parquet").exists());
    overturn(&["verify", &bench.text("out")]).ok();
}

#[test]
fn the_chain_is_followed_from_night_to_night() {
    let (bench, _) = first_night(300);
    let night = |out: &str, previous: &str| {
        let given = [format!("output.dir={out}"), format!("audit.previous={previous}")];
        bench.does("run", &["--override", &given[0], "--override", &given[1]]).ok();
    };
    night("second", "out");
    night("third", "second");
    let verify = |of: &str| overturn(&["verify", &bench.text(of), "--format", "json"]);
    let chain = |of: &str| verify(of).ok().json()["previous"].clone();
    assert_eq!(chain("out"), Value::Null);
    assert_eq!(chain("third"), json!({ "runs": 2, "end": null }));
    let told = overturn(&["verify", &bench.text("third")]).ok().stdout;
    assert!(told.contains("previous runs"), "{told}");

    // The page tells of all nights, the oldest first.
    let page = |of: &str| {
        fs::read_to_string(bench.path(&format!("{of}/reports/audit.html"))).expect("a page")
    };
    let id = |of: &str| {
        let id = bench.json(&format!("{of}/manifest.json"))["run"]["run_id"].clone();
        format!("{of} ({})", &id.as_str().expect("a name")[..8])
    };
    let third = page("third");
    assert!(third.contains("Over the runs that are known"));
    let told =
        ["out", "second", "third"].map(|of| third.find(&id(of)).unwrap_or_else(|| panic!("{of}")));
    assert!(told.is_sorted(), "{told:?}");
    assert!(!page("out").contains("Over the runs that are known"), "it is the first");

    // What was changed two nights ago is found tonight: a file, the manifest, and both with the hash made to fit.
    let report = bench.path("out/reports/validity.parquet");
    let content = fs::read(&report).expect("readable");
    fs::write(&report, &content[1..]).expect("written");
    verify("third").says(1, &expect![[r#"
        error: DIR/third: DIR/out: has `reports/validity.parquet` with 5610 bytes, expected 5611, by its manifest
    "#]]);
    fs::write(&report, &content).expect("written");
    verify("third").ok();
    let manifest = fs::read_to_string(bench.path("out/manifest.json")).expect("readable");
    let forged = manifest.replace("\"region\"", "\"sex\"");
    bench.write("out/manifest.json", &forged);
    verify("third").says(1, &expect![[r#"
        error: DIR/third: DIR/out: has a manifest with the SHA-256 HASH, expected HASH: it was changed, or replaced by another run
    "#]]);
    let success = fs::read_to_string(bench.path("out/_SUCCESS")).expect("readable");
    let sha256 = |text: &str| {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(text);
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(success, format!("{}  manifest.json\n", sha256(&manifest)));
    bench.write("out/_SUCCESS", &format!("{}  manifest.json\n", sha256(&forged)));
    verify("out").ok();
    verify("third").says(1, &expect![[r#"
        error: DIR/third: DIR/out: has a manifest with the SHA-256 HASH, expected HASH: it was changed, or replaced by another run
    "#]]);
    bench.write("out/manifest.json", &manifest);
    bench.write("out/_SUCCESS", &success);

    // A whole archive moves; what is no longer there ends the chain, and is no difference.
    fs::create_dir(bench.path("archive")).expect("made");
    for name in ["out", "second", "third"] {
        fs::rename(bench.path(name), bench.path(&format!("archive/{name}"))).expect("moved");
    }
    assert_eq!(chain("archive/third"), json!({ "runs": 2, "end": null }));
    fs::remove_dir_all(bench.path("archive/out")).expect("removed");
    let end = chain("archive/third");
    assert_eq!(end["runs"], 1);
    assert!(end["end"].as_str().is_some_and(|end| end.ends_with("out` is not there")), "{end}");
}

#[test]
fn a_night_that_replaces_the_one_it_is_compared_with() {
    let (bench, _) = first_night(300);
    let again = |seed: &str| {
        let seed = format!("runtime.seed={seed}");
        let given = ["output.overwrite=true", "audit.previous=out", &seed];
        let given: Vec<&str> = given.into_iter().flat_map(|one| ["--override", one]).collect();
        bench.does("run", &given).ok().json()
    };
    assert_eq!(again("1")["stability"]["changed"], json!(["seed"]));
    let verified = overturn(&["verify", &bench.text("out"), "--format", "json"]).ok().json();
    assert_eq!(verified["previous"], json!({ "runs": 1, "end": null }), "it is kept beside");
    again("2");
    let verified = overturn(&["verify", &bench.text("out"), "--format", "json"]).ok().json();
    assert_eq!(verified["previous"]["runs"], 1);
    assert!(verified["previous"]["end"].as_str().is_some_and(|end| end.contains("no longer kept")));
}

#[test]
fn what_cannot_be_compared_with_is_told_at_once() {
    let (bench, table) = first_night(300);
    let refused = |more: &[&str], said: &[&str]| {
        next_night(&bench, "next", more).fails(1, said);
        assert!(!bench.path("next").exists());
    };
    refused(&["audit.previous=nowhere"], &["audit.previous", "nowhere`, which does not exist"]);
    refused(
        &["audit.previous=applications"],
        &["audit.previous: is `", "which is not the folder of a published run"],
    );
    refused(&["target.class=rejected"], &["audit.previous: is `", "whose target is", "expected"]);
    refused(
        &["input.key=[\"application_id\", \"region\"]"],
        &["whose key is [\"application_id\"], expected [\"application_id\",\"region\"]"],
    );
    bench
        .does("run", &["--override", "report.gates.min_recourse_validity=0.5"])
        .says(1, &expect![[r#"
            error: --override: `report.gates.min_recourse_validity` is given, but no run is compared with: `audit.previous` names none, or `audit.sections` leaves out `stability`
        "#]]);
    bench
        .does(
            "validate",
            &["--override", "audit.previous=out", "--override", "target.class=rejected"],
        )
        .says(1, &expect![[r#"
            error: audit.previous: is `DIR/out`, whose target is {"Class":"approved"}, expected {"Class":"rejected"}
              hint: counterfactuals for another target cannot be compared
        "#]]);
    // A key of another type.
    let cast = "import sys, glob, os, pyarrow.parquet as p\nos.makedirs(sys.argv[2])\n\
                for i, f in enumerate(sorted(glob.glob(sys.argv[1] + '/*.parquet'))):\n    \
                t = p.read_table(f); k = t.schema.get_field_index('application_id')\n    \
                t = t.set_column(k, 'application_id', t['application_id'].cast('string'))\n    \
                p.write_table(t, f'{sys.argv[2]}/{i}.parquet')\n";
    if let Some(python) = python("what_cannot_be_compared_with_is_told_at_once") {
        run_python(&python, cast, &[&table, &bench.text("texts")]);
        let features = format!("input.features={}", bench.text("texts"));
        let run = next_night(&bench, "next", &[&features]);
        bench.fails_with(&run, 1, &expect![[r#"
            error: audit.previous: is `DIR/out`, whose column `application_id` is int64, expected text
              hint: both runs must have the same column types
        "#]]);
    }
    // Changed after it was published: found by size, by content, by the manifest.
    let files = bench.names("out/counterfactuals");
    let name = format!("out/counterfactuals/{}", files[0]);
    let content = fs::read(bench.path(&name)).expect("readable");
    let mut other = content.clone();
    other[100] ^= 1;
    fs::write(bench.path(&name), &other).expect("written");
    refused(&[], &[&files[0], "has the SHA-256", "it was changed after it was published"]);
    fs::write(bench.path(&name), &content[1..]).expect("written");
    refused(&[], &["which is not as it was published: has `counterfactuals/"]);
    fs::write(bench.path(&name), &content).expect("written");
    bench.append("out/manifest.json", "\n");
    refused(&[], &["is not as it was published: _SUCCESS says that `manifest.json`"]);
}

/// A program whose value is the amount in thousands, and that asks for less of every row.
const VALUES: &str = "import os, sys\nanswers = os.fdopen(os.dup(1), 'wb'); os.dup2(2, 1)\nimport pyarrow as pa\n\
batches = pa.ipc.open_stream(sys.stdin.buffer)\n\
schema = pa.schema([('value', pa.float64())], {'overturn.protocol': '1'})\n\
with pa.ipc.new_stream(answers, schema) as stream:\n    \
for batch in batches:\n        \
values = [WEIGHT * amount / 1000 for amount in batch['loan_amount'].to_pylist()]\n        \
stream.write_batch(pa.record_batch([pa.array(values, pa.float64())], schema=schema))\n        \
answers.flush()\n";

/// Where each row of a regression has a target of its own, the earlier answer is held against the row's target of now.
#[test]
fn targets_of_single_rows_are_compared_too() {
    let Some(python) = python("targets_of_single_rows_are_compared_too") else { return };
    let bench = Bench::new();
    let table = crate::util::credit(400);
    let amounts = table.column_by_name("loan_amount").expect("there");
    let amounts =
        arrow::compute::cast(amounts, &arrow::datatypes::DataType::Float64).expect("numbers");
    let amounts = amounts.as_primitive::<Float64Type>().clone();
    let told = |shift: f64, every: usize| {
        let goal = |row: usize| {
            let more = if row.is_multiple_of(every) { shift } else { 0.0 };
            Some(amounts.value(row) / 2000.0 + more)
        };
        let goals: arrow::array::Float64Array = (0..table.num_rows()).map(goal).collect();
        crate::util::with_column(&table, "goal", Some(std::sync::Arc::new(goals)))
    };
    let path = bench.parquet("table.parquet", &told(0.0, 1));
    bench.write("scorer.py", &VALUES.replace("WEIGHT", "1"));
    let predictor = format!(
        "kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]\ntask = \"regression\"\nworkers = 1"
    );
    bench.job(&path, "", Some(&predictor));
    bench.append(
        "job.toml",
        "[target]\ncolumn = \"goal\"\ntolerance = 0.5\n[explain]\nmethod = \"search\"\nmin_score = 0\n\
         [report]\nmmd.space = \"none\"\n",
    );
    bench.does("run", &[]).ok();
    let solved = bench.json("out/manifest.json")["summary"]["statuses"]["solved"].as_u64();
    assert!(solved > Some(50), "{solved:?}");
    // Nothing has changed: all hold.
    let same = next_night(&bench, "same", &[]).ok().json()["stability"].clone();
    assert_eq!(same["recourse_validity"].as_f64(), Some(1.0), "{same}");
    assert_eq!(same["promised"].as_u64(), solved);
    assert_eq!(same["needless_churn"].as_f64(), Some(0.0));
    // Every third row is asked for something else: its row is another, and what it was told no longer does.
    bench.parquet("table.parquet", &told(40.0, 3));
    let moved = next_night(&bench, "moved", &[]).ok().json()["stability"].clone();
    let held = moved["recourse_validity"].as_f64().expect("asked");
    assert!((0.55..0.8).contains(&held), "{moved}");
    for (cause, [_, promised, still, ..]) in by_cause(&bench, "moved") {
        match cause.as_deref() {
            Some("row") => assert_eq!(still, 0, "of {promised}"),
            Some("none") => assert_eq!(still, promised),
            _ => {}
        }
    }
    // Another model: none of it holds.
    bench.write("scorer.py", &VALUES.replace("WEIGHT", "3"));
    let other = next_night(&bench, "other", &[]).ok().json()["stability"].clone();
    assert_eq!(other["changed"], json!(["model"]));
    assert!(other["recourse_validity"].as_f64() < Some(0.2), "{other}");
}
