//! The replay buffer D in plain memory: a ring of experiences. See [`super::super::Replay`], whose checkpoints it
//! shares.

use std::ops::Range;

use tch::Tensor;

use crate::error::Result;
use crate::nn::ReplayShape;
use crate::nn::bridge::{to_numbers, to_tensor};

/// Experiences, the oldest overwritten first.
#[derive(Debug)]
pub struct HostReplay {
    shape: ReplayShape,
    capacity: usize,
    rows: Vec<u32>,
    /// y_T, c, z̃, x̃ and the outcome of each.
    records: Vec<f32>,
    next: usize,
}

impl HostReplay {
    /// An empty buffer for so many experiences.
    pub fn new(shape: ReplayShape, capacity: usize) -> HostReplay {
        // Set aside at once, and taken as it is filled: a buffer that grew would be there twice.
        let records = Vec::with_capacity(capacity * shape.width() as usize);
        HostReplay { shape, capacity, rows: Vec::with_capacity(capacity), records, next: 0 }
    }

    /// Experiences held.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends an experience: its training row, and y_T, c, z̃, x̃ and the outcome, as far as they are kept.
    pub fn append(&mut self, row: u32, parts: &[&[f32]]) {
        if self.rows.len() < self.capacity {
            self.rows.push(row);
            parts.iter().for_each(|part| self.records.extend_from_slice(part));
        } else {
            let width = self.shape.width() as usize;
            let mut record = &mut self.records[self.next * width..][..width];
            self.rows[self.next] = row;
            for part in parts {
                let (original, rest) = record.split_at_mut(part.len());
                original.copy_from_slice(part);
                record = rest;
            }
        }
        self.next = (self.next + 1) % self.capacity;
    }

    /// Training row of an experience.
    pub fn row(&self, index: usize) -> u32 {
        self.rows[index]
    }

    /// y_T, c, z̃, x̃ and the outcome of an experience, side by side.
    pub fn record(&self, index: usize) -> &[f32] {
        let width = self.shape.width() as usize;
        &self.records[index * width..][..width]
    }

    /// Where y_T stands in a record.
    pub fn targets(&self) -> Range<usize> {
        0..self.shape.target as usize
    }

    /// Where c stands.
    pub fn conditions(&self) -> Range<usize> {
        let first = self.targets().end;
        first..first + self.shape.conditions as usize
    }

    /// Where x̃ stands.
    pub fn seen(&self) -> Range<usize> {
        let first = self.conditions().end + self.shape.latent as usize;
        first..first + self.shape.seen as usize
    }

    /// Where the outcome stands.
    pub fn outcomes(&self) -> Range<usize> {
        let first = self.seen().end;
        first..first + self.shape.outcome as usize
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.records.clear();
        self.next = 0;
    }

    /// What a checkpoint keeps: rows, records, and where writing continues.
    ///
    /// # Errors
    /// When there is no memory for a copy.
    pub fn state(&self) -> Result<([Tensor; 2], i64)> {
        let rows: Vec<i64> = self.rows.iter().map(|row| i64::from(*row)).collect();
        let width = self.shape.width() as usize;
        let records = to_tensor(&self.records, width, tch::Device::Cpu)?;
        Ok(([Tensor::from_slice(&rows), records], self.next as i64))
    }

    /// Restores what a checkpoint kept.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn restore(&mut self, rows: &Tensor, records: &Tensor, next: i64) -> Result<()> {
        // Numbers of rows are exact in 64 bits only.
        let rows: Vec<i64> = rows.try_into().map_err(crate::nn::bridge::refused)?;
        self.clear();
        self.rows.extend(rows.into_iter().map(|row| row as u32));
        self.records.extend(to_numbers(records)?);
        self.next = next as usize;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_experiences_are_overwritten() {
        let shape = ReplayShape { target: 1, conditions: 2, latent: 1, seen: 0, outcome: 1 };
        let mut replay = HostReplay::new(shape, 5);
        for row in 0..6u32 {
            let original = row as f32;
            replay.append(
                row,
                &[&[original], &[original, original], &[original], &[10.0 * original]],
            );
        }
        let mut again = HostReplay::new(shape, 5);
        let ([rows, records], next) = replay.state().expect("copied");
        again.restore(&rows, &records, next).expect("restored");
        for replay in [replay, again] {
            assert_eq!(replay.len(), 5);
            let held: Vec<u32> = (0..5).map(|index| replay.row(index)).collect();
            assert_eq!(held, [5, 1, 2, 3, 4]);
            assert_eq!(replay.record(0), [5.0, 5.0, 5.0, 5.0, 50.0]);
            assert_eq!(replay.record(1)[replay.outcomes()], [10.0]);
            assert_eq!((replay.conditions(), replay.seen(), replay.next), (1..3, 4..4, 1));
        }
    }
}
