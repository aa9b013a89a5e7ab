//! `overturn report`: the reports of a published run made anew from its tables, for example by other
//! segments. Each unit's counterfactuals are held against the unit's rows by key; the run's folder is
//! replaced in one step, its tables untouched.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Float64Type, Int32Type, SchemaRef};
use futures::StreamExt;
use hashbrown::HashMap;
use tokio::task::block_in_place;

use super::super::{Inputs, Observer, Scope, versions};
use super::finish::Finished;
use super::generator::GeneratorRecord;
use super::kept::write_kept;
use super::summary::{RunSummary, examples};
use super::work::{Done, Schemas, Tallies, UnitRecord};
use super::written::{column, named, open, read, sources, statuses, whole};
use super::{Part, Stages, facts, unfinished};
use crate::artefact::{Artefact, load};
use crate::engine::{ScanPlan, Unit, check_keys};
use crate::error::{Error, Fault, Kind, Result};
use crate::explain::{Kept, Recorder, StageSeconds, check_fit, target_names};
use crate::feature::{Admission, RowReader, Rows, key_hashes};
use crate::job::{Job, Target};
use crate::metrics::{Observed, Tally, distances};
use crate::output::{
    COUNTERFACTUALS, GENERATOR, MANIFEST_FILE, Manifest, REJECTS, REPORTS, Replace, RunFacts,
    SUCCESS_FILE, StagedFile, Staging, TRAINING_REPORT, counterfactual_schema, is_part, kept_name,
};
use crate::predictor::Task;
use crate::runtime::Runtime;

/// A published run.
pub(super) struct Published {
    /// What has made its tables.
    command: Part,
    facts: RunFacts,
    manifest: Manifest,
    files: Vec<StagedFile>,
}

/// Makes the reports of a published run anew and puts them in the place of the old.
///
/// # Errors
/// When there is no such run, or its tables no longer go with the job's; the run stays as it is then.
pub fn report(job: &Job, runtime: &Runtime, observer: &Observer) -> Result<RunSummary> {
    let began = Instant::now();
    let published = Published::read(&job.output.dir)?;
    if let Some(other) = unfinished(&job.output.dir) {
        let problem = format!("has an unfinished run {} beside it", other.run_id);
        return Err(Error::output(job.output.dir.display().to_string(), problem)
            .hint("finish it with `overturn run JOB --resume`, or start it over, first"));
    }
    let mut stages = Stages::new(job, published.command, runtime, observer)?;
    published.refuse_others(&stages)?;
    stages.part = Part::Report;
    stages.facts = published.facts_of(&stages)?;
    let replace = Replace { allowed: true, keep: job.output.keep };
    let staging = Staging::begin(&job.output.dir, replace)?;
    staging.start_over()?;
    link(&job.output.dir, staging.folder())?;
    staging.tables(&[REPORTS])?;
    let artefact = load(&staging.folder().join(GENERATOR), runtime.device)?;
    let task = artefact.description.targets.task();
    let shown = job.output.dir.join(GENERATOR).display().to_string();
    check_fit(&artefact.description, &stages.inputs.schema, &task, &shown)?;
    let journal = staging.journal();
    let again = Again {
        stages: &stages,
        published: &published,
        artefact: &artefact,
        table: counterfactual_schema(
            &stages.inputs.key_fields(),
            &stages.inputs.feature_fields(),
            matches!(task, Task::Regression),
        ),
        folder: staging.folder().to_path_buf(),
        journal: journal.clone(),
    };
    let done = runtime.block_on(again.units()).inspect_err(|_| staging.clear_journal())?;
    let generator = published.generator();
    let before = published.summary();
    stages.finish(staging, Finished { done, generator, artefact, began, before })
}

impl Published {
    pub(super) fn read(folder: &Path) -> Result<Published> {
        let shown = folder.display().to_string();
        let none = |problem: &str| {
            Error::input(&shown, problem).hint("`overturn run` or `overturn explain` makes one")
        };
        if !folder.join(SUCCESS_FILE).exists() {
            return Err(none("is not the folder of a published run"));
        }
        let manifest = Manifest::read(folder)?;
        let command = [Part::Run, Part::Explain];
        let command = command.into_iter().find(|part| manifest.command == part.name());
        let command = command.ok_or_else(|| none("holds no counterfactuals, expected a run's"))?;
        let facts = manifest.run.clone().ok_or_else(|| none("does not say what it worked on"))?;
        let files = manifest.tables.iter().cloned().map(StagedFile::from).collect();
        Ok(Published { command, facts, files, manifest })
    }

    /// What the run said at its end.
    pub(super) fn summary(&self) -> Option<RunSummary> {
        serde_json::from_value(self.manifest.summary.clone()).ok()
    }

    /// Rows can be told from the tables only if those are what they were, and made by the same job.
    fn refuse_others(&self, stages: &Stages<'_>) -> Result<()> {
        let mut differences: Vec<String> = facts::differences(&self.facts, &stages.facts)
            .into_iter()
            // That of a run that has trained is not known to the job.
            .filter(|what| *what != "generator" || stages.job.explain.generator.is_some())
            .map(|what| format!("the {what}"))
            .collect();
        let job = facts::settings(serde_json::to_value(stages.job).unwrap_or_default());
        let made_by = facts::settings(self.manifest.job.clone());
        let sections = job.as_object().into_iter().flat_map(serde_json::Map::keys);
        let changed =
            |section: &&String| *section != "report" && job[*section] != made_by[*section];
        differences.extend(sections.filter(changed).map(|section| format!("`[{section}]`")));
        let fault = |what: String| {
            let problem = format!("was made before {what} changed");
            Fault::new(stages.job.output.dir.display().to_string(), problem)
                .hint("only `[report]` may be another than the run's; run the job again")
        };
        Error::from_faults(Kind::Input, differences.into_iter().map(fault).collect())
    }

    /// The same run, but one that a run of this job, with its `[report]`, would not do again.
    fn facts_of(&self, stages: &Stages<'_>) -> Result<RunFacts> {
        let mut facts = self.facts.clone();
        if self.manifest.versions == versions()? {
            facts.fingerprint = stages.facts.fingerprint.clone();
        }
        Ok(facts)
    }

    /// What stays as it was beside the tables.
    fn generator(&self) -> GeneratorRecord {
        let training = format!("{REPORTS}/{TRAINING_REPORT}");
        GeneratorRecord {
            summary: serde_json::from_value(self.manifest.summary["training"].clone())
                .unwrap_or_default(),
            files: self.files.iter().filter(|file| file.name == training).cloned().collect(),
        }
    }

    /// The files of a unit, whatever folders they are in.
    fn of_unit(&self, unit: usize) -> Vec<StagedFile> {
        let tables = |file: &&StagedFile| {
            let table = file.name.starts_with(COUNTERFACTUALS) || file.name.starts_with(REJECTS);
            table && is_part(&file.name, unit)
        };
        self.files.iter().filter(tables).cloned().collect()
    }
}

/// The run's folder once more, with the same files in it, but for what is made anew.
fn link(from: &Path, to: &Path) -> Result<()> {
    let cannot = |error: std::io::Error| {
        Error::output(to.display().to_string(), format!("cannot be written: {error}"))
    };
    for entry in fs::read_dir(from).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let (path, place) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir_all(&place).map_err(cannot)?;
            link(&path, &place)?;
        } else if kept_as_it_is(&path) {
            fs::hard_link(&path, &place).map_err(cannot)?;
        }
    }
    Ok(())
}

fn kept_as_it_is(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let report = path.parent().and_then(Path::file_name).is_some_and(|parent| parent == REPORTS);
    let remade = name == MANIFEST_FILE || name == SUCCESS_FILE;
    !remade && (!report || name == TRAINING_REPORT)
}

/// Units told from tables.
struct Again<'a> {
    stages: &'a Stages<'a>,
    published: &'a Published,
    artefact: &'a Artefact,
    /// Schema of the counterfactual table, folders included.
    table: SchemaRef,
    folder: PathBuf,
    journal: PathBuf,
}

/// Rows of a unit as they were explained.
struct UnitRows {
    rows: Rows,
    segments: Vec<ArrayRef>,
    /// Hash of the key → row.
    places: HashMap<u128, u32>,
    /// Rows in scope, the rejected ones too.
    in_scope: u64,
}

/// Key hash and wish → first sample.
type Firsts = HashMap<(u128, u32), i32>;

/// What is known of a unit before its answers are counted.
struct Told<'a> {
    rows: &'a UnitRows,
    segments: &'a [u32],
    firsts: &'a Firsts,
}

impl Told<'_> {
    /// Which answers are the first for their row and wish.
    fn first(&self, hashes: &[u128], targets: &[u32], samples: &[i32]) -> Vec<bool> {
        let wishes = hashes.iter().copied().zip(targets.iter().copied());
        let first = |(wish, sample): ((u128, u32), &i32)| {
            self.firsts.get(&wish).map_or(*sample == 0, |first| first == sample)
        };
        wishes.zip(samples).map(first).collect()
    }
}

impl Again<'_> {
    async fn units(&self) -> Result<Done> {
        let (stages, inputs) = (self.stages, &self.stages.inputs);
        let (job, began) = (stages.job, Instant::now());
        let scope = Scope::explained(&job.input);
        let predicate = inputs.plan(scope).predicate;
        let keys = check_keys(&inputs.engine, &inputs.features, &job.input.key, predicate).await?;
        inputs.refuse_keys(&job.input, scope, &keys)?;
        let encoder = self.artefact.description.encoder();
        let recorder = Recorder::new(encoder, stages.keep());
        stages.observer.stage("reading back", Some(keys.rows));
        let (mut units, mut tallies) = (Vec::new(), Tallies::default());
        for unit in inputs.engine.units(&inputs.features, job.explain.unit_rows) {
            let rows = self.rows(&unit).await?;
            let mut record = block_in_place(|| self.unit(&unit, &rows, &recorder))?;
            tallies.take(&mut record)?;
            units.push(record);
            stages.observer.advance(rows.in_scope);
        }
        let rows = units.iter().map(|unit: &UnitRecord| unit.rows).sum();
        let told = (units, tallies.finish()?);
        Ok(Done::reread(told, (rows, began), self.schemas()?, self.journal.clone()))
    }

    /// The rows of a unit in scope.
    async fn rows(&self, unit: &Unit) -> Result<UnitRows> {
        let (stages, inputs) = (self.stages, &self.stages.inputs);
        let scope = Scope::explained(&stages.job.input);
        let plan = ScanPlan { columns: &stages.columns.names, ..inputs.plan(scope) };
        let mut stream = inputs.engine.scan_unit(plan, unit).await?;
        let mut batches = Vec::new();
        while let Some(batch) = stream.next().await {
            batches.push(batch?);
        }
        block_in_place(|| self.unit_rows(inputs, &batches))
    }

    fn unit_rows(&self, inputs: &Inputs, batches: &[RecordBatch]) -> Result<UnitRows> {
        let places = &self.stages.columns.places;
        let lost = |error| Error::internal("reports", "a column is lost").source(error);
        let all = concat_batches(&self.stages.columns.schema(inputs), batches).map_err(lost)?;
        let features = all.project(&places.features).map_err(lost)?;
        let admitted = Admission::new(&inputs.schema).admit(&features)?;
        let used = match &admitted.rows {
            Some(rows) => take_record_batch(&all, rows).map_err(lost)?,
            None => all.clone(),
        };
        let key = used.project(&places.key).map_err(lost)?;
        let hashes = key_hashes(&key, self.stages.runtime.streams().seed_of("explain"))?;
        Ok(UnitRows {
            rows: RowReader::new(&inputs.schema).read(&admitted.features)?,
            segments: places.segments.iter().map(|place| Arc::clone(used.column(*place))).collect(),
            places: hashes.into_iter().zip(0..).collect(),
            in_scope: all.num_rows() as u64,
        })
    }

    fn unit(&self, unit: &Unit, rows: &UnitRows, recorder: &Recorder) -> Result<UnitRecord> {
        let mut record = UnitRecord {
            unit: unit.index,
            rows: rows.in_scope,
            rows_without_score: 0,
            cut_short: 0,
            unsolved: Default::default(),
            rejected: Default::default(),
            files: self.published.of_unit(unit.index),
            kept: None,
            tally: Tally::default(),
            seconds: StageSeconds::default(),
            examples: Vec::new(),
        };
        let width = self.artefact.description.layout.width;
        let mut kept = Kept::new(width);
        let segments = Recorder::segments(&rows.segments, rows.rows.len, &mut record.tally)?;
        let firsts = self.firsts(&record.files)?;
        let told = Told { rows, segments: &segments, firsts: &firsts };
        for file in record.files.clone() {
            for batch in read(&self.folder.join(&file.name))? {
                let batch = batch?;
                if file.name.starts_with(REJECTS) {
                    count_reasons(&batch, &mut record)?;
                } else {
                    let batch = whole(&self.table, &batch, &file.name)?;
                    examples(&batch, self.stages.job.input.key.len(), &mut record.examples);
                    self.count(&batch, &told, recorder, (&mut record.tally, &mut kept))?;
                }
            }
        }
        record.kept = write_kept(&self.journal, kept_name(unit.index), (kept, self.stages.keep()))?;
        Ok(record)
    }

    /// Counts rows of the counterfactual table.
    fn count(
        &self,
        batch: &RecordBatch,
        told: &Told<'_>,
        recorder: &Recorder,
        (tally, kept): (&mut Tally, &mut Kept),
    ) -> Result<()> {
        let stages = self.stages;
        let hashes = self.hashes(batch)?;
        let place = |hash: &u128| told.rows.places.get(hash).copied();
        let places: Option<Vec<u32>> = hashes.iter().map(place).collect();
        let places = places.ok_or_else(|| {
            Error::input(&stages.inputs.features.shown, "lacks rows that the run has explained")
        })?;
        let features: Vec<String> = stages.inputs.schema.names().map(String::from).collect();
        let counterfactuals =
            RowReader::new(&stages.inputs.schema).read(&named(batch, &features, "cf_")?)?;
        let originals = told.rows.rows.take(&places);
        let samples = column(batch, "sample")?.as_primitive::<Int32Type>().values().to_vec();
        let queries = column(batch, "queries")?.as_primitive::<Int32Type>();
        let queries: Vec<u32> = queries.values().iter().map(|queries| *queries as u32).collect();
        let plausibility = column(batch, "plausibility")?.as_primitive::<Float64Type>();
        let plausibility: Vec<f64> =
            plausibility.iter().map(|found| found.unwrap_or(f64::NAN)).collect();
        let targets = self.targets(batch)?;
        let layout = &self.artefact.description.layout;
        let observed = Observed {
            segments: &places.iter().map(|row| told.segments[*row as usize]).collect::<Vec<_>>(),
            status: &statuses(batch)?,
            source: &sources(batch)?,
            valid: &column(batch, "valid")?.as_boolean().values().iter().collect::<Vec<_>>(),
            first: &told.first(&hashes, &targets, &samples),
            samples: &samples,
            queries: &queries,
            certified: &column(batch, "certified")?
                .as_boolean()
                .values()
                .iter()
                .collect::<Vec<_>>(),
            margins: &column(batch, "margin")?
                .as_primitive::<Float64Type>()
                .iter()
                .map(|margin| margin.unwrap_or(f64::NAN))
                .collect::<Vec<_>>(),
            distances: &distances(&counterfactuals, &originals, layout),
            plausibility: &plausibility,
            targets: &targets,
            counterfactuals: &counterfactuals,
            originals: &originals,
        };
        recorder.record(&observed, &hashes, (tally, kept));
        Ok(())
    }

    fn hashes(&self, batch: &RecordBatch) -> Result<Vec<u128>> {
        let key = named(batch, &self.stages.job.input.key, "")?;
        key_hashes(&key, self.stages.runtime.streams().seed_of("explain"))
    }

    /// Where a row has several wishes: the first sample of each, whatever folders they are in.
    fn firsts(&self, files: &[StagedFile]) -> Result<Firsts> {
        let mut firsts = Firsts::new();
        if !matches!(self.stages.target, Target::Every) {
            return Ok(firsts);
        }
        for file in files.iter().filter(|file| file.name.starts_with(COUNTERFACTUALS)) {
            for batch in read(&self.folder.join(&file.name))? {
                let batch = whole(&self.table, &batch?, &file.name)?;
                let samples = column(&batch, "sample")?.as_primitive::<Int32Type>();
                let wishes = self.hashes(&batch)?.into_iter().zip(self.targets(&batch)?);
                for (wish, sample) in wishes.zip(samples.values()) {
                    let first = firsts.entry(wish).or_insert(*sample);
                    *first = (*first).min(*sample);
                }
            }
        }
        Ok(firsts)
    }

    /// Numbers of the wanted decisions.
    fn targets(&self, batch: &RecordBatch) -> Result<Vec<u32>> {
        let names = target_names(self.stages.target, &self.artefact.description.targets.task());
        let texts = column(batch, "target")?.as_string::<i32>();
        let number = |text: Option<&str>| {
            let found = names.iter().position(|name| Some(name.as_str()) == text);
            let unknown = || {
                let found = text.unwrap_or("null");
                Error::input(
                    "target",
                    format!("is `{found}` in a published table, expected one of {names:?}"),
                )
            };
            found.map(|place| place as u32).ok_or_else(unknown)
        };
        texts.iter().map(number).collect()
    }

    fn schemas(&self) -> Result<Schemas> {
        let first = |table: &str| -> Result<arrow::datatypes::SchemaRef> {
            let file = self.published.files.iter().find(|file| file.name.starts_with(table));
            let file = file.ok_or_else(|| Error::input(table, "is not in the manifest"))?;
            Ok(open(&self.folder.join(&file.name))?.schema().clone())
        };
        Ok(Schemas { counterfactuals: first(COUNTERFACTUALS)?, rejects: first(REJECTS)? })
    }
}

fn count_reasons(batch: &RecordBatch, record: &mut UnitRecord) -> Result<()> {
    for reason in column(batch, "reason")?.as_string::<i32>().iter().flatten() {
        *record.rejected.entry(reason.to_string()).or_default() += 1;
    }
    Ok(())
}
