//! Whether the key identifies a row: no duplicates, no nulls.
//!
//! Keys are hashed to 64 bits and the hashes sorted: eight bytes a row, in several passes over the key
//! columns where that would exceed the memory limit. Hashes that occur twice are candidates, and a query
//! over just those rows decides, so a collision of hashes cannot accuse an innocent key.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::StreamExt;
use hashbrown::{HashMap, HashSet};
use rayon::prelude::*;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

use super::scan::{BatchStream, ScanPlan};
use super::session::Engine;
use super::table::Table;
use crate::error::{Error, Result};

/// Examples shown of a fault.
const EXAMPLES: usize = 3;
/// Parts of the memory limit of which hashes may take one.
const MEMORY_PARTS: u64 = 4;

/// What is wrong with a key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct KeyFaults {
    /// Rows in scope.
    pub rows: u64,
    /// Rows whose key is null, in whole or in part.
    pub nulls: u64,
    /// Keys that occur more than once.
    pub duplicates: u64,
    /// Some of them, as text.
    pub examples: Vec<String>,
}

/// Reads the key columns of the rows in scope.
pub async fn check_keys(
    engine: &Engine,
    table: &Table,
    key: &[String],
    predicate: Option<(&str, &str)>,
) -> Result<KeyFaults> {
    let plan = ScanPlan { table, predicate, columns: key, scores: None };
    let budget = engine.options.memory_bytes / MEMORY_PARTS / 8;
    let passes = table.rows.div_ceil(budget.max(1)).max(1);
    let mut faults = KeyFaults::default();
    for pass in 0..passes {
        let found = hash_pass(engine, plan, pass, passes).await?;
        if pass == 0 {
            (faults.rows, faults.nulls) = (found.rows, found.nulls);
        }
        let candidates = repeated(found.hashes);
        if !candidates.is_empty() {
            confirm(engine, plan, candidates, &mut faults).await?;
        }
    }
    Ok(faults)
}

#[derive(Default)]
struct Hashes {
    rows: u64,
    nulls: u64,
    hashes: Vec<u64>,
}

/// Hashes of one slice of all hash values.
async fn hash_pass(engine: &Engine, plan: ScanPlan<'_>, pass: u64, passes: u64) -> Result<Hashes> {
    let mut tasks = JoinSet::new();
    for stream in engine.scan(plan).await?.streams()? {
        tasks.spawn(hash_stream(stream, pass, passes));
    }
    let mut total = Hashes::default();
    while let Some(part) = tasks.join_next().await {
        let part = part.map_err(|error| Error::internal("keys", error.to_string()))??;
        total.rows += part.rows;
        total.nulls += part.nulls;
        total.hashes.extend(part.hashes);
    }
    Ok(total)
}

async fn hash_stream(mut stream: BatchStream, pass: u64, passes: u64) -> Result<Hashes> {
    let mut found = Hashes::default();
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        found.rows += batch.num_rows() as u64;
        found.nulls += null_rows(&batch);
        let hashes = hash_rows(&batch)?;
        found.hashes.extend(hashes.into_iter().filter(|hash| hash % passes == pass));
    }
    Ok(found)
}

fn null_rows(batch: &RecordBatch) -> u64 {
    if batch.columns().iter().all(|column| column.null_count() == 0) {
        return 0;
    }
    let null = |row: &usize| batch.columns().iter().any(|column| column.is_null(*row));
    (0..batch.num_rows()).filter(null).count() as u64
}

fn hash_rows(batch: &RecordBatch) -> Result<Vec<u64>> {
    let fields = batch.columns().iter().map(|column| SortField::new(column.data_type().clone()));
    let rows = RowConverter::new(fields.collect())
        .and_then(|converter| converter.convert_columns(batch.columns()))
        .map_err(|error| {
            Error::input("input.key", "has a type that cannot be compared").source(error)
        })?;
    Ok(rows.iter().map(|row| xxh3_64(row.as_ref())).collect())
}

fn repeated(mut hashes: Vec<u64>) -> HashSet<u64> {
    hashes.par_sort_unstable();
    hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
}

/// Counts the keys behind repeated hashes one by one.
async fn confirm(
    engine: &Engine,
    plan: ScanPlan<'_>,
    candidates: HashSet<u64>,
    faults: &mut KeyFaults,
) -> Result<()> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    let mut stream = engine.scan(plan).await?.stream()?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let hashes = hash_rows(&batch)?;
        let suspects = hashes.iter().enumerate().filter(|(_, hash)| candidates.contains(*hash));
        for (row, _) in suspects {
            *counts.entry(key_text(&batch, row)?).or_default() += 1;
        }
    }
    let mut duplicates: Vec<String> =
        counts.into_iter().filter(|(_, count)| *count > 1).map(|(key, _)| key).collect();
    duplicates.sort_unstable();
    faults.duplicates += duplicates.len() as u64;
    faults.examples.extend(duplicates);
    faults.examples.truncate(EXAMPLES);
    Ok(())
}

pub(super) fn key_text(batch: &RecordBatch, row: usize) -> Result<String> {
    let options = FormatOptions::default().with_null("null");
    let texts = batch.columns().iter().map(|column| {
        let text = ArrayFormatter::try_new(column.as_ref(), &options);
        text.map(|formatter| formatter.value(row).to_string())
    });
    let texts = texts.collect::<Result<Vec<_>, _>>();
    let texts = texts.map_err(|error| Error::internal("keys", "have no text").source(error))?;
    Ok(texts.join(", "))
}

/// A row of some columns, as text; no text is a null.
pub type Texts = Vec<Option<String>>;

/// The different rows of some columns, in scope, as text. One more than `most` at the most: that is enough to know
/// that there are too many.
pub async fn distinct_values(
    engine: &Engine,
    table: &Table,
    (columns, predicate): (&[String], Option<(&str, &str)>),
    most: usize,
) -> Result<Vec<Texts>> {
    let plan = ScanPlan { table, predicate, columns, scores: None };
    let mut tasks = JoinSet::new();
    for stream in engine.scan(plan).await?.streams()? {
        tasks.spawn(distinct_in(stream, most));
    }
    let mut total: HashMap<u64, Texts> = HashMap::new();
    while let Some(part) = tasks.join_next().await {
        total.extend(part.map_err(|error| Error::internal("keys", error.to_string()))??);
    }
    let mut values: Vec<Texts> = total.into_values().collect();
    values.sort_unstable();
    values.truncate(most + 1);
    Ok(values)
}

async fn distinct_in(mut stream: BatchStream, most: usize) -> Result<HashMap<u64, Texts>> {
    let mut found: HashMap<u64, Texts> = HashMap::new();
    while found.len() <= most
        && let Some(batch) = stream.next().await
    {
        let batch = batch?;
        for (row, hash) in hash_rows(&batch)?.into_iter().enumerate() {
            if found.len() <= most && !found.contains_key(&hash) {
                found.insert(hash, texts(&batch, row)?);
            }
        }
    }
    Ok(found)
}

/// A row as the texts that folders are named after.
fn texts(batch: &RecordBatch, row: usize) -> Result<Texts> {
    let text = |(index, column): (usize, &arrow::array::ArrayRef)| {
        let text = cast(&column.slice(row, 1), &DataType::Utf8).map_err(|error| {
            let name = batch.schema().field(index).name().clone();
            let problem = format!("names `{name}`, whose values have no text");
            Error::spec("output.partition_by", problem).source(error)
        })?;
        Ok(text.is_valid(0).then(|| text.as_string::<i32>().value(0).to_string()))
    };
    batch.columns().iter().enumerate().map(text).collect()
}
