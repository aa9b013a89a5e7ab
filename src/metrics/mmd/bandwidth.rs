//! How far apart counts as far: the median heuristic, as alibi-detect has it. Only the first reference
//! rows are looked at, so that it does not become the most expensive part.

/// Rows that the median is taken over: half a million distances.
pub(super) const BANDWIDTH_ROWS: usize = 1_000;

/// The lower median of squared distances between different points. Where more than half of all pairs are
/// equal it would be nought and every kernel with it: then the mean of the distances that are not nought
/// stands for it, and one if there are none.
pub(super) fn median_distance(points: &[f32], dimension: usize) -> f64 {
    let count = (points.len() / dimension).min(BANDWIDTH_ROWS);
    let points = &points[..count * dimension];
    let mut distances = Vec::with_capacity(count * count.saturating_sub(1) / 2);
    for row in 0..count {
        let (point, later) = points[row * dimension..].split_at(dimension);
        distances.extend(later.chunks_exact(dimension).map(|other| squared_distance(point, other)));
    }
    if distances.is_empty() {
        return 1.0;
    }
    let middle = (distances.len() - 1) / 2;
    let median = *distances.select_nth_unstable_by(middle, f32::total_cmp).1;
    if median > 0.0 { f64::from(median) } else { mean_of_positive(distances) }
}

/// In `f64`, and rounded once: millions of them are held.
fn squared_distance(left: &[f32], right: &[f32]) -> f32 {
    let gaps = left.iter().zip(right).map(|(one, other)| f64::from(*one) - f64::from(*other));
    gaps.map(|gap| gap * gap).sum::<f64>() as f32
}

fn mean_of_positive(mut distances: Vec<f32>) -> f64 {
    distances.retain(|distance| *distance > 0.0);
    if distances.is_empty() {
        return 1.0;
    }
    // Selecting has left them in an order of its own.
    distances.sort_unstable_by(f32::total_cmp);
    distances.iter().map(|distance| f64::from(*distance)).sum::<f64>() / distances.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_of_two_medians_is_taken() {
        // Distances 1, 2, 3, 5, 6, 8, squared.
        assert_eq!(median_distance(&[0.0, 2.0, 3.0, 8.0], 1), 9.0);
        assert_eq!(median_distance(&[0.0, 2.0], 1), 4.0);
    }

    #[test]
    fn equal_points_leave_the_mean_of_the_others_or_one() {
        assert_eq!(median_distance(&[1.0, 1.0, 1.0, 1.0, 3.0], 1), 4.0);
        assert_eq!(median_distance(&[1.0; 10], 2), 1.0);
        assert_eq!(median_distance(&[1.0, 2.0], 2), 1.0);
    }

    #[test]
    fn only_the_first_rows_count() {
        let mut points: Vec<f32> = (0..BANDWIDTH_ROWS).map(|row| row as f32).collect();
        let expected = median_distance(&points, 1);
        points.extend([1e9; 500]);
        assert_eq!(median_distance(&points, 1), expected);
    }
}
