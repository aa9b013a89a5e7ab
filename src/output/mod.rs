//! Tables out: staged under a name that readers skip, synced, then published by one rename. A reader
//! sees the whole result or none of it. In a store, which knows no rename, `_SUCCESS` says that it is whole.

mod audit_tables;
mod chain;
mod commit;
mod folders;
mod fresh;
mod journal;
mod leftover;
mod lock;
mod manifest;
mod mirror;
mod parts;
mod paths;
mod previous;
mod question_tables;
mod report_tables;
mod shard;
mod sources;
mod stability_tables;
mod staging;
mod tables;
mod verify;
mod writer;

pub use audit_tables::{
    AUDIT, AUDIT_PAGE, audit_at_bound_schema, audit_change_fields, audit_changes_schema,
    audit_curves_schema, audit_gaps_schema, audit_group_fields, audit_groups_schema,
    audit_page_name, audit_schema, audit_table_name,
};
pub use chain::{PreviousFound, find_previous, manifest_sha256, success_problem};
pub use commit::is_visible;
pub use folders::{MOST_FOLDERS, folder_name, folder_values};
pub use fresh::{refuse_existing, write_new};
pub use journal::{Journal, JournalContents, OpenedJournal, parse_journal};
pub use manifest::{
    FileEntry, FolderEntry, InputFile, MANIFEST_FORMAT, Manifest, PreviousRun, RunProvenance,
    TableEntry, TableVersion, list,
};
pub use mirror::{Mirror, Opened};
pub use parts::{PartWriter, TableFiles};
pub use paths::{is_inside, resolved};
pub use question_tables::{
    action_sets_schema, actions_schema, binding_schema, explicit_schema, reason_counts_schema,
    reasons_schema, responsiveness_schema, robustness_schema, second_search_schema,
};
pub use report_tables::{
    LOW_QUANTILES, QUANTILES, agreement_schema, coverage_schema, features_schema, mmd_schema,
    plausibility_schema, report_columns, robust_schema, rules_schema, sparsity_schema,
    survival_schema, training_schema, validity_schema,
};
pub use shard::{Shard, local_shards};
pub use sources::describe_sources;
pub use stability_tables::{STABILITY, audit_stability_schema, stability_schema};
pub use staging::{Replace, Staging, check_foreign, check_output, journal_of, tidy, write_synced};
pub use tables::{
    COUNTERFACTUALS, GENERATOR, JOURNAL_FILE, MANIFEST_FILE, METHOD, REJECTS, REPORTS, ROW_HASH,
    SCORES, SUCCESS_FILE, TRAINING_REPORT, change_fields, change_item, counterfactual_schema,
    describe_tables, is_part, part_name, refuse_folders, refuse_taken, rejects_schema, report_name,
    score_schema,
};
pub use verify::{hex, sha256_of, sha256_read, sha256_while, verify};
pub use writer::{StagedFile, TableWriter, WriterOptions, cannot_write};
