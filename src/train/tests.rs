//! One whole update against an independent computation (`tests/python/update_step.py`, NumPy, gradients by
//! hand), and the losses on their own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use super::cfrl::Learner;
use super::*;
use crate::constrain::{Constraints, RowBounds};
use crate::encode::Encoder;
use crate::feature::{CategoricalStats, FeatureStats, NumericStats, RowReader, Stats};
use crate::job::{AutoencoderKind, Balance, Method, Preset, TargetsKind, TrainLimits, TrainRows};
use crate::nn::{reconstruction_loss, to_numbers};
use crate::predictor::{Outcome, Scores, Task};

/// Six rows of three numerics and two categoricals of three and two values.
const ROWS: usize = 6;
const TOLERANCE: f64 = 1e-5;

fn oracle() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/update_step.json");
    let text = std::fs::read_to_string(path).expect("the oracle's file");
    serde_json::from_str(&text).expect("JSON")
}

/// All numbers below a value, in order.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().expect("a number")],
    }
}

fn assert_close(found: &Tensor, expected: &Value, what: &str) {
    let found = to_numbers(found).expect("numbers");
    let expected = numbers(expected);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let off = (f64::from(*found) - expected).abs();
        assert!(off < TOLERANCE, "{what}[{place}]: {found} instead of {expected}");
    }
}

fn fill(count: usize, salt: f64) -> Vec<f32> {
    (0..count).map(|place| ((0.7 * place as f64 + salt).sin() * 0.5) as f32).collect()
}

/// Weights of an actor or critic as the oracle fills them: gains lie around one.
fn filled(shape: &crate::nn::Shape, first_salt: f64) -> Vec<f32> {
    let mut values = Vec::new();
    for (place, size) in shape.sizes().iter().enumerate() {
        let count = size.iter().product::<i64>() as usize;
        let part = fill(count, first_salt + place as f64);
        let gain = shape.norm && place % 4 == 2;
        values.extend(part.into_iter().map(|value| if gain { 1.0 + 0.1 * value } else { value }));
    }
    values
}

/// A model that nobody asks.
struct Silent(Task);

impl Predictor for Silent {
    fn task(&self) -> &Task {
        &self.0
    }
    fn parallelism(&self) -> usize {
        1
    }
    fn predict(&self, _: &RecordBatch) -> Result<Scores> {
        Err(Error::internal("test", "nobody should ask"))
    }
}

const SCHEMA: &str = r#"
    [[feature]]
    name = "a"
    kind = "numeric"
    range = [-1.5, 1.5]
    [[feature]]
    name = "b"
    kind = "numeric"
    range = [-2.0, 1.0]
    [[feature]]
    name = "c"
    kind = "numeric"
    range = [-1.0, 2.0]
    [[feature]]
    name = "d"
    kind = "categorical"
    values = ["x", "y", "z"]
    [[feature]]
    name = "e"
    kind = "categorical"
    values = ["u", "v"]
"#;

/// Numerics that are standardised already.
fn stats() -> Stats {
    let numeric = || {
        FeatureStats::Numeric(NumericStats {
            count: ROWS as u64,
            nulls: 0,
            infinite: 0,
            outside: 0,
            min: -2.0,
            max: 2.0,
            mean: 0.0,
            std: 1.0,
            quantiles: vec![0.0; 9],
            multiples: None,
        })
    };
    let categorical = |values: usize| {
        FeatureStats::Categorical(CategoricalStats {
            counts: vec![1; values],
            nulls: 0,
            unseen: 0,
            unseen_values: Default::default(),
        })
    };
    let features = vec![numeric(), numeric(), numeric(), categorical(3), categorical(2)];
    Stats { rows: ROWS as u64, features }
}

fn batch() -> RecordBatch {
    use arrow::array::{ArrayRef, Float64Array, StringArray};
    let numbers = fill(ROWS * 3, 50.0);
    let column = |place: usize| -> ArrayRef {
        let values = numbers.iter().skip(place).step_by(3).map(|value| f64::from(*value) * 2.0);
        Arc::new(Float64Array::from_iter_values(values))
    };
    let texts = |values: &[&str]| -> ArrayRef {
        let values = (0..ROWS).map(|row| values[row % values.len()]);
        Arc::new(StringArray::from_iter_values(values))
    };
    let columns =
        vec![column(0), column(1), column(2), texts(&["x", "y", "z"]), texts(&["u", "v"])];
    let fields = ["a", "b", "c", "d", "e"]
        .iter()
        .zip(&columns)
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), false));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns).expect("a batch")
}

fn train_job() -> TrainJob {
    let second = Duration::from_secs(1);
    TrainJob {
        from: None,
        rows: TrainRows { max_rows: None, validation_rows: 1, test_predicate: None, test_rows: 1 },
        limits: TrainLimits {
            max_steps: 10,
            max_time: second,
            validate_every: 10,
            patience: 1,
            checkpoint_every: second,
        },
        method: Method {
            preset: Preset::Paper,
            batch: Some(ROWS),
            hidden: 5,
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
        hidden: None,
        latent: None,
        steps: 1,
        batch: 1,
        learning_rate: 1e-3,
        min_quality: 0.0,
    }
}

fn sample(schema: &FeatureSchema) -> Sample {
    let originals = batch();
    let labels = (0..ROWS as u32).map(|row| row % 2).collect();
    Sample {
        rows: RowReader::new(schema).read(&originals).expect("read"),
        bounds: RowBounds::none(),
        scores: Scores {
            rows: ROWS,
            outcome: Outcome::Classes { labels, probabilities: None },
            failures: Vec::new(),
        },
        originals,
    }
}

fn frozen_autoencoder() -> Autoencoder {
    let (encoder, decoder) = Autoencoder::shapes(8, &[4], 3);
    let network = |shape: crate::nn::Shape, salt| {
        let values = filled(&shape, salt);
        Network::with_weights(shape, &values, Device::Cpu).expect("weights fit")
    };
    Autoencoder::Trained { encoder: network(encoder, 1.0), decoder: network(decoder, 5.0) }
}

/// Calls `check` with a learner in the oracle's state and its replay buffer filled with the oracle's batch.
fn with_learner(check: impl FnOnce(&mut Learner<'_>, &Value)) {
    let schema = Arc::new(FeatureSchema::parse(SCHEMA, Path::new("f.toml")).expect("a schema"));
    let encoder = Encoder::new(Arc::clone(&schema), &stats());
    let constraints = Constraints::new(
        Arc::clone(&schema),
        &stats(),
        Arc::clone(encoder.layout()),
        &batch().schema(),
    );
    let classes = Arc::from(["no".to_string(), "yes".to_string()]);
    let task = Task::Classification { classes, probabilities: false };
    let (train, autoencoder, stop) = (train_job(), autoencoder_job(), AtomicI32::new(0));
    let setup = Setup {
        train: &train,
        autoencoder: &autoencoder,
        target: None,
        schema: Arc::clone(&schema),
        encoder,
        constraints: Arc::new(constraints),
        predictor: Arc::new(Silent(task)),
        device: Device::Cpu,
        streams: Streams::new(0),
        stop: &stop,
        checkpoints: None,
        listener: &|_| {},
    };
    let sample = sample(&schema);
    let problem = Problem::new(&setup, &sample, ROWS, false).expect("a problem");
    let layout = setup.encoder.layout();
    let places = Places::new(layout, setup.constraints.numeric_ranges(), Device::Cpu);
    let start = Start { autoencoder: frozen_autoencoder(), places, networks: None };
    let mut learner = Learner::new(&setup, &problem, start).expect("a learner");
    let set = |network: &Network, salt| {
        let values = filled(network.shape(), salt);
        network.set(&Tensor::from_slice(&values));
    };
    set(&learner.generator.actor, 11.0);
    set(&learner.critic, 31.0);
    let oracle = oracle();
    let inputs = &oracle["inputs"];
    let tensor = |value: &Value| {
        let values: Vec<f32> = numbers(value).iter().map(|value| *value as f32).collect();
        Tensor::from_slice(&values).view([ROWS as i64, -1])
    };
    let rows = Tensor::arange(ROWS as i64, (Kind::Int64, Device::Cpu));
    let y_t = rows.divide_scalar_mode(2, "floor").remainder(2).one_hot(2).to_kind(Kind::Float);
    let parts =
        [&y_t, &tensor(&inputs["c"]), &tensor(&inputs["z_tilde"]), &tensor(&inputs["reward"])];
    learner.replay.append(&rows, &parts);
    check(&mut learner, &oracle);
}

#[test]
fn one_update_is_what_an_independent_computation_gives() {
    with_learner(|learner, oracle| {
        let losses = learner.descend_on(&[0, 1, 2, 3, 4, 5], Vec::new()).expect("updated");
        let (critic, actor) = (&oracle["critic"], &oracle["actor"]);
        assert_close(&losses.critic, &critic["loss"], "critic loss");
        assert_close(&losses.consistency, &actor["loss"]["consistency"], "consistency");
        let sparsity = actor["loss"]["numeric"].as_f64().expect("a number")
            + actor["loss"]["category"].as_f64().expect("a number");
        assert_close(&losses.sparsity, &Value::from(sparsity), "sparsity");
        assert_close(&losses.actor, &actor["loss"]["total"], "actor loss");
        assert_close(learner.critic.flat(), &critic["parameters_after"], "critic");
        assert_close(learner.generator.actor.flat(), &actor["parameters_after"], "actor");
        // Adam's first moment is a tenth of the gradient, which a first step hides otherwise.
        let gradient = |adam: &crate::nn::Adam| adam.moments.get(0) * 10.0;
        assert_close(&gradient(&learner.adams.critic), &critic["gradients"], "critic's gradient");
        assert_close(&gradient(&learner.adams.actor), &actor["gradients"], "actor's gradient");
    });
}

#[test]
fn the_autoencoder_s_loss_and_gradients_are_what_an_independent_computation_gives() {
    with_learner(|learner, oracle| {
        let x = Tensor::from_slice(
            &numbers(&oracle["inputs"]["x"]).iter().map(|value| *value as f32).collect::<Vec<_>>(),
        )
        .view([ROWS as i64, 8]);
        learner.generator.autoencoder.trainable(true);
        let autoencoder = &learner.generator.autoencoder;
        let decoded = autoencoder.decode(&autoencoder.encode(&x));
        assert_close(&decoded, &oracle["autoencoder"]["decoded"], "decoded");
        let loss = reconstruction_loss(&decoded, &x, &learner.generator.places);
        assert_close(&loss, &oracle["autoencoder"]["loss"]["total"], "reconstruction");
        let Autoencoder::Trained { encoder, decoder } = autoencoder else { panic!("trained") };
        let gradients = Network::gradients(&[encoder, decoder], &loss).expect("gradients");
        let all = Tensor::cat(&gradients, 0);
        assert_close(&all, &oracle["autoencoder"]["gradients"], "gradients");
    });
}

/// SciPy's `binomtest(valid, rows).proportion_ci(0.6827, "wilson").low`, with the level of one standard error.
#[test]
fn assured_validity_is_the_lower_end_of_wilsons_interval() {
    let cases = [
        (111.0, 111, 0.991_071_428_571_428_6),
        (110.0, 111, 0.976_660_734_359_026_7),
        (990.0, 1000, 0.986_327_765_769_815_4),
        (0.0, 10, 0.0),
    ];
    for (valid, rows, expected) in cases {
        let quality = Quality { rows, validity: valid / rows as f64, ..Quality::default() };
        let found = quality.assured_validity();
        assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
    }
}
