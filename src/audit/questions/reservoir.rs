//! The rows of a table that come first in an order of their keys' hashes: the same rows however the table is read.

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;

use crate::error::{Error, Result};

/// Where a row stands in the order, and which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// What counts before the hash; 0 where the hash alone does.
    pub rank: u64,
    /// Hash of the key.
    pub hash: u128,
    /// Number of the target.
    pub target: u32,
}

/// The first rows of those that were offered, at most so many.
#[derive(Debug, Clone)]
pub(super) struct Reservoir {
    most: usize,
    kept: Vec<Kept>,
    batches: Vec<RecordBatch>,
    /// Later rows than this need not be offered.
    last: Option<Ticket>,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    ticket: Ticket,
    batch: usize,
    row: usize,
}

impl Reservoir {
    /// None yet, and at most so many.
    pub(super) fn new(most: usize) -> Reservoir {
        Reservoir { most, kept: Vec::new(), batches: Vec::new(), last: None }
    }

    /// Whether a row would be kept.
    pub(super) fn wants(&self, ticket: &Ticket) -> bool {
        self.most > 0 && self.last.is_none_or(|last| *ticket < last)
    }

    /// Keeps rows of a batch, by their positions in it.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub(super) fn offer(&mut self, batch: &RecordBatch, rows: &[(Ticket, usize)]) -> Result<()> {
        let taken = rows.iter().filter(|(ticket, _)| self.wants(ticket));
        let index = self.batches.len();
        let taken = taken.map(|(ticket, row)| Kept { ticket: *ticket, batch: index, row: *row });
        let taken: Vec<Kept> = taken.collect();
        if taken.is_empty() {
            return Ok(());
        }
        self.batches.push(batch.clone());
        self.kept.extend(taken);
        // Seldom enough to cost nothing, often enough that batches do not pile up.
        let long = self.kept.len() >= 2 * self.most + 1024;
        if long || self.batches.len() > 64 { self.prune(self.most) } else { Ok(()) }
    }

    /// Keeps the rows of another one, too.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub(super) fn merge(&mut self, other: Reservoir) -> Result<()> {
        let first = self.batches.len();
        self.batches.extend(other.batches);
        let moved = other.kept.into_iter().map(|kept| Kept { batch: kept.batch + first, ..kept });
        self.kept.extend(moved);
        self.prune(self.most)
    }

    /// Keeps at most so many from now on.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub(super) fn prune(&mut self, most: usize) -> Result<()> {
        self.most = self.most.min(most);
        self.kept.sort_unstable_by_key(|kept| kept.ticket);
        self.kept.truncate(self.most);
        if self.kept.len() == self.most {
            self.last = self.kept.last().map(|kept| kept.ticket);
        }
        let batch = self.gathered()?;
        self.batches = batch.into_iter().collect();
        let moved = self.kept.iter_mut().enumerate();
        moved.for_each(|(row, kept)| (kept.batch, kept.row) = (0, row));
        Ok(())
    }

    fn gathered(&self) -> Result<Option<RecordBatch>> {
        if self.kept.is_empty() {
            return Ok(None);
        }
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let places: Vec<(usize, usize)> =
            self.kept.iter().map(|kept| (kept.batch, kept.row)).collect();
        let gathered = interleave_record_batch(&batches, &places);
        gathered.map(Some).map_err(|error| {
            Error::internal("sample", "rows of one table have other columns").source(error)
        })
    }

    /// The rows in their order; no batch without any.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub(super) fn finish(mut self) -> Result<(Vec<Ticket>, Option<RecordBatch>)> {
        self.prune(self.most)?;
        let tickets = self.kept.iter().map(|kept| kept.ticket).collect();
        Ok((tickets, self.batches.pop()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, UInt64Array};
    use arrow::datatypes::UInt64Type;
    use proptest::prelude::*;

    use super::*;

    fn batch(hashes: &[u64]) -> RecordBatch {
        let column: ArrayRef = Arc::new(UInt64Array::from(hashes.to_vec()));
        RecordBatch::try_from_iter([("hash", column)]).expect("a batch")
    }

    fn offer(into: &mut Reservoir, hashes: &[u64]) {
        let ticket = |hash: &u64| Ticket { rank: 0, hash: u128::from(*hash), target: 0 };
        let rows: Vec<(Ticket, usize)> = hashes.iter().map(ticket).zip(0..).collect();
        into.offer(&batch(hashes), &rows).expect("rows");
    }

    fn found(of: Reservoir) -> Vec<u64> {
        let (tickets, batch) = of.finish().expect("rows");
        let rows = batch.map_or(Vec::new(), |batch| {
            batch.column(0).as_primitive::<UInt64Type>().values().to_vec()
        });
        assert_eq!(tickets.iter().map(|one| one.hash as u64).collect::<Vec<_>>(), rows);
        rows
    }

    proptest! {
        #[test]
        fn the_first_rows_are_kept_however_they_come(
            parts in prop::collection::vec(prop::collection::hash_set(any::<u64>(), 0..200), 0..80),
            most in 0usize..60,
        ) {
            let mut all: Vec<u64> = parts.iter().flatten().copied().collect();
            all.sort_unstable();
            all.truncate(most);
            let mut at_once = Reservoir::new(most);
            let mut merged = Reservoir::new(most);
            for part in &parts {
                let hashes: Vec<u64> = part.iter().copied().collect();
                offer(&mut at_once, &hashes);
                let mut one = Reservoir::new(most);
                offer(&mut one, &hashes);
                merged.merge(one).expect("rows");
            }
            prop_assert_eq!(&found(at_once), &all);
            prop_assert_eq!(&found(merged), &all);
        }
    }
}
