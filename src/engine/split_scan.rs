//! Reading the rows of a split: a plan that was made once, in which the files of a descriptor take the place of the
//! table's. Nothing is planned while splits are worked on, and nothing of a session is needed.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use futures::{StreamExt, TryStreamExt};

use super::scan::{BatchStream, ScanOrigin, ScanPlan, planning};
use super::session::Engine;
use super::splits::Split;
use super::table::file_group;
use crate::error::Result;

/// How the rows of any split of a table are read.
#[derive(Debug, Clone)]
pub struct SplitScan {
    /// A scan of all splits, as one partition: what holds for all files holds for those of a split.
    whole: Arc<dyn ExecutionPlan>,
    schema: TableSchema,
    origin: ScanOrigin,
}

impl Engine {
    /// Plans how the rows of splits are read, each for itself. The score table has no part in it.
    ///
    /// # Errors
    /// When the predicate cannot be understood.
    pub async fn split_scan(&self, plan: ScanPlan<'_>, splits: &[Split]) -> Result<SplitScan> {
        let plan = ScanPlan { scores: None, ..plan };
        let table = Arc::new(plan.table.source.of_splits(splits));
        let (schema, origin) = (table.table_schema().clone(), plan.origin());
        let frame = self.context.read_table(table).map_err(planning)?;
        Ok(SplitScan { whole: self.physical(frame, plan).await?, schema, origin })
    }

    /// The rows of a split, in their order.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn scan_split(&self, scan: &SplitScan, split: &Split) -> Result<BatchStream> {
        let origin = scan.origin(split);
        let rows = scan.execute(split, self.context.task_ctx());
        let rows = rows.map_err(|error| origin.error(error))?;
        Ok(rows.map_err(move |error| origin.error(error)).boxed())
    }
}

impl SplitScan {
    /// What a split is read from, for messages: its file, where there is just one.
    pub(super) fn origin(&self, split: &Split) -> ScanOrigin {
        match split.ranges.as_slice() {
            [range] => self.origin.of_file(&range.file),
            _ => self.origin.clone(),
        }
    }

    /// Starts reading a split.
    pub(super) fn execute(
        &self,
        split: &Split,
        context: Arc<TaskContext>,
    ) -> EngineResult<SendableRecordBatchStream> {
        self.plan(split)?.execute(0, context)
    }

    /// The plan by which a split is read.
    pub(super) fn plan(&self, split: &Split) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let files = file_group(&self.schema, &split.ranges);
        let exchanged = Arc::clone(&self.whole).transform_up(|node| {
            let source = node.downcast_ref::<DataSourceExec>();
            let files_of = |exec: &DataSourceExec| {
                exec.data_source().downcast_ref::<FileScanConfig>().cloned()
            };
            let Some(config) = source.and_then(files_of) else { return Ok(Transformed::no(node)) };
            let config = FileScanConfigBuilder::from(config);
            let config = config.with_file_groups(vec![files.clone()]).build();
            Ok(Transformed::yes(DataSourceExec::from_data_source(config)))
        })?;
        Ok(exchanged.data)
    }
}

/// A stream cut anew into blocks of one size, however its batches were cut.
pub(super) struct Blocks {
    input: SendableRecordBatchStream,
    coalescer: BatchCoalescer,
    ended: bool,
}

impl Blocks {
    pub(super) fn new(input: SendableRecordBatchStream, rows: usize) -> Blocks {
        let coalescer = BatchCoalescer::new(input.schema(), rows);
        Blocks { input, coalescer, ended: false }
    }

    pub(super) async fn next(&mut self) -> EngineResult<Option<RecordBatch>> {
        loop {
            if let Some(block) = self.coalescer.next_completed_batch() {
                return Ok(Some(block));
            }
            if self.ended {
                return Ok(None);
            }
            match self.input.next().await.transpose()? {
                Some(batch) => self.coalescer.push_batch(batch)?,
                None => {
                    self.ended = true;
                    self.coalescer.finish_buffered_batch()?;
                }
            }
        }
    }
}
