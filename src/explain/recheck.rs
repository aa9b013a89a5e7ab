//! Counterfactuals that were found earlier, held against rows as they are now: their changes made once more.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::refine::Costs;
use super::{ColumnIndices, Constrained, project};
use crate::artefact::Description;
use crate::constrain::{Constraints, RowBounds};
use crate::error::{Error, Result};
use crate::feature::{Edits, FeatureSchema, RowReader, RowValidator, RowWriter, Rows};
use crate::job::ExplainJob;

/// Makes changes of rows once more.
pub struct Recheck {
    columns: ColumnIndices,
    schema: Arc<FeatureSchema>,
    validator: RowValidator,
    reader: RowReader,
    writer: RowWriter,
    constraints: Constraints,
    costs: Costs,
}

/// Rows of a batch as they are explained.
pub struct CurrentRows {
    /// The features, with stand-ins filled in.
    pub features: RecordBatch,
    /// The same as cells.
    pub rows: Rows,
    bounds: RowBounds,
}

/// Changes made once more.
pub struct Remade {
    /// The rows with their changes, in the table's types.
    pub features: RecordBatch,
    /// Whether the constraints allow them.
    pub allowed: Vec<bool>,
    /// What they cost.
    pub costs: Vec<f64>,
}

impl Recheck {
    /// For batches with this schema, of which `columns` says what the columns are.
    pub fn new(
        (description, schema): (&Description, &Arc<FeatureSchema>),
        (table, columns): (&SchemaRef, ColumnIndices),
        explain: &ExplainJob,
    ) -> Recheck {
        let encoder = description.encoder();
        let layout = encoder.layout();
        let fields = columns.features.iter().map(|index| Arc::clone(&table.fields()[*index]));
        let features = fields.collect();
        let method = explain.method.with_generator(description.learnt);
        let explain = ExplainJob { method, ..explain.clone() };
        let constrained = Constrained { description, schema, columns: &columns, features };
        Recheck {
            constraints: constrained.constraints(&explain, layout),
            costs: Costs::new(schema, layout),
            validator: RowValidator::new(schema),
            reader: RowReader::new(schema),
            writer: RowWriter::new(schema),
            schema: Arc::clone(schema),
            columns,
        }
    }

    /// Reads rows that were explained.
    ///
    /// # Errors
    /// When one of them could not have been.
    pub fn read(&self, batch: &RecordBatch) -> Result<CurrentRows> {
        let validated = self.validator.validate_rows(&project(batch, &self.columns.features)?)?;
        if let Some(reject) = validated.rejects.first() {
            let problem = format!("has rows that the run has explained, but {}", reject.detail);
            return Err(Error::input("features", problem).hint("run the job again"));
        }
        Ok(CurrentRows {
            rows: self.reader.read(&validated.features)?,
            bounds: RowBounds::read(&self.schema, &self.columns.constraints, batch)?,
            features: validated.features,
        })
    }

    /// Makes changes of rows, and what follows from them; changes to what follows are not needed.
    ///
    /// # Errors
    /// When a value does not fit its column.
    pub fn remake(&self, current: &CurrentRows, changes: &[Edits]) -> Result<Remade> {
        let mut rows = current.rows.clone();
        for (row, edits) in changes.iter().enumerate() {
            let original = |feature: usize| current.rows.cell(feature, row);
            let mut edits = edits.clone();
            edits.retain(|edit| !self.constraints.is_derived(edit.feature));
            self.constraints.apply(&mut rows, row, &edits, original);
        }
        let mut allowed = vec![true; rows.len];
        for violation in self.constraints.violations(&rows, &current.rows, &current.bounds) {
            allowed[violation.row] = false;
        }
        Ok(Remade {
            features: self.writer.write(&rows, &current.rows, &current.features)?,
            costs: self.costs.of_rows(&rows, &current.rows, &self.constraints),
            allowed,
        })
    }
}
