//! `overturn sql`.

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::json::LineDelimitedWriter;
use arrow::util::pretty::pretty_format_batches;
use clap::{ArgGroup, Args};

use super::print::Printer;
use super::{Global, JobArguments, SummaryFormat};
use crate::error::{Error, Result};
use crate::job::{Bytes, Device, ExplainJob, FARTHEST, MOST_THREADS, Refine, RuntimeJob};
use crate::pipeline::{ModelSource, Query, sql};
use crate::runtime::Runtime;

/// Query a fitted generator in SQL: counterfactuals for single rows and ad-hoc groups.
///
/// `counterfactual(target)` gives for each row of a table with the generator's features a struct with the
/// columns of the counterfactual table (status, valid, n_changed, changes, cf_<feature>, …). Where columns
/// have other names, write the features out: counterfactual(target, f1, f2, …). Columns that constrain
/// single rows (such as <feature>__min) are not read.
///
/// A generator does not say where its model is: name it by --job, --model or --scorer. It must be the one that
/// the generator was trained against, to the last byte.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("which_model").args(["job", "model", "scorer"]).required(true),
    after_help = "Example:\n  overturn sql \"SELECT application_id, counterfactual('approved')['changes'] \
                  FROM a WHERE application_id = 17\" \\\n    --generator out/explained/generator --job job.toml --table a=out/credit"
)]
pub(super) struct Sql {
    /// The query.
    query: String,
    /// The folder of a fitted generator.
    #[arg(long, value_name = "DIR")]
    generator: PathBuf,
    /// The model, as this job file has it.
    #[arg(long, value_name = "JOB")]
    job: Option<PathBuf>,
    /// Fills the placeholder ${NAME} of the job file.
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "job")]
    set: Vec<String>,
    /// Gives a key of the job another value, e.g. `predictor.workers=1`: TOML, or a text as it is.
    #[arg(long = "override", value_name = "KEY=VALUE", requires = "job")]
    overrides: Vec<String>,
    /// The model, as an ONNX file.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The model, as a program and its arguments in one text: words are split at spaces, quotes keep them
    /// together. Started in the current folder, without a shell.
    #[arg(long, value_name = "COMMAND")]
    scorer: Option<String>,
    /// A table: Parquet file, folder, glob or hive-partitioned folder; may be repeated.
    #[arg(long = "table", value_name = "NAME=PATH")]
    tables: Vec<String>,
    /// Regression: how far from the target value still counts.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    tolerance: f64,
    /// How the generator's proposals are refined, as `explain.refine` of a job.
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
            model: self.model()?,
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

impl Sql {
    fn model(&self) -> Result<ModelSource> {
        let job = |file: &Path| -> Result<ModelSource> {
            let arguments = JobArguments {
                job: file.to_path_buf(),
                set: self.set.clone(),
                overrides: self.overrides.clone(),
                threads: None,
            };
            Ok(ModelSource::Job(Box::new(arguments.read()?.predictor)))
        };
        match (&self.job, &self.model, &self.scorer) {
            (Some(file), ..) => job(file),
            (_, Some(file), _) => Ok(ModelSource::Onnx(file.clone())),
            (_, _, Some(command)) => Ok(ModelSource::Scorer(words(command)?)),
            _ => Err(Error::spec("sql", "needs a model").hint("name it by `--job JOB`")),
        }
    }
}

/// The words of a command: split at white space, kept together by `'…'` and `"…"`; a backslash takes the
/// next character as it is, but not in `'…'`.
pub(super) fn words(command: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = command.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(characters.next()),
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, None) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    match quote {
        Some(open) => Err(Error::spec("--scorer", format!("has an unclosed {open}"))),
        None if words.is_empty() => Err(Error::spec("--scorer", "is empty, expected a command")),
        None => Ok(words),
    }
}

fn shown(rows: &[RecordBatch], format: SummaryFormat) -> Result<String> {
    let unreadable = |error| Error::internal("result", "cannot be shown").source(error);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_into_words() {
        for (command, expected) in [
            ("python scorer.py", &["python", "scorer.py"][..]),
            ("  a\tb  ", &["a", "b"]),
            ("a 'b  c' \"d e\"f ''", &["a", "b  c", "d ef", ""]),
            ("a\\ b '\\' \"\\\"\"", &["a b", "\\", "\""]),
            ("$HOME; `x` | y", &["$HOME;", "`x`", "|", "y"]),
        ] {
            assert_eq!(words(command).expect("words"), expected, "{command}");
        }
        for (command, said) in [("a 'b", "unclosed"), ("  ", "is empty")] {
            assert!(words(command).expect_err("none").to_string().contains(said));
        }
    }
}
