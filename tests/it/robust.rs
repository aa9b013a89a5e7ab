//! Counterfactuals that hold under models beside the predictor.

use std::collections::BTreeSet;
use std::fs;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int32Type};

use crate::fitted::{APPROVED, LITTLE, applications, scorer, with_generator};
use crate::util::{Bench, project, python, read_table, run_python};

/// Under how many models each written counterfactual reaches the target, by ONNX Runtime for Python.
const ORACLE: &str = r#"
import sys, glob, numpy, onnxruntime, pyarrow.parquet as parquet, pyarrow as arrow
table = arrow.concat_tables([parquet.read_table(f) for f in sorted(glob.glob(sys.argv[1] + "/*.parquet"))])
table = table.filter(arrow.compute.equal(table["status"], "solved"))
held = numpy.zeros(table.num_rows, dtype=int)
for path in sys.argv[2:]:
    model = onnxruntime.InferenceSession(path)
    feed = {}
    for entry in model.get_inputs():
        column = table["cf_" + entry.name].to_pylist()
        if "string" in entry.type:
            feed[entry.name] = numpy.array([["" if v is None else str(v)] for v in column], dtype=object)
        else:
            numbers = [[float("nan") if v is None else v] for v in column]
            feed[entry.name] = numpy.array(numbers, dtype=numpy.float32)
    held += model.run(None, feed)[0].astype(str) == table["target"].to_numpy(zero_copy_only=False)
differ = sum(int(a != b) for a, b in zip(held, table["robust"].to_pylist()))
print(table.num_rows, differ, int((held >= len(sys.argv) - 2).sum()))
"#;

fn models() -> [String; 2] {
    ["forest.onnx", "logistic.onnx"]
        .map(|name| project().join("jobs/demo").join(name).display().to_string())
}

/// A job whose predictor is the demo's logistic regression, with its forest beside it.
fn bench(rows: u64, lines: &str) -> (Bench, String) {
    let bench = Bench::new();
    let table = applications(&bench, rows, &["--files", "2"]);
    bench.explain_job(&table, "");
    bench.append("job.toml", lines);
    (bench, table)
}

#[test]
fn counterfactuals_hold_under_the_models_beside_the_predictor() {
    let Some(python) = python("counterfactuals_hold_under_the_models") else { return };
    let [forest, logistic] = models();
    let robust = format!("[robust]\nmodels = [\"{forest}\", \"{logistic}\"]\nshare = 1.0\n");
    let (bench, table) = bench(2_000, &format!("{robust}[report]\nby = [\"region\"]\n"));
    let summary = bench.does("run", &[]).ok().json();
    bench.check(&python, &table, &["--sample-check", "50"]);
    let arguments = [bench.text("out/counterfactuals"), forest.clone(), logistic];
    let said = run_python(&python, ORACLE, &arguments.each_ref().map(String::as_str));
    let said: Vec<u64> = said.split_whitespace().map(|count| count.parse().expect("one")).collect();
    assert_eq!(said[1], 0, "counts of the column are those of ONNX Runtime");
    let told = &summary["robust"];
    assert_eq!(told["rows"].as_u64(), Some(said[0]));
    assert_eq!(told["not_robust"].as_u64(), Some(said[0] - said[2]));
    assert!(told["share"].as_f64() > Some(0.95), "{told}");
    assert!(told["robustness_cost"].as_f64() > Some(0.0), "{told}");
    let page = fs::read_to_string(bench.path("out/reports/audit.html")).expect("a page");
    assert!(page.contains("Counterfactuals under the models beside the predictor"));

    // Without them, fewer hold; the same rows are solved.
    bench.replace("job.toml", &robust, "");
    bench.does("run", &["--override", "output.dir=alone"]).ok();
    let alone = read_table(&bench.path("alone/counterfactuals"));
    assert!(alone.column_by_name("robust").expect("there").null_count() == alone.num_rows());
    let beside = read_table(&bench.path("out/counterfactuals"));
    let solved = |table: &arrow::array::RecordBatch| -> BTreeSet<usize> {
        let status = table.column_by_name("status").expect("there").as_string::<i32>().clone();
        (0..status.len()).filter(|row| status.value(*row) == "solved").collect()
    };
    assert_eq!(solved(&alone), solved(&beside), "robustness costs no counterfactual");
    let arguments = [bench.text("alone/counterfactuals"), forest];
    let held = run_python(&python, ORACLE, &arguments.each_ref().map(String::as_str));
    let held: u64 = held.split_whitespace().last().expect("three").parse().expect("a count");
    assert!(held < said[2], "{held} hold without, {} with", said[2]);
}

#[test]
fn counts_do_not_depend_on_threads() {
    let [forest, _] = models();
    let (bench, _) = bench(1_500, "");
    fs::copy(&forest, bench.path("beside.onnx")).expect("copied");
    bench.append("job.toml", "[robust]\nmodels = [\"beside.onnx\"]\n");
    let content = |out: &str| {
        let table = read_table(&bench.path(&format!("{out}/counterfactuals")));
        let robust = table.column_by_name("robust").expect("there").as_primitive::<Int32Type>();
        let cost = table.column_by_name("robustness_cost").expect("there");
        (robust.clone(), cost.as_primitive::<Float64Type>().clone())
    };
    bench.does("run", &["--override", "output.dir=one", "--threads", "1"]).ok();
    bench.does("run", &["--override", "output.dir=two", "--threads", "2"]).ok();
    assert_eq!(content("one"), content("two"));
    let manifest = bench.json("one/manifest.json");
    assert_eq!(manifest["run"]["robust"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_cannot_stand_beside_the_predictor_is_told_at_once() {
    let bench = Bench::new();
    let table = applications(&bench, 100, &[]);
    let job = |lines: &str| {
        bench.job(&table, "max_reject_share = 0.5", None);
        bench.append("job.toml", &format!("{APPROVED}{}{lines}\n", with_generator("")));
        bench.does("validate", &[])
    };
    job("[robust]\nmodels = [\"none.onnx\"]")
        .fails(1, &["robust.models", "none.onnx", "does not exist"]);
    job("[robust]\nmodels = [[\"python3\", \"scorer.py\"]]")
        .fails(1, &["`robust.models` holds [\"python3\",\"scorer.py\"], expected a path"]);
    job("[robust]\nshare = 0.9").fails(1, &["robust.share", "names no model"]);
    job("[report]\ngates.min_robust = 0.9")
        .fails(1, &["report.gates.min_robust", "names no model"]);
    job("[robust]\nmodels = []\nshare = 1.5").fails(1, &["robust.share", "1.5"]);
    bench.write("odd.onnx", "no model");
    job("[robust]\nmodels = [\"odd.onnx\"]").fails(1, &["odd.onnx"]);
    assert!(!bench.path("out").exists());
}

/// A program beside a program dies in the middle: what is finished stays, and is gone on with by the same program only.
#[test]
fn a_program_beside_the_predictor_that_dies_in_mid_run() {
    let Some(python) = python("a_program_beside_the_predictor") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 8_000, &[]);
    bench.write("scorer.py", &scorer("pass", LITTLE));
    let breaks = "if place == 5 and not os.path.exists('repaired'): open('broken', 'w').close(); os._exit(9)";
    bench.write("beside.py", &scorer(breaks, &LITTLE.replace("9_000", "8_000")));
    let predictor = format!(
        "kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]\nworkers = 1\nretries = 0\n\
         repeatable = \"off\""
    );
    bench.job(&table, "max_reject_share = 0.5", Some(&predictor));
    let explain = with_generator("split_rows = 1000\nrefine = \"off\"\n");
    let robust = format!("[robust]\nmodels = [[{python:?}, \"./beside.py\"]]\nshare = 1.0\n");
    bench.append("job.toml", &format!("{APPROVED}{explain}{robust}"));
    bench.does("run", &["--threads", "1"]).fails(1, &["beside.py", "exit"]);
    assert!(!bench.path("out").exists());
    fs::remove_file(bench.path("broken")).expect("removed");
    bench.write("repaired", "");
    bench.append("beside.py", "# another version\n");
    bench
        .does("run", &["--resume"])
        .fails(1, &["cannot be resumed: the models of `robust.models` changed"]);
    bench.replace("beside.py", "# another version\n", "");
    let summary = bench.does("run", &["--resume"]).ok().json();
    assert!(summary["splits_resumed"].as_u64() > Some(0), "{summary}");
    assert_eq!(summary["rows_explained"], 8_000);
    let told = &summary["robust"];
    assert!(told["not_robust"].as_u64() > Some(0), "nothing refines: {told}");
    assert!(told["not_robust"].as_u64() < told["rows"].as_u64(), "{told}");

    // Classes must be the same.
    bench.write("beside.py", &scorer("pass", LITTLE).replace("\"rejected\"]'", "\"other\"]'"));
    bench.does("validate", &[]).fails(
        1,
        &["beside.py", "has the classes [\"approved\", \"other\"]", "`robust.models` names other"],
    );
}
