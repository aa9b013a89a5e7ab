//! A table cut into units of work: runs of rows in the table's order, the same whatever the number of
//! threads. Cuts are at row groups where those are small enough, inside them where they are not.

use super::files::SourceFile;
use super::session::Engine;
use super::table::Table;

/// Units of a table, unless a job says otherwise: as many cores have work, a kill costs little, and there are
/// no more files than help anybody.
const UNITS: u64 = 64;
/// Rows of a unit are a multiple of this, two blocks of [`crate::explain::BLOCK_ROWS`]: a smaller unit is not
/// worth a file.
const UNIT_ROWS: u64 = 16_384;

/// A unit of work: some rows of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Number, from 0 in the table's order.
    pub index: usize,
    /// Rows, before any predicate.
    pub rows: u64,
    pub(super) pieces: Vec<Piece>,
}

/// A run of rows of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) file: usize,
    pub(super) first: u64,
    pub(super) rows: u64,
}

impl Engine {
    /// The units of a table, of about so many rows each.
    pub fn units(&self, table: &Table, rows: Option<u64>) -> Vec<Unit> {
        cut(&table.source.files.files, rows.unwrap_or_else(|| usual_rows(table.rows)))
    }
}

/// Rows of a unit of a table of so many.
fn usual_rows(rows: u64) -> u64 {
    rows.div_ceil(UNITS).next_multiple_of(UNIT_ROWS).max(UNIT_ROWS)
}

fn cut(files: &[SourceFile], target: u64) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut open: Vec<Piece> = Vec::new();
    for (file, source) in files.iter().enumerate() {
        let mut first = 0;
        for group in &source.row_groups {
            for rows in shares(group.rows, target) {
                let held: u64 = open.iter().map(|piece| piece.rows).sum();
                // A unit that is at least half full is closed rather than overfilled.
                if held > 0 && held + rows > target && 2 * held >= target {
                    close(&mut units, &mut open);
                }
                extend(&mut open, Piece { file, first, rows });
                first += rows;
            }
        }
    }
    close(&mut units, &mut open);
    units
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
fn extend(open: &mut Vec<Piece>, piece: Piece) {
    match open.last_mut() {
        Some(last) if last.file == piece.file && last.first + last.rows == piece.first => {
            last.rows += piece.rows;
        }
        _ => open.push(piece),
    }
}

fn close(units: &mut Vec<Unit>, open: &mut Vec<Piece>) {
    let pieces = std::mem::take(open);
    let rows = pieces.iter().map(|piece| piece.rows).sum();
    if rows > 0 {
        units.push(Unit { index: units.len(), rows, pieces });
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::test_file;
    use super::*;

    fn sizes(groups: &[&[u64]], target: u64) -> Vec<u64> {
        let files: Vec<SourceFile> = groups.iter().map(|groups| test_file(groups)).collect();
        let units = cut(&files, target);
        let total: u64 = groups.iter().flat_map(|groups| groups.iter()).sum();
        assert_eq!(units.iter().map(|unit| unit.rows).sum::<u64>(), total);
        let mut next: Vec<u64> = vec![0; files.len()];
        for piece in units.iter().flat_map(|unit| &unit.pieces) {
            assert_eq!(piece.first, next[piece.file], "rows are taken in order, each once");
            next[piece.file] += piece.rows;
        }
        units.iter().map(|unit| unit.rows).collect()
    }

    #[test]
    fn large_tables_have_work_for_many_cores_and_small_ones_few_files() {
        assert_eq!([0, 1, 16_385].map(usual_rows), [16_384; 3]);
        assert_eq!(1_000_000u64.div_ceil(usual_rows(1_000_000)), 62);
        assert_eq!((usual_rows(10_000_000), usual_rows(1 << 30)), (163_840, 1 << 24));
    }

    #[test]
    fn units_are_cut_at_row_groups_or_inside_large_ones() {
        assert_eq!(sizes(&[&[100, 100, 100, 100]], 200), [200, 200]);
        assert_eq!(sizes(&[&[1000]], 250), [250, 250, 250, 250]);
        assert_eq!(sizes(&[&[250]], 200), [250]);
        assert_eq!(sizes(&[&[10], &[10], &[10], &[10]], 20), [20, 20]);
        assert_eq!(sizes(&[&[0], &[5], &[0]], 20), [5]);
        assert_eq!(sizes(&[], 20), [0; 0]);
    }
}
