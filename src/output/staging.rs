//! A folder that becomes visible as a whole, or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{RenameFlags, renameat2};

use super::chain::success_text;
use super::leftover::{Leftover, STAGING, beside, is_there, refuse_foreign, remove};
use super::lock::{LOCK, Lock};
use super::manifest::Manifest;
use super::mirror::Mirror;
use super::paths::{is_real_folder, resolved};
use super::shard::{Shard, link, remove_empty, shard_place};
use super::tables::{JOURNAL_FILE, SUCCESS_FILE};
use super::writer::cannot_write;
use crate::error::{Error, Result};
use crate::storage::ObjectUrl;

/// What stands beside a published folder, under its hidden name and these.
const JOURNAL: &str = "journal";
const CHECKPOINT: &str = "checkpoint";

/// Whether an earlier run may be replaced, and how many replaced ones stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replace {
    /// Whether results may be replaced at all.
    pub allowed: bool,
    /// Replaced runs that stay beside the new one.
    pub keep: usize,
}

/// A folder under construction beside its final place. Dropped without [`Staging::publish`], it vanishes.
#[derive(Debug)]
pub struct Staging {
    /// The place as the job names it.
    asked: PathBuf,
    /// The same without symbolic links.
    target: PathBuf,
    folder: PathBuf,
    replace: Replace,
    published: bool,
    kept: bool,
    lock: Lock,
    /// The store where results are to appear instead, if they are.
    mirror: Option<Arc<Mirror>>,
}

impl Staging {
    /// Claims `target` and makes an empty folder for what will stand there.
    ///
    /// # Errors
    /// When the place cannot be written, holds results that may not be replaced, or is claimed by
    /// another run.
    pub fn begin(target: &Path, replace: Replace) -> Result<Staging> {
        let shown = target.display().to_string();
        Staging::open(target, replace, Leftovers::Cleared, &shown)
    }

    /// The same, but keeps what an earlier run left in the folder, to be resumed from.
    ///
    /// # Errors
    /// As for [`Staging::begin`].
    pub fn resume(target: &Path, replace: Replace) -> Result<Staging> {
        let shown = target.display().to_string();
        Staging::open(target, replace, Leftovers::Kept, &shown)
    }

    /// The same for results that are to appear in a store: `scratch` is where they are put together. What is resumed
    /// is brought from there.
    ///
    /// # Errors
    /// As for [`Staging::begin`], and when the store cannot be read.
    pub fn for_store(scratch: &Path, mirror: Arc<Mirror>, resume: bool) -> Result<Staging> {
        let (replace, shown) = (Replace { allowed: false, keep: 0 }, mirror.url().to_string());
        let leftovers = if resume { Leftovers::Kept } else { Leftovers::Cleared };
        let mut staging = Staging::open(scratch, replace, leftovers, &shown)?;
        if resume {
            staging.keep();
            staging.restore(&mirror)?;
        }
        staging.mirror = Some(mirror);
        Ok(staging)
    }

    /// What a shard of a run has finished so far, to be added to. It stays until the run is published.
    ///
    /// # Errors
    /// As for [`Staging::begin`], and when the store cannot be read.
    pub fn for_shard(dir: &Path, shard: Shard, mirror: Option<Arc<Mirror>>) -> Result<Staging> {
        let failed_folder = shard_place(dir, shard)?;
        let mut staging = match mirror {
            Some(mirror) => Staging::for_store(&failed_folder, mirror, true)?,
            None => Staging::resume(&failed_folder, Replace { allowed: false, keep: 0 })?,
        };
        staging.keep();
        Ok(staging)
    }

    /// Takes files of a shard: under a second name, so that the shard stays whole until the run is published.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn take(&self, shard: &Staging, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| link(&shard.folder.join(name), &self.folder.join(name)))
    }

    /// Removes what shards of a published run have left on this machine.
    pub fn clear_shards(dir: &Path, shards: &[Shard]) {
        for shard in shards {
            let Ok(failed_folder) = shard_place(dir, *shard) else { continue };
            tidy(&failed_folder, 0);
        }
        remove_empty(dir);
    }

    /// The journal as it is in the store, with the files that it names: what is on this machine may be older, or
    /// of another run.
    fn restore(&self, mirror: &Arc<Mirror>) -> Result<()> {
        let lines = mirror.restore(&self.folder)?;
        if lines.is_empty() {
            return remove(&self.journal(), Leftover::Journal);
        }
        let path = self.journal().join(JOURNAL_FILE);
        let made = fs::create_dir_all(self.journal());
        made.map_err(|error| cannot_write(&path, error))?;
        write_synced(&path, format!("{}\n", lines.join("\n")).as_bytes())
    }

    /// The store where results are to appear, if they are.
    pub fn mirror(&self) -> Option<Arc<Mirror>> {
        self.mirror.clone()
    }

    fn open(asked: &Path, replace: Replace, leftovers: Leftovers, shown: &str) -> Result<Staging> {
        let target = target_of(asked)?;
        check_output(asked, replace.allowed)?;
        let cannot = |what: &str, error: io::Error| {
            Error::output(shown, format!("{what} cannot be created: {error}")).hint(
                "check the folder's permissions and the free space, or choose another `output.dir`",
            )
        };
        let parent = target.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(|error| cannot("its folder", error))?;
        let mut lock = Lock::claim(&target, shown)?;
        let folder = beside(&target, STAGING);
        lock.finish_replacement(&target, replace.keep);
        for (what, kind) in BESIDE {
            refuse_foreign(&beside(&target, what), kind)?;
        }
        // Left by a run that was killed: nobody else can hold it while we hold the lock.
        if leftovers == Leftovers::Cleared {
            remove(&folder, Leftover::Run)?;
        }
        // What is resumed must survive a run that is refused.
        let kept = folder.exists();
        fs::create_dir_all(&folder).map_err(|error| cannot("a staging folder", error))?;
        let asked = asked.to_path_buf();
        Ok(Staging { asked, target, folder, replace, published: false, kept, lock, mirror: None })
    }

    /// From now on the folder stays when the run fails, so that another can resume from it.
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

    /// Where a run that takes long may keep what another run resumes from. Not part of what is published.
    pub fn checkpoint(&self) -> PathBuf {
        beside(&self.target, CHECKPOINT)
    }

    /// Where a run keeps its journal. Not part of what is published.
    pub fn journal(&self) -> PathBuf {
        beside(&self.target, JOURNAL)
    }

    /// Empties the folder under construction and that of the journal, and makes both.
    ///
    /// # Errors
    /// When one cannot be removed or made.
    pub fn start_over(&self) -> Result<()> {
        let journal = self.journal();
        for (folder, kind) in
            [(journal.as_path(), Leftover::Journal), (self.folder(), Leftover::Run)]
        {
            remove(folder, kind)?;
            fs::create_dir_all(folder).map_err(|error| {
                Error::output(folder.display().to_string(), format!("cannot be created: {error}"))
            })?;
        }
        Ok(())
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
        if let Some(mirror) = self.mirror.take() {
            // What is finished stays until it is published.
            self.kept = true;
            mirror.publish(&self.folder)?;
            return Ok(self.done(mirror.url()));
        }
        self.write(SUCCESS_FILE, &success_text(&self.folder)?)?;
        sync_folders(&self.folder).map_err(|error| {
            Error::output(self.folder.display().to_string(), "cannot be synced").source(error)
        })?;
        self.refuse_moved()?;
        check_output(&self.target, self.replace.allowed)?;
        let moved = match is_empty(&self.target) {
            // A folder takes the place of an empty one in one step.
            None | Some(true) => fs::rename(&self.folder, &self.target),
            Some(false) => self.exchange(),
        };
        moved.map_err(|error| {
            Error::output(self.target.display().to_string(), "cannot be published").source(error)
        })?;
        self.published = true;
        self.clear_beside();
        if let Some(parent) = self.target.parent().and_then(|parent| File::open(parent).ok()) {
            let _ = parent.sync_all();
        }
        Ok(self.asked.clone())
    }

    /// Moves the folder to a name that readers skip, in the place of what stood there: a run that is
    /// complete, but may not be published.
    pub fn set_aside(mut self) -> Result<PathBuf> {
        if let Some(mirror) = self.mirror.take() {
            self.kept = true;
            let failed_folder = mirror.set_aside(&self.folder)?;
            return Ok(self.done(&failed_folder));
        }
        let name = self.target.file_name().unwrap_or_default().to_string_lossy();
        let failed_folder = self.target.with_file_name(format!("_{name}.failed"));
        // What is finished stays, for a second attempt once the place is free.
        self.kept = true;
        self.refuse_moved()?;
        refuse_foreign(&failed_folder, Leftover::Run)?;
        if is_there(&failed_folder) && is_empty(&failed_folder) == Some(false) {
            Manifest::read(&failed_folder).map_err(|error| {
                let shown = failed_folder.display().to_string();
                Error::output(shown, "is not a run that missed its gates, and is not replaced")
                    .hint("move it away and run again with `--resume`")
                    .source(error)
            })?;
        }
        remove(&failed_folder, Leftover::Run)?;
        fs::rename(&self.folder, &failed_folder).map_err(|error| {
            Error::output(failed_folder.display().to_string(), "cannot be written").source(error)
        })?;
        self.published = true;
        self.clear_beside();
        Ok(failed_folder)
    }

    /// The run is in the store: what is on this machine is of no more use.
    fn done(&mut self, failed_folder: &ObjectUrl) -> PathBuf {
        self.published = true;
        if let Err(error) = remove(&self.folder, Leftover::Run) {
            tracing::warn!("{error}");
        }
        self.clear_beside();
        PathBuf::from(failed_folder.to_string())
    }

    /// A link on the way to the folder may lead elsewhere by now, where nothing was claimed or checked.
    fn refuse_moved(&self) -> Result<()> {
        if resolved(&self.asked).is_ok_and(|now| now == self.target) {
            return Ok(());
        }
        let problem =
            format!("no longer leads to `{}`, as it did when the run began", self.target.display());
        Err(Error::output(self.asked.display().to_string(), problem)
            .hint("a symbolic link was changed meanwhile; run again when it stays as it is"))
    }

    /// Removes the journal of a run that can be begun anew at no cost.
    pub fn clear_journal(&self) {
        let _ = remove(&self.journal(), Leftover::Journal);
    }

    /// Removes what the run could have been resumed from, while nobody else can have begun anew.
    fn clear_beside(&self) {
        self.clear_journal();
        let _ = remove(&self.checkpoint(), Leftover::Checkpoint);
    }

    /// Swaps old and new in one step, then gives the old its hidden name. What a kill leaves between the two
    /// steps is told by a note in the lock file, and finished by the next run.
    fn exchange(&mut self) -> io::Result<()> {
        self.lock.note(&self.folder)?;
        let here = nix::fcntl::AT_FDCWD;
        renameat2(here, &self.folder, here, &self.target, RenameFlags::RENAME_EXCHANGE)?;
        self.lock.finish_replacement(&self.target, self.replace.keep);
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
            && remove(&self.folder, Leftover::Run).is_err()
        {
            tries += 1;
        }
    }
}

/// The folders beside a published one, and what each may hold.
const BESIDE: [(&str, Leftover); 3] =
    [(STAGING, Leftover::Run), (JOURNAL, Leftover::Journal), (CHECKPOINT, Leftover::Checkpoint)];

/// Whether a folder has nothing in it; none if there is no folder.
fn is_empty(folder: &Path) -> Option<bool> {
    fs::read_dir(folder).ok().map(|mut entries| entries.next().is_none())
}

/// Removes what a run that has published left beside its folder, unless another run is at work there.
pub fn tidy(target: &Path, keep: usize) {
    let Ok(target) = target_of(target) else { return };
    let left = BESIDE.map(|(what, _)| what).into_iter().chain([LOCK]);
    if !left.into_iter().any(|what| is_there(&beside(&target, what))) {
        return;
    }
    if let Ok(mut lock) = Lock::claim(&target, "") {
        lock.finish_replacement(&target, keep);
        for (what, kind) in BESIDE {
            if let Err(error) = remove(&beside(&target, what), kind) {
                tracing::warn!("{error}");
            }
        }
    }
}

/// Where the journal of a run is that publishes into a folder.
pub fn journal_of(target: &Path) -> PathBuf {
    let target = resolved(target).unwrap_or_else(|_| target.to_path_buf());
    beside(&target, JOURNAL)
}

/// The place that a job's folder really is.
pub(super) fn target_of(asked: &Path) -> Result<PathBuf> {
    let shown = asked.display().to_string();
    let target = resolved(asked)
        .map_err(|error| Error::output(&shown, format!("cannot be resolved: {error}")))?;
    if target.file_name().and_then(|name| name.to_str()).is_none() {
        let problem = format!("is `{shown}`, expected the path of a folder to make");
        return Err(Error::spec("output.dir", problem));
    }
    if fs::symlink_metadata(asked).is_ok_and(|found| found.is_symlink()) {
        tracing::info!("{shown} is a symbolic link: the folder is {}", target.display());
    }
    Ok(target)
}

/// Writes a file and waits until it is on the disk.
///
/// # Errors
/// When it cannot be written.
pub fn write_synced(path: &Path, content: &[u8]) -> Result<()> {
    let written = fs::write(path, content).and_then(|()| File::open(path)?.sync_all());
    written.map_err(|error| cannot_write(path, error))
}

fn sweep(root: &Path, folder: &Path, keep: &dyn Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if is_real_folder(&path) {
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
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if is_real_folder(&path) {
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

/// Only an earlier run's results, whole and with nothing else beside them, and only if the job says so, are
/// ever replaced. `_SUCCESS` alone says nothing: other programs write it too.
///
/// # Errors
/// When there is something that may not be replaced.
pub fn check_output(asked: &Path, overwrite: bool) -> Result<()> {
    let Some(manifest) = check_foreign(asked)? else { return Ok(()) };
    let shown = asked.display().to_string();
    if !overwrite {
        return Err(Error::spec(shown, "already holds the results of a run").hint(
            "set `output.overwrite = true` to replace them, or choose another `output.dir`",
        ));
    }
    match manifest.first_difference(&target_of(asked)?) {
        None => Ok(()),
        Some(difference) => Err(Error::spec(
            shown,
            format!("is not what its manifest says, and is not replaced: it {difference}"),
        )
        .hint("`overturn verify` lists all differences; move the folder away, or choose another")),
    }
}

/// Refuses a folder that holds anything but a run's results. Gives the manifest of those, if there are any.
///
/// # Errors
/// When it holds something else, or is no folder.
pub fn check_foreign(asked: &Path) -> Result<Option<Manifest>> {
    let (shown, target) = (asked.display().to_string(), target_of(asked)?);
    let empty = match is_empty(&target) {
        Some(empty) => empty,
        None if is_there(&target) => {
            return Err(Error::spec(shown, "exists and is not a folder that can be read"));
        }
        None => return Ok(None),
    };
    if empty {
        return Ok(None);
    }
    let foreign = |reason: String| {
        let problem = format!("holds files that are not the results of a run: {reason}");
        Error::spec(&shown, problem)
            .hint("choose another `output.dir`; nothing but results of overturn is ever replaced")
    };
    let manifest = Manifest::read(&target).map_err(|error| foreign(error.to_string()))?;
    if target.join(SUCCESS_FILE).is_file() {
        Ok(Some(manifest))
    } else {
        Err(foreign(format!("there is no `{SUCCESS_FILE}`")))
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

    const ONCE: Replace = Replace { allowed: false, keep: 1 };
    const AGAIN: Replace = Replace { allowed: true, keep: 1 };

    /// A manifest of a run of this name that lists these files, each as long as its name.
    fn manifest(run: &str, files: &[&str]) -> String {
        let entry = |path: &&str| serde_json::json!({ "path": path, "rows": 0, "bytes": path.len(), "sha256": "" });
        let run = serde_json::json!({ "run_id": run, "fingerprint": run, "inputs": [], "model": "",
            "schema": "", "generator": "", "seed": 0, "device": "" });
        serde_json::json!({ "command": "score", "versions": {}, "run": run, "job": {}, "summary": {},
            "tables": files.iter().map(entry).collect::<Vec<_>>() })
        .to_string()
    }

    /// A run with one file, ready to be published.
    fn staged(target: &Path, run: &str, replace: Replace) -> Staging {
        let staging = Staging::begin(target, replace).expect("begun");
        staging.tables(&["scores"]).expect("made");
        staging.write(&format!("scores/{run}"), &"x".repeat(7 + run.len())).expect("written");
        staging
            .write("manifest.json", &manifest(run, &[&format!("scores/{run}")]))
            .expect("written");
        staging
    }

    fn publish(target: &Path, run: &str, replace: Replace) {
        staged(target, run, replace).publish().expect("published");
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let home = tempfile::tempdir().expect("a folder");
        let target = home.path().join("run");
        let staging = Staging::begin(&target, ONCE).expect("begun");
        staging.tables(&["scores"]).expect("made");
        staging.write("scores/a", "1").expect("written");
        assert!(!target.exists());
        drop(staging);
        assert!(names(home.path()).is_empty(), "nothing is left of an abandoned run");

        let staging = Staging::begin(&target, ONCE).expect("begun");
        staging.tables(&["scores"]).expect("made");
        staging.publish().expect("published");
        assert_eq!(names(home.path()), ["run"]);
        assert_eq!(names(&target), ["_SUCCESS", "scores"]);
    }

    #[test]
    fn results_are_replaced_only_when_asked_and_stay_for_a_while() {
        let home = tempfile::tempdir().expect("a folder");
        let target = home.path().join("run");
        publish(&target, "aa", ONCE);
        let error = Staging::begin(&target, ONCE).expect_err("already there");
        assert!(error.to_string().contains("already holds the results"), "{error}");
        publish(&target, "bb", AGAIN);
        assert_eq!(names(&target.join("scores")), ["bb"]);
        assert_eq!(names(home.path()), [".run.previous-00001-aa", "run"]);
        assert_eq!(names(&home.path().join(".run.previous-00001-aa/scores")), ["aa"]);
        publish(&target, "cc", AGAIN);
        assert_eq!(names(home.path()), [".run.previous-00002-bb", "run"]);
        publish(&target, "dd", Replace { allowed: true, keep: 3 });
        assert_eq!(names(home.path()).len(), 3);
        publish(&target, "ee", Replace { allowed: true, keep: 0 });
        assert_eq!(names(home.path()), ["run"]);
    }

    #[test]
    fn what_is_not_a_whole_run_of_ours_is_never_replaced() {
        let home = tempfile::tempdir().expect("a folder");
        let target = home.path().join("run");
        let refused = |said: &str| {
            let error = Staging::begin(&target, AGAIN).expect_err(said).to_string();
            assert!(error.contains(said), "{said:?} not in {error}");
        };
        fs::create_dir(&target).expect("made");
        fs::write(target.join("_SUCCESS"), "").expect("written");
        fs::write(target.join("part-00000.parquet"), "PAR1").expect("written");
        refused("not the results of a run");
        fs::write(target.join("manifest.json"), "{\"command\": \"run\"}").expect("written");
        refused("not a manifest of overturn");
        fs::remove_dir_all(&target).expect("removed");
        publish(&target, "aa", ONCE);
        fs::write(target.join("scores/notes.txt"), "mine").expect("written");
        refused("holds `scores/notes.txt`");
        fs::remove_file(target.join("scores/notes.txt")).expect("removed");
        fs::write(target.join("scores/aa"), "short").expect("written");
        refused("has `scores/aa` with 5 bytes, expected 9");
        fs::remove_file(target.join("scores/aa")).expect("removed");
        refused("lacks `scores/aa`");
    }

    /// A kill right after old and new were exchanged, and one right before.
    #[test]
    fn a_replacement_that_was_cut_short_is_finished_by_the_next_run() {
        let home = tempfile::tempdir().expect("a folder");
        let (target, hidden) = (home.path().join("run"), home.path().join(".run.staging"));
        let exchange = || {
            let here = nix::fcntl::AT_FDCWD;
            renameat2(here, &hidden, here, &target, RenameFlags::RENAME_EXCHANGE).expect("done");
        };
        for noted in [true, false] {
            publish(&target, "aa", AGAIN);
            let mut staging = staged(&target, "bb", AGAIN);
            staging.write("_SUCCESS", "").expect("written");
            if noted {
                staging.lock.note(&hidden).expect("noted");
            }
            let note = fs::read(home.path().join(".run.lock")).expect("there");
            staging.keep();
            exchange();
            drop(staging);
            fs::write(home.path().join(".run.lock"), &note).expect("as the kill left it");
            assert_eq!(names(&hidden.join("scores")), ["aa"]);
            tidy(&target, 1);
            assert_eq!(names(&target.join("scores")), ["bb"]);
            let left = names(home.path());
            assert!(left.len() == 2 && left[0].ends_with("-aa"), "noted {noted}: {left:?}");
            fs::remove_dir_all(home.path().join(&left[0])).expect("removed");
            fs::remove_dir_all(&target).expect("removed");
        }
        // Killed before the exchange: what is hidden was never published, and is begun anew.
        publish(&target, "aa", ONCE);
        let mut staging = staged(&target, "bb", AGAIN);
        staging.write("_SUCCESS", "").expect("written");
        staging.lock.note(&hidden).expect("noted");
        let note = fs::read(home.path().join(".run.lock")).expect("there");
        staging.keep();
        drop(staging);
        fs::write(home.path().join(".run.lock"), &note).expect("as the kill left it");
        publish(&target, "cc", AGAIN);
        assert_eq!(names(home.path()), [".run.previous-00001-aa", "run"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let home = tempfile::tempdir().expect("a folder");
        let (link, real) = (home.path().join("link"), home.path().join("real"));
        std::os::unix::fs::symlink("real", &link).expect("made");
        // It dangles at first.
        publish(&link, "aa", ONCE);
        publish(&link, "bb", AGAIN);
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(names(&real.join("scores")), ["bb"]);
        assert_eq!(names(home.path()), [".real.previous-00001-aa", "link", "real"]);
        let staging = staged(&link, "cc", AGAIN);
        fs::create_dir(home.path().join("elsewhere")).expect("made");
        fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink("elsewhere", &link).expect("made");
        let error = staging.publish().expect_err("swapped").to_string();
        assert!(error.contains("no longer leads to"), "{error}");
        assert_eq!(names(&real.join("scores")), ["bb"]);
        assert!(names(&home.path().join("elsewhere")).is_empty());
    }

    #[test]
    fn a_failed_run_takes_the_place_of_nothing_but_a_failed_run() {
        let home = tempfile::tempdir().expect("a folder");
        let (target, failed_folder) = (home.path().join("run"), home.path().join("_run.failed"));
        staged(&target, "aa", ONCE).set_aside().expect("set aside");
        staged(&target, "bb", ONCE).set_aside().expect("set aside");
        assert_eq!(names(&failed_folder.join("scores")), ["bb"]);
        fs::remove_dir_all(&failed_folder).expect("removed");
        fs::create_dir(&failed_folder)
            .and_then(|()| fs::write(failed_folder.join("thesis"), "1"))
            .expect("made");
        let error = staged(&target, "cc", ONCE).set_aside().expect_err("foreign").to_string();
        assert!(error.contains("holds `thesis`"), "{error}");
        assert!(
            failed_folder.join("thesis").exists()
                && home.path().join(".run.staging/scores").exists()
        );
    }

    #[test]
    fn two_runs_cannot_write_one_place() {
        let home = tempfile::tempdir().expect("a folder");
        let target = home.path().join("run");
        let _first = Staging::begin(&target, ONCE).expect("begun");
        let error = Staging::begin(&target, ONCE).expect_err("claimed");
        assert!(error.to_string().contains("another run"), "{error}");
    }

    #[test]
    fn what_a_killed_run_left_is_cleared() {
        let home = tempfile::tempdir().expect("a folder");
        let left = home.path().join(".run.staging");
        fs::create_dir_all(left.join("scores"))
            .and_then(|()| fs::write(left.join("scores/half"), ""))
            .expect("made");
        let staging = Staging::begin(&home.path().join("run"), ONCE).expect("begun");
        assert!(names(&left).is_empty());
        drop(staging);
    }
}
