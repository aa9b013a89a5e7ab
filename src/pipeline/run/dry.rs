//! What a run would do: the plan, the rows, and an estimate from a first block of rows.

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use serde::Serialize;

use super::super::partitions::check_key_folders;
use super::super::{Observer, Scope, seconds_since};
use super::work::rows_of;
use super::{Part, Stages};
use crate::artefact::{load, load_neighbours};
use crate::engine::ScanPlan;
use crate::engine::check_keys;
use crate::error::Result;
use crate::explain::{Explainer, Keep, Setup, check_fit};
use crate::job::{ExplainMethod, Job};
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
    /// Units of work.
    pub units: usize,
    /// The stages, in order.
    pub stages: Vec<String>,
    /// Seconds that training may take at most; 0 without training.
    pub training_seconds: f64,
    /// Seconds that explaining will take about; none if there is no generator to try.
    pub explaining_seconds: Option<f64>,
    /// Where the tables would be.
    pub output: String,
}

/// Says what a run would do. Writes nothing.
///
/// # Errors
/// What would stop the run before it starts.
pub fn dry_run(job: &Job, part: Part, runtime: &Runtime, observer: &Observer) -> Result<DryRun> {
    let stages = Stages::new(job, part, runtime, observer)?;
    check_output(&job.output.dir, job.output.overwrite)?;
    let inputs = &stages.inputs;
    let scope = Scope::explained(&job.input);
    let keys = runtime.block_on(async {
        let plan = inputs.plan(scope);
        check_keys(&inputs.engine, &inputs.features, &job.input.key, plan.predicate).await
    })?;
    inputs.refuse_keys(&job.input, scope, &keys)?;
    runtime.block_on(check_key_folders(job, inputs))?;
    let units = inputs.engine.units(&inputs.features, job.explain.unit_rows);
    let method = job.method_for(keys.rows);
    let trains = job.explain.generator.is_none() && method == ExplainMethod::Generator;
    let explaining_seconds = stages.probe(keys.rows)?;
    Ok(DryRun {
        rows: inputs.features.rows,
        rows_in_scope: keys.rows,
        files: inputs.features.files,
        units: units.len(),
        stages: stages.plan(units.len(), method),
        training_seconds: if trains { job.train.limits.max_time.as_secs_f64() } else { 0.0 },
        explaining_seconds,
        output: job.output.dir.display().to_string(),
    })
}

impl Stages<'_> {
    fn plan(&self, units: usize, method: ExplainMethod) -> Vec<String> {
        let job = self.job;
        let mut stages = Vec::new();
        stages.push(match &job.explain.generator {
            Some(folder) => format!("take the generator from {}", folder.display()),
            None if method != ExplainMethod::Generator => {
                "search among training rows, without a generator".to_string()
            }
            None => format!(
                "train a generator: at most {} steps, {:.0} s",
                job.train.limits.max_steps,
                job.train.limits.max_time.as_secs_f64()
            ),
        });
        stages.push(match &job.input.scores {
            Some(scores) => format!("take decisions from {}", scores.table.join(", ")),
            None => "ask the model for its decisions".to_string(),
        });
        stages.push(format!(
            "explain {units} units of work on {} threads, at most {} for each row and wanted decision",
            self.runtime.threads, job.explain.samples
        ));
        if self.part == Part::Run {
            stages.push(
                "report coverage, validity, sparsity, plausibility, features and MMD".to_string(),
            );
        }
        stages.push(format!("publish {}", job.output.dir.display()));
        stages
    }

    /// Seconds for so many rows, from the first block of the first unit; none without a generator.
    fn probe(&self, rows: u64) -> Result<Option<f64>> {
        let Some(folder) = &self.job.explain.generator else { return Ok(None) };
        let (job, inputs, runtime) = (self.job, &self.inputs, self.runtime);
        let artefact = load(folder, runtime.device)?;
        runtime.for_explaining();
        let columns = inputs.predictor_columns();
        let predictor = predictor::open(&job.predictor, &columns, runtime.threads)?;
        super::check_target(job, inputs, predictor.task())?;
        let shown = folder.display().to_string();
        check_fit(&artefact.description, &inputs.schema, predictor.task(), &shown)?;
        let setup = Setup {
            description: &artefact.description,
            schema: Arc::clone(&inputs.schema),
            table: self.columns.schema(inputs),
            columns: self.columns.places.clone(),
            predictor: Arc::clone(&predictor),
            decisions: None,
            target: self.target,
            explain: &job.explain,
            neighbours: Some(load_neighbours(folder, &artefact.description)?),
            streams: runtime.streams(),
            keep: Keep::None,
        };
        let explainer = Arc::new(Explainer::new(artefact.generator, setup)?);
        let units = inputs.engine.units(&inputs.features, job.explain.unit_rows);
        let probed = runtime.block_on(async {
            let Some(unit) = units.first() else { return Ok(None) };
            let scope = Scope::explained(&job.input);
            let plan = ScanPlan { columns: &self.columns.names, ..inputs.plan(scope) };
            let mut stream = inputs.engine.explain(plan, unit, &explainer).await?;
            let began = Instant::now();
            let Some(batch) = stream.batches.next().await else { return Ok(None) };
            let block = rows_of(&batch?, job.input.key.len()) as f64;
            let each = seconds_since(began) / block / runtime.threads as f64;
            Ok((block > 0.0).then_some(each * rows as f64))
        });
        predictor.stop();
        probed
    }
}
