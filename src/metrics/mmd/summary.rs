//! Mean and standard deviation of a few numbers, as views and blocks are summed up.

/// Mean and sample standard deviation; the latter is zero for a single number.
pub(super) fn mean_and_std(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_number_does_not_spread() {
        assert_eq!(mean_and_std(&[3.0]), (3.0, 0.0));
        assert_eq!(mean_and_std(&[1.0, 3.0]), (2.0, 2f64.sqrt()));
    }
}
