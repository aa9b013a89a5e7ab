//! What runs leave beside a published folder, under hidden names. Only what a run can have left is ever removed
//! or written to: a symbolic link, or a folder with other content, stops the program instead.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::paths::is_real_folder;
use super::tables::{
    COUNTERFACTUALS, GENERATOR, JOURNAL_FILE, MANIFEST_FILE, REJECTS, REPORTS, SCORES, SUCCESS_FILE,
};
use crate::error::{Error, Result};

/// What a folder under construction is called, after the published one's name.
pub(super) const STAGING: &str = "staging";

/// What names of files begin with that runs left beside their journals before its second format.
const KEPT: &str = "kept-";

/// What a run may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftover {
    /// A run's folder, whole or in part.
    Run,
    /// A journal, and what is kept beside it.
    Journal,
    /// A checkpoint of a training.
    Checkpoint,
}

impl Leftover {
    /// Whether such a folder can have an entry of this name.
    fn has(self, name: &str) -> bool {
        let tables = [COUNTERFACTUALS, REJECTS, REPORTS, GENERATOR, SCORES];
        match self {
            Leftover::Run => {
                tables.contains(&name) || name == MANIFEST_FILE || name == SUCCESS_FILE
            }
            Leftover::Journal => name == JOURNAL_FILE || name.starts_with(KEPT),
            Leftover::Checkpoint => {
                let tensors = name.starts_with("step-") && name.ends_with(".safetensors");
                tensors || ["checkpoint.json", ".new", ".tensors"].contains(&name)
            }
        }
    }
}

/// A hidden name beside a run's own.
pub(super) fn beside(target: &Path, what: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{what}"))
}

/// Whether there is something; a dangling link is something.
pub(super) fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Refuses what no run of ours can have left.
///
/// # Errors
/// Names what was found.
pub(super) fn refuse_foreign(folder: &Path, kind: Leftover) -> Result<()> {
    let shown = folder.display().to_string();
    let refused = |problem: String| {
        Err(Error::output(&shown, problem)
            .hint("move it away, or choose another `output.dir`; only what a run left is removed"))
    };
    if !is_there(folder) {
        return Ok(());
    }
    if !is_real_folder(folder) {
        return refused("is no folder, expected what an earlier run left, or nothing".to_string());
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return refused(format!("cannot be read: {error}")),
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !kind.has(&name) {
            return refused(format!("holds `{name}`, which no run leaves there"));
        }
    }
    Ok(())
}

/// Removes what a run left.
///
/// # Errors
/// When it is not what a run leaves, or cannot be removed.
pub(super) fn remove(folder: &Path, kind: Leftover) -> Result<()> {
    refuse_foreign(folder, kind)?;
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let shown = folder.display().to_string();
            Err(Error::output(shown, format!("cannot be removed: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_and_foreign_folders_are_not_removed() {
        let home = tempfile::tempdir().expect("a folder");
        let (data, link) = (home.path().join("data"), home.path().join(".run.staging"));
        fs::create_dir(&data).and_then(|()| fs::write(data.join("precious"), "1")).expect("made");
        symlink(&data, &link).expect("made");
        let error = remove(&link, Leftover::Run).expect_err("a link").to_string();
        assert!(error.contains("is no folder"), "{error}");
        let error = remove(&data, Leftover::Run).expect_err("foreign").to_string();
        assert!(error.contains("holds `precious`"), "{error}");
        assert!(data.join("precious").exists() && is_there(&link));
        let ours = home.path().join(".run.journal");
        fs::create_dir(&ours).and_then(|()| fs::write(ours.join(JOURNAL_FILE), "")).expect("made");
        remove(&ours, Leftover::Journal).expect("ours");
        remove(&ours, Leftover::Journal).expect("nothing there is nothing to do");
        assert!(!ours.exists());
    }
}
