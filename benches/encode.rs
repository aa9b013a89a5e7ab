//! Encoding speed.

fn main() {}
