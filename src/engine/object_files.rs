//! Tables in object stores: which objects they are made of, and their footers, read by ranges. What is read later is
//! read only if the objects are still the same.

use std::sync::Arc;

use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::cache::default_cache::DefaultCache;
use datafusion::execution::object_store::ObjectStoreUrl;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectStore};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use xxhash_rust::xxh3::xxh3_64;

use super::files::{ENDINGS, FOLDER_HINT, SourceFile, repeated_column};
use crate::error::{Error, Fault, Kind, Result};
use crate::output::folder_values;
use crate::storage::{Listed, ObjectUrl, Pinned, Store, Stores, translate, wait};

/// Objects of a table, at most.
const MOST_OBJECTS: usize = 1_000_000;
/// Objects that are passed over in a list, at most: a prefix that is far too wide is not a table.
const MOST_LISTED: usize = 10_000_000;
/// Bytes at the end of a file that are read first: footers of most files fit.
const FIRST_READ: u64 = 64 << 10;
/// Bytes of footers that are kept.
const FOOTER_CACHE: usize = 64 << 20;
/// Footers read at the same time.
const FOOTERS: usize = 16;

/// Where the objects of a table are read.
#[derive(Debug, Clone)]
pub(super) struct TableStore {
    /// Under which name the engine knows it.
    pub(super) name: ObjectStoreUrl,
    /// The objects, as they were found.
    pub(super) store: Arc<Pinned>,
    /// Footers that were read: the engine's own cache takes objects of one name in two buckets for the same.
    pub(super) footers: Arc<FileMetadataCache>,
}

/// An object of a table, and the prefix from which its hive partitions are counted.
#[derive(Debug, Clone)]
struct ListedObject {
    object: Listed,
    root: String,
}

/// The files of a table behind URLs of one bucket, in no order, and where they are read.
pub(super) fn find(
    paths: &[String],
    stores: &Stores,
) -> Result<(Vec<Result<SourceFile, Fault>>, TableStore)> {
    let parse = |path: &String| {
        ObjectUrl::parse(path).map_err(|problem| Error::spec(path, format!("is a URL {problem}")))
    };
    let urls: Vec<ObjectUrl> = paths.iter().map(parse).collect::<Result<_>>()?;
    if let Some(other) = urls.iter().find(|url| url.bucket() != urls[0].bucket()) {
        let problem = format!("lies in another bucket than `{}`, expected one bucket", urls[0]);
        return Err(Error::input(other.to_string(), problem));
    }
    let store = stores.open(&urls[0], Kind::Input)?;
    let (files, objects) = wait(async move {
        let expanded: Vec<_> = urls.iter().map(|url| expand(&store, url)).collect();
        let expanded = futures::stream::iter(expanded).buffered(FOOTERS);
        let mut found: Vec<ListedObject> = expanded.try_collect::<Vec<_>>().await?.concat();
        found.sort_by(|left, right| left.object.key.cmp(&right.object.key));
        found.dedup_by(|left, right| left.object.key == right.object.key);
        let bucket = store.url("").to_string();
        let objects = found.iter().map(|found| &found.object);
        let pinned = Arc::new(Pinned::new(Arc::clone(store.inner()), &bucket, objects));
        let reader = Arc::clone(&pinned);
        let read = move |found| footer(Arc::clone(&reader), store.clone(), found);
        let mut footers = futures::stream::iter(found).map(read).buffered(FOOTERS);
        let (mut files, mut schema) = (Vec::new(), None);
        while let Some(found) = footers.try_next().await? {
            files.push(found.map(|file| file.sharing(&mut schema)));
        }
        Ok((files, pinned))
    })?;
    // Two tables of one bucket pin different objects.
    let name = format!("table://{:016x}", xxh3_64(paths.join("\n").as_bytes()));
    let name = ObjectStoreUrl::parse(name)
        .map_err(|error| Error::internal("tables", "a store has no name").source(error))?;
    let footers: Arc<FileMetadataCache> = Arc::new(DefaultCache::new(FOOTER_CACHE));
    Ok((files, TableStore { name, store: objects, footers }))
}

/// The objects that a URL names: itself, those below it, or those that a glob matches.
async fn expand(store: &Store, url: &ObjectUrl) -> Result<Vec<ListedObject>> {
    // Some stores have empty objects for folders.
    if !url.key().is_empty()
        && let Some(object) = store.find(url.key()).await?.filter(|found| found.bytes > 0)
    {
        let root = url.key().strip_suffix(url.name()).unwrap_or_default().to_string();
        return Ok(vec![ListedObject { object, root }]);
    }
    let is_pattern = |part: &&str| part.contains(['*', '?', '[']);
    let fixed: Vec<&str> = url.key().split('/').take_while(|part| !is_pattern(part)).collect();
    let glob = url.key().contains(['*', '?', '[']);
    let pattern = glob::Pattern::new(url.key())
        .map_err(|error| Error::input(url.to_string(), "is not a valid glob").source(error))?;
    let root = if glob { fixed.join("/") } else { url.key().to_string() };
    let (mut found, mut seen) = (Vec::new(), 0);
    let listed = store.list(&root, |object| {
        seen += 1;
        let rest = object.key.strip_prefix(&root).unwrap_or(&object.key).to_string();
        if is_of_table(&rest) && (!glob || matches(&pattern, &object.key)) {
            found.push(ListedObject { object, root: root.clone() });
        }
        if found.len() > MOST_OBJECTS || seen > MOST_LISTED {
            let problem = format!("has more than {MOST_OBJECTS} files, or {MOST_LISTED} objects");
            return Err(Error::input(url.to_string(), problem)
                .hint("name the part of the table that is meant, such as a partition"));
        }
        Ok(())
    });
    listed.await?;
    if found.is_empty() {
        let problem = if seen == 0 { "does not exist" } else { "holds no Parquet file" };
        let hint = if seen == 0 { "check the URL; names are case-sensitive" } else { FOLDER_HINT };
        return Err(Error::input(url.to_string(), problem).hint(hint));
    }
    Ok(found)
}

/// Whether a name below a prefix is a file of a table rather than something that its writer left for itself.
fn is_of_table(rest: &str) -> bool {
    let ending = rest.rsplit_once('.').map_or("", |(_, ending)| ending);
    let parts = rest.split('/').filter(|part| !part.is_empty());
    let hidden = |part: &str| part.starts_with(['_', '.']) && !part.contains('=');
    ENDINGS.contains(&ending) && !parts.into_iter().any(hidden)
}

/// Whether a glob finds a name, or a folder that the name is in.
fn matches(pattern: &glob::Pattern, key: &str) -> bool {
    let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
    let folders = key.match_indices('/').map(|(end, _)| &key[..end]);
    folders.chain([key]).any(|name| pattern.matches_with(name, options))
}

/// Reads a footer; what is wrong with the file itself is a fault.
async fn footer(
    pinned: Arc<Pinned>,
    store: Store,
    found: ListedObject,
) -> Result<Result<SourceFile, Fault>> {
    let url = store.url(&found.object.key);
    let shown = url.to_string();
    let broken = |error: ParquetError, bytes: u64| {
        Fault::new(&shown, format!("is not a whole Parquet file ({bytes} bytes): {error}"))
            .hint("it may have been cut short, or is still being written")
    };
    let bytes = found.object.bytes;
    let read = read_footer(&pinned, &found.object).await;
    let metadata = match read {
        Ok(Ok(metadata)) => metadata,
        Ok(Err(error)) => return Ok(Err(broken(error, bytes))),
        Err(error) => return Err(translate(Kind::Input, &url, &error)),
    };
    let metadata = Arc::new(metadata);
    let arrow = match ArrowReaderMetadata::try_new(Arc::clone(&metadata), ArrowReaderOptions::new())
    {
        Ok(arrow) => arrow,
        Err(error) => return Ok(Err(broken(error, bytes))),
    };
    if let Some(name) = repeated_column(arrow.schema()) {
        let problem = format!("has two columns `{name}`, expected every name once");
        return Ok(Err(
            Fault::new(&shown, problem).hint("write it again with one of them renamed or left out")
        ));
    }
    let rest = found.object.key.strip_prefix(&found.root).unwrap_or_default();
    let folders = rest.trim_start_matches('/').rsplit_once('/').map_or("", |(folders, _)| folders);
    let partition = folder_values(folders);
    Ok(Ok(SourceFile::of_object(&found.object, shown, &arrow, partition)))
}

/// The footer of an object: its end, and once more where that was too little.
async fn read_footer(
    pinned: &Pinned,
    object: &Listed,
) -> object_store::Result<Result<ParquetMetaData, ParquetError>> {
    let key = Key::parse(&object.key)?;
    let mut length = FIRST_READ.min(object.bytes);
    let mut reader = ParquetMetaDataReader::new();
    loop {
        if length == 0 {
            return Ok(Err(ParquetError::EOF("it is empty".to_string())));
        }
        let range = GetRange::Bounded(object.bytes - length..object.bytes);
        let options = GetOptions::new().with_range(Some(range));
        let end = pinned.get_opts(&key, options).await?.bytes().await?;
        match reader.try_parse_sized(&end, object.bytes) {
            Ok(()) => return Ok(reader.finish()),
            Err(ParquetError::NeedMoreData(needed)) if needed as u64 > length => {
                length = (needed as u64).min(object.bytes);
                if length < needed as u64 {
                    return Ok(Err(ParquetError::EOF("its footer is longer than the file".into())));
                }
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_table_and_what_its_writers_leave() {
        for (name, expected) in [
            ("/part-0.parquet", true),
            ("day=1/x.pq", true),
            ("_day=1/x.parq", true),
            ("_temporary/x.parquet", false),
            ("/_overturn/1/x.parquet", false),
            (".x.parquet", false),
            ("x.csv", false),
            ("parquet", false),
        ] {
            assert_eq!(is_of_table(name), expected, "{name}");
        }
        let pattern = |text: &str| glob::Pattern::new(text).expect("a glob");
        assert!(matches(&pattern("t/day=*"), "t/day=1/x.parquet"));
        assert!(matches(&pattern("t/*.parquet"), "t/x.parquet"));
        assert!(!matches(&pattern("t/*.parquet"), "t/day=1/x.parquet"));
        assert!(matches(&pattern("t/**/x.parquet"), "t/a/b/x.parquet"));
    }
}
