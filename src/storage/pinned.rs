//! A bucket in which certain objects are read only as they were found: a table that is rewritten while a run reads it
//! ends the run. What is read is counted.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    coalesce_ranges,
};

/// Bytes between two ranges that are rather read along than asked for apart: about what a store sends in the time
/// that a request takes. Columns that are not needed are usually larger.
const GAP: u64 = 64 << 10;

/// The objects of a table, as they were found.
pub struct Pinned {
    inner: Arc<dyn ObjectStore>,
    bucket: String,
    etags: HashMap<Key, String>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Pinned {
    /// A bucket of which these objects (names and what changes with their content) are read.
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        bucket: &str,
        objects: impl Iterator<Item = (String, String)>,
    ) -> Pinned {
        let etags = objects.filter_map(|(key, etag)| Some((Key::parse(key).ok()?, etag))).collect();
        let (requests, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Pinned { inner, bucket: bucket.to_string(), etags, requests, bytes }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bucket)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let (requests, bytes) = (*self.requests.get_mut(), *self.bytes.get_mut());
        if requests > 0 {
            tracing::info!(requests, bytes, "read from {}", self.bucket);
        }
    }
}

#[async_trait]
impl ObjectStore for Pinned {
    async fn put_opts(
        &self,
        to: &Key,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(to, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Key,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(to, options).await
    }

    async fn get_opts(&self, from: &Key, mut options: GetOptions) -> Result<GetResult> {
        if let Some(etag) = self.etags.get(from).filter(|_| options.if_match.is_none()) {
            options.if_match = Some(etag.clone());
        }
        let head = options.head;
        let found = self.inner.get_opts(from, options).await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        if !head {
            self.bytes.fetch_add(found.range.end - found.range.start, Ordering::Relaxed);
        }
        Ok(found)
    }

    async fn get_ranges(&self, from: &Key, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        coalesce_ranges(ranges, |range| self.get_range(from, range), GAP).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Key>>,
    ) -> BoxStream<'static, Result<Key>> {
        self.inner.delete_stream(keys)
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
