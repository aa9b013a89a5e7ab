//! What a run puts together on this machine, kept in the store of its results as well: every finished file, and a
//! journal of small create-only objects. A killed run is resumed from there, on any machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::commit::{Commit, HIDDEN, Placed, Prefix};
use super::manifest::{Manifest, RunProvenance};
use super::paths::is_inside;
use super::shard::{SHARDS, Shard};
use super::tables::MANIFEST_FILE;
use super::verify::{hex, sha256_of};
use crate::error::{Error, Kind, Result};
use crate::job::OutputJob;
use crate::storage::{Created, ObjectUrl, Version, wait};

/// Files on their way to the store, or from it, at the same time.
const TRANSFERS: usize = 4;
/// Entries of a journal that are read at the same time.
const ENTRIES: usize = 16;

/// A run's results in a store, while they are put together.
#[derive(Debug)]
pub struct Mirror {
    prefix: Prefix,
    run_id: String,
    fingerprint: String,
    /// Where its attempts are, below the hidden folder: empty, or the folder of a shard with a slash behind it.
    base: String,
    /// The commit that this run would take the place of.
    replaced: Option<Version>,
    /// Tells this process's files from those of others that work on the same attempt.
    nonce: String,
    attempt: Mutex<RunAttempt>,
}

/// An attempt at a run: its folder, and what is in it.
#[derive(Debug, Default)]
struct RunAttempt {
    name: String,
    /// Number of the journal's next entry.
    next: usize,
    /// By their names in the results.
    placed: BTreeMap<String, Placed>,
}

/// An entry of the journal.
#[derive(Debug, Serialize, Deserialize)]
struct MirrorRecord {
    nonce: String,
    /// A line of the journal as it is kept on this machine.
    line: Value,
    files: Vec<Placed>,
}

/// What was found where results are to appear.
pub enum Opened {
    /// The very same results, complete.
    Published(Box<Manifest>),
    /// Room for them.
    Ready(Arc<Mirror>),
}

impl Mirror {
    /// Looks at the place of results; carries out what an earlier run has decided but not finished. None if results
    /// are to appear on this machine. A run that is resumed may have published just before it was killed.
    ///
    /// # Errors
    /// When there is anything that may not be replaced, or the store cannot be used.
    pub fn open(output: &OutputJob, run: &RunProvenance, resume: bool) -> Result<Option<Opened>> {
        let Some(dir) = output.url.clone() else { return Ok(None) };
        let (store, overwrite) = (output.stores.open(&dir, Kind::Output)?, output.overwrite);
        let (run_id, fingerprint) = (run.run_id.clone(), run.fingerprint.clone());
        wait(async move {
            let prefix = Prefix { store, dir };
            let commit = prefix.commit().await?;
            if let Some((commit, _)) = &commit {
                prefix.roll_forward(commit).await?;
            }
            let manifest = prefix.manifest().await?;
            prefix.refuse_foreign(manifest.as_ref()).await?;
            if let Some(manifest) = manifest {
                let found = manifest.run.as_ref().map(|run| run.fingerprint.as_str());
                if found == Some(&fingerprint) && (resume || !overwrite) {
                    return Ok(Some(Opened::Published(Box::new(manifest))));
                }
                if !overwrite {
                    let problem = "already holds the results of a run";
                    return Err(Error::output(prefix.dir.to_string(), problem).hint(
                        "choose another `output.dir`, or set `overwrite = true` in [output]",
                    ));
                }
            }
            let replaced = commit.map(|(_, version)| version);
            let (nonce, attempt) = begun(&run_id, "");
            let base = String::new();
            let mirror = Mirror { prefix, run_id, fingerprint, base, replaced, nonce, attempt };
            Ok(Some(Opened::Ready(Arc::new(mirror))))
        })
    }

    /// What a run worked on that has begun to put results together there and has not published them: the first line of
    /// the journal that came farthest. None if there is none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn unfinished(output: &OutputJob) -> Result<Option<Value>> {
        let Some(dir) = output.url.clone() else { return Ok(None) };
        let store = output.stores.open(&dir, Kind::Output)?;
        wait(async move {
            let prefix = Prefix { store, dir };
            let Some(name) = prefix.attempt("", |_| true).await? else { return Ok(None) };
            let key = prefix.key(&format!("{HIDDEN}/{name}/journal/{:08}.json", 0));
            let content = prefix.store.read(&key).await?;
            let entry = content
                .and_then(|(content, _)| serde_json::from_slice::<MirrorRecord>(&content).ok());
            Ok(entry.map(|entry| entry.line))
        })
    }

    /// Tries whether a store keeps the one promise that publishing stands on: that of two writes of a name that must
    /// not exist one is refused. Leaves nothing.
    ///
    /// # Errors
    /// When it does not, or cannot be written.
    pub fn probe(output: &OutputJob) -> Result<()> {
        let Some(dir) = output.url.clone() else { return Ok(()) };
        let store = output.stores.open(&dir, Kind::Output)?;
        wait(async move {
            let name = format!("{HIDDEN}/probe-{:016x}", rand::random::<u64>());
            let key = dir.join(&name).key().to_string();
            store.create(&key, b"first".to_vec()).await?;
            let second = store.create(&key, b"second".to_vec()).await;
            store.delete(&[key]).await?;
            match second? {
                Created::Taken(_) => Ok(()),
                Created::Written => {
                    let problem = "the store writes over objects although it is told not to";
                    Err(Error::output(dir.to_string(), problem)
                        .hint("results need a store with conditional writes (`If-None-Match`)"))
                }
            }
        })
    }

    /// What a shard of the run keeps in the store.
    pub fn for_shard(&self, shard: Shard) -> Mirror {
        let base = format!("{SHARDS}/{}/", shard.name());
        let (nonce, attempt) = begun(&self.run_id, &base);
        Mirror {
            prefix: self.prefix.clone(),
            run_id: self.run_id.clone(),
            fingerprint: self.fingerprint.clone(),
            base,
            replaced: self.replaced.clone(),
            nonce,
            attempt,
        }
    }

    /// The shards that have begun, in order.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn shards(self: &Arc<Self>) -> Result<Vec<Shard>> {
        let mirror = Arc::clone(self);
        wait(async move {
            let folder = mirror.prefix.key(&format!("{HIDDEN}/{SHARDS}"));
            let names = mirror.prefix.store.folders(&folder).await?;
            let mut shards: Vec<Shard> =
                names.iter().filter_map(|name| Shard::named(name)).collect();
            shards.sort();
            Ok(shards)
        })
    }

    /// Takes the files that a shard has put into the store: they are not uploaded again.
    pub fn take(&self, shard: &Mirror) {
        let placed = shard.attempt.lock().placed.clone();
        self.attempt.lock().placed.extend(placed);
    }

    /// Removes what shards of a published run have left in the store.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn clear_shards(output: &OutputJob) -> Result<()> {
        let Some(dir) = output.url.clone() else { return Ok(()) };
        let store = output.stores.open(&dir, Kind::Output)?;
        wait(async move { Prefix { store, dir }.clear(SHARDS).await })
    }

    /// Where the results are to appear.
    pub fn url(&self) -> &ObjectUrl {
        &self.prefix.dir
    }

    fn inside(&self, name: &str) -> String {
        format!("{HIDDEN}/{}/{name}", self.attempt.lock().name)
    }

    /// Adds a line to the journal, for files that were uploaded.
    ///
    /// # Errors
    /// When it cannot be written, or another process writes the same journal.
    pub(super) fn append(self: &Arc<Self>, line: &[u8], files: &[String]) -> Result<()> {
        let broken = |error| Error::internal("journal", "has no JSON").source(error);
        let line = serde_json::from_slice(line).map_err(broken)?;
        let (key, files) = {
            let attempt = self.attempt.lock();
            let name = format!("{HIDDEN}/{}/journal/{:08}.json", attempt.name, attempt.next);
            let files = files.iter().filter_map(|name| attempt.placed.get(name).cloned());
            (self.prefix.key(&name), files.collect())
        };
        let entry = MirrorRecord { nonce: self.nonce.clone(), line, files };
        let content = serde_json::to_vec(&entry).map_err(broken)?;
        let mirror = Arc::clone(self);
        let created = wait(async move { mirror.prefix.store.create(&key, content).await })?;
        if let Created::Taken(_) = created {
            return Err(Error::output(self.url().to_string(), "is being written by another run")
                .hint("wait for it to end, or choose another `output.dir`"));
        }
        self.attempt.lock().next += 1;
        Ok(())
    }

    /// Uploads files of a folder and reads them back.
    ///
    /// # Errors
    /// When one does not arrive as it is.
    pub async fn upload(&self, folder: &Path, files: Vec<(String, u64, String)>) -> Result<()> {
        let uploads = files.into_iter().map(|file| self.upload_one(folder, file));
        futures::stream::iter(uploads).buffer_unordered(TRANSFERS).try_collect().await
    }

    async fn upload_one(&self, folder: &Path, file: (String, u64, String)) -> Result<()> {
        let (name, bytes, sha256) = file;
        let same = |placed: &Placed| (placed.bytes, &placed.sha256) == (bytes, &sha256);
        if self.attempt.lock().placed.get(&name).is_some_and(same) {
            return Ok(());
        }
        let from = self.inside(&format!("files/{}/{name}", self.nonce));
        let key = self.prefix.key(&from);
        let store = &self.prefix.store;
        store.upload(&key, &folder.join(&name)).await?;
        let found = store.find(&key).await?.ok_or_else(|| {
            Error::output(store.url(&key).to_string(), "is not there after it was written")
        })?;
        let hash = hex(&store.copy_to(&found, &mut std::io::sink()).await?);
        if (found.bytes, &hash) != (bytes, &sha256) {
            let problem = format!(
                "has {} bytes with SHA-256 {hash} after it was written, expected {bytes} with {sha256}",
                found.bytes
            );
            return Err(Error::output(store.url(&key).to_string(), problem));
        }
        let placed = Placed { path: name.clone(), from, bytes, sha256 };
        self.attempt.lock().placed.insert(name, placed);
        Ok(())
    }

    /// Uploads what of a finished run is not there yet, its manifest last, and gives the whole as a commit.
    fn complete(self: &Arc<Self>, folder: &Path) -> Result<Commit> {
        let manifest = Manifest::read(folder)?;
        let mut files: Vec<(String, u64, String)> = manifest
            .files()
            .map(|(path, bytes, sha256)| (path.to_string(), bytes, sha256.to_string()))
            .collect();
        let path = folder.join(MANIFEST_FILE);
        let (bytes, sha256) = sha256_of(&path).map_err(|error| {
            Error::output(path.display().to_string(), format!("cannot be read back: {error}"))
        })?;
        files.push((MANIFEST_FILE.to_string(), bytes, sha256));
        let names: Vec<String> = files.iter().map(|(name, _, _)| name.clone()).collect();
        let (mirror, folder) = (Arc::clone(self), folder.to_path_buf());
        wait(async move { mirror.upload(&folder, files).await })?;
        let attempt = self.attempt.lock();
        let placed = names.iter().filter_map(|name| attempt.placed.get(name).cloned()).collect();
        Ok(Commit::new((&self.run_id, &self.fingerprint), &attempt.name, placed))
    }

    /// Publishes the run in a folder.
    pub(super) fn publish(self: &Arc<Self>, folder: &Path) -> Result<()> {
        let (commit, mirror) = (self.complete(folder)?, Arc::clone(self));
        wait(async move {
            mirror.prefix.decide(&commit, mirror.replaced.clone()).await?;
            mirror.prefix.roll_forward(&commit).await
        })
    }

    /// Shows a run that may not be published, apart from what readers read.
    pub(super) fn set_aside(self: &Arc<Self>, folder: &Path) -> Result<ObjectUrl> {
        let (commit, mirror) = (self.complete(folder)?, Arc::clone(self));
        wait(async move { mirror.prefix.set_aside(&commit).await })
    }

    /// Brings an earlier attempt to this machine, to be resumed: its journal, and the files of its entries. Without
    /// one, a new attempt begins. Gives the lines of the journal.
    pub(super) fn restore(self: &Arc<Self>, folder: &Path) -> Result<Vec<String>> {
        let (mirror, folder) = (Arc::clone(self), folder.to_path_buf());
        wait(async move {
            let Some(name) = mirror.latest().await? else { return Ok(Vec::new()) };
            let entries = mirror.entries(&name).await?;
            // A journal of another run is not resumed; its first line will tell why.
            let ours = entries.first().is_some_and(|entry| {
                entry.line["fingerprint"].as_str() == Some(mirror.fingerprint.as_str())
            });
            let lines = entries.iter().map(|entry| entry.line.to_string()).collect();
            let files: Vec<Placed> = entries.into_iter().flat_map(|entry| entry.files).collect();
            if !ours {
                return Ok(lines);
            }
            tracing::info!(attempt = name, files = files.len(), "resuming from {}", mirror.url());
            {
                let mut attempt = mirror.attempt.lock();
                attempt.next = lines.len();
                attempt.name = name;
                attempt.placed =
                    files.iter().map(|file| (file.path.clone(), file.clone())).collect();
            }
            let fetched = files.into_iter().map(|file| mirror.fetch(&folder, file));
            futures::stream::iter(fetched).buffer_unordered(TRANSFERS).try_collect::<()>().await?;
            Ok(lines)
        })
    }

    /// The attempt at this run that came farthest, or one at another run if there is none.
    async fn latest(&self) -> Result<Option<String>> {
        let (own, base) = (format!("{}-", self.run_id), self.base.as_str());
        let found = match self.prefix.attempt(base, |name| name.starts_with(&own)).await? {
            Some(name) => Some(name),
            None => self.prefix.attempt(base, |name| !name.starts_with(&own)).await?,
        };
        Ok(found.map(|name| format!("{base}{name}")))
    }

    /// The entries of an attempt's journal, up to the first that is missing or broken.
    async fn entries(&self, name: &str) -> Result<Vec<MirrorRecord>> {
        let key =
            |number: usize| self.prefix.key(&format!("{HIDDEN}/{name}/journal/{number:08}.json"));
        let read = |number: usize| {
            let key = key(number);
            async move { self.prefix.store.read(&key).await }
        };
        let mut found = futures::stream::iter(0..).map(read).buffered(ENTRIES);
        let mut entries = Vec::new();
        while let Some((content, _)) = found.try_next().await?.flatten() {
            let Ok(entry) = serde_json::from_slice::<MirrorRecord>(&content) else { break };
            if !entry.files.iter().all(|file| is_inside(&file.path) && is_inside(&file.from)) {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Brings a file to this machine, unless it is there.
    async fn fetch(&self, folder: &Path, file: Placed) -> Result<()> {
        let path = folder.join(&file.path);
        let whole = |(bytes, sha256): (u64, String)| bytes == file.bytes && sha256 == file.sha256;
        if sha256_of(&path).is_ok_and(whole) {
            return Ok(());
        }
        let unkept = |error: std::io::Error| {
            Error::resources(path.display().to_string(), "cannot be written")
                .source(error)
                .hint("free disk space, or set `XDG_CACHE_HOME` to a disk with room")
        };
        let key = self.prefix.key(&file.from);
        // Without its files an entry is of no use: that is seen when the journal is read.
        let Some(found) = self.prefix.store.find(&key).await? else { return Ok(()) };
        let half = path.with_extension("half");
        fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(unkept)?;
        let mut out = fs::File::create(&half).map_err(unkept)?;
        let hash = hex(&self.prefix.store.copy_to(&found, &mut out).await?);
        if hash != file.sha256 {
            let problem = format!("has the SHA-256 {hash}, expected {}", file.sha256);
            return Err(Error::output(self.prefix.store.url(&key).to_string(), problem)
                .hint("run without `--resume` to start over"));
        }
        fs::rename(&half, &path).map_err(unkept)
    }
}

impl Prefix {
    /// Of the attempts below a folder whose names are meant the one that came farthest; none if none has a journal.
    async fn attempt(&self, base: &str, is_meant: impl Fn(&str) -> bool) -> Result<Option<String>> {
        let hidden = self.key(&format!("{HIDDEN}/{base}"));
        let hidden = hidden.trim_end_matches('/');
        let mut best: Option<(usize, String)> = None;
        for name in self.store.folders(hidden).await?.into_iter().filter(|name| is_meant(name)) {
            let mut entries = 0;
            let folder = format!("{hidden}/{name}/journal");
            let listed = self.store.list(&folder, |_| {
                entries += 1;
                Ok(())
            });
            listed.await?;
            // Names of one run sort by time.
            best = best.max(Some((entries, name)));
        }
        Ok(best.filter(|(entries, _)| *entries > 0).map(|(_, name)| name))
    }
}

/// A new attempt below a folder, and what tells its process from others.
fn begun(run_id: &str, base: &str) -> (String, Mutex<RunAttempt>) {
    let nonce = format!("{:016x}", rand::random::<u64>());
    let name = format!("{base}{run_id}-{:013}-{nonce}", milliseconds());
    (nonce, Mutex::new(RunAttempt { name, ..RunAttempt::default() }))
}

fn milliseconds() -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis())
}
