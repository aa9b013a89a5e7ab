//! How far counterfactuals are, as a whole, from the rows of their class: maximum mean discrepancy, seen
//! through untrained encoders as in the paper or on encoded rows themselves. Over all pairs where they can
//! be afforded, by random frequencies in one pass where not. Which rows are compared is the caller's
//! business.

mod bandwidth;
mod blocks;
mod encoder;
mod exact;
mod fourier;
mod lanes;
mod permute;
mod reference;
mod sample;
mod summary;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use encoder::RandomEncoder;
pub use reference::{Reference, ReferenceBuilder};
pub use sample::ComparedRows;

use super::wilson::Interval;
use crate::error::{Error, Result};

/// What rows are looked at as. All is computed once per encoder ("view").
#[derive(Debug, Clone, PartialEq)]
pub enum Space {
    /// As what each of some untrained networks makes of them.
    Encoders(Vec<RandomEncoder>),
    /// As they are: the standardised, encoded row.
    Raw {
        /// Numbers of a row.
        width: usize,
    },
}

/// How MMD² is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MmdOptions {
    /// Most pairs of rows, also within one side, that all pairs are gone through for.
    pub pairs: u64,
    /// Random frequencies per view, where pairs are too many; at least 2.
    pub frequencies: usize,
    /// Random exchanges for the p-value; without any there is none.
    pub permutations: usize,
    /// The seed of frequencies and exchanges.
    pub seed: u64,
}

/// How far a sample is from the reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The unbiased estimate of MMD², mean over views; may be slightly negative.
    pub mmd2: f64,
    /// Sample standard deviation over views; zero for one.
    pub spread: f64,
    /// Views.
    pub views: usize,
    /// 95 % interval for another draw of rows, from blocks of the first 15,000 of each side; none for
    /// fewer than ten rows.
    pub interval: Option<Interval>,
    /// How far the estimate may be from that over all pairs (99 %); zero if it is that.
    pub error: f64,
    /// How it was estimated.
    pub estimator: Estimator,
    /// Rows of the sample.
    pub rows: u64,
    /// Rows of the reference.
    pub reference_rows: u64,
    /// σ of the kernel exp(-d² / 2σ²), mean over views.
    pub bandwidth: f64,
    /// The share of random exchanges of rows that differ as much, on the first 1,000 of each side.
    pub p_value: Option<f64>,
}

/// How an MMD² was estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// Over all pairs of rows.
    Exact,
    /// By random frequencies.
    Fourier,
}

impl Default for MmdOptions {
    /// 20,000 rows against as many are still compared pair by pair: a few seconds for ten encoders.
    fn default() -> Self {
        MmdOptions { pairs: 400_000_000, frequencies: 256, permutations: 0, seed: 0 }
    }
}

impl Space {
    /// Numbers of a row.
    pub fn width(&self) -> usize {
        match self {
            Space::Encoders(encoders) => encoders.first().map_or(0, RandomEncoder::width),
            Space::Raw { width } => *width,
        }
    }

    /// Ways to look at a row.
    pub fn views(&self) -> usize {
        match self {
            Space::Encoders(encoders) => encoders.len(),
            Space::Raw { .. } => 1,
        }
    }

    /// Numbers that a row becomes.
    fn dimension(&self) -> usize {
        match self {
            Space::Encoders(_) => encoder::EMBEDDED,
            Space::Raw { width } => *width,
        }
    }

    /// What rows become in one view, computed on this thread alone.
    fn embed_here(&self, view: usize, rows: &[f32]) -> Vec<f32> {
        match self {
            Space::Encoders(encoders) => encoders[view].embed_here(rows),
            Space::Raw { .. } => rows.to_vec(),
        }
    }

    fn check(&self) -> Result<()> {
        let width = self.width();
        if width == 0 {
            return Err(Error::input("MMD space", "width 0 or no encoder, expected at least 1"));
        }
        match self {
            Space::Encoders(encoders)
                if encoders.iter().any(|encoder| encoder.width() != width) =>
            {
                Err(Error::input("MMD space", "encoders of several widths, expected one"))
            }
            _ => Ok(()),
        }
    }
}
