//! Structured logs on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::{Global, LogFormat};

/// Libraries that say what we say ourselves, as errors, or as news of what was asked of them.
const QUIET: &str = "ort=error,delta_kernel=off,delta_kernel_default_engine=off,deltalake_core=off";

/// Starts logging; `RUST_LOG` has the last word on what is shown.
pub(super) fn start(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) => "overturn=info,warn",
        (false, 1) => "overturn=debug,info",
        (false, _) => "trace",
    };
    // ONNX Runtime's own informational lines are about its inner life.
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(format!("{level},{QUIET}")));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Where lines cannot be written, neither can a complaint about it.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start, in tests, finds the first one's logger; that one will do.
    let _ = match global.log {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
