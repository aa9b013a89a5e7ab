//! What a killed training resumes from: networks, optimisers, replay buffer and curve, in one tensor file
//! and one JSON file that names it. The JSON file is renamed into place last, so that a checkpoint is the
//! old one or the new one, never half of each.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tch::Tensor;

use super::{AutoencoderFigures, Point};
use crate::error::{Error, Result};
use crate::nn::{read_tensors, tensor, write_tensors};
use crate::output::{cannot_write, write_synced};

const STATE_FILE: &str = "checkpoint.json";

/// What must be the same for a checkpoint to be resumed from, by name: a hash or a value each.
pub type Fingerprint = BTreeMap<String, String>;

/// The folder of a run's checkpoint.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
    fingerprint: Fingerprint,
}

/// What the end of a training is decided by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StoppingCounters {
    /// Evaluations since the last that was better.
    pub(super) since: usize,
    /// Evaluations in a row that were far below the best.
    pub(super) poor: usize,
    /// Times that it went back to the best.
    pub(super) rollbacks: u32,
    /// Whether it collapsed once more after that.
    pub(super) collapsed: bool,
}

/// What a checkpoint holds beside tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CheckpointState {
    pub(super) fingerprint: Fingerprint,
    /// The tensors' file.
    pub(super) tensors: String,
    pub(super) step: usize,
    /// Steps that the actor's and the critic's optimiser have taken.
    pub(super) adam_steps: [i64; 2],
    pub(super) replay_next: i64,
    #[serde(rename = "eased")]
    pub(super) sparsity_scale: f64,
    pub(super) rate_factor: f64,
    /// Sum and number of rewards since the last evaluation.
    pub(super) rewards: (f64, usize),
    pub(super) seconds: f64,
    pub(super) counts: StoppingCounters,
    /// Steps of the optimisers at the best evaluation.
    #[serde(rename = "good_steps")]
    pub(super) best_steps: Option<[i64; 2]>,
    pub(super) best_score: Option<f64>,
    pub(super) autoencoder: AutoencoderFigures,
    pub(super) curve: Vec<Point>,
}

/// A checkpoint that was read.
pub(super) struct Saved {
    pub(super) state: CheckpointState,
    tensors: Vec<(String, Tensor)>,
    path: PathBuf,
}

fn tensors_name(step: usize) -> String {
    format!("step-{step}.safetensors")
}

/// Whether there is a checkpoint.
pub(super) fn exists(checkpoints: Option<&Checkpoints>) -> bool {
    checkpoints.is_some_and(|checkpoints| checkpoints.folder.join(STATE_FILE).exists())
}

impl Saved {
    pub(super) fn tensor(&self, name: &str) -> Result<&Tensor> {
        tensor(&self.tensors, name, &self.path)
    }
}

impl Checkpoints {
    /// Checkpoints in this folder, which need not be there yet.
    pub fn new(folder: PathBuf, fingerprint: Fingerprint) -> Checkpoints {
        Checkpoints { folder, fingerprint }
    }

    pub(super) fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Replaces the checkpoint.
    pub(super) fn save(
        &self,
        mut state: CheckpointState,
        tensors: &[(&str, Tensor)],
    ) -> Result<()> {
        state.tensors = tensors_name(state.step);
        fs::create_dir_all(&self.folder).map_err(|error| cannot_write(&self.folder, error))?;
        let (new, slot) = (self.folder.join(".tensors"), self.folder.join(&state.tensors));
        // A run that fails in its first step writes the file again that it went on from.
        let written = write_tensors(&new, tensors)
            .and_then(|()| fs::rename(&new, &slot).map_err(|error| cannot_write(&slot, error)));
        // Half a file would take space that the generator itself may need.
        written.inspect_err(|_| drop(fs::remove_file(&new)))?;
        let json = serde_json::to_string(&state)
            .map_err(|error| Error::internal("checkpoint", "has no JSON").source(error))?;
        let (new, slot) = (self.folder.join(".new"), self.folder.join(STATE_FILE));
        write_synced(&new, json.as_bytes())?;
        fs::rename(&new, &slot).map_err(|error| cannot_write(&slot, error))?;
        self.remove_all_but(&state.tensors);
        Ok(())
    }

    fn remove_all_but(&self, retained: &str) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name != retained && name != STATE_FILE {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The checkpoint, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or belongs to another job, model or table.
    pub(super) fn load(&self) -> Result<Option<Saved>> {
        let path = self.folder.join(STATE_FILE);
        let shown = path.display().to_string();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Error::input(shown, format!("cannot be read: {error}"))
                    .hint("check its permissions, or train without `--resume`"));
            }
        };
        let state: CheckpointState = serde_json::from_str(&text).map_err(|error| {
            Error::input(&shown, format!("is not a checkpoint: {error}"))
                .hint("train without `--resume`")
        })?;
        let differing: Vec<&str> = self
            .fingerprint
            .iter()
            .filter(|(name, value)| state.fingerprint.get(*name) != Some(value))
            .map(|(name, _)| name.as_str())
            .collect();
        if !differing.is_empty() {
            let problem = format!("was made with a different {}", differing.join(", "));
            return Err(Error::input(shown, problem)
                .hint("train without `--resume`, or go back to what it was made with"));
        }
        // A name, never a path to elsewhere.
        let path = self.folder.join(tensors_name(state.step));
        let tensors =
            read_tensors(&path).map_err(|error| error.hint("train without `--resume`"))?;
        Ok(Some(Saved { tensors, path, state }))
    }

    /// Removes it.
    pub fn clear(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
