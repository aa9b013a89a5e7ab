//! Tree ensembles as their operators describe them, checked: every branch leads to two nodes of its tree, no node
//! is reached twice, and every leaf has a weight.

use super::finish::Finish;
use super::real::Real;

/// How a branch compares.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) enum Mode {
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    Equal,
    NotEqual,
    /// Whether the value is one of these positions of the members.
    Member(std::ops::Range<usize>),
}

impl Mode {
    /// The mode of that name, as ONNX Runtime reads it: what it does not know is `BRANCH_NEQ`.
    pub(super) fn named(name: &str) -> Option<Mode> {
        Some(match name {
            "BRANCH_LEQ" => Mode::LessOrEqual,
            "BRANCH_LT" => Mode::Less,
            "BRANCH_GTE" => Mode::GreaterOrEqual,
            "BRANCH_GT" => Mode::Greater,
            "BRANCH_EQ" => Mode::Equal,
            "BRANCH_NEQ" => Mode::NotEqual,
            _ => return None,
        })
    }
}

/// A node that asks about a feature.
#[derive(Debug, Clone)]
pub(in super::super) struct Branch<T> {
    pub(in super::super) mode: Mode,
    pub(in super::super) feature: u32,
    pub(in super::super) threshold: T,
    /// Whether a NaN goes the way of the true.
    pub(in super::super) gap_is_true: bool,
    /// Positions in the tree.
    pub(in super::super) yes: u32,
    pub(in super::super) no: u32,
}

/// A node of a tree.
#[derive(Debug, Clone)]
pub(in super::super) enum TreeNode<T> {
    Branch(Branch<T>),
    /// Its weights, by their positions among all.
    Leaf(std::ops::Range<usize>),
}

/// A tree ensemble, still in the terms of its operator.
#[derive(Debug)]
pub(in super::super) struct Raw<T> {
    /// Each with its root first.
    pub(in super::super) trees: Vec<Vec<TreeNode<T>>>,
    /// Output and weight.
    pub(in super::super) weights: Vec<(u32, T)>,
    pub(in super::super) members: Vec<T>,
    pub(in super::super) finish: Finish<T>,
}

impl<T: Real> Raw<T> {
    /// The ensemble, if it is whole.
    pub(super) fn checked(self, features: usize) -> Option<Raw<T>> {
        let outputs = self.finish.outputs;
        let known = self.weights.iter().all(|(output, _)| (*output as usize) < outputs);
        let whole = |tree: &Vec<TreeNode<T>>| is_tree(tree, features);
        (known && !self.trees.is_empty() && self.trees.iter().all(whole)).then_some(self)
    }
}

fn is_tree<T>(tree: &[TreeNode<T>], features: usize) -> bool {
    let mut seen = vec![false; tree.len()];
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        match tree.get(at as usize) {
            Some(_) if std::mem::replace(&mut seen[at as usize], true) => return false,
            Some(TreeNode::Branch(branch)) => {
                if branch.feature as usize >= features {
                    return false;
                }
                open.extend([branch.yes, branch.no]);
            }
            Some(TreeNode::Leaf(weights)) if !weights.is_empty() => {}
            _ => return false,
        }
    }
    true
}
