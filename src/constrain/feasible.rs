//! What one row may become, feature by feature: for those who look for counterfactuals by trying, rather
//! than by taking what a network says.

use super::{Conditions, Constraints, RowBounds, RuleIndex};
use crate::feature::{Cell, NULL_CODE};

/// What one row may become.
#[derive(Debug, Clone, Copy)]
pub struct FeasibleSet<'a> {
    constraints: &'a Constraints,
    condition: &'a [f32],
    bounds: &'a RowBounds,
    row: usize,
}

impl Constraints {
    /// What a row may become under its condition and its own bounds.
    pub fn feasible<'a>(
        &'a self,
        conditions: &'a Conditions,
        bounds: &'a RowBounds,
        row: usize,
    ) -> FeasibleSet<'a> {
        FeasibleSet { constraints: self, condition: conditions.row(row), bounds, row }
    }
}

impl FeasibleSet<'_> {
    /// The allowed number that is nearest to the proposed one: the own, which always is, or another.
    pub fn number(&self, feature: usize, proposed: f64, original: f64) -> f64 {
        match &self.constraints.rules[feature] {
            RuleIndex::Numeric(index) => {
                let rule = &self.constraints.numerics[*index];
                rule.nearest(
                    proposed,
                    original,
                    self.condition,
                    self.bounds.ends(feature)(self.row),
                )
            }
            RuleIndex::Categorical(_) => original,
        }
    }

    /// The next allowed number above (1) or below (-1) another; the same if there is none.
    pub fn beside(&self, feature: usize, number: f64, original: f64, side: f64) -> f64 {
        match &self.constraints.rules[feature] {
            RuleIndex::Numeric(index) => {
                let next = self.constraints.numerics[*index].beside(number, side);
                self.number(feature, next, original)
            }
            RuleIndex::Categorical(_) => original,
        }
    }

    /// From the least to the greatest number that it may change to; none if it cannot change.
    pub fn interval(&self, feature: usize, original: f64) -> Option<(f64, f64)> {
        match &self.constraints.rules[feature] {
            RuleIndex::Numeric(index) => {
                let rule = &self.constraints.numerics[*index];
                rule.reach(original, self.condition, self.bounds.ends(feature)(self.row))
            }
            RuleIndex::Categorical(_) => None,
        }
    }

    /// Whether a category may become another.
    pub fn allows(&self, feature: usize, code: u32, original: u32) -> bool {
        match &self.constraints.rules[feature] {
            RuleIndex::Categorical(index) => {
                let rule = &self.constraints.categoricals[*index];
                let listed = |code| {
                    let lists = self.bounds.allowed(feature);
                    lists.is_none_or(|lists| lists.contains(self.row, code))
                };
                original != NULL_CODE
                    && rule.allows(code, original, self.condition)
                    && listed(code as usize)
            }
            RuleIndex::Numeric(_) => false,
        }
    }

    /// What a value becomes on its way to another row's: that value, or the nearest that is allowed.
    pub fn toward(&self, feature: usize, proposed: Cell, original: Cell) -> Cell {
        match (proposed, original) {
            (Cell::Number(proposed), Cell::Number(original)) if proposed.is_finite() => {
                Cell::Number(self.number(feature, proposed, original))
            }
            (Cell::Code(code), Cell::Code(old)) if self.allows(feature, code, old) => {
                Cell::Code(code)
            }
            _ => original,
        }
    }

    /// All that a value may become beside what it is; none if that is more than `most`.
    pub fn options(&self, feature: usize, original: Cell, most: usize) -> Option<Vec<Cell>> {
        let found: Vec<Cell> = match (&self.constraints.rules[feature], original) {
            (RuleIndex::Numeric(index), Cell::Number(original)) => {
                let rule = &self.constraints.numerics[*index];
                let ends = self.bounds.ends(feature)(self.row);
                let numbers = rule.all(original, self.condition, ends, most)?;
                numbers.into_iter().map(Cell::Number).collect()
            }
            (RuleIndex::Categorical(index), Cell::Code(original)) => {
                let values = self.constraints.categoricals[*index].values() as u32;
                let other = |code: &u32| *code != original && self.allows(feature, *code, original);
                (0..values).filter(other).map(Cell::Code).collect()
            }
            _ => Vec::new(),
        };
        (found.len() <= most).then_some(found)
    }
}
