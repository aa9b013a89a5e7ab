//! What training rows keep to without exception, though they would break it often if columns were independent:
//! numbers of which one is never above the other, categories that never go together, and numbers that follow from
//! others. Found in one pass.

use serde::{Deserialize, Serialize};

use super::formulas::{Formula, formulas};
use crate::feature::{
    BrokenPolicy, Cells, Change, ComparisonOperator, Derived, Feature, FeatureSchema,
    NumberExpression, Rows, Rule, Truth, sql_name,
};

/// Times that independent columns would have a combination of categories that never occurs, at least: by chance it
/// never does with a probability of e to the minus that.
const EXPECTED_COMBINATIONS: f64 = 20.0;
/// Times that independent columns would break an order of two numbers, at least. Fewer than for combinations, of which
/// there are many more: an order that small tables show by chance costs less than an impossible counterfactual.
const EXPECTED_BREAKS: f64 = 5.0;
/// Categorical features with more values are left alone: their combinations are too many to be seen.
const MOST_VALUES: usize = 256;
/// Rows looked at before the pairs that are left are sorted out.
const FIRST_ROWS: usize = 64;

/// What training rows keep to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Pairs of numerics: the first is never above the second.
    pub orders: Vec<Order>,
    /// Combinations of categories that never occur.
    pub combinations: Vec<Combinations>,
    /// Numerics that follow from others.
    pub formulas: Vec<Formula>,
}

/// Two numerics, one of which is never above the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The lower one.
    pub low: String,
    /// The higher one.
    pub high: String,
}

/// Combinations of two categorical features' values that never occur.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Combinations {
    /// The two features.
    pub features: [String; 2],
    /// Values of the first and the second.
    pub excluded: Vec<[String; 2]>,
}

impl Observed {
    /// What the first `count` of these rows keep to.
    pub fn find(rows: &Rows, count: usize, schema: &FeatureSchema) -> Observed {
        let count = count.min(rows.len);
        Observed {
            orders: orders(rows, count, schema),
            combinations: combinations(rows, count, schema),
            formulas: formulas(rows, count, schema),
        }
    }

    /// The same as texts of rules, one for each, with what each is: an `order`, a `combination` or `derived`.
    pub fn texts(&self) -> Vec<(&'static str, String)> {
        let text = |value: &String| format!("'{}'", value.replace('\'', "''"));
        let orders = self.orders.iter();
        let mut texts: Vec<(&str, String)> = orders
            .map(|order| format!("{} <= {}", sql_name(&order.low), sql_name(&order.high)))
            .map(|text| ("order", text))
            .collect();
        for Combinations { features: [first, second], excluded } in &self.combinations {
            texts.extend(excluded.iter().map(|[one, two]| {
                let (first, second) = (sql_name(first), sql_name(second));
                let rule = format!("{first} <> {} OR {second} <> {}", text(one), text(two));
                ("combination", rule)
            }));
        }
        let formula = |of: &Formula| format!("{} = {}", sql_name(&of.feature), of.value);
        texts.extend(self.formulas.iter().map(|of| ("derived", formula(of))));
        texts
    }

    /// The same without formulas of these features, which are held to bounds of their own in single rows.
    #[must_use]
    pub fn without_formulas_of(mut self, schema: &FeatureSchema, features: &[usize]) -> Observed {
        let bound =
            |of: &Formula| features.iter().any(|at| schema.features[*at].name == of.feature);
        self.formulas.retain(|of| !bound(of));
        self
    }

    /// The features of a schema that follow from others, beside those that it says itself. What it holds to more
    /// than a range does not.
    pub(super) fn derived(&self, schema: &FeatureSchema) -> Vec<Derived> {
        let free = |index: usize| {
            let feature = &schema.features[index];
            let numeric = feature.numeric();
            let plain = numeric.is_some_and(|of| of.limit.is_none() && of.step.is_none());
            let read = schema.derived.iter().any(|of| of.inputs.contains(&index));
            plain && feature.change == Change::Any && !schema.is_derived(index) && !read
        };
        let derived = |of: &Formula| {
            let index = schema.features.iter().position(|known| known.name == of.feature)?;
            Derived::parse(index, &of.value, &schema.features).ok().filter(|_| free(index))
        };
        let chained = |of: &Derived| of.inputs.iter().any(|input| schema.is_derived(*input));
        self.formulas.iter().filter_map(derived).filter(|of| !chained(of)).collect()
    }

    /// The same as rules over the features of a schema. What it does not have is left out.
    pub(super) fn rules(&self, schema: &FeatureSchema) -> Vec<Rule> {
        let index = |name: &String| schema.features.iter().position(|of| of.name == *name);
        let order = |order: &Order| {
            let (low, high) = (index(&order.low)?, index(&order.high)?);
            let numeric = |index: usize| schema.features[index].numeric().is_some();
            let (left, right) = (NumberExpression::Feature(low), NumberExpression::Feature(high));
            let truth = Truth::Compare(ComparisonOperator::LessOrEqual, left, right);
            let text = format!("{} <= {}", order.low, order.high);
            (numeric(low) && numeric(high))
                .then(|| Rule::new(text, BrokenPolicy::KeepNoWorse, truth))
        };
        let combination = |of: &Combinations| {
            let (one, two) = (index(&of.features[0])?, index(&of.features[1])?);
            let values = |index: usize| {
                schema.features[index].categorical().map(|categorical| &categorical.values)
            };
            let (first, second) = (values(one)?, values(two)?);
            let code = |values: &[String], value: &String| values.iter().position(|of| of == value);
            let mut excluded = vec![false; first.len() * second.len()];
            for [left, right] in &of.excluded {
                if let (Some(left), Some(right)) = (code(first, left), code(second, right)) {
                    excluded[left * second.len() + right] = true;
                }
            }
            let text = format!("{} goes with {}", of.features[0], of.features[1]);
            let truth = Truth::Combination { features: (one, two), excluded, width: second.len() };
            Some(Rule::new(text, BrokenPolicy::KeepNoWorse, truth))
        };
        let orders = self.orders.iter().filter_map(order);
        orders.chain(self.combinations.iter().filter_map(combination)).collect()
    }
}

/// A numeric feature's numbers.
struct SortedNumbers<'a> {
    feature: &'a Feature,
    numbers: &'a [f64],
    /// Without nulls, ascending.
    sorted: Vec<f64>,
}

fn orders(rows: &Rows, count: usize, schema: &FeatureSchema) -> Vec<Order> {
    let columns: Vec<SortedNumbers<'_>> = schema
        .features
        .iter()
        .zip(&rows.cells)
        .enumerate()
        .filter(|(index, _)| !schema.is_derived(*index))
        .filter_map(|(_, (feature, cells))| {
            let numbers = &cells.numbers()?[..count];
            let mut sorted: Vec<f64> =
                numbers.iter().copied().filter(|number| !number.is_nan()).collect();
            sorted.sort_unstable_by(f64::total_cmp);
            Some(SortedNumbers { feature, numbers, sorted })
        })
        .collect();
    let pairs = (0..columns.len()).flat_map(|low| (0..columns.len()).map(move |high| (low, high)));
    let kept = |(low, high): &(usize, usize), rows: std::ops::Range<usize>| {
        let pairs = columns[*low].numbers[rows.clone()].iter().zip(&columns[*high].numbers[rows]);
        // A null breaks nothing.
        pairs.fold(0u32, |broken, (low, high)| broken | u32::from(low > high)) == 0
    };
    // Nearly all pairs are out after a few rows.
    let first = count.min(FIRST_ROWS);
    let order = |(low, high): (usize, usize)| Order {
        low: columns[low].feature.name.clone(),
        high: columns[high].feature.name.clone(),
    };
    pairs
        .filter(|(low, high)| low != high)
        .filter(|pair| kept(pair, 0..first))
        .filter(|pair| kept(pair, first..count))
        .filter(|(low, high)| is_binding(&columns[*low], &columns[*high]))
        .map(order)
        .collect()
}

/// Whether independent columns would break an order often.
fn is_binding(low: &SortedNumbers<'_>, high: &SortedNumbers<'_>) -> bool {
    let rows = low.numbers.iter().zip(high.numbers);
    let known = rows.filter(|(low, high)| !low.is_nan() && !high.is_nan()).count();
    known as f64 * share_above(&low.sorted, &high.sorted) >= EXPECTED_BREAKS
}

/// The share of all pairs of two sorted columns in which the first is above the second.
fn share_above(first: &[f64], second: &[f64]) -> f64 {
    if first.is_empty() || second.is_empty() {
        return 0.0;
    }
    let (mut below, mut above) = (0usize, 0u128);
    for number in first {
        while below < second.len() && second[below] < *number {
            below += 1;
        }
        above += below as u128;
    }
    above as f64 / (first.len() as f64 * second.len() as f64)
}

fn combinations(rows: &Rows, count: usize, schema: &FeatureSchema) -> Vec<Combinations> {
    let columns: Vec<(&Feature, &[String], &[u32])> = schema
        .features
        .iter()
        .zip(&rows.cells)
        .filter_map(|(feature, cells)| {
            let values = &feature.categorical()?.values;
            let Cells::Codes(codes) = cells else { return None };
            (values.len() <= MOST_VALUES).then_some((feature, &values[..], &codes[..count]))
        })
        .collect();
    let mut found = Vec::new();
    for (index, (one, first, left)) in columns.iter().enumerate() {
        for (two, second, right) in &columns[..index] {
            let excluded = excluded((first, left), (second, right));
            if !excluded.is_empty() {
                let features = [one.name.clone(), two.name.clone()];
                found.push(Combinations { features, excluded });
            }
        }
    }
    found
}

/// Combinations of two columns that never occur, though independent ones would often.
fn excluded(
    (first, left): (&[String], &[u32]),
    (second, right): (&[String], &[u32]),
) -> Vec<[String; 2]> {
    let width = second.len();
    let mut counts = vec![0u32; first.len() * width];
    let (mut of_first, mut of_second) = (vec![0u32; first.len()], vec![0u32; width]);
    let mut rows = 0u32;
    for (one, two) in left.iter().zip(right) {
        let (one, two) = (*one as usize, *two as usize);
        // Nulls and unseen values are no categories.
        if one < first.len() && two < width {
            counts[one * width + two] += 1;
            of_first[one] += 1;
            of_second[two] += 1;
            rows += 1;
        }
    }
    let mut found = Vec::new();
    for (one, value) in first.iter().enumerate() {
        for (two, other) in second.iter().enumerate() {
            let expected =
                f64::from(of_first[one]) * f64::from(of_second[two]) / f64::from(rows.max(1));
            if counts[one * width + two] == 0 && expected >= EXPECTED_COMBINATIONS {
                found.push([value.clone(), other.clone()]);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn schema() -> FeatureSchema {
        let text = r#"
            [[feature]]
            name = "part"
            kind = "numeric"
            [[feature]]
            name = "the whole"
            kind = "numeric"
            [[feature]]
            name = "far"
            kind = "numeric"
            [[feature]]
            name = "free"
            kind = "numeric"
            [[feature]]
            name = "work"
            kind = "categorical"
            values = ["student", "clerk"]
            [[feature]]
            name = "home"
            kind = "categorical"
            values = ["rent", "own"]
        "#;
        FeatureSchema::parse(text, Path::new("f.toml")).expect("a good schema")
    }

    /// A part of a whole, a number far above both, a free one, and students who never own.
    fn rows(count: usize) -> Rows {
        let number = |function: fn(usize) -> usize| {
            Cells::Numbers((0..count).map(|row| function(row) as f64).collect())
        };
        let codes = |function: fn(usize) -> usize| {
            Cells::Codes((0..count).map(|row| function(row) as u32).collect())
        };
        let cells = vec![
            number(|row| (row % 7).min(row % 5)),
            number(|row| row % 7),
            number(|row| 100 + row % 3),
            number(|row| row * 31 % 11),
            codes(|row| row % 2),
            codes(|row| usize::from(row % 2 == 1 && row % 3 == 0)),
        ];
        Rows { len: count, cells }
    }

    #[test]
    fn orders_and_combinations_that_bind_are_found() {
        let observed = Observed::find(&rows(2000), 2000, &schema());
        let texts = observed.texts();
        assert_eq!(
            texts,
            [
                ("order", "part <= \"the whole\"".to_string()),
                ("combination", "home <> 'own' OR work <> 'student'".to_string()),
            ],
            "and nothing of `far`, whose range is another, or of `free`"
        );
        let schema = schema();
        for (_, text) in texts {
            Rule::parse(&text, BrokenPolicy::KeepNoWorse, &schema.features).expect("it is a rule");
        }
    }

    #[test]
    fn few_rows_show_nothing() {
        assert_eq!(Observed::find(&rows(12), 12, &schema()), Observed::default());
        assert_eq!(Observed::find(&rows(0), 0, &schema()), Observed::default());
    }

    #[test]
    fn one_exception_is_enough() {
        let mut rows = rows(2000);
        rows.set(0, 1500, crate::feature::Cell::Number(50.0));
        assert!(Observed::find(&rows, 2000, &schema()).orders.is_empty());
        assert_eq!(Observed::find(&rows, 1500, &schema()).orders.len(), 1, "it is not looked at");
    }
}
