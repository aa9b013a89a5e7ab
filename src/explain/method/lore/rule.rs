//! Leaves of the target as rules: what they ask of a row, in words and as the least move that meets them.

use std::sync::Arc;

use super::neighbourhood::Neighbourhood;
use super::tree::{RuleLeaf, Test, leaves};
use crate::explain::method::variables::Variables;
use crate::explain::refine::{Changes, QueryCache};
use crate::feature::{Cell, FeatureSchema};

/// A row that was moved to where a rule holds.
pub(super) struct MovedRow {
    pub(super) changes: Changes,
    /// The rule in words.
    pub(super) text: Arc<str>,
    /// Conditions that the row did not meet.
    broken: usize,
    distance: f64,
}

/// What a rule asks of one variable.
#[derive(Debug, Clone, PartialEq)]
enum Condition {
    /// More than the first and at most the second.
    Between(f64, f64),
    /// This category.
    Is(u32),
    /// None of these.
    Not(Vec<u32>),
}

impl Condition {
    fn holds(&self, value: Cell) -> bool {
        match (self, value) {
            (Condition::Between(low, high), Cell::Number(number)) => {
                number > *low && number <= *high
            }
            (Condition::Is(code), Cell::Code(own)) => *code == own,
            (Condition::Not(codes), Cell::Code(own)) => !codes.contains(&own),
            _ => false,
        }
    }

    fn text(&self, schema: &FeatureSchema, feature: usize) -> String {
        let of = &schema.features[feature];
        let name = &of.name;
        let label = |code: &u32| {
            let values = of.categorical().map(|categorical| &categorical.values);
            let label = values.and_then(|values| values.get(*code as usize));
            label.map_or_else(|| "another value".to_string(), |label| format!("{label:?}"))
        };
        match self {
            Condition::Between(low, high) => match (low.is_finite(), high.is_finite()) {
                (true, true) => format!("{name} > {low} and {name} <= {high}"),
                (true, false) => format!("{name} > {low}"),
                _ => format!("{name} <= {high}"),
            },
            Condition::Is(code) => format!("{name} = {}", label(code)),
            Condition::Not(codes) => {
                let each = codes.iter().map(|code| format!("{name} <> {}", label(code)));
                each.collect::<Vec<_>>().join(" and ")
            }
        }
    }
}

/// The row moved to every leaf of the target that it may reach: those first of whose conditions it breaks the fewest,
/// then the nearest.
pub(super) fn moved_rows(
    cache: &QueryCache<'_>,
    schema: &FeatureSchema,
    learnt: &Neighbourhood,
) -> Vec<MovedRow> {
    let leaves = leaves(&learnt.scored);
    let targets = leaves.iter().filter(|leaf| leaf.target);
    let mut moved: Vec<MovedRow> =
        targets.filter_map(|leaf| moved_to(cache, schema, learnt, leaf)).collect();
    moved.sort_by(|one, two| {
        one.broken.cmp(&two.broken).then(one.distance.total_cmp(&two.distance))
    });
    moved
}

fn moved_to(
    cache: &QueryCache<'_>,
    schema: &FeatureSchema,
    learnt: &Neighbourhood,
    leaf: &RuleLeaf,
) -> Option<MovedRow> {
    let variables = &learnt.variables;
    let conditions = conditions(&leaf.path);
    let mut values = variables.originals();
    let mut broken = 0;
    for (index, condition) in &conditions {
        if !condition.holds(values[*index]) {
            broken += 1;
            values[*index] = match condition {
                Condition::Between(low, high) => {
                    number_inside(cache, variables, *index, (*low, *high))?
                }
                Condition::Is(code) => variables.allowed(cache, *index, Cell::Code(*code)),
                Condition::Not(_) => commonest(learnt, leaf, *index)?,
            };
            if !condition.holds(values[*index]) {
                return None;
            }
        }
    }
    let values = variables.coherent(cache, values);
    let changes = variables.changes(&values);
    let words = |(index, condition): &(usize, Condition)| {
        condition.text(schema, variables.all[*index].feature)
    };
    let text = conditions.iter().map(words).collect::<Vec<_>>().join(" and ");
    let distance = learnt.distance(&values);
    (!changes.is_empty()).then(|| MovedRow { changes, text: text.into(), broken, distance })
}

/// What a path asks of each variable, in the order of the variables.
fn conditions(path: &[(Test, bool)]) -> Vec<(usize, Condition)> {
    let mut found: Vec<(usize, Condition)> = Vec::new();
    for (test, holds) in path {
        let index = match test {
            Test::AtMost(index, _) | Test::Is(index, _) => *index,
        };
        let at = found.iter().position(|(known, _)| *known == index);
        let known = at.map(|at| found.remove(at).1);
        found.push((index, narrowed(known, *test, *holds)));
    }
    found.sort_by_key(|(index, _)| *index);
    found
}

/// What is asked of a variable after one more test.
fn narrowed(known: Option<Condition>, test: Test, holds: bool) -> Condition {
    let everything = (f64::NEG_INFINITY, f64::INFINITY);
    match (test, known) {
        (Test::AtMost(_, bound), known) => {
            let (low, high) = match known {
                Some(Condition::Between(low, high)) => (low, high),
                _ => everything,
            };
            if holds {
                Condition::Between(low, high.min(bound))
            } else {
                Condition::Between(low.max(bound), high)
            }
        }
        (Test::Is(_, code), _) if holds => Condition::Is(code),
        (Test::Is(..), Some(Condition::Is(code))) => Condition::Is(code),
        (Test::Is(_, code), Some(Condition::Not(mut codes))) => {
            codes.push(code);
            Condition::Not(codes)
        }
        (Test::Is(_, code), _) => Condition::Not(vec![code]),
    }
}

/// The allowed number in an interval that is nearest to the original; none if there is none.
fn number_inside(
    cache: &QueryCache<'_>,
    variables: &Variables,
    index: usize,
    (low, high): (f64, f64),
) -> Option<Cell> {
    let variable = &variables.all[index];
    let Cell::Number(original) = variable.original else { return None };
    let feasible = cache.feasible(variables.request);
    let (end, inward) = if original > high { (high, -1.0) } else { (low, 1.0) };
    let nearest = feasible.number(variable.feature, end, original);
    let next = feasible.beside(variable.feature, nearest, original, inward);
    let inside = |number: &f64| *number > low && *number <= high;
    [nearest, next].into_iter().find(inside).map(Cell::Number)
}

/// The category that most of a leaf's rows of the target have.
fn commonest(learnt: &Neighbourhood, leaf: &RuleLeaf, index: usize) -> Option<Cell> {
    let rows = leaf.rows.iter().map(|row| &learnt.scored[*row]);
    let reached = rows.filter(|(_, reached)| *reached);
    let mut counts: Vec<(Cell, usize)> = Vec::new();
    for (values, _) in reached {
        match counts.iter_mut().find(|(known, _)| *known == values[index]) {
            Some((_, count)) => *count += 1,
            None => counts.push((values[index], 1)),
        }
    }
    // Of equally common ones the first that was seen.
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(cell, _)| cell)
}
