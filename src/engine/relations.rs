//! What holds between the columns of a table, as comments for its first feature schema.

use std::fmt::Write;
use std::path::Path;

use futures::StreamExt;

use super::scan::ScanPlan;
use super::session::{Engine, EngineOptions};
use super::table::Table;
use crate::constrain::{Combinations, Formula, Observed};
use crate::document::toml_text;
use crate::error::Result;
use crate::feature::{Cells, FeatureSchema, RowReader, Rows, sql_name};

/// Rows that are looked at.
const MOST_ROWS: usize = 200_000;
/// Rules that are written.
const MOST_RULES: usize = 60;

/// Commented rules for what the first rows of a table keep to between the features of its inferred schema; empty if
/// there is nothing.
///
/// # Errors
/// When the table cannot be read.
pub async fn observed_rules(engine: &Engine, table: &Table, schema: &str) -> Result<String> {
    let schema = FeatureSchema::parse(schema, Path::new("the inferred schema"))?;
    let columns: Vec<String> = schema.features.iter().map(|of| of.name.clone()).collect();
    // In one partition the first rows are always the same.
    let engine = Engine::new(EngineOptions { partitions: 1, ..engine.options })?;
    let table =
        engine.open_part(&table.name, table, &columns.iter().map(String::as_str).collect())?;
    let plan = ScanPlan { table: &table, predicate: None, columns: &columns, scores: None };
    let mut stream = engine.scan(plan).await?.stream()?;
    let reader = RowReader::new(&schema);
    let mut rows: Option<Rows> = None;
    while let Some(batch) = stream.next().await {
        let some = reader.read(&batch?)?;
        match &mut rows {
            None => rows = Some(some),
            Some(rows) => append(rows, some),
        }
        if rows.as_ref().is_some_and(|rows| rows.len >= MOST_ROWS) {
            break;
        }
    }
    let Some(rows) = rows else { return Ok(String::new()) };
    let count = rows.len.min(MOST_ROWS);
    Ok(comments(&Observed::find(&rows, count, &schema), count))
}

fn append(rows: &mut Rows, more: Rows) {
    rows.len += more.len;
    for (cells, more) in rows.cells.iter_mut().zip(more.cells) {
        match (cells, more) {
            (Cells::Numbers(numbers), Cells::Numbers(more)) => numbers.extend(more),
            (Cells::Codes(codes), Cells::Codes(more)) => codes.extend(more),
            _ => unreachable!("batches are of one schema"),
        }
    }
}

/// What was observed, as commented entries of a feature schema.
fn comments(observed: &Observed, rows: usize) -> String {
    let mut entries: Vec<String> = Vec::new();
    for Formula { feature, value } in &observed.formulas {
        let (name, value) = (toml_text(feature), toml_text(value));
        entries.push(format!("# [[derived]]\n# name = {name}\n# value = {value}\n"));
    }
    let orders = observed.orders.iter();
    let orders = orders.map(|of| format!("{} <= {}", sql_name(&of.low), sql_name(&of.high)));
    let rules = orders.chain(observed.combinations.iter().flat_map(predicates));
    entries.extend(rules.map(|rule| format!("# [[rule]]\n# check = {}\n", toml_text(&rule))));
    if entries.is_empty() {
        return String::new();
    }
    let mut found = format!(
        "\n# All of {rows} rows keep to what follows. Counterfactuals do too while\n\
         # `explain.coherence = \"observed\"` (the default) and the training rows show it; uncomment what must hold\n\
         # in any case.\n"
    );
    for entry in entries.iter().take(MOST_RULES) {
        let _ = write!(found, "#\n{entry}");
    }
    if entries.len() > MOST_RULES {
        let _ = writeln!(found, "#\n# … and {} more.", entries.len() - MOST_RULES);
    }
    found
}

/// Excluded combinations as predicates, one for each value of the first feature.
fn predicates(of: &Combinations) -> Vec<String> {
    let quoted = |value: &String| format!("'{}'", value.replace('\'', "''"));
    let [first, second] = of.features.each_ref().map(|name| sql_name(name));
    let same = |one: &[String; 2], two: &[String; 2]| one[0] == two[0];
    let predicate = |pairs: &[[String; 2]]| {
        let others: Vec<String> = pairs.iter().map(|pair| quoted(&pair[1])).collect();
        format!("{first} <> {} OR {second} NOT IN ({})", quoted(&pairs[0][0]), others.join(", "))
    };
    of.excluded.chunk_by(same).map(predicate).collect()
}
