//! The `[lineage]` section.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::resolve::JobResolver;

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
#[derive(Debug, Clone, Default, PartialEq)]
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

impl JobResolver<'_> {
    pub(super) fn lineage(&mut self, spec: LineageSpec) -> LineageJob {
        const KEY: &str = "lineage.url";
        let url = spec.url.unwrap_or_default();
        let http = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
        let problem = "is no address of a server, expected one such as \"http://marquez:5000\"";
        self.require(http || url.is_empty(), KEY, problem);
        let secret = url.contains('@') || url.contains('?');
        let problem = "holds credentials or parameters, expected the key in `OPENLINEAGE_API_KEY`";
        self.require(!secret, KEY, problem);
        LineageJob {
            url: Some(url).filter(|url| !url.is_empty()),
            file: spec.file.map(|file| self.local(&file, "lineage.file")),
            namespace: spec.namespace,
            job: spec.job,
        }
    }
}
