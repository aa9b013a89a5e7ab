//! Whether what a job writes stays apart from what it reads. Paths are compared without symbolic links, before
//! anything long starts.

use std::fs;
use std::path::{Path, PathBuf};

use super::Inputs;
use crate::engine::Table;
use crate::error::{Error, Fault, Kind, Result};
use crate::job::{Job, PredictorKind};
use crate::output::{check_foreign, resolved};
use crate::predictor::model_files;
use crate::storage::{ObjectUrl, is_url};

/// Something that the job reads.
struct JobPath {
    /// The key that names it.
    key: &'static str,
    /// Where it is, without links.
    path: PathBuf,
    /// Whether all below it is the job's too.
    folder: bool,
}

/// Refuses an output folder that is, holds or lies in something that the job reads, one that holds anything but
/// results of a run, and a file for metrics that would take the place of something.
///
/// # Errors
/// All that is wrong.
pub(super) fn check_overlaps(job: &Job, inputs: &Inputs) -> Result<()> {
    let sources = sources(job, inputs)?;
    let output = resolved_path(&job.output.dir)?;
    let mut faults = Vec::new();
    let mut reported: Vec<&str> = Vec::new();
    for source in &sources {
        // A table of a thousand files in one folder is one mistake.
        if let Some(fault) = overlap(&output, source).filter(|_| !reported.contains(&source.key)) {
            reported.push(source.key);
            faults.push(fault);
        }
    }
    faults.extend(globs(job).filter_map(|(key, glob)| glob_overlap(&output, key, glob)));
    if let Some(path) = &job.output.metrics {
        faults.extend(metrics_fault(path, (&output, job.output.url.as_ref()), &sources)?);
    }
    faults.extend(job.output.url.iter().flat_map(|output| store_faults(job, output)));
    faults.extend(table_fault(job, &output, &sources)?);
    Error::from_faults(Kind::Spec, faults)?;
    check_foreign(&job.output.dir).map(|_| ())
}

/// The same for results in a store: tables, models and artefacts lie apart from them.
fn store_faults(job: &Job, output: &ObjectUrl) -> Vec<Fault> {
    let copies = job.copies.iter().filter(|(_, url)| *url != output.to_string());
    let copies = copies.map(|(_, url)| ("a file that the job reads", url));
    let read = tables(job).chain(copies);
    let overlap = |(key, text): (&'static str, &String)| {
        let fixed = text.split(['*', '?', '[']).next().unwrap_or_default();
        // Of a glob the folder counts before the first part that is a pattern.
        let fixed = if fixed == text { fixed } else { fixed.rsplit_once('/')?.0 };
        let source = ObjectUrl::parse(fixed).ok()?;
        let overlaps = source.is_below(output) || output.is_below(&source);
        let problem = format!("is `{output}`, which holds, or lies in, `{text}` ({key})");
        let fault = || Fault::new("output.dir", problem).hint("choose another `output.dir`");
        overlaps.then(fault)
    };
    read.filter_map(overlap).collect()
}

/// A table that takes results lies apart from their folder, and from all that is read: to read and write one table
/// would explain explanations.
fn table_fault(job: &Job, output: &Path, sources: &[JobPath]) -> Result<Option<Fault>> {
    const KEY: &str = "output.table.url";
    let Some(table) = &job.output.table else { return Ok(None) };
    if table.iceberg.is_some() {
        let read = tables(job).find(|(_, text)| **text == table.url);
        return Ok(read.map(|(key, text)| {
            Fault::new("output.table.table", format!("is `{text}` ({key}), expected another table"))
        }));
    }
    if let Ok(url) = ObjectUrl::parse(&table.url) {
        let read = tables(job).filter_map(|(key, text)| Some((key, ObjectUrl::parse(text).ok()?)));
        let written = job.output.url.iter().map(|dir| ("output.dir", dir.clone()));
        let mut others = read.chain(written);
        let other = others.find(|(_, other)| other.is_below(&url) || url.is_below(other));
        return Ok(other.map(|(key, other)| {
            let problem = format!("is `{url}`, which holds, or lies in, `{other}` ({key})");
            Fault::new(KEY, problem).hint(format!("choose another `{KEY}`"))
        }));
    }
    let path = resolved_path(Path::new(&table.url))?;
    let dir = JobPath { key: "output.dir", path: output.to_path_buf(), folder: true };
    let fault = sources.iter().chain([&dir]).find_map(|source| overlap(&path, source));
    Ok(fault.map(|fault| Fault {
        subject: KEY.to_string(),
        hint: Some(format!("choose another `{KEY}`")),
        ..fault
    }))
}

fn resolved_path(path: &Path) -> Result<PathBuf> {
    resolved(path).map_err(|error| {
        Error::spec(path.display().to_string(), format!("cannot be resolved: {error}"))
    })
}

/// Everything that the job reads.
fn sources(job: &Job, inputs: &Inputs) -> Result<Vec<JobPath>> {
    let mut found: Vec<(&'static str, PathBuf)> = tables(job)
        .filter(|(_, table)| Path::new(table).exists())
        .map(|(key, table)| (key, PathBuf::from(table)))
        .collect();
    let opened = [
        ("input.features", Some(&inputs.features)),
        ("input.scores.table", inputs.scores.as_ref()),
    ];
    for (key, table) in opened {
        let files = table.into_iter().flat_map(Table::source_files);
        let files = files.filter(|file| !is_url(&file.path.to_string_lossy()));
        found.extend(files.map(|file| (key, file.path.clone())));
    }
    found.push(("input.schema", job.input.schema.clone()));
    // That of a manifest has no file.
    if !job.file.as_os_str().is_empty() {
        found.push(("the job file", job.file.clone()));
    }
    found.extend(job.explain.generator.iter().map(|path| ("explain.generator", path.clone())));
    found.extend(job.train.from.iter().map(|path| ("train.from", path.clone())));
    let key = match &job.predictor.kind {
        PredictorKind::Onnx(_) => "predictor.model",
        PredictorKind::Subprocess(_) => "predictor.command",
    };
    found.extend(model_files(&job.predictor).into_iter().map(|path| (key, path)));
    let robust = job.robust.models.iter().flat_map(model_files);
    found.extend(robust.map(|path| ("robust.models", path)));
    let source = |(key, path): (&'static str, PathBuf)| -> Result<JobPath> {
        let path = resolved_path(&path)?;
        Ok(JobPath { key, folder: path.is_dir(), path })
    };
    found.into_iter().map(source).collect()
}

/// Paths, folders and globs of the tables, with the keys that name them.
fn tables(job: &Job) -> impl Iterator<Item = (&'static str, &String)> {
    let features = job.input.features.iter().map(|table| ("input.features", table));
    let scores = job.input.scores.iter().flat_map(|scores| &scores.table);
    features.chain(scores.map(|table| ("input.scores.table", table)))
}

fn globs(job: &Job) -> impl Iterator<Item = (&'static str, &String)> {
    tables(job).filter(|(_, table)| !is_url(table) && !Path::new(table).exists())
}

fn overlap(output: &Path, source: &JobPath) -> Option<Fault> {
    let JobPath { key, path, folder } = source;
    let how = match (output == path, path.starts_with(output), output.starts_with(path)) {
        (true, _, _) => "is the same as",
        (_, true, _) => "holds",
        (_, _, true) if *folder => "lies in",
        _ => return None,
    };
    Some(apart("output.dir", output, &format!("{how} `{}` ({key})", path.display())))
}

fn apart(subject: &str, path: &Path, how: &str) -> Fault {
    let problem = format!(
        "is `{}`, which {how}, expected a folder apart from what the job reads",
        path.display()
    );
    Fault::new(subject, problem).hint(format!("choose another `{subject}`"))
}

/// A glob must not find what is published: in its fixed folder only such names are free as it does not match.
fn glob_overlap(output: &Path, key: &'static str, glob: &str) -> Option<Fault> {
    let is_pattern = |part: &str| part.contains(['*', '?', '[']);
    let parts: Vec<&str> = glob.split('/').collect();
    let fixed = parts.iter().position(|part| is_pattern(part))?;
    let folder = resolved(Path::new(&format!("{}/", parts[..fixed].join("/")))).ok()?;
    let fault = |how: &str| Some(apart("output.dir", output, &format!("{how} `{glob}` ({key})")));
    if folder.starts_with(output) {
        return fault("holds");
    }
    let below = output.strip_prefix(&folder).ok()?;
    for (part, name) in parts[fixed..].iter().zip(below.iter()) {
        if part.contains("**") {
            break;
        }
        let pattern = glob::Pattern::new(part).ok()?;
        if !pattern.matches(&name.to_string_lossy()) {
            return None;
        }
    }
    fault("is found by")
}

fn metrics_fault(
    path: &Path,
    (output, dir): (&Path, Option<&ObjectUrl>),
    sources: &[JobPath],
) -> Result<Option<Fault>> {
    if let Ok(url) = ObjectUrl::parse(&path.to_string_lossy()) {
        let inside = dir.is_some_and(|dir| url.is_below(dir));
        let problem =
            format!("is `{url}`, which lies in `output.dir`, where only a run's own files stand");
        let fault = || Fault::new("output.metrics", problem).hint("name another object");
        return Ok(inside.then(fault));
    }
    let file = resolved_path(path)?;
    if let Some(source) =
        sources.iter().find(|of| file == of.path || (of.folder && file.starts_with(&of.path)))
    {
        let how = format!("is or lies in `{}` ({})", source.path.display(), source.key);
        return Ok(Some(apart("output.metrics", &file, &how)));
    }
    if file.starts_with(output) {
        let how = "lies in `output.dir`, where only a run's own files stand";
        return Ok(Some(apart("output.metrics", &file, how)));
    }
    let other = fs::symlink_metadata(&file).is_ok_and(|found| !found.is_file());
    Ok(other.then(|| {
        let problem =
            format!("is `{}`, which is no regular file and is not replaced", file.display());
        Fault::new("output.metrics", problem).hint("name a file, or leave the key out")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_and_what_they_could_find() {
        let found = |output: &str, glob: &str| {
            glob_overlap(Path::new(output), "input.features", glob).is_some()
        };
        for (output, glob, expected) in [
            ("/nowhere/out", "/nowhere/*.parquet", false),
            ("/nowhere/out.parquet", "/nowhere/*.parquet", true),
            ("/nowhere/out", "/nowhere/*/x.parquet", true),
            ("/nowhere/out", "/nowhere/**/x.parquet", true),
            ("/nowhere/out", "/nowhere/in*/x.parquet", false),
            ("/nowhere/in/out", "/nowhere/in/*.parquet", false),
            ("/nowhere/in/2026/out", "/nowhere/in/20*", true),
            ("/nowhere", "/nowhere/*.parquet", true),
            ("/nowhere/in", "/nowhere/in/day=*/x.parquet", true),
            ("/elsewhere", "/nowhere/*.parquet", false),
        ] {
            assert_eq!(found(output, glob), expected, "{output} {glob}");
        }
    }
}
