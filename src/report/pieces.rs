//! The written files of a split side by side with the rows of the input that they counterfactual. Both are in the
//! input's order, in each file for itself, so that neither has to be held in memory as a whole.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::compare;
use super::count::{CountSinks, Counter, taken};
use super::input::InputRows;
use super::written::{WrittenRows, read};
use crate::error::{Error, Result};

/// Rows of one file that are about rows of one batch of the input.
pub struct Piece {
    pub(super) file: Arc<str>,
    /// Index of each in the file.
    pub(super) indexes: Vec<usize>,
    pub(super) batch: RecordBatch,
    hashes: Vec<u128>,
    /// The row of the input that each counterfactuals.
    pub(super) rows: Vec<u32>,
}

impl Piece {
    /// The rows.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Hashes of their keys.
    pub fn hashes(&self) -> &[u128] {
        &self.hashes
    }

    /// The row of the input's batch that each counterfactuals.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Some of its rows.
    pub(super) fn some(&self, rows: &[u32]) -> Result<Piece> {
        Ok(Piece {
            file: Arc::clone(&self.file),
            indexes: rows.iter().map(|row| self.indexes[*row as usize]).collect(),
            batch: taken(&self.batch, rows)?,
            hashes: self.hashes_of(rows),
            rows: rows.iter().map(|row| self.rows[*row as usize]).collect(),
        })
    }

    pub(super) fn hashes_of(&self, indexes: &[u32]) -> Vec<u128> {
        indexes.iter().map(|index| self.hashes[*index as usize]).collect()
    }
}

/// Files of one split of the counterfactual table, which are read together.
pub struct SplitReader {
    cursors: Vec<Cursor>,
}

struct Cursor {
    file: Arc<str>,
    batches: WrittenRows,
    /// What is left of the block that was read last, with hashes of keys; none at the end.
    block: Option<(RecordBatch, Vec<u128>)>,
    /// Index of its first row in the file.
    first: usize,
}

impl SplitReader {
    /// Opens files, by their paths in the run's folder.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn open(counter: &Counter, folder: &Path, files: &[String]) -> Result<SplitReader> {
        let open = |name: &String| {
            let batches = read(folder, name, &counter.columns)?;
            let mut cursor = Cursor { file: name.as_str().into(), batches, block: None, first: 0 };
            cursor.refill(counter)?;
            Ok(cursor)
        };
        Ok(SplitReader { cursors: files.iter().map(open).collect::<Result<_>>()? })
    }

    /// Counts the counterfactuals about the next rows of the input.
    ///
    /// # Errors
    /// When they are not counterfactuals of this run.
    pub fn count(
        &mut self,
        counter: &Counter,
        input: &InputRows,
        counts: CountSinks<'_>,
    ) -> Result<()> {
        let pieces = self.all_pieces(counter, input)?;
        compare::count(counter, input, &pieces, counts)
    }

    /// The published method's counterfactuals of the next rows of the input.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn pieces(&mut self, counter: &Counter, input: &InputRows) -> Result<Vec<Piece>> {
        let pieces = self.all_pieces(counter, input)?;
        if counter.methods().len() > 1 {
            compare::of_method(counter, &pieces, 0)
        } else {
            Ok(pieces)
        }
    }

    fn all_pieces(&mut self, counter: &Counter, input: &InputRows) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        for cursor in &mut self.cursors {
            cursor.matching(counter, input, &mut pieces)?;
        }
        Ok(pieces)
    }

    /// Whether every counterfactual belonged to a row.
    ///
    /// # Errors
    /// Names a file in which one did not.
    pub fn finish(self) -> Result<()> {
        match self.cursors.iter().find(|cursor| cursor.block.is_some()) {
            None => Ok(()),
            Some(cursor) => {
                let problem = format!("lacks rows that `{}` explains", cursor.file);
                Err(Error::input("features", problem)
                    .hint("the feature table has changed since the run; run the job again"))
            }
        }
    }
}

impl Cursor {
    /// Takes the next rows, as long as they counterfactual rows of this batch of the input.
    fn matching(
        &mut self,
        counter: &Counter,
        input: &InputRows,
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        while let Some((batch, hashes)) = &mut self.block {
            let answered = hashes.iter().map_while(|hash| input.index.get(hash).copied());
            let rows: Vec<u32> = answered.collect();
            let (taken, left) = (rows.len(), hashes.len() - rows.len());
            if taken > 0 {
                let later = hashes.split_off(taken);
                pieces.push(Piece {
                    file: Arc::clone(&self.file),
                    indexes: (self.first..self.first + taken).collect(),
                    batch: batch.slice(0, taken),
                    hashes: std::mem::replace(hashes, later),
                    rows,
                });
                *batch = batch.slice(taken, left);
                self.first += taken;
            }
            if left > 0 {
                return Ok(());
            }
            self.refill(counter)?;
        }
        Ok(())
    }

    /// Reads the next block that has rows.
    fn refill(&mut self, counter: &Counter) -> Result<()> {
        self.block = None;
        for batch in self.batches.by_ref() {
            let batch = batch?;
            if batch.num_rows() > 0 {
                let hashes = counter.hashes(&batch)?;
                self.block = Some((batch, hashes));
                break;
            }
        }
        Ok(())
    }
}
