//! What is the least that would have to change for the model to decide otherwise? See the README.

pub mod document;
pub mod error;
pub mod feature;
pub mod job;
pub mod predictor;
