//! What a page says of its run that no table holds: who made it of what, and whether it passed.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::metrics::Status;
use crate::output::{MANIFEST_FILE, Manifest, RunProvenance};
use crate::report::Gate;

/// What a manifest says, or will say, of the run that a page is about.
#[derive(Debug, Clone)]
pub struct PageContext {
    /// What the run worked on.
    pub run: RunProvenance,
    /// The command that made it.
    pub command: String,
    /// Versions of this program and of what it stands on, by name.
    pub versions: Vec<(String, String)>,
    /// Where every row went.
    pub accounts: RowAccounts,
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
    /// The published method, where the run has several.
    pub published: Option<String>,
    /// Runs whose figures are known, the oldest first and this one last; none where it has no predecessor.
    pub past: Vec<PastRun>,
    /// Why the runs before them are not told, if there are some.
    pub past_end: Option<String>,
}

impl PageContext {
    /// What a manifest says. What older ones do not say yet has its default.
    ///
    /// # Errors
    /// When it does not say what the run worked on.
    pub fn of(manifest: &Manifest) -> Result<PageContext> {
        let run = manifest.run.clone().ok_or_else(|| {
            Error::input(MANIFEST_FILE, "does not say what the run worked on, expected `run`")
        })?;
        let audit = &manifest.job["audit"];
        let versions = manifest.versions.as_object().into_iter().flatten();
        let shown = |(name, of): (&String, &Value)| {
            let text = of.as_str().map_or_else(|| of.to_string(), String::from);
            (name.clone(), text)
        };
        Ok(PageContext {
            run,
            command: manifest.command.clone(),
            versions: versions.map(shown).collect(),
            accounts: RowAccounts::of_summary(&manifest.summary),
            gates: typed(&manifest.summary["gates"]),
            tolerance: audit["tolerance"].as_f64().unwrap_or_default(),
            min_cell: audit["min_cell"].as_u64().unwrap_or_default(),
            page_rows: audit["page_rows"].as_u64().unwrap_or_default(),
            key: typed(&manifest.job["input"]["key"]),
            published: published(&manifest.summary),
            past: Vec::new(),
            past_end: None,
        })
    }
}

/// The published method of a run that has several.
fn published(summary: &Value) -> Option<String> {
    let several = summary["methods"].as_array().is_some_and(|methods| !methods.is_empty());
    summary["method"].as_str().filter(|_| several).map(String::from)
}

/// A part of a manifest as a type; the type's default where it is not there.
fn typed<T: DeserializeOwned + Default>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

impl PastRun {
    /// What a manifest says of its run.
    pub fn of(label: String, manifest: &Manifest) -> PastRun {
        let accounts = RowAccounts::of_summary(&manifest.summary);
        let [solved, open, shut_out] =
            [Status::Solved, Status::Unsolved, Status::Infeasible].map(|of| accounts.of(of));
        let (needed, rows_and_targets) =
            (solved + open + shut_out, accounts.statuses.values().sum());
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let summary = &manifest.summary;
        PastRun {
            label,
            rows: accounts.explained(),
            refused: share(needed, rows_and_targets),
            helped: share(solved, needed),
            shut_out: share(shut_out, needed),
            held: summary["stability"]["recourse_validity"].as_f64(),
            robust: summary["robust"]["share"].as_f64(),
            gap: summary["widest_gap"].as_f64(),
        }
    }
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
    /// Share of the counterfactuals of the run before it that still held.
    pub held: Option<f64>,
    /// Share of its counterfactuals that hold under enough models beside the predictor.
    pub robust: Option<f64>,
    /// The widest gap between groups that is not by chance.
    pub gap: Option<f64>,
}

/// Where every row went.
#[derive(Debug, Clone, Default)]
pub struct RowAccounts {
    /// Rows of the feature table.
    pub read: u64,
    /// Those that `input.where` leaves out.
    pub out_of_scope: u64,
    /// Those set aside, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// First counterfactuals by status: as many as rows, or as rows and targets where rows have several.
    pub statuses: BTreeMap<String, u64>,
}

impl RowAccounts {
    /// What a summary says.
    fn of_summary(summary: &Value) -> RowAccounts {
        RowAccounts {
            read: summary["rows_read"].as_u64().unwrap_or_default(),
            out_of_scope: summary["rows_out_of_scope"].as_u64().unwrap_or_default(),
            rejected: typed(&summary["rows_rejected"]),
            statuses: typed(&summary["statuses"]),
        }
    }

    /// Rows set aside.
    pub fn rejected(&self) -> u64 {
        self.rejected.values().sum()
    }

    /// Rows that were explained.
    pub fn explained(&self) -> u64 {
        self.read.saturating_sub(self.out_of_scope).saturating_sub(self.rejected())
    }

    /// First counterfactuals of a status.
    pub fn of(&self, status: Status) -> u64 {
        self.statuses.get(status.name()).copied().unwrap_or(0)
    }
}
