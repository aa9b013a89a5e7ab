//! Parse, call, print the error chain, pick the exit code.

fn main() {}
