//! Which numbers a feature can take: those that the column's type can hold, whole ones, multiples of the
//! step that training values have, or those that lie a whole number of steps from the row's own.

use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type};

use super::multiples::{all_multiples, nearest_multiple};
use crate::feature::{Multiples, Numeric, whole_range};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// How far beyond an interval's end, in units of the grid, a number still counts as inside: 0.29 of a range
/// of 100 is 28.999999999999996 in binary, and a user means 29.
const SLACK: f64 = 1e-6;

/// The same for steps on fractions, which are put back inside afterwards.
const STEP_SLACK: f64 = 1e-9;

/// Most steps that are tried to find one that a unit divides: 0.1 needs ten for whole numbers.
const MOST_STEPS: u32 = 10_000;

/// Decimals have at most so many units: within this, `f64` numbers become decimals and back exactly.
pub(super) const MOST_UNITS: f64 = (1u64 << 50) as f64;

/// From the least to the greatest; empty if they are the other way round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NumberInterval {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl NumberInterval {
    pub(super) fn point(number: f64) -> NumberInterval {
        NumberInterval { low: number, high: number }
    }

    pub(super) fn is_empty(&self) -> bool {
        // A NaN end makes it empty too.
        self.low.partial_cmp(&self.high).is_none_or(std::cmp::Ordering::is_gt)
    }

    pub(super) fn contains(&self, number: f64) -> bool {
        self.low <= number && number <= self.high
    }

    fn map(self, function: impl Fn(f64) -> f64) -> NumberInterval {
        NumberInterval { low: function(self.low), high: function(self.high) }
    }

    /// The whole numbers inside, or no farther than `slack` outside.
    fn whole(self, slack: f64) -> NumberInterval {
        NumberInterval { low: (self.low - slack).ceil(), high: (self.high + slack).floor() }
    }

    /// The whole number inside that is nearest, of two equally near the even one; `self` has whole ends.
    fn nearest(self, number: f64) -> Option<f64> {
        (!self.is_empty()).then(|| number.round_ties_even().clamp(self.low, self.high))
    }
}

/// The precision of a floating-point column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Precision {
    Half,
    Single,
    Double,
}

/// The numbers that a feature can take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Grid {
    /// Every number of that precision.
    Real(Precision),
    /// Whole numbers, stored with that precision.
    Whole(Precision),
    /// The own number and those whole steps away from it.
    Steps { step: f64, precision: Precision },
    /// Whole multiples of a unit; `per_one` units make one.
    Units { per_one: f64 },
    /// The own number and those whole strides of so many units away from it.
    Strides { per_one: f64, stride: f64 },
    /// Multiples of a step, and the ends of the range.
    Multiples { of: Multiples, precision: Precision, ends: NumberInterval },
    /// None but the own: steps that the column's type cannot hold.
    Unchanged,
}

impl Grid {
    /// The grid of a feature whose column has that type, and keeps to those multiples. The ends of the range are
    /// on it.
    pub(super) fn new(
        numeric: &Numeric,
        data_type: &DataType,
        (kept, range): (Option<Multiples>, NumberInterval),
    ) -> Grid {
        let plain = Grid::of_type(numeric, data_type);
        let Some(of) = kept else { return plain };
        let ends = range.map(|end| {
            let held = plain.nearest(end, end, NumberInterval::point(end)) == Some(end);
            if held { end } else { f64::NAN }
        });
        Grid::Multiples { of, precision: plain.precision(), ends }
    }

    /// The precision of its numbers.
    pub(super) fn precision(self) -> Precision {
        match self {
            Grid::Real(precision) | Grid::Whole(precision) => precision,
            Grid::Steps { precision, .. } | Grid::Multiples { precision, .. } => precision,
            Grid::Units { .. } | Grid::Strides { .. } | Grid::Unchanged => Precision::Double,
        }
    }

    /// The grid that the schema and the column's type give.
    pub(super) fn of_type(numeric: &Numeric, data_type: &DataType) -> Grid {
        let whole = numeric.integer == Some(true);
        let precision = match data_type {
            DataType::Float16 => Precision::Half,
            DataType::Float32 => Precision::Single,
            DataType::Float64 => Precision::Double,
            other => return Grid::of_units(numeric.step, whole, scale(other)),
        };
        match numeric.step {
            None if whole => Grid::Whole(precision),
            None => Grid::Real(precision),
            Some(step) if whole => {
                strides(step).map_or(Grid::Unchanged, |step| Grid::Steps { step, precision })
            }
            Some(step) => Grid::Steps { step, precision },
        }
    }

    fn of_units(step: Option<f64>, whole: bool, scale: i32) -> Grid {
        // As the decimals' own conversion has it, so that both give the same `f64`.
        let per_one = 10f64.powi(scale);
        let Some(step) = step else {
            return Grid::Units { per_one: if whole { per_one.min(1.0) } else { per_one } };
        };
        // A step of whole numbers is a whole number of ones first, and those are units then.
        let units = if whole && scale > 0 {
            strides(step).map(|ones| ones * per_one)
        } else {
            strides(step * per_one)
        };
        units.map_or(Grid::Unchanged, |stride| Grid::Strides { per_one, stride })
    }

    /// Whether every number of the column is on it.
    pub(super) fn is_dense(self) -> bool {
        matches!(self, Grid::Real(_))
    }

    /// The least distance of another number from the original; zero if there is none.
    pub(super) fn least_move(self) -> f64 {
        match self {
            Grid::Real(_) | Grid::Whole(_) | Grid::Units { .. } | Grid::Multiples { .. } => 0.0,
            Grid::Steps { step, .. } => step,
            Grid::Strides { per_one, stride } => stride / per_one,
            Grid::Unchanged => f64::INFINITY,
        }
    }

    /// The distance between two neighbours on it; none where they are as close as numbers can be.
    fn spacing(self) -> Option<f64> {
        match self {
            Grid::Real(_) => None,
            Grid::Whole(_) => Some(1.0),
            Grid::Units { per_one } => Some(1.0 / per_one),
            Grid::Multiples { of, .. } => Some(of.step()),
            Grid::Steps { .. } | Grid::Strides { .. } | Grid::Unchanged => Some(self.least_move()),
        }
    }

    /// About the next number on it above (1) or below (-1) another, which need not be on it.
    pub(super) fn beside(self, number: f64, side: f64) -> f64 {
        let step = match self {
            Grid::Multiples { of, .. } => return of.beside(number, side),
            Grid::Real(precision) => precision.beside(number, 1) - number,
            _ => self.spacing().unwrap_or(0.0),
        };
        number + side * step.max(f64::MIN_POSITIVE)
    }

    /// Its numbers inside the interval, beside the original; none if they are more than `most`.
    pub(super) fn all(
        self,
        original: f64,
        inside: NumberInterval,
        most: usize,
    ) -> Option<Vec<f64>> {
        if let Grid::Multiples { of, precision, ends } = self {
            return all_multiples(of, (precision, ends), (original, inside), most);
        }
        let Some(first) = self.nearest(inside.low, original, inside) else {
            return Some(Vec::new());
        };
        if inside.low == inside.high {
            return Some([first].into_iter().filter(|number| *number != original).collect());
        }
        let spacing = self.spacing()?;
        let count = (inside.high - first) / spacing;
        // One for the own, one for what rounding may have cost.
        if count > (most + 2) as f64 {
            return None;
        }
        let at = |index: usize| self.nearest(first + index as f64 * spacing, original, inside);
        let mut found: Vec<f64> = (0..=count as usize + 1).filter_map(at).collect();
        found.dedup();
        found.retain(|number| *number != original);
        (found.len() <= most).then_some(found)
    }

    /// The number of the grid inside the interval that is nearest to `proposed`, which lies inside. None if the
    /// interval has none; the original number need not be inside.
    #[inline]
    pub(super) fn nearest(
        self,
        proposed: f64,
        original: f64,
        inside: NumberInterval,
    ) -> Option<f64> {
        match self {
            Grid::Real(precision) => precision.nearest(proposed, inside),
            Grid::Whole(precision) => {
                let whole = inside.whole(SLACK);
                precision.nearest(whole.nearest(proposed)?, whole)
            }
            Grid::Steps { step, precision } => {
                precision.nearest(nearest_step(proposed, original, inside, step)?, inside)
            }
            Grid::Units { per_one } => {
                let units = inside.map(|end| end * per_one).whole(SLACK);
                Some(units.nearest(proposed * per_one)? / per_one)
            }
            Grid::Strides { per_one, stride } => {
                let base = (original * per_one).round();
                let count = |units: f64| (units - base) / stride;
                let units = inside.map(|end| end * per_one).whole(SLACK);
                let strides = units.map(count).whole(0.0).nearest(count(proposed * per_one))?;
                Some((base + strides * stride) / per_one)
            }
            Grid::Multiples { of, precision, ends } => {
                let off = |number: f64| (proposed - number).abs();
                let nearer = |best: Option<f64>, end: f64| match best {
                    Some(best) if off(best) <= off(end) => Some(best),
                    best => inside.contains(end).then_some(end).or(best),
                };
                let multiple = nearest_multiple(of, precision, proposed, inside);
                nearer(nearer(multiple, ends.low), ends.high)
            }
            Grid::Unchanged => None,
        }
    }

    /// Whether a number that is not on it may be a row's own, and stays where it is nearest.
    pub(super) fn is_absolute(self) -> bool {
        matches!(self, Grid::Multiples { .. })
    }
}

fn nearest_step(proposed: f64, original: f64, inside: NumberInterval, step: f64) -> Option<f64> {
    let count = |number: f64| (number - original) / step;
    // The ends are rounded at their own size, which may be large beside the step.
    let rounding = |end: f64| (4.0 * f64::EPSILON * (original.abs() + end.abs()) / step).min(0.25);
    let steps = NumberInterval {
        low: (count(inside.low) - STEP_SLACK - rounding(inside.low)).ceil(),
        high: (count(inside.high) + STEP_SLACK + rounding(inside.high)).floor(),
    };
    let steps = steps.nearest(count(proposed))?;
    Some((original + steps * step).clamp(inside.low, inside.high))
}

/// The least whole multiple of a step that is a whole number of units, in units.
fn strides(step: f64) -> Option<f64> {
    let multiple = |count: u32| {
        let exact = f64::from(count) * step;
        let whole = exact.round();
        let same = (exact - whole).abs() <= STEP_SLACK + 4.0 * f64::EPSILON * whole;
        (whole >= 1.0 && same).then_some(whole)
    };
    (1..=MOST_STEPS).find_map(multiple)
}

impl Precision {
    /// The number of this precision inside the interval that is nearest.
    #[inline]
    fn nearest(self, number: f64, inside: NumberInterval) -> Option<f64> {
        if self == Precision::Double {
            return Some(number);
        }
        let nearest = self.round(number);
        let moved = if nearest < inside.low {
            self.beside(nearest, 1)
        } else if nearest > inside.high {
            self.beside(nearest, -1)
        } else {
            nearest
        };
        inside.contains(moved).then_some(moved)
    }

    /// The nearest number of this precision.
    #[inline]
    pub(super) fn round(self, number: f64) -> f64 {
        match self {
            Precision::Double => number,
            Precision::Single => f64::from(number as f32),
            Precision::Half => Half::from_f64(number).to_f64(),
        }
    }

    /// The distance between one and the next number.
    pub(super) fn epsilon(self) -> f64 {
        self.beside(1.0, 1) - 1.0
    }

    /// The next number of this precision above (1) or below (-1) one of them.
    fn beside(self, number: f64, side: i32) -> f64 {
        match self {
            Precision::Half => half_beside(number, side),
            Precision::Single if side > 0 => f64::from((number as f32).next_up()),
            Precision::Single => f64::from((number as f32).next_down()),
            Precision::Double if side > 0 => number.next_up(),
            Precision::Double => number.next_down(),
        }
    }
}

/// The next half-precision number above or below one of them. Without their sign their bits are in order.
fn half_beside(number: f64, side: i32) -> f64 {
    let bits = i32::from(Half::from_f64(number).to_bits());
    let ordinal = if bits & 0x8000 == 0 { bits } else { -(bits & 0x7fff) };
    let ordinal = ordinal + side;
    let bits = if ordinal < 0 { 0x8000 | -ordinal } else { ordinal };
    Half::from_bits(bits as u16).to_f64()
}

/// Digits after the point.
fn scale(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => i32::from(*scale),
        _ => 0,
    }
}

/// The least and greatest number that a column of the type can hold.
pub(super) fn type_range(data_type: &DataType) -> NumberInterval {
    let symmetric = |most: f64| NumberInterval { low: -most, high: most };
    match data_type {
        DataType::Float16 => symmetric(Half::MAX.to_f64()),
        DataType::Float32 => symmetric(f64::from(f32::MAX)),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let units = (10f64.powi(i32::from(*precision)) - 1.0).min(MOST_UNITS);
            symmetric(units / 10f64.powi(i32::from(*scale)))
        }
        other => match whole_range(other) {
            Some((low, high)) => NumberInterval { low, high },
            None => symmetric(f64::MAX),
        },
    }
}
