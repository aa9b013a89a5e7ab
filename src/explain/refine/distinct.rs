//! Several answers to one row stay different ones: where refinement makes two alike, the later one goes back
//! to what the generator proposed, or is not given.

use hashbrown::HashSet;
use xxhash_rust::xxh3::Xxh3;

use super::{Outcomes, Spare};
use crate::feature::{Cells, Rows};
use crate::metrics::{Source, Status};

impl Outcomes {
    /// Which entries have an answer that none before them has for the same row and wish.
    pub(in crate::explain) fn distinct(&mut self, draws: &[u32]) -> Vec<bool> {
        let Some(spare) = self.spare.take() else { return vec![true; draws.len()] };
        let mut seen = HashSet::new();
        let mut kept = Vec::with_capacity(draws.len());
        for (entry, draw) in draws.iter().enumerate() {
            if *draw == 0 {
                seen.clear();
            }
            let mut new = seen.insert(hash_of(&self.rows, entry));
            if !new && spare.valid[entry] && seen.insert(hash_of(&spare.rows, entry)) {
                self.stand_in(&spare, entry);
                new = true;
            }
            kept.push(new);
        }
        kept
    }

    fn stand_in(&mut self, spare: &Spare, entry: usize) {
        for feature in 0..self.rows.cells.len() {
            self.rows.set(feature, entry, spare.rows.cell(feature, entry));
        }
        let place = entry as u32;
        self.scores.put(&[place], &spare.scores.take(&[place]));
        self.margins[entry] = spare.margins[entry];
        (self.valid[entry], self.status[entry]) = (true, Status::Solved);
        self.source[entry] = Some(Source::Generator);
    }
}

/// A hash of all values of a row.
pub(in crate::explain) fn hash_of(rows: &Rows, row: usize) -> u128 {
    let mut hash = Xxh3::new();
    for cells in &rows.cells {
        match cells {
            Cells::Numbers(numbers) => hash.update(&numbers[row].to_le_bytes()),
            Cells::Codes(codes) => hash.update(&codes[row].to_le_bytes()),
        }
    }
    hash.digest128()
}
