//! OpenLineage events of a run: what it read, what it wrote, and how it ended, as JSON for a catalogue. A run never fails
//! over them: what cannot be delivered is a warning.

mod event;
mod facets;
mod send;

use std::path::Path;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::job::LineageJob;

pub use event::LineageState;
pub use facets::{Dataset, Facets, column_lineage, dataset, schema_facet};
use send::Transport;

/// A variable that turns all events off.
const DISABLED: &str = "OPENLINEAGE_DISABLED";
/// The job's namespace.
const NAMESPACE: &str = "OPENLINEAGE_NAMESPACE";
/// The run that has started this one: `namespace/job/run id`, as Airflow's macros give it.
const PARENT: &str = "OPENLINEAGE_PARENT_ID";

/// What events of one run have in common.
#[derive(Debug)]
pub struct Lineage {
    transports: Vec<Transport>,
    run: String,
    namespace: String,
    job: String,
    command: String,
    parent: Option<Value>,
    current_facets: Mutex<Facets>,
}

impl Lineage {
    /// Events of a run of a job file; none go anywhere unless the job or the environment says where.
    pub fn of(job: &LineageJob, (file, command): (&Path, &str)) -> Lineage {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let disabled = variable(DISABLED).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let transports = if disabled { Vec::new() } else { Transport::all(job) };
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let namespace = variable(NAMESPACE).or_else(|| job.namespace.clone());
        Lineage {
            transports,
            run: event::run_id(),
            namespace: namespace.unwrap_or_else(|| "default".to_string()),
            job: job.job.clone().unwrap_or(stem),
            command: command.to_string(),
            parent: variable(PARENT).as_deref().and_then(parent),
            current_facets: Mutex::default(),
        }
    }

    /// Whether anybody hears of the run.
    pub fn is_heard(&self) -> bool {
        !self.transports.is_empty()
    }

    /// Says that the run has begun.
    pub fn start(&self) {
        self.emit(&LineageState::Start);
    }

    /// What is known by now of the run's tables, for the events that follow.
    pub fn know(&self, facets: Facets) {
        if let Ok(mut current_facets) = self.current_facets.lock() {
            *current_facets = facets;
        }
    }

    /// What was told by [`Lineage::know`].
    pub fn current_facets(&self) -> Facets {
        self.current_facets.lock().map(|current_facets| current_facets.clone()).unwrap_or_default()
    }

    /// Says how the run has ended.
    pub fn end(&self, outcome: &LineageState) {
        self.emit(outcome);
    }

    fn emit(&self, outcome: &LineageState) {
        if self.transports.is_empty() {
            return;
        }
        let event = self.event(outcome, &self.current_facets());
        for transport in &self.transports {
            if let Err(problem) = transport.send(&event.to_string()) {
                tracing::warn!("no lineage of this run: {transport}: {problem}");
            }
        }
    }
}

/// The run's parent, from `namespace/job/run id`; names of jobs may have slashes.
fn parent(text: &str) -> Option<Value> {
    let (namespace, rest) = text.split_once('/')?;
    let (job, run) = rest.rsplit_once('/')?;
    Some(json!({ "run": { "runId": run }, "job": { "namespace": namespace, "name": job } }))
}
