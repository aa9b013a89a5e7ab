//! The `[lineage]` section.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where OpenLineage events of `run` and `explain` go. Variables of the environment come first:
/// `OPENLINEAGE_URL`, `OPENLINEAGE_NAMESPACE`; the key to a server comes from `OPENLINEAGE_API_KEY` alone.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LineageSpec {
    /// A server that takes events, such as `http://marquez:5000`.
    pub url: Option<String>,
    /// A file to which events are appended, a line each.
    pub file: Option<PathBuf>,
    /// The namespace of the job. By default `default`.
    pub namespace: Option<String>,
    /// The name of the job. By default that of its file, without `.toml`.
    pub job: Option<String>,
}

/// Where events go, path resolved.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LineageJob {
    /// A server.
    pub url: Option<String>,
    /// A file.
    pub file: Option<PathBuf>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The name.
    pub job: Option<String>,
}
