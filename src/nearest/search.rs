//! One search: boxes from the nearest on, until the nearest one left is farther than the rows found.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::terms::{IndexLeaf, Terms};
use super::tree::LEAF_ROWS;
use super::{Index, Neighbour};

/// A distance and a number in one integer: the order of these is that of the distances, and of the
/// numbers where distances are equal. Distances are not negative, so that their bits have their order.
pub(super) fn packed(distance: f32, number: u32) -> u64 {
    u64::from(distance.to_bits()) << 32 | u64::from(number)
}

pub(super) fn unpacked(packed: u64) -> (f32, u32) {
    (f32::from_bits((packed >> 32) as u32), packed as u32)
}

/// The rows found so far.
struct NearestRows {
    /// How many are kept.
    k: usize,
    /// The farthest on top.
    rows: BinaryHeap<u64>,
    /// Rows that are farther are not looked for any more. At first only the infinitely far are not.
    limit: f32,
}

impl NearestRows {
    fn offer(&mut self, row: u64) {
        self.rows.push(row);
        if self.rows.len() > self.k {
            self.rows.pop();
        }
        if self.rows.len() == self.k {
            self.limit = self.rows.peek().map_or(f32::MAX, |farthest| unpacked(*farthest).0);
        }
    }
}

/// A search under way.
pub(super) struct NearestSearch<'a> {
    index: &'a Index,
    terms: &'a Terms,
    found: NearestRows,
    /// Nodes not yet looked into, the nearest on top.
    nodes: BinaryHeap<Reverse<u64>>,
}

impl<'a> NearestSearch<'a> {
    /// A search for `k` rows, at least one, in an index that is not empty.
    pub(super) fn new(index: &'a Index, terms: &'a Terms, k: usize) -> NearestSearch<'a> {
        let k = k.min(index.len());
        let found = NearestRows { k, rows: BinaryHeap::with_capacity(k + 1), limit: f32::MAX };
        NearestSearch { index, terms, found, nodes: BinaryHeap::new() }
    }

    /// What there is to find.
    pub(super) fn run(mut self) -> Vec<Neighbour> {
        self.push(0);
        while let Some(Reverse(nearest)) = self.nodes.pop() {
            let (bound, node) = unpacked(nearest);
            // At the limit itself there may be rows with smaller numbers.
            if bound > self.found.limit {
                break;
            }
            match self.index.tree.halves(node) {
                Some(halves) => halves.into_iter().for_each(|half| self.push(half)),
                None => self.scan(node),
            }
        }
        let rows = self.found.rows.into_sorted_vec().into_iter().map(unpacked);
        rows.map(|(distance, row)| Neighbour { row, distance }).collect()
    }

    fn push(&mut self, node: u32) {
        let bound = self.terms.bound(self.index.tree.boxes(), node, self.found.limit);
        if bound <= self.found.limit {
            self.nodes.push(Reverse(packed(bound, node)));
        }
    }

    fn scan(&mut self, node: u32) {
        let (tree, points) = (&self.index.tree, &self.index.points);
        let positions = tree.node(node).positions();
        let rows = &self.index.rows[positions.clone()];
        let mut sums = [0.0; LEAF_ROWS];
        let sums = &mut sums[..rows.len()];
        let leaf = IndexLeaf { points, boxes: tree.boxes(), node: node as usize, positions };
        self.terms.measure(&leaf, self.found.limit, sums);
        for (sum, row) in sums.iter().zip(rows) {
            if *sum <= self.found.limit {
                self.found.offer(packed(*sum, *row));
            }
        }
    }
}
