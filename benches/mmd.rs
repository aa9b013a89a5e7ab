//! What comparing a million rows with a million costs, and 10,000 with 10,000 over all pairs.
//!
//! Held fixed: rows of width 60, ten encoders, 256 frequencies. Rows are made on the fly in batches of
//! 8,192, as a scan delivers them; making them is told apart.
//!
//! ```text
//! cargo bench --profile dev --bench mmd
//! ```
//!
//! The last lines say how long both took, whether that is within the bar, and how much memory was held
//! at most, before and after.

#[allow(dead_code, reason = "nothing takes turns here")]
mod bar;

use std::fs;
use std::hint::black_box;
use std::sync::Arc;

use overturn::metrics::Sketch;
use overturn::metrics::mmd::{
    Estimate, MmdOptions, RandomEncoder, Reference, ReferenceBuilder, Space,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use bar::Bar;

/// Numbers of a row: the encoded Adult table has 57.
const WIDTH: usize = 60;
const ENCODERS: usize = 10;
/// Rows of a batch.
const BATCH: usize = 8_192;
/// Rows that are streamed, and rows of which all pairs are gone through.
const STREAMED: usize = 1_000_000;
const PAIRED: usize = 10_000;
/// Most seconds for either.
const MOST_STREAMED: f64 = 60.0;
const MOST_PAIRED: f64 = 5.0;
/// Clock ticks of a second in /proc.
const TICKS: f64 = 100.0;
/// Numbers given to a sketch.
const SKETCHED: usize = 20_000_000;
/// Most nanoseconds for each.
const MOST_SKETCHED: f64 = 15.0;

fn main() {
    if !bar::is_measured() {
        black_box(compare(BATCH));
        return;
    }
    let making = bar::seconds(|| {
        let mut maker = Maker::new(1);
        (0..2 * STREAMED / BATCH).for_each(|_| drop(black_box(maker.rows(BATCH, 0.0))));
    });
    bar::say(&format!("making 2 x {STREAMED} rows: {making:.1} s of one core"));
    // Held by the pool and a first comparison, whatever the number of rows.
    black_box(compare(4 * BATCH));
    measure(STREAMED, MOST_STREAMED);
    measure(PAIRED, MOST_PAIRED);
    sketch();
}

fn measure(rows: usize, most: f64) {
    let (memory, cpu) = (peak_memory(), cpu_seconds());
    let mut found = None;
    let seconds = bar::seconds(|| found = Some(compare(rows)));
    let cpu = cpu_seconds() - cpu;
    let found = found.expect("compared");
    bar::say(&format!(
        "{rows} x {rows} rows, {:?}: {seconds:.1} s {}, {cpu:.1} s of processor, at most {memory} \
         before and {} after; MMD² {:.5} ± {:.5}",
        found.estimator,
        bar::verdict(seconds, Bar::Most(most)),
        peak_memory(),
        found.mmd2,
        found.error
    ));
}

/// Streams a reference and a sample of so many rows each.
fn compare(rows: usize) -> Estimate {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let encoders = (0..ENCODERS).map(|_| RandomEncoder::draw(WIDTH, &mut random)).collect();
    let options = MmdOptions::default();
    let mut builder = ReferenceBuilder::new(Arc::new(Space::Encoders(encoders)), options)
        .expect("space and options make sense");
    let mut maker = Maker::new(1);
    batches(rows).for_each(|batch| builder.add(&maker.rows(batch, 0.0)).expect("whole rows"));
    let reference: Reference = builder.finish().expect("rows enough");
    let mut sample = reference.sample();
    batches(rows).for_each(|batch| sample.add(&maker.rows(batch, 0.1)));
    reference.estimate(&sample).expect("rows enough")
}

fn batches(rows: usize) -> impl Iterator<Item = usize> {
    (0..rows).step_by(BATCH).map(move |start| BATCH.min(rows - start))
}

/// Makes rows, as cheaply as random numbers can be had.
struct Maker {
    random: ChaCha8Rng,
}

impl Maker {
    fn new(seed: u64) -> Maker {
        Maker { random: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Rows uniform within ±√3 around a centre: standard deviation one.
    fn rows(&mut self, count: usize, centre: f32) -> Vec<f32> {
        let scale = 12f32.sqrt() / 2f32.powi(32);
        let number = |_| (self.random.next_u32() as f32 - 2f32.powi(31)) * scale + centre;
        (0..count * WIDTH).map(number).collect()
    }
}

fn sketch() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let numbers: Vec<f64> = (0..4096).map(|_| f64::from(random.next_u32()) / 1e6).collect();
    let mut sketch = Sketch::new();
    let seconds = bar::seconds(|| {
        for _ in 0..SKETCHED / numbers.len() {
            numbers.iter().for_each(|number| sketch.add(*number));
        }
    });
    let each = 1e9 * seconds / black_box(&sketch).count() as f64;
    let verdict = bar::verdict(each, Bar::Most(MOST_SKETCHED));
    bar::say(&format!("a number into a sketch: {each:.1} ns {verdict}"));
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time are the twelfth and thirteenth after the name, which may hold blanks.
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|number| number.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Most memory that the process ever held, as the system tells it.
fn peak_memory() -> String {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_string(), |line| line.trim().to_string())
}
