//! Files that others deliver, opened without surprises: a pipe, a device or a folder under the name of a
//! file is an error at once, and what is larger than it may be is never read.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// Opens a regular file to read; gives its size too.
///
/// # Errors
/// When there is none, or something else than a file under its name.
pub fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    open(path, OFlag::empty())
}

/// The same, but a symbolic link is refused as well: where only a run's own files stand.
///
/// # Errors
/// As for [`open_regular`], and when it is a link.
pub fn open_unlinked(path: &Path) -> io::Result<(File, u64)> {
    open(path, OFlag::O_NOFOLLOW)
}

fn open(path: &Path, flags: OFlag) -> io::Result<(File, u64)> {
    // Opening a pipe that nobody writes to would wait for a writer.
    let flags = flags | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    match odd_kind(&found) {
        None => Ok((file, found.len())),
        Some(kind) => {
            let problem = format!("is {kind}, expected a file");
            Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
        }
    }
}

/// What something is that is no regular file; nothing for one.
pub fn odd_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a folder"),
        () if kind.is_fifo() => Some("a named pipe"),
        () if kind.is_socket() => Some("a socket"),
        () if kind.is_char_device() || kind.is_block_device() => Some("a device"),
        () => Some("no regular file"),
    }
}

/// Reads a regular file of at most that many bytes.
///
/// # Errors
/// When it cannot be read, is no file or is larger.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read(open_regular(path)?, most)
}

/// The same, but a symbolic link is refused as well.
///
/// # Errors
/// As for [`read_regular`], and when it is a link.
pub fn read_unlinked(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read(open_unlinked(path)?, most)
}

fn read((file, size): (File, u64), most: u64) -> io::Result<Vec<u8>> {
    let too_large = |size: u64| {
        let problem = format!("has {size} bytes, expected at most {most}");
        io::Error::new(io::ErrorKind::InvalidInput, problem)
    };
    if size > most {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // It may grow while it is read.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
}

/// The true path of a name in a folder; an error where a link leads out of it.
///
/// # Errors
/// When there is no such file, or it lies elsewhere.
pub fn inside(folder: &Path, name: &Path) -> io::Result<PathBuf> {
    let home = if folder == Path::new("") { Path::new(".") } else { folder }.canonicalize()?;
    let path = home.join(name).canonicalize()?;
    if path.starts_with(&home) {
        return Ok(path);
    }
    let problem = format!("is a link to `{}`, outside its folder", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, "12345").expect("written");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(read_regular(&file, 5).expect("small enough"), b"12345");
        let said =
            |path: &Path, most| read_regular(path, most).expect_err("must be refused").to_string();
        assert_eq!(said(&file, 4), "has 5 bytes, expected at most 4");
        assert_eq!(said(&pipe, 4), "is a named pipe, expected a file");
        assert_eq!(said(Path::new("/dev/zero"), 4), "is a device, expected a file");
        assert_eq!(said(folder.path(), 4), "is a folder, expected a file");
    }

    #[test]
    fn links_must_stay_in_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), "1").expect("written");
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, folder.path().join(name)).expect("a link");
        };
        link("file", "near");
        link("/etc/hostname", "far");
        assert!(inside(folder.path(), Path::new("near")).is_ok());
        assert!(open_regular(&folder.path().join("near")).is_ok());
        assert!(open_unlinked(&folder.path().join("near")).is_err());
        assert_eq!(read_unlinked(&folder.path().join("file"), 1).expect("no link"), b"1");
        let error = inside(folder.path(), Path::new("far")).expect_err("elsewhere");
        assert!(error.to_string().contains("outside its folder"), "{error}");
    }
}
