//! One event: OpenLineage 2-0-2, `RunEvent`.

use std::time::{SystemTime, UNIX_EPOCH};

use arrow::temporal_conversions::timestamp_ms_to_datetime;
use rand::RngExt;
use serde_json::{Value, json};

use super::Lineage;
use super::facets::{Facets, facet};

const SCHEMA: &str = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";

/// How a run stands.
#[derive(Debug, Clone, PartialEq)]
pub enum LineageState {
    /// It has begun.
    Start,
    /// It has published.
    Complete,
    /// It was told to stop.
    Abort(String),
    /// It has failed, or missed a gate.
    Fail(String),
}

impl LineageState {
    fn name(&self) -> &'static str {
        match self {
            LineageState::Start => "START",
            LineageState::Complete => "COMPLETE",
            LineageState::Abort(_) => "ABORT",
            LineageState::Fail(_) => "FAIL",
        }
    }

    fn message(&self) -> Option<&str> {
        match self {
            LineageState::Abort(message) | LineageState::Fail(message) => Some(message),
            _ => None,
        }
    }
}

impl Lineage {
    /// The event of how the run stands.
    pub(super) fn event(&self, outcome: &LineageState, known: &Facets) -> Value {
        let mut run = json!({
            "processing_engine": facet("1-1-1/ProcessingEngineRunFacet", json!({
                "name": "overturn",
                "version": env!("CARGO_PKG_VERSION"),
                "openlineageAdapterVersion": env!("CARGO_PKG_VERSION"),
            })),
        });
        if let Some(parent) = &self.parent {
            run["parent"] = facet("1-0-1/ParentRunFacet", parent.clone());
        }
        if let Some(message) = outcome.message() {
            run["errorMessage"] = facet(
                "1-0-1/ErrorMessageRunFacet",
                json!({
                    "message": message, "programmingLanguage": "rust",
                }),
            );
        }
        let job_type = json!({ "processingType": "BATCH", "integration": "OVERTURN",
            "jobType": self.command.to_uppercase() });
        json!({
            "eventType": outcome.name(),
            "eventTime": now(),
            "producer": super::facets::PRODUCER,
            "schemaURL": SCHEMA,
            "run": { "runId": self.run, "facets": run },
            "job": { "namespace": self.namespace, "name": self.job,
                "facets": { "jobType": facet("2-0-3/JobTypeJobFacet", job_type) } },
            "inputs": known.inputs,
            "outputs": known.outputs,
        })
    }
}

fn milliseconds() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

fn now() -> String {
    let time = timestamp_ms_to_datetime(milliseconds() as i64);
    time.map_or_else(String::new, |time| time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// A UUID of version 7: the time, then chance.
pub(super) fn run_id() -> String {
    let chance: u128 = rand::rng().random();
    let bits = (milliseconds() << 80) | (chance >> 48);
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x7 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_uuids_of_version_7() {
        let id = run_id();
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'7', "{id}");
        assert!(matches!(id.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{id}");
        assert_ne!(id, run_id());
    }
}
