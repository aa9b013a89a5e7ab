//! Tables out: staged under a name that readers skip, synced, then published by one rename. A reader
//! sees the whole result or none of it.

mod manifest;
mod staging;
mod tables;
mod writer;

pub use manifest::{Manifest, TableEntry};
pub use staging::Staging;
pub use tables::{
    GENERATOR, MANIFEST_FILE, REJECTS, REPORTS, SCORES, SUCCESS_FILE, TRAINING_REPORT, part_name,
    rejects_schema, score_schema, training_schema,
};
pub use writer::{StagedFile, TableWriter, WriterOptions};
