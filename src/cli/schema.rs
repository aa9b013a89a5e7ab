//! `overturn schema`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use super::print::Printer;
use super::{Global, observer};
use crate::document::{column_reference, json_schema, reference};
use crate::engine::{Engine, EngineOptions, InferOptions, infer, observed_rules};
use crate::error::{Error, Result};
use crate::feature::SchemaSpec;
use crate::job::{Bytes, Device, JobSpec, RuntimeJob};
use crate::output::{describe_sources, describe_tables};
use crate::runtime::Runtime;

/// Work with schemas: infer one from a table, or print those that editors use.
#[derive(Debug, Subcommand)]
pub(super) enum Schema {
    Infer(Infer),
    Show(Show),
}

/// Write a first feature schema for a Parquet table, with comments.
///
/// Texts and booleans with few values become categorical, numbers keep their type and get the range that
/// was observed and a word on the step that they have; identifiers and columns with too many texts are
/// pointed out and left out, constants are kept. What all rows keep to between columns is written as
/// commented rules.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  overturn schema infer applications/ --ignore application_id > schema.toml"
)]
pub(super) struct Infer {
    /// Parquet file, folder, glob or hive-partitioned folder.
    table: String,
    /// A column that is no feature (key, label, split); may be repeated.
    #[arg(long, value_name = "COLUMN")]
    ignore: Vec<String>,
    /// More distinct texts than this are no category.
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_categories: usize,
    /// Write to this file instead of standard output; it must not exist.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Print the JSON Schema of a file format, or its reference as Markdown.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  overturn schema show job > schemas/job.schema.json")]
pub(super) struct Show {
    /// Which one.
    #[arg(value_enum)]
    file: FileKind,
    /// Print tables for people instead of JSON.
    #[arg(long)]
    markdown: bool,
}

/// File formats with a JSON Schema.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FileKind {
    /// Job files.
    Job,
    /// Feature schema files.
    Feature,
    /// All tables that are written, with their columns.
    Tables,
    /// The same as sources of dbt, in YAML.
    Sources,
}

impl Schema {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        match self {
            Schema::Infer(infer) => infer.run(printer, global),
            Schema::Show(show) => show.run(printer),
        }
    }
}

impl Infer {
    fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let runtime =
            RuntimeJob { threads: 0, memory: Bytes(2 << 30), device: Device::Cpu, seed: 0 };
        let runtime = Runtime::start(&runtime)?;
        let options =
            EngineOptions { partitions: runtime.threads, batch_rows: 8192, memory_bytes: 2 << 30 };
        let engine = Engine::new(options)?;
        let table = engine.open("features", std::slice::from_ref(&self.table))?;
        for column in &self.ignore {
            if table.schema.column_with_name(column).is_none() {
                let fault = crate::feature::missing_column(column, &table.schema, &table.shown);
                Error::from_faults(crate::error::Kind::Spec, vec![fault])?;
            }
        }
        let progress = observer(global);
        progress.stage("looking at columns", None);
        let reason = |column: &String| (column.clone(), "left out as asked".to_string());
        let options = InferOptions {
            max_categories: self.max_categories,
            ignore: self.ignore.iter().map(reason).collect(),
            ..InferOptions::default()
        };
        let inferred = runtime.block_on(infer(&engine, &table, &options))?;
        progress.stage("looking at what holds between columns", None);
        let rules = runtime.block_on(observed_rules(&engine, &table, &inferred.text))?;
        drop(progress);
        for (column, reason) in &inferred.left_out {
            tracing::info!(column, "left out: {reason}");
        }
        tracing::info!(
            features = inferred.features.len(),
            left_out = inferred.left_out.len(),
            "inferred"
        );
        self.deliver(printer, &(inferred.text + &rules))
    }

    fn deliver(&self, printer: &Printer, text: &str) -> Result<()> {
        let Some(path) = &self.output else {
            printer.data(text);
            return Ok(());
        };
        let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
        let written =
            file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|error| {
            Error::output(path.display().to_string(), format!("cannot be written: {error}"))
                .hint("an existing file is not replaced; remove it, or choose another name")
        })
    }
}

impl Show {
    fn run(&self, printer: &Printer) -> Result<()> {
        if let FileKind::Sources = self.file {
            printer.data(describe_sources().trim_end());
            return Ok(());
        }
        let schema = schema_of(self.file);
        let text = match (self.markdown, self.file) {
            (true, FileKind::Tables | FileKind::Sources) => column_reference(&schema),
            (true, FileKind::Job | FileKind::Feature) => reference(&schema),
            (false, _) => serde_json::to_string_pretty(&schema)
                .map_err(|error| Error::internal("schema", "has no JSON").source(error))?,
        };
        printer.data(&text);
        Ok(())
    }
}

fn schema_of(file: FileKind) -> Value {
    match file {
        FileKind::Job => json_schema::<JobSpec>(),
        FileKind::Feature => json_schema::<SchemaSpec>(),
        FileKind::Tables | FileKind::Sources => describe_tables(),
    }
}
