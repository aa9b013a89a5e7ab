//! Encoding speed: rows in the table's own types to numbers and back, on one thread.
//!
//! Held fixed: the synthetic credit table (seed 7, no nulls, 65,536 rows), its 9 numeric and 7 categorical
//! features, batches of 8,192 rows, statistics of the table itself. A cell is one feature of one row. Texts
//! come plain, as Parquet gives them, or as dictionaries.
//!
//! ```text
//! cargo bench --profile dev --bench encode
//! ```
//!
//! The last lines compare the speed of a core with the bar it has to meet.

mod bar;
mod credit;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use overturn::encode::{Dense, Encoder};
use overturn::feature::StatsAccumulator;

use credit::{BATCH_ROWS, Credit, ROWS};

/// Cells a second that one core has to encode.
const LEAST_CELLS_PER_SECOND: f64 = 5e6;

/// The same rows as columns of one kind of text, and encoded.
struct Rows {
    texts: &'static str,
    encoder: Encoder,
    batches: Vec<RecordBatch>,
    encoded: Vec<Dense>,
}

fn main() {
    let credit = Credit::make();
    let plain = credit.batches(BATCH_ROWS);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let coded = plain.iter().map(|batch| with_texts(batch, &dictionary)).collect();
    let kinds = [Rows::new("utf8", &credit, plain), Rows::new("dictionary", &credit, coded)];
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .sample_size(50)
        .configure_from_args();
    measure(&mut criterion, &kinds);
    if bar::is_measured() {
        report(&kinds);
    }
}

impl Rows {
    fn new(texts: &'static str, credit: &Credit, batches: Vec<RecordBatch>) -> Rows {
        let mut stats = StatsAccumulator::new(&credit.features);
        batches.iter().for_each(|batch| stats.update(batch).expect("counted"));
        let encoder = Encoder::new(Arc::clone(&credit.features), &stats.finish());
        let encode = |batch| encoder.encode(batch).expect("encoded");
        let encoded = batches.iter().map(encode).collect();
        Rows { texts, encoder, batches, encoded }
    }

    fn encode(&self, batch: usize) -> Dense {
        self.encoder.encode(black_box(&self.batches[batch])).expect("encoded")
    }

    fn decode(&self, batch: usize) -> RecordBatch {
        let (encoded, originals) = (&self.encoded[batch], &self.batches[batch]);
        self.encoder.decode(black_box(encoded), originals).expect("decoded")
    }

    /// The seconds that a pass over all batches takes.
    fn pass<T>(&self, step: fn(&Rows, usize) -> T) -> f64 {
        bar::seconds(|| {
            (0..self.batches.len()).for_each(|batch| drop(black_box(step(self, batch))));
        })
    }

    fn cells(&self) -> usize {
        ROWS * self.batches[0].num_columns()
    }
}

/// The batch with its text columns as another type.
fn with_texts(batch: &RecordBatch, data_type: &DataType) -> RecordBatch {
    let names = batch.schema();
    let columns = names.fields().iter().zip(batch.columns()).map(|(field, column)| {
        let is_text = *column.data_type() == DataType::Utf8;
        let column: ArrayRef =
            if is_text { cast(column, data_type).expect("texts") } else { Arc::clone(column) };
        (field.name(), column)
    });
    RecordBatch::try_from_iter(columns).expect("the same columns")
}

/// The absolute figures, a batch at a time.
fn measure(criterion: &mut Criterion, kinds: &[Rows]) {
    let mut encoding = group(criterion, "encode", kinds);
    for rows in kinds {
        encoding.bench_function(rows.texts, |bencher| bencher.iter(|| rows.encode(0)));
    }
    encoding.finish();
    let mut decoding = group(criterion, "decode", kinds);
    for rows in kinds {
        decoding.bench_function(rows.texts, |bencher| bencher.iter(|| rows.decode(0)));
    }
    decoding.finish();
}

fn group<'c>(
    criterion: &'c mut Criterion,
    name: &str,
    kinds: &[Rows],
) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    let cells = kinds[0].cells() * BATCH_ROWS / ROWS;
    group.throughput(Throughput::Elements(cells as u64));
    group
}

fn report(kinds: &[Rows; 2]) {
    let [plain, coded] = kinds;
    let rounds = bar::take_turns(&mut [
        &mut || plain.pass(Rows::encode),
        &mut || coded.pass(Rows::encode),
        &mut || plain.pass(Rows::decode),
        &mut || coded.pass(Rows::decode),
    ]);
    let names = ["encode, utf8", "encode, dictionary", "decode, utf8", "decode, dictionary"];
    for (name, seconds) in names.iter().zip(rounds) {
        let speed = plain.cells() as f64 / bar::median(&seconds);
        let verdict = bar::verdict(speed / 1e6, LEAST_CELLS_PER_SECOND / 1e6);
        bar::say(&format!("bar: {name} = {:.1} million cells/s a core {verdict}", speed / 1e6));
    }
}
