//! Rows searched once more, under other constraints or with more questions.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, SchemaRef};
use hashbrown::HashMap;
use rayon::prelude::*;

use super::sample::Chosen;
use crate::artefact::Artefact;
use crate::error::{Error, Result};
use crate::explain::{ColumnIndices, ExplainSetup, ExplainStats, Explainer, RobustModels};
use crate::feature::{FeatureSchema, key_hashes};
use crate::job::{ExplainJob, Target};
use crate::nearest::Points;
use crate::predictor::Predictor;
use crate::report::column;
use crate::runtime::Streams;

/// Rows that one thread searches at once. The same whatever the number of threads: the generator's matrix products
/// round otherwise in blocks of another size.
const BLOCK_ROWS: usize = 64;
/// Rows that are searched before what it cost is looked at.
pub(super) const CHUNK_ROWS: usize = 512;

/// All that explaining needs; every explainer of the audit is made of it.
pub struct ExplainerSetup<'a> {
    /// The run's generator.
    pub artefact: &'a Artefact,
    /// Training rows.
    pub neighbours: Points,
    /// The features.
    pub schema: Arc<FeatureSchema>,
    /// The input's columns …
    pub table: SchemaRef,
    /// … and what they are.
    pub columns: ColumnIndices,
    /// What the model should decide.
    pub target: &'a Target,
    /// How rows were explained.
    pub explain: &'a ExplainJob,
    /// Models under which counterfactuals had to hold too.
    pub robust: RobustModels,
    /// Random streams of the run.
    pub streams: Streams,
}

/// What differs from the run.
#[derive(Debug, Clone)]
pub struct Variation {
    /// The feature schema.
    pub schema: Arc<FeatureSchema>,
    /// What columns are.
    pub columns: ColumnIndices,
    /// How rows are explained.
    pub explain: ExplainJob,
}

/// What a search has found for a row and target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchResult {
    /// Whether there is a valid counterfactual.
    pub valid: bool,
    /// What it costs; NaN where there is none.
    pub cost: f64,
}

/// By key and target.
pub(super) type FoundRows = HashMap<(u128, u32), SearchResult>;

impl ExplainerSetup<'_> {
    /// Nothing differs, but for limits that belong to the run: one counterfactual a row, and no clock.
    pub fn unchanged(&self) -> Variation {
        let mut explain = self.explain.alone();
        explain.samples = 1;
        explain.refine.max_time = None;
        Variation { schema: Arc::clone(&self.schema), columns: self.columns.clone(), explain }
    }

    /// An explainer.
    ///
    /// # Errors
    /// As [`Explainer::new`].
    pub fn explainer(
        &self,
        variation: &Variation,
        predictor: Arc<dyn Predictor>,
    ) -> Result<Arc<Explainer>> {
        let description = &self.artefact.description;
        let setup = ExplainSetup {
            description,
            schema: Arc::clone(&variation.schema),
            table: Arc::clone(&self.table),
            columns: variation.columns.clone(),
            predictor,
            robust: self.robust.clone(),
            decisions: None,
            target: self.target,
            explain: &variation.explain,
            neighbours: Some(self.neighbours.clone()),
            streams: self.streams,
        };
        Explainer::new(self.artefact.generator.replica()?, setup).map(Arc::new)
    }

    /// Searches rows.
    ///
    /// # Errors
    /// When the model as a whole fails.
    pub fn search(
        &self,
        explainer: &Arc<Explainer>,
        chosen: &Chosen,
        targets: &[String],
    ) -> Result<FoundRows> {
        let Some(block) = chosen.block(&self.table)? else { return Ok(FoundRows::new()) };
        let blocks: Vec<RecordBatch> = (0..block.num_rows())
            .step_by(BLOCK_ROWS)
            .map(|first| block.slice(first, BLOCK_ROWS.min(block.num_rows() - first)))
            .collect();
        // Tensors of the artefact cannot be shared among threads.
        let key = (self.columns.key.len(), self.streams.seed_of("explain"));
        let search = |block: &RecordBatch| {
            let table = explainer.worker()?.explain(block, &mut ExplainStats::default())?;
            found_in(&table, key, targets)
        };
        let found: Vec<Vec<((u128, u32), SearchResult)>> =
            blocks.par_iter().map(search).collect::<Result<_>>()?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// What a table says, whose first columns are the key.
fn found_in(
    table: &RecordBatch,
    (key, seed): (usize, u64),
    targets: &[String],
) -> Result<Vec<((u128, u32), SearchResult)>> {
    let key = table.project(&(0..key).collect::<Vec<usize>>());
    let key = key.map_err(|error| Error::internal("search", "a key is lost").source(error))?;
    let hashes = key_hashes(&key, seed)?;
    let names = column(table, "target")?.as_string::<i32>();
    let valid = column(table, "valid")?.as_boolean();
    let costs = column(table, "cost")?.as_primitive::<Float64Type>();
    let found = names.iter().zip(valid).zip(costs).zip(hashes);
    let found = found.map(|(((name, valid), cost), hash)| {
        let target = targets.iter().position(|target| Some(target.as_str()) == name);
        let found = SearchResult { valid: valid.unwrap_or(false), cost: cost.unwrap_or(f64::NAN) };
        ((hash, target.unwrap_or(0) as u32), found)
    });
    Ok(found.collect())
}
