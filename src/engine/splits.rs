//! A table cut into splits: runs of rows in the table's order, the same whatever the number of threads. Cuts are at
//! row groups where those are small enough, inside them where they are not. A split is described by names and numbers
//! alone, so that it can be read wherever its files can be.

use serde::{Deserialize, Serialize};

use super::files::SourceFile;
use super::session::Engine;
use super::table::Table;

/// Splits of a table, unless a job says otherwise: as many cores have work, a kill costs little, and there are
/// no more files than help anybody.
const SPLITS: u64 = 64;
/// Rows of a split are a multiple of this, two blocks of [`crate::explain::BLOCK_ROWS`]: a smaller split is not
/// worth a file.
const SPLIT_ROWS: u64 = 16_384;

/// Some rows of a table, explained, written and journalled as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Number, from 0 in the table's order.
    pub index: usize,
    /// Rows, before any predicate.
    pub rows: u64,
    /// Where they are.
    pub ranges: Vec<FileRange>,
}

/// A run of rows of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRange {
    /// Absolute path, or URL.
    pub file: String,
    /// Size of the file.
    pub bytes: u64,
    /// Rows of the file.
    pub file_rows: u64,
    /// Values of the folders that the file lies in, in the order of the table's columns.
    pub folders: Vec<Option<String>>,
    /// The first row group that has rows of the range.
    pub first_group: u64,
    /// How many have.
    pub groups: u64,
    /// The first row of the range, counted from the start of the file.
    pub first_row: u64,
    /// Rows of the range.
    pub rows: u64,
}

impl Engine {
    /// The splits of a table, of about so many rows each.
    pub fn splits(&self, table: &Table, rows: Option<u64>) -> Vec<Split> {
        cut(&table.source.files.files, rows.unwrap_or_else(|| usual_rows(table.rows)))
    }
}

/// Rows of a split of a table of so many.
fn usual_rows(rows: u64) -> u64 {
    rows.div_ceil(SPLITS).next_multiple_of(SPLIT_ROWS).max(SPLIT_ROWS)
}

fn cut(files: &[SourceFile], target: u64) -> Vec<Split> {
    let mut splits = Vec::new();
    let mut open: Vec<FileRange> = Vec::new();
    for source in files {
        let mut first_row = 0;
        for (group, row_group) in source.row_groups.iter().enumerate() {
            for rows in shares(row_group.rows, target) {
                let held: u64 = open.iter().map(|range| range.rows).sum();
                // A split that is at least half full is closed rather than overfilled.
                if held > 0 && held + rows > target && 2 * held >= target {
                    close(&mut splits, &mut open);
                }
                extend(&mut open, range(source, group as u64, (first_row, rows)));
                first_row += rows;
            }
        }
    }
    close(&mut splits, &mut open);
    splits
}

fn range(source: &SourceFile, group: u64, (first_row, rows): (u64, u64)) -> FileRange {
    FileRange {
        file: source.path.to_string_lossy().into_owned(),
        bytes: source.bytes,
        file_rows: source.rows,
        folders: source.partition_values.clone(),
        first_group: group,
        groups: 1,
        first_row,
        rows,
    }
}

/// A row group in parts of at most about the target.
fn shares(rows: u64, target: u64) -> Vec<u64> {
    let parts = rows.div_ceil(target + target / 4).max(1);
    (0..parts)
        .map(|part| rows * (part + 1) / parts - rows * part / parts)
        .filter(|rows| *rows > 0)
        .collect()
}

/// Neighbouring runs are one.
fn extend(open: &mut Vec<FileRange>, range: FileRange) {
    match open.last_mut() {
        Some(last) if last.file == range.file && last.first_row + last.rows == range.first_row => {
            last.rows += range.rows;
            last.groups = range.first_group + 1 - last.first_group;
        }
        _ => open.push(range),
    }
}

fn close(splits: &mut Vec<Split>, open: &mut Vec<FileRange>) {
    let ranges = std::mem::take(open);
    let rows = ranges.iter().map(|range| range.rows).sum();
    if rows > 0 {
        splits.push(Split { index: splits.len(), rows, ranges });
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::test_file;
    use super::*;

    fn splits(groups: &[&[u64]], target: u64) -> Vec<Split> {
        let named = |(number, groups): (usize, &&[u64])| {
            let mut file = test_file(groups);
            file.path = format!("{number}.parquet").into();
            file
        };
        let files: Vec<SourceFile> = groups.iter().enumerate().map(named).collect();
        cut(&files, target)
    }

    fn sizes(groups: &[&[u64]], target: u64) -> Vec<u64> {
        let splits = splits(groups, target);
        let total: u64 = groups.iter().flat_map(|groups| groups.iter()).sum();
        assert_eq!(splits.iter().map(|split| split.rows).sum::<u64>(), total);
        let mut next = std::collections::BTreeMap::new();
        for range in splits.iter().flat_map(|split| &split.ranges) {
            let next = next.entry(range.file.clone()).or_insert(0);
            assert_eq!(range.first_row, *next, "rows are taken in order, each once");
            *next += range.rows;
        }
        splits.iter().map(|split| split.rows).collect()
    }

    #[test]
    fn large_tables_have_work_for_many_cores_and_small_ones_few_files() {
        assert_eq!([0, 1, 16_385].map(usual_rows), [16_384; 3]);
        assert_eq!(1_000_000u64.div_ceil(usual_rows(1_000_000)), 62);
        assert_eq!((usual_rows(10_000_000), usual_rows(1 << 30)), (163_840, 1 << 24));
    }

    #[test]
    fn splits_are_cut_at_row_groups_or_inside_large_ones() {
        assert_eq!(sizes(&[&[100, 100, 100, 100]], 200), [200, 200]);
        assert_eq!(sizes(&[&[1000]], 250), [250, 250, 250, 250]);
        assert_eq!(sizes(&[&[250]], 200), [250]);
        assert_eq!(sizes(&[&[10], &[10], &[10], &[10]], 20), [20, 20]);
        assert_eq!(sizes(&[&[0], &[5], &[0]], 20), [5]);
        assert_eq!(sizes(&[], 20), [0; 0]);
    }

    #[test]
    fn a_split_says_which_row_groups_it_reads() {
        let groups = |splits: &[Split]| -> Vec<Vec<(u64, u64)>> {
            let of = |split: &Split| {
                split.ranges.iter().map(|range| (range.first_group, range.groups)).collect()
            };
            splits.iter().map(of).collect()
        };
        let whole = splits(&[&[100, 100, 100, 100]], 200);
        assert_eq!(groups(&whole), [[(0, 2)], [(2, 2)]]);
        let parts = splits(&[&[100, 1000]], 500);
        assert_eq!(groups(&parts), [vec![(0, 2)], vec![(1, 1)]]);
        let files = splits(&[&[10], &[10, 10]], 40);
        assert_eq!(groups(&files), [[(0, 1), (0, 2)]]);
    }
}
