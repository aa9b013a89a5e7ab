//! Events of a run: when it begins, what it reads and writes, how it ends.

use arrow::datatypes::Schema;

use super::{RunMode, RunSummary, Stages};
use crate::engine::Table;
use crate::error::{Kind, Result};
use crate::job::Job;
use crate::lineage::{
    Dataset, Facets, Lineage, LineageState, column_lineage, dataset, schema_facet,
};
use crate::output::COUNTERFACTUALS;

/// Does what a run does, and tells of it.
pub(super) fn with_events(
    job: &Job,
    mode: RunMode,
    run: impl FnOnce(&Lineage) -> Result<RunSummary>,
) -> Result<RunSummary> {
    let lineage = Lineage::of(&job.lineage, (&job.file, mode.name()));
    if !lineage.is_heard() {
        return run(&lineage);
    }
    let read = job.input.features.iter().map(|table| dataset(table, None)).collect();
    let written = dataset(&format!("{}/{COUNTERFACTUALS}", job.output.shown()), None);
    lineage.know(Facets { inputs: read, outputs: vec![written] });
    lineage.start();
    let result = run(&lineage);
    lineage.end(&outcome(&result, &lineage));
    result
}

fn outcome(result: &Result<RunSummary>, lineage: &Lineage) -> LineageState {
    match result {
        Ok(summary) => {
            let mut facets = lineage.current_facets();
            facets.tell_statistics(summary.counterfactuals);
            let gates = summary.gates.iter();
            let gates: Vec<(String, bool)> =
                gates.map(|gate| (gate.gate.clone(), gate.passed)).collect();
            facets.tell_assertions(&gates);
            if let Some(table) = &summary.table {
                facets.outputs.push(dataset(&table.url, table.version));
            }
            lineage.know(facets);
            let missed = gates.iter().filter(|(_, passed)| !passed).map(|(gate, _)| gate.as_str());
            let missed: Vec<&str> = missed.collect();
            if missed.is_empty() {
                return LineageState::Complete;
            }
            LineageState::Fail(format!("gates were missed: {}", missed.join(", ")))
        }
        Err(error) if matches!(error.kind(), Kind::Interrupted(_)) => {
            LineageState::Abort(error.to_string())
        }
        Err(error) => LineageState::Fail(error.to_string()),
    }
}

impl Stages<'_> {
    /// What is known once the tables are open.
    pub(super) fn tell(&self, lineage: &Lineage) {
        if !lineage.is_heard() {
            return;
        }
        let read = |table: &Table| {
            let mut described = dataset(&table.shown, table.version);
            described["facets"]["schema"] = schema_facet(&table.schema);
            described
        };
        let inputs = &self.inputs;
        let tables = [Some(&inputs.features), inputs.scores.as_ref()];
        let inputs: Vec<Dataset> = tables.into_iter().flatten().map(read).collect();
        let mut facets = lineage.current_facets();
        if let Some(output) = facets.outputs.first_mut() {
            let schema = self.counterfactual_columns();
            output["facets"]["schema"] = schema_facet(&schema);
            output["facets"]["columnLineage"] = self.columns_from(&inputs[0], &schema);
        }
        lineage.know(Facets { inputs, ..facets });
    }

    /// Key columns are copied; all others are computed from the features.
    fn columns_from(&self, input: &Dataset, schema: &Schema) -> serde_json::Value {
        let key: Vec<String> =
            self.inputs.key_fields().iter().map(|field| field.name().clone()).collect();
        let columns = schema.fields().iter().map(|field| field.name().clone());
        let computed: Vec<String> = columns.filter(|name| !key.contains(name)).collect();
        let features: Vec<String> = self.inputs.schema.names().map(String::from).collect();
        column_lineage(input, &key, (&computed, &features))
    }
}
