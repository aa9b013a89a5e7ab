//! Trees laid out to be walked without a branch: nodes of one word in breadth-first order, the two ways of a
//! node beside each other, leaves that lead to themselves. Several rows walk at once, so that the processor has
//! something to do while one of them waits for memory. Their cells are read row by row, since an address within
//! a row is one addition: a walk takes two thirds of the time that it takes through tiles.
//!
//! All comparisons become `x <= threshold`: of the cell or of the cell negated, with the next lower threshold for
//! a strict one, and with the ways swapped where a gap (NaN, which compares as false) has to go the other way.

use std::collections::VecDeque;

use super::raw::{Branch, Mode, TreeNode};
use super::real::Real;

/// Rows that walk at once.
pub(in super::super) const LANES: usize = 32;

/// One cell of each of the rows that walk at once.
pub(in super::super) type Lanes<T> = [T; LANES];

/// Nodes of a tree, at most: positions are of 16 bits, so that no bounds need to be checked.
pub(super) const MOST_NODES: usize = 1 << 16;

/// Levels between two looks whether all rows have arrived.
const STRIDE: u32 = 4;

/// The cells of the rows that walk at once, row by row.
pub(super) type WalkRows<T, const WIDTH: usize> = [[T; WIDTH]; LANES];

/// A comparison with `x <= threshold` of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ThresholdTest<T> {
    pub(super) feature: u32,
    pub(super) negated: bool,
    pub(super) threshold: T,
    /// Where true and false lead to, in the tree as it was read.
    pub(super) ways: [u32; 2],
}

impl<T: Real> ThresholdTest<T> {
    /// The comparison that a branch makes; none for branches that need more than one.
    pub(super) fn new(branch: &Branch<T>) -> Option<ThresholdTest<T>> {
        let (t, gap) = (branch.threshold, branch.gap_is_true);
        // The cell, the threshold, and whether the ways are swapped.
        let (negated, threshold, swapped) = match (&branch.mode, gap) {
            (Mode::LessOrEqual, false) => (false, t, false),
            (Mode::LessOrEqual, true) => (true, below(-t)?, true),
            (Mode::Less, false) => (false, below(t)?, false),
            (Mode::Less, true) => (true, -t, true),
            (Mode::GreaterOrEqual, false) => (true, -t, false),
            (Mode::GreaterOrEqual, true) => (false, below(t)?, true),
            (Mode::Greater, false) => (true, below(-t)?, false),
            (Mode::Greater, true) => (false, t, true),
            _ => return None,
        };
        let ways = if swapped { [branch.no, branch.yes] } else { [branch.yes, branch.no] };
        let question = ThresholdTest { feature: branch.feature, negated, threshold, ways };
        (!threshold.is_gap()).then_some(question)
    }
}

/// The next lower number; none below the lowest, which no number is less than.
fn below<T: Real>(threshold: T) -> Option<T> {
    let below = threshold.below();
    (below < threshold).then_some(below)
}

/// Which cells the trees of an ensemble look at. The first holds a NaN in every row.
#[derive(Debug, Default)]
pub(in super::super) struct Looks {
    /// Feature and whether it is negated, from position one.
    pub(in super::super) cells: Vec<(u32, bool)>,
    cell_indices: hashbrown::HashMap<(u32, bool), u16>,
}

impl Looks {
    /// The position of a cell; none if there are too many.
    pub(super) fn cell_index(&mut self, feature: u32, negated: bool) -> Option<u16> {
        if let Some(cell_index) = self.cell_indices.get(&(feature, negated)) {
            return Some(*cell_index);
        }
        let cell_index = u16::try_from(self.cells.len() + 1).ok()?;
        self.cells.push((feature, negated));
        self.cell_indices.insert((feature, negated), cell_index);
        Some(cell_index)
    }
}

/// A tree in the layout for walking.
#[derive(Debug)]
pub(super) struct WalkTree {
    /// Its root among the nodes of all trees.
    pub(super) root: usize,
    depth: u32,
}

impl WalkTree {
    /// Lays a tree out behind the nodes that there are; `leaf` gives what a leaf holds. None for trees that are
    /// too large or ask otherwise than by order.
    ///
    /// A leaf leads to itself: its cell holds a NaN, which is not less than anything, and its child is the position
    /// before its own.
    pub(super) fn lay_out<T: Real>(
        tree: &[TreeNode<T>],
        nodes: &mut Vec<T::Node>,
        looks: &mut Looks,
        mut leaf: impl FnMut(&std::ops::Range<usize>) -> T,
    ) -> Option<WalkTree> {
        let root = nodes.len();
        let mut laid_out = vec![T::Node::default()];
        let mut open = VecDeque::from([(0u32, 0usize, 0u32)]);
        let mut depth = 0;
        while let Some((from, at, level)) = open.pop_front() {
            depth = depth.max(level);
            laid_out[at] = match &tree[from as usize] {
                TreeNode::Leaf(weights) => {
                    let child = (at as u16).wrapping_sub(1);
                    T::node(leaf(weights), 0, child)
                }
                TreeNode::Branch(branch) => {
                    let question = ThresholdTest::new(branch)?;
                    let child = laid_out.len();
                    laid_out.extend([T::Node::default(); 2]);
                    let ways = question.ways.into_iter().zip(child..);
                    open.extend(ways.map(|(from, at)| (from, at, level + 1)));
                    let cell = looks.cell_index(question.feature, question.negated)?;
                    let child = u16::try_from(child).ok()?;
                    T::node(question.threshold, cell, child)
                }
            };
        }
        if laid_out.len() > MOST_NODES {
            return None;
        }
        nodes.extend(laid_out);
        Some(WalkTree { root, depth })
    }

    /// What the leaves hold that rows reach. `WIDTH` is a power of two; there are [`MOST_NODES`] behind the root,
    /// whose they may be.
    #[inline(always)]
    pub(super) fn leaves<T: Real, const WIDTH: usize>(
        &self,
        nodes: &[T::Node],
        rows: &WalkRows<T, WIDTH>,
    ) -> Lanes<T> {
        let Some(nodes) = nodes[self.root..].first_chunk::<MOST_NODES>() else {
            unreachable!("the nodes end with room for the largest tree")
        };
        let mut at = [0u32; LANES];
        let mut left = self.depth;
        while left >= 2 * STRIDE {
            (0..STRIDE - 1).for_each(|_| step::<T, WIDTH>(nodes, rows, &mut at));
            let before = at;
            step::<T, WIDTH>(nodes, rows, &mut at);
            left -= STRIDE;
            if before == at {
                left = 0;
            }
        }
        (0..left).for_each(|_| step::<T, WIDTH>(nodes, rows, &mut at));
        at.map(|at| T::threshold(nodes[at as usize % MOST_NODES]))
    }
}

#[inline(always)]
fn step<T: Real, const WIDTH: usize>(
    nodes: &[T::Node; MOST_NODES],
    rows: &WalkRows<T, WIDTH>,
    at: &mut [u32; LANES],
) {
    for (at, row) in at.iter_mut().zip(rows) {
        let node = nodes[*at as usize % MOST_NODES];
        let cell = row[T::cell(node) & (WIDTH - 1)];
        *at = T::child(node).wrapping_add(u32::from(cell <= T::threshold(node)) ^ 1);
    }
}
