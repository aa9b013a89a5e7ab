//! Tables out: staged under a name that readers skip, synced, then published by one rename. A reader
//! sees the whole result or none of it.

mod journal;
mod manifest;
mod parts;
mod staging;
mod tables;
mod verify;
mod writer;

pub use journal::{Found, Journal};
pub use manifest::{InputFile, Manifest, RunFacts, TableEntry};
pub use parts::{PartWriter, folder_values};
pub use staging::{Staging, check_output, journal_of, tidy, write_synced};
pub use tables::{
    COUNTERFACTUALS, GENERATOR, JOURNAL_FILE, MANIFEST_FILE, QUANTILES, REJECTS, REPORTS, SCORES,
    SUCCESS_FILE, TRAINING_REPORT, change_fields, change_item, counterfactual_schema,
    coverage_schema, describe_tables, features_schema, kept_name, mmd_schema, part_name,
    refuse_folders, refuse_taken, rejects_schema, report_columns, report_name, score_schema,
    sparsity_schema, training_schema, validity_schema,
};
pub use verify::{hex, sha256_of, verify};
pub use writer::{StagedFile, TableWriter, WriterOptions, cannot_write};
