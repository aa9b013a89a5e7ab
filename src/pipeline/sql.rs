//! `overturn sql`: a query in which a fitted generator is a function.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use futures::TryStreamExt;
use serde_json::{Value, json};

use super::model::shown;
use crate::artefact::{Artefact, Description, load, load_neighbours};
use crate::engine::{Engine, EngineOptions};
use crate::error::{Error, Result};
use crate::explain::{ColumnIndices, ExplainSetup, Explainer, RobustModels, check_fit};
use crate::job::{ExplainJob, PredictorJob, PredictorKind, Target};
use crate::predictor::{self, PredictorColumns, Task};
use crate::runtime::Runtime;

/// A query and what it is about.
#[derive(Debug, Clone)]
pub struct Query {
    /// The SQL.
    pub sql: String,
    /// The generator's folder.
    pub generator: PathBuf,
    /// The model that it was trained against.
    pub model: ModelSource,
    /// Names and paths of tables.
    pub tables: Vec<(String, String)>,
    /// How far a regression's value may be from the target.
    pub tolerance: f64,
    /// How answers are refined.
    pub explain: ExplainJob,
}

/// Where the model of a query is. A generator's files never say.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelSource {
    /// As a job has it.
    Job(Box<PredictorJob>),
    /// An ONNX file, asked as in training.
    Onnx(PathBuf),
    /// A program and its arguments.
    Scorer(Vec<String>),
}

impl ModelSource {
    /// The model, with what the generator knows of how it is asked.
    fn predictor(&self, description: &Description, generator: &str) -> Result<PredictorJob> {
        let form = &description.model;
        let mut settings = json!({ "task": form.task, "classes": form.classes,
            "probabilities": form.probabilities });
        let mut set = |key: &str, value: Value| settings[key] = value;
        match (self, &form.inputs) {
            (ModelSource::Job(job), _) => Ok(job.as_ref().clone()),
            (ModelSource::Onnx(_), None) => {
                let problem = "was trained against a program, not an ONNX file";
                Err(Error::input(generator, problem).hint("name it by `--scorer` or `--job`"))
            }
            (ModelSource::Onnx(path), Some(inputs)) => {
                set("kind", json!("onnx"));
                set("model", json!(path));
                let mut job = PredictorJob::of_argument("--model", settings)?;
                if let PredictorKind::Onnx(model) = &mut job.kind {
                    model.inputs = inputs.clone();
                    model.null_text = form.null_text.clone();
                }
                Ok(job)
            }
            (ModelSource::Scorer(command), _) => {
                set("kind", json!("subprocess"));
                set("command", json!(command));
                PredictorJob::of_argument("--scorer", settings)
            }
        }
    }
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
    let folder = query.generator.display().to_string();
    let model = query.model.predictor(&description, &folder)?;
    let (found, expected) = (predictor::fingerprint(&model)?, &description.origin.model);
    if found != *expected {
        let problem = format!(
            "is not the model that `{folder}` was trained against: its SHA-256 is {found}, expected {expected}"
        );
        return Err(Error::predictor(shown(&model), problem)
            .hint("name that model, or train a generator for this one"));
    }
    let fields = description.features()?;
    let schema = Arc::new(description.schema.clone());
    let features = Arc::new(Schema::new(fields.clone()));
    let columns = PredictorColumns { features: Arc::clone(&schema), schema: Arc::clone(&features) };
    runtime.for_explaining();
    let predictor = predictor::open(&model, &columns, runtime.threads)?;
    check_fit(&description, &schema, predictor.task(), &folder)?;
    let task = predictor.task().clone();
    let count = fields.len();
    let mut table = fields;
    table.push(Field::new("target", DataType::Utf8, true));
    table.push(Field::new("__row", DataType::UInt32, true));
    let target = Target::Column { name: "target".to_string(), tolerance: query.tolerance };
    let explain = query.explain.clone();
    let neighbours = Some(load_neighbours(&query.generator, &description)?);
    let explainer = Explainer::new(
        generator,
        ExplainSetup {
            description: &description,
            schema,
            table: Arc::new(Schema::new(table)),
            columns: ColumnIndices {
                key: vec![count + 1],
                features: (0..count).collect(),
                target: Some(count),
                ..ColumnIndices::default()
            },
            predictor,
            robust: RobustModels::default(),
            decisions: None,
            target: &target,
            explain: &explain,
            neighbours,
            streams: runtime.streams(),
        },
    )?;
    engine.register_counterfactual(Arc::new(explainer), features);
    Ok(task)
}
