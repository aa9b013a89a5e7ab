//! Rows of a scan brought into memory, in the order of their keys' hashes: the same order whatever the
//! files, partitions and batches were, as good as shuffled, and a sample by key where there are too many.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use futures::StreamExt;
use tokio::task::JoinSet;

use super::scan::{BatchStream, Scan};
use crate::error::{Error, Result};
use crate::feature::key_hashes;

/// Which rows to bring.
#[derive(Debug, Clone)]
pub struct SamplePlan {
    /// Where the key stands in a batch.
    pub key: Arc<[usize]>,
    /// Seed of the hash.
    pub seed: u64,
    /// Rows of the scan, as far as known.
    pub rows: u64,
    /// Rows, at most.
    pub most: usize,
}

/// Of more rows than are asked for, so much more than their share is brought, so that chance does not leave
/// too few.
const SPARE: f64 = 1.1;
/// … and at least so many rows more.
const SPARE_ROWS: f64 = 1_000.0;

/// Rows of one partition.
#[derive(Default)]
struct PartitionSample {
    batches: Vec<RecordBatch>,
    hashes: Vec<u128>,
}

/// Brings the rows with the smallest hashes, at most as many as are asked for. `on_rows` hears of progress.
pub async fn gather_sample(
    scan: &Scan,
    plan: &SamplePlan,
    on_rows: Arc<dyn Fn(u64) + Send + Sync>,
) -> Result<RecordBatch> {
    let mut tasks = JoinSet::new();
    for stream in scan.streams()? {
        tasks.spawn(gather(stream, plan.clone(), Arc::clone(&on_rows)));
    }
    let mut total = PartitionSample::default();
    while let Some(part) = tasks.join_next().await {
        let part = part.map_err(|error| Error::internal("sampling", error.to_string()))??;
        total.batches.extend(part.batches);
        total.hashes.extend(part.hashes);
    }
    ordered(scan, total, plan.most)
}

impl SamplePlan {
    /// Hashes up to here are brought.
    fn limit(&self) -> u128 {
        let target_rows = self.most as f64 * SPARE + SPARE_ROWS;
        let share = target_rows / self.rows.max(1) as f64;
        if share >= 1.0 { u128::MAX } else { (share * u128::MAX as f64) as u128 }
    }
}

async fn gather(
    mut stream: BatchStream,
    plan: SamplePlan,
    on_rows: Arc<dyn Fn(u64) + Send + Sync>,
) -> Result<PartitionSample> {
    let mut part = PartitionSample::default();
    let limit = plan.limit();
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let hashes = hashes(&batch, &plan)?;
        let kept: Vec<u32> =
            (0..batch.num_rows() as u32).filter(|row| hashes[*row as usize] <= limit).collect();
        part.hashes.extend(kept.iter().map(|row| hashes[*row as usize]));
        part.batches.push(take(&batch, kept)?);
        on_rows(batch.num_rows() as u64);
    }
    Ok(part)
}

fn hashes(batch: &RecordBatch, plan: &SamplePlan) -> Result<Vec<u128>> {
    let keys = batch
        .project(&plan.key)
        .map_err(|error| Error::internal("sampling", "a key column is lost").source(error))?;
    key_hashes(&keys, plan.seed)
}

fn ordered(scan: &Scan, part: PartitionSample, most: usize) -> Result<RecordBatch> {
    let all = concat_batches(&scan.schema, &part.batches)
        .map_err(|error| Error::internal("sampling", "batches do not fit").source(error))?;
    let mut order: Vec<u32> = (0..part.hashes.len() as u32).collect();
    order.sort_unstable_by_key(|row| part.hashes[*row as usize]);
    order.truncate(most);
    take(&all, order)
}

fn take(batch: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch> {
    take_record_batch(batch, &UInt32Array::from(rows))
        .map_err(|error| Error::internal("sampling", "rows cannot be taken").source(error))
}
