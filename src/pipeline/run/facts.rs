//! What a run works on, and the fingerprint that tells whether another works on the same.

use std::fs;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::{Inputs, ModelFacts, versions};
use super::Part;
use crate::engine::{Table, since_1970};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::nn::WEIGHTS_FILE;
use crate::output::{InputFile, RunFacts, hex, sha256_of};
use crate::runtime::Runtime;

/// Digits of a run's name.
const ID_DIGITS: usize = 16;

/// What a run works on.
pub(super) fn gather(
    job: &Job,
    part: Part,
    inputs: &Inputs,
    runtime: &Runtime,
) -> Result<RunFacts> {
    let ModelFacts { model, schema } = ModelFacts::read(job)?;
    let generator = match &job.explain.generator {
        None => String::new(),
        Some(folder) => {
            sha256_of(&folder.join(WEIGHTS_FILE)).map(|(_, hash)| hash).map_err(|error| {
                let shown = folder.join(WEIGHTS_FILE).display().to_string();
                Error::input(shown, format!("cannot be read: {error}"))
                    .hint("a generator is the folder `generator` of a published run")
            })?
        }
    };
    let mut files = input_files(&inputs.features);
    files.extend(inputs.scores.iter().flat_map(input_files));
    let mut facts = RunFacts {
        run_id: String::new(),
        fingerprint: String::new(),
        inputs: files,
        model,
        schema,
        generator,
        seed: runtime.streams().seed(),
        device: runtime.device_name(),
    };
    let as_json = serde_json::to_value(job).unwrap_or_default();
    let settings = json!({ "part": part.name(), "job": settings(as_json), "facts": &facts,
        "versions": versions()? });
    facts.fingerprint = hex(&Sha256::digest(settings.to_string()));
    facts.run_id = facts.fingerprint[..ID_DIGITS].to_string();
    Ok(facts)
}

/// A job, as JSON, without what does not change its tables; the device that is used is a fact of its own.
pub(super) fn settings(mut job: Value) -> Value {
    for place in [
        "/runtime/threads",
        "/runtime/device",
        "/input/batch_rows",
        "/input/max_reject_share",
        "/predictor/repeatable",
        "/output/overwrite",
        "/output/metrics",
        "/report/gates",
    ] {
        if let Some(setting) = job.pointer_mut(place) {
            *setting = Value::Null;
        }
    }
    job
}

fn input_files(table: &Table) -> Vec<InputFile> {
    let file = |file: &crate::engine::SourceFile| InputFile {
        path: file.path.display().to_string(),
        bytes: file.bytes,
        modified: file.modified,
        rows: file.rows,
    };
    table.source_files().iter().map(file).collect()
}

/// Refuses tables that were rewritten while they were read.
pub(super) fn refuse_changed(files: &[InputFile]) -> Result<()> {
    let changed = |file: &&InputFile| {
        let found = fs::metadata(&file.path).ok();
        let modified = |found: &fs::Metadata| found.modified().ok().and_then(since_1970);
        found.map(|found| (found.len(), modified(&found).unwrap_or(0)))
            != Some((file.bytes, file.modified))
    };
    match files.iter().find(changed) {
        None => Ok(()),
        Some(file) => Err(Error::input(&file.path, "was changed while the run was reading it")
            .hint("run again, without `--resume`, when nobody writes to the table")),
    }
}

/// In what two runs differ, in words.
pub(super) fn differences(old: &RunFacts, new: &RunFacts) -> Vec<&'static str> {
    [
        ("tables", old.inputs != new.inputs),
        ("model", old.model != new.model),
        ("feature schema", old.schema != new.schema),
        ("generator", old.generator != new.generator),
        ("seed", old.seed != new.seed),
        ("device", old.device != new.device),
    ]
    .into_iter()
    .filter_map(|(what, differs)| differs.then_some(what))
    .collect()
}
