//! Files of a job that are named by URLs, fetched before anything else is done: schema, models, generator. Tables are
//! not: of those only the ranges that are needed are read.

use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::job::{Job, PredictorJob, PredictorKind};
use crate::output::is_visible;
use crate::predictor::inspect_onnx;
use crate::storage::{Cache, ObjectUrl, Store, Stores, is_url, wait};

/// Fetches what a job names by URLs into the cache, and gives the job with the places of the copies.
///
/// # Errors
/// When something is not there, or cannot be read or kept.
pub fn fetch(mut job: Job) -> Result<Job> {
    let fetcher = Fetcher { stores: job.input.stores.clone() };
    let mut copies = Vec::new();
    let mut take = |path: &mut PathBuf, what: What| -> Result<()> {
        let text = path.to_string_lossy().into_owned();
        if is_url(&text) {
            *path = fetcher.fetch(&text, what)?;
            copies.push((path.clone(), text));
        }
        Ok(())
    };
    take(&mut job.input.schema, What::File)?;
    for model in [&mut job.predictor]
        .into_iter()
        .chain(&mut job.robust.models)
        .chain(&mut job.report.retrained)
    {
        if let Some(path) = model_of(model) {
            take(path, What::Model)?;
        }
    }
    for folder in [&mut job.explain.generator, &mut job.train.from].into_iter().flatten() {
        take(folder, What::Folder)?;
    }
    if let Some(folder) = &mut job.audit.previous {
        take(folder, What::Run)?;
    }
    job.copies.extend(copies);
    Ok(job)
}

/// How much belongs to a URL.
#[derive(Debug, Clone, Copy)]
enum What {
    File,
    /// A file, and those that it loads beside itself.
    Model,
    Folder,
    /// What readers see of a published run.
    Run,
}

/// The folder of a published run, which is fetched where it is in a store.
///
/// # Errors
/// When it is not there, or cannot be read or kept.
pub(super) fn fetch_run(folder: &Path, stores: &Stores) -> Result<PathBuf> {
    let text = folder.to_string_lossy();
    match is_url(&text) {
        true => Fetcher { stores: stores.clone() }.fetch(&text, What::Run),
        false => Ok(folder.to_path_buf()),
    }
}

/// Looks at a run as its store has it now, whatever was fetched before.
///
/// # Errors
/// As for [`fetch_run`], and what is found.
pub(super) fn fetched_once<T>(url: &ObjectUrl, look: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let (store, cache) = (Stores::default().open(url, Kind::Input)?, Cache::apart()?);
    let (from, into) = (url.clone(), cache.clone());
    let fetched = wait(async move { into.fetch_folder(&store, &from, is_visible).await });
    let found = fetched.and_then(|folder| look(&folder));
    cache.remove();
    found
}

struct Fetcher {
    stores: Stores,
}

impl Fetcher {
    fn fetch(&self, text: &str, what: What) -> Result<PathBuf> {
        let url = ObjectUrl::parse(text)
            .map_err(|problem| Error::spec(text, format!("is a URL {problem}")))?;
        let (store, cache) = (self.stores.open(&url, Kind::Input)?, Cache::open()?);
        wait(async move {
            match what {
                What::File => cache.fetch_object(&store, &url).await,
                What::Folder => cache.fetch_folder(&store, &url, |_| true).await,
                What::Run => cache.fetch_folder(&store, &url, is_visible).await,
                What::Model => model(&cache, &store, &url).await,
            }
        })
    }
}

/// A model, in a folder with the files that it names.
async fn model(cache: &Cache, store: &Store, url: &ObjectUrl) -> Result<PathBuf> {
    let path = cache.fetch_object(store, url).await?;
    let beside = external(&path);
    if beside.is_empty() {
        return Ok(path);
    }
    let root = url.key().strip_suffix(url.name()).unwrap_or_default();
    let mut objects = Vec::new();
    for name in [url.name().to_string()].into_iter().chain(beside) {
        let key = format!("{root}{name}");
        // One that is missing is told when the model is opened, with the tensor that needs it.
        objects.extend(store.find(&key).await?);
    }
    Ok(cache.fetch(store, root, &objects).await?.join(url.name()))
}

/// Files that a model loads beside itself, as far as they lie in its folder; what is no model is told later.
fn external(path: &Path) -> Vec<String> {
    let file = std::fs::read(path).ok().and_then(|bytes| inspect_onnx(&bytes).ok());
    let plain = |name: &String| crate::output::is_inside(name);
    file.map_or(Vec::new(), |file| file.external.into_iter().filter(plain).collect())
}

fn model_of(job: &mut PredictorJob) -> Option<&mut PathBuf> {
    match &mut job.kind {
        PredictorKind::Onnx(onnx) => Some(&mut onnx.model),
        PredictorKind::Subprocess(_) => None,
    }
}
