//! The replay buffer D: a ring of experiences in two tensors, written in blocks and read by one
//! `index_select` each. What belongs to the training row (x, z, y_M) stays in the training table.

use tch::{Device, Kind, Tensor};

use super::bridge::upload;
use crate::error::Result;

/// Widths of what an experience holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayShape {
    /// y_T.
    pub target: i64,
    /// c.
    pub conditions: i64,
    /// z̃, where the critic is shown it; else 0.
    pub latent: i64,
    /// x̃, where the critic is shown it; else 0.
    pub seen: i64,
    /// What came of it: R, or which outcome.
    pub outcome: i64,
}

/// Experiences, the oldest overwritten first.
#[derive(Debug)]
pub struct Replay {
    shape: ReplayShape,
    /// Training row of each experience, on the host: training rows may be there as well.
    rows: Tensor,
    /// y_T, c, z̃, x̃ and the outcome of each.
    records: Tensor,
    next: i64,
    filled: i64,
}

/// A batch of experiences.
#[derive(Debug)]
pub struct Experiences {
    /// Training rows, on the host.
    pub rows: Tensor,
    records: Tensor,
    shape: ReplayShape,
}

impl ReplayShape {
    pub(super) fn width(self) -> i64 {
        self.target + self.conditions + self.latent + self.seen + self.outcome
    }

    /// Bytes of one experience.
    pub fn bytes(self) -> u64 {
        4 * self.width() as u64 + 8
    }
}

impl Replay {
    /// An empty buffer for so many experiences.
    pub fn new(shape: ReplayShape, capacity: usize, device: Device) -> Replay {
        let capacity = capacity as i64;
        Replay {
            shape,
            rows: Tensor::zeros([capacity], (Kind::Int64, Device::Cpu)),
            records: Tensor::zeros([capacity, shape.width()], (Kind::Float, device)),
            next: 0,
            filled: 0,
        }
    }

    /// Experiences held.
    pub fn len(&self) -> usize {
        self.filled as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Appends a block: training rows (on the host), and y_T, c, z̃ and x̃ (if kept) and the outcome side by side.
    pub fn append(&mut self, rows: &Tensor, parts: &[&Tensor]) {
        let (block, capacity) = (rows.size()[0], self.rows.size()[0]);
        let records = Tensor::cat(parts, 1);
        let mut done = 0;
        while done < block {
            let count = (block - done).min(capacity - self.next);
            let write = |to: &Tensor, from: &Tensor| {
                to.narrow(0, self.next, count).copy_(&from.narrow(0, done, count));
            };
            write(&self.rows, rows);
            write(&self.records, &records);
            done += count;
            self.next = (self.next + count) % capacity;
            self.filled = (self.filled + count).min(capacity);
        }
    }

    /// The experiences at these indexes, which are on the host.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn sample(&self, indexes: &Tensor) -> Result<Experiences> {
        let rows = self.rows.index_select(0, indexes);
        let indexes = upload(indexes, self.records.device())?;
        let records = self.records.index_select(0, &indexes);
        Ok(Experiences { rows, records, shape: self.shape })
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        (self.next, self.filled) = (0, 0);
    }

    /// What a checkpoint keeps: rows and records of the filled part.
    pub fn state(&self) -> [Tensor; 2] {
        [&self.rows, &self.records].map(|all| all.narrow(0, 0, self.filled))
    }

    /// Where writing continues.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Restores what a checkpoint kept.
    pub fn restore(&mut self, rows: &Tensor, records: &Tensor, next: i64) {
        self.filled = rows.size()[0];
        self.rows.narrow(0, 0, self.filled).copy_(rows);
        self.records.narrow(0, 0, self.filled).copy_(records);
        self.next = next;
    }
}

impl Experiences {
    fn part(&self, first: i64, width: i64) -> Tensor {
        self.records.narrow(1, first, width)
    }

    /// y_T and c, side by side.
    pub fn actor_input(&self) -> Tensor {
        self.part(0, self.shape.target + self.shape.conditions)
    }

    /// c.
    pub fn conditions(&self) -> Tensor {
        self.part(self.shape.target, self.shape.conditions)
    }

    /// y_T.
    pub fn targets(&self) -> Tensor {
        self.part(0, self.shape.target)
    }

    /// y_T, c, z̃ and x̃, side by side.
    pub fn critic_input(&self) -> Tensor {
        self.part(0, self.shape.width() - self.shape.outcome)
    }

    /// x̃.
    pub fn seen(&self) -> Tensor {
        let before = self.shape.target + self.shape.conditions + self.shape.latent;
        self.part(before, self.shape.seen)
    }

    /// R, or which outcome.
    pub fn outcomes(&self) -> Tensor {
        self.part(self.shape.width() - self.shape.outcome, self.shape.outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(first: i64, rows: i64) -> Tensor {
        Tensor::arange_start(first, first + rows, (Kind::Int64, Device::Cpu))
    }

    #[test]
    fn the_oldest_experiences_are_overwritten() {
        let shape = ReplayShape { target: 1, conditions: 2, latent: 1, seen: 0, outcome: 1 };
        let mut replay = Replay::new(shape, 5, Device::Cpu);
        for first in [0, 3] {
            let rows = block(first, 3);
            let column = rows.to_kind(Kind::Float).view([3, 1]);
            let two = column.repeat([1, 2]);
            replay.append(&rows, &[&column, &two, &column, &column]);
        }
        assert_eq!(replay.len(), 5);
        let held = replay.sample(&block(0, 5)).expect("sampled");
        assert_eq!(Vec::<i64>::try_from(&held.rows).expect("numbers"), [5, 1, 2, 3, 4]);
        let rewards = Vec::<f32>::try_from(held.outcomes().reshape([-1])).expect("numbers");
        assert_eq!(rewards, [5.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(held.actor_input().size(), [5, 3]);
    }
}
