//! Real classifiers on real data: `overturn score` through ONNX must give every row the label that
//! scikit-learn or XGBoost gives it. A selection that is quick; `tests/real_data.sh` runs the whole list.

use std::path::PathBuf;
use std::process::Command;

use crate::util::{Bench, data, overturn, project, python, run_python};

/// A case that was trained, exported and scored, ready to be compared.
struct Case {
    bench: Bench,
    python: PathBuf,
    script: String,
}

impl Case {
    /// Trains on a data set, exports, and scores all of its rows in scope; `None` where a part of what
    /// that needs is absent.
    fn score(test: &str, dataset: &str, model: &str) -> Option<Case> {
        let (python, data) = (python(test)?, data(test)?.display().to_string());
        let script = project().join("tests/python/real_data.py");
        let script = std::fs::read_to_string(script).expect("the script");
        let bench = Bench::new();
        run_python(&python, &script, &["prepare", &data, dataset, model, &bench.text("case")]);
        overturn(&["score", &bench.text("case/job.toml")]).ok();
        Some(Case { bench, python, script })
    }

    /// What the comparison says, and the code it ends with.
    fn compare(&self) -> (String, Option<i32>) {
        let folder = self.bench.text("case");
        let mut command = Command::new(&self.python);
        command.args(["-c", &self.script, "compare", &folder]);
        let output = command.output().expect("Python starts");
        let said = [output.stdout, output.stderr].concat();
        (String::from_utf8_lossy(&said).into_owned(), output.status.code())
    }

    /// Every row must have been scored, and all labels be the same.
    fn agrees_on(&self, rows: usize) {
        let (said, code) = self.compare();
        let expected = format!("{rows} rows expected, {rows} scored, 0 unmatched, 0 labels differ");
        assert!(said.starts_with(&expected), "{said}");
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn adult_with_logistic_regression() {
    if let Some(case) = Case::score("adult_with_logistic_regression", "adult", "lr") {
        case.agrees_on(32_561);
    }
}

#[test]
fn adult_with_a_random_forest() {
    if let Some(case) = Case::score("adult_with_a_random_forest", "adult", "rf") {
        case.agrees_on(32_561);
    }
}

#[test]
fn bank_with_boosted_trees() {
    if let Some(case) = Case::score("bank_with_boosted_trees", "bank", "xgb") {
        case.agrees_on(40_841);
    }
}

#[test]
fn spambase_with_a_decision_tree() {
    if let Some(case) = Case::score("spambase_with_a_decision_tree", "spambase", "dt") {
        case.agrees_on(4_601);
    }
}

/// Seven classes, and a predicate that leaves nine rows of ten out of scope.
#[test]
fn covertype_with_a_decision_tree() {
    if let Some(case) = Case::score("covertype_with_a_decision_tree", "covertype", "dt") {
        case.agrees_on(58_101);
    }
}

/// Also that the comparison would notice a single label, and a row too many.
#[test]
fn breast_cancer_with_linear_support_vectors() {
    let test = "breast_cancer_with_linear_support_vectors";
    let Some(case) = Case::score(test, "breast_cancer", "lsvc") else { return };
    case.agrees_on(699);
    let spoil = "import sys, pandas\n\
                 rows = pandas.read_parquet(sys.argv[1]).set_index('row_id').drop(8)\n\
                 rows.loc[7, 'label'] = 'neither'\n\
                 rows.reset_index().to_parquet(sys.argv[1])\n";
    run_python(&case.python, spoil, &[&case.bench.text("case/expected.parquet")]);
    let (said, code) = case.compare();
    let expected = "698 rows expected, 699 scored, 1 unmatched, 1 labels differ";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(code, Some(1), "{said}");
}
