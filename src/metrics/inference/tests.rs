use proptest::prelude::*;
use serde::Deserialize;

use super::*;

/// Numbers of SciPy and statsmodels, made by `tests/python/audit_statistics.py`.
#[derive(Deserialize)]
struct Oracle {
    shares: Vec<ShareCase>,
    means: Vec<MeanCase>,
    student: Vec<[f64; 2]>,
    tails: Vec<[f64; 3]>,
    curves: Vec<CurveCase>,
    adjusted: Vec<AdjustedCase>,
}

#[derive(Deserialize)]
struct ShareCase {
    one: [u64; 2],
    other: [u64; 2],
    low: f64,
    high: f64,
    p: f64,
}

#[derive(Deserialize)]
struct MeanCase {
    one: Vec<f64>,
    other: Vec<f64>,
    low: f64,
    high: f64,
    p: f64,
}

#[derive(Deserialize)]
struct CurveCase {
    difference: f64,
    counts: [u64; 2],
    p: f64,
}

#[derive(Deserialize)]
struct AdjustedCase {
    p: Vec<f64>,
    holm: Vec<f64>,
    by: Vec<f64>,
}

fn oracle() -> Oracle {
    let text = include_str!("../../../tests/oracle/audit_statistics.json");
    serde_json::from_str(text).expect("an oracle")
}

fn near(found: f64, expected: f64) {
    let error = (found - expected).abs();
    let relative = error / expected.abs().max(1e-300);
    // Beyond 1e-290 numbers lose their last bits.
    let tiny = expected.abs() < 1e-290 && error < 1e-290;
    assert!(relative <= 1e-9 || tiny, "{found:e} instead of {expected:e}");
}

fn mean(numbers: &[f64]) -> Mean {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let squares = numbers.iter().map(|number| (number - mean) * (number - mean)).sum();
    Mean { count: numbers.len() as u64, mean, squares }
}

#[test]
fn shares_are_compared_as_statsmodels_does() {
    let cases = oracle().shares;
    assert!(cases.len() > 10);
    for case in cases {
        let share = |[part, whole]: [u64; 2]| Share { part, whole };
        let found = compare_shares(share(case.one), share(case.other)).expect("two shares");
        let interval = found.interval.expect("an interval");
        // A bound near zero is a difference of two numbers that are not.
        assert!((interval.low - case.low).abs() < 1e-12, "{interval:?}");
        assert!((interval.high - case.high).abs() < 1e-12, "{interval:?}");
        near(found.p.expect("a p-value"), case.p);
    }
}

#[test]
fn means_are_compared_as_scipy_does() {
    let cases = oracle().means;
    assert!(cases.len() > 5);
    for case in cases {
        let found = compare_means(mean(&case.one), mean(&case.other)).expect("two means");
        let interval = found.interval.expect("an interval");
        let scale = interval.high - interval.low;
        assert!((interval.low - case.low).abs() < 1e-9 * scale, "{interval:?} {}", case.low);
        assert!((interval.high - case.high).abs() < 1e-9 * scale, "{interval:?} {}", case.high);
        near(found.p.expect("a p-value"), case.p);
    }
}

#[test]
fn distributions_are_those_of_scipy() {
    let Oracle { student, tails, curves, .. } = oracle();
    assert!(student.len() > 10 && tails.len() > 50 && curves.len() > 10);
    for [freedom, quantile] in student {
        near(student_975(freedom), quantile);
    }
    for [freedom, t, tail] in tails {
        let freedom = if freedom == 0.0 { f64::INFINITY } else { freedom };
        near(student_two_sided(t, freedom), tail);
    }
    for case in curves {
        let found = compare_curves(case.difference, (case.counts[0], case.counts[1]));
        near(found.expect("curves").p.expect("a p-value"), case.p);
    }
}

#[test]
fn p_values_are_adjusted_as_statsmodels_does() {
    for case in oracle().adjusted {
        holm(&case.p).iter().zip(&case.holm).for_each(|(found, expected)| near(*found, *expected));
        let found = benjamini_yekutieli(&case.p);
        found.iter().zip(&case.by).for_each(|(found, expected)| near(*found, *expected));
    }
}

#[test]
fn nothing_is_compared_with_nothing() {
    let (none, some) = (Share { part: 0, whole: 0 }, Share { part: 1, whole: 2 });
    assert_eq!(compare_shares(none, some), None);
    let one = Mean { count: 1, mean: 2.0, squares: 0.0 };
    assert_eq!(compare_means(one, one), None);
    assert!(holm(&[]).is_empty() && benjamini_yekutieli(&[]).is_empty());
}

#[test]
fn what_does_not_vary_is_surely_the_same_or_surely_not() {
    let of = |mean: f64| Mean { count: 5, mean, squares: 0.0 };
    let same = compare_means(of(2.0), of(2.0)).expect("means");
    assert_eq!((same.difference, same.p), (0.0, Some(1.0)));
    let apart = compare_means(of(4.0), of(2.0)).expect("means");
    assert_eq!((apart.interval, apart.p), (Some(Interval { low: 2.0, high: 2.0 }), Some(0.0)));
    let all = compare_shares(Share { part: 9, whole: 9 }, Share { part: 4, whole: 4 });
    assert_eq!(all.expect("shares").p, Some(1.0));
}

proptest! {
    #[test]
    fn shares_compared_the_other_way_round_are_mirrored(a in 0u64..500, n in 1u64..500, b in 0u64..500, m in 1u64..500) {
        let (one, other) = (Share { part: a.min(n), whole: n }, Share { part: b.min(m), whole: m });
        let (there, back) = (compare_shares(one, other).unwrap(), compare_shares(other, one).unwrap());
        let (there_in, back_in) = (there.interval.unwrap(), back.interval.unwrap());
        prop_assert!((there_in.low + back_in.high).abs() < 1e-12);
        prop_assert!((there.p.unwrap() - back.p.unwrap()).abs() < 1e-12);
        prop_assert!(there_in.low <= there.difference && there.difference <= there_in.high);
        prop_assert!((-1.0..=1.0).contains(&there_in.low) && (-1.0..=1.0).contains(&there_in.high));
    }

    #[test]
    fn adjusting_keeps_the_order_and_never_lowers(p in prop::collection::vec(0.0f64..=1.0, 1..40)) {
        for adjusted in [holm(&p), benjamini_yekutieli(&p)] {
            for (left, (raw, found)) in p.iter().zip(&adjusted).enumerate() {
                prop_assert!(raw <= found && *found <= 1.0);
                for (other, more) in p.iter().zip(&adjusted).skip(left) {
                    prop_assert!((raw <= other) == (found <= more) || found == more);
                }
            }
        }
    }
}
