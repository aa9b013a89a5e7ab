//! A version of a table, whatever keeps its versions: columns, files, and the values of their partitions.

use std::path::{Path, PathBuf};

use arrow::array::StringArray;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::FieldRef;

use crate::error::{Error, Fault, Kind, Result};
use crate::storage::is_url;

/// Files with faults that are listed in one error.
const FAULTS_SHOWN: usize = 10;

/// A version of a table.
#[derive(Debug, Clone)]
pub struct VersionedTable {
    /// As the job names it.
    pub shown: String,
    /// The version of a Delta table, or the snapshot of an Iceberg table.
    pub version: u64,
    /// Columns that files hold.
    pub fields: Vec<FieldRef>,
    /// Columns whose values are those of a file's partition.
    pub partitions: Vec<FieldRef>,
    /// In the order of their paths.
    pub files: Vec<VersionedFile>,
    /// What tells columns apart when names change; none where names do.
    pub ids: Option<FieldIds>,
}

/// A file of a version.
#[derive(Debug, Clone)]
pub struct VersionedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its size, by the table's metadata.
    pub bytes: u64,
    /// Values of the partition columns, in their order, as texts.
    pub values: Vec<Option<String>>,
}

/// Numbers of a table's columns.
#[derive(Debug, Clone)]
pub struct FieldIds {
    /// Those of [`VersionedTable::fields`], in their order.
    pub of_fields: Vec<i32>,
    /// Of these, those that some file has for a partition's value only.
    pub partitioned: Vec<i32>,
}

impl VersionedTable {
    /// Every value of a partition must be one of its column's type.
    pub(super) fn check_values(&self) -> Result<()> {
        let mut faults = Vec::new();
        for (index, field) in self.partitions.iter().enumerate() {
            let values = self.files.iter().map(|file| file.values[index].as_deref());
            let values: StringArray = values.collect();
            let options = CastOptions { safe: false, ..CastOptions::default() };
            if let Err(error) = cast_with_options(&values, field.data_type(), &options) {
                let problem = format!(
                    "has a value of the partition column `{}` in its log that is no {}: {error}",
                    field.name(),
                    field.data_type()
                );
                faults.push(Fault::new(&self.shown, problem));
            }
        }
        Error::from_faults(Kind::Input, faults)
    }

    /// Refuses files that the table names and that are not there, or not as large.
    ///
    /// # Errors
    /// The first of them.
    pub fn check_files(&self, kept: &[bool]) -> Result<()> {
        let fault = |file: &VersionedFile| {
            let shown = file.path.display().to_string();
            if is_url(&shown) {
                // Their stores are asked when footers are read.
                return None;
            }
            let version = self.version;
            match std::fs::metadata(&file.path) {
                Ok(found) if found.len() == file.bytes => None,
                Ok(found) => Some(Fault::new(
                    shown,
                    format!(
                        "has {} bytes, expected {} by the table's log",
                        found.len(),
                        file.bytes
                    ),
                )),
                Err(error) => {
                    let fault = Fault::new(
                        shown,
                        format!(
                            "belongs to version {version} of the table, but cannot be read: {error}"
                        ),
                    );
                    Some(fault.hint(match self.ids {
                        None => "`VACUUM` removes files of old versions: read a later one",
                        Some(_) => "snapshots that have expired lose their files: read a later one",
                    }))
                }
            }
        };
        let kept = self.files.iter().zip(kept).filter(|(_, kept)| **kept);
        let faults = kept.filter_map(|(file, _)| fault(file)).take(FAULTS_SHOWN);
        Error::from_faults(Kind::Input, faults.collect())
    }

    /// Holds the columns of a file, with their numbers, against the table's: columns are read by their names, so that one
    /// which was renamed, or dropped and made anew, would be mistaken.
    ///
    /// # Errors
    /// The first column that would be.
    pub fn check_columns(&self, file: &Path, found: &[(&str, Option<i32>)]) -> Result<(), Fault> {
        let Some(ids) = &self.ids else { return Ok(()) };
        let fault = |problem: String| {
            Err(Fault::new(file.display().to_string(), problem).hint(
                "rewrite the table's data files (`rewrite_data_files`), so that they have its present columns",
            ))
        };
        // Files that another program wrote, and that were added as they are, go by names alone.
        if found.iter().all(|(_, id)| id.is_none()) {
            return Ok(());
        }
        for (field, id) in self.fields.iter().zip(&ids.of_fields) {
            let name = field.name();
            let of_name = found.iter().find(|(other, _)| other == name);
            let of_id = found.iter().find(|(_, other)| other == &Some(*id));
            match (of_name, of_id) {
                (Some((_, other)), _) if *other != Some(*id) => {
                    return fault(format!(
                        "has another column `{name}`: it was dropped from the table, and made anew"
                    ));
                }
                (None, Some((other, _))) => {
                    return fault(format!("has the column `{name}` under its old name `{other}`"));
                }
                (None, None) if ids.partitioned.contains(id) => {
                    return fault(format!(
                        "has no column `{name}`, whose value stands in the partition of some files only"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn columns_are_held_against_the_numbers_of_the_table() {
        let field = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
        let table = VersionedTable {
            shown: "t".to_string(),
            version: 1,
            fields: vec![field("a"), field("b")],
            partitions: Vec::new(),
            files: Vec::new(),
            ids: Some(FieldIds { of_fields: vec![1, 2], partitioned: vec![2] }),
        };
        let check = |found: &[(&str, Option<i32>)]| {
            table.check_columns(Path::new("f"), found).map_err(|fault| fault.problem)
        };
        assert_eq!(check(&[("b", Some(2)), ("a", Some(1)), ("c", Some(3))]), Ok(()));
        // A column that was added later is null; one that a partition stands for is not.
        assert_eq!(check(&[("b", Some(2))]), Ok(()));
        // Files of other programs go by their names.
        assert_eq!(check(&[("a", None)]), Ok(()));
        for (found, problem) in [
            (vec![("old", Some(1)), ("b", Some(2))], "the column `a` under its old name `old`"),
            (vec![("a", Some(7)), ("b", Some(2))], "another column `a`"),
            (vec![("a", None), ("b", Some(2))], "another column `a`"),
            (vec![("a", Some(1))], "no column `b`, whose value stands in the partition"),
        ] {
            let refused = check(&found).expect_err(problem);
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
