//! A first version of a feature schema, from what a table holds: types, ranges and values through the
//! query engine, which answers from Parquet statistics where it can.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, UInt64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::DataFrame;

use super::scan::{ScanPlan, planning, reading};
use super::session::Engine;
use super::stats::gather_stats;
use super::table::Table;
use crate::error::{Error, Result};
use crate::feature::{ColumnClass, FeatureSchema, FeatureStats, classify, numbers, type_name};

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
    /// The step that its numbers have.
    step: Option<f64>,
}

/// Different whole numbers up to which a column may be one of codes.
const FEW_CODES: u64 = 10;

/// What a column becomes.
enum Verdict {
    Feature(String),
    LeftOut(String),
}

/// Columns that one query looks at. A query's cost grows with the columns of its table too, so that one
/// query for each column would take the square of their number.
const COLUMNS_AT_ONCE: usize = 50;

/// Infers a schema for all columns of a table.
pub async fn infer(engine: &Engine, table: &Table, options: &InferOptions) -> Result<Inferred> {
    if table.rows == 0 {
        return Err(Error::input(&table.shown, "has no rows to infer a schema from"));
    }
    let mut text = header(table);
    let mut inferred = Inferred { text: String::new(), features: 0, left_out: Vec::new() };
    let ignored: HashSet<&str> = options.ignore.iter().map(String::as_str).collect();
    for fields in table.schema.fields().chunks(COLUMNS_AT_ONCE) {
        let wanted = fields.iter().filter(|field| !ignored.contains(field.name().as_str()));
        let wanted: Vec<FieldRef> = wanted.cloned().collect();
        let mut verdicts = Look::new(engine, table, &wanted)?.judge(options).await?.into_iter();
        for field in fields {
            let verdict = match ignored.contains(field.name().as_str()) {
                true => None,
                false => verdicts.next(),
            };
            let asked = || Verdict::LeftOut("left out as asked".to_string());
            match verdict.unwrap_or_else(asked) {
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

/// Some columns of a table, as a table of their own.
struct Look<'a> {
    engine: &'a Engine,
    table: Table,
    fields: &'a [FieldRef],
}

impl<'a> Look<'a> {
    fn new(engine: &'a Engine, table: &Table, fields: &'a [FieldRef]) -> Result<Look<'a>> {
        let names: HashSet<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let table = engine.open_part("__columns", table, &names)?;
        Ok(Look { engine, table, fields })
    }

    /// What becomes of each column.
    async fn judge(&self, options: &InferOptions) -> Result<Vec<Verdict>> {
        let usable = |field: &&FieldRef| classify(field.data_type()).is_some();
        let fields: Vec<&FieldRef> = self.fields.iter().filter(usable).collect();
        let mut seen = self.look(&fields).await?;
        self.find_steps(&fields, &mut seen).await?;
        let mut seen = seen.into_iter();
        let mut verdicts: Vec<Option<Verdict>> = Vec::with_capacity(self.fields.len());
        let mut listed: Vec<(usize, Seen)> = Vec::new();
        for (index, field) in self.fields.iter().enumerate() {
            let kind = field.data_type();
            let Some((class, seen)) = classify(kind).and_then(|class| Some((class, seen.next()?)))
            else {
                let reason = format!("its type, {}, is not supported", type_name(kind));
                verdicts.push(Some(Verdict::LeftOut(reason)));
                continue;
            };
            let verdict = judge(field, &seen, class, options);
            if verdict.is_none() || is_code(&seen, class) {
                listed.push((index, seen));
            }
            verdicts.push(verdict);
        }
        let fields: Vec<&FieldRef> = listed.iter().map(|(index, _)| &self.fields[*index]).collect();
        let values = self.distinct_values(&fields).await?;
        for ((index, seen), values) in listed.into_iter().zip(values) {
            match &mut verdicts[index] {
                Some(Verdict::Feature(entry)) => entry.push_str(&codes(values)),
                Some(Verdict::LeftOut(_)) => {}
                none => *none = Some(categorical(&self.fields[index], &seen, values, options)),
            }
        }
        Ok(verdicts.into_iter().flatten().collect())
    }
}

/// What becomes of a column; nothing yet where that depends on which values it has.
fn judge(
    field: &Field,
    seen: &Seen,
    class: ColumnClass,
    options: &InferOptions,
) -> Option<Verdict> {
    if seen.values == 0 {
        return Some(Verdict::LeftOut("every value is null".to_string()));
    }
    if seen.min == seen.max {
        return Some(Verdict::Feature(constant(field, seen, class)));
    }
    let guard = options.max_categories;
    match class {
        ColumnClass::Text | ColumnClass::Boolean => {
            let limit = (guard as u64).saturating_mul(2);
            let many = seen.distinct.filter(|distinct| *distinct > limit)?;
            Some(too_many(&format!("about {many}"), guard))
        }
        ColumnClass::Integer if is_identifier(seen) => {
            let reason = "nearly every value is different, so it looks like an identifier";
            let reason = format!("{reason} (declare it by hand if it is a measurement)");
            Some(Verdict::LeftOut(reason))
        }
        ColumnClass::Integer | ColumnClass::Fraction | ColumnClass::Time => {
            Some(Verdict::Feature(numeric(field, seen, class)))
        }
    }
}

fn too_many(found: &str, guard: usize) -> Verdict {
    let reason = format!("{found} different texts are too many for a category (limit {guard})");
    Verdict::LeftOut(format!("{reason}; it may be an identifier or free text"))
}

fn is_identifier(seen: &Seen) -> bool {
    let share = seen.distinct.unwrap_or(0) as f64 / seen.values.max(1) as f64;
    seen.values >= IDENTIFIER_ROWS && share >= IDENTIFIER_SHARE
}

impl Look<'_> {
    /// Counts, extremes and (roughly) how many different values, of each column.
    async fn look(&self, fields: &[&FieldRef]) -> Result<Vec<Seen>> {
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let asked: Vec<String> =
            fields.iter().enumerate().map(|(index, field)| figures(index, field)).collect();
        let query =
            format!("SELECT count(*), {} FROM {}", asked.join(", "), quoted(&self.table.name));
        let row = one_batch(self.engine, &self.table, &query).await?;
        let count = |column: usize| row[column].as_primitive::<Int64Type>().value(0) as u64;
        let seen = fields.iter().enumerate().map(|(index, field)| {
            let class = classify(field.data_type()).unwrap_or(ColumnClass::Text);
            let first = 1 + index * FIGURES;
            let distinct = &row[first + 1];
            let distinct =
                (!distinct.is_null(0)).then(|| distinct.as_primitive::<UInt64Type>().value(0));
            Ok(Seen {
                rows: count(0),
                values: count(first),
                distinct,
                min: shown(&row[first + 2], class)?,
                max: shown(&row[first + 3], class)?,
                step: None,
            })
        });
        seen.collect()
    }

    /// Finds the steps that numbers have, in one pass over all columns of numbers.
    async fn find_steps(&self, fields: &[&FieldRef], seen: &mut [Seen]) -> Result<()> {
        let numeric = |(_, field): &(usize, &&FieldRef)| {
            let class = classify(field.data_type());
            matches!(class, Some(ColumnClass::Integer | ColumnClass::Fraction | ColumnClass::Time))
        };
        let numeric: Vec<(usize, &&FieldRef)> = fields.iter().enumerate().filter(numeric).collect();
        if numeric.is_empty() {
            return Ok(());
        }
        let columns: Vec<String> = numeric.iter().map(|(_, field)| field.name().clone()).collect();
        let entry = |name: &String| {
            format!("[[feature]]\nname = {}\nkind = \"numeric\"\n", toml_text(name))
        };
        let text: String = columns.iter().map(entry).collect();
        let schema = FeatureSchema::parse(&text, Path::new("schema"))?;
        let plan =
            ScanPlan { table: &self.table, predicate: None, columns: &columns, scores: None };
        let scan = self.engine.scan(plan).await?;
        let all: Arc<[usize]> = (0..columns.len()).collect();
        let stats = gather_stats(&scan, &schema, all, Arc::new(|_| ())).await?;
        for ((index, _), found) in numeric.into_iter().zip(stats.features) {
            if let FeatureStats::Numeric(found) = found {
                let multiples = found.multiples.filter(|multiples| multiples.observed);
                seen[index].step = multiples.map(|multiples| multiples.step());
            }
        }
        Ok(())
    }

    /// All values of each column in alphabetical order; they are known to be few.
    async fn distinct_values(&self, fields: &[&FieldRef]) -> Result<Vec<Vec<String>>> {
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let asked = fields.iter().enumerate().map(|(index, field)| {
            let name = quoted(field.name());
            format!("array_agg(DISTINCT arrow_cast({name}, 'Utf8')) FILTER (WHERE {name} IS NOT NULL) AS v{index}")
        });
        let asked: Vec<String> = asked.collect();
        let query = format!("SELECT {} FROM {}", asked.join(", "), quoted(&self.table.name));
        let row = one_batch(self.engine, &self.table, &query).await?;
        row.iter().map(texts_of_list).collect()
    }
}

/// Figures that a query gives of a column.
const FIGURES: usize = 4;

/// The figures of a column, in SQL.
fn figures(index: usize, field: &Field) -> String {
    let name = quoted(field.name());
    let plain = match field.data_type() {
        DataType::Dictionary(_, _) => format!("arrow_cast({name}, 'Utf8')"),
        DataType::Float16 => format!("arrow_cast({name}, 'Float32')"),
        _ => name,
    };
    // NaN sorts above every number and would be the maximum.
    let value = match field.data_type() {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            format!("nanvl({plain}, NULL)")
        }
        _ => plain,
    };
    let distinct = match classify(field.data_type()) {
        Some(ColumnClass::Integer | ColumnClass::Text) => format!("approx_distinct({value})"),
        _ => "CAST(NULL AS BIGINT UNSIGNED)".to_string(),
    };
    format!(
        "count({value}) AS n{index}, {distinct} AS d{index}, min({value}) AS a{index}, max({value}) AS z{index}"
    )
}

/// The texts of a list, sorted.
fn texts_of_list(column: &ArrayRef) -> Result<Vec<String>> {
    if column.is_null(0) {
        return Ok(Vec::new());
    }
    let texts = cast(&column.as_list::<i32>().value(0), &DataType::Utf8);
    let texts = texts.map_err(|error| Error::internal("value", "has no text").source(error))?;
    let mut texts: Vec<String> =
        texts.as_string::<i32>().iter().flatten().map(str::to_string).collect();
    texts.sort_unstable();
    Ok(texts)
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
        }
        ColumnClass::Time => {
            let unit = type_name(field.data_type());
            let _ = writeln!(entry, "# {unit}, as a number in its own unit");
        }
        _ => {}
    }
    let finer = |step: &f64| class != ColumnClass::Integer || *step > 1.0;
    if let Some(step) = seen.step.filter(finer).map(toml_number) {
        let _ = writeln!(
            entry,
            "# nearly all values are multiples of {step}, and so will counterfactual values be; for others:\n\
             # step = {step} # counted from the row's own value, or grid = \"none\""
        );
    }
    entry
}

/// A column that has one value only: the model may take it, and nothing can change in it.
fn constant(field: &Field, seen: &Seen, class: ColumnClass) -> String {
    let value = seen.min.clone().unwrap_or_default();
    let (kind, line) = match class {
        ColumnClass::Text => ("categorical", format!("values = [{}]", toml_text(&value))),
        ColumnClass::Boolean => ("categorical", format!("values = [{value}]")),
        _ => ("numeric", format!("range = [{value}, {value}] # observed")),
    };
    let entry = entry_head(field.name(), kind, seen);
    let reason = "# constant: kept because a model that was trained with it needs it";
    let entry = entry.replace("change = \"any\"\n", &format!("change = \"never\" {reason}\n"));
    let integer = if class == ColumnClass::Integer { "type = \"integer\"\n" } else { "" };
    format!("{entry}{line}\n{integer}")
}

/// Whether numbers may be codes.
fn is_code(seen: &Seen, class: ColumnClass) -> bool {
    let few = seen.distinct.is_some_and(|distinct| distinct <= FEW_CODES);
    class == ColumnClass::Integer && few && seen.min != seen.max
}

/// What to say of a column whose values may be codes.
fn codes(mut values: Vec<String>) -> String {
    values.sort_by_key(|value| value.parse::<i128>().unwrap_or(i128::MAX));
    format!(
        "# only {} different values; if they are codes, not amounts, write instead:\n\
         # kind = \"categorical\"\n# values = [{}]\n",
        values.len(),
        values.join(", ")
    )
}

fn categorical(field: &Field, seen: &Seen, values: Vec<String>, options: &InferOptions) -> Verdict {
    let guard = options.max_categories;
    if values.len() > guard {
        return too_many(&format!("more than {guard}"), guard);
    }
    let mut entry = entry_head(field.name(), "categorical", seen);
    let boolean = *field.data_type() == DataType::Boolean;
    let list: Vec<String> =
        values.into_iter().map(|value| if boolean { value } else { toml_text(&value) }).collect();
    let _ = writeln!(entry, "values = [{}]", list.join(", "));
    Verdict::Feature(entry)
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
