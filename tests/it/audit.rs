//! The audit: its tables recounted by another program, planted differences found, bad input refused.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use expect_test::expect;

use crate::fitted::APPROVED;
use crate::util::{Bench, Run, credit, project, python, read_table, same_rows, with_column};

/// Answers without a generator, which takes no time to speak of.
const SEARCHED: &str = "[explain]\nmethod = \"search\"\n[report]\nmmd = { space = \"none\" }\n";

/// Applications with a group of nulls, a small group, and as many values as there are rows.
fn grouped(rows: u64) -> RecordBatch {
    let table = credit(rows);
    let band = |row: usize| match row % 10 {
        0..3 => None,
        3 if row.is_multiple_of(40) => Some("rare"),
        3..7 => Some("old"),
        _ => Some("young"),
    };
    let bands: StringArray = (0..table.num_rows()).map(band).collect();
    let table = with_column(&table, "band", Some(Arc::new(bands) as ArrayRef));
    let many: Int64Array = (0..rows as i64).map(Some).collect();
    with_column(&table, "many", Some(Arc::new(many) as ArrayRef))
}

fn bench(rows: u64, audit: &str) -> Bench {
    let bench = Bench::new();
    let table = bench.parquet("table.parquet", &grouped(rows));
    bench.job(&table, "", None);
    bench.append("job.toml", &format!("{APPROVED}{SEARCHED}{audit}"));
    bench
}

fn python_run(python: &std::path::Path, script: &str, arguments: &[&str]) -> Run {
    let script = project().join("tests/python").join(script);
    Run::of(Command::new(python).arg(script).args(arguments))
}

#[test]
fn every_table_is_recounted_from_the_published_files() {
    let Some(python) = python("every_table_is_recounted") else { return };
    let by = "[audit]\nby = [\"sex\", \"band\"]\nlabel = \"approved\"\nbudgets = [2.5, 0.5, 1.0]\n";
    let bench = bench(3_000, by);
    bench.does("run", &[]).ok();
    let out = bench.text("out");
    let said = python_run(&python, "audit_oracle.py", &[&out]).ok().stdout;
    assert!(said.contains("; 0 differences"), "{said}");

    // Anew by other groups, from the manifest alone; what was explained is not touched.
    let part = bench.path("out/counterfactuals/part-00000.parquet");
    let before = fs::read(&part).expect("readable");
    let validity = bench.path("out/reports/validity.parquet");
    let inode = |path: &std::path::Path| fs::metadata(path).expect("there").ino();
    let report = inode(&validity);
    let summary = bench.json("out/manifest.json")["summary"].clone();
    fs::remove_file(bench.path("job.toml")).expect("removed");
    bench.here(&["audit", "out", "--by", "region", "--by", "housing"]).ok();
    let said = python_run(&python, "audit_oracle.py", &[&out]).ok().stdout;
    assert!(said.contains("; 0 differences"), "{said}");
    assert_eq!(before, fs::read(&part).expect("readable"));
    bench.here(&["verify", "out"]).ok();
    assert_eq!(report, inode(&validity), "other reports are the very files");
    let now = bench.json("out/manifest.json")["summary"].clone();
    for figure in ["targets", "validity", "statuses", "survival", "l1"] {
        assert_eq!(now[figure], summary[figure], "{figure}");
    }
    let groups = read_table(&bench.path("out/reports/audit/groups.parquet"));
    let attributes = groups.column_by_name("attribute").expect("there").as_string::<i32>();
    assert!(attributes.iter().flatten().all(|name| name == "region" || name == "housing"));
}

#[test]
fn what_was_planted_is_found() {
    let Some(python) = python("what_was_planted_is_found") else { return };
    let bench = Bench::new();
    let program = env!("CARGO_BIN_EXE_overturn");
    let said = python_run(&python, "audit_planted.py", &[program, &bench.text("")]).ok().stdout;
    assert!(said.contains("everything that was planted was found"), "{said}");
}

#[test]
fn the_order_of_splits_and_threads_does_not_matter() {
    let tables = |more: &[&str]| {
        let bench = bench(2_000, "[audit]\nby = [\"region\", \"band\"]\n");
        bench.does("run", more).ok();
        ["groups", "curves", "gaps", "changes", "at_bound"]
            .map(|name| read_table(&bench.path(&format!("out/reports/audit/{name}.parquet"))))
    };
    let one = tables(&["--threads", "1"]);
    let more = ["--threads", "2", "--override", "input.batch_rows=100"];
    for (left, right) in one.iter().zip(&tables(&more)) {
        assert!(left.num_rows() > 0 && same_rows(left, right), "the same figures to the last bit");
    }
}

#[test]
fn groups_that_cannot_be_told_of_are_refused_before_anything_starts() {
    let bench = bench(2_500, "[audit]\nby = [\"many\", \"regoin\"]\n");
    let run = || bench.does("run", &[]);
    bench.fails_with(
        &run(),
        1,
        &expect![[r#"
            error: audit.by: names `regoin`, which is no column of DIR/table.parquet
              hint: did you mean `region`?
        "#]],
    );
    bench.replace("job.toml", "\"regoin\"", "\"region\"");
    bench.replace("job.toml", "[audit]", "[audit]\nreference = { region = \"center\" }");
    bench.fails_with(
        &run(),
        1,
        &expect![[r#"
            errors:
            audit.by: names `many`, which has more than 1000 values
              hint: name columns with few values, such as a region or an age band; `audit.by = []` for none
            audit.reference.region: names `center`, which no row has in `region`
              hint: its values are `capital`, `east`, `north`, `south`, `west`
        "#]],
    );
    bench.replace("job.toml", "\"many\", ", "");
    bench.replace("job.toml", "{ region = \"center\" }", "{ region = \"east\" }\nlabel = \"sex\"");
    bench.fails_with(
        &run(),
        1,
        &expect![[r#"
            error: audit.label: names `sex`, which holds `female`, `male`, no classes of the model
              hint: name a column with `approved`, `rejected`, or nulls where it is not known
        "#]],
    );
    assert!(!bench.path("out").exists());
}

#[test]
fn keys_that_contradict_each_other_are_told_together() {
    let audit = "[audit]\nby = [\"sex\", \"sex\"]\nreference = { region = \"east\" }\n\
                 sections = [\"groups\", \"stability\", \"groups\"]\n\
                 [report.gates]\nmax_gap = 0.1\n";
    let bench = bench(50, audit);
    bench.fails_with(&bench.does("run", &[]), 1, &expect![[r#"
        errors:
        DIR/job.toml:18: `audit.by` names the column `sex` twice
        DIR/job.toml:19: `audit.reference` names the column `region`, expected one of `audit.by`: ["sex", "sex"]
        DIR/job.toml:20: `audit.sections` names a section twice
        DIR/job.toml:20: `audit.sections` names `stability`, but `audit.previous` names no run to compare with
        DIR/job.toml:22: `report.gates.max_gap` is given, but no gaps are told: `audit.by` names no column, or `audit.sections` leaves out `gaps`
    "#]]);
}

#[test]
fn an_audit_without_sections_is_none() {
    let bench = bench(500, "[audit]\nsections = []\n");
    bench.does("run", &[]).ok();
    assert!(!bench.path("out/reports/audit").exists());
    bench.here(&["audit", "out", "--by", "sxe"]).says(
        1,
        &expect![[r#"
        error: audit.by: names `sxe`, which is no column of DIR/table.parquet
          hint: did you mean `sex`?
    "#]],
    );
    bench.here(&["audit", "table.parquet"]).says(
        1,
        &expect![[r#"
        error: table.parquet: is not the folder of a published run
          hint: `overturn run` or `overturn explain` makes one
    "#]],
    );
}

/// A group that nobody refuses, one of nulls alone, one value for all: counted, told or suppressed, and no more.
#[test]
fn odd_groups_are_counted_and_told_of_no_further() {
    let bench = bench(1_500, "[audit]\nby = [\"band\"]\n");
    bench.does("run", &[]).ok();
    let found = read_table(&bench.path("out/counterfactuals"));
    let keys = found.column_by_name("application_id").expect("there").as_primitive::<Int64Type>();
    let status = found.column_by_name("status").expect("there").as_string::<i32>();
    let fine: HashSet<i64> = (0..found.num_rows())
        .filter(|row| status.value(*row) == "already_target")
        .map(|row| keys.value(row))
        .collect();
    let table = grouped(1_500);
    let keys = table.column_by_name("application_id").expect("there").as_primitive::<Int64Type>();
    let fate = |key: &i64| Some(if fine.contains(key) { "fine" } else { "refused" });
    let fates: StringArray = keys.values().iter().map(fate).collect();
    let empty = StringArray::from(vec![None::<&str>; table.num_rows()]);
    let whole = StringArray::from(vec![Some("all"); table.num_rows()]);
    let columns = [("fate", fates), ("empty", empty), ("whole", whole)];
    let table = columns.into_iter().fold(table, |table, (name, column)| {
        with_column(&table, name, Some(Arc::new(column) as ArrayRef))
    });
    bench.parquet("table.parquet", &table);
    let sections = "by = [\"fate\", \"empty\", \"whole\"]\nsections = [\"groups\", \"curves\", \"gaps\", \
                    \"changes\", \"at_bound\", \"actions\", \"binding\", \"responsiveness\", \"robustness\", \
                    \"second_search\"]\nqueries = 100000";
    bench.replace("job.toml", "by = [\"band\"]", sections);
    bench.does("run", &["--override", "output.overwrite=true"]).ok();
    let groups = read_table(&bench.path("out/reports/audit/groups.parquet"));
    let text = |name: &str| groups.column_by_name(name).expect("there").as_string::<i32>().clone();
    let (attributes, values) = (text("attribute"), text("value"));
    let row = |attribute: &str, value: Option<&str>| {
        let same = |row: &usize| {
            let found = values.is_valid(*row).then(|| values.value(*row));
            attributes.is_valid(*row) && attributes.value(*row) == attribute && found == value
        };
        (0..groups.num_rows()).find(same).unwrap_or_else(|| panic!("no {attribute} {value:?}"))
    };
    let count = |name: &str, row: usize| {
        groups.column_by_name(name).expect("there").as_primitive::<Int64Type>().value(row)
    };
    let null = |name: &str, row: usize| groups.column_by_name(name).expect("there").is_null(row);
    let (calm, empty, whole) =
        (row("fate", Some("fine")), row("empty", None), row("whole", Some("all")));
    assert_eq!(count("needed", calm), 0);
    assert!(count("rows", calm) > 100 && null("recourse_rate", calm) && null("cost_mean", calm));
    assert_eq!(count("rows", empty), count("rows", whole), "nulls are a group");
    assert_eq!(count("needed", empty), count("needed", row("fate", Some("refused"))));
    let page = fs::read_to_string(bench.path("out/reports/audit.html")).expect("a page");
    assert!(page.contains("(no value)") && !page.contains("NaN"));
}

/// Infinities and NaN are groups like other values, told by their texts; what is no class is no label.
#[test]
fn odd_numbers_are_groups_but_no_labels() {
    let bench = bench(300, "[audit]\nby = [\"strange\"]\n");
    let numbers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0].into_iter().cycle().take(300);
    let numbers: ArrayRef = Arc::new(Float64Array::from_iter_values(numbers));
    bench.parquet("table.parquet", &with_column(&grouped(300), "strange", Some(numbers)));
    bench.does("run", &[]).ok();
    let groups = read_table(&bench.path("out/reports/audit/groups.parquet"));
    let values = groups.column_by_name("value").expect("there").as_string::<i32>();
    let mut found: Vec<&str> = values.iter().flatten().collect();
    found.sort_unstable();
    assert_eq!(found, ["-inf", "1.0", "NaN", "inf"]);
    bench.replace("job.toml", "by = [\"strange\"]", "by = [\"sex\"]\nlabel = \"strange\"");
    bench
        .does("validate", &[])
        .fails(1, &["audit.label: names `strange`, which holds", "no classes of the model"]);
}
