//! A run in shards: processes on any number of machines explain a share of the splits each, with no engine between
//! them, and one puts together what they have finished and publishes it. The records are those of an ordinary run, so
//! that the tables are too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::super::{Observer, RunContext, provenance, seconds_since};
use super::execute::{Done, is_there};
use super::generator::{GeneratorRecord, files_of_generator};
use super::summary::RunSummary;
use super::{
    Begin, JOURNAL_FORMAT, JournalHeader, JournalLine, Keyed, RunMode, Stages, explain_all, lineage,
};
use crate::engine::SplitRecord;
use crate::error::{Error, Fault, Kind, Result};
use crate::job::Job;
use crate::output::{
    JOURNAL_FILE, Journal, Mirror, OpenedJournal, RunProvenance, Shard, Staging, local_shards,
};
use crate::runtime::{Runtime, usage};

/// What a shard has done.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ShardSummary {
    /// Name of the run.
    pub run_id: String,
    /// The shard, as `3/8`.
    pub shard: String,
    /// The run was published before: there was nothing to do.
    pub already_published: bool,
    /// Its splits.
    pub splits: usize,
    /// Of those, what an earlier attempt had finished.
    pub splits_resumed: usize,
    /// Rows in scope, of all its splits.
    pub rows: u64,
    /// Rows explained.
    pub rows_explained: u64,
    /// Rows set aside, by reason.
    pub rows_rejected: BTreeMap<String, u64>,
    /// Rows of the counterfactual table by status.
    pub statuses: BTreeMap<String, u64>,
    /// Files written, of both tables.
    pub files: usize,
    /// Their size.
    pub bytes: u64,
    /// Rows explained in a second by this attempt.
    pub rows_per_second: f64,
    /// Seconds that it took.
    pub seconds: f64,
    /// CPU seconds of this process.
    pub cpu_seconds: f64,
    /// Most memory that it held.
    pub peak_bytes: u64,
    /// Where the run is to be published.
    pub output: String,
    /// What was noticed.
    pub remarks: Vec<String>,
}

/// Explains a shard's splits and leaves them beside the place of the results. What an earlier attempt at the same
/// shard has finished is not done again.
///
/// # Errors
/// Whatever stops it; what is finished stays.
pub fn run_shard(
    job: &Job,
    shard: Shard,
    runtime: &Runtime,
    observer: &Observer,
) -> Result<ShardSummary> {
    let began = Instant::now();
    refuse_training(job)?;
    let mut stages = Stages::new(job, RunMode::Run, runtime, observer)?;
    let published = stages.published(true)?.is_some();
    let mut summary = if published {
        ShardSummary { already_published: true, ..ShardSummary::default() }
    } else {
        stages.shard = Some(shard);
        stages.check_table()?;
        let keyed = stages.keyed(shard)?;
        let context = RunContext::open(job, Arc::clone(&stages.inputs), runtime)?;
        let context = context.with_robust(job, runtime.threads)?;
        let done = stages.explain_shard(&context, shard, keyed);
        summarise(&done.inspect_err(|_| context.stop())?)
    };
    let used = usage();
    summary.run_id.clone_from(&stages.provenance.run_id);
    (summary.shard, summary.output) = (shard.to_string(), job.output.shown());
    (summary.cpu_seconds, summary.peak_bytes) = (used.cpu_seconds, used.peak_bytes);
    summary.seconds = seconds_since(began);
    Ok(summary)
}

/// Puts the shards of a run together, makes the reports, and publishes.
///
/// # Errors
/// When a shard is missing, unfinished or of another run; and as for a run.
pub fn publish(job: &Job, runtime: &Runtime, observer: &Observer) -> Result<RunSummary> {
    refuse_training(job)?;
    let summary = lineage::with_events(job, RunMode::Run, |lineage| {
        explain_all(job, (RunMode::Run, Begin::Shards), (runtime, observer), lineage)
    })?;
    if summary.passes() {
        // The run is published: what is left over concerns nobody.
        let shards = local_shards(&job.output.dir).unwrap_or_default();
        Staging::clear_shards(&job.output.dir, &shards);
        if let Err(error) = Mirror::clear_shards(&job.output) {
            tracing::warn!("{error}");
        }
    }
    Ok(summary)
}

/// The facts of the run that the shards on this machine are of.
pub(super) fn provenance_of_shards(job: &Job) -> Option<RunProvenance> {
    let shard = *local_shards(&job.output.dir).ok()?.first()?;
    let staging = Staging::for_shard(&job.output.dir, shard, None).ok()?;
    header(&staging).map(|header| header.provenance)
}

/// Every shard would train a generator of its own, and a run has one.
fn refuse_training(job: &Job) -> Result<()> {
    if job.explain.generator.is_some() {
        return Ok(());
    }
    let problem = "is missing, expected the folder of a fitted generator, which all shards share";
    Err(Error::spec("explain.generator", problem)
        .hint("`overturn train JOB` makes one, also where rows are searched without networks"))
}

fn header(staging: &Staging) -> Option<JournalHeader> {
    Journal::header(&staging.journal().join(JOURNAL_FILE))
}

fn summarise(done: &Done) -> ShardSummary {
    let mut summary = ShardSummary {
        splits: done.splits.len(),
        splits_resumed: done.resumed,
        rows_per_second: done.rows_explained as f64 / done.explain_seconds.max(1e-9),
        remarks: done.remarks.clone(),
        ..ShardSummary::default()
    };
    for record in done.records() {
        summary.rows += record.rows;
        summary.rows_explained += record.explained;
        add(&mut summary.rows_rejected, &record.rejected);
        add(&mut summary.statuses, &record.statuses);
        summary.files += record.files.len();
        summary.bytes += record.files.iter().map(|file| file.bytes).sum::<u64>();
    }
    summary
}

fn add(counts: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, rows) in more {
        *counts.entry(name.clone()).or_default() += rows;
    }
}

/// What a shard has finished.
struct FinishedShard {
    shard: Shard,
    staging: Staging,
    provenance: RunProvenance,
    generator: Option<GeneratorRecord>,
    records: BTreeMap<usize, SplitRecord>,
}

impl Stages<'_> {
    /// The first shard checks the keys of the whole table, for all of them; publishing does so again.
    fn keyed(&self, shard: Shard) -> Result<Keyed> {
        let checked = if shard.number == 1 { Some(self.check_keys()?) } else { None };
        let rows = self.splits().iter().map(|split| split.rows).sum();
        Ok(Keyed { rows, seconds: checked.map_or(0.0, |keyed| keyed.seconds) })
    }

    fn explain_shard(&self, context: &RunContext, shard: Shard, keyed: Keyed) -> Result<Done> {
        let remarks = self.check_early(context)?;
        let mirror = self.mirror.as_ref().map(|mirror| Arc::new(mirror.for_shard(shard)));
        let mut staging = Staging::for_shard(&self.job.output.dir, shard, mirror)?;
        // What a shard of another run has left is of no use to anybody: that run can no longer be published.
        let same = |found: JournalHeader| {
            found.format == JOURNAL_FORMAT
                && found.provenance.fingerprint == self.provenance.fingerprint
        };
        let resume = header(&staging).is_some_and(same);
        let mut progressed = self.journal(&staging, resume)?;
        let training = (context, keyed.rows, resume);
        let artefact = self.generator(&mut staging, &mut progressed, training)?;
        let mut done = self.explain(&mut staging, progressed, (context, &artefact), keyed)?;
        let stores = &self.job.input.stores;
        provenance::refuse_changed(&self.provenance.inputs, &self.stamps, stores)?;
        done.remarks.extend(remarks);
        Ok(done)
    }

    /// Makes what shards have finished into a run that was stopped just before publishing.
    pub(super) fn take_shards(&self, staging: &Staging) -> Result<()> {
        let shards = self.finished_shards()?;
        staging.start_over()?;
        let path = staging.journal().join(JOURNAL_FILE);
        let header = JournalHeader { format: JOURNAL_FORMAT, provenance: self.provenance.clone() };
        let mut journal = Journal::create(&path, &header, staging.mirror())?;
        let mut generator = None;
        for finished in shards {
            if let (Some(ours), Some(theirs)) = (staging.mirror(), finished.staging.mirror()) {
                ours.take(&theirs);
            }
            if let Some(record) = finished.generator.filter(|_| generator.is_none()) {
                let mut names = files_of_generator();
                names.extend(record.files.iter().map(|file| file.name.clone()));
                staging.take(&finished.staging, &names)?;
                journal.append(&JournalLine::Generator(Box::new(record)), &names)?;
                generator = Some(());
            }
            for record in finished.records.into_values() {
                let names: Vec<String> =
                    record.files.iter().map(|file| file.name.clone()).collect();
                staging.take(&finished.staging, &names)?;
                journal.append(&JournalLine::Split(Box::new(record)), &names)?;
            }
        }
        Ok(())
    }

    /// All shards of the run, each with all its splits.
    fn finished_shards(&self) -> Result<Vec<FinishedShard>> {
        let found = match &self.mirror {
            Some(mirror) => mirror.shards()?,
            None => local_shards(&self.job.output.dir)?,
        };
        let (of, shown) = (self.number_of_shards(&found)?, self.job.output.shown());
        let (mut finished, mut faults) = (Vec::new(), Vec::new());
        for shard in Shard::all(of) {
            let fault =
                |problem: String| Fault::new(shown.clone(), format!("shard {shard} {problem}"));
            let command = format!("run `overturn run JOB --shard {shard}`, then publish");
            if !found.contains(&shard) {
                faults.push(fault("has not begun".to_string()).hint(command));
                continue;
            }
            let read = self.finished_shard(shard)?;
            match read.as_ref().and_then(|read| self.problem_of(read)) {
                Some(problem) => faults.push(fault(problem).hint(command)),
                None => match read {
                    Some(read) => finished.push(read),
                    None => faults.push(fault("has no journal".to_string()).hint(command)),
                },
            }
        }
        Error::from_faults(Kind::Input, faults)?;
        Ok(finished)
    }

    /// How many shards the run has. Where others left theirs too, those of this run count.
    fn number_of_shards(&self, found: &[Shard]) -> Result<usize> {
        let mut numbers: BTreeSet<usize> = found.iter().map(|shard| shard.of).collect();
        if numbers.len() > 1 {
            numbers.clear();
            for shard in found {
                let read = self.finished_shard(*shard)?;
                if read
                    .is_some_and(|read| read.provenance.fingerprint == self.provenance.fingerprint)
                {
                    numbers.insert(shard.of);
                }
            }
        }
        let numbers: Vec<String> = match numbers.len() {
            1 => return Ok(numbers.pop_first().unwrap_or_default()),
            _ => numbers.iter().map(usize::to_string).collect(),
        };
        let shown = self.job.output.shown();
        if numbers.is_empty() {
            let error = Error::input(shown, "has no shards of this run beside it");
            return Err(error.hint("`overturn run JOB --shard I/N` explains one of N shards"));
        }
        let problem = format!("has shards of this run by {} beside it", numbers.join(" and by "));
        Err(Error::input(shown, problem).hint(
            "remove those that are not to be published from `.<dir>.shards`, or in a store from \
             `_overturn/shards`",
        ))
    }

    /// What a shard has finished; none if it has no journal.
    fn finished_shard(&self, shard: Shard) -> Result<Option<FinishedShard>> {
        let mirror = self.mirror.as_ref().map(|mirror| Arc::new(mirror.for_shard(shard)));
        let staging = Staging::for_shard(&self.job.output.dir, shard, mirror)?;
        let path = staging.journal().join(JOURNAL_FILE);
        let found: Option<OpenedJournal<JournalHeader, JournalLine>> = Journal::open(&path)?;
        let Some(found) = found else { return Ok(None) };
        let (mut generator, mut records) = (None, BTreeMap::new());
        for entry in found.entries {
            match entry {
                JournalLine::Generator(record) => generator = Some(*record),
                JournalLine::Split(record) => {
                    records.entry(record.split).or_insert(*record);
                }
            }
        }
        let provenance = found.header.provenance;
        Ok(Some(FinishedShard { shard, staging, provenance, generator, records }))
    }

    /// Why a shard cannot be published, if it cannot.
    fn problem_of(&self, found: &FinishedShard) -> Option<String> {
        if found.provenance.fingerprint != self.provenance.fingerprint {
            let differing = provenance::differences(&found.provenance, &self.provenance);
            let what = match differing.as_slice() {
                [] => "job, or the version of overturn,".to_string(),
                differing => differing.join(" and the "),
            };
            return Some(format!("is of another run: the {what} changed since"));
        }
        let whole = |record: &SplitRecord| is_there(record, &found.staging);
        let splits = self.splits();
        let theirs = splits.iter().filter(|split| found.shard.has(split.index));
        let (mut all, mut finished) = (0, 0);
        for split in theirs {
            all += 1;
            finished += usize::from(found.records.get(&split.index).is_some_and(whole));
        }
        if finished < all {
            return Some(format!("has finished {finished} of {all} splits"));
        }
        let generator = found.generator.as_ref().filter(|record| record.is_there(&found.staging));
        generator.is_none().then(|| "lacks the generator".to_string())
    }
}
