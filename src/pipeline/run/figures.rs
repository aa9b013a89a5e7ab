//! What written tables come to, split by split: the same for a run that has just written them and for one that was
//! published long ago.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{StreamExt, stream};

use super::super::audit::{auditor, merge};
use super::super::{Inputs, Observer, Scope};
use super::compare::Compared;
use super::execute::Done;
use super::summary::{EXAMPLES, Example, example};
use super::{RunMode, Stages};
use crate::artefact::Artefact;
use crate::audit::{AuditCounts, Auditor};
use crate::engine::{ScanPlan, Split, SplitScan};
use crate::error::{Error, Result};
use crate::explain::target_names;
use crate::job::{ExplainMethod, MmdSpace, Target, TaskSpec};
use crate::metrics::{AgreementCounts, Tally};
use crate::output::{REJECTS, counterfactual_schema};
use crate::report::{
    AtTarget, ComparedFigures, CountSinks, Counter, CounterSetup, FurtherCounts, Keep,
    MmdComparison, MmdRow, MmdSample, SplitFigures, SplitReader, count_rejects, read_row,
};
use crate::runtime::spawn;

/// Files of one split that are read at the same time; for more of them, its rows are read again.
const OPEN_FILES: usize = 256;

/// What the tables of a run come to.
pub(super) struct Figures {
    pub(super) published: MethodFigures,
    /// What other methods come to, if there are any.
    pub(super) compared: Option<Compared>,
    /// Rows set aside, by reason.
    pub(super) rejected: BTreeMap<String, u64>,
    pub(super) examples: Vec<Example>,
    /// Counts of groups, unless nothing asks for them.
    pub(super) audit: Option<AuditCounts>,
}

/// What one method comes to.
pub(super) struct MethodFigures {
    pub(super) tally: Tally,
    pub(super) mmd: Vec<MmdRow>,
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
        let mut totals = self.totals(artefact, &reader)?;
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
            methods: self.methods(artefact).iter().map(|of| of.name().to_string()).collect(),
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

    fn totals<'a>(&'a self, artefact: &'a Artefact, reader: &SplitCounter) -> Result<Totals<'a>> {
        let width = artefact.description.layout.width;
        let seed = self.runtime.streams().seed_of("mmd");
        let mmd = &self.job.report.mmd;
        let totals = |method| {
            let comparison = MmdComparison::new(mmd, (&artefact.reference, width), seed)?;
            let (sample, tally) = (MmdSample::new(width), Tally::default());
            Ok(MethodTotals { method, comparison, sample, tally })
        };
        let methods = self.methods(artefact).into_iter().map(totals).collect::<Result<Vec<_>>>()?;
        Ok(Totals {
            agreement: (methods.len() > 1).then(|| reader.counter.no_agreement()),
            methods,
            keep: self.keep(),
            by_segment: !self.job.report.by.is_empty(),
            at_target: Box::new(|target| self.at_target(target)),
            rejected: BTreeMap::new(),
            examples: Vec::new(),
            audit: None,
        })
    }

    /// Whether there are reports to make, beside the audit.
    pub(super) fn reports_anew(&self) -> bool {
        matches!(self.mode, RunMode::Run | RunMode::Report)
    }

    /// Which counterfactuals are compared as distributions.
    fn keep(&self) -> Keep {
        let mmd = &self.job.report.mmd;
        match mmd.rows {
            _ if !self.reports_anew() || mmd.space == MmdSpace::None => Keep::None,
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
    /// Of each method, the published one first.
    methods: Vec<MethodTotals<'a>>,
    agreement: Option<AgreementCounts>,
    keep: Keep,
    by_segment: bool,
    at_target: Box<dyn Fn(u32) -> AtTarget<'a> + 'a>,
    rejected: BTreeMap<String, u64>,
    examples: Vec<(String, usize)>,
    audit: Option<AuditCounts>,
}

/// What they come to for one method.
struct MethodTotals<'a> {
    method: ExplainMethod,
    comparison: MmdComparison<'a>,
    /// Where not all rows are compared: those that may be.
    sample: MmdSample,
    tally: Tally,
}

impl Totals<'_> {
    fn add(&mut self, (mut split, audit): (SplitFigures, Option<AuditCounts>)) -> Result<()> {
        merge(&mut self.audit, audit);
        for (reason, rows) in std::mem::take(&mut split.rejected) {
            *self.rejected.entry(reason).or_default() += rows;
        }
        self.examples.append(&mut split.examples);
        self.examples.truncate(EXAMPLES);
        let mut figures = vec![];
        if let Some(compared) = split.compared.take() {
            let ComparedFigures { others, agreement } = *compared;
            self.agreement.iter_mut().for_each(|total| total.merge(&agreement));
            figures = others;
        }
        let figures = std::iter::once(split).chain(figures);
        let how = (self.keep, self.by_segment, self.at_target.as_ref());
        self.methods.iter_mut().zip(figures).try_for_each(|(of, split)| of.add(split, how))
    }

    fn finish(mut self, reader: &SplitCounter) -> Result<Figures> {
        let how = (self.keep, self.by_segment, self.at_target.as_ref());
        let mut found = Vec::new();
        for of in self.methods.drain(..) {
            found.push((of.method, of.finish(how)?));
        }
        let (_, published) = found.remove(0);
        let compared = self.agreement.map(|agreement| Compared { others: found, agreement });
        Ok(Figures {
            published,
            compared,
            examples: reader.examples(&self.examples)?,
            rejected: self.rejected,
            audit: self.audit,
        })
    }
}

/// Which counterfactuals are compared as distributions, whether by segment, and what is at a target.
type How<'h, 'a> = (Keep, bool, &'h (dyn Fn(u32) -> AtTarget<'a> + 'a));

impl<'a> MethodTotals<'a> {
    fn add(&mut self, split: SplitFigures, how: How<'_, 'a>) -> Result<()> {
        let SplitFigures { tally, mut sample, .. } = split;
        self.tally.merge(&tally)?;
        sample.renumber(&tally.segments, &self.tally.segments);
        match how.0 {
            Keep::None => Ok(()),
            Keep::Most(most) => {
                self.sample.append(sample);
                self.sample.prune_if_long(most);
                Ok(())
            }
            Keep::All => self.compare(&sample, how),
        }
    }

    fn compare(
        &mut self,
        sample: &MmdSample,
        (_, by_segment, at_target): How<'_, 'a>,
    ) -> Result<()> {
        let segments = by_segment.then_some(&self.tally.segments[..]);
        self.comparison.add(sample, segments, at_target)
    }

    fn finish(mut self, how: How<'_, 'a>) -> Result<MethodFigures> {
        if let Keep::Most(most) = how.0 {
            let mut sample = std::mem::take(&mut self.sample);
            sample.prune(most);
            self.compare(&sample, how)?;
        }
        Ok(MethodFigures { mmd: self.comparison.finish(), tally: self.tally })
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
            let others = found.compared.iter_mut().flat_map(|compared| &mut compared.others);
            others.for_each(|other| other.sample.prune(most));
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
            reader.count(&self.counter, &input, CountSinks { figures: &mut *figures, further })?;
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
