//! The unbiased estimate of MMD² over all pairs of points: quadratic in time, linear in memory. Sums are
//! added up in the order of the rows, whatever the number of threads.

use rayon::prelude::*;

use super::lanes::{LANES, PackedPoints, add_kernel, total, vectorised};

/// Points of one side that a task takes: one group, so that only in one other group, their own, some
/// come before them and some after.
const ROWS_PER_TASK: usize = LANES;
/// Groups of the other side that are gone through at a time: they stay in the nearest cache, and so few
/// numbers are added in `f32` that their rounding does not show.
const GROUPS_PER_TILE: usize = 16;

/// The Gaussian kernel exp(-d² / median) on points of some dimension.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub(super) dimension: usize,
    /// The median of squared distances, or what stands for it.
    pub(super) median: f64,
}

/// Points made ready for a kernel: scaled so that it is 2^-d².
#[derive(Debug, Clone)]
pub(super) struct ScaledPoints {
    dimension: usize,
    points: Vec<f32>,
    pub(super) packed: PackedPoints,
}

impl Kernel {
    /// σ, where the kernel is exp(-d² / 2σ²).
    pub(super) fn bandwidth(self) -> f64 {
        (self.median / 2.0).sqrt()
    }

    /// Makes points ready.
    pub(super) fn prepare(self, points: &[f32]) -> ScaledPoints {
        let scale = (std::f64::consts::LOG2_E / self.median).sqrt() as f32;
        let points: Vec<f32> = points.iter().map(|number| number * scale).collect();
        // What is infinitely far away adds nothing.
        let packed = PackedPoints::new(&points, self.dimension, f32::INFINITY);
        ScaledPoints { dimension: self.dimension, points, packed }
    }
}

impl ScaledPoints {
    /// How many points there are.
    pub(super) fn count(&self) -> usize {
        self.points.len() / self.dimension
    }

    /// The points one by one.
    pub(super) fn points(&self) -> impl IndexedParallelIterator<Item = &[f32]> {
        self.points.par_chunks_exact(self.dimension)
    }

    /// The kernel's mean over pairs of different points.
    pub(super) fn mean_within(&self) -> f64 {
        let count = self.count() as f64;
        2.0 * self.sum(Pairs::Within) / (count * (count - 1.0))
    }

    /// The kernel's mean over pairs of a point here and a point there.
    pub(super) fn mean_between(&self, other: &ScaledPoints) -> f64 {
        self.sum(Pairs::Between(other)) / (self.count() as f64 * other.count() as f64)
    }

    fn sum(&self, pairs: Pairs<'_>) -> f64 {
        let tasks = self.points.par_chunks(ROWS_PER_TASK * self.dimension).enumerate();
        let sums: Vec<f64> = tasks
            .map(|(task, points)| match pairs {
                Pairs::Between(other) => vectorised(
                    #[inline(always)]
                    || self.sum_to(points, &other.packed, 0),
                ),
                Pairs::Within => vectorised(
                    #[inline(always)]
                    || self.sum_later(points, task),
                ),
            })
            .collect();
        sums.iter().sum()
    }

    /// The kernel's sum over pairs of some points and those in a group from `first` on.
    #[inline(always)]
    fn sum_to(&self, points: &[f32], packed: &PackedPoints, first: usize) -> f64 {
        let mut sum = 0.0;
        for start in (first..packed.groups()).step_by(GROUPS_PER_TILE) {
            let end = (start + GROUPS_PER_TILE).min(packed.groups());
            for point in points.chunks_exact(self.dimension) {
                let mut sums = [0.0; LANES];
                for group in packed.slice(start..end) {
                    add_kernel(&mut sums, point, group);
                }
                sum += total(&sums);
            }
        }
        sum
    }

    /// The kernel's sum over pairs of the points of a group and those that come after them.
    #[inline(always)]
    fn sum_later(&self, points: &[f32], group: usize) -> f64 {
        let mut sum = self.sum_to(points, &self.packed, group + 1);
        let packed_group = self.packed.slice(group..group + 1);
        for (numbers, (index, point)) in
            packed_group.cycle().zip(points.chunks_exact(self.dimension).enumerate())
        {
            let mut sums = [0.0; LANES];
            add_kernel(&mut sums, point, numbers);
            sums[..=index].fill(0.0);
            sum += total(&sums);
        }
        sum
    }
}

/// Which pairs are meant.
#[derive(Debug, Clone, Copy)]
enum Pairs<'a> {
    Within,
    Between(&'a ScaledPoints),
}

/// The unbiased estimate of MMD² from the means of a sample, of the reference and between them.
pub(super) fn discrepancy(
    sample: &ScaledPoints,
    reference: &ScaledPoints,
    reference_mean: f64,
) -> f64 {
    sample.mean_within() + reference_mean - 2.0 * sample.mean_between(reference)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kernel(dimension: usize) -> Kernel {
        Kernel { dimension, median: 1.7 }
    }

    fn plain(left: &[f32], right: &[f32], dimension: usize) -> f64 {
        let mut total = 0.0;
        for (i, one) in left.chunks(dimension).enumerate() {
            for (j, other) in right.chunks(dimension).enumerate() {
                let same = std::ptr::eq(left, right) && i == j;
                let gaps = one.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2));
                total += if same { 0.0 } else { (-gaps.sum::<f64>() / 1.7).exp() };
            }
        }
        total
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_plain_loop(numbers in prop::collection::vec(-2f32..2.0, 6..900), dimension in 1usize..4, cut in 0.1f64..0.9) {
            let count = numbers.len() / dimension;
            let cut = ((count as f64 * cut) as usize).clamp(1, count - 1) * dimension;
            let (left, right) = (&numbers[..cut], &numbers[cut..count * dimension]);
            let (one, other) = (kernel(dimension).prepare(left), kernel(dimension).prepare(right));
            let pairs = (one.count() * other.count()) as f64;
            prop_assert!((one.mean_between(&other) - plain(left, right, dimension) / pairs).abs() < 1e-6);
            if one.count() > 1 {
                let pairs = (one.count() * (one.count() - 1)) as f64;
                prop_assert!((one.mean_within() - plain(left, left, dimension) / pairs).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn many_points_leave_none_out() {
        let points: Vec<f32> =
            (0..5 * 777).map(|index| ((index * 37) % 101) as f32 / 50.0).collect();
        let prepared = kernel(5).prepare(&points);
        let expected = plain(&points, &points, 5) / (777.0 * 776.0);
        assert!((prepared.mean_within() - expected).abs() < 1e-7);
    }

    #[test]
    fn sides_can_be_exchanged() {
        let points: Vec<f32> =
            (0..5 * 300).map(|index| ((index * 61) % 89) as f32 / 40.0).collect();
        let (left, right) = (kernel(5).prepare(&points[..600]), kernel(5).prepare(&points[600..]));
        let there = discrepancy(&left, &right, right.mean_within());
        let back = discrepancy(&right, &left, left.mean_within());
        assert!((there - back).abs() < 1e-7, "{there} {back}");
    }
}
