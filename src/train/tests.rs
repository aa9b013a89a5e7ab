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

use super::device::DeviceEngine;
use super::engine::{ActorBatch, Draw, Factors, Losses, ReplayState, Snapshot, TrainingEngine};
use super::host::HostEngine;
use super::*;
use crate::constrain::{Constraints, RowBounds};
use crate::encode::Encoder;
use crate::feature::{CategoricalStats, FeatureStats, NumericStats, RowReader, Stats};
use crate::job::{AutoencoderKind, Balance, Method, Preset, TargetsKind, TrainLimits, TrainRows};
use crate::nn::host::HostAutoencoderFit;
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
    for (slot, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let off = (f64::from(*found) - expected).abs();
        assert!(off < TOLERANCE, "{what}[{slot}]: {found} instead of {expected}");
    }
}

fn fill(count: usize, salt: f64) -> Vec<f32> {
    (0..count).map(|slot| ((0.7 * slot as f64 + salt).sin() * 0.5) as f32).collect()
}

/// Weights of an actor or critic as the oracle fills them: gains lie around one.
fn filled(shape: &crate::nn::Shape, first_salt: f64) -> Vec<f32> {
    let mut values = Vec::new();
    for (slot, size) in shape.sizes().iter().enumerate() {
        let count = size.iter().product::<i64>() as usize;
        let part = fill(count, first_salt + slot as f64);
        let gain = shape.norm && slot % 4 == 2;
        values.extend(part.into_iter().map(|value| if gain { 1.0 + 0.1 * value } else { value }));
    }
    values
}

/// A model that nobody asks.
struct UnaskedModel(Task);

impl Predictor for UnaskedModel {
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
    let column = |slot: usize| -> ArrayRef {
        let values = numbers.iter().skip(slot).step_by(3).map(|value| f64::from(*value) * 2.0);
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

fn training_rows(schema: &FeatureSchema) -> TrainingRows {
    let originals = batch();
    let labels = (0..ROWS as u32).map(|row| row % 2).collect();
    TrainingRows {
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

/// What a learner's networks start from, in the oracle's shapes.
struct Case {
    preset: Preset,
    /// Whether the model gives classes, or a value.
    classes: bool,
    /// Whether there is an autoencoder.
    trained: bool,
    targets: TargetsKind,
    /// Whether rules hold between features.
    rules: bool,
}

const PAPER: Case = Case {
    preset: Preset::Paper,
    classes: true,
    trained: true,
    targets: TargetsKind::Label,
    rules: false,
};

/// Rules that some of what untrained networks propose breaks.
const RULES: &str = r#"
    [[rule]]
    check = "a <= b"
    [[rule]]
    check = "d <> 'y' OR e = 'v'"
    [[rule]]
    check = "d <> 'x' OR e = 'u'"
"#;

/// Calls `check` with a setup and a problem of the oracle's six rows.
fn with_problem(case: &Case, check: impl FnOnce(&TrainSetup<'_>, &Problem<'_>)) {
    let text = if case.rules { SCHEMA.to_string() + RULES } else { SCHEMA.to_string() };
    let schema = Arc::new(FeatureSchema::parse(&text, Path::new("f.toml")).expect("a schema"));
    let encoder = Encoder::new(Arc::clone(&schema), &stats());
    let constraints = Constraints::new(
        Arc::clone(&schema),
        &stats(),
        Arc::clone(encoder.layout()),
        &batch().schema(),
    );
    let classes = Arc::from(["no".to_string(), "yes".to_string()]);
    let task = match case.classes {
        true => Task::Classification { classes, probabilities: true },
        false => Task::Regression,
    };
    let (mut train, autoencoder, stop) = (train_job(), autoencoder_job(), AtomicI32::new(0));
    (train.method.preset, train.method.targets) = (case.preset, case.targets);
    let setup = TrainSetup {
        train: &train,
        autoencoder: &autoencoder,
        target: None,
        schema: Arc::clone(&schema),
        encoder,
        constraints: Arc::new(constraints),
        predictor: Arc::new(UnaskedModel(task)),
        device: Device::Cpu,
        streams: Streams::new(0),
        stop: &stop,
        checkpoints: None,
        listener: &|_| {},
    };
    let mut training_rows = training_rows(&schema);
    if let Outcome::Classes { probabilities, .. } = &mut training_rows.scores.outcome {
        *probabilities = Some((0..2 * ROWS).map(|index| [0.3, 0.7][index % 2]).collect());
    }
    if !case.classes {
        let values = (0..ROWS).map(|row| row as f64).collect();
        training_rows.scores.outcome = Outcome::Values(values);
    }
    check(&setup, &Problem::new(&setup, &training_rows, ROWS, false).expect("a problem"));
}

/// Networks of the case's shape in the oracle's state, in memory or as tensors.
fn engine<'a>(
    case: &Case,
    (setup, problem): (&'a TrainSetup<'a>, &'a Problem<'a>),
    plain: bool,
) -> Box<dyn TrainingEngine + 'a> {
    let layout = setup.encoder.layout();
    let tensor_layout = TensorLayout::new(layout, setup.constraints.numeric_ranges(), Device::Cpu);
    let autoencoder = match case.trained {
        true => frozen_autoencoder(),
        false => Autoencoder::Projection { width: layout.width as i64 },
    };
    let start = Start { autoencoder, tensor_layout, networks: None };
    let input = start::engine_input(setup, problem, start).expect("networks");
    let set = |network: &Network, salt| {
        let values = filled(network.shape(), salt);
        network.set(&Tensor::from_slice(&values));
    };
    set(&input.generator.actor, 11.0);
    set(&input.critic, 31.0);
    if plain {
        Box::new(HostEngine::new(input).expect("an engine"))
    } else {
        Box::new(DeviceEngine::new(input).expect("an engine"))
    }
}

fn oracle_tensor(oracle: &Value, name: &str) -> Tensor {
    let values: Vec<f32> =
        numbers(&oracle["inputs"][name]).iter().map(|value| *value as f32).collect();
    Tensor::from_slice(&values).view([ROWS as i64, -1])
}

/// One update on the oracle's batch of experiences, and on further parts of it where more is kept.
fn update(engine: &mut dyn TrainingEngine, parts: &[Tensor], action: usize) -> Losses {
    let rows = Tensor::arange(ROWS as i64, (Kind::Int64, Device::Cpu));
    let records = Tensor::cat(parts, 1);
    engine.restore_replay(&ReplayState { rows, records, next: ROWS as i64 }).expect("restored");
    let indexes = (0..ROWS as i64).collect();
    let draw = Draw { indexes, examples: vec![4, 1, 2] };
    let actor_batch = ActorBatch {
        rows: (0..ROWS as u32).collect(),
        y_t: to_numbers(&parts[0]).expect("numbers"),
        c: to_numbers(&parts[1]).expect("numbers"),
        noise: vec![0.0; ROWS * action],
        explores: false,
    };
    let losses = engine.step(&actor_batch, Some((&draw, FACTORS)), &mut |_| Ok(()));
    losses.expect("a step").expect("an update")
}

const FACTORS: Factors = Factors { rate: 1e-3, sparsity: 0.5, consistency: 0.5, averaging: 1.0 };

fn oracle_parts(oracle: &Value) -> Vec<Tensor> {
    let rows = Tensor::arange(ROWS as i64, (Kind::Int64, Device::Cpu));
    let y_t = rows.divide_scalar_mode(2, "floor").remainder(2).one_hot(2).to_kind(Kind::Float);
    let part = |name| oracle_tensor(oracle, name);
    vec![y_t, part("c"), part("z_tilde"), part("reward")]
}

#[test]
fn one_update_is_what_an_independent_computation_gives() {
    let oracle = oracle();
    for plain in [true, false] {
        with_problem(&PAPER, |setup, problem| {
            let mut engine = engine(&PAPER, (setup, problem), plain);
            let losses = update(engine.as_mut(), &oracle_parts(&oracle), 3);
            let (critic, actor) = (&oracle["critic"], &oracle["actor"]);
            assert_close(&losses.critic, &critic["loss"], "critic loss");
            assert_close(&losses.consistency, &actor["loss"]["consistency"], "consistency");
            let sparsity = actor["loss"]["numeric"].as_f64().expect("a number")
                + actor["loss"]["category"].as_f64().expect("a number");
            assert_close(&losses.sparsity, &Value::from(sparsity), "sparsity");
            assert_close(&losses.actor, &actor["loss"]["total"], "actor loss");
            let Snapshot { networks, moments, .. } = engine.snapshot().expect("a snapshot");
            assert_close(&networks[1], &critic["parameters_after"], "critic");
            assert_close(&networks[0], &actor["parameters_after"], "actor");
            // Adam's first moment is a tenth of the gradient, which a first step hides otherwise.
            let gradient = |moments: &Tensor| moments.get(0) * 10.0;
            assert_close(&gradient(&moments[1]), &critic["gradients"], "critic's gradient");
            assert_close(&gradient(&moments[0]), &actor["gradients"], "actor's gradient");
        });
    }
}

/// Gradients written out by hand against libtorch's, for every form of actor and critic.
#[test]
fn learning_in_plain_memory_is_learning_with_tensors() {
    let oracle = oracle();
    for (classes, targets) in
        [(true, TargetsKind::Label), (true, TargetsKind::Distribution), (false, TargetsKind::Label)]
    {
        for trained in [true, false] {
            for preset in [Preset::Default, Preset::Paper] {
                let case = Case { preset, classes, trained, targets, rules: false };
                let name = format!("{preset:?}, {classes}, {targets:?}, {trained}");
                println!("{name}");
                let same = |case: &Case| {
                    let mut losses = Vec::new();
                    with_problem(case, |setup, problem| {
                        losses = assert_same(case, (setup, problem), &oracle);
                    });
                    losses
                };
                // The paper's actor knows no rules.
                let (without, with) = (same(&case), same(&Case { rules: true, ..case }));
                assert_eq!(without != with, preset == Preset::Default, "rules are repaired");
            }
        }
    }
}

/// Gives the losses.
fn assert_same<'a>(
    case: &Case,
    of: (&'a TrainSetup<'a>, &'a Problem<'a>),
    oracle: &Value,
) -> Vec<f32> {
    let results = [true, false].map(|plain| {
        let mut engine = engine(case, of, plain);
        let (parts, action) = parts_of(case, of, oracle);
        let losses = update(engine.as_mut(), &parts, action);
        let Snapshot { networks, moments, average, .. } = engine.snapshot().expect("a snapshot");
        let [actor, critic] = networks;
        let of = |moments: &Tensor| moments.get(0) * 10.0;
        let gradients = [of(&moments[0]), of(&moments[1])];
        let Losses { critic: a, actor: b, sparsity: c, consistency: d } = losses;
        let losses = Tensor::stack(&[a, b, c, d], 0);
        let [of_actor, of_critic] = gradients;
        [losses, of_critic, of_actor, critic, actor, average]
    });
    let names = ["losses", "critic's gradient", "actor's gradient", "critic", "actor", "average"];
    for ((found, expected), name) in results[0].iter().zip(&results[1]).zip(names) {
        let far = (found - expected).abs().max().double_value(&[]);
        let size = expected.abs().max().double_value(&[]);
        assert!(far < 2e-5 * (1.0 + size), "{name} differ by {far}, of {size}");
        assert!(name != "actor's gradient" || size > 1e-4, "nothing flows back");
    }
    to_numbers(&results[0][0]).expect("numbers")
}

/// Experiences of the case's widths: y_T, c, z̃, x̃ and the outcome, as far as they are kept; and the width of actions.
fn parts_of(
    case: &Case,
    (setup, problem): (&TrainSetup<'_>, &Problem<'_>),
    oracle: &Value,
) -> (Vec<Tensor>, usize) {
    let matrix = |width: usize, salt: f64| {
        Tensor::from_slice(&fill(ROWS * width, salt)).view([ROWS as i64, width as i64])
    };
    let shares = |width: usize| matrix(width, 3.0).softmax(-1, Kind::Float);
    let relative = case.preset == Preset::Default;
    let predicts_outcomes = relative && case.classes && case.targets == TargetsKind::Label;
    let width = setup.encoder.layout().width;
    let latent = if case.trained { 3 } else { width };
    let direct = match relative {
        true if predicts_outcomes && case.trained => width,
        true => 3,
        false => 0,
    };
    let mut parts = vec![shares(problem.codec.target_width()), oracle_tensor(oracle, "c")];
    if !predicts_outcomes {
        parts.push(matrix(latent + direct, 4.0) * 1.5);
    }
    if relative {
        parts.push(oracle_tensor(oracle, "x") * 0.9);
    }
    parts.push(if predicts_outcomes { shares(3) } else { oracle_tensor(oracle, "reward") });
    (parts, latent + direct)
}

#[test]
fn the_autoencoder_s_loss_and_gradients_are_what_an_independent_computation_gives() {
    let oracle = oracle();
    with_problem(&PAPER, |setup, _| {
        let x = oracle_tensor(&oracle, "x");
        let mut autoencoder = frozen_autoencoder();
        autoencoder.trainable(true);
        let decoded = autoencoder.decode(&autoencoder.encode(&x));
        assert_close(&decoded, &oracle["autoencoder"]["decoded"], "decoded");
        let ranges = setup.constraints.numeric_ranges();
        let tensor_layout = TensorLayout::new(setup.encoder.layout(), ranges, Device::Cpu);
        let loss = reconstruction_loss(&decoded, &x, &tensor_layout);
        assert_close(&loss, &oracle["autoencoder"]["loss"]["total"], "reconstruction");
        let Autoencoder::Trained { encoder, decoder } = &autoencoder else { panic!("trained") };
        let gradients = Network::gradients(&[encoder, decoder], &loss).expect("gradients");
        let all = Tensor::cat(&gradients, 0);
        assert_close(&all, &oracle["autoencoder"]["gradients"], "gradients");
        // The same in plain memory.
        let mut host = HostAutoencoderFit::new(&autoencoder, (setup.encoder.layout(), ranges))
            .expect("networks");
        let (loss, gradients) = host.gradients(&to_numbers(&x).expect("numbers"));
        let total = &oracle["autoencoder"]["loss"]["total"];
        assert_close(&Tensor::from(loss), total, "reconstruction");
        let all = Tensor::from_slice(&gradients.concat());
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
