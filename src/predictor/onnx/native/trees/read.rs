//! Reads the attributes of the tree operators.

use hashbrown::HashMap;

use super::super::program::Operator;
use super::super::values::TextCodes;
use super::finish::{Aggregate, Finish, Transform};
use super::raw::{Branch, Mode, Raw, TreeNode};
use super::real::Real;

/// Real numbers, as an attribute of single ones or as a tensor of either type.
fn numbers<T: Real>(node: Operator<'_>, name: &str) -> Option<Vec<T>> {
    let mut words = TextCodes::default();
    let tensor = node.constant(&format!("{name}_as_tensor"), &mut words);
    let singles = node.reals(name);
    match tensor {
        Some(tensor) if singles.is_empty() => {
            Some(tensor.values.iter().map(|value| T::of(*value)).collect())
        }
        Some(_) => None,
        None => Some(singles.into_iter().map(T::from_single).collect()),
    }
}

/// The ensemble of a `TreeEnsembleClassifier` (`target` is `class`) or `-Regressor` (`target`).
pub(super) fn ensemble<T: Real>(
    node: Operator<'_>,
    target: &str,
    outputs: usize,
) -> Option<Raw<T>> {
    let listed = NodeLists::<T>::read(node)?;
    let (weights, leaves) = leaves(node, target, &listed)?;
    let finish = Finish {
        outputs,
        base: numbers(node, "base_values")?,
        aggregate: match node.text("aggregate_function") {
            Some(name) if target == "target" => Aggregate::named(name)?,
            _ => Aggregate::Sum,
        },
        transform: Transform::named(node.text("post_transform").unwrap_or("NONE"))?,
        classifier: None,
    };
    Some(Raw { trees: listed.trees(&leaves)?, weights, members: Vec::new(), finish })
}

/// The nodes of all trees, as they are listed.
struct NodeLists<T> {
    trees: Vec<i64>,
    ids: Vec<i64>,
    features: Vec<i64>,
    modes: Vec<Option<Mode>>,
    thresholds: Vec<T>,
    yes: Vec<i64>,
    no: Vec<i64>,
    gaps: Vec<i64>,
    node_indices: HashMap<(i64, i64), usize>,
}

impl<T: Real> NodeLists<T> {
    fn read(node: Operator<'_>) -> Option<NodeLists<T>> {
        let mode = |name: &&str| Mode::named(name);
        let names = node.texts("nodes_modes");
        let modes: Vec<Option<Mode>> = names.iter().map(mode).collect();
        let known = names.iter().zip(&modes).all(|(name, mode)| mode.is_some() || *name == "LEAF");
        let (trees, ids) = (node.integers("nodes_treeids"), node.integers("nodes_nodeids"));
        let node_indices: HashMap<(i64, i64), usize> =
            trees.iter().copied().zip(ids.iter().copied()).zip(0..).collect();
        let listed = NodeLists {
            features: node.integers("nodes_featureids"),
            thresholds: numbers(node, "nodes_values")?,
            yes: node.integers("nodes_truenodeids"),
            no: node.integers("nodes_falsenodeids"),
            gaps: node.integers("nodes_missing_value_tracks_true"),
            node_indices,
            trees,
            ids,
            modes,
        };
        (known && listed.is_even()).then_some(listed)
    }

    fn is_even(&self) -> bool {
        let count = self.modes.len();
        let lists = [&self.trees, &self.ids, &self.features, &self.yes, &self.no];
        lists.iter().all(|list| list.len() == count)
            && self.thresholds.len() == count
            && self.node_indices.len() == count
    }

    /// The trees, cut where the number of the tree changes.
    fn trees(&self, leaves: &[std::ops::Range<usize>]) -> Option<Vec<Vec<TreeNode<T>>>> {
        let mut trees = Vec::new();
        let mut first = 0;
        for run in self.trees.chunk_by(|one, two| one == two) {
            let nodes = first..first + run.len();
            let tree = nodes.map(|at| self.node(at, first, run.len(), leaves));
            trees.push(tree.collect::<Option<_>>()?);
            first += run.len();
        }
        Some(trees)
    }

    fn node(
        &self,
        at: usize,
        first: usize,
        count: usize,
        leaves: &[std::ops::Range<usize>],
    ) -> Option<TreeNode<T>> {
        let Some(mode) = self.modes[at].clone() else {
            return Some(TreeNode::Leaf(leaves[at].clone()));
        };
        let node_index = |id: i64| {
            let node_index = *self.node_indices.get(&(self.trees[at], id))?;
            let node_index =
                node_index.checked_sub(first).filter(|node_index| *node_index < count)?;
            u32::try_from(node_index).ok()
        };
        Some(TreeNode::Branch(Branch {
            mode,
            feature: u32::try_from(self.features[at]).ok()?,
            threshold: self.thresholds[at],
            gap_is_true: self.gaps.get(at) == Some(&1),
            yes: node_index(self.yes[at])?,
            no: node_index(self.no[at])?,
        }))
    }
}

/// Weights in the order of the nodes, each node's in the order in which they are listed.
type Leaves<T> = (Vec<(u32, T)>, Vec<std::ops::Range<usize>>);

fn leaves<T: Real>(node: Operator<'_>, target: &str, listed: &NodeLists<T>) -> Option<Leaves<T>> {
    let ids = node.integers(&format!("{target}_ids"));
    let trees = node.integers(&format!("{target}_treeids"));
    let nodes = node.integers(&format!("{target}_nodeids"));
    let weights = numbers::<T>(node, &format!("{target}_weights"))?;
    if [trees.len(), nodes.len(), weights.len()] != [ids.len(); 3] {
        return None;
    }
    let node_index = |(tree, node): (&i64, &i64)| listed.node_indices.get(&(*tree, *node)).copied();
    let node_indices: Vec<usize> =
        trees.iter().zip(&nodes).map(node_index).collect::<Option<_>>()?;
    let mut ends = vec![0; listed.modes.len() + 1];
    node_indices.iter().for_each(|node_index| ends[node_index + 1] += 1);
    for at in 1..ends.len() {
        ends[at] += ends[at - 1];
    }
    let ranges = ends.windows(2).map(|pair| pair[0]..pair[1]).collect();
    let mut sorted = vec![(0, T::default()); weights.len()];
    for (index, node_index) in node_indices.into_iter().enumerate() {
        sorted[ends[node_index]] = (u32::try_from(ids[index]).ok()?, weights[index]);
        ends[node_index] += 1;
    }
    Some((sorted, ranges))
}

/// The ensemble of a `TreeEnsemble`, the newer operator.
pub(super) fn newer<T: Real>(node: Operator<'_>) -> Option<Raw<T>> {
    let outputs = usize::try_from(node.integer("n_targets")?).ok()?;
    let finish = Finish {
        outputs,
        base: Vec::new(),
        aggregate: Aggregate::numbered(node.integer("aggregate_function").unwrap_or(1))?,
        transform: Transform::numbered(node.integer("post_transform").unwrap_or(0))?,
        classifier: None,
    };
    let nodes = Newer::<T>::read(node)?;
    let roots = node.integers("tree_roots");
    let trees = roots.iter().map(|root| nodes.tree(*root)).collect::<Option<_>>()?;
    let targets = node.integers("leaf_targetids").into_iter();
    let targets = targets.map(|target| u32::try_from(target).ok()).collect::<Option<Vec<_>>>()?;
    let weights = targets.into_iter().zip(nodes.weights).collect();
    Some(Raw { trees, weights, members: nodes.members, finish })
}

/// The lists of a `TreeEnsemble`.
struct Newer<T> {
    modes: Vec<Mode>,
    splits: Vec<T>,
    features: Vec<i64>,
    gaps: Vec<i64>,
    /// For true and false: where it leads to, and whether that is a leaf.
    ways: [(Vec<i64>, Vec<i64>); 2],
    weights: Vec<T>,
    members: Vec<T>,
}

impl<T: Real> Newer<T> {
    fn read(node: Operator<'_>) -> Option<Newer<T>> {
        let mut words = TextCodes::default();
        let mut tensor = |name: &str| {
            let tensor = node.constant(name, &mut words);
            tensor.map(|tensor| tensor.values.iter().map(|v| T::of(*v)).collect::<Vec<T>>())
        };
        let (splits, weights) = (tensor("nodes_splits")?, tensor("leaf_weights")?);
        let members = tensor("membership_values").unwrap_or_default();
        let modes = modes(&node.bytes("nodes_modes")?, &members)?;
        let way = |to: &str, leaf: &str| (node.integers(to), node.integers(leaf));
        let ways = [
            way("nodes_truenodeids", "nodes_trueleafs"),
            way("nodes_falsenodeids", "nodes_falseleafs"),
        ];
        let features = node.integers("nodes_featureids");
        let gaps = node.integers("nodes_missing_value_tracks_true");
        let count = modes.len();
        let even = ways.iter().all(|(to, leaf)| to.len() == count && leaf.len() == count);
        let even = even && features.len() == count && splits.len() == count;
        even.then_some(Newer { modes, splits, features, gaps, ways, weights, members })
    }

    /// A tree from its root: the nodes in the order in which they are reached.
    fn tree(&self, root: i64) -> Option<Vec<TreeNode<T>>> {
        let root = usize::try_from(root).ok()?;
        let [(yes, _), (no, _)] = &self.ways;
        // A tree that is a single leaf leads both ways to it.
        let lone = yes.get(root)? == no.get(root)?;
        let mut tree: Vec<TreeNode<T>> = Vec::new();
        let mut open = vec![(root, lone)];
        let mut next = 0;
        while let Some((at, is_leaf)) = open.get(next).copied() {
            next += 1;
            if next > 2 * self.modes.len() + 2 {
                return None;
            }
            if is_leaf {
                let whole = at < self.weights.len();
                tree.push(whole.then_some(TreeNode::Leaf(at..at + 1))?);
                continue;
            }
            let first = open.len() as u32;
            tree.push(TreeNode::Branch(Branch {
                mode: self.modes.get(at)?.clone(),
                feature: u32::try_from(self.features[at]).ok()?,
                threshold: self.splits[at],
                gap_is_true: self.gaps.get(at) == Some(&1),
                yes: first,
                no: first + 1,
            }));
            for (to, leaf) in &self.ways {
                open.push((usize::try_from(to[at]).ok()?, leaf[at] != 0));
            }
        }
        Some(tree)
    }
}

/// The modes by their numbers. The members of several nodes follow each other, with a NaN after each node's.
fn modes<T: Real>(numbers: &[u8], members: &[T]) -> Option<Vec<Mode>> {
    let mut next = 0;
    let mut mode = |number: &u8| {
        Some(match number {
            0 => Mode::LessOrEqual,
            1 => Mode::Less,
            2 => Mode::GreaterOrEqual,
            3 => Mode::Greater,
            4 => Mode::Equal,
            5 => Mode::NotEqual,
            6 => {
                let first = next;
                let set_members =
                    members.get(first..)?.iter().take_while(|member| !member.is_gap());
                next = first + set_members.count() + 1;
                (next > first + 1).then_some(Mode::Member(first..next - 1))?
            }
            _ => return None,
        })
    };
    numbers.iter().map(&mut mode).collect()
}
