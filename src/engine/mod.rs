//! DataFusion, and nothing of it beyond this module: tables in, predicates, joins, partitions and the
//! memory pool. What leaves are streams of `RecordBatch` and our own errors.

mod decisions;
mod explain;
mod expression;
mod extremes;
mod files;
mod infer;
mod keys;
mod object_files;
mod profile;
mod prune;
mod relations;
mod sample;
mod scan;
mod session;
mod split_scan;
mod splits;
mod sql;
mod stats;
mod table;
mod wire;

pub use decisions::{StoredScores, gather_decisions};
pub use explain::{ExplainPlan, OnRows, RecordStream, SplitWork};
pub use extremes::{Extremes, Usual, count_contradictions, find_extremes};
pub use files::{SourceFile, SourceFiles, since_1970};
pub use infer::{InferOptions, Inferred, infer, infer_from};
pub use keys::{KeyFaults, Texts, check_keys, distinct_values};
pub use profile::{ColumnProfile, MOST_LISTED, ProfileOptions, profile};
pub use relations::observed_rules;
pub use sample::{SamplePlan, gather_sample};
pub use scan::{BatchStream, Scan, ScanPlan};
pub use session::{Engine, EngineOptions};
pub use split_scan::SplitScan;
pub use splits::{FileRange, Split};
pub use stats::gather_stats;
pub use table::Table;
pub use wire::SplitRecord;

/// The release of the query engine.
pub fn datafusion_version() -> &'static str {
    datafusion::DATAFUSION_VERSION
}
