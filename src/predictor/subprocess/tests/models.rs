//! Real scikit-learn and XGBoost models, served by the scorer that ships with overturn.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Float64Type;
use arrow::ipc::reader::StreamReader;

use super::*;
use crate::predictor::Task;

/// Fits the models and writes, for each, the table it is asked about and what it answers in-process.
const FIT: &str = r#"
import joblib, numpy as np, pandas as pd, pyarrow as pa
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from xgboost import XGBClassifier

random = np.random.default_rng(0)
rows = 600
table = pd.DataFrame({
    "age": random.integers(18, 90, rows),
    "income": random.lognormal(10, 1, rows),
    "job": random.choice(["clerk", "cook", "pilot"], rows),
    "owner": random.random(rows) < 0.3,
})
table.loc[::17, "income"] = np.nan
table.loc[::23, "job"] = None
noise = random.normal(0, 1, rows)
score = (table.age - 50) / 20 + (table.job == "pilot") + noise
three = np.select([score < -0.5, score < 0.5], ["low", "middle"], "high")
numbers = table[["age", "income", "owner"]].astype(float).fillna(-1.0)

def encoder():
    return ColumnTransformer([
        ("text", OneHotEncoder(handle_unknown="ignore"), ["job"]),
        ("number", StandardScaler(), ["age", "owner"]),
    ])

def save(name, model, frame, inputs):
    joblib.dump(model, f"{name}.joblib")
    batch = pa.RecordBatch.from_pandas(frame, preserve_index=False)
    with pa.ipc.new_stream(f"{name}.input", batch.schema) as stream:
        stream.write_batch(batch)
    predicted = model.predict(inputs)
    columns = {"label": pa.array([str(label) for label in predicted])}
    if not hasattr(model, "classes_"):
        columns = {"value": pa.array(np.asarray(predicted, float))}
    elif hasattr(model, "predict_proba"):
        rows = model.predict_proba(inputs).astype(float).tolist()
        columns["probabilities"] = pa.array(rows)
    expected = pa.table(columns)
    with pa.ipc.new_stream(f"{name}.expected", expected.schema) as stream:
        stream.write_table(expected)

pipeline = make_pipeline(encoder(), LogisticRegression()).fit(table, three)
save("pipeline", pipeline, table, table)
array = numbers.to_numpy()
save("array", RandomForestClassifier(20, random_state=0).fit(array, score > 0), numbers, array)
shuffled = numbers[["owner", "age", "income"]]
xgboost = XGBClassifier(n_estimators=20).fit(numbers, pd.factorize(three)[0])
save("xgboost", xgboost, shuffled, numbers)
regressor = HistGradientBoostingRegressor(max_iter=20).fit(table[["age", "income"]], score)
save("regressor", regressor, table, table[["age", "income"]])
save("margins", LinearSVC().fit(array, (score > 0).astype(float)), numbers, array)
threshold = FixedThresholdClassifier(LogisticRegression(), threshold=0.2)
save("threshold", threshold.fit(array, (score > 0).astype(int)), numbers, array)
"#;

/// Where the models are; they are fitted once for all tests.
fn models() -> Option<&'static Path> {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let python = python()?;
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let fitted = Command::new(python).args(["-c", FIT]).current_dir(folder.path()).status();
        assert!(fitted.unwrap().success(), "the models cannot be fitted");
        folder
    });
    Some(folder.path())
}

fn read(file: &Path) -> RecordBatch {
    let reader = StreamReader::try_new(File::open(file).unwrap(), None).unwrap();
    let schema = reader.schema();
    concat_batches(&schema, &reader.map(Result::unwrap).collect::<Vec<_>>()).unwrap()
}

fn serve(folder: &Path, name: &str) -> SubprocessJob {
    let scorer = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/scorers/sklearn_scorer.py");
    let (scorer, model) = (scorer.display().to_string(), format!("{name}.joblib"));
    command(folder, &[&python().unwrap().display().to_string(), &scorer, &model])
}

/// Serves a classifier and holds its answers against its own in-process ones.
fn check_classifier(name: &str, expect: &Task) {
    let Some(folder) = models() else { return };
    let (program, input) = (serve(folder, name), read(&folder.join(format!("{name}.input"))));
    let columns = columns(&input);
    let predictor =
        SubprocessPredictor::open(&classifier(&program), &program, &columns, 1).unwrap();
    assert_eq!(predictor.task(), expect);
    let Task::Classification { classes, .. } = expect else { panic!("a classifier is expected") };
    let scores = predictor.predict(&input).unwrap();
    assert_eq!(scores.failures, []);
    let expected = read(&folder.join(format!("{name}.expected")));
    let expected_labels = expected.column(0).as_string::<i32>();
    for (row, &label) in labels(&scores).iter().enumerate() {
        let expected = expected_labels.value(row).to_lowercase();
        assert_eq!(classes[label as usize], expected.trim_end_matches(".0"), "row {row}");
    }
    let Outcome::Classes { probabilities, .. } = scores.outcome else { panic!("labels") };
    let Some(probabilities) = probabilities else { return };
    let expected =
        expected.column(1).as_list::<i32>().values().as_primitive::<Float64Type>().clone();
    assert_eq!(probabilities.len(), expected.len());
    let distance = probabilities.iter().zip(expected.values()).map(|(a, b)| (a - b).abs());
    assert!(distance.fold(0.0, f64::max) <= 1e-12);
}

fn task(classes: &[&str], probabilities: bool) -> Task {
    let classes = classes.iter().map(|&class| class.to_string()).collect();
    Task::Classification { classes, probabilities }
}

#[test]
fn a_pipeline_over_text_and_numbers_with_text_labels() {
    check_classifier("pipeline", &task(&["high", "low", "middle"], true));
}

#[test]
fn a_model_fitted_on_an_array() {
    check_classifier("array", &task(&["false", "true"], true));
}

#[test]
fn an_xgboost_model_whose_columns_come_in_another_order() {
    check_classifier("xgboost", &task(&["0", "1", "2"], true));
}

#[test]
fn a_model_without_probabilities() {
    check_classifier("margins", &task(&["0", "1"], false));
}

#[test]
fn a_model_that_does_not_decide_by_the_highest_probability() {
    check_classifier("threshold", &task(&["0", "1"], true));
}

#[test]
fn a_regressor() {
    let Some(folder) = models() else { return };
    let (program, input) = (serve(folder, "regressor"), read(&folder.join("regressor.input")));
    let columns = columns(&input);
    let predictor = SubprocessPredictor::open(&regressor(&program), &program, &columns, 1).unwrap();
    let scores = predictor.predict(&input).unwrap();
    let expected = read(&folder.join("regressor.expected"));
    let expected = expected.column(0).as_primitive::<Float64Type>();
    let Outcome::Values(values) = scores.outcome else { panic!("values were asked for") };
    let distance = values.iter().zip(expected.values()).map(|(a, b)| (a - b).abs());
    assert!(distance.fold(0.0, f64::max) <= 1e-12);
}

#[test]
fn a_model_that_lacks_a_column() {
    let Some(folder) = models() else { return };
    let program = serve(folder, "pipeline");
    let message = open_error(&program).to_string();
    assert!(
        message.contains("sklearn_scorer.py: exited with status 1 in the handshake"),
        "{message}"
    );
    assert!(
        message.contains("the model was fitted on ['age', 'income', 'job', 'owner']"),
        "{message}"
    );
}
