//! Columns that are partitions themselves: their values stand in the manifests, and files may lack them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, Int32Array, Int64Array,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef};

use super::manifest::DataFile;
use super::metadata::{Metadata, PartitionSpec, TableSchema};
use crate::table::avro::Datum;

/// The transform that changes nothing.
const IDENTITY: &str = "identity";
/// The number of the first field of a partition, where none is given.
const FIRST_FIELD: i32 = 1000;

/// Columns that every file is partitioned by, as they are.
pub(super) struct Identity {
    /// Their numbers, and how they are read.
    columns: Vec<(i32, FieldRef)>,
    /// For each spec the field that is made of a column.
    sources: HashMap<i32, HashMap<i32, i32>>,
    /// Columns that only some files are partitioned by.
    pub(super) sometimes: Vec<i32>,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata, schema: &TableSchema, files: &[DataFile]) -> Identity {
        let of_spec = |spec: &PartitionSpec| {
            let fields = spec.fields.iter().zip(FIRST_FIELD..);
            let identical = fields.filter(|(field, _)| field.transform == IDENTITY);
            let number = |(field, number)| if field == 0 { number } else { field };
            let pairs =
                identical.map(|(field, next)| (field.source_id, number((field.field_id, next))));
            (spec.spec_id, pairs.collect::<HashMap<i32, i32>>())
        };
        let sources: HashMap<i32, HashMap<i32, i32>> =
            metadata.partition_specs.iter().map(of_spec).collect();
        let mut used: Vec<i32> = files.iter().map(|file| file.spec).collect();
        used.sort_unstable();
        used.dedup();
        let by = |spec: &i32, column: i32| {
            sources.get(spec).is_some_and(|fields| fields.contains_key(&column))
        };
        let (mut columns, mut sometimes) = (Vec::new(), Vec::new());
        for column in &schema.fields {
            let field = column.field().filter(|field| is_told(field.data_type()));
            if !used.is_empty() && used.iter().all(|spec| by(spec, column.id)) {
                match field {
                    Some(field) => columns.push((column.id, field)),
                    None => sometimes.push(column.id),
                }
            } else if used.iter().any(|spec| by(spec, column.id)) {
                sometimes.push(column.id);
            }
        }
        Identity { columns, sources, sometimes }
    }

    /// Whether a column is one of them.
    pub(super) fn has(&self, column: i32) -> bool {
        self.columns.iter().any(|(id, _)| *id == column)
    }

    pub(super) fn fields(&self) -> Vec<FieldRef> {
        self.columns.iter().map(|(_, field)| Arc::clone(field)).collect()
    }

    /// A file's values of these columns, as texts.
    pub(super) fn values(&self, file: &DataFile) -> Result<Vec<Option<String>>, String> {
        let value = |(id, field): &(i32, FieldRef)| {
            let number = self.sources.get(&file.spec).and_then(|fields| fields.get(id));
            let value = number.map_or(&Datum::Null, |number| file.partition.get(*number));
            text_of(value, field.data_type()).ok_or_else(|| {
                format!(
                    "has the partition `{}` = {value:?}, expected {}",
                    field.name(),
                    field.data_type()
                )
            })
        };
        self.columns.iter().map(value).collect()
    }
}

/// Types whose values can be told by a text without loss.
fn is_told(data_type: &DataType) -> bool {
    use DataType as Type;
    matches!(
        data_type,
        Type::Boolean
            | Type::Int32
            | Type::Int64
            | Type::Utf8
            | Type::Date32
            | Type::Timestamp(..)
            | Type::Decimal128(..)
    )
}

/// A value as a text that the engine understands; none inside where it is null, none outside where it is of another
/// type.
fn text_of(value: &Datum, data_type: &DataType) -> Option<Option<String>> {
    let array: ArrayRef = match (value, data_type) {
        (Datum::Null, _) => return Some(None),
        (Datum::Text(text), DataType::Utf8) => return Some(Some(text.clone())),
        (Datum::Boolean(value), DataType::Boolean) => Arc::new(BooleanArray::from(vec![*value])),
        (Datum::Long(value), DataType::Int32) => {
            Arc::new(Int32Array::from(vec![i32::try_from(*value).ok()?]))
        }
        (Datum::Long(value), DataType::Int64) => Arc::new(Int64Array::from(vec![*value])),
        (Datum::Long(value), DataType::Date32) => {
            Arc::new(Date32Array::from(vec![i32::try_from(*value).ok()?]))
        }
        (Datum::Long(value), DataType::Timestamp(_, zone)) => {
            let array = TimestampMicrosecondArray::from(vec![*value]);
            Arc::new(array.with_timezone_opt(zone.clone()))
        }
        (Datum::Bytes(bytes), DataType::Decimal128(precision, scale)) => {
            let array = Decimal128Array::from(vec![whole_number(bytes)?]);
            Arc::new(array.with_precision_and_scale(*precision, *scale).ok()?)
        }
        _ => return None,
    };
    let text = cast(&array, &DataType::Utf8).ok()?;
    let text = text.as_string_opt::<i32>().filter(|text| text.is_valid(0))?;
    Some(Some(text.value(0).to_string()))
}

/// A number of two's complement, the highest byte first.
fn whole_number(bytes: &[u8]) -> Option<i128> {
    if bytes.is_empty() || bytes.len() > 16 {
        return None;
    }
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
    let mut wide = [sign; 16];
    wide[16 - bytes.len()..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn values_of_partitions_become_texts() {
        let told = |value: Datum, data_type: DataType| text_of(&value, &data_type).flatten();
        let long = Datum::Long;
        assert_eq!(told(long(20_776), DataType::Date32).as_deref(), Some("2026-11-19"));
        let moment = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let told_moment = told(long(1_500_000), moment);
        assert_eq!(told_moment.as_deref(), Some("1970-01-01T00:00:01.500Z"));
        let decimal = DataType::Decimal128(5, 2);
        assert_eq!(told(Datum::Bytes(vec![0xff, 0x6a]), decimal).as_deref(), Some("-1.50"));
        assert_eq!(told(Datum::Boolean(true), DataType::Boolean).as_deref(), Some("true"));
        assert_eq!(told(Datum::Text(String::new()), DataType::Utf8).as_deref(), Some(""));
        assert_eq!(text_of(&Datum::Null, &DataType::Int64), Some(None));
        assert_eq!(text_of(&long(1 << 40), &DataType::Int32), None);
        assert_eq!(text_of(&Datum::Text("x".into()), &DataType::Int32), None);
    }
}
