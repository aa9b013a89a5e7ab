//! Questions of the audit to the model: rows are chosen while the tables are read beside the input, then asked about.

use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt, stream};

use super::super::audit::Audited;
use super::super::model::open_robust;
use super::super::{Inputs, Scope};
use super::Stages;
use super::columns::index_of;
use super::execute::Done;
use crate::artefact::{Artefact, load_neighbours};
use crate::audit::check_codes;
use crate::audit::questions::{
    ExplainerSetup, GatedGaps, QuestionNames, QuestionResults, Questions, SampleSetup, Sampler,
    doubted, gated, protected, sizes,
};
use crate::engine::{ScanPlan, Split, SplitScan};
use crate::error::{Error, Fault, Kind, Result};
use crate::explain::target_names;
use crate::feature::FeatureSchema;
use crate::job::{Job, Section, Target};
use crate::output::{AUDIT, GENERATOR, REJECTS, counterfactual_schema};
use crate::predictor;
use crate::report::{Counter, CounterSetup, Keep, SplitReader};
use crate::runtime::spawn;

/// Columns of the counterfactual table that are read beside those that are counted.
const READ: [&str; 3] = ["cost", "original_score", "original_value"];
/// Files of one split that are read at the same time; for more of them, its rows are read again.
const OPEN_FILES: usize = 256;

/// Refuses what cannot be asked: reasons without codes, protected features that are none.
///
/// # Errors
/// Everything that is wrong with it.
pub(in crate::pipeline) fn check_questions(job: &Job, schema: &FeatureSchema) -> Result<()> {
    let named = job.audit.protected.iter().flatten();
    let unknown = named.filter(|name| schema.get(name).is_none()).map(|name| {
        let known: Vec<&str> = schema.names().collect();
        let problem = format!("names `{name}`, expected one of the features {}", known.join(", "));
        Fault::new("audit.protected", problem)
            .hint("what the model does not see, it cannot decide by")
    });
    let mut faults: Vec<Fault> = unknown.collect();
    let explicit = job.audit.has(Section::Explicit);
    if explicit && faults.is_empty() && protected(&job.audit, schema).is_empty() {
        let problem = "names `explicit`, but no column of `audit.by` is a feature";
        faults
            .push(Fault::new("audit.sections", problem).hint("name features in `audit.protected`"));
    }
    if job.audit.reasons && matches!(job.target, Some(Target::Every | Target::Flip)) {
        let problem = "compares rows with others at the target, but with `target.flip` or `target.every` no row is";
        faults.push(Fault::new("audit.reasons", problem).hint("name a class: `target.class`"));
    }
    Error::from_faults(Kind::Spec, faults)?;
    match job.audit.reasons {
        true => check_codes(schema, &job.input.schema.display().to_string()),
        false => Ok(()),
    }
}

/// What is said of gaps that do not count.
fn doubted_remark(gaps: usize) -> Option<String> {
    (gaps > 0).then(|| {
        format!(
            "{gaps} gaps of `recourse_rate` are not held against `report.gates.max_gap`: a second search with four \
             times the questions moves them by more than `audit.tolerance`"
        )
    })
}

impl Stages<'_> {
    /// Adds what the job's audit asks the model; nothing if it asks nothing.
    ///
    /// # Errors
    /// When the tables are not those of the run, or the model fails.
    pub(super) fn ask_model(
        &self,
        (folder, done): (&Path, &Done),
        artefact: &Artefact,
        audited: &mut Audited,
    ) -> Result<()> {
        let results = self.questions(folder, done, artefact)?;
        let table = |name: &str| results.tables.iter().find(|(found, _)| *found == name);
        if let Some((_, second)) = table(Section::SecondSearch.name()) {
            let gaps = format!("{AUDIT}/{}", Section::Gaps.name());
            for (_, table) in audited.tables.iter_mut().filter(|(name, _)| *name == gaps) {
                let GatedGaps { widest, doubted: some } = gated(table, second)?;
                audited.widest_gap = widest;
                audited.remarks.extend(doubted_remark(some));
                *table = doubted(table, second)?;
            }
        }
        let tables =
            results.tables.into_iter().map(|(name, table)| (format!("{AUDIT}/{name}"), table));
        audited.tables.extend(tables);
        audited.tables.extend(results.reasons.map(|table| ("reasons".to_string(), table)));
        audited.remarks.extend(results.remarks);
        Ok(())
    }

    fn questions(
        &self,
        folder: &Path,
        done: &Done,
        artefact: &Artefact,
    ) -> Result<QuestionResults> {
        let (job, inputs) = (&self.job.audit, &self.inputs);
        if !job.asks() {
            return Ok(QuestionResults::default());
        }
        self.observer.stage("choosing rows for the audit", Some(done.rows_in_scope));
        let task = artefact.description.targets.task();
        let targets = target_names(self.target, &task);
        let sampler = self.runtime.block_on(self.sample(folder, done, (artefact, &targets)))?;
        self.observer.stage("asking for the audit", None);
        let columns = inputs.predictor_columns();
        let threads = self.runtime.threads;
        let predictor = predictor::open(&self.job.predictor, &columns, threads)?;
        let generator = folder.join(GENERATOR);
        let questions = Questions {
            job,
            setup: ExplainerSetup {
                artefact,
                neighbours: load_neighbours(&generator, &artefact.description)?,
                schema: Arc::clone(&inputs.schema),
                table: self.columns.schema(inputs),
                columns: self.columns.indexes.clone(),
                target: self.target,
                explain: &self.job.explain,
                robust: open_robust(self.job, (inputs, threads), &task)?,
                streams: self.runtime.streams(),
            },
            names: QuestionNames { targets, attributes: job.by.clone(), min_cell: job.min_cell },
            predictor: Arc::clone(&predictor),
        };
        questions.ask(sampler).inspect_err(|_| predictor.stop())
    }

    /// Chooses rows by their keys, with what the run has found for them.
    async fn sample(
        &self,
        folder: &Path,
        done: &Done,
        (artefact, targets): (&Artefact, &[String]),
    ) -> Result<Sampler> {
        let (job, inputs) = (self.job, &self.inputs);
        let mut columns = self.columns.names.clone();
        let attributes = job.audit.by.iter().map(|name| index_of(&mut columns, name)).collect();
        let splits: Vec<Split> = done.splits.iter().map(|(split, _)| split.clone()).collect();
        let scan = inputs.plan(Scope::explained(&job.input));
        let scan = ScanPlan { columns: &columns, ..scan };
        let every = matches!(self.target, Target::Every);
        let counter = self.sample_counter((artefact, targets), every);
        let range = match *self.target {
            Target::Range { low, high } => Some((low, high)),
            _ => None,
        };
        let setup = Arc::new(SampleSetup {
            sizes: sizes(&job.audit),
            targets: targets.to_vec(),
            every,
            range,
        });
        let reader = Arc::new(SampleReader {
            scan: inputs.engine.split_scan(scan, &splits).await?,
            inputs: Arc::clone(inputs),
            explained: (0..self.columns.names.len()).collect(),
            attributes,
            counter,
            folder: folder.to_path_buf(),
            setup: Arc::clone(&setup),
        });
        let splits = done.splits.iter().map(|(split, record)| {
            let files = record.files.iter().map(|file| file.name.clone());
            let files = files.filter(|name| !name.starts_with(REJECTS)).collect();
            spawn(Arc::clone(&reader).split(split.clone(), files))
        });
        let mut sampled = stream::iter(splits).buffered(self.runtime.threads);
        let mut all = Sampler::new(&setup);
        while let Some(sampler) = sampled.next().await {
            self.runtime.check_signals()?;
            all.merge(sampler?)?;
            self.observer.advance(0);
        }
        Ok(all)
    }

    /// Finds written rows by the keys of the input's.
    fn sample_counter(&self, (artefact, targets): (&Artefact, &[String]), every: bool) -> Counter {
        let inputs = &self.inputs;
        let counter = Counter::new(CounterSetup {
            schema: Arc::clone(&inputs.schema),
            encoder: artefact.description.encoder(),
            table: counterfactual_schema(
                &inputs.key_fields(),
                &inputs.feature_fields(),
                self.is_regression(),
            ),
            key: self.job.input.key.clone(),
            methods: self.methods(artefact).iter().map(|of| of.name().to_string()).collect(),
            targets: targets.to_vec(),
            every,
            seed: self.runtime.streams().seed_of("explain"),
            keep: Keep::None,
        });
        counter.reading(&READ)
    }
}

/// Reads splits back.
struct SampleReader {
    inputs: Arc<Inputs>,
    scan: SplitScan,
    /// Indexes of the columns that rows are explained by: the first ones …
    explained: Vec<usize>,
    /// … and of the attributes.
    attributes: Vec<usize>,
    counter: Counter,
    folder: std::path::PathBuf,
    setup: Arc<SampleSetup>,
}

impl SampleReader {
    async fn split(self: Arc<Self>, split: Split, files: Vec<String>) -> Result<Sampler> {
        let lost = |error| Error::internal("audit", "a column is lost").source(error);
        let mut sampler = Sampler::new(&self.setup);
        for files in files.chunks(OPEN_FILES) {
            let mut reader = SplitReader::open(&self.counter, &self.folder, files)?;
            let mut rows = self.inputs.engine.scan_split(&self.scan, &split)?;
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                let key = batch.project(&self.inputs.key).map_err(lost)?;
                let block = batch.project(&self.explained).map_err(lost)?;
                let attributes = batch.project(&self.attributes).map_err(lost)?;
                let input = self.counter.input(&key, block.clone(), attributes)?;
                let pieces = reader.pieces(&self.counter, &input)?;
                sampler.add((&block, input.segments()), &pieces)?;
            }
            reader.finish()?;
        }
        Ok(sampler)
    }
}
