//! Actions: the changes that most counterfactuals make, in sizes that are common among them, applied to any row.

use std::collections::BTreeMap;

use super::sample::AuditSample;
use crate::explain::Explainer;
use crate::feature::{Cell, Edit, Edits, FeatureSchema, Rows};

/// Signatures that become actions.
const SIGNATURES: usize = 20;
/// Sizes of changes that do.
pub(super) const SIZES: [(&str, f64); 3] = [("p50", 0.5), ("p75", 0.75), ("p90", 0.9)];
/// Actions of a target, at most.
pub(super) const MOST_ACTIONS: usize = SIGNATURES * SIZES.len();

/// How a feature changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    /// A number rises.
    Up,
    /// A number falls.
    Down,
    /// A category becomes this one.
    To(u32),
}

/// What a row is to do about a feature.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FeatureMove {
    /// Change a number by this.
    By(f64),
    /// Become this category.
    To(u32),
}

/// Changes to be made to any row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Action {
    /// Which of the sizes it has.
    pub size: &'static str,
    steps: Vec<(usize, FeatureMove)>,
}

type DirectionSignature = Vec<(usize, Direction)>;

/// The actions of a target: from the commonest changes of its valid counterfactuals.
pub(super) fn candidates(sample: &AuditSample, explainer: &Explainer, target: u32) -> Vec<Action> {
    let counterfactuals =
        explainer.constraints().without_derived(&sample.counterfactuals, &sample.rows.originals);
    let mut found: BTreeMap<DirectionSignature, Vec<u32>> = BTreeMap::new();
    for row in 0..sample.len() {
        if sample.rows.target_numbers[row] == target && sample.valid[row] {
            let signature = signature(&sample.rows.originals, &counterfactuals, row);
            found.entry(signature).or_default().push(row as u32);
        }
    }
    found.remove(&DirectionSignature::new());
    let mut found: Vec<(DirectionSignature, Vec<u32>)> = found.into_iter().collect();
    // The sort keeps equally common ones in the order of the features.
    found.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    found.truncate(SIGNATURES);
    let mut actions: Vec<Action> = Vec::new();
    for (signature, rows) in &found {
        for (size, share) in SIZES {
            let step = |(feature, direction): &(usize, Direction)| {
                let sizes = || sizes(&sample.rows.originals, &counterfactuals, (*feature, rows));
                let step = match direction {
                    Direction::Up => FeatureMove::By(nearest_rank(sizes(), share)),
                    Direction::Down => FeatureMove::By(-nearest_rank(sizes(), share)),
                    Direction::To(code) => FeatureMove::To(*code),
                };
                (*feature, step)
            };
            let action = Action { size, steps: signature.iter().map(step).collect() };
            if !actions.iter().any(|known| known.steps == action.steps) {
                actions.push(action);
            }
        }
    }
    actions
}

fn signature(originals: &Rows, counterfactuals: &Rows, row: usize) -> DirectionSignature {
    let mut signature = DirectionSignature::new();
    for feature in 0..originals.cells.len() {
        match (originals.cell(feature, row), counterfactuals.cell(feature, row)) {
            (Cell::Number(original), Cell::Number(new)) if new > original => {
                signature.push((feature, Direction::Up));
            }
            (Cell::Number(original), Cell::Number(new)) if new < original => {
                signature.push((feature, Direction::Down));
            }
            (Cell::Code(original), Cell::Code(new)) if new != original => {
                signature.push((feature, Direction::To(new)));
            }
            _ => {}
        }
    }
    signature
}

/// How far a number moves in some rows, ascending.
fn sizes(originals: &Rows, counterfactuals: &Rows, (feature, rows): (usize, &[u32])) -> Vec<f64> {
    let size = |row: &u32| match (
        originals.cell(feature, *row as usize),
        counterfactuals.cell(feature, *row as usize),
    ) {
        (Cell::Number(original), Cell::Number(new)) => (new - original).abs(),
        _ => 0.0,
    };
    let mut sizes: Vec<f64> = rows.iter().map(size).collect();
    sizes.sort_by(f64::total_cmp);
    sizes
}

/// A quantile that is one of the numbers: the least one that so many do not exceed.
fn nearest_rank(ascending: Vec<f64>, share: f64) -> f64 {
    let rank = (share * ascending.len() as f64).ceil().max(1.0) as usize;
    ascending.get(rank - 1).copied().unwrap_or(0.0)
}

impl Action {
    /// It in words: `income +5000, housing = original`.
    pub(super) fn text(&self, schema: &FeatureSchema) -> String {
        let word = |(feature, step): &(usize, FeatureMove)| {
            let feature = &schema.features[*feature];
            match (step, feature.categorical()) {
                (FeatureMove::To(code), Some(categorical)) => {
                    format!("{} = {}", feature.name, categorical.values[*code as usize])
                }
                (FeatureMove::By(size), _) => format!("{} {size:+}", feature.name),
                (FeatureMove::To(_), None) => feature.name.clone(),
            }
        };
        self.steps.iter().map(word).collect::<Vec<_>>().join(", ")
    }

    /// What it makes of a row; none where the row's constraints forbid it, or there is nothing left to change.
    /// Numbers go to the nearest one that is allowed, but no less far than they are meant to for a limit or an end of
    /// a range.
    pub(super) fn edits(
        &self,
        (sample, explainer): (&AuditSample, &Explainer),
        row: usize,
    ) -> Option<Edits> {
        let (rows, constraints) = (&sample.rows, explainer.constraints());
        let feasible = constraints.feasible(&rows.conditions, &rows.bounds, row);
        let original = |feature: usize| rows.originals.cell(feature, row);
        let mut edits = Edits::new();
        for (feature, step) in &self.steps {
            let cell = match (step, original(*feature)) {
                (FeatureMove::By(size), Cell::Number(number)) => {
                    let moved = number + size;
                    let found = feasible.number(*feature, moved, number);
                    let beside = |side: f64| feasible.beside(*feature, found, number, side);
                    let near = (moved - found).abs() <= 1e-9 * (moved.abs() + number.abs());
                    let between = beside(-1.0) < moved && moved < beside(1.0);
                    let moves = (found - number) * size > 0.0;
                    (moves && (near || between)).then_some(Cell::Number(found))?
                }
                (FeatureMove::To(code), Cell::Code(old)) if *code == old => continue,
                (FeatureMove::To(code), Cell::Code(old)) => {
                    feasible.allows(*feature, *code, old).then_some(Cell::Code(*code))?
                }
                _ => return None,
            };
            edits.push(Edit { feature: *feature, cell });
        }
        let possible = !edits.is_empty() && constraints.is_coherent(&edits, original);
        possible.then_some(edits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_numbers_that_occur() {
        let numbers: Vec<f64> = (1..=10).map(f64::from).collect();
        let of = |share| nearest_rank(numbers.clone(), share);
        assert_eq!([of(0.5), of(0.75), of(0.9), of(1.0)], [5.0, 8.0, 9.0, 10.0]);
        assert_eq!(nearest_rank(vec![3.0], 0.5), 3.0);
        assert_eq!(nearest_rank(Vec::new(), 0.5), 0.0);
    }
}
