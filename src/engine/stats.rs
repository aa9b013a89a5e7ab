//! One pass over a scan for the statistics of its features.

use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::StreamExt;
use tokio::task::JoinSet;

use super::scan::{BatchStream, Scan};
use crate::error::{Error, Result};
use crate::feature::{FeatureSchema, Stats, StatsAccumulator};

/// Gathers the statistics of the features, which stand at `columns` of the scan's batches in the
/// schema's order. `on_rows` hears of progress.
pub async fn gather_stats(
    scan: &Scan,
    schema: &FeatureSchema,
    columns: Arc<[usize]>,
    on_rows: Arc<dyn Fn(u64) + Send + Sync>,
) -> Result<Stats> {
    let empty = StatsAccumulator::new(schema);
    let mut tasks = JoinSet::new();
    for stream in scan.streams()? {
        tasks.spawn(gather(stream, empty.clone(), Arc::clone(&columns), Arc::clone(&on_rows)));
    }
    let mut total = empty;
    // Sums are exact and counts are whole numbers, so the order of merging does not matter.
    while let Some(part) = tasks.join_next().await {
        let part = part.map_err(|error| Error::internal("statistics", error.to_string()))?;
        total.merge(&part?);
    }
    Ok(total.finish())
}

async fn gather(
    mut stream: BatchStream,
    mut stats: StatsAccumulator,
    columns: Arc<[usize]>,
    on_rows: Arc<dyn Fn(u64) + Send + Sync>,
) -> Result<StatsAccumulator> {
    while let Some(batch) = stream.next().await {
        let batch: RecordBatch = batch?;
        let features = batch.project(&columns).map_err(|error| {
            Error::internal("statistics", "a batch lacks a column").source(error)
        })?;
        stats.update(&features)?;
        on_rows(batch.num_rows() as u64);
    }
    Ok(stats)
}
