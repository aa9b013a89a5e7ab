//! The model under explanation behind one synchronous trait. Knows ONNX Runtime and child processes;
//! knows nothing of tables, encodings or explanations.
//!
//! Callers are compute loops that hand over batches of original-typed feature columns, in the schema's
//! order, and get one answer per row in the same order. A predictor may be called from several threads
//! at once; how many of them make progress is the adapter's own affair (its pool).

mod fingerprint;
mod guard;
mod onnx;
mod repeat;
mod subprocess;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::error::Result;
use crate::feature::{Edit, FeatureSchema};
use crate::job::{PredictorJob, PredictorKind};

pub use fingerprint::{fingerprint, model_files};
#[doc(hidden)]
pub use onnx::read_graph;
pub use onnx::{
    ColumnPairs, InputElement, InterfaceInput, ModelAnswers, OnnxFile, OnnxInterface,
    describe_onnx, inspect_onnx, pair_columns, runtime_version as onnxruntime_version,
    summarise_warnings,
};
pub use repeat::{Disagreement, Repeated, ask_again};
#[doc(hidden)]
pub use subprocess::read_answers;

/// Starts scorer programs under a guard from now on: confined, and ended with all their descendants even
/// if this program is killed. Without it, as in programs that only use the library, they lead process
/// groups of their own and are not confined. The program must call [`guard_main`] first thing.
pub fn supervise_scorers() {
    subprocess::supervise_scorers();
}

/// Does the guard's work, if that is what the command line asks for.
pub fn guard_main() -> Option<std::process::ExitCode> {
    guard::main()
}

/// The label of a row for which the model gave no answer.
pub const NO_CLASS: u32 = u32::MAX;

/// What a model's answers mean.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// One of these classes, in the order of the score columns.
    Classification {
        /// The class labels as text.
        classes: Arc<[String]>,
        /// Whether the model gives a probability for each class.
        probabilities: bool,
    },
    /// A number.
    Regression,
}

/// The answers for one batch: one entry per input row, same order.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// Rows of the batch, including those in `failures`.
    pub rows: usize,
    /// The answers themselves.
    pub outcome: Outcome,
    /// Rows for which the model gave no answer, ascending.
    pub failures: Vec<RowFailure>,
}

impl Scores {
    /// The answers for no rows.
    pub fn empty(task: &Task) -> Scores {
        let outcome = match task {
            Task::Regression => Outcome::Values(Vec::new()),
            Task::Classification { probabilities, .. } => {
                let probabilities = probabilities.then(Vec::new);
                Outcome::Classes { labels: Vec::new(), probabilities }
            }
        };
        Scores { rows: 0, outcome, failures: Vec::new() }
    }

    /// The answers for the rows at these positions, in this order. Failures are told by the answers alone.
    #[must_use]
    pub fn take(&self, rows: &[u32]) -> Scores {
        let outcome = match &self.outcome {
            Outcome::Values(values) => {
                Outcome::Values(rows.iter().map(|row| values[*row as usize]).collect())
            }
            Outcome::Classes { labels, probabilities } => {
                let width = probabilities.as_ref().map_or(0, |all| all.len() / self.rows.max(1));
                let taken = |all: &Vec<f64>| {
                    let of_row =
                        |row: &u32| &all[*row as usize * width..(*row as usize + 1) * width];
                    rows.iter().flat_map(of_row).copied().collect()
                };
                Outcome::Classes {
                    labels: rows.iter().map(|row| labels[*row as usize]).collect(),
                    probabilities: probabilities.as_ref().map(taken),
                }
            }
        };
        Scores { rows: rows.len(), outcome, failures: Vec::new() }
    }

    /// Puts answers of the same task in the place of others.
    pub fn put(&mut self, positions: &[u32], from: &Scores) {
        match (&mut self.outcome, &from.outcome) {
            (Outcome::Values(into), Outcome::Values(from)) => {
                positions
                    .iter()
                    .zip(from)
                    .for_each(|(position, value)| into[*position as usize] = *value);
            }
            (
                Outcome::Classes { labels, probabilities },
                Outcome::Classes { labels: from, probabilities: shares },
            ) => {
                positions
                    .iter()
                    .zip(from)
                    .for_each(|(position, label)| labels[*position as usize] = *label);
                if let (Some(into), Some(from)) = (probabilities, shares) {
                    let width = from.len() / positions.len().max(1);
                    for (position, row) in positions.iter().zip(from.chunks_exact(width.max(1))) {
                        let first = *position as usize * width;
                        into[first..first + width].copy_from_slice(row);
                    }
                }
            }
            _ => unreachable!("both are answers of one model"),
        }
    }

    /// Adds the answers for the rows that follow, of the same task.
    pub fn append(&mut self, next: Scores) {
        let before = self.rows;
        let moved = |failure: RowFailure| RowFailure { row: failure.row + before, ..failure };
        self.failures.extend(next.failures.into_iter().map(moved));
        self.rows += next.rows;
        match (&mut self.outcome, next.outcome) {
            (Outcome::Values(values), Outcome::Values(more)) => values.extend(more),
            (
                Outcome::Classes { labels, probabilities },
                Outcome::Classes { labels: more, probabilities: further },
            ) => {
                labels.extend(more);
                if let (Some(probabilities), Some(further)) = (probabilities, further) {
                    probabilities.extend(further);
                }
            }
            _ => unreachable!("all parts of a batch have the model's one task"),
        }
    }
}

/// Labels or values, according to the [`Task`].
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Classification.
    Classes {
        /// Index into the task's classes; [`NO_CLASS`] for a failed row.
        labels: Vec<u32>,
        /// Row-major, rows × classes; NaN for a failed row. Present if the task says so.
        probabilities: Option<Vec<f64>>,
    },
    /// Regression; NaN for a failed row.
    Values(Vec<f64>),
}

/// A row the model could not score, found by bisection of a failing batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFailure {
    /// Position in the batch.
    pub row: usize,
    /// What the model said about it.
    pub detail: String,
}

/// A model that scores batches.
pub trait Predictor: Send + Sync {
    /// What its answers mean. Fixed for the predictor's life.
    fn task(&self) -> &Task;

    /// How many batches it can usefully score at once.
    fn parallelism(&self) -> usize;

    /// Scores a batch of feature columns. The batch's schema is the one it was
    /// opened with.
    ///
    /// # Errors
    /// When the model as a whole fails; rows that fail on their own are in [`Scores::failures`].
    fn predict(&self, batch: &RecordBatch) -> Result<Scores>;

    /// Prepares questions about copies of these rows with some cells changed, each of which then costs no batch
    /// of its own. None where the adapter can be asked about whole batches only.
    ///
    /// # Errors
    /// When the rows cannot be told to the model.
    fn variants(&self, _originals: &RecordBatch) -> Result<Option<Box<dyn Variants + '_>>> {
        Ok(None)
    }

    /// The breakpoints of a numeric feature, ascending: as long as a number stays in (b\[i\], b\[i + 1\]] and all
    /// else is equal, the model says the same. None where the model does not show them.
    fn breakpoints(&self, _feature: usize) -> Option<Arc<[f64]>> {
        None
    }

    /// What was assumed about the model that only stored decisions could confirm, in words.
    fn assumed(&self) -> Option<&str> {
        None
    }

    /// Gives up whatever is still being computed: the run has failed or was interrupted. Calls that are
    /// under way may fail; none may follow.
    fn stop(&self) {}
}

/// A copy of a row with some cells changed.
#[derive(Debug, Clone, Copy)]
pub struct Variant<'e> {
    /// Position of the row in its batch.
    pub row: u32,
    /// What differs, with all that follows from it; categories are codes of the feature's values.
    pub edits: &'e [Edit],
}

/// What a feature of a row may become.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    /// Only what it is.
    Fixed,
    /// Any number from the first to the second, both included.
    Numbers(f64, f64),
    /// One of these codes.
    Codes(Vec<u32>),
}

/// Values of a feature for all of which the model says the same of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values {
    /// Numbers above the first, up to the second.
    Numbers(f64, f64),
    /// A category.
    Code(u32),
}

/// What a model would say of a row if one of its features had another value: an entry for each feature and
/// values of it.
#[derive(Debug, Clone)]
pub struct Responses {
    /// The features and their values; those of a feature cover all that it may become.
    pub values: Vec<(usize, Values)>,
    /// The model's answers, up to rounding: to choose questions by.
    pub scores: Scores,
}

/// What a model should say of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// This class, by its position in the task.
    Class(u32),
    /// A value between these, both included.
    Between(f64, f64),
}

/// Features that must change, and what to.
pub type Region = [(usize, Reach)];

/// How to search everything that a row may become.
pub struct Search<'a> {
    /// Trees to look through, at most, over all regions.
    pub trees: usize,
    /// Shown regions in which the goal is reached, up to rounding.
    pub accept: &'a mut dyn FnMut(&Region) -> Verdict,
}

/// What became of a region that was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The search is over.
    Taken,
    /// Nothing in it is allowed.
    Empty,
    /// Something in it may be allowed.
    Refused,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A region was taken.
    Taken,
    /// Proven: nothing that the row may become reaches the goal.
    Impossible,
    /// Too many regions were left, or one that was refused may hold something.
    Unknown,
}

/// What came of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Searched {
    /// How it ended.
    pub ended: Ended,
    /// Regions that were looked at.
    pub regions: usize,
}

/// Scores changed copies of the rows of one batch.
pub trait Variants {
    /// Searches what a copy may become for what reaches a goal, excluding regions that cannot by bounds of what the
    /// model says. None where the model does not show bounds.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    fn search(
        &mut self,
        _copy: (&Variant<'_>, &[Reach]),
        _goal: Goal,
        _search: Search<'_>,
    ) -> Result<Option<Searched>> {
        Ok(None)
    }

    /// What the model would say of copies if one of their features were anything else that it may become, which is
    /// said of each. None where the model does not show it.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    fn responses(&mut self, _copies: &[(Variant<'_>, &[Reach])]) -> Result<Option<Vec<Responses>>> {
        Ok(None)
    }

    /// Scores these copies: the answers that [`Predictor::predict`] gives to a batch of them.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    fn predict(&mut self, copies: &[Variant<'_>]) -> Result<Scores>;
}

/// What a predictor is told about the batches it will get.
#[derive(Debug, Clone)]
pub struct PredictorColumns {
    /// What each column means.
    pub features: Arc<FeatureSchema>,
    /// The columns of every batch: one per feature, in the same order, in the table's own types.
    pub schema: SchemaRef,
}

/// Loads or starts the predictor of a job, to be used from `threads` threads.
pub fn open(
    job: &PredictorJob,
    columns: &PredictorColumns,
    threads: usize,
) -> Result<Arc<dyn Predictor>> {
    match &job.kind {
        PredictorKind::Onnx(model) => {
            Ok(Arc::new(onnx::OnnxPredictor::open(job, model, columns, threads)?))
        }
        PredictorKind::Subprocess(program) => {
            Ok(Arc::new(subprocess::SubprocessPredictor::open(job, program, columns, threads)?))
        }
    }
}
