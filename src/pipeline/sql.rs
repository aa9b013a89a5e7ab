//! `overturn sql`: a query in which a fitted generator is a function.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use futures::TryStreamExt;

use super::run::neighbours;
use super::train::model_hash;
use crate::engine::{Engine, EngineOptions};
use crate::error::{Error, Result};
use crate::explain::{Columns, Explainer, Keep, Setup, check_fit};
use crate::job::{ExplainJob, Target};
use crate::nn::{Artefact, load};
use crate::predictor::{self, Columns as PredictorColumns, Task};
use crate::runtime::Runtime;

/// A query and what it is about.
#[derive(Debug, Clone)]
pub struct Query {
    /// The SQL.
    pub sql: String,
    /// The generator's folder.
    pub generator: PathBuf,
    /// Names and paths of tables.
    pub tables: Vec<(String, String)>,
    /// How far a regression's value may be from the wanted one.
    pub tolerance: f64,
    /// How answers are refined.
    pub explain: ExplainJob,
}

/// Rows that the engine hands out at a time.
const BATCH_ROWS: usize = 8192;
/// What the engine may use before it spills.
const MEMORY: u64 = 2 << 30;

/// Runs a query; gives all rows of its answer.
///
/// # Errors
/// When the generator, a table or the query cannot be used.
pub fn sql(query: &Query, runtime: &Runtime) -> Result<Vec<RecordBatch>> {
    let engine = Engine::new(EngineOptions {
        partitions: runtime.threads,
        batch_rows: BATCH_ROWS,
        memory_bytes: MEMORY,
    })?;
    for (name, path) in &query.tables {
        engine.open(name, std::slice::from_ref(path))?;
    }
    let artefact = load(&query.generator, runtime.device)?;
    let features: Vec<String> = artefact.description.schema.names().map(String::from).collect();
    let task = register(&engine, query, artefact, runtime)?;
    runtime.block_on(async {
        let rows = engine.query(&query.sql, &features, &task).await?;
        rows.try_collect().await
    })
}

/// Makes the generator callable; gives what its model's answers mean.
fn register(engine: &Engine, query: &Query, artefact: Artefact, runtime: &Runtime) -> Result<Task> {
    let Artefact { description, generator, .. } = artefact;
    let shown = query.generator.display().to_string();
    if model_hash(&description.predictor)? != description.origin.model {
        return Err(Error::predictor(&shown, "was trained against another version of its model")
            .hint("train it again, or put the model's file back"));
    }
    let fields = description.features()?;
    let schema = Arc::new(description.schema.clone());
    let features = Arc::new(Schema::new(fields.clone()));
    let columns = PredictorColumns { features: Arc::clone(&schema), schema: Arc::clone(&features) };
    runtime.for_explaining();
    let predictor = predictor::open(&description.predictor, &columns, runtime.threads)?;
    check_fit(&description, &schema, predictor.task(), &shown)?;
    let task = predictor.task().clone();
    let count = fields.len();
    let mut table = fields;
    table.push(Field::new("target", DataType::Utf8, true));
    table.push(Field::new("__row", DataType::UInt32, true));
    let target = Target::Column { name: "target".to_string(), tolerance: query.tolerance };
    let explain = query.explain.clone();
    let neighbours = neighbours(&explain, &query.generator, &description)?;
    let explainer = Explainer::new(
        generator,
        Setup {
            description: &description,
            schema,
            table: Arc::new(Schema::new(table)),
            columns: Columns {
                key: vec![count + 1],
                features: (0..count).collect(),
                target: Some(count),
                ..Columns::default()
            },
            predictor,
            decisions: None,
            target: &target,
            explain: &explain,
            neighbours,
            streams: runtime.streams(),
            keep: Keep::None,
        },
    )?;
    engine.register_counterfactual(Arc::new(explainer), features);
    Ok(task)
}
