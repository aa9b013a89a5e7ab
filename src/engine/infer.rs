//! A first version of a feature schema, from what a table holds: types, ranges and values through the
//! query engine, which answers from Parquet statistics where it can.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, UInt64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::DataFrame;

use super::scan::{planning, reading};
use super::session::Engine;
use super::table::Table;
use crate::error::{Error, Result};
use crate::feature::{ColumnClass, classify, numbers, type_name};

/// How a schema is inferred.
#[derive(Debug, Clone)]
pub struct InferOptions {
    /// More distinct texts than this are not a category.
    pub max_categories: usize,
    /// Columns to leave out: keys, labels, splits.
    pub ignore: Vec<String>,
}

/// An inferred schema.
#[derive(Debug, Clone)]
pub struct Inferred {
    /// TOML with comments.
    pub text: String,
    /// Columns that became features.
    pub features: usize,
    /// Columns that were left out, with the reason.
    pub left_out: Vec<(String, String)>,
}

/// A share of distinct values from which a whole-number column is taken for an identifier.
const IDENTIFIER_SHARE: f64 = 0.95;
/// Rows below which such a share means nothing.
const IDENTIFIER_ROWS: u64 = 100;

/// 2^63, the first number that is no integer of TOML.
const INTEGER_LIMIT: f64 = (1u64 << 63) as f64;

/// What the engine found out about a column.
struct Seen {
    rows: u64,
    values: u64,
    distinct: Option<u64>,
    min: Option<String>,
    max: Option<String>,
}

/// What a column becomes.
enum Verdict {
    Feature(String),
    LeftOut(String),
}

/// Infers a schema for all columns of a table.
pub async fn infer(engine: &Engine, table: &Table, options: &InferOptions) -> Result<Inferred> {
    if table.rows == 0 {
        return Err(Error::input(&table.shown, "has no rows to infer a schema from"));
    }
    let mut text = header(table);
    let mut inferred = Inferred { text: String::new(), features: 0, left_out: Vec::new() };
    for field in table.schema.fields() {
        let verdict = if options.ignore.contains(field.name()) {
            Verdict::LeftOut("left out as asked".to_string())
        } else {
            judge(engine, table, field, options).await?
        };
        match verdict {
            Verdict::Feature(entry) => {
                inferred.features += 1;
                text.push_str(&entry);
            }
            Verdict::LeftOut(reason) => {
                let _ = write!(text, "\n# `{}` is no feature: {reason}\n", field.name());
                inferred.left_out.push((field.name().clone(), reason));
            }
        }
    }
    inferred.text = text;
    Ok(inferred)
}

fn header(table: &Table) -> String {
    format!(
        "# Feature schema, first version, inferred from {} rows of {}.\n\
         # Now say what people can change: `change = \"never\"` for what nobody can or should (sex, place\n\
         # of birth), `\"increase\"` or `\"decrease\"` for what moves one way (age), and tighten `range`,\n\
         # `step`, `limit` and `allowed`. Columns that are not features here are ignored.\n",
        table.rows, table.shown
    )
}

async fn judge(
    engine: &Engine,
    table: &Table,
    field: &Field,
    options: &InferOptions,
) -> Result<Verdict> {
    let Some(class) = classify(field.data_type()) else {
        let reason = format!("its type, {}, is not supported", type_name(field.data_type()));
        return Ok(Verdict::LeftOut(reason));
    };
    let seen = look(engine, table, field, class).await?;
    if seen.values == 0 {
        return Ok(Verdict::LeftOut("every value is null".to_string()));
    }
    if seen.min == seen.max {
        let value = seen.min.unwrap_or_default();
        return Ok(Verdict::LeftOut(format!("it is constant ({value})")));
    }
    match class {
        ColumnClass::Text | ColumnClass::Boolean => {
            categorical(engine, table, field, &seen, options).await
        }
        ColumnClass::Integer if is_identifier(&seen) => {
            let reason = "nearly every value is different, so it looks like an identifier";
            Ok(Verdict::LeftOut(format!("{reason} (declare it by hand if it is a measurement)")))
        }
        ColumnClass::Integer | ColumnClass::Fraction | ColumnClass::Time => {
            Ok(Verdict::Feature(numeric(field, &seen, class)))
        }
    }
}

fn is_identifier(seen: &Seen) -> bool {
    let share = seen.distinct.unwrap_or(0) as f64 / seen.values.max(1) as f64;
    seen.values >= IDENTIFIER_ROWS && share >= IDENTIFIER_SHARE
}

/// Counts, extremes and (roughly) how many different values.
async fn look(engine: &Engine, table: &Table, field: &Field, class: ColumnClass) -> Result<Seen> {
    let name = quoted(field.name());
    let plain = match field.data_type() {
        DataType::Dictionary(_, _) => format!("arrow_cast({name}, 'Utf8')"),
        DataType::Float16 => format!("arrow_cast({name}, 'Float32')"),
        _ => name.clone(),
    };
    // NaN sorts above every number and would be the maximum.
    let value = match field.data_type() {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            format!("nanvl({plain}, NULL)")
        }
        _ => plain,
    };
    let distinct = match class {
        ColumnClass::Integer | ColumnClass::Text => format!("approx_distinct({value})"),
        _ => "CAST(NULL AS BIGINT UNSIGNED)".to_string(),
    };
    let query = format!(
        "SELECT count(*), count({value}), {distinct}, min({value}), max({value}) FROM {}",
        quoted(&table.name)
    );
    let row = one_batch(engine, table, &query).await?;
    let count = |column: usize| row[column].as_primitive::<Int64Type>().value(0) as u64;
    let distinct = &row[2];
    Ok(Seen {
        rows: count(0),
        values: count(1),
        distinct: (!distinct.is_null(0)).then(|| distinct.as_primitive::<UInt64Type>().value(0)),
        min: shown(&row[3], class)?,
        max: shown(&row[4], class)?,
    })
}

async fn one_batch(engine: &Engine, table: &Table, query: &str) -> Result<Vec<ArrayRef>> {
    let frame: DataFrame = engine.context.sql(query).await.map_err(planning)?;
    let schema = std::sync::Arc::new(frame.schema().as_arrow().clone());
    let batches = frame.collect().await.map_err(|error| reading(&table.shown, error))?;
    let batch = arrow::compute::concat_batches(&schema, &batches);
    let batch =
        batch.map_err(|error| Error::internal("query engine", "answers differ").source(error))?;
    Ok(batch.columns().to_vec())
}

/// A value as it is written in the schema: numbers for dates too, since that is what they are there.
fn shown(value: &ArrayRef, class: ColumnClass) -> Result<Option<String>> {
    if value.is_null(0) {
        return Ok(None);
    }
    let text = match class {
        ColumnClass::Text | ColumnClass::Boolean => {
            let formatter = ArrayFormatter::try_new(value.as_ref(), &FormatOptions::default());
            let formatter =
                formatter.map_err(|error| Error::internal("value", "has no text").source(error))?;
            formatter.value(0).to_string()
        }
        _ => toml_number(numbers(value)?.value(0)),
    };
    Ok(Some(text))
}

fn numeric(field: &Field, seen: &Seen, class: ColumnClass) -> String {
    let mut entry = entry_head(field.name(), "numeric", seen);
    if let (Some(min), Some(max)) = (&seen.min, &seen.max) {
        let _ = writeln!(entry, "range = [{min}, {max}] # observed");
    }
    match class {
        ColumnClass::Integer => {
            entry.push_str("type = \"integer\"\n");
            if let Some(few) = seen.distinct.filter(|distinct| *distinct <= 10) {
                let _ = writeln!(
                    entry,
                    "# only {few} different values: if they are codes, make it categorical"
                );
            }
        }
        ColumnClass::Time => {
            let unit = type_name(field.data_type());
            let _ = writeln!(entry, "# {unit}, as a number in its own unit");
        }
        _ => {}
    }
    entry
}

async fn categorical(
    engine: &Engine,
    table: &Table,
    field: &Field,
    seen: &Seen,
    options: &InferOptions,
) -> Result<Verdict> {
    let guard = options.max_categories;
    let many = seen.distinct.filter(|distinct| *distinct > 2 * guard as u64);
    let values =
        if many.is_some() { None } else { distinct_values(engine, table, field, guard).await? };
    let Some(values) = values else {
        let found = many.map_or(format!("more than {guard}"), |many| format!("about {many}"));
        let reason = format!("{found} different texts are too many for a category (limit {guard})");
        return Ok(Verdict::LeftOut(format!("{reason}; it may be an identifier or free text")));
    };
    let mut entry = entry_head(field.name(), "categorical", seen);
    let boolean = *field.data_type() == DataType::Boolean;
    let list: Vec<String> =
        values.into_iter().map(|value| if boolean { value } else { toml_text(&value) }).collect();
    let _ = writeln!(entry, "values = [{}]", list.join(", "));
    Ok(Verdict::Feature(entry))
}

/// All values in alphabetical order, unless there are more than `guard`.
async fn distinct_values(
    engine: &Engine,
    table: &Table,
    field: &Field,
    guard: usize,
) -> Result<Option<Vec<String>>> {
    let name = quoted(field.name());
    let query = format!(
        "SELECT DISTINCT arrow_cast({name}, 'Utf8') AS value FROM {} WHERE {name} IS NOT NULL \
         ORDER BY value LIMIT {}",
        quoted(&table.name),
        guard + 1
    );
    let column = one_batch(engine, table, &query).await?.remove(0);
    let column = cast(&column, &DataType::Utf8)
        .map_err(|error| Error::internal("value", "has no text").source(error))?;
    let values: Vec<String> =
        column.as_string::<i32>().iter().flatten().map(str::to_string).collect();
    Ok((values.len() <= guard).then_some(values))
}

fn entry_head(name: &str, kind: &str, seen: &Seen) -> String {
    let mut entry =
        format!("\n[[feature]]\nname = {}\nkind = \"{kind}\"\nchange = \"any\"\n", toml_text(name));
    let nulls = seen.rows - seen.values;
    if nulls > 0 {
        let share = 100.0 * nulls as f64 / seen.rows as f64;
        let _ = writeln!(
            entry,
            "nulls = \"carry\" # {nulls} nulls ({share:.2} %); or \"reject\", \"fill\""
        );
    }
    entry
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn toml_text(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// Whole numbers without a fraction, as far as TOML has them: beyond 64 bits they are floats.
fn toml_number(number: f64) -> String {
    if number.abs() >= INTEGER_LIMIT {
        return format!("{number:e}");
    }
    toml::Value::Float(number).to_string().trim_end_matches(".0").to_string()
}
