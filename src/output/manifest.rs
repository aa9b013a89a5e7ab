//! What a run was and what it wrote, as JSON beside its tables. A manifest that is read is data from outside:
//! bounded in size, its paths inside the folder, its types checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::paths::is_inside;
use super::tables::{GENERATOR, MANIFEST_FILE, SUCCESS_FILE};
use super::writer::StagedFile;
use crate::document::read_unlinked;
use crate::error::{Error, Result};

/// Commands that publish folders; `report` publishes that of the run it belongs to.
const COMMANDS: [&str; 4] = ["run", "explain", "train", "score"];

/// Bytes of a manifest, at most: about 300,000 files.
const MOST_BYTES: u64 = 64 << 20;

/// Folders in folders, at most: tables have one level for each of `output.partition_by`.
const MOST_LEVELS: usize = 32;

/// The version that gave runs of `train` and `score` no identity, and listed no generator files.
const WITHOUT_IDENTITY: &str = "0.1.0";

/// The format that is written. Since the second, `_SUCCESS` holds the SHA-256 of the manifest.
pub const MANIFEST_FORMAT: u32 = 2;

/// The content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of what follows; 1 in manifests of version 0.1.0, which do not name it.
    #[serde(default = "first_format")]
    pub format: u32,
    /// The command that made the run.
    pub command: String,
    /// Versions of this program and of what it stands on.
    pub versions: Value,
    /// What the run worked on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunProvenance>,
    /// The job as resolved.
    pub job: Value,
    /// Counts and timings, as in the summary.
    pub summary: Value,
    /// Every table, file by file.
    pub tables: Vec<TableEntry>,
    /// The files of the generator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generator: Vec<FileEntry>,
    /// Pages for people, made of the tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<FileEntry>,
}

fn first_format() -> u32 {
    1
}

/// What a run worked on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunProvenance {
    /// Name of the run: the same for the same work.
    pub run_id: String,
    /// SHA-256 of all that follows and of the job's settings: equal for runs that give the same tables.
    pub fingerprint: String,
    /// Files of the feature table and the score table.
    pub inputs: Vec<InputFile>,
    /// Versions of those that are Delta tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<TableVersion>,
    /// SHA-256 of the model's file, or of the command that runs it.
    pub model: String,
    /// The same of the models of `robust.models`, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub robust: Vec<String>,
    /// SHA-256 of the feature schema.
    pub schema: String,
    /// SHA-256 of the generator's weights; empty before it is trained.
    pub generator: String,
    /// Seed of the random streams.
    pub seed: u64,
    /// Where tensors were.
    pub device: String,
    /// The run that this one is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousRun>,
}

/// An earlier run, as it was when another was compared with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousRun {
    /// Absolute path of its folder.
    pub path: String,
    /// Its name.
    pub run_id: String,
    /// SHA-256 of its manifest.
    pub sha256: String,
}

/// The version of a Delta table that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableVersion {
    /// `features` or `scores`.
    pub name: String,
    /// Where the table is.
    pub table: String,
    /// Its version.
    pub version: u64,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Absolute path, or URL.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// Nanoseconds of its modification time since 1970.
    pub modified: u64,
    /// Rows, by its footer.
    pub rows: u64,
    /// SHA-256 of the content; empty in manifests of version 0.1.0, and for objects of a store.
    #[serde(default)]
    pub sha256: String,
    /// What a store changes with the content; none for files of a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// One file of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    /// Path relative to the manifest.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// Size.
    pub bytes: u64,
    /// SHA-256 of the content.
    pub sha256: String,
}

/// A file that is no table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path relative to the manifest.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256 of the content.
    pub sha256: String,
}

impl From<StagedFile> for TableEntry {
    fn from(file: StagedFile) -> Self {
        TableEntry { path: file.name, rows: file.rows, bytes: file.bytes, sha256: file.sha256 }
    }
}

impl From<TableEntry> for StagedFile {
    fn from(file: TableEntry) -> Self {
        StagedFile { name: file.path, rows: file.rows, bytes: file.bytes, sha256: file.sha256 }
    }
}

impl Manifest {
    /// Its text.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub fn text(&self) -> Result<String> {
        let broken = |error| Error::internal("manifest", "has no JSON").source(error);
        serde_json::to_string_pretty(self).map_err(broken)
    }

    /// Reads a manifest's text; `shown` is how messages call the file.
    ///
    /// # Errors
    /// When it is no manifest of this program, or names files outside of its folder or twice.
    pub fn parse(text: &str, shown: &str) -> Result<Manifest> {
        if text.len() as u64 > MOST_BYTES {
            return Err(Error::input(shown, format!("has more than {MOST_BYTES} bytes")));
        }
        let manifest: Manifest = serde_json::from_str(text).map_err(|error| {
            Error::input(shown, format!("is not a manifest of overturn: {error}"))
                .hint("it may have been cut short, or belong to another program")
        })?;
        manifest.check(shown)?;
        Ok(manifest)
    }

    /// Reads the manifest of a folder.
    ///
    /// # Errors
    /// When there is none that is a regular file, or as for [`Manifest::parse`].
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(MANIFEST_FILE);
        let shown = path.display().to_string();
        let content = read_unlinked(&path, MOST_BYTES)
            .map_err(|error| Error::input(&shown, format!("cannot be read: {error}")))?;
        let text = std::str::from_utf8(&content)
            .map_err(|error| Error::input(&shown, format!("is not text: {error}")))?;
        Manifest::parse(text, &shown)
    }

    fn check(&self, shown: &str) -> Result<()> {
        if self.format > MANIFEST_FORMAT {
            let problem = format!("has format {}, expected at most {MANIFEST_FORMAT}", self.format);
            return Err(Error::input(shown, problem)
                .hint("a newer version of overturn has written it: use that one"));
        }
        if !COMMANDS.contains(&self.command.as_str()) {
            let problem =
                format!("names the command `{}`, expected one of {COMMANDS:?}", self.command);
            return Err(Error::input(shown, problem));
        }
        if self.run.is_none() && self.versions["overturn"] != WITHOUT_IDENTITY {
            return Err(Error::input(shown, "names no run, expected `run.run_id`"));
        }
        let named = |id: &str| !id.is_empty() && id.len() <= 64 && id.bytes().all(is_hex);
        if self.run.as_ref().is_some_and(|run| !named(&run.run_id)) {
            return Err(Error::input(shown, "has a run id that is not hexadecimal digits"));
        }
        let mut seen = BTreeSet::new();
        for (path, _, _) in self.files() {
            if !is_inside(path) || path == MANIFEST_FILE || path == SUCCESS_FILE {
                let problem = format!("lists `{path}`, expected a path inside the folder");
                return Err(Error::input(shown, problem));
            }
            if !seen.insert(path) {
                return Err(Error::input(shown, format!("lists `{path}` twice")));
            }
        }
        Ok(())
    }

    /// Name of the run; none for `train` and `score` of version 0.1.0.
    pub fn run_id(&self) -> Option<&str> {
        self.run.as_ref().map(|run| run.run_id.as_str())
    }

    /// Path, size and SHA-256 of every file listed.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        let tables =
            self.tables.iter().map(|file| (file.path.as_str(), file.bytes, file.sha256.as_str()));
        let others = self.generator.iter().chain(&self.pages);
        tables.chain(others.map(|file| (file.path.as_str(), file.bytes, file.sha256.as_str())))
    }

    /// Whether a file that the manifest does not list belongs to the run all the same.
    pub fn expects(&self, name: &str) -> bool {
        let generator = self.generator.is_empty() && self.versions["overturn"] == WITHOUT_IDENTITY;
        let of_generator = name.strip_prefix(GENERATOR).is_some_and(|rest| rest.starts_with('/'));
        name == MANIFEST_FILE || name == SUCCESS_FILE || (generator && of_generator)
    }

    /// In what a folder is not what the manifest says, by names and sizes alone: the first difference.
    pub fn first_difference(&self, folder: &Path) -> Option<String> {
        let found = match list(folder) {
            Ok(found) => found,
            Err(error) => return Some(error.to_string()),
        };
        let listed: BTreeMap<&str, u64> =
            self.files().map(|(path, bytes, _)| (path, bytes)).collect();
        for (path, bytes) in &listed {
            match found.get(*path) {
                None => return Some(format!("lacks `{path}`")),
                Some(FolderEntry::File(size)) if size == bytes => {}
                Some(FolderEntry::File(size)) => {
                    return Some(format!("has `{path}` with {size} bytes, expected {bytes}"));
                }
                Some(FolderEntry::Other) => return Some(format!("has `{path}`, which is no file")),
            }
        }
        let foreign = |(name, found): &(&String, &FolderEntry)| {
            **found == FolderEntry::Other
                || !(listed.contains_key(name.as_str()) || self.expects(name))
        };
        let (name, _) = found.iter().find(foreign)?;
        Some(format!("holds `{name}`, which its manifest does not list"))
    }
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

/// What a name in a folder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderEntry {
    /// A regular file of so many bytes.
    File(u64),
    /// A symbolic link, device, socket or FIFO: nothing that a run writes.
    Other,
}

/// Everything below a folder that is no folder itself, by its path from there. Links are not followed.
///
/// # Errors
/// When a folder cannot be read, or they are too deep.
pub fn list(folder: &Path) -> std::io::Result<BTreeMap<String, FolderEntry>> {
    let mut found = BTreeMap::new();
    walk(folder, "", MOST_LEVELS, &mut found)?;
    Ok(found)
}

fn walk(
    folder: &Path,
    prefix: &str,
    levels: usize,
    found: &mut BTreeMap<String, FolderEntry>,
) -> std::io::Result<()> {
    if levels == 0 {
        return Err(std::io::Error::other(format!("`{prefix}` has too many levels")));
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let metadata = fs::symlink_metadata(entry.path())?;
        if metadata.is_dir() {
            walk(&entry.path(), &format!("{name}/"), levels - 1, found)?;
        } else {
            let file = metadata.is_file();
            found.insert(
                name,
                if file { FolderEntry::File(metadata.len()) } else { FolderEntry::Other },
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole() -> Value {
        json!({
            "command": "score", "versions": { "overturn": "0.2.0" },
            "run": { "run_id": "00ff", "fingerprint": "00ff00", "inputs": [], "model": "", "schema": "",
                "generator": "", "seed": 0, "device": "cpu" },
            "job": {}, "summary": {},
            "tables": [{ "path": "scores/a", "rows": 1, "bytes": 3, "sha256": "x" }],
        })
    }

    fn refused(change: impl FnOnce(&mut Value)) -> String {
        let mut value = whole();
        change(&mut value);
        Manifest::parse(&value.to_string(), "m").expect_err("refused").to_string()
    }

    #[test]
    fn manifests_of_others_and_damaged_ones_are_refused() {
        let text = whole().to_string();
        assert_eq!(Manifest::parse(&text, "m").expect("whole").run_id(), Some("00ff"));
        for length in 0..text.len() {
            assert!(Manifest::parse(&text[..length], "m").is_err(), "cut at {length}");
        }
        let path = |value: &mut Value, path: &str| value["tables"][0]["path"] = json!(path);
        assert!(refused(|value| value["command"] = json!("rm")).contains("expected one of"));
        assert!(refused(|value| value["run"] = Value::Null).contains("names no run"));
        assert!(refused(|value| value["run"]["run_id"] = json!("../x")).contains("hexadecimal"));
        assert!(refused(|value| path(value, "/etc/passwd")).contains("inside the folder"));
        assert!(refused(|value| path(value, "a/../../b")).contains("inside the folder"));
        assert!(refused(|value| path(value, "_SUCCESS")).contains("inside the folder"));
        let twice = |value: &mut Value| {
            let entry = value["tables"][0].clone();
            value["tables"].as_array_mut().expect("a list").push(entry);
        };
        assert!(refused(twice).contains("twice"));
        assert!(refused(|value| value["tables"] = json!(3)).contains("not a manifest"));
        assert!(
            refused(|value| value["tables"][0]["bytes"] = json!(-1)).contains("not a manifest")
        );
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Manifest::parse(&deep, "m").is_err());
    }

    #[test]
    fn a_folder_that_is_not_what_its_manifest_says() {
        let home = tempfile::tempdir().expect("a folder");
        let manifest = Manifest::parse(&whole().to_string(), "m").expect("whole");
        fs::create_dir(home.path().join("scores")).expect("made");
        let difference = || manifest.first_difference(home.path()).unwrap_or_default();
        assert!(difference().contains("lacks `scores/a`"));
        fs::write(home.path().join("scores/a"), "1").expect("written");
        assert!(difference().contains("1 bytes, expected 3"));
        fs::write(home.path().join("scores/a"), "123").expect("written");
        assert_eq!(difference(), "");
        fs::write(home.path().join("scores/b"), "").expect("written");
        assert!(difference().contains("holds `scores/b`"));
    }
}
