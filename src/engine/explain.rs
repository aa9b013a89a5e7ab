//! The explain operator: rows of a scan in, rows of the counterfactual table out, inside the engine's
//! plan and under its back-pressure. All it adds to [`crate::explain`] is the cutting into blocks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::block_in_place;

use super::scan::{BatchStream, Origin, ScanPlan, planning};
use super::session::Engine;
use super::units::Unit;
use crate::error::{Error, Result};
use crate::explain::{Explainer, Ledger, Worker};

/// Where an operator leaves its ledger when its rows are through.
type Slot = Arc<Mutex<Option<Ledger>>>;

/// The counterfactuals of a unit of work, and what else came of it.
pub struct UnitStream {
    /// Rows of the counterfactual table.
    pub batches: BatchStream,
    ledger: Slot,
}

impl UnitStream {
    /// What explaining gave beside the table, once all batches were read.
    ///
    /// # Errors
    /// When they were not.
    pub fn ledger(self) -> Result<Ledger> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).take();
        ledger.ok_or_else(|| Error::internal("explaining", "a unit was not read to its end"))
    }
}

impl Engine {
    /// The rows of a unit of the plan's table, in their order.
    ///
    /// # Errors
    /// When the predicate cannot be understood.
    pub async fn scan_unit(&self, plan: ScanPlan<'_>, unit: &Unit) -> Result<BatchStream> {
        let origin = origin(&plan, unit);
        let input = self.unit_plan(plan, unit).await?;
        let stream = input.execute(0, self.context.task_ctx());
        let stream = stream.map_err(|error| origin.error(error))?;
        Ok(stream.map_err(move |error| origin.error(error)).boxed())
    }

    async fn unit_plan(&self, plan: ScanPlan<'_>, unit: &Unit) -> Result<Arc<dyn ExecutionPlan>> {
        let part = Arc::new(plan.table.source.part(unit));
        let frame = self.context.read_table(part).map_err(planning)?;
        self.physical(frame, plan).await
    }

    /// Starts explaining a unit of the plan's table.
    ///
    /// # Errors
    /// When the predicate cannot be understood.
    pub async fn explain(
        &self,
        plan: ScanPlan<'_>,
        unit: &Unit,
        explainer: &Arc<Explainer>,
    ) -> Result<UnitStream> {
        let origin = origin(&plan, unit);
        let input = self.unit_plan(plan, unit).await?;
        let ledger = Slot::default();
        let operator = ExplainExec::new(input, Arc::clone(explainer), Arc::clone(&ledger));
        let stream = operator.execute(0, self.context.task_ctx());
        let stream = stream.map_err(|error| explaining(&origin, error))?;
        let batches = stream.map_err(move |error| explaining(&origin, error)).boxed();
        Ok(UnitStream { batches, ledger })
    }
}

/// What a unit is read from, for messages: its file, where there is just one.
fn origin(plan: &ScanPlan<'_>, unit: &Unit) -> Origin {
    match (unit.pieces.as_slice(), plan.scores) {
        ([piece], None) => {
            plan.origin_of(plan.table.source_files()[piece.file].path.display().to_string())
        }
        _ => plan.origin(),
    }
}

/// Our own errors travel through the engine in its envelope; others come from reading.
pub(super) fn explaining(origin: &Origin, error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(own) => *own,
            Err(other) => origin.error(DataFusionError::External(other)),
        },
        DataFusionError::Context(_, inner) => explaining(origin, *inner),
        other => origin.error(other),
    }
}

/// The operator.
struct ExplainExec {
    input: Arc<dyn ExecutionPlan>,
    explainer: Arc<Explainer>,
    ledger: Slot,
    properties: Arc<PlanProperties>,
}

impl ExplainExec {
    fn new(input: Arc<dyn ExecutionPlan>, explainer: Arc<Explainer>, ledger: Slot) -> ExplainExec {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&explainer.counterfactuals)),
            Partitioning::UnknownPartitioning(
                input.properties().output_partitioning().partition_count(),
            ),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        ExplainExec { input, explainer, ledger, properties: Arc::new(properties) }
    }
}

impl fmt::Debug for ExplainExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExplainExec").field("input", &self.input).finish_non_exhaustive()
    }
}

impl DisplayAs for ExplainExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExplainExec: block_rows={}", self.explainer.block_rows())
    }
}

impl ExecutionPlan for ExplainExec {
    fn name(&self) -> &'static str {
        "ExplainExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let (explainer, ledger) = (Arc::clone(&self.explainer), Arc::clone(&self.ledger));
        Ok(Arc::new(ExplainExec::new(children.swap_remove(0), explainer, ledger)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> EngineResult<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let work = Work {
            worker: self.explainer.worker().map_err(enveloped)?,
            blocks: Blocks::new(input, self.explainer.block_rows()),
            ledger: self.explainer.ledger(),
            slot: Arc::clone(&self.ledger),
        };
        let stream = stream::try_unfold(work, Work::step);
        let schema = Arc::clone(&self.explainer.counterfactuals);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream.boxed())))
    }
}

pub(super) fn enveloped(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// One partition at work.
struct Work {
    worker: Worker,
    blocks: Blocks,
    ledger: Ledger,
    slot: Slot,
}

impl Work {
    async fn step(mut self) -> EngineResult<Option<(RecordBatch, Work)>> {
        match self.blocks.next().await? {
            Some(block) => {
                // The model computes here, or answers from another process; signals and the other
                // partitions' input must go on meanwhile.
                let found = block_in_place(|| self.worker.explain(&block, &mut self.ledger));
                Ok(Some((found.map_err(enveloped)?, self)))
            }
            None => {
                *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.ledger);
                Ok(None)
            }
        }
    }
}

/// A stream cut anew into blocks of one size, however its batches were cut.
struct Blocks {
    input: SendableRecordBatchStream,
    coalescer: BatchCoalescer,
    ended: bool,
}

impl Blocks {
    fn new(input: SendableRecordBatchStream, rows: usize) -> Blocks {
        let coalescer = BatchCoalescer::new(input.schema(), rows);
        Blocks { input, coalescer, ended: false }
    }

    async fn next(&mut self) -> EngineResult<Option<RecordBatch>> {
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
