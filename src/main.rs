//! Parse, call, print the error chain, pick the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    overturn::cli::main()
}
