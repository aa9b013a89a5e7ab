//! Tables and models whose counterfactuals are known: what a short training must come to.
//!
//! Networks are small, so that every case takes seconds. Bounds are generous: they tell a method that
//! works from one that does not, not one tuning from another.

use serde_json::Value;

use crate::util::{Bench, python};

/// A short training.
const SHORT: &str = "[autoencoder]\nsteps = 600\nbatch = 128\nhidden = [64]\n\
                     [train]\nmax_steps = 1000\nbatch = 128\nhidden = 64\n";
/// The same, with less weight on small changes: where no small change does, a short training would
/// otherwise settle for none.
const BOLD: &str = "sparsity = 0.1\nconsistency = 0.0\n";

/// A case, ready to be trained.
struct Case {
    bench: Bench,
    told: Value,
}

impl Case {
    fn new(case: &str, rows: Option<u32>) -> Option<Case> {
        let python = python(case)?;
        let bench = Bench::new();
        let told = bench.known(&python, case, rows);
        Some(Case { bench, told })
    }

    /// Trains with further lines in the job, which end in its section `[train]`.
    fn train(&self, lines: &str) -> Summary {
        self.bench.append("job.toml", lines);
        Summary::of(self.bench.train(&[]).ok().json())
    }
}

/// Trains a case, or says that it is skipped.
fn trained(case: &str, rows: u32, lines: &str) -> Option<Summary> {
    Case::new(case, Some(rows)).map(|case| case.train(lines))
}

/// What a training came to. Reading it checks what must hold for every one.
struct Summary {
    whole: Value,
    validity: f64,
    /// Shares of valid rows in which features change.
    shares: Vec<f64>,
}

impl Summary {
    fn of(whole: Value) -> Summary {
        let validation = &whole["validation"];
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("a number: {whole}"));
        assert_eq!(validation["violations"], 0, "{whole}");
        let shares: Vec<f64> =
            validation["by_feature"].as_array().expect("a list").iter().map(number).collect();
        let changed: f64 = shares.iter().sum();
        assert!((number(&validation["changed"]) - changed).abs() < 1e-6, "{whole}");
        let of_classes = validation["by_class"].as_array().expect("a list");
        let rows: u64 = of_classes.iter().filter_map(|class| class["rows"].as_u64()).sum();
        assert!(of_classes.is_empty() || validation["rows"] == rows, "{whole}");
        Summary { validity: number(&validation["validity"]), shares, whole }
    }

    /// At least this share of rows must reach the target.
    fn reaches(self, validity: f64) -> Summary {
        assert!(self.validity >= validity, "{} < {validity}: {}", self.validity, self.whole);
        self
    }

    /// This word must be in one of the remarks.
    fn remarks(self, word: &str) -> Summary {
        let remarks = self.whole["remarks"].to_string();
        assert!(remarks.contains(word), "{word:?} not in {remarks}");
        self
    }
}

/// One number decides: it changes and the others keep still. Numbers move in steps of 0.4 deviations here,
/// because a network that leaves a feature alone still moves it by a trifle, which counts as a change
/// where any number will do.
#[test]
fn only_the_number_that_decides_changes() {
    let Some(case) = Case::new("linear", Some(2000)) else { return };
    assert_eq!(case.told["deciding"], serde_json::json!(["b"]));
    for (name, step) in
        [("a", 0.4), ("b", 4.8), ("c", 0.004), ("d", 0.8), ("e", 120.0), ("f", 0.04)]
    {
        let named = format!("name = \"{name}\"\n");
        case.bench.replace("schema.toml", &named, &format!("{named}step = {step}\n"));
    }
    let lines = SHORT.replace("max_steps = 1000", "max_steps = 2000");
    let summary = case.train(&lines.replace("hidden = 64", "hidden = 128")).reaches(0.99);
    assert!(summary.shares[1] > 0.95, "{:?}", summary.shares);
    let others = summary.shares.iter().enumerate().filter(|(place, _)| *place != 1);
    for (_, share) in others {
        assert!(*share <= 0.05, "{:?}", summary.shares);
    }
}

/// The one that may is not enough for every row: within the numbers seen in training it can outweigh the
/// other in 0.976 of them, and the bound leaves a little of that.
#[test]
fn a_feature_that_may_not_change_does_not() {
    let Some(case) = Case::new("decoy", Some(1500)) else { return };
    assert_eq!(case.told["deciding"], serde_json::json!(["b"]));
    let lines = SHORT.replace("max_steps = 1000", "max_steps = 1500");
    let summary = case.train(&lines).reaches(0.94);
    assert_eq!(summary.shares[4], 0.0, "{:?}", summary.shares);
}

#[test]
fn a_boundary_that_no_line_can_follow() {
    // A thousand steps are enough on some processors only: sums are rounded otherwise on others.
    let lines = SHORT.replace("max_steps = 1000", "max_steps = 2000");
    if let Some(summary) = trained("moons", 1500, &lines) {
        summary.reaches(0.95);
    }
}

#[test]
fn categories_alone() {
    let lines = SHORT.replace("max_steps = 1000", "max_steps = 2500");
    if let Some(summary) = trained("categories", 1500, &lines) {
        let summary = summary.reaches(0.95);
        assert_eq!(summary.whole["validation"]["l1"], 0.0);
    }
}

#[test]
fn seven_classes_one_of_them_rare() {
    let Some(case) = Case::new("seven", Some(1500)) else { return };
    let lines = SHORT.replace("max_steps = 1000", "max_steps = 1500") + BOLD;
    let summary = case.train(&format!("overwrite = true\n{lines}")).reaches(0.9);
    let classes = summary.whole["validation"]["by_class"].as_array().expect("a list").clone();
    assert_eq!(classes.len(), 7, "{classes:?}");
    assert!(classes[1]["validity"].as_f64().is_some_and(|rare| rare >= 0.7), "{classes:?}");
    case.train("balance = \"targets\"\n").reaches(0.9);
}

#[test]
fn a_regression_into_its_band() {
    let lines = SHORT.replace("max_steps = 1000", "max_steps = 2000");
    let bold = BOLD.replace("0.0", "0.1");
    if let Some(summary) = trained("regression", 2000, &(lines + &bold)) {
        let summary = summary.reaches(0.9);
        assert_eq!(summary.whole["validation"]["by_class"], serde_json::json!([]));
    }
}

#[test]
fn a_category_of_forty_values() {
    let lines = SHORT.replace("max_steps = 1000", "max_steps = 1500") + BOLD;
    if let Some(summary) = trained("forty", 1500, &lines) {
        summary.reaches(0.9);
    }
}

/// Far from done after so few steps; what is wanted here is that two hundred columns go through.
#[test]
fn two_hundred_columns() {
    let lines = SHORT.replace("max_steps = 1000", "max_steps = 250").replace("600", "200");
    if let Some(summary) = trained("wide", 1000, &lines) {
        assert_eq!(summary.shares.len(), 200);
    }
}

#[test]
fn columns_that_never_vary() {
    if let Some(summary) = trained("constant", 1500, SHORT) {
        let summary = summary.reaches(0.9).remarks("`same` is constant");
        assert_eq!(summary.shares[6..], [0.0, 0.0], "{:?}", summary.shares);
    }
}

#[test]
fn ten_rows() {
    let Some(case) = Case::new("tiny", None) else { return };
    let summary =
        case.train(&format!("{SHORT}{BOLD}")).remarks("10 rows are too few to set some aside");
    assert_eq!(summary.whole["rows_trained"], 10);
    summary.reaches(0.8);
}

/// Other methods than the default one, just long enough to see that they learn something.
#[test]
fn the_other_ways_to_train() {
    let Some(case) = Case::new("linear", Some(800)) else { return };
    let quick = SHORT.replace("max_steps = 1000", "max_steps = 300").replace("600", "300");
    let usual = std::fs::read_to_string(case.bench.path("job.toml")).expect("readable");
    let train = |lines: String| {
        case.bench.write("job.toml", &usual);
        let summary = case.train(&format!("overwrite = true\n{lines}"));
        assert_eq!(summary.whole["steps"], 300);
        summary.reaches(0.3)
    };
    let summary = train(quick.replace("[autoencoder]\n", "[autoencoder]\nkind = \"never\"\n"));
    assert_eq!(summary.whole["autoencoder"]["used"], false);
    assert_eq!(summary.whole["remarks"], serde_json::json!([]));
    for lines in [
        "preset = \"paper\"",
        "targets = \"probability\"",
        "targets = \"distribution\"",
        "reward = \"label\"",
        "balance = \"rows\"",
    ] {
        let summary = train(format!("{quick}{lines}\n"));
        assert_eq!(summary.whole["autoencoder"]["used"], true, "{lines}");
        let validation = &summary.whole["validation"];
        assert_eq!(validation["by_class"].as_array().map(Vec::len), Some(2), "{lines}");
        assert!(validation["l1"].as_f64().is_some_and(|l1| l1 > 0.0), "{lines}: {validation}");
    }
}
