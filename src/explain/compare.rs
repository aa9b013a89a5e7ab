//! Several methods in one run. Each has an [`Explainer`] of its own, made from the job that it would have alone; rows
//! are read, validated and predicted once for all of them. The table has the rows of the methods side by side: those
//! of one row of the input stand together, the published method's first.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};

use super::valid_rows::ValidRows;
use super::{ExplainSetup, ExplainStats, Explainer, Worker};
use crate::error::{Error, Result};
use crate::nn::Generator;

/// The explainers of the methods beside the published one.
pub(super) fn others(
    published: &Explainer,
    generator: &Generator,
    setup: &ExplainSetup<'_>,
) -> Result<Vec<Arc<Explainer>>> {
    let other = |job| {
        let setup = ExplainSetup { explain: &job, ..setup.clone() };
        let plausibility = published.plausibility.clone();
        Explainer::of_method(generator.replica()?, setup, Some(plausibility)).map(Arc::new)
    };
    setup.explain.others().into_iter().map(other).collect()
}

impl Worker {
    /// What every method says of valid rows.
    pub(super) fn explain_by_each(
        &self,
        valid_rows: &ValidRows,
        stats: &mut ExplainStats,
    ) -> Result<RecordBatch> {
        let mut found = vec![self.explain_valid(valid_rows, stats)?];
        for worker in &self.others {
            // Counts are of the published method; time is spent by all.
            let mut of_method = ExplainStats::default();
            found.push(worker.explain_valid(valid_rows, &mut of_method)?);
            stats.seconds.add(&of_method.seconds);
            stats.cut_short += of_method.cut_short;
        }
        side_by_side(&found)
    }
}

/// Rows of a table, and the index of the valid row that each is about, ascending.
pub(super) struct Tabulated {
    pub(super) rows: Vec<u32>,
    pub(super) table: RecordBatch,
}

/// One table of several, by row and then in the order of the tables.
fn side_by_side(found: &[Tabulated]) -> Result<RecordBatch> {
    let lost = |error| Error::internal("explaining", "tables do not go together").source(error);
    let schema = found[0].table.schema();
    let tables = concat_batches(&schema, found.iter().map(|of| &of.table)).map_err(lost)?;
    let rows = found.iter().flat_map(|of| of.rows.iter().copied());
    let mut order: Vec<(u32, u32)> = rows.zip(0u32..).collect();
    order.sort_unstable();
    let order: Vec<u32> = order.into_iter().map(|(_, index)| index).collect();
    take_record_batch(&tables, &UInt32Array::from(order)).map_err(lost)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, StringArray};
    use arrow::datatypes::UInt32Type;

    use super::*;

    #[test]
    fn rows_about_one_row_stand_together() {
        let tabulated = |method: &str, rows: &[u32]| {
            let names: ArrayRef = Arc::new(StringArray::from(vec![method; rows.len()]));
            let numbers: ArrayRef = Arc::new(UInt32Array::from(rows.to_vec()));
            let table = RecordBatch::try_from_iter([("method", names), ("row", numbers)]);
            Tabulated { rows: rows.to_vec(), table: table.expect("a table") }
        };
        let found = [tabulated("a", &[0, 0, 2, 3]), tabulated("b", &[0, 1, 3, 3])];
        let table = side_by_side(&found).expect("a table");
        let names: Vec<&str> = table["method"].as_string::<i32>().iter().flatten().collect();
        assert_eq!(
            table["row"].as_primitive::<UInt32Type>().values()[..],
            [0, 0, 0, 1, 2, 3, 3, 3]
        );
        assert_eq!(names, ["a", "a", "b", "b", "a", "a", "b", "b"]);
    }
}
