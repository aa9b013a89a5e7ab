//! 10: a sample of rows to be looked up, where the job allows it, and how to look up any other.

use std::fs::File;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::super::blocks::{Block, GridBlock};
use super::super::words::{clipped, count, counted, number};
use super::SectionInput;
use crate::error::{Error, Result};
use crate::metrics::Status;
use crate::output::{COUNTERFACTUALS, FolderEntry, GENERATOR, METHOD, folder_values, list};

/// Characters of a cell, at most.
const CELL_CHARS: usize = 160;
/// Bytes of all cells together, at most: the page stays below 1 MB.
const MOST_BYTES: usize = 300_000;
/// Columns beside the key; of a decision's two names the one that the table has.
const COLUMNS: [&str; 5] = ["target", "original_class", "original_value", "status", "cost"];

pub(super) fn blocks(source: &SectionInput<'_>) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    if source.context.page_rows == 0 {
        let text = "No rows are on this page: they are data of persons (audit.page.rows is 0). Every row is in the \
                    run's tables.";
        blocks.push(Block::Text(text.to_string()));
    } else {
        let grid = sample(source)?;
        let text = format!(
            "The first {} that were refused, with what would have changed the decision. They are data of persons: \
             who gets this page gets them.",
            counted(grid.rows.len() as u64, "row")
        );
        blocks.push(Block::Text(text));
        blocks.push(Block::Lookup(grid));
    }
    let key = source.context.key.iter().map(|name| format!("{} = …", identifier(name)));
    let target = source.data.targets().first().copied().unwrap_or("TARGET");
    let predicate = key.collect::<Vec<_>>().join(" AND ");
    blocks.push(Block::Command {
        what: "Any row, from the run's folder:".to_string(),
        text: format!(
            "duckdb -c \"FROM '{COUNTERFACTUALS}/**/*.parquet' WHERE {}\"",
            quoted(&predicate)
        ),
    });
    blocks.push(Block::Command {
        what: "Rows that were not in the run, with the same generator (columns as in the input):".to_string(),
        text: format!(
            "overturn sql \"SELECT counterfactual('{}') FROM new_rows\" --generator {GENERATOR} --job JOB \
             --table new_rows=TABLE",
            quoted(&target.replace('\'', "''"))
        ),
    });
    Ok(blocks)
}

/// A column's name in SQL, with quotes only where it needs them.
fn identifier(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if plain && starts { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A text inside the double quotes of a shell.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$").replace('`', "\\`")
}

/// The first refused rows of the counterfactual table, in the order of its files.
fn sample(source: &SectionInput<'_>) -> Result<GridBlock> {
    let folder = source.folder.join(COUNTERFACTUALS);
    let unreadable =
        |error| Error::input(folder.display().to_string(), "cannot be read").source(error);
    let files = list(&folder).map_err(unreadable)?;
    let mut sample = LookupRows {
        most: usize::try_from(source.context.page_rows).unwrap_or(usize::MAX),
        bytes: 0,
        grid: GridBlock::default(),
        key: &source.context.key,
        method: source.context.published.as_deref(),
    };
    for (name, found) in &files {
        let table = matches!(found, FolderEntry::File(_)) && name.ends_with(".parquet");
        if table && !sample.is_full() {
            sample.read(&folder, name)?;
        }
    }
    let mut grid = GridBlock::new(
        "Rows to look up",
        &["Key", "Target", "Decision", "Status", "#Cost", "Changes"],
    );
    grid.rows = sample.grid.rows;
    if grid.rows.len() < sample.most && sample.bytes >= MOST_BYTES {
        grid.more = format!(
            "Of the {} that audit.page.rows asks for these are as many as the page has room for.",
            count(sample.most as u64)
        );
    }
    Ok(grid)
}

/// Rows as far as they have been gathered.
struct LookupRows<'a> {
    most: usize,
    bytes: usize,
    grid: GridBlock,
    key: &'a [String],
    /// The published method, where the run has several.
    method: Option<&'a str>,
}

impl LookupRows<'_> {
    fn is_full(&self) -> bool {
        self.grid.rows.len() >= self.most || self.bytes >= MOST_BYTES
    }

    fn read(&mut self, folder: &Path, name: &str) -> Result<()> {
        let shown = folder.join(name).display().to_string();
        let unreadable = |error| Error::input(&shown, "cannot be read").source(error);
        let file = File::open(folder.join(name)).map_err(parquet::errors::ParquetError::from);
        let builder =
            file.and_then(ParquetRecordBatchReaderBuilder::try_new).map_err(unreadable)?;
        let reader = builder.with_batch_size(1024).build().map_err(unreadable)?;
        for batch in reader {
            let batch =
                batch.map_err(|error| Error::input(&shown, "cannot be read").source(error))?;
            let columns = LookupColumns::of(&batch, &format!("{COUNTERFACTUALS}/{name}"));
            for row in 0..batch.num_rows() {
                if self.is_full() {
                    return Ok(());
                }
                let other = self.method.is_some_and(|of| columns.text(METHOD, row) != of);
                if !other && columns.is_wanted(row) {
                    self.add(&columns, row);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, columns: &LookupColumns<'_>, row: usize) {
        let key: Vec<String> = self.key.iter().map(|name| columns.text(name, row)).collect();
        let [target, class, value, status, cost] = COLUMNS.map(|name| columns.text(name, row));
        let decision = if class.is_empty() { value } else { class };
        let cost = cost.parse().map_or(cost, number);
        let cells = [key.join(" · "), target, decision, status, cost, columns.changes(row)];
        let cells = cells.map(|cell| clipped(&cell, CELL_CHARS));
        self.bytes += cells.iter().map(String::len).sum::<usize>();
        self.grid.row(cells);
    }
}

/// The columns of a batch, those too that have become folders.
struct LookupColumns<'a> {
    batch: &'a RecordBatch,
    folders: Vec<(String, Option<String>)>,
}

impl<'a> LookupColumns<'a> {
    fn of(batch: &'a RecordBatch, name: &str) -> LookupColumns<'a> {
        LookupColumns { batch, folders: folder_values(name) }
    }

    fn text(&self, name: &str, row: usize) -> String {
        match self.batch.column_by_name(name) {
            Some(column) => cell(column, row),
            None => {
                let found = self.folders.iter().find(|(folder, _)| folder == name);
                found.and_then(|(_, value)| value.clone()).unwrap_or_default()
            }
        }
    }

    /// Whether it is the first counterfactual for a row that needs one.
    fn is_wanted(&self, row: usize) -> bool {
        self.text("sample", row) == "0" && self.text("status", row) != Status::AlreadyTarget.name()
    }

    fn changes(&self, row: usize) -> String {
        let Some(list) =
            self.batch.column_by_name("changes").and_then(|of| of.as_list_opt::<i32>())
        else {
            return String::new();
        };
        let items = list.value(row);
        let Some(items) = items.as_struct_opt() else { return String::new() };
        let change = |index: usize| {
            let part =
                |name| items.column_by_name(name).map_or(String::new(), |of| cell(of, index));
            format!("{}: {} → {}", part("feature"), part("from"), part("to"))
        };
        (0..items.len()).map(change).collect::<Vec<_>>().join("; ")
    }
}

fn cell(column: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::default();
    ArrayFormatter::try_new(column, &options).map_or(String::new(), |of| of.value(row).to_string())
}
