//! Small files of a store as files of this machine: models, schemas and artefacts are fetched once, kept by the
//! SHA-256 of their content, and then handled as any other file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::location::ObjectUrl;
use super::store::{Listed, Store};
use crate::error::{Error, Result};

/// Objects of a folder that is fetched, at most: an artefact has a dozen.
const MOST_OBJECTS: usize = 10_000;

/// Where files are kept.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
}

/// The folder of all that can be had again: `$XDG_CACHE_HOME/overturn`, or `~/.cache/overturn`.
///
/// # Errors
/// When there is neither variable.
pub fn cache_folder() -> Result<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    base.map(|base| base.join("overturn")).ok_or_else(|| {
        Error::resources("XDG_CACHE_HOME", "is not set, and neither is `HOME`")
            .hint("set it to a folder for what is fetched from stores")
    })
}

impl Cache {
    /// The user's cache.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn open() -> Result<Cache> {
        Ok(Cache { folder: cache_folder()?.join("objects") })
    }

    /// A cache of its own, for what must come from the store this once; [`Cache::remove`] removes it.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn apart() -> Result<Cache> {
        let name = format!("apart-{:016x}", rand::random::<u64>());
        Ok(Cache { folder: cache_folder()?.join(name) })
    }

    /// Removes all that is kept.
    pub fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!("{} cannot be removed: {error}", self.folder.display());
        }
    }

    /// The files of an object and of others that stand beside it, or of all objects below a prefix, in a folder that
    /// has just these: names relative to `root`, and what they are.
    ///
    /// # Errors
    /// When one cannot be fetched or kept.
    pub async fn fetch(&self, store: &Store, root: &str, objects: &[Listed]) -> Result<PathBuf> {
        let (mut bundle, mut names) = (Sha256::new(), Vec::new());
        for object in objects {
            let name = object.key.strip_prefix(root).unwrap_or(&object.key).trim_start_matches('/');
            let content = self.content(store, object).await?;
            bundle.update(format!("{name}\n{}\n", content.display()));
            names.push((name.to_string(), content));
        }
        let folder = self.folder.join("folders").join(digits(&bundle.finalize()));
        for (name, content) in &names {
            link(content, &folder.join(name)).map_err(|error| unkept(&folder, error))?;
        }
        Ok(folder)
    }

    /// A single object, under its own name.
    ///
    /// # Errors
    /// As for [`Cache::fetch`], and when it is not there.
    pub async fn fetch_object(&self, store: &Store, url: &ObjectUrl) -> Result<PathBuf> {
        let Some(found) = store.find(url.key()).await? else { return Err(absent(url)) };
        let root = url.key().strip_suffix(url.name()).unwrap_or_default();
        Ok(self.fetch(store, root, &[found]).await?.join(url.name()))
    }

    /// All objects below a prefix whose names, relative to it, are meant.
    ///
    /// # Errors
    /// As for [`Cache::fetch`], and when there are none or far too many.
    pub async fn fetch_folder(
        &self,
        store: &Store,
        url: &ObjectUrl,
        is_meant: fn(&str) -> bool,
    ) -> Result<PathBuf> {
        let mut found = Vec::new();
        let listed = store.list(url.key(), |object| {
            let name = object.key.strip_prefix(url.key()).unwrap_or(&object.key);
            if !is_meant(name.trim_start_matches('/')) {
                return Ok(());
            }
            found.push(object);
            if found.len() <= MOST_OBJECTS {
                return Ok(());
            }
            let problem =
                format!("holds more than {MOST_OBJECTS} objects, expected an artefact or a run");
            Err(Error::input(url.to_string(), problem))
        });
        listed.await?;
        if found.is_empty() {
            return Err(absent(url));
        }
        self.fetch(store, url.key(), &found).await
    }

    /// The file of a content, fetched unless it was before.
    async fn content(&self, store: &Store, object: &Listed) -> Result<PathBuf> {
        let shown = store.url(&object.key);
        let known = self.note(&shown, object).and_then(|note| {
            let path = self.folder.join(fs::read_to_string(note).ok()?);
            let whole = fs::metadata(&path).is_ok_and(|found| found.len() == object.bytes);
            whole.then_some(path)
        });
        if let Some(path) = known {
            return Ok(path);
        }
        fs::create_dir_all(&self.folder).map_err(|error| unkept(&self.folder, error))?;
        let half = self.folder.join(format!(".{:016x}", rand::random::<u64>()));
        let mut file = fs::File::create(&half).map_err(|error| unkept(&half, error))?;
        let fetched = store.copy_to(object, &mut file).await;
        let kept = fetched.and_then(|hash| {
            let path = self.folder.join(digits(&hash));
            fs::rename(&half, &path).map_err(|error| unkept(&path, error))?;
            Ok(path)
        });
        let path = kept.inspect_err(|_| drop(fs::remove_file(&half)))?;
        tracing::info!(bytes = object.bytes, "fetched {shown}");
        // Without the note it is fetched again next time, no more.
        if let (Some(note), Some(name)) = (self.note(&shown, object), path.file_name()) {
            let folder = note.parent().map(fs::create_dir_all);
            let _ = folder.map(|_| fs::write(&note, name.as_encoded_bytes()));
        }
        Ok(path)
    }

    /// The file that says which content an object had; none where the store does not tell contents apart.
    fn note(&self, url: &ObjectUrl, object: &Listed) -> Option<PathBuf> {
        let which = format!("{url}\n{}\n{}", object.etag.as_deref()?, object.bytes);
        Some(self.folder.join("etags").join(digits(&Sha256::digest(which))))
    }
}

/// Gives a content a name, unless it has it.
fn link(content: &Path, name: &Path) -> io::Result<()> {
    if let Some(folder) = name.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::hard_link(content, name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Some file systems have no such links.
        Err(_) => fs::copy(content, name).map(|_| ()),
        Ok(()) => Ok(()),
    }
}

fn absent(url: &ObjectUrl) -> Error {
    Error::input(url.to_string(), "does not exist")
        .hint("check the URL; names of objects are case-sensitive")
}

fn unkept(path: &Path, error: io::Error) -> Error {
    Error::resources(path.display().to_string(), "cannot be written")
        .source(error)
        .hint("free disk space, or set `XDG_CACHE_HOME` to a disk with room")
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::threads::wait;
    use super::*;

    #[test]
    fn contents_are_fetched_once_and_kept_by_what_they_are() {
        let home = tempfile::tempdir().expect("a folder");
        let cache = Cache { folder: home.path().join("objects") };
        let store = Store::in_memory();
        let folder = |cache: Cache, store: Store| {
            wait(async move { cache.fetch_folder(&store, &store.url("models/a"), |_| true).await })
                .expect("fetched")
        };
        let write = |store: Store, key: &'static str, text: &'static str| {
            wait(async move { store.write(key, text.into()).await }).expect("written");
        };
        write(store.clone(), "models/a/m.onnx", "one");
        write(store.clone(), "models/a/deep/data", "two");
        write(store.clone(), "models/ab/other", "three");
        let first = folder(cache.clone(), store.clone());
        assert_eq!(fs::read_to_string(first.join("deep/data")).expect("there"), "two");
        assert_eq!(fs::read_dir(&first).expect("a folder").count(), 2, "models/ab is another");
        assert_eq!(folder(cache.clone(), store.clone()), first);
        write(store.clone(), "models/a/m.onnx", "two");
        let second = folder(cache.clone(), store.clone());
        assert_ne!(second, first, "another content is another folder");
        assert_eq!(fs::read_to_string(first.join("m.onnx")).expect("there"), "one");
        let contents = fs::read_dir(home.path().join("objects")).expect("a folder").flatten();
        let files = contents.filter(|entry| entry.path().is_file()).count();
        assert_eq!(files, 2, "the same content is kept once");
        let missing = wait(async move { cache.fetch_object(&store, &store.url("x")).await });
        assert!(missing.expect_err("absent").to_string().contains("does not exist"));
    }
}
