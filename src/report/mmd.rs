//! How like rows of the wanted class counterfactuals are, with two yardsticks: rows of the class that were
//! not trained on, and the explained rows left as they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::columns::Columns;
use super::{Level, Names};
use crate::artefact::ReferenceRows;
use crate::error::{Error, Result};
use crate::job::{MmdSpace, MmdSpec};
use crate::metrics::{
    Estimate, Estimator, MmdOptions, RandomEncoder, Reference, Sample, Segment, Space,
};
use crate::output::mmd_schema;

/// Rows of a class needed on both sides; fewer say nothing.
const LEAST_ROWS: u64 = 10;

/// Comparisons of explained rows with the rows of their wanted classes, made batch by batch.
pub struct Comparison {
    /// By wanted decision.
    classes: BTreeMap<u32, Class>,
}

struct Class {
    reference: Reference,
    held_out: Option<Estimate>,
    held_out_rows: u64,
    groups: BTreeMap<Option<Segment>, Samples>,
}

struct Samples {
    all: Sample,
    valid: Sample,
    unchanged: Sample,
}

/// One row of the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MmdRow {
    /// Number of the wanted decision.
    pub target: u32,
    /// The segment, if it is one's.
    pub segment: Option<Segment>,
    /// `all` or `valid`.
    pub over: String,
    /// The figure.
    pub estimate: Estimate,
    /// The floor.
    pub held_out: Option<f64>,
    /// Rows that it comes from.
    pub held_out_rows: u64,
    /// Doing nothing.
    pub unchanged: Option<f64>,
}

impl MmdRow {
    /// The figure as a multiple of doing nothing.
    pub fn ratio(&self) -> Option<f64> {
        mmd_ratio(Some(self.estimate.mmd2), self.unchanged)
    }
}

/// MMD² as a multiple of that of rows left as they are; none where either is not known, or there is nothing
/// to compare with.
pub fn mmd_ratio(mmd2: Option<f64>, unchanged: Option<f64>) -> Option<f64> {
    Some(mmd2? / unchanged.filter(|unchanged| *unchanged > 0.0)?)
}

/// Number of a wanted decision, and which of the model's decisions it is.
pub type Wanted<'a> = (u32, Box<dyn Fn(f64) -> bool + 'a>);

/// Some explained rows of one wanted decision.
#[derive(Debug, Clone)]
pub struct Rows<'a> {
    /// Number of the wanted decision.
    pub target: u32,
    /// Their segment, if figures by segment are wanted.
    pub segment: Option<&'a Segment>,
    /// Encoded counterfactuals.
    pub counterfactuals: &'a [f32],
    /// The valid ones among them.
    pub valid: &'a [f32],
    /// The rows as they were.
    pub originals: &'a [f32],
}

impl Comparison {
    /// Prepares comparisons with the training rows for which the model decides as wanted: `wanted` says
    /// for each wanted decision which those are.
    ///
    /// # Errors
    /// When the generator's encoders are not for its rows.
    pub fn new(
        spec: &MmdSpec,
        (rows, width): (&ReferenceRows, usize),
        wanted: &[Wanted<'_>],
        seed: u64,
    ) -> Result<Comparison> {
        let mut classes = BTreeMap::new();
        let Some(space) = space(spec, rows, width)? else {
            return Ok(Comparison { classes });
        };
        let space = Arc::new(space);
        let options = MmdOptions {
            pairs: spec.pairs,
            frequencies: spec.frequencies,
            permutations: spec.permutations,
            seed,
        };
        for (target, wanted) in wanted {
            let trained = rows.trained.of(wanted);
            if (trained.len() / width.max(1)) as u64 >= LEAST_ROWS {
                let reference = Reference::new(Arc::clone(&space), &trained, options)?;
                classes.insert(*target, Class::new(reference, &rows.held_out.of(wanted)));
            }
        }
        Ok(Comparison { classes })
    }

    /// Adds explained rows.
    pub fn add(&mut self, rows: &Rows<'_>) {
        let Some(class) = self.classes.get_mut(&rows.target) else { return };
        for segment in [Some(None), rows.segment.map(Some)].into_iter().flatten() {
            let reference = &class.reference;
            let samples = class.groups.entry(segment.cloned()).or_insert_with(|| Samples {
                all: reference.sample(),
                valid: reference.sample(),
                unchanged: reference.sample(),
            });
            samples.all.add(rows.counterfactuals);
            samples.valid.add(rows.valid);
            samples.unchanged.add(rows.originals);
        }
    }

    /// The figures.
    pub fn finish(&self) -> Vec<MmdRow> {
        let mut found = Vec::new();
        for (target, class) in &self.classes {
            for (segment, samples) in &class.groups {
                let unchanged = class.estimate(&samples.unchanged).map(|estimate| estimate.mmd2);
                for (over, sample) in [("all", &samples.all), ("valid", &samples.valid)] {
                    let Some(estimate) = class.estimate(sample) else { continue };
                    found.push(MmdRow {
                        target: *target,
                        segment: segment.clone(),
                        over: over.to_string(),
                        estimate,
                        held_out: class.held_out.as_ref().map(|estimate| estimate.mmd2),
                        held_out_rows: class.held_out_rows,
                        unchanged,
                    });
                }
            }
        }
        found
    }
}

impl Class {
    fn new(reference: Reference, held_out: &[f32]) -> Class {
        let mut sample = reference.sample();
        sample.add(held_out);
        let held_out_rows = sample.rows();
        let mut class = Class { reference, held_out: None, held_out_rows, groups: BTreeMap::new() };
        class.held_out = class.estimate(&sample);
        class
    }

    fn estimate(&self, sample: &Sample) -> Option<Estimate> {
        if sample.rows() < LEAST_ROWS {
            return None;
        }
        self.reference.estimate(sample)
    }
}

fn space(spec: &MmdSpec, rows: &ReferenceRows, width: usize) -> Result<Option<Space>> {
    let count = RandomEncoder::weight_count(width);
    Ok(match spec.space {
        MmdSpace::None => None,
        MmdSpace::Raw => Some(Space::Raw { width }),
        MmdSpace::Encoder => {
            let kept = rows.encoders.chunks_exact(count).take(spec.encoders);
            let encoders = kept
                .map(|weights| RandomEncoder::from_weights(width, weights))
                .collect::<Result<Vec<_>>>()?;
            if encoders.len() < spec.encoders {
                return Err(Error::input("generator", "keeps too few encoders for this report")
                    .hint("train the generator again"));
            }
            Some(Space::Encoders(encoders))
        }
    })
}

/// The report.
///
/// # Errors
/// Only if there is a bug.
pub fn mmd_table(found: &[MmdRow], names: &Names, space: &str) -> Result<RecordBatch> {
    let mut columns = Columns::new(names);
    for row in found {
        let segment = row.segment.as_ref();
        let name = if segment.is_some() { "segment" } else { "target" };
        columns.group(&Level { name, target: Some(row.target), segment }, names);
        let estimate = &row.estimate;
        columns.text(Some(&row.over));
        columns.text(Some(space));
        columns.number(Some(estimate.mmd2));
        columns.number(Some(estimate.spread));
        columns.number(estimate.interval.map(|interval| interval.low));
        columns.number(estimate.interval.map(|interval| interval.high));
        columns.text(Some(match estimate.estimator {
            Estimator::Exact => "exact",
            Estimator::Fourier => "fourier",
        }));
        columns.number(Some(estimate.error));
        columns.count(estimate.rows);
        columns.count(estimate.reference_rows);
        columns.number(Some(estimate.bandwidth));
        columns.count(estimate.views as u64);
        columns.number(row.held_out);
        columns.count(row.held_out_rows);
        columns.number(row.unchanged);
        columns.number(row.ratio());
        columns.number(estimate.p_value);
    }
    columns.finish(mmd_schema(&names.by))
}
