//! What was seen in the columns of a table: one streaming pass, mergeable, independent of the order of
//! rows, batches and threads.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use serde::{Deserialize, Serialize};

use super::column::{CategoryIndex, NULL_CODE, UNSEEN_CODE, numbers};
use super::exact::{ExactSum, mean_and_squares};
use super::histogram::Histogram;
use super::json;
use super::multiples::{Multiples, StepCounts};
use super::schema::{Categorical, Feature, FeatureKind, FeatureSchema, Numeric};
use crate::error::Result;

/// Shares at which quantiles are kept.
pub const QUANTILE_SHARES: [f64; 9] = [0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0];

/// The largest number whose square, times any count, is a number.
const SQUARE_LIMIT: f64 = 1e140;

/// Unseen values kept by name; the rest is only counted.
const UNSEEN_KEPT: usize = 100;

/// What was seen, one entry per feature of the schema, in its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Rows seen.
    pub rows: u64,
    /// Per feature.
    pub features: Vec<FeatureStats>,
}

/// What was seen of one feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FeatureStats {
    /// Of a numeric one.
    Numeric(NumericStats),
    /// Of a categorical one.
    Categorical(CategoricalStats),
}

/// What was seen of a numeric feature. Statistics are over finite values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumericStats {
    /// Finite values.
    pub count: u64,
    /// Nulls and NaNs.
    pub nulls: u64,
    /// Infinite values.
    pub infinite: u64,
    /// Finite values outside the declared range.
    pub outside: u64,
    /// Least and greatest; NaN if there is none.
    #[serde(deserialize_with = "json::or_nan")]
    pub min: f64,
    /// Greatest.
    #[serde(deserialize_with = "json::or_nan")]
    pub max: f64,
    /// Mean; of the others, where a few values are so far away that they alone would decide it.
    #[serde(deserialize_with = "json::or_nan")]
    pub mean: f64,
    /// Population standard deviation, of the same values.
    #[serde(deserialize_with = "json::or_nan")]
    pub std: f64,
    /// Values at [`QUANTILE_SHARES`], within 0.4 %.
    #[serde(deserialize_with = "json::each_or_nan")]
    pub quantiles: Vec<f64>,
    /// The step that nearly all numbers share, or one that is fine beside their spread.
    pub multiples: Option<Multiples>,
}

/// Standard deviations from the mean at which networks see a number at most, where a few values are much
/// farther away than that …
const MOST_DEVIATIONS: f64 = 20.0;

/// … and elsewhere: what is farther away no network can tell apart, and its square leaves their numbers.
const FARTHEST_DEVIATIONS: f64 = 1e6;

impl NumericStats {
    /// Standard deviations from the mean at which a number is cut for networks.
    pub fn deviations(&self) -> f64 {
        if self.outliers().is_some() { MOST_DEVIATIONS } else { FARTHEST_DEVIATIONS }
    }

    /// The range outside of which single values are so far from the others that statistics leave them out;
    /// none where they are all alike.
    pub fn outliers(&self) -> Option<(f64, f64)> {
        let std = if self.std > 0.0 { self.std } else { 1.0 };
        let away = |value: f64| ((value - self.mean) / std).abs();
        let most = 2.0 * (self.count as f64).sqrt();
        let far = self.count > 1 && (away(self.min) > most || away(self.max) > most);
        // A column of few different numbers has none far away, however it is spread.
        let range = (self.mean - MOST_DEVIATIONS * std, self.mean + MOST_DEVIATIONS * std);
        (far && self.min < self.max).then_some(range)
    }
}

/// What was seen of a categorical feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CategoricalStats {
    /// Rows per listed value, in code order.
    pub counts: Vec<u64>,
    /// Nulls.
    pub nulls: u64,
    /// Rows with a value that is not listed.
    pub unseen: u64,
    /// Some of those values, with their rows: the first hundred in alphabetical order.
    pub unseen_values: BTreeMap<String, u64>,
}

/// Gathers [`Stats`] over batches.
#[derive(Debug, Clone)]
pub struct StatsAccumulator {
    rows: u64,
    columns: Vec<ColumnAccumulator>,
}

#[derive(Debug, Clone)]
enum ColumnAccumulator {
    Numeric(Box<NumericColumn>),
    Categorical(CategoricalColumn),
}

#[derive(Debug, Clone)]
struct NumericColumn {
    range: Option<(f64, f64)>,
    stats: NumericStats,
    sum: ExactSum,
    squares: ExactSum,
    histogram: Histogram,
    steps: StepCounts,
}

#[derive(Debug, Clone)]
struct CategoricalColumn {
    index: CategoryIndex,
    stats: CategoricalStats,
}

impl StatsAccumulator {
    /// An empty one for the features of a schema.
    pub fn new(schema: &FeatureSchema) -> StatsAccumulator {
        StatsAccumulator {
            rows: 0,
            columns: schema.features.iter().map(ColumnAccumulator::new).collect(),
        }
    }

    /// Adds a batch whose columns are the schema's features, in order.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
            match column {
                ColumnAccumulator::Numeric(column) => {
                    column.steps.begin(array.data_type());
                    column.update(&numbers(array)?);
                }
                ColumnAccumulator::Categorical(column) => column.update(array)?,
            }
        }
        Ok(())
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: &StatsAccumulator) {
        self.rows += other.rows;
        for (column, other) in self.columns.iter_mut().zip(&other.columns) {
            match (column, other) {
                (ColumnAccumulator::Numeric(column), ColumnAccumulator::Numeric(other)) => {
                    column.merge(other);
                }
                (ColumnAccumulator::Categorical(column), ColumnAccumulator::Categorical(other)) => {
                    column.merge(&other.stats);
                }
                _ => unreachable!("accumulators of one schema have the same columns"),
            }
        }
    }

    /// The statistics of all that was added.
    pub fn finish(self) -> Stats {
        let features = self.columns.into_iter().map(ColumnAccumulator::finish).collect();
        Stats { rows: self.rows, features }
    }
}

impl ColumnAccumulator {
    fn new(feature: &Feature) -> ColumnAccumulator {
        match &feature.kind {
            FeatureKind::Numeric(numeric) => {
                ColumnAccumulator::Numeric(Box::new(NumericColumn::new(numeric)))
            }
            FeatureKind::Categorical(categorical) => {
                ColumnAccumulator::Categorical(CategoricalColumn::new(categorical))
            }
        }
    }

    fn finish(self) -> FeatureStats {
        match self {
            ColumnAccumulator::Numeric(column) => FeatureStats::Numeric(column.finish()),
            ColumnAccumulator::Categorical(column) => FeatureStats::Categorical(column.stats),
        }
    }
}

impl NumericColumn {
    fn new(numeric: &Numeric) -> NumericColumn {
        let stats = NumericStats {
            count: 0,
            nulls: 0,
            infinite: 0,
            outside: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            mean: f64::NAN,
            std: f64::NAN,
            quantiles: Vec::new(),
            multiples: None,
        };
        NumericColumn {
            range: numeric.range,
            stats,
            sum: ExactSum::default(),
            squares: ExactSum::default(),
            histogram: Histogram::default(),
            steps: StepCounts::default(),
        }
    }

    fn update(&mut self, column: &arrow::array::Float64Array) {
        if column.null_count() == 0 {
            column.values().iter().for_each(|number| self.add(*number));
        } else {
            column.iter().for_each(|number| self.add(number.unwrap_or(f64::NAN)));
        }
    }

    fn add(&mut self, number: f64) {
        let stats = &mut self.stats;
        if number.is_nan() {
            stats.nulls += 1;
        } else if number.is_infinite() {
            stats.infinite += 1;
        } else {
            stats.count += 1;
            stats.min = stats.min.min(number);
            stats.max = stats.max.max(number);
            let inside = self.range.is_none_or(|(low, high)| (low..=high).contains(&number));
            stats.outside += u64::from(!inside);
            self.sum.add(number);
            self.squares.add_product(number, number);
            self.histogram.add(number);
            self.steps.add(number);
        }
    }

    fn merge(&mut self, other: &NumericColumn) {
        self.stats.count += other.stats.count;
        self.stats.nulls += other.stats.nulls;
        self.stats.infinite += other.stats.infinite;
        self.stats.outside += other.stats.outside;
        self.stats.min = self.stats.min.min(other.stats.min);
        self.stats.max = self.stats.max.max(other.stats.max);
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
        self.histogram.merge(&other.histogram);
        self.steps.merge(&other.steps);
    }

    fn finish(self) -> NumericStats {
        let mut stats = self.stats;
        if stats.count == 0 {
            return NumericStats { min: f64::NAN, max: f64::NAN, ..stats };
        }
        let (mean, squares) = mean_and_squares(stats.count, &self.sum, &self.squares);
        (stats.mean, stats.std) = (mean, (squares / stats.count as f64).sqrt());
        let farthest = stats.min.abs().max(stats.max.abs());
        // The square of a larger number is none.
        let overflows = farthest > SQUARE_LIMIT;
        if let Some((mean, std)) = self.histogram.middle((!overflows).then_some(stats.std)) {
            (stats.mean, stats.std) = (mean, std);
        }
        stats.quantiles = self.histogram.quantiles(&QUANTILE_SHARES);
        stats.multiples = self.steps.finish(self.histogram.len(), stats.std);
        stats
    }
}

impl CategoricalColumn {
    fn new(categorical: &Categorical) -> CategoricalColumn {
        let stats = CategoricalStats {
            counts: vec![0; categorical.values.len()],
            nulls: 0,
            unseen: 0,
            unseen_values: BTreeMap::new(),
        };
        CategoricalColumn { index: CategoryIndex::new(&categorical.values), stats }
    }

    fn update(&mut self, column: &arrow::array::ArrayRef) -> Result<()> {
        let codes = self.index.codes(column)?;
        let mut unseen = Vec::new();
        for (row, code) in codes.iter().enumerate() {
            match *code {
                NULL_CODE => self.stats.nulls += 1,
                UNSEEN_CODE => unseen.push(row as u32),
                code => self.stats.counts[code as usize] += 1,
            }
        }
        if unseen.is_empty() { Ok(()) } else { self.note_unseen(column, unseen) }
    }

    fn note_unseen(&mut self, column: &arrow::array::ArrayRef, rows: Vec<u32>) -> Result<()> {
        self.stats.unseen += rows.len() as u64;
        for text in texts_of(column, rows)? {
            *self.stats.unseen_values.entry(text).or_default() += 1;
        }
        self.trim();
        Ok(())
    }

    fn merge(&mut self, other: &CategoricalStats) {
        for (count, more) in self.stats.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.stats.nulls += other.nulls;
        self.stats.unseen += other.unseen;
        for (value, count) in &other.unseen_values {
            *self.stats.unseen_values.entry(value.clone()).or_default() += count;
        }
        self.trim();
    }

    /// Keeps the alphabetically first values: which ones those are does not depend on the order of rows,
    /// and none of them can have been dropped before.
    fn trim(&mut self) {
        while self.stats.unseen_values.len() > UNSEEN_KEPT {
            self.stats.unseen_values.pop_last();
        }
    }
}

/// The texts of some rows of a column.
pub(super) fn texts_of(column: &arrow::array::ArrayRef, rows: Vec<u32>) -> Result<Vec<String>> {
    let some = arrow::compute::take(column, &arrow::array::UInt32Array::from(rows), None);
    let texts =
        some.and_then(|some| arrow::compute::cast(&some, &arrow::datatypes::DataType::Utf8));
    let texts = texts.map_err(|error| {
        crate::error::Error::internal("column", "values have no text").source(error)
    })?;
    Ok(texts.as_string::<i32>().iter().map(|text| text.unwrap_or("").to_string()).collect())
}
