//! Results in a store, which knows no rename: everything is staged below `_overturn/`, one create-only object decides
//! who publishes, server-side copies give the files their names, and `_SUCCESS` comes last. Whoever finds a commit
//! that was not carried out carries it out.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::chain::success_line;
use super::manifest::Manifest;
use super::paths::is_inside;
use super::tables::{MANIFEST_FILE, SUCCESS_FILE};
use crate::error::{Error, Result};
use crate::storage::{Created, ObjectUrl, Store, Version};

/// The folder of all that readers of tables must not see. Such names are skipped by all of them.
pub(super) const HIDDEN: &str = "_overturn";
/// Runs that are complete, but missed a gate of their job.
const FAILED: &str = "_failed";
/// The object that decides who publishes.
const COMMIT: &str = "_overturn/commit.json";
/// Copies on their way at the same time.
const COPIES: usize = 8;
/// Version of what a commit says.
const FORMAT: u32 = 1;

/// A file of a run that is to be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Placed {
    /// Its name in the results.
    pub(super) path: String,
    /// Where it is staged, below the results' prefix.
    pub(super) from: String,
    /// Size.
    pub(super) bytes: u64,
    /// SHA-256 of the content.
    pub(super) sha256: String,
}

/// Who publishes, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Commit {
    pub(super) format: u32,
    pub(super) run_id: String,
    pub(super) fingerprint: String,
    /// The attempt whose files these are: no two have the same.
    pub(super) attempt: String,
    /// The manifest is the last.
    pub(super) files: Vec<Placed>,
}

/// What the line of `_SUCCESS` begins with that names an attempt: `sha256sum -c` skips it.
const ATTEMPT: &str = "# attempt ";

/// Whether readers see a file of a run's results, by its name there.
pub fn is_visible(name: &str) -> bool {
    let folder = name.split('/').next().unwrap_or_default();
    !name.is_empty() && folder != HIDDEN && folder != FAILED
}

/// The prefix of a run's results.
#[derive(Debug, Clone)]
pub(super) struct Prefix {
    pub(super) store: Store,
    pub(super) dir: ObjectUrl,
}

impl Prefix {
    /// The whole name of an object of the results.
    pub(super) fn key(&self, name: &str) -> String {
        self.dir.join(name).key().to_string()
    }

    /// The commit that was made last.
    pub(super) async fn commit(&self) -> Result<Option<(Commit, Version)>> {
        let Some((content, version)) = self.store.read(&self.key(COMMIT)).await? else {
            return Ok(None);
        };
        let shown = self.dir.join(COMMIT).to_string();
        let commit: Commit = serde_json::from_slice(&content)
            .map_err(|error| Error::output(&shown, format!("is no commit of a run: {error}")))?;
        let inside = |file: &Placed| is_inside(&file.path) && is_inside(&file.from);
        if commit.format != FORMAT || !commit.files.iter().all(inside) {
            return Err(Error::output(shown, "is not of this version of overturn")
                .hint("use the version that began the run, or another `output.dir`"));
        }
        Ok(Some((commit, version)))
    }

    /// Makes a commit, in the place of the one that was found before: only one of several runs can.
    pub(super) async fn decide(&self, commit: &Commit, found: Option<Version>) -> Result<()> {
        let broken = |error| Error::internal("commit", "has no JSON").source(error);
        let content = serde_json::to_vec_pretty(commit).map_err(broken)?;
        let key = self.key(COMMIT);
        let created = match found {
            None => self.store.create(&key, content).await?,
            Some(version) => self.store.replace(&key, content, version).await?,
        };
        match created {
            Created::Written => Ok(()),
            Created::Taken(other) => {
                let run = serde_json::from_slice::<Commit>(&other).map(|other| other.run_id);
                let problem = format!(
                    "was published meanwhile by another run, {}; nothing of this one is visible",
                    run.unwrap_or_default()
                );
                Err(Error::output(self.dir.to_string(), problem)
                    .hint("two runs had the same `output.dir`: give each its own"))
            }
        }
    }

    /// Carries out a commit, from wherever it was left. May be done by several at once.
    pub(super) async fn roll_forward(&self, commit: &Commit) -> Result<()> {
        let success = self.success().await?;
        if success.as_ref().is_some_and(|attempt| *attempt == commit.attempt) {
            return self.clear(&commit.attempt).await;
        }
        if success.is_some() {
            self.store.delete(&[self.key(SUCCESS_FILE)]).await?;
        }
        self.refuse_replaced(commit).await?;
        let replaced = self.others(commit).await?;
        self.store.delete(&replaced).await?;
        match self.copy(commit).await {
            Err(error) => {
                // Another has done it, and has cleared what is copied from.
                let success = self.success().await?;
                if success.is_some_and(|attempt| attempt == commit.attempt) {
                    return Ok(());
                }
                Err(error
                    .hint("the run was published in part; run again with `--resume` to finish it"))
            }
            Ok(()) => {
                self.refuse_replaced(commit).await?;
                self.succeed(commit).await?;
                self.clear(&commit.attempt).await
            }
        }
    }

    /// Copies all files to their names, the manifest last, and looks whether all are there.
    async fn copy(&self, commit: &Commit) -> Result<()> {
        let Some((manifest, tables)) = commit.files.split_last() else { return Ok(()) };
        let copies = tables.iter().cloned().map(|file| self.copy_one(file));
        let copied = futures::stream::iter(copies).buffer_unordered(COPIES);
        copied.try_collect::<()>().await?;
        self.copy_one(manifest.clone()).await
    }

    async fn copy_one(&self, file: Placed) -> Result<()> {
        let to = self.key(&file.path);
        self.store.copy(&self.key(&file.from), &to).await?;
        let found = self.store.find(&to).await?.map(|found| found.bytes);
        if found == Some(file.bytes) {
            return Ok(());
        }
        let problem = format!("has {found:?} bytes after it was copied, expected {}", file.bytes);
        Err(Error::output(self.store.url(&to).to_string(), problem))
    }

    /// Refuses to continue a commit that another has replaced.
    async fn refuse_replaced(&self, commit: &Commit) -> Result<()> {
        match self.commit().await? {
            Some((now, _)) if now.attempt == commit.attempt => Ok(()),
            _ => Err(Error::output(
                self.dir.to_string(),
                "was published anew by another run meanwhile",
            )
            .hint("two runs had the same `output.dir`: give each its own")),
        }
    }

    /// Objects of earlier results, which the commit does not replace.
    async fn others(&self, commit: &Commit) -> Result<Vec<String>> {
        let kept: BTreeSet<String> = commit.files.iter().map(|file| self.key(&file.path)).collect();
        let visible = self.visible().await?;
        Ok(visible
            .into_iter()
            .map(|(name, _)| self.key(&name))
            .filter(|key| !kept.contains(key))
            .collect())
    }

    /// Everything that readers see: names below the prefix, and sizes.
    pub(super) async fn visible(&self) -> Result<Vec<(String, u64)>> {
        let root = format!("{}/", self.dir.key());
        let mut found = Vec::new();
        let listed = self.store.list(self.dir.key(), |object| {
            let name = object.key.strip_prefix(&root).unwrap_or_default();
            if is_visible(name) {
                found.push((name.to_string(), object.bytes));
            }
            Ok(())
        });
        listed.await?;
        Ok(found)
    }

    /// Of which attempt the complete results are; empty for those of a copied local run, none if there are none.
    async fn success(&self) -> Result<Option<String>> {
        let found = self.store.read(&self.key(SUCCESS_FILE)).await?;
        Ok(found.map(|(content, _)| {
            let text = String::from_utf8_lossy(&content);
            text.lines().find_map(|line| line.strip_prefix(ATTEMPT)).unwrap_or_default().to_string()
        }))
    }

    async fn succeed(&self, commit: &Commit) -> Result<()> {
        let manifest = commit.files.last().filter(|file| file.path == MANIFEST_FILE);
        let proof = manifest.map_or(String::new(), |file| success_line(&file.sha256));
        let content = format!("{proof}{ATTEMPT}{}\n", commit.attempt);
        match self.store.create(&self.key(SUCCESS_FILE), content.into_bytes()).await? {
            Created::Written => Ok(()),
            Created::Taken(_) => {
                let problem = "got a `_SUCCESS` of another run while this one was published";
                Err(Error::output(self.dir.to_string(), problem))
            }
        }
    }

    /// Removes what an attempt staged.
    pub(super) async fn clear(&self, attempt: &str) -> Result<()> {
        let mut keys = Vec::new();
        let folder = self.key(&format!("{HIDDEN}/{attempt}"));
        self.store
            .list(&folder, |object| {
                keys.push(object.key);
                Ok(())
            })
            .await?;
        self.store.delete(&keys).await
    }

    /// The manifest of results that are complete; none if there are none.
    pub(super) async fn manifest(&self) -> Result<Option<Manifest>> {
        if self.success().await?.is_none() {
            return Ok(None);
        }
        let shown = self.dir.join(MANIFEST_FILE).to_string();
        let foreign = || {
            Error::output(
                self.dir.to_string(),
                "holds a `_SUCCESS`, but is not the results of a run",
            )
            .hint("choose another `output.dir`, or remove what is there")
        };
        let content = self.store.read(&self.key(MANIFEST_FILE)).await?.ok_or_else(foreign)?.0;
        let text = String::from_utf8(content).map_err(|error| foreign().source(error))?;
        Manifest::parse(&text, &shown).map(Some).map_err(|error| foreign().source(error))
    }

    /// Refuses a prefix that holds anything but a run's results.
    pub(super) async fn refuse_foreign(&self, manifest: Option<&Manifest>) -> Result<()> {
        let mut known: BTreeSet<&str> = BTreeSet::new();
        if let Some(manifest) = manifest {
            known.extend(manifest.files().map(|(path, _, _)| path));
            known.extend([MANIFEST_FILE, SUCCESS_FILE]);
        }
        let visible = self.visible().await?;
        let Some((name, _)) = visible.iter().find(|(name, _)| !known.contains(name.as_str()))
        else {
            return Ok(());
        };
        let problem = format!("holds `{name}`, which is not of a run's results");
        Err(Error::output(self.dir.to_string(), problem)
            .hint("choose another `output.dir`, or remove what is there"))
    }

    /// Shows a run that may not be published, in the place of another such.
    pub(super) async fn set_aside(&self, commit: &Commit) -> Result<ObjectUrl> {
        let mut old = Vec::new();
        self.store
            .list(&self.key(FAILED), |object| {
                old.push(object.key);
                Ok(())
            })
            .await?;
        self.store.delete(&old).await?;
        let renamed =
            |file: &Placed| Placed { path: format!("{FAILED}/{}", file.path), ..file.clone() };
        let files = commit.files.iter().map(renamed).collect();
        self.copy(&Commit { files, ..commit.clone() }).await?;
        self.clear(&commit.attempt).await?;
        Ok(self.dir.join(FAILED))
    }
}

impl Commit {
    pub(super) fn new(run: (&str, &str), attempt: &str, files: Vec<Placed>) -> Commit {
        let (run_id, fingerprint) = (run.0.to_string(), run.1.to_string());
        Commit { format: FORMAT, run_id, fingerprint, attempt: attempt.to_string(), files }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::wait;

    fn prefix() -> Prefix {
        let store = Store::in_memory();
        Prefix { dir: store.url("out"), store }
    }

    /// A commit of two files, staged.
    async fn staged(prefix: &Prefix, attempt: &str, names: [&str; 2]) -> Result<Commit> {
        let mut files = Vec::new();
        for path in names {
            let from = format!("{HIDDEN}/{attempt}/files/{path}");
            prefix.store.write(&prefix.key(&from), attempt.into()).await?;
            let (path, bytes) = (path.to_string(), attempt.len() as u64);
            files.push(Placed { path, from, bytes, sha256: String::new() });
        }
        Ok(Commit::new(("00ff", "00ff00"), attempt, files))
    }

    async fn names(prefix: &Prefix) -> Result<Vec<String>> {
        Ok(prefix.visible().await?.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn one_run_publishes_and_anybody_may_finish_it() {
        let prefix = prefix();
        let done = wait(async move {
            let first = staged(&prefix, "one", ["t/a", "manifest.json"]).await?;
            let second = staged(&prefix, "two", ["t/b", "manifest.json"]).await?;
            prefix.decide(&first, None).await?;
            // Deciding again is no contradiction; another's decision is.
            prefix.decide(&first, None).await?;
            let refused = prefix.decide(&second, None).await.expect_err("decided").to_string();
            assert!(refused.contains("published meanwhile by another run, 00ff"), "{refused}");
            assert!(names(&prefix).await?.is_empty(), "a decision shows nothing");
            let (found, version) = prefix.commit().await?.expect("decided");
            prefix.roll_forward(&found).await?;
            assert_eq!(names(&prefix).await?, ["_SUCCESS", "manifest.json", "t/a"]);
            // Again, after what it is copied from was cleared.
            prefix.roll_forward(&found).await?;
            // Replaced: what the new one does not have is gone.
            prefix.decide(&second, Some(version.clone())).await?;
            prefix.roll_forward(&second).await?;
            assert_eq!(names(&prefix).await?, ["_SUCCESS", "manifest.json", "t/b"]);
            let refused = prefix.decide(&first, Some(version)).await.expect_err("stale");
            assert!(refused.to_string().contains("another run"), "{refused}");
            let late = prefix.roll_forward(&first).await.expect_err("replaced").to_string();
            assert!(late.contains("published anew by another run"), "{late}");
            Ok(prefix)
        });
        let prefix = done.expect("done");
        let success = wait(async move { prefix.success().await }).expect("read");
        // Whoever comes late removes the sign of success rather than leave it over another's files.
        assert!(success.is_none());
    }

    #[test]
    fn what_is_not_of_a_run_is_never_replaced() {
        let prefix = prefix();
        let done = wait(async move {
            prefix.refuse_foreign(None).await?;
            prefix.store.write("out/_overturn/x", Vec::new()).await?;
            prefix.store.write("outer/thesis", Vec::new()).await?;
            prefix.refuse_foreign(None).await?;
            prefix.store.write("out/thesis.txt", Vec::new()).await?;
            let refused = prefix.refuse_foreign(None).await.expect_err("foreign").to_string();
            assert!(refused.contains("holds `thesis.txt`"), "{refused}");
            prefix.store.write("out/_SUCCESS", Vec::new()).await?;
            let refused = prefix.manifest().await.expect_err("foreign").to_string();
            assert!(refused.contains("is not the results of a run"), "{refused}");
            Ok(())
        });
        done.expect("done");
    }
}
