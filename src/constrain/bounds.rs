//! Constraints that belong to single rows: the columns `<feature>__min`, `__max` and `__allowed`. A null in
//! such a column means that the row has no bound of its own.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, TimeUnit};
use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};
use crate::feature::{Bound, CategoryIndex, FeatureSchema, RowConstraint, numbers};

/// Constraints that belong to single rows.
#[derive(Debug, Clone, Default)]
pub struct RowBounds {
    /// Per feature of the schema; empty if no row has bounds of its own.
    features: Vec<FeatureBounds>,
}

#[derive(Debug, Clone, Default)]
struct FeatureBounds {
    /// NaN where a row has none.
    min: Option<Vec<f64>>,
    max: Option<Vec<f64>>,
    allowed: Option<AllowedLists>,
}

/// Per row the categories that it may move to, a bit each.
#[derive(Debug, Clone)]
pub(super) struct AllowedLists {
    words: usize,
    bits: Vec<u64>,
}

impl AllowedLists {
    /// Whether a row may move to a category.
    #[inline]
    pub(super) fn contains(&self, row: usize, code: usize) -> bool {
        self.bits[row * self.words + code / 64] >> (code % 64) & 1 == 1
    }

    fn take(&self, rows: &[u32]) -> AllowedLists {
        let of_row = |row: &u32| {
            let first = *row as usize * self.words;
            &self.bits[first..first + self.words]
        };
        AllowedLists { words: self.words, bits: rows.iter().flat_map(of_row).copied().collect() }
    }
}

impl RowBounds {
    /// No row has bounds of its own.
    pub fn none() -> RowBounds {
        RowBounds::default()
    }

    /// A hash of all of them, the same for the same bounds of the same rows.
    pub fn hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        for bounds in &self.features {
            for ends in [&bounds.min, &bounds.max] {
                hash.update(&[u8::from(ends.is_some())]);
                ends.iter().flatten().for_each(|end| hash.update(&end.to_le_bytes()));
            }
            let lists = bounds.allowed.iter().flat_map(|lists| &lists.bits);
            lists.for_each(|bits| hash.update(&bits.to_le_bytes()));
        }
        hash.digest()
    }

    /// Reads the constraint columns of a batch, by name.
    ///
    /// # Errors
    /// When a column is missing or has a type that was not checked before.
    pub fn read(
        schema: &FeatureSchema,
        constraints: &[RowConstraint],
        batch: &RecordBatch,
    ) -> Result<RowBounds> {
        if constraints.is_empty() {
            return Ok(RowBounds::none());
        }
        let mut features = vec![FeatureBounds::default(); schema.features.len()];
        for constraint in constraints {
            let column =
                batch.column_by_name(&constraint.column).ok_or_else(|| misread(constraint))?;
            let feature = &schema.features[constraint.feature];
            let bounds = &mut features[constraint.feature];
            let original = batch.column_by_name(&feature.name).map_or(column, |original| original);
            match (constraint.bound, feature.categorical()) {
                (Bound::Min, None) => bounds.min = Some(in_units_of(original.data_type(), column)?),
                (Bound::Max, None) => bounds.max = Some(in_units_of(original.data_type(), column)?),
                (Bound::Allowed, Some(categorical)) => {
                    bounds.allowed = Some(allowed_lists(&categorical.values, column)?);
                }
                _ => return Err(misread(constraint)),
            }
        }
        Ok(RowBounds { features })
    }

    /// The bounds of the rows at these positions, in this order.
    pub fn take(&self, rows: &[u32]) -> RowBounds {
        let take = |numbers: &Option<Vec<f64>>| {
            let numbers = numbers.as_ref()?;
            Some(rows.iter().map(|row| numbers[*row as usize]).collect())
        };
        let of_feature = |bounds: &FeatureBounds| FeatureBounds {
            min: take(&bounds.min),
            max: take(&bounds.max),
            allowed: bounds.allowed.as_ref().map(|allowed| allowed.take(rows)),
        };
        RowBounds { features: self.features.iter().map(of_feature).collect() }
    }

    /// Least and greatest value of a row's counterfactual; NaN where it has no such bound.
    #[inline]
    pub(super) fn ends(&self, feature: usize) -> impl Fn(usize) -> (f64, f64) {
        let bounds = self.features.get(feature);
        let min = bounds.and_then(|bounds| bounds.min.as_deref());
        let max = bounds.and_then(|bounds| bounds.max.as_deref());
        move |row| {
            (
                min.map_or(f64::NAN, |numbers| numbers[row]),
                max.map_or(f64::NAN, |numbers| numbers[row]),
            )
        }
    }

    /// Least and greatest value of a row's counterfactual; NaN where it has no such bound.
    pub fn of_row(&self, feature: usize, row: usize) -> (f64, f64) {
        self.ends(feature)(row)
    }

    /// The categories that rows may move to; none if the feature has no such lists.
    pub(super) fn allowed(&self, feature: usize) -> Option<&AllowedLists> {
        self.features.get(feature)?.allowed.as_ref()
    }
}

fn misread(constraint: &RowConstraint) -> Error {
    Error::internal(
        format!("column `{}`", constraint.column),
        "is not the constraint it was taken for",
    )
}

/// A column's numbers in the unit of the feature: days where the feature counts days, and so on.
fn in_units_of(feature: &DataType, column: &ArrayRef) -> Result<Vec<f64>> {
    let factor = match (nanoseconds(column.data_type()), nanoseconds(feature)) {
        (Some(from), Some(to)) => from / to,
        _ => 1.0,
    };
    let numbers = numbers(column)?;
    Ok(numbers.iter().map(|number| number.map_or(f64::NAN, |number| number * factor)).collect())
}

/// What a date or timestamp counts in.
fn nanoseconds(data_type: &DataType) -> Option<f64> {
    Some(match data_type {
        DataType::Date32 => 86_400e9,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1e6,
        DataType::Timestamp(TimeUnit::Second, _) => 1e9,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1e3,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1.0,
        _ => return None,
    })
}

/// The lists of a column. A text that is not among the feature's values names nothing to move to.
fn allowed_lists(values: &[String], column: &ArrayRef) -> Result<AllowedLists> {
    let (items, ranges) = lists(column)?;
    let codes = CategoryIndex::new(values).codes(items)?;
    let words = values.len().div_ceil(64).max(1);
    let mut bits = vec![0u64; column.len() * words];
    for (row, (bits, range)) in bits.chunks_exact_mut(words).zip(ranges).enumerate() {
        if column.is_null(row) {
            bits.fill(u64::MAX);
            continue;
        }
        for code in codes[range].iter().filter(|code| (**code as usize) < values.len()) {
            bits[*code as usize / 64] |= 1 << (code % 64);
        }
    }
    Ok(AllowedLists { words, bits })
}

/// The items of all lists of a column, and which of them are each row's.
fn lists(column: &ArrayRef) -> Result<(&ArrayRef, Vec<Range<usize>>)> {
    Ok(match column.data_type() {
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            let ends = lists.value_offsets().windows(2);
            (lists.values(), ends.map(|ends| ends[0] as usize..ends[1] as usize).collect())
        }
        DataType::LargeList(_) => {
            let lists = column.as_list::<i64>();
            let ends = lists.value_offsets().windows(2);
            (lists.values(), ends.map(|ends| ends[0] as usize..ends[1] as usize).collect())
        }
        DataType::ListView(_) => {
            let lists = column.as_list_view::<i32>();
            let ranges = lists.value_offsets().iter().zip(lists.value_sizes());
            let range = |(first, size): (&i32, &i32)| *first as usize..(*first + *size) as usize;
            (lists.values(), ranges.map(range).collect())
        }
        other => return Err(Error::internal("allowed categories", format!("{other} is no list"))),
    })
}
