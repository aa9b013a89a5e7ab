//! What a training step costs, compared with the bare matrix products in it.
//!
//! Held fixed: 8,192 rows of the synthetic credit table (seed 7, no nulls, 16 features), the default
//! networks (latent 15, hidden 256), and a model that costs nothing, so that the step is measured and not
//! the model.
//!
//! - *Step*: experience, update of critic and actor, everything that `overturn train` does in a step,
//!   taken from the training curve after exploration has ended. Critic, actor and model take turns on threads of
//!   their own, so what counts is CPU seconds; seconds on the clock are told beside them.
//! - *Products*: the matrix products of the same shapes, forward and backward, by libtorch on one thread, on tensors
//!   that are there already.
//!
//! ```text
//! cargo bench --profile dev --bench train_step
//! ```
//!
//! The last lines say whether the step keeps within its multiple of the products. The clock tells how much of the step
//! is done side by side only where two cores are idle.

mod bar;
mod credit;

use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Float64Type;
use overturn::constrain::{Constraints, RowBounds};
use overturn::encode::Encoder;
use overturn::error::Result;
use overturn::feature::{RowReader, StatsAccumulator};
use overturn::job::{
    AutoencoderJob, AutoencoderKind, Balance, Method, Preset, TargetsKind, TrainJob, TrainLimits,
    TrainRows,
};
use overturn::predictor::{Outcome, Predictor, Scores, Task};
use overturn::runtime::{Streams, usage};
use overturn::train::{Event, FitInput, TrainSetup, TrainingRows, fit};
use tch::{Device, Kind, Tensor};

use bar::Bar;
use credit::{BATCH_ROWS, Credit};

/// A few rows to validate on; the rest of a batch is trained on.
const ASIDE: usize = 16;
/// Widths of the default networks.
const LATENT: i64 = 15;
const HIDDEN: i64 = 256;
const AUTOENCODER: i64 = 128;
/// Batch sizes, steps that are measured, and how many times the products' time a step may take.
const BARS: [(usize, usize, f64); 2] = [(128, 300, 1.5), (1024, 60, 1.2)];

fn main() {
    let bench = Bench::new(&Credit::make());
    if !bar::is_measured() {
        bench.seconds_per_step(128, 20);
        return;
    }
    tch::set_num_threads(1);
    let mut lines = Vec::new();
    for (batch, steps, most) in BARS {
        let products = bench.products(batch as i64);
        let mut walls = Vec::new();
        let mut step = || {
            let [wall, cpu] = bench.seconds_per_step(batch, steps);
            walls.push(wall);
            cpu
        };
        let mut bare = || products.iter().map(Products::seconds).sum::<f64>();
        let taken = bar::take_turns(&mut [&mut step, &mut bare]);
        let (step, bare) = (bar::median(&taken[0]), bar::median(&taken[1]));
        let wall = bar::median(&walls);
        lines.push(format!(
            "batch {batch:5}: {:.2} CPU ms a step, {:.2} ms of products, ratio {:.2} {}; {:.2} ms on the clock, \
             {:.0} steps/s",
            1e3 * step,
            1e3 * bare,
            step / bare,
            bar::verdict(step / bare, Bar::Most(most)),
            1e3 * wall,
            1.0 / wall
        ));
    }
    lines.iter().for_each(|line| bar::say(line));
}

/// A model that looks at one column.
struct Cheap {
    task: Task,
    column: usize,
    threshold: f64,
}

impl Predictor for Cheap {
    fn task(&self) -> &Task {
        &self.task
    }

    fn parallelism(&self) -> usize {
        1
    }

    fn predict(&self, batch: &RecordBatch) -> Result<Scores> {
        let values = batch.column(self.column).as_primitive::<Float64Type>().values();
        let labels = values.iter().map(|value| u32::from(*value > self.threshold)).collect();
        let outcome = Outcome::Classes { labels, probabilities: None };
        Ok(Scores { rows: batch.num_rows(), outcome, failures: Vec::new() })
    }
}

struct Bench {
    training_rows: TrainingRows,
    encoder: Encoder,
    constraints: Arc<Constraints>,
    features: Arc<overturn::feature::FeatureSchema>,
    predictor: Arc<Cheap>,
}

impl Bench {
    fn new(credit: &Credit) -> Bench {
        let batches = credit.batches(BATCH_ROWS);
        let originals = concat_batches(&batches[0].schema(), &batches[..1]).expect("one batch");
        let mut stats = StatsAccumulator::new(&credit.features);
        stats.update(&originals).expect("counted");
        let stats = stats.finish();
        let encoder = Encoder::new(Arc::clone(&credit.features), &stats);
        let layout = Arc::clone(encoder.layout());
        let features = Arc::clone(&credit.features);
        let schema = originals.schema();
        let constraints = Constraints::new(Arc::clone(&features), &stats, layout, &schema);
        let column = schema.index_of("loan_amount").expect("a column of the table");
        let classes = Arc::from(["refused".to_string(), "approved".to_string()]);
        let task = Task::Classification { classes, probabilities: false };
        let predictor = Arc::new(Cheap { task, column, threshold: 10_000.0 });
        let training_rows = TrainingRows {
            rows: RowReader::new(&features).read(&originals).expect("read"),
            bounds: RowBounds::none(),
            scores: predictor.predict(&originals).expect("scored"),
            originals,
        };
        Bench { training_rows, encoder, constraints: Arc::new(constraints), features, predictor }
    }

    /// Seconds of a step on the clock and of the CPU, after exploration has ended.
    fn seconds_per_step(&self, batch: usize, steps: usize) -> [f64; 2] {
        let before = 120;
        let (train, autoencoder) = (train_job(batch, before, steps), autoencoder_job());
        let (stop, points) = (AtomicI32::new(0), std::sync::Mutex::new(Vec::new()));
        let listener = |event: Event| {
            if let Event::Point(point) = event {
                let seconds = [point.seconds, usage().cpu_seconds];
                points.lock().expect("one listener").push((point.step, seconds));
            }
        };
        let setup = TrainSetup {
            train: &train,
            autoencoder: &autoencoder,
            target: None,
            schema: Arc::clone(&self.features),
            encoder: self.encoder.clone(),
            constraints: Arc::clone(&self.constraints),
            predictor: Arc::clone(&self.predictor) as Arc<dyn Predictor>,
            device: Device::Cpu,
            streams: Streams::new(1),
            stop: &stop,
            checkpoints: None,
            listener: &listener,
        };
        let input = FitInput {
            training_rows: &self.training_rows,
            train: BATCH_ROWS - ASIDE,
            from: None,
            resume: false,
            learns: false,
        };
        fit(&setup, input).expect("trained");
        let points = points.into_inner().expect("nobody else listens");
        let at = |step: u64| points.iter().find(|point| point.0 >= step).expect("evaluated").1;
        let (first, last) = (at(before as u64), at((before + steps) as u64));
        [0, 1].map(|which| (last[which] - first[which]) / steps as f64)
    }

    /// The matrix products of a step: of all that has the batch's rows, and of the critic's descent, which has
    /// half as many training rows beside them.
    fn products(&self, batch: i64) -> [Products; 2] {
        let width = self.encoder.layout().width as i64;
        let targets = 2 + 2 + self.constraints.width() as i64;
        let actor = [(LATENT + targets, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, LATENT + width)];
        let critic = [(width, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 3)];
        let decoder = [(LATENT, AUTOENCODER), (AUTOENCODER, width)];
        let encoder = [(width, AUTOENCODER), (AUTOENCODER, LATENT)];
        let mut products =
            Products { batch, forward: Vec::new(), rows: Vec::new(), weights: Vec::new() };
        // Experience: μ and dec.
        products.forward.extend(actor.iter().chain(&decoder));
        // The actor's: through the critic and the decoder back to its own weights, and enc once more.
        products.forward.extend(actor.iter().chain(&decoder).chain(&critic).chain(&encoder));
        products.rows.extend(critic.iter().chain(&decoder).chain(&actor[1..]));
        products.weights.extend(&actor);
        let descent = Products {
            batch: batch + batch / 2,
            forward: critic.to_vec(),
            // Its first layer needs no gradient of its input.
            rows: critic[1..].to_vec(),
            weights: critic.to_vec(),
        };
        [products, descent]
    }
}

/// Pairs of widths: a layer's input and output.
struct Products {
    batch: i64,
    forward: Vec<(i64, i64)>,
    /// Gradients of a layer's input.
    rows: Vec<(i64, i64)>,
    /// Gradients of a layer's weights.
    weights: Vec<(i64, i64)>,
}

impl Products {
    /// CPU seconds of all of them.
    fn seconds(&self) -> f64 {
        let random = |rows, columns| Tensor::randn([rows, columns], (Kind::Float, Device::Cpu));
        let pairs = |shapes: &[(i64, i64)], of: &dyn Fn(i64, i64) -> (Tensor, Tensor)| {
            shapes.iter().map(|(from, to)| of(*from, *to)).collect::<Vec<_>>()
        };
        let mut all =
            pairs(&self.forward, &|from, to| (random(self.batch, from), random(to, from).tr()));
        all.extend(pairs(&self.rows, &|from, to| (random(self.batch, to), random(to, from))));
        all.extend(pairs(&self.weights, &|from, to| {
            (random(self.batch, to).tr(), random(self.batch, from))
        }));
        let rounds = (20_000 / self.batch).max(10);
        let before = usage().cpu_seconds;
        for _ in 0..rounds {
            all.iter().for_each(|(left, right)| drop(left.mm(right)));
        }
        (usage().cpu_seconds - before) / rounds as f64
    }
}

fn train_job(batch: usize, before: usize, steps: usize) -> TrainJob {
    let long = Duration::from_secs(3600);
    TrainJob {
        from: None,
        rows: TrainRows {
            max_rows: None,
            validation_rows: ASIDE,
            test_predicate: None,
            test_rows: 1,
        },
        limits: TrainLimits {
            max_steps: before + steps,
            max_time: long,
            validate_every: before.min(steps),
            patience: usize::MAX,
            checkpoint_every: long,
        },
        method: Method {
            preset: Preset::Default,
            batch: Some(batch),
            hidden: HIDDEN as usize,
            learning_rate: 1e-3,
            sparsity: None,
            consistency: None,
            reward: None,
            targets: TargetsKind::Label,
            balance: Balance::None,
        },
    }
}

fn autoencoder_job() -> AutoencoderJob {
    AutoencoderJob {
        kind: AutoencoderKind::Always,
        hidden: Some(vec![AUTOENCODER as usize]),
        latent: Some(LATENT as usize),
        steps: 100,
        batch: 128,
        learning_rate: 1e-3,
        min_quality: -1.0,
    }
}
