//! A folder that becomes visible as a whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, RenameFlags, renameat2};

use super::tables::SUCCESS_FILE;
use super::writer::cannot_write;
use crate::error::{Error, Result};

/// What stands beside a published folder, under its hidden name and these.
const LOCK: &str = "lock";
const STAGING: &str = "staging";
const JOURNAL: &str = "journal";
const CHECKPOINT: &str = "checkpoint";

/// A folder under construction beside its final place. Dropped without [`Staging::publish`], it vanishes.
#[derive(Debug)]
pub struct Staging {
    target: PathBuf,
    folder: PathBuf,
    overwrite: bool,
    published: bool,
    kept: bool,
    lock_file: PathBuf,
    _lock: Flock<File>,
}

impl Staging {
    /// Claims `target` and makes an empty folder for what will stand there.
    ///
    /// # Errors
    /// When the place cannot be written, holds results that may not be replaced, or is claimed by
    /// another run.
    pub fn begin(target: &Path, overwrite: bool) -> Result<Staging> {
        Staging::open(target, overwrite, Leftovers::Cleared)
    }

    /// The same, but keeps what an earlier run left in the folder, to be gone on with.
    ///
    /// # Errors
    /// As for [`Staging::begin`].
    pub fn resume(target: &Path, overwrite: bool) -> Result<Staging> {
        Staging::open(target, overwrite, Leftovers::Kept)
    }

    fn open(target: &Path, overwrite: bool, leftovers: Leftovers) -> Result<Staging> {
        let shown = target.display().to_string();
        if target.file_name().and_then(|name| name.to_str()).is_none() {
            let problem = format!("is `{shown}`, expected the path of a folder to make");
            return Err(Error::spec("output.dir", problem));
        }
        let parent = match target.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        check_output(target, overwrite)?;
        let cannot = |what: &str, error: std::io::Error| {
            Error::output(&shown, format!("{what} cannot be created: {error}")).hint(
                "check the folder's permissions and the free space, or choose another `output.dir`",
            )
        };
        fs::create_dir_all(parent).map_err(|error| cannot("its folder", error))?;
        let lock_file = beside(target, LOCK);
        let lock = claim(&lock_file, &shown)?;
        let folder = beside(target, STAGING);
        // Left by a run that was killed: nobody else can hold it while we hold the lock.
        if folder.exists() && leftovers == Leftovers::Cleared {
            fs::remove_dir_all(&folder).map_err(|error| cannot("a fresh staging folder", error))?;
        }
        // What is gone on with must survive a run that is refused.
        let kept = folder.exists();
        fs::create_dir_all(&folder).map_err(|error| cannot("a staging folder", error))?;
        let target = target.to_path_buf();
        Ok(Staging { target, folder, overwrite, published: false, kept, lock_file, _lock: lock })
    }

    /// From now on the folder stays when the run fails, so that another can go on from there.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    /// The folder under construction.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the folders of these tables and gives the one they stand in. Writers create files in them
    /// but no folders, so that a straggler cannot bring an abandoned run back.
    pub fn tables(&self, tables: &[&str]) -> Result<PathBuf> {
        for table in tables {
            let path = self.folder.join(table);
            fs::create_dir_all(&path).map_err(|error| {
                Error::output(path.display().to_string(), "cannot be created").source(error)
            })?;
        }
        Ok(self.folder.clone())
    }

    /// Removes every file but those that are to be kept, by their path in the folder: what a killed run
    /// was in the middle of.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn sweep(&self, keep: &dyn Fn(&str) -> bool) -> Result<()> {
        let swept = sweep(&self.folder, &self.folder, keep);
        swept.map_err(|error| {
            let shown = self.folder.display().to_string();
            Error::output(shown, "cannot be cleared of unfinished files").source(error)
        })
    }

    /// Where a run that takes long may keep what another run goes on from. Not part of what is published.
    pub fn checkpoint(&self) -> PathBuf {
        beside(&self.target, CHECKPOINT)
    }

    /// Where a run keeps its journal. Not part of what is published.
    pub fn journal(&self) -> PathBuf {
        journal_of(&self.target)
    }

    /// Writes a small file into the folder, synced.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.folder.join(name);
        write_synced(&path, content.as_bytes())
    }

    /// Marks the folder complete and moves it into place, in one step that readers cannot see half of.
    pub fn publish(mut self) -> Result<PathBuf> {
        self.write(SUCCESS_FILE, "")?;
        sync_folders(&self.folder).map_err(|error| {
            Error::output(self.folder.display().to_string(), "cannot be synced").source(error)
        })?;
        check_output(&self.target, self.overwrite)?;
        let moved = if self.target.exists() {
            self.exchange()
        } else {
            fs::rename(&self.folder, &self.target)
        };
        moved.map_err(|error| {
            Error::output(self.target.display().to_string(), "cannot be published").source(error)
        })?;
        self.published = true;
        self.clear_beside();
        if let Some(parent) = self.target.parent().and_then(|parent| File::open(parent).ok()) {
            let _ = parent.sync_all();
        }
        Ok(self.target.clone())
    }

    /// Moves the folder to a name that readers skip, in the place of what stood there: a run that is
    /// complete, but may not be published.
    pub fn set_aside(mut self) -> Result<PathBuf> {
        let name = self.target.file_name().unwrap_or_default().to_string_lossy();
        let place = self.target.with_file_name(format!("_{name}.failed"));
        let cannot = |error: std::io::Error| {
            Error::output(place.display().to_string(), "cannot be written").source(error)
        };
        if place.exists() {
            fs::remove_dir_all(&place).map_err(cannot)?;
        }
        fs::rename(&self.folder, &place).map_err(cannot)?;
        self.published = true;
        self.clear_beside();
        Ok(place)
    }

    /// Removes what the run could have gone on from, while nobody else can have begun anew.
    fn clear_beside(&self) {
        for folder in [self.journal(), self.checkpoint()] {
            let _ = fs::remove_dir_all(folder);
        }
    }

    /// Swaps old and new in one step, then removes the old.
    fn exchange(&self) -> std::io::Result<()> {
        let here = nix::fcntl::AT_FDCWD;
        renameat2(here, &self.folder, here, &self.target, RenameFlags::RENAME_EXCHANGE)?;
        // What is left of the old is hidden, and cleared by the next run at the latest.
        let _ = fs::remove_dir_all(&self.folder);
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // A straggler may add a file while the folder is being removed; there is nothing after that.
        let mut tries = 0;
        while !self.published
            && !self.kept
            && tries < 3
            && fs::remove_dir_all(&self.folder).is_err()
        {
            tries += 1;
        }
        let _ = fs::remove_file(&self.lock_file);
    }
}

/// Removes what a run that has published left beside its folder, unless another run is at work there.
pub fn tidy(target: &Path) {
    let lock_file = beside(target, LOCK);
    if let Ok(_lock) = claim(&lock_file, "") {
        for what in [STAGING, JOURNAL, CHECKPOINT] {
            let _ = fs::remove_dir_all(beside(target, what));
        }
        let _ = fs::remove_file(&lock_file);
    }
}

/// Where the journal of a run is that publishes into a folder.
pub fn journal_of(target: &Path) -> PathBuf {
    beside(target, JOURNAL)
}

/// Writes a file and waits until it is on the disk.
///
/// # Errors
/// When it cannot be written.
pub fn write_synced(path: &Path, content: &[u8]) -> Result<()> {
    let written = fs::write(path, content).and_then(|()| File::open(path)?.sync_all());
    written.map_err(|error| cannot_write(path, error))
}

fn sweep(root: &Path, folder: &Path, keep: &dyn Fn(&str) -> bool) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if path.is_dir() {
            sweep(root, &path, keep)?;
            // One that still has files stays.
            let _ = fs::remove_dir(&path);
        } else if !keep(&name) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Sees to it that the names of all files below a folder are on the disk.
fn sync_folders(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_folders(&path)?;
        }
    }
    File::open(folder)?.sync_all()
}

/// What becomes of what an earlier run left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leftovers {
    Cleared,
    Kept,
}

/// A hidden folder beside a run's own.
fn beside(target: &Path, what: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{what}"))
}

/// Only an earlier run's results, and only if the job says so, are ever replaced.
///
/// # Errors
/// When there is something that may not be replaced.
pub fn check_output(target: &Path, overwrite: bool) -> Result<()> {
    let shown = target.display().to_string();
    let Ok(mut entries) = fs::read_dir(target) else {
        return if target.exists() {
            Err(Error::spec(shown, "exists and is not a folder that can be read"))
        } else {
            Ok(())
        };
    };
    let published = target.join(SUCCESS_FILE).exists();
    match (entries.next().is_none(), published, overwrite) {
        (true, _, _) | (_, true, true) => Ok(()),
        (_, true, false) => Err(Error::spec(shown, "already holds the results of a run")
            .hint("set `output.overwrite = true` to replace them, or choose another `output.dir`")),
        (_, false, _) => Err(Error::spec(shown, "holds files that are not the results of a run")
            .hint("choose another `output.dir`; nothing but results is ever replaced")),
    }
}

/// Takes the lock, and sees to it that it is on the file that stands there now: a run that ends removes
/// its lock file, perhaps between our opening and locking it.
fn claim(lock_file: &Path, shown: &str) -> Result<Flock<File>> {
    loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(lock_file);
        let file = file.map_err(|error| {
            Error::output(shown, format!("cannot be written: {error}")).hint(
                "check the folder's permissions and the free space, or choose another `output.dir`",
            )
        })?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            Error::output(shown, "is being written by another run")
                .hint("wait for it to end, or choose another `output.dir`")
        })?;
        let held = lock.metadata().map(|file| file.ino()).ok();
        if held.is_some() && held == fs::metadata(lock_file).map(|file| file.ino()).ok() {
            return Ok(lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("readable").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let home = tempfile::tempdir().expect("a folder");
        let target = home.path().join("run");
        let staging = Staging::begin(&target, false).expect("begun");
        staging.tables(&["scores"]).expect("made");
        staging.write("scores/a", "1").expect("written");
        assert!(!target.exists());
        drop(staging);
        assert!(names(home.path()).is_empty(), "nothing is left of an abandoned run");

        let staging = Staging::begin(&target, false).expect("begun");
        staging.tables(&["scores"]).expect("made");
        staging.publish().expect("published");
        assert_eq!(names(home.path()), ["run"]);
        assert_eq!(names(&target), ["_SUCCESS", "scores"]);
    }

    #[test]
    fn results_are_replaced_only_when_asked() {
        let home = tempfile::tempdir().expect("a folder");
        let target = home.path().join("run");
        Staging::begin(&target, false).and_then(Staging::publish).expect("published");
        let error = Staging::begin(&target, false).expect_err("already there");
        assert!(error.to_string().contains("already holds the results"), "{error}");
        let staging = Staging::begin(&target, true).expect("may be replaced");
        staging.write("new", "").expect("written");
        staging.publish().expect("published");
        assert_eq!(names(&target), ["_SUCCESS", "new"]);
        assert_eq!(names(home.path()), ["run"]);

        let foreign = home.path().join("thesis");
        fs::create_dir(&foreign)
            .and_then(|()| fs::write(foreign.join("chapter"), ""))
            .expect("made");
        let error = Staging::begin(&foreign, true).expect_err("not ours");
        assert!(error.to_string().contains("not the results of a run"), "{error}");
    }

    #[test]
    fn two_runs_cannot_write_one_place() {
        let home = tempfile::tempdir().expect("a folder");
        let target = home.path().join("run");
        let _first = Staging::begin(&target, false).expect("begun");
        let error = Staging::begin(&target, false).expect_err("claimed");
        assert!(error.to_string().contains("another run"), "{error}");
    }

    #[test]
    fn what_a_killed_run_left_is_cleared() {
        let home = tempfile::tempdir().expect("a folder");
        let left = home.path().join(".run.staging");
        fs::create_dir(&left).and_then(|()| fs::write(left.join("half"), "")).expect("made");
        let staging = Staging::begin(&home.path().join("run"), false).expect("begun");
        assert!(names(&left).is_empty());
        drop(staging);
    }
}
