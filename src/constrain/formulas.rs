//! Numerics that follow from one or two others in every training row: a ratio, a sum, the same in other units.

use serde::{Deserialize, Serialize};

use crate::feature::{ArithmeticOperator, Change, Feature, FeatureSchema, Rows, sql_name};

/// Numerics in which formulas are looked for, at most: the time grows with the third power.
const MOST_NUMERICS: usize = 150;
/// Rows that a formula must hold in, at least.
const FEWEST_ROWS: usize = 50;
/// … of those in which its result is known, this share.
const SHARE_OF_ROWS: f64 = 0.9;
/// Rows in which a feature is not what it mostly is, at least.
const FEWEST_OTHERS: usize = 20;
/// Decimals that a rounded result is looked for with, at most.
const MOST_DECIMALS: i32 = 4;
/// Units of the last decimal that a rounded result's standard deviation has, at least.
const UNITS: f64 = 5.0;
/// Share of the numbers at either end that a column's spread leaves out: one beyond all measure would make
/// everything the same as everything.
const ENDS: f64 = 0.01;
/// What binary fractions of 32 bits lose, as a share.
const LOST: f64 = 1e-6;

/// A numeric that follows from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Formula {
    /// The feature.
    pub feature: String,
    /// How it is computed, in SQL.
    pub value: String,
}

/// A formula that holds in all rows.
struct FormulaCandidate {
    target: usize,
    inputs: [usize; 2],
    /// Of several formulas that cannot all be kept, the least is.
    rank: (u8, i32, u8, usize),
    value: String,
}

/// A numeric feature's numbers.
struct RuleInput<'a> {
    index: usize,
    feature: &'a Feature,
    numbers: &'a [f64],
    /// Decimals that all numbers have, if they are few.
    decimals: Option<i32>,
    /// Standard deviation without the [`ENDS`].
    std: f64,
    /// Whether it takes different values often enough to tell anything.
    varies: bool,
}

/// Formulas that hold in the first `count` of these rows.
pub(super) fn formulas(rows: &Rows, count: usize, schema: &FeatureSchema) -> Vec<Formula> {
    let numerics = schema.features.iter().zip(&rows.cells).enumerate();
    let columns: Vec<RuleInput<'_>> = numerics
        .filter(|(index, _)| !schema.is_derived(*index))
        .filter_map(|(index, (feature, cells))| {
            Some(RuleInput::new(index, feature, &cells.numbers()?[..count]))
        })
        .filter(|column| column.varies)
        .collect();
    if columns.len() > MOST_NUMERICS {
        return Vec::new();
    }
    let read = |index: usize| schema.derived.iter().any(|of| of.inputs.contains(&index));
    let mut found: Vec<FormulaCandidate> = Vec::new();
    for target in columns.iter().filter(|column| column.may_follow() && !read(column.index)) {
        for one in columns.iter().filter(|one| one.index != target.index) {
            found.extend(target.scaled(one));
            for two in columns.iter().filter(|two| ![target.index, one.index].contains(&two.index))
            {
                found.extend(target.computed(one, two));
            }
        }
    }
    found.sort_by_key(|candidate| candidate.rank);
    chosen(found).into_iter().map(|one| one.formula(schema)).collect()
}

/// Formulas of which none reads what follows from another.
fn chosen(candidates: Vec<FormulaCandidate>) -> Vec<FormulaCandidate> {
    let mut kept: Vec<FormulaCandidate> = Vec::new();
    for candidate in candidates {
        let clashes = |other: &FormulaCandidate| {
            other.target == candidate.target
                || other.inputs.contains(&candidate.target)
                || candidate.inputs.contains(&other.target)
        };
        if !kept.iter().any(clashes) {
            kept.push(candidate);
        }
    }
    kept
}

impl FormulaCandidate {
    fn formula(self, schema: &FeatureSchema) -> Formula {
        Formula { feature: schema.features[self.target].name.clone(), value: self.value }
    }
}

impl<'a> RuleInput<'a> {
    fn new(index: usize, feature: &'a Feature, numbers: &'a [f64]) -> RuleInput<'a> {
        let mut sorted: Vec<f64> =
            numbers.iter().copied().filter(|number| number.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let most = sorted.chunk_by(|one, two| one == two).map(<[f64]>::len).max().unwrap_or(0);
        let ends = (ENDS * sorted.len() as f64).ceil() as usize;
        let middle = sorted.get(ends..sorted.len() - ends).unwrap_or_default();
        let mean = middle.iter().sum::<f64>() / middle.len().max(1) as f64;
        let square = |number: &f64| (number - mean).powi(2);
        let std = (middle.iter().map(square).sum::<f64>() / middle.len().max(1) as f64).sqrt();
        let varies = sorted.len() >= FEWEST_ROWS && sorted.len() - most >= FEWEST_OTHERS;
        let decimals = (0..=MOST_DECIMALS).find(|decimals| has_decimals(&sorted, *decimals));
        RuleInput { index, feature, numbers, decimals, std, varies }
    }

    /// Whether nothing but its range is said about the feature: then it may follow others.
    fn may_follow(&self) -> bool {
        let plain =
            self.feature.numeric().is_some_and(|of| of.limit.is_none() && of.step.is_none());
        plain && self.feature.change == Change::Any
    }

    /// How much a result may differ from a number of the column to be the same.
    fn tolerance(&self, number: f64) -> f64 {
        let unit = self.decimals.map_or(f64::INFINITY, |decimals| 10f64.powi(-decimals));
        (LOST * number.abs()).min(0.01 * unit) + 1e-9 * self.std
    }

    /// Whether the column is computed so from others.
    fn is(&self, tolerance: impl Fn(f64) -> f64, value: impl Fn(usize) -> f64) -> bool {
        let (mut known, mut held) = (0usize, 0usize);
        for (row, number) in self.numbers.iter().enumerate() {
            if number.is_nan() {
                continue;
            }
            known += 1;
            let value = value(row);
            if value.is_finite() {
                if (value - number).abs() > tolerance(*number) {
                    return false;
                }
                held += 1;
            }
        }
        held >= FEWEST_ROWS && held as f64 >= SHARE_OF_ROWS * known as f64
    }

    /// The column as a multiple of another plus a constant.
    fn scaled(&self, of: &RuleInput<'_>) -> Option<FormulaCandidate> {
        let both = || {
            (0..self.numbers.len())
                .filter(|row| (self.numbers[*row] + of.numbers[*row]).is_finite())
        };
        let by_size = |one: &usize, two: &usize| of.numbers[*one].total_cmp(&of.numbers[*two]);
        let (low, high) = (both().min_by(by_size)?, both().max_by(by_size)?);
        let run = of.numbers[high] - of.numbers[low];
        let factor = short((self.numbers[high] - self.numbers[low]) / run);
        let rest = self.numbers[low] - factor * of.numbers[low];
        let rest = if rest.abs() < LOST * self.std { 0.0 } else { short(rest) };
        if !factor.is_finite() || factor == 0.0 {
            return None;
        }
        let value = |row: usize| factor * of.numbers[row] + rest;
        self.is(|number| self.tolerance(number), value).then(|| FormulaCandidate {
            target: self.index,
            inputs: [of.index; 2],
            rank: (0, 0, 0, usize::MAX - self.index),
            value: line(&sql_name(&of.feature.name), factor, rest),
        })
    }

    /// The column computed from two others, to the last digit or rounded.
    fn computed(&self, one: &RuleInput<'_>, two: &RuleInput<'_>) -> Option<FormulaCandidate> {
        let operators = [
            ArithmeticOperator::Add,
            ArithmeticOperator::Multiply,
            ArithmeticOperator::Divide,
            ArithmeticOperator::Subtract,
        ];
        let rounded = self.decimals.filter(|decimals| self.std >= UNITS * 10f64.powi(-decimals));
        for (order, operator) in (0u8..).zip(operators) {
            let sided =
                matches!(operator, ArithmeticOperator::Divide | ArithmeticOperator::Subtract);
            if !sided && one.index > two.index {
                continue;
            }
            let value = |row: usize| operator.apply(one.numbers[row], two.numbers[row]);
            let text = || {
                let names = [&one.feature.name, &two.feature.name].map(|name| sql_name(name));
                format!("{} {} {}", names[0], operator.sign(), names[1])
            };
            let half = |decimals: i32| {
                move |number: f64| 0.500_001 * 10f64.powi(-decimals) + 1e-9 * number.abs()
            };
            let value = if self.is(|number| self.tolerance(number), value) {
                text()
            } else if let Some(decimals) = rounded.filter(|of| self.is(half(*of), value)) {
                format!("ROUND({}, {decimals})", text())
            } else {
                continue;
            };
            // What has most digits was computed, rather than given.
            let digits = self.decimals.unwrap_or(MOST_DECIMALS + 1);
            let rank = (1, -digits, order, usize::MAX - self.index);
            return Some(FormulaCandidate {
                target: self.index,
                inputs: [one.index, two.index],
                rank,
                value,
            });
        }
        None
    }
}

/// Whether all numbers have no more decimals than this.
fn has_decimals(numbers: &[f64], decimals: i32) -> bool {
    let power = 10f64.powi(decimals);
    numbers.iter().all(|number| {
        let scaled = number * power;
        (scaled - scaled.round()).abs() <= (1e-7 * scaled.abs() + 1e-9).min(0.05)
    })
}

/// A number with ten digits: what was lost in computing it is not shown.
fn short(number: f64) -> f64 {
    format!("{number:.9e}").parse().unwrap_or(number)
}

/// A multiple of something plus a constant, as a text.
fn line(name: &str, factor: f64, rest: f64) -> String {
    if factor == -1.0 && rest != 0.0 {
        return format!("{rest} - {name}");
    }
    let product = if factor == 1.0 { name.to_string() } else { format!("{name} * {factor}") };
    match rest {
        0.0 => product,
        _ if rest < 0.0 => format!("{product} - {}", -rest),
        _ => format!("{product} + {rest}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::feature::{Cells, Derived};

    /// Columns by name, each computed from the row's number; `extra` goes into the first one's entry.
    fn found(extra: &str, columns: &[(&str, &dyn Fn(usize) -> f64)]) -> Vec<(String, String)> {
        let mut text = String::new();
        for (index, (name, _)) in columns.iter().enumerate() {
            let extra = if index == 0 { extra } else { "" };
            text += &format!("[[feature]]\nname = \"{name}\"\nkind = \"numeric\"\n{extra}\n");
        }
        let schema = FeatureSchema::parse(&text, Path::new("f.toml")).expect("a good schema");
        let numbers =
            |function: &dyn Fn(usize) -> f64| Cells::Numbers((0..400).map(function).collect());
        let cells = columns.iter().map(|(_, function)| numbers(*function)).collect();
        let found = formulas(&Rows { len: 400, cells }, 400, &schema);
        for Formula { feature, value } in &found {
            let index = columns.iter().position(|(name, _)| name == feature).expect("a column");
            Derived::parse(index, value, &schema.features).expect("it can be declared");
        }
        found.into_iter().map(|of| (of.feature, of.value)).collect()
    }

    fn debt(row: usize) -> f64 {
        (row * 37 % 101) as f64 * 100.0
    }

    fn income(row: usize) -> f64 {
        (row * 53 % 97) as f64 * 250.0 + 1000.0
    }

    fn pair(feature: &str, value: &str) -> Vec<(String, String)> {
        vec![(feature.to_string(), value.to_string())]
    }

    #[test]
    fn ratios_sums_products_and_units_are_found() {
        let ratio = |row: usize| debt(row) / income(row);
        let found_ratio = found("", &[("ratio", &ratio), ("debt", &debt), ("income", &income)]);
        assert_eq!(found_ratio, pair("ratio", "debt / income"), "not the debt as a product");
        let rounded = |row: usize| (100.0 * debt(row) / income(row)).round() / 100.0;
        let found_rounded = found("", &[("debt", &debt), ("r", &rounded), ("income", &income)]);
        assert_eq!(found_rounded, pair("r", "ROUND(debt / income, 2)"));
        let single = |row: usize| f64::from((debt(row) / income(row)) as f32);
        let found_single = found("", &[("debt", &debt), ("r", &single), ("income", &income)]);
        assert_eq!(found_single, pair("r", "debt / income"), "in spite of its 32 bits");
        let sum = |row: usize| debt(row) + income(row);
        let found_sum = found("", &[("debt", &debt), ("all of it", &sum), ("income", &income)]);
        assert_eq!(found_sum, pair("all of it", "debt + income"), "rather than a difference");
        let monthly = |row: usize| income(row) / 12.0;
        let found_units = found("", &[("income", &income), ("monthly", &monthly)]);
        assert_eq!(found_units, pair("monthly", "income * 0.08333333333"));
        let born = |row: usize| 2026.0 - (row * 37 % 61) as f64;
        let age = |row: usize| (row * 37 % 61) as f64;
        assert_eq!(found("", &[("age", &age), ("born", &born)]), pair("born", "2026 - age"));
    }

    #[test]
    fn what_may_not_follow_does_not() {
        let sum = |row: usize| debt(row) + income(row);
        let held =
            found("change = \"never\"", &[("all", &sum), ("debt", &debt), ("income", &income)]);
        assert_eq!(held, pair("income", "\"all\" - debt"), "another one follows then");
    }

    #[test]
    fn one_exception_or_no_relation_is_enough() {
        let almost = |row: usize| debt(row) + income(row) + f64::from(u8::from(row == 399));
        assert!(found("", &[("a", &almost), ("debt", &debt), ("income", &income)]).is_empty());
        let flag = |row: usize| f64::from(u8::from(row.is_multiple_of(100)));
        assert!(found("", &[("a", &flag), ("b", &flag)]).is_empty(), "too few differ");
        assert!(found("", &[("debt", &debt), ("income", &income)]).is_empty());
        let beyond = |row: usize| if row == 7 { 1e300 } else { debt(row) };
        assert!(found("", &[("debt", &beyond), ("income", &income)]).is_empty(), "an outlier");
    }
}
