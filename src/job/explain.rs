//! The `[explain]` section: which generator, how many answers a row.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How rows are explained.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExplainSpec {
    /// The folder of a fitted generator. `run` trains one where none is named; `explain` needs it.
    pub generator: Option<PathBuf>,
    /// Counterfactuals for each row and wanted decision: the first may change all that is allowed, each
    /// further one a random part of it. Equal ones are given once.
    pub samples: usize,
    /// Rows of the table that are worked on, journalled and written as one piece. By default 262,144,
    /// and more for tables beyond 16 million rows.
    pub unit_rows: Option<u64>,
}

impl Default for ExplainSpec {
    fn default() -> Self {
        ExplainSpec { generator: None, samples: 1, unit_rows: None }
    }
}

/// How rows are explained, paths resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainJob {
    /// The generator's folder; without one it is trained.
    pub generator: Option<PathBuf>,
    /// Counterfactuals for each row and wanted decision, at most.
    pub samples: usize,
    /// Rows of a piece of work.
    pub unit_rows: Option<u64>,
}
