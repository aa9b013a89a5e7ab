//! What a counterfactual may change. The networks read a condition `c` ([`Conditions`]); whatever
//! they give, [`Constraints::post_process`] makes rows of it that keep to the schema, to what training saw,
//! to the table's types and to each row's own bounds; [`Constraints::violations`] checks that on its own.

mod bounds;
mod categorical;
mod coherence;
mod conditions;
mod feasible;
mod formulas;
mod grid;
mod multiples;
mod numeric;
mod observed;
mod violations;

#[cfg(test)]
pub(crate) mod tests;

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use rand::Rng;

use crate::encode::{Dense, Layout, Slots};
use crate::feature::{
    Cells, Feature, FeatureKind, FeatureSchema, FeatureStats, Multiples, Rows, Stats,
};

pub use bounds::RowBounds;
use categorical::CategoricalRule;
use coherence::FeatureRules;
pub use conditions::Conditions;
pub use feasible::FeasibleSet;
pub use formulas::Formula;
pub use numeric::NumericRange;
use numeric::NumericRule;
pub use observed::{Combinations, Observed, Order};
pub use violations::Violation;

/// Rows treated at a time: every feature strides through them, and they stay in the second-level cache.
const BLOCK_ROWS: usize = 1024;

/// What may change: schema, what training saw, and the table's column types.
#[derive(Debug, Clone)]
pub struct Constraints {
    schema: Arc<FeatureSchema>,
    layout: Arc<Layout>,
    width: usize,
    numerics: Vec<NumericRule>,
    categoricals: Vec<CategoricalRule>,
    /// Per feature where its rule stands.
    rules: Vec<RuleIndex>,
    ranges: Vec<NumericRange>,
    /// Per feature the least and greatest number that training saw, and the column's type.
    columns: Vec<ColumnLimits>,
    /// What holds between features.
    coherence: FeatureRules,
}

/// Where a feature's rule stands.
#[derive(Debug, Clone, Copy)]
enum RuleIndex {
    Numeric(usize),
    Categorical(usize),
}

#[derive(Debug, Clone)]
struct ColumnLimits {
    seen: (f64, f64),
    /// The step of training values that changed numbers keep to.
    multiples: Option<Multiples>,
    data_type: DataType,
}

/// Some rows with what a network made of them.
struct NetworkOutput<'a> {
    decoded: &'a Dense,
    rows: &'a Rows,
    conditions: &'a Conditions,
    bounds: &'a RowBounds,
}

impl Constraints {
    /// The constraints of a schema on rows like those that `stats` saw. `table` has the feature columns, in
    /// the schema's order.
    pub fn new(
        schema: Arc<FeatureSchema>,
        stats: &Stats,
        layout: Arc<Layout>,
        table: &Schema,
    ) -> Constraints {
        let columns = schema.features.iter().zip(&stats.features).zip(table.fields());
        let columns = columns
            .map(|((feature, seen), field)| ColumnLimits {
                seen: seen_range(seen),
                multiples: kept_multiples(feature, field.data_type(), seen),
                data_type: field.data_type().clone(),
            })
            .collect();
        let mut constraints = Constraints {
            coherence: FeatureRules::new(&schema, &Observed::default()),
            schema,
            layout,
            width: 0,
            numerics: Vec::new(),
            categoricals: Vec::new(),
            rules: Vec::new(),
            ranges: Vec::new(),
            columns,
        };
        constraints.add_rules();
        constraints
    }

    /// What the schema says of each feature, in place of what was said before.
    fn add_rules(&mut self) {
        self.width = 0;
        self.numerics.clear();
        self.categoricals.clear();
        self.ranges.clear();
        self.add_numerics();
        self.add_categoricals();
        self.rules = self.indexes();
    }

    fn add_numerics(&mut self) {
        let features = self.schema.features.iter().zip(&self.layout.slots).zip(&self.columns);
        for (index, ((feature, slots), column)) in features.enumerate() {
            if let (FeatureKind::Numeric(_), Slots::Numeric(slots)) = (&feature.kind, slots) {
                let rule = NumericRule::new(feature, slots, column).at(index, self.width);
                self.width += 2;
                self.ranges.push(rule.standardised_range());
                self.numerics.push(rule);
            }
        }
    }

    fn add_categoricals(&mut self) {
        let features = self.schema.features.iter().zip(&self.layout.slots);
        for (index, (feature, slots)) in features.enumerate() {
            if let (FeatureKind::Categorical(categorical), Slots::Categorical(slots)) =
                (&feature.kind, slots)
            {
                let rule = CategoricalRule::new(feature.change, categorical, slots);
                self.categoricals.push(rule.at(index, self.width));
                self.width += slots.block().len();
            }
        }
    }

    fn indexes(&self) -> Vec<RuleIndex> {
        let numerics = self.numerics.iter().enumerate();
        let categoricals = self.categoricals.iter().enumerate();
        let mut indexes: Vec<(usize, RuleIndex)> =
            numerics.map(|(index, rule)| (rule.feature, RuleIndex::Numeric(index))).collect();
        indexes.extend(
            categoricals.map(|(index, rule)| (rule.feature, RuleIndex::Categorical(index))),
        );
        indexes.sort_unstable_by_key(|(feature, _)| *feature);
        indexes.into_iter().map(|(_, rule)| rule).collect()
    }

    /// Numbers in a condition: a pair (−p_min, p_max) per numeric feature, then a mask as wide as its block
    /// per categorical feature, each in the schema's order.
    pub fn width(&self) -> usize {
        self.width
    }

    /// What the numbers of an encoded row mean.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Per numeric feature, in the schema's order, its range in standardised units.
    pub fn numeric_ranges(&self) -> &[NumericRange] {
        &self.ranges
    }

    /// Names of the features that can change in some row, in the schema's order. What single rows add to the
    /// schema is not counted.
    pub fn changeable(&self) -> Vec<&str> {
        let numerics = self.numerics.iter().filter(|rule| rule.can_change());
        let categoricals = self.categoricals.iter().filter(|rule| rule.can_change());
        let mut features: Vec<usize> = numerics.map(|rule| rule.feature).collect();
        features.extend(categoricals.map(|rule| rule.feature));
        features.sort_unstable();
        features.iter().map(|feature| self.schema.features[*feature].name.as_str()).collect()
    }

    /// The widest condition of each row: schema, limits, direction and the row's own bounds. Features that
    /// cannot change, and nulls, are held at their own value.
    pub fn widest(&self, rows: &Rows, bounds: &RowBounds) -> Conditions {
        let mut conditions = Conditions {
            rows: rows.len,
            width: self.width,
            values: vec![0.0; rows.len * self.width],
        };
        for block in blocks(rows.len) {
            let mut block = conditions.block(block);
            for rule in &self.numerics {
                rule.widest(numbers_of(rows, rule.feature), bounds, &mut block);
            }
            for rule in &self.categoricals {
                rule.widest(codes_of(rows, rule.feature), bounds, &mut block);
            }
        }
        conditions
    }

    /// A condition drawn inside the widest, as training needs them: every bound of a number is multiplied by
    /// a draw from Beta(2, 2), every allowed category stays so with probability one half, the original state is
    /// always allowed.
    pub fn draw<R: Rng>(&self, widest: &Conditions, rows: &Rows, random: &mut R) -> Conditions {
        let mut drawn = widest.clone();
        drawn.narrow(2 * self.numerics.len(), random);
        for rule in &self.categoricals {
            rule.allow_original(codes_of(rows, rule.feature), &mut drawn);
        }
        drawn
    }

    /// The same for some of the rows, each with random numbers of its own; the others keep the widest.
    pub fn draw_some<R: Rng>(
        &self,
        widest: &Conditions,
        rows: &Rows,
        random: impl Fn(usize) -> Option<R>,
    ) -> Conditions {
        let mut drawn = widest.clone();
        for row in 0..rows.len {
            if let Some(mut random) = random(row) {
                drawn.narrow_at(row, 2 * self.numerics.len(), &mut random);
            }
        }
        for rule in &self.categoricals {
            rule.allow_original(codes_of(rows, rule.feature), &mut drawn);
        }
        drawn
    }

    /// Whether the widest condition of each row, and its own bounds, let anything change at all.
    pub fn movable(&self, widest: &Conditions, rows: &Rows, bounds: &RowBounds) -> Vec<bool> {
        let free = |row: usize| {
            let condition = widest.row(row);
            let number = |rule: &NumericRule| {
                let original = numbers_of(rows, rule.feature)[row];
                rule.has_room(original, condition, bounds.ends(rule.feature)(row))
            };
            let category = |rule: &CategoricalRule| {
                rule.has_choice(codes_of(rows, rule.feature)[row], condition)
            };
            self.numerics.iter().any(number) || self.categoricals.iter().any(category)
        };
        (0..rows.len).map(free).collect()
    }

    /// The rows that a network's output stands for under these conditions. Numbers are clipped and put on
    /// the feature's grid; of the allowed categories the most probable is taken. What breaks a rule between
    /// features is repaired, or put back.
    pub fn post_process(
        &self,
        decoded: &Dense,
        rows: &Rows,
        conditions: &Conditions,
        bounds: &RowBounds,
    ) -> Rows {
        let network_output = NetworkOutput { decoded, rows, conditions, bounds };
        let mut settled = self.settled(&network_output);
        self.make_coherent(&mut settled, &network_output);
        settled
    }

    /// The rows of [`Constraints::post_process`] in which what holds between features has changed something: their
    /// indexes, ascending, and the rows.
    pub fn repaired(
        &self,
        decoded: &Dense,
        rows: &Rows,
        conditions: &Conditions,
        bounds: &RowBounds,
    ) -> (Vec<u32>, Rows) {
        let network_output = NetworkOutput { decoded, rows, conditions, bounds };
        let mut settled = self.settled(&network_output);
        let repaired = self.make_coherent(&mut settled, &network_output);
        let rows = settled.take(&repaired);
        (repaired, rows)
    }

    /// What single features become.
    fn settled(&self, network_output: &NetworkOutput<'_>) -> Rows {
        let len = network_output.rows.len;
        let empty = |cells: &Cells| match cells {
            Cells::Numbers(_) => Cells::Numbers(Vec::with_capacity(len)),
            Cells::Codes(_) => Cells::Codes(Vec::with_capacity(len)),
        };
        let mut cells: Vec<Cells> = network_output.rows.cells.iter().map(empty).collect();
        for block in blocks(len) {
            self.settle(network_output, &block, &mut cells);
        }
        Rows { len, cells }
    }

    fn settle(
        &self,
        network_output: &NetworkOutput<'_>,
        block: &Range<usize>,
        cells: &mut [Cells],
    ) {
        for rule in &self.numerics {
            if let Cells::Numbers(numbers) = &mut cells[rule.feature] {
                rule.settle(network_output, block, numbers);
            }
        }
        for rule in &self.categoricals {
            if let Cells::Codes(codes) = &mut cells[rule.feature] {
                rule.settle(network_output, block, codes);
            }
        }
    }
}

/// Least and greatest number seen; NaN for a categorical feature or one without numbers.
fn seen_range(seen: &FeatureStats) -> (f64, f64) {
    match seen {
        FeatureStats::Numeric(seen) => (seen.min, seen.max),
        FeatureStats::Categorical(_) => (f64::NAN, f64::NAN),
    }
}

/// The step that changed numbers keep to; none for a categorical feature.
fn kept_multiples(
    feature: &Feature,
    data_type: &DataType,
    seen: &FeatureStats,
) -> Option<Multiples> {
    match (&feature.kind, seen) {
        (FeatureKind::Numeric(numeric), FeatureStats::Numeric(seen)) => {
            multiples::effective(numeric, data_type, seen)
        }
        _ => None,
    }
}

fn blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(BLOCK_ROWS).map(move |first| first..rows.min(first + BLOCK_ROWS))
}

fn numbers_of(rows: &Rows, feature: usize) -> &[f64] {
    rows.cells[feature].numbers().expect("rows are of the schema, whose feature is numeric")
}

fn codes_of(rows: &Rows, feature: usize) -> &[u32] {
    rows.cells[feature].codes().expect("rows are of the schema, whose feature is categorical")
}
