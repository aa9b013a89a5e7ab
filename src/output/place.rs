//! Paths that are safe to use: symbolic links resolved, regular files only, names that stay inside a folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::OFlag;

/// Links followed before a path is taken for a loop, as the kernel does.
const MOST_LINKS: usize = 40;

/// The path without symbolic links, `.` and `..`. What does not exist is taken as it stands, so that the place of
/// a folder that is yet to be made, or of a dangling link's target, is known too.
///
/// # Errors
/// When links form a loop, or a folder cannot be searched.
pub fn resolved(path: &Path) -> io::Result<PathBuf> {
    let mut left: Vec<PathBuf> = parts(&std::path::absolute(path)?);
    let (mut done, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = left.pop() {
        if part == Path::new("..") {
            done.pop();
            continue;
        }
        let next = done.join(&part);
        let link = match fs::symlink_metadata(&next) {
            Ok(found) => found.is_symlink(),
            Err(error) if is_absent(&error) => false,
            Err(error) => return Err(error),
        };
        if !link {
            done = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::other("too many symbolic links"));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            done = PathBuf::from("/");
        }
        left.extend(parts(&target));
    }
    Ok(done)
}

/// Whether there is nothing, not even a file in the place of a folder.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The names of a path, the last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: Component| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        _ => None,
    };
    path.components().rev().filter_map(named).collect()
}

/// Whether a name from a file stays inside the folder that it is relative to.
pub fn is_inside(name: &str) -> bool {
    let plain = |part: Component| matches!(part, Component::Normal(_));
    !name.is_empty() && !name.contains('\0') && Path::new(name).components().all(plain)
}

/// Whether there is a folder, and no symbolic link to one.
pub(super) fn is_real_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Opens a regular file. A symbolic link, device, socket or FIFO is refused, and never waited for.
///
/// # Errors
/// When it is none, or cannot be read.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"))
    }
}

/// The content of a regular file of at most so many bytes.
///
/// # Errors
/// When it is longer, no regular file, or cannot be read.
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let bytes = file.metadata()?.len();
    let too_long =
        || io::Error::new(io::ErrorKind::FileTooLarge, format!("has more than {most} bytes"));
    if bytes > most {
        return Err(too_long());
    }
    let mut content = Vec::with_capacity(bytes as usize);
    // It may grow while it is read.
    file.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most { Err(too_long()) } else { Ok(content) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_even_to_what_is_not_there() {
        let home = tempfile::tempdir().expect("a folder");
        let home = home.path().canonicalize().expect("resolved");
        fs::create_dir(home.join("real")).expect("made");
        symlink("real", home.join("link")).expect("made");
        symlink("nowhere/else", home.join("dangling")).expect("made");
        symlink("loop", home.join("loop")).expect("made");
        for (path, expected) in [
            ("real", "real"),
            ("link", "real"),
            ("link/new/deep", "real/new/deep"),
            ("link/../x", "x"),
            ("dangling", "nowhere/else"),
            ("./link/./a", "real/a"),
        ] {
            assert_eq!(resolved(&home.join(path)).expect(path), home.join(expected), "{path}");
        }
        assert!(resolved(&home.join("loop")).is_err());
    }

    #[test]
    fn names_that_leave_the_folder() {
        assert!(is_inside("scores/part-00000.parquet"));
        for name in ["", "/etc/passwd", "../x", "a/../../x", "a/..", "./a", "a\0b"] {
            assert!(!is_inside(name), "{name:?}");
        }
    }

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let home = tempfile::tempdir().expect("a folder");
        let fifo = home.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("made");
        assert!(open_regular(&fifo).is_err());
        fs::write(home.path().join("file"), "1234").expect("written");
        symlink("file", home.path().join("link")).expect("made");
        assert!(open_regular(&home.path().join("link")).is_err());
        assert_eq!(read_bounded(&home.path().join("file"), 4).expect("short"), b"1234");
        assert!(read_bounded(&home.path().join("file"), 3).is_err());
        assert!(open_regular(Path::new("/dev/null")).is_err());
    }
}
