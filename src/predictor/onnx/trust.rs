//! Whether a model is scored by our own code: only after it gave ONNX Runtime's answers on generated rows and on
//! the first real ones. The first difference is said, and the model is ONNX Runtime's from then on.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use parking_lot::Mutex;

use super::native::{Native, Trials, Wildness, difference};
use super::sessions::{ModelFile, OnnxModel, Sessions};
use super::{finished, said};
use crate::error::Result;
use crate::predictor::{PredictorColumns, Scores};

/// Generated rows that are compared at once, how often, and the time after which no more are begun.
const TRIAL_ROWS: usize = 512;
const TRIALS: usize = 6;
const TRIAL_TIME: Duration = Duration::from_millis(80);

/// Real rows that are compared.
const REAL_ROWS: usize = 2048;

/// A model that is scored by our own code, as long as it proves right.
#[derive(Debug)]
pub(super) struct Trusted {
    native: Native,
    distrusted: AtomicBool,
    /// Real rows that are still to be compared.
    left: AtomicUsize,
    /// What ONNX Runtime needs to take over; gone when it cannot be needed any more.
    file: Mutex<Option<ModelFile>>,
    threads: usize,
}

impl Trusted {
    /// A recognised model, if it passes on generated rows.
    pub(super) fn new(
        native: Native,
        (model, sessions): (&OnnxModel, &Sessions),
        columns: &PredictorColumns,
    ) -> Option<Trusted> {
        if let Some(reason) = compare(&native, (model, sessions), columns) {
            warn(&model.name, &reason);
            return None;
        }
        Some(Trusted {
            native,
            distrusted: AtomicBool::new(false),
            left: AtomicUsize::new(REAL_ROWS),
            file: Mutex::new(None),
            threads: 1,
        })
    }

    /// The same with what ONNX Runtime needs to take over.
    pub(super) fn with(self, file: ModelFile, threads: usize) -> Trusted {
        Trusted { file: Mutex::new(Some(file)), threads, ..self }
    }

    /// The scorer, if it is right about the first real rows: those of this batch, unless there were enough.
    ///
    /// # Errors
    /// When ONNX Runtime has to take over and cannot be loaded.
    pub(super) fn get(
        &self,
        (model, sessions): (&OnnxModel, &Sessions),
        batch: &RecordBatch,
    ) -> Result<Option<&Native>> {
        if self.left.load(Ordering::Acquire) > 0 {
            self.confirm((model, sessions), batch)?;
        }
        Ok((!self.distrusted.load(Ordering::Acquire)).then_some(&self.native))
    }

    /// The scorer, whether or not it has met a real row.
    pub(super) fn peek(&self) -> Option<&Native> {
        (!self.distrusted.load(Ordering::Acquire)).then_some(&self.native)
    }

    fn confirm(
        &self,
        (model, sessions): (&OnnxModel, &Sessions),
        batch: &RecordBatch,
    ) -> Result<()> {
        let mut file = self.file.lock();
        let left = self.left.load(Ordering::Acquire);
        let rows = left.min(batch.num_rows());
        if rows == 0 {
            return Ok(());
        }
        let first = batch.slice(0, rows);
        match differing(&self.native, (model, sessions), &first) {
            None => {
                self.left.store(left - rows, Ordering::Release);
                if left == rows {
                    *file = None;
                    sessions.replace(None);
                }
            }
            Some(reason) => {
                warn(&model.name, &reason);
                if let Some(file) = file.take() {
                    sessions.replace(Some(file.load(self.threads)?));
                }
                self.distrusted.store(true, Ordering::Release);
                self.left.store(0, Ordering::Release);
            }
        }
        Ok(())
    }
}

/// Scores a batch with our own code.
pub(super) fn score(native: &Native, model: &OnnxModel, batch: &RecordBatch) -> Result<Scores> {
    let rows = batch.num_rows();
    let scored = native.score(&model.inputs, batch);
    let (answers, failures) = scored.map_err(|error| model.failed(rows, error))?;
    finished(&model.outputs, &answers, rows, failures)
}

/// What differs on generated rows.
fn compare(
    native: &Native,
    (model, sessions): (&OnnxModel, &Sessions),
    columns: &PredictorColumns,
) -> Option<String> {
    let began = Instant::now();
    let mut trials = Trials::new(native, &model.inputs, columns);
    for trial in 0..TRIALS {
        let wildness = if trial % 2 == 0 { Wildness::Tame } else { Wildness::Wild };
        // A table with columns that cannot be made up is compared on its first real rows alone.
        let Ok(batch) = trials.batch(TRIAL_ROWS, wildness) else { return None };
        if let Some(reason) = differing(native, (model, sessions), &batch) {
            return Some(reason);
        }
        if began.elapsed() > TRIAL_TIME && trial > 0 {
            return None;
        }
    }
    None
}

/// What differs on these rows.
fn differing(
    native: &Native,
    (model, sessions): (&OnnxModel, &Sessions),
    batch: &RecordBatch,
) -> Option<String> {
    let (from_native, from_runtime) =
        (score(native, model, batch), sessions.score_all(model, batch));
    match (from_native, from_runtime) {
        (Ok(from_native), Ok(from_runtime)) => {
            difference(&from_native, &from_runtime, native.tolerance())
        }
        (Err(_), Err(_)) => None,
        (Ok(_), Err(_)) => Some("ONNX Runtime refuses a batch".to_string()),
        (Err(error), Ok(_)) => Some(format!("only ONNX Runtime scores a batch ({error})")),
    }
}

fn warn(model: &str, reason: &str) {
    let text = format!(
        "{model}: our scorer of trees and linear models gives other answers than ONNX Runtime: {reason}; \
         it is scored by ONNX Runtime"
    );
    if said::first_time(&text) {
        tracing::warn!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::Predictor;
    use super::super::tests::{NUMBERS, case, frame, models};
    use super::*;
    use crate::job::EngineSpec;
    use crate::job::OnnxInputs;

    #[test]
    fn a_model_that_differs_on_real_rows_is_left_to_onnx_runtime() {
        let Some(folder) = models() else { return };
        let batch = frame(folder, &NUMBERS);
        let open = |name| {
            let described = case(folder, name, OnnxInputs::Raw);
            described.open_with(EngineSpec::Auto, &batch).expect("a model")
        };
        let (mut forest, mut boosted) = (open("forest"), open("boosted_grades"));
        let (ours, theirs) = (forest.native.take(), boosted.native.take());
        let (Some(ours), Some(theirs)) = (ours, theirs) else { panic!("both are recognised") };
        // The scorer of another model with three classes.
        forest.native = Some(Trusted { native: theirs.native, ..ours });
        let expected = case(folder, "forest", OnnxInputs::Raw)
            .open_with(EngineSpec::OnnxRuntime, &batch)
            .and_then(|runtime| runtime.predict(&batch));
        let scores = forest.predict(&batch).expect("scores");
        assert_eq!(scores, expected.expect("scores"));
        assert!(forest.native.as_ref().is_some_and(|native| native.peek().is_none()));
        assert_eq!(forest.sessions.pool().map(|pool| pool.size()), Some(2));
        assert!(forest.variants(&batch).expect("no error").is_none());
        assert_eq!(forest.breakpoints(0), None);
    }
}
