//! Rows that counterfactuals will be compared with, and the random encoders they are looked at through.

use super::Fixed;
use super::load::Loaded;
use crate::artefact::{DecidedRows, ReferenceRows};
use crate::job::MOST_ENCODERS;
use crate::metrics::RandomEncoder;
use crate::predictor::{NO_CLASS, Outcome, Scores};
use crate::runtime::Runtime;

/// Training rows kept of every class, and of all values of a regression: as many as a comparison can use.
const ROWS_OF_A_CLASS: usize = 2_500;
/// Rows kept at most, however many classes there are.
const MOST_ROWS: usize = 50_000;

/// Rows and encoders to be kept with the generator.
pub(super) fn gather(fixed: &Fixed, loaded: &Loaded, runtime: &Runtime) -> ReferenceRows {
    let rows = loaded.sample.rows.len as u32;
    let train = loaded.train as u32;
    let width = fixed.encoder.layout().width;
    let streams = runtime.streams();
    let encoder = |index| {
        let mut random = streams.random(&format!("mmd encoder {index}"));
        RandomEncoder::draw(width, &mut random).weights().to_vec()
    };
    ReferenceRows {
        trained: decided(fixed, loaded, 0..train),
        held_out: decided(fixed, loaded, train..rows),
        encoders: (0..MOST_ENCODERS).flat_map(encoder).collect(),
    }
}

/// The first rows of every class in a stretch of the sample, which is in the order of the keys' hashes.
fn decided(fixed: &Fixed, loaded: &Loaded, rows: std::ops::Range<u32>) -> DecidedRows {
    let scores = &loaded.sample.scores;
    let mut counts: Vec<usize> = Vec::new();
    let mut chosen: Vec<u32> = Vec::new();
    for row in rows {
        let Some(class) = group(scores, row as usize) else { continue };
        counts.resize(counts.len().max(class + 1), 0);
        if counts[class] < ROWS_OF_A_CLASS && chosen.len() < MOST_ROWS {
            counts[class] += 1;
            chosen.push(row);
        }
    }
    let decision = |row: &u32| match &scores.outcome {
        Outcome::Classes { labels, .. } => f64::from(labels[*row as usize]),
        Outcome::Values(values) => values[*row as usize],
    };
    DecidedRows {
        decisions: chosen.iter().map(decision).collect(),
        values: fixed.encoder.encode_rows(&loaded.sample.rows.take(&chosen)).values,
    }
}

/// The class of a row; one for all values.
fn group(scores: &Scores, row: usize) -> Option<usize> {
    match &scores.outcome {
        Outcome::Classes { labels, .. } => {
            (labels[row] != NO_CLASS).then_some(labels[row] as usize)
        }
        Outcome::Values(values) => values[row].is_finite().then_some(0),
    }
}
