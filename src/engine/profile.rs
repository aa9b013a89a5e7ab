//! What the columns of a table hold: counts, extremes, steps and, where they are few, all values. The query engine
//! replies from Parquet statistics where it can.

use std::collections::HashSet;
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
use crate::document::{toml_number, toml_text};
use crate::error::{Error, Result};
use crate::feature::{ColumnClass, FeatureSchema, FeatureStats, classify, numbers};

/// Different whole numbers up to which a column may be one of codes.
const FEW_CODES: u64 = 10;

/// Columns that one query looks at. A query's cost grows with the columns of its table too, so that one
/// query for each column would take the square of their number.
const COLUMNS_AT_ONCE: usize = 50;

/// A share of distinct values from which a whole-number column is taken for an identifier.
const IDENTIFIER_SHARE: f64 = 0.95;
/// Rows below which such a share means nothing.
const IDENTIFIER_ROWS: u64 = 100;

/// Which columns are profiled, and whose values are listed.
#[derive(Debug, Clone, Default)]
pub struct ProfileOptions {
    /// Columns that are left out.
    pub ignore: HashSet<String>,
    /// Texts and booleans are listed if they have at most about twice as many different values …
    pub max_categories: usize,
    /// … and those of these columns if they have at most about twice [`MOST_LISTED`] …
    pub list: HashSet<String>,
    /// … as are whole numbers of these columns.
    pub codes: HashSet<String>,
}

/// Different values of a column that is listed on request, at most.
pub const MOST_LISTED: usize = 1000;

/// A column as it was seen.
#[derive(Debug, Clone)]
pub struct ColumnProfile {
    /// Its name.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// What the type can hold; none where no feature can have it.
    pub class: Option<ColumnClass>,
    /// Rows of the table.
    pub rows: u64,
    /// Those that are not null.
    pub values: u64,
    /// About how many different values there are, of texts and whole numbers.
    pub distinct: Option<u64>,
    /// The least and the greatest, as they are written in a schema.
    pub extremes: Option<[String; 2]>,
    /// The step that its numbers have.
    pub step: Option<f64>,
    /// All values in alphabetical order, if they are few.
    pub listed: Option<Vec<String>>,
}

impl ColumnProfile {
    fn unseen(field: &Field) -> ColumnProfile {
        ColumnProfile {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            class: classify(field.data_type()),
            rows: 0,
            values: 0,
            distinct: None,
            extremes: None,
            step: None,
            listed: None,
        }
    }

    /// Whether there is one value only.
    pub fn is_constant(&self) -> bool {
        self.extremes.as_ref().is_none_or(|[min, max]| min == max)
    }

    /// Whether nearly every row has a value of its own.
    pub fn is_nearly_unique(&self) -> bool {
        self.distinct.unwrap_or(0) as f64 / self.values.max(1) as f64 >= IDENTIFIER_SHARE
    }

    /// Whether it is whole numbers of which nearly every row has one of its own.
    pub fn is_identifier(&self) -> bool {
        let integers = self.class == Some(ColumnClass::Integer);
        integers && self.values >= IDENTIFIER_ROWS && self.is_nearly_unique()
    }

    /// Whether its numbers may be codes.
    pub(super) fn is_code(&self) -> bool {
        let few = self.distinct.is_some_and(|distinct| distinct <= FEW_CODES);
        self.class == Some(ColumnClass::Integer) && few && !self.is_constant()
    }

    /// Whether its values are to be listed.
    fn is_listed(&self, options: &ProfileOptions) -> bool {
        let twice = |limit: usize| (limit as u64).saturating_mul(2);
        let few = |limit| self.distinct.is_none_or(|distinct| distinct <= twice(limit));
        let category = matches!(self.class, Some(ColumnClass::Text | ColumnClass::Boolean));
        let code = options.codes.contains(&self.name) && self.class == Some(ColumnClass::Integer);
        let listed = category && options.list.contains(&self.name);
        let most = if listed || code { MOST_LISTED } else { options.max_categories };
        self.extremes.is_some() && (self.is_code() || ((category || code) && few(most)))
    }
}

/// Profiles the columns of a table, in its order.
///
/// # Errors
/// When the table has no rows, or cannot be read.
pub async fn profile(
    engine: &Engine,
    table: &Table,
    options: &ProfileOptions,
) -> Result<Vec<ColumnProfile>> {
    if table.rows == 0 {
        return Err(Error::input(&table.shown, "has no rows to infer a schema from"));
    }
    let mut profiles = Vec::new();
    for fields in table.schema.fields().chunks(COLUMNS_AT_ONCE) {
        let looked_at = fields.iter().filter(|field| !options.ignore.contains(field.name()));
        let fields: Vec<FieldRef> = looked_at.cloned().collect();
        profiles.extend(ColumnView::new(engine, table, &fields)?.profiles(options).await?);
    }
    Ok(profiles)
}

/// Some columns of a table, as a table of their own.
struct ColumnView<'a> {
    engine: &'a Engine,
    table: Table,
    fields: &'a [FieldRef],
}

impl<'a> ColumnView<'a> {
    fn new(engine: &'a Engine, table: &Table, fields: &'a [FieldRef]) -> Result<ColumnView<'a>> {
        let names: HashSet<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let table = engine.open_part("__columns", table, &names)?;
        Ok(ColumnView { engine, table, fields })
    }

    async fn profiles(&self, options: &ProfileOptions) -> Result<Vec<ColumnProfile>> {
        let mut profiles: Vec<ColumnProfile> =
            self.fields.iter().map(|field| ColumnProfile::unseen(field)).collect();
        let usable = (0..profiles.len()).filter(|index| profiles[*index].class.is_some());
        let usable: Vec<usize> = usable.collect();
        self.look(&usable, &mut profiles).await?;
        self.find_steps(&mut profiles).await?;
        let listed = usable.into_iter().filter(|index| profiles[*index].is_listed(options));
        let listed: Vec<usize> = listed.collect();
        let values = self.distinct_values(&listed).await?;
        for (index, values) in listed.into_iter().zip(values) {
            profiles[index].listed = Some(values);
        }
        Ok(profiles)
    }

    /// Counts, extremes and (roughly) how many different values, of these columns.
    async fn look(&self, columns: &[usize], profiles: &mut [ColumnProfile]) -> Result<()> {
        if columns.is_empty() {
            return Ok(());
        }
        let expressions: Vec<String> =
            columns.iter().map(|index| figures(*index, &self.fields[*index])).collect();
        let query = format!(
            "SELECT count(*), {} FROM {}",
            expressions.join(", "),
            quoted(&self.table.name)
        );
        let row = one_batch(self.engine, &self.table, &query).await?;
        let count = |column: usize| row[column].as_primitive::<Int64Type>().value(0) as u64;
        for (position, index) in columns.iter().enumerate() {
            let (profile, first) = (&mut profiles[*index], 1 + position * FIGURES);
            let class = profile.class.unwrap_or(ColumnClass::Text);
            let distinct = &row[first + 1];
            profile.rows = count(0);
            profile.values = count(first);
            profile.distinct =
                (!distinct.is_null(0)).then(|| distinct.as_primitive::<UInt64Type>().value(0));
            let (min, max) = (shown(&row[first + 2], class)?, shown(&row[first + 3], class)?);
            profile.extremes = min.zip(max).map(|(min, max)| [min, max]);
        }
        Ok(())
    }

    /// Finds the steps that numbers have, in one pass over all columns of numbers.
    async fn find_steps(&self, profiles: &mut [ColumnProfile]) -> Result<()> {
        use ColumnClass::{Fraction, Integer, Time};
        let numeric =
            |profile: &&mut ColumnProfile| matches!(profile.class, Some(Integer | Fraction | Time));
        let numeric: Vec<&mut ColumnProfile> = profiles.iter_mut().filter(numeric).collect();
        if numeric.is_empty() {
            return Ok(());
        }
        let columns: Vec<String> = numeric.iter().map(|profile| profile.name.clone()).collect();
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
        for (profile, found) in numeric.into_iter().zip(stats.features) {
            if let FeatureStats::Numeric(found) = found {
                let multiples = found.multiples.filter(|multiples| multiples.observed);
                profile.step = multiples.map(|multiples| multiples.step());
            }
        }
        Ok(())
    }

    /// All values of these columns in alphabetical order; they are known to be few.
    async fn distinct_values(&self, columns: &[usize]) -> Result<Vec<Vec<String>>> {
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let expressions = columns.iter().map(|index| {
            let name = quoted(self.fields[*index].name());
            format!("array_agg(DISTINCT arrow_cast({name}, 'Utf8')) FILTER (WHERE {name} IS NOT NULL) AS v{index}")
        });
        let expressions: Vec<String> = expressions.collect();
        let query = format!("SELECT {} FROM {}", expressions.join(", "), quoted(&self.table.name));
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
        batch.map_err(|error| Error::internal("query engine", "results differ").source(error))?;
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

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
