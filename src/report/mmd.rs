//! How like rows of the target class counterfactuals are, with two yardsticks: rows of the class that were
//! not trained on, and the explained rows left as they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::columns::ReportColumns;
use super::sample::MmdSample;
use super::{Level, Names};
use crate::artefact::ReferenceRows;
use crate::error::{Error, Result};
use crate::job::{MmdSpace, MmdSpec};
use crate::metrics::{
    ComparedRows, Estimate, Estimator, MmdOptions, RandomEncoder, Reference, Segment, Space,
};
use crate::output::mmd_schema;
use arrow::array::RecordBatch;

/// Rows of a class needed on both sides; fewer say nothing.
const LEAST_ROWS: u64 = 10;

/// Comparisons of explained rows with the training rows of their targets, made sample by sample.
pub struct MmdComparison<'a> {
    rows: &'a ReferenceRows,
    width: usize,
    /// None if nothing is to be compared.
    space: Option<Arc<Space>>,
    options: MmdOptions,
    /// By target; none where there is too little to compare with.
    classes: BTreeMap<u32, Option<Class>>,
}

struct Class {
    reference: Reference,
    held_out: Option<Estimate>,
    held_out_rows: u64,
    groups: BTreeMap<Option<Segment>, Samples>,
}

struct Samples {
    all: ComparedRows,
    valid: ComparedRows,
    unchanged: ComparedRows,
}

/// One row of the report.
#[derive(Debug, Clone, PartialEq)]
pub struct MmdRow {
    /// Number of the target.
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

/// Which of the model's decisions are the target; none if every row has a range of its own.
pub type AtTarget<'a> = Option<Box<dyn Fn(f64) -> bool + 'a>>;

impl MmdComparison<'_> {
    /// Prepares comparisons with training rows of so many numbers each.
    ///
    /// # Errors
    /// When the generator's encoders are not for its rows.
    pub fn new<'a>(
        spec: &MmdSpec,
        (rows, width): (&'a ReferenceRows, usize),
        seed: u64,
    ) -> Result<MmdComparison<'a>> {
        let space = space(spec, rows, width)?.map(Arc::new);
        let options = MmdOptions {
            pairs: spec.pairs,
            frequencies: spec.frequencies,
            permutations: spec.permutations,
            seed,
        };
        Ok(MmdComparison { rows, width, space, options, classes: BTreeMap::new() })
    }

    /// Adds explained rows whose segments are those of a list; `at_target` says of a target which decisions of the
    /// model are it. With no list there are no figures by segment.
    ///
    /// # Errors
    /// When the training rows cannot be compared with.
    pub fn add<'t>(
        &mut self,
        sample: &MmdSample,
        segments: Option<&[Segment]>,
        at_target: &dyn Fn(u32) -> AtTarget<'t>,
    ) -> Result<()> {
        let mut groups: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (row, key) in sample.targets.iter().zip(&sample.segments).enumerate() {
            groups.entry((*key.0, *key.1)).or_default().push(row);
        }
        for ((target, segment), rows) in groups {
            if !self.classes.contains_key(&target) {
                let class = self.class(at_target(target))?;
                self.classes.insert(target, class);
            }
            let Some(Some(class)) = self.classes.get_mut(&target) else { continue };
            let valid: Vec<usize> = rows.iter().copied().filter(|row| sample.valid[*row]).collect();
            let (all, valid) = (sample.take(&rows), sample.take(&valid));
            let segment = segments.map(|segments| &segments[segment as usize]);
            for segment in [Some(None), segment.map(Some)].into_iter().flatten() {
                let reference = &class.reference;
                let samples = class.groups.entry(segment.cloned()).or_insert_with(|| Samples {
                    all: reference.sample(),
                    valid: reference.sample(),
                    unchanged: reference.sample(),
                });
                samples.all.add(&all.counterfactuals);
                samples.valid.add(&valid.counterfactuals);
                samples.unchanged.add(&all.originals);
            }
        }
        Ok(())
    }

    /// The training rows for which the model predicts a target, if they are enough.
    fn class(&self, at_target: AtTarget<'_>) -> Result<Option<Class>> {
        let (Some(space), Some(at_target)) = (&self.space, at_target) else { return Ok(None) };
        let trained = self.rows.trained.of(&at_target);
        if ((trained.len() / self.width.max(1)) as u64) < LEAST_ROWS {
            return Ok(None);
        }
        let reference = Reference::new(Arc::clone(space), &trained, self.options)?;
        Ok(Some(Class::new(reference, &self.rows.held_out.of(&at_target))))
    }

    /// The figures.
    pub fn finish(&self) -> Vec<MmdRow> {
        let mut found = Vec::new();
        for (target, class) in &self.classes {
            let Some(class) = class else { continue };
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

    fn estimate(&self, sample: &ComparedRows) -> Option<Estimate> {
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
            let encoders = rows.encoders.chunks_exact(count).take(spec.encoders);
            let encoders = encoders
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
    let mut columns = ReportColumns::new(names);
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
