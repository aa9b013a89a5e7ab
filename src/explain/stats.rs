//! What explaining some rows gives beside the table: rejects, counts, and where the time went.

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::explained::ExplainedRows;
use crate::feature::Reject;
use crate::metrics::Status;

/// What explaining some rows gives beside the table.
#[derive(Debug, Default)]
pub struct ExplainStats {
    /// Rows seen.
    pub rows: u64,
    /// Rows explained: those of the table with `sample` 0.
    pub explained: u64,
    /// Rows of the table by what became of them.
    pub statuses: BTreeMap<String, u64>,
    /// Rows that a score table did not know.
    pub rows_without_score: u64,
    /// Rows set aside, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Those of the last block as rows of the rejects table …
    pub rejects: Option<RecordBatch>,
    /// … and by their index in it.
    pub last_rejects: Vec<Reject>,
    /// Counterfactuals whose refinement was cut short by the clock.
    pub cut_short: u64,
    /// Counterfactuals that were not found, by what kept them from being found.
    pub unsolved: BTreeMap<String, u64>,
    /// Where the time went.
    pub seconds: StageSeconds,
}

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Validating rows and asking the model, or the score table, what it decided.
    Decide,
    /// Encoding, generating, constraining.
    Generate,
    /// Asking the model about counterfactuals.
    Score,
    /// Refining them …
    Refine,
    /// … and asking the model meanwhile.
    Rescore,
    /// Distances and counts.
    Measure,
    /// Making the table.
    Tabulate,
    /// Writing it.
    Write,
}

/// Seconds of work by stage, all threads together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StageSeconds {
    /// Validating rows and asking what was decided.
    pub decide: f64,
    /// Encoding, generating, constraining.
    pub generate: f64,
    /// Asking the model about counterfactuals.
    pub score: f64,
    /// Refining them.
    pub refine: f64,
    /// Asking the model while refining.
    pub rescore: f64,
    /// Distances and counts.
    pub measure: f64,
    /// Making the table.
    pub tabulate: f64,
    /// Writing it.
    pub write: f64,
}

impl StageSeconds {
    /// Names of the stages.
    pub const NAMES: [&str; 8] =
        ["decide", "generate", "score", "refine", "rescore", "measure", "tabulate", "write"];

    /// Seconds of the stages, in the order of their names.
    pub fn values(&self) -> [f64; 8] {
        let StageSeconds { decide, generate, score, refine, rescore, measure, tabulate, write } =
            *self;
        [decide, generate, score, refine, rescore, measure, tabulate, write]
    }

    /// Adds the seconds since a moment to a stage, and starts the moment anew.
    pub fn clock(&mut self, stage: Stage, since: &mut Instant) {
        let now = Instant::now();
        self.add_to(stage, now.duration_since(*since).as_secs_f64());
        *since = now;
    }

    /// Adds seconds to a stage.
    pub(super) fn add_to(&mut self, stage: Stage, seconds: f64) {
        *match stage {
            Stage::Decide => &mut self.decide,
            Stage::Generate => &mut self.generate,
            Stage::Score => &mut self.score,
            Stage::Refine => &mut self.refine,
            Stage::Rescore => &mut self.rescore,
            Stage::Measure => &mut self.measure,
            Stage::Tabulate => &mut self.tabulate,
            Stage::Write => &mut self.write,
        } += seconds;
    }

    /// Adds another's.
    pub fn add(&mut self, other: &StageSeconds) {
        self.decide += other.decide;
        self.generate += other.generate;
        self.score += other.score;
        self.refine += other.refine;
        self.rescore += other.rescore;
        self.measure += other.measure;
        self.tabulate += other.tabulate;
        self.write += other.write;
    }
}

impl ExplainStats {
    /// Counts rows of the table.
    pub(super) fn count(&mut self, explained: &ExplainedRows) {
        let firsts = explained.samples.iter().filter(|sample| **sample == 0);
        self.explained += firsts.count() as u64;
        for status in Status::ALL {
            let found = explained.findings.iter().filter(|finding| finding.status == status);
            let rows = found.count() as u64;
            *self.statuses.entry(status.name().to_string()).or_default() += rows;
        }
    }

    pub(super) fn clock(&mut self, stage: Stage, since: &mut Instant) {
        self.seconds.clock(stage, since);
    }

    pub(super) fn reject(&mut self, table: RecordBatch, rejects: Vec<Reject>) {
        for reject in &rejects {
            *self.rejected.entry(reject.reason.name().to_string()).or_default() += 1;
        }
        self.rejects = Some(table);
        self.last_rejects = rejects;
    }
}
