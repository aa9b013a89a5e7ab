//! What a table's metadata say: its schemas, partitions and snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Kind, Result};

/// The latest version of the format that is understood.
const FORMAT: i32 = 2;

/// The metadata of a table, as far as they are used.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Metadata {
    /// Which format the table has.
    pub format_version: i32,
    /// What tells the table from a later one of its name.
    #[serde(default)]
    pub table_uuid: Option<String>,
    /// Below it the table's files are.
    pub location: String,
    /// Snapshots are numbered from the second format on.
    #[serde(default)]
    pub last_sequence_number: i64,
    /// Every schema that the table had.
    #[serde(default)]
    pub schemas: Vec<TableSchema>,
    /// The present one.
    #[serde(default)]
    pub current_schema_id: i32,
    /// All ways in which the table was ever partitioned.
    #[serde(default)]
    pub partition_specs: Vec<PartitionSpec>,
    /// The present one.
    #[serde(default)]
    pub default_spec_id: i32,
    /// Settings.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Snapshots, and which is the present one.
    #[serde(flatten)]
    pub history: History,
}

/// Snapshots of a table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct History {
    /// The present one; none, or -1, in a table without rows.
    pub current_snapshot_id: Option<i64>,
    /// All that have not expired.
    pub snapshots: Vec<Snapshot>,
    /// When which was the present one.
    pub snapshot_log: Vec<SnapshotMoment>,
}

/// When a snapshot became the present one.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotMoment {
    /// Which.
    pub snapshot_id: i64,
    /// When, in milliseconds since 1970.
    pub timestamp_ms: i64,
}

/// A version of the table.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Snapshot {
    /// Its number.
    pub snapshot_id: i64,
    /// The file that lists its manifests.
    #[serde(default)]
    pub manifest_list: Option<String>,
    /// What its writer said of it.
    #[serde(default)]
    pub summary: BTreeMap<String, String>,
    /// The schema in which it was written.
    #[serde(default)]
    pub schema_id: Option<i32>,
}

/// A schema of the table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TableSchema {
    /// Its number.
    #[serde(default)]
    pub schema_id: i32,
    /// Its columns.
    pub fields: Vec<Column>,
}

/// A column.
#[derive(Debug, Clone, Deserialize)]
pub struct Column {
    /// What tells it apart when names change.
    pub id: i32,
    /// Its name.
    pub name: String,
    /// Whether it has no nulls.
    #[serde(default)]
    pub required: bool,
    /// Its type: a name, or a description of a nested one.
    #[serde(rename = "type")]
    pub kind: Value,
}

/// How files were partitioned.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PartitionSpec {
    /// Its number.
    pub spec_id: i32,
    /// By what.
    #[serde(default)]
    pub fields: Vec<PartitionField>,
}

/// A value by which files are partitioned.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PartitionField {
    /// The column that it is made of.
    #[serde(default)]
    pub source_id: i32,
    /// Its own number.
    #[serde(default)]
    pub field_id: i32,
    /// Its name.
    pub name: String,
    /// What is made of the column's values.
    pub transform: String,
}

impl Metadata {
    /// Reads the metadata of a table.
    ///
    /// # Errors
    /// When they are none, or of a format that is not understood.
    pub fn parse(shown: &str, mut json: Value, kind: Kind) -> Result<Metadata> {
        let refused = |problem: String| Error::new(kind, shown, problem);
        let format = json.get("format-version").and_then(Value::as_i64).unwrap_or_default();
        if format > i64::from(FORMAT) {
            let problem =
                format!("is an Iceberg table of format version {format}, expected 1 or 2");
            return Err(refused(problem).hint(
                "what version 3 adds (deletion vectors, row lineage, default values) is not understood",
            ));
        }
        // The first format has one schema and one partition spec, under names of their own.
        if let Some(of_table) = json.as_object_mut() {
            let schema = of_table.get("schema").cloned();
            let listed = of_table.contains_key("schemas");
            if let Some(schema) = schema.filter(|_| !listed) {
                of_table.insert("schemas".to_string(), Value::Array(vec![schema]));
            }
            let spec = of_table.get("partition-spec").cloned();
            let listed = of_table.contains_key("partition-specs");
            if let Some(fields) = spec.filter(|_| !listed) {
                let spec = serde_json::json!([{ "spec-id": 0, "fields": fields }]);
                of_table.insert("partition-specs".to_string(), spec);
            }
        }
        serde_json::from_value(json)
            .map_err(|error| refused(format!("has metadata that are not Iceberg's: {error}")))
    }

    /// The present snapshot.
    pub fn current(&self) -> Option<&Snapshot> {
        self.snapshot(self.history.current_snapshot_id?)
    }

    /// A snapshot by its number.
    pub fn snapshot(&self, id: i64) -> Option<&Snapshot> {
        self.history.snapshots.iter().find(|snapshot| snapshot.snapshot_id == id)
    }

    /// The schema of a snapshot, else the present one.
    pub fn schema_of(&self, snapshot: Option<&Snapshot>) -> TableSchema {
        let number = snapshot.and_then(|snapshot| snapshot.schema_id);
        let number = number.unwrap_or(self.current_schema_id);
        let found = self.schemas.iter().find(|schema| schema.schema_id == number);
        found.or(self.schemas.last()).cloned().unwrap_or_default()
    }

    /// The spec by which files are partitioned now.
    pub fn spec(&self) -> Option<&PartitionSpec> {
        self.partition_specs.iter().find(|spec| spec.spec_id == self.default_spec_id)
    }
}

impl Column {
    /// The column as the engine reads it; none for types whose values are no single ones.
    pub fn field(&self) -> Option<FieldRef> {
        let data_type = arrow_type(self.kind.as_str()?)?;
        Some(Arc::new(Field::new(&self.name, data_type, true)))
    }
}

/// The type that a primitive type of Iceberg is read as.
fn arrow_type(name: &str) -> Option<DataType> {
    let inside = |prefix: &str, close: char| name.strip_prefix(prefix)?.strip_suffix(close);
    if let Some(size) = inside("fixed[", ']') {
        return Some(DataType::FixedSizeBinary(size.trim().parse().ok()?));
    }
    if let Some(digits) = inside("decimal(", ')') {
        let (precision, scale) = digits.split_once(',')?;
        let (precision, scale) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
        return Some(DataType::Decimal128(precision, scale));
    }
    Some(match name {
        "boolean" => DataType::Boolean,
        "int" => DataType::Int32,
        "long" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "date" => DataType::Date32,
        "time" => DataType::Time64(TimeUnit::Microsecond),
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "string" => DataType::Utf8,
        "uuid" => DataType::FixedSizeBinary(16),
        "binary" => DataType::Binary,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_format_has_its_schema_and_spec_elsewhere() {
        let schema = json!({ "type": "struct", "fields": [{ "id": 1, "name": "a", "required": true, "type": "long" }] });
        let old = json!({ "format-version": 1, "location": "/t", "schema": schema, "current-snapshot-id": -1,
            "partition-spec": [{ "name": "a", "transform": "identity", "source-id": 1, "field-id": 1000 }] });
        let found = Metadata::parse("t", old.clone(), Kind::Input).expect("read");
        assert_eq!(found.schema_of(None).fields[0].name, "a");
        assert_eq!(found.spec().map(|spec| spec.fields.len()), Some(1));
        assert!(found.current().is_none());
        let mut new = old;
        new["format-version"] = json!(3);
        let error = Metadata::parse("t", new, Kind::Input).expect_err("too new");
        assert!(error.to_string().contains("format version 3, expected 1 or 2"), "{error}");
        let error = Metadata::parse("t", json!([]), Kind::Input).expect_err("no metadata");
        assert!(error.to_string().contains("not Iceberg's"), "{error}");
    }

    #[test]
    fn types_have_their_like_or_none() {
        assert_eq!(arrow_type("decimal(9, 2)"), Some(DataType::Decimal128(9, 2)));
        assert_eq!(arrow_type("fixed[4]"), Some(DataType::FixedSizeBinary(4)));
        assert_eq!(arrow_type("variant"), None);
    }
}
