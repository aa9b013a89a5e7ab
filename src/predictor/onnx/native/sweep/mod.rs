//! What an ensemble of trees would say of rows if one of their features had another value: every tree is walked
//! once, along the row's own path and along all paths on which a single feature has left it. That takes about as
//! long as a few dozen questions, and tells where along every feature the answer changes at all.

mod paths;
mod regions;

use crate::predictor;

pub(in super::super) use paths::SweepScratch;
pub(super) use regions::{Demand, RegionLimits, Spans, Tops};

/// The node's feature of a leaf.
const LEAF: u16 = u16::MAX;
/// States of a feature, at most: one bit for each.
pub(super) const MOST_STATES: usize = 64;

/// A node of a tree, in the terms of the table's features. Its first way leads to the node behind it.
#[derive(Debug, Clone, Copy)]
struct SweepNode {
    feature: u16,
    /// Whether a null goes the first way.
    gap_first: bool,
    /// Of a number, the position of the last cut that goes the first way; of a state, that of the states that do; of a
    /// leaf, the first of its weights.
    at: u32,
    /// Where the second way leads.
    second: u32,
}

/// The rank of a null.
const GAP: u32 = u32::MAX;

/// How a node divides the values of its feature.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodeSplit {
    /// Numbers up to this one go the first way, and nulls if so said.
    Number { cut: f64, gap_first: bool },
    /// States whose bit is set go the first way.
    States(u64),
}

/// A tree that is handed over, node by node.
#[derive(Debug, Clone)]
pub(super) enum TreeStep {
    Branch { feature: usize, split: NodeSplit, ways: [u32; 2] },
    Leaf(Vec<f64>),
}

/// What a row has for a feature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum OriginalValue {
    Number(f64),
    State(u32),
}

/// What a feature may become.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SweepReach {
    /// What it is.
    Fixed,
    /// Numbers between these, both included.
    Numbers(f64, f64),
    /// States whose bit is set.
    States(u64),
}

/// Some values of one feature, for all of which the answer is the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SweepValues {
    /// Above the first, up to the second.
    Numbers(f64, f64),
    State(u32),
}

impl From<SweepValues> for predictor::Values {
    fn from(values: SweepValues) -> predictor::Values {
        match values {
            SweepValues::Numbers(low, high) => predictor::Values::Numbers(low, high),
            SweepValues::State(state) => predictor::Values::Code(state),
        }
    }
}

/// Values of one feature with the sums of the weights that a row would get with them.
#[derive(Debug, Default)]
pub(in super::super) struct FeatureResponses {
    /// By feature, one after the other.
    pub(super) values: Vec<(usize, SweepValues)>,
    /// Sums, as many to each entry as there are outputs.
    pub(super) sums: Vec<f64>,
}

/// Values of a feature on one side of branches.
#[derive(Debug, Clone, Copy)]
pub(super) enum Span {
    /// Ranks among the feature's cuts, both included.
    Ranks(u32, u32),
    States(u64),
}

/// What a row has for a feature.
#[derive(Debug, Clone, Copy)]
enum FeatureState {
    Rank(u32),
    State(u32),
}

/// A row, and what its features may become.
#[derive(Debug)]
pub(super) struct SweepRow {
    pub(super) original: Vec<OriginalValue>,
    pub(super) reach: Vec<SweepReach>,
}

/// An ensemble whose nodes ask about features of the table.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    nodes: Vec<SweepNode>,
    roots: Vec<u32>,
    weights: Vec<f64>,
    outputs: usize,
    /// Per numeric feature the numbers at which it is divided, ascending.
    cuts: Vec<Vec<f64>>,
    states: Vec<u64>,
}

impl Sweeper {
    /// Lays out trees, the root of each first, over so many features.
    pub(super) fn new(trees: &[Vec<TreeStep>], outputs: usize, features: usize) -> Sweeper {
        let mut cuts: Vec<Vec<f64>> = vec![Vec::new(); features];
        for step in trees.iter().flatten() {
            if let TreeStep::Branch { feature, split: NodeSplit::Number { cut, .. }, .. } = step {
                cuts[*feature].push(*cut);
            }
        }
        for cuts in &mut cuts {
            cuts.sort_unstable_by(f64::total_cmp);
            cuts.dedup();
        }
        let mut sweeper = Sweeper { outputs, cuts, ..Sweeper::default() };
        for tree in trees {
            sweeper.roots.push(sweeper.nodes.len() as u32);
            sweeper.lay_out(tree, 0);
        }
        sweeper
    }

    fn lay_out(&mut self, tree: &[TreeStep], at: u32) {
        let state_of = self.nodes.len();
        match &tree[at as usize] {
            TreeStep::Leaf(weights) => {
                let at = self.weights.len() as u32;
                self.nodes.push(SweepNode { feature: LEAF, gap_first: false, at, second: 0 });
                self.weights.extend(weights);
            }
            TreeStep::Branch { feature, split, ways } => {
                let (at, gap_first) = match *split {
                    NodeSplit::Number { cut, gap_first } => (self.rank(*feature, cut), gap_first),
                    NodeSplit::States(states) => {
                        self.states.push(states);
                        (self.states.len() as u32 - 1, false)
                    }
                };
                self.nodes.push(SweepNode { feature: *feature as u16, gap_first, at, second: 0 });
                self.lay_out(tree, ways[0]);
                self.nodes[state_of].second = self.nodes.len() as u32;
                self.lay_out(tree, ways[1]);
            }
        }
    }

    pub(super) fn trees(&self) -> usize {
        self.roots.len()
    }

    /// How many cuts of a feature are below a number: it goes the first way at those from that position on.
    fn rank(&self, feature: usize, number: f64) -> u32 {
        if number.is_nan() {
            return GAP;
        }
        self.cuts[feature].partition_point(|cut| *cut < number) as u32
    }

    fn state_of(&self, feature: usize, original: OriginalValue) -> FeatureState {
        match original {
            OriginalValue::Number(number) => FeatureState::Rank(self.rank(feature, number)),
            OriginalValue::State(state) => FeatureState::State(state),
        }
    }

    fn span(&self, feature: usize, reach: SweepReach) -> Option<Span> {
        match reach {
            SweepReach::Fixed => None,
            SweepReach::Numbers(low, high) => {
                Some(Span::Ranks(self.rank(feature, low), self.rank(feature, high)))
            }
            SweepReach::States(states) => Some(Span::States(states)),
        }
    }

    /// The numbers of a span of ranks, both ends included.
    pub(super) fn numbers(&self, feature: usize, (low, high): (u32, u32)) -> (f64, f64) {
        let cuts = &self.cuts[feature];
        let before = |rank: u32| cuts.get(rank as usize - 1).map_or(f64::MIN, |cut| cut.next_up());
        let low = if low == 0 { f64::MIN } else { before(low) };
        (low, cuts.get(high as usize).copied().unwrap_or(f64::MAX))
    }

    /// A span, if it does not hold what a row has.
    pub(super) fn without_original(
        &self,
        feature: usize,
        original: OriginalValue,
        span: Span,
    ) -> Option<Span> {
        let holds = match (span, self.state_of(feature, original)) {
            (Span::Ranks(low, high), FeatureState::Rank(original)) => {
                (low..=high).contains(&original)
            }
            (Span::States(states), FeatureState::State(original)) => states >> original & 1 == 1,
            _ => true,
        };
        (!holds).then_some(span)
    }

    fn first(&self, node: &SweepNode, state_of: FeatureState) -> bool {
        match state_of {
            FeatureState::Rank(rank) => rank <= node.at || (node.gap_first && rank == GAP),
            FeatureState::State(state) => self.states[node.at as usize] >> state & 1 == 1,
        }
    }

    /// The part of a span that goes one way.
    fn part(&self, node: &SweepNode, span: Span, first: bool) -> Option<Span> {
        match span {
            Span::Ranks(low, high) => {
                let (low, high) =
                    if first { (low, high.min(node.at)) } else { (low.max(node.at + 1), high) };
                (low <= high).then_some(Span::Ranks(low, high))
            }
            Span::States(states) => {
                let first_states = self.states[node.at as usize];
                let states = states & if first { first_states } else { !first_states };
                (states != 0).then_some(Span::States(states))
            }
        }
    }
}

/// The positions of the bits that are set.
pub(super) fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::predictor::{Ended, Verdict};

    /// Features 0 and 1 are numbers, 2 and 3 have five states.
    fn grow(random: &mut ChaCha8Rng, depth: u32, tree: &mut Vec<TreeStep>) -> u32 {
        let at = tree.len();
        let weight = f64::from(random.random_range(0..100)) / 100.0;
        tree.push(TreeStep::Leaf(vec![weight, 1.0 - weight]));
        if depth > 0 && random.random_range(0..8) > 0 {
            let feature = random.random_range(0..4);
            let split = match feature {
                0 | 1 => NodeSplit::Number {
                    cut: f64::from(random.random_range(0..40)),
                    gap_first: random.random_range(0..2) == 0,
                },
                _ => NodeSplit::States(random.random_range(0..32)),
            };
            let ways = [grow(random, depth - 1, tree), grow(random, depth - 1, tree)];
            tree[at] = TreeStep::Branch { feature, split, ways };
        }
        at as u32
    }

    fn weights<'t>(tree: &'t [TreeStep], row: &[OriginalValue]) -> &'t [f64] {
        let mut at = 0;
        loop {
            let (feature, split, ways) = match &tree[at] {
                TreeStep::Leaf(weights) => return weights,
                TreeStep::Branch { feature, split, ways } => (*feature, *split, ways),
            };
            let first = match (split, row[feature]) {
                (NodeSplit::Number { cut, gap_first }, OriginalValue::Number(number)) => {
                    number <= cut || (number.is_nan() && gap_first)
                }
                (NodeSplit::States(states), OriginalValue::State(state)) => {
                    states >> state & 1 == 1
                }
                _ => unreachable!("a number is no state"),
            };
            at = ways[usize::from(!first)] as usize;
        }
    }

    proptest! {
        #[test]
        fn every_response_is_what_the_trees_say(seed in any::<u64>(), gap in any::<bool>()) {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut trees: Vec<Vec<TreeStep>> = vec![Vec::new(); 5];
            for tree in &mut trees {
                grow(&mut random, 6, tree);
            }
            let sweeper = Sweeper::new(&trees, 2, 4);
            let row = |random: &mut ChaCha8Rng| vec![
                OriginalValue::Number(f64::from(random.random_range(0..80)) / 2.0),
                OriginalValue::Number(if gap { f64::NAN } else { 7.0 }),
                OriginalValue::State(random.random_range(0..5)),
                OriginalValue::State(random.random_range(0..5)),
            ];
            let questions: Vec<SweepRow> = (0..5).map(|_| SweepRow {
                original: row(&mut random),
                reach: vec![
                    SweepReach::Numbers(3.5, 30.0),
                    if gap { SweepReach::Fixed } else { SweepReach::Numbers(0.0, 20.0) },
                    SweepReach::States(0b10110),
                    SweepReach::Fixed,
                ],
            }).collect();
            let mut found = Vec::new();
            sweeper.sweep(&questions, &mut SweepScratch::default(), &mut found);
            for (question, FeatureResponses { values, sums }) in questions.iter().zip(&found) {
                let mut end = 3.5f64.next_down();
                for ((feature, values), sums) in values.iter().zip(sums.chunks_exact(2)) {
                    let ends = match *values {
                        SweepValues::Numbers(low, high) => vec![low.next_up(), high].into_iter().map(OriginalValue::Number).collect(),
                        SweepValues::State(state) => vec![OriginalValue::State(state)],
                    };
                    if let (0, SweepValues::Numbers(low, high)) = (*feature, *values) {
                        prop_assert_eq!(low, end, "no number is left out");
                        end = high;
                    }
                    for end in ends {
                        let mut row = question.original.clone();
                        row[*feature] = end;
                        let direct = trees.iter().map(|tree| weights(tree, &row)[0]).sum::<f64>();
                        prop_assert!((direct - sums[0]).abs() < 1e-9, "{end:?}: {direct}, {}", sums[0]);
                    }
                }
                prop_assert_eq!(end, 30.0);
                let states = values.iter().filter(|(feature, _)| *feature == 2).count();
                prop_assert_eq!(states, 3);
            }
        }

        #[test]
        fn a_search_finds_what_reaches_a_goal_or_proves_that_nothing_does(
            seed in any::<u64>(),
            plus in -4.0..0.0f64,
            refuses in any::<bool>(),
        ) {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut trees: Vec<Vec<TreeStep>> = vec![Vec::new(); 5];
            for tree in &mut trees {
                grow(&mut random, 6, tree);
            }
            let sweeper = Sweeper::new(&trees, 2, 4);
            let original = vec![OriginalValue::Number(7.0), OriginalValue::Number(3.0), OriginalValue::State(2), OriginalValue::State(4)];
            let reach = vec![
                SweepReach::Numbers(3.0, 12.0), SweepReach::Fixed, SweepReach::States(0b01011), SweepReach::States(0b00011),
            ];
            let question = SweepRow { original, reach };
            let demand = |up, down| Demand { up, down, plus, tops: sweeper.tops(up, down) };
            // A difference, and a sum that speaks against it.
            let demands = [demand(Some(0), Some(1)), demand(Some(1), None)];
            let reaches = |row: &[OriginalValue]| {
                let sums = trees.iter().map(|tree| weights(tree, row));
                let [first, second] = sums.fold([0.0, 0.0], |all, of| [all[0] + of[0], all[1] + of[1]]);
                first - second + plus >= 0.0 && second + plus >= 0.0
            };
            let mut possible = false;
            for number in 3..=12 {
                for (state, other) in (0..25).map(|both| (both / 5, both % 5)) {
                    let within = 0b01111 >> state & 1 == 1 && 0b10011 >> other & 1 == 1;
                    let row = [OriginalValue::Number(f64::from(number)), OriginalValue::Number(3.0), OriginalValue::State(state), OriginalValue::State(other)];
                    possible |= within && reaches(&row);
                }
            }
            let mut shown = 0;
            let mut accept = |spans: &Spans| {
                shown += 1;
                let mut row = question.original.clone();
                for (feature, span) in spans.iter().enumerate() {
                    row[feature] = match span {
                        Some(Span::Ranks(low, high)) => OriginalValue::Number(sweeper.numbers(feature, (*low, *high)).1.min(12.0)),
                        Some(Span::States(states)) => OriginalValue::State(states.trailing_zeros()),
                        None => row[feature],
                    };
                }
                assert!(reaches(&row), "{row:?} is shown, and does not reach the goal");
                if refuses { Verdict::Empty } else { Verdict::Taken }
            };
            let limits = RegionLimits { regions: 100_000, slack: 0.0, accept: &mut accept };
            let found = sweeper.search(&question, &demands, limits);
            let ended = if possible && !refuses { Ended::Taken } else { Ended::Impossible };
            prop_assert_eq!(found.ended, ended);
            prop_assert_eq!(shown > 0, possible);
        }
    }
}
