//! Numbers that people write, and categories that have an order.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Float64Type;

use crate::util::{Bench, overturn, python, read_table};

const SCHOOLS: [&str; 4] = ["none", "school", "college", "university"];

/// Shares with two decimals, incomes in hundreds, and schools, in no order that would help.
fn people(rows: i64) -> RecordBatch {
    let share = |row: i64| (row * 37 % 100) as f64 / 100.0;
    let income = |row: i64| (100 * (row * 61 % 90) + 500) as f64;
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..rows))),
        ("share", Arc::new(Float64Array::from_iter_values((0..rows).map(share)))),
        ("income", Arc::new(Float64Array::from_iter_values((0..rows).map(income)))),
        (
            "school",
            Arc::new(StringArray::from_iter_values(
                (0..rows).map(|row| SCHOOLS[(row * 7 / 3 % 4) as usize]),
            )),
        ),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn schema(school: &str) -> String {
    format!(
        "[[feature]]\nname = \"share\"\nkind = \"numeric\"\n\
         [[feature]]\nname = \"income\"\nkind = \"numeric\"\n\
         [[feature]]\nname = \"school\"\nkind = \"categorical\"\n{school}\n"
    )
}

const ORDER: &str =
    "order = [\"none\", \"school\", \"college\", \"university\"]\nchange = \"increase\"";

/// A run over people with a model whose borders no value has.
fn explained(test: &str, schema: &str, explain: &str) -> Option<Bench> {
    let python = python(test)?;
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &people(900));
    bench.write("schema.toml", schema);
    let labels = "['yes' if s * 2 + i / 3000 + {'none': 0, 'school': .4, 'college': .9, 'university': 1.7}[c] > 3.1237 \
                  else 'no' for s, i, c in zip(*(batch[n].to_pylist() for n in ('share', 'income', 'school')))]";
    let script = crate::fitted::scorer("pass", labels);
    bench.write("scorer.py", &script.replace("approved", "yes").replace("rejected", "no"));
    let job = format!(
        "[input]\nfeatures = \"{table}\"\nkey = \"id\"\nschema = \"schema.toml\"\n\
         [predictor]\nkind = \"subprocess\"\ncommand = [\"{}\", \"scorer.py\"]\n\
         [target]\nclass = \"yes\"\n[output]\ndir = \"out\"\n[explain]\n{explain}",
        python.display()
    );
    bench.write("job.toml", &job);
    bench.does("run", &[]).ok();
    let arguments = ["--schema", &bench.text("schema.toml"), "--key", "id"];
    bench.check(&python, &table, &arguments);
    Some(bench)
}

/// The solved answers of a run.
fn answers(bench: &Bench) -> RecordBatch {
    let table = read_table(&bench.path("out/counterfactuals"));
    let status = table.column_by_name("status").expect("a status").as_string::<i32>().clone();
    let solved = status.iter().map(|status| status.map(|one| one == "solved"));
    let solved = solved.collect::<arrow::array::BooleanArray>();
    arrow::compute::filter_record_batch(&table, &solved).expect("filtered")
}

/// What changes say that values become.
fn told(answers: &RecordBatch) -> Vec<String> {
    let changes = answers.column_by_name("changes").expect("changes").as_list::<i32>();
    let all = changes.values().as_struct().column_by_name("to").expect("texts").clone();
    let all = arrow::compute::cast(&all, &arrow::datatypes::DataType::Utf8).expect("texts");
    all.as_string::<i32>().iter().flatten().map(str::to_string).collect()
}

fn is_multiple(number: f64, step: f64) -> bool {
    (number / step - (number / step).round()).abs() < 1e-9
}

#[test]
fn answers_have_the_digits_that_the_data_has() {
    let test = "answers_have_the_digits_that_the_data_has";
    let Some(bench) = explained(test, &schema(ORDER), "method = \"search\"\n") else { return };
    let answers = answers(&bench);
    assert!(answers.num_rows() > 200, "{}", answers.num_rows());
    for (name, step) in [("cf_share", 0.01), ("cf_income", 100.0)] {
        let column = answers.column_by_name(name).expect("a column");
        for number in column.as_primitive::<Float64Type>().values() {
            assert!(is_multiple(*number, step), "{name} is {number}");
        }
    }
    for text in told(&answers) {
        let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
        assert!(digits <= 2, "{text}");
    }
    // Sizes of changes of incomes are whole numbers.
    let report = read_table(&bench.path("out/reports/features.parquet"));
    let names = report.column_by_name("feature").expect("names").as_string::<i32>().clone();
    let shape = report.schema();
    let sizes = report.columns().iter().zip(shape.fields().iter());
    let sizes: Vec<&ArrayRef> =
        sizes.filter(|(_, field)| field.name().contains("median")).map(|(all, _)| all).collect();
    assert!(!sizes.is_empty(), "{shape:?}");
    for (row, name) in names.iter().enumerate().filter(|(_, name)| *name == Some("income")) {
        for sizes in sizes.iter().filter(|sizes| sizes.is_valid(row)) {
            let size = sizes.as_primitive::<Float64Type>().value(row);
            assert_eq!(size.fract(), 0.0, "{name:?}");
        }
    }
}

#[test]
fn an_ordered_category_goes_its_way_only() {
    let test = "an_ordered_category_goes_its_way_only";
    // Nothing but schools may help.
    let fixed = "kind = \"numeric\"\nchange = \"never\"";
    let schema = schema(ORDER).replace("kind = \"numeric\"", fixed);
    let Some(bench) = explained(test, &schema, "method = \"search\"\n") else { return };
    let answers = answers(&bench);
    let originals = people(900);
    let school = |batch: &RecordBatch, name: &str| {
        let column = batch.column_by_name(name).expect("schools").clone();
        arrow::compute::cast(&column, &arrow::datatypes::DataType::Utf8).expect("texts")
    };
    let (own, new) = (school(&originals, "school"), school(&answers, "cf_school"));
    let ids = answers.column_by_name("id").expect("ids");
    let ids = ids.as_primitive::<arrow::datatypes::Int64Type>();
    let rank = |name: &str| SCHOOLS.iter().position(|school| *school == name);
    let mut rises = 0;
    for (row, id) in ids.values().iter().enumerate() {
        let before = rank(own.as_string::<i32>().value(*id as usize));
        let after = rank(new.as_string::<i32>().value(row));
        assert!(after >= before, "{before:?} became {after:?}");
        rises += usize::from(after > before);
    }
    assert!(rises > 20, "{rises} of {}", ids.len());
}

#[test]
fn nearest_rows_are_given_to_the_last_bit() {
    let test = "nearest_rows_are_given_to_the_last_bit";
    let values = ORDER.replace("change = \"increase\"", "");
    let Some(bench) = explained(test, &schema(&values), "method = \"nearest\"\n") else { return };
    let column = |batch: &RecordBatch, name: &str| -> Vec<u64> {
        let column = batch.column_by_name(name).expect("a column");
        column.as_primitive::<Float64Type>().values().iter().map(|one| one.to_bits()).collect()
    };
    let (answers, originals) = (answers(&bench), people(900));
    assert!(answers.num_rows() > 100);
    for name in ["share", "income"] {
        let known = column(&originals, name);
        let found = column(&answers, &format!("cf_{name}"));
        assert!(found.iter().all(|number| known.contains(number)), "{name}");
    }
}

#[test]
fn what_is_wrong_with_an_order_is_told() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &people(50));
    let refused = |school: &str, said: &[&str]| {
        bench.write("schema.toml", &schema(school));
        let job = bench.job(&table, "schema = \"schema.toml\"", None);
        overturn(&["validate", &job]).fails(1, said);
    };
    let values = "values = [\"none\", \"school\", \"college\", \"university\"]\n";
    refused(
        &format!("{values}order = [\"none\", \"shool\", \"college\", \"university\"]"),
        &["`feature[school].order` names `shool`, which is not one of `values`", "misses `school`"],
    );
    refused("order = [\"none\", \"school\", \"none\"]", &["feature[school]", "`none` twice"]);
    refused(&format!("{values}change = \"increase\""), &["hint: give it one: `order = ["]);
}

#[test]
fn inferred_schemas_name_the_step_of_numbers() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &people(900));
    let inferred = overturn(&["schema", "infer", &table, "--ignore", "id"]).ok().stdout;
    for expected in ["# step = 0.01", "# step = 100"] {
        assert!(inferred.contains(expected), "{expected}\nnot in\n{inferred}");
    }
}
