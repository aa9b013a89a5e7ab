//! The tree: which piece of the rows is in which, and the box around each.

use std::ops::Range;

use super::Points;
use super::boxes::Boxes;

/// The most rows of a leaf. Fewer mean more boxes to hold against a query, more mean rows looked at in
/// vain.
pub(super) const LEAF_ROWS: usize = 128;

/// A piece of the order of rows. Nodes stand in the order in which they are cut: a node, all that is in
/// its first half, all that is in its second half.
#[derive(Debug, Clone)]
pub(super) struct BoxNode {
    pub(super) start: u32,
    pub(super) end: u32,
    /// The node of the second half; none for a leaf.
    pub(super) second: Option<u32>,
}

impl BoxNode {
    /// Where its rows stand.
    pub(super) fn positions(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Nodes, and the box around the rows of each.
#[derive(Debug, Clone)]
pub(super) struct BoxTree {
    nodes: Vec<BoxNode>,
    boxes: Boxes,
}

impl BoxTree {
    /// The tree over rows that are in the order of its nodes.
    pub(super) fn new(nodes: Vec<BoxNode>, points: &Points) -> BoxTree {
        let mut boxes = Boxes::new(points, nodes.len());
        // From the last to the first, so that both halves are there before their node.
        for (index, node) in nodes.iter().enumerate().rev() {
            match node.second {
                None => boxes.enclose_rows(index, points, node.positions()),
                Some(second) => boxes.enclose_boxes(index, [index + 1, second as usize]),
            }
        }
        BoxTree { nodes, boxes }
    }

    pub(super) fn node(&self, index: u32) -> &BoxNode {
        &self.nodes[index as usize]
    }

    pub(super) fn boxes(&self) -> &Boxes {
        &self.boxes
    }

    /// Both halves of a node; none of a leaf.
    pub(super) fn halves(&self, index: u32) -> Option<[u32; 2]> {
        self.node(index).second.map(|second| [index + 1, second])
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<BoxNode>() + self.boxes.memory()
    }
}
