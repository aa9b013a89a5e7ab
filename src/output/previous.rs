//! Runs that were replaced. They stay beside the new one under hidden names, `.<dir>.previous-<number>-<run id>`,
//! so that slow readers keep their files; the oldest beyond `output.keep` are removed when the next one succeeds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::leftover::{Leftover, beside, remove};
use super::manifest::Manifest;
use super::verify::hex;

/// What replaced runs are called, after the folder's own name.
const PREVIOUS: &str = "previous";
/// Digits of a replaced run's number.
const DIGITS: usize = 5;
/// Digits of its identity in the name.
const ID_DIGITS: usize = 16;

/// Gives a replaced run, which stands in `folder`, its hidden name beside `target`.
pub(super) fn retire(folder: &Path, target: &Path) -> io::Result<PathBuf> {
    let number = previous(target).last().map_or(1, |(number, _)| number + 1);
    let kept_as = beside(target, &format!("{PREVIOUS}-{number:0DIGITS$}-{}", identity(folder)));
    fs::rename(folder, &kept_as)?;
    Ok(kept_as)
}

/// Removes the oldest of the replaced runs, but for so many.
pub(super) fn prune(target: &Path, keep: usize) {
    let found = previous(target);
    let surplus = found.len().saturating_sub(keep);
    for (_, folder) in &found[..surplus] {
        if let Err(error) = remove(folder, Leftover::Run) {
            tracing::warn!("a replaced run stays: {error}");
        }
    }
}

/// Folders of runs that were replaced in this place, the oldest first.
pub(super) fn replaced(target: &Path) -> Vec<PathBuf> {
    previous(target).into_iter().map(|(_, folder)| folder).collect()
}

/// Runs that were replaced, the oldest first.
fn previous(target: &Path) -> Vec<(u64, PathBuf)> {
    let start = beside(target, &format!("{PREVIOUS}-"));
    let start = start.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = target.parent().unwrap_or(Path::new("."));
    let numbered = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let (number, id) = name.strip_prefix(&start)?.split_once('-')?;
        let ours =
            number.len() >= DIGITS && !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit());
        Some((number.parse().ok().filter(|_| ours)?, entry.path()))
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf)> = entries.filter_map(numbered).collect();
    found.sort();
    found
}

/// The run's own name, or for those that have none one that is made of what they are.
fn identity(folder: &Path) -> String {
    let manifest = Manifest::read(folder).ok();
    let id = manifest.as_ref().and_then(Manifest::run_id).map(String::from);
    let mut id = id.unwrap_or_else(|| {
        let text = manifest.and_then(|manifest| serde_json::to_string(&manifest).ok());
        hex(&Sha256::digest(text.unwrap_or_default()))
    });
    id.truncate(ID_DIGITS);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_what_is_not_ours_is_left_alone() {
        let home = tempfile::tempdir().expect("a folder");
        let target = home.path().join("run");
        for _ in 0..3 {
            let old = home.path().join("old");
            fs::create_dir_all(old.join("scores")).expect("made");
            retire(&old, &target).expect("moved");
        }
        let strange = [".run.previous-mine", ".run.previous-00000-zz", ".other.previous-00001-aa"];
        strange.iter().for_each(|name| fs::create_dir(home.path().join(name)).expect("made"));
        fs::create_dir_all(home.path().join(".run.previous-00000-aa/thesis")).expect("made");
        assert_eq!(previous(&target).len(), 4);
        prune(&target, 1);
        let numbers: Vec<u64> = previous(&target).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [0, 3], "one with foreign content is never removed");
        assert!(strange.iter().all(|name| home.path().join(name).exists()));
    }
}
