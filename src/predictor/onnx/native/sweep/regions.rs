//! Regions: what the trees say at most where every feature may be anything of a span, and a search that divides what
//! a row may become until one region reaches a goal, or none can.
//!
//! Of every tree the leaf that adds most is looked for among those that a region leads to. Their sum is a bound. If
//! some row leads to all of these leaves, the bound is what the model says of it; else the region is divided where
//! the leaves contradict each other most.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::{FeatureState, LEAF, Span, SweepRow, Sweeper, bits};
use crate::predictor::{Ended, Searched, Verdict};

/// Of every node the most that a leaf below it adds.
pub(in super::super) type Tops = Arc<[f64]>;

/// One output's sum, less another's, plus a constant: it must not be negative.
#[derive(Debug, Clone)]
pub(in super::super) struct Demand {
    pub(in super::super) up: Option<usize>,
    pub(in super::super) down: Option<usize>,
    pub(in super::super) plus: f64,
    pub(in super::super) tops: Tops,
}

/// What limits a search.
pub(in super::super) struct RegionLimits<'a> {
    /// Regions to look at, at most.
    pub(in super::super) regions: usize,
    /// How far sums may be from the model's by rounding.
    pub(in super::super) slack: f64,
    /// Shown the spans of features that reach the goal together.
    pub(in super::super) accept: &'a mut dyn FnMut(&Spans) -> Verdict,
}

/// Per feature what it may be; none if it is what the row has.
pub(in super::super) type Spans = [Option<Span>];

/// A region on its way to be divided.
struct OpenRegion {
    spans: Box<Spans>,
    /// The least of what the demands come to at most.
    bound: f64,
    next: Next,
}

/// What is to be done with a region.
enum Next {
    /// It is divided along a feature.
    Divide(usize, [Span; 2]),
    /// All demands come to their bounds within these spans.
    Show(Box<Spans>),
}

impl PartialEq for OpenRegion {
    fn eq(&self, other: &OpenRegion) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for OpenRegion {}

impl PartialOrd for OpenRegion {
    fn partial_cmp(&self, other: &OpenRegion) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpenRegion {
    fn cmp(&self, other: &OpenRegion) -> Ordering {
        self.bound.total_cmp(&other.bound)
    }
}

/// A walk to the leaf of a tree that adds most.
struct TopLeafSearch<'q> {
    states_of_row: &'q [FeatureState],
    spans: Vec<Option<Span>>,
    /// Features whose spans were narrowed on the way.
    narrowed: Vec<usize>,
    best: f64,
    /// What features must be to come to the best leaf so far.
    leaf: Vec<(usize, Span)>,
}

/// A search for one row.
struct BoundSearch<'s> {
    sweeper: &'s Sweeper,
    demands: &'s [Demand],
    states_of_row: Vec<FeatureState>,
    slack: f64,
    /// Per feature the spans that the best leaves need.
    spans_needed: Vec<Vec<Span>>,
}

impl Sweeper {
    /// Of every node the most that a leaf below it adds to one output's sum less another's.
    pub(in super::super) fn tops(&self, up: Option<usize>, down: Option<usize>) -> Tops {
        let mut tops = vec![f64::NEG_INFINITY; self.nodes.len()];
        for at in (0..self.nodes.len()).rev() {
            let node = &self.nodes[at];
            tops[at] = match node.feature {
                LEAF => self.added(node.at, (up, down)),
                _ => f64::max(tops[at + 1], tops[node.second as usize]),
            };
        }
        tops.into()
    }

    /// The sum over all trees of the greatest weight of any leaf, without sign.
    pub(in super::super) fn greatest(&self) -> f64 {
        let ends = self.roots.iter().skip(1).map(|root| *root as usize).chain([self.nodes.len()]);
        let trees = self.roots.iter().zip(ends);
        let leaves = trees.map(|(root, end)| {
            let leaves = self.nodes[*root as usize..end].iter().filter(|node| node.feature == LEAF);
            let weights = leaves
                .flat_map(|leaf| &self.weights[leaf.at as usize..leaf.at as usize + self.outputs]);
            weights.fold(0.0, |most: f64, weight| most.max(weight.abs()))
        });
        leaves.sum()
    }

    fn added(&self, leaf: u32, (up, down): (Option<usize>, Option<usize>)) -> f64 {
        let weight = |output: Option<usize>| {
            output.map_or(0.0, |output| self.weights[leaf as usize + output])
        };
        weight(up) - weight(down)
    }

    /// Looks for a region within what a row may become in which all demands are met; also how many it looked at.
    pub(in super::super) fn search(
        &self,
        question: &SweepRow,
        demands: &[Demand],
        limits: RegionLimits<'_>,
    ) -> Searched {
        let (states_of_row, spans) = self.laid(question);
        let spans_needed = vec![Vec::new(); spans.len()];
        let slack = limits.slack;
        let mut search = BoundSearch { sweeper: self, demands, states_of_row, slack, spans_needed };
        search.run(spans.into(), limits)
    }

    /// A row and its reach in the terms of ranks and states. What a feature is already is within its reach.
    fn laid(
        &self,
        SweepRow { original, reach }: &SweepRow,
    ) -> (Vec<FeatureState>, Vec<Option<Span>>) {
        let states_of_row: Vec<FeatureState> = original
            .iter()
            .enumerate()
            .map(|(feature, original)| self.state_of(feature, *original))
            .collect();
        let span = |(feature, reach)| match (self.span(feature, reach)?, states_of_row[feature]) {
            (Span::States(states), FeatureState::State(original)) => {
                Some(Span::States(states | 1 << original))
            }
            (span @ Span::Ranks(low, high), FeatureState::Rank(original)) => {
                (low..=high).contains(&original).then_some(span)
            }
            _ => None,
        };
        let spans = reach.iter().copied().enumerate().map(span).collect();
        (states_of_row, spans)
    }

    /// The greatest leaf of a tree that a region leads to.
    fn top_leaf(&self, at: u32, demand: &Demand, top_leaf: &mut TopLeafSearch<'_>) {
        let node = &self.nodes[at as usize];
        if demand.tops[at as usize] <= top_leaf.best {
            return;
        }
        if node.feature == LEAF {
            top_leaf.best = self.added(node.at, (demand.up, demand.down));
            top_leaf.leaf.clear();
            for feature in &top_leaf.narrowed {
                let span = top_leaf.spans[*feature]
                    .filter(|_| !top_leaf.leaf.iter().any(|(known, _)| known == feature));
                top_leaf.leaf.extend(span.map(|span| (*feature, span)));
            }
            return;
        }
        let feature = usize::from(node.feature);
        let ways = [(true, at + 1), (false, node.second)];
        let Some(span) = top_leaf.spans[feature] else {
            let first = self.first(node, top_leaf.states_of_row[feature]);
            return self.top_leaf(ways[usize::from(!first)].1, demand, top_leaf);
        };
        // The more promising way first: the other one may then not need to be looked at.
        let swapped = demand.tops[ways[1].1 as usize] > demand.tops[ways[0].1 as usize];
        for (first, to) in if swapped { [ways[1], ways[0]] } else { ways } {
            if let Some(part) = self.part(node, span, first) {
                top_leaf.spans[feature] = Some(part);
                top_leaf.narrowed.push(feature);
                self.top_leaf(to, demand, top_leaf);
                top_leaf.narrowed.pop();
            }
        }
        top_leaf.spans[feature] = Some(span);
    }

    /// What a row at these places comes to.
    fn value(&self, states_of_row: &[FeatureState], demand: &Demand) -> f64 {
        let leaf = |root: &u32| {
            let mut at = *root;
            loop {
                let node = &self.nodes[at as usize];
                if node.feature == LEAF {
                    return self.added(node.at, (demand.up, demand.down));
                }
                let first = self.first(node, states_of_row[usize::from(node.feature)]);
                at = if first { at + 1 } else { node.second };
            }
        };
        self.roots.iter().map(leaf).sum::<f64>() + demand.plus
    }
}

impl BoundSearch<'_> {
    fn run(&mut self, spans: Box<Spans>, limits: RegionLimits<'_>) -> Searched {
        let RegionLimits { regions, accept, .. } = limits;
        let (mut looked, mut refused) = (1, false);
        let mut heap: BinaryHeap<OpenRegion> = self.examine(spans).into_iter().collect();
        while let Some(OpenRegion { spans, next, .. }) = heap.pop() {
            if looked >= regions {
                return Searched { ended: Ended::Unknown, regions: looked };
            }
            let submodels: Vec<Box<Spans>> = match next {
                Next::Divide(feature, halves) => halves
                    .into_iter()
                    .map(|half| {
                        let mut spans = spans.clone();
                        spans[feature] = Some(half);
                        spans
                    })
                    .collect(),
                Next::Show(shown) => {
                    match accept(&shown) {
                        Verdict::Taken => return Searched { ended: Ended::Taken, regions: looked },
                        Verdict::Refused => refused = true,
                        Verdict::Empty => {}
                    }
                    around(&spans, &shown)
                }
            };
            looked += submodels.len();
            for part in submodels {
                heap.extend(self.examine(part));
            }
        }
        let ended = if refused { Ended::Unknown } else { Ended::Impossible };
        Searched { ended, regions: looked }
    }

    /// A region with its bound, and what is to be done with it; none if it cannot reach the goal.
    fn examine(&mut self, spans: Box<Spans>) -> Option<OpenRegion> {
        self.spans_needed.iter_mut().for_each(Vec::clear);
        let mut top_leaf = TopLeafSearch {
            states_of_row: &self.states_of_row,
            spans: spans.to_vec(),
            narrowed: Vec::new(),
            best: 0.0,
            leaf: Vec::new(),
        };
        let mut least = f64::INFINITY;
        for demand in self.demands {
            let mut bound = demand.plus;
            for root in &self.sweeper.roots {
                top_leaf.best = f64::NEG_INFINITY;
                self.sweeper.top_leaf(*root, demand, &mut top_leaf);
                bound += top_leaf.best;
                top_leaf
                    .leaf
                    .drain(..)
                    .for_each(|(feature, span)| self.spans_needed[feature].push(span));
            }
            least = least.min(bound);
            if least < -self.slack {
                return None;
            }
        }
        let next = self.next(&spans);
        Some(OpenRegion { spans, bound: least, next })
    }

    /// Where the best leaves contradict each other most, or what they have in common.
    fn next(&mut self, spans: &Spans) -> Next {
        let mut shown: Box<Spans> = spans.into();
        let mut most: Option<(usize, usize, [Span; 2])> = None;
        for (feature, spans_needed) in self.spans_needed.iter_mut().enumerate() {
            let Some(span) = spans[feature] else { continue };
            let found = match span {
                Span::Ranks(low, high) => divide_ranks(spans_needed, (low, high)),
                Span::States(states) => divide_states(spans_needed, states),
            };
            match found {
                Ok(common) => shown[feature] = Some(common),
                Err((weight, halves)) => {
                    if most.as_ref().is_none_or(|(best, ..)| weight > *best) {
                        most = Some((weight, feature, halves));
                    }
                }
            }
        }
        let Some((_, feature, halves)) = most else { return Next::Show(shown) };
        let point = self.consensus(spans);
        let reaches = |demand: &Demand| self.sweeper.value(&point, demand) >= 0.0;
        if self.demands.iter().all(reaches) {
            return Next::Show(
                spans.iter().zip(&point).map(|(span, at)| span.map(|_| only(*at))).collect(),
            );
        }
        Next::Divide(feature, halves)
    }

    /// The row of a region that most of the best leaves have in common, feature by feature: as it is where nothing
    /// is better.
    fn consensus(&self, spans: &Spans) -> Vec<FeatureState> {
        let state_of =
            |(feature, original): (usize, &FeatureState)| match (spans[feature], *original) {
                (Some(Span::Ranks(low, high)), FeatureState::Rank(original)) => FeatureState::Rank(
                    commonest_rank(&self.spans_needed[feature], original.clamp(low, high)),
                ),
                (Some(Span::States(states)), FeatureState::State(original)) => FeatureState::State(
                    commonest_state(&self.spans_needed[feature], states, original),
                ),
                (_, original) => original,
            };
        self.states_of_row.iter().enumerate().map(state_of).collect()
    }
}

fn only(state_of: FeatureState) -> Span {
    match state_of {
        FeatureState::Rank(rank) => Span::Ranks(rank, rank),
        FeatureState::State(state) => Span::States(1 << state),
    }
}

/// The rank that lies in most spans; of several the one nearest to a rank.
fn commonest_rank(spans_needed: &[Span], original: u32) -> u32 {
    let ranks = |span: &Span| match *span {
        Span::Ranks(low, high) => Some((low, high)),
        Span::States(_) => None,
    };
    let within = |rank: u32| {
        spans_needed
            .iter()
            .filter_map(ranks)
            .filter(|(low, high)| (*low..=*high).contains(&rank))
            .count()
    };
    // Where spans overlap most, one of them begins on the side of the rank.
    let ends = spans_needed.iter().filter_map(ranks).map(|(low, high)| original.clamp(low, high));
    let mut ends: Vec<u32> = ends.chain([original]).collect();
    ends.sort_unstable();
    ends.dedup();
    let key = |rank: &u32| (within(*rank), std::cmp::Reverse(rank.abs_diff(original)));
    ends.into_iter().max_by_key(key).unwrap_or(original)
}

/// The state that most sets have; its own if that is as good.
fn commonest_state(spans_needed: &[Span], states: u64, original: u32) -> u32 {
    let within = |state: u32| {
        let has = |span: &&Span| matches!(span, Span::States(set) if set >> state & 1 == 1);
        spans_needed.iter().filter(has).count()
    };
    bits(states).max_by_key(|state| (within(*state), *state == original)).unwrap_or(original)
}

/// What spans of ranks have in common; else how many of them lie on either side of the cut that separates most, and
/// the halves that it makes.
fn divide_ranks(
    spans_needed: &[Span],
    (low, high): (u32, u32),
) -> Result<Span, (usize, [Span; 2])> {
    let ranks = |span: &Span| match *span {
        Span::Ranks(low, high) => Some((low, high)),
        Span::States(_) => None,
    };
    let (mut lows, mut highs): (Vec<u32>, Vec<u32>) = spans_needed.iter().filter_map(ranks).unzip();
    lows.sort_unstable();
    highs.sort_unstable();
    let (last, first) =
        (lows.last().copied().unwrap_or(low), highs.first().copied().unwrap_or(high));
    if last <= first {
        return Ok(Span::Ranks(last.max(low), first.min(high)));
    }
    // Spans that end at a rank or before, and those that begin behind it.
    let sides = |(below, rank): (usize, &u32)| {
        let above = lows.len() - lows.partition_point(|low| low <= rank);
        ((below + 1).min(above), *rank)
    };
    let (weight, rank) =
        highs.iter().enumerate().map(sides).max_by_key(|(weight, _)| *weight).unwrap_or((0, low));
    Err((weight, [Span::Ranks(low, rank), Span::Ranks(rank + 1, high)]))
}

/// The same of sets of states: one that most allow is told from all others.
fn divide_states(spans_needed: &[Span], states: u64) -> Result<Span, (usize, [Span; 2])> {
    let sets = || {
        spans_needed.iter().filter_map(|span| match span {
            Span::States(set) => Some(*set),
            Span::Ranks(..) => None,
        })
    };
    let common = sets().fold(states, |common, set| common & set);
    if common != 0 {
        return Ok(Span::States(common));
    }
    let allowed = |state: &u32| sets().filter(|set| set >> state & 1 == 1).count();
    let state = bits(states).max_by_key(allowed).unwrap_or(0);
    let (with, all) = (allowed(&state), sets().count());
    Err((with.min(all - with), [Span::States(1 << state), Span::States(states & !(1 << state))]))
}

/// A region without a part of it, in pieces.
fn around(spans: &Spans, part: &Spans) -> Vec<Box<Spans>> {
    let mut pieces = Vec::new();
    let mut rest: Box<Spans> = spans.into();
    for (feature, (whole, part)) in spans.iter().zip(part).enumerate() {
        let outside: Vec<Span> = match (whole, part) {
            (Some(Span::Ranks(low, high)), Some(Span::Ranks(from, to))) => {
                let below = (low < from).then(|| Span::Ranks(*low, from - 1));
                let above = (to < high).then(|| Span::Ranks(to + 1, *high));
                below.into_iter().chain(above).collect()
            }
            (Some(Span::States(all)), Some(Span::States(some))) => {
                let others = all & !some;
                (others != 0).then_some(Span::States(others)).into_iter().collect()
            }
            _ => Vec::new(),
        };
        for span in outside {
            let mut piece = rest.clone();
            piece[feature] = Some(span);
            pieces.push(piece);
        }
        rest[feature] = *part;
    }
    pieces
}
