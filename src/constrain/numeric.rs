//! One numeric feature: how far it may move from a row's own number, and onto which numbers.

use std::ops::Range;

use super::bounds::RowBounds;
use super::conditions::ConditionBlock;
use super::grid::{Grid, NumberInterval, type_range};
use super::{ColumnLimits, NetworkOutput, numbers_of};
use crate::encode::NumericSlots;
use crate::feature::{Change, Feature, Limit};

/// A numeric feature's range as tensors need it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumericRange {
    /// Where the standardised value stands in an encoded row.
    pub slot: usize,
    /// Lower end of the range, standardised.
    pub low: f32,
    /// Upper end of the range, standardised.
    pub high: f32,
}

/// What may become of a numeric feature.
#[derive(Debug, Clone)]
pub(super) struct NumericRule {
    /// Index of the feature.
    pub(super) feature: usize,
    /// Where its pair stands in a condition.
    offset: usize,
    slots: NumericSlots,
    range: NumberInterval,
    /// Length of the range; zero if nothing can change.
    span: f64,
    /// What a condition of one is: the span, or a little more on a grid. Conditions are rounded to single
    /// precision, and what the rounding takes away must not cost a whole number or a step at the end.
    unit: f64,
    /// Farthest moves as shares of the span, at most one.
    shares: Moves,
    /// Farthest moves in the feature's own units; infinite without a limit.
    moves: Moves,
    /// Where a changed number can be at all: the range, as far as the column's type reaches.
    hold: NumberInterval,
    grid: Grid,
    /// Whether a limit may be passed by what binary fractions lose.
    lenient: bool,
}

#[derive(Debug, Clone, Copy)]
struct Moves {
    down: f64,
    up: f64,
}

impl Moves {
    const NONE: Moves = Moves { down: 0.0, up: 0.0 };

    /// The limits of a feature, in shares or in its own units.
    fn new(
        change: Change,
        limit: Option<Limit>,
        unlimited: f64,
        scale: impl Fn(&Limit) -> f64,
    ) -> Moves {
        let limit = limit.as_ref();
        let bound = |pick: fn(&Limit) -> f64| {
            limit.map_or(unlimited, |limit| (pick(limit) * scale(limit)).min(unlimited))
        };
        let down = matches!(change, Change::Any | Change::Decrease);
        let up = matches!(change, Change::Any | Change::Increase);
        Moves {
            down: if down { bound(|limit| limit.down) } else { 0.0 },
            up: if up { bound(|limit| limit.up) } else { 0.0 },
        }
    }
}

impl NumericRule {
    /// The rule of a feature that is numeric.
    pub(super) fn new(
        feature: &Feature,
        slots: &NumericSlots,
        column: &ColumnLimits,
    ) -> NumericRule {
        let numeric = feature.numeric().expect("asked for numeric features only");
        let (low, high) = numeric.range.unwrap_or(column.seen);
        // Where training saw no number there is no range, and nothing to change within.
        let known = !NumberInterval { low, high }.is_empty();
        let range =
            if known { NumberInterval { low, high } } else { NumberInterval::point(slots.mean) };
        let span = range.high - range.low;
        let span = if span.is_finite() { span } else { 0.0 };
        let reach = type_range(&column.data_type);
        let (shares, moves) = if span > 0.0 {
            let share = |limit: &Limit| if limit.share { 1.0 } else { 1.0 / span };
            let units = |limit: &Limit| if limit.share { span } else { 1.0 };
            (
                Moves::new(feature.change, numeric.limit, 1.0, share),
                Moves::new(feature.change, numeric.limit, f64::INFINITY, units),
            )
        } else {
            (Moves::NONE, Moves::NONE)
        };
        let grid = Grid::new(numeric, &column.data_type, (column.multiples, range));
        NumericRule {
            feature: 0,
            offset: 0,
            slots: slots.clone(),
            range,
            span,
            unit: if grid.is_dense() { span } else { span * (1.0 + f64::from(f32::EPSILON)) },
            shares,
            moves,
            hold: NumberInterval {
                low: range.low.max(reach.low),
                high: range.high.min(reach.high),
            },
            lenient: grid.is_absolute(),
            grid,
        }
    }

    /// The rule for the feature of that index, whose pair stands at `offset` in a condition.
    pub(super) fn at(self, feature: usize, offset: usize) -> NumericRule {
        NumericRule { feature, offset, ..self }
    }

    /// The range in standardised units.
    pub(super) fn standardised_range(&self) -> NumericRange {
        NumericRange {
            slot: self.slots.value,
            low: self.slots.standardised(self.range.low),
            high: self.slots.standardised(self.range.high),
        }
    }

    /// Whether some row could change.
    pub(super) fn can_change(&self) -> bool {
        let farthest = self.moves.down.max(self.moves.up).min(self.span);
        farthest > 0.0 && farthest * (1.0 + 1e-9) >= self.grid.least_move() && !self.hold.is_empty()
    }

    /// Whether a row's condition and own bounds leave it another number than its own.
    pub(super) fn has_room(&self, original: f64, condition: &[f32], ends: (f64, f64)) -> bool {
        if !original.is_finite() {
            return false;
        }
        let inside = self.inside(original, condition, ends);
        let other = |end: f64| {
            self.grid.nearest(end, original, inside).is_some_and(|nearest| nearest != original)
        };
        !inside.is_empty() && (other(inside.low) || other(inside.high))
    }

    fn inside(&self, original: f64, condition: &[f32], ends: (f64, f64)) -> NumberInterval {
        self.interval(original, (condition[self.offset], condition[self.offset + 1]), ends)
    }

    /// The allowed number that is nearest to the proposed one.
    pub(super) fn nearest(
        &self,
        proposed: f64,
        original: f64,
        condition: &[f32],
        ends: (f64, f64),
    ) -> f64 {
        if proposed.is_nan() || !original.is_finite() {
            return original;
        }
        self.settle_at(proposed, original, self.inside(original, condition, ends))
    }

    /// About the next number on the grid above (1) or below (-1) another.
    pub(super) fn beside(&self, number: f64, side: f64) -> f64 {
        self.grid.beside(number, side)
    }

    /// Where a changed number can be; none if nowhere.
    pub(super) fn reach(
        &self,
        original: f64,
        condition: &[f32],
        ends: (f64, f64),
    ) -> Option<(f64, f64)> {
        let inside = self.inside(original, condition, ends);
        (original.is_finite() && !inside.is_empty()).then_some((inside.low, inside.high))
    }

    /// All allowed numbers beside the original; none if they are more than `most`.
    pub(super) fn all(
        &self,
        original: f64,
        condition: &[f32],
        ends: (f64, f64),
        most: usize,
    ) -> Option<Vec<f64>> {
        let inside = self.inside(original, condition, ends);
        if !original.is_finite() || inside.is_empty() {
            return Some(Vec::new());
        }
        self.grid.all(original, inside, most)
    }

    /// Writes the widest pair of each row of a block.
    pub(super) fn widest(
        &self,
        original: &[f64],
        bounds: &RowBounds,
        block: &mut ConditionBlock<'_>,
    ) {
        let ends = bounds.ends(self.feature);
        for (row, target) in block.rows() {
            let (min, max) = ends(row);
            let original = original[row];
            let fixed = original.is_nan() || self.span == 0.0;
            let Moves { down, up } = if fixed { Moves::NONE } else { self.shares };
            let down = narrowed(down, (original - min) / self.span);
            let up = narrowed(up, (max - original) / self.span);
            // Zero minus zero is zero, where the negative of zero has a sign.
            target[self.offset] = (0.0 - down) as f32;
            target[self.offset + 1] = up as f32;
        }
    }

    /// Appends the numbers that a network's output stands for.
    pub(super) fn settle(
        &self,
        network_output: &NetworkOutput<'_>,
        block: &Range<usize>,
        into: &mut Vec<f64>,
    ) {
        let original = numbers_of(network_output.rows, self.feature);
        let ends = network_output.bounds.ends(self.feature);
        into.extend(block.clone().map(|row| {
            let output = network_output.decoded.row(row)[self.slots.value];
            let condition = network_output.conditions.row(row);
            let pair = (condition[self.offset], condition[self.offset + 1]);
            self.settled(output, original[row], self.interval(original[row], pair, ends(row)))
        }));
    }

    /// Where a changed number can be. Ends are NaN where the row has none.
    #[inline]
    fn interval(&self, original: f64, pair: (f32, f32), ends: (f64, f64)) -> NumberInterval {
        // A condition of one allows all that the schema does: from a number outside the range, the range's other
        // end is farther away than the range is long.
        let down = if pair.0 <= -1.0 { f64::NEG_INFINITY } else { f64::from(pair.0) * self.unit };
        let up = if pair.1 >= 1.0 { f64::INFINITY } else { f64::from(pair.1) * self.unit };
        // 0.7 + 0.1 is a little less than 0.8, which is on the grid and meant to be within the limit.
        let slack = |moved: f64| match self.lenient && moved > 0.0 {
            true => 4.0 * f64::EPSILON * (original.abs() + moved),
            false => 0.0,
        };
        let Moves { down: farthest_down, up: farthest_up } = self.moves;
        let low =
            self.hold.low.max(original - farthest_down - slack(farthest_down)).max(original + down);
        let high =
            self.hold.high.min(original + farthest_up + slack(farthest_up)).min(original + up);
        NumberInterval { low: low.max(ends.0), high: high.min(ends.1) }
    }

    /// The allowed number that is nearest to the output: the own, which always is, or one inside.
    #[inline]
    fn settled(&self, output: f32, original: f64, inside: NumberInterval) -> f64 {
        let unchanged = output == self.slots.standardised(original);
        if output.is_nan() || !original.is_finite() || unchanged {
            return original;
        }
        self.settle_at(f64::from(output) * self.slots.std + self.slots.mean, original, inside)
    }

    /// The same for a number in the feature's own unit.
    #[inline]
    fn settle_at(&self, proposed: f64, original: f64, inside: NumberInterval) -> f64 {
        if inside.is_empty() {
            return original;
        }
        let proposed = proposed.clamp(inside.low.min(original), inside.high.max(original));
        let clipped = proposed.clamp(inside.low, inside.high);
        let Some(nearest) = self.grid.nearest(clipped, original, inside) else { return original };
        let off_grid = !inside.contains(original) || self.grid.is_absolute();
        let stays = off_grid && (proposed - original).abs() <= (proposed - nearest).abs();
        // Equal numbers can differ in the sign of zero.
        if stays || nearest == original { original } else { nearest }
    }
}

/// A share, cut to the slack that a row's own bound leaves; NaN leaves it all.
fn narrowed(share: f64, slack: f64) -> f64 {
    if slack.is_nan() { share } else { slack.clamp(0.0, share) }
}
