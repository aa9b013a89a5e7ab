//! Against real models: `tests/python/make_models.py` trains them, exports them and notes what the
//! training library itself predicts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use arrow::array::types::Float64Type;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::{cast, concat_batches, nullif, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema};
use ort::session::Session;
use ort::value::{DynValue, Tensor};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

use super::*;
use crate::feature::FeatureSchema;
use crate::job::{OnnxInputs, PredictorKind, ProbabilitiesSpec, Standardise, TaskSpec};

pub(super) const NUMBERS: [&str; 4] = ["age", "tenure", "income", "rate"];
pub(super) const MIXED: [&str; 6] = ["age", "job", "tenure", "income", "region", "rate"];

/// The folder with the models, made once for all tests; `None` without the Python environment.
pub(super) fn models() -> Option<&'static Path> {
    static MODELS: OnceLock<Option<TempDir>> = OnceLock::new();
    MODELS.get_or_init(|| make(&[])).as_ref().map(TempDir::path)
}

pub(super) fn make(names: &[&str]) -> Option<TempDir> {
    let Ok(python) = std::env::var("OVERTURN_PYTHON") else {
        eprintln!("skipped: OVERTURN_PYTHON is not set; run jobs/setup.sh");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/make_models.py");
    let made = Command::new(python).arg(script).arg(folder.path()).args(names).status();
    assert!(made.expect("Python starts").success(), "the models cannot be made");
    Some(folder)
}

pub(super) fn read(file: PathBuf) -> RecordBatch {
    let file = File::open(file).expect("it was made");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet");
    let batches: Vec<RecordBatch> =
        reader.build().expect("Parquet").collect::<Result<_, _>>().expect("Parquet");
    concat_batches(&batches[0].schema(), &batches).expect("one schema")
}

pub(super) fn frame(folder: &Path, names: &[&str]) -> RecordBatch {
    let frame = read(folder.join("frame.parquet"));
    let places: Vec<usize> =
        names.iter().map(|name| frame.schema().index_of(name).expect("a column")).collect();
    let frame = frame.project(&places).expect("columns");
    let columns = frame.schema_ref().fields().iter().zip(frame.columns()).map(|(field, column)| {
        // Whichever text type the writer chose.
        let text = convert::is_text(column.data_type());
        let target = if text { &DataType::Utf8 } else { column.data_type() };
        (field.name(), cast(column, target).expect("a cast"), true)
    });
    RecordBatch::try_from_iter_with_nullable(columns.collect::<Vec<_>>()).expect("a batch")
}

/// The meaning of the columns: `job` and `region` are categorical, all others numeric.
pub(super) fn columns(batch: &RecordBatch) -> PredictorColumns {
    let mut text = String::new();
    for field in batch.schema().fields() {
        let kind = match field.name().as_str() {
            "job" => "'categorical'\nvalues = ['clerk', 'farmer', 'nurse', 'pilot']",
            "region" => "'categorical'\nvalues = ['north', 'south', 'west']",
            _ => "'numeric'",
        };
        write!(text, "[[feature]]\nname = '{}'\nkind = {kind}\n", field.name()).expect("memory");
    }
    let features = FeatureSchema::parse(&text, Path::new("features.toml")).expect("a schema");
    PredictorColumns { features: Arc::new(features), schema: batch.schema() }
}

pub(super) fn by_column() -> OnnxInputs {
    OnnxInputs::Columns { rename: BTreeMap::new() }
}

fn standardised() -> OnnxInputs {
    let statistics =
        [("age", 50.0, 20.0), ("tenure", 20.0, 10.0), ("income", 4e4, 9e3), ("rate", 0.0, 1.0)];
    let named = statistics.map(|(name, mean, std)| (name.to_string(), Standardise { mean, std }));
    OnnxInputs::Standardised { standardise: BTreeMap::from(named) }
}

/// A model file and what the job says of it.
pub(super) struct Case {
    pub(super) model: OnnxJob,
    job: PredictorJob,
}

pub(super) fn case(folder: &Path, name: &str, inputs: OnnxInputs) -> Case {
    let path = folder.join(format!("{name}.onnx"));
    let model = OnnxJob {
        model: path,
        inputs,
        null_text: String::new(),
        engine: EngineSpec::Auto,
        batch_limit: std::time::Duration::from_secs(60),
    };
    let job = PredictorJob {
        task: TaskSpec::Classification,
        classes: Vec::new(),
        probabilities: ProbabilitiesSpec::Auto,
        repeatable: crate::job::RepeatableSpec::Off,
        kind: PredictorKind::Onnx(model.clone()),
    };
    Case { model, job }
}

impl Case {
    pub(super) fn regression(mut self) -> Case {
        self.job.task = TaskSpec::Regression;
        self
    }

    fn classes(mut self, classes: &[&str]) -> Case {
        self.job.classes = classes.iter().map(ToString::to_string).collect();
        self
    }

    pub(super) fn probabilities(mut self, probabilities: ProbabilitiesSpec) -> Case {
        self.job.probabilities = probabilities;
        self
    }

    fn open(&self, batch: &RecordBatch) -> Result<OnnxPredictor> {
        OnnxPredictor::open(&self.job, &self.model, &columns(batch), 2)
    }

    /// The same by an engine of choice.
    pub(super) fn open_with(
        &self,
        engine: EngineSpec,
        batch: &RecordBatch,
    ) -> Result<OnnxPredictor> {
        let model = OnnxJob { engine, ..self.model.clone() };
        OnnxPredictor::open(&self.job, &model, &columns(batch), 2)
    }

    /// Scores a batch and compares with what the training library predicts.
    fn check(&self, batch: &RecordBatch) {
        let predictor = self.open(batch).unwrap_or_else(|error| panic!("{error}"));
        let scores = predictor.predict(batch).expect("scores");
        self.compare(predictor.task(), &scores);
    }

    fn compare(&self, task: &Task, scores: &Scores) {
        let name = self.model.model.display();
        let expected = read(self.model.model.with_extension("parquet"));
        assert_eq!((scores.rows, scores.failures.len()), (expected.num_rows(), 0), "{name}");
        let column = |name: &str| {
            let column = expected.column_by_name(name).expect("noted").clone();
            column.as_primitive::<Float64Type>().clone()
        };
        match (task, &scores.outcome) {
            (Task::Regression, Outcome::Values(values)) => {
                let off = distance(values, column("value").values());
                assert!(off < 1e-4, "{name}: a value is {off} off");
            }
            (Task::Classification { classes, .. }, Outcome::Classes { labels, probabilities }) => {
                let found: Vec<&str> =
                    labels.iter().map(|label| classes[*label as usize].as_str()).collect();
                let labels = cast(&expected["label"], &DataType::Utf8).expect("texts");
                assert_eq!(found, convert::texts(&labels, ""), "{name}");
                let given = expected.num_columns() > 1;
                assert_eq!(probabilities.is_some(), given, "{name}: probabilities");
                for class in 0..if given { classes.len() } else { 0 } {
                    let found = probabilities.as_ref().expect("given").iter().skip(class);
                    let found: Vec<f64> = found.step_by(classes.len()).copied().collect();
                    let off = distance(&found, column(&format!("p{class}")).values());
                    assert!(off < 1e-5, "{name}: the probability of class {class} is {off} off");
                }
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn distance(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn classes(predictor: &OnnxPredictor) -> Vec<String> {
    match predictor.task() {
        Task::Classification { classes, .. } => classes.to_vec(),
        Task::Regression => Vec::new(),
    }
}

/// The message and cause of what must fail.
fn refusal<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}\ncause: {}", cause.unwrap_or_default())
        }
    }
}

fn assert_says(message: &str, expected: &[&str]) {
    for part in expected {
        assert!(message.contains(part), "`{part}` is not in:\n{message}");
    }
}

#[test]
fn matrix_classifiers_answer_as_their_library_does() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &NUMBERS);
    let names =
        ["logistic", "logistic_zipmap", "tree", "tree_zipmap", "forest", "margin", "margins"];
    for name in names.into_iter().chain(["bayes", "network", "rest"]) {
        case(folder, name, OnnxInputs::Raw).check(&batch);
    }
}

#[test]
fn a_pipeline_takes_a_tensor_for_each_column() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &MIXED);
    for name in ["pipeline", "pipeline_zipmap"] {
        case(folder, name, by_column()).check(&batch);
    }
}

#[test]
fn the_physical_type_of_a_column_changes_nothing() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &MIXED);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    for text in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View, dictionary] {
        let recast =
            batch.schema_ref().fields().iter().zip(batch.columns()).map(|(field, column)| {
                let target = match field.name().as_str() {
                    "job" | "region" => &text,
                    "tenure" => &DataType::UInt8,
                    _ => column.data_type(),
                };
                (field.name().clone(), cast(column, target).expect("a cast"))
            });
        let recast = RecordBatch::try_from_iter(recast.collect::<Vec<_>>()).expect("a batch");
        case(folder, "pipeline", by_column()).check(&recast);
        case(folder, "codes", OnnxInputs::Codes).check(&recast);
        case(folder, "standardised", standardised()).check(&recast);
    }
}

#[test]
fn matrices_are_encoded_as_in_training() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &MIXED);
    case(folder, "codes", OnnxInputs::Codes).check(&batch);
    case(folder, "standardised", standardised()).check(&batch);
    case(folder, "standardised_double", standardised()).check(&batch);
}

#[test]
fn nulls_reach_a_boosted_model_as_gaps() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &NUMBERS);
    let gaps: BooleanArray = (0..batch.num_rows()).map(|row| Some(row % 7 == 0)).collect();
    let mut columns = batch.columns().to_vec();
    columns[2] = nullif(&columns[2], &gaps).expect("one length");
    let gappy = RecordBatch::try_new(batch.schema(), columns).expect("a batch");
    assert!(gappy.column(2).null_count() > 0);
    case(folder, "boosted", OnnxInputs::Raw).check(&gappy);
    case(folder, "boosted_grades", OnnxInputs::Raw).check(&gappy);
    case(folder, "boosted_worth", OnnxInputs::Raw).regression().check(&gappy);
}

#[test]
fn rows_that_come_out_as_no_number_are_failures() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &NUMBERS).slice(0, 3);
    let mut columns = batch.columns().to_vec();
    columns[2] = Arc::new(Float64Array::from(vec![Some(4e4), None, Some(3e4)]));
    let gappy = RecordBatch::try_new(batch.schema(), columns).expect("a batch");
    let predictor = case(folder, "logistic", OnnxInputs::Raw).open(&gappy).expect("a model");
    let scores = predictor.predict(&gappy).expect("scores");
    assert_eq!(scores.failures.iter().map(|failure| failure.row).collect::<Vec<_>>(), [1]);
    assert!(scores.failures[0].detail.contains("NaN"));
    let Outcome::Classes { labels, probabilities } = scores.outcome else { panic!("a classifier") };
    assert_eq!(labels[1], NO_CLASS);
    assert_ne!(labels[0], NO_CLASS);
    let probabilities = probabilities.expect("given");
    assert!(probabilities[3..6].iter().all(|chance| chance.is_nan()));
    assert!(probabilities[..3].iter().all(|chance| chance.is_finite()));
}

#[test]
fn regressions_answer_as_their_library_does() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &NUMBERS);
    for name in ["forest_worth", "linear_worth"] {
        case(folder, name, OnnxInputs::Raw).regression().check(&batch);
    }
}

#[test]
fn classes_are_read_from_the_model() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &NUMBERS);
    for (name, expected) in [
        ("forest", &["low", "middle", "top"][..]),
        ("logistic_zipmap", &["low", "middle", "top"]),
        ("tree", &["0", "1"]),
        ("rest", &["0", "1", "2"]),
        ("network", &["low", "middle", "top"]),
    ] {
        let predictor = case(folder, name, OnnxInputs::Raw).open(&batch).expect("a model");
        assert_eq!(classes(&predictor), expected, "{name}");
    }
    let given = case(folder, "tree", OnnxInputs::Raw).classes(&["0", "1"]);
    given.open(&batch).expect("both agree");
    let reversed = case(folder, "tree", OnnxInputs::Raw).classes(&["1", "0"]);
    let message = refusal(reversed.open(&batch));
    assert_says(&message, &["tree.onnx: has the classes `0`, `1`, expected `1`, `0`"]);
}

#[test]
fn models_without_a_label_are_read_by_their_scores() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &NUMBERS);
    let scores_only = case(folder, "scores_only", OnnxInputs::Raw);
    let message = refusal(scores_only.open(&batch));
    assert_says(&message, &["does not tell its classes", "hint: name them in `predictor.classes`"]);
    let named = scores_only.classes(&["low", "middle", "top"]);
    let predictor = named.open(&batch).expect("a model");
    let scores = predictor.predict(&batch).expect("scores");
    let whole = case(folder, "network", OnnxInputs::Raw);
    whole.compare(predictor.task(), &scores);

    let rate = frame(folder, &["rate"]);
    let chance = case(folder, "chance", OnnxInputs::Raw).classes(&["no", "yes"]);
    let scores = chance.open(&rate).expect("a model").predict(&rate).expect("scores");
    let Outcome::Classes { labels, probabilities } = scores.outcome else { panic!("a classifier") };
    let probabilities = probabilities.expect("a sigmoid's");
    for (row, pair) in probabilities.chunks_exact(2).enumerate() {
        assert!((pair[0] + pair[1] - 1.0).abs() < 1e-9);
        assert_eq!(labels[row], u32::from(pair[1] > pair[0]));
    }
}

#[test]
fn scores_that_are_no_probabilities_are_found_out() {
    let Some(folder) = models() else { return };
    let rate = frame(folder, &["rate"]);
    let no_chance = case(folder, "no_chance", OnnxInputs::Raw).classes(&["no", "yes"]);
    let message = refusal(no_chance.open(&rate).expect("a model").predict(&rate));
    assert_says(
        &message,
        &["expected probabilities that add up to 1", "`predictor.probabilities = \"none\"`"],
    );
    let batch = frame(folder, &NUMBERS);
    let margins = case(folder, "margins", OnnxInputs::Raw).probabilities(ProbabilitiesSpec::Given);
    let message = refusal(margins.open(&batch).expect("a model").predict(&batch));
    assert_says(&message, &["margins.onnx: gave the scores ", "add up to 1"]);
    let margin = case(folder, "margin", OnnxInputs::Raw).probabilities(ProbabilitiesSpec::Given);
    let message = refusal(margin.open(&batch).expect("a model").predict(&batch));
    assert_says(&message, &["add up to 1"]);
    let unused = case(folder, "forest", OnnxInputs::Raw).probabilities(ProbabilitiesSpec::None);
    let task = unused.open(&batch).expect("a model").task().clone();
    assert!(matches!(task, Task::Classification { probabilities: false, .. }));
}

/// A batch for the model with one input of each type.
fn typed(string: ArrayRef, int32: Vec<Option<i64>>) -> RecordBatch {
    let rows = int32.len();
    let reals: ArrayRef = Arc::new(Float64Array::from(vec![0.5; rows]));
    let columns: [(&str, ArrayRef); 6] = [
        ("float", reals.clone()),
        ("double", reals),
        ("int64", Arc::new(BooleanArray::from(vec![true; rows]))),
        ("int32", Arc::new(Int64Array::from(int32))),
        ("bool", Arc::new(BooleanArray::from(vec![true; rows]))),
        ("string", string),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .expect("a batch")
}

#[test]
fn every_type_of_input_is_fed() {
    let Some(folder) = models() else { return };
    let model = case(folder, "typed", by_column()).regression();
    let values = |string: ArrayRef| {
        let batch = typed(string, vec![Some(10), Some(20)]);
        let predictor = model.open(&batch).unwrap_or_else(|error| panic!("{error}"));
        match predictor.predict(&batch).expect("scores").outcome {
            Outcome::Values(values) => values,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(values(Arc::new(Int64Array::from(vec![7, 7]))), [713.0, 723.0]);
    assert_eq!(values(Arc::new(BooleanArray::from(vec![true, true]))), [1013.0, 1023.0]);
    let texts = StringArray::from(vec![Some("none"), None]);
    assert_eq!(values(Arc::new(texts)), [5013.0, 9023.0]);
}

#[test]
fn what_cannot_be_told_to_the_model_fails_by_row() {
    let Some(folder) = models() else { return };
    let model = case(folder, "typed", by_column()).regression();
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["7", "7\0", "7", "7"]));
    let batch = typed(texts, vec![None, Some(1), Some(1 << 40), Some(1)]);
    let scores = model.open(&batch).expect("a model").predict(&batch).expect("scores");
    let failed: Vec<(usize, &str)> =
        scores.failures.iter().map(|failure| (failure.row, failure.detail.as_str())).collect();
    let no_value = "`int32` is null or too large, and the model's input is int32";
    assert_eq!(failed, [(0, no_value), (1, "`string` has a zero byte in its text"), (2, no_value)]);
    let Outcome::Values(values) = scores.outcome else { panic!("a regression") };
    assert!(values[..3].iter().all(|value| value.is_nan()));
    assert_eq!(values[3], 704.0);
}

#[test]
fn inputs_and_features_must_agree() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &MIXED);
    let misspelt = renamed(&batch, "income", "incomes");
    let message = refusal(case(folder, "pipeline", by_column()).open(&misspelt));
    assert_eq!(
        after_folder(&message),
        "pipeline.onnx: inputs and features do not match: no feature feeds the input `income`; it has \
         no input for the feature `incomes`\n  \
         hint: these look alike; paste the lines that are right:\n    [predictor.rename]\n    \
         \"incomes\" = \"income\""
    );
    let rename = BTreeMap::from([("incomes".to_string(), "income".to_string())]);
    case(folder, "pipeline", OnnxInputs::Columns { rename }).check(&misspelt);
    let rename = BTreeMap::from([("incme".to_string(), "income".to_string())]);
    let stray = case(folder, "pipeline", OnnxInputs::Columns { rename });
    let message = refusal(stray.open(&batch));
    assert_says(&message, &["predictor.rename: names `incme`, which is not", "mean `income`?"]);
    let rename = BTreeMap::from([("age".to_string(), "income".to_string())]);
    let rivals = case(folder, "pipeline", OnnxInputs::Columns { rename });
    let message = refusal(rivals.open(&batch));
    assert_says(&message, &["predictor.rename: feeds input `income` from two features"]);
}

/// A message without its cause, and without the folder of the model that it is about.
fn after_folder(message: &str) -> &str {
    let end = message.find(".onnx").expect("a model");
    let text = &message[message[..end].rfind('/').expect("a folder") + 1..];
    text.split("\ncause: ").next().expect("a text")
}

#[test]
fn names_that_an_exporter_wrote_otherwise_are_matched() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &MIXED);
    // As if the exporter had made `income` of them.
    let dotted = renamed(&batch, "income", "income?");
    case(folder, "pipeline", by_column()).check(&dotted);
    let twice = renamed(&renamed(&batch, "income", "income?"), "age", "income!");
    let message = refusal(case(folder, "pipeline", by_column()).open(&twice));
    assert_eq!(
        after_folder(&message),
        "pipeline.onnx: inputs and features do not match: no feature feeds the inputs `age`, `income`; \
         it has no input for the features `income!`, `income?`\n  \
         hint: these look alike; paste the lines that are right:\n    [predictor.rename]\n    \
         \"income!\" = \"income\"\n    \"income?\" = \"income\""
    );
}

fn renamed(batch: &RecordBatch, from: &str, to: &str) -> RecordBatch {
    let fields = batch
        .schema()
        .fields()
        .iter()
        .map(|field| {
            let name = if field.name() == from { to } else { field.name() };
            Field::new(name, field.data_type().clone(), true)
        })
        .collect::<Vec<_>>();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec()).expect("a batch")
}

#[test]
fn a_column_of_the_wrong_type_is_named() {
    let Some(folder) = models() else { return };
    let swapped = renamed(&renamed(&frame(folder, &MIXED), "job", "x"), "income", "job");
    let swapped = renamed(&swapped, "x", "income");
    let message = refusal(case(folder, "pipeline", by_column()).open(&swapped));
    assert_says(
        &message,
        &[
            "pipeline.onnx: input `income` takes float, but column `income` is Utf8",
            "pipeline.onnx: input `job` takes string, but column `job` is Float64",
        ],
    );
    let message = refusal(case(folder, "codes", OnnxInputs::Raw).open(&frame(folder, &MIXED)));
    assert_eq!(
        after_folder(&message),
        "codes.onnx: takes a matrix, for which column `job` is Utf8, column `region` is Utf8, expected \
         numbers\n  \
         hint: set `predictor.encoding` to `codes` or `standardised`, as the model was trained"
    );
}

#[test]
fn a_matrix_of_the_wrong_width_is_refused() {
    let Some(folder) = models() else { return };
    let narrow = frame(folder, &NUMBERS[..3]);
    let message = refusal(case(folder, "tree", OnnxInputs::Raw).open(&narrow));
    assert_says(
        &message,
        &[
            "tree.onnx: input `X` has the wrong width: the model expects 4, the feature schema gives 3",
        ],
    );
    let message = refusal(case(folder, "tree", by_column()).open(&narrow));
    assert_eq!(
        after_folder(&message),
        "tree.onnx: takes one input `X` of shape [-1, 4], a matrix of all features, where \
         `predictor.inputs = \"columns\"` expects an input for each of 3 features\n  \
         hint: set `predictor.inputs = \"matrix\"`"
    );
    let batch = frame(folder, &MIXED);
    let message = refusal(case(folder, "pipeline", OnnxInputs::Codes).open(&batch));
    assert_says(
        &message,
        &["takes 6 inputs, expected one matrix", "`predictor.inputs = \"columns\"`"],
    );
}

#[test]
fn statistics_must_cover_the_numeric_features() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &MIXED);
    let OnnxInputs::Standardised { mut standardise } = standardised() else { unreachable!() };
    let age = standardise.remove("age").expect("it is there");
    standardise.insert("agee".to_string(), age);
    let inputs = OnnxInputs::Standardised { standardise };
    let message = refusal(case(folder, "standardised", inputs).open(&batch));
    assert_says(
        &message,
        &[
            "predictor.standardise: has no `age`, expected the mean and std of every numeric",
            "predictor.standardise: names `agee`, which is not a numeric feature",
            "hint: did you mean `age`?",
        ],
    );
}

#[test]
fn files_that_are_no_usable_model_are_refused() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &NUMBERS);
    let open = |name| refusal(case(folder, name, OnnxInputs::Raw).open(&batch));
    assert_says(&open("nowhere"), &["nowhere.onnx: cannot be read\n"]);
    assert_says(&open("cut"), &["cut.onnx: cannot be read as an ONNX model; it is cut short"]);
    std::fs::write(folder.join("empty.onnx"), "").expect("room on the disk");
    assert_says(&open("empty"), &["empty.onnx: cannot be read as an ONNX model"]);
    let too_new = open("too_new");
    assert_says(
        &too_new,
        &[
            "too_new.onnx: cannot be loaded by ONNX Runtime 1.",
            "hint: export it for an older opset",
        ],
    );
    assert!(!too_new.ends_with("cause: "), "{too_new}");
    assert_says(&open("one_row"), &["takes exactly 1 rows at a time, expected any number"]);
}

#[test]
fn task_and_model_must_agree() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &NUMBERS);
    let message = refusal(case(folder, "tree", OnnxInputs::Raw).regression().open(&batch));
    assert_says(
        &message,
        &["tree.onnx: is a classifier of `0`, `1`, but the task is a regression"],
    );
    let message = refusal(case(folder, "forest_worth", OnnxInputs::Raw).open(&batch));
    assert_says(&message, &["no output with a label", "set `predictor.task = \"regression\"`"]);
    let message =
        refusal(case(folder, "bayes", OnnxInputs::Raw).classes(&["0", "yes"]).open(&batch));
    assert_says(&message, &["has the classes `0`, `1`, expected `0`, `yes`"]);
}

#[test]
fn large_batches_and_many_callers_get_the_same_answers() {
    let Some(folder) = models() else { return };
    let batch = frame(folder, &MIXED);
    let model = case(folder, "pipeline", by_column());
    let predictor = model.open(&batch).expect("a model");
    assert_eq!(predictor.parallelism(), 2);
    let rows =
        (0..ROWS_PER_SESSION + 3 * CHUNK_ROWS + 17).map(|row| (row % batch.num_rows()) as u64);
    let rows: UInt64Array = rows.collect::<Vec<_>>().into();
    let large = take_record_batch(&batch, &rows).expect("rows");
    let small = predictor.predict(&batch).expect("scores");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let scores = predictor.predict(&large).expect("scores");
                assert_eq!(scores.rows, large.num_rows());
                let first = head(&scores.outcome, batch.num_rows());
                assert_eq!(first, small.outcome);
            });
        }
    });
    let nothing = predictor.predict(&batch.slice(0, 0)).expect("scores");
    assert_eq!((nothing.rows, nothing.failures.len()), (0, 0));
}

fn head(outcome: &Outcome, rows: usize) -> Outcome {
    match outcome {
        Outcome::Values(values) => Outcome::Values(values[..rows].to_vec()),
        Outcome::Classes { labels, probabilities } => Outcome::Classes {
            labels: labels[..rows].to_vec(),
            probabilities: probabilities
                .as_ref()
                .map(|all| all[..rows * all.len() / labels.len()].to_vec()),
        },
    }
}

/// Something to be timed, with its name.
type Contender<'a> = (String, Box<dyn Fn() + 'a>);

/// Rows a second, for the figures in the comments of this module. `bare` is ONNX Runtime alone on tensors
/// that are ready; `adapter` is what callers see.
#[test]
#[ignore = "a measurement: cargo test --lib onnx::tests::measure -- --ignored --nocapture"]
fn measure() {
    let Some(folder) = make(&["large"]) else { return };
    runtime::environment().expect("the library is there");
    let batch = read(folder.path().join("large_frame.parquet"));
    let case = case(folder.path(), "large", by_column());
    let bytes = std::fs::read(&case.model.model).expect("it was made");
    let open = |threads| {
        OnnxPredictor::open(&case.job, &case.model, &columns(&batch), threads).expect("a model")
    };
    let predictors = [1, 2].map(open);
    let mut contenders = Vec::new();
    for layout in [(1, 1), (1, 2), (2, 1)] {
        for rows in [1024, 2048, 4096, 8192, 16384] {
            contenders.push(bare(&bytes, &batch, layout, rows));
        }
    }
    for predictor in &predictors {
        for rows in [1024, 2048, 4096, 8192, 100_000] {
            contenders.push(adapter(predictor, &batch, (1, rows)));
            contenders.push(adapter(predictor, &batch, (2, rows)));
        }
    }
    race(&contenders, batch.num_rows());
}

/// Lets the contenders take turns, and prints the best of each in thousands of rows: for a second, and
/// for a second of processor time, which also holds on a machine that has other work.
fn race(contenders: &[Contender<'_>], rows: usize) {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let used = || {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("always known");
        (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
    };
    let mut best = vec![(f64::INFINITY, f64::INFINITY); contenders.len()];
    for _ in 0..6 {
        for ((_, run), best) in contenders.iter().zip(&mut best) {
            let (start, before) = (Instant::now(), used());
            run();
            best.0 = best.0.min(start.elapsed().as_secs_f64());
            best.1 = best.1.min(used() - before);
        }
    }
    for ((name, _), (wall, processor)) in contenders.iter().zip(best) {
        let rate = |seconds: f64| rows as f64 / seconds / 1e3;
        eprintln!("{name}: {:.0}k/s, {:.0}k/processor-s", rate(wall), rate(processor));
    }
}

fn parts(batch: &RecordBatch, rows: usize) -> Vec<RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(rows);
    starts.map(|start| batch.slice(start, rows.min(batch.num_rows() - start))).collect()
}

/// Lets that many threads take turns at the parts.
fn share<T: Sync>(threads: usize, parts: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(part);
                }
            });
        }
    });
}

fn adapter<'a>(
    predictor: &'a OnnxPredictor,
    batch: &RecordBatch,
    (callers, rows): (usize, usize),
) -> Contender<'a> {
    let parts = parts(batch, rows);
    let name =
        format!("adapter: {} sessions, {callers} callers, {rows} rows", predictor.parallelism());
    let score = |part: &RecordBatch| drop(predictor.predict(part).expect("scores"));
    (name, Box::new(move || share(callers, &parts, score)))
}

fn bare<'a>(
    model: &[u8],
    batch: &RecordBatch,
    (count, threads): (usize, usize),
    rows: usize,
) -> Contender<'a> {
    let ready: Vec<_> = parts(batch, rows).iter().map(ready).collect();
    let sessions: Vec<Mutex<Session>> = (0..count)
        .map(|_| runtime::session(model, Path::new("."), threads).expect("a model").into())
        .collect();
    let run = move || {
        let next = AtomicUsize::new(0);
        share(count, &sessions, |session| {
            let mut session = session.lock().expect("nobody else's");
            while let Some(inputs) = ready.get(next.fetch_add(1, Ordering::Relaxed)) {
                let named = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor));
                session.run(named.collect::<Vec<_>>()).expect("scores");
            }
        });
    };
    (format!("bare: {count} sessions of {threads} threads, {rows} rows"), Box::new(run))
}

/// A batch as tensors.
fn ready(batch: &RecordBatch) -> Vec<(String, DynValue)> {
    let columns = batch.schema_ref().fields().iter().zip(batch.columns()).map(|(field, column)| {
        let shape = [batch.num_rows(), 1];
        let tensor = if convert::is_text(column.data_type()) {
            let texts = convert::Text::shared(&convert::texts(column, ""));
            Tensor::from_string_array((shape, texts.as_slice())).expect("texts").into_dyn()
        } else {
            let numbers = convert::reals::<f32>(column).expect("numbers").values().to_vec();
            Tensor::from_array((shape, numbers)).expect("numbers").into_dyn()
        };
        (field.name().clone(), tensor)
    });
    columns.collect()
}
