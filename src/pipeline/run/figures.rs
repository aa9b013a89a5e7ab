//! What written tables come to, split by split: the same for a run that has just written them and for one that was
//! published long ago.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{StreamExt, stream};

use super::super::audit::{auditor, merge};
use super::super::{Inputs, Observer, Scope};
use super::execute::Done;
use super::summary::{EXAMPLES, Example, example};
use super::{RunMode, Stages};
use crate::artefact::Artefact;
use crate::audit::{AuditCounts, Auditor};
use crate::engine::{ScanPlan, Split, SplitScan};
use crate::error::{Error, Result};
use crate::explain::target_names;
use crate::job::{MmdSpace, Target, TaskSpec};
use crate::metrics::Tally;
use crate::output::{REJECTS, counterfactual_schema};
use crate::report::{
    AtTarget, CountSinks, Counter, CounterSetup, FurtherCounts, Keep, MmdComparison, MmdRow,
    MmdSample, SplitFigures, SplitReader, count_rejects, read_row,
};
use crate::runtime::spawn;

/// Files of one split that are read at the same time; for more of them, its rows are read again.
const OPEN_FILES: usize = 256;

/// What the tables of a run come to.
pub(super) struct Figures {
    pub(super) tally: Tally,
    pub(super) mmd: Vec<MmdRow>,
    /// Rows set aside, by reason.
    pub(super) rejected: BTreeMap<String, u64>,
    pub(super) examples: Vec<Example>,
    /// Counts of groups, unless nothing asks for them.
    pub(super) audit: Option<AuditCounts>,
}

impl Stages<'_> {
    /// Reads the tables in a folder back, beside the rows of the input that they explain, and counts.
    ///
    /// # Errors
    /// When they are not tables of this run.
    pub(super) fn figures(
        &self,
        folder: &Path,
        done: &Done,
        artefact: &Artefact,
    ) -> Result<Figures> {
        self.observer.stage("reporting", Some(done.rows_in_scope));
        self.runtime.block_on(self.count(folder, done, artefact))
    }

    async fn count(&self, folder: &Path, done: &Done, artefact: &Artefact) -> Result<Figures> {
        let reader = Arc::new(self.reader(folder, done, artefact).await?);
        let splits = done.splits.iter().map(|(split, record)| {
            let files = record.files.iter().map(|file| file.name.clone()).collect();
            spawn(Arc::clone(&reader).split(split.clone(), files))
        });
        let mut counted = stream::iter(splits).buffered(self.runtime.threads);
        let mut totals = self.totals(artefact)?;
        while let Some(split) = counted.next().await {
            self.runtime.check_signals()?;
            totals.add(split?)?;
        }
        totals.finish(&reader)
    }

    async fn reader(
        &self,
        folder: &Path,
        done: &Done,
        artefact: &Artefact,
    ) -> Result<SplitCounter> {
        let (job, inputs) = (self.job, &self.inputs);
        let splits: Vec<Split> = done.splits.iter().map(|(split, _)| split.clone()).collect();
        let scan = inputs.plan(Scope::explained(&job.input));
        let scan = ScanPlan { columns: &self.columns.reported, ..scan };
        let counter = Counter::new(CounterSetup {
            schema: Arc::clone(&inputs.schema),
            encoder: artefact.description.encoder(),
            table: counterfactual_schema(
                &inputs.key_fields(),
                &inputs.feature_fields(),
                self.is_regression(),
            ),
            key: job.input.key.clone(),
            targets: target_names(self.target, &artefact.description.targets.task()),
            every: matches!(self.target, Target::Every),
            seed: self.runtime.streams().seed_of("explain"),
            keep: self.keep(),
        });
        Ok(SplitCounter {
            scan: inputs.engine.split_scan(scan, &splits).await?,
            inputs: Arc::clone(inputs),
            segments: self.columns.segments.clone(),
            counter,
            auditor: self.auditor(folder, artefact)?,
            folder: folder.to_path_buf(),
            observer: Arc::clone(self.observer),
        })
    }

    fn auditor(&self, folder: &Path, artefact: &Artefact) -> Result<Option<Arc<Auditor>>> {
        match self.mode {
            RunMode::Explain => Ok(None),
            _ => auditor((self.job, self.target), &self.inputs, (folder, artefact)),
        }
    }

    fn totals<'a>(&'a self, artefact: &'a Artefact) -> Result<Totals<'a>> {
        let width = artefact.description.layout.width;
        let seed = self.runtime.streams().seed_of("mmd");
        let mmd = &self.job.report.mmd;
        Ok(Totals {
            comparison: MmdComparison::new(mmd, (&artefact.reference, width), seed)?,
            sample: MmdSample::new(width),
            keep: self.keep(),
            by_segment: !self.job.report.by.is_empty(),
            at_target: Box::new(|target| self.at_target(target)),
            tally: Tally::default(),
            rejected: BTreeMap::new(),
            examples: Vec::new(),
            audit: None,
        })
    }

    /// Which counterfactuals are compared as distributions.
    fn keep(&self) -> Keep {
        let mmd = &self.job.report.mmd;
        match mmd.rows {
            _ if self.mode == RunMode::Explain || mmd.space == MmdSpace::None => Keep::None,
            0 => Keep::All,
            rows => Keep::Most(rows as usize),
        }
    }

    /// Which decisions of the model are the target; none if every row has a range of its own.
    fn at_target(&self, target: u32) -> AtTarget<'_> {
        match *self.target {
            Target::Range { low, high } => {
                Some(Box::new(move |value| (low..=high).contains(&value)))
            }
            Target::Column { .. } if self.is_regression() => None,
            _ => Some(Box::new(move |class| class == f64::from(target))),
        }
    }

    pub(super) fn is_regression(&self) -> bool {
        self.job.predictor.task == TaskSpec::Regression
    }
}

/// What the splits come to so far, in their order.
struct Totals<'a> {
    comparison: MmdComparison<'a>,
    /// Where not all rows are compared: those that may be.
    sample: MmdSample,
    keep: Keep,
    by_segment: bool,
    at_target: Box<dyn Fn(u32) -> AtTarget<'a> + 'a>,
    tally: Tally,
    rejected: BTreeMap<String, u64>,
    examples: Vec<(String, usize)>,
    audit: Option<AuditCounts>,
}

impl Totals<'_> {
    fn add(&mut self, (split, audit): (SplitFigures, Option<AuditCounts>)) -> Result<()> {
        merge(&mut self.audit, audit);
        let SplitFigures { tally, mut sample, rejected, examples, .. } = split;
        self.tally.merge(&tally)?;
        sample.renumber(&tally.segments, &self.tally.segments);
        match self.keep {
            Keep::None => {}
            Keep::Most(most) => {
                self.sample.append(sample);
                self.sample.prune_if_long(most);
            }
            Keep::All => self.compare(&sample)?,
        }
        for (reason, rows) in rejected {
            *self.rejected.entry(reason).or_default() += rows;
        }
        self.examples.extend(examples);
        self.examples.truncate(EXAMPLES);
        Ok(())
    }

    fn compare(&mut self, sample: &MmdSample) -> Result<()> {
        let segments = self.by_segment.then_some(&self.tally.segments[..]);
        self.comparison.add(sample, segments, &self.at_target)
    }

    fn finish(mut self, reader: &SplitCounter) -> Result<Figures> {
        if let Keep::Most(most) = self.keep {
            let mut sample = std::mem::take(&mut self.sample);
            sample.prune(most);
            self.compare(&sample)?;
        }
        Ok(Figures {
            mmd: self.comparison.finish(),
            examples: reader.examples(&self.examples)?,
            tally: self.tally,
            rejected: self.rejected,
            audit: self.audit,
        })
    }
}

/// Reads splits back.
struct SplitCounter {
    inputs: Arc<Inputs>,
    scan: SplitScan,
    /// Indexes of the segments in its batches.
    segments: Vec<usize>,
    counter: Counter,
    auditor: Option<Arc<Auditor>>,
    folder: PathBuf,
    observer: Observer,
}

impl SplitCounter {
    async fn split(
        self: Arc<Self>,
        split: Split,
        files: Vec<String>,
    ) -> Result<(SplitFigures, Option<AuditCounts>)> {
        let mut found = self.counter.nothing();
        let mut audit = self.auditor.as_ref().map(Auditor::nothing);
        let (rejects, answers): (Vec<String>, Vec<String>) =
            files.into_iter().partition(|file| file.starts_with(REJECTS));
        for file in &rejects {
            count_rejects(&self.folder, file, &mut found.rejected)?;
        }
        for files in answers.chunks(OPEN_FILES) {
            self.answers((&split, files), &mut found, &mut audit).await?;
        }
        self.observer.advance(found.tally.rows);
        if let Some(most) = self.counter.most() {
            found.sample.prune(most);
        }
        Ok((found, audit))
    }

    /// Counts answers beside the rows that they are about.
    async fn answers(
        &self,
        (split, files): (&Split, &[String]),
        figures: &mut SplitFigures,
        audit: &mut Option<AuditCounts>,
    ) -> Result<()> {
        let lost = |error| Error::internal("reports", "a column is lost").source(error);
        let mut reader = SplitReader::open(&self.counter, &self.folder, files)?;
        let mut rows = self.inputs.engine.scan_split(&self.scan, split)?;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let key = batch.project(&self.inputs.key).map_err(lost)?;
            let features = batch.project(&self.inputs.feature_columns).map_err(lost)?;
            let segments = batch.project(&self.segments).map_err(lost)?;
            let input = self.counter.input(&key, features, segments)?;
            if let Some(audit) = audit.as_mut() {
                audit.begin(&batch)?;
            }
            let further = audit.as_mut().map(|audit| audit as &mut dyn FurtherCounts);
            reader.count(&self.counter, &input, &mut CountSinks { figures, further })?;
        }
        reader.finish()
    }

    /// Rows in words, by file and index in it.
    fn examples(&self, rows: &[(String, usize)]) -> Result<Vec<Example>> {
        let mut examples = Vec::new();
        for (file, row) in rows {
            for batch in read_row(&self.folder, file, self.counter.table(), *row)? {
                examples.extend(example(&batch?, self.inputs.key.len(), 0));
            }
        }
        Ok(examples)
    }
}
