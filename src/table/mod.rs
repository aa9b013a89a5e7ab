//! Tables that are more than files: which files, values and types belong to a version of a Delta or an Iceberg table.
//! Rows are read by the engine, as from any Parquet file; here a table's metadata are read, and nothing is written.

pub mod avro;
mod delta;
pub mod iceberg;
mod protocol;
mod version;

pub use delta::{log_store, trouble};
pub use protocol::unsupported;
pub use version::{FieldIds, VersionedFile, VersionedTable};

use crate::error::Result;
use crate::job::TableAt;
use crate::storage::Stores;

/// Reads which files belong to the version of a table that is wanted.
///
/// # Errors
/// When there is no such table or version, or when its rows are not simply those of its files.
pub fn open(place: &str, wanted: &TableAt, stores: &Stores) -> Result<VersionedTable> {
    match &wanted.iceberg {
        Some(table) => iceberg::open(table, wanted, stores),
        None => delta::open(place, wanted, stores),
    }
}
