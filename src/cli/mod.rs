//! The command line: clap types, one file a subcommand, and the only place that prints. Standard output
//! is data (the summary, or JSON); standard error is talk.

mod audit;
mod compare;
mod init;
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
mod verify;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::document::Overrides;
use crate::error::{Error, Kind, Result};
use crate::job::{Job, MOST_THREADS, Placeholders};
use crate::{pipeline, predictor, runtime, stop};

use print::Printer;

/// How long the last message of an overdue program may take …
const LAST_WORDS: Duration = Duration::from_millis(100);
/// … and how long its libraries' tidying up.
const EXIT_PATIENCE: Duration = Duration::from_millis(350);

/// What is the least that would have to change for the model to decide otherwise?
///
/// overturn reads Parquet tables and a model, as a batch job described by a TOML file, and writes
/// Parquet tables back. Start with a table and a model:
///
///   overturn init applications/ --model model.onnx
///   overturn validate job.toml
///   overturn run job.toml
#[derive(Debug, Parser)]
#[command(name = "overturn", version, verbatim_doc_comment, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

/// How this run behaves; what it does stands in the job file.
#[derive(Debug, Clone, Args)]
struct Global {
    /// Format of the log on standard error.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log: LogFormat,
    /// Format of the summary on standard output.
    #[arg(long, global = true, value_enum, default_value_t = SummaryFormat::Text)]
    format: SummaryFormat,
    /// More log lines; give it twice for all.
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
    Init(init::Init),
    Validate(validate::Validate),
    Score(score::Score),
    Train(train::Train),
    Run(run::WholeRunArguments),
    Publish(run::Publish),
    Explain(run::Explain),
    Report(run::Report),
    Audit(audit::AuditArguments),
    Sql(sql::Sql),
    #[command(subcommand)]
    Schema(schema::Schema),
    Synth(synth::SynthArguments),
    Verify(verify::Verify),
}

impl Command {
    /// What holds after success, even where it cannot be printed.
    fn done(&self) -> &'static str {
        match self {
            Command::Score(_)
            | Command::Train(_)
            | Command::Run(_)
            | Command::Publish(_)
            | Command::Explain(_) => {
                "the run itself succeeded: what it publishes is published, only its summary could not be printed"
            }
            Command::Report(_) | Command::Audit(_) => {
                "the report itself succeeded: it is published, only its summary could not be printed"
            }
            Command::Init(_) => "both files are written: only the summary could not be printed",
            Command::Synth(_) => "the table is written: only the summary could not be printed",
            Command::Validate(_) | Command::Verify(_) | Command::Sql(_) | Command::Schema(_) => {
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
        pipeline::fetch(job)
    }
}

/// The program.
pub fn main() -> ExitCode {
    // Before anything else: this may be a scorer's guard, not a command.
    if let Some(code) = predictor::guard_main() {
        return code;
    }
    // Before libraries are loaded, which start threads.
    let heard = runtime::hear_signals(overdue);
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // Help and version go to standard output with exit code 0; a wrong command line is the user's
        // to fix, which is 1 here, not clap's 2.
        Err(error) => {
            let printed = match error.kind() {
                // Libraries are asked for theirs only here: it takes its time.
                ErrorKind::DisplayVersion => writeln!(io::stdout(), "{}", version()),
                _ => error.print(),
            };
            return match printed {
                _ if error.use_stderr() => ExitCode::from(1),
                Err(cause) if cause.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::from(2),
                _ => ExitCode::SUCCESS,
            };
        }
    };
    log::start(&arguments.global);
    let printer = Printer::new(&arguments.global);
    let result = heard.and_then(|()| execute(&arguments, &printer));
    predictor::summarise_warnings();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = as_interrupted(error);
            printer.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn execute(arguments: &Arguments, printer: &Printer) -> Result<()> {
    predictor::supervise_scorers();
    match &arguments.command {
        Command::Init(command) => command.run(printer, &arguments.global),
        Command::Validate(command) => command.run(printer, &arguments.global),
        Command::Score(command) => command.run(printer, &arguments.global),
        Command::Train(command) => command.run(printer, &arguments.global),
        Command::Run(command) => command.run(printer, &arguments.global),
        Command::Publish(command) => command.run(printer, &arguments.global),
        Command::Explain(command) => command.run(printer, &arguments.global),
        Command::Report(command) => command.run(printer, &arguments.global),
        Command::Audit(command) => command.run(printer, &arguments.global),
        Command::Sql(command) => command.run(printer, &arguments.global),
        Command::Schema(command) => command.run(printer, &arguments.global),
        Command::Synth(command) => command.run(printer, &arguments.global),
        Command::Verify(command) => command.run(printer, &arguments.global),
    }?;
    printer.finish(arguments.command.done())
}

/// What a stop did to the work on its way is no news: the signal is.
fn as_interrupted(error: Error) -> Error {
    match (error.kind(), stop::requested()) {
        (Kind::Interrupted(_), _) | (_, None) => error,
        (_, Some(signal)) => Error::interrupted(signal),
    }
}

/// Ends a program that a signal has not ended in time, without waiting for any thread.
#[expect(clippy::exit, reason = "the main thread may never return")]
fn overdue(error: Error) {
    let code = error.exit_code();
    let (said, heard) = mpsc::channel();
    // Whoever holds standard error may hold it for ever.
    let say = move || {
        tracing::warn!("ended in the middle of its work: it did not stop in time");
        let _ = writeln!(io::stderr(), "interrupted: {error}");
        let _ = said.send(());
    };
    if thread::Builder::new().spawn(say).is_ok() {
        let _ = heard.recv_timeout(LAST_WORDS);
    }
    // Libraries tidy up on exit, while their threads are still at work: that may hang.
    let _ = thread::Builder::new().spawn(move || {
        thread::sleep(EXIT_PATIENCE);
        runtime::end_by(code);
    });
    std::process::exit(code.into());
}

/// Names the libraries too, on which results depend, and the devices that there are.
fn version() -> String {
    let onnxruntime = predictor::onnxruntime_version();
    let onnxruntime = onnxruntime.unwrap_or_else(|_| "not found, run jobs/setup.sh".to_string());
    format!(
        "overturn {} (libtorch {}, ONNX Runtime {onnxruntime}, DataFusion {})\n{}",
        env!("CARGO_PKG_VERSION"),
        runtime::libtorch_version(),
        crate::engine::datafusion_version(),
        runtime::Gpus::find(),
    )
}

/// Progress for a stage: bars on a terminal, log lines elsewhere.
fn observer(global: &Global) -> pipeline::Observer {
    progress::observer(global.quiet || global.log == LogFormat::Json)
}

/// Runs a stage with its progress shown; what is printed after it stands below the last progress line.
fn observed<T>(global: &Global, stage: impl FnOnce(&pipeline::Observer) -> Result<T>) -> Result<T> {
    stage(&observer(global))
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
