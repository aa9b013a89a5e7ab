//! The tables of a run as sources of dbt: generated from what describes them, so that a project's documentation and
//! tests say what the program does.

use std::fmt::Write;

use serde_json::Value;

use super::tables::describe_tables;

/// What the file begins with.
const HEAD: &str = "\
# Sources of dbt: the tables of a run. Generated: overturn schema show sources > schemas/warehouse/sources.yml
# OVERTURN_DIR is the job's `output.dir`. `external_location` is read by dbt-duckdb; in other warehouses mount the
# folders as external tables of these names, or set `database` and `schema` to where `output.table` is registered.
# Key columns and `cf_<feature>` are those of the job, and columns of `report.by` stand in reports: add them here.
version: 2
sources:
  - name: overturn
    description: Counterfactual explanations, with rejects and reports, as published by a run of overturn.
    tables:
";

/// Values that a column can have.
const VALUES: [(&str, &[&str]); 2] = [
    ("status", &["solved", "unsolved", "already_target", "infeasible"]),
    ("source", &["generator", "candidate", "neighbour"]),
];

/// A `sources.yml` for dbt.
pub fn describe_sources() -> String {
    let mut text = HEAD.to_string();
    let tables = describe_tables();
    for (name, columns) in tables.as_object().into_iter().flatten() {
        // Tables of regressions have the names of the others.
        if !name.contains(' ') {
            table(&mut text, name, columns);
        }
    }
    text
}

fn table(text: &mut String, name: &str, columns: &Value) {
    let files =
        if name.contains('/') { format!("{name}.parquet") } else { format!("{name}/**/*.parquet") };
    let named = name.replace('/', "_");
    let location = format!(
        "read_parquet('{{{{ env_var('OVERTURN_DIR') }}}}/{files}', hive_partitioning = true)"
    );
    let _ = write!(
        text,
        "      - name: {named}\n        meta:\n          external_location: \"{location}\"\n        columns:\n"
    );
    let columns = columns.as_array().into_iter().flatten();
    for column in columns.filter(|column| !is_stand_in(column)) {
        column_of(text, name, column);
    }
}

/// `<key>`, `<feature>` and the like.
fn is_stand_in(column: &Value) -> bool {
    column["name"].as_str().is_none_or(|name| name.contains('<'))
}

fn column_of(text: &mut String, table: &str, column: &Value) {
    // Every text of JSON is one of YAML.
    let _ = writeln!(text, "          - name: {}", column["name"]);
    let _ = writeln!(text, "            description: {}", column["description"]);
    let name = column["name"].as_str().unwrap_or_default();
    let of_rows = table == "counterfactuals";
    let values = VALUES.iter().find(|(known, _)| of_rows && *known == name);
    let never_null = column["nullable"] == false;
    if !never_null && values.is_none() {
        return;
    }
    text.push_str("            data_tests:\n");
    if never_null {
        text.push_str("              - not_null\n");
    }
    if let Some((_, values)) = values {
        let _ = writeln!(
            text,
            "              - accepted_values:\n                  values: {values:?}"
        );
    }
}
