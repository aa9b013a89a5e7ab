//! Which files of a partitioned table can have rows that satisfy a predicate, by the values of their partitions alone.
//! What cannot be told is kept: the scan applies the predicate to every row.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;

use super::scan::refused;
use super::session::Engine;
use super::table::partition_value;
use crate::error::Result;
use crate::table::{VersionedFile, VersionedTable};

/// Values of partition columns, file by file: the least and the greatest of each column there.
#[derive(Debug)]
struct PartitionValues<'a> {
    fields: &'a [FieldRef],
    columns: Vec<ArrayRef>,
    files: usize,
}

impl Engine {
    /// Files in which a row may satisfy one of the predicates, or all of them without any.
    pub(super) fn files_in_scope(&self, table: &VersionedTable, predicates: &[&str]) -> Vec<bool> {
        let all = vec![true; table.files.len()];
        if predicates.is_empty() || table.partitions.is_empty() || table.files.is_empty() {
            return all;
        }
        let mut kept = vec![false; table.files.len()];
        for predicate in predicates {
            // A predicate that cannot be understood is reported where it is used.
            let Ok(matching) = self.may_match(table, predicate) else { return all };
            kept.iter_mut().zip(matching).for_each(|(kept, matches)| *kept |= matches);
        }
        kept
    }

    /// For each partition, given the values of these columns, whether the predicate of a job's key holds.
    ///
    /// # Errors
    /// When the predicate is none over these columns, or gives no result for a partition.
    pub fn partitions_where(
        &self,
        (key, predicate): (&str, &str),
        fields: &[FieldRef],
        values: &[Vec<Option<String>>],
    ) -> Result<Vec<bool>> {
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let refused = |error: DataFusionError| refused(key, predicate, &error.strip_backtrace());
        let column = |(index, field): (usize, &FieldRef)| {
            let value = |row: &Vec<Option<String>>| {
                partition_value(row[index].as_deref(), field.data_type())
            };
            ScalarValue::iter_to_array(values.iter().map(value))
        };
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let columns = fields.iter().enumerate().map(column).collect::<EngineResult<Vec<_>>>();
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.map_err(refused)?);
        let batch = batch.map_err(|error| refused(error.into()))?;
        let holds = || -> EngineResult<Vec<bool>> {
            let named = DFSchema::try_from(schema)?;
            let parsed = self.context.parse_sql_expr(predicate, &named)?;
            let expression = self.context.create_physical_expr(parsed, &named)?;
            let found = expression.evaluate(&batch)?.into_array(batch.num_rows())?;
            let found = as_boolean_array(&found)?;
            // Unknown is not true: a row that a predicate does not hold for is out of its scope.
            Ok((0..found.len()).map(|row| found.is_valid(row) && found.value(row)).collect())
        };
        holds().map_err(refused)
    }

    fn may_match(&self, table: &VersionedTable, predicate: &str) -> EngineResult<Vec<bool>> {
        let fields = table.fields.iter().chain(&table.partitions).cloned();
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let named = DFSchema::try_from(Arc::clone(&schema))?;
        let parsed = self.context.parse_sql_expr(predicate, &named)?;
        let expression = self.context.create_physical_expr(parsed, &named)?;
        let values = PartitionValues::new(table)?;
        let pruning = PruningPredicateBuilder::new().with_file_schema(schema);
        pruning.try_build(expression)?.prune(&values)
    }
}

impl<'a> PartitionValues<'a> {
    fn new(table: &'a VersionedTable) -> EngineResult<PartitionValues<'a>> {
        let column = |(index, field): (usize, &FieldRef)| {
            let value = |file: &VersionedFile| {
                partition_value(file.values[index].as_deref(), field.data_type())
            };
            ScalarValue::iter_to_array(table.files.iter().map(value))
        };
        let columns =
            table.partitions.iter().enumerate().map(column).collect::<EngineResult<_>>()?;
        Ok(PartitionValues { fields: &table.partitions, columns, files: table.files.len() })
    }

    fn values(&self, column: &Column) -> Option<ArrayRef> {
        let index = self.fields.iter().position(|field| *field.name() == column.name)?;
        Some(Arc::clone(&self.columns[index]))
    }
}

impl PruningStatistics for PartitionValues<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column)
    }

    fn num_containers(&self) -> usize {
        self.files
    }

    /// A partition's value is that of all of its rows: none or all of them are null, of as many as
    /// [`PruningStatistics::row_counts`] says.
    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let values = self.values(column)?;
        let nulls = (0..self.files).map(|file| u64::from(values.is_null(file)));
        Some(Arc::new(UInt64Array::from_iter_values(nulls)))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from_iter_values(std::iter::repeat_n(1, self.files))))
    }

    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
