//! Whether a written file is what was written: size, checksum, footer.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::writer::StagedFile;
use crate::document::open_regular;
use crate::error::{Error, Result};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Reads files back and holds them against what was written to them.
///
/// # Errors
/// Names the first that is not what was written.
pub fn verify(folder: &Path, files: &[StagedFile]) -> Result<()> {
    files.par_iter().try_for_each(|file| verify_file(folder, file))
}

fn verify_file(folder: &Path, file: &StagedFile) -> Result<()> {
    let path = folder.join(&file.name);
    let shown = path.display().to_string();
    let broken = |found: String, expected: String| {
        Error::output(&shown, format!("has {found}, expected {expected}"))
            .hint("the disk, or another program, has changed what was written")
    };
    let (bytes, sha256) = sha256_of(&path)
        .map_err(|error| Error::output(&shown, format!("cannot be read back: {error}")))?;
    if bytes != file.bytes || sha256 != file.sha256 {
        return Err(broken(
            format!("{bytes} bytes with SHA-256 {sha256}"),
            format!("{} with {}", file.bytes, file.sha256),
        ));
    }
    let footer = File::open(&path).map_err(parquet::errors::ParquetError::from);
    let footer = footer
        .and_then(SerializedFileReader::new)
        .map_err(|error| Error::output(&shown, "is not a whole Parquet file").source(error))?;
    let rows = footer.metadata().file_metadata().num_rows() as u64;
    if rows == file.rows {
        Ok(())
    } else {
        Err(broken(format!("{rows} rows"), file.rows.to_string()))
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Size and SHA-256 of a file, as hexadecimal digits.
pub fn sha256_of(path: &Path) -> io::Result<(u64, String)> {
    sha256_while(path, &|| Ok(())).unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The same of a file that may be long: it is asked between reads whether to go on.
///
/// # Errors
/// What `go_on` says; within, what reading comes to.
pub fn sha256_while(
    path: &Path,
    go_on: &dyn Fn() -> Result<()>,
) -> Result<io::Result<(u64, String)>> {
    let mut file = match open_regular(path) {
        Ok((file, _)) => file,
        Err(error) => return Ok(Err(error)),
    };
    sha256_read(&mut file, go_on)
}

/// The same of a file that is open.
///
/// # Errors
/// As for [`sha256_while`].
pub fn sha256_read(
    file: &mut File,
    go_on: &dyn Fn() -> Result<()>,
) -> Result<io::Result<(u64, String)>> {
    let (mut hash, mut bytes, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        go_on()?;
        match file.read(&mut chunk) {
            Ok(0) => return Ok(Ok((bytes, hex(&hash.finalize())))),
            Ok(read) => {
                hash.update(&chunk[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a"), "one").expect("written");
        let (bytes, sha256) = sha256_of(&folder.path().join("a")).expect("readable");
        assert_eq!(sha256, "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
        let file = StagedFile { name: "a".to_string(), rows: 0, bytes, sha256 };
        std::fs::write(folder.path().join("a"), "two").expect("written");
        let error = verify(folder.path(), &[file]).expect_err("changed");
        assert!(error.to_string().contains("expected 3 with 7692c3"), "{error}");
    }
}
