//! Tables that are more than files: which files, values and types belong to a version of a Delta table. Rows are read by
//! the engine, as from any Parquet file; here the table's log is read, and nothing is written.

mod delta;
mod protocol;

pub use delta::{DeltaFile, DeltaTable, log_store, trouble};
pub use protocol::unsupported;
