//! From a batch of rows to a batch of counterfactuals: validate rows, predict (or read the score table), generate,
//! post-process to the constraints, predict again, refine, measure. Engine-free: batches in, batches out, and
//! [`ExplainStats`] with what cannot be a column of the table.
//!
//! What comes out of a block of rows depends on nothing but those rows: random numbers are drawn from the
//! row's key. A matrix product may round otherwise in a block of another size, so whoever calls cuts blocks
//! of [`BLOCK_ROWS`] rows, counted from the start of a split.

mod changes;
mod compare;
mod decisions;
mod explained;
mod fit;
mod inspect;
mod method;
mod plausible;
mod recheck;
mod refine;
mod requests;
mod robust;
mod stats;
mod table;
mod valid_rows;

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{FieldRef, SchemaRef};
use parking_lot::Mutex;

use crate::artefact::Description;
use crate::constrain::{Constraints, Observed};
use crate::encode::{Encoder, Layout};
use crate::error::{Error, Result};
use crate::feature::{FeatureSchema, RowConstraint, RowReader, RowValidator, RowWriter};
use crate::job::{Coherence, ExplainJob, ExplainMethod, FirstConditions, Refine, Target};
use crate::nearest::{Plausibility, Points};
use crate::nn::Generator;
use crate::output::{counterfactual_schema, refuse_taken, rejects_schema};
use crate::predictor::{Predictor, Task};
use crate::runtime::Streams;
use crate::target::TargetCodec;

use compare::Tabulated;
pub use decisions::Decisions;
pub use fit::{check_fit, target_names};
pub use inspect::Inspected;
use method::{CounterfactualMethod, method_of};
pub use plausible::check_plausibility;
pub use recheck::{CurrentRows, Recheck, Remade};
use refine::{Plateaus, Refiner, RefinerSetup};
use requests::TargetRule;
pub use robust::RobustModels;
pub use stats::{ExplainStats, Stage, StageSeconds};
use valid_rows::ValidRows;

/// Rows explained at once: enough for the matrix products, few enough for the caches.
pub const BLOCK_ROWS: usize = 8192;

/// From more classes than this on, blocks have fewer rows.
const MANY_CLASSES: usize = 16;

/// A block may have so many times as many counterfactuals as it could have rows.
const BLOCKS_OF_REQUESTS: usize = 4;

/// Methods that ask again and again use up what a row's budget allows: so many times what refinement does.
const QUERIES_OF_METHODS: usize = 16;

/// Where a batch's columns are.
#[derive(Debug, Clone, Default)]
pub struct ColumnIndices {
    /// The key.
    pub key: Vec<usize>,
    /// The features, in the schema's order.
    pub features: Vec<usize>,
    /// Columns that constrain single rows.
    pub constraints: Vec<RowConstraint>,
    /// The target of each row.
    pub target: Option<usize>,
}

/// What rows are explained with.
#[derive(Clone)]
pub struct ExplainSetup<'a> {
    /// What the generator is.
    pub description: &'a Description,
    /// The feature schema, whose constraints may be others than those that were trained with.
    pub schema: Arc<FeatureSchema>,
    /// The batches' schema …
    pub table: SchemaRef,
    /// … and what its columns are.
    pub columns: ColumnIndices,
    /// The model.
    pub predictor: Arc<dyn Predictor>,
    /// Models beside it under which counterfactuals must hold too.
    pub robust: RobustModels,
    /// What it decided before.
    pub decisions: Option<Arc<Decisions>>,
    /// What it should decide instead.
    pub target: &'a Target,
    /// How many counterfactuals, and how they are refined.
    pub explain: &'a ExplainJob,
    /// Training rows to look for neighbours in, and to tell by how plausible counterfactuals are.
    pub neighbours: Option<Points>,
    /// Random streams.
    pub streams: Streams,
}

/// All that explaining needs and threads can share; see [`Worker`].
pub struct Explainer {
    generator: Mutex<Generator>,
    columns: ColumnIndices,
    validator: RowValidator,
    reader: RowReader,
    writer: RowWriter,
    schema: Arc<FeatureSchema>,
    encoder: Encoder,
    constraints: Constraints,
    codec: TargetCodec,
    predictor: Arc<dyn Predictor>,
    robust: RobustModels,
    decisions: Option<Arc<Decisions>>,
    target_rule: TargetRule,
    samples: usize,
    conditions: FirstConditions,
    method: Box<dyn CounterfactualMethod>,
    refiner: Refiner,
    /// None without training rows, or with too few.
    plausibility: Option<Arc<Plausibility>>,
    /// One for each method beside the published one.
    others: Vec<Arc<Explainer>>,
    streams: Streams,
    /// Schema of the counterfactual table.
    pub counterfactuals: SchemaRef,
    /// Schema of the rejects table.
    pub rejects: SchemaRef,
}

/// One thread's explainer, with a generator of its own.
pub struct Worker {
    shared: Arc<Explainer>,
    generator: Generator,
    others: Vec<Worker>,
}

impl Explainer {
    /// An explainer with this generator.
    ///
    /// # Errors
    /// When a key column has a name that the table needs itself, the target is not one of the model's, or there are
    /// too few training rows to tell whether counterfactuals are as plausible as they must be.
    pub fn new(generator: Generator, setup: ExplainSetup<'_>) -> Result<Explainer> {
        if !setup.explain.compares() {
            return Explainer::of_method(generator, setup, None);
        }
        let others = setup.clone();
        let mut explainer = Explainer::of_method(generator.replica()?, setup, None)?;
        explainer.others = compare::others(&explainer, &generator, &others)?;
        Ok(explainer)
    }

    /// The published method alone. What answers are compared with is made, unless it is given.
    fn of_method(
        generator: Generator,
        setup: ExplainSetup<'_>,
        given: Option<Option<Arc<Plausibility>>>,
    ) -> Result<Explainer> {
        let ExplainSetup { description, schema, table, columns, predictor, .. } = setup;
        let explain = resolved(setup.explain, description)?;
        let fields = |indexes: &[usize]| -> Vec<FieldRef> {
            indexes.iter().map(|index| Arc::clone(&table.fields()[*index])).collect()
        };
        let (key, features) = (fields(&columns.key), fields(&columns.features));
        let regression = matches!(predictor.task(), Task::Regression);
        let counterfactuals = counterfactual_schema(&key, &features, regression);
        let rejects = rejects_schema(&key);
        refuse_taken(&key, &[&counterfactuals, &rejects])?;
        let encoder = description.encoder();
        let layout = Arc::clone(encoder.layout());
        let plausibility = match given {
            Some(given) => given,
            None => plausible::comparison(&explain, setup.neighbours.as_ref(), &layout)?,
        };
        let points = setup.neighbours.filter(|_| explain.needs_neighbours());
        let constrained = Constrained { description, schema: &schema, columns: &columns, features };
        let constraints = constrained.constraints(&explain, &layout);
        let plateaus = Plateaus::new(predictor.as_ref(), &schema, &constraints);
        let refiner = Refiner::new(RefinerSetup {
            job: &explain,
            schema: &schema,
            layout: Arc::clone(&layout),
            points,
            classes: classes_of(predictor.task()),
            plateaus,
        });
        // Whole distributions are not in a score table.
        let stored = setup.decisions.filter(|_| !description.targets.tells_distributions());
        Ok(Explainer {
            generator: Mutex::new(generator),
            validator: RowValidator::new(&schema),
            reader: RowReader::new(&schema),
            writer: RowWriter::new(&schema),
            target_rule: TargetRule::new(setup.target, predictor.task())?,
            method: method_of(&explain, &schema, &refiner),
            schema,
            encoder,
            constraints,
            codec: description.targets.clone(),
            predictor,
            robust: setup.robust,
            decisions: stored,
            columns,
            samples: setup.explain.samples,
            conditions: setup.explain.conditions,
            refiner,
            plausibility,
            others: Vec::new(),
            streams: setup.streams,
            counterfactuals,
            rejects,
        })
    }

    /// The features that rows have.
    pub fn schema(&self) -> &Arc<FeatureSchema> {
        &self.schema
    }

    /// An explainer for one thread.
    ///
    /// # Errors
    /// When the generator cannot be copied.
    pub fn worker(self: &Arc<Self>) -> Result<Worker> {
        let generator = self.generator.lock().replica()?;
        let others = self.others.iter().map(Explainer::worker).collect::<Result<_>>()?;
        Ok(Worker { shared: Arc::clone(self), generator, others })
    }

    /// Rows to be explained at once: fewer where each has many counterfactuals.
    pub fn block_rows(&self) -> usize {
        // Every proposal's probabilities are held until the block is done.
        let classes = match self.predictor.task() {
            Task::Classification { classes, .. } => classes.len(),
            Task::Regression => 1,
        };
        let often = if self.method.asks_often() { QUERIES_OF_METHODS } else { 1 };
        let wide = classes.div_ceil(MANY_CLASSES) * self.refiner.budgets() * often;
        let requests = self.samples * self.target_rule.targets_per_row() * wide;
        let rows = (BLOCK_ROWS * BLOCKS_OF_REQUESTS / requests).clamp(1, BLOCK_ROWS);
        self.others.iter().map(|other| other.block_rows()).fold(rows, usize::min)
    }
}

impl Worker {
    /// Counterfactuals of a block of rows, in their order.
    ///
    /// # Errors
    /// When the model as a whole fails.
    pub fn explain(&self, block: &RecordBatch, stats: &mut ExplainStats) -> Result<RecordBatch> {
        let shared = &self.shared;
        stats.rows += block.num_rows() as u64;
        let mut clock = Instant::now();
        let valid_rows = shared.validate_rows(block, stats)?;
        stats.clock(Stage::Decide, &mut clock);
        if valid_rows.rows.len == 0 {
            return Ok(RecordBatch::new_empty(Arc::clone(&shared.counterfactuals)));
        }
        if self.others.is_empty() {
            return Ok(self.explain_valid(&valid_rows, stats)?.table);
        }
        self.explain_by_each(&valid_rows, stats)
    }

    /// What one method says of valid rows.
    fn explain_valid(&self, valid_rows: &ValidRows, stats: &mut ExplainStats) -> Result<Tabulated> {
        let shared = &self.shared;
        let requests = shared.requests(valid_rows)?;
        let explained = self.find(valid_rows, requests, stats)?;
        let mut clock = Instant::now();
        stats.count(&explained);
        let table = shared.table(valid_rows, &explained)?;
        stats.clock(Stage::Tabulate, &mut clock);
        Ok(Tabulated { rows: explained.rows, table })
    }
}

/// Classes that a model tells apart; none of a regression.
fn classes_of(task: &Task) -> u32 {
    match task {
        Task::Classification { classes, .. } => classes.len() as u32,
        Task::Regression => 0,
    }
}

/// The job's options with the method that `auto` stands for.
fn resolved(explain: &ExplainJob, description: &Description) -> Result<ExplainJob> {
    let method = explain.method.with_generator(description.learnt);
    if !description.learnt && method == ExplainMethod::Cfrl {
        let problem = "has learnt nothing: it was made by a run that needed no training";
        return Err(Error::input("generator", problem)
            .hint("train one with `overturn train`, or set `explain.method = \"search\"`"));
    }
    Ok(ExplainJob { method, ..explain.clone() })
}

/// What constraints follow from.
struct Constrained<'a> {
    description: &'a Description,
    schema: &'a Arc<FeatureSchema>,
    columns: &'a ColumnIndices,
    features: Vec<FieldRef>,
}

impl Constrained<'_> {
    fn constraints(self, explain: &ExplainJob, layout: &Arc<Layout>) -> Constraints {
        let Constrained { description, schema, columns, features } = self;
        let observed = match explain.coherence {
            Coherence::Observed => {
                let bounded: Vec<usize> = columns.constraints.iter().map(|of| of.feature).collect();
                description.observed.clone().without_formulas_of(schema, &bounded)
            }
            Coherence::Off => Observed::default(),
        };
        // Training rows are given as they are, whatever step most of their values have.
        let schema = match explain.method {
            ExplainMethod::Nearest if explain.refine.mode == Refine::Off => {
                Arc::new(schema.without_grids())
            }
            _ => Arc::clone(schema),
        };
        let fields = arrow::datatypes::Schema::new(features);
        Constraints::new(schema, &description.stats, Arc::clone(layout), &fields)
            .with_observed(&observed)
    }
}

/// Rows of a batch.
fn take(batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch> {
    let whole =
        rows.len() == batch.num_rows() && (0u32..).zip(rows).all(|(index, row)| index == *row);
    if whole {
        return Ok(batch.clone());
    }
    take_record_batch(batch, &UInt32Array::from(rows.to_vec()))
        .map_err(|error| Error::internal("explaining", "rows cannot be taken").source(error))
}

fn project(batch: &RecordBatch, columns: &[usize]) -> Result<RecordBatch> {
    batch
        .project(columns)
        .map_err(|error| Error::internal("explaining", "a column is lost").source(error))
}
