//! Where a generator comes from, and what a checkpoint must have in common with the run that resumes
//! from it.

use std::fs;

use serde_json::json;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::Xxh3;

use super::super::versions;
use super::Fixed;
use crate::artefact::{Origin, WEIGHTS_FILE};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::output::{hex, sha256_of};
use crate::predictor::Outcome;
use crate::runtime::Runtime;
use crate::train::{Fingerprint, TrainingRows};

/// Rows hashed at a time.
const HASHED_ROWS: usize = 4096;

pub(super) fn of(fixed: &Fixed, sample: &TrainingRows, runtime: &Runtime) -> Result<Origin> {
    Ok(Origin {
        model: fixed.model.clone(),
        training_rows: rows(fixed, sample),
        weights: String::new(),
        reference: String::new(),
        neighbours: String::new(),
        seed: runtime.streams().seed(),
        versions: versions()?,
    })
}

/// Hash of the encoded rows and of the model's decisions about them.
fn rows(fixed: &Fixed, sample: &TrainingRows) -> String {
    let mut hash = Xxh3::new();
    for start in (0..sample.rows.len).step_by(HASHED_ROWS) {
        let end = sample.rows.len.min(start + HASHED_ROWS);
        let dense = fixed.encoder.encode_rows(&sample.rows.slice(start..end));
        dense.values.iter().for_each(|value| hash.update(&value.to_le_bytes()));
    }
    match &sample.scores.outcome {
        Outcome::Classes { labels, .. } => {
            labels.iter().for_each(|label| hash.update(&label.to_le_bytes()));
        }
        Outcome::Values(values) => {
            values.iter().for_each(|value| hash.update(&value.to_le_bytes()));
        }
    }
    format!("{:032x}", hash.digest128())
}

/// What must not change between a checkpoint and the run that resumes from it.
pub(super) fn fingerprint(
    job: &Job,
    origin: &Origin,
    sample: &TrainingRows,
) -> Result<Fingerprint> {
    let settings = json!({
        "target": job.target,
        "autoencoder": job.autoencoder,
        "method": job.train.method,
        "max_steps": job.train.limits.max_steps,
        "validate_every": job.train.limits.validate_every,
        "validation_rows": job.train.rows.validation_rows,
    });
    let from = match &job.train.from {
        None => String::new(),
        Some(folder) => {
            let path = folder.join(WEIGHTS_FILE);
            let unreadable = |error| {
                Error::input(path.display().to_string(), format!("cannot be read: {error}"))
            };
            sha256_of(&path).map(|(_, hash)| hash).map_err(unreadable)?
        }
    };
    let schema = fs::read(&job.input.schema).map_err(|error| {
        Error::input(job.input.schema.display().to_string(), format!("cannot be read: {error}"))
    })?;
    Ok(Fingerprint::from([
        ("model".to_string(), origin.model.clone()),
        ("training table".to_string(), origin.training_rows.clone()),
        ("constraint columns' content".to_string(), format!("{:016x}", sample.bounds.hash())),
        ("generator to start from".to_string(), from),
        ("program".to_string(), origin.versions.to_string()),
        ("seed".to_string(), origin.seed.to_string()),
        ("feature schema".to_string(), hex(&Sha256::digest(&schema))),
        ("setting of `[target]`, `[autoencoder]` or `[train]`".to_string(), settings.to_string()),
    ]))
}
