//! Examples worked by hand, and properties over random schemas, rows and network outputs.

mod examples;
mod properties;
pub(crate) mod random;

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};

use super::*;
use crate::encode::Encoder;
use crate::feature::{RowReader, StatsAccumulator, row_constraints};

/// A schema with the rows of a table, ready to be constrained.
pub(crate) struct Case {
    pub(crate) schema: Arc<FeatureSchema>,
    pub(crate) constraints: Constraints,
    pub(crate) encoder: Encoder,
    pub(crate) batch: RecordBatch,
    pub(crate) rows: Rows,
    pub(crate) bounds: RowBounds,
    pub(crate) stats: Stats,
}

impl Case {
    /// Statistics are those of the table's first `trained` rows. Columns beyond the features are constraints.
    pub(super) fn new(schema: FeatureSchema, table: &RecordBatch, trained: usize) -> Case {
        let count = schema.features.len();
        let batch = table.project(&(0..count).collect::<Vec<_>>()).expect("features come first");
        let mut stats = StatsAccumulator::new(&schema);
        stats.update(&batch.slice(0, trained)).expect("counted");
        let (schema, stats) = (Arc::new(schema), stats.finish());
        let encoder = Encoder::new(Arc::clone(&schema), &stats);
        let layout = Arc::clone(encoder.layout());
        let constraints = Constraints::new(Arc::clone(&schema), &stats, layout, batch.schema_ref());
        let columns = row_constraints(&schema, table.schema_ref());
        let bounds = RowBounds::read(&schema, &columns, table).expect("bounds are read");
        let rows = RowReader::new(&schema).read(&batch).expect("rows are read");
        Case { schema, constraints, encoder, batch, rows, bounds, stats }
    }

    /// From a schema file and columns.
    pub(crate) fn parse(text: &str, columns: Vec<(&str, ArrayRef)>) -> Case {
        let schema = FeatureSchema::parse(text, Path::new("f.toml")).expect("a good schema");
        let table = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, column)| (name, column, true)),
        );
        let table = table.expect("a good table");
        let trained = table.num_rows();
        Case::new(schema, &table, trained)
    }

    /// The same without what holds between features.
    pub(super) fn without_rules(&self) -> Case {
        let schema = FeatureSchema { features: self.schema.features.clone(), ..Default::default() };
        let schema = Arc::new(schema);
        let layout = Arc::clone(self.encoder.layout());
        let types = self.batch.schema_ref();
        Case {
            constraints: Constraints::new(Arc::clone(&schema), &self.stats, layout, types),
            schema,
            encoder: self.encoder.clone(),
            batch: self.batch.clone(),
            rows: self.rows.clone(),
            bounds: self.bounds.clone(),
            stats: self.stats.clone(),
        }
    }

    pub(crate) fn widest(&self) -> Conditions {
        self.constraints.widest(&self.rows, &self.bounds)
    }

    pub(crate) fn process(&self, decoded: &Dense, conditions: &Conditions) -> Rows {
        self.constraints.post_process(decoded, &self.rows, conditions, &self.bounds)
    }

    /// An output whose numeric features have the given values in their own units, all rows alike.
    pub(super) fn output(&self, numbers: &[f64]) -> Dense {
        let mut dense = self.encoder.encode_rows(&self.rows);
        for (rule, number) in self.constraints.numerics.iter().zip(numbers) {
            let range = rule.standardised_range();
            let Slots::Numeric(slots) = &dense.layout.slots[rule.feature] else {
                panic!("numeric")
            };
            let value = ((number - slots.mean) / slots.std) as f32;
            let width = dense.width;
            dense.values.iter_mut().skip(range.slot).step_by(width).for_each(|cell| *cell = value);
        }
        dense
    }

    /// The widest condition's rows for such an output, checked.
    pub(super) fn settle(&self, numbers: &[f64]) -> Rows {
        let settled = self.process(&self.output(numbers), &self.widest());
        let violations = self.constraints.violations(&settled, &self.rows, &self.bounds);
        assert_eq!(violations, [], "of {settled:?}");
        settled
    }
}

pub(super) fn shared(array: impl arrow::array::Array + 'static) -> ArrayRef {
    Arc::new(array)
}
