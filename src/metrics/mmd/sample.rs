//! Rows on their way to a comparison: their points as long as all pairs can be afforded, beyond that the
//! sums of the Fourier estimate and the first points only. What the rows are compared with, and how, is
//! the reference's business.

use std::sync::Arc;

use rayon::prelude::*;

use super::Space;
use super::blocks::BLOCK_ROWS;
use super::exact::Kernel;
use super::fourier::{CosineSums, Frequencies};
use super::permute::PERMUTED_ROWS;

/// Rows that are embedded at a time: bounds what a long call needs beside its rows.
const ROWS_PER_STEP: usize = 8_192;
/// Rows that one thread takes at a time: few enough to be added up in `f32` lanes.
const ROWS_PER_TASK: usize = 1_024;
/// Points that are kept when not all can be: as many as blocks or permutations use.
const KEPT_ROWS: usize = if BLOCK_ROWS > PERMUTED_ROWS { BLOCK_ROWS } else { PERMUTED_ROWS };

/// One way to look at rows, with all that is fixed for it.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) kernel: Kernel,
    pub(super) frequencies: Frequencies,
}

/// All ways to look at rows.
#[derive(Debug)]
pub(super) struct Views {
    pub(super) space: Arc<Space>,
    pub(super) list: Vec<View>,
}

/// Rows to be compared with a reference, which makes it ([`Reference::sample`](super::Reference::sample)).
#[derive(Debug, Clone)]
pub struct ComparedRows {
    pub(super) views: Arc<Views>,
    /// Most rows of which all points are held.
    limit: u64,
    rows: u64,
    /// Per view the points of the first rows, one after the other.
    points: Vec<Vec<f32>>,
    /// Per view the sums over all rows, once there are more than the limit.
    sums: Option<Vec<CosineSums>>,
}

/// What becomes of some rows in one view.
struct ViewPart {
    points: Vec<f32>,
    sums: Option<CosineSums>,
}

impl ComparedRows {
    pub(super) fn new(views: Arc<Views>, limit: u64) -> ComparedRows {
        let points = vec![Vec::new(); views.list.len()];
        ComparedRows { views, limit, rows: 0, points, sums: None }
    }

    /// Adds rows of finite numbers, given one after the other; an incomplete one at the end is left out.
    pub fn add(&mut self, rows: &[f32]) {
        let width = self.views.space.width();
        debug_assert_eq!(rows.len() % width, 0, "rows of another width");
        for step in rows.chunks(ROWS_PER_STEP * width) {
            self.count((step.len() / width) as u64);
            let tiles: Vec<&[f32]> = step.chunks(ROWS_PER_TASK * width).collect();
            let views = self.points.len();
            let parts: Vec<ViewPart> = (0..tiles.len() * views)
                .into_par_iter()
                .map(|task| self.look(task % views, tiles[task / views]))
                .collect();
            for (task, part) in parts.into_iter().enumerate() {
                self.take(task % views, &part);
            }
        }
    }

    /// Adds the rows of another sample of the same reference, after the own ones.
    pub fn merge(&mut self, other: &ComparedRows) {
        debug_assert!(Arc::ptr_eq(&self.views, &other.views), "samples of different references");
        self.count(other.rows);
        let sums = self.sums.is_some().then(|| other.sums());
        for (view, points) in other.points.iter().enumerate() {
            let sums = sums.as_ref().map(|sums| sums[view].clone());
            self.take(view, &ViewPart { points: points.clone(), sums });
        }
    }

    /// Rows added so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether the points of all rows are held.
    pub(super) fn is_whole(&self) -> bool {
        self.sums.is_none()
    }

    /// How many points are held, at most so many.
    pub(super) fn held(&self, most: usize) -> usize {
        let held = |(points, view): (&Vec<f32>, &View)| points.len() / view.kernel.dimension;
        self.points.iter().zip(&self.views.list).map(held).next().unwrap_or(0).min(most)
    }

    /// The points of a view that are held: those of all rows, or of the first.
    pub(super) fn points(&self, view: usize) -> &[f32] {
        &self.points[view]
    }

    /// The sums over all rows, per view.
    pub(super) fn sums(&self) -> Vec<CosineSums> {
        self.sums.clone().unwrap_or_else(|| self.sum_up())
    }

    /// Counts rows to come; with too many of them, points turn into sums.
    fn count(&mut self, rows: u64) {
        self.rows += rows;
        if self.is_whole() && self.rows > self.limit {
            self.sums = Some(self.sum_up());
            for (points, view) in self.points.iter_mut().zip(&self.views.list) {
                points.truncate(KEPT_ROWS * view.kernel.dimension);
                points.shrink_to_fit();
            }
        }
    }

    fn sum_up(&self) -> Vec<CosineSums> {
        let sum = |(points, view): (&Vec<f32>, &View)| {
            let tiles = points.par_chunks(ROWS_PER_TASK * view.kernel.dimension);
            let parts: Vec<CosineSums> = tiles.map(|tile| view.frequencies.sums(tile)).collect();
            let mut total = view.frequencies.nothing();
            parts.iter().for_each(|part| total.merge(part));
            total
        };
        self.points.iter().zip(&self.views.list).map(sum).collect()
    }

    /// Looks at some rows in one view.
    fn look(&self, view: usize, rows: &[f32]) -> ViewPart {
        let points = self.views.space.embed_here(view, rows);
        let sums = self.sums.as_ref().map(|_| self.views.list[view].frequencies.sums(&points));
        ViewPart { points, sums }
    }

    fn take(&mut self, view: usize, part: &ViewPart) {
        let kept_points = &mut self.points[view];
        let mut capacity = usize::MAX;
        if let Some((sums, more)) = self.sums.as_mut().zip(part.sums.as_ref()) {
            sums[view].merge(more);
            capacity = KEPT_ROWS * self.views.list[view].kernel.dimension - kept_points.len();
        }
        kept_points.extend_from_slice(&part.points[..part.points.len().min(capacity)]);
    }
}
