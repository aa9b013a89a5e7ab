//! Numbers that are multiples of the step that training values have.

use arrow::datatypes::DataType;

use super::grid::{Grid, MOST_UNITS, NumberInterval, Precision};
use crate::feature::{GridPolicy, Multiples, Numeric, NumericStats};

/// The multiples that a feature's changed numbers are, if they are kept to any: the schema leaves it to training
/// values, and the column's type and floats can tell them apart.
pub(super) fn effective(
    numeric: &Numeric,
    data_type: &DataType,
    seen: &NumericStats,
) -> Option<Multiples> {
    let open = numeric.step.is_none() && numeric.grid == GridPolicy::Observed;
    let of = seen.multiples.filter(|_| open)?;
    let plain = Grid::of_type(numeric, data_type);
    let coarser = match plain {
        Grid::Real(_) => true,
        Grid::Whole(_) => of.step() > 1.0 && of.per_one == 1.0,
        Grid::Units { per_one } => {
            of.step() * per_one > 1.0 && (of.stride * per_one / of.per_one).fract() == 0.0
        }
        _ => false,
    };
    let (low, high) = numeric.range.unwrap_or((seen.min, seen.max));
    let farthest = low.abs().max(high.abs());
    // Farther from zero, floats cannot count the steps.
    let counted = farthest * of.per_one <= MOST_UNITS;
    let told_apart = farthest * plain.precision().epsilon() <= of.step();
    (coarser && counted && told_apart).then_some(of)
}

/// The multiple inside the interval that is nearest to a number in it. One that the column's precision puts
/// outside gives way to the next.
#[inline]
pub(super) fn nearest_multiple(
    of: Multiples,
    precision: Precision,
    proposed: f64,
    inside: NumberInterval,
) -> Option<f64> {
    let count = of.count(proposed).round_ties_even();
    let at = |count: f64| precision.round(of.at(count));
    let mut nearest = at(count);
    if nearest < inside.low {
        nearest = at(count + 1.0);
    } else if nearest > inside.high {
        nearest = at(count - 1.0);
    }
    inside.contains(nearest).then_some(nearest)
}

/// The multiples inside the interval, and the ends of the range, beside the original; none if they are more than
/// `most`.
pub(super) fn all_multiples(
    of: Multiples,
    (precision, ends): (Precision, NumberInterval),
    (original, inside): (f64, NumberInterval),
    most: usize,
) -> Option<Vec<f64>> {
    let (low, high) = (of.count(inside.low).floor(), of.count(inside.high).ceil());
    // The original, the two ends, and one beyond each.
    if high - low > (most + 5) as f64 {
        return None;
    }
    let steps = (0..=(high - low) as usize).map(|step| precision.round(of.at(low + step as f64)));
    let mut found: Vec<f64> = steps.chain([ends.low, ends.high]).collect();
    found.retain(|number| inside.contains(*number) && *number != original);
    found.sort_by(f64::total_cmp);
    found.dedup();
    (found.len() <= most).then_some(found)
}
