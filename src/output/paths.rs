//! Paths that are safe to use: symbolic links resolved, names that stay inside a folder.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

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
}
