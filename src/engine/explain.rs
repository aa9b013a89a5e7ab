//! A run as a plan: a table of split descriptors in memory, and one operator over it that reads, explains and writes
//! each split and emits a row about it. What is written follows from the descriptor alone, never from the partition
//! that it came in, so that the engine is free to spread descriptors over threads, or over machines.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet, Time,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::scan::{ScanOrigin, planning};
use super::session::Engine;
use super::split_scan::{Blocks, SplitScan};
use super::splits::Split;
use super::wire::{RECORDS, SPLITS, SplitRecord, from_batch, to_batch};
use crate::error::{Error, Result};
use crate::explain::{ExplainStats, Explainer, Stage, StageSeconds};
use crate::output::{COUNTERFACTUALS, PartWriter, REJECTS, StagedFile, TableFiles};

/// Hears how many rows more were explained.
pub type OnRows = Arc<dyn Fn(u64) + Send + Sync>;

/// What became of splits, as they are finished.
pub type RecordStream = BoxStream<'static, Result<SplitRecord>>;

/// What is done with the rows of a split.
pub struct SplitWork {
    /// Makes counterfactuals of them; none in a plan that is only shown.
    pub explainer: Option<Arc<Explainer>>,
    /// Where those and the rejects are written.
    pub files: TableFiles,
    /// Hears of rows that are done.
    pub on_rows: OnRows,
}

impl SplitWork {
    fn explainer(&self) -> Result<&Arc<Explainer>> {
        let shown = || Error::internal("explaining", "the plan was made to be shown only");
        self.explainer.as_ref().ok_or_else(shown)
    }
}

/// The plan of a run.
pub struct ExplainPlan {
    plan: Arc<dyn ExecutionPlan>,
    /// How the rows of the first split are read, to be shown.
    scan: Option<Arc<dyn ExecutionPlan>>,
    context: Arc<TaskContext>,
}

impl Engine {
    /// Plans to explain splits, dealt in turn to so many partitions. The scan must be of the same table.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub fn explain_plan(
        &self,
        scan: SplitScan,
        splits: &[Split],
        partitions: usize,
        work: SplitWork,
    ) -> Result<ExplainPlan> {
        let mut dealt = vec![Vec::new(); partitions.max(1)];
        for (split, partition) in splits.iter().zip((0..dealt.len()).cycle()) {
            let row = to_batch(std::slice::from_ref(split), &SPLITS);
            dealt[partition].push(row.map_err(|error| planning(error.into()))?);
        }
        let table = MemorySourceConfig::try_new(&dealt, Arc::clone(&SPLITS), None);
        let table = table.map_err(planning)?.with_show_sizes(false);
        let input = DataSourceExec::from_data_source(table);
        let first = splits.first().map(|split| scan.plan(split)).transpose();
        let scan_of_first = first.map_err(planning)?;
        let shared = Arc::new(SharedWork { scan, work });
        let plan = Arc::new(ExplainSplitExec::new(input, shared));
        Ok(ExplainPlan { plan, scan: scan_of_first, context: self.context.task_ctx() })
    }
}

impl ExplainPlan {
    /// Starts: as many partitions as there are threads are worked on at a time, each on a task of its own, and the
    /// next is begun when one is through. Dropping the stream stops them.
    pub fn records(&self, threads: usize) -> RecordStream {
        let (plan, context) = (Arc::clone(&self.plan), Arc::clone(&self.context));
        let partitions = plan.properties().output_partitioning().partition_count();
        let start = move |partition| match plan.execute(partition, Arc::clone(&context)) {
            Ok(records) => spawn_buffered(records, 1).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        };
        let batches = stream::iter(0..partitions).map(start).flatten_unordered(threads);
        let origin = ScanOrigin::of_table("the feature table");
        let records = batches.map(move |batch| {
            let records = batch.and_then(|batch| Ok(from_batch::<SplitRecord>(&batch)?));
            let records = records.map_err(|error| explaining(&origin, error));
            stream::iter(match records {
                Ok(records) => records.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        });
        records.flatten().boxed()
    }

    /// The plan in the engine's words, a line for each operator; then how the rows of the first split are read.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = plan_lines(&self.plan);
        if let Some(scan) = &self.scan {
            lines.push("each split, such as the first:".to_string());
            lines.extend(plan_lines(scan).into_iter().map(|line| format!("  {line}")));
        }
        lines
    }

    /// The same with what was measured.
    pub fn measured(&self) -> String {
        DisplayableExecutionPlan::with_metrics(self.plan.as_ref()).indent(false).to_string()
    }
}

fn plan_lines(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let text = DisplayableExecutionPlan::new(plan.as_ref()).indent(false).to_string();
    text.lines().map(String::from).collect()
}

/// Our own errors travel through the engine in its envelope; others come from reading.
pub(super) fn explaining(origin: &ScanOrigin, error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(of_partition) => *of_partition,
            Err(other) => origin.error(DataFusionError::External(other)),
        },
        DataFusionError::Context(_, inner) => explaining(origin, *inner),
        other => origin.error(other),
    }
}

pub(super) fn enveloped(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// What all partitions share.
struct SharedWork {
    scan: SplitScan,
    work: SplitWork,
}

/// The operator: descriptors of splits in, records out.
struct ExplainSplitExec {
    input: Arc<dyn ExecutionPlan>,
    shared: Arc<SharedWork>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ExplainSplitExec {
    fn new(input: Arc<dyn ExecutionPlan>, shared: Arc<SharedWork>) -> ExplainSplitExec {
        let partitions = input.properties().output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&RECORDS)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        ExplainSplitExec { input, shared, properties: Arc::new(properties), metrics }
    }
}

impl fmt::Debug for ExplainSplitExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExplainSplitExec").field("input", &self.input).finish_non_exhaustive()
    }
}

impl DisplayAs for ExplainSplitExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SplitWork { explainer, files, .. } = &self.shared.work;
        write!(f, "ExplainSplitExec: tables=[{COUNTERFACTUALS}, {REJECTS}]")?;
        if let Some(explainer) = explainer {
            write!(f, ", block_rows={}", explainer.block_rows())?;
        }
        match files.partition_by.as_slice() {
            [] => Ok(()),
            columns => write!(f, ", partition_by=[{}]", columns.join(", ")),
        }
    }
}

impl ExecutionPlan for ExplainSplitExec {
    fn name(&self) -> &'static str {
        "ExplainSplitExec"
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
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(ExplainSplitExec::new(children.swap_remove(0), shared)))
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

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> EngineResult<SendableRecordBatchStream> {
        let consumer = MemoryConsumer::new(format!("ExplainSplitExec[{partition}]"));
        let task = SplitTask {
            descriptors: self.input.execute(partition, Arc::clone(&context))?,
            waiting: VecDeque::new(),
            shared: Arc::clone(&self.shared),
            memory: consumer.register(context.memory_pool()),
            metrics: TaskMetrics::new(&self.metrics, partition),
            context,
        };
        let records = stream::try_unfold(task, SplitTask::step);
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&RECORDS), records.boxed())))
    }
}

/// One partition at work.
struct SplitTask {
    descriptors: SendableRecordBatchStream,
    waiting: VecDeque<Split>,
    shared: Arc<SharedWork>,
    context: Arc<TaskContext>,
    memory: MemoryReservation,
    metrics: TaskMetrics,
}

impl SplitTask {
    async fn step(mut self) -> EngineResult<Option<(arrow::array::RecordBatch, SplitTask)>> {
        loop {
            if let Some(split) = self.waiting.pop_front() {
                let record = self.explain(&split).await.map_err(enveloped)?;
                let batch = to_batch(&[record], &RECORDS)?;
                self.metrics.baseline.record_output(batch.num_rows());
                return Ok(Some((batch, self)));
            }
            match self.descriptors.try_next().await? {
                Some(batch) => self.waiting.extend(from_batch::<Split>(&batch)?),
                None => return Ok(None),
            }
        }
    }

    /// Reads, explains and writes a split.
    async fn explain(&mut self, split: &Split) -> Result<SplitRecord> {
        let shared = Arc::clone(&self.shared);
        let SharedWork { scan, work } = &*shared;
        let (origin, explainer) = (scan.origin(split), work.explainer()?);
        let unread = |error| explaining(&origin, error);
        let input = scan.execute(split, Arc::clone(&self.context)).map_err(unread)?;
        let mut blocks = Blocks::new(input, explainer.block_rows());
        let (worker, mut stats) = (explainer.worker()?, ExplainStats::default());
        let mut tables = SplitTables::new(work, split.index)?;
        while let Some(block) = blocks.next().await.map_err(unread)? {
            let table = worker.explain(&block, &mut stats)?;
            let mut clock = Instant::now();
            tables.write(&table, &mut stats)?;
            stats.seconds.clock(Stage::Write, &mut clock);
            let held = block.get_array_memory_size() + table.get_array_memory_size();
            self.reserve(held + tables.memory()).map_err(unread)?;
            (work.on_rows)(block.num_rows() as u64);
            // A stream that nobody reads any more ends here; reading a split may never have to wait.
            tokio::task::yield_now().await;
        }
        let mut clock = Instant::now();
        let files = tables.close()?;
        stats.seconds.clock(Stage::Write, &mut clock);
        self.memory.free();
        self.metrics.add(&stats, &files);
        Ok(record(split, stats, files))
    }

    fn reserve(&self, bytes: usize) -> EngineResult<()> {
        self.memory.try_resize(bytes)?;
        self.metrics.memory.set_max(bytes);
        Ok(())
    }
}

fn record(split: &Split, stats: ExplainStats, files: Vec<StagedFile>) -> SplitRecord {
    SplitRecord {
        split: split.index,
        rows: stats.rows,
        explained: stats.explained,
        rows_without_score: stats.rows_without_score,
        cut_short: stats.cut_short,
        statuses: stats.statuses,
        unsolved: stats.unsolved,
        rejected: stats.rejected,
        files,
        seconds: stats.seconds,
    }
}

/// The files of a split.
struct SplitTables {
    counterfactuals: PartWriter,
    rejects: PartWriter,
}

impl SplitTables {
    fn new(work: &SplitWork, split: usize) -> Result<SplitTables> {
        let (explainer, files) = (work.explainer()?, &work.files);
        Ok(SplitTables {
            counterfactuals: files.writer(COUNTERFACTUALS, split, &explainer.counterfactuals)?,
            rejects: files.writer(REJECTS, split, &explainer.rejects)?,
        })
    }

    /// Writes what came of a block.
    fn write(&mut self, table: &arrow::array::RecordBatch, stats: &mut ExplainStats) -> Result<()> {
        self.counterfactuals.write(table)?;
        stats.rejects.take().map_or(Ok(()), |rejects| self.rejects.write(&rejects))
    }

    fn memory(&self) -> usize {
        self.counterfactuals.memory() + self.rejects.memory()
    }

    fn close(self) -> Result<Vec<StagedFile>> {
        let mut files = self.counterfactuals.close()?;
        files.extend(self.rejects.close()?);
        Ok(files)
    }
}

/// What a partition tells of its work in the engine's way.
struct TaskMetrics {
    baseline: BaselineMetrics,
    explained: Count,
    rejected: Count,
    written: Count,
    memory: Gauge,
    stages: [Time; 8],
}

impl TaskMetrics {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> TaskMetrics {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        TaskMetrics {
            baseline: BaselineMetrics::new(metrics, partition),
            explained: counter("rows_explained"),
            rejected: counter("rows_rejected"),
            written: counter("bytes_written"),
            memory: MetricBuilder::new(metrics).gauge("peak_reserved_bytes", partition),
            stages: StageSeconds::NAMES
                .map(|stage| MetricBuilder::new(metrics).subset_time(stage, partition)),
        }
    }

    fn add(&self, stats: &ExplainStats, files: &[StagedFile]) {
        self.explained.add(stats.explained as usize);
        self.rejected.add(stats.rejected.values().sum::<u64>() as usize);
        self.written.add(files.iter().map(|file| file.bytes as usize).sum());
        for (time, seconds) in self.stages.iter().zip(stats.seconds.values()) {
            let spent = Duration::from_secs_f64(seconds);
            time.add_duration(spent);
            self.baseline.elapsed_compute().add_duration(spent);
        }
    }
}
