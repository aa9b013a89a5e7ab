//! What an ensemble of trees would say of rows if one of their features had another value: every tree is walked
//! once, along the row's own path and along all paths on which a single feature has left it. That takes about as
//! long as a few dozen questions, and tells where along every feature the answer changes at all.

use crate::predictor;

/// The node's feature of a leaf.
const LEAF: u16 = u16::MAX;
/// States of a feature, at most: one bit for each.
pub(super) const MOST_STATES: usize = 64;

/// A node of a tree, in the terms of the table's features. Its first way leads to the node behind it.
#[derive(Debug, Clone, Copy)]
struct Node {
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
pub(super) enum Split {
    /// Numbers up to this one go the first way, and nulls if so said.
    Number { cut: f64, gap_first: bool },
    /// States whose bit is set go the first way.
    States(u64),
}

/// A tree that is handed over, node by node.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Branch { feature: usize, split: Split, ways: [u32; 2] },
    Leaf(Vec<f64>),
}

/// What a row has for a feature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Own {
    Number(f64),
    State(u32),
}

/// What a feature may become.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reach {
    /// What it is.
    Fixed,
    /// Numbers between these, both included.
    Numbers(f64, f64),
    /// States whose bit is set.
    States(u64),
}

/// Some values of one feature, for all of which the answer is the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Values {
    /// Above the first, up to the second.
    Numbers(f64, f64),
    State(u32),
}

impl From<Values> for predictor::Values {
    fn from(values: Values) -> predictor::Values {
        match values {
            Values::Numbers(low, high) => predictor::Values::Numbers(low, high),
            Values::State(state) => predictor::Values::Code(state),
        }
    }
}

/// Values of one feature with the sums of the weights that a row would get with them.
#[derive(Debug, Default)]
pub(in super::super) struct Responses {
    /// By feature, one after the other.
    pub(super) values: Vec<(usize, Values)>,
    /// Sums, as many to each entry as there are outputs.
    pub(super) sums: Vec<f64>,
}

/// Values of a feature on one side of branches.
#[derive(Debug, Clone, Copy)]
enum Span {
    /// Ranks among the feature's cuts, both included.
    Ranks(u32, u32),
    States(u64),
}

/// What a row has for a feature.
#[derive(Debug, Clone, Copy)]
enum Place {
    Rank(u32),
    State(u32),
}

/// A tree's weights change by this where a feature's values lie in a span.
#[derive(Debug, Clone, Copy)]
struct Event {
    span: Span,
    /// First weight of the leaf that is reached, and of the leaf that was.
    leaf: u32,
    own: u32,
}

/// Memory that sweeps use again.
#[derive(Debug, Default)]
pub(in super::super) struct Scratch {
    rows: Vec<RowScratch>,
    edges: Vec<u64>,
    sums: Vec<f64>,
    walk: Walk,
    /// Per state where its sums are.
    states: Vec<usize>,
}

/// One walk of one row through one tree.
#[derive(Debug, Default)]
struct Walk {
    /// Nodes of the row's own path, and whether it went their first way.
    path: Vec<(u32, bool)>,
    /// Spans before they were narrowed on the way.
    narrowed: Vec<(usize, Span)>,
}

/// What is known of one row while its trees are walked.
#[derive(Debug, Default)]
struct RowScratch {
    places: Vec<Place>,
    /// Per feature what it may become and still come to the node that is looked at; none if it is fixed.
    spans: Vec<Option<Span>>,
    events: Vec<Vec<Event>>,
    base: Vec<f64>,
}

/// A row, and what its features may become.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) own: Vec<Own>,
    pub(super) reach: Vec<Reach>,
}

/// An ensemble whose nodes ask about features of the table.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    nodes: Vec<Node>,
    roots: Vec<u32>,
    weights: Vec<f64>,
    outputs: usize,
    /// Per numeric feature the numbers at which it is divided, ascending.
    cuts: Vec<Vec<f64>>,
    states: Vec<u64>,
}

impl Sweeper {
    /// Lays out trees, the root of each first, over so many features.
    pub(super) fn new(trees: &[Vec<Step>], outputs: usize, features: usize) -> Sweeper {
        let mut cuts: Vec<Vec<f64>> = vec![Vec::new(); features];
        for step in trees.iter().flatten() {
            if let Step::Branch { feature, split: Split::Number { cut, .. }, .. } = step {
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

    fn lay_out(&mut self, tree: &[Step], at: u32) {
        let place = self.nodes.len();
        match &tree[at as usize] {
            Step::Leaf(weights) => {
                let at = self.weights.len() as u32;
                self.nodes.push(Node { feature: LEAF, gap_first: false, at, second: 0 });
                self.weights.extend(weights);
            }
            Step::Branch { feature, split, ways } => {
                let (at, gap_first) = match *split {
                    Split::Number { cut, gap_first } => (self.rank(*feature, cut), gap_first),
                    Split::States(states) => {
                        self.states.push(states);
                        (self.states.len() as u32 - 1, false)
                    }
                };
                self.nodes.push(Node { feature: *feature as u16, gap_first, at, second: 0 });
                self.lay_out(tree, ways[0]);
                self.nodes[place].second = self.nodes.len() as u32;
                self.lay_out(tree, ways[1]);
            }
        }
    }

    /// How many cuts of a feature are below a number: it goes the first way at those from that position on.
    fn rank(&self, feature: usize, number: f64) -> u32 {
        if number.is_nan() {
            return GAP;
        }
        self.cuts[feature].partition_point(|cut| *cut < number) as u32
    }

    /// What would be said of rows if one feature were what it may become. Each tree is walked by all rows before the
    /// next one, while it is in the cache.
    pub(super) fn sweep(
        &self,
        rows: &[Question],
        scratch: &mut Scratch,
        found: &mut Vec<Responses>,
    ) {
        scratch.rows.resize_with(scratch.rows.len().max(rows.len()), RowScratch::default);
        found.resize_with(rows.len(), Responses::default);
        for (row, of) in rows.iter().zip(&mut scratch.rows) {
            self.begin(row, of);
        }
        let Scratch { rows: known, walk, .. } = &mut *scratch;
        for root in &self.roots {
            for of in &mut known[..rows.len()] {
                self.walk(*root, of, walk);
            }
        }
        for (at, (row, found)) in rows.iter().zip(found).enumerate() {
            found.values.clear();
            found.sums.clear();
            for (feature, reach) in row.reach.iter().enumerate() {
                match *reach {
                    Reach::Fixed => {}
                    Reach::Numbers(low, high) => {
                        self.along((at, feature), (low, high), scratch, found);
                    }
                    Reach::States(states) => self.among((at, feature), states, scratch, found),
                }
            }
        }
    }

    fn begin(&self, Question { own, reach }: &Question, of: &mut RowScratch) {
        let place = |(feature, own): (usize, &Own)| match *own {
            Own::Number(number) => Place::Rank(self.rank(feature, number)),
            Own::State(state) => Place::State(state),
        };
        let span = |(feature, reach): (usize, &Reach)| match *reach {
            Reach::Fixed => None,
            Reach::Numbers(low, high) => {
                Some(Span::Ranks(self.rank(feature, low), self.rank(feature, high)))
            }
            Reach::States(states) => Some(Span::States(states)),
        };
        of.places.clear();
        of.places.extend(own.iter().enumerate().map(place));
        of.spans.clear();
        of.spans.extend(reach.iter().enumerate().map(span));
        of.events.resize_with(reach.len(), Vec::new);
        of.events.iter_mut().for_each(Vec::clear);
        of.base.clear();
        of.base.resize(self.outputs, 0.0);
    }

    /// Walks a row's own path, and leaves it wherever a feature may go the other way.
    fn walk(&self, root: u32, of: &mut RowScratch, Walk { path, narrowed }: &mut Walk) {
        let RowScratch { places, spans, events, base } = of;
        path.clear();
        let mut at = root;
        let own = loop {
            let node = &self.nodes[at as usize];
            if node.feature == LEAF {
                break node.at;
            }
            let first = self.first(node, places[usize::from(node.feature)]);
            path.push((at, first));
            at = if first { at + 1 } else { node.second };
        };
        for (base, weight) in base.iter_mut().zip(&self.weights[own as usize..]) {
            *base += weight;
        }
        // Of a feature that was left before, only what is on the row's side of that branch is left now.
        for (at, first) in path.iter() {
            let node = &self.nodes[*at as usize];
            let feature = usize::from(node.feature);
            let Some(span) = spans[feature] else { continue };
            if let Some(other) = self.part(node, span, !first) {
                let from = if *first { node.second } else { at + 1 };
                self.stray(from, places, (feature, other), own, &mut events[feature]);
                narrowed.push((feature, span));
                spans[feature] = self.part(node, span, *first);
            }
        }
        while let Some((feature, span)) = narrowed.pop() {
            spans[feature] = Some(span);
        }
    }

    /// Walks on from a node where one feature has left the row's path.
    fn stray(
        &self,
        from: u32,
        places: &[Place],
        (feature, span): (usize, Span),
        own: u32,
        events: &mut Vec<Event>,
    ) {
        let (mut at, mut span) = (from, span);
        loop {
            let node = &self.nodes[at as usize];
            if node.feature == LEAF {
                events.push(Event { span, leaf: node.at, own });
                return;
            }
            let here = usize::from(node.feature);
            if here != feature {
                at = if self.first(node, places[here]) { at + 1 } else { node.second };
                continue;
            }
            match (self.part(node, span, true), self.part(node, span, false)) {
                (Some(one), Some(two)) => {
                    self.stray(node.second, places, (feature, two), own, events);
                    (at, span) = (at + 1, one);
                }
                (Some(one), None) => (at, span) = (at + 1, one),
                (None, Some(two)) => (at, span) = (node.second, two),
                (None, None) => return,
            }
        }
    }

    fn first(&self, node: &Node, place: Place) -> bool {
        match place {
            Place::Rank(rank) => rank <= node.at || (node.gap_first && rank == GAP),
            Place::State(state) => self.states[node.at as usize] >> state & 1 == 1,
        }
    }

    /// The part of a span that goes one way.
    fn part(&self, node: &Node, span: Span, first: bool) -> Option<Span> {
        match span {
            Span::Ranks(low, high) => {
                let (low, high) =
                    if first { (low, high.min(node.at)) } else { (low.max(node.at + 1), high) };
                (low <= high).then_some(Span::Ranks(low, high))
            }
            Span::States(states) => {
                let own = self.states[node.at as usize];
                let states = states & if first { own } else { !own };
                (states != 0).then_some(Span::States(states))
            }
        }
    }

    /// The responses along a numeric feature.
    fn along(
        &self,
        (row, feature): (usize, usize),
        (low, high): (f64, f64),
        scratch: &mut Scratch,
        found: &mut Responses,
    ) {
        let Scratch { rows, edges, sums, .. } = scratch;
        let RowScratch { events, base, .. } = &rows[row];
        let (first, last) = (self.rank(feature, low), self.rank(feature, high));
        edges.clear();
        for (at, event) in (0u64..).zip(&events[feature]) {
            if let Span::Ranks(from, to) = event.span {
                edges.push(u64::from(from) << 32 | at << 1);
                if to < last {
                    edges.push(u64::from(to + 1) << 32 | at << 1 | 1);
                }
            }
        }
        edges.sort_unstable();
        sums.clear();
        sums.extend_from_slice(base);
        let cuts = &self.cuts[feature];
        let (mut from, mut rank) = (low.next_down(), first);
        for edge in edges.iter() {
            let at = (edge >> 32) as u32;
            if at > rank {
                let to = cuts[at as usize - 1];
                found.values.push((feature, Values::Numbers(from, to)));
                found.sums.extend_from_slice(sums);
                (from, rank) = (to, at);
            }
            let Event { leaf, own, .. } = events[feature][(edge & 0xffff_ffff) as usize >> 1];
            let (leaf, own) = if edge & 1 == 0 { (leaf, own) } else { (own, leaf) };
            let (leaf, own) = (&self.weights[leaf as usize..], &self.weights[own as usize..]);
            for ((sum, leaf), own) in sums.iter_mut().zip(leaf).zip(own) {
                *sum += leaf - own;
            }
        }
        if from < high {
            found.values.push((feature, Values::Numbers(from, high)));
            found.sums.extend_from_slice(sums);
        }
    }

    /// The responses to the states of a feature.
    fn among(
        &self,
        (row, feature): (usize, usize),
        states: u64,
        scratch: &mut Scratch,
        found: &mut Responses,
    ) {
        let Scratch { rows, states: places, .. } = scratch;
        let RowScratch { events, base, .. } = &rows[row];
        places.clear();
        places.resize(MOST_STATES, 0);
        for state in bits(states) {
            places[state as usize] = found.sums.len();
            found.values.push((feature, Values::State(state)));
            found.sums.extend_from_slice(base);
        }
        for Event { span, leaf, own } in &events[feature] {
            let Span::States(of) = span else { continue };
            let (leaf, own) = (&self.weights[*leaf as usize..], &self.weights[*own as usize..]);
            for state in bits(*of) {
                let first = places[state as usize];
                let sums = &mut found.sums[first..first + self.outputs];
                for ((sum, leaf), own) in sums.iter_mut().zip(leaf).zip(own) {
                    *sum += leaf - own;
                }
            }
        }
    }
}

/// The positions of the bits that are set.
fn bits(mut set: u64) -> impl Iterator<Item = u32> {
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

    /// Features 0 and 1 are numbers, 2 and 3 have five states.
    fn grow(random: &mut ChaCha8Rng, depth: u32, tree: &mut Vec<Step>) -> u32 {
        let at = tree.len();
        let weight = f64::from(random.random_range(0..100)) / 100.0;
        tree.push(Step::Leaf(vec![weight, 1.0 - weight]));
        if depth > 0 && random.random_range(0..8) > 0 {
            let feature = random.random_range(0..4);
            let split = match feature {
                0 | 1 => Split::Number {
                    cut: f64::from(random.random_range(0..40)),
                    gap_first: random.random_range(0..2) == 0,
                },
                _ => Split::States(random.random_range(0..32)),
            };
            let ways = [grow(random, depth - 1, tree), grow(random, depth - 1, tree)];
            tree[at] = Step::Branch { feature, split, ways };
        }
        at as u32
    }

    fn weights<'t>(tree: &'t [Step], row: &[Own]) -> &'t [f64] {
        let mut at = 0;
        loop {
            let (feature, split, ways) = match &tree[at] {
                Step::Leaf(weights) => return weights,
                Step::Branch { feature, split, ways } => (*feature, *split, ways),
            };
            let first = match (split, row[feature]) {
                (Split::Number { cut, gap_first }, Own::Number(number)) => {
                    number <= cut || (number.is_nan() && gap_first)
                }
                (Split::States(states), Own::State(state)) => states >> state & 1 == 1,
                _ => unreachable!("a number is no state"),
            };
            at = ways[usize::from(!first)] as usize;
        }
    }

    proptest! {
        #[test]
        fn every_response_is_what_the_trees_say(seed in any::<u64>(), gap in any::<bool>()) {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut trees: Vec<Vec<Step>> = vec![Vec::new(); 5];
            for tree in &mut trees {
                grow(&mut random, 6, tree);
            }
            let sweeper = Sweeper::new(&trees, 2, 4);
            let row = |random: &mut ChaCha8Rng| vec![
                Own::Number(f64::from(random.random_range(0..80)) / 2.0),
                Own::Number(if gap { f64::NAN } else { 7.0 }),
                Own::State(random.random_range(0..5)),
                Own::State(random.random_range(0..5)),
            ];
            let questions: Vec<Question> = (0..5).map(|_| Question {
                own: row(&mut random),
                reach: vec![
                    Reach::Numbers(3.5, 30.0),
                    if gap { Reach::Fixed } else { Reach::Numbers(0.0, 20.0) },
                    Reach::States(0b10110),
                    Reach::Fixed,
                ],
            }).collect();
            let mut found = Vec::new();
            sweeper.sweep(&questions, &mut Scratch::default(), &mut found);
            for (question, Responses { values, sums }) in questions.iter().zip(&found) {
                let mut end = 3.5f64.next_down();
                for ((feature, values), sums) in values.iter().zip(sums.chunks_exact(2)) {
                    let ends = match *values {
                        Values::Numbers(low, high) => vec![low.next_up(), high].into_iter().map(Own::Number).collect(),
                        Values::State(state) => vec![Own::State(state)],
                    };
                    if let (0, Values::Numbers(low, high)) = (*feature, *values) {
                        prop_assert_eq!(low, end, "no number is left out");
                        end = high;
                    }
                    for own in ends {
                        let mut row = question.own.clone();
                        row[*feature] = own;
                        let told = trees.iter().map(|tree| weights(tree, &row)[0]).sum::<f64>();
                        prop_assert!((told - sums[0]).abs() < 1e-9, "{own:?}: {told}, {}", sums[0]);
                    }
                }
                prop_assert_eq!(end, 30.0);
                let states = values.iter().filter(|(feature, _)| *feature == 2).count();
                prop_assert_eq!(states, 3);
            }
        }
    }
}
