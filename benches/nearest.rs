//! Searches for neighbours among all training rows of Covertype against going through all rows one by one, in
//! one run; also how much memory the index takes and how long it takes to build.
//!
//! Held fixed: the 464,809 rows of the split `train` in `OVERTURN_DATA` (default `../shared/data`), ten numerics
//! standardised and two categoricals; the first 1,000 rows of `test`, each looking for the ten nearest rows of
//! the class after its own.
//!
//! ```text
//! cargo bench --profile dev --bench nearest
//! ```

mod bar;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::thread;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Float64Type, Schema};
use overturn::nearest::{Index, Measure, NearestQuery, Neighbour, PointColumn, Points};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const QUERIES: usize = 1000;
/// Queries that are also answered by going through all rows: enough for a mean.
const BY_HAND: usize = 50;
const K: usize = 10;
const CLASSES: f64 = 7.0;
const NOT_FEATURES: [&str; 4] = ["row_id", "label", "split", "subset10"];

fn main() {
    let folder = std::env::var("OVERTURN_DATA").map_or("../shared/data".into(), PathBuf::from);
    let file = folder.join("covertype.parquet");
    if !bar::is_measured() || !file.exists() {
        bar::say(&format!("skipped: needs {}", file.display()));
        return;
    }
    let rows = read(&file);
    let (train, test) = (split(&rows, "train"), split(&rows, "test").slice(0, QUERIES));
    let scales = scales(&train);
    let (points, asked) = (points(&train, &scales), points(&test, &scales));
    let queries: Vec<NearestQuery> = (0..QUERIES).map(|row| query(&asked, row)).collect();
    let mut index = None;
    let built = bar::seconds(|| index = Some(Index::new(points.clone())));
    let index = index.expect("built");
    for query in &queries[..BY_HAND] {
        assert!(same(&index.search(query, K), &all(&points, query)), "another answer");
    }
    let rounds = bar::take_turns(&mut [
        &mut || search(&index, &queries, 1),
        &mut || search(&index, &queries, 2),
        &mut || bar::seconds(|| queries[..BY_HAND].iter().for_each(|of| drop(all(&points, of)))),
    ]);
    let [one, two, by_hand] = [0, 1, 2].map(|place| bar::median(&rounds[place]));
    let each = one / QUERIES as f64;
    bar::say(&format!(
        "{} rows: built in {built:.2} s, {:.1} MB; {QUERIES} searches {one:.3} s on one thread, {two:.3} s on \
         two; {:.0} us each, {:.0} times as fast as all rows one by one",
        index.len(),
        index.memory() as f64 / 1e6,
        1e6 * each,
        by_hand / BY_HAND as f64 / each,
    ));
}

/// Seconds for all queries, which the threads share.
fn search(index: &Index, queries: &[NearestQuery], threads: usize) -> f64 {
    bar::seconds(|| {
        thread::scope(|scope| {
            for part in queries.chunks(queries.len().div_ceil(threads)) {
                scope.spawn(|| part.iter().for_each(|query| drop(index.search(query, K))));
            }
        });
    })
}

/// The same answer, up to rows that are equally far.
fn same(found: &[Neighbour], expected: &[f32]) -> bool {
    found.iter().map(|found| found.distance).eq(expected.iter().copied())
}

/// Distances of the nearest rows, by going through all.
fn all(points: &Points, query: &NearestQuery) -> Vec<f32> {
    let mut sums: Vec<f32> = points
        .decisions
        .iter()
        .map(|class| if *class == query.target.0 { 0.0 } else { f32::INFINITY })
        .collect();
    for (measure, column) in query.features.iter().zip(&points.columns) {
        match (measure, column) {
            (Measure::Number { original, scale, .. }, PointColumn::Numbers(numbers)) => {
                let pairs = sums.iter_mut().zip(numbers);
                pairs.for_each(|(sum, number)| *sum += scale * (number - original).abs());
            }
            (Measure::Codes { costs, .. }, PointColumn::Codes(codes)) => {
                let pairs = sums.iter_mut().zip(codes);
                pairs.for_each(|(sum, code)| *sum += costs[usize::from(*code)]);
            }
            _ => unreachable!("features are measured as what they are"),
        }
    }
    sums.select_nth_unstable_by(K, f32::total_cmp);
    let mut nearest = sums[..K].to_vec();
    nearest.sort_unstable_by(f32::total_cmp);
    nearest
}

fn read(file: &PathBuf) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file).expect("readable"));
    let reader = reader.expect("Parquet").build().expect("readable");
    let batches: Vec<RecordBatch> = reader.map(|batch| batch.expect("rows")).collect();
    concat_batches(&batches[0].schema(), &batches).expect("one table")
}

fn split(rows: &RecordBatch, name: &str) -> RecordBatch {
    let splits = cast(rows.column_by_name("split").expect("there"), &DataType::Utf8).expect("text");
    let target = splits.as_string::<i32>().iter().map(|split| Some(split == Some(name))).collect();
    filter_record_batch(rows, &target).expect("filtered")
}

/// Mean and deviation of numerics, codes of categories, by column.
enum Scale {
    Number(f64, f64),
    Codes(BTreeMap<String, u16>),
}

fn is_feature(name: &str) -> bool {
    !NOT_FEATURES.contains(&name)
}

fn scales(rows: &RecordBatch) -> Vec<Scale> {
    let features = features(rows.schema_ref());
    let scale = |place: &usize| match texts(rows, *place) {
        Some(texts) => {
            let mut values: Vec<String> = texts;
            values.sort_unstable();
            values.dedup();
            Scale::Codes(values.into_iter().zip(0..).collect())
        }
        None => {
            let numbers = numbers(rows, *place);
            let count = numbers.len() as f64;
            let mean = numbers.iter().sum::<f64>() / count;
            let variance = numbers.iter().map(|of| (of - mean).powi(2)).sum::<f64>() / count;
            Scale::Number(mean, variance.sqrt())
        }
    };
    features.iter().map(scale).collect()
}

fn features(schema: &Schema) -> Vec<usize> {
    let named = schema.fields().iter().enumerate();
    named.filter(|(_, field)| is_feature(field.name())).map(|(place, _)| place).collect()
}

fn texts(rows: &RecordBatch, place: usize) -> Option<Vec<String>> {
    let column = rows.column(place);
    if column.data_type().is_numeric() {
        return None;
    }
    let texts = cast(column, &DataType::Utf8).expect("text");
    Some(texts.as_string::<i32>().iter().flatten().map(String::from).collect())
}

fn numbers(rows: &RecordBatch, place: usize) -> Vec<f64> {
    let numbers = cast(rows.column(place), &DataType::Float64).expect("numbers");
    numbers.as_primitive::<Float64Type>().values().to_vec()
}

fn points(rows: &RecordBatch, scales: &[Scale]) -> Points {
    let column = |(place, scale): (usize, &Scale)| match scale {
        Scale::Number(mean, std) => PointColumn::Numbers(
            numbers(rows, place).iter().map(|of| ((of - mean) / std) as f32).collect(),
        ),
        Scale::Codes(codes) => {
            let texts = texts(rows, place).expect("text");
            PointColumn::Codes(texts.iter().map(|text| codes[text]).collect())
        }
    };
    let label = rows.schema().index_of("label").expect("there");
    Points {
        len: rows.num_rows(),
        columns: features(rows.schema_ref()).into_iter().zip(scales).map(column).collect(),
        decisions: numbers(rows, label),
        exact: Vec::new(),
    }
}

/// How far rows are from one: means over numerics and over categoricals.
fn query(asked: &Points, row: usize) -> NearestQuery {
    let numerics = asked.columns.iter().filter(|of| matches!(of, PointColumn::Numbers(_))).count();
    let measure = |column: &PointColumn| match column {
        PointColumn::Numbers(numbers) => Measure::Number {
            original: numbers[row],
            scale: 1.0 / numerics as f32,
            low: f32::NEG_INFINITY,
            high: f32::INFINITY,
            outside: f32::INFINITY,
        },
        PointColumn::Codes(codes) => {
            let most = usize::from(codes.iter().copied().max().unwrap_or(0)) + 64;
            let mut costs = vec![1.0 / (asked.columns.len() - numerics) as f32; most];
            costs[usize::from(codes[row])] = 0.0;
            Measure::Codes { costs, other_null: f32::INFINITY, other_unseen: f32::INFINITY }
        }
    };
    let target = (asked.decisions[row] + 1.0) % CLASSES;
    NearestQuery { features: asked.columns.iter().map(measure).collect(), target: (target, target) }
}
