//! The part of a table that one unit of work writes: one file, or one in each hive-style folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};

use super::tables::part_name;
use super::writer::{StagedFile, TableWriter, WriterOptions};
use crate::error::{Error, Result};

/// Folders that one unit may write to: more are a mistake, and as many files are open at once.
const MOST_FOLDERS: usize = 256;

/// What hive calls a null.
const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// Writes one unit's part of a table.
#[derive(Debug)]
pub struct PartWriter {
    folder: PathBuf,
    table: String,
    part: usize,
    schema: SchemaRef,
    /// Places of the columns that become folders.
    by: Vec<usize>,
    /// Places of the others.
    rest: Vec<usize>,
    options: WriterOptions,
    files: BTreeMap<String, TableWriter>,
}

impl PartWriter {
    /// A writer for part `part` of a table below `folder`.
    ///
    /// # Errors
    /// When a column that is to become folders is not one of the table's.
    pub fn new(
        folder: PathBuf,
        (table, part): (&str, usize),
        schema: &SchemaRef,
        by: &[String],
        options: &WriterOptions,
    ) -> Result<PartWriter> {
        let place = |name: &String| {
            schema.index_of(name).map_err(|_| {
                let known: Vec<&str> =
                    schema.fields().iter().map(|field| field.name().as_str()).collect();
                let problem = format!("names `{name}`, expected one of {}", known.join(", "));
                Error::spec("output.partition_by", problem)
            })
        };
        let by: Vec<usize> = by.iter().map(place).collect::<Result<_>>()?;
        let rest = (0..schema.fields().len()).filter(|place| !by.contains(place)).collect();
        Ok(PartWriter {
            folder,
            table: table.to_string(),
            part,
            schema: Arc::clone(schema),
            by,
            rest,
            options: options.clone(),
            files: BTreeMap::new(),
        })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if self.by.is_empty() {
            return self.file(String::new())?.write(batch);
        }
        let lost = |error| Error::internal("partitions", "rows cannot be taken").source(error);
        for (folder, rows) in self.folders(batch)? {
            let rows = take_record_batch(batch, &UInt32Array::from(rows)).map_err(lost)?;
            let rows = rows.project(&self.rest).map_err(lost)?;
            self.file(folder)?.write(&rows)?;
        }
        Ok(())
    }

    /// Finishes and syncs the files, in the order of their names.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn close(self) -> Result<Vec<StagedFile>> {
        self.files.into_values().map(TableWriter::close).collect()
    }

    fn file(&mut self, folder: String) -> Result<&mut TableWriter> {
        if !self.files.contains_key(&folder) {
            if self.files.len() == MOST_FOLDERS {
                let problem = format!("gives more than {MOST_FOLDERS} folders");
                return Err(Error::spec("output.partition_by", problem)
                    .hint("name columns with few values, such as `target` or `status`"));
            }
            let writer = self.create(&folder)?;
            self.files.insert(folder.clone(), writer);
        }
        self.files.get_mut(&folder).ok_or_else(|| Error::internal("partitions", "a file is lost"))
    }

    fn create(&self, folder: &str) -> Result<TableWriter> {
        let table = format!("{}{folder}", self.table);
        let path = self.folder.join(&table);
        // The table's own folder is there: a straggler must not bring an abandoned run back.
        if !folder.is_empty() && self.folder.join(&self.table).is_dir() {
            fs::create_dir_all(&path).map_err(|error| {
                Error::output(path.display().to_string(), "cannot be created").source(error)
            })?;
        }
        let name = part_name(&table, self.part);
        let fields: Vec<_> =
            self.rest.iter().map(|place| Arc::clone(&self.schema.fields()[*place])).collect();
        let schema = if self.by.is_empty() {
            Arc::clone(&self.schema)
        } else {
            Arc::new(Schema::new(fields))
        };
        TableWriter::create(self.folder.join(&name), name, schema, &self.options)
    }

    /// Rows by the folder they belong to, such as `/target=approved/status=unsolved`.
    fn folders(&self, batch: &RecordBatch) -> Result<BTreeMap<String, Vec<u32>>> {
        let texts = |place: &usize| -> Result<(String, ArrayRef)> {
            let name = self.schema.field(*place).name();
            let column = cast(batch.column(*place), &DataType::Utf8).map_err(|error| {
                let problem = format!("names `{name}`, whose values have no text");
                Error::spec("output.partition_by", problem).source(error)
            })?;
            Ok((name.clone(), column))
        };
        let columns: Vec<(String, ArrayRef)> = self.by.iter().map(texts).collect::<Result<_>>()?;
        let mut folders: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for row in 0..batch.num_rows() {
            let folder: String = columns
                .iter()
                .map(|(name, column)| format!("/{}={}", escaped(name), value(column, row)))
                .collect();
            folders.entry(folder).or_default().push(row as u32);
        }
        Ok(folders)
    }
}

fn value(column: &ArrayRef, row: usize) -> String {
    let texts = column.as_string::<i32>();
    match texts.is_valid(row) {
        true if !texts.value(row).is_empty() => escaped(texts.value(row)),
        _ => NULL_FOLDER.to_string(),
    }
}

/// What the `name=value` folders of a path stand for; no value is a null.
pub fn folder_values(path: &str) -> Vec<(String, Option<String>)> {
    let pair = |folder: &str| {
        let (name, value) = folder.split_once('=')?;
        let value = (value != NULL_FOLDER).then(|| unescaped(value));
        Some((unescaped(name), value))
    };
    path.split('/').filter_map(pair).collect()
}

/// A folder's name without escapes.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let code =
            text.get(index + 1..index + 3).and_then(|code| u8::from_str_radix(code, 16).ok());
        match (bytes[index], code) {
            (b'%', Some(code)) => {
                decoded.push(code);
                index += 3;
            }
            (byte, _) => {
                decoded.push(byte);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// What a folder name cannot hold, as `%XX`.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~+ ".contains(&byte);
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            escaped.push(byte as char);
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_give_back_what_they_were_made_of() {
        for text in ["approved", "São Paulo", "a/b=c%", "2026-11-16", "50 %"] {
            let path = format!("t/{}={}/part-00000.parquet", escaped("k=y"), escaped(text));
            assert_eq!(folder_values(&path), [("k=y".to_string(), Some(text.to_string()))]);
        }
        assert_eq!(folder_values(&format!("t/k={NULL_FOLDER}/x")), [("k".to_string(), None)]);
    }
}
