//! The claim of one run on a place, and what it tells the next run of a replacement that a kill cut short.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::leftover::{STAGING, beside};
use super::manifest::Manifest;
use super::paths::is_real_folder;
use super::previous::{prune, retire};
use super::tables::SUCCESS_FILE;
use crate::error::{Error, Result};

/// What the file is called, after the folder's own name.
pub(super) const LOCK: &str = "lock";

/// Bytes of its note, at most.
const NOTE_BYTES: u64 = 64;

/// The claim of one run on a place: a lock that ends with the process, on a file beside it.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Takes the lock, and sees to it that it is on the file that stands there now: a run that ends removes
    /// its lock file, perhaps between our opening and locking it.
    pub(super) fn claim(target: &Path, shown: &str) -> Result<Lock> {
        let path = beside(target, LOCK);
        loop {
            // Never a file that a link leads to, and never waiting for a FIFO.
            let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).read(true).write(true).custom_flags(flags.bits());
            let file = options.open(&path).map_err(|error| {
                Error::output(shown, format!("cannot be written: {error}")).hint(
                    "check the folder's permissions and the free space, or choose another `output.dir`",
                )
            })?;
            if file.try_lock().is_err() {
                return Err(Error::output(shown, "is being written by another run")
                    .hint("wait for it to end, or choose another `output.dir`"));
            }
            let held = file.metadata().map(|file| file.ino()).ok();
            if held.is_some() && held == fs::symlink_metadata(&path).map(|file| file.ino()).ok() {
                return Ok(Lock { path, file });
            }
        }
    }

    /// Notes which folder is about to be exchanged for a published one: a kill may come before or after.
    pub(super) fn note(&mut self, folder: &Path) -> io::Result<()> {
        let new = fs::symlink_metadata(folder)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        writeln!(self.file, "replacing {} {}", new.dev(), new.ino())?;
        self.file.sync_all()
    }

    /// Gives a run that was replaced its hidden name, by a run that was killed before it could, or by this one.
    pub(super) fn finish_replacement(&mut self, target: &Path, keep: usize) {
        let old = beside(target, STAGING);
        let identity = |path: &Path| {
            let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir)?;
            Some((found.dev(), found.ino()))
        };
        let exchanged = match self.noted() {
            Some(new) => {
                identity(target) == Some(new) && identity(&old).is_some_and(|old| old != new)
            }
            // Without a note nobody knows: two whole runs, of which none may be lost.
            None => is_whole(&old) && is_whole(target),
        };
        if exchanged {
            match retire(&old, target) {
                Ok(_) => prune(target, keep),
                Err(error) => {
                    tracing::warn!("the replaced run stays in {}: {error}", old.display());
                }
            }
        }
        let _ = self.file.set_len(0);
    }

    /// The folder of the note: its device and its number there.
    fn noted(&mut self) -> Option<(u64, u64)> {
        let mut text = String::new();
        self.file.rewind().ok()?;
        (&self.file).take(NOTE_BYTES).read_to_string(&mut text).ok()?;
        let mut numbers = text.strip_prefix("replacing ")?.trim_end().split(' ');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

impl Drop for Lock {
    /// Removes the file; the lock itself ends with it. A failure concerns nobody: the run is over.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a folder is a run's, complete.
fn is_whole(folder: &Path) -> bool {
    is_real_folder(folder) && folder.join(SUCCESS_FILE).exists() && Manifest::read(folder).is_ok()
}
