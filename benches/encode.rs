//! Encoding speed: rows in the table's own types to numbers, and a network's output back to rows that keep
//! to the constraints, on one thread.
//!
//! Held fixed: the synthetic credit table (seed 7, no nulls, 65,536 rows), its 9 numeric and 7 categorical
//! features, batches of 8,192 rows, statistics of the table itself. A cell is one feature of one row. Texts
//! come plain, as Parquet gives them, or as dictionaries. The output is another row's encoding, so that most
//! cells that may change do; `settle` is post-processing alone, `decode` writes columns as well.
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
use overturn::constrain::{Conditions, Constraints, RowBounds};
use overturn::encode::{Dense, Encoder};
use overturn::feature::{self, RowReader, RowWriter, StatsAccumulator};

use bar::Bar;
use credit::{BATCH_ROWS, Credit, ROWS};

/// Cells a second that one core has to encode.
const LEAST_CELLS_PER_SECOND: f64 = 5e6;

/// The same rows as columns of one kind of text, and encoded.
struct Rows {
    texts: &'static str,
    encoder: Encoder,
    constraints: Constraints,
    writer: RowWriter,
    batches: Vec<RecordBatch>,
    rows: Vec<feature::Rows>,
    conditions: Vec<Conditions>,
    outputs: Vec<Dense>,
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
        let stats = stats.finish();
        let encoder = Encoder::new(Arc::clone(&credit.features), &stats);
        let layout = Arc::clone(encoder.layout());
        let schema = batches[0].schema();
        let constraints = Constraints::new(Arc::clone(&credit.features), &stats, layout, &schema);
        let reader = RowReader::new(&credit.features);
        let read = |batch| reader.read(batch).expect("read");
        let rows: Vec<feature::Rows> = batches.iter().map(read).collect();
        let widest = |rows| constraints.widest(rows, &RowBounds::none());
        let conditions = rows.iter().map(widest).collect();
        let outputs = rows.iter().map(|rows| turned(&encoder.encode_rows(rows))).collect();
        let writer = RowWriter::new(&credit.features);
        Rows { texts, encoder, constraints, writer, batches, rows, conditions, outputs }
    }

    fn encode(&self, batch: usize) -> Dense {
        self.encoder.encode(black_box(&self.batches[batch])).expect("encoded")
    }

    fn settle(&self, batch: usize) -> feature::Rows {
        let (output, rows) = (&self.outputs[batch], &self.rows[batch]);
        let conditions = &self.conditions[batch];
        self.constraints.post_process(black_box(output), rows, conditions, &RowBounds::none())
    }

    fn decode(&self, batch: usize) -> RecordBatch {
        let settled = self.settle(batch);
        self.writer.write(&settled, &self.rows[batch], &self.batches[batch]).expect("written")
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

/// The same rows from the last to the first: for each row another one's numbers.
fn turned(encoded: &Dense) -> Dense {
    let rows = (0..encoded.rows).rev().flat_map(|row| encoded.row(row));
    Dense { values: rows.copied().collect(), ..encoded.clone() }
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

/// Something that is done to the first batch.
type Step = fn(&Rows);

/// The absolute figures, a batch at a time.
fn measure(criterion: &mut Criterion, kinds: &[Rows]) {
    let steps: [(&str, Step); 3] = [
        ("encode", |rows| drop(black_box(rows.encode(0)))),
        ("settle", |rows| drop(black_box(rows.settle(0)))),
        ("decode", |rows| drop(black_box(rows.decode(0)))),
    ];
    for (name, step) in steps {
        let mut group = group(criterion, name, kinds);
        for rows in kinds {
            group.bench_function(rows.texts, |bencher| bencher.iter(|| step(rows)));
        }
        group.finish();
    }
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
        &mut || plain.pass(Rows::settle),
        &mut || plain.pass(Rows::decode),
        &mut || coded.pass(Rows::decode),
    ]);
    let names =
        ["encode, utf8", "encode, dictionary", "settle", "decode, utf8", "decode, dictionary"];
    for (name, seconds) in names.iter().zip(rounds) {
        let speed = plain.cells() as f64 / bar::median(&seconds);
        let verdict = bar::verdict(speed / 1e6, Bar::Least(LEAST_CELLS_PER_SECOND / 1e6));
        bar::say(&format!("bar: {name} = {:.1} million cells/s a core {verdict}", speed / 1e6));
    }
}
