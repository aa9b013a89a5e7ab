//! The `[audit]` section: which groups are compared, with which, and how far the model is asked about it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Budgets at which curves are told, at most.
pub const MOST_BUDGETS: usize = 64;

/// What the audit tells of groups, in `reports/audit/` and `reports/audit.html`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::audit)]
pub struct AuditSpec {
    /// Columns of the feature table whose values are groups, each column on its own: texts, whole numbers or
    /// booleans. Those of `report.by` if it is not given.
    pub by: Option<Vec<String>>,
    /// The group that others are compared with, by column: `{ sex = "Male" }`. The largest group if it is not
    /// given.
    pub reference: BTreeMap<String, String>,
    /// Column of the feature table with what turned out to be true: a class of the model, or its value.
    pub label: Option<String>,
    /// How far groups may be apart: a difference of shares; a share of the other's mean for costs.
    pub tolerance: f64,
    /// Costs at which `curves` is told. 32 quantiles of the costs of all if none are given.
    #[schemars(length(max = MOST_BUDGETS))]
    pub budgets: Vec<f64>,
    /// Rows that need another decision below which a group's figures are not told.
    pub min_cell: u64,
    /// The folder of an earlier run, relative to the job file, that this one is compared with.
    pub previous: Option<PathBuf>,
    /// Whether `reasons` is written: candidate reasons of each row that is not at the target.
    pub reasons: bool,
    /// Times that the model is asked for the audit, at most.
    pub queries: u64,
    /// Features that the model should not decide by: `explicit` gives rows their other values. Those of `by` that
    /// are features if it is not given.
    pub protected: Option<Vec<String>>,
    /// What is told. All that asks the model nothing if it is not given: `groups`, `curves`, `gaps`,
    /// `changes`, `at_bound`, and `stability` where there is a `previous` run. None for no audit.
    pub sections: Option<Vec<Section>>,
    /// The page.
    pub page: AuditPageSpec,
}

/// The page `reports/audit.html`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::page)]
pub struct AuditPageSpec {
    /// Rows that can be looked up on the page: personal data of so many people goes into it.
    pub rows: u64,
}

/// A part of the audit.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Who is refused, who has a valid counterfactual, and at what cost.
    Groups,
    /// Which share has a valid counterfactual within which cost.
    Curves,
    /// How far groups are apart.
    Gaps,
    /// Which changes are commonest.
    Changes,
    /// Which counterfactuals lie exactly on a bound.
    AtBound,
    /// What single actions for all would reach. Asks the model.
    Actions,
    /// Which constraint shuts rows out. Asks the model.
    Binding,
    /// How much single features can do. Asks the model.
    Responsiveness,
    /// Whether counterfactuals stay valid under small errors. Asks the model.
    Robustness,
    /// Whether a protected feature decides by itself. Asks the model.
    Explicit,
    /// Whether gaps are the model's or the search's: rows of each group searched again. Asks the model.
    SecondSearch,
    /// What changed since the previous run.
    Stability,
}

impl Section {
    /// Those that need nothing but the tables of the run.
    pub const OF_TABLES: [Section; 5] =
        [Section::Groups, Section::Curves, Section::Gaps, Section::Changes, Section::AtBound];

    /// Its name in jobs, and that of its table.
    pub fn name(self) -> &'static str {
        match self {
            Section::Groups => "groups",
            Section::Curves => "curves",
            Section::Gaps => "gaps",
            Section::Changes => "changes",
            Section::AtBound => "at_bound",
            Section::Actions => "actions",
            Section::Binding => "binding",
            Section::Responsiveness => "responsiveness",
            Section::Robustness => "robustness",
            Section::Explicit => "explicit",
            Section::SecondSearch => "second_search",
            Section::Stability => "stability",
        }
    }

    /// Whether it asks the model.
    pub fn asks(self) -> bool {
        !Section::OF_TABLES.contains(&self) && self != Section::Stability
    }
}

impl Default for AuditSpec {
    fn default() -> Self {
        AuditSpec {
            by: None,
            reference: BTreeMap::new(),
            label: None,
            tolerance: 0.05,
            budgets: Vec::new(),
            min_cell: 30,
            previous: None,
            reasons: false,
            queries: 2_000_000,
            protected: None,
            sections: None,
            page: AuditPageSpec::default(),
        }
    }
}

/// The audit, checked.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct AuditJob {
    /// Columns whose values are groups.
    pub by: Vec<String>,
    /// The group that others are compared with, by column.
    pub reference: BTreeMap<String, String>,
    /// Column with what turned out to be true.
    pub label: Option<String>,
    /// How far groups may be apart.
    pub tolerance: f64,
    /// Costs at which curves are told, ascending; quantiles if there are none.
    pub budgets: Vec<f64>,
    /// Rows below which a group's figures are not told.
    pub min_cell: u64,
    /// An earlier run.
    pub previous: Option<PathBuf>,
    /// Whether candidate reasons are written.
    pub reasons: bool,
    /// Times that the model is asked, at most.
    pub queries: u64,
    /// Features that the model should not decide by; those of `by` that are features if none are named.
    pub protected: Option<Vec<String>>,
    /// What is told, in the order of the sections.
    pub sections: Vec<Section>,
    /// Rows on the page.
    pub page_rows: u64,
}

impl Default for AuditJob {
    /// All that needs no groups.
    fn default() -> Self {
        let spec = AuditSpec::default();
        AuditJob {
            by: Vec::new(),
            reference: spec.reference,
            label: None,
            tolerance: spec.tolerance,
            budgets: spec.budgets,
            min_cell: spec.min_cell,
            previous: None,
            reasons: spec.reasons,
            queries: spec.queries,
            protected: None,
            sections: Section::OF_TABLES.to_vec(),
            page_rows: spec.page.rows,
        }
    }
}

impl AuditJob {
    /// Whether anything is told for which the model is asked.
    pub fn asks(&self) -> bool {
        self.reasons || self.sections.iter().any(|section| section.asks())
    }

    /// Whether a section is told.
    pub fn has(&self, section: Section) -> bool {
        self.sections.contains(&section)
    }
}
