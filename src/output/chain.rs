//! What proves a published folder: `_SUCCESS` holds the SHA-256 of its manifest, as `sha256sum` writes it, and so does
//! the manifest of the run that was compared with it, and so on from night to night.

use std::io;
use std::path::{Path, PathBuf};

use super::manifest::{Manifest, PreviousRun};
use super::paths::resolved;
use super::previous::replaced;
use super::tables::{MANIFEST_FILE, SUCCESS_FILE};
use super::verify::sha256_of;
use crate::document::read_unlinked;
use crate::error::{Error, Result};
use crate::storage::is_url;

/// Bytes of a `_SUCCESS` that holds a hash, at most.
const MOST_BYTES: u64 = 4096;
/// Hexadecimal digits of a SHA-256.
const DIGITS: usize = 64;

/// SHA-256 of the manifest of a folder.
///
/// # Errors
/// When it cannot be read.
pub fn manifest_sha256(folder: &Path) -> io::Result<String> {
    sha256_of(&folder.join(MANIFEST_FILE)).map(|(_, sha256)| sha256)
}

/// What is written to `_SUCCESS`: `sha256sum -c _SUCCESS` understands it. Nothing for a folder without a manifest.
pub(super) fn success_text(folder: &Path) -> Result<String> {
    let path = folder.join(MANIFEST_FILE);
    if !path.exists() {
        return Ok(String::new());
    }
    let sha256 = manifest_sha256(folder).map_err(|error| {
        Error::output(path.display().to_string(), format!("cannot be read back: {error}"))
    })?;
    Ok(success_line(&sha256))
}

/// The line of `_SUCCESS` that proves the manifest, as `sha256sum -c` reads it.
pub(super) fn success_line(sha256: &str) -> String {
    format!("{sha256}  {MANIFEST_FILE}\n")
}

/// Why a folder's `_SUCCESS` does not prove its manifest; none if it does, or is of a version that wrote no proof.
pub fn success_problem(folder: &Path, manifest: &Manifest) -> Option<String> {
    if manifest.format < 2 {
        return None;
    }
    let content = match read_unlinked(&folder.join(SUCCESS_FILE), MOST_BYTES) {
        Ok(content) => String::from_utf8_lossy(&content).into_owned(),
        Err(error) => return Some(format!("cannot be read: {error}")),
    };
    let digits = |text: &&str| text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    let Some(expected) = content.split_whitespace().next().filter(digits) else {
        return Some(format!("holds no SHA-256, expected that of `{MANIFEST_FILE}`"));
    };
    match manifest_sha256(folder) {
        Err(error) => Some(format!("`{MANIFEST_FILE}` cannot be read: {error}")),
        Ok(found) if found == expected => None,
        Ok(found) => Some(format!(
            "says that `{MANIFEST_FILE}` has the SHA-256 {expected}, found {found}: one of the two was changed"
        )),
    }
}

/// Where an earlier run is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreviousFound {
    /// In this folder, its manifest as it was.
    There(PathBuf),
    /// Nowhere that can be looked at; why.
    Gone(String),
    /// In its place stands something else, or its manifest was changed.
    Changed(String),
}

/// Looks for the run that another, in `folder`, was compared with: where it stood, among those that were replaced
/// there, and beside the other, where a whole archive was moved.
pub fn find_previous(run: &PreviousRun, folder: &Path) -> PreviousFound {
    if is_url(&run.path) {
        return PreviousFound::Gone(format!("`{}` is in a store: verify it there", run.path));
    }
    let recorded = Path::new(&run.path);
    let here = resolved(folder).unwrap_or_else(|_| folder.to_path_buf());
    let resolved_folder = resolved(recorded).unwrap_or_else(|_| recorded.to_path_buf());
    let name = recorded.file_name().unwrap_or_default();
    let moved = here.with_file_name(name);
    let candidates = [resolved_folder.clone(), moved.clone()]
        .into_iter()
        .chain(replaced(&resolved_folder))
        .chain(replaced(&moved));
    for candidate in candidates {
        if manifest_sha256(&candidate).is_ok_and(|found| found == run.sha256) {
            return PreviousFound::There(candidate);
        }
    }
    match manifest_sha256(&resolved_folder) {
        // Its place was taken by the run that was compared with it, or by a later one.
        Ok(_) if resolved_folder == here || is_replaced(&here, &resolved_folder) => {
            PreviousFound::Gone(format!("`{}` was replaced, and is no longer kept", run.path))
        }
        Ok(found) => PreviousFound::Changed(format!(
            "has a manifest with the SHA-256 {found}, expected {}: it was changed, or replaced by another run",
            run.sha256
        )),
        Err(_) => PreviousFound::Gone(format!("`{}` is not there", run.path)),
    }
}

/// Whether a folder is a run that was replaced in this place.
fn is_replaced(folder: &Path, recorded: &Path) -> bool {
    replaced(recorded).iter().any(|one| one == folder)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_previous_run_is_found_where_it_stood_where_it_was_moved_and_where_it_was_replaced() {
        let home = tempfile::tempdir().expect("a folder");
        let at = |name: &str| home.path().join(name);
        let make = |name: &str, text: &str| {
            fs::create_dir_all(at(name)).expect("made");
            fs::write(at(name).join(MANIFEST_FILE), text).expect("written");
        };
        make("monday", "1");
        make("tuesday", "2");
        let previous = PreviousRun {
            path: at("monday").display().to_string(),
            run_id: "aa".to_string(),
            sha256: manifest_sha256(&at("monday")).expect("there"),
        };
        let found = || find_previous(&previous, &at("tuesday"));
        assert_eq!(found(), PreviousFound::There(at("monday")));
        fs::rename(at("monday"), at(".monday.previous-00001-aa")).expect("moved");
        assert_eq!(found(), PreviousFound::There(at(".monday.previous-00001-aa")));
        make("monday", "3");
        assert_eq!(found(), PreviousFound::There(at(".monday.previous-00001-aa")));
        fs::remove_dir_all(at(".monday.previous-00001-aa")).expect("removed");
        assert!(matches!(found(), PreviousFound::Changed(why) if why.contains("expected")));
        fs::remove_dir_all(at("monday")).expect("removed");
        assert!(matches!(found(), PreviousFound::Gone(why) if why.ends_with("is not there")));
        // A whole archive was moved.
        make("archive/monday", "1");
        make("archive/tuesday", "2");
        let moved = find_previous(&previous, &at("archive/tuesday"));
        assert_eq!(moved, PreviousFound::There(at("archive/monday")));
        // A run that has taken the place of the one that it was compared with.
        let replaced = PreviousRun { path: at("tuesday").display().to_string(), ..previous };
        let found = find_previous(&replaced, &at("tuesday"));
        assert!(matches!(found, PreviousFound::Gone(why) if why.contains("no longer kept")));
    }
}
