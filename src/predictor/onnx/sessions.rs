//! ONNX Runtime as the engine of a model: batches through one of its sessions, under watch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use parking_lot::Mutex;

use super::graph::Graph;
use super::inputs::FeatureInputs;
use super::outputs::Outputs;
use super::pool::{SessionPool, SessionScorer};
use super::watch::Watch;
use super::{external, finished, unloadable};
use crate::error::{BoxedError, Error, Result};
use crate::predictor::Scores;

/// A model with its inputs and outputs.
#[derive(Debug)]
pub(super) struct OnnxModel {
    /// The file's name in messages.
    pub(super) name: String,
    pub(super) inputs: FeatureInputs,
    pub(super) outputs: Outputs,
}

impl OnnxModel {
    /// The error of a batch that could not be scored.
    pub(super) fn failed(&self, rows: usize, source: impl Into<BoxedError>) -> Error {
        let problem = format!("failed to score a batch of {rows} rows");
        Error::predictor(&self.name, problem).source(source)
    }
}

/// What sessions are made from.
#[derive(Debug)]
pub(super) struct ModelFile {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// Where the model keeps weights that are not in the file itself.
    pub(super) folder: PathBuf,
}

impl ModelFile {
    /// Reads a model file; `path` is in messages, too.
    pub(super) fn read(path: &Path) -> Result<ModelFile> {
        let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
        let bytes = external::read(path)?.bytes;
        Ok(ModelFile { name: path.display().to_string(), bytes, folder })
    }

    /// Takes `ZipMap`s out of the model, so that its scores are a tensor; gives the bytes as they were delivered if it
    /// had some.
    pub(super) fn unzip(&mut self) -> Result<Option<Vec<u8>>> {
        let unzipped = Graph::read(&self.bytes).and_then(|graph| graph.without_zipmap(&self.bytes));
        let unzipped = unzipped.map_err(|error| external::broken(&self.name, error))?;
        Ok(unzipped.map(|unzipped| std::mem::replace(&mut self.bytes, unzipped)))
    }

    /// Loads the model as often as pays on that many threads.
    pub(super) fn load(&self, threads: usize) -> Result<SessionPool> {
        SessionPool::open(&self.bytes, &self.folder, threads)
            .map_err(|error| unloadable(&self.name, error))
    }
}

/// The sessions of a model, as long as they are needed.
#[derive(Debug)]
pub(super) struct Sessions {
    pool: Mutex<Option<Arc<SessionPool>>>,
    watch: Watch,
}

impl Sessions {
    pub(super) fn new(pool: SessionPool, limit: Duration) -> Result<Sessions> {
        Ok(Sessions { pool: Mutex::new(Some(Arc::new(pool))), watch: Watch::start(limit)? })
    }

    /// The sessions, if there are any.
    pub(super) fn pool(&self) -> Option<Arc<SessionPool>> {
        self.pool.lock().clone()
    }

    /// Other sessions instead, or none any more.
    pub(super) fn replace(&self, pool: Option<SessionPool>) {
        *self.pool.lock() = pool.map(Arc::new);
    }

    /// Scores a batch in a session.
    pub(super) fn score(
        &self,
        model: &OnnxModel,
        scorer: &mut SessionScorer,
        batch: &RecordBatch,
    ) -> Result<Scores> {
        let rows = batch.num_rows();
        let run = self.watch.run().map_err(|error| model.failed(rows, error))?;
        let scored = model.inputs.run(scorer, batch, &run.options);
        let (outputs, failures) = scored.map_err(|error| {
            if run.is_overdue() {
                self.overdue(model, rows)
            } else {
                model.failed(rows, error.into_source())
            }
        })?;
        finished(&model.outputs, &outputs, rows, failures)
    }

    /// The same for all rows in whichever session is idle.
    pub(super) fn score_all(&self, model: &OnnxModel, batch: &RecordBatch) -> Result<Scores> {
        let pool = self.pool().ok_or_else(|| Error::internal("sessions", "are closed"))?;
        let mut lease = pool.lease(1);
        match lease.first_mut() {
            Some(scorer) => self.score(model, scorer, batch),
            None => Err(Error::internal("sessions", "a pool without one")),
        }
    }

    /// Ends all runs.
    pub(super) fn stop(&self) {
        self.watch.stop();
    }

    fn overdue(&self, model: &OnnxModel, rows: usize) -> Error {
        let seconds = self.watch.limit.as_secs_f64();
        let problem = format!(
            "gave no answer to a batch of {rows} rows within {seconds} s (`predictor.batch_seconds`)"
        );
        Error::predictor(&model.name, problem)
    }
}
