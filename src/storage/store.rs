//! What is asked of a store: whole objects, ranges, lists, and writes that do not take the place of anything.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, UpdateVersion, WriteMultipart,
};
use sha2::{Digest, Sha256};

use super::error::translate;
use super::location::ObjectUrl;
use crate::error::{Error, Kind, Result};

/// Bytes of a part of an upload, and of a range that is read at a time.
const CHUNK: usize = 8 << 20;
/// Parts on their way at the same time.
const PARTS: usize = 4;
/// Deletions on their way at the same time.
const DELETIONS: usize = 8;
/// Times that a write on condition is tried whose outcome nobody knows …
const TRIES: u32 = 5;
/// … with so long a pause, doubled each time.
const PAUSE: Duration = Duration::from_millis(100);

/// An open bucket.
#[derive(Debug, Clone)]
pub struct Store {
    bucket: ObjectUrl,
    inner: Arc<dyn ObjectStore>,
    kind: Kind,
}

/// One object of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its whole name.
    pub key: String,
    /// Bytes.
    pub bytes: u64,
    /// What changes with its content.
    pub etag: Option<String>,
    /// Milliseconds of its last change since 1970.
    pub modified: i64,
}

/// Which content of an object is meant, for [`Store::replace`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    etag: Option<String>,
    version: Option<String>,
}

/// What became of a write that takes no other's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It is there, by this write.
    Written,
    /// Another's content was there before.
    Taken(Vec<u8>),
}

impl Store {
    pub(super) fn new(bucket: ObjectUrl, inner: Arc<dyn ObjectStore>, kind: Kind) -> Store {
        Store { bucket, inner, kind }
    }

    /// A store in memory, for tests.
    #[cfg(test)]
    pub(crate) fn in_memory() -> Store {
        let bucket = ObjectUrl::parse("s3://memory").unwrap_or_else(|problem| panic!("{problem}"));
        Store::new(bucket, Arc::new(object_store::memory::InMemory::new()), Kind::Output)
    }

    /// The URL of an object.
    pub fn url(&self, key: &str) -> ObjectUrl {
        self.bucket.with_key(key)
    }

    /// As `object_store` has it.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    fn failed(&self, key: &str) -> impl Fn(StoreError) -> Error + use<> {
        let (url, kind) = (self.url(key), self.kind);
        move |error| translate(kind, &url, &error)
    }

    fn key(&self, key: &str) -> Result<Key> {
        Key::parse(key).map_err(|error| self.failed(key)(error.into()))
    }

    /// What is known of an object; none if it is not there.
    pub async fn find(&self, key: &str) -> Result<Option<Listed>> {
        let path = self.key(key)?;
        match self.inner.head(&path).await {
            Ok(found) => Ok(Some(listed(found))),
            Err(StoreError::NotFound { .. }) => Ok(None),
            // The answer to such a request has no body that could say why: another's has.
            Err(error) => {
                let range = GetOptions::new().with_range(Some(GetRange::Bounded(0..1)));
                let reason = self.inner.get_opts(&path, range).await.err();
                Err(self.failed(key)(reason.unwrap_or(error)))
            }
        }
    }

    /// The content of a small object, and which one it is; none if it is not there.
    pub async fn read(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>> {
        let found = match self.inner.get(&self.key(key)?).await {
            Ok(found) => found,
            Err(error @ StoreError::NotFound { .. }) => {
                let error = self.failed(key)(error);
                let bucket = error.faults().iter().any(|fault| fault.problem.contains("bucket"));
                return if bucket { Err(error) } else { Ok(None) };
            }
            Err(error) => return Err(self.failed(key)(error)),
        };
        let version =
            Version { etag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let bytes = found.bytes().await.map_err(self.failed(key))?;
        Ok(Some((bytes.to_vec(), version)))
    }

    /// Every object below a prefix, page by page.
    ///
    /// # Errors
    /// Also what `each` says, which ends the list.
    pub async fn list(
        &self,
        prefix: &str,
        mut each: impl FnMut(Listed) -> Result<()>,
    ) -> Result<()> {
        let path = self.key(prefix)?;
        let mut found = self.inner.list(Some(&path).filter(|path| !path.as_ref().is_empty()));
        while let Some(object) = found.next().await {
            each(listed(object.map_err(self.failed(prefix))?))?;
        }
        Ok(())
    }

    /// The names of the folders directly below a prefix.
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>> {
        let path = self.key(prefix)?;
        let found =
            self.inner.list_with_delimiter(Some(&path)).await.map_err(self.failed(prefix))?;
        let name = |path: &Key| path.filename().map(String::from);
        Ok(found.common_prefixes.iter().filter_map(name).collect())
    }

    /// Writes a small object, in the place of one that is there.
    pub async fn write(&self, key: &str, content: Vec<u8>) -> Result<()> {
        let put = self.inner.put(&self.key(key)?, PutPayload::from(content)).await;
        put.map(|_| ()).map_err(self.failed(key))
    }

    /// Writes a small object where there is none. The content must be no one else's: where nobody can say whether a
    /// write came through, what is there is compared with it.
    pub async fn create(&self, key: &str, content: Vec<u8>) -> Result<Created> {
        self.put_if(key, content, PutMode::Create).await
    }

    /// Writes a small object in the place of a certain content only, on the terms of [`Store::create`].
    pub async fn replace(&self, key: &str, content: Vec<u8>, old: Version) -> Result<Created> {
        let old = UpdateVersion { e_tag: old.etag, version: old.version };
        self.put_if(key, content, PutMode::Update(old)).await
    }

    async fn put_if(&self, key: &str, content: Vec<u8>, mode: PutMode) -> Result<Created> {
        let path = self.key(key)?;
        let mut pause = PAUSE;
        for attempt in 1..=TRIES {
            let options = PutOptions { mode: mode.clone(), ..PutOptions::default() };
            let put = self.inner.put_opts(&path, PutPayload::from(content.clone()), options).await;
            let error = match put {
                Ok(_) => return Ok(Created::Written),
                Err(error @ StoreError::NotImplemented { .. }) => {
                    return Err(self.failed(key)(error));
                }
                Err(error) => error,
            };
            let taken =
                matches!(error, StoreError::AlreadyExists { .. } | StoreError::Precondition { .. });
            match self.read(key).await {
                Ok(Some((found, _))) if found == content => return Ok(Created::Written),
                Ok(Some((found, _))) if taken => return Ok(Created::Taken(found)),
                // Another write was on its way, and has not ended or has failed.
                Ok(_) if taken && attempt < TRIES => tokio::time::sleep(pause).await,
                _ => return Err(self.failed(key)(error)),
            }
            pause *= 2;
        }
        Err(Error::new(self.kind, self.url(key).to_string(), "is being written by another run"))
    }

    /// Writes a file as an object. The name must be no one else's: a large one cannot be written on condition.
    pub async fn upload(&self, key: &str, path: &Path) -> Result<()> {
        let unreadable = |error: std::io::Error| {
            Error::output(path.display().to_string(), format!("cannot be read back: {error}"))
        };
        let mut file = std::fs::File::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        if bytes <= CHUNK as u64 {
            let mut content = Vec::with_capacity(bytes as usize);
            file.read_to_end(&mut content).map_err(unreadable)?;
            return self.write(key, content).await;
        }
        let upload = self.inner.put_multipart(&self.key(key)?).await.map_err(self.failed(key))?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, CHUNK);
        let mut chunk = vec![0; CHUNK];
        let sent = loop {
            match file.read(&mut chunk) {
                Ok(0) => break Ok(()),
                Ok(read) => match parts.wait_for_capacity(PARTS).await {
                    Ok(()) => parts.write(&chunk[..read]),
                    Err(error) => break Err(self.failed(key)(error)),
                },
                Err(error) => break Err(unreadable(error)),
            }
        };
        if let Err(error) = sent {
            // Parts that nobody completes would be kept, and paid for.
            let _ = parts.abort().await;
            return Err(error);
        }
        parts.finish().await.map(|_| ()).map_err(self.failed(key))
    }

    /// Reads an object of a known size to its end, in ranges of one content, and gives its SHA-256.
    pub async fn copy_to(&self, found: &Listed, out: &mut (impl Write + Send)) -> Result<[u8; 32]> {
        let path = self.key(&found.key)?;
        let starts = (0..found.bytes).step_by(CHUNK);
        let ranges = starts.map(|start| start..(start + CHUNK as u64).min(found.bytes));
        let range = |range: std::ops::Range<u64>| {
            let mut options = GetOptions::new().with_range(Some(GetRange::Bounded(range)));
            options.if_match.clone_from(&found.etag);
            let (inner, path) = (Arc::clone(&self.inner), path.clone());
            async move { inner.get_opts(&path, options).await?.bytes().await }
        };
        let mut chunks = futures::stream::iter(ranges.map(range)).buffered(PARTS);
        let mut hash = Sha256::new();
        while let Some(chunk) = chunks.try_next().await.map_err(self.failed(&found.key))? {
            hash.update(&chunk);
            out.write_all(&chunk).map_err(|error| {
                Error::resources(self.url(&found.key).to_string(), "cannot be kept on this machine")
                    .source(error)
                    .hint("free disk space, or set `XDG_CACHE_HOME` to a disk with room")
            })?;
        }
        Ok(hash.finalize().into())
    }

    /// Gives an object another name, on the server, in the place of one that has it.
    pub async fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.inner.copy(&self.key(from)?, &self.key(to)?).await.map_err(self.failed(from))
    }

    /// Removes objects; those that are not there are no error.
    pub async fn delete(&self, keys: &[String]) -> Result<()> {
        // Owned, so that the future may be moved to another thread.
        let deleted = keys.iter().cloned().map(|key| async move {
            match self.inner.delete(&self.key(&key)?).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.failed(&key)(error)),
            }
        });
        futures::stream::iter(deleted).buffer_unordered(DELETIONS).try_collect().await
    }
}

fn listed(found: ObjectMeta) -> Listed {
    Listed {
        key: found.location.to_string(),
        bytes: found.size,
        etag: found.e_tag,
        modified: found.last_modified.timestamp_millis(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::threads::wait;
    use super::*;

    #[test]
    fn only_one_write_creates_an_object_or_replaces_it() {
        let store = Store::in_memory();
        let done = wait(async move {
            assert_eq!(store.read("a").await?, None);
            assert_eq!(store.create("a", b"one".to_vec()).await?, Created::Written);
            // The same content again: a write that came through although its answer was lost.
            assert_eq!(store.create("a", b"one".to_vec()).await?, Created::Written);
            let taken = Created::Taken(b"one".to_vec());
            assert_eq!(store.create("a", b"two".to_vec()).await?, taken);
            let (_, first) = store.read("a").await?.expect("there");
            assert_eq!(store.replace("a", b"two".to_vec(), first.clone()).await?, Created::Written);
            let taken = Created::Taken(b"two".to_vec());
            assert_eq!(store.replace("a", b"three".to_vec(), first).await?, taken);
            store.copy("a", "b/c").await?;
            assert_eq!(store.folders("").await?, ["b"]);
            store.delete(&["a".to_string(), "nothing".to_string()]).await?;
            let mut names = Vec::new();
            store
                .list("", |found| {
                    names.push(found.key);
                    Ok(())
                })
                .await?;
            assert_eq!(names, ["b/c"]);
            Ok(())
        });
        done.expect("done");
    }

    #[test]
    fn files_go_there_and_come_back() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("x");
        for bytes in [0, 10, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let content: Vec<u8> = (0..bytes).map(|byte| (byte % 251) as u8).collect();
            std::fs::write(&path, &content).expect("written");
            let (store, path) = (Store::in_memory(), path.clone());
            let expected: [u8; 32] = Sha256::digest(&content).into();
            let back = wait(async move {
                store.upload("x", &path).await?;
                let found = store.find("x").await?.expect("there");
                let mut back = Vec::new();
                assert_eq!(store.copy_to(&found, &mut back).await?, expected);
                Ok(back)
            });
            assert!(back.expect("read") == content, "{bytes} bytes");
        }
    }
}
