//! What samples are compared with: the rows of a class, the bandwidths that follow from them, and the
//! estimates. How rows are embedded and sums are made is described in the modules beside.

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::bandwidth::{BANDWIDTH_ROWS, median_distance};
use super::exact::{Kernel, discrepancy};
use super::fourier::{CosineSums, Frequencies, SpectralEstimate, stated_error};
use super::permute::{Draws, p_value};
use super::sample::{ComparedRows, View, Views};
use super::summary::mean_and_std;
use super::{Estimate, Estimator, MmdOptions, Space, blocks};
use crate::error::{Error, Result};

/// What an error about the reference starts with.
const SUBJECT: &str = "MMD reference";
/// Fewest frequencies that have a standard error.
const FEWEST_FREQUENCIES: usize = 2;

/// The rows that samples are compared with, and the kernels that follow from them.
#[derive(Debug, Clone)]
pub struct Reference {
    options: MmdOptions,
    rows: ComparedRows,
    bandwidths: Vec<f64>,
    sums: Vec<CosineSums>,
    /// Per view the kernel's mean over pairs of rows, if all pairs can be afforded.
    means: Option<Vec<f64>>,
}

/// A reference in the making, for rows that come in batches.
#[derive(Debug, Clone)]
pub struct ReferenceBuilder {
    space: Arc<Space>,
    options: MmdOptions,
    /// Rows that the bandwidths will be taken from.
    first: Vec<f32>,
    /// All rows, once there are bandwidths.
    rows: Option<ComparedRows>,
}

/// What the views of one estimator say.
struct Opinion {
    estimator: Estimator,
    values: Vec<f64>,
    error: f64,
}

impl ReferenceBuilder {
    /// A reference without rows yet.
    ///
    /// # Errors
    /// When space or options make no sense.
    pub fn new(space: Arc<Space>, options: MmdOptions) -> Result<ReferenceBuilder> {
        space.check()?;
        if options.frequencies < FEWEST_FREQUENCIES {
            let found = options.frequencies;
            let problem = format!("{found} frequencies, expected at least {FEWEST_FREQUENCIES}");
            return Err(Error::input(SUBJECT, problem));
        }
        Ok(ReferenceBuilder { space, options, first: Vec::new(), rows: None })
    }

    /// Adds rows, given one after the other.
    ///
    /// # Errors
    /// When they are not whole rows, or not finite.
    pub fn add(&mut self, rows: &[f32]) -> Result<()> {
        let width = self.space.width();
        if !rows.len().is_multiple_of(width) {
            let problem = format!("{} numbers, expected rows of {width}", rows.len());
            return Err(Error::input(SUBJECT, problem));
        }
        if !rows.iter().all(|number| number.is_finite()) {
            return Err(Error::input(SUBJECT, "rows that are not finite, expected numbers"));
        }
        if let Some(all) = &mut self.rows {
            all.add(rows);
            return Ok(());
        }
        let missing = BANDWIDTH_ROWS * width - self.first.len();
        let (first, later) = rows.split_at(missing.min(rows.len()));
        self.first.extend_from_slice(first);
        if first.len() == missing {
            self.begin()?.add(later);
        }
        Ok(())
    }

    /// The reference.
    ///
    /// # Errors
    /// When there are fewer than two rows, or they are not finite.
    pub fn finish(mut self) -> Result<Reference> {
        let rows = match self.rows.take() {
            Some(rows) => rows,
            None => self.begin()?.clone(),
        };
        let kernels = || rows.views.list.iter().map(|view| view.kernel);
        let mean =
            |(view, kernel): (usize, Kernel)| kernel.prepare(rows.points(view)).mean_within();
        let means = rows.is_whole().then(|| kernels().enumerate().map(mean).collect());
        let bandwidths = kernels().map(Kernel::bandwidth).collect();
        Ok(Reference { options: self.options, bandwidths, sums: rows.sums(), means, rows })
    }

    /// Fixes the bandwidths by the rows so far.
    fn begin(&mut self) -> Result<&mut ComparedRows> {
        let views = fix_views(&self.space, &self.first, self.options)?;
        let mut rows = ComparedRows::new(Arc::new(views), self.options.pairs.isqrt());
        rows.add(&std::mem::take(&mut self.first));
        Ok(self.rows.insert(rows))
    }
}

impl Reference {
    /// The reference of rows that are all there.
    ///
    /// # Errors
    /// When there are fewer than two whole, finite rows, or space and options make no sense.
    pub fn new(space: Arc<Space>, rows: &[f32], options: MmdOptions) -> Result<Reference> {
        let mut builder = ReferenceBuilder::new(space, options)?;
        builder.add(rows)?;
        builder.finish()
    }

    /// Rows it was made of.
    pub fn rows(&self) -> u64 {
        self.rows.rows()
    }

    /// Per view σ of the kernel exp(-d² / 2σ²).
    pub fn bandwidths(&self) -> &[f64] {
        &self.bandwidths
    }

    /// A sample without rows yet.
    pub fn sample(&self) -> ComparedRows {
        // Both sides within the root of the pairs: then so are pairs within either, and between them.
        let limit = self.means.as_ref().map_or(0, |_| self.options.pairs.isqrt());
        ComparedRows::new(Arc::clone(&self.rows.views), limit)
    }

    /// How far a sample, made by this reference, is from it; none for fewer than two rows.
    pub fn estimate(&self, sample: &ComparedRows) -> Option<Estimate> {
        debug_assert!(Arc::ptr_eq(&self.rows.views, &sample.views), "another reference's sample");
        if sample.rows() < 2 {
            return None;
        }
        let opinion = match &self.means {
            Some(means) if sample.is_whole() => self.compare_pairs(sample, means),
            _ => self.compare_sums(sample),
        };
        let (mmd2, spread) = mean_and_std(&opinion.values);
        let draws = Draws { count: self.options.permutations, seed: self.options.seed };
        Some(Estimate {
            mmd2,
            spread,
            views: opinion.values.len(),
            interval: blocks::interval(mmd2, sample, &self.rows),
            error: opinion.error,
            estimator: opinion.estimator,
            rows: sample.rows(),
            reference_rows: self.rows(),
            bandwidth: mean_and_std(&self.bandwidths).0,
            p_value: (draws.count > 0).then(|| p_value(sample, &self.rows, draws)),
        })
    }

    fn compare_pairs(&self, sample: &ComparedRows, means: &[f64]) -> Opinion {
        let compare = |(view, mean): (usize, &f64)| {
            let kernel = sample.views.list[view].kernel;
            let reference = kernel.prepare(self.rows.points(view));
            discrepancy(&kernel.prepare(sample.points(view)), &reference, *mean)
        };
        let values = means.iter().enumerate().map(compare).collect();
        Opinion { estimator: Estimator::Exact, values, error: 0.0 }
    }

    fn compare_sums(&self, sample: &ComparedRows) -> Opinion {
        let pairs = sample.sums().into_iter().zip(&self.sums);
        let found: Vec<SpectralEstimate> =
            pairs.map(|(of_view, reference)| of_view.compare(reference)).collect();
        let values = found.iter().map(|found| found.mmd2).collect();
        Opinion { estimator: Estimator::Fourier, values, error: stated_error(&found) }
    }
}

/// Fixes bandwidths and frequencies of all views by the first rows of the reference.
fn fix_views(space: &Arc<Space>, first: &[f32], options: MmdOptions) -> Result<Views> {
    let rows = first.len() / space.width();
    if rows < 2 {
        return Err(Error::input(SUBJECT, format!("{rows} rows, expected at least 2")));
    }
    let dimension = space.dimension();
    let median = |view| median_distance(&space.embed_here(view, first), dimension);
    let medians: Vec<f64> = (0..space.views()).into_par_iter().map(median).collect();
    if !medians.iter().all(|median| median.is_finite()) {
        return Err(Error::input(SUBJECT, "distances too large, expected standardised rows"));
    }
    let mut random = ChaCha8Rng::seed_from_u64(options.seed);
    let view = |median: f64| {
        let kernel = Kernel { dimension, median };
        let frequencies = Frequencies::draw(kernel, options.frequencies, &mut random);
        View { kernel, frequencies }
    };
    let list = medians.into_iter().map(view).collect();
    Ok(Views { space: Arc::clone(space), list })
}
