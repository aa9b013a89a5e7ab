//! Counterfactuals under other trainings of the model.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type};
use expect_test::expect;

use crate::fitted::{APPROVED, applications, with_generator};
use crate::util::{Bench, project, python, read_table, run_python};

/// Asks an ONNX model about the valid counterfactuals of a run with ONNX Runtime for Python.
const ORACLE: &str = r#"
import sys, glob, numpy, onnxruntime, pyarrow.parquet as parquet, pyarrow as arrow
table = arrow.concat_tables([parquet.read_table(f) for f in sorted(glob.glob(sys.argv[1] + "/*.parquet"))])
rows = [v and s != "already_target" for v, s in zip(table["valid"].to_pylist(), table["status"].to_pylist())]
table = table.filter(arrow.array(rows))
model = onnxruntime.InferenceSession(sys.argv[2])
feed = {}
for entry in model.get_inputs():
    column = table["cf_" + entry.name].to_pylist()
    if "string" in entry.type:
        feed[entry.name] = numpy.array([["" if v is None else str(v)] for v in column], dtype=object)
    else:
        numbers = [[float("nan") if v is None else v] for v in column]
        feed[entry.name] = numpy.array(numbers, dtype=numpy.float32)
labels = model.run(None, feed)[0]
print(len(rows) and table.num_rows, sum(str(label) == "approved" for label in labels))
"#;

#[test]
fn retrained_models_are_asked_about_every_valid_counterfactual() {
    let Some(python) = python("retrained_models_are_asked") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 2_000, &["--files", "2"]);
    let models = project().join("jobs/demo").display().to_string();
    bench.explain_job(&table, "");
    let retrained = format!("retrained = [\"{models}/logistic.onnx\", \"{models}/forest.onnx\"]");
    bench.append("job.toml", &format!("[report]\n{retrained}\n"));
    let summary = bench.does("run", &[]).ok().json();
    let found = read_table(&bench.path("out/reports/survival.parquet"));
    let shares = found.column_by_name("survival").expect("there").as_primitive::<Float64Type>();
    let rows = found.column_by_name("rows").expect("there").as_primitive::<Int64Type>();
    let names = found.column_by_name("model").expect("there").as_string::<i32>();
    assert_eq!(found.num_rows(), 6, "all and `approved`: the mean and two models each");
    assert!(names.is_null(0) && names.value(2).ends_with("forest.onnx"));
    assert_eq!(shares.value(1), 1.0, "the model itself");
    let arguments = [bench.text("out/counterfactuals"), format!("{models}/forest.onnx")];
    let said = run_python(&python, ORACLE, &arguments.each_ref().map(String::as_str));
    let counts: Vec<f64> =
        said.split_whitespace().map(|count| count.parse().expect("a count")).collect();
    assert_eq!(rows.value(2) as f64, counts[0]);
    assert!(counts[0] > 100.0 && shares.value(2) < 1.0, "there is something to tell");
    assert_eq!(shares.value(2), counts[1] / counts[0]);
    assert_eq!(summary["survival"]["mean"].as_f64(), Some((1.0 + shares.value(2)) / 2.0));
    assert_eq!(summary["survival"]["least"].as_f64(), Some(shares.value(2)));

    // Made anew from the tables, with one model fewer, and a gate that the other misses.
    bench.replace("job.toml", &format!("\"{models}/logistic.onnx\", "), "");
    let before = std::fs::read(bench.path("out/reports/validity.parquet")).expect("readable");
    let anew = bench.does("report", &[]).ok().json();
    assert_eq!(anew["survival"]["mean"].as_f64(), Some(shares.value(2)));
    assert_eq!(
        std::fs::read(bench.path("out/reports/validity.parquet")).expect("readable"),
        before
    );
    bench.append("job.toml", "gates.min_survival = 0.999\n");
    bench.does("report", &[]).fails(3, &["report.gates.min_survival: is 0.999, the run has 0."]);
}

#[test]
fn what_cannot_be_a_retrained_model_is_told_at_once() {
    let bench = Bench::new();
    let table = applications(&bench, 100, &[]);
    let job = |lines: &str| {
        bench.job(&table, "max_reject_share = 0.5", None);
        bench.append("job.toml", &format!("{APPROVED}{}[report]\n{lines}\n", with_generator("")));
        bench.does("run", &[])
    };
    job("retrained = [\"none.onnx\"]").says(
        1,
        &expect![[r#"
        error: DIR/job.toml:17: `report.retrained` is `DIR/none.onnx`, which does not exist
    "#]],
    );
    job("retrained = [[\"python3\", \"scorer.py\"]]").says(1, &expect![[r#"
        error: DIR/job.toml:17: `report.retrained` holds ["python3","scorer.py"], expected a path for each model, as `predictor.kind` is `onnx`
    "#]]);
    job("gates.min_survival = 0.5").says(1, &expect![[r#"
        error: DIR/job.toml:17: `report.gates.min_survival` is given, but `report.retrained` names no model to hold counterfactuals against
    "#]]);
    bench.write("odd.onnx", "no model");
    job("retrained = [\"odd.onnx\"]").says(
        1,
        &expect![[r#"
        error: DIR/odd.onnx: cannot be read as an ONNX model; it is cut short or something else
          because: the bytes are not a whole protocol buffer with a graph in it
    "#]],
    );
    assert!(!bench.path("out").exists());
}
