//! Keys as hashes: what belongs to a row is identified by its key, whatever file, partition or batch it is in.

use arrow::array::RecordBatch;
use arrow::row::{RowConverter, SortField};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::error::{Error, Result};

/// Hashes of rows of key columns. 128 bits: among a hundred million keys two alike are not to be expected.
///
/// # Errors
/// When a column has a type that cannot be compared.
pub fn key_hashes(keys: &RecordBatch, seed: u64) -> Result<Vec<u128>> {
    let fields = keys.columns().iter().map(|column| SortField::new(column.data_type().clone()));
    let rows = RowConverter::new(fields.collect())
        .and_then(|converter| converter.convert_columns(keys.columns()));
    let rows = rows.map_err(|error| {
        Error::input("input.key", "has a type that cannot be compared").source(error)
    })?;
    Ok(rows.iter().map(|row| xxh3_128_with_seed(row.as_ref(), seed)).collect())
}
