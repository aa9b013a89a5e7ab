//! The adapter against real programs over real pipes.

mod faults;
mod models;
mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use tempfile::TempDir;

use super::SubprocessPredictor;
use crate::error::{Error, Result};
use crate::feature::FeatureSchema;
use crate::job::{PredictorJob, PredictorKind, ProbabilitiesSpec, SubprocessJob, TaskSpec};
use crate::predictor::{Outcome, Predictor, PredictorColumns, Scores};

/// What the small scorers of these tests have in common: a row's label is its `id` modulo 2.
const SERVE: &str = r#"
import os, sys, time
import pyarrow as pa

source = pa.ipc.open_stream(sys.stdin.buffer)
out = sys.stdout.buffer
metadata = {"overturn.protocol": "1", "overturn.classes": "[0, 1]"}

def parity(ids):
    return [None if i is None else i % 2 for i in ids]

def serve(score, fields=[("label", pa.int64())], metadata=metadata, source=source):
    schema = pa.schema(fields, metadata)
    stream = pa.ipc.new_stream(out, schema)
    for batch in source:
        columns = score(batch.column("id").to_pylist()) if batch.num_rows else [[] for _ in fields]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema)]
        stream.write_batch(pa.record_batch(arrays, schema=schema))
        out.flush()
"#;

/// A folder with scorers in it.
struct Scorers {
    folder: TempDir,
    python: PathBuf,
}

impl Scorers {
    /// `None`, with a word about it, where there is no Python to run them.
    fn new() -> Option<Scorers> {
        let python = python()?;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("serve.py"), SERVE).unwrap();
        Some(Scorers { folder, python })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The scorer with this body, as the job names it.
    fn job(&self, body: &str) -> SubprocessJob {
        fs::write(self.path("scorer.py"), format!("from serve import *\n{body}\n")).unwrap();
        let python = self.python.display().to_string();
        command(self.folder.path(), &[&python, "scorer.py"])
    }

    fn open(&self, body: &str) -> Result<SubprocessPredictor> {
        open(&self.job(body))
    }

    /// Opens the scorer and lets it fail on a batch of 40 rows.
    fn predict_error(&self, body: &str) -> String {
        let predictor = self.open(body).unwrap();
        predictor.predict(&ids(0..40)).expect_err("the scorer fails").to_string()
    }
}

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("OVERTURN_PYTHON").map(PathBuf::from);
    if python.is_none() {
        skip("OVERTURN_PYTHON is not set");
    }
    python
}

fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

/// A job with limits that suit a test.
fn command(folder: &Path, command: &[&str]) -> SubprocessJob {
    SubprocessJob {
        command: command.iter().map(|&part| part.to_string()).collect(),
        folder: folder.to_path_buf(),
        workers: 1,
        start_limit: Duration::from_secs(30),
        batch_limit: Duration::from_secs(30),
        retries: 0,
        max_failed_share: 0.05,
        environment: Vec::new(),
        sandbox: Default::default(),
        limits: Default::default(),
    }
}

fn classifier(program: &SubprocessJob) -> PredictorJob {
    PredictorJob {
        task: TaskSpec::Classification,
        classes: Vec::new(),
        probabilities: ProbabilitiesSpec::Auto,
        repeatable: crate::job::RepeatableSpec::Off,
        kind: PredictorKind::Subprocess(program.clone()),
    }
}

fn regressor(program: &SubprocessJob) -> PredictorJob {
    PredictorJob { task: TaskSpec::Regression, ..classifier(program) }
}

fn columns(batch: &RecordBatch) -> PredictorColumns {
    let features = Arc::new(FeatureSchema::default());
    PredictorColumns { features, schema: batch.schema() }
}

fn open(program: &SubprocessJob) -> Result<SubprocessPredictor> {
    SubprocessPredictor::open(&classifier(program), program, &columns(&ids(0..0)), 2)
}

fn open_error(program: &SubprocessJob) -> Error {
    open(program).err().expect("the program cannot be used")
}

/// `cat` is a regressor: it answers a column named `value` with itself.
fn open_cat(workers: usize) -> SubprocessPredictor {
    let mut program = command(Path::new("/"), &["cat"]);
    program.workers = workers;
    let columns = columns(&values(0..0));
    SubprocessPredictor::open(&regressor(&program), &program, &columns, 2).unwrap()
}

fn ids(range: std::ops::Range<i64>) -> RecordBatch {
    let texts = range.clone().map(|id| (id % 3 != 0).then(|| format!("text {id}")));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let ids: ArrayRef = Arc::new(range.map(Some).collect::<Int64Array>());
    RecordBatch::try_from_iter_with_nullable([("id", ids, true), ("text", texts, true)]).unwrap()
}

fn values(range: std::ops::Range<i64>) -> RecordBatch {
    let values: ArrayRef = Arc::new(range.map(|id| id as f64).collect::<Float64Array>());
    RecordBatch::try_from_iter([("value", values)]).unwrap()
}

fn labels(scores: &Scores) -> &[u32] {
    match &scores.outcome {
        Outcome::Classes { labels, .. } => labels,
        Outcome::Values(_) => &[],
    }
}

fn failed_rows(scores: &Scores) -> Vec<usize> {
    scores.failures.iter().map(|failure| failure.row).collect()
}
