//! From explained splits to a published run: accounting, reports, verification, gates, manifest.

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::RecordBatch;

use super::super::audit::{Audited, CountedRun, write_page};
use super::super::{ModelProvenance, TrainSummary, manifest, seconds_since};
use super::compare::{agreement_summary, methods_summary};
use super::execute::Done;
use super::figures::{Figures, MethodFigures};
use super::generator::GeneratorRecord;
use super::summary::{RunSummary, Seconds, TargetSummary};
use super::{RunMode, Stages, prometheus, provenance};
use crate::artefact::Artefact;
use crate::constrain::Observed;
use crate::error::{Error, Fault, Kind, Result};
use crate::explain::{StageSeconds, target_names};
use crate::job::Coherence;
use crate::metrics::{GroupTally, Status, Tally, wilson};
use crate::output::{
    AUDIT, COUNTERFACTUALS, MANIFEST_FILE, REJECTS, REPORTS, StagedFile, Staging, TableWriter,
    counterfactual_schema, part_name, rejects_schema, report_name, verify,
};
use crate::report::{
    MmdRow, Names, Reached, Robust, Survival, check_gates, mmd_ratio, rules, survival,
};
use crate::runtime::usage;

/// What is ready to be put together.
pub(super) struct Finished {
    pub(super) done: Done,
    pub(super) generator: GeneratorRecord,
    pub(super) artefact: Artefact,
    pub(super) began: Instant,
    /// What the run said of itself before its reports were made anew.
    pub(super) before: Option<RunSummary>,
}

impl Stages<'_> {
    /// Reads the tables back, accounts for every row, writes the reports, and publishes, if the job's gates let it
    /// through.
    pub(super) fn publish(&self, staging: Staging, finished: Finished) -> Result<RunSummary> {
        let Finished { done, generator, artefact, began, before } = finished;
        let mut files: Vec<StagedFile> = done.files().cloned().collect();
        files.extend(self.complete(&staging, &files)?);
        let reporting = Instant::now();
        let mut figures = self.figures(staging.folder(), &done, &artefact)?;
        self.account(&done, &figures)?;
        files.extend(generator.files);
        let names = self.names(&artefact);
        let task = artefact.description.targets.task();
        let retrained = self.survival(staging.folder(), &files, &task)?;
        let nights = self.nights(&staging, &done, &artefact)?;
        let mut audited = Audited::default();
        if self.mode != RunMode::Explain {
            let mut tables = Vec::new();
            if self.reports_anew() {
                tables = self.reports(&figures, &names)?;
                tables.push(("rules".to_string(), self.rules(&artefact)?));
            }
            if !retrained.is_empty() {
                tables.push(("survival".to_string(), survival(&retrained, names.method)?));
            }
            audited = self.audit(&mut figures, &names)?;
            self.ask_model((staging.folder(), &done), &artefact, &mut audited)?;
            tables.append(&mut audited.tables);
            files.extend(self.write_reports(&staging, &tables)?);
        }
        let stability = nights.map(|nights| {
            files.extend(nights.files);
            nights.summary
        });
        let reporting = seconds_since(reporting);
        self.runtime.check_signals()?;
        let verifying = Instant::now();
        verify(staging.folder(), &files)?;
        let mut summary = self.summarise(&done, (figures, &names), generator.summary);
        summary.method = self.job.explain.method.with_generator(artefact.description.learnt);
        summary.survival = Survival::of(&retrained, None);
        summary.stability = stability;
        summary.widest_gap = audited.widest_gap;
        summary.remarks.append(&mut audited.remarks);
        summary.seconds.reporting = reporting;
        summary.seconds.verifying = seconds_since(verifying);
        summary.seconds.total = seconds_since(began);
        if let Some(before) = before {
            summary = match self.reports_anew() {
                true => before.reported_anew(summary),
                false => before.audited_anew(summary),
            };
        }
        summary.gates = self.gates(&summary);
        self.make_visible(staging, files, summary, &artefact)
    }

    /// Every row read must be out of scope, explained or rejected, and be found so in the tables.
    fn account(&self, done: &Done, figures: &Figures) -> Result<()> {
        let (explained, rejected) = (figures.published.tally.rows, figures.rejected());
        figures.compared.iter().try_for_each(|compared| compared.account(explained))?;
        let accounted = explained + rejected == done.rows_in_scope;
        // A run that was published before has no records any more.
        let recorded = self.mode.works_on_published()
            || done.records().map(|record| record.explained).sum::<u64>() == explained
                && done.records().flat_map(|record| record.rejected.values()).sum::<u64>()
                    == rejected;
        if accounted && recorded {
            return Ok(());
        }
        let problem = format!(
            "{explained} rows explained and {rejected} rejected in the tables, {} in scope",
            done.rows_in_scope
        );
        Err(Error::internal("accounting", problem))
    }

    /// Readers find both tables even when one has no rows.
    fn complete(&self, staging: &Staging, files: &[StagedFile]) -> Result<Vec<StagedFile>> {
        let (key, features) = (self.inputs.key_fields(), self.inputs.feature_fields());
        let counterfactuals = counterfactual_schema(&key, &features, self.is_regression());
        let mut more = Vec::new();
        staging.tables(&[COUNTERFACTUALS, REJECTS])?;
        for (table, schema) in [(COUNTERFACTUALS, counterfactuals), (REJECTS, rejects_schema(&key))]
        {
            if !files.iter().any(|file| file.name.starts_with(table)) {
                let name = part_name(table, 0);
                let path = staging.folder().join(&name);
                let options = self.writer_options()?;
                let writer = TableWriter::create(path, name, schema, &options)?;
                more.push(writer.close()?);
            }
        }
        Ok(more)
    }

    fn names(&self, artefact: &Artefact) -> Names {
        let task = artefact.description.targets.task();
        Names {
            method: self.methods(artefact)[0].name(),
            targets: target_names(self.target, &task),
            by: self.job.report.by.clone(),
            schema: self.inputs.schema.clone(),
        }
    }

    /// Models beside the predictor, and how many of them must predict the target; none without models.
    pub(super) fn robust(&self) -> Option<(usize, u32)> {
        let robust = &self.job.robust;
        (!robust.models.is_empty()).then(|| (robust.models.len(), robust.needed()))
    }

    /// The audit's tables.
    fn audit(&self, figures: &mut Figures, names: &Names) -> Result<Audited> {
        let Some(counts) = figures.audit.take() else { return Ok(Audited::default()) };
        let (job, inputs, targets) = (self.job, self.inputs.as_ref(), &names.targets);
        CountedRun { job, inputs, targets, counts: &counts.groups }.sections()
    }

    /// What counterfactuals keep to between features.
    fn rules(&self, artefact: &Artefact) -> Result<RecordBatch> {
        let observed = match self.job.explain.coherence {
            Coherence::Observed => artefact.description.observed.clone(),
            Coherence::Off => Observed::default(),
        };
        rules(&self.inputs.schema, &observed)
    }

    fn write_reports(
        &self,
        staging: &Staging,
        tables: &[(String, RecordBatch)],
    ) -> Result<Vec<StagedFile>> {
        let options = self.writer_options()?;
        staging.tables(&[REPORTS])?;
        if tables.iter().any(|(report, _)| report.starts_with(AUDIT)) {
            staging.tables(&[&format!("{REPORTS}/{AUDIT}")])?;
        }
        let write = |(report, table): &(String, RecordBatch)| {
            let name = report_name(report);
            let path = staging.folder().join(&name);
            let mut writer = TableWriter::create(path, name, table.schema(), &options)?;
            writer.write(table)?;
            writer.close()
        };
        tables.iter().map(write).collect()
    }

    fn summarise(
        &self,
        done: &Done,
        (figures, names): (Figures, &Names),
        training: Option<TrainSummary>,
    ) -> RunSummary {
        let (methods, agreement) =
            (methods_summary(&figures, names), agreement_summary(&figures, names));
        let Figures { published: MethodFigures { tally, mmd }, rejected, examples, .. } = figures;
        let total = tally.total();
        let mut explaining = StageSeconds::default();
        done.records().for_each(|record| explaining.add(&record.seconds));
        let in_counterfactuals = |file: &&StagedFile| file.name.starts_with(COUNTERFACTUALS);
        let rows_read = self.inputs.features.rows;
        let used = usage();
        let mut summary = RunSummary {
            command: self.mode.name().to_string(),
            run_id: self.provenance.run_id.clone(),
            method: self.job.explain.method,
            methods,
            agreement,
            already_published: false,
            rows_read,
            rows_out_of_scope: rows_read - done.rows_in_scope,
            rows_explained: tally.rows,
            rows_rejected: rejected,
            counterfactuals: done.files().filter(in_counterfactuals).map(|file| file.rows).sum(),
            statuses: statuses(&total),
            sources: sources(&total),
            unsolved: unsolved_by_cause(done),
            validity: (total.needed() > 0).then(|| total.solved() as f64 / total.needed() as f64),
            l0: total.valid.l0.mean(),
            l1: total.valid.l1.mean(),
            n_changed: total.valid.changed.mean(),
            plausibility: total.plausibility.quantile(0.5),
            survival: None,
            robust: self.robust().map(|asked| Robust::of(&total.robust, asked)),
            stability: None,
            widest_gap: None,
            targets: targets(&tally, names, &mmd),
            queries_per_row: queries_per_row(&total),
            splits: done.splits.len(),
            splits_resumed: done.resumed,
            rows_per_second: done.rows_explained as f64 / done.explain_seconds.max(1e-9),
            seconds: seconds(done, training.as_ref()),
            explaining,
            cpu_seconds: used.cpu_seconds,
            peak_bytes: used.peak_bytes,
            training,
            gates: Vec::new(),
            examples,
            output: self.job.output.shown(),
            table: None,
            remarks: done.remarks.clone(),
        };
        summary.remarks.extend(without_score(done));
        summary.remarks.extend(cut_short(done));
        summary.remarks.extend(unsolved(&summary.unsolved));
        summary
    }

    /// Holds a run against the job's gates. What reports alone can tell is not asked of a run without them.
    pub(super) fn gates(&self, summary: &RunSummary) -> Vec<crate::report::Gate> {
        let ratio = |target: &TargetSummary| {
            (target.target.clone(), mmd_ratio(target.mmd2, target.mmd2_unchanged))
        };
        let reported = self.mode != RunMode::Explain;
        let needed = summary.targets.iter().filter(|target| reported && target.needed > 0);
        let in_scope = summary.rows_read - summary.rows_out_of_scope;
        let reached = Reached {
            validity: summary.validity,
            reject_share: summary.rejected() as f64 / in_scope.max(1) as f64,
            plausibility: summary.plausibility,
            survival: summary.survival.map(|of| of.mean),
            robust: summary.robust.and_then(|of| of.share),
            recourse_validity: summary.stability.as_ref().and_then(|of| of.recourse_validity),
            needless_churn: summary.stability.as_ref().and_then(|of| of.needless_churn),
            gap: summary.widest_gap,
            mmd_ratios: needed.map(ratio).collect(),
        };
        let mut gates = self.job.report.gates.clone();
        gates.max_gap = gates.max_gap.filter(|_| reported);
        check_gates(&gates, &reached)
    }

    /// The last step: the whole becomes visible, or is set aside.
    fn make_visible(
        &self,
        staging: Staging,
        files: Vec<StagedFile>,
        mut summary: RunSummary,
        artefact: &Artefact,
    ) -> Result<RunSummary> {
        let mut provenance = self.provenance.clone();
        provenance.generator = artefact.description.origin.weights.clone();
        let passes = summary.passes();
        self.runtime.check_signals()?;
        let stores = &self.job.input.stores;
        provenance::refuse_changed(&self.provenance.inputs, &self.stamps, stores)?;
        ModelProvenance::of(&self.provenance).refuse_changed(self.job)?;
        if passes {
            summary.table = self.commit_table(staging.folder(), &files)?.or(summary.table);
        }
        let written = (files, staging.folder());
        let mut manifest =
            manifest(self.command.name(), provenance, (self.job, &summary), written)?;
        if self.mode != RunMode::Explain && !self.job.audit.sections.is_empty() {
            write_page(&staging, &mut manifest, &self.job.output.dir)?;
        }
        staging.write(MANIFEST_FILE, &manifest.text()?)?;
        let folder = if passes { staging.publish()? } else { staging.set_aside()? };
        summary.output = folder.display().to_string();
        self.write_metrics(&mut summary);
        Ok(summary)
    }

    /// Replaces the file for Prometheus, if the job names one. The run is over by now: a failure is a remark.
    pub(super) fn write_metrics(&self, summary: &mut RunSummary) {
        let Some(path) = &self.job.output.metrics else { return };
        let written = prometheus::write(path, summary, &self.job.output.stores);
        if let Err(error) = written {
            let text = format!("the metrics were not written: {}: {error}", path.display());
            tracing::warn!("{text}");
            summary.remarks.push(text);
        }
    }
}

/// What a run that fails its gates ends with.
///
/// # Errors
/// Every gate that it fails.
pub fn gate_error(summary: &RunSummary) -> Result<()> {
    let fault = |gate: &crate::report::Gate| {
        let found = gate.found.map_or("not measured".to_string(), |found| format!("{found:.4}"));
        let hint = if summary.already_published {
            "it was published before the job demanded this".to_string()
        } else {
            format!("nothing is published; the tables are in `{}`", summary.output)
        };
        Fault::new(&gate.gate, format!("is {}, the run has {found}", gate.limit)).hint(hint)
    };
    let failed = summary.gates.iter().filter(|gate| !gate.passed);
    Error::from_faults(Kind::Gate, failed.map(fault).collect())
}

impl Figures {
    /// Rows set aside.
    pub(super) fn rejected(&self) -> u64 {
        self.rejected.values().sum()
    }
}

/// Mean times that the model was asked about a row that needed a counterfactual.
pub(super) fn queries_per_row(total: &GroupTally) -> Option<f64> {
    let needed: u64 = total
        .statuses
        .iter()
        .filter(|(status, _)| **status != Status::AlreadyTarget)
        .map(|(_, count)| count.rows)
        .sum();
    let queries: u64 = total.statuses.values().map(|count| count.queries).sum();
    (needed > 0).then(|| queries as f64 / needed as f64)
}

fn cut_short(done: &Done) -> Option<String> {
    let rows: u64 = done.records().map(|record| record.cut_short).sum();
    let text = "counterfactuals were not refined to the end: `explain.max_seconds` was reached";
    (rows > 0).then(|| format!("{rows} {text}"))
}

fn unsolved_by_cause(done: &Done) -> BTreeMap<String, u64> {
    let mut causes = BTreeMap::new();
    for (cause, rows) in done.records().flat_map(|record| &record.unsolved) {
        *causes.entry(cause.clone()).or_default() += rows;
    }
    causes
}

/// What is known of the time when reports are made.
fn seconds(done: &Done, training: Option<&TrainSummary>) -> Seconds {
    let trained = |trained: &TrainSummary| trained.load_seconds + trained.train_seconds;
    Seconds {
        training: training.map_or(0.0, trained),
        checking: done.check_seconds,
        explaining: done.explain_seconds,
        ..Seconds::default()
    }
}

/// How many counterfactuals were not found, and which budget was spent on them.
fn unsolved(causes: &BTreeMap<String, u64>) -> Option<String> {
    let described = |(cause, rows): (&String, &u64)| match cause.as_str() {
        "time_spent" => format!("{rows} when `explain.max_seconds` was reached"),
        "questions_spent" => format!("{rows} after all of `explain.queries_per_row`"),
        "search_spent" => format!("{rows} whose search left too many regions"),
        "implausible_only" => {
            format!("{rows} with none as plausible as `explain.min_plausibility`")
        }
        _ => format!("{rows} with nothing left to try"),
    };
    let rows: u64 = causes.values().sum();
    let described: Vec<String> = causes.iter().map(described).collect();
    (rows > 0).then(|| format!("{rows} counterfactuals were not found: {}", described.join(", ")))
}

fn without_score(done: &Done) -> Option<String> {
    let rows: u64 = done.records().map(|record| record.rows_without_score).sum();
    (rows > 0).then(|| format!("{rows} rows without a stored decision were scored by the model"))
}

fn statuses(group: &GroupTally) -> BTreeMap<String, u64> {
    Status::ALL.map(|status| (status.name().to_string(), group.of_status(status).rows)).into()
}

fn sources(group: &GroupTally) -> BTreeMap<String, u64> {
    let sources = group.reported_sources().into_iter();
    sources.map(|source| (source.name().to_string(), group.of_source(source).rows)).collect()
}

fn targets(tally: &Tally, names: &Names, found: &[MmdRow]) -> Vec<TargetSummary> {
    let summary = |target: &u32| {
        let group = tally.of_target(*target);
        let (needed, valid) = (group.needed(), group.solved());
        let interval = wilson(valid, needed);
        let mmd = found
            .iter()
            .find(|row| row.target == *target && row.segment.is_none() && row.over == "all");
        TargetSummary {
            target: names.targets.get(*target as usize).cloned().unwrap_or_default(),
            needed,
            valid,
            validity: (needed > 0).then(|| valid as f64 / needed as f64),
            interval: [interval.low, interval.high],
            l0: group.valid.l0.mean(),
            l1: group.valid.l1.mean(),
            n_changed: group.valid.changed.mean(),
            plausibility: group.plausibility.quantile(0.5),
            mmd2: mmd.map(|row| row.estimate.mmd2),
            mmd2_held_out: mmd.and_then(|row| row.held_out),
            mmd2_unchanged: mmd.and_then(|row| row.unchanged),
        }
    };
    tally.groups.keys().map(summary).collect()
}
