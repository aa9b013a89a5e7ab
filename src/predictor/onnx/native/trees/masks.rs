//! Small trees, walked without going anywhere: every branch is asked, and each one that is not `x <= threshold` takes
//! the leaves behind its first way out of the race. The first leaf that is left is the one that the row reaches
//! (QuickScorer). Rows do not wait for each other, and the processor's vector instructions take several at once.

use super::raw::TreeNode;
use super::real::Real;
use super::walk::{LANES, Lanes, Looks, ThresholdTest};

/// Leaves in a word of the mask, and words.
const WORD: usize = 32;
const WORDS: usize = 2;

/// Processor cycles that a row costs: per level when trees are walked, per branch and per tree here. Measured on
/// AMD's Zen with AVX2; only their proportion matters.
const WALKED_LEVEL: f32 = 1.5;
const MASKED_BRANCH: f32 = 0.25;
const MASKED_TREE: f32 = 2.0;

/// A branch, with the leaves that stay in the race if its answer is no.
#[derive(Debug, Clone, Copy)]
struct MaskBranch<T> {
    threshold: T,
    left: u32,
    cell: u16,
}

/// A tree of few leaves.
#[derive(Debug)]
pub(super) struct Masks<T> {
    /// By word of the mask.
    steps: [Vec<MaskBranch<T>>; WORDS],
    /// What each leaf holds, in order.
    leaves: Vec<T>,
}

impl<T: Real> Masks<T> {
    /// Lays a tree out; `leaf` gives what a leaf holds. None for trees that are better walked, or ask otherwise
    /// than by order.
    pub(super) fn lay_out(
        tree: &[TreeNode<T>],
        looks: &mut Looks,
        mut leaf: impl FnMut(&std::ops::Range<usize>) -> T,
    ) -> Option<Masks<T>> {
        let (branches, depth) = size(tree);
        let cost = MASKED_BRANCH * branches as f32 + MASKED_TREE;
        if !T::SINGLE || branches >= WORD * WORDS || cost > WALKED_LEVEL * depth as f32 {
            return None;
        }
        let mut masks = Masks { steps: [const { Vec::new() }; WORDS], leaves: Vec::new() };
        masks.add(tree, 0, looks, &mut leaf)?;
        Some(masks)
    }

    /// Adds a node and all behind it.
    fn add(
        &mut self,
        tree: &[TreeNode<T>],
        at: u32,
        looks: &mut Looks,
        leaf: &mut impl FnMut(&std::ops::Range<usize>) -> T,
    ) -> Option<()> {
        match &tree[at as usize] {
            TreeNode::Leaf(weights) => self.leaves.push(leaf(weights)),
            TreeNode::Branch(branch) => {
                let ThresholdTest { feature, negated, threshold, ways } =
                    ThresholdTest::new(branch)?;
                let cell = looks.cell_index(feature, negated)?;
                let first = self.leaves.len();
                self.add(tree, ways[0], looks, leaf)?;
                let out = ((1u64 << (self.leaves.len() - first)) - 1) << first;
                for (word, steps) in self.steps.iter_mut().enumerate() {
                    let left = !((out >> (word * WORD)) as u32);
                    if left != u32::MAX {
                        steps.push(MaskBranch { threshold, left, cell });
                    }
                }
                self.add(tree, ways[1], looks, leaf)?;
            }
        }
        Some(())
    }

    /// What the leaves hold that the rows of a tile reach. `WIDTH` is a power of two.
    #[inline(always)]
    pub(super) fn leaves<const WIDTH: usize>(&self, tile: &[Lanes<T>; WIDTH]) -> Lanes<T> {
        let [first, second] = &self.steps;
        let low = race(first, tile);
        if self.leaves.len() <= WORD {
            return low.map(|bits| self.leaves[(bits.trailing_zeros() as usize) % WORD]);
        }
        let high = race(second, tile);
        std::array::from_fn(|lane| {
            let bits = u64::from(low[lane]) | u64::from(high[lane]) << WORD;
            self.leaves[bits.trailing_zeros() as usize]
        })
    }
}

#[inline(always)]
fn race<T: Real, const WIDTH: usize>(
    steps: &[MaskBranch<T>],
    tile: &[Lanes<T>; WIDTH],
) -> [u32; LANES] {
    let mut bits = [u32::MAX; LANES];
    for step in steps {
        // Never so. Without a way out of the loop the compiler takes several steps at once instead of several rows,
        // and collects their cells one by one, which is half as fast.
        if step.left == u32::MAX {
            break;
        }
        let cells = &tile[usize::from(step.cell) & (WIDTH - 1)];
        for lane in 0..LANES {
            // All ones for a yes.
            let yes = u32::from(cells[lane] <= step.threshold).wrapping_neg();
            bits[lane] &= yes | step.left;
        }
    }
    bits
}

/// Branches of a tree, and its levels.
fn size<T>(tree: &[TreeNode<T>]) -> (usize, usize) {
    let (mut branches, mut depth) = (0, 0);
    let mut open = vec![(0u32, 0)];
    while let Some((at, level)) = open.pop() {
        depth = depth.max(level);
        if let TreeNode::Branch(branch) = &tree[at as usize] {
            branches += 1;
            open.extend([(branch.yes, level + 1), (branch.no, level + 1)]);
        }
    }
    (branches, depth)
}
