//! Datasets of events, and what is told of them.

use arrow::datatypes::{DataType, Schema};
use serde_json::{Map, Value, json};

/// Who says so.
pub(super) const PRODUCER: &str = "https://crates.io/crates/overturn";

/// A table that a run reads or writes, as an event has it.
pub type Dataset = Value;

/// The tables of a run, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facets {
    /// What is read.
    pub inputs: Vec<Dataset>,
    /// What is written.
    pub outputs: Vec<Dataset>,
}

/// A facet with the fields that all have.
pub(super) fn facet(schema: &str, content: Value) -> Value {
    let name = schema.rsplit('/').next().unwrap_or(schema);
    let mut fields = Map::new();
    fields.insert("_producer".into(), json!(PRODUCER));
    let url = format!("https://openlineage.io/spec/facets/{schema}.json#/$defs/{name}");
    fields.insert("_schemaURL".into(), json!(url));
    fields.extend(content.as_object().cloned().unwrap_or_default());
    Value::Object(fields)
}

/// A table by its address, with its version where it has one.
pub fn dataset(address: &str, version: Option<u64>) -> Dataset {
    let (namespace, name) = match address.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            (format!("{scheme}://{authority}"), format!("/{}", path.trim_end_matches('/')))
        }
        None => ("file".to_string(), address.trim_end_matches('/').to_string()),
    };
    let mut facets = json!({});
    if let Some(version) = version {
        let content = json!({ "datasetVersion": version.to_string() });
        facets["version"] = facet("1-0-1/DatasetVersionDatasetFacet", content);
    }
    json!({ "namespace": namespace, "name": name, "facets": facets })
}

/// The columns of a table.
pub fn schema_facet(schema: &Schema) -> Value {
    let field = |field: &arrow::datatypes::FieldRef| {
        let mut described = json!({ "name": field.name(), "type": type_word(field.data_type()) });
        if let Some(description) = field.metadata().get("description") {
            described["description"] = json!(description);
        }
        described
    };
    let fields: Vec<Value> = schema.fields().iter().map(field).collect();
    facet("1-1-1/SchemaDatasetFacet", json!({ "fields": fields }))
}

fn type_word(data_type: &DataType) -> String {
    match data_type {
        DataType::List(_) => "list<struct<feature, from, to>>".to_string(),
        other => other.to_string().to_lowercase(),
    }
}

/// From which columns of an input the columns of an output come: those that are copied, and those that are computed
/// from the features.
pub fn column_lineage(
    input: &Dataset,
    copied: &[String],
    (computed, features): (&[String], &[String]),
) -> Value {
    let from = |field: &String, subtype: &str| {
        json!({ "namespace": input["namespace"], "name": input["name"], "field": field,
            "transformations": [{ "type": "DIRECT", "subtype": subtype, "description": "",
                "masking": false }] })
    };
    let mut fields = Map::new();
    for column in copied {
        fields.insert(column.clone(), json!({ "inputFields": [from(column, "IDENTITY")] }));
    }
    for column in computed {
        let sources: Vec<Value> =
            features.iter().map(|feature| from(feature, "TRANSFORMATION")).collect();
        fields.insert(column.clone(), json!({ "inputFields": sources }));
    }
    facet("1-2-0/ColumnLineageDatasetFacet", json!({ "fields": fields }))
}

impl Facets {
    /// How much was written.
    pub fn tell_statistics(&mut self, rows: u64) {
        if let Some(output) = self.outputs.first_mut() {
            let content = json!({ "rowCount": rows });
            output["outputFacets"]["outputStatistics"] =
                facet("1-0-2/OutputStatisticsOutputDatasetFacet", content);
        }
    }

    /// What was demanded of the run, and whether it was reached. The specification has a place for that at inputs only.
    pub fn tell_assertions(&mut self, assertions: &[(String, bool)]) {
        let assertion =
            |(name, success): &(String, bool)| json!({ "assertion": name, "success": success });
        let assertions: Vec<Value> = assertions.iter().map(assertion).collect();
        if let Some(input) = self.inputs.first_mut().filter(|_| !assertions.is_empty()) {
            let content = json!({ "assertions": assertions });
            input["inputFacets"]["dataQualityAssertions"] =
                facet("1-0-1/DataQualityAssertionsDatasetFacet", content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_namespaces_and_names() {
        let named = |address: &str| {
            let found = dataset(address, None);
            format!("{} {}", found["namespace"], found["name"])
        };
        assert_eq!(named("/lake/applications/"), r#""file" "/lake/applications""#);
        assert_eq!(named("s3://lake/a/b"), r#""s3://lake" "/a/b""#);
    }
}
