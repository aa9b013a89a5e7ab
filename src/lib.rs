//! For every row of a table: what is the least that would have to change for the model to decide
//! otherwise?
//!
//! `overturn` is a batch job over columnar files. This page says how the crate is laid out; the README
//! says how the program is used.
//!
//! # The flow
//!
//! ```text
//! job.toml ─┐
//! schema ───┼─▶ open ─▶ check ─▶ scan ─▶ validate ▶ predict ─▶ scores/ ──────────┐
//! tables ───┘   files,  keys,    batches  rows     ONNX or                       │
//!               columns statistics   │    or reason a program                    │
//!                                    │       └──────────▶ rejects/ ──────────────┤
//!     train:  sample ◀───────────────┤                                           ├─▶ manifest,
//!               │                    │                                           │   _SUCCESS
//!               ▼                    │                                           │   (published
//!             encode ─▶ autoencoder ─▶ actor and critic ─▶ generator/ ───────────┤   whole)
//!                       enc, dec     │  ▲ decode ─▶ constrain ─▶ predict         │
//!                                    ▼                                           │
//!     explain: splits ─▶ encode ─▶ actor ─▶ decode ─▶ constrain ─▶ predict ─▶    │
//!              of the table   refine ◀─▶ predict; measure ─▶ counterfactuals/ ───┤
//!     report:  read back, split by split ─▶ count ─▶ reports/ ───────────────────┘
//! ```
//!
//! # A run is a plan
//!
//! The table is cut into splits: file, row groups, rows. Explaining is a plan of the query engine over a table in
//! memory with a descriptor of each split, and one operator, `ExplainSplitExec`, which scans, explains and writes a
//! split and emits a record of it. `pipeline::run` reads the records as they come, journals them, checks that every
//! row is accounted for, makes the reports from the written tables and publishes. What is written depends on the
//! descriptor alone, never on a partition or a thread.
//!
//! # One row's walk
//!
//! From the table to the published result, each function once:
//!
//! | | file | function |
//! |---|---|---|
//! | 1 | `engine/explain.rs` | `SplitTask::explain` takes a split |
//! | 2 | `engine/split_scan.rs` | `SplitScan::execute` reads its rows |
//! | 3 | | `Blocks::next` cuts them into blocks |
//! | 4 | `explain/mod.rs` | `Worker::explain` explains a block |
//! | 5 | `explain/valid_rows.rs` | `Explainer::validate_rows` predicts, and sets rejects aside |
//! | 6 | `feature/validate.rs` | `RowValidator::validate_rows` applies the schema's policies |
//! | 7 | `explain/requests.rs` | `Explainer::requests` adds targets |
//! | 8 | | `Worker::generate` asks the generator |
//! | 9 | `constrain/mod.rs` | `Constraints::post_process` applies the constraints |
//! | 10 | `explain/refine/mod.rs` | `Worker::refine` runs the refinement's steps |
//! | 11 | `explain/refine/query_cache.rs` | `QueryCache::predict` predicts every proposal once |
//! | 12 | `explain/refine/choose.rs` | `Worker::choose` picks a candidate |
//! | 13 | `explain/explained.rs` | `Explainer::assemble` measures it |
//! | 14 | `explain/table.rs` | `Explainer::table` makes the table's columns |
//! | 15 | `output/parts.rs` | `PartWriter::write` writes them to the split's files |
//! | 16 | `pipeline/run/execute.rs` | `Accounts::take` journals the split's record |
//! | 17 | `pipeline/run/figures.rs` | `Stages::figures` counts the written tables |
//! | 18 | `pipeline/run/publish.rs` | `Stages::publish` makes reports, summary and manifest |
//! | 19 | `output/staging.rs` | `Staging::publish` makes the folder visible |
//!
//! # The folders
//!
//! A module uses lower ranks only; a test reads `src/` and checks it.
//!
//! | rank | module | the question it answers |
//! |---|---|---|
//! | 10 | [`cli`] | what was typed, and what is printed? |
//! | 9 | [`pipeline`] | in which order do the stages run? |
//! | 8 | [`audit`] | which groups are refused, who of them can be helped at what cost, and what has changed since the run before? (engine-free) |
//! | 8 | [`engine`] | where do rows come from? (the only module that knows DataFusion) |
//! | 7 | [`train`] | how is the generator learnt? (engine-free) |
//! | 7 | [`explain`] | what would have to change in each row of a batch? (engine-free) |
//! | 7 | [`report`] | which figures are shown, and which must be reached? |
//! | 6 | [`artefact`] | what is a fitted generator on disk? |
//! | 5 | [`commit`] | how do results reach a Delta or Iceberg table, exactly once? |
//! | 5 | [`nn`] | what is made of tensors: networks, losses, replay buffer? (no column names, no job) |
//! | 4 | [`constrain`] | what may change, and which row does a network's output stand for? |
//! | 4 | [`target`] | what did the model decide, what should it decide, and what is a prediction worth? |
//! | 4 | [`lineage`] | who is told of a run, and what? |
//! | 4 | [`metrics`] | how good are counterfactuals: distances, counts that merge, MMD? |
//! | 4 | [`nearest`] | which training rows are nearest to a row, of those that it may become, and how plausible is it beside them? |
//! | 4 | [`score`] | what becomes of a batch? (engine-free) |
//! | 4 | [`table`] | which files and values belong to a version of a Delta or Iceberg table? |
//! | 3 | [`encode`] | how does a row become numbers? |
//! | 3 | [`predictor`] | what does the model say? (the only module that knows ONNX Runtime and processes) |
//! | 3 | [`output`] | what is written, and when does it become visible? |
//! | 3 | [`runtime`] | which threads, which device, which random numbers? |
//! | 3 | [`synth`] | where does the demonstration's table come from? |
//! | 2 | [`job`] | what is to be done? |
//! | 2 | [`feature`] | what do columns mean, what was seen in them, which rows can be used? |
//! | 1 | [`document`] | what does a TOML file say, and what is wrong with it? |
//! | 1 | [`stop`] | was the program asked to stop? |
//! | 1 | [`storage`] | which bytes does a URL stand for? (beside [`engine`], the only module that knows object stores) |
//! | 0 | [`error`] | who must act? |
//!
//! # What always holds
//!
//! - Every row read is out of scope, in the result, or in the rejects with a reason. The program checks
//!   the sum before it publishes.
//! - A result folder appears whole or not at all. A killed run resumes from its journal and ends with the
//!   same rows.
//! - Every counterfactual is checked against the schema before it is written; one that breaks a
//!   constraint is a bug that ends the run.
//! - The same job, inputs and seed give the same values, whatever the number of threads and the batch
//!   size. Statistics are exact sums for that reason.
//! - Reports are counted from the written tables, by the same code for `run` and `report`.
//! - Bad input ends in an error that names file, key or column, what was found and what was expected;
//!   all faults of a file are listed at once.

pub mod artefact;
pub mod audit;
pub mod cli;
pub mod commit;
pub mod constrain;
pub mod document;
pub mod encode;
pub mod engine;
pub mod error;
pub mod explain;
pub mod feature;
pub mod job;
pub mod lineage;
pub mod metrics;
pub mod nearest;
pub mod nn;
pub mod output;
pub mod pipeline;
pub mod predictor;
pub mod report;
pub mod runtime;
pub mod score;
pub mod stop;
pub mod storage;
pub mod synth;
pub mod table;
pub mod target;
pub mod train;
