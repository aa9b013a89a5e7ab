//! Scores models of trees, and linear ones, without ONNX Runtime, several times as fast and with its answers to
//! the last bit: a graph whose operators are all known becomes, per input column, functions of single values,
//! and trees that several rows walk at once.
//!
//! [`program`] recognises a graph, [`engine`] evaluates it, [`sources`] brings columns and changed values into its
//! terms, [`compare`] makes the rows on which it is held against ONNX Runtime before it is used. Graphs with any
//! other operator are left to ONNX Runtime.

mod breakpoints;
mod cells;
mod compare;
mod engine;
mod layout;
mod linear;
mod machine;
mod operators;
mod program;
mod responses;
mod scalar;
mod scorer;
mod search;
mod shapes;
mod sources;
mod sweep;
mod tensors;
#[cfg(test)]
mod tests;
mod transform;
mod trees;
mod values;
mod variants;

pub(super) use compare::{Trials, Wildness, difference};
pub(super) use scorer::Native;
pub(super) use sweep::{FeatureResponses, SweepScratch};
pub(super) use trees::Aim;
pub(super) use variants::{Originals, Unasked};
