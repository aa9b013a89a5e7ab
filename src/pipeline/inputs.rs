//! Tables, schema and what they say about each other: all that is settled before anything long starts.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use super::Observer;
use crate::engine::{
    Engine, EngineOptions, Extremes, KeyFaults, ScanPlan, Table, Usual, check_keys,
    count_contradictions, find_extremes, gather_stats,
};
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::{
    Bound, FeatureSchema, FeatureStats, Findings, RowConstraint, Stats, check_columns,
    missing_column, row_constraints, stray_constraints,
};
use crate::job::{InputJob, RuntimeJob, ScoresJob};
use crate::predictor::PredictorColumns;

/// Columns of which numbers far from all others are looked up.
const MOST_EXTREMES: usize = 50;

/// Opened tables and the schema that explains them.
pub struct Inputs {
    /// The session.
    pub engine: Engine,
    /// The feature table.
    pub features: Table,
    /// The score table.
    pub scores: Option<Table>,
    /// What the columns mean.
    pub schema: Arc<FeatureSchema>,
    /// Columns that constrain features row by row.
    pub constraints: Vec<RowConstraint>,
    /// Columns read by a scan, key first.
    pub columns: Vec<String>,
    /// Where the key stands in a batch.
    pub key: Arc<[usize]>,
    /// Where the features stand in a batch, in the schema's order.
    pub feature_columns: Arc<[usize]>,
    /// What was found of the keys of rows that satisfy a predicate.
    checked: Mutex<Vec<(Option<String>, KeyFaults)>>,
}

/// Which rows of the feature table a stage works on: an SQL predicate and the job's key that it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The key, for messages.
    pub key: &'a str,
    /// The predicate; all rows without one.
    pub predicate: Option<&'a str>,
}

impl<'a> Scope<'a> {
    /// The rows that are scored and explained.
    pub fn explained(job: &'a InputJob) -> Scope<'a> {
        Scope { key: "input.where", predicate: job.predicate.as_deref() }
    }
}

/// What the check found, for the summary.
#[derive(Debug, Clone, Serialize)]
pub struct CheckSummary {
    /// Rows of the feature table.
    pub rows: u64,
    /// Rows that satisfy the predicate.
    pub rows_in_scope: u64,
    /// Features by kind.
    pub numeric_features: usize,
    /// Categorical ones.
    pub categorical_features: usize,
    /// Per-row constraint columns.
    pub constraint_columns: Vec<String>,
    /// What will set rows aside.
    pub rejections: Vec<String>,
    /// What is odd, but usable.
    pub remarks: Vec<String>,
    /// Statistics of the features.
    #[serde(skip)]
    pub stats: Stats,
}

impl Inputs {
    /// Opens the tables and holds their columns against the schema.
    ///
    /// # Errors
    /// Everything in which files, schema and job disagree, at once.
    pub fn open(job: &InputJob, runtime: &RuntimeJob, threads: usize) -> Result<Inputs> {
        let schema = Arc::new(FeatureSchema::read(&job.schema)?);
        let engine = Engine::new(EngineOptions {
            partitions: threads,
            batch_rows: job.batch_rows,
            memory_bytes: runtime.memory.0,
        })?
        .with_stores(job.stores.clone());
        let features = match &job.features_at {
            Some(at) => engine.open_version("features", (&job.features[0], at), &read_by(job))?,
            None => engine.open("features", &job.features)?,
        };
        tracing::info!(
            rows = features.rows,
            files = features.files,
            bytes = features.bytes,
            "opened {}",
            features.shown
        );
        let scores = match &job.scores {
            Some(ScoresJob { table, table_at: Some(at), .. }) => {
                Some(engine.open_version("scores", (&table[0], at), &[])?)
            }
            Some(scores) => Some(engine.open("scores", &scores.table)?),
            None => None,
        };
        Error::from_faults(Kind::Schema, column_faults(job, &schema, &features, scores.as_ref()))?;
        let mut columns = job.key.clone();
        columns.extend(
            schema.names().filter(|name| !job.key.iter().any(|key| key == name)).map(String::from),
        );
        let positions: HashMap<&str, usize> = columns.iter().map(String::as_str).zip(0..).collect();
        let position = |name: &str| positions.get(name).copied();
        let key = job.key.iter().filter_map(|name| position(name)).collect();
        let feature_columns = schema.names().filter_map(position).collect();
        let constraints = row_constraints(&schema, &features.schema);
        for stray in stray_constraints(&schema, &features.schema) {
            tracing::warn!("{stray}");
        }
        Ok(Inputs {
            engine,
            features,
            scores,
            schema,
            constraints,
            columns,
            key,
            feature_columns,
            checked: Mutex::default(),
        })
    }

    /// Fields of the key columns.
    pub fn key_fields(&self) -> Vec<FieldRef> {
        self.fields(&self.key)
    }

    /// Fields of the features, in the schema's order.
    pub fn feature_fields(&self) -> Vec<FieldRef> {
        self.fields(&self.feature_columns)
    }

    /// What a predictor is told about its batches.
    pub fn predictor_columns(&self) -> PredictorColumns {
        let schema: SchemaRef = Arc::new(Schema::new(self.feature_fields()));
        PredictorColumns { features: Arc::clone(&self.schema), schema }
    }

    fn fields(&self, positions: &[usize]) -> Vec<FieldRef> {
        let fields = self.features.schema.fields().iter();
        let by_name: HashMap<&str, &FieldRef> =
            fields.map(|field| (field.name().as_str(), field)).collect();
        let names = positions.iter().map(|position| self.columns[*position].as_str());
        names.filter_map(|name| by_name.get(name).map(|field| Arc::clone(field))).collect()
    }

    /// A scan of the rows in scope, without the score table.
    pub fn plan<'a>(&'a self, scope: Scope<'a>) -> ScanPlan<'a> {
        ScanPlan {
            table: &self.features,
            predicate: scope.predicate.map(|predicate| (scope.key, predicate)),
            columns: &self.columns,
            scores: None,
        }
    }

    /// Reads the table once for its keys and once for its statistics, and holds both against the job.
    ///
    /// # Errors
    /// Duplicate or null keys, an empty scope, unusable columns, too many rows to reject.
    pub async fn check(
        &self,
        job: &InputJob,
        scope: Scope<'_>,
        observer: &Observer,
    ) -> Result<CheckSummary> {
        let plan = self.plan(scope);
        observer.stage("checking keys", None);
        let rows = self.check_keys(job, scope).await?;
        observer.stage("checking features", Some(rows));
        let progress = Arc::clone(observer);
        let on_rows = Arc::new(move |rows| progress.advance(rows));
        let scan = self.engine.scan(plan).await?;
        let stats =
            gather_stats(&scan, &self.schema, Arc::clone(&self.feature_columns), on_rows).await?;
        let mut findings = Findings::new(&self.schema, &stats, &self.features.shown);
        refuse(&findings, &stats, job)?;
        findings.remarks.extend(self.extremes(job, scope, &stats).await?);
        for (fault, rows) in &findings.rejections {
            tracing::warn!(rows, "will be rejected: {}", fault.problem);
        }
        tracing::info!(rows = stats.rows, "checked");
        Ok(self.summarise(findings, stats))
    }

    /// Counts the rows in scope, and refuses keys that do not tell them apart, and an empty scope. Reads the keys
    /// once, however often it is asked.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub async fn check_keys(&self, job: &InputJob, scope: Scope<'_>) -> Result<u64> {
        let keys = self.keys(job, scope).await?;
        if keys.rows == 0 {
            return Err(nothing_in_scope(&self.features, scope));
        }
        Error::from_faults(Kind::Input, key_faults(&self.features.shown, job, &keys))?;
        Ok(keys.rows)
    }

    async fn keys(&self, job: &InputJob, scope: Scope<'_>) -> Result<KeyFaults> {
        let same = |known: &&(Option<String>, KeyFaults)| known.0.as_deref() == scope.predicate;
        let known = self.known().iter().find(same).map(|(_, keys)| keys.clone());
        if let Some(known) = known {
            return Ok(known);
        }
        let predicate = self.plan(scope).predicate;
        let keys = check_keys(&self.engine, &self.features, &job.key, predicate).await?;
        self.known().push((scope.predicate.map(String::from), keys.clone()));
        Ok(keys)
    }

    fn known(&self) -> MutexGuard<'_, Vec<(Option<String>, KeyFaults)>> {
        self.checked.lock()
    }

    /// Numbers so far from all others that statistics leave them out, with the keys of their rows.
    async fn extremes(
        &self,
        job: &InputJob,
        scope: Scope<'_>,
        stats: &Stats,
    ) -> Result<Vec<Fault>> {
        let seen = self.schema.names().zip(&stats.features);
        let usual: Vec<Usual> = seen
            .filter_map(|(name, seen)| match seen {
                FeatureStats::Numeric(seen) => Some((name, seen.outliers()?)),
                FeatureStats::Categorical(_) => None,
            })
            .map(|(name, range)| Usual { column: name.to_string(), range })
            .take(MOST_EXTREMES)
            .collect();
        if usual.is_empty() {
            return Ok(Vec::new());
        }
        let looked_at = usual.iter().map(|usual| usual.column.clone());
        let columns: Vec<String> = job.key.iter().cloned().chain(looked_at).collect();
        let plan = ScanPlan { columns: &columns, ..self.plan(scope) };
        let found = find_extremes(&self.engine, plan, &usual).await?;
        let pairs = usual.iter().zip(&found).filter(|(_, found)| found.count > 0);
        let remarks = pairs.map(|(usual, found)| self.extreme(usual, found, &job.key));
        Ok(remarks.collect())
    }

    fn extreme(&self, usual: &Usual, found: &Extremes, key: &[String]) -> Fault {
        let described: Vec<String> = found
            .farthest
            .iter()
            .map(|(value, of)| format!("{value:e} where {} is {of}", key.join(", ")))
            .collect();
        let values = if found.count == 1 { "value is" } else { "values are" };
        let problem = format!(
            "column `{}`: {} {values} far from all others: {}",
            usual.column,
            found.count,
            described.join("; ")
        );
        tracing::warn!("{problem}");
        Fault::new(&self.features.shown, problem).hint(
            "statistics leave them out and networks see them cut; where they are wrong, set `range` and \
             `outside = \"reject\"`, or filter them with `input.where`",
        )
    }

    /// Rows whose own lowest value lies above their own highest: nothing can become of them.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub async fn contradictions(&self, scope: Scope<'_>) -> Result<Vec<String>> {
        let bounded = |bound: Bound| self.constraints.iter().filter(move |one| one.bound == bound);
        let pairs = bounded(Bound::Min).flat_map(|low| {
            let same = bounded(Bound::Max).filter(|high| high.feature == low.feature);
            same.flat_map(|high| [low.column.clone(), high.column.clone()])
        });
        let columns: Vec<String> = pairs.collect();
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let plan = ScanPlan { columns: &columns, ..self.plan(scope) };
        let counts = count_contradictions(&self.engine, plan).await?;
        let described = columns.chunks_exact(2).zip(counts).filter(|(_, count)| *count > 0);
        let described = described.map(|(pair, count)| {
            format!(
                "`{}` is above `{}` in {count} rows: the feature cannot change there",
                pair[0], pair[1]
            )
        });
        Ok(described.collect())
    }

    fn summarise(&self, findings: Findings, stats: Stats) -> CheckSummary {
        let text = |fault: &Fault| match &fault.hint {
            Some(hint) => format!("{}; {hint}", fault.problem),
            None => fault.problem.clone(),
        };
        let strays = stray_constraints(&self.schema, &self.features.schema);
        let numeric =
            self.schema.features.iter().filter(|feature| feature.numeric().is_some()).count();
        CheckSummary {
            rows: self.features.rows,
            rows_in_scope: stats.rows,
            numeric_features: numeric,
            categorical_features: self.schema.features.len() - numeric,
            constraint_columns: self.constraints.iter().map(|found| found.column.clone()).collect(),
            rejections: findings.rejections.iter().map(|(fault, _)| text(fault)).collect(),
            remarks: strays.into_iter().chain(findings.remarks.iter().map(text)).collect(),
            stats,
        }
    }
}

/// The predicates of all that is read of the feature table; none where all of it is.
fn read_by(job: &InputJob) -> Vec<&str> {
    match (&job.predicate, &job.train_predicate) {
        (Some(explained), Some(trained)) => vec![explained, trained],
        _ => Vec::new(),
    }
}

fn column_faults(
    job: &InputJob,
    schema: &FeatureSchema,
    features: &Table,
    scores: Option<&Table>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let missing = |table: &Table, name: &str| {
        let absent = table.schema.column_with_name(name).is_none();
        absent.then(|| missing_column(name, &table.schema, &table.shown))
    };
    faults.extend(job.key.iter().filter_map(|name| missing(features, name)));
    if let (Some(table), Some(scores)) = (scores, &job.scores) {
        let score_columns = job.key.iter().chain([&scores.decision]);
        faults.extend(score_columns.filter_map(|name| missing(table, name)));
    }
    faults.extend(check_columns(schema, &features.schema, &features.shown));
    faults
}

fn nothing_in_scope(features: &Table, scope: Scope<'_>) -> Error {
    match scope.predicate {
        Some(predicate) if features.rows > 0 => Error::input(
            &features.shown,
            format!("none of its {} rows satisfies `{}`: {predicate}", features.rows, scope.key),
        ),
        _ => Error::input(&features.shown, "has no rows"),
    }
}

fn key_faults(shown: &str, job: &InputJob, keys: &KeyFaults) -> Vec<Fault> {
    let columns = job.key.join(", ");
    let mut faults = Vec::new();
    if keys.nulls > 0 {
        let problem = format!("key `{columns}` is null in {} rows", keys.nulls);
        faults.push(
            Fault::new(shown, problem)
                .hint("every row needs a key; filter them with `input.where`"),
        );
    }
    if keys.duplicates > 0 {
        let examples = keys.examples.join("; ");
        let problem = format!(
            "key `{columns}` is not unique: {} keys occur more than once ({examples})",
            keys.duplicates
        );
        faults.push(
            Fault::new(shown, problem)
                .hint("name further columns in `input.key`, or remove the duplicates"),
        );
    }
    faults
}

fn refuse(findings: &Findings, stats: &Stats, job: &InputJob) -> Result<()> {
    let mut faults = findings.faults.clone();
    let share = findings.least_rejected() as f64 / stats.rows as f64;
    if share > job.max_reject_share {
        faults.extend(findings.rejections.iter().map(|(fault, _)| fault.clone()));
        let limit = job.max_reject_share;
        let problem = format!(
            "{:.2} % of the rows would be rejected, at most {:.2} % may be",
            100.0 * share,
            100.0 * limit
        );
        faults.push(Fault::new("input.max_reject_share", problem));
    }
    Error::from_faults(Kind::Input, faults)
}
