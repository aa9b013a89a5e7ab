//! The estimates as a whole, against NumPy, against each other and against what must hold.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

use super::*;

const WIDTH: usize = 6;

#[derive(Deserialize)]
struct Oracle {
    width: usize,
    sample: Vec<f32>,
    reference: Vec<f32>,
    encoders: Vec<OracleEncoder>,
    raw: OracleView,
}

#[derive(Deserialize)]
struct OracleEncoder {
    weights: Vec<f32>,
    embedded: Vec<f32>,
    #[serde(flatten)]
    view: OracleView,
}

#[derive(Deserialize)]
struct OracleView {
    bandwidth: f64,
    mmd2: f64,
}

fn oracle() -> Oracle {
    serde_json::from_str(include_str!("../../../tests/oracle/mmd.json")).unwrap()
}

/// Rows uniform around a centre.
fn rows(count: usize, centre: f32, seed: u64) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..count * WIDTH).map(|_| centre + random.random_range(-2.0..2.0f32)).collect()
}

fn encoders(count: usize) -> Arc<Space> {
    let mut random = ChaCha8Rng::seed_from_u64(77);
    let encoders = (0..count).map(|_| RandomEncoder::draw(WIDTH, &mut random)).collect();
    Arc::new(Space::Encoders(encoders))
}

fn options(pairs: u64) -> MmdOptions {
    MmdOptions { pairs, seed: 9, ..MmdOptions::default() }
}

fn estimate(reference: &Reference, rows: &[f32]) -> Estimate {
    let mut sample = reference.sample();
    sample.add(rows);
    reference.estimate(&sample).unwrap()
}

fn assert_close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} instead of {expected}");
}

#[test]
fn embeddings_are_those_of_numpy() {
    let oracle = oracle();
    for known in &oracle.encoders {
        let encoder = RandomEncoder::from_weights(oracle.width, &known.weights).unwrap();
        let found = encoder.embed(&oracle.sample);
        assert_eq!(found.len(), known.embedded.len());
        for (found, expected) in found.iter().zip(&known.embedded) {
            assert_close(f64::from(*found), f64::from(*expected), 1e-6);
        }
    }
}

#[test]
fn bandwidths_and_estimates_are_those_of_numpy() {
    let oracle = oracle();
    let encoder =
        |known: &OracleEncoder| RandomEncoder::from_weights(oracle.width, &known.weights).unwrap();
    let encoders = Space::Encoders(oracle.encoders.iter().map(encoder).collect());
    let views: Vec<&OracleView> = oracle.encoders.iter().map(|known| &known.view).collect();
    let raw = Space::Raw { width: oracle.width };
    for (space, views) in [(encoders, views), (raw, vec![&oracle.raw])] {
        let reference =
            Reference::new(Arc::new(space), &oracle.reference, MmdOptions::default()).unwrap();
        for (found, view) in reference.bandwidths().iter().zip(&views) {
            assert_close(*found, view.bandwidth, 1e-6);
        }
        let found = estimate(&reference, &oracle.sample);
        let mean = views.iter().map(|view| view.mmd2).sum::<f64>() / views.len() as f64;
        assert_close(found.mmd2, mean, 1e-6);
        assert_eq!((found.estimator, found.error), (Estimator::Exact, 0.0));
        assert_eq!((found.views, found.rows, found.reference_rows), (views.len(), 61, 83));
    }
}

#[test]
fn the_fourier_estimate_is_within_its_stated_error() {
    let (space, count) = (encoders(3), 2000);
    let (class, shifted) = (rows(count, 0.0, 1), rows(count, 0.3, 2));
    let exact = Reference::new(Arc::clone(&space), &class, options(10_000_000)).unwrap();
    let exact = estimate(&exact, &shifted);
    assert_eq!(exact.estimator, Estimator::Exact);
    let within = (0..100).filter(|seed| {
        let options = MmdOptions { seed: *seed, ..options(0) };
        let reference = Reference::new(Arc::clone(&space), &class, options).unwrap();
        let found = estimate(&reference, &shifted);
        assert_eq!(found.estimator, Estimator::Fourier);
        assert!(found.error < exact.mmd2, "{} beside {}", found.error, exact.mmd2);
        (found.mmd2 - exact.mmd2).abs() <= found.error
    });
    let within = within.count();
    assert!(within >= 95, "{within} of 100");
}

#[test]
fn how_rows_are_cut_up_does_not_matter() {
    let (class, shifted) = (rows(700, 0.0, 3), rows(900, 0.5, 4));
    for pairs in [0, 1_000_000] {
        let reference = Reference::new(encoders(2), &class, options(pairs)).unwrap();
        let whole = estimate(&reference, &shifted);
        let (mut merged, mut last) = (reference.sample(), reference.sample());
        merged.add(&shifted[..100 * WIDTH]);
        merged.add(&shifted[100 * WIDTH..333 * WIDTH]);
        last.add(&shifted[333 * WIDTH..]);
        merged.merge(&last);
        let merged = reference.estimate(&merged).unwrap();
        assert_close(merged.mmd2, whole.mmd2, 1e-7);
        assert_close(merged.error, whole.error, 1e-7);
        assert_eq!(merged.rows, whole.rows);
        let ends = |found: &Estimate| found.interval.unwrap();
        assert_close(ends(&merged).low, ends(&whole).low, 2e-7);
    }
}

#[test]
fn a_reference_in_batches_is_the_same_reference() {
    let class = rows(5000, 0.0, 5);
    for pairs in [0, 400_000_000] {
        let whole = Reference::new(encoders(2), &class, options(pairs)).unwrap();
        let mut builder = ReferenceBuilder::new(encoders(2), options(pairs)).unwrap();
        for batch in class.chunks(333 * WIDTH) {
            builder.add(batch).unwrap();
        }
        let batched = builder.finish().unwrap();
        assert_eq!(batched.bandwidths(), whole.bandwidths());
        assert_eq!(batched.rows(), 5000);
        let shifted = rows(400, 0.2, 6);
        assert_close(estimate(&batched, &shifted).mmd2, estimate(&whole, &shifted).mmd2, 1e-7);
    }
}

#[test]
fn beyond_the_limit_points_turn_into_sums() {
    let class = rows(1000, 0.0, 7);
    let reference = Reference::new(encoders(2), &class, options(1_000_000)).unwrap();
    let shifted = rows(2000, 0.4, 8);
    let (within, beyond) = (&shifted[..1000 * WIDTH], &shifted[..1001 * WIDTH]);
    let exact = estimate(&reference, within);
    let fourier = estimate(&reference, beyond);
    assert_eq!((exact.estimator, fourier.estimator), (Estimator::Exact, Estimator::Fourier));
    assert!(fourier.error > 0.0 && (exact.mmd2 - fourier.mmd2).abs() < 2.0 * fourier.error);

    // Any side of a merge may be the one that is beyond, or both together.
    let whole = estimate(&reference, &shifted);
    for cut in [1, 600, 999, 1001, 1500] {
        let (mut first, mut second) = (reference.sample(), reference.sample());
        first.add(&shifted[..cut * WIDTH]);
        second.add(&shifted[cut * WIDTH..]);
        first.merge(&second);
        let merged = reference.estimate(&first).unwrap();
        assert_close(merged.mmd2, whole.mmd2, 1e-7);
        assert_close(merged.interval.unwrap().low, whole.interval.unwrap().low, 2e-7);
    }
}

#[test]
fn many_rows_keep_only_the_first_points() {
    let reference = Reference::new(encoders(1), &rows(50, 0.0, 9), options(0)).unwrap();
    let shifted = rows(40_000, 0.4, 10);
    let mut sample = reference.sample();
    sample.add(&shifted);
    assert_eq!((sample.rows(), sample.held(usize::MAX)), (40_000, blocks::BLOCK_ROWS));
    let mut first = reference.sample();
    first.add(&shifted[..blocks::BLOCK_ROWS * WIDTH]);
    assert_eq!(sample.points(0), first.points(0));
    sample.merge(&first);
    assert_eq!(sample.held(usize::MAX), blocks::BLOCK_ROWS);
}

#[test]
fn halves_of_one_distribution_do_not_differ() {
    for pairs in [0, 400_000_000] {
        let reference = Reference::new(encoders(4), &rows(3000, 0.0, 11), options(pairs)).unwrap();
        let same = estimate(&reference, &rows(3000, 0.0, 12));
        let shifted = estimate(&reference, &rows(3000, 0.5, 13));
        assert!(same.mmd2.abs() < 1e-3, "{same:?}");
        assert!(shifted.mmd2 > 20.0 * same.mmd2.abs(), "{shifted:?}");
        let (same, shifted) = (same.interval.unwrap(), shifted.interval.unwrap());
        assert!(same.low <= 0.0 && 0.0 <= same.high && shifted.low > same.high);
    }
}

#[test]
fn p_values_tell_a_shift_from_chance() {
    let options = MmdOptions { permutations: 199, ..options(400_000_000) };
    let reference = Reference::new(encoders(2), &rows(300, 0.0, 14), options).unwrap();
    let shifted = estimate(&reference, &rows(200, 0.5, 15)).p_value.unwrap();
    assert_close(shifted, 1.0 / 200.0, 0.0);
    let p_values: Vec<f64> = (0..20)
        .map(|seed| estimate(&reference, &rows(200, 0.0, 100 + seed)).p_value.unwrap())
        .collect();
    assert!(p_values.iter().all(|p_value| (1.0 / 200.0..=1.0).contains(p_value)));
    assert!(p_values.iter().filter(|p_value| **p_value < 0.1).count() <= 6, "{p_values:?}");
}

#[test]
fn threads_do_not_change_a_bit() {
    let (class, shifted) = (rows(2500, 0.0, 16), rows(1777, 0.2, 17));
    let estimates = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            [0, 400_000_000].map(|pairs| {
                let options = MmdOptions { permutations: 20, ..options(pairs) };
                let reference = Reference::new(encoders(2), &class, options).unwrap();
                (estimate(&reference, &shifted), reference.bandwidths().to_vec())
            })
        })
    };
    assert_eq!(estimates(1), estimates(3));
}

#[test]
fn few_rows_have_no_interval_and_a_single_one_no_estimate() {
    let reference = Reference::new(encoders(1), &rows(20, 0.0, 18), options(10_000)).unwrap();
    let few = estimate(&reference, &rows(9, 0.0, 19));
    assert_eq!((few.interval, few.spread, few.p_value), (None, 0.0, None));
    assert!(estimate(&reference, &rows(10, 0.0, 19)).interval.is_some());
    let mut single = reference.sample();
    single.add(&rows(1, 0.0, 20));
    assert_eq!(reference.estimate(&single), None);
}

#[test]
fn equal_rows_are_compared_all_the_same() {
    let reference = Reference::new(encoders(1), &[1.0; 10 * WIDTH], options(10_000)).unwrap();
    assert_eq!(reference.bandwidths(), [0.5f64.sqrt()]);
    assert_close(estimate(&reference, &[1.0; 10 * WIDTH]).mmd2, 0.0, 1e-9);
}

#[test]
fn a_reference_that_cannot_be_used_says_why() {
    let refused = |space: Arc<Space>, rows: &[f32], options| {
        Reference::new(space, rows, options).unwrap_err().to_string()
    };
    let (plain, space) = (options(100), encoders(1));
    let raw = || Arc::new(Space::Raw { width: 0 });
    assert_eq!(
        refused(Arc::clone(&space), &rows(1, 0.0, 21), plain),
        "MMD reference: 1 rows, expected at least 2"
    );
    assert_eq!(
        refused(Arc::clone(&space), &[0.0; 13], plain),
        "MMD reference: 13 numbers, expected rows of 6"
    );
    let odd = refused(Arc::clone(&space), &[f32::NAN; 60], plain);
    assert_eq!(odd, "MMD reference: rows that are not finite, expected numbers");
    let few = refused(space, &[0.0; 12], MmdOptions { frequencies: 1, ..plain });
    assert_eq!(few, "MMD reference: 1 frequencies, expected at least 2");
    assert!(refused(raw(), &[], plain).starts_with("MMD space: width 0"));
}
