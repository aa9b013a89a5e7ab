//! What a run would do: the plan, the rows, and an estimate from a first block of rows.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use futures::StreamExt;
use serde::Serialize;
use tokio::task::block_in_place;

use super::super::model::open_robust;
use super::super::{Observer, Scope, seconds_since};
use super::{RunMode, Stages};
use crate::artefact::{load, load_neighbours};
use crate::engine::{ScanPlan, Split};
use crate::error::{Error, Result};
use crate::explain::{ExplainSetup, ExplainStats, Explainer, check_fit};
use crate::job::{CommitMode, ExplainMethod, Job};
use crate::output::check_output;
use crate::predictor;
use crate::runtime::Runtime;

/// What a run would do.
#[derive(Debug, Clone, Serialize)]
pub struct DryRun {
    /// Rows of the feature table.
    pub rows: u64,
    /// Rows in scope.
    pub rows_in_scope: u64,
    /// Files of the feature table.
    pub files: usize,
    /// Splits of it.
    pub splits: usize,
    /// The stages, in order.
    pub stages: Vec<String>,
    /// The plan by which rows are explained, in the query engine's words: a line for each operator. That of a split's
    /// rows stands below it.
    pub plan: Vec<String>,
    /// Seconds that training may take at most; 0 without training.
    pub training_seconds: f64,
    /// Seconds that explaining will take about; none if there is no generator to try.
    pub explaining_seconds: Option<f64>,
    /// Where the tables would be.
    pub output: String,
    /// The table that the counterfactuals would be committed to, if the job names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

/// Says what a run would do. Writes nothing.
///
/// # Errors
/// What would stop the run before it starts.
pub fn dry_run(job: &Job, mode: RunMode, runtime: &Runtime, observer: &Observer) -> Result<DryRun> {
    let stages = Stages::new(job, mode, runtime, observer)?;
    check_output(&job.output.dir, job.output.overwrite)?;
    stages.check_table()?;
    let (inputs, keys, splits) = (&stages.inputs, stages.check_keys()?, stages.splits());
    let plan = runtime.block_on(stages.plan(&splits, &job.output.dir, None))?;
    let method = job.method_for(keys.rows);
    let needed = method == ExplainMethod::Cfrl || job.explain.others_ask_generator();
    let trains = job.explain.generator.is_none() && needed;
    let explaining_seconds = stages.probe(keys.rows, splits.first())?;
    Ok(DryRun {
        rows: inputs.features.rows,
        rows_in_scope: keys.rows,
        files: inputs.features.files,
        splits: splits.len(),
        stages: stages.outline(splits.len(), if needed { ExplainMethod::Cfrl } else { method }),
        plan: plan.lines(),
        training_seconds: if trains { job.train.limits.max_time.as_secs_f64() } else { 0.0 },
        explaining_seconds,
        output: job.output.shown(),
        table: job.output.table.as_ref().map(|table| table.url.clone()),
    })
}

impl Stages<'_> {
    fn outline(&self, splits: usize, method: ExplainMethod) -> Vec<String> {
        let job = self.job;
        let mut stages = Vec::new();
        stages.push(match &job.explain.generator {
            Some(folder) => format!("take the generator from {}", folder.display()),
            None if method == ExplainMethod::Cfrl => format!(
                "train a generator: at most {} steps, {:.0} s",
                job.train.limits.max_steps,
                job.train.limits.max_time.as_secs_f64()
            ),
            None if matches!(method, ExplainMethod::Search | ExplainMethod::Nearest) => {
                "search among training rows, without a generator".to_string()
            }
            None => format!("read training rows for `{}`, without a generator", method.name()),
        });
        stages.push(match &job.input.scores {
            Some(scores) => format!("take decisions from {}", scores.table.join(", ")),
            None => "ask the model for its decisions".to_string(),
        });
        let compared = match job.explain.compares() {
            true => format!(" and for each of {} methods", job.explain.compare.len() + 1),
            false => String::new(),
        };
        stages.push(format!(
            "explain {splits} splits on {} threads, at most {} for each row and target{compared}",
            self.runtime.threads, job.explain.samples
        ));
        let robust = &job.robust;
        if !robust.models.is_empty() {
            stages.push(format!(
                "hold counterfactuals to {} of {} models beside the predictor",
                robust.needed(),
                robust.models.len()
            ));
        }
        if self.mode == RunMode::Run {
            stages.push(
                "report coverage, validity, sparsity, plausibility, features and MMD".to_string(),
            );
        }
        if let Some(table) = &job.output.table {
            let mode = match table.mode {
                CommitMode::Append => "append to",
                CommitMode::Overwrite => "replace all rows of",
                CommitMode::ReplaceWhere => "replace rows of",
            };
            stages.push(format!("{mode} the table {}", table.url));
        }
        stages.push(format!("publish {}", job.output.shown()));
        stages
    }

    /// Seconds for so many rows, from the first block of a split; none without a generator.
    fn probe(&self, rows: u64, split: Option<&Split>) -> Result<Option<f64>> {
        let (Some(folder), Some(split)) = (&self.job.explain.generator, split) else {
            return Ok(None);
        };
        let (job, inputs, runtime) = (self.job, &self.inputs, self.runtime);
        let artefact = load(folder, runtime.device)?;
        runtime.for_explaining();
        let columns = inputs.predictor_columns();
        let predictor = predictor::open(&job.predictor, &columns, runtime.threads)?;
        super::check_target(job, inputs, predictor.task())?;
        let shown = folder.display().to_string();
        check_fit(&artefact.description, &inputs.schema, predictor.task(), &shown)?;
        let setup = ExplainSetup {
            description: &artefact.description,
            schema: Arc::clone(&inputs.schema),
            table: self.columns.schema(inputs),
            columns: self.columns.indexes.clone(),
            predictor: Arc::clone(&predictor),
            robust: open_robust(job, (inputs, runtime.threads), predictor.task())?,
            decisions: None,
            target: self.target,
            explain: &job.explain,
            neighbours: Some(load_neighbours(folder, &artefact.description)?),
            streams: runtime.streams(),
        };
        let explainer = Arc::new(Explainer::new(artefact.generator, setup)?);
        let probed = runtime.block_on(async {
            let block = self.first_block(split, explainer.block_rows()).await?;
            let began = Instant::now();
            let worker = explainer.worker()?;
            block_in_place(|| worker.explain(&block, &mut ExplainStats::default()))?;
            let (rows, block) = (rows as f64, block.num_rows() as f64);
            let each = seconds_since(began) / block / runtime.threads as f64;
            Ok((block > 0.0).then_some(each * rows))
        });
        predictor.stop();
        probed
    }

    /// The first rows of a split, at most so many.
    async fn first_block(&self, split: &Split, most: usize) -> Result<RecordBatch> {
        let engine = &self.inputs.engine;
        let plan = self.inputs.plan(Scope::explained(&self.job.input));
        let plan = ScanPlan { columns: &self.columns.names, ..plan };
        let scan = engine.split_scan(plan, std::slice::from_ref(split)).await?;
        let (mut batches, mut rows) = (engine.scan_split(&scan, split)?, 0);
        let mut block = Vec::new();
        while rows < most
            && let Some(batch) = batches.next().await
        {
            let batch = batch?;
            rows += batch.num_rows();
            block.push(batch);
        }
        let block = concat_batches(&self.columns.schema(&self.inputs), &block);
        let block = block.map_err(|error| Error::internal("a block", "does not fit").source(error));
        block.map(|block| block.slice(0, rows.min(most)))
    }
}
