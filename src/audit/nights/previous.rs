//! The run that another is compared with: published, as it was published, and of the same kind.

use std::path::{Path, PathBuf};

use arrow::datatypes::{Field, FieldRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rayon::prelude::*;
use serde_json::Value;

use super::results::ResultSetup;
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::type_name;
use crate::output::{
    COUNTERFACTUALS, Manifest, PreviousRun, ROW_HASH, SUCCESS_FILE, TableEntry, folder_values,
    manifest_sha256, sha256_while, success_problem,
};

/// The job's key that names it.
const KEY: &str = "audit.previous";

/// A published run to compare with.
#[derive(Debug, Clone)]
pub struct Previous {
    /// Where it is, its name and hash.
    pub run: PreviousRun,
    /// What it was.
    pub manifest: Manifest,
    /// The folder itself, or the copy of one that is in a store.
    pub folder: PathBuf,
}

/// Finds a published run of counterfactuals in a folder, which is called `shown`.
///
/// # Errors
/// When there is none in the folder, or it is not as its manifest says.
pub fn find_run(folder: &Path, shown: &str) -> Result<Previous> {
    let none = |problem: String| {
        Error::input(KEY, format!("is `{shown}`, which {problem}"))
            .hint("name the folder of a published `overturn run`, or leave the key out")
    };
    if !folder.join(SUCCESS_FILE).exists() {
        return Err(none("is not the folder of a published run".to_string()));
    }
    let manifest = Manifest::read(folder)?;
    if manifest.command != "run" && manifest.command != "explain" {
        return Err(none(format!("was made by `{}`: it has no counterfactuals", manifest.command)));
    }
    let changed =
        success_problem(folder, &manifest).map(|problem| format!("{SUCCESS_FILE} {problem}"));
    let changed = changed.or_else(|| manifest.first_difference(folder));
    if let Some(changed) = changed {
        let problem = format!("is `{shown}`, which is not as it was published: {changed}");
        return Err(Error::input(KEY, problem).hint(format!("see `overturn verify {shown}`")));
    }
    let sha256 =
        manifest_sha256(folder).map_err(|error| none(format!("cannot be read: {error}")))?;
    let run_id = manifest.run_id().unwrap_or_default().to_string();
    let run = PreviousRun { path: shown.to_string(), run_id, sha256 };
    Ok(Previous { run, manifest, folder: folder.to_path_buf() })
}

impl Previous {
    /// Its files of counterfactuals.
    pub fn files(&self) -> Vec<String> {
        self.tables().map(|entry| entry.path.clone()).collect()
    }

    fn tables(&self) -> impl Iterator<Item = &TableEntry> {
        let ours = |entry: &&TableEntry| {
            entry.path.strip_prefix(COUNTERFACTUALS).is_some_and(|rest| rest.starts_with('/'))
        };
        self.manifest.tables.iter().filter(ours)
    }

    /// The method that it has published, where it has several.
    pub fn method(&self) -> Option<&str> {
        let methods = self.manifest.summary["methods"].as_array();
        methods.filter(|methods| !methods.is_empty())?;
        self.manifest.summary["method"].as_str()
    }

    /// Rows of them.
    pub fn rows(&self) -> u64 {
        self.tables().map(|entry| entry.rows).fold(0, u64::saturating_add)
    }

    /// Valid counterfactuals in it that were needed, at most.
    pub fn solved(&self) -> u64 {
        let solved = self.manifest.summary["statuses"]["solved"].as_u64();
        solved.unwrap_or(u64::MAX).min(self.rows())
    }

    /// Refuses a run that cannot be compared with one of this job.
    ///
    /// # Errors
    /// All that speaks against it.
    pub fn check(&self, job: &Value, setup: &ResultSetup) -> Result<()> {
        let shown = &self.run.path;
        let mut faults = Vec::new();
        let settings = [
            ("task", "/predictor/task", "the model must have the same task"),
            ("key", "/input/key", "rows are found by their keys"),
            ("target", "/target", "counterfactuals for another target cannot be compared"),
        ];
        for (what, pointer, hint) in settings {
            let (found, expected) = (self.manifest.job.pointer(pointer), job.pointer(pointer));
            if found != expected {
                let solved =
                    |value: Option<&Value>| value.map_or("none".to_string(), Value::to_string);
                let problem = format!(
                    "is `{shown}`, whose {what} is {}, expected {}",
                    solved(found),
                    solved(expected)
                );
                faults.push(Fault::new(KEY, problem).hint(hint));
            }
        }
        if faults.is_empty()
            && let Some(file) = self.tables().next()
        {
            faults = self.column_faults(file, &setup.of(self.method()))?;
        }
        Error::from_faults(Kind::Input, faults)
    }

    /// Columns that are missing or of another type. All files of a run have the same.
    fn column_faults(&self, file: &TableEntry, setup: &ResultSetup) -> Result<Vec<Fault>> {
        let path = self.folder.join(&file.path);
        let unreadable =
            |error| Error::input(path.display().to_string(), "cannot be read").source(error);
        let opened = std::fs::File::open(&path).map_err(parquet::errors::ParquetError::from);
        let reader =
            opened.and_then(ParquetRecordBatchReaderBuilder::try_new).map_err(unreadable)?;
        let (stored, folders) = (reader.schema(), folder_values(&file.path));
        let fault = |field: &FieldRef| {
            let name = field.name();
            let known = stored.field_with_name(name).ok();
            if known.is_none() && folders.iter().any(|(folder, _)| folder == name) {
                return None;
            }
            self.column_fault(field, known)
        };
        Ok(setup.columns().fields().iter().filter_map(fault).collect())
    }

    fn column_fault(&self, field: &Field, found: Option<&Field>) -> Option<Fault> {
        let (shown, name) = (&self.run.path, field.name());
        match found {
            None if name == ROW_HASH || name == "cost" => {
                let version = self.manifest.versions["overturn"].as_str().unwrap_or("unknown");
                let problem = format!(
                    "is `{shown}`, whose counterfactuals lack `{name}`: version {version} did not write it"
                );
                Some(
                    Fault::new(KEY, problem)
                        .hint("compare with a run of this version or a later one"),
                )
            }
            None => {
                let problem =
                    format!("is `{shown}`, whose counterfactuals lack the column `{name}`");
                Some(Fault::new(KEY, problem).hint("both runs must have the same key and features"))
            }
            Some(found) if found.data_type() == field.data_type() => None,
            Some(found) => {
                let problem = format!(
                    "is `{shown}`, whose column `{name}` is {}, expected {}",
                    type_name(found.data_type()),
                    type_name(field.data_type())
                );
                Some(Fault::new(KEY, problem).hint("both runs must have the same column types"))
            }
        }
    }

    /// Refuses counterfactuals that are not those that were published.
    ///
    /// # Errors
    /// Names the first file that was changed.
    pub fn check_files(&self, go_on: &(dyn Fn() -> Result<()> + Sync)) -> Result<()> {
        let tables: Vec<&TableEntry> = self.tables().collect();
        tables.par_iter().try_for_each(|entry| {
            let path = self.folder.join(&entry.path);
            let shown = path.display().to_string();
            let (_, found) = sha256_while(&path, go_on)?
                .map_err(|error| Error::input(&shown, format!("cannot be read: {error}")))?;
            if found == entry.sha256 {
                return Ok(());
            }
            let problem = format!(
                "has the SHA-256 {found}, expected {}: it was changed after it was published",
                entry.sha256
            );
            Err(Error::input(shown, problem)
                .hint(format!("`{KEY}` names its run; see `overturn verify {}`", self.run.path)))
        })
    }
}
