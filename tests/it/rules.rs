//! Rules between columns as their user sees them: answers that keep to them, and what is wrong with a rule.

use std::process::Command;

use arrow::array::AsArray;
use expect_test::expect;
use serde_json::Value;

use crate::util::{Bench, Run, project, python, read_table};

#[test]
fn no_answer_has_a_part_larger_than_its_whole() {
    let Some(python) = python("no_answer_has_a_part_larger_than_its_whole") else { return };
    let bench = Bench::new();
    let script = project().join("tests/python/coherence.py");
    let mut command = Command::new(&python);
    command.arg(script).arg(env!("CARGO_BIN_EXE_overturn"));
    command.args(["--rows", "1500", "--steps", "300", "--out", &bench.text("out")]);
    let found = Run::of(&mut command).ok().json();
    let way = |name: &str| {
        let mut ways = found.as_array().expect("a list").iter();
        ways.find(|way| way["way"] == name).unwrap_or_else(|| panic!("{name}: {found}"))
    };
    let count = |way: &Value, key: &str| way[key].as_u64().expect("a count");
    assert!(count(way("off"), "incoherent") > 100, "the table tempts: {found}");
    let by_rule = &way("observed")["by_rule"];
    assert_eq!(by_rule["late_12m <= late_total"], 0, "{found}");
    assert_eq!(by_rule["card_balance <= card_limit"], 0, "{found}");
    assert_eq!(by_rule["debt_to_income = debt / income"], 0, "{found}");
    assert_eq!(count(way("rules"), "incoherent"), 0, "{found}");
    for name in ["observed", "rules"] {
        let (valid, needed) = (count(way(name), "valid"), count(way(name), "rows_in_need"));
        assert!(valid * 1000 >= needed * 995, "{found}");
    }
    // What every row keeps to is found, and told.
    let rules = read_table(&bench.path("out/lr/observed/reports/rules.parquet"));
    let rules: Vec<&str> = rules.column(2).as_string::<i32>().iter().flatten().collect();
    assert!(rules.contains(&"late_12m <= late_total"), "{rules:?}");
    assert!(rules.contains(&"debt_to_income = debt / income"), "{rules:?}");
    let mut infer = Command::new(env!("CARGO_BIN_EXE_overturn"));
    infer.args(["schema", "infer", &bench.text("out/lr/table.parquet"), "--ignore", "id"]);
    let inferred = Run::of(&mut infer).ok().stdout;
    for entry in [
        "# [[rule]]\n# check = \"late_12m <= late_total\"\n",
        "# [[derived]]\n# name = \"debt_to_income\"\n# value = \"debt / income\"\n",
    ] {
        assert!(inferred.contains(entry), "{entry} in {inferred}");
    }
    // A second opinion on both runs.
    for name in ["observed", "rules"] {
        let at = |file: &str| bench.text(&format!("out/lr/{file}"));
        let check = project().join("tests/python/check_run.py");
        let mut command = Command::new(&python);
        command.arg(check).args([
            at(name),
            at("table.parquet"),
            at(&format!("{name}.schema.toml")),
        ]);
        Run::of(command.args(["--key", "id"])).ok();
    }
}

#[test]
fn what_is_wrong_with_a_rule_is_told() {
    let bench = Bench::new();
    let schema = r#"
[[feature]]
name = "debt"
kind = "numeric"
[[feature]]
name = "income"
kind = "numeric"
[[feature]]
name = "ratio"
kind = "numeric"
[[feature]]
name = "work"
kind = "categorical"
values = ["student", "clerk"]
[[rule]]
check = "dept <= income"
[[rule]]
check = "work <> 'studnt' OR income < 20000"
[[rule]]
check = "sqrt(debt) < 3"
[[derived]]
name = "ratio"
value = "debt / work"
[[derived]]
name = "rate"
value = "debt / income"
"#;
    std::fs::write(bench.path("schema.toml"), schema).expect("written");
    let error = overturn::feature::FeatureSchema::read(&bench.path("schema.toml"))
        .expect_err("full of faults")
        .to_string();
    expect![[r#"
        DIR/schema.toml:23: `derived[ratio].value` takes `work` for a number, but the feature is categorical
          hint: compare it with its values: `feature = 'value'` or `feature IN (…)`
        DIR/schema.toml:25: `derived[rate].name` is not one of the features
          hint: list it as a numeric `[[feature]]` too, where the model takes it
        DIR/schema.toml:16: `rule[0].check` names `dept`, which is not a feature
          hint: did you mean `debt`?
        DIR/schema.toml:18: `rule[1].check` compares `work` with 'studnt', which is not one of its values
          hint: did you mean `student`?
        DIR/schema.toml:20: `rule[2].check` has `sqrt(debt)`, expected a number
          hint: use features, numbers, 'texts', + - * /, ROUND, comparisons, IN, BETWEEN, IS NULL, AND, OR and NOT
    "#]].assert_eq(&bench.placed(&error));
}
