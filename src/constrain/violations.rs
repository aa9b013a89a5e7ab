//! An independent check of counterfactuals, from the schema's words: it shares no code with the
//! post-processing that is meant to make them hold, but for which step a column's numbers keep to.

use std::fmt;

use arrow::array::Float64Array;
use arrow::datatypes::DataType;

use super::bounds::AllowedLists;
use super::{ColumnLimits, Constraints, RowBounds, codes_of, numbers_of};
use crate::feature::{
    Categorical, Change, Feature, FeatureKind, NULL_CODE, Numeric, Rows, from_numbers, numbers,
    whole_range,
};

/// One way in which a counterfactual breaks a constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Position of the row.
    pub row: usize,
    /// Name of the feature, or the rule's text.
    pub feature: String,
    /// What was found, and what is allowed.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}: `{}` {}", self.row, self.feature, self.what)
    }
}

/// What a numeric feature is checked by.
struct NumericCheck<'a> {
    feature: &'a Feature,
    numeric: &'a Numeric,
    column: &'a ColumnLimits,
}

/// A changed number.
struct Moved<'a> {
    check: &'a NumericCheck<'a>,
    original: f64,
    new: f64,
    /// The row's own bounds; NaN where it has none.
    ends: (f64, f64),
}

impl Constraints {
    /// Every way in which counterfactuals break a constraint. Leaving a cell as it is never does.
    pub fn violations(
        &self,
        counterfactuals: &Rows,
        originals: &Rows,
        bounds: &RowBounds,
    ) -> Vec<Violation> {
        let mut found = Vec::new();
        for (index, feature) in self.schema.features.iter().enumerate() {
            // What follows from others is checked with the rules.
            if self.is_derived(index) {
                continue;
            }
            let faults = match &feature.kind {
                FeatureKind::Numeric(numeric) => {
                    let new = numbers_of(counterfactuals, index);
                    let original = numbers_of(originals, index);
                    let column = &self.columns[index];
                    let check = NumericCheck { feature, numeric, column };
                    check.faults(new, original, bounds.ends(index))
                }
                FeatureKind::Categorical(categorical) => {
                    let new = codes_of(counterfactuals, index);
                    let original = codes_of(originals, index);
                    let lists = bounds.allowed(index);
                    CategoryCheck { change: feature.change, categorical, lists }
                        .faults(new, original)
                }
            };
            let name = &feature.name;
            let violation = |(row, what)| Violation { row, feature: name.clone(), what };
            found.extend(faults.into_iter().map(violation));
        }
        found.extend(self.incoherences(counterfactuals, originals));
        found
    }
}

impl NumericCheck<'_> {
    fn faults(
        &self,
        new: &[f64],
        original: &[f64],
        ends: impl Fn(usize) -> (f64, f64),
    ) -> Vec<(usize, String)> {
        let stored = stored(new, original, &self.column.data_type);
        let mut faults = Vec::new();
        for row in (0..original.len()).filter(|row| differ(new[*row], original[*row])) {
            let moved =
                Moved { check: self, original: original[row], new: new[row], ends: ends(row) };
            faults.extend(moved.fault().map(|what| (row, what)));
            if stored.get(row).is_none_or(|stored| *stored != new[row]) {
                faults.push((row, format!("is {}, which its column cannot hold", new[row])));
            }
        }
        faults
    }

    fn range(&self) -> (f64, f64) {
        self.numeric.range.unwrap_or(self.column.seen)
    }

    /// What two numbers of the column differ by at least; zero for fractions.
    fn unit(&self) -> f64 {
        let unit = match &self.column.data_type {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => 10f64.powi(-i32::from(*scale)),
            other if whole_range(other).is_some() => 1.0,
            _ => 0.0,
        };
        if self.numeric.integer == Some(true) { unit.max(1.0) } else { unit }
    }
}

fn differ(new: f64, original: f64) -> bool {
    new != original && !(new.is_nan() && original.is_nan())
}

/// What a column of the type makes of changed numbers; empty if it takes one of them not at all.
fn stored(new: &[f64], original: &[f64], data_type: &DataType) -> Vec<f64> {
    let changed = new
        .iter()
        .zip(original)
        .map(|(new, original)| if differ(*new, *original) { *new } else { 0.0 });
    let changed: Float64Array =
        changed.map(|number| (!number.is_nan()).then_some(number)).collect();
    let stored = from_numbers(&changed, data_type).and_then(|column| numbers(&column));
    stored.map_or(Vec::new(), |stored| {
        stored.iter().map(|number| number.unwrap_or(f64::NAN)).collect()
    })
}

impl Moved<'_> {
    fn fault(&self) -> Option<String> {
        let (original, new) = (self.original, self.new);
        if original.is_nan() || !new.is_finite() {
            return Some(format!(
                "went from {original} to {new}, but a null stays and none appears"
            ));
        }
        match self.check.feature.change {
            Change::Never => {
                return Some(format!("went from {original} to {new}, but never changes"));
            }
            Change::Increase if new < original => {
                return Some(format!("fell from {original} to {new}"));
            }
            Change::Decrease if new > original => {
                return Some(format!("rose from {original} to {new}"));
            }
            _ => {}
        }
        self.outside().or_else(|| self.too_far()).or_else(|| self.off_grid())
    }

    /// What binary fractions lose, in the feature's own units.
    fn slack(&self) -> f64 {
        let unit = self.check.unit();
        let rounding = 8.0 * f64::EPSILON * (self.original.abs() + self.new.abs());
        if unit == 0.0 { 0.0 } else { 2e-6 * unit + rounding }
    }

    fn outside(&self) -> Option<String> {
        let new = self.new;
        let within = |low: f64, high: f64| low - self.slack() <= new && new <= high + self.slack();
        let (low, high) = self.check.range();
        if !within(low, high) {
            return Some(format!("is {new}, outside {low} to {high}"));
        }
        let (min, max) = self.ends;
        let least = if min.is_nan() { f64::NEG_INFINITY } else { min };
        let most = if max.is_nan() { f64::INFINITY } else { max };
        (!within(least, most)).then(|| format!("is {new}, outside the row's own {least} to {most}"))
    }

    fn too_far(&self) -> Option<String> {
        let limit = self.check.numeric.limit?;
        let (low, high) = self.check.range();
        let unit = if limit.share { high - low } else { 1.0 };
        let (least, most) = (self.original - limit.down * unit, self.original + limit.up * unit);
        let rounding = 16.0 * f64::EPSILON * (self.original.abs() + self.new.abs());
        let rounding = self.check.column.multiples.map_or(0.0, |_| rounding);
        let slack = self.slack().max(rounding);
        let fits = least - slack <= self.new && self.new <= most + slack;
        (!fits).then(|| format!("went from {} to {}, beyond its limit", self.original, self.new))
    }

    fn off_grid(&self) -> Option<String> {
        let (original, new) = (self.original, self.new);
        if let Some(step) = self.check.numeric.step {
            let steps = ((new - original) / step).round();
            let precision = match self.check.column.data_type {
                DataType::Float16 => 1e-3,
                DataType::Float32 => 2.4e-7,
                _ => 1e-15,
            };
            let slack =
                4e-9 * (step + (new - original).abs()) + precision * (original.abs() + new.abs());
            let off = (original + steps * step - new).abs();
            return (off > slack)
                .then(|| format!("went from {original} to {new}, not in steps of {step}"));
        }
        let whole = self.check.numeric.integer == Some(true) && new.fract() != 0.0;
        let off = whole.then(|| format!("is {new}, not a whole number"));
        off.or_else(|| self.off_multiples())
    }

    /// A number that training values could not have been: off their step, and no end of the range.
    fn off_multiples(&self) -> Option<String> {
        let step = self.check.column.multiples?.step();
        let (new, (low, high)) = (self.new, self.check.range());
        if new == low || new == high {
            return None;
        }
        let precision = match self.check.column.data_type {
            DataType::Float16 => 1e-3,
            DataType::Float32 => 1.2e-7,
            _ => 1e-15,
        };
        let off = (new - (new / step).round() * step).abs();
        (off > 1e-9 * step + precision * new.abs())
            .then(|| format!("is {new}, not a multiple of {step}"))
    }
}

/// What a categorical feature is checked by.
struct CategoryCheck<'a> {
    change: Change,
    categorical: &'a Categorical,
    lists: Option<&'a AllowedLists>,
}

impl CategoryCheck<'_> {
    fn faults(&self, new: &[u32], original: &[u32]) -> Vec<(usize, String)> {
        let changed = (0..original.len()).filter(|row| new[*row] != original[*row]);
        let fault = |row: usize| {
            let what = category_fault(self.change, self.categorical, original[row], new[row]);
            let listed = || self.lists.is_none_or(|lists| lists.contains(row, new[row] as usize));
            let unlisted = || (!listed()).then(|| "is not in the row's own list".to_string());
            what.or_else(unlisted).map(|what| (row, what))
        };
        changed.filter_map(fault).collect()
    }
}

fn category_fault(
    change: Change,
    categorical: &Categorical,
    original: u32,
    new: u32,
) -> Option<String> {
    if change == Change::Never {
        return Some(format!("went from {original} to {new}, but never changes"));
    }
    if original == NULL_CODE {
        return Some("is no longer null, but a null stays".to_string());
    }
    let Some(value) = categorical.values.get(new as usize) else {
        return Some("became null or unseen".to_string());
    };
    if !categorical.allowed[new as usize] {
        return Some(format!("became `{value}`, which nothing may move to"));
    }
    let Some(ranks) = &categorical.ranks else { return None };
    let before = ranks.get(original as usize);
    let passed = |wrong: bool| wrong.then(|| format!("became `{value}`, against its direction"));
    match change {
        Change::Increase => passed(before.is_none_or(|before| ranks[new as usize] < *before)),
        Change::Decrease => passed(before.is_none_or(|before| ranks[new as usize] > *before)),
        Change::Any | Change::Never => None,
    }
}
