//! A bucket in which certain objects are read only as they were found: a table that is rewritten while a run reads it
//! ends the run. What is read is counted, and read once.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::temporal_conversions::timestamp_ms_to_datetime;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{
    Attributes, CopyOptions, Error as StoreError, GetOptions, GetRange, GetResult,
    GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, coalesce_ranges,
};

use super::cache::cache_folder;
use super::ranges::Ranges;
use super::store::Listed;

/// Bytes between two ranges that are rather read along than asked for apart. A store sends more in the time that a
/// request takes, but columns of small row groups are no larger than that, and would all be read.
const GAP: u64 = 8 << 10;
/// Ranges of one object that are asked for at the same time.
const AT_ONCE: usize = 8;

/// The objects of a table, as they were found.
pub struct Pinned {
    inner: Arc<dyn ObjectStore>,
    bucket: String,
    objects: HashMap<Key, ObjectMeta>,
    ranges: Ranges,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Pinned {
    /// A bucket of which these objects are read.
    pub fn new<'a>(
        inner: Arc<dyn ObjectStore>,
        bucket: &str,
        objects: impl Iterator<Item = &'a Listed>,
    ) -> Pinned {
        let known = |object: &Listed| {
            let location = Key::parse(&object.key).ok()?;
            let last_modified = timestamp_ms_to_datetime(object.modified)?.and_utc();
            let (size, e_tag) = (object.bytes, Some(object.etag.clone()?));
            Some((
                location.clone(),
                ObjectMeta { location, last_modified, size, e_tag, version: None },
            ))
        };
        let objects = objects.filter_map(known).collect();
        let folder = cache_folder().ok();
        let (ranges, bucket) = (Ranges::new(folder.as_deref()), bucket.to_string());
        let (requests, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Pinned { inner, bucket, objects, ranges, requests, bytes }
    }

    /// A range as the store has it, counted.
    async fn fetch(&self, key: &Key, range: Range<u64>) -> Result<Bytes> {
        let mut options = GetOptions::new().with_range(Some(GetRange::Bounded(range)));
        options.if_match = self.objects.get(key).and_then(|object| object.e_tag.clone());
        let found = self.inner.get_opts(key, options).await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let bytes = found.bytes().await?;
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Ranges of an object that is pinned, of which only what was not read before is asked for.
    async fn read(&self, key: &Key, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let missing = ranges.iter().flat_map(|range| self.ranges.missing(key, range)).collect();
        let fetched = merged(missing).into_iter().map(|range| async move {
            let bytes = self.fetch(key, range.clone()).await?;
            Ok::<_, StoreError>((range.start, bytes))
        });
        let fetched: Vec<_> = fetched.collect();
        let fresh: Vec<(u64, Bytes)> =
            futures::stream::iter(fetched).buffered(AT_ONCE).try_collect().await?;
        for (start, bytes) in &fresh {
            self.ranges.keep(key, *start, bytes);
        }
        let mut found = Vec::with_capacity(ranges.len());
        for range in ranges {
            found.push(match self.ranges.assemble(key, range, &fresh) {
                Some(bytes) => bytes,
                // What was kept cannot be read again.
                None => self.fetch(key, range.clone()).await?,
            });
        }
        Ok(found)
    }
}

/// Ranges in order, those close to each other as one.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end + GAP => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
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
        let known = self.objects.get(from).filter(|_| options.if_match.is_none());
        if let (Some(object), Some(GetRange::Bounded(range)), false) =
            (known, &options.range, options.head)
            && range.end <= object.size
        {
            let range = range.clone();
            let bytes = self.read(from, std::slice::from_ref(&range)).await?.concat();
            let payload = futures::stream::once(async move { Ok(Bytes::from(bytes)) }).boxed();
            let (payload, meta) = (GetResultPayload::Stream(payload), object.clone());
            return Ok(GetResult { payload, meta, range, attributes: Attributes::new() });
        }
        if let Some(object) = known {
            options.if_match.clone_from(&object.e_tag);
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
        let whole = |object: &ObjectMeta| ranges.iter().all(|range| range.end <= object.size);
        match self.objects.get(from) {
            Some(object) if whole(object) => self.read(from, ranges).await,
            _ => coalesce_ranges(ranges, |range| self.get_range(from, range), GAP).await,
        }
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
