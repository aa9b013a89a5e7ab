//! The manifest of a run's files, and the list of manifests of a snapshot that has them.

use arrow::datatypes::DataType;
use serde_json::{Value, json};

use super::place::PlacedFile;
use super::schema::Suited;
use crate::error::{Error, Result};
use crate::table::avro::{self, Datum};
use crate::table::iceberg::PartitionField;

/// The status of a file that a snapshot adds.
const ADDED: i64 = 1;
/// Counts of files and rows that a manifest adds, keeps and removes, by their numbers.
const COUNTS: [(&str, i32, &str); 6] = [
    ("added_files_count", 504, "int"),
    ("existing_files_count", 505, "int"),
    ("deleted_files_count", 506, "int"),
    ("added_rows_count", 512, "long"),
    ("existing_rows_count", 513, "long"),
    ("deleted_rows_count", 514, "long"),
];
/// The other numbers of a list of manifests.
const NUMBERS: [(&str, i32, &str); 6] = [
    ("manifest_length", 501, "long"),
    ("partition_spec_id", 502, "int"),
    ("content", 517, "int"),
    ("sequence_number", 515, "long"),
    ("min_sequence_number", 516, "long"),
    ("added_snapshot_id", 503, "long"),
];

fn field(name: &str, number: i32, kind: Value) -> Value {
    json!({ "name": name, "field-id": number, "type": kind })
}

/// A field that may be null.
fn maybe(name: &str, number: i32, kind: Value) -> Value {
    json!({ "name": name, "field-id": number, "type": ["null", kind], "default": null })
}

/// The manifest of a run's files.
pub(super) fn manifest(files: &[PlacedFile], suited: &Suited, snapshot: i64) -> Result<Vec<u8>> {
    let mut parts = Vec::new();
    for part in &suited.spec.fields {
        let kind = partition_kind(suited, part)?;
        parts.push(maybe(&avro_name(&part.name), part.field_id, kind));
    }
    let partition = json!({ "type": "record", "name": "r102", "fields": parts });
    let file = json!({ "type": "record", "name": "r2", "fields": [
        field("content", 134, json!("int")),
        field("file_path", 100, json!("string")),
        field("file_format", 101, json!("string")),
        field("partition", 102, partition),
        field("record_count", 103, json!("long")),
        field("file_size_in_bytes", 104, json!("long")),
    ] });
    let schema = json!({ "type": "record", "name": "manifest_entry", "fields": [
        field("status", 0, json!("int")),
        maybe("snapshot_id", 1, json!("long")),
        maybe("sequence_number", 3, json!("long")),
        maybe("file_sequence_number", 4, json!("long")),
        field("data_file", 2, file),
    ] });
    let row = |file: &PlacedFile| {
        let numbers = suited.spec.fields.iter().map(|part| part.field_id);
        let values = numbers.zip(file.partition.iter().cloned()).collect();
        let described = Datum::Record(vec![
            (134, Datum::Long(0)),
            (100, Datum::Text(file.address.clone())),
            (101, Datum::Text("PARQUET".to_string())),
            (102, Datum::Record(values)),
            (103, Datum::Long(file.rows as i64)),
            (104, Datum::Long(file.bytes as i64)),
        ]);
        // Its numbers are those of the snapshot, whichever that becomes.
        Datum::Record(vec![
            (0, Datum::Long(ADDED)),
            (1, Datum::Long(snapshot)),
            (3, Datum::Null),
            (4, Datum::Null),
            (2, described),
        ])
    };
    let rows: Vec<Datum> = files.iter().map(row).collect();
    avro::write(&schema, &facts(suited), &rows).map_err(unwritten)
}

/// A name as Avro allows them; readers go by numbers.
fn avro_name(name: &str) -> String {
    let spelled = |(index, c): (usize, char)| match c {
        'a'..='z' | 'A'..='Z' | '_' => c.to_string(),
        '0'..='9' if index > 0 => c.to_string(),
        '0'..='9' => format!("_{c}"),
        other => format!("_x{:X}", u32::from(other)),
    };
    name.chars().enumerate().map(spelled).collect()
}

/// What a manifest tells of its table.
fn facts(suited: &Suited) -> Vec<(&'static str, String)> {
    let column = |column: &crate::table::iceberg::Column| json!({ "id": column.id, "name": column.name, "required": column.required, "type": column.kind });
    let columns: Vec<Value> = suited.schema.fields.iter().map(column).collect();
    let id = suited.schema.schema_id;
    let schema = json!({ "type": "struct", "schema-id": id, "fields": columns });
    let part = |part: &PartitionField| {
        json!({ "name": part.name, "transform": part.transform, "source-id": part.source_id,
            "field-id": part.field_id })
    };
    let parts: Vec<Value> = suited.spec.fields.iter().map(part).collect();
    vec![
        ("schema", schema.to_string()),
        ("schema-id", id.to_string()),
        ("partition-spec", json!(parts).to_string()),
        ("partition-spec-id", suited.spec.spec_id.to_string()),
        ("format-version", "2".to_string()),
        ("content", "data".to_string()),
    ]
}

/// How a value of a partition is written.
fn partition_kind(suited: &Suited, part: &PartitionField) -> Result<Value> {
    let column = suited.schema.fields.iter().find(|column| column.id == part.source_id);
    let found = column.and_then(|column| suited.columns.column_with_name(&column.name));
    // A field that is always null has any type.
    Ok(match found.map(|(_, field)| field.data_type()) {
        Some(DataType::Boolean) => json!("boolean"),
        Some(DataType::Int32) => json!("int"),
        Some(DataType::Int64) => json!("long"),
        Some(DataType::Date32) => json!({ "type": "int", "logicalType": "date" }),
        Some(DataType::Timestamp(..)) => {
            json!({ "type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": true })
        }
        Some(DataType::Utf8) | None => json!("string"),
        Some(other) => {
            let problem = format!(
                "has the column `{}` of {other}, by which no Iceberg table is partitioned here",
                part.name
            );
            return Err(Error::spec("output.partition_by", problem));
        }
    })
}

/// A row for a list of manifests: a manifest of so many bytes that adds files.
pub(super) fn listed(
    (address, bytes): (&str, usize),
    files: &[PlacedFile],
    (suited, snapshot): (&Suited, i64),
) -> Datum {
    let rows: u64 = files.iter().map(|file| file.rows).sum();
    let numbers = [
        (502, i64::from(suited.spec.spec_id)),
        (517, 0),
        (501, bytes as i64),
        (503, snapshot),
        (504, files.len() as i64),
        (505, 0),
        (506, 0),
        (512, rows as i64),
        (513, 0),
        (514, 0),
    ];
    let mut fields = vec![(500, Datum::Text(address.to_string()))];
    fields.extend(numbers.map(|(number, value)| (number, Datum::Long(value))));
    Datum::Record(fields)
}

/// The list of manifests of a snapshot: one of its own, and those of the snapshot before.
pub(super) fn manifest_list(
    added: &Datum,
    before: &[Datum],
    (snapshot, parent, sequence): (i64, Option<i64>, i64),
) -> Result<Vec<u8>> {
    let summary = json!({ "type": "record", "name": "r508", "fields": [
        field("contains_null", 509, json!("boolean")),
        maybe("contains_nan", 518, json!("boolean")),
        maybe("lower_bound", 510, json!("bytes")),
        maybe("upper_bound", 511, json!("bytes")),
    ] });
    let summaries = json!({ "type": "array", "items": summary, "element-id": 508 });
    let mut fields = vec![field("manifest_path", 500, json!("string"))];
    fields.extend(NUMBERS.map(|(name, number, kind)| field(name, number, json!(kind))));
    fields.extend(COUNTS.map(|(name, number, kind)| field(name, number, json!(kind))));
    fields.push(maybe("partitions", 507, summaries));
    fields.push(maybe("key_metadata", 519, json!("bytes")));
    let schema = json!({ "type": "record", "name": "manifest_file", "fields": fields });
    let mut rows = vec![row(added, Some(sequence))?];
    for manifest in before {
        rows.push(row(manifest, None)?);
    }
    let facts = [
        ("snapshot-id", snapshot.to_string()),
        ("parent-snapshot-id", parent.map_or("null".to_string(), |id| id.to_string())),
        ("sequence-number", sequence.to_string()),
        ("format-version", "2".to_string()),
    ];
    avro::write(&schema, &facts, &rows).map_err(unwritten)
}

/// A manifest as it is listed, new ones with the number of their snapshot.
fn row(manifest: &Datum, sequence: Option<i64>) -> Result<Datum> {
    let mut fields = vec![(500, manifest.get(500).clone())];
    for (name, number, _) in NUMBERS.iter().chain(&COUNTS) {
        let value = match (manifest.get(*number).long(), sequence, number) {
            (_, Some(sequence), 515 | 516) => sequence,
            (Some(value), _, _) => value,
            // What the first format did not have.
            (None, _, 515..=517) => 0,
            (None, _, _) => {
                let problem = format!("has a manifest without `{name}`, as old writers left it");
                return Err(Error::output("the table", problem)
                    .hint("rewrite its manifests (`rewrite_manifests`)"));
            }
        };
        fields.push((*number, Datum::Long(value)));
    }
    fields.push((507, summaries(manifest.get(507))));
    fields.push((519, manifest.get(519).clone()));
    Ok(Datum::Record(fields))
}

/// Summaries of partitions, with the fields that older writers did not know.
fn summaries(found: &Datum) -> Datum {
    let Datum::List(items) = found else { return Datum::Null };
    let item = |item: &Datum| {
        let known = [509, 518, 510, 511].map(|number| (number, item.get(number).clone()));
        Datum::Record(known.to_vec())
    };
    Datum::List(items.iter().map(item).collect())
}

fn unwritten(problem: String) -> Error {
    Error::internal("a manifest", problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_new_manifest_and_those_before() {
        let old = |number: i64| {
            let mut fields = vec![(500, Datum::Text(format!("m{number}")))];
            let numbers = NUMBERS.iter().chain(&COUNTS);
            // The first format has no sequence numbers and no content.
            let known = numbers.filter(|(_, number, _)| !(515..=517).contains(number));
            fields.extend(known.map(|(_, of, _)| (*of, Datum::Long(number))));
            Datum::Record(fields)
        };
        let bytes = manifest_list(&old(1), &[old(7)], (3, None, 9)).expect("written");
        let mut rows = Vec::new();
        let facts = avro::read(&bytes, &mut |row| {
            rows.push(row);
            Ok(())
        });
        assert_eq!(facts.expect("read")["parent-snapshot-id"], b"null");
        let of = |row: usize, number: i32| rows[row].get(number).long();
        assert_eq!(
            (of(0, 515), of(0, 516), of(1, 515), of(1, 504)),
            (Some(9), Some(9), Some(0), Some(7))
        );
        let mut uncounted = old(1);
        if let Datum::Record(fields) = &mut uncounted {
            fields.retain(|(number, _)| *number != 504);
        }
        let error = manifest_list(&old(1), &[uncounted], (3, None, 9)).expect_err("no count");
        assert!(error.to_string().contains("`added_files_count`"), "{error}");
    }
}
