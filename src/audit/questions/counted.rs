//! A model that counts what it is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;

use crate::error::Result;
use crate::predictor::{
    Goal, Predictor, Reach, Responses, Scores, Search, Searched, Task, Variant, Variants,
};

/// A model that counts its questions: rows, changed copies of rows, and searches of what a row may become.
pub(super) struct CountedPredictor {
    model: Arc<dyn Predictor>,
    asked: AtomicU64,
}

/// Its changed copies of some rows.
struct CountedVariants<'a> {
    variants: Box<dyn Variants + 'a>,
    asked: &'a AtomicU64,
}

impl CountedPredictor {
    /// The same model.
    pub(super) fn new(model: Arc<dyn Predictor>) -> CountedPredictor {
        CountedPredictor { model, asked: AtomicU64::new(0) }
    }

    /// Questions so far.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Predictor for CountedPredictor {
    fn task(&self) -> &Task {
        self.model.task()
    }

    fn parallelism(&self) -> usize {
        self.model.parallelism()
    }

    fn predict(&self, batch: &RecordBatch) -> Result<Scores> {
        self.asked.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        self.model.predict(batch)
    }

    fn variants(&self, originals: &RecordBatch) -> Result<Option<Box<dyn Variants + '_>>> {
        let variants = self.model.variants(originals)?;
        let asked = &self.asked;
        Ok(variants.map(|variants| -> Box<dyn Variants + '_> {
            Box::new(CountedVariants { variants, asked })
        }))
    }

    fn breakpoints(&self, feature: usize) -> Option<Arc<[f64]>> {
        self.model.breakpoints(feature)
    }

    fn assumed(&self) -> Option<&str> {
        self.model.assumed()
    }

    fn stop(&self) {
        self.model.stop();
    }
}

impl Variants for CountedVariants<'_> {
    fn search(
        &mut self,
        copy: (&Variant<'_>, &[Reach]),
        goal: Goal,
        search: Search<'_>,
    ) -> Result<Option<Searched>> {
        let searched = self.variants.search(copy, goal, search)?;
        self.asked.fetch_add(u64::from(searched.is_some()), Ordering::Relaxed);
        Ok(searched)
    }

    fn responses(&mut self, copies: &[(Variant<'_>, &[Reach])]) -> Result<Option<Vec<Responses>>> {
        let shown_responses = self.variants.responses(copies)?;
        let asked = shown_responses.as_ref().map_or(0, Vec::len) as u64;
        self.asked.fetch_add(asked, Ordering::Relaxed);
        Ok(shown_responses)
    }

    fn predict(&mut self, copies: &[Variant<'_>]) -> Result<Scores> {
        self.asked.fetch_add(copies.len() as u64, Ordering::Relaxed);
        self.variants.predict(copies)
    }
}
