//! Files that must not exist yet: each appears whole, and none if one of them cannot.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::error::{Error, Fault, Kind, Result};

/// Refuses files that exist, all of them at once.
///
/// # Errors
/// One fault for each file that exists.
pub fn refuse_existing(files: &[PathBuf]) -> Result<()> {
    let existing = files.iter().filter(|file| file.symlink_metadata().is_ok());
    let faults = existing.map(|file| taken(file)).collect();
    Error::from_faults(Kind::Spec, faults)
}

fn taken(file: &Path) -> Fault {
    Fault::new(file.display().to_string(), "exists already, and no file is replaced")
        .hint("remove or rename it, or name another folder by `--out DIR`")
}

/// Writes files under hidden names, then gives them their names in this order. Folders are made.
///
/// # Errors
/// When one of them exists, or cannot be written: then none of them is left.
pub fn write_new(files: &[(&Path, &str)]) -> Result<()> {
    let mut written = Written::default();
    for (path, content) in files {
        let hidden = hidden(path);
        write_hidden(&hidden, content, &mut written).map_err(|error| {
            Error::output(path.display().to_string(), "cannot be written").source(error)
        })?;
    }
    for (path, _) in files {
        let hidden = hidden(path);
        name(&hidden, path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::of_faults(Kind::Spec, vec![taken(path)]),
            _ => Error::output(path.display().to_string(), "cannot be written").source(error),
        })?;
        written.named.push(path.to_path_buf());
    }
    written.named.clear();
    Ok(())
}

/// Where a file is written before it has its name.
fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

fn write_hidden(hidden: &Path, content: &str, written: &mut Written) -> io::Result<()> {
    if let Some(folder) = hidden.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(hidden)?;
    written.hidden.push(hidden.to_path_buf());
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

/// Gives a file its name, unless another file has it.
fn name(hidden: &Path, path: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, hidden, AT_FDCWD, path, RenameFlags::RENAME_NOREPLACE) {
        // Some file systems know no such renaming, but links that do not replace either.
        Err(Errno::EINVAL | Errno::ENOSYS) => fs::hard_link(hidden, path),
        renamed => renamed.map_err(io::Error::from),
    }
}

/// What was written so far. Dropped, it takes hidden files away, and those that have their names as long as not all do.
#[derive(Default)]
struct Written {
    hidden: Vec<PathBuf>,
    named: Vec<PathBuf>,
}

impl Drop for Written {
    fn drop(&mut self) {
        for path in self.hidden.iter().chain(&self.named) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn all_files_are_written_or_none() {
        let home = tempfile::tempdir().expect("a folder");
        let [one, two] = ["sub/one", "sub/two"].map(|name| home.path().join(name));
        write_new(&[(&one, "1"), (&two, "2")]).expect("written");
        assert_eq!(fs::read_to_string(&two).expect("readable"), "2");
        assert_eq!(names(&home.path().join("sub")), ["one", "two"]);
        fs::remove_file(&one).expect("removed");
        let error = write_new(&[(&one, "3"), (&two, "4")]).expect_err("two exists");
        assert!(error.to_string().contains("two: exists already"), "{error}");
        assert_eq!(names(&home.path().join("sub")), ["two"]);
        assert_eq!(fs::read_to_string(&two).expect("readable"), "2", "as it was");
    }

    #[test]
    fn all_existing_files_are_named_and_links_to_nothing_too() {
        let home = tempfile::tempdir().expect("a folder");
        let files = ["one", "two", "three"].map(|name| home.path().join(name));
        fs::write(&files[0], "").expect("written");
        std::os::unix::fs::symlink("nowhere", &files[2]).expect("a link");
        let error = refuse_existing(&files).expect_err("two exist");
        assert_eq!(error.faults().len(), 2, "{error}");
    }
}
