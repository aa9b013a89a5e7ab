//! The model as an ONNX file, run inside the program by ONNX Runtime.
//!
//! Opening a model finds out everything that can be known without a row: which feature feeds which
//! input, which output is the label, which classes there are and whether the scores are probabilities.
//! Scoring is then three steps without a decision in them: columns to tensors, the model, tensors to
//! answers.

mod categories;
mod columns;
mod convert;
mod external;
mod graph;
mod inputs;
mod labels;
mod matrix;
mod names;
mod outputs;
mod pool;
mod protobuf;
mod runtime;
mod said;
mod spread;
#[cfg(test)]
mod tests;
mod watch;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;

use super::{Columns, NO_CLASS, Outcome, Predictor, RowFailure, Scores, Task};
use crate::error::{Error, Result, Source};
use crate::job::{OnnxInputs, OnnxJob, PredictorJob};

use graph::Graph;
use inputs::{Inputs, Named};
use outputs::{Model, Outputs};
use pool::{Lease, Pool, Scorer};
use watch::Watch;

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
    /// The file's name in messages.
    name: String,
    inputs: Inputs,
    outputs: Outputs,
    pool: Pool,
    watch: Watch,
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
        columns: &Columns,
        threads: usize,
    ) -> Result<OnnxPredictor> {
        runtime::environment()?;
        let name = model.model.display().to_string();
        let bytes = external::read(&model.model)?.bytes;
        let broken = |error| external::broken(&name, error);
        let graph = Graph::read(&bytes).map_err(broken)?;
        let unzipped = graph.without_zipmap(&bytes).map_err(broken)?;
        let folder = model.model.parent().unwrap_or(Path::new("."));
        let pool = Pool::open(unzipped.as_deref().unwrap_or(&bytes), folder, threads)
            .map_err(|error| unloadable(&name, error))?;
        let (inputs, outputs) = {
            let session = &pool.lease(1)[0].session;
            let takes = Named { name: &name, outlets: session.inputs() };
            let gives = Named { name: &name, outlets: session.outputs() };
            let outputs = Outputs::plan(Model { outputs: gives, graph: &graph }, job)?;
            (Inputs::plan(takes, model, columns)?, outputs)
        };
        let assumed = match model.inputs {
            OnnxInputs::Codes => {
                let known = categories::known(&bytes).map_err(broken)?;
                let features = &columns.features.features;
                categories::assumed(&categories::check(&name, &known, features)?)
            }
            _ => None,
        };
        let watch = Watch::start(model.batch_limit)?;
        Ok(OnnxPredictor { name, inputs, outputs, pool, watch, assumed })
    }

    /// Scores the chunks that other workers have not taken yet; stops at the first that fails.
    fn work(&self, mut scorer: Lease<'_>, chunks: &Chunks) -> Vec<(usize, Result<Scores>)> {
        let mut done = Vec::new();
        while let Some((index, chunk)) = chunks.next() {
            let scores = self.score(&mut scorer, &chunk);
            let failed = scores.is_err();
            done.push((index, scores));
            if failed {
                break;
            }
        }
        done
    }

    fn score(&self, scorer: &mut Scorer, batch: &RecordBatch) -> Result<Scores> {
        let rows = batch.num_rows();
        let failed = |source: Source| {
            let problem = format!("failed to score a batch of {rows} rows");
            Error::predictor(&self.name, problem).source(source)
        };
        let run = self.watch.run().map_err(|error| failed(error.into()))?;
        let scored = self.inputs.run(scorer, batch, &run.options);
        let (outputs, mut failures) = scored.map_err(|error| {
            if run.is_overdue() { self.overdue(rows) } else { failed(error.into_source()) }
        })?;
        let mut outcome = self.outputs.read(&outputs, rows, &mut failures)?;
        failures.sort_by_key(|failure| failure.row);
        failures.dedup_by_key(|failure| failure.row);
        blank(&mut outcome, &failures, rows);
        Ok(Scores { rows, outcome, failures })
    }

    fn overdue(&self, rows: usize) -> Error {
        let seconds = self.watch.limit.as_secs_f64();
        let problem = format!(
            "gave no answer to a batch of {rows} rows within {seconds} s (`predictor.batch_seconds`)"
        );
        Error::predictor(&self.name, problem)
    }
}

impl Predictor for OnnxPredictor {
    fn task(&self) -> &Task {
        self.outputs.task()
    }

    fn parallelism(&self) -> usize {
        self.pool.size()
    }

    fn predict(&self, batch: &RecordBatch) -> Result<Scores> {
        let chunks = Chunks::new(batch);
        let wanted = batch.num_rows().div_ceil(ROWS_PER_SESSION);
        let mut sessions = self.pool.lease(wanted).into_iter();
        let mut done = std::thread::scope(|scope| {
            let own = sessions.next();
            let work = |session| self.work(session, &chunks);
            let help = |session| {
                let helper = std::thread::Builder::new();
                // Without a thread for it, this one does the work: chunks are taken as they are done.
                helper.spawn_scoped(scope, move || work(session)).ok()
            };
            let helpers: Vec<_> = sessions.filter_map(help).collect();
            let mut done = own.map_or_else(Vec::new, work);
            for helper in helpers {
                done.extend(helper.join().unwrap_or_else(|_| vec![(0, Err(panicked(&self.name)))]));
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

    fn assumed(&self) -> Option<&str> {
        self.assumed.as_deref()
    }

    /// Runs that are under way end at the next operator.
    fn stop(&self) {
        self.watch.stop();
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
