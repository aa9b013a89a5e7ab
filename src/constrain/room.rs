//! What one row may become, feature by feature: for those who look for counterfactuals by trying, rather
//! than by taking what a network says.

use super::{Conditions, Constraints, RowBounds, RuleIndex};
use crate::feature::{Cell, NULL_CODE};

/// What one row may become.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    constraints: &'a Constraints,
    condition: &'a [f32],
    bounds: &'a RowBounds,
    row: usize,
}

impl Constraints {
    /// What a row may become under its condition and its own bounds.
    pub fn room<'a>(
        &'a self,
        conditions: &'a Conditions,
        bounds: &'a RowBounds,
        row: usize,
    ) -> Room<'a> {
        Room { constraints: self, condition: conditions.row(row), bounds, row }
    }
}

impl Room<'_> {
    /// The allowed number that is nearest to the wanted one: the own, which always is, or another.
    pub fn number(&self, feature: usize, wanted: f64, own: f64) -> f64 {
        match &self.constraints.rules[feature] {
            RuleIndex::Numeric(place) => {
                let rule = &self.constraints.numerics[*place];
                rule.nearest(wanted, own, self.condition, self.bounds.ends(feature)(self.row))
            }
            RuleIndex::Categorical(_) => own,
        }
    }

    /// The next allowed number above (1) or below (-1) another; the same if there is none.
    pub fn beside(&self, feature: usize, number: f64, own: f64, side: f64) -> f64 {
        match &self.constraints.rules[feature] {
            RuleIndex::Numeric(place) => {
                let next = self.constraints.numerics[*place].beside(number, side);
                self.number(feature, next, own)
            }
            RuleIndex::Categorical(_) => own,
        }
    }

    /// From the least to the greatest number that it may change to; none if it cannot change.
    pub fn interval(&self, feature: usize, own: f64) -> Option<(f64, f64)> {
        match &self.constraints.rules[feature] {
            RuleIndex::Numeric(place) => {
                let rule = &self.constraints.numerics[*place];
                rule.reach(own, self.condition, self.bounds.ends(feature)(self.row))
            }
            RuleIndex::Categorical(_) => None,
        }
    }

    /// Whether a category may become another.
    pub fn allows(&self, feature: usize, code: u32, own: u32) -> bool {
        match &self.constraints.rules[feature] {
            RuleIndex::Categorical(place) => {
                let rule = &self.constraints.categoricals[*place];
                let listed = |code| {
                    let lists = self.bounds.allowed(feature);
                    lists.is_none_or(|lists| lists.contains(self.row, code))
                };
                own != NULL_CODE && rule.allows(code, own, self.condition) && listed(code as usize)
            }
            RuleIndex::Numeric(_) => false,
        }
    }

    /// What a value becomes on its way to another row's: that value, or the nearest that is allowed.
    pub fn toward(&self, feature: usize, wanted: Cell, own: Cell) -> Cell {
        match (wanted, own) {
            (Cell::Number(wanted), Cell::Number(own)) if wanted.is_finite() => {
                Cell::Number(self.number(feature, wanted, own))
            }
            (Cell::Code(code), Cell::Code(old)) if self.allows(feature, code, old) => {
                Cell::Code(code)
            }
            _ => own,
        }
    }

    /// All that a value may become beside what it is; none if that is more than `most`.
    pub fn options(&self, feature: usize, own: Cell, most: usize) -> Option<Vec<Cell>> {
        let found: Vec<Cell> = match (&self.constraints.rules[feature], own) {
            (RuleIndex::Numeric(place), Cell::Number(own)) => {
                let rule = &self.constraints.numerics[*place];
                let ends = self.bounds.ends(feature)(self.row);
                let numbers = rule.all(own, self.condition, ends, most)?;
                numbers.into_iter().map(Cell::Number).collect()
            }
            (RuleIndex::Categorical(place), Cell::Code(own)) => {
                let values = self.constraints.categoricals[*place].values() as u32;
                let other = |code: &u32| *code != own && self.allows(feature, *code, own);
                (0..values).filter(other).map(Cell::Code).collect()
            }
            _ => Vec::new(),
        };
        (found.len() <= most).then_some(found)
    }
}
