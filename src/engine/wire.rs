//! Descriptors of splits and records of what became of them, as rows of the engine's batches: that is how they pass
//! between the driver and the operator, wherever that runs.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::{ArrayWriter, ReaderBuilder};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::explain::StageSeconds;
use crate::output::StagedFile;

/// What became of a split: a row of the operator's output, a line of the journal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitRecord {
    /// Number of the split.
    pub split: usize,
    /// Rows in scope.
    pub rows: u64,
    /// Rows explained: those of the counterfactual table with `sample` 0.
    pub explained: u64,
    /// Rows that a score table did not know.
    pub rows_without_score: u64,
    /// Answers whose refinement was cut short by the clock.
    pub cut_short: u64,
    /// Rows of the counterfactual table by status.
    pub statuses: BTreeMap<String, u64>,
    /// Counterfactuals that were not found, by what kept them from being found.
    pub unsolved: BTreeMap<String, u64>,
    /// Rows set aside, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// What was written.
    pub files: Vec<StagedFile>,
    /// Where the time went.
    pub seconds: StageSeconds,
}

/// Schema of descriptors.
pub(super) static SPLITS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let folders = Field::new_list("folders", Field::new("item", DataType::Utf8, true), false);
    let mut range = vec![text("file"), count("bytes"), count("file_rows"), folders];
    range.extend(["first_group", "groups", "first_row", "rows"].map(count));
    let ranges = Field::new_list("ranges", structure("item", range), false);
    Arc::new(Schema::new(vec![count("index"), count("rows"), ranges]))
});

/// Schema of records.
pub(super) static RECORDS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let mut fields: Vec<Field> =
        ["split", "rows", "explained", "rows_without_score", "cut_short"].map(count).into();
    fields.extend(["statuses", "unsolved", "rejected"].map(counts));
    let file = vec![text("name"), count("rows"), count("bytes"), text("sha256")];
    fields.push(Field::new_list("files", structure("item", file), false));
    let seconds = StageSeconds::NAMES.map(|name| Field::new(name, DataType::Float64, false));
    fields.push(structure("seconds", seconds.into()));
    Arc::new(Schema::new(fields))
});

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

fn count(name: &str) -> Field {
    Field::new(name, DataType::UInt64, false)
}

fn structure(name: &str, fields: Vec<Field>) -> Field {
    Field::new(name, DataType::Struct(Fields::from(fields)), false)
}

/// Counts by name.
fn counts(name: &str) -> Field {
    let entries = structure("entries", vec![text("key"), count("value")]);
    Field::new(name, DataType::Map(Arc::new(entries), false), false)
}

/// Values as rows of a schema that has their fields.
pub(super) fn to_batch<T: Serialize>(
    values: &[T],
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let reader = ReaderBuilder::new(Arc::clone(schema)).with_batch_size(values.len().max(1));
    let mut decoder = reader.build_decoder()?;
    decoder.serialize(values)?;
    Ok(decoder.flush()?.unwrap_or_else(|| RecordBatch::new_empty(Arc::clone(schema))))
}

/// The values that rows stand for.
pub(super) fn from_batch<T: DeserializeOwned>(batch: &RecordBatch) -> Result<Vec<T>, ArrowError> {
    if batch.num_rows() == 0 {
        return Ok(Vec::new());
    }
    let mut writer = ArrayWriter::new(Vec::new());
    writer.write(batch)?;
    writer.finish()?;
    serde_json::from_slice(&writer.into_inner())
        .map_err(|error| ArrowError::ExternalError(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::super::splits::{FileRange, Split};
    use super::*;

    #[test]
    fn descriptors_and_records_come_back_as_they_were() {
        let range = FileRange {
            file: "/data/a \"b\".parquet".to_string(),
            bytes: u64::MAX,
            file_rows: 1 << 60,
            folders: vec![None, Some(String::new()), Some("2026".to_string())],
            first_group: 0,
            groups: 1,
            first_row: 3,
            rows: 7,
        };
        let plain = FileRange { folders: Vec::new(), ..range.clone() };
        let splits = [
            Split { index: 0, rows: 7, ranges: vec![range, plain] },
            Split { index: 1, rows: 0, ranges: Vec::new() },
        ];
        let batch = to_batch(&splits, &SPLITS).expect("a batch");
        assert_eq!(from_batch::<Split>(&batch).expect("splits"), splits);
        let file = StagedFile {
            name: "counterfactuals/part-00000.parquet".to_string(),
            rows: 3,
            bytes: 4,
            sha256: "00ff".to_string(),
        };
        let seconds = StageSeconds { decide: 0.1, write: 1e-9, ..StageSeconds::default() };
        let record = SplitRecord {
            split: 3,
            rows: 5,
            statuses: [("solved".to_string(), 2), ("unsolved".to_string(), 0)].into(),
            rejected: [("null".to_string(), 1)].into(),
            files: vec![file],
            seconds,
            ..SplitRecord::default()
        };
        let records = [record, SplitRecord::default()];
        let batch = to_batch(&records, &RECORDS).expect("a batch");
        assert_eq!(from_batch::<SplitRecord>(&batch).expect("records"), records);
    }
}
