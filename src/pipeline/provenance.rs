//! What a run works on, and the fingerprint that tells whether another works on the same.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use rayon::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Inputs, ModelProvenance, seconds_since, versions};
use crate::artefact::WEIGHTS_FILE;
use crate::audit::nights::find_run;
use crate::engine::{SourceFile, Table, since_1970};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::output::{
    InputFile, PreviousRun, RunProvenance, TableVersion, hex, sha256_of, sha256_while,
};
use crate::predictor;
use crate::runtime::Runtime;
use crate::storage::is_url;

/// Digits of a run's name.
const ID_DIGITS: usize = 16;

/// A file as it was when its content was hashed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    bytes: u64,
    modified: u64,
    /// When its content or anything else about it was changed: nobody can set this one.
    changed: (i64, i64),
    inode: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let found = fs::metadata(path).ok()?;
        Some(Stamp {
            bytes: found.len(),
            modified: found.modified().ok().and_then(since_1970).unwrap_or(0),
            changed: (found.ctime(), found.ctime_nsec()),
            inode: found.ino(),
        })
    }
}

/// What a run works on, and its files' stamps in the order of the inputs.
pub(super) fn gather(
    job: &Job,
    command: &str,
    inputs: &Inputs,
    runtime: &Runtime,
) -> Result<(RunProvenance, Vec<Stamp>)> {
    let ModelProvenance { model, schema } = ModelProvenance::read(job)?;
    let explains = command == "run" || command == "explain";
    let generator = match &job.explain.generator {
        Some(folder) if explains => {
            sha256_of(&folder.join(WEIGHTS_FILE)).map(|(_, hash)| hash).map_err(|error| {
                let shown = folder.join(WEIGHTS_FILE).display().to_string();
                Error::input(shown, format!("cannot be read: {error}"))
                    .hint("a generator is the folder `generator` of a published run")
            })?
        }
        _ => String::new(),
    };
    let (files, stamps) = input_files(inputs, runtime)?;
    let mut provenance = RunProvenance {
        run_id: String::new(),
        fingerprint: String::new(),
        inputs: files,
        versions: versions_of(inputs),
        model,
        schema,
        generator,
        seed: runtime.streams().seed(),
        device: runtime.device_name(),
        previous: job
            .audit
            .previous
            .as_deref()
            .filter(|_| explains)
            .map(previous_run)
            .transpose()?,
    };
    let as_json = job.as_json();
    let retrained = job.report.retrained.iter().map(predictor::fingerprint);
    let retrained: Vec<String> = retrained.collect::<Result<_>>()?;
    let settings = json!({ "part": command, "job": settings(as_json), "facts": &provenance,
        "retrained": retrained, "versions": versions()? });
    provenance.fingerprint = hex(&Sha256::digest(settings.to_string()));
    provenance.run_id = provenance.fingerprint[..ID_DIGITS].to_string();
    Ok((provenance, stamps))
}

/// The versions of the Delta tables among the inputs.
fn versions_of(inputs: &Inputs) -> Vec<TableVersion> {
    let tables = [Some(&inputs.features), inputs.scores.as_ref()];
    let version = |table: &Table| {
        let (name, shown) = (table.name.clone(), table.shown.clone());
        Some(TableVersion { name, table: shown, version: table.version? })
    };
    tables.into_iter().flatten().filter_map(version).collect()
}

/// The job that reads the versions which an earlier run has read, whatever was committed since.
pub(super) fn pinned(job: &Job, read: &RunProvenance) -> Job {
    let version = |name: &str, table: Option<&String>| {
        let same = |found: &&TableVersion| found.name == name && Some(&found.table) == table;
        read.versions.iter().find(same).map(|found| found.version)
    };
    let mut job = job.clone();
    if let Some(at) = &mut job.input.features_at {
        at.pinned = version("features", job.input.features.first());
    }
    if let Some(scores) = &mut job.input.scores
        && let Some(at) = &mut scores.table_at
    {
        at.pinned = version("scores", scores.table.first());
    }
    job
}

/// The run that the job's is compared with.
fn previous_run(folder: &Path) -> Result<PreviousRun> {
    find_run(folder).map(|previous| previous.run)
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
        "/output/keep",
        "/output/metrics",
        "/report/gates",
    ] {
        if let Some(setting) = job.pointer_mut(place) {
            *setting = Value::Null;
        }
    }
    job
}

/// The files of all tables, with the hashes of their contents: all files at once, each in one stream.
fn input_files(inputs: &Inputs, runtime: &Runtime) -> Result<(Vec<InputFile>, Vec<Stamp>)> {
    let began = Instant::now();
    let tables = [Some(&inputs.features), inputs.scores.as_ref()];
    let files: Vec<&SourceFile> =
        tables.into_iter().flatten().flat_map(Table::source_files).collect();
    let hashed: Vec<(InputFile, Stamp)> =
        files.into_par_iter().map(|file| input_file(file, runtime)).collect::<Result<_>>()?;
    let bytes: u64 = hashed.iter().map(|(file, _)| file.bytes).sum();
    tracing::info!(bytes, seconds = seconds_since(began), "hashed the contents of the tables");
    Ok(hashed.into_iter().unzip())
}

fn input_file(file: &SourceFile, runtime: &Runtime) -> Result<(InputFile, Stamp)> {
    let shown = file.path.display().to_string();
    if is_url(&shown) {
        // An ETag tells whether the content is the same, and is asked for with everything that is read.
        let SourceFile { bytes, modified, rows, etag, .. } = file.clone();
        let sha256 = String::new();
        return Ok((
            InputFile { path: shown, bytes, modified, rows, sha256, etag },
            Stamp::default(),
        ));
    }
    let stamp = Stamp::of(&file.path);
    let (bytes, sha256) = sha256_while(&file.path, &|| runtime.check_signals())?
        .map_err(|error| Error::input(&shown, format!("cannot be read: {error}")))?;
    // What was opened is what is hashed.
    let same = |stamp: &Stamp| (stamp.bytes, stamp.modified) == (file.bytes, file.modified);
    let stamp = stamp.filter(same).filter(|_| bytes == file.bytes);
    let stamp = stamp.ok_or_else(|| changed(&shown))?;
    let (modified, rows) = (file.modified, file.rows);
    Ok((InputFile { path: shown, bytes, modified, rows, sha256, etag: None }, stamp))
}

fn changed(shown: &str) -> Error {
    Error::input(shown, "was changed while the run was reading it")
        .hint("run again, without `--resume`, when nobody writes to the table")
}

/// Refuses tables that were rewritten while they were read. Where only a file's metadata was touched, or the times
/// were set back, the content is hashed again.
pub(super) fn refuse_changed(files: &[InputFile], stamps: &[Stamp]) -> Result<()> {
    // Objects of a store were read only as they were found.
    let files = files.par_iter().zip(stamps).filter(|(file, _)| !is_url(&file.path));
    files.into_par_iter().try_for_each(|(file, stamp)| {
        let path = Path::new(&file.path);
        let now = Stamp::of(path).ok_or_else(|| changed(&file.path))?;
        if now == *stamp {
            return Ok(());
        }
        let same_times = (now.bytes, now.modified) == (stamp.bytes, stamp.modified);
        let same = same_times && sha256_of(path).is_ok_and(|(_, sha256)| sha256 == file.sha256);
        if same { Ok(()) } else { Err(changed(&file.path)) }
    })
}

/// The run that another is compared with, in words.
pub(super) const PREVIOUS: &str = "previous run";

/// In what two runs differ, in words.
pub(super) fn differences(old: &RunProvenance, new: &RunProvenance) -> Vec<&'static str> {
    [
        ("tables", old.inputs != new.inputs || old.versions != new.versions),
        ("model", old.model != new.model),
        ("feature schema", old.schema != new.schema),
        ("generator", old.generator != new.generator),
        ("seed", old.seed != new.seed),
        ("device", old.device != new.device),
        (PREVIOUS, old.previous != new.previous),
    ]
    .into_iter()
    .filter_map(|(what, differs)| differs.then_some(what))
    .collect()
}
