//! The bare cost of explaining a row: the generator's matrix products and the model's two answers, with
//! everything ready and nothing else. `benches/scale.sh` holds whole runs against it.
//!
//! Held fixed: the synthetic credit table (seed 7, 65,536 rows), the demo's forest of 50 trees in ONNX Runtime
//! in a process of its own, on tensors of 8,192 rows that are ready; products of the shapes of the generator in
//! `OVERTURN_GENERATOR`, 1,024 rows at a time as there, one torch thread in each thread.
//!
//! ```text
//! OVERTURN_GENERATOR=out/demo/explained/generator cargo bench --profile dev --bench explain
//! ```
//!
//! The last line is a JSON object: microseconds a row on one thread and on two, all threads together.

mod alone;
mod bar;
mod credit;

use std::path::Path;
use std::thread;

use overturn::artefact::load;
use overturn::nn::{Autoencoder, CHUNK_ROWS};
use serde_json::json;
use tch::{Device, Kind, Tensor, no_grad};

use alone::Alone;
use credit::{Credit, ROWS, project};

/// Answers that the model gives for a row: about the row, and about its counterfactual.
const ANSWERS: f64 = 2.0;

fn main() {
    if alone::onnx::serve() {
        return;
    }
    let Ok(folder) = std::env::var("OVERTURN_GENERATOR") else {
        bar::say("skipped: needs a generator's folder in OVERTURN_GENERATOR");
        return;
    };
    if !bar::is_measured() {
        return;
    }
    let credit = Credit::make();
    let file = project().join("jobs/demo/forest.onnx");
    let mut model = Alone::start(&mut alone::onnx::command(&file, &credit.file()));
    let shapes = shapes(Path::new(&folder));
    let mut found = serde_json::Map::new();
    for threads in [1, 2] {
        let mut own: Vec<Factors> = (0..threads).map(|_| factors(&shapes)).collect();
        let mut products = || pass(&mut own);
        let rounds = bar::take_turns(&mut [&mut products, &mut || model.pass(threads)]);
        let micros = |seconds: &[f64]| 1e6 * bar::median(seconds) / ROWS as f64;
        let (products, answer) = (micros(&rounds[0]), micros(&rounds[1]));
        let bare = products + ANSWERS * answer;
        found.insert(
            format!("threads_{threads}"),
            json!({ "products": products, "answer": answer, "bare": bare }),
        );
    }
    bar::say(&serde_json::Value::Object(found).to_string());
}

/// Widths of the generator's layers, pair by pair: encoder, decoder (of the row and of its counterfactual),
/// actor.
fn shapes(folder: &Path) -> Vec<(i64, i64)> {
    let artefact = load(folder, Device::Cpu).expect("a generator");
    let pairs = |widths: &[i64]| -> Vec<(i64, i64)> {
        widths.windows(2).map(|pair| (pair[0], pair[1])).collect()
    };
    let mut shapes = pairs(&artefact.generator.actor.shape().widths);
    if let Autoencoder::Trained { encoder, decoder } = &artefact.generator.autoencoder {
        shapes.extend(pairs(&encoder.shape().widths));
        shapes.extend(pairs(&decoder.shape().widths));
        shapes.extend(pairs(&decoder.shape().widths));
    }
    shapes
}

/// The factors of a block's products.
type Factors = Vec<(Tensor, Tensor)>;

fn factors(shapes: &[(i64, i64)]) -> Factors {
    let random = |rows, columns| Tensor::randn([rows, columns], (Kind::Float, Device::Cpu));
    let pair =
        |(from, to): &(i64, i64)| (random(CHUNK_ROWS as i64, *from), random(*to, *from).tr());
    shapes.iter().map(pair).collect()
}

/// Seconds for the products of all rows, which the threads share evenly.
fn pass(factors: &mut [Factors]) -> f64 {
    let blocks = ROWS / CHUNK_ROWS / factors.len();
    bar::seconds(|| {
        thread::scope(|scope| {
            for own in factors.iter_mut() {
                scope.spawn(move || {
                    // A new thread starts with all cores.
                    tch::set_num_threads(1);
                    (0..blocks).for_each(|_| multiply(own));
                });
            }
        });
    })
}

fn multiply(factors: &Factors) {
    no_grad(|| factors.iter().for_each(|(left, right)| drop(left.mm(right))));
}
