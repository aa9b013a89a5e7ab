//! `overturn init`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use super::print::{Printer, grouped, lines};
use super::sql::words;
use super::{Global, observer};
use crate::error::Result;
use crate::job::{Bytes, Device, RuntimeJob, TaskSpec};
use crate::pipeline::{InitModel, InitRequest, InitSummary, init};
use crate::runtime::Runtime;

/// Write a first job and its feature schema, from a table and a model.
///
/// Writes job.toml and schema.toml side by side, both or none, and replaces no file. Inputs, classes and task are read
/// from the model; key, target and segments are guessed, and every guess is said, here and as a comment. The job can
/// be validated and run as it is.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("first_model").args(["model", "scorer"]).required(true),
    after_help = "Example:\n  overturn init applications/ --model model.onnx"
)]
pub(super) struct Init {
    /// Parquet file, folder, glob or hive-partitioned folder.
    table: String,
    /// The model, as an ONNX file.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The model, as a program and its arguments in one text: words are split at spaces, quotes keep them
    /// together. It gets every column that is not the key, the label or ignored.
    #[arg(long, value_name = "COMMAND")]
    scorer: Option<String>,
    /// A key column; may be repeated. By default the first column that identifies every row.
    #[arg(long, value_name = "COLUMN")]
    key: Vec<String>,
    /// A column that is no feature; may be repeated.
    #[arg(long, value_name = "COLUMN")]
    ignore: Vec<String>,
    /// What the model predicts. By default the model is asked.
    #[arg(long, value_enum)]
    task: Option<TaskKind>,
    /// A class, for models that do not name theirs; repeated, in the order of the scores.
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<String>,
    /// Where both files are written.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

/// What a model predicts.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum TaskKind {
    /// A class.
    Classification,
    /// A number.
    Regression,
}

impl Init {
    pub(super) fn run(&self, printer: &Printer, global: &Global) -> Result<()> {
        let request = self.request()?;
        let runtime =
            RuntimeJob { threads: 0, memory: Bytes(2 << 30), device: Device::Cpu, seed: 0 };
        let runtime = Runtime::start(&runtime)?;
        let progress = observer(global);
        let summary = init(&request, &runtime, &progress)?;
        drop(progress);
        for (column, reason) in &summary.left_out {
            tracing::info!("left out `{column}`: {reason}");
        }
        for guess in &summary.guesses {
            tracing::info!("guessed {guess}");
        }
        for remark in &summary.remarks {
            tracing::warn!("{remark}");
        }
        printer.summary(&summary, text);
        Ok(())
    }

    fn request(&self) -> Result<InitRequest> {
        let model = match (&self.model, &self.scorer) {
            (Some(path), _) => InitModel::Onnx(path.clone()),
            (None, command) => InitModel::Scorer(words(command.as_deref().unwrap_or_default())?),
        };
        let task = self.task.map(|task| match task {
            TaskKind::Classification => TaskSpec::Classification,
            TaskKind::Regression => TaskSpec::Regression,
        });
        Ok(InitRequest {
            table: self.table.clone(),
            model,
            key: self.key.clone(),
            ignore: self.ignore.clone(),
            task,
            classes: self.classes.clone(),
            folder: self.out.clone(),
        })
    }
}

fn text(summary: &InitSummary) -> String {
    let probabilities = if summary.probabilities { " with probabilities" } else { "" };
    let model = match &summary.classes[..] {
        [] => "regression".to_string(),
        classes => format!("{} classes{probabilities}: {}", classes.len(), classes.join(", ")),
    };
    let columns = summary.features.len() + summary.left_out.len();
    let segments =
        if summary.segments.is_empty() { "none".to_string() } else { summary.segments.join(", ") };
    let rows = [
        ("rows", grouped(summary.rows)),
        ("key", summary.key.join(", ")),
        ("model", model),
        ("features", format!("{} of {columns} columns", summary.features.len())),
        ("target", summary.target.clone()),
        ("segments", segments),
        ("written", format!("{}, {}", summary.job, summary.schema)),
    ];
    let rows = rows.map(|(name, value)| (name.to_string(), value));
    let job = &summary.job;
    format!("{}Check the guesses in both files, then: overturn validate {job}", lines(&rows))
}
