//! What is the least that would have to change for the model to decide otherwise? See the README.

pub mod cli;
pub mod document;
pub mod encode;
pub mod engine;
pub mod error;
pub mod feature;
pub mod job;
pub mod output;
pub mod pipeline;
pub mod predictor;
pub mod runtime;
pub mod synth;
