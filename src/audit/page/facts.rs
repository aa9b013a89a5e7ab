//! What a page says of its run that no table holds: who made it of what, and whether it passed.

use std::collections::BTreeMap;

use crate::output::RunFacts;
use crate::report::Gate;

/// What a manifest says, or will say, of the run that a page is about.
#[derive(Debug, Clone)]
pub struct PageFacts {
    /// What the run worked on.
    pub run: RunFacts,
    /// The command that made it.
    pub command: String,
    /// Versions of this program and of what it stands on, by name.
    pub versions: Vec<(String, String)>,
    /// Where every row went.
    pub accounts: Accounts,
    /// What the job demands, and whether it was reached.
    pub gates: Vec<Gate>,
    /// How far groups may be apart.
    pub tolerance: f64,
    /// Rows that need another decision below which a group's figures are not told.
    pub min_cell: u64,
    /// Rows that can be looked up on the page.
    pub page_rows: u64,
    /// The key columns.
    pub key: Vec<String>,
    /// The run of which this one is the successor: its manifest's SHA-256.
    pub previous: Option<String>,
    /// Runs whose figures are known, the oldest first and this one last; none where it has no predecessor.
    pub past: Vec<PastRun>,
}

/// Figures of a run in a row of runs.
#[derive(Debug, Clone)]
pub struct PastRun {
    /// What it is called.
    pub label: String,
    /// Rows explained.
    pub rows: u64,
    /// Share of them that is refused.
    pub refused: Option<f64>,
    /// Share of those that is helped.
    pub helped: Option<f64>,
    /// Share of those that is proven beyond help.
    pub shut_out: Option<f64>,
}

/// Where every row went.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    /// Rows of the feature table.
    pub read: u64,
    /// Those that `input.where` leaves out.
    pub out_of_scope: u64,
    /// Those set aside, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// First answers by status: as many as rows, or as rows and targets where rows have several.
    pub statuses: BTreeMap<String, u64>,
}

impl Accounts {
    /// Rows set aside.
    pub fn rejected(&self) -> u64 {
        self.rejected.values().sum()
    }

    /// Rows that were explained.
    pub fn explained(&self) -> u64 {
        self.read.saturating_sub(self.out_of_scope).saturating_sub(self.rejected())
    }

    /// First answers of a status.
    pub fn of(&self, status: crate::metrics::Status) -> u64 {
        self.statuses.get(status.name()).copied().unwrap_or(0)
    }
}
