//! Trees that are walked row by row: those that ask whether a value is one of some, are too large for
//! [`super::walk`], or have leaves with different outputs.

use super::raw::{Mode, TreeNode};
use super::real::Real;
use super::walk::{Lanes, Looks};

#[derive(Debug)]
enum BranchyNode<T> {
    Branch { mode: Mode, cell: u16, threshold: T, gap_is_true: bool, ways: [u32; 2] },
    Leaf(std::ops::Range<usize>),
}

/// A tree that is walked row by row.
#[derive(Debug)]
pub(super) struct Branchy<T>(Vec<BranchyNode<T>>);

impl<T: Real> Branchy<T> {
    pub(super) fn new(tree: &[TreeNode<T>], looks: &mut Looks) -> Option<Branchy<T>> {
        let node = |node: &TreeNode<T>| {
            Some(match node {
                TreeNode::Leaf(weights) => BranchyNode::Leaf(weights.clone()),
                TreeNode::Branch(branch) => BranchyNode::Branch {
                    mode: branch.mode.clone(),
                    cell: looks.cell_index(branch.feature, false)?,
                    threshold: branch.threshold,
                    gap_is_true: branch.gap_is_true,
                    ways: [branch.yes, branch.no],
                },
            })
        };
        tree.iter().map(node).collect::<Option<_>>().map(Branchy)
    }

    /// The weights of the leaf that a row of a tile reaches.
    pub(super) fn leaf(
        &self,
        tile: &[Lanes<T>],
        lane: usize,
        members: &[T],
    ) -> std::ops::Range<usize> {
        let mut at = 0;
        loop {
            match &self.0[at] {
                BranchyNode::Leaf(weights) => return weights.clone(),
                BranchyNode::Branch { mode, cell, threshold, gap_is_true, ways } => {
                    let value = tile[usize::from(*cell)][lane];
                    let gap = *gap_is_true && value.is_gap();
                    let yes = gap || mode.holds(value, *threshold, members);
                    at = ways[usize::from(!yes)] as usize;
                }
            }
        }
    }
}

impl Mode {
    /// Whether a value goes the way of the true.
    pub(in super::super) fn holds<T: Real>(&self, value: T, threshold: T, members: &[T]) -> bool {
        match self {
            Mode::LessOrEqual => value <= threshold,
            Mode::Less => value < threshold,
            Mode::GreaterOrEqual => value >= threshold,
            Mode::Greater => value > threshold,
            Mode::Equal => value == threshold,
            Mode::NotEqual => value != threshold,
            Mode::Member(range) => members[range.clone()].contains(&value),
        }
    }
}
