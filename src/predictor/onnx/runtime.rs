//! The ONNX Runtime library: where it is, loading it once, its version, and sessions made with it.
//! Nothing else may touch `ort` before [`environment`] has succeeded: its own loading panics.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ort::environment::Environment;
use ort::logging::{LogLevel, LoggerFunction};
use ort::session::Session;
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Names the library at run time; wins over the path known when the program was built.
const LIBRARY_VARIABLE: &str = "OVERTURN_ONNXRUNTIME";

/// The version of the loaded ONNX Runtime, such as `1.31.1`.
///
/// # Errors
/// When the library is missing or unusable.
pub fn runtime_version() -> Result<String> {
    static VERSION: OnceLock<String> = OnceLock::new();
    environment()?;
    let path = library()?;
    Ok(VERSION.get_or_init(|| stamped_version(&path).unwrap_or_else(build_stamp)).clone())
}

/// `ort` does not hand out the library's version, and asking for it takes unsafe code. But the symbols
/// of the shared object carry it as their version, `VERS_1.31.1`.
fn stamped_version(library: &Path) -> Option<String> {
    const STAMP: &[u8] = b"VERS_";
    let bytes = std::fs::read(library).ok()?;
    let starts = bytes.windows(STAMP.len()).enumerate().filter(|(_, window)| *window == STAMP);
    let mut versions = starts.map(|(start, _)| {
        let digits = bytes[start + STAMP.len()..].iter().map(|byte| char::from(*byte));
        digits.take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>()
    });
    versions.find(|version| version.split('.').count() == 3)
}

/// What a library without versioned symbols says of itself: branch and commit.
fn build_stamp() -> String {
    ort::info().trim_start_matches("ORT Build Info: ").to_string()
}

/// The process's one environment.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// The environment, which loads the library when first asked for.
pub(super) fn environment() -> Result<Environment> {
    let mut loaded = ENVIRONMENT.lock();
    if let Some(environment) = &*loaded {
        return Ok(environment.clone());
    }
    let environment = load(&library()?)?;
    *loaded = Some(environment.clone());
    Ok(environment)
}

fn library() -> Result<PathBuf> {
    let given = std::env::var(LIBRARY_VARIABLE).ok().filter(|path| !path.is_empty());
    find(given.as_deref().unwrap_or(env!("OVERTURN_ONNXRUNTIME_BUILT")))
}

/// The library's full path: `ort` would look for a relative one beside the program.
fn find(path: &str) -> Result<PathBuf> {
    let subject = if path.is_empty() { "ONNX Runtime" } else { path };
    match std::path::absolute(path) {
        Ok(path) if path.is_file() => Ok(path),
        _ => Err(Error::resources(subject, "is missing, expected ONNX Runtime's shared library")
            .hint(library_hint())),
    }
}

fn library_hint() -> String {
    format!("run jobs/setup.sh, or set {LIBRARY_VARIABLE} to the path of the library")
}

fn load(path: &Path) -> Result<Environment> {
    let unusable = || {
        let problem = "cannot be used, expected ONNX Runtime's shared library, 1.24 or newer";
        Error::resources(path.display().to_string(), problem).hint(library_hint())
    };
    let builder = ort::init_from(path).map_err(|error| unusable().source(error))?;
    let builder = builder.with_name("overturn").with_telemetry(false).with_logger(logger());
    let environment = builder.build().map_err(|error| unusable().source(error))?;
    environment.set_log_level(LogLevel::Warning);
    Ok(environment)
}

/// Sends what the library says to our log; by itself it would write to standard error. A model can make it
/// warn once for each batch: of such lines the first is shown, then every tenth, hundredth, thousandth …
fn logger() -> LoggerFunction {
    let repeats = &REPEATS;
    Arc::new(move |level, _, _, location, message| match level {
        LogLevel::Verbose | LogLevel::Info => tracing::debug!(location, "onnxruntime: {message}"),
        LogLevel::Warning => {
            if let Some(note) = repeats.note(location, message) {
                tracing::warn!(location, "onnxruntime: {message}{note}");
            }
        }
        LogLevel::Error | LogLevel::Fatal => {
            if let Some(note) = repeats.note(location, message) {
                tracing::error!(location, "onnxruntime: {message}{note}");
            }
        }
    })
}

/// Says how often the library has warned where that was not shown, once for each kind of warning. To be
/// called when the work is done.
pub fn summarise_warnings() {
    REPEATS.totals().iter().for_each(|line| tracing::warn!("{line}"));
}

/// What this process has heard.
static REPEATS: Repeats = Repeats(Mutex::new(BTreeMap::new()));

/// How often the library has spoken, with its first words, by the line of its source that speaks.
struct Repeats(Mutex<BTreeMap<String, (u64, String)>>);

impl Repeats {
    /// Counts a message; gives what to add to it, or nothing if it is not to be shown.
    fn note(&self, location: &str, message: &str) -> Option<String> {
        let mut counts = self.0.lock();
        let (count, _) =
            counts.entry(location.to_string()).or_insert_with(|| (0, message.trim().to_string()));
        *count += 1;
        match *count {
            1 => Some(String::new()),
            count if is_shown(count) => Some(format!(" ({count} messages like this so far)")),
            _ => None,
        }
    }

    /// A line for each message whose last count was not shown.
    fn totals(&self) -> Vec<String> {
        let mut counts = self.0.lock();
        let counts = std::mem::take(&mut *counts);
        let unsaid = counts.into_values().filter(|(count, _)| !is_shown(*count));
        unsaid
            .map(|(count, first)| format!("onnxruntime: {count} messages like: {first}"))
            .collect()
    }
}

/// Whether the message with this number is shown: the first, the tenth, the hundredth …
fn is_shown(count: u64) -> bool {
    count == 10u64.pow(count.ilog10())
}

/// Makes a session. `folder` is where the model keeps weights that are not in the file itself.
pub(super) fn session(model: &[u8], folder: &Path, threads: usize) -> Result<Session, ort::Error> {
    let environment = environment().map_err(ort::Error::wrap)?;
    let folder = folder.to_string_lossy();
    Session::builder(&environment)?
        .with_log_level(LogLevel::Warning)?
        .with_intra_threads(threads)?
        .with_inter_threads(1)?
        // Idle threads that spin would take the cores from the engine's partitions.
        .with_intra_op_spinning(false)?
        .with_config_entry("session.model_external_initializers_file_folder_path", folder)?
        .commit_from_memory(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_what_to_do() {
        let error = find("/nowhere/libonnxruntime.so").expect_err("there is none");
        assert_eq!(
            error.to_string(),
            "/nowhere/libonnxruntime.so: is missing, expected ONNX Runtime's shared library\n  \
             hint: run jobs/setup.sh, or set OVERTURN_ONNXRUNTIME to the path of the library"
        );
        assert!(find("").expect_err("there is none").to_string().starts_with("ONNX Runtime: "));
    }

    #[test]
    fn a_foreign_library_is_refused() {
        // Held so that no other test loads the real one meanwhile: there is one for each process.
        let _alone = ENVIRONMENT.lock();
        let error = load(Path::new("/dev/null")).expect_err("no library");
        assert!(error.to_string().contains("cannot be used, expected ONNX Runtime"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn repeated_messages_are_counted_instead_of_shown() {
        let repeats = Repeats(Mutex::new(BTreeMap::new()));
        let text = "Expected shape {1} does not match actual shape {8192}";
        let notes: Vec<String> = (0..837).filter_map(|_| repeats.note("a.cc:1", text)).collect();
        assert_eq!(
            notes,
            ["", " (10 messages like this so far)", " (100 messages like this so far)"]
        );
        assert_eq!(repeats.note("b.cc:1", "").as_deref(), Some(""), "another place has its own");
        assert_eq!(
            repeats.totals(),
            [
                "onnxruntime: 837 messages like: Expected shape {1} does not match actual shape {8192}"
            ]
        );
        assert!(repeats.totals().is_empty(), "said once");
    }

    #[test]
    fn the_version_is_known() {
        let version = runtime_version().expect("the library is there");
        assert!(version.starts_with("1.") && version.split('.').count() == 3, "{version}");
    }
}
