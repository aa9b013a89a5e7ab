//! Rows on which a recognised model is held against ONNX Runtime before it is used: values of the schema, values
//! on both sides of the model's thresholds, nulls, and categories that nobody has seen.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch};
use arrow::error::ArrowError;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::inputs::FeatureInputs;
use super::scorer::Native;
use crate::feature::{Feature, FeatureKind, from_numbers, from_texts};
use crate::predictor::{Outcome, PredictorColumns, Scores};

/// Thresholds of a cell on whose sides rows are tried, about.
const MOST_THRESHOLDS: usize = 256;
/// A category that no model was trained with.
const STRANGE: &str = "\u{fffd} unseen";
/// The same for columns of whole numbers that hold categories.
const STRANGE_NUMBER: &str = "97";

/// How far from ordinary rows a batch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Wildness {
    /// Values as the schema lists them.
    Tame,
    /// Also nulls and unseen categories.
    Wild,
}

/// Generates batches of a table's columns.
#[derive(Debug)]
pub(in super::super) struct Trials<'c> {
    columns: &'c PredictorColumns,
    /// Per feature, numbers to try.
    numbers: Vec<Vec<f64>>,
    random: ChaCha8Rng,
}

impl<'c> Trials<'c> {
    pub(in super::super) fn new(
        native: &Native,
        inputs: &FeatureInputs,
        columns: &'c PredictorColumns,
    ) -> Trials<'c> {
        let mut random = ChaCha8Rng::seed_from_u64(0);
        let features = columns.features.features.iter().enumerate();
        let numbers = features.map(|(at, feature)| {
            let thresholds = native.some_breakpoints(inputs, at, MOST_THRESHOLDS);
            let thresholds = thresholds.unwrap_or_default();
            numbers(feature, &thresholds, &mut random)
        });
        let numbers = numbers.collect();
        Trials { columns, numbers, random }
    }

    /// A batch of that many rows.
    pub(in super::super) fn batch(
        &mut self,
        rows: usize,
        wildness: Wildness,
    ) -> Result<RecordBatch, ArrowError> {
        let fields = self.columns.schema.fields().iter();
        let columns = fields.enumerate().map(|(at, field)| {
            let made = match &self.columns.features.features[at].kind {
                FeatureKind::Numeric(_) => {
                    let numbers = self.column_of_numbers(at, (rows, wildness));
                    from_numbers(&numbers, field.data_type())
                }
                FeatureKind::Categorical(categorical) => {
                    let strange = match field.data_type().is_integer() {
                        true => STRANGE_NUMBER,
                        false => STRANGE,
                    };
                    let known: Vec<&str> = categorical.values.iter().map(String::as_str).collect();
                    let texts: Vec<Option<&str>> = (0..rows)
                        .map(|_| match self.random.random_range(0..16) {
                            0 if wildness == Wildness::Wild => None,
                            1 if wildness == Wildness::Wild => Some(strange),
                            _ => known.choose(&mut self.random).copied(),
                        })
                        .collect();
                    from_texts(texts.into_iter(), field.data_type())
                }
            };
            made.map_err(|error| ArrowError::CastError(error.to_string()))
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        // Nulls stand in columns that are said to have none, too: their absence is checked elsewhere.
        let fields = self.columns.schema.fields().iter();
        let fields: Vec<_> =
            fields.map(|field| Arc::new(field.as_ref().clone().with_nullable(true))).collect();
        RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns)
    }

    fn column_of_numbers(
        &mut self,
        at: usize,
        (rows, wildness): (usize, Wildness),
    ) -> Float64Array {
        let numbers = &self.numbers[at];
        let number = |_| match self.random.random_range(0..16) {
            0 if wildness == Wildness::Wild => None,
            _ => numbers.choose(&mut self.random).copied(),
        };
        (0..rows).map(number).collect()
    }
}

/// Numbers of a feature: both sides of thresholds, and some of its range.
fn numbers(feature: &Feature, thresholds: &[f64], random: &mut impl Rng) -> Vec<f64> {
    let range = feature.numeric().and_then(|numeric| numeric.range);
    let of_trees = thresholds.first().copied().zip(thresholds.last().copied());
    let (low, high) = range.or(of_trees).unwrap_or((-100.0, 100.0));
    let (low, high) = (low.max(-1e12), high.min(1e12));
    let spread = (high - low).max(1.0);
    let mut numbers: Vec<f64> = (0..256)
        .map(|_| low - spread / 8.0 + random.random::<f64>() * spread * 1.25)
        .flat_map(|number| [number, number.round()])
        .collect();
    for threshold in thresholds {
        numbers.extend([*threshold, threshold.next_up(), threshold.next_down()]);
    }
    numbers
}

/// The first row about which two engines differ, with what differs.
pub(in super::super) fn difference(
    native: &Scores,
    runtime: &Scores,
    tolerance: f64,
) -> Option<String> {
    let failed = |scores: &Scores| -> Vec<usize> {
        scores.failures.iter().map(|failure| failure.row).collect()
    };
    if failed(native) != failed(runtime) {
        return Some("other rows fail".to_string());
    }
    let pairs = match (&native.outcome, &runtime.outcome) {
        (Outcome::Values(one), Outcome::Values(two)) => (Some(one), Some(two)),
        (
            Outcome::Classes { labels: one, probabilities: ones },
            Outcome::Classes { labels: two, probabilities: twos },
        ) => {
            let other = one.iter().zip(two).position(|(one, two)| one != two);
            if let Some(row) = other {
                return Some(format!("row {row} has another label"));
            }
            (ones.as_ref(), twos.as_ref())
        }
        _ => return Some("one gives labels, the other numbers".to_string()),
    };
    let (Some(ones), Some(twos)) = pairs else { return None };
    let far = |(one, two): (&f64, &f64)| {
        let same = one == two || (one.is_nan() && two.is_nan());
        // Written so that a NaN on one side is a difference.
        !(same || (one - two).abs() <= tolerance * one.abs().max(1.0))
    };
    let at = ones.iter().zip(twos).position(far)?;
    Some(format!("{:e} is {:e} there", ones[at], twos[at]))
}
