//! A tree ensemble that is ready to score.

use pulp::NullaryFnOnce;

use super::branchy::Branchy;
use super::finish::Finish;
use super::masks::Masks;
use super::raw::{Mode, Raw, TreeNode};
use super::real::Real;
use super::walk::{LANES, Lanes, Looks, MOST_NODES, WalkRows, WalkTree};

/// Cells of a row, at most; above, the graph is left to ONNX Runtime.
const MOST_CELLS: usize = 4096;

/// Nodes of an ensemble that is kept as it was described, at most.
const MOST_KEPT: usize = 400_000;

/// Trees with all their nodes, in the order in which their weights are added.
#[derive(Debug)]
pub(in super::super) struct Forest<T: Real> {
    trees: Vec<Tree<T>>,
    /// Of the trees that are walked by several rows at once.
    nodes: Vec<T::Node>,
    looks: Looks,
    /// Output and weight, of trees that are walked row by row.
    weights: Vec<(u32, T)>,
    /// The weights of the leaves that have several.
    several: Vec<T>,
    members: Vec<T>,
    finish: Finish<T>,
    /// The ensemble as its operator describes it, if it is not too large to be looked at as a whole.
    raw: Option<Box<Raw<T>>>,
    /// Ascending, by feature: the answer is the same for all values between two of them and for the upper one.
    thresholds: Vec<(u32, T)>,
}

#[derive(Debug)]
enum Tree<T> {
    /// Every leaf holds a weight for the same output.
    One(LaneLayout<T>, u32),
    /// Every leaf has a weight for each of the same outputs.
    Several(LaneLayout<T>, Vec<u32>),
    Branchy(Branchy<T>),
}

/// Layouts in which several rows find their leaves at once.
#[derive(Debug)]
enum LaneLayout<T> {
    Walk(WalkTree),
    Masks(Masks<T>),
}

/// The sums of some rows, and which of them got a weight.
#[derive(Debug, Default)]
pub(in super::super) struct ForestSums<T> {
    /// By tile and output.
    sums: Vec<Lanes<T>>,
    seen: Vec<[bool; LANES]>,
    /// The tiles once more, row by row, for trees that are walked.
    rows: Vec<T>,
    row: Vec<T>,
    row_seen: Vec<bool>,
}

impl<T: Real> Forest<T> {
    /// Lays out an ensemble; none if it looks at too many features.
    pub(super) fn new(raw: Raw<T>) -> Option<Forest<T>> {
        let mut forest = Forest {
            trees: Vec::with_capacity(raw.trees.len()),
            nodes: Vec::new(),
            looks: Looks::default(),
            weights: Vec::new(),
            several: Vec::new(),
            members: Vec::new(),
            thresholds: thresholds(&raw),
            raw: None,
            finish: raw.finish.clone(),
        };
        for tree in &raw.trees {
            let laid = forest.lay_out(tree, &raw.weights)?;
            forest.trees.push(laid);
        }
        forest.nodes.extend(std::iter::repeat_n(T::Node::default(), MOST_NODES));
        if forest.trees.iter().any(|tree| matches!(tree, Tree::Branchy(_))) {
            (forest.weights, forest.members) = (raw.weights.clone(), raw.members.clone());
        }
        let nodes: usize = raw.trees.iter().map(Vec::len).sum();
        forest.raw = (nodes <= MOST_KEPT).then(|| Box::new(raw));
        (forest.stride() <= MOST_CELLS).then_some(forest)
    }

    fn lay_out(&mut self, tree: &[TreeNode<T>], weights: &[(u32, T)]) -> Option<Tree<T>> {
        let single = self.finish.outputs == 1 && self.finish.classifier.is_none();
        let outputs = outputs(tree, weights, single);
        let shape = outputs.as_deref().and_then(|outputs| match outputs {
            [_] => self.shape(tree, |range| weights[range.start].1),
            _ => {
                let mut several = std::mem::take(&mut self.several);
                let shape = self.shape(tree, |range| {
                    let first = several.len();
                    several.extend(weights[range.clone()].iter().map(|(_, weight)| *weight));
                    T::from_leaf_index(first as u32)
                });
                self.several = several;
                shape
            }
        });
        match (shape, outputs.as_deref()) {
            (Some(shape), Some([output])) => Some(Tree::One(shape, *output)),
            (Some(shape), Some(outputs)) => Some(Tree::Several(shape, outputs.to_vec())),
            _ => Some(Tree::Branchy(Branchy::new(tree, &mut self.looks)?)),
        }
    }

    /// The layout that suits a tree; `leaf` gives what a leaf holds.
    fn shape(
        &mut self,
        tree: &[TreeNode<T>],
        mut leaf: impl FnMut(&std::ops::Range<usize>) -> T,
    ) -> Option<LaneLayout<T>> {
        if let Some(masks) = Masks::lay_out(tree, &mut self.looks, &mut leaf) {
            return Some(LaneLayout::Masks(masks));
        }
        WalkTree::lay_out(tree, &mut self.nodes, &mut self.looks, leaf).map(LaneLayout::Walk)
    }

    /// Which cells a tile holds: behind a first one that is a NaN, these features, negated or not.
    pub(in super::super) fn looks(&self) -> &[(u32, bool)] {
        &self.looks.cells
    }

    /// Cells of a tile, a power of two.
    pub(in super::super) fn stride(&self) -> usize {
        let cells = self.looks.cells.len() + 1;
        [16, 64, 256, 1024, MOST_CELLS]
            .into_iter()
            .find(|width| *width >= cells)
            .unwrap_or(usize::MAX)
    }

    /// The ensemble as its operator describes it; none if it is too large.
    pub(in super::super) fn raw(&self) -> Option<&Raw<T>> {
        self.raw.as_deref()
    }

    /// Scores per row.
    pub(in super::super) fn outputs(&self) -> usize {
        self.finish.outputs
    }

    /// Classes; none of a regression.
    pub(in super::super) fn labels(&self) -> usize {
        if self.finish.classifier.is_some() { self.finish.outputs } else { 0 }
    }

    /// Bytes of the nodes.
    pub(in super::super) fn size(&self) -> usize {
        self.nodes.len() * size_of::<T::Node>()
    }

    /// Whether the scores are plain sums, without a function of them.
    pub(in super::super) fn is_plain(&self) -> bool {
        self.finish.transform == super::finish::Transform::None
    }

    /// Feature and threshold of every comparison, ascending: nothing changes between two of one feature.
    pub(in super::super) fn thresholds(&self) -> &[(u32, T)] {
        &self.thresholds
    }

    /// Scores the rows of these tiles; `write` is given a row's position, its scores and its label.
    pub(in super::super) fn score(
        &self,
        tiles: &[Lanes<T>],
        sums: &mut ForestSums<T>,
        rows: usize,
        write: impl FnMut(usize, &[T], u32),
    ) {
        let count = rows.div_ceil(LANES) * self.finish.outputs;
        sums.sums.clear();
        sums.sums.resize(count, [T::default(); LANES]);
        sums.seen.clear();
        sums.seen.resize(count, [false; LANES]);
        match self.stride() {
            16 => self.visit::<16>(tiles, sums),
            64 => self.visit::<64>(tiles, sums),
            256 => self.visit::<256>(tiles, sums),
            1024 => self.visit::<1024>(tiles, sums),
            _ => self.visit::<MOST_CELLS>(tiles, sums),
        }
        self.finish(sums, rows, write);
    }

    /// With the vector instructions that the machine has.
    fn visit<const WIDTH: usize>(&self, tiles: &[Lanes<T>], all: &mut ForestSums<T>) {
        pulp::Arch::new().dispatch(Visit::<T, WIDTH> { forest: self, tiles, all });
    }

    #[inline(always)]
    fn visit_here<const WIDTH: usize>(&self, tiles: &[Lanes<T>], all: &mut ForestSums<T>) {
        let (tiles, _) = tiles.as_chunks::<WIDTH>();
        let ForestSums { sums: all_sums, seen: all_seen, rows, .. } = all;
        let rows = self.by_row(tiles, rows);
        for tree in &self.trees {
            let sums = all_sums.chunks_exact_mut(self.finish.outputs);
            let seen = all_seen.chunks_exact_mut(self.finish.outputs);
            for ((at, sums), seen) in (0..tiles.len()).zip(sums).zip(seen) {
                let tile = &tiles[at];
                match tree {
                    Tree::One(shape, output) => {
                        let leaves = self.leaves(shape, tile, rows.get(at));
                        let output = *output as usize;
                        self.add(&mut sums[output], &mut seen[output], &leaves);
                    }
                    Tree::Several(shape, outputs) => {
                        let leaves = self.leaves(shape, tile, rows.get(at));
                        let leaves = leaves.map(|leaf| leaf.leaf_index() as usize);
                        for (at, output) in outputs.iter().enumerate() {
                            let weights = leaves.map(|first| self.several[first + at]);
                            let output = *output as usize;
                            self.add(&mut sums[output], &mut seen[output], &weights);
                        }
                    }
                    Tree::Branchy(tree) => self.branch(tree, tile, sums, seen),
                }
            }
        }
    }

    /// The cells of tiles row by row, if any tree is walked.
    #[inline(always)]
    fn by_row<'r, const WIDTH: usize>(
        &self,
        tiles: &[[Lanes<T>; WIDTH]],
        rows: &'r mut Vec<T>,
    ) -> &'r [WalkRows<T, WIDTH>] {
        if self.nodes.len() == MOST_NODES {
            return &[];
        }
        let cells = tiles.len() * LANES * WIDTH;
        if rows.len() < cells {
            rows.resize(cells, T::default());
        }
        let used = self.looks.cells.len() + 1;
        for (tile, rows) in tiles.iter().zip(rows.chunks_exact_mut(LANES * WIDTH)) {
            for (lane, row) in rows.chunks_exact_mut(WIDTH).enumerate() {
                row.iter_mut().zip(&tile[..used]).for_each(|(cell, lanes)| *cell = lanes[lane]);
            }
        }
        rows[..cells].as_chunks::<WIDTH>().0.as_chunks::<LANES>().0
    }

    #[inline(always)]
    fn leaves<const WIDTH: usize>(
        &self,
        shape: &LaneLayout<T>,
        tile: &[Lanes<T>; WIDTH],
        rows: Option<&WalkRows<T, WIDTH>>,
    ) -> Lanes<T> {
        match (shape, rows) {
            (LaneLayout::Walk(walk), Some(rows)) => walk.leaves::<T, WIDTH>(&self.nodes, rows),
            (LaneLayout::Walk(_), None) => unreachable!("there are rows where trees are walked"),
            (LaneLayout::Masks(masks), _) => masks.leaves(tile),
        }
    }

    #[inline(always)]
    fn add(&self, sums: &mut Lanes<T>, seen: &mut [bool; LANES], weights: &Lanes<T>) {
        if self.finish.aggregate.sums() {
            sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += *weight);
        } else {
            for ((sum, seen), weight) in sums.iter_mut().zip(&*seen).zip(weights) {
                if !*seen || self.finish.aggregate.prefers(*weight, *sum) {
                    *sum = *weight;
                }
            }
        }
        *seen = [true; LANES];
    }

    fn branch(
        &self,
        tree: &Branchy<T>,
        tile: &[Lanes<T>],
        sums: &mut [Lanes<T>],
        seen: &mut [[bool; LANES]],
    ) {
        let single = self.finish.outputs == 1 && self.finish.classifier.is_none();
        for lane in 0..LANES {
            let weights = tree.leaf(tile, lane, &self.members);
            let weights = &self.weights[weights];
            for (output, weight) in if single { &weights[..1] } else { weights } {
                let output = if single { 0 } else { *output as usize };
                let (sum, seen) = (&mut sums[output][lane], &mut seen[output][lane]);
                if self.finish.aggregate.sums() {
                    *sum += *weight;
                } else if !*seen || self.finish.aggregate.prefers(*weight, *sum) {
                    *sum = *weight;
                }
                *seen = true;
            }
        }
    }

    fn finish(
        &self,
        all: &mut ForestSums<T>,
        rows: usize,
        mut write: impl FnMut(usize, &[T], u32),
    ) {
        let outputs = self.finish.outputs;
        for row in 0..rows {
            let (tile, lane) = (row / LANES * outputs, row % LANES);
            all.row.clear();
            all.row.extend(all.sums[tile..tile + outputs].iter().map(|sums| sums[lane]));
            all.row_seen.clear();
            all.row_seen.extend(all.seen[tile..tile + outputs].iter().map(|seen| seen[lane]));
            let label = self.finish.row(&mut all.row, &mut all.row_seen, self.trees.len());
            write(row, &all.row, label);
        }
    }
}

/// A visit of all trees, as a type: a closure would not be inlined, and lose the wider instructions.
struct Visit<'a, T: Real, const WIDTH: usize> {
    forest: &'a Forest<T>,
    tiles: &'a [Lanes<T>],
    all: &'a mut ForestSums<T>,
}

impl<T: Real, const WIDTH: usize> NullaryFnOnce for Visit<'_, T, WIDTH> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.forest.visit_here::<WIDTH>(self.tiles, self.all);
    }
}

/// The outputs that every leaf of a tree has a weight for, in one order; none if they differ. Where there is a
/// `single` output, the first weight of a leaf counts, whatever output it names.
fn outputs<T: Real>(tree: &[TreeNode<T>], weights: &[(u32, T)], single: bool) -> Option<Vec<u32>> {
    let mut leaves = tree.iter().filter_map(|node| match node {
        TreeNode::Leaf(range) => Some(&weights[range.clone()]),
        TreeNode::Branch(_) => None,
    });
    let first = leaves.next()?;
    if single {
        return Some(vec![0]);
    }
    let outputs =
        |weights: &[(u32, T)]| weights.iter().map(|(output, _)| *output).collect::<Vec<_>>();
    let first_outputs = outputs(first);
    let same = |weights: &[(u32, T)]| {
        weights.len() == first_outputs.len()
            && weights.iter().zip(&first_outputs).all(|(one, two)| one.0 == *two)
    };
    leaves.all(same).then_some(first_outputs)
}

/// The thresholds of all branches, as those of `x <= threshold`.
fn thresholds<T: Real>(raw: &Raw<T>) -> Vec<(u32, T)> {
    let mut all = Vec::new();
    for node in raw.trees.iter().flatten() {
        let TreeNode::Branch(branch) = node else { continue };
        let t = branch.threshold;
        let (one, two) = match &branch.mode {
            Mode::LessOrEqual | Mode::Greater => (Some(t), None),
            Mode::Less | Mode::GreaterOrEqual => (Some(t.below()), None),
            Mode::Equal | Mode::NotEqual => (Some(t), Some(t.below())),
            Mode::Member(range) => {
                let members = &raw.members[range.clone()];
                let both = members.iter().flat_map(|member| [*member, member.below()]);
                all.extend(both.map(|threshold| (branch.feature, threshold)));
                (None, None)
            }
        };
        all.extend(one.into_iter().chain(two).map(|threshold| (branch.feature, threshold)));
    }
    all.retain(|(_, threshold)| !threshold.is_gap());
    let order = |one: &(u32, T), two: &(u32, T)| {
        one.0.cmp(&two.0).then(one.1.double().total_cmp(&two.1.double()))
    };
    all.sort_unstable_by(order);
    all.dedup_by(|one, two| one == two);
    all
}
