//! The part of a table that one split writes: one file, or one in each hive-style folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};

use super::folders::folder_name;
use super::tables::{COUNTERFACTUALS, further_part_name, part_name};
use super::writer::{StagedFile, TableWriter, WriterOptions};
use crate::error::{Error, Fault, Kind, Result};

/// Files that one split has open at once. Where its rows go to more folders, all are finished and further ones
/// begun, so that a folder may have several.
const OPEN_FILES: usize = 256;

/// Where and how the files of a run's tables are written.
#[derive(Debug, Clone)]
pub struct TableFiles {
    /// The run's folder, which has a folder for each table.
    pub folder: PathBuf,
    /// How each file is written.
    pub options: WriterOptions,
    /// Columns of the counterfactual table that become folders.
    pub partition_by: Vec<String>,
}

impl TableFiles {
    /// A writer for a split's part of a table.
    ///
    /// # Errors
    /// When a column that is to become folders is not one of the table's.
    pub fn writer(&self, table: &str, split: usize, schema: &SchemaRef) -> Result<PartWriter> {
        let by = if table == COUNTERFACTUALS { &self.partition_by[..] } else { &[] };
        let index = |name: &String| {
            schema.index_of(name).map_err(|_| {
                let known: Vec<&str> =
                    schema.fields().iter().map(|field| field.name().as_str()).collect();
                let problem = format!("names `{name}`, expected one of {}", known.join(", "));
                Error::spec("output.partition_by", problem)
            })
        };
        let by: Vec<usize> = by.iter().map(index).collect::<Result<_>>()?;
        let rest = (0..schema.fields().len()).filter(|index| !by.contains(index)).collect();
        Ok(PartWriter {
            folder: self.folder.clone(),
            table: table.to_string(),
            part: split,
            schema: Arc::clone(schema),
            by,
            rest,
            options: self.options.clone(),
            files: BTreeMap::new(),
            finished: Vec::new(),
            rounds: 0,
        })
    }
}

/// Writes one split's part of a table.
#[derive(Debug)]
pub struct PartWriter {
    folder: PathBuf,
    table: String,
    part: usize,
    schema: SchemaRef,
    /// Indexes of the columns that become folders.
    by: Vec<usize>,
    /// Indexes of the others.
    rest: Vec<usize>,
    options: WriterOptions,
    files: BTreeMap<String, TableWriter>,
    finished: Vec<StagedFile>,
    /// Times that all files were finished and further ones begun.
    rounds: usize,
}

impl PartWriter {
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

    /// Bytes that wait to be written.
    pub fn memory(&self) -> usize {
        self.files.values().map(TableWriter::memory).sum()
    }

    /// Finishes and syncs the files, in the order of their names.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn close(mut self) -> Result<Vec<StagedFile>> {
        self.finish()?;
        self.finished.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(self.finished)
    }

    fn finish(&mut self) -> Result<()> {
        for writer in std::mem::take(&mut self.files).into_values() {
            self.finished.push(writer.close()?);
        }
        Ok(())
    }

    fn file(&mut self, folder: String) -> Result<&mut TableWriter> {
        if !self.files.contains_key(&folder) {
            if self.files.len() == OPEN_FILES {
                self.finish()?;
                self.rounds += 1;
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
        let name = match self.rounds {
            0 => part_name(&table, self.part),
            round => further_part_name(&table, self.part, round),
        };
        let fields: Vec<_> = self
            .rest
            .iter()
            .map(|column_index| Arc::clone(&self.schema.fields()[*column_index]))
            .collect();
        let schema = if self.by.is_empty() {
            Arc::clone(&self.schema)
        } else {
            Arc::new(Schema::new(fields))
        };
        TableWriter::create(self.folder.join(&name), name, schema, &self.options)
    }

    /// Rows by the folder they belong to, such as `/target=approved/status=unsolved`.
    fn folders(&self, batch: &RecordBatch) -> Result<BTreeMap<String, Vec<u32>>> {
        let texts = |column_index: &usize| -> Result<(String, ArrayRef)> {
            let name = self.schema.field(*column_index).name();
            let column = cast(batch.column(*column_index), &DataType::Utf8).map_err(|error| {
                let problem = format!("names `{name}`, whose values have no text");
                Error::spec("output.partition_by", problem).source(error)
            })?;
            Ok((name.clone(), column))
        };
        let columns: Vec<(String, ArrayRef)> = self.by.iter().map(texts).collect::<Result<_>>()?;
        let mut folders: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for row in 0..batch.num_rows() {
            let mut folder = String::new();
            for (name, column) in &columns {
                let texts = column.as_string::<i32>();
                let value = texts.is_valid(row).then(|| texts.value(row));
                folder.push('/');
                folder.push_str(&folder_name(name, value).or_else(refused)?);
            }
            folders.entry(folder).or_default().push(row as u32);
        }
        Ok(folders)
    }
}

/// Such values are looked for before anything long starts; none should come here.
fn refused(fault: Fault) -> Result<String> {
    Error::from_faults(Kind::Input, vec![fault])?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn more_folders_than_files_may_be_open() {
        let home = tempfile::tempdir().expect("a folder");
        fs::create_dir(home.path().join(COUNTERFACTUALS)).expect("made");
        let fields =
            vec![Field::new("k", DataType::Utf8, true), Field::new("v", DataType::Int64, true)];
        let schema = Arc::new(Schema::new(fields));
        let options = WriterOptions { row_group_rows: 10, metadata: Vec::new() };
        let (folder, partition_by) = (home.path().to_path_buf(), vec!["k".to_string()]);
        let files = TableFiles { folder, options, partition_by };
        let mut writer = files.writer(COUNTERFACTUALS, 7, &schema).expect("a writer");
        let keys: Vec<String> = (0..600).map(|row| (row % 300).to_string()).collect();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(StringArray::from(keys)), Arc::new(Int64Array::from_iter_values(0..600))];
        let batch = RecordBatch::try_new(schema, columns).expect("fits");
        writer.write(&batch.slice(0, 300)).expect("written");
        writer.write(&batch.slice(300, 300)).expect("written");
        let files = writer.close().expect("closed");
        assert_eq!(files.iter().map(|file| file.rows).sum::<u64>(), 600);
        assert!(files.iter().all(|file| crate::output::is_part(&file.name, 7)), "{files:?}");
        let names: std::collections::BTreeSet<&str> =
            files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names.len(), files.len());
        assert!(files.iter().all(|file| home.path().join(&file.name).exists()));
    }
}
