//! Files of a table's metadata, which are named by absolute addresses.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::storage::{ObjectUrl, Stores};

/// Bytes of a metadata file, at most.
const MOST_BYTES: u64 = 1 << 30;

/// Where an address leads: a path of this machine, or a URL as we write it.
///
/// # Errors
/// When it is in no store that is known.
pub fn place(address: &str, kind: Kind) -> Result<PathBuf> {
    let local = address.strip_prefix("file:").map(|rest| {
        // `file:///x`, `file:/x` and, from careless writers, `file://x`.
        let path = rest.trim_start_matches('/');
        PathBuf::from(format!("/{path}"))
    });
    if let Some(path) = local {
        return Ok(path);
    }
    if address.starts_with('/') {
        return Ok(PathBuf::from(address));
    }
    let found = ObjectUrl::parse(address);
    let found = found.map_err(|problem| Error::new(kind, address, format!("is a URL {problem}")));
    Ok(PathBuf::from(found?.to_string()))
}

/// Reads a whole file.
///
/// # Errors
/// When it is not there or cannot be read.
pub(super) async fn read_file(address: &str, stores: &Stores, kind: Kind) -> Result<Vec<u8>> {
    let path = place(address, kind)?;
    let shown = path.display().to_string();
    let missing = |problem: String| {
        Error::new(kind, &shown, problem)
            .hint("it belongs to the table's metadata: an expired snapshot loses its files")
    };
    let Ok(url) = ObjectUrl::parse(&shown) else {
        let size = fs::metadata(&path).map_or(0, |found| found.len());
        if size > MOST_BYTES {
            return Err(missing(format!("has {size} bytes, which no metadata have")));
        }
        return fs::read(&path).map_err(|error| missing(format!("cannot be read: {error}")));
    };
    let found = stores.open(&url, kind)?.read(url.key()).await?;
    found.map(|(bytes, _)| bytes).ok_or_else(|| missing("does not exist".to_string()))
}

/// Writes a whole file, whose name no one else uses.
///
/// # Errors
/// When it cannot be written.
pub async fn write_file(address: &str, bytes: Vec<u8>, stores: &Stores) -> Result<()> {
    let path = place(address, Kind::Output)?;
    if let Ok(url) = ObjectUrl::parse(&path.to_string_lossy()) {
        return stores.open(&url, Kind::Output)?.write(url.key(), bytes).await;
    }
    let written = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        let mut file = fs::File::create(&path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::File::open(folder)?.sync_all()
    };
    written().map_err(|error| {
        Error::output(path.display().to_string(), format!("cannot be written: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_all_writers_are_understood() {
        for (address, expected) in [
            ("file:///lake/t/a.avro", "/lake/t/a.avro"),
            ("file:/lake/t/a.avro", "/lake/t/a.avro"),
            ("/lake/t/a.avro", "/lake/t/a.avro"),
            ("s3a://lake/t/a.avro", "s3://lake/t/a.avro"),
        ] {
            assert_eq!(place(address, Kind::Input).expect(address), Path::new(expected));
        }
        assert!(place("hdfs://node/t", Kind::Input).is_err());
    }
}
