//! Against ONNX Runtime, on the models that `tests/python/make_models.py FOLDER native` makes.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::DataType;
use ort::session::RunOptions;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::super::OnnxPredictor;
use super::super::tests::{Case, MIXED, NUMBERS, by_column, case, columns, frame, make, read};
use super::{Native, Trials, Wildness, difference};
use crate::feature::{Cell, Edit, FeatureKind, RowReader, RowWriter};
use crate::job::{EngineSpec, OnnxInputs, ProbabilitiesSpec};
use crate::predictor::onnx::outputs::Given;
use crate::predictor::{Predictor, Reach, Responses, Scores, Values, Variant};

/// What libraries export, on a matrix of numbers.
const EXPORTS: [&str; 29] = [
    "n_forest",
    "n_forest_two",
    "n_extra",
    "n_tree",
    "n_gradient",
    "n_gradient_grades",
    "n_histogram",
    "n_histogram_grades",
    "n_forest_worth",
    "n_extra_worth",
    "n_tree_worth",
    "n_gradient_worth",
    "n_histogram_worth",
    "n_forest_double",
    "n_deep",
    "n_logistic",
    "n_logistic_two",
    "n_linear_worth",
    "n_xgboost",
    "n_xgboost_grades",
    "n_xgboost_worth",
    "n_lightgbm",
    "n_lightgbm_grades",
    "n_lightgbm_worth",
    "n_catboost",
    "n_catboost_grades",
    "n_catboost_worth",
    "h_mode_mixed_1",
    "h_newer_0_1_0",
];
/// Pipelines with an input for each column.
const PIPELINES: [&str; 7] =
    ["n_hot", "n_ordinal", "n_robust", "n_normal", "n_hot_logistic", "n_strict", "n_bins"];

/// The folder with the models, made once; `None` without the Python environment.
fn models() -> Option<&'static Path> {
    static MODELS: OnceLock<Option<TempDir>> = OnceLock::new();
    MODELS.get_or_init(|| make(&["native"])).as_ref().map(TempDir::path)
}

/// A model by both engines, and rows of its columns.
struct EnginePair {
    name: String,
    batch: RecordBatch,
    native: OnnxPredictor,
    runtime: OnnxPredictor,
}

impl EnginePair {
    fn open(folder: &Path, name: &str) -> EnginePair {
        let matrix = !PIPELINES.contains(&name);
        let batch = frame(folder, if matrix { &NUMBERS } else { &MIXED });
        let described = || case(folder, name, if matrix { OnnxInputs::Raw } else { by_column() });
        // Scores of made-up models are no distributions.
        let made_up = |case: Case| match name.starts_with("h_") {
            true => case.probabilities(ProbabilitiesSpec::None),
            false => case,
        };
        let described = match made_up(described()).open_with(EngineSpec::OnnxRuntime, &batch) {
            Ok(_) => made_up(described()),
            Err(_) => described().regression(),
        };
        let [native, runtime] = [EngineSpec::Auto, EngineSpec::OnnxRuntime].map(|engine| {
            described.open_with(engine, &batch).unwrap_or_else(|error| panic!("{name}: {error}"))
        });
        assert!(runtime.native.is_none());
        EnginePair { name: name.to_string(), batch, native, runtime }
    }

    fn native(&self) -> &Native {
        let native = self.native.native.as_ref().and_then(|native| native.peek());
        native.unwrap_or_else(|| panic!("{} is not scored here", self.name))
    }

    /// Rows on both sides of the thresholds; wild ones also have nulls and unseen categories.
    fn rows(&self, count: usize, wildness: Wildness) -> RecordBatch {
        let columns = columns(&self.batch);
        let mut trials = Trials::new(self.native(), &self.native.model.inputs, &columns);
        trials.batch(count, wildness).expect("columns that can be made up")
    }

    /// The scores of both, before anything is checked about them.
    fn raw(&self, batch: &RecordBatch) -> Option<(Vec<f64>, Vec<f64>)> {
        let model = &self.native.model;
        let scores = model.outputs.names().0?;
        let pool = self.runtime.sessions.pool().expect("sessions");
        let mut lease = pool.lease(1);
        let options = RunOptions::new().expect("options");
        let (theirs, _) = model.inputs.run(&mut lease[0], batch, &options).expect("scores");
        let (ours, _) = self.native().score(&model.inputs, batch).expect("scores");
        let numbers =
            |given: &dyn Given| given.numbers(scores).map(|found| found.expect("numbers"));
        numbers(&ours).zip(numbers(&theirs))
    }

    /// Holds the scores, and what becomes of them, against each other.
    fn compare(&self, batch: &RecordBatch) {
        let name = &self.name;
        if let Some((ours, theirs)) = self.raw(batch) {
            assert_eq!(ours.len(), theirs.len(), "{name}");
            let tolerance = if name.contains("logistic") { 2e-7 } else { 0.0 };
            let same = |one: f64, two: f64| {
                one == two || (one.is_nan() && two.is_nan()) || (one - two).abs() <= tolerance
            };
            let other = ours.iter().zip(&theirs).position(|(one, two)| !same(*one, *two));
            let shown = other.map(|at| (at, ours[at], theirs[at]));
            assert_eq!(shown, None, "{name}");
        }
        let [ours, theirs] = [&self.native, &self.runtime].map(|engine| engine.predict(batch));
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => assert_eq!(difference(&ours, &theirs, 2e-7), None, "{name}"),
            (Err(_), Err(_)) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn exports_are_scored_as_onnx_runtime_scores_them() {
    let Some(folder) = models() else { return };
    for name in EXPORTS.iter().chain(&PIPELINES) {
        let pair = EnginePair::open(folder, name);
        pair.compare(&pair.batch);
        pair.compare(&pair.rows(1000, Wildness::Tame));
        if *name != "n_strict" {
            pair.compare(&pair.rows(1000, Wildness::Wild));
        }
    }
}

#[test]
fn all_modes_aggregates_and_transforms_are_known() {
    let Some(folder) = models() else { return };
    let mut names = Vec::new();
    for mode in ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"] {
        names.extend([0, 1].map(|gaps| format!("h_mode_BRANCH_{mode}_{gaps}")));
    }
    for aggregate in ["SUM", "AVERAGE", "MIN", "MAX"] {
        names.extend(["NONE", "PROBIT"].map(|transform| format!("h_{aggregate}_{transform}")));
    }
    for transform in ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"] {
        let cases = ["one", "mixed", "both", "base", "bases", "three", "sparse"];
        // The second of two scores is then left as it was in memory.
        let cases = cases.iter().filter(|case| transform != "PROBIT" || **case != "mixed");
        let cases = cases.filter(|case| transform != "PROBIT" || **case != "one");
        names.extend(cases.map(|case| format!("h_class_{transform}_{case}")));
    }
    for double in [0, 1] {
        let kinds = ["1_0", "0_0", "2_0", "3_0", "1_4"];
        names.extend(kinds.map(|kind| format!("h_newer_{double}_{kind}")));
    }
    for name in names {
        let pair = EnginePair::open(folder, &name);
        pair.compare(&pair.rows(1000, Wildness::Wild));
    }
}

#[test]
fn unknown_operators_are_left_to_onnx_runtime() {
    let Some(folder) = models() else { return };
    let pair = EnginePair::open(folder, "h_unknown");
    assert!(pair.native.native.is_none());
    let scores = pair.native.predict(&pair.batch).expect("scores");
    assert_eq!(scores, pair.runtime.predict(&pair.batch).expect("scores"));
    assert!(pair.native.variants(&pair.batch).expect("no error").is_none());
    assert_eq!(pair.native.breakpoints(0), None);
}

/// Changes of rows, at random: categories and numbers that the schema knows, or nulls.
struct RandomChanges {
    random: ChaCha8Rng,
    /// Per feature, values of other rows.
    values: Vec<Vec<Cell>>,
}

impl RandomChanges {
    fn new(pair: &EnginePair) -> RandomChanges {
        let columns = columns(&pair.batch);
        let rows = RowReader::new(&columns.features).read(&pair.rows(200, Wildness::Tame));
        let rows = rows.expect("rows");
        let cells = |at: usize| (0..rows.len).map(|row| rows.cell(at, row)).collect();
        let values = (0..columns.features.features.len()).map(cells).collect();
        RandomChanges { random: ChaCha8Rng::seed_from_u64(3), values }
    }

    fn next(&mut self) -> Vec<Edit> {
        let mut edits: Vec<Edit> = Vec::new();
        for feature in 0..self.values.len() {
            if self.random.random_range(0..3) == 0 {
                let cell = self.values[feature].choose(&mut self.random);
                edits.extend(cell.map(|cell| Edit { feature, cell: *cell }));
            }
        }
        edits
    }
}

#[test]
fn copies_are_scored_like_batches_of_them() {
    let Some(folder) = models() else { return };
    for name in ["n_forest", "n_xgboost", "n_linear_worth", "n_forest_double", "h_mode_mixed_1"]
        .iter()
        .chain(&PIPELINES)
    {
        let pair = EnginePair::open(folder, name);
        let mut changes = RandomChanges::new(&pair);
        let wildness = if *name == "n_strict" { Wildness::Tame } else { Wildness::Wild };
        let originals = pair.rows(150, wildness);
        let asked: Vec<(u32, Vec<Edit>)> = (0..600).map(|at| (at % 150, changes.next())).collect();
        assert_eq!(
            difference(&ask(&pair, &originals, &asked), &written(&pair, &originals, &asked), 0.0),
            None,
            "{name}"
        );
    }
}

#[test]
fn responses_are_what_is_answered_when_it_is_asked() {
    let Some(folder) = models() else { return };
    for name in EXPORTS.iter().chain(&PIPELINES) {
        let pair = EnginePair::open(folder, name);
        let mut changes = RandomChanges::new(&pair);
        let originals = pair.rows(40, Wildness::Tame);
        let mut variants =
            pair.native.variants(&originals).expect("rows").expect("it can be asked");
        let reach = reach(&columns(&pair.batch).features);
        for row in 0..40 {
            let edits = changes.next();
            // What is changed already stays so.
            let free = |feature: usize| !edits.iter().any(|edit| edit.feature == feature);
            let reach: Vec<Reach> = reach
                .iter()
                .enumerate()
                .map(|(feature, reach)| if free(feature) { reach.clone() } else { Reach::Fixed })
                .collect();
            let copy = Variant { row, edits: &edits };
            let Some(found) = variants.responses(&[(copy, &reach)]).expect("responses") else {
                assert!(SILENT.iter().any(|silent| name.contains(silent)), "{name} shows nothing");
                break;
            };
            let Responses { values, scores } = &found[0];
            let asked: Vec<Vec<Edit>> = values
                .iter()
                .map(|(feature, values)| {
                    let cell = match *values {
                        Values::Numbers(_, high) => Cell::Number(high),
                        Values::Code(code) => Cell::Code(code),
                    };
                    edits.iter().copied().chain([Edit { feature: *feature, cell }]).collect()
                })
                .collect();
            let copies: Vec<Variant<'_>> =
                asked.iter().map(|edits| Variant { row, edits }).collect();
            let predicted = variants.predict(&copies).expect("scores");
            let predicted = Scores { failures: Vec::new(), ..predicted };
            assert_eq!(difference(scores, &predicted, 1e-5), None, "{name}, row {row}");
        }
    }
}

/// Models that show no responses: linear ones, and those that look at several features at once.
const SILENT: [&str; 7] = ["logistic", "linear", "normal", "h_mode", "h_newer", "bins", "strict"];

/// Everything that the features may become.
fn reach(features: &crate::feature::FeatureSchema) -> Vec<Reach> {
    let reach = |feature: &crate::feature::Feature| match &feature.kind {
        FeatureKind::Numeric(_) => Reach::Numbers(-50.0, 150.0),
        FeatureKind::Categorical(of) => Reach::Codes((0..of.values.len() as u32).collect()),
    };
    features.features.iter().map(reach).collect()
}

/// The answers about copies, asked in two goes.
fn ask(pair: &EnginePair, originals: &RecordBatch, asked: &[(u32, Vec<Edit>)]) -> Scores {
    let mut variants = pair.native.variants(originals).expect("rows").expect("it can be asked");
    let copies: Vec<Variant<'_>> =
        asked.iter().map(|(row, edits)| Variant { row: *row, edits }).collect();
    let (first, rest) = copies.split_at(copies.len() / 3);
    let mut scores = variants.predict(first).expect("scores");
    scores.append(variants.predict(rest).expect("scores"));
    scores
}

/// The answers for a batch of the same copies.
fn written(pair: &EnginePair, originals: &RecordBatch, asked: &[(u32, Vec<Edit>)]) -> Scores {
    written_by(&pair.native, pair, (originals, asked))
}

/// The same by one of the engines.
fn written_by(
    engine: &OnnxPredictor,
    pair: &EnginePair,
    (originals, asked): (&RecordBatch, &[(u32, Vec<Edit>)]),
) -> Scores {
    let features = columns(&pair.batch).features;
    let places: Vec<u32> = asked.iter().map(|(row, _)| *row).collect();
    let indices = arrow::array::UInt32Array::from(places.clone());
    let batch = arrow::compute::take_record_batch(originals, &indices).expect("rows");
    let own = RowReader::new(&features).read(&batch).expect("rows");
    let mut rows = own.clone();
    for (row, (_, edits)) in asked.iter().enumerate() {
        edits.iter().for_each(|edit| rows.set(edit.feature, row, edit.cell));
    }
    let batch = RowWriter::new(&features).write(&rows, &own, &batch).expect("a batch");
    engine.predict(&batch).expect("scores")
}

#[test]
fn answers_change_at_breakpoints_only() {
    let Some(folder) = models() else { return };
    let mut random = ChaCha8Rng::seed_from_u64(5);
    for name in ["n_forest", "n_xgboost", "n_forest_double", "h_mode_mixed_1", "n_hot", "n_ordinal"]
        .iter()
        .chain(&["n_robust", "h_newer_0_1_0", "n_histogram", "n_catboost"])
    {
        let pair = EnginePair::open(folder, name);
        let originals = pair.rows(20, Wildness::Tame);
        let features = columns(&pair.batch).features;
        for (at, feature) in features.features.iter().enumerate() {
            if matches!(feature.kind, FeatureKind::Categorical(_)) {
                assert_eq!(pair.native.breakpoints(at), None, "{name}: {}", feature.name);
                continue;
            }
            let breakpoints = pair.native.breakpoints(at);
            let breakpoints = breakpoints.unwrap_or_else(|| panic!("{name}: {}", feature.name));
            assert!(breakpoints.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
            hold(&pair, &originals, (at, &breakpoints), &mut random);
        }
    }
}

/// Asks about both ends of spans between breakpoints, and about a number between.
fn hold(
    pair: &EnginePair,
    originals: &RecordBatch,
    (feature, breakpoints): (usize, &[f64]),
    random: &mut ChaCha8Rng,
) {
    let lows = [f64::MIN].into_iter().chain(breakpoints.iter().map(|low| low.next_up()));
    let highs = breakpoints.iter().copied().chain([f64::MAX]);
    let mut asked = Vec::new();
    for (low, high) in lows.zip(highs) {
        let between = (low / 2.0 + high / 2.0).clamp(low, high);
        let row = random.random_range(0..originals.num_rows() as u32);
        for number in [low, between, high] {
            asked.push((row, vec![Edit { feature, cell: Cell::Number(number) }]));
        }
    }
    let scores = ask(pair, originals, &asked);
    for first in (0..asked.len() as u32).step_by(3) {
        let [one, two, three] = [0, 1, 2].map(|at| scores.take(&[first + at]));
        let span = &asked[first as usize..][..3];
        assert_eq!((&one, &one), (&two, &three), "{}: {span:?}", pair.name);
    }
}

#[test]
fn linear_models_have_no_breakpoints() {
    let Some(folder) = models() else { return };
    for name in ["n_logistic", "n_linear_worth"] {
        assert_eq!(EnginePair::open(folder, name).native.breakpoints(0), None);
    }
    // `age` is normalised together with the other numbers, and put into bins by its rank among borders.
    assert_eq!(EnginePair::open(folder, "n_normal").native.breakpoints(0), None);
}

#[test]
fn the_types_of_columns_change_nothing() {
    let Some(folder) = models() else { return };
    let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    for (number, text) in [
        (DataType::Float32, DataType::LargeUtf8),
        (DataType::Int16, DataType::Utf8View),
        (DataType::UInt64, dictionary),
        (DataType::Date32, DataType::Utf8),
    ] {
        let batch = frame(folder, &MIXED);
        let recast =
            batch.schema_ref().fields().iter().zip(batch.columns()).map(|(field, column)| {
                let target = match field.name().as_str() {
                    "job" | "region" => &text,
                    "tenure" => &number,
                    _ => column.data_type(),
                };
                let whole = arrow::compute::cast(column, &DataType::Int32);
                let column = if target == &number { &whole.expect("a cast") } else { column };
                (field.name().clone(), arrow::compute::cast(column, target).expect("a cast"), true)
            });
        let batch = RecordBatch::try_from_iter_with_nullable(recast.collect::<Vec<_>>());
        let batch = batch.expect("a batch");
        let described = case(folder, "n_hot", by_column());
        let [native, runtime] = [EngineSpec::Auto, EngineSpec::OnnxRuntime]
            .map(|engine| described.open_with(engine, &batch).expect("a model"));
        let pair = EnginePair { name: format!("n_hot of {number}"), batch, native, runtime };
        pair.compare(&pair.batch);
        let mut changes = RandomChanges::new(&pair);
        let asked: Vec<(u32, Vec<Edit>)> = (0..200).map(|at| (at, changes.next())).collect();
        let (ours, theirs) = (ask(&pair, &pair.batch, &asked), written(&pair, &pair.batch, &asked));
        assert_eq!(difference(&ours, &theirs, 0.0), None, "{}", pair.name);
    }
}

#[test]
fn a_null_is_no_failure_for_trees() {
    let Some(folder) = models() else { return };
    let pair = EnginePair::open(folder, "n_xgboost");
    let both = [Wildness::Tame, Wildness::Wild].map(|wildness| pair.rows(30, wildness));
    let batch = concat_batches(&both[0].schema(), &both).expect("one schema");
    let scores = pair.native.predict(&batch).expect("scores");
    assert_eq!(scores.failures, []);
    let asked = [(0, vec![Edit { feature: 1, cell: Cell::Number(f64::NAN) }])];
    assert_eq!(ask_one(&pair, &batch, &asked), written(&pair, &batch, &asked));
}

fn ask_one(pair: &EnginePair, originals: &RecordBatch, asked: &[(u32, Vec<Edit>)]) -> Scores {
    let mut variants = pair.native.variants(originals).expect("rows").expect("it can be asked");
    let (row, edits) = &asked[0];
    variants.predict(&[Variant { row: *row, edits }]).expect("scores")
}

#[test]
fn sessions_are_closed_once_real_rows_were_compared() {
    let Some(folder) = models() else { return };
    let pair = EnginePair::open(folder, "n_forest");
    assert!(pair.native.sessions.pool().is_some());
    for _ in 0..4 {
        pair.native.predict(&pair.batch).expect("scores");
    }
    assert!(pair.native.sessions.pool().is_none(), "2,048 rows are enough");
    assert_eq!(pair.native.parallelism(), 2);
    let shared = Arc::new(pair.native);
    let expected = pair.runtime.predict(&pair.batch).expect("scores");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(shared.predict(&pair.batch).expect("scores"), expected));
        }
    });
}

/// Every row of the paper's data sets by four libraries, generated rows with nulls and values on both sides of
/// thresholds, and changed copies of rows. `tests/engines.sh` runs it.
#[test]
#[ignore = "a campaign: tests/engines.sh"]
fn campaign() {
    let number = |name: &str, usual: usize| {
        let given = std::env::var(name).ok();
        given.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`")))
    };
    let generated = number("OVERTURN_ROWS", 10_000_000);
    let folder = make(&["paper"]).expect("Python, and the data sets in OVERTURN_DATA");
    let files =
        std::fs::read_dir(folder.path()).expect("a folder").map(|file| file.expect("a file"));
    let mut models: Vec<_> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "onnx"))
        .collect();
    models.sort();
    assert_eq!(models.len(), 20, "five data sets by four libraries");
    let each = generated.div_ceil(models.len());
    let (mut real, mut copies) = (0, 0);
    for path in &models {
        let pair = paper_pair(folder.path(), path);
        pair.compare(&pair.batch);
        compare_generated(&pair, each);
        let asked = compare_copies(&pair, each / 64);
        real += pair.batch.num_rows();
        copies += asked;
        eprintln!(
            "{}: {} rows, {each} generated, {asked} copies",
            pair.name,
            pair.batch.num_rows()
        );
    }
    let (models, generated) = (models.len(), each * models.len());
    println!(
        "{{\"campaign\": \"engines\", \"models\": {models}, \"rows\": {real}, \"generated\": {generated}, \
         \"copies\": {copies}, \"differing\": 0}}"
    );
}

/// One of the campaign's models by both engines, with the rows of its data set.
fn paper_pair(folder: &Path, model: &Path) -> EnginePair {
    let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (data, _) = name.rsplit_once('_').expect("data set and library");
    let batch = read(folder.join(format!("{data}.parquet")));
    let described = case(folder, &name, OnnxInputs::Raw);
    let [native, runtime] = [EngineSpec::Auto, EngineSpec::OnnxRuntime]
        .map(|engine| described.open_with(engine, &batch).expect("a model"));
    EnginePair { name, batch, native, runtime }
}

fn compare_generated(pair: &EnginePair, rows: usize) {
    let columns = columns(&pair.batch);
    let mut trials = Trials::new(pair.native(), &pair.native.model.inputs, &columns);
    let mut left = rows;
    while left > 0 {
        let rows = left.min(65_536);
        pair.compare(&trials.batch(rows, Wildness::Wild).expect("rows"));
        left -= rows;
    }
}

/// Holds answers about changed cells against those of ONNX Runtime about whole rows; gives how many.
fn compare_copies(pair: &EnginePair, count: usize) -> usize {
    let mut changes = RandomChanges::new(pair);
    let rows = pair.batch.num_rows().min(4096);
    let originals = pair.batch.slice(0, rows);
    let asked: Vec<(u32, Vec<Edit>)> =
        (0..count).map(|at| ((at % rows) as u32, changes.next())).collect();
    for asked in asked.chunks(16_384) {
        let predicted = ask(pair, &originals, asked);
        let expected = written_by(&pair.runtime, pair, (&originals, asked));
        assert_eq!(difference(&predicted, &expected, 2e-7), None, "{}", pair.name);
    }
    count
}
