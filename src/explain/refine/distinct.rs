//! Several counterfactuals to one row stay different ones: where refinement makes two alike, the later one goes back
//! to what the generator proposed, or is not given.

use hashbrown::HashSet;
use xxhash_rust::xxh3::Xxh3;

use super::{Fallback, Outcomes};
use crate::feature::{Cells, Rows};
use crate::metrics::Status;

impl Outcomes {
    /// Which requests have a counterfactual that none before them has for the same row and target.
    pub(in crate::explain) fn distinct(&mut self, draws: &[u32]) -> Vec<bool> {
        let Some(fallback) = self.fallback.take() else { return vec![true; draws.len()] };
        let mut seen = HashSet::new();
        let mut kept = Vec::with_capacity(draws.len());
        for (request, draw) in draws.iter().enumerate() {
            if *draw == 0 {
                seen.clear();
            }
            let mut new = seen.insert(hash_of(&self.rows, request));
            if !new && fallback.valid[request] && seen.insert(hash_of(&fallback.rows, request)) {
                self.stand_in(&fallback, request);
                new = true;
            }
            kept.push(new);
        }
        kept
    }

    fn stand_in(&mut self, fallback: &Fallback, request: usize) {
        for feature in 0..self.rows.cells.len() {
            self.rows.set(feature, request, fallback.rows.cell(feature, request));
        }
        let index = request as u32;
        self.scores.put(&[index], &fallback.scores.take(&[index]));
        let finding = &mut self.findings[request];
        finding.margin = fallback.margins[request];
        (finding.robust, finding.robustness_cost) = (fallback.robust[request], None);
        (finding.valid, finding.status) = (true, Status::Solved);
        finding.source = Some(fallback.source);
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
