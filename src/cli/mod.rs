//! The command line: clap types, one file a subcommand, and the only place that prints. Standard output
//! is data (the summary, or JSON); standard error is talk.

mod log;
mod print;
mod progress;
mod run;
mod schema;
mod score;
mod sql;
mod synth;
mod train;
mod validate;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::document::Overrides;
use crate::error::{Error, Result};
use crate::job::{Job, MOST_THREADS, Placeholders};
use crate::pipeline;

use print::Printer;

/// What is the least that would have to change for the model to decide otherwise?
///
/// overturn reads Parquet tables and a model, as a batch job described by a TOML file, and writes
/// Parquet tables back. Start with a table and a model:
///
///   overturn schema infer applications/ --ignore id > schema.toml
///   overturn validate job.toml
///   overturn run job.toml --set date=2026-11-16
#[derive(Debug, Parser)]
#[command(name = "overturn", version = version(), verbatim_doc_comment, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

/// How this run behaves; what it does stands in the job file.
#[derive(Debug, Clone, Args)]
struct Global {
    /// How log lines on standard error look.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log: LogFormat,
    /// How the summary on standard output looks.
    #[arg(long, global = true, value_enum, default_value_t = SummaryFormat::Text)]
    format: SummaryFormat,
    /// More log lines; twice for a flood.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Errors only.
    #[arg(short, long, global = true)]
    quiet: bool,
}

/// Log line formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for log collectors.
    Json,
}

/// Summary formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SummaryFormat {
    /// For people.
    Text,
    /// One JSON object on the last line, for schedulers.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    Validate(validate::Validate),
    Score(score::Score),
    Train(train::Train),
    Run(run::Run),
    Explain(run::Explain),
    Report(run::Report),
    Sql(sql::Sql),
    #[command(subcommand)]
    Schema(schema::Schema),
    Synth(synth::Synth),
}

impl Command {
    /// What holds after success, even where it cannot be printed.
    fn done(&self) -> &'static str {
        match self {
            Command::Score(_) | Command::Train(_) | Command::Run(_) | Command::Explain(_) => {
                "the run itself succeeded: what it publishes is published, only its summary could not be printed"
            }
            Command::Report(_) => {
                "the report itself succeeded: it is published, only its summary could not be printed"
            }
            Command::Synth(_) => "the table is written: only the summary could not be printed",
            Command::Validate(_) | Command::Sql(_) | Command::Schema(_) => {
                "nothing was changed; write to a file on a disk with room"
            }
        }
    }
}

/// A job file and what this run changes about it.
#[derive(Debug, Clone, Args)]
struct JobArguments {
    /// The job file (TOML); see schemas/job.schema.json.
    job: PathBuf,
    /// Fills the placeholder ${NAME} of the job file.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Gives a key of the job another value, e.g. `explain.refine=off`: TOML, or a text as it is.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Cores to use, whatever the job says; 0 means all.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl JobArguments {
    fn read(&self) -> Result<Job> {
        let mut job = Job::read(
            &self.job,
            &Placeholders::parse(&self.set)?,
            &Overrides::parse(&self.overrides)?,
        )?;
        if let Some(threads) = self.threads {
            if threads > MOST_THREADS {
                let problem = format!("is {threads}, expected at most {MOST_THREADS}");
                return Err(Error::spec("--threads", problem));
            }
            job.runtime.threads = threads;
        }
        Ok(job)
    }
}

/// The program.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // Help and version go to standard output with exit code 0; a wrong command line is the user's
        // to fix, which is 1 here, not clap's 2.
        Err(error) => {
            let printed = error.print();
            return match printed {
                _ if error.use_stderr() => ExitCode::from(1),
                Err(cause) if cause.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::from(2),
                _ => ExitCode::SUCCESS,
            };
        }
    };
    log::start(&arguments.global);
    let printer = Printer::new(&arguments.global);
    let done = arguments.command.done();
    let result = match arguments.command {
        Command::Validate(command) => command.run(&printer, &arguments.global),
        Command::Score(command) => command.run(&printer, &arguments.global),
        Command::Train(command) => command.run(&printer, &arguments.global),
        Command::Run(command) => command.run(&printer, &arguments.global),
        Command::Explain(command) => command.run(&printer, &arguments.global),
        Command::Report(command) => command.run(&printer, &arguments.global),
        Command::Sql(command) => command.run(&printer, &arguments.global),
        Command::Schema(command) => command.run(&printer, &arguments.global),
        Command::Synth(command) => command.run(&printer, &arguments.global),
    };
    match result.and_then(|()| printer.finish(done)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            printer.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Names the libraries too: results depend on them.
fn version() -> &'static str {
    use std::sync::OnceLock;
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let onnxruntime = crate::predictor::onnxruntime_version();
        let onnxruntime =
            onnxruntime.unwrap_or_else(|_| "not found, run jobs/setup.sh".to_string());
        format!(
            "{} (libtorch {}, ONNX Runtime {onnxruntime}, DataFusion {})",
            env!("CARGO_PKG_VERSION"),
            crate::runtime::libtorch_version(),
            crate::engine::datafusion_version(),
        )
    })
}

/// Progress for a stage: bars on a terminal, nothing elsewhere.
fn observer(global: &Global) -> pipeline::Observer {
    progress::observer(global.quiet || global.log == LogFormat::Json)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
