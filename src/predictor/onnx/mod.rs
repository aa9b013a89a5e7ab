//! The model as an ONNX file, run inside the program: by our own code if it is made of trees or linear and gives
//! the same answers as ONNX Runtime, else by that.
//!
//! Opening a model finds out everything that can be known without a row: which feature feeds which
//! input, which output is the label, which classes there are and whether the scores are probabilities.
//! Scoring is then three steps without a decision in them: columns to tensors, the model, tensors to
//! answers.

mod categories;
mod columns;
mod convert;
mod describe;
mod external;
mod graph;
mod inputs;
mod labels;
mod matrix;
mod names;
mod native;
mod outputs;
mod pool;
mod protobuf;
mod runtime;
mod said;
mod sessions;
mod spread;
#[cfg(test)]
mod tests;
mod trust;
mod variants;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;

use super::{NO_CLASS, Outcome, Predictor, PredictorColumns, RowFailure, Scores, Task, Variants};
use crate::error::{Error, Result};
use crate::job::{EngineSpec, OnnxInputs, OnnxJob, PredictorJob};

use graph::Graph;
use inputs::{FeatureInputs, Named};
use native::Native;
use outputs::{Given, Outputs};
use sessions::{ModelFile, OnnxModel, Sessions};
use trust::Trusted;

pub use describe::{
    ColumnPairs, InputElement, InterfaceInput, ModelAnswers, OnnxInterface, describe_onnx,
    pair_columns,
};
pub(super) use external::read as read_delivered;
pub use external::{OnnxFile, inspect_onnx};
pub use runtime::{runtime_version, summarise_warnings};

/// Rows that one session scores at a time. A larger batch is cut, so that sessions can share it.
/// The size itself hardly matters: the test `measure` finds 241,000 to 248,000 rows a second on one
/// thread for 1,024 to 16,384 rows at a time.
const CHUNK_ROWS: usize = 2048;

/// Rows of a batch for which a further idle session is taken. The engine's batches are smaller and come
/// from as many callers as there are sessions: each does best with one of its own.
const ROWS_PER_SESSION: usize = 16_384;

/// A model in an ONNX file.
#[derive(Debug)]
pub(super) struct OnnxPredictor {
    model: OnnxModel,
    sessions: Sessions,
    /// The limit of time does not hold for it: its work is bounded by the size of the model.
    native: Option<Trusted>,
    /// Threads that it is used from, and how many of them are scoring without a session.
    threads: usize,
    busy: AtomicUsize,
    /// What was assumed about it that it does not tell.
    assumed: Option<String>,
}

impl OnnxPredictor {
    /// Loads a model and matches it with the job and the columns that it will get.
    ///
    /// # Errors
    /// When ONNX Runtime is missing, the file cannot be used, or model, job and columns disagree.
    pub(super) fn open(
        job: &PredictorJob,
        model: &OnnxJob,
        columns: &PredictorColumns,
        threads: usize,
    ) -> Result<OnnxPredictor> {
        runtime::environment()?;
        let mut file = ModelFile::read(&model.model)?;
        let name = file.name.clone();
        let broken = |error| external::broken(&name, error);
        let zipped = file.unzip()?;
        let delivered = zipped.as_ref().unwrap_or(&file.bytes);
        let graph = Graph::read(delivered).map_err(broken)?;
        let likely = model.engine == EngineSpec::Auto && graph.has_trees();
        let pool = file.load(if likely { 1 } else { threads })?;
        let described = describe(&pool, (job, model), columns, &graph)?;
        let assumed = match model.inputs {
            OnnxInputs::Codes => {
                let known = categories::known(delivered).map_err(broken)?;
                let features = &columns.features.features;
                categories::assumed(&categories::check(&name, &known, features)?)
            }
            _ => None,
        };
        let sessions = Sessions::new(pool, model.batch_limit)?;
        let native = match likely {
            true => trusted(&file, (&described, &sessions), columns)?,
            false => None,
        };
        let native = match native {
            Some(native) => Some(native.with(file, threads)),
            None if likely && threads > 1 => {
                sessions.replace(Some(file.load(threads)?));
                None
            }
            None => None,
        };
        say_engine(&name, native.is_some());
        let busy = AtomicUsize::new(0);
        Ok(OnnxPredictor { model: described, sessions, native, threads, busy, assumed })
    }

    /// The model, if it is scored by our own code; the batch is one of the rows that are to be scored.
    fn native(&self, batch: &RecordBatch) -> Result<Option<&Native>> {
        match &self.native {
            Some(native) => native.get((&self.model, &self.sessions), batch),
            None => Ok(None),
        }
    }

    /// Scores a batch in chunks, which the workers take as they are ready for them.
    fn share<W: Send>(
        &self,
        batch: &RecordBatch,
        workers: Vec<W>,
        score: impl Fn(&mut W, &RecordBatch) -> Result<Scores> + Sync,
    ) -> Result<Scores> {
        let chunks = Chunks::new(batch);
        let mut workers = workers.into_iter();
        let mut done = std::thread::scope(|scope| {
            let first_worker = workers.next();
            let work = |worker| work(worker, &chunks, &score);
            let help = |worker| {
                let helper = std::thread::Builder::new();
                // Without a thread for it, this one does the work: chunks are taken as they are done.
                helper.spawn_scoped(scope, move || work(worker)).ok()
            };
            let helpers: Vec<_> = workers.filter_map(help).collect();
            let mut done = first_worker.map_or_else(Vec::new, work);
            for helper in helpers {
                let failed = |_| vec![(0, Err(panicked(&self.model.name)))];
                done.extend(helper.join().unwrap_or_else(failed));
            }
            done
        });
        done.sort_by_key(|(index, _)| *index);
        let mut all = Scores::empty(self.task());
        for (_, scores) in done {
            all.append(scores?);
        }
        Ok(all)
    }

    /// How many threads a batch gets that needs no session: one, and more for a large one if they are idle.
    fn seats(&self, sessions_needed: usize) -> Seats<'_> {
        let busy = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
        let more = self.threads.saturating_sub(busy).min(sessions_needed.saturating_sub(1));
        self.busy.fetch_add(more, Ordering::Relaxed);
        Seats { busy: &self.busy, taken: more + 1 }
    }
}

/// Threads that are scoring.
struct Seats<'p> {
    busy: &'p AtomicUsize,
    taken: usize,
}

impl Drop for Seats<'_> {
    fn drop(&mut self) {
        self.busy.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

/// Matches a model with the job and the columns.
fn describe(
    pool: &pool::SessionPool,
    (job, model): (&PredictorJob, &OnnxJob),
    columns: &PredictorColumns,
    graph: &Graph<'_>,
) -> Result<OnnxModel> {
    let name = model.model.display().to_string();
    let session = &pool.lease(1)[0].session;
    let takes = Named { name: &name, outlets: session.inputs() };
    let gives = Named { name: &name, outlets: session.outputs() };
    let outputs = Outputs::plan(outputs::OutputSearch { outputs: gives, graph }, job)?;
    let inputs = FeatureInputs::plan(takes, model, columns)?;
    Ok(OnnxModel { name, inputs, outputs })
}

/// The model as our own code scores it, if it recognises it and gives the same answers as ONNX Runtime.
fn trusted(
    file: &ModelFile,
    (model, sessions): (&OnnxModel, &Sessions),
    columns: &PredictorColumns,
) -> Result<Option<Trusted>> {
    let graph = Graph::read(&file.bytes).map_err(|error| external::broken(&file.name, error))?;
    let native = Native::recognise(&graph, &model.inputs, &model.outputs, columns);
    Ok(native.and_then(|native| Trusted::new(native, (model, sessions), columns)))
}

/// Says, once for each process, which engine scores a model.
fn say_engine(model: &str, native: bool) {
    let engine = if native { "the program itself" } else { "ONNX Runtime" };
    let text = format!("{model}: is scored by {engine}");
    if said::first_time(&text) {
        tracing::info!("{text}");
    }
}

/// Scores the chunks that other workers have not taken yet; stops at the first that fails.
fn work<W>(
    mut worker: W,
    chunks: &Chunks<'_>,
    score: impl Fn(&mut W, &RecordBatch) -> Result<Scores>,
) -> Vec<(usize, Result<Scores>)> {
    let mut done = Vec::new();
    while let Some((index, chunk)) = chunks.next() {
        let scores = score(&mut worker, &chunk);
        let failed = scores.is_err();
        done.push((index, scores));
        if failed {
            break;
        }
    }
    done
}

/// Answers from what a model gave, with the rows that could not be told to it and those that have no answer.
fn finished(
    outputs: &Outputs,
    given: &dyn Given,
    rows: usize,
    mut failures: Vec<RowFailure>,
) -> Result<Scores> {
    let mut outcome = outputs.read(given, rows, &mut failures)?;
    failures.sort_by_key(|failure| failure.row);
    failures.dedup_by_key(|failure| failure.row);
    blank(&mut outcome, &failures, rows);
    Ok(Scores { rows, outcome, failures })
}

impl Predictor for OnnxPredictor {
    fn task(&self) -> &Task {
        self.model.outputs.task()
    }

    fn parallelism(&self) -> usize {
        match (&self.native, self.sessions.pool()) {
            (None, Some(pool)) => pool.size(),
            _ => self.threads.max(1),
        }
    }

    fn predict(&self, batch: &RecordBatch) -> Result<Scores> {
        let sessions_needed = batch.num_rows().div_ceil(ROWS_PER_SESSION);
        if let Some(native) = self.native(batch)? {
            let seats = self.seats(sessions_needed);
            let score = |(): &mut (), batch: &RecordBatch| trust::score(native, &self.model, batch);
            return self.share(batch, vec![(); seats.taken], score);
        }
        let Some(pool) = self.sessions.pool() else {
            return Err(Error::internal("sessions", "are closed"));
        };
        let score = |scorer: &mut pool::Lease<'_>, batch: &RecordBatch| {
            self.sessions.score(&self.model, scorer, batch)
        };
        self.share(batch, pool.lease(sessions_needed), score)
    }

    fn variants(&self, originals: &RecordBatch) -> Result<Option<Box<dyn Variants + '_>>> {
        let Some(native) = self.native(originals)? else { return Ok(None) };
        let rows = originals.num_rows();
        let prepared = native.originals(&self.model.inputs, originals);
        let prepared = prepared.map_err(|error| self.model.failed(rows, error))?;
        Ok(prepared.map(|originals| {
            Box::new(variants::BatchVariants {
                model: &self.model,
                originals,
                scratch: Default::default(),
            }) as Box<dyn Variants + '_>
        }))
    }

    fn breakpoints(&self, feature: usize) -> Option<Arc<[f64]>> {
        self.native.as_ref()?.peek()?.breakpoints(&self.model.inputs, feature)
    }

    fn assumed(&self) -> Option<&str> {
        self.assumed.as_deref()
    }

    /// Runs that are under way end at the next operator.
    fn stop(&self) {
        self.sessions.stop();
    }
}

/// Reads bytes as an ONNX model and asks everything of its graph that opening a model asks; returns how many
/// outputs have labels. For fuzzing: ONNX Runtime is not started.
#[doc(hidden)]
pub fn read_graph(bytes: &[u8]) -> Option<usize> {
    let graph = Graph::read(bytes).ok()?;
    graph.labels_anywhere();
    let labelled = graph.walk_outputs();
    match graph.without_zipmap(bytes).ok()? {
        Some(copy) => Graph::read(&copy).ok().map(|graph| graph.walk_outputs()),
        None => Some(labelled),
    }
}

/// A batch in parts that several workers take from.
struct Chunks<'b> {
    batch: &'b RecordBatch,
    taken: AtomicUsize,
}

impl<'b> Chunks<'b> {
    fn new(batch: &'b RecordBatch) -> Chunks<'b> {
        Chunks { batch, taken: AtomicUsize::new(0) }
    }

    /// A part that nobody has taken, with its position.
    fn next(&self) -> Option<(usize, RecordBatch)> {
        let index = self.taken.fetch_add(1, Ordering::Relaxed);
        let start = index * CHUNK_ROWS;
        let left = self.batch.num_rows().saturating_sub(start);
        (left > 0).then(|| (index, self.batch.slice(start, left.min(CHUNK_ROWS))))
    }
}

fn unloadable(model: &str, error: ort::Error) -> Error {
    let reason = error.message().to_lowercase();
    let version = runtime_version().unwrap_or_default();
    let problem = format!("cannot be loaded by ONNX Runtime {version}");
    let failed = Error::predictor(model, problem);
    let too_new = ["opset", "ir version", "ir_version"].iter().any(|word| reason.contains(word));
    let failed = if too_new {
        failed
            .hint("export it for an older opset (`target_opset`), or install a newer ONNX Runtime")
    } else {
        failed
    };
    failed.source(error)
}

fn panicked(model: &str) -> Error {
    Error::internal(model, "a thread that scored a batch panicked")
}

/// Takes back the answers of failed rows.
fn blank(outcome: &mut Outcome, failures: &[RowFailure], rows: usize) {
    for failure in failures {
        match outcome {
            Outcome::Values(values) => values[failure.row] = f64::NAN,
            Outcome::Classes { labels, probabilities } => {
                labels[failure.row] = NO_CLASS;
                if let Some(probabilities) = probabilities {
                    let width = probabilities.len() / rows;
                    probabilities[failure.row * width..][..width].fill(f64::NAN);
                }
            }
        }
    }
}
