//! A score table into memory: what the model decided before, by key.

use std::sync::Arc;

use datafusion::logical_expr::{Expr, cast};
use futures::StreamExt;
use tokio::task::JoinSet;

use super::scan::{BatchStream, Scan, ScanOrigin, column, planning};
use super::session::Engine;
use super::table::Table;
use crate::error::{Error, Result};
use crate::explain::Decisions;
use crate::predictor::Task;

/// A score table beside the table of features.
#[derive(Debug, Clone, Copy)]
pub struct StoredScores<'a> {
    /// The score table.
    pub scores: &'a Table,
    /// The table whose rows it is of.
    pub features: &'a Table,
    /// Columns of both that say which row is which.
    pub key: &'a [String],
    /// The column of the score table with the model's decision.
    pub decision: &'a str,
}

impl Engine {
    /// A scan of a score table: the key in the types of the feature table's, then the decision.
    async fn stored(&self, stored: &StoredScores<'_>) -> Result<Scan> {
        let StoredScores { scores, features, key, decision } = *stored;
        let typed = |name: &String| -> Expr {
            match features.schema.field_with_name(name) {
                Ok(field) => cast(column(name), field.data_type().clone()).alias(name),
                Err(_) => column(name),
            }
        };
        let mut columns: Vec<Expr> = key.iter().map(typed).collect();
        columns.push(column(decision).alias("__decision"));
        let frame = self.frame(scores).await?.select(columns).map_err(planning)?;
        let plan = frame.create_physical_plan().await.map_err(planning)?;
        Ok(Scan::new(self, plan, ScanOrigin::of_table(&scores.shown)))
    }
}

/// Reads the decisions of a score table, joined to the features on the key.
///
/// # Errors
/// When a key has two decisions, or a decision is none of the model's.
pub async fn gather_decisions(
    engine: &Engine,
    stored: &StoredScores<'_>,
    task: &Task,
) -> Result<Decisions> {
    let scan = engine.stored(stored).await?;
    let mut tasks = JoinSet::new();
    for stream in scan.streams()? {
        tasks.spawn(gather(stream, Decisions::new(task), stored.key.len()));
    }
    let mut total = Decisions::new(task);
    while let Some(part) = tasks.join_next().await {
        let part = part.map_err(|error| Error::internal("scores", error.to_string()))?;
        total.merge(part?)?;
    }
    Ok(total)
}

async fn gather(mut stream: BatchStream, mut found: Decisions, key: usize) -> Result<Decisions> {
    let indices: Arc<[usize]> = (0..key).collect();
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let keys = batch
            .project(&indices)
            .map_err(|error| Error::internal("scores", "a key column is lost").source(error))?;
        found.add(&keys, batch.column(key))?;
    }
    Ok(found)
}
