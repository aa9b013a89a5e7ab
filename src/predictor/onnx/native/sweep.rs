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
        for root in &self.roots {
            let own = self.leaf(*root, row);
            for (base, weight) in scratch.base.iter_mut().zip(&self.weights[own as usize..]) {
                *base += weight;
            }
            self.leave(*root, row, reach, own, &mut scratch.events);
        }
        for (feature, reach) in reach.iter().enumerate() {
            match *reach {
                Reach::Fixed => {}
                Reach::Numbers(low, high) => self.along(feature, (low, high), scratch, found),
                Reach::States(states) => self.among(feature, states, scratch, found),
            }
        }
    }

    /// The first weight of the leaf that a row reaches.
    fn leaf(&self, root: u32, row: &[Own]) -> u32 {
        let mut at = root;
        loop {
            let node = &self.nodes[at as usize];
            if node.feature == LEAF {
                return node.ways[0];
            }
            at = node.ways[usize::from(!node.first(row[usize::from(node.feature)]))];
        }
    }

    /// Walks the row's own path, and leaves it wherever a feature may go the other way.
    fn leave(&self, root: u32, row: &[Own], reach: &[Reach], own: u32, events: &mut [Vec<Event>]) {
        let mut at = root;
        // Of a feature that was left before, only what is on the row's side of that branch is left now.
        loop {
            let node = &self.nodes[at as usize];
            if node.feature == LEAF {
                return;
            }
            let feature = usize::from(node.feature);
            let first = node.first(row[feature]);
            let other = node.ways[usize::from(first)];
            if let Some(span) = self.own_span(root, at, row, reach, feature) {
                if let Some(span) = node.part(span, !first) {
                    self.stray(other, row, (feature, span), own, &mut events[feature]);
                }
            }
            at = node.ways[usize::from(!first)];
        }
    }

    /// What a feature may become and still come to a node of the row's own path.
    fn own_span(
        &self,
        root: u32,
        to: u32,
        row: &[Own],
        reach: &[Reach],
        feature: usize,
    ) -> Option<Span> {
        let mut span = match reach[feature] {
            Reach::Fixed => return None,
            Reach::Numbers(low, high) => Span::Numbers(low.next_down(), high),
            Reach::States(states) => Span::States(states),
        };
        let mut at = root;
        while at != to {
            let node = &self.nodes[at as usize];
            let first = node.first(row[usize::from(node.feature)]);
            if usize::from(node.feature) == feature {
                span = node.part(span, first)?;
            }
            at = node.ways[usize::from(!first)];
        }
        Some(span)
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
        let Scratch { events, edges, base, sums } = scratch;
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
        for state in (0..MOST_STATES as u32).filter(|state| states >> state & 1 == 1) {
            let first = found.sums.len();
            found.values.push((feature, Values::State(state)));
            found.sums.extend_from_slice(&scratch.base);
            let sums = &mut found.sums[first..];
            for Event { span, leaf, own } in &scratch.events[feature] {
                if matches!(span, Span::States(of) if of >> state & 1 == 1) {
                    let (leaf, own) =
                        (&self.weights[*leaf as usize..], &self.weights[*own as usize..]);
                    for ((sum, leaf), own) in sums.iter_mut().zip(leaf).zip(own) {
                        *sum += leaf - own;
                    }
                }
            }
        }
    }
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
