//! A run beside the one before it: which of the counterfactuals that were told still hold, and why others do not.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use futures::{StreamExt, stream};
use tokio::task::block_in_place;

use super::super::{Inputs, Observer, Scope, generator_files, seconds_since, versions};
use super::execute::Done;
use super::summary::StabilitySummary;
use super::{RunMode, Stages};
use crate::artefact::Artefact;
use crate::audit::nights::{
    Asking, Causes, GroupNames, Groups, Nights, Previous, RecordedResults, ResultSetup,
    RunComparison, RunState, Slice, find_run, passes, rows_table, stability_table,
};
use crate::engine::{ScanPlan, Split, SplitScan};
use crate::error::{Error, Result};
use crate::explain::{ColumnIndices, Recheck, target_names};
use crate::job::{Job, Section, Target};
use crate::output::{
    AUDIT, COUNTERFACTUALS, REPORTS, STABILITY, StagedFile, Staging, TableWriter, audit_table_name,
    counterfactual_schema, report_name, stability_schema,
};
use crate::predictor::{self, Task};
use crate::runtime::spawn;

/// What is told of two nights.
pub(super) struct NightFigures {
    pub(super) files: Vec<StagedFile>,
    pub(super) summary: StabilitySummary,
}

/// Columns that are read of the input, and their indexes.
struct NightColumns {
    names: Vec<String>,
    indexes: ColumnIndices,
    segments: Vec<usize>,
}

impl NightColumns {
    fn new(stages: &Stages<'_>) -> NightColumns {
        let inputs = &stages.inputs;
        let mut names = inputs.columns.clone();
        let mut index_of = |name: &String| {
            names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            })
        };
        inputs.constraints.iter().for_each(|constraint| {
            index_of(&constraint.column);
        });
        let segments = stages.job.audit.by.iter().map(&mut index_of).collect();
        let target = match stages.target {
            Target::Column { name, .. } => Some(index_of(name)),
            _ => None,
        };
        let indexes = ColumnIndices {
            key: inputs.key.to_vec(),
            features: inputs.feature_columns.to_vec(),
            constraints: inputs.constraints.clone(),
            target,
        };
        NightColumns { names, indexes, segments }
    }

    fn schema(&self, inputs: &Inputs) -> SchemaRef {
        let field = |name: &String| {
            let (index, _) = inputs.features.schema.column_with_name(name)?;
            Some(Arc::clone(&inputs.features.schema.fields()[index]))
        };
        Arc::new(Schema::new(self.names.iter().filter_map(field).collect::<Vec<_>>()))
    }
}

/// The run that a job's is compared with, fit to be compared with; none if the job names none.
///
/// # Errors
/// When it is not there, not what its manifest says by names and sizes, or of another kind.
pub(in crate::pipeline) fn previous_run(
    job: &Job,
    inputs: &Inputs,
    task: &Task,
) -> Result<Option<Previous>> {
    let (Some(folder), Some(target)) = (job.audit.previous.as_deref(), &job.target) else {
        return Ok(None);
    };
    if !job.audit.has(Section::Stability) {
        return Ok(None);
    }
    let previous = find_run(folder, &job.shown(folder))?;
    let settings = serde_json::to_value(job).unwrap_or_default();
    previous.check(&settings, &answer_setup((job, target), inputs, task))?;
    Ok(Some(previous))
}

fn answer_setup((job, target): (&Job, &Target), inputs: &Inputs, task: &Task) -> ResultSetup {
    let regression = matches!(task, Task::Regression);
    ResultSetup {
        table: counterfactual_schema(&inputs.key_fields(), &inputs.feature_fields(), regression),
        key: job.input.key.clone(),
        schema: Arc::clone(&inputs.schema),
        targets: target_names(target, task),
        method: job.explain.published().map(String::from),
    }
}

impl Stages<'_> {
    /// The run to compare with, as it was published; none if the job names none.
    ///
    /// # Errors
    /// When it is not there, not as it was published, or of another kind.
    pub(super) fn previous(&self, task: &Task) -> Result<Option<Previous>> {
        let compared = self.mode != RunMode::Explain;
        let found = if compared { previous_run(self.job, &self.inputs, task)? } else { None };
        if let Some(previous) = &found {
            previous.check_files(&|| self.runtime.check_signals())?;
        }
        Ok(found)
    }

    /// Compares the run with the one before it, and writes the tables; nothing if the job names none.
    pub(super) fn nights(
        &self,
        staging: &Staging,
        done: &Done,
        artefact: &Artefact,
    ) -> Result<Option<NightFigures>> {
        let task = artefact.description.targets.task();
        let Some(previous) = self.previous(&task)? else { return Ok(None) };
        if Some(&previous.run) != self.provenance.previous.as_ref() {
            let problem =
                format!("is `{}`, which another run has replaced meanwhile", previous.run.path);
            return Err(Error::input("audit.previous", problem).hint("run again"));
        }
        let began = std::time::Instant::now();
        let columns = NightColumns::new(self);
        let causes = self.causes(&previous, staging)?;
        let comparison = Arc::new(self.comparison((&previous, causes), artefact, &columns)?);
        let found =
            self.runtime.block_on(self.compare(staging, done, (&previous, &comparison), &columns));
        comparison.asking.predictor.stop();
        let (rows, groups) = found?;
        let names =
            GroupNames { targets: comparison.setup.targets.clone(), by: self.job.audit.by.clone() };
        let table = stability_table(&groups, &names, self.job.audit.min_cell)?;
        let mut writer = self.writer(staging, audit_table_name(STABILITY), table.schema())?;
        writer.write(&table)?;
        tracing::info!(seconds = seconds_since(began), "compared with run {}", previous.run.run_id);
        let summary = summarised(&previous, &comparison.causes, &groups);
        Ok(Some(NightFigures { files: vec![rows, writer.close()?], summary }))
    }

    fn causes(&self, previous: &Previous, staging: &Staging) -> Result<Causes> {
        let (job, versions) = (serde_json::to_value(self.job).unwrap_or_default(), versions()?);
        let generator = generator_files(staging.folder())?;
        let now = RunState {
            provenance: &self.provenance,
            job: &job,
            versions: &versions,
            generator: &generator,
        };
        let before = RunState::of(&previous.manifest)
            .ok_or_else(|| Error::input("audit.previous", "does not say what it worked on"))?;
        Ok(Causes::between(before, now))
    }

    /// What rows are compared with, the model opened.
    fn comparison(
        &self,
        (previous, causes): (&Previous, Causes),
        artefact: &Artefact,
        columns: &NightColumns,
    ) -> Result<RunComparison> {
        let (job, inputs) = (self.job, &self.inputs);
        let predictor =
            predictor::open(&job.predictor, &inputs.predictor_columns(), self.runtime.threads)?;
        let (most, solved) = (job.audit.queries, previous.solved());
        let share = if solved <= most { 1.0 } else { most as f64 / solved as f64 };
        tracing::info!(
            questions = solved.min(most),
            "asking the model about the counterfactuals of run {}",
            previous.run.run_id
        );
        Ok(RunComparison {
            setup: answer_setup((job, self.target), inputs, predictor.task()),
            causes,
            recheck: Recheck::new(
                (&artefact.description, &inputs.schema),
                (&columns.schema(inputs), columns.indexes.clone()),
                &job.explain,
            ),
            asking: Asking { predictor, target: self.target.clone(), share },
        })
    }

    /// Reads both runs' counterfactuals, a slice of the keys at a time, and the rows of the input beside them.
    async fn compare(
        &self,
        staging: &Staging,
        done: &Done,
        (previous, comparison): (&Previous, &Arc<RunComparison>),
        columns: &NightColumns,
    ) -> Result<(StagedFile, Groups)> {
        let splits: Vec<Split> = done.splits.iter().map(|(split, _)| split.clone()).collect();
        let scan = ScanPlan {
            columns: &columns.names,
            ..self.inputs.plan(Scope::explained(&self.job.input))
        };
        let scan = self.inputs.engine.split_scan(scan, &splits).await?;
        let tables = done.files().filter(|file| file.name.starts_with(COUNTERFACTUALS));
        let (now, counts): (Vec<String>, Vec<u64>) =
            tables.map(|file| (file.name.clone(), file.rows)).unzip();
        let rows = previous.rows() + counts.iter().sum::<u64>();
        let of = passes(rows, self.inputs.schema.features.len());
        let mut groups = Groups::new(columns.segments.len());
        let mut writer = self.rows_writer(staging)?;
        self.observer.stage("comparing nights", Some(of * done.rows_in_scope));
        for number in 0..of {
            let slice = Slice { number, of };
            let answers = |setup: &ResultSetup, folder: &Path, files: &[String]| {
                block_in_place(|| RecordedResults::read(setup, folder, files, slice))
            };
            let (setup, folder) = (&comparison.setup, &previous.folder);
            let before = answers(&setup.of(previous.method()), folder, &previous.files())?;
            let now = answers(setup, staging.folder(), &now)?;
            let nights = Nights { before, now, slice };
            let reader = Arc::new(NightReader {
                inputs: Arc::clone(&self.inputs),
                scan: scan.clone(),
                segments: columns.segments.clone(),
                schema: stability_schema(&self.inputs.key_fields()),
                comparison: Arc::clone(comparison),
                observer: Arc::clone(self.observer),
                nights,
            });
            let tasks = splits.iter().map(|split| spawn(Arc::clone(&reader).split(split.clone())));
            let mut compared = stream::iter(tasks).buffered(self.runtime.threads);
            while let Some(found) = compared.next().await {
                self.runtime.check_signals()?;
                let (batches, counts) = found?;
                batches.iter().try_for_each(|batch| writer.write(batch))?;
                groups.merge(counts);
            }
            reader.nights.vanished().for_each(|target| groups.vanish(target, 1));
        }
        Ok((writer.close()?, groups))
    }

    fn rows_writer(&self, staging: &Staging) -> Result<TableWriter> {
        let schema = stability_schema(&self.inputs.key_fields());
        self.writer(staging, report_name(STABILITY), schema)
    }

    fn writer(&self, staging: &Staging, name: String, schema: SchemaRef) -> Result<TableWriter> {
        staging.tables(&[REPORTS, &format!("{REPORTS}/{AUDIT}")])?;
        TableWriter::create(staging.folder().join(&name), name, schema, &self.writer_options()?)
    }
}

/// Reads splits beside both runs.
struct NightReader {
    inputs: Arc<Inputs>,
    scan: SplitScan,
    segments: Vec<usize>,
    schema: SchemaRef,
    comparison: Arc<RunComparison>,
    observer: Observer,
    nights: Nights,
}

impl NightReader {
    async fn split(self: Arc<Self>, split: Split) -> Result<(Vec<RecordBatch>, Groups)> {
        let lost = |error| Error::internal("audit", "a column is lost").source(error);
        let (mut tables, mut groups) = (Vec::new(), Groups::new(self.segments.len()));
        let mut rows = self.inputs.engine.scan_split(&self.scan, &split)?;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let key = batch.project(&self.inputs.key).map_err(lost)?;
            let segments = batch.project(&self.segments).map_err(lost)?;
            let compared = block_in_place(|| {
                let segments = segments.columns();
                self.comparison.compare(&self.nights, (&key, &batch), segments, &mut groups)
            })?;
            let targets = &self.comparison.setup.targets;
            let table = rows_table(&self.schema, &key, targets, &compared)?;
            if table.num_rows() > 0 {
                tables.push(table);
            }
            self.observer.advance(batch.num_rows() as u64);
        }
        Ok((tables, groups))
    }
}

fn summarised(previous: &Previous, causes: &Causes, groups: &Groups) -> StabilitySummary {
    let (total, (appeared, vanished)) = (groups.total(), groups.unpaired());
    let model = causes.model.then(|| "model".to_string());
    StabilitySummary {
        previous: previous.run.run_id.clone(),
        changed: model.into_iter().chain(causes.configuration.iter().cloned()).collect(),
        rows: total.rows,
        appeared,
        vanished,
        decision_flips: total.decision_flips,
        promised: total.promised,
        asked: total.asked,
        recourse_validity: total.recourse_validity(),
        answer_churn: total.answer_churn(),
        needless_churn: total.needless_churn(),
        broken_promises: total.broken_promises,
        cost_drift: total.cost_drift().map(|(mean, _)| mean),
    }
}
