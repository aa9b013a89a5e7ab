//! A fitted generator as a function of SQL: `counterfactual(target)` over any table with the generator's
//! features, for single rows and ad-hoc groups. `counterfactual('approved')` stands for
//! `counterfactual('approved', "age", "income", …)` with all features in the generator's order, which can be
//! written out where columns have other names.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, StructArray, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{DataType, Field, Fields, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::{
    ColumnarValue, Expr as PlanExpr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::prelude::DataFrame;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, visit_expressions_mut,
};
use futures::{StreamExt, TryStreamExt, future, stream};
use parking_lot::Mutex;
use tokio::task::block_in_place;

use super::explain::{enveloped, explaining};
use super::expression::{check_plan, check_text, with_room};
use super::scan::{BatchStream, ScanOrigin, planning};
use super::session::Engine;
use crate::document::did_you_mean;
use crate::error::{Error, Result};
use crate::explain::{ExplainStats, Explainer, Worker};
use crate::predictor::Task;

/// The function's name.
const NAME: &str = "counterfactual";
/// Columns of the counterfactual table that a result leaves out: the key (one column here), the method, the sample.
const LEFT_OUT: usize = 3;
/// What its struct has beside the columns of the counterfactual table.
const DETAIL: &str = "detail";

impl Engine {
    /// Makes a generator callable. The explainer's batches have the features, then the target's column,
    /// then one that is the key.
    pub fn register_counterfactual(&self, explainer: Arc<Explainer>, features: SchemaRef) {
        self.context.register_udf(ScalarUDF::from(Counterfactual::new(explainer, features)));
    }

    /// Runs a query. It may read the session's tables, and nothing else. The first batch is empty, so that
    /// a result without rows has columns.
    ///
    /// # Errors
    /// When it cannot be understood, or asks for a class that the model does not have.
    pub async fn query(&self, sql: &str, features: &[String], task: &Task) -> Result<BatchStream> {
        let refused = |error: DataFusionError| {
            Error::spec("query", error.strip_backtrace())
                .hint("column names are case-sensitive; tables are those given with `--table`")
        };
        check_text("query", sql)?;
        let state = self.context.state();
        let planned = with_room(async {
            let dialect = state.config_options().sql_parser.dialect;
            let mut statement = state.sql_to_statement(sql, &dialect).map_err(refused)?;
            fill_in(&mut statement, features);
            let plan = state.statement_to_plan(statement).await.map_err(refused)?;
            let queries_only = SQLOptions::new()
                .with_allow_ddl(false)
                .with_allow_dml(false)
                .with_allow_statements(false);
            queries_only.verify_plan(&plan).map_err(refused)?;
            check_targets(&plan, task)?;
            check_plan("query", &plan)?;
            let origin = ScanOrigin::of_query(tables_of(&plan), sql);
            let result_stream = DataFrame::new(state.clone(), plan).execute_stream().await;
            let result_stream = result_stream.map_err(|error| explaining(&origin, error))?;
            Ok((result_stream, origin))
        });
        let (result_stream, origin) = planned?;
        let head = RecordBatch::new_empty(result_stream.schema());
        let rows = result_stream.map_err(move |error| explaining(&origin, error));
        Ok(stream::once(future::ready(Ok(head))).chain(rows).boxed())
    }
}

/// The tables that a query reads, for messages.
fn tables_of(plan: &LogicalPlan) -> String {
    let mut names = BTreeSet::new();
    let _ = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            names.insert(scan.table_name.table().to_string());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    if names.is_empty() {
        return "query".to_string();
    }
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Refuses a target that is written out and no class of the model: every row would be rejected for it.
fn check_targets(plan: &LogicalPlan, task: &Task) -> Result<()> {
    let Task::Classification { classes, .. } = task else { return Ok(()) };
    let mut unknown: Option<String> = None;
    let visited = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                unknown = literal_target(part).filter(|target| !classes.contains(target));
                Ok(match unknown {
                    Some(_) => TreeNodeRecursion::Stop,
                    None => TreeNodeRecursion::Continue,
                })
            })
        })
    });
    visited.map_err(planning)?;
    let Some(target) = unknown else { return Ok(()) };
    let problem = format!("asks {NAME} for `{target}`, expected one of {classes:?}");
    let error = Error::spec("query", problem);
    Err(match did_you_mean(&target, classes.iter().map(String::as_str)) {
        Some(hint) => error.hint(hint),
        None => error,
    })
}

/// The target of a call of the function, where it is written out; as text, as the function will see it.
fn literal_target(expression: &PlanExpr) -> Option<String> {
    let PlanExpr::ScalarFunction(call) = expression else { return None };
    let Some(PlanExpr::Literal(value, _)) = call.args.first() else { return None };
    match value.cast_to(&DataType::Utf8) {
        Ok(ScalarValue::Utf8(text)) if call.func.name() == NAME => text,
        _ => None,
    }
}

/// Gives every short call of the function its features.
fn fill_in(statement: &mut Statement, features: &[String]) {
    let Statement::Statement(statement) = statement else { return };
    let _ = visit_expressions_mut(statement, |expression: &mut Expr| {
        if let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) =
            expression
            && name.to_string().eq_ignore_ascii_case(NAME)
            && list.args.len() <= 1
        {
            list.args.extend(features.iter().map(|feature| {
                let column = Expr::Identifier(Ident::with_quote('"', feature));
                FunctionArg::Unnamed(FunctionArgExpr::Expr(column))
            }));
        }
        ControlFlow::<()>::Continue(())
    });
}

/// The function.
struct Counterfactual {
    explainer: Arc<Explainer>,
    features: SchemaRef,
    signature: Signature,
    fields: Fields,
    /// Idle workers: a call takes one, or makes one.
    workers: Mutex<Vec<Worker>>,
}

impl Counterfactual {
    fn new(explainer: Arc<Explainer>, features: SchemaRef) -> Counterfactual {
        let own = explainer.counterfactuals.fields().iter().skip(LEFT_OUT);
        let nullable = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_nullable(true));
        let mut fields: Vec<Arc<Field>> = own.map(nullable).collect();
        fields.push(Arc::new(Field::new(DETAIL, DataType::Utf8, true)));
        Counterfactual {
            explainer,
            features,
            signature: Signature::user_defined(Volatility::Immutable),
            fields: fields.into(),
            workers: Mutex::default(),
        }
    }

    /// A batch as the explainer wants it: the features, the target, a key.
    fn batch(&self, args: &ScalarFunctionArgs) -> EngineResult<RecordBatch> {
        let mut columns = ColumnarValue::values_to_arrays(&args.args)?;
        let rows = args.number_rows;
        for column in &mut columns {
            // A call on literals only has arrays of one value.
            if column.len() != rows {
                let first = UInt32Array::from(vec![0; rows]);
                *column = take(column, &first, None)?;
            }
        }
        columns.rotate_left(1);
        let mut fields: Vec<Arc<Field>> = self.features.fields().to_vec();
        fields.push(Arc::new(Field::new("target", DataType::Utf8, true)));
        // Rows of a query need no key: equal rows have equal counterfactuals.
        fields.push(Arc::new(Field::new("__row", DataType::UInt32, true)));
        columns.push(Arc::new(UInt32Array::from(vec![0; rows])));
        let schema = Arc::new(arrow::datatypes::Schema::new(fields));
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    fn explain(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let idle = self.workers.lock().pop();
        let worker = match idle {
            Some(worker) => worker,
            None => self.explainer.worker()?,
        };
        let block = self.explainer.block_rows();
        let mut tables = Vec::new();
        let mut indices: Vec<Option<u32>> = Vec::with_capacity(batch.num_rows());
        let mut details: Vec<Option<String>> = Vec::with_capacity(batch.num_rows());
        let mut found = 0;
        for first in (0..batch.num_rows()).step_by(block) {
            let part = batch.slice(first, block.min(batch.num_rows() - first));
            let mut stats = ExplainStats::default();
            tables.push(block_in_place(|| worker.explain(&part, &mut stats))?);
            let mut rejects = stats.last_rejects.into_iter().peekable();
            for row in 0..part.num_rows() as u32 {
                let reject = rejects.next_if(|reject| reject.row == row);
                details.push(
                    reject.map(|reject| format!("{}: {}", reject.reason.name(), reject.detail)),
                );
                let known = details.last().is_some_and(Option::is_none);
                indices.push(known.then_some(found));
                found += u32::from(known);
            }
        }
        self.workers.lock().push(worker);
        let misfit = |error| Error::internal("counterfactual", "columns do not fit").source(error);
        let table = concat_batches(&self.explainer.counterfactuals, &tables).map_err(misfit)?;
        self.assemble(&table, indices, details).map_err(misfit)
    }

    /// The rows of the table in their places; a rejected row has its reason and nothing else.
    fn assemble(
        &self,
        table: &RecordBatch,
        indices: Vec<Option<u32>>,
        details: Vec<Option<String>>,
    ) -> Result<ArrayRef, arrow::error::ArrowError> {
        let indices = UInt32Array::from(indices);
        let own = table.columns().iter().skip(LEFT_OUT);
        let mut columns =
            own.map(|column| take(column, &indices, None)).collect::<Result<Vec<_>, _>>()?;
        let status = self.fields.iter().position(|field| field.name() == "status");
        if let Some(status) = status {
            let texts = arrow::array::AsArray::as_string::<i32>(&columns[status]);
            let with = |(text, detail): (Option<&str>, &Option<String>)| {
                text.map(String::from).or(detail.as_ref().map(|_| "rejected".to_string()))
            };
            let texts: StringArray = texts.iter().zip(&details).map(with).collect();
            columns[status] = Arc::new(texts);
        }
        columns.push(Arc::new(StringArray::from(details)));
        Ok(Arc::new(StructArray::try_new(self.fields.clone(), columns, None)?))
    }
}

impl ScalarUDFImpl for Counterfactual {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The short call, where it stands for the long one.
    fn schema_name(&self, arguments: &[PlanExpr]) -> EngineResult<String> {
        let names = self.features.fields().iter().map(|field| Some(field.name().as_str()));
        let short = names.eq(arguments.iter().skip(1).map(column_name));
        let shown = if short { &arguments[..1] } else { arguments };
        let shown: Vec<String> = shown.iter().map(|of| of.schema_name().to_string()).collect();
        Ok(format!("{NAME}({})", shown.join(", ")))
    }

    fn return_type(&self, _arguments: &[DataType]) -> EngineResult<DataType> {
        Ok(DataType::Struct(self.fields.clone()))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> EngineResult<Vec<DataType>> {
        let expected = self.features.fields().len() + 1;
        if arguments.len() != expected {
            let names: Vec<&str> =
                self.features.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(DataFusionError::Plan(format!(
                "{NAME} has {} arguments, expected the target, alone or with the {} \
                 features: {}",
                arguments.len(),
                expected - 1,
                names.join(", ")
            )));
        }
        let features = self.features.fields().iter().map(|field| field.data_type().clone());
        Ok([DataType::Utf8].into_iter().chain(features).collect())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        let batch = self.batch(&arguments)?;
        Ok(ColumnarValue::Array(self.explain(&batch).map_err(enveloped)?))
    }
}

/// The name of a column.
fn column_name(argument: &PlanExpr) -> Option<&str> {
    match argument {
        PlanExpr::Column(column) => Some(&column.name),
        PlanExpr::Cast(cast) => column_name(&cast.expr),
        _ => None,
    }
}

impl fmt::Debug for Counterfactual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counterfactual").field("features", &self.features).finish_non_exhaustive()
    }
}

/// There is one in a session.
impl PartialEq for Counterfactual {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.explainer, &other.explainer)
    }
}

impl Eq for Counterfactual {}

impl Hash for Counterfactual {
    fn hash<H: Hasher>(&self, state: &mut H) {
        NAME.hash(state);
    }
}
