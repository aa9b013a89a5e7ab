//! Tests that use the program as its user does: files in, the built binary, files out.
//!
//! Those that need the Python environment or the real data sets say so, and report themselves as skipped
//! where they are absent (`jobs/setup.sh` makes the one, `OVERTURN_DATA` names the other).

#![expect(unreachable_pub, reason = "the harness in `util` is this binary's own")]

mod audit;
mod audit_questions;
mod cli;
mod commit;
mod compare;
mod delta;
mod demo;
mod docs;
mod early;
mod faults;
mod fitted;
mod fuzz;
mod gpu;
mod iceberg;
mod init;
mod jobs;
mod layers;
mod learn;
mod limits;
mod lineage;
mod messages;
mod methods;
mod models;
mod nights;
mod numbers;
mod outputs;
mod paper;
mod plan;
mod predicates;
mod processes;
mod real_data;
mod refine;
mod resume;
mod robust;
mod rules;
mod run;
mod schemas;
mod scorers;
mod search;
mod shards;
mod sql;
mod stores;
mod supply;
mod survival;
mod tables;
mod train;
mod util;
