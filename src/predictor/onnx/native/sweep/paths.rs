//! Responses: every tree is walked once per row, along the row's own path and along all paths on which a single
//! feature has left it.

use super::{
    FeatureResponses, FeatureState, LEAF, MOST_STATES, Span, SweepReach, SweepRow, SweepValues,
    Sweeper, bits,
};

/// A tree's weights change by this where a feature's values lie in a span.
#[derive(Debug, Clone, Copy)]
struct SweepEvent {
    span: Span,
    /// First weight of the leaf that is reached, and of the leaf that was.
    leaf: u32,
    leaf_of_row: u32,
}

/// Memory that sweeps use again.
#[derive(Debug, Default)]
pub(in super::super::super) struct SweepScratch {
    rows: Vec<RowScratch>,
    edges: Vec<u64>,
    sums: Vec<f64>,
    walk: PathWalk,
    /// Per state where its sums are.
    states: Vec<usize>,
}

/// One walk of one row through one tree.
#[derive(Debug, Default)]
struct PathWalk {
    /// Nodes of the row's own path, and whether it went their first way.
    path: Vec<(u32, bool)>,
    /// Spans before they were narrowed on the way.
    narrowed: Vec<(usize, Span)>,
}

/// What is known of one row while its trees are walked.
#[derive(Debug, Default)]
struct RowScratch {
    places: Vec<FeatureState>,
    /// Per feature what it may become and still come to the node that is looked at; none if it is fixed.
    spans: Vec<Option<Span>>,
    events: Vec<Vec<SweepEvent>>,
    base: Vec<f64>,
}

impl Sweeper {
    /// What would be said of rows if one feature were what it may become. Each tree is walked by all rows before the
    /// next one, while it is in the cache.
    pub(in super::super) fn sweep(
        &self,
        rows: &[SweepRow],
        scratch: &mut SweepScratch,
        found: &mut Vec<FeatureResponses>,
    ) {
        scratch.rows.resize_with(scratch.rows.len().max(rows.len()), RowScratch::default);
        found.resize_with(rows.len(), FeatureResponses::default);
        for (row, of) in rows.iter().zip(&mut scratch.rows) {
            self.begin(row, of);
        }
        let SweepScratch { rows: known, walk, .. } = &mut *scratch;
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
                    SweepReach::Fixed => {}
                    SweepReach::Numbers(low, high) => {
                        self.along((at, feature), (low, high), scratch, found);
                    }
                    SweepReach::States(states) => self.among((at, feature), states, scratch, found),
                }
            }
        }
    }

    fn begin(&self, SweepRow { original, reach }: &SweepRow, of: &mut RowScratch) {
        of.places.clear();
        of.places.extend(
            original
                .iter()
                .enumerate()
                .map(|(feature, original)| self.state_of(feature, *original)),
        );
        of.spans.clear();
        of.spans
            .extend(reach.iter().enumerate().map(|(feature, reach)| self.span(feature, *reach)));
        of.events.resize_with(reach.len(), Vec::new);
        of.events.iter_mut().for_each(Vec::clear);
        of.base.clear();
        of.base.resize(self.outputs, 0.0);
    }

    /// Walks a row's own path, and leaves it wherever a feature may go the other way.
    fn walk(&self, root: u32, of: &mut RowScratch, PathWalk { path, narrowed }: &mut PathWalk) {
        let RowScratch { places, spans, events, base } = of;
        path.clear();
        let mut at = root;
        let leaf_of_row = loop {
            let node = &self.nodes[at as usize];
            if node.feature == LEAF {
                break node.at;
            }
            let first = self.first(node, places[usize::from(node.feature)]);
            path.push((at, first));
            at = if first { at + 1 } else { node.second };
        };
        for (base, weight) in base.iter_mut().zip(&self.weights[leaf_of_row as usize..]) {
            *base += weight;
        }
        // Of a feature that was left before, only what is on the row's side of that branch is left now.
        for (at, first) in path.iter() {
            let node = &self.nodes[*at as usize];
            let feature = usize::from(node.feature);
            let Some(span) = spans[feature] else { continue };
            if let Some(other) = self.part(node, span, !first) {
                let from = if *first { node.second } else { at + 1 };
                self.stray(from, places, (feature, other), leaf_of_row, &mut events[feature]);
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
        places: &[FeatureState],
        (feature, span): (usize, Span),
        leaf_of_row: u32,
        events: &mut Vec<SweepEvent>,
    ) {
        let (mut at, mut span) = (from, span);
        loop {
            let node = &self.nodes[at as usize];
            if node.feature == LEAF {
                events.push(SweepEvent { span, leaf: node.at, leaf_of_row });
                return;
            }
            let here = usize::from(node.feature);
            if here != feature {
                at = if self.first(node, places[here]) { at + 1 } else { node.second };
                continue;
            }
            match (self.part(node, span, true), self.part(node, span, false)) {
                (Some(one), Some(two)) => {
                    self.stray(node.second, places, (feature, two), leaf_of_row, events);
                    (at, span) = (at + 1, one);
                }
                (Some(one), None) => (at, span) = (at + 1, one),
                (None, Some(two)) => (at, span) = (node.second, two),
                (None, None) => return,
            }
        }
    }

    /// The responses along a numeric feature.
    fn along(
        &self,
        (row, feature): (usize, usize),
        (low, high): (f64, f64),
        scratch: &mut SweepScratch,
        found: &mut FeatureResponses,
    ) {
        let SweepScratch { rows, edges, sums, .. } = scratch;
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
                found.values.push((feature, SweepValues::Numbers(from, to)));
                found.sums.extend_from_slice(sums);
                (from, rank) = (to, at);
            }
            let SweepEvent { leaf, leaf_of_row, .. } =
                events[feature][(edge & 0xffff_ffff) as usize >> 1];
            let (leaf, leaf_of_row) =
                if edge & 1 == 0 { (leaf, leaf_of_row) } else { (leaf_of_row, leaf) };
            let (leaf, leaf_of_row) =
                (&self.weights[leaf as usize..], &self.weights[leaf_of_row as usize..]);
            for ((sum, leaf), leaf_of_row) in sums.iter_mut().zip(leaf).zip(leaf_of_row) {
                *sum += leaf - leaf_of_row;
            }
        }
        if from < high {
            found.values.push((feature, SweepValues::Numbers(from, high)));
            found.sums.extend_from_slice(sums);
        }
    }

    /// The responses to the states of a feature.
    fn among(
        &self,
        (row, feature): (usize, usize),
        states: u64,
        scratch: &mut SweepScratch,
        found: &mut FeatureResponses,
    ) {
        let SweepScratch { rows, states: offsets, .. } = scratch;
        let RowScratch { events, base, .. } = &rows[row];
        offsets.clear();
        offsets.resize(MOST_STATES, 0);
        for state in bits(states) {
            offsets[state as usize] = found.sums.len();
            found.values.push((feature, SweepValues::State(state)));
            found.sums.extend_from_slice(base);
        }
        for SweepEvent { span, leaf, leaf_of_row } in &events[feature] {
            let Span::States(of) = span else { continue };
            let (leaf, leaf_of_row) =
                (&self.weights[*leaf as usize..], &self.weights[*leaf_of_row as usize..]);
            for state in bits(*of) {
                let first = offsets[state as usize];
                let sums = &mut found.sums[first..first + self.outputs];
                for ((sum, leaf), leaf_of_row) in sums.iter_mut().zip(leaf).zip(leaf_of_row) {
                    *sum += leaf - leaf_of_row;
                }
            }
        }
    }
}
