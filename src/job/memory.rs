//! How much memory a job will take, part by part, before anything long starts: rough, and rather too much
//! than too little of what grows with a number of the job.

use serde::Serialize;

use super::{AutoencoderKind, Job};
use crate::error::{Error, Result};

/// Bytes of a number that networks count in.
const NUMBER: u64 = 4;
/// Copies of a weight: itself, its gradient, and two means of the optimiser.
const WEIGHT_COPIES: u64 = 4;
/// Copies of an activation: itself, its gradient, and what operators hold in passing.
const ACTIVATION_COPIES: u64 = 3;
/// Times that an encoded row is held, at most: as it is, reconstructed, as a latent no wider than itself, and
/// side by side with these.
const ENCODED_TIMES: u64 = 4;
/// Bytes of a cell in plain memory, and in the table's own types, roughly.
const CELL: u64 = 8 + 16;
/// Bytes that the replay buffer takes, unless batches are so large that it must hold more …
const REPLAY_BYTES: u64 = 256 << 20;
/// … which is so many of them.
const REPLAY_BATCHES: u64 = 20;
/// Rows of a block that is explained at once.
const BLOCK_ROWS: u64 = 8_192;
/// Training rows among which counterfactuals are looked for.
const NEIGHBOUR_ROWS: u64 = 500_000;
/// Bytes of a number as it was, beside the standardised one.
const EXACT_NUMBER: u64 = 8;
/// Numbers of a row as a random encoder gives it.
const ENCODER_WIDTH: u64 = 5;
/// Parts of the engine's memory limit of which training rows may take one.
const MEMORY_PARTS: u64 = 2;

/// What is known of tables and model when memory is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSizes {
    /// Rows of the feature table.
    pub rows: u64,
    /// Features.
    pub features: u64,
    /// Numbers of an encoded row.
    pub width: u64,
    /// Classes of the model; 1 for a regression.
    pub classes: u64,
    /// Threads that explain at the same time.
    pub threads: u64,
}

/// What a job will take, the largest part first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryEstimate {
    /// A key of the job that decides how large a part is, and its bytes.
    pub parts: Vec<(&'static str, u64)>,
}

impl TableSizes {
    /// Bytes of a training row in all its forms.
    fn row_bytes(&self) -> u64 {
        (ENCODED_TIMES * NUMBER).saturating_mul(self.width).saturating_add(self.features * CELL)
    }

    /// Rows to train on, that the job and its memory limit allow.
    pub fn training_rows(&self, job: &Job) -> u64 {
        let fit = job.runtime.memory.0 / MEMORY_PARTS / self.row_bytes().max(1);
        let most = job.train.rows.max_rows.map_or(u64::MAX, |most| most as u64);
        most.min(fit).max(1).min(self.rows)
    }
}

impl MemoryEstimate {
    /// The estimate for a job with these sizes.
    pub fn new(job: &Job, sizes: &TableSizes) -> MemoryEstimate {
        let mut parts = vec![(
            "runtime.memory",
            job.runtime.memory.0.min(product(&[sizes.rows, sizes.features, CELL])),
        )];
        if job.explain.generator.is_none() {
            parts.extend(training(job, sizes));
        }
        if job.target.is_some() {
            parts.extend(explaining(job, sizes));
        }
        parts.retain(|(_, bytes)| *bytes > 0);
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        MemoryEstimate { parts }
    }

    /// All parts together.
    pub fn total(&self) -> u64 {
        self.parts.iter().fold(0, |total, (_, bytes)| total.saturating_add(*bytes))
    }

    /// Compares with what the machine has; unknown is enough.
    ///
    /// # Errors
    /// When it is too little, naming the largest part.
    pub fn check(&self, available: Option<u64>) -> Result<()> {
        let (total, Some(available)) = (self.total(), available) else { return Ok(()) };
        if total <= available {
            return Ok(());
        }
        let (key, bytes) = self.parts.first().copied().unwrap_or(("runtime.memory", 0));
        let problem = format!(
            "needs about {} of about {} that the job takes, and the machine has {} to give",
            shown(bytes),
            shown(total),
            shown(available)
        );
        Err(Error::resources(key, problem)
            .hint(format!("lower `{key}`, or give the job a machine with more memory")))
    }
}

/// Weights of layers that follow each other.
fn weights(widths: &[u64]) -> u64 {
    widths
        .windows(2)
        .map(|pair| product(&[pair[0].saturating_add(1), pair[1]]))
        .fold(0, u64::saturating_add)
}

fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |total, factor| total.saturating_mul(*factor))
}

fn training(job: &Job, sizes: &TableSizes) -> Vec<(&'static str, u64)> {
    let width = sizes.width;
    let latent = job.autoencoder.latent.map_or(width.min(128), |latent| latent as u64);
    let layers: Vec<u64> = match &job.autoencoder.hidden {
        Some(hidden) => hidden.iter().map(|width| *width as u64).collect(),
        None => vec![128],
    };
    let hidden = job.train.method.hidden as u64;
    let batch = job.train.method.batch.unwrap_or(256) as u64;
    let rows = sizes.training_rows(job);
    // Actor and critic see the latent, two decisions and the conditions.
    let seen = latent + product(&[2, sizes.classes]) + product(&[2, width]);
    let network = weights(&[seen, hidden, hidden, latent.max(sizes.classes)]);
    let replay = product(&[batch, REPLAY_BATCHES, NUMBER, seen]).max(REPLAY_BYTES);
    let mut parts = vec![
        ("train.max_rows", product(&[rows, sizes.row_bytes()])),
        ("train.hidden", product(&[2, network, NUMBER, WEIGHT_COPIES])),
        (
            "train.batch",
            replay.saturating_add(product(&[
                batch,
                4 * hidden + 4 * width + seen,
                NUMBER,
                ACTIVATION_COPIES,
            ])),
        ),
        ("predictor.classes", product(&[rows, sizes.classes, NUMBER])),
    ];
    if job.autoencoder.kind != AutoencoderKind::Never {
        let widths: Vec<u64> = [width].into_iter().chain(layers).chain([latent]).collect();
        let all: u64 = widths.iter().sum();
        parts.push(("autoencoder.hidden", product(&[2, weights(&widths), NUMBER, WEIGHT_COPIES])));
        let batch = job.autoencoder.batch as u64;
        parts.push(("autoencoder.batch", product(&[batch, 2, all, NUMBER, ACTIVATION_COPIES])));
    }
    parts
}

fn explaining(job: &Job, sizes: &TableSizes) -> Vec<(&'static str, u64)> {
    let mmd = &job.report.mmd;
    let rows = sizes.rows;
    let samples = job.explain.samples as u64;
    let compared = if mmd.rows == 0 { rows } else { mmd.rows.min(rows) };
    let view = product(&[mmd.encoders as u64, ENCODER_WIDTH.max(1)]);
    let block = rows.min(BLOCK_ROWS);
    let columns = 2 * sizes.features + 16;
    let written = (job.output.row_group_rows as u64).min(rows.saturating_mul(samples));
    vec![
        (
            "explain.samples",
            product(&[sizes.threads, block, samples, sizes.width * NUMBER + sizes.features * CELL]),
        ),
        (
            "explain.neighbours",
            product(&[rows.min(NEIGHBOUR_ROWS), sizes.features, 2 * NUMBER + EXACT_NUMBER]),
        ),
        (
            "report.mmd.rows",
            product(&[compared, 2, sizes.classes.min(compared.max(1)), sizes.width, NUMBER]),
        ),
        (
            "report.mmd.frequencies",
            product(&[view + 4 * mmd.encoders as u64, mmd.frequencies as u64, 8]),
        ),
        ("output.row_group_rows", product(&[written, columns, 8])),
    ]
}

/// Bytes as people read them.
fn shown(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}

/// Bytes that this machine can still give: what is free, or the control group's limit less what it uses.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let free = free_memory(&text)?;
    Some(free.min(group_memory().unwrap_or(u64::MAX)))
}

fn free_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// What the limits of the process's control group, and of those above it, leave.
fn group_memory() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let cgroup = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let root = std::path::Path::new("/sys/fs/cgroup");
    let mut folder = root.join(cgroup.trim_start_matches('/'));
    let mut least: Option<u64> = None;
    loop {
        let number = |name: &str| -> Option<u64> {
            std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
        };
        if let Some(limit) = number("memory.max") {
            let left = limit.saturating_sub(number("memory.current").unwrap_or(0));
            least = Some(least.map_or(left, |known| known.min(left)));
        }
        if folder == root || !folder.pop() {
            return least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_is_blamed() {
        let estimate =
            MemoryEstimate { parts: vec![("train.hidden", 3 << 30), ("train.batch", 1 << 30)] };
        assert!(estimate.check(Some(4 << 30)).is_ok());
        assert!(estimate.check(None).is_ok());
        let error = estimate.check(Some(2 << 30)).expect_err("too little").to_string();
        let expected = "train.hidden: needs about 3.0 GiB of about 4.0 GiB that the job takes, and the machine \
                        has 2.0 GiB to give";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn sizes_saturate() {
        assert_eq!(product(&[u64::MAX, 3]), u64::MAX);
        assert_eq!(weights(&[u64::MAX - 1, u64::MAX, 2]), u64::MAX);
        assert_eq!(weights(&[2, 3, 1]), 9 + 4);
        let estimate = MemoryEstimate { parts: vec![("a", u64::MAX), ("b", 1)] };
        assert_eq!(estimate.total(), u64::MAX);
    }

    #[test]
    fn free_memory_is_read_in_bytes() {
        assert_eq!(free_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(free_memory("nothing"), None);
        assert!(available_memory().is_none_or(|bytes| bytes > 0));
    }
}
