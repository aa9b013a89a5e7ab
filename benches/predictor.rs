//! Predictor speed.

fn main() {}
