//! The columns of a run's rows in an Iceberg table: as a new table gets them, and as one that exists has them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use serde_json::{Value, json};

use crate::commit::TableRun;
use crate::commit::columns::portable_schema;
use crate::error::{Error, Fault, Kind, Result};
use crate::table::iceberg::{Column, Metadata, PartitionSpec, TableSchema};

/// Where a column of a Parquet file has its number.
const FIELD_ID: &str = "PARQUET:field_id";
/// The number of the first field of a partition.
const FIRST_FIELD: i32 = 1000;
/// The format that is written.
const FORMAT: i32 = 2;

/// How the rows of a run are written to a table.
#[derive(Debug, Clone)]
pub(super) struct Suited {
    /// The table's schema, as its metadata have it.
    pub(super) schema: TableSchema,
    /// The spec by which its files are partitioned.
    pub(super) spec: PartitionSpec,
    /// The run's columns, in the table's order, with their numbers.
    pub(super) columns: SchemaRef,
}

impl Suited {
    /// Whether the table has changed so much that files which were written for one do not suit the other.
    pub(super) fn differs(&self, other: &Suited) -> bool {
        self.columns != other.columns
            || self.spec.spec_id != other.spec.spec_id
            || self.schema.schema_id != other.schema.schema_id
    }
}

/// The schema and the partition spec of a new table.
pub(super) fn described(run: &TableRun<'_>) -> Result<(Value, Value)> {
    let columns = columns(run.schema)?;
    let mut next = columns.fields().len() as i32;
    let mut fields = Vec::new();
    for (field, id) in columns.fields().iter().zip(1..) {
        let kind = kind_of(field.data_type(), &mut next);
        let kind = kind.ok_or_else(|| untyped(field))?;
        fields.push(json!({ "id": id, "name": field.name(), "required": false, "type": kind }));
    }
    let parts = run.partition_by.iter().zip(FIRST_FIELD..).map(|(name, number)| {
        let source = columns.index_of(name).map_or(0, |index| index + 1);
        json!({ "source-id": source, "field-id": number, "name": name, "transform": "identity" })
    });
    let spec = json!({ "spec-id": 0, "fields": parts.collect::<Vec<_>>() });
    Ok((json!({ "type": "struct", "schema-id": 0, "fields": fields }), spec))
}

/// Holds a run's columns against a table's.
///
/// # Errors
/// All in which they disagree.
pub(super) fn suited(run: &TableRun<'_>, metadata: &Metadata) -> Result<Suited> {
    let url = &run.target.url;
    if metadata.format_version != FORMAT {
        let problem =
            format!("is a table of format version {}, expected {FORMAT}", metadata.format_version);
        return Err(Error::spec(url, problem)
            .hint("upgrade it: set its property `format-version` to 2; such tables can be read as they are"));
    }
    let columns = columns(run.schema)?;
    let schema = metadata.schema_of(None);
    let (mut faults, mut found) = (Vec::new(), Vec::new());
    for column in &schema.fields {
        match columns.column_with_name(&column.name) {
            Some((_, field)) => match numbered(field, column) {
                Some(field) => found.push(field),
                None => faults.push(other_type(url, field, column)),
            },
            None => {
                let problem = format!("has the column `{}`, which the run has not", column.name);
                faults.push(Fault::new(url, problem).hint(OTHER));
            }
        }
    }
    let known = |name: &String| schema.fields.iter().any(|column| column.name == *name);
    for field in columns.fields().iter().filter(|field| !known(field.name())) {
        let problem = format!("has no column `{}`, which the run has", field.name());
        faults.push(Fault::new(url, problem).hint(OTHER));
    }
    let spec = metadata.spec().cloned();
    let spec = spec.unwrap_or(PartitionSpec { spec_id: 0, fields: Vec::new() });
    faults.extend(partition_fault(run, &schema, &spec));
    Error::from_faults(Kind::Spec, faults)?;
    Ok(Suited { schema, spec, columns: Arc::new(Schema::new(found)) })
}

/// The way out.
const OTHER: &str =
    "choose another `output.table.table`, or change the table's columns in the catalogue";

fn partition_fault(
    run: &TableRun<'_>,
    schema: &TableSchema,
    spec: &PartitionSpec,
) -> Option<Fault> {
    let told = |field: &crate::table::iceberg::PartitionField| {
        let source = schema.fields.iter().find(|column| column.id == field.source_id);
        let name = source.map_or(field.name.as_str(), |column| column.name.as_str());
        match field.transform.as_str() {
            "identity" => name.to_string(),
            other => format!("{other}({name})"),
        }
    };
    // A spec that was taken back leaves fields that are always null.
    let fields = spec.fields.iter().filter(|field| field.transform != "void");
    let found: Vec<String> = fields.map(told).collect();
    let mut sorted = (found.clone(), run.partition_by.to_vec());
    sorted.0.sort();
    sorted.1.sort();
    if sorted.0 == sorted.1 {
        return None;
    }
    let problem = format!("is partitioned by {found:?}, the run by {:?}", run.partition_by);
    let plain = found.iter().all(|name| !name.contains('('));
    let hint = match plain {
        true => format!("set `output.partition_by = {found:?}`"),
        false => "choose a table that is partitioned by columns as they are".to_string(),
    };
    Some(Fault::new(&run.target.url, problem).hint(hint))
}

fn other_type(url: &str, field: &Field, column: &Column) -> Fault {
    let mut next = 0;
    let expected = kind_of(field.data_type(), &mut next).unwrap_or_default();
    let told = |kind: &Value| kind.as_str().map_or_else(|| kind.to_string(), str::to_string);
    let problem = format!(
        "has `{}` of type {}, the run's is {}",
        column.name,
        told(&column.kind),
        told(&expected)
    );
    Fault::new(url, problem).hint(OTHER)
}

/// The run's columns in types that Iceberg has.
fn columns(schema: &Schema) -> Result<SchemaRef> {
    let portable = portable_schema(schema)?;
    let fields = portable.fields().iter().map(widened);
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Iceberg has no integers of fewer than 32 bits.
fn widened(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Int8 | DataType::Int16 => DataType::Int32,
        DataType::List(item) => DataType::List(widened(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(widened).collect()),
        other => other.clone(),
    };
    Arc::new(Field::new(field.name(), data_type, true))
}

fn untyped(field: &Field) -> Error {
    let problem = format!(
        "would have the column `{}` of {}, which Iceberg has no type for",
        field.name(),
        crate::feature::type_name(field.data_type())
    );
    Error::spec("output.table", problem)
        .hint("cast the column in the input table, to a text for example")
}

/// A type as Iceberg describes it; parts of nested ones are numbered after `next`.
fn kind_of(data_type: &DataType, next: &mut i32) -> Option<Value> {
    let name = match data_type {
        DataType::Boolean => "boolean",
        DataType::Int32 => "int",
        DataType::Int64 => "long",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 => "string",
        DataType::Binary => "binary",
        DataType::Date32 => "date",
        DataType::Timestamp(..) => "timestamptz",
        DataType::Decimal128(precision, scale) => {
            return Some(json!(format!("decimal({precision}, {scale})")));
        }
        DataType::List(item) => {
            *next += 1;
            let id = *next;
            let element = kind_of(item.data_type(), next)?;
            return Some(json!({ "type": "list", "element-id": id, "element": element,
                "element-required": false }));
        }
        DataType::Struct(fields) => {
            let mut parts = Vec::new();
            for field in fields {
                *next += 1;
                let id = *next;
                let kind = kind_of(field.data_type(), next)?;
                parts.push(
                    json!({ "id": id, "name": field.name(), "required": false, "type": kind }),
                );
            }
            return Some(json!({ "type": "struct", "fields": parts }));
        }
        _ => return None,
    };
    Some(json!(name))
}

/// A column with the numbers that the table gives it and its parts; none where the types differ.
fn numbered(field: &Field, column: &Column) -> Option<FieldRef> {
    let data_type = numbered_type(field.data_type(), &column.kind)?;
    let id = HashMap::from([(FIELD_ID.to_string(), column.id.to_string())]);
    let found = Field::new(&column.name, data_type, !column.required);
    Some(Arc::new(found.with_metadata(id)))
}

fn numbered_type(data_type: &DataType, kind: &Value) -> Option<DataType> {
    match data_type {
        DataType::List(item) => {
            let described = kind.as_object().filter(|kind| kind["type"] == "list")?;
            let id = described.get("element-id")?.as_i64()?;
            let element = numbered_type(item.data_type(), described.get("element")?)?;
            let id = HashMap::from([(FIELD_ID.to_string(), id.to_string())]);
            let element = Field::new("element", element, true).with_metadata(id);
            Some(DataType::List(Arc::new(element)))
        }
        DataType::Struct(parts) => {
            let described = kind.as_object().filter(|kind| kind["type"] == "struct")?;
            let columns: Vec<Column> =
                serde_json::from_value(described.get("fields")?.clone()).ok()?;
            let part = |(part, column): (&FieldRef, &Column)| {
                (part.name() == &column.name).then(|| numbered(part, column))?
            };
            let same = columns.len() == parts.len();
            let fields: Option<Vec<FieldRef>> = parts.iter().zip(&columns).map(part).collect();
            Some(DataType::Struct(Fields::from(fields.filter(|_| same)?)))
        }
        plain => {
            let mut next = 0;
            let expected = kind_of(plain, &mut next)?;
            let bare = |kind: &Value| kind.as_str().map(|text| text.replace(' ', ""));
            (bare(&expected).is_some() && bare(&expected) == bare(kind)).then(|| plain.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_get_the_numbers_of_the_table() {
        let part = |name: &str| Field::new(name, DataType::Utf8, false);
        let parts = DataType::Struct(vec![part("from"), part("to")].into());
        let changes = Field::new("changes", DataType::new_list(parts, true), true);
        let mut next = 3;
        let kind = kind_of(changes.data_type(), &mut next).expect("a type");
        assert_eq!(next, 6);
        let column = Column { id: 3, name: "changes".into(), required: false, kind };
        let found = numbered(&changes, &column).expect("the same type");
        let text = format!("{:?}", found.data_type());
        for id in ["4", "5", "6"] {
            assert!(text.contains(&format!("\"{FIELD_ID}\": \"{id}\"")), "{text}");
        }
        let other = Column { kind: json!("string"), ..column };
        assert!(numbered(&changes, &other).is_none());
        assert!(numbered(&Field::new("changes", DataType::Utf8, true), &other).is_some());
    }
}
