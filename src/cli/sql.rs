//! `overturn sql`.

use std::path::PathBuf;

use arrow::array::RecordBatch;
use arrow::json::LineDelimitedWriter;
use arrow::util::pretty::pretty_format_batches;
use clap::Args;

use super::print::Printer;
use super::{Global, SummaryFormat};
use crate::error::{Error, Result};
use crate::job::{Bytes, Device, ExplainJob, FARTHEST, MOST_THREADS, Refine, RuntimeJob};
use crate::pipeline::{Query, sql};
use crate::runtime::Runtime;

/// Ask a fitted generator in SQL: counterfactuals for single rows and ad-hoc groups.
///
/// `counterfactual(target)` gives for each row of a table with the generator's features a struct with the
/// columns of the counterfactual table (status, valid, n_changed, changes, cf_<feature>, …). Where columns
/// have other names, write the features out: counterfactual(target, f1, f2, …). Columns that constrain
/// single rows (<feature>__min and its kin) are not looked at.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  overturn sql \"SELECT application_id, counterfactual('approved')['changes'] \
                  FROM a WHERE application_id = 17\" \\\n    --generator out/explained/generator --table a=out/credit"
)]
pub(super) struct Sql {
    /// The query.
    query: String,
    /// The folder of a fitted generator.
    #[arg(long, value_name = "DIR")]
    generator: PathBuf,
    /// A table: Parquet file, folder, glob or hive-partitioned folder; may be repeated.
    #[arg(long = "table", value_name = "NAME=PATH")]
    tables: Vec<String>,
    /// Regression: how far from the wanted value still counts.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    tolerance: f64,
    /// What is done about the generator's answers, as `explain.refine` of a job.
    #[arg(long, value_name = "HOW", default_value = "full", value_parser = ["off", "repair", "full"])]
    refine: String,
    /// Cores to use; 0 means all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
}

impl Sql {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let table = |text: &String| {
            text.split_once('=')
                .filter(|(name, path)| !name.is_empty() && !path.is_empty())
                .map(|(name, path)| (name.to_string(), path.to_string()))
                .ok_or_else(|| Error::spec("--table", format!("is `{text}`, expected NAME=PATH")))
        };
        if !(self.tolerance.is_finite() && (0.0..=FARTHEST).contains(&self.tolerance)) {
            let problem = format!("is {}, expected a number of at least 0", self.tolerance);
            return Err(Error::spec("--tolerance", problem));
        }
        if self.threads > MOST_THREADS {
            let problem = format!("is {}, expected at most {MOST_THREADS}", self.threads);
            return Err(Error::spec("--threads", problem));
        }
        let query = Query {
            sql: self.query.clone(),
            generator: self.generator.clone(),
            tables: self.tables.iter().map(table).collect::<Result<_>>()?,
            tolerance: self.tolerance,
            explain: ExplainJob::usual(match self.refine.as_str() {
                "off" => Refine::Off,
                "repair" => Refine::Repair,
                _ => Refine::Full,
            }),
        };
        let runtime = Runtime::start(&RuntimeJob {
            threads: self.threads,
            memory: Bytes(2 << 30),
            device: Device::Auto,
            seed: 0,
        })?;
        let rows = sql(&query, &runtime)?;
        printer.data(&shown(&rows, global.format)?);
        Ok(())
    }
}

fn shown(rows: &[RecordBatch], format: SummaryFormat) -> Result<String> {
    let unreadable = |error| Error::internal("answer", "cannot be shown").source(error);
    match format {
        SummaryFormat::Text => {
            pretty_format_batches(rows).map(|text| text.to_string()).map_err(unreadable)
        }
        SummaryFormat::Json => {
            let mut writer = LineDelimitedWriter::new(Vec::new());
            let rows: Vec<&RecordBatch> = rows.iter().collect();
            writer.write_batches(&rows).and_then(|()| writer.finish()).map_err(unreadable)?;
            Ok(String::from_utf8_lossy(&writer.into_inner()).into_owned())
        }
    }
}
