//! The `[audit]` section: which groups are compared, with which, and how far the model is asked about it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ReportSpec;
use super::resolve::JobResolver;

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
    /// Who is refused, who has an answer, and at what cost.
    Groups,
    /// Which share has an answer within which cost.
    Curves,
    /// How far groups are apart.
    Gaps,
    /// Which changes are commonest.
    Changes,
    /// Which answers sit exactly on a bound.
    AtBound,
    /// What single actions for all would reach. Asks the model.
    Actions,
    /// Which constraint shuts rows out. Asks the model.
    Binding,
    /// How much single features can do. Asks the model.
    Responsiveness,
    /// Whether answers stand small errors. Asks the model.
    Robustness,
    /// Whether a protected feature decides by itself. Asks the model.
    Explicit,
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
            sections: Section::OF_TABLES.to_vec(),
            page_rows: spec.page.rows,
        }
    }
}

impl AuditJob {
    /// Whether a section is told.
    pub fn has(&self, section: Section) -> bool {
        self.sections.contains(&section)
    }
}

impl JobResolver<'_> {
    /// The section as meant.
    pub(super) fn audit(&mut self, spec: AuditSpec, report: &ReportSpec) -> AuditJob {
        let by = spec.by.unwrap_or_else(|| report.by.clone());
        self.once(&by, "audit.by");
        for column in spec.reference.keys().filter(|column| !by.contains(column)) {
            let problem =
                format!("names the column `{column}`, expected one of `audit.by`: {by:?}");
            self.require(false, "audit.reference", &problem);
        }
        let mut sections = spec.sections.unwrap_or_else(|| {
            let stability = spec.previous.is_some().then_some(Section::Stability);
            Section::OF_TABLES.into_iter().chain(stability).collect()
        });
        sections.sort_unstable();
        let unique = sections.windows(2).all(|pair| pair[0] != pair[1]);
        self.require(unique, "audit.sections", "names a section twice");
        let compared = !sections.contains(&Section::Stability) || spec.previous.is_some();
        let problem = "names `stability`, but `audit.previous` names no run to compare with";
        self.require(compared, "audit.sections", problem);
        let gap =
            report.gates.max_gap.is_none() || (sections.contains(&Section::Gaps) && !by.is_empty());
        let problem = "is given, but no gaps are told: `audit.by` names no column, or `audit.sections` \
                       leaves out `gaps`";
        self.require(gap, "report.gates.max_gap", problem);
        let previous = spec.previous.map(|path| self.existing(&path, "audit.previous"));
        let mut budgets = spec.budgets;
        budgets.sort_by(f64::total_cmp);
        budgets.dedup();
        AuditJob {
            by,
            reference: spec.reference,
            label: spec.label,
            tolerance: spec.tolerance,
            budgets,
            min_cell: spec.min_cell,
            previous,
            reasons: spec.reasons,
            queries: spec.queries,
            sections,
            page_rows: spec.page.rows,
        }
    }
}
