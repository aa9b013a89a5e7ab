//! A fitted generator in a query.

use crate::fitted::{applications, generator};
use crate::util::{Bench, Run, overturn, read_table};

fn ask(bench: &Bench, query: &str, more: &[&str]) -> Run {
    let (generator, table) =
        (generator().display().to_string(), format!("a={}", bench.text("applications")));
    let arguments = ["sql", query, "--generator", &generator, "--table", &table];
    overturn(&[&arguments[..], more].concat())
}

#[test]
fn single_rows_and_groups() {
    let bench = Bench::new();
    let table = applications(&bench, 3000, &["--nulls", "0.02"]);
    // What a query says is what a run writes.
    bench.explain_job(&table, "");
    bench.does("run", &[]).ok();
    let found = read_table(&bench.path("out/counterfactuals"));
    let query = "SELECT application_id, x['status'] AS status, x['cf_employment'] AS employment, \
                 x['n_changed'] AS n_changed FROM (SELECT application_id, counterfactual('approved') AS x \
                 FROM a) ORDER BY application_id";
    let said = ask(&bench, query, &["--format", "json"]).ok().stdout;
    let rows: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    assert_eq!(rows.len(), 3000);
    let answered: Vec<&serde_json::Value> =
        rows.iter().filter(|row| row["status"] != "rejected").collect();
    assert_eq!(answered.len(), found.num_rows());
    let status =
        arrow::array::AsArray::as_string::<i32>(found.column_by_name("status").expect("a column"));
    for (row, status) in answered.iter().zip(status) {
        assert_eq!(row["status"].as_str(), status, "{row}");
    }
    let text = ask(
        &bench,
        "SELECT region, count(*) AS rows, avg(CAST(counterfactual('approved')['valid'] AS INT)) AS valid \
         FROM a GROUP BY region ORDER BY region",
        &[],
    );
    let text = text.ok().stdout;
    assert!(text.contains("| region  | rows") && text.contains("| capital"), "{text}");
    let single = ask(
        &bench,
        "SELECT counterfactual('approved')['changes'] AS changes FROM a WHERE application_id = 17",
        &["--format", "json"],
    );
    assert!(single.ok().stdout.starts_with("{\"changes\":["));
}

#[test]
fn queries_that_make_no_sense() {
    let bench = Bench::new();
    applications(&bench, 50, &[]);
    ask(&bench, "SELEC 1", &[]).fails(1, &["query: "]);
    ask(&bench, "SELECT counterfactual('approved') FROM b", &[])
        .fails(1, &["query: ", "public.b' not found"]);
    ask(&bench, "SELECT counterfactual('approved', age) FROM a", &[]).fails(
        1,
        &["has 2 arguments, expected the wanted decision, alone or with the 16 features"],
    );
    ask(&bench, "DROP TABLE a", &[]).fails(1, &["query: "]);
    ask(&bench, "COPY a TO '/tmp/x.parquet'", &[]).fails(1, &["query: "]);
    let (generator, table) =
        (generator().display().to_string(), format!("Apps={}", bench.text("applications")));
    let named = ["--generator", &generator, "--table", &table];
    let count = ["sql", "SELECT count(*) AS n FROM Apps", "--format", "json"];
    assert_eq!(overturn(&[&count[..], &named].concat()).ok().stdout.trim(), "{\"n\":50}");
    overturn(&[&count[..], &named, &["--table", &table]].concat())
        .fails(1, &["Apps: cannot name a table", "already exists"]);
    ask(&bench, "SELECT counterfactual('aproved')['detail'] AS detail FROM a LIMIT 1", &[]).fails(
        1,
        &["query: asks counterfactual for `aproved`", "\"rejected\"", "did you mean `approved`?"],
    );
    let unknown = ask(
        &bench,
        "SELECT counterfactual(CASE WHEN age > 0 THEN 'maybe' END)['detail'] AS detail FROM a LIMIT 1",
        &["--format", "json"],
    );
    let unknown = unknown.ok().stdout;
    assert!(unknown.contains("no_target: the target column says `maybe`"), "{unknown}");
    overturn(&["sql", "SELECT 1", "--generator", "/nowhere", "--table", "a=/nowhere"])
        .fails(1, &["/nowhere"]);
    overturn(&["sql", "SELECT 1", "--generator", "/nowhere", "--table", "a"])
        .fails(1, &["--table: is `a`, expected NAME=PATH"]);
}

#[test]
fn an_answer_without_rows_has_its_columns() {
    let bench = Bench::new();
    applications(&bench, 50, &[]);
    let query = "SELECT age, region AS place FROM a WHERE age > 1000";
    let text = ask(&bench, query, &[]).ok().stdout;
    assert!(text.contains("| age | place |"), "{text}");
    assert_eq!(ask(&bench, query, &["--format", "json"]).ok().stdout.trim(), "");
}
