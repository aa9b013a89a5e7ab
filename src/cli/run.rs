//! `overturn run` and `overturn explain`.

use clap::Args;

use super::print::{Printer, grouped, lines};
use super::{Global, JobArguments, compare, observed};
use crate::commit::TableCommit;
use crate::error::Result;
use crate::job::ExplainMethod;
use crate::metrics::{Source, Status};
use crate::output::Shard;
use crate::pipeline::{
    DryRun, Example, RunMode, RunSummary, ShardSummary, StabilitySummary, TargetSummary, dry_run,
    gate_error, publish, report, run, run_shard,
};
use crate::report::{Robust, Survival};
use crate::runtime::Runtime;

/// Give every row in scope a counterfactual or a reason, with reports, and publish all of it.
///
/// Trains the job's generator, unless `explain.generator` names one or `explain.method` needs none: by
/// default, small tables are searched without one. Writes `output.dir` with
/// `counterfactuals/`, `rejects/`, `reports/`, `generator/`, `manifest.json` and `_SUCCESS`. The folder
/// appears whole or not at all. A stopped or killed run resumes with `--resume`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  overturn run jobs/demo/run.toml --set data=table --set out=explained"
)]
pub(super) struct WholeRunArguments {
    #[command(flatten)]
    arguments: RunArguments,
    /// Explain one of N shards of the rows, such as 3/8, and leave it for `overturn publish`. What an earlier attempt
    /// at the shard has finished is not done again. The job names a fitted generator.
    #[arg(long, value_name = "I/N", conflicts_with_all = ["resume", "dry_run"])]
    shard: Option<Shard>,
}

/// Explain every row in scope with a fitted generator and publish the tables.
///
/// `run` without training and without reports: `explain.generator` names the generator, and
/// `overturn report` adds the reports.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  overturn explain job.toml --set date=2026-11-16 --resume")]
pub(super) struct Explain {
    #[command(flatten)]
    arguments: RunArguments,
}

/// Make the reports of a published run anew, from its tables.
///
/// For example with other segments (`report.by`), another MMD, or after `overturn explain`. The tables stay
/// as they are; the folder is replaced in one step.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  overturn report job.toml --set date=2026-11-16")]
pub(super) struct Report {
    #[command(flatten)]
    job: JobArguments,
}

/// Put the shards of a run together, with reports, and publish all of it.
///
/// The last step after `overturn run JOB --shard I/N` for every I, on one machine or many. Give it the same job
/// file. Ends with code 1 and names every shard that is missing or unfinished.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  overturn publish job.toml --set date=2026-11-16")]
pub(super) struct Publish {
    #[command(flatten)]
    job: JobArguments,
}

#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    job: JobArguments,
    /// Resume what a stopped or killed run has left unfinished; start afresh if there is nothing.
    #[arg(long)]
    resume: bool,
    /// Print the plan, the rows and an estimate, and do nothing.
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
}

impl WholeRunArguments {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let Some(shard) = self.shard else {
            return self.arguments.run(RunMode::Run, printer, global);
        };
        let job = self.arguments.job.read()?;
        let runtime = Runtime::start(&job.runtime)?;
        let summary = observed(global, |observer| run_shard(&job, shard, &runtime, observer))?;
        printer.summary(&summary, shard_text);
        Ok(())
    }
}

impl Publish {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let job = self.job.read()?;
        let runtime = Runtime::start(&job.runtime)?;
        let summary = observed(global, |observer| publish(&job, &runtime, observer))?;
        conclude(&summary, printer)
    }
}

impl Explain {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        self.arguments.run(RunMode::Explain, printer, global)
    }
}

impl Report {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let job = self.job.read()?;
        let runtime = Runtime::start(&job.runtime)?;
        let result = observed(global, |observer| report(&job, &runtime, observer));
        conclude(&result?, printer)
    }
}

/// Shows what was done, and says whether it is enough.
pub(super) fn conclude(summary: &RunSummary, printer: &Printer) -> Result<()> {
    printer.summary(summary, text);
    gate_error(summary)
}

impl RunArguments {
    fn run(&self, mode: RunMode, printer: &Printer, global: &Global) -> Result<()> {
        let job = self.job.read()?;
        let runtime = Runtime::start(&job.runtime)?;
        if self.dry_run {
            let plan = observed(global, |observer| dry_run(&job, mode, &runtime, observer))?;
            printer.summary(&plan, plan_text);
            return Ok(());
        }
        let result =
            observed(global, |observer| run(&job, (mode, self.resume), &runtime, observer));
        conclude(&result?, printer)
    }
}

fn shard_text(summary: &ShardSummary) -> String {
    if summary.already_published {
        return lines(&[("published before".to_string(), summary.output.clone())]);
    }
    let rejected: u64 = summary.rows_rejected.values().sum();
    let mut rows = vec![
        ("shard".to_string(), summary.shard.clone()),
        ("splits".to_string(), grouped(summary.splits as u64)),
        ("  finished before".to_string(), grouped(summary.splits_resumed as u64)),
        ("rows in scope".to_string(), grouped(summary.rows)),
        ("  rejected".to_string(), grouped(rejected)),
        ("  explained".to_string(), grouped(summary.rows_explained)),
    ];
    let statuses = summary.statuses.iter();
    rows.extend(statuses.map(|(status, rows)| (format!("    {status}"), grouped(*rows))));
    let used =
        format!("{:.1} s CPU, {} MiB at peak", summary.cpu_seconds, summary.peak_bytes >> 20);
    rows.push(("used".to_string(), used));
    rows.extend(summary.remarks.iter().map(|text| ("note".to_string(), text.clone())));
    rows.push(("for".to_string(), format!("{}, by `overturn publish`", summary.output)));
    lines(&rows)
}

fn plan_text(plan: &DryRun) -> String {
    let mut rows = vec![
        ("rows".to_string(), format!("{} in {} files", grouped(plan.rows), plan.files)),
        ("rows in scope".to_string(), grouped(plan.rows_in_scope)),
    ];
    let stages = plan.stages.iter().enumerate();
    rows.extend(stages.map(|(index, stage)| (format!("{}.", index + 1), stage.clone())));
    let estimate = match plan.explaining_seconds {
        Some(seconds) => format!("about {seconds:.0} s for explaining"),
        None => "not known before there is a generator".to_string(),
    };
    rows.push(("estimate".to_string(), estimate));
    format!("{}\n{}\n", lines(&rows), plan.plan.join("\n"))
}

fn text(summary: &RunSummary) -> String {
    let mut rows = counts(summary);
    rows.push(("time".to_string(), times(summary)));
    let used =
        format!("{:.1} s CPU, {} MiB at peak", summary.cpu_seconds, summary.peak_bytes >> 20);
    rows.push(("used".to_string(), used));
    rows.extend(summary.survival.map(|of| ("held when retrained".to_string(), survival(&of))));
    rows.extend(summary.robust.map(|of| ("robust".to_string(), robust(&of))));
    let stability = summary.stability.as_ref();
    rows.extend(stability.map(|of| ("since the run before".to_string(), since(of))));
    for gate in &summary.gates {
        let found = gate.found.map_or("not measured".to_string(), |found| format!("{found:.4}"));
        let verdict = if gate.passed { "passed" } else { "FAILED" };
        let text = format!("{verdict}: {found} against {} {}", gate.limit, gate.gate);
        rows.push(("gate".to_string(), text));
    }
    rows.extend(summary.remarks.iter().map(|text| ("note".to_string(), text.clone())));
    let output_label = match (summary.already_published, summary.passes()) {
        (true, _) => "published before",
        (false, true) => "published",
        (false, false) => "set aside",
    };
    rows.push((output_label.to_string(), summary.output.clone()));
    rows.extend(summary.table.as_ref().map(|of| ("committed".to_string(), committed(of))));
    let mut text = lines(&rows);
    if !summary.targets.is_empty() {
        text.push('\n');
        text.push_str(&targets(&summary.targets));
    }
    text.push_str(&compare::methods(summary));
    let examples: Vec<String> = summary.examples.iter().map(example).collect();
    if !examples.is_empty() {
        text.push('\n');
        text.push_str(&examples.join("\n"));
    }
    text
}

/// What a Delta table has of the run.
fn committed(table: &TableCommit) -> String {
    let version = table.version.map_or(String::new(), |version| format!(" as version {version}"));
    let earlier = if table.repeated { ", by an earlier attempt" } else { "" };
    format!("{} rows to {}{version}{earlier}", grouped(table.rows), table.url)
}

fn counts(summary: &RunSummary) -> Vec<(String, String)> {
    let share = |rows: u64| {
        let share = 100.0 * rows as f64 / summary.rows_explained.max(1) as f64;
        format!("{} ({share:.1} %)", grouped(rows))
    };
    let mut rows = vec![
        ("rows read".to_string(), grouped(summary.rows_read)),
        ("  out of scope".to_string(), grouped(summary.rows_out_of_scope)),
        ("  rejected".to_string(), grouped(summary.rejected())),
    ];
    for (reason, count) in &summary.rows_rejected {
        rows.push((format!("    {reason}"), grouped(*count)));
    }
    rows.push(("  explained".to_string(), grouped(summary.rows_explained)));
    let sources = [
        ("      by the generator", Source::Generator),
        ("      by a candidate", Source::Candidate),
        ("      by a neighbour", Source::Neighbour),
        ("      by DiCE, random", Source::DiceRandom),
        ("      by DiCE, genetic", Source::DiceGenetic),
        ("      by a rule of LORE", Source::Lore),
    ];
    let reported = |source: Source| summary.sources.contains_key(source.name());
    rows.push(("    solved".to_string(), share(summary.rows(Status::Solved))));
    for (name, source) in sources.into_iter().filter(|(_, source)| reported(*source)) {
        rows.push((name.to_string(), share(summary.found_by(source))));
    }
    let others = [
        ("    unsolved", Status::Unsolved),
        ("    already at the target", Status::AlreadyTarget),
        ("    infeasible", Status::Infeasible),
    ];
    for (name, status) in others {
        rows.push((name.to_string(), share(summary.rows(status))));
    }
    if summary.counterfactuals != summary.rows_explained {
        rows.push(("counterfactuals".to_string(), grouped(summary.counterfactuals)));
    }
    rows
}

fn times(summary: &RunSummary) -> String {
    let seconds = &summary.seconds;
    // Without a generator to train, training rows are only read and decided about.
    let trains = matches!(summary.method, ExplainMethod::Auto | ExplainMethod::Cfrl)
        || summary.methods.iter().any(|of| of.method == ExplainMethod::Cfrl.name());
    let parts = [
        (if trains { "training" } else { "reading training rows" }, seconds.training),
        ("checking", seconds.checking),
        ("explaining", seconds.explaining),
        ("reporting", seconds.reporting),
        ("verifying", seconds.verifying),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(name, seconds)| format!("{seconds:.1} s {name}"))
        .collect();
    format!("{}: {} rows/s", parts.join(", "), grouped(summary.rows_per_second as u64))
}

fn since(of: &StabilitySummary) -> String {
    let percent = |share: Option<f64>| {
        share.map_or("–".to_string(), |share| format!("{:.1} %", 100.0 * share))
    };
    let changed =
        if of.changed.is_empty() { "rows at most".to_string() } else { of.changed.join(", ") };
    format!(
        "{} of {} counterfactuals still hold; {} changed without need; changed: {changed}",
        percent(of.recourse_validity),
        grouped(of.asked),
        percent(of.needless_churn)
    )
}

fn robust(of: &Robust) -> String {
    let Robust { models, needed, rows, not_robust, .. } = of;
    let robust = rows - not_robust;
    let share = of.share.map_or(String::new(), |share| format!(" ({:.1} %)", 100.0 * share));
    let cost = of.cost.zip(of.robustness_cost).map_or(String::new(), |(cost, extra)| {
        format!("; mean cost {cost:.3}, of which {extra:.3} for that")
    });
    format!("{}{share} hold under at least {needed} of {models} models{cost}", grouped(robust))
}

fn survival(of: &Survival) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let models = if of.models == 1 { "model" } else { "models" };
    format!(
        "{} of the valid ones on average under {} {models}, {} under the worst",
        percent(of.mean),
        of.models,
        percent(of.least)
    )
}

/// A table of figures by target.
fn targets(targets: &[TargetSummary]) -> String {
    let head = [
        "target",
        "needed",
        "valid",
        "validity",
        "L0",
        "L1",
        "changed",
        "plausible",
        "MMD²",
        "floor",
        "as is",
    ];
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("–".to_string(), |value| format!("{value:.digits$}"))
    };
    let row = |target: &TargetSummary| {
        [
            target.target.clone(),
            grouped(target.needed),
            grouped(target.valid),
            target.validity.map_or("–".to_string(), |share| format!("{:.1} %", 100.0 * share)),
            number(target.l0, 3),
            number(target.l1, 3),
            number(target.n_changed, 2),
            number(target.plausibility, 2),
            number(target.mmd2, 4),
            number(target.mmd2_held_out, 4),
            number(target.mmd2_unchanged, 4),
        ]
    };
    let mut table = vec![head.map(String::from)];
    table.extend(targets.iter().map(row));
    aligned(&table)
}

/// Columns to the right, the first to the left.
pub(super) fn aligned<const COLUMNS: usize>(table: &[[String; COLUMNS]]) -> String {
    let width =
        |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        format!("{}\n", cells.join("  "))
    };
    table.iter().map(line).collect()
}

/// "Change this, to that."
fn example(example: &Example) -> String {
    let key = example.key.join(", ");
    let mut text = format!("Row {key}: {} → {} if\n", example.decided, example.target);
    for [feature, from, to] in &example.changes {
        text.push_str(&format!("  {feature} changes from {from} to {to}\n"));
    }
    text
}
