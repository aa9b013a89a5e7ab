//! What a run did, for people, schedulers and the manifest.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde::{Deserialize, Serialize};

use super::super::TrainSummary;
use crate::commit::TableCommit;
use crate::explain::StageSeconds;
use crate::job::ExplainMethod;
use crate::metrics::{Source, Status};
use crate::report::{Gate, Robust, Survival};

/// Examples shown.
pub(super) const EXAMPLES: usize = 3;

/// What a run did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// `run` or `explain`.
    pub command: String,
    /// Name of the run.
    pub run_id: String,
    /// Where answers come from: what `explain.method` says, or what `auto` came to.
    #[serde(default)]
    pub method: ExplainMethod,
    /// Figures of each method that `explain.compare` names, the published one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<MethodSummary>,
    /// Where they agree, by pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agreement: Vec<AgreementSummary>,
    /// Whether the very same was published before: nothing was done.
    pub already_published: bool,
    /// Rows of the feature table.
    pub rows_read: u64,
    /// Rows that `input.where` leaves out.
    pub rows_out_of_scope: u64,
    /// Rows explained: those with `sample` 0.
    pub rows_explained: u64,
    /// Rows set aside, by reason.
    pub rows_rejected: BTreeMap<String, u64>,
    /// Rows of the counterfactual table.
    pub counterfactuals: u64,
    /// First answers by status.
    pub statuses: BTreeMap<String, u64>,
    /// The solved ones by what found the counterfactual.
    #[serde(default)]
    pub sources: BTreeMap<String, u64>,
    /// Counterfactuals that were not found, further samples too, by what kept them from being found:
    /// `questions_spent`, `time_spent`, `search_spent`, `implausible_only` or
    /// `nothing_left_to_try`.
    #[serde(default)]
    pub unsolved: BTreeMap<String, u64>,
    /// Share of the counterfactuals needed that are valid.
    pub validity: Option<f64>,
    /// Mean share of changed categoricals, over valid counterfactuals.
    pub l0: Option<f64>,
    /// Mean |Δ| of standardised numerics, over valid counterfactuals.
    pub l1: Option<f64>,
    /// Mean number of changed features, over valid counterfactuals.
    pub n_changed: Option<f64>,
    /// Median plausibility, over valid counterfactuals.
    pub plausibility: Option<f64>,
    /// How many of the valid counterfactuals hold under the models of `report.retrained`, if there are any.
    #[serde(default)]
    pub survival: Option<Survival>,
    /// How the valid counterfactuals do under the models of `robust.models`, if there are any.
    #[serde(default)]
    pub robust: Option<Robust>,
    /// What became of the counterfactuals of `audit.previous`, if that is compared with.
    #[serde(default)]
    pub stability: Option<StabilitySummary>,
    /// The widest gap of `recourse_rate` between a group of `audit.by` and its reference group that Holm's p lets
    /// stand, 0 if none does; none if no group could be compared.
    #[serde(default)]
    pub widest_gap: Option<f64>,
    /// The same by target, with MMD².
    pub targets: Vec<TargetSummary>,
    /// Times that the model was asked about counterfactuals: for each that was needed.
    pub queries_per_row: Option<f64>,
    /// Units of work.
    pub splits: usize,
    /// Units that an earlier run had finished.
    pub splits_resumed: usize,
    /// Rows explained a second, reading and writing included.
    pub rows_per_second: f64,
    /// Seconds by stage.
    pub seconds: Seconds,
    /// Seconds of work while explaining, all threads together.
    pub explaining: StageSeconds,
    /// Processor time.
    pub cpu_seconds: f64,
    /// Most memory held.
    pub peak_bytes: u64,
    /// How training went, if there was one.
    pub training: Option<TrainSummary>,
    /// What the job demands, and whether it was reached.
    pub gates: Vec<Gate>,
    /// Some counterfactuals.
    pub examples: Vec<Example>,
    /// Where the tables are.
    pub output: String,
    /// The commit to the job's Delta table, if it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableCommit>,
    /// What is odd, but usable.
    pub remarks: Vec<String>,
}

/// Figures of one method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodSummary {
    /// The method.
    pub method: String,
    /// Counterfactuals needed.
    pub needed: u64,
    /// Valid ones.
    pub valid: u64,
    /// Their share, if any is needed.
    pub validity: Option<f64>,
    /// Mean share of changed categoricals, over valid ones.
    pub l0: Option<f64>,
    /// Mean |Δ| of standardised numerics, over valid ones.
    pub l1: Option<f64>,
    /// Mean number of changed features, over valid ones.
    pub n_changed: Option<f64>,
    /// Median plausibility, over valid ones.
    pub plausibility: Option<f64>,
    /// Times that the model was asked: for each that was needed.
    pub queries_per_row: Option<f64>,
}

/// Where a pair of methods agrees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreementSummary {
    /// One method …
    pub method: String,
    /// … and another.
    pub other: String,
    /// Rows and targets for which both have a valid counterfactual.
    pub both: u64,
    /// Those of them of which the same features change …
    pub same_features: u64,
    /// … and in the same directions.
    pub same_directions: u64,
}

/// What became of the counterfactuals of an earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StabilitySummary {
    /// The earlier run's name.
    pub previous: String,
    /// What changed beside rows: the model, and what of the configuration.
    pub changed: Vec<String>,
    /// Rows that both runs have.
    pub rows: u64,
    /// Rows that only this run has.
    pub appeared: u64,
    /// Rows that only the earlier run has.
    pub vanished: u64,
    /// Decisions that are others.
    pub decision_flips: u64,
    /// Valid counterfactuals of the earlier run, of rows that are still there.
    pub promised: u64,
    /// Those that the model was asked about.
    pub asked: u64,
    /// Share of them that still hold.
    pub recourse_validity: Option<f64>,
    /// 1 − mean share of changed features that both runs have in common.
    pub answer_churn: Option<f64>,
    /// Share of the counterfactuals that changed without need.
    pub needless_churn: Option<f64>,
    /// Rows that made the changes and are refused all the same.
    pub broken_promises: u64,
    /// Mean difference of costs.
    pub cost_drift: Option<f64>,
}

/// Figures of one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetSummary {
    /// The target.
    pub target: String,
    /// Counterfactuals needed.
    pub needed: u64,
    /// Valid ones.
    pub valid: u64,
    /// Their share, if any is needed …
    pub validity: Option<f64>,
    /// … and its 95 % interval.
    pub interval: [f64; 2],
    /// Mean share of changed categoricals, over valid ones.
    pub l0: Option<f64>,
    /// Mean |Δ| of standardised numerics, over valid ones.
    pub l1: Option<f64>,
    /// Mean number of changed features, over valid ones.
    pub n_changed: Option<f64>,
    /// Median plausibility, over valid ones.
    pub plausibility: Option<f64>,
    /// MMD² of all of them.
    pub mmd2: Option<f64>,
    /// That of rows of the class that were not trained on.
    pub mmd2_held_out: Option<f64>,
    /// That of the explained rows left as they are.
    pub mmd2_unchanged: Option<f64>,
}

/// Seconds by stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Training, with all that belongs to it.
    pub training: f64,
    /// Checks before explaining.
    pub checking: f64,
    /// Reading, explaining, writing.
    pub explaining: f64,
    /// Reports.
    pub reporting: f64,
    /// Reading the files back.
    pub verifying: f64,
    /// All, until publishing.
    pub total: f64,
}

/// A counterfactual in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// The row's key.
    pub key: Vec<String>,
    /// What the model decides.
    pub decided: String,
    /// What it would decide.
    pub target: String,
    /// Feature, from, to.
    pub changes: Vec<[String; 3]>,
}

impl RunSummary {
    /// The same, said again without having been done again.
    pub(super) fn repeated(mut self) -> RunSummary {
        self.already_published = true;
        self
    }

    /// The same run with the figures that its reports, made anew, come to.
    pub(super) fn reported_anew(self, new: RunSummary) -> RunSummary {
        let seconds = Seconds {
            reporting: new.seconds.reporting,
            verifying: new.seconds.verifying,
            ..self.seconds
        };
        let RunSummary { survival, robust, stability, widest_gap, targets, .. } = new;
        RunSummary { targets, survival, robust, stability, widest_gap, seconds, ..self }
    }

    /// The same run with the figures that its audit, made anew, comes to.
    pub(super) fn audited_anew(self, new: RunSummary) -> RunSummary {
        let RunSummary { survival, robust, targets, .. } = self.clone();
        RunSummary { survival, robust, targets, ..self.reported_anew(new) }
    }

    /// Rows rejected.
    pub fn rejected(&self) -> u64 {
        self.rows_rejected.values().sum()
    }

    /// Rows of a status.
    pub fn rows(&self, status: Status) -> u64 {
        self.statuses.get(status.name()).copied().unwrap_or(0)
    }

    /// Solved rows of a source.
    pub fn found_by(&self, source: Source) -> u64 {
        self.sources.get(source.name()).copied().unwrap_or(0)
    }

    /// Whether it may be published.
    pub fn passes(&self) -> bool {
        self.gates.iter().all(|gate| gate.passed)
    }
}

/// A row of the counterfactual table, whose key has so many columns, in words.
pub(super) fn example(batch: &RecordBatch, key: usize, row: usize) -> Option<Example> {
    let options = FormatOptions::default();
    let text = |column: &dyn Array, row: usize| {
        Some(ArrayFormatter::try_new(column, &options).ok()?.value(row).to_string())
    };
    let cell = |index: usize| text(batch.column(index), row);
    let target = batch.schema().index_of("target").ok()?;
    let list = batch.column_by_name("changes")?.as_list::<i32>().value(row);
    let items = list.as_struct();
    let change = |item: usize| {
        let of = |index: usize| text(items.column(index), item);
        Some([of(0)?, of(1)?, of(2)?])
    };
    Some(Example {
        key: (0..key).map(cell).collect::<Option<_>>()?,
        target: cell(target)?,
        decided: cell(target + 1)?,
        changes: (0..items.len()).map(change).collect::<Option<_>>()?,
    })
}
