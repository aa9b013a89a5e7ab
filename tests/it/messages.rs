//! Messages as they are read: one cause, one error, and what to type.

use crate::util::{Bench, Run, credit, overturn, project, with_column};

/// What a run said on standard error, without its log, the test's folder as `DIR` and the project's as
/// `PROJECT`.
fn said(bench: &Bench, run: &Run) -> String {
    let folder = bench.text("");
    let text = run.stderr.replace(folder.trim_end_matches('/'), "DIR");
    let text = text.replace(&project().display().to_string(), "PROJECT");
    let from = text.find("error").unwrap_or(0);
    text[from..].trim_end().to_string()
}

#[test]
fn a_model_of_columns_that_is_called_a_matrix() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(50));
    let model = project().join("jobs/demo/logistic.onnx");
    let model = format!("kind = \"onnx\"\nmodel = \"{}\"\ninputs = \"matrix\"", model.display());
    let job = bench.job(&table, "", Some(&model));
    let inputs = std::fs::read_to_string(project().join("schemas/credit.toml")).expect("readable");
    let inputs = inputs.matches("[[feature]]").count();
    assert_eq!(
        said(&bench, &overturn(&["validate", &job]).fails(1, &[])),
        format!(
            "error: PROJECT/jobs/demo/logistic.onnx: takes {inputs} inputs, expected one matrix\n  \
             hint: if it takes an input per feature, set `predictor.inputs = \"columns\"`"
        )
    );
}

/// A table and a schema in which a column has another name than the model's input.
fn renamed(bench: &Bench, names: &[(&str, &str)]) -> String {
    let mut rows = credit(300);
    let mut schema =
        std::fs::read_to_string(project().join("schemas/credit.toml")).expect("readable");
    for (from, to) in names {
        let column = rows.column_by_name(from).expect("there").clone();
        rows = with_column(&with_column(&rows, from, None), to, Some(column));
        schema = schema.replace(&format!("name = \"{from}\""), &format!("name = \"{to}\""));
    }
    bench.write("schema.toml", &schema);
    let table = bench.parquet("t.parquet", &rows);
    bench.job(&table, "schema = \"schema.toml\"", None)
}

#[test]
fn names_that_an_exporter_changed_are_matched_and_told_once() {
    let bench = Bench::new();
    let job = renamed(&bench, &[("loan_amount", "loan-amount"), ("income", "income?")]);
    let run = overturn(&["validate", &job]).ok();
    let text = "jobs/demo/logistic.onnx: matched inputs with features whose names differ only in characters \
                that exporters replace: ";
    assert_eq!(run.stderr.matches(text).count(), 1, "{}", run.stderr);
    for pair in ["`loan-amount` feeds `loan_amount`", "`income?` feeds `income`"] {
        assert!(run.stderr.contains(pair), "{}", run.stderr);
    }
}

#[test]
fn names_without_a_partner_are_one_error() {
    let bench = Bench::new();
    let job = renamed(&bench, &[("loan_amount", "loan_amounts"), ("income", "salary")]);
    assert_eq!(
        said(&bench, &overturn(&["validate", &job]).fails(1, &[])),
        "error: PROJECT/jobs/demo/logistic.onnx: inputs and features do not match: no feature feeds the inputs \
         `income`, `loan_amount`; it has no input for the features `salary`, `loan_amounts`\n  \
         hint: these look alike; paste the lines that are right:\n    [predictor.rename]\n    \
         \"loan_amounts\" = \"loan_amount\""
    );
}
