//! What an ensemble of trees would say of a row if one of its features had another value: every tree is walked
//! once, along the row's own path and along all paths on which a single feature has left it. That takes about as
//! long as a few dozen questions, and tells where along every feature the answer changes at all.

use crate::predictor;

/// The node's feature of a leaf.
const LEAF: u16 = u16::MAX;
/// States of a feature, at most: one bit for each.
pub(super) const MOST_STATES: usize = 64;

/// A node of a tree, in the terms of the table's features.
#[derive(Debug, Clone, Copy)]
struct Node {
    feature: u16,
    /// Whether a null goes the first way.
    gap_first: bool,
    /// Numbers up to it go the first way.
    cut: f64,
    /// States whose bit is set go the first way.
    states: u64,
    /// Where the two ways lead; the first weight of a leaf.
    ways: [u32; 2],
}

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
    /// Above the first, up to the second.
    Numbers(f64, f64),
    States(u64),
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
    events: Vec<Vec<Event>>,
    edges: Vec<(f64, u32, bool)>,
    base: Vec<f64>,
    sums: Vec<f64>,
    /// Per feature what it may become and still come to the node that is looked at; none if it is fixed.
    spans: Vec<Option<Span>>,
    /// Nodes of the row's own path, and whether it went their first way.
    path: Vec<(u32, bool)>,
    /// Spans of the tree that is walked before they were narrowed.
    narrowed: Vec<(usize, Span)>,
    /// Per state where its sums are.
    states: Vec<usize>,
}

impl Reach {
    fn span(&self) -> Option<Span> {
        match *self {
            Reach::Fixed => None,
            Reach::Numbers(low, high) => Some(Span::Numbers(low.next_down(), high)),
            Reach::States(states) => Some(Span::States(states)),
        }
    }
}

/// An ensemble whose nodes ask about features of the table.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    nodes: Vec<Node>,
    roots: Vec<u32>,
    weights: Vec<f64>,
    outputs: usize,
}

impl Sweeper {
    pub(super) fn new(outputs: usize) -> Sweeper {
        Sweeper { outputs, ..Sweeper::default() }
    }

    /// Adds a tree; its root comes first.
    pub(super) fn add(&mut self, tree: &[Step]) {
        let first = self.nodes.len() as u32;
        self.roots.push(first);
        for step in tree {
            let node = match step {
                Step::Branch { feature, split, ways } => {
                    let ways = ways.map(|way| way + first);
                    let feature = *feature as u16;
                    match *split {
                        Split::Number { cut, gap_first } => {
                            Node { feature, gap_first, cut, states: 0, ways }
                        }
                        // A number is of no state; where all states go one way, so do all numbers.
                        Split::States(states) => {
                            let cut = if states == u64::MAX { f64::INFINITY } else { 0.0 };
                            Node { feature, gap_first: states == u64::MAX, cut, states, ways }
                        }
                    }
                }
                Step::Leaf(weights) => {
                    let at = self.weights.len() as u32;
                    self.weights.extend(weights);
                    Node { feature: LEAF, gap_first: false, cut: 0.0, states: 0, ways: [at; 2] }
                }
            };
            self.nodes.push(node);
        }
    }

    /// What would be said of a row if one feature were what it may become.
    pub(super) fn sweep(
        &self,
        row: &[Own],
        reach: &[Reach],
        scratch: &mut Scratch,
        found: &mut Responses,
    ) {
        found.values.clear();
        found.sums.clear();
        scratch.events.resize_with(row.len(), Vec::new);
        scratch.events.iter_mut().for_each(Vec::clear);
        scratch.base.clear();
        scratch.base.resize(self.outputs, 0.0);
        scratch.spans.clear();
        scratch.spans.extend(reach.iter().map(Reach::span));
        for root in &self.roots {
            self.walk(*root, row, scratch);
        }
        for (feature, reach) in reach.iter().enumerate() {
            match *reach {
                Reach::Fixed => {}
                Reach::Numbers(low, high) => self.along(feature, (low, high), scratch, found),
                Reach::States(states) => self.among(feature, states, scratch, found),
            }
        }
    }

    /// Walks the row's own path, and leaves it wherever a feature may go the other way.
    fn walk(&self, root: u32, row: &[Own], scratch: &mut Scratch) {
        let Scratch { events, base, spans, path, narrowed, .. } = scratch;
        path.clear();
        let mut at = root;
        let own = loop {
            let node = &self.nodes[at as usize];
            if node.feature == LEAF {
                break node.ways[0];
            }
            let first = node.first(row[usize::from(node.feature)]);
            path.push((at, first));
            at = node.ways[usize::from(!first)];
        };
        for (base, weight) in base.iter_mut().zip(&self.weights[own as usize..]) {
            *base += weight;
        }
        // Of a feature that was left before, only what is on the row's side of that branch is left now.
        for (at, first) in path.iter() {
            let node = &self.nodes[*at as usize];
            let feature = usize::from(node.feature);
            let Some(span) = spans[feature] else { continue };
            if let Some(other) = node.part(span, !first) {
                let from = node.ways[usize::from(*first)];
                self.stray(from, row, (feature, other), own, &mut events[feature]);
                narrowed.push((feature, span));
                spans[feature] = node.part(span, *first);
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
        row: &[Own],
        (feature, span): (usize, Span),
        own: u32,
        events: &mut Vec<Event>,
    ) {
        let (mut at, mut span) = (from, span);
        loop {
            let node = &self.nodes[at as usize];
            if node.feature == LEAF {
                events.push(Event { span, leaf: node.ways[0], own });
                return;
            }
            let here = usize::from(node.feature);
            if here != feature {
                at = node.ways[usize::from(!node.first(row[here]))];
                continue;
            }
            match (node.part(span, true), node.part(span, false)) {
                (Some(one), Some(two)) => {
                    self.stray(node.ways[1], row, (feature, two), own, events);
                    (at, span) = (node.ways[0], one);
                }
                (Some(one), None) => (at, span) = (node.ways[0], one),
                (None, Some(two)) => (at, span) = (node.ways[1], two),
                (None, None) => return,
            }
        }
    }

    /// The responses along a numeric feature.
    fn along(
        &self,
        feature: usize,
        (low, high): (f64, f64),
        scratch: &mut Scratch,
        found: &mut Responses,
    ) {
        let Scratch { events, edges, base, sums, .. } = scratch;
        edges.clear();
        for (at, event) in events[feature].iter().enumerate() {
            if let Span::Numbers(from, to) = event.span {
                edges.push((from, at as u32, true));
                if to < high {
                    edges.push((to, at as u32, false));
                }
            }
        }
        edges.sort_unstable_by(|one, two| one.0.total_cmp(&two.0));
        sums.clear();
        sums.extend_from_slice(base);
        let (mut from, mut next) = (low.next_down(), 0);
        while next < edges.len() {
            let edge = edges[next].0;
            if edge > from {
                found.values.push((feature, Values::Numbers(from, edge)));
                found.sums.extend_from_slice(sums);
                from = edge;
            }
            while let Some((_, at, begins)) = edges.get(next).filter(|found| found.0 == edge) {
                let Event { leaf, own, .. } = events[feature][*at as usize];
                let (leaf, own) = (&self.weights[leaf as usize..], &self.weights[own as usize..]);
                for ((sum, leaf), own) in sums.iter_mut().zip(leaf).zip(own) {
                    *sum += if *begins { leaf - own } else { own - leaf };
                }
                next += 1;
            }
        }
        if from < high {
            found.values.push((feature, Values::Numbers(from, high)));
            found.sums.extend_from_slice(sums);
        }
    }

    /// The responses to the states of a feature.
    fn among(&self, feature: usize, states: u64, scratch: &mut Scratch, found: &mut Responses) {
        let Scratch { events, base, states: places, .. } = scratch;
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

impl Node {
    fn first(&self, own: Own) -> bool {
        match own {
            Own::Number(number) => number <= self.cut || (self.gap_first && number.is_nan()),
            Own::State(state) => self.states >> state & 1 == 1,
        }
    }

    /// The part of a span that goes one way.
    fn part(&self, span: Span, first: bool) -> Option<Span> {
        match span {
            Span::Numbers(low, high) => {
                let (low, high) =
                    if first { (low, high.min(self.cut)) } else { (low.max(self.cut), high) };
                (low < high).then_some(Span::Numbers(low, high))
            }
            Span::States(states) => {
                let states = states & if first { self.states } else { !self.states };
                (states != 0).then_some(Span::States(states))
            }
        }
    }
}
