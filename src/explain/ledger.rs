//! What explaining a unit of work gives beside the table: rejects, counts, rows for the comparison of
//! distributions, and where the time went.

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use crate::feature::Reject;
use crate::metrics::Tally;

/// What explaining some rows gives beside the table.
#[derive(Debug)]
pub struct Ledger {
    /// Rows seen.
    pub rows: u64,
    /// Rows that a score table did not know.
    pub rows_without_score: u64,
    /// Rows set aside, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// The same as rows of the rejects table.
    pub rejects: Vec<RecordBatch>,
    /// Those of the last block, by their place in it.
    pub last_rejects: Vec<Reject>,
    /// Counts by target and segment.
    pub tally: Tally,
    /// Rows kept for the comparison of distributions.
    pub kept: Kept,
    /// Where the time went.
    pub seconds: StageSeconds,
}

/// Some explained rows as numbers, before and after.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// Numbers in a row.
    pub width: usize,
    /// Number of the wanted decision.
    pub targets: Vec<u32>,
    /// Number of the segment in the tally.
    pub segments: Vec<u32>,
    /// Whether the counterfactual is valid.
    pub valid: Vec<bool>,
    /// Encoded counterfactuals.
    pub counterfactuals: Vec<f32>,
    /// The rows as they were.
    pub originals: Vec<f32>,
}

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Admitting rows and asking the model, or the score table, what it decided.
    Decide,
    /// Encoding, generating, constraining.
    Generate,
    /// Asking the model about counterfactuals.
    Score,
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
    /// Admitting rows and asking what was decided.
    pub decide: f64,
    /// Encoding, generating, constraining.
    pub generate: f64,
    /// Asking the model about counterfactuals.
    pub score: f64,
    /// Distances and counts.
    pub measure: f64,
    /// Making the table.
    pub tabulate: f64,
    /// Writing it.
    pub write: f64,
}

impl StageSeconds {
    /// Adds the seconds since a moment to a stage, and starts the moment anew.
    pub fn clock(&mut self, stage: Stage, since: &mut Instant) {
        let now = Instant::now();
        let seconds = now.duration_since(*since).as_secs_f64();
        *since = now;
        *match stage {
            Stage::Decide => &mut self.decide,
            Stage::Generate => &mut self.generate,
            Stage::Score => &mut self.score,
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
        self.measure += other.measure;
        self.tabulate += other.tabulate;
        self.write += other.write;
    }
}

impl Ledger {
    /// An empty one, for encoded rows of this width.
    pub(super) fn new(width: usize) -> Ledger {
        Ledger {
            rows: 0,
            rows_without_score: 0,
            rejected: BTreeMap::new(),
            rejects: Vec::new(),
            last_rejects: Vec::new(),
            tally: Tally::default(),
            kept: Kept { width, ..Kept::default() },
            seconds: StageSeconds::default(),
        }
    }

    /// Rows set aside.
    pub fn rejected_rows(&self) -> u64 {
        self.rejected.values().sum()
    }

    pub(super) fn clock(&mut self, stage: Stage, since: &mut Instant) {
        self.seconds.clock(stage, since);
    }

    pub(super) fn reject(&mut self, table: RecordBatch, rejects: Vec<Reject>) {
        for reject in &rejects {
            *self.rejected.entry(reject.reason.name().to_string()).or_default() += 1;
        }
        if !rejects.is_empty() {
            self.rejects.push(table);
        }
        self.last_rejects = rejects;
    }
}
