//! From tables to streams of batches: the rows in scope, the key, the features, and the stored decision
//! where there is a score table. Only the columns that are needed are read.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, TableReference};
use datafusion::datasource::empty::EmptyTable;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, JoinType, Volatility};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream, execute_stream_partitioned};
use datafusion::prelude::DataFrame;
use futures::{Stream, StreamExt, TryStreamExt};

use super::expression::{abridged, check_growth, check_text, with_room};
use super::session::Engine;
use super::table::Table;
use crate::error::{Error, Kind, Result};
use crate::storage::{is_url, refused as refused_by_store};

/// Name under which the stored decision travels.
const DECISION: &str = "__decision";
/// Marks rows that the score table knows.
const SCORED_KEY: &str = "__scored_key_";

/// A stream of batches that all have the scan's schema.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch>> + Send>>;

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct ScanPlan<'a> {
    /// The feature table.
    pub table: &'a Table,
    /// SQL predicate, and the job's key that it comes from.
    pub predicate: Option<(&'a str, &'a str)>,
    /// Columns of the feature table, in this order.
    pub columns: &'a [String],
    /// The score table, the key columns to join on, and its decision column.
    pub scores: Option<(&'a Table, &'a [String], &'a str)>,
}

impl ScanPlan<'_> {
    /// What it reads, for messages.
    pub(super) fn shown(&self) -> String {
        match self.scores {
            Some((scores, _, _)) => format!("{} or {}", self.table.shown, scores.shown),
            None => self.table.shown.clone(),
        }
    }

    /// Who is to blame if it cannot be read.
    pub(super) fn origin(&self) -> ScanOrigin {
        let predicate = self.predicate.map(|(key, text)| (key.to_string(), text.to_string()));
        ScanOrigin(Arc::new((self.shown(), predicate)))
    }
}

/// What is read, and the predicate that is asked about it, for messages.
#[derive(Debug, Clone)]
pub(super) struct ScanOrigin(Arc<(String, Option<(String, String)>)>);

impl ScanOrigin {
    /// A table that is read as it is.
    pub(super) fn of_table(shown: &str) -> ScanOrigin {
        ScanOrigin(Arc::new((shown.to_string(), None)))
    }

    /// The same, where it is known which file is read.
    pub(super) fn of_file(&self, file: &str) -> ScanOrigin {
        ScanOrigin(Arc::new((file.to_string(), self.0.1.clone())))
    }

    /// A text that stands for all that is read.
    pub(super) fn of_query(shown: String, sql: &str) -> ScanOrigin {
        ScanOrigin(Arc::new((shown, Some(("query".to_string(), sql.to_string())))))
    }

    /// What goes wrong in reading: the predicate's fault where that cannot be computed, else the data's or
    /// the machine's.
    pub(super) fn error(&self, error: DataFusionError) -> Error {
        let (shown, predicate) = &*self.0;
        match predicate {
            Some((key, text)) if is_arithmetic(error.find_root()) => {
                let problem =
                    format!("is `{}`, which cannot be computed for every row", abridged(text));
                Error::spec(key, problem).source(error.strip_backtrace()).hint(
                    "a divisor may be 0: write `NULLIF(divisor, 0)`, and `TRY_CAST` for `CAST`",
                )
            }
            _ => reading(shown, error),
        }
    }
}

/// A planned scan.
pub struct Scan {
    plan: Arc<dyn ExecutionPlan>,
    engine: datafusion::prelude::SessionContext,
    origin: ScanOrigin,
    /// Schema of every batch: the columns asked for, then the decision if there is one.
    pub schema: SchemaRef,
}

impl Engine {
    /// Plans a scan.
    ///
    /// # Errors
    /// When the predicate cannot be understood.
    pub async fn scan(&self, plan: ScanPlan<'_>) -> Result<Scan> {
        let origin = plan.origin();
        let frame = self.frame(plan.table).await?;
        let plan = self.physical(frame, plan).await?;
        Ok(Scan::new(self, self.spread(plan)?, origin))
    }

    /// Plans a predicate over a table with these columns, as a scan would, without one.
    ///
    /// # Errors
    /// When the predicate cannot be used.
    pub async fn check_predicate(&self, schema: SchemaRef, key: &str, text: &str) -> Result<()> {
        check_text(key, text)?;
        let table = Arc::new(EmptyTable::new(schema));
        let frame = self.context.read_table(table).map_err(planning)?;
        with_room(async {
            let plan = filtered(frame, key, text)?.create_physical_plan().await;
            plan.map(|_| ()).map_err(|error| refused(key, text, &error.strip_backtrace()))
        })
    }

    /// The plan of a scan of `frame`, which is the plan's table or a part of it.
    pub(super) async fn physical(
        &self,
        frame: DataFrame,
        plan: ScanPlan<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some((key, predicate)) = plan.predicate else { return self.planned(frame, plan).await };
        check_text(key, predicate)?;
        with_room(async {
            let frame = filtered(frame, key, predicate)?;
            // Constants are computed here: whatever goes wrong, names and types of all else were checked.
            let refused = |error: Error| {
                let problem = error.faults().first().map_or("", |fault| fault.problem.as_str());
                refused(key, predicate, &problem)
            };
            self.planned(frame, plan).await.map_err(refused)
        })
    }

    async fn planned(
        &self,
        mut frame: DataFrame,
        plan: ScanPlan<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut columns: Vec<Expr> = plan.columns.iter().map(|name| column(name)).collect();
        if let Some((scores, key, decision)) = plan.scores {
            frame = self.joined(frame, scores, key, decision).await?;
            columns.push(column(DECISION));
        }
        let frame = frame.select(columns).map_err(planning)?;
        frame.create_physical_plan().await.map_err(planning)
    }

    pub(super) async fn frame(&self, table: &Table) -> Result<DataFrame> {
        self.context.table(TableReference::bare(table.name.as_str())).await.map_err(planning)
    }

    /// Every row of the left table once, with the stored decision or null.
    async fn joined(
        &self,
        frame: DataFrame,
        scores: &Table,
        key: &[String],
        decision: &str,
    ) -> Result<DataFrame> {
        let renamed = |name: &String| column(name).alias(format!("{SCORED_KEY}{name}"));
        let mut columns_of_scores: Vec<Expr> = key.iter().map(renamed).collect();
        columns_of_scores.push(column(decision).alias(DECISION));
        let scores = self.frame(scores).await?.select(columns_of_scores).map_err(planning)?;
        let left: Vec<&str> = key.iter().map(String::as_str).collect();
        let right: Vec<String> = key.iter().map(|name| format!("{SCORED_KEY}{name}")).collect();
        let right: Vec<&str> = right.iter().map(String::as_str).collect();
        frame.join(scores, JoinType::Left, &left, &right, None).map_err(planning)
    }

    /// A table in a single row group (pyarrow writes a million rows to one) would keep one core busy:
    /// its batches are dealt out in turn, which is as deterministic as the batches themselves.
    fn spread(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = plan.properties().output_partitioning().partition_count();
        if partitions > 1 || self.options.partitions == 1 {
            return Ok(plan);
        }
        let dealt = Partitioning::RoundRobinBatch(self.options.partitions);
        Ok(Arc::new(RepartitionExec::try_new(plan, dealt).map_err(planning)?))
    }
}

impl Scan {
    /// A scan by a plan, of what is shown so in messages.
    pub(super) fn new(engine: &Engine, plan: Arc<dyn ExecutionPlan>, origin: ScanOrigin) -> Scan {
        Scan { schema: plan.schema(), plan, engine: engine.context.clone(), origin }
    }

    /// Starts reading: one stream per partition, all to be read at the same time.
    pub fn streams(&self) -> Result<Vec<BatchStream>> {
        let streams = execute_stream_partitioned(Arc::clone(&self.plan), self.engine.task_ctx());
        let streams = streams.map_err(|error| self.origin.error(error))?;
        Ok(streams.into_iter().map(|stream| self.boxed(stream)).collect())
    }

    /// Starts reading: all partitions as one stream, for a reader that takes one batch after the other.
    /// Such a reader must not drain the streams of [`Scan::streams`] in turn: a join waits for all of
    /// its partitions to be read.
    pub fn stream(&self) -> Result<BatchStream> {
        let stream = execute_stream(Arc::clone(&self.plan), self.engine.task_ctx());
        Ok(self.boxed(stream.map_err(|error| self.origin.error(error))?))
    }

    fn boxed(&self, stream: SendableRecordBatchStream) -> BatchStream {
        let origin = self.origin.clone();
        stream.map_err(move |error| origin.error(error)).boxed()
    }
}

pub(super) fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// The frame with a job's predicate applied.
pub(super) fn filtered(frame: DataFrame, key: &str, predicate: &str) -> Result<DataFrame> {
    let refused = |error: DataFusionError| refused(key, predicate, &error.strip_backtrace());
    let expression = frame.parse_sql_expr(predicate).map_err(refused)?;
    check_growth(key, &expression)?;
    let shown = abridged(predicate);
    let volatile =
        expression.exists(|part| Ok(volatile_function(part).is_some())).map_err(refused)?;
    if volatile {
        let problem = "calls a function whose result changes by itself, such as now() or random()";
        return Err(Error::spec(key, format!("is `{shown}`, which {problem}")).hint(
            "rows in scope must be the same when a run is resumed; give the date with \
             `--set date=…` and write `'${date}'`",
        ));
    }
    if let Some(found) = beyond_a_row(&expression).map_err(refused)? {
        let problem = format!("has {found}, expected only functions of a single row");
        return Err(Error::spec(key, format!("is `{shown}`, which {problem}")).hint(
            "work such a value out beforehand: write it into the predicate, or give the table a \
             column of it",
        ));
    }
    frame.filter(expression).map_err(refused)
}

/// A predicate that the engine refuses.
pub(super) fn refused(key: &str, predicate: &str, message: &dyn std::fmt::Display) -> Error {
    let (predicate, message) = (abridged(predicate), abridged(&message.to_string()));
    Error::spec(
        key,
        format!("is `{predicate}`, which is not a predicate over the table: {message}"),
    )
    .hint("quote column names with spaces: \"Marital Status\" = 'Married'")
}

/// The first part of an expression that needs more than the row it is asked about.
fn beyond_a_row(expression: &Expr) -> Result<Option<String>, DataFusionError> {
    let mut found = None;
    expression.apply(|part| {
        found = match part {
            Expr::AggregateFunction(call) => {
                Some(format!("the aggregate function `{}`", call.func.name()))
            }
            Expr::WindowFunction(call) => {
                Some(format!("the window function `{}`", call.fun.name()))
            }
            Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_)
            | Expr::ScalarSubquery(_) => Some("a subquery".to_string()),
            Expr::Unnest(_) => Some("the function `unnest`".to_string()),
            Expr::Placeholder(parameter) => Some(format!("the parameter `{}`", parameter.id)),
            _ => None,
        };
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// A function that does not always give the same for the same.
fn volatile_function(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable => {
            Some(call.func.name())
        }
        _ => None,
    }
}

/// A plan that the engine refuses although names and types were checked is our fault.
pub(super) fn planning(error: DataFusionError) -> Error {
    Error::internal("query engine", error.strip_backtrace())
}

/// What goes wrong while reading is the data's or the machine's fault. The engine does not say which
/// file it was at; `shown` is as near as the caller knows.
pub(super) fn reading(shown: &str, error: DataFusionError) -> Error {
    let message = error.strip_backtrace();
    let of_store =
        if is_url(shown) { refused_by_store(Kind::Input, shown, &message) } else { None };
    if let Some(error) = of_store {
        return error;
    }
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => Error::resources("query engine", message)
            .hint("raise `runtime.memory`, or lower `runtime.threads`"),
        DataFusionError::IoError(_) => Error::input(shown, "cannot be read").source(message),
        root if is_arithmetic(root) => {
            Error::input(shown, "an expression over its rows cannot be computed").source(message)
        }
        _ => Error::input(shown, "cannot be read to its end")
            .source(message)
            .hint("a file may be damaged beyond its footer"),
    }
}

/// Values that were read well, and do not suit what is asked of them.
pub(super) fn is_arithmetic(error: &DataFusionError) -> bool {
    let cause = match error {
        DataFusionError::ArrowError(cause, _) => cause.as_ref(),
        // Functions complain so: of a pattern that is none, of an argument that they have no use for.
        DataFusionError::Execution(_) => return true,
        // The reader of Parquet files applies predicates itself, and keeps no more than the words.
        DataFusionError::ParquetError(cause) => {
            return cause.to_string().contains("Error evaluating filter predicate");
        }
        _ => return false,
    };
    matches!(
        cause,
        ArrowError::DivideByZero
            | ArrowError::ArithmeticOverflow(_)
            | ArrowError::CastError(_)
            | ArrowError::ParseError(_)
            | ArrowError::ComputeError(_)
            | ArrowError::InvalidArgumentError(_)
    )
}
