//! What a run works on, and the fingerprint that tells whether another works on the same.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt};
use rayon::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Inputs, ModelProvenance, seconds_since, versions};
use crate::artefact::WEIGHTS_FILE;
use crate::audit::nights::find_run;
use crate::engine::{SourceFile, Table, since_1970};
use crate::error::{Error, Kind, Result};
use crate::job::Job;
use crate::output::{InputFile, RunProvenance, TableVersion, hex, sha256_of, sha256_while};
use crate::predictor;
use crate::runtime::Runtime;
use crate::storage::{ObjectUrl, Store, Stores, is_url, wait};

/// Objects that are looked at at the same time.
const OBJECTS_AT_ONCE: usize = 16;
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
    let ModelProvenance { model, robust, schema } = ModelProvenance::read(job)?;
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
        robust,
        schema,
        generator,
        seed: runtime.streams().seed(),
        device: runtime.device_name(),
        previous: job
            .audit
            .previous
            .as_deref()
            .filter(|_| explains)
            .map(|folder| find_run(folder, &job.shown(folder)).map(|previous| previous.run))
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
pub(super) fn refuse_changed(files: &[InputFile], stamps: &[Stamp], stores: &Stores) -> Result<()> {
    refuse_changed_objects(files, stores)?;
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

/// The same for objects of a store. They were read only as they were found, but not up to the end.
fn refuse_changed_objects(files: &[InputFile], stores: &Stores) -> Result<()> {
    let mut objects = Vec::new();
    for file in files.iter().filter(|file| file.etag.is_some()) {
        let Ok(url) = ObjectUrl::parse(&file.path) else { continue };
        objects.push((stores.open(&url, Kind::Input)?, url, file.etag.clone()));
    }
    if objects.is_empty() {
        return Ok(());
    }
    let check = |(store, url, etag): (Store, ObjectUrl, Option<String>)| async move {
        let found = store.find(url.key()).await?;
        if found.is_some_and(|found| found.etag == etag) {
            return Ok(());
        }
        Err(Error::input(url.to_string(), "was changed while the run was using it")
            .hint("run again, without `--resume`, when nobody writes to it"))
    };
    let checks = futures::stream::iter(objects).map(check).buffer_unordered(OBJECTS_AT_ONCE);
    wait(async move { checks.try_collect::<()>().await })
}

/// The run that another is compared with, in words.
pub(super) const PREVIOUS: &str = "previous run";

/// In what two runs differ, in words.
pub(super) fn differences(old: &RunProvenance, new: &RunProvenance) -> Vec<&'static str> {
    [
        ("tables", old.inputs != new.inputs || old.versions != new.versions),
        ("model", old.model != new.model),
        ("models of `robust.models`", old.robust != new.robust),
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
