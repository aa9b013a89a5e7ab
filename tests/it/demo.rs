//! The demonstration at a small size: the same forest through ONNX Runtime and through Python.

use crate::util::{Bench, overturn, project, python, run_python};

#[test]
fn onnx_and_python_give_the_same_score_tables() {
    let Some(python) = python("onnx_and_python_give_the_same_score_tables") else { return };
    let bench = Bench::new();
    let table = bench.text("applications");
    overturn(&[
        "synth", &table, "--rows", "20000", "--files", "3", "--seed", "5", "--nulls", "0.02",
    ])
    .ok();
    let data = format!("data={table}");
    let jobs = project().join("jobs/demo");
    let score = |job: &str, out: &str, more: &[&str]| {
        let job = jobs.join(job).display().to_string();
        let out = format!("out={}", bench.text(out));
        overturn(
            &[&["score", &job, "--set", &data, "--set", &out, "--format", "json"][..], more]
                .concat(),
        )
        .ok()
        .json()
    };
    let onnx = score("forest_onnx.toml", "onnx", &[]);
    let python_set = format!("python={}", python.display());
    let scorer = score("forest_python.toml", "python", &["--set", &python_set]);
    assert_eq!(onnx["rows_rejected"], scorer["rows_rejected"]);
    assert!(onnx["rows_scored"].as_u64() > Some(19_000), "{onnx}");
    let compare = std::fs::read_to_string(jobs.join("compare.py")).expect("readable");
    let said =
        run_python(&python, &compare, &[&bench.text("onnx/scores"), &bench.text("python/scores")]);
    assert!(said.contains("0 unmatched, 0 classes differ"), "{said}");
    let compared = said.split(' ').next().map(|rows| rows.replace(',', ""));
    assert_eq!(compared, Some(onnx["rows_scored"].to_string()), "{said}");
}
