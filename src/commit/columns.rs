//! Types that every reader of Delta tables knows: signed integers, microseconds in UTC, plain texts. What a run's files
//! hold otherwise is written again for the table.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Fault, Kind, Result};
use crate::feature::type_name;

/// The columns of a table that has portable types only; each may be null, so that tables can grow.
///
/// # Errors
/// Columns whose types have no like in Delta.
pub fn portable_schema(schema: &Schema) -> Result<SchemaRef> {
    let mut faults = Vec::new();
    let mut fields: Vec<Field> = Vec::new();
    for field in schema.fields() {
        match portable(field.data_type()) {
            Some(data_type) => fields.push(Field::new(field.name(), data_type, true)),
            None => {
                let found = type_name(field.data_type());
                let problem = format!(
                    "would have the column `{}` of {found}, which Delta has no type for",
                    field.name()
                );
                faults.push(
                    Fault::new("output.table", problem)
                        .hint("cast the column in the input table, to a text for example"),
                );
            }
        }
    }
    Error::from_faults(Kind::Spec, faults)?;
    Ok(Arc::new(Schema::new(fields)))
}

/// The portable type for values of a type.
fn portable(data_type: &DataType) -> Option<DataType> {
    use DataType as Type;
    Some(match data_type {
        Type::UInt8 => Type::Int16,
        Type::UInt16 => Type::Int32,
        Type::UInt32 => Type::Int64,
        // All of them, which signed integers of 64 bits cannot hold.
        Type::UInt64 => Type::Decimal128(20, 0),
        Type::Float16 => Type::Float32,
        Type::Date64 => Type::Date32,
        Type::Timestamp(..) => Type::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Type::LargeUtf8 | Type::Utf8View => Type::Utf8,
        Type::LargeBinary | Type::BinaryView | Type::FixedSizeBinary(_) => Type::Binary,
        Type::Dictionary(_, values) => portable(values)?,
        Type::List(item) | Type::LargeList(item) => Type::List(portable_field(item)?),
        Type::Struct(fields) => {
            let fields = fields.iter().map(portable_field).collect::<Option<Vec<_>>>()?;
            Type::Struct(Fields::from(fields))
        }
        Type::Boolean
        | Type::Int8
        | Type::Int16
        | Type::Int32
        | Type::Int64
        | Type::Float32
        | Type::Float64
        | Type::Utf8
        | Type::Binary
        | Type::Date32
        | Type::Decimal128(..) => data_type.clone(),
        _ => return None,
    })
}

fn portable_field(field: &Arc<Field>) -> Option<Arc<Field>> {
    Some(Arc::new(Field::new(field.name(), portable(field.data_type())?, true)))
}

/// Whether Parquet stores values of a type as it does those of the portable one: texts are texts, however they are held
/// in memory.
pub(super) fn is_stored_portably(data_type: &DataType) -> bool {
    use DataType as Type;
    match data_type {
        Type::UInt8 | Type::UInt16 | Type::UInt32 | Type::UInt64 => false,
        Type::Float16 | Type::Date64 | Type::FixedSizeBinary(_) => false,
        Type::Timestamp(unit, zone) => {
            *unit == TimeUnit::Microsecond && zone.as_ref().is_some_and(|zone| !zone.is_empty())
        }
        Type::Dictionary(_, values) => is_stored_portably(values),
        Type::List(item) | Type::LargeList(item) => is_stored_portably(item.data_type()),
        Type::Struct(fields) => fields.iter().all(|field| is_stored_portably(field.data_type())),
        _ => true,
    }
}

/// Rows in portable types; `schema` has the columns that the files hold.
pub(super) fn to_portable(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let converted = |(column, field): (&ArrayRef, &Arc<Field>)| {
        cast_with_options(column, field.data_type(), &options).map_err(|error| {
            let problem = format!("cannot hold the column `{}`: {error}", field.name());
            Error::input("output.table", problem)
        })
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(converted);
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map_err(|error| Error::internal("output.table", "columns do not fit").source(error))
}

/// Whether two types hold the same values, whatever they call their parts.
pub(super) fn same_type(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::List(left), DataType::List(right)) => {
            same_type(left.data_type(), right.data_type())
        }
        (DataType::Struct(left), DataType::Struct(right)) => {
            let pairs = left.iter().zip(right.iter());
            let same = |(left, right): (&Arc<Field>, &Arc<Field>)| {
                left.name() == right.name() && same_type(left.data_type(), right.data_type())
            };
            left.len() == right.len() && pairs.into_iter().all(same)
        }
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_become_portable_or_are_refused() {
        let schema = Schema::new(vec![
            Field::new("a", DataType::UInt64, false),
            Field::new("b", DataType::Timestamp(TimeUnit::Nanosecond, None), true),
            Field::new_dictionary("c", DataType::Int8, DataType::LargeUtf8, true),
        ]);
        let found = portable_schema(&schema).expect("portable");
        let types: Vec<String> =
            found.fields().iter().map(|field| field.data_type().to_string()).collect();
        assert_eq!(types, ["Decimal128(20, 0)", "Timestamp(µs, \"UTC\")", "Utf8"]);
        assert!(found.fields().iter().all(|field| field.is_nullable()));
        let schema = Schema::new(vec![Field::new("t", DataType::Duration(TimeUnit::Second), true)]);
        let error = portable_schema(&schema).expect_err("no type");
        assert!(error.to_string().contains("column `t`"), "{error}");
    }
}
