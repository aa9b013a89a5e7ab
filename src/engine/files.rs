//! Which files a table is made of: a path, URL, folder, glob or hive-partitioned folder, expanded, with every
//! footer read. A file that is missing or broken is found here, before anything long starts.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::schema::types::TypePtr;
use rayon::prelude::*;

use super::object_files::{self, TableStore};
use crate::document::odd_kind;
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::type_name;
use crate::output::folder_values;
use crate::storage::{Listed, Stores, is_url};
use crate::table::{VersionedFile, VersionedTable};

/// File name endings taken for Parquet inside a folder.
pub(super) const ENDINGS: [&str; 3] = ["parquet", "parq", "pq"];

/// What a folder of files is expected to have.
pub(super) const FOLDER_HINT: &str =
    "files must end in .parquet; names that start with `_` or `.` are skipped";

/// Broken files listed in one error.
const FAULTS_SHOWN: usize = 10;

/// All files of a table.
#[derive(Debug, Clone)]
pub struct SourceFiles {
    /// In the order in which they are read: sorted by path.
    pub files: Vec<SourceFile>,
    /// Columns stored in the files, merged.
    pub file_schema: SchemaRef,
    /// Columns taken from hive-style folder names.
    pub partition_fields: Vec<Arc<Field>>,
    /// Where they are read; none for files of this machine.
    pub(super) store: Option<TableStore>,
}

/// One Parquet file.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Absolute path, or URL.
    pub path: PathBuf,
    /// Size.
    pub bytes: u64,
    /// What a store changes with the content; none for files of this machine.
    pub etag: Option<String>,
    /// Nanoseconds of its modification time since 1970; 0 where that is not known, or an ETag is.
    pub modified: u64,
    /// Rows, by its footer.
    pub rows: u64,
    /// Row groups in order.
    pub row_groups: Vec<RowGroup>,
    /// Values of the partition fields, in their order.
    pub partition_values: Vec<Option<String>>,
    schema: SchemaRef,
    /// Numbers that an Iceberg table gives its columns, in their order; empty where no column has one.
    field_ids: Vec<Option<i32>>,
    partition: Vec<(String, Option<String>)>,
}

/// One row group: its rows, and a byte that is inside it.
#[derive(Debug, Clone, Copy)]
pub struct RowGroup {
    /// Rows.
    pub rows: u64,
    /// Where its first page starts.
    pub start: u64,
}

impl SourceFiles {
    /// Rows of all files.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Finds the files behind paths, URLs and globs and reads their footers.
    pub fn find(paths: &[String], stores: &Stores) -> Result<SourceFiles> {
        let (read, store) = if paths.iter().any(|path| is_url(path)) {
            let (read, store) = object_files::find(paths, stores)?;
            (read, Some(store))
        } else {
            (read_footers(paths)?, None)
        };
        let (files, mut faults): (Vec<_>, Vec<_>) = read.into_iter().partition(Result::is_ok);
        faults.truncate(FAULTS_SHOWN);
        Error::from_faults(Kind::Input, faults.into_iter().filter_map(Result::err).collect())?;
        let files: Vec<SourceFile> = files.into_iter().flatten().collect();
        let file_schema = merge_schemas(&files)?;
        warn_of_gaps(&files, &file_schema);
        let partition_fields = partition_fields(&files, &file_schema)?;
        Ok(SourceFiles { files: with_values(files), file_schema, partition_fields, store })
    }
}

/// The files behind paths and globs of this machine, with their footers.
fn read_footers(paths: &[String]) -> Result<Vec<Result<SourceFile, Fault>>> {
    let mut found = Vec::new();
    for path in paths {
        found.extend(expand(path)?);
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    found.dedup_by(|left, right| left.path == right.path);
    Ok(found.par_iter().map(read_footer).collect())
}

impl SourceFile {
    /// An object of a table, by its URL: its footer, and values of its folders.
    pub(super) fn of_object(
        object: &Listed,
        shown: String,
        footer: &ArrowReaderMetadata,
        partition: Vec<(String, Option<String>)>,
    ) -> SourceFile {
        let row_groups: Vec<RowGroup> =
            footer.metadata().row_groups().iter().map(row_group).collect();
        SourceFile {
            path: PathBuf::from(shown),
            bytes: object.bytes,
            etag: object.etag.clone(),
            // Where nothing else tells contents apart.
            modified: if object.etag.is_some() { 0 } else { object.modified.unsigned_abs() },
            rows: row_groups.iter().map(|group| group.rows).sum(),
            row_groups,
            partition_values: Vec::new(),
            schema: Arc::clone(footer.schema()),
            field_ids: field_ids(footer),
            partition,
        }
    }

    /// The same file; where it has the schema of the file before, as files of a table have, it is kept once.
    pub(super) fn sharing(mut self, last: &mut Option<SchemaRef>) -> SourceFile {
        match last {
            Some(schema) if *schema == self.schema => self.schema = Arc::clone(schema),
            _ => *last = Some(Arc::clone(&self.schema)),
        }
        self
    }

    /// Its columns with their numbers.
    fn numbered_columns(&self) -> Vec<(&str, Option<i32>)> {
        let ids = self.field_ids.iter().copied().chain(std::iter::repeat(None));
        self.schema.fields().iter().map(|field| field.name().as_str()).zip(ids).collect()
    }
}

/// The numbers of a file's columns, if they have any.
fn field_ids(footer: &ArrowReaderMetadata) -> Vec<Option<i32>> {
    let root = footer.metadata().file_metadata().schema();
    let id = |column: &TypePtr| {
        let info = column.get_basic_info();
        info.has_id().then(|| info.id())
    };
    let ids: Vec<Option<i32>> = root.get_fields().iter().map(id).collect();
    if ids.iter().all(Option::is_none) { Vec::new() } else { ids }
}

impl SourceFiles {
    /// The files of a version of a table that are read, with the table's own types.
    ///
    /// # Errors
    /// When a file is missing or broken, or has other columns than the table.
    pub fn of_version(
        table: &VersionedTable,
        kept: &[bool],
        stores: &Stores,
    ) -> Result<SourceFiles> {
        table.check_files(kept)?;
        let kept: Vec<&VersionedFile> =
            table.files.iter().zip(kept).filter(|(_, kept)| **kept).map(|(file, _)| file).collect();
        let shown = |file: &VersionedFile| file.path.display().to_string();
        let (read, store) = if kept.first().is_some_and(|file| is_url(&shown(file))) {
            let urls: Vec<String> = kept.iter().map(|file| shown(file)).collect();
            let (read, store) = object_files::find(&urls, stores)?;
            (read, Some(store))
        } else {
            let found = kept.par_iter().map(|file| {
                let (path, root) = (file.path.clone(), file.path.clone());
                read_footer(&ListedFile { path, root })
            });
            (found.collect(), None)
        };
        let known: HashMap<&Path, &VersionedFile> =
            kept.iter().map(|file| (file.path.as_path(), *file)).collect();
        let with_values = |file: SourceFile| {
            table.check_columns(&file.path, &file.numbered_columns())?;
            let Some(of_table) = known.get(file.path.as_path()) else {
                let shown = file.path.display().to_string();
                return Err(Fault::new(shown, "has another name in the table's metadata"));
            };
            Ok(SourceFile { partition_values: of_table.values.clone(), ..file })
        };
        let checked = read.into_iter().map(|file| file.and_then(with_values));
        let (files, mut faults): (Vec<_>, Vec<_>) = checked.partition(Result::is_ok);
        faults.truncate(FAULTS_SHOWN);
        Error::from_faults(Kind::Input, faults.into_iter().filter_map(Result::err).collect())?;
        Ok(SourceFiles {
            files: files.into_iter().flatten().collect(),
            file_schema: Arc::new(Schema::new(table.fields.clone())),
            partition_fields: table.partitions.clone(),
            store,
        })
    }
}

/// A file, and the folder from which its hive partitions are counted.
struct ListedFile {
    path: PathBuf,
    root: PathBuf,
}

fn expand(text: &str) -> Result<Vec<ListedFile>> {
    let path = Path::new(text);
    let found = if path.is_dir() {
        let mut found = Vec::new();
        walk(path, path, &mut found)?;
        found
    } else if path.exists() {
        let root = named(path.parent().unwrap_or(path));
        vec![ListedFile { path: path.to_path_buf(), root: root.to_path_buf() }]
    } else if text.contains(['*', '?', '[']) {
        expand_glob(text)?
    } else {
        return Err(missing(text));
    };
    if found.is_empty() {
        let files = std::fs::read_dir(path).into_iter().flatten().flatten().map(|file| file.path());
        let hint = files
            .filter(|file| text_format(file).is_some())
            .min()
            .map_or(FOLDER_HINT.to_string(), |file| conversion(&file));
        return Err(Error::input(text, "holds no Parquet file").hint(hint));
    }
    found.into_iter().map(absolute).collect()
}

/// Paths of a job are absolute when they come here: a relative one is from the command line.
fn missing(text: &str) -> Error {
    let hint = if Path::new(text).is_absolute() {
        "in a job file, relative paths start from its folder"
    } else {
        "relative paths start from the current folder"
    };
    Error::input(text, "does not exist, expected a Parquet file, a folder or a glob").hint(hint)
}

/// The current folder has no name as the parent of a bare file name, and cannot be resolved without one.
fn named(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn absolute(found: ListedFile) -> Result<ListedFile> {
    let resolve = |path: &Path| {
        path.canonicalize().map_err(|error| {
            Error::input(path.display().to_string(), "cannot be read").source(error)
        })
    };
    Ok(ListedFile { path: resolve(&found.path)?, root: resolve(&found.root)? })
}

fn walk(folder: &Path, root: &Path, found: &mut Vec<ListedFile>) -> Result<()> {
    let unreadable = |error: std::io::Error| {
        Error::input(folder.display().to_string(), "cannot be read").source(error)
    };
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let parquet = path.extension().and_then(|ending| ending.to_str());
        if is_hidden(&path) {
            continue;
        } else if path.is_dir() {
            walk(&path, root, found)?;
        } else if parquet.is_some_and(|ending| ENDINGS.contains(&ending)) {
            found.push(ListedFile { path, root: root.to_path_buf() });
        }
    }
    Ok(())
}

/// What writers leave for themselves is not part of a table.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| matches!(name.as_encoded_bytes().first(), Some(b'_' | b'.')))
}

fn expand_glob(text: &str) -> Result<Vec<ListedFile>> {
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
    let paths = glob::glob_with(text, options)
        .map_err(|error| Error::input(text, "is not a valid glob").source(error))?;
    let fixed: PathBuf =
        Path::new(text).components().take_while(|part| !is_pattern(part)).collect();
    let root = named(&fixed);
    let mut found = Vec::new();
    for path in paths {
        let path = path.map_err(|error| Error::input(text, "cannot be read").source(error))?;
        if path.is_dir() {
            walk(&path, root, &mut found)?;
        } else if !is_hidden(&path) {
            found.push(ListedFile { path, root: root.to_path_buf() });
        }
    }
    Ok(found)
}

fn is_pattern(part: &Component) -> bool {
    part.as_os_str().to_str().is_some_and(|part| part.contains(['*', '?', '[']))
}

fn read_footer(found: &ListedFile) -> Result<SourceFile, Fault> {
    let shown = found.path.display().to_string();
    // A pipe would be waited for without end.
    let kind = std::fs::metadata(&found.path).ok().and_then(|metadata| odd_kind(&metadata));
    if let Some(kind) = kind {
        return Err(Fault::new(&shown, format!("is {kind}, expected a Parquet file")));
    }
    let file = File::open(&found.path)
        .map_err(|error| Fault::new(&shown, format!("cannot be read: {error}")))?;
    let metadata = file.metadata().ok();
    let bytes = metadata.as_ref().map_or(0, std::fs::Metadata::len);
    let modified = metadata.and_then(|data| data.modified().ok()).and_then(since_1970);
    let footer = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(|error| {
        if let Some(format) = text_format(&found.path) {
            return Fault::new(&shown, format!("is {format}, expected Parquet"))
                .hint(conversion(&found.path));
        }
        Fault::new(&shown, format!("is not a whole Parquet file ({bytes} bytes): {error}"))
            .hint("it may have been cut short, or is still being written")
    })?;
    if let Some(name) = repeated_column(footer.schema()) {
        let problem = format!("has two columns `{name}`, expected every name once");
        return Err(
            Fault::new(&shown, problem).hint("write it again with one of them renamed or left out")
        );
    }
    let row_groups: Vec<RowGroup> = footer.metadata().row_groups().iter().map(row_group).collect();
    Ok(SourceFile {
        bytes,
        etag: None,
        modified: modified.unwrap_or(0),
        rows: row_groups.iter().map(|group| group.rows).sum(),
        row_groups,
        partition_values: Vec::new(),
        schema: Arc::clone(footer.schema()),
        field_ids: field_ids(&footer),
        partition: hive_partition(&found.path, &found.root),
        path: found.path.clone(),
    })
}

/// Which common text format a file has, by its name.
fn text_format(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    match ending.as_str() {
        "csv" | "tsv" => Some("a CSV file"),
        "json" | "jsonl" | "ndjson" => Some("a JSON file"),
        _ => None,
    }
}

/// The command that makes Parquet of a text file.
fn conversion(path: &Path) -> String {
    let to = path.with_extension("parquet");
    format!("convert it: duckdb -c \"COPY (FROM '{}') TO '{}'\"", path.display(), to.display())
}

/// A name that two columns have: which of them is meant, nobody can say.
pub(super) fn repeated_column(schema: &Schema) -> Option<&str> {
    let mut seen = HashSet::with_capacity(schema.fields().len());
    schema.fields().iter().map(|field| field.name().as_str()).find(|name| !seen.insert(*name))
}

/// Nanoseconds since 1970.
pub fn since_1970(time: std::time::SystemTime) -> Option<u64> {
    Some(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos() as u64)
}

fn row_group(group: &parquet::file::metadata::RowGroupMetaData) -> RowGroup {
    let start = group
        .columns()
        .iter()
        .map(|column| column.dictionary_page_offset().unwrap_or(column.data_page_offset()));
    RowGroup { rows: group.num_rows() as u64, start: start.min().unwrap_or(0) as u64 }
}

/// `name=value` folders between the root and the file; no value is a null.
fn hive_partition(path: &Path, root: &Path) -> Vec<(String, Option<String>)> {
    let folders = path.strip_prefix(root).ok().and_then(Path::parent);
    folders.and_then(Path::to_str).map_or(Vec::new(), folder_values)
}

/// One schema for all files; a column that some files lack is null there.
fn merge_schemas(files: &[SourceFile]) -> Result<SchemaRef> {
    let mut fields: Vec<Arc<Field>> = Vec::new();
    let mut owners: Vec<&Path> = Vec::new();
    let mut faults = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for file in files {
        for field in file.schema.fields() {
            match known.get(field.name().as_str()).copied() {
                None => {
                    known.insert(field.name(), fields.len());
                    fields.push(Arc::new(field.as_ref().clone().with_nullable(true)));
                    owners.push(&file.path);
                }
                Some(index) if fields[index].data_type() != field.data_type() => {
                    faults.push(type_conflict(field, file, &fields[index], owners[index]));
                }
                Some(_) => {}
            }
        }
    }
    faults.truncate(FAULTS_SHOWN);
    Error::from_faults(Kind::Input, faults)?;
    Ok(Arc::new(Schema::new(fields)))
}

/// Says which columns some files lack: that may be meant, or a slip of whoever wrote them.
fn warn_of_gaps(files: &[SourceFile], merged: &Schema) {
    // Where every file has as many columns as all together, none lacks any.
    let complete = |file: &SourceFile| file.schema.fields().len() == merged.fields().len();
    if files.iter().filter(|file| file.rows > 0).all(complete) {
        return;
    }
    for field in merged.fields() {
        let name = field.name();
        let lacks = |file: &&SourceFile| file.schema.column_with_name(name).is_none();
        let mut lacking = files.iter().filter(|file| file.rows > 0).filter(lacks);
        if let Some(first) = lacking.next() {
            let files = 1 + lacking.count();
            let first = first.path.display();
            tracing::warn!(files, %first, "column `{name}` is missing in some files, and null there");
        }
    }
}

fn type_conflict(field: &Field, file: &SourceFile, first: &Field, owner: &Path) -> Fault {
    let (name, found) = (field.name(), type_name(field.data_type()));
    let expected = type_name(first.data_type());
    let problem = format!("column `{name}` is {found}, but {expected} in `{}`", owner.display());
    Fault::new(file.path.display().to_string(), problem)
        .hint("the files of a table must agree; rewrite one of them with a cast")
}

/// Partition columns, whole numbers where all values are.
fn partition_fields(files: &[SourceFile], file_schema: &Schema) -> Result<Vec<Arc<Field>>> {
    let names = |file: &SourceFile| -> Vec<String> {
        file.partition.iter().map(|(name, _)| name.clone()).collect()
    };
    let Some(first) = files.first() else { return Ok(Vec::new()) };
    let expected = names(first);
    if let Some(other) = files.iter().find(|file| names(file) != expected) {
        let problem = format!("lies in folders {:?}, expected {expected:?}", names(other));
        return Err(Error::input(other.path.display().to_string(), problem)
            .hint("all files of a hive-partitioned table need the same `name=value` folders"));
    }
    let stored = |name: &String| file_schema.column_with_name(name).is_some();
    let fields = expected.iter().enumerate().filter(|(_, name)| !stored(name));
    let whole = |index: usize| {
        files.iter().all(|file| {
            file.partition[index].1.as_ref().is_none_or(|value| {
                value.parse::<i64>().is_ok_and(|number| number.to_string() == *value)
            })
        })
    };
    let kind = |index| if whole(index) { DataType::Int64 } else { DataType::Utf8 };
    Ok(fields.map(|(index, name)| Arc::new(Field::new(name, kind(index), true))).collect())
}

fn with_values(mut files: Vec<SourceFile>) -> Vec<SourceFile> {
    for file in &mut files {
        let stored = |name: &String| file.schema.column_with_name(name).is_some();
        let values = file.partition.iter().filter(|(name, _)| !stored(name));
        file.partition_values = values.map(|(_, value)| value.clone()).collect();
    }
    files
}

/// A file of row groups of these sizes, for tests of what is made of files.
#[cfg(test)]
pub(super) fn test_file(groups: &[u64]) -> SourceFile {
    SourceFile {
        path: PathBuf::new(),
        bytes: 0,
        etag: None,
        modified: 0,
        rows: groups.iter().sum(),
        row_groups: groups.iter().map(|rows| RowGroup { rows: *rows, start: 0 }).collect(),
        partition_values: Vec::new(),
        schema: Arc::new(Schema::empty()),
        field_ids: Vec::new(),
        partition: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hive_folders_are_read_from_the_root_on() {
        let found = hive_partition(
            Path::new(
                "/a=0/t/day=2026-11-16/city=S%C3%A3o%20Paulo/k=__HIVE_DEFAULT_PARTITION__/x.parquet",
            ),
            Path::new("/a=0/t"),
        );
        let expected = [("day", Some("2026-11-16")), ("city", Some("São Paulo")), ("k", None)];
        let owned =
            |(name, value): (&str, Option<&str>)| (name.to_string(), value.map(String::from));
        assert_eq!(found, expected.map(owned));
    }

    #[test]
    fn a_missing_path_is_named() {
        let find = |path: &str| SourceFiles::find(&[path.to_string()], &Stores::default());
        let error = find("/nowhere/t.parquet").expect_err("missing");
        assert!(error.to_string().contains("/nowhere/t.parquet: does not exist"), "{error}");
        assert!(error.to_string().contains("in a job file"), "{error}");
        let error = find("nowhere.parquet").expect_err("missing");
        assert!(error.to_string().contains("start from the current folder"), "{error}");
    }

    #[test]
    fn a_name_of_two_columns_is_found() {
        let schema = |names: [&str; 3]| {
            Schema::new(names.map(|name| Field::new(name, DataType::Int64, true)).to_vec())
        };
        assert_eq!(repeated_column(&schema(["x", "y", "x"])), Some("x"));
        assert_eq!(repeated_column(&schema(["x", "y", "X"])), None);
    }
}
