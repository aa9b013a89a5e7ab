//! Where a model of trees may change its answer: the thresholds of its branches, followed back through the
//! functions before them to numbers of the table's column.

use std::sync::Arc;

use super::super::inputs::FeatureInputs;
use super::cells::{CellId, Op, Plan};
use super::layout::{FeatureEncoding, SlotSources};
use super::machine::{Machine, TypedModel};
use super::scorer::Native;
use super::trees::Real;
use super::values::{Binary, ElementType, Unary, Value};

/// Thresholds of an ensemble by the cells that it looks at, in their order.
struct EnsembleThresholds<'a, T> {
    cells: &'a [CellId],
    thresholds: &'a [(u32, T)],
    most: usize,
}

impl Native {
    /// The breakpoints of a numeric feature, ascending; none where its numbers are used otherwise than by order.
    pub(in super::super) fn breakpoints(
        &self,
        inputs: &FeatureInputs,
        feature: usize,
    ) -> Option<Arc<[f64]>> {
        self.some_breakpoints(inputs, feature, usize::MAX).map(Into::into)
    }

    /// The same, but of each cell's thresholds about `most` at the most.
    pub(super) fn some_breakpoints(
        &self,
        inputs: &FeatureInputs,
        feature: usize,
        most: usize,
    ) -> Option<Vec<f64>> {
        if !matches!(self.engine.features[feature].encoding, FeatureEncoding::Number) {
            return None;
        }
        let mut found = Vec::new();
        for submodel in &self.engine.program.submodels {
            match &submodel.machine {
                Machine::Single(TypedModel::Trees(forest)) => {
                    let (cells, thresholds) = (&submodel.inputs[..], forest.thresholds());
                    let thresholds = EnsembleThresholds { cells, thresholds, most };
                    self.follow((inputs, feature), thresholds, &mut found)?;
                }
                Machine::Double(TypedModel::Trees(forest)) => {
                    let (cells, thresholds) = (&submodel.inputs[..], forest.thresholds());
                    let thresholds = EnsembleThresholds { cells, thresholds, most };
                    self.follow((inputs, feature), thresholds, &mut found)?;
                }
                _ => return None,
            }
        }
        found.sort_unstable_by(f64::total_cmp);
        found.dedup();
        Some(found)
    }

    /// Adds the numbers of a feature at which a cell of an ensemble passes thresholds, about `most` of each cell's.
    fn follow<T: Real>(
        &self,
        (inputs, feature): (&FeatureInputs, usize),
        EnsembleThresholds { cells, thresholds, most }: EnsembleThresholds<'_, T>,
        found: &mut Vec<f64>,
    ) -> Option<()> {
        let program = &self.engine.program;
        let sources = SlotSources { cells: &program.cells, features: &self.engine.features };
        for run in thresholds.chunk_by(|one, two| one.0 == two.0) {
            let cell = cells[run[0].0 as usize];
            let behind = sources.behind(cell);
            if !behind.contains(&feature) {
                continue;
            }
            if behind.len() > 1 {
                return None;
            }
            let way = NumberPath::new(self, inputs, (feature, cell))?;
            way.follow(run.iter().step_by(run.len().div_ceil(most)), found)?;
        }
        Some(())
    }

    /// Whether the last cell of a plan never turns round while its number grows.
    fn is_monotone(&self, plan: &Plan) -> bool {
        let cells = &self.engine.program.cells;
        let constant = |cell: &CellId| matches!(cells.op(*cell), Op::Constant(_));
        plan.0.iter().all(|cell| match cells.op(*cell) {
            Op::Slot(_) | Op::Constant(_) => true,
            Op::Unary(function, _) => match function {
                // A cast to a flag is true on both sides of nought.
                Unary::Cast(kind) => !matches!(kind, ElementType::Bool | ElementType::Text),
                Unary::Impute(replaced, _) => replaced.is_nan(),
                Unary::Scale(..)
                | Unary::Binarize(_)
                | Unary::IsNan
                | Unary::Not
                | Unary::Neg
                | Unary::Sqrt => true,
                Unary::OneHot(_) | Unary::Lookup(_) | Unary::Pick(_) | Unary::Abs => false,
            },
            Op::Binary(Binary::Equal, ..) => false,
            Op::Binary(Binary::Div, _, two) => constant(two),
            Op::Binary(_, one, two) => constant(one) || constant(two),
            _ => false,
        })
    }
}

/// From a feature's numbers to one cell that trees look at.
pub(super) struct NumberPath<'n> {
    native: &'n Native,
    inputs: &'n FeatureInputs,
    feature: usize,
    cell: CellId,
    plan: Plan,
}

/// Which numbers of a feature put a cell at most at a threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Below {
    /// Up to this one.
    UpTo(f64),
    /// Above this one.
    Above(f64),
    All,
    None,
}

impl<'n> NumberPath<'n> {
    /// A way to a cell that depends on one numeric feature; none where it turns round while the number grows.
    pub(super) fn new(
        native: &'n Native,
        inputs: &'n FeatureInputs,
        (feature, cell): (usize, CellId),
    ) -> Option<NumberPath<'n>> {
        let plan = native.engine.program.cells.plan([cell]);
        native.is_monotone(&plan).then_some(NumberPath { native, inputs, feature, cell, plan })
    }

    /// The last number on the near side of each threshold.
    fn follow<'t, T: Real>(
        &self,
        thresholds: impl Iterator<Item = &'t (u32, T)>,
        found: &mut Vec<f64>,
    ) -> Option<()> {
        let mut values = self.native.engine.program.cells.buffer();
        for (_, threshold) in thresholds {
            match self.below(*threshold, &mut values)? {
                Below::UpTo(number) | Below::Above(number) => found.push(number),
                Below::All | Below::None => {}
            }
        }
        Some(())
    }

    /// The numbers that put the cell at most at a threshold; none where numbers put it nowhere.
    pub(super) fn below<T: Real>(&self, threshold: T, values: &mut [Value]) -> Option<Below> {
        let ends = [self.at(f64::MIN, values)?, self.at(f64::MAX, values)?].map(T::of);
        let middle = T::of(self.at(0.0, values)?);
        if ends.iter().chain([&middle]).any(|end| end.is_gap()) {
            return None;
        }
        let below = |cell: T| cell <= threshold;
        let side = below(ends[0]);
        if side == below(ends[1]) {
            return Some(if side { Below::All } else { Below::None });
        }
        let (mut near, mut far) = (order(f64::MIN), order(f64::MAX));
        while far - near > 1 {
            let between = near + (far - near) / 2;
            let cell = T::of(self.at(number(between), values)?);
            if below(cell) == side { near = between } else { far = between }
        }
        Some(if side { Below::UpTo(number(near)) } else { Below::Above(number(near)) })
    }

    /// The cell for a number.
    pub(super) fn at(&self, number: f64, values: &mut [Value]) -> Option<Value> {
        let value = self.native.sources.number(self.inputs, self.feature, number)?;
        let cells = &self.native.engine.program.cells;
        for (_, cell) in cells.slots(&self.plan) {
            values[cell as usize] = value;
        }
        cells.compute(&self.plan, values);
        Some(values[self.cell as usize])
    }
}

/// The place of a number among all numbers, ascending, and back. The two zeros are one.
fn order(number: f64) -> i128 {
    let bits = number.to_bits();
    let magnitude = i128::from(bits & !(1 << 63));
    if number.is_sign_negative() { -magnitude } else { magnitude }
}

fn number(order: i128) -> f64 {
    let magnitude = f64::from_bits(order.unsigned_abs() as u64);
    if order < 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_without_gaps() {
        for at in [f64::MIN, -1.5, -f64::from_bits(1), 0.0, f64::from_bits(1), 2.0, f64::MAX] {
            assert_eq!(number(order(at)).to_bits(), at.to_bits());
            if at < f64::MAX {
                assert_eq!(number(order(at) + 1), at.next_up());
            }
        }
        assert_eq!(order(-0.0), order(0.0));
    }
}
