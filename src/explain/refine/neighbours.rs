//! Training rows of the target as counterfactuals: those that keep to the constraints as they are, else
//! what the constraints let through of the nearest; and their values, feature by feature, as single changes.

use smallvec::SmallVec;

use super::query_cache::QueryCache;
use super::{COMPETITORS, Change, Changes, Refiner};
use crate::encode::Slots;
use crate::feature::{Cell, NULL_CODE, UNSEEN_CODE};
use crate::nearest::{Index, Measure, NULL_POINT, NearestQuery, PointColumn, Points, UNSEEN_POINT};
use crate::target::Targets;

/// Rows of every decision among which neighbours are looked for where there is a counterfactual already: as good
/// as all rows for that, and quicker.
const SAMPLE_ROWS: usize = 256;
/// Values of one feature that are proposed as single changes.
const VALUES: usize = 2;

/// Neighbours, and codes of a category among them, that are held without memory of their own.
const USUAL_ROWS: usize = 32;
const USUAL_CODES: usize = 8;

/// Values of one feature that are proposed.
type Proposed = SmallVec<[Cell; VALUES]>;

/// Which rows count as neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Those that a request's row may become.
    Whole,
    /// All of the target.
    Any,
}

/// Which training rows are looked through.
#[derive(Debug, Clone, Copy)]
enum Among {
    All,
    Some,
}

/// Training rows to look for neighbours among.
pub(super) struct Neighbours {
    all: Index,
    /// Some rows of every decision.
    some: Index,
}

/// What is near to a request's row.
#[derive(Debug, Clone, Default)]
pub(super) struct NearbyChanges {
    /// What would make it like each of its nearest neighbours, as far as it may.
    pub(super) rows: Vec<Changes>,
    /// Single changes that neighbours suggest: of every feature the first …
    pub(super) first_changes: Changes,
    /// … and the second.
    pub(super) second_changes: Changes,
    /// As far as every number may go, either way: what no neighbour has may be what the model wants to see.
    pub(super) ends: Changes,
}

impl Neighbours {
    /// Decisions are so many classes; with none, they are values.
    pub(super) fn new(points: Points, classes: u32) -> Neighbours {
        Neighbours { some: Index::new(sample(&points, classes)), all: Index::new(points) }
    }
}

/// The first rows of every decision. Values of a regression count as one decision.
fn sample(points: &Points, classes: u32) -> Points {
    let mut counts = hashbrown::HashMap::new();
    let mut rows: Vec<usize> = Vec::new();
    for (row, decision) in points.decisions.iter().enumerate() {
        let count: &mut usize =
            counts.entry(if classes > 0 { *decision as i64 } else { 0 }).or_default();
        *count += 1;
        if *count <= SAMPLE_ROWS {
            rows.push(row);
        }
    }
    let column = |column: &PointColumn| match column {
        PointColumn::Numbers(all) => {
            PointColumn::Numbers(rows.iter().map(|row| all[*row]).collect())
        }
        PointColumn::Codes(all) => PointColumn::Codes(rows.iter().map(|row| all[*row]).collect()),
    };
    Points {
        len: rows.len(),
        columns: points.columns.iter().map(column).collect(),
        decisions: rows.iter().map(|row| points.decisions[*row]).collect(),
        // Nobody becomes one of these as a whole, to the last bit.
        exact: Vec::new(),
    }
}

impl Refiner {
    /// What is near to a request's row that has no counterfactual yet: among all rows, those that it may become, or,
    /// if there is none, others as far as it may become them.
    pub(super) fn nearby(&self, cache: &QueryCache<'_>, request: u32) -> NearbyChanges {
        self.look(cache, request, Among::All, self.job.neighbours)
    }

    /// What is near to a request's row that has one.
    pub(super) fn nearby_sampled(&self, cache: &QueryCache<'_>, request: u32) -> NearbyChanges {
        self.look(cache, request, Among::Some, COMPETITORS)
    }

    /// What would make a request's row like the nearest one that it may become.
    pub(in crate::explain) fn nearest(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
    ) -> Option<Changes> {
        let index = &self.neighbours.as_ref()?.all;
        let found = index.search(&self.query(cache, request, Fit::Whole), 1);
        found.first().map(|found| self.changes_toward(index, cache, request, found.row))
    }

    /// What would make a request's row like the nearest ones of its target, as far as it may.
    pub(in crate::explain) fn toward_nearest(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
        rows: usize,
    ) -> Vec<Changes> {
        let Some(index) = self.training_rows() else { return Vec::new() };
        let found = index.search(&self.query(cache, request, Fit::Any), rows);
        found.iter().map(|found| self.changes_toward(index, cache, request, found.row)).collect()
    }

    /// The training rows that are kept.
    pub(in crate::explain) fn training_rows(&self) -> Option<&Index> {
        self.neighbours.as_ref().map(|neighbours| &neighbours.all)
    }

    /// Looks at a request's neighbours; of the first few all changes are given. Rows whose values are
    /// transplanted need not be the nearest of all.
    fn look(
        &self,
        cache: &QueryCache<'_>,
        request: u32,
        among: Among,
        rows: usize,
    ) -> NearbyChanges {
        let Some(neighbours) = &self.neighbours else { return NearbyChanges::default() };
        let k = self.job.neighbours;
        let mut index = match among {
            Among::All => &neighbours.all,
            Among::Some => &neighbours.some,
        };
        let mut found = index.search(&self.query(cache, request, Fit::Whole), k);
        if found.is_empty() {
            index = &neighbours.some;
            found = index.search(&self.query(cache, request, Fit::Any), k);
        }
        if found.is_empty() {
            index = &neighbours.all;
            found = index.search(&self.query(cache, request, Fit::Any), k);
        }
        let found: Vec<u32> = found.into_iter().map(|found| found.row).collect();
        let changes = |row: &u32| self.changes_toward(index, cache, request, *row);
        let mut lists: Vec<Changes> = found.iter().take(rows).map(changes).collect();
        lists.retain(|changes| !changes.is_empty());
        let [first_changes, second_changes] = self.singles_of(index, cache, request, &found);
        let ends = if self.asks_generator() { Changes::new() } else { self.ends(cache, request) };
        NearbyChanges { rows: lists, first_changes, second_changes, ends }
    }

    /// Both ends of what every number of a request's row may become.
    fn ends(&self, cache: &QueryCache<'_>, request: u32) -> Changes {
        let feasible = cache.feasible(request);
        let of = |feature: usize| {
            let Cell::Number(original) = cache.original(request, feature) else { return None };
            let (low, high) = feasible.interval(feature, original)?;
            Some(
                [low, high].map(|end| (feature, feasible.number(feature, end, original), original)),
            )
        };
        let ends = (0..self.layout.slots.len()).filter_map(of).flatten();
        let ends = ends.filter(|(_, end, original)| end != original && end.is_finite());
        ends.map(|(feature, end, _)| Change { feature, cell: Cell::Number(end) }).collect()
    }

    /// Of every feature the values that neighbours have most to say for.
    fn singles_of(
        &self,
        index: &Index,
        cache: &QueryCache<'_>,
        request: u32,
        rows: &[u32],
    ) -> [Changes; VALUES] {
        let feasible = cache.feasible(request);
        let positions: SmallVec<[u32; USUAL_ROWS]> =
            rows.iter().map(|row| index.position(*row) as u32).collect();
        let mut ranked: [Changes; VALUES] = Default::default();
        for (feature, slots) in self.layout.slots.iter().enumerate() {
            let original = cache.original(request, feature);
            let found: Proposed = match (slots, index.column(feature), original) {
                (Slots::Numeric(slots), PointColumn::Numbers(numbers), Cell::Number(number)) => {
                    let found = positions.iter().map(|position| numbers[*position as usize]);
                    let values = characteristic(found, slots.standardised(number));
                    let plain = |number: f32| f64::from(number) * slots.std + slots.mean;
                    values.into_iter().map(|number| Cell::Number(plain(number))).collect()
                }
                (_, PointColumn::Codes(codes), _) => {
                    commonest(positions.iter().map(|position| codes[*position as usize]), original)
                }
                _ => unreachable!("rows and layout are of one schema"),
            };
            let cells = found.into_iter().map(|found| feasible.toward(feature, found, original));
            let mut cells: Proposed = cells.filter(|cell| *cell != original).collect();
            cells.dedup();
            for (cell, into) in cells.into_iter().zip(&mut ranked) {
                into.push(Change { feature, cell });
            }
        }
        ranked
    }

    fn query(&self, cache: &QueryCache<'_>, request: u32, fit: Fit) -> NearestQuery {
        let target = match &cache.batch.targets {
            Targets::Ranges { low, high } => (low[request as usize], high[request as usize]),
            Targets::Classes { classes, .. } | Targets::Distributions { classes, .. } => {
                let class = f64::from(classes[request as usize]);
                (class, class)
            }
        };
        let features = 0..self.layout.slots.len();
        let features = features.map(|feature| self.measure(cache, request, feature, fit)).collect();
        NearestQuery { features, target }
    }

    fn measure(&self, cache: &QueryCache<'_>, request: u32, feature: usize, fit: Fit) -> Measure {
        let feasible = cache.feasible(request);
        let whole = fit == Fit::Whole;
        match (&self.layout.slots[feature], cache.original(request, feature)) {
            (Slots::Numeric(slots), Cell::Number(original)) => {
                let reach = feasible.interval(feature, original).unwrap_or((original, original));
                // What follows from others is whatever they make it.
                let whole = whole && !cache.worker.shared.constraints.is_derived(feature);
                Measure::Number {
                    original: slots.standardised(original),
                    scale: self.costs.scale(feature) as f32,
                    low: slots.standardised(reach.0),
                    high: slots.standardised(reach.1),
                    outside: if whole { f32::INFINITY } else { 0.0 },
                }
            }
            (Slots::Categorical(slots), Cell::Code(original)) => {
                let plain = |code: u32| self.costs.category(feature, code, original) as f32;
                let cost = |code: u32| match code {
                    code if code == original => 0.0,
                    code if !whole || feasible.allows(feature, code, original) => plain(code),
                    _ => f32::INFINITY,
                };
                let beyond = |code: u32| if whole { f32::INFINITY } else { plain(code) };
                let state = |code: u32| if code == original { 0.0 } else { beyond(code) };
                Measure::Codes {
                    costs: (0..slots.values as u32).map(cost).collect(),
                    other_null: state(NULL_CODE),
                    other_unseen: state(UNSEEN_CODE),
                }
            }
            _ => unreachable!("rows and layout are of one schema"),
        }
    }

    /// What a request's row has to change to be like a training row, as far as it may.
    fn changes_toward(
        &self,
        index: &Index,
        cache: &QueryCache<'_>,
        request: u32,
        row: u32,
    ) -> Changes {
        let feasible = cache.feasible(request);
        let change = |(feature, slots): (usize, &Slots)| {
            let original = cache.original(request, feature);
            let found = match slots {
                Slots::Numeric(slots) => {
                    let number = index.number(feature, row);
                    // Where the numbers are the same, so are the values, whatever rounding says.
                    let same = matches!(original, Cell::Number(original) if slots.standardised(original) == number);
                    if same {
                        return None;
                    }
                    let decoded = || f64::from(number) * slots.std + slots.mean;
                    Cell::Number(index.exact(feature, row).unwrap_or_else(decoded))
                }
                Slots::Categorical(_) => match index.code(feature, row) {
                    NULL_POINT | UNSEEN_POINT => return None,
                    code => Cell::Code(u32::from(code)),
                },
            };
            let cell = feasible.toward(feature, found, original);
            (cell != original).then_some(Change { feature, cell })
        };
        self.layout.slots.iter().enumerate().filter_map(change).collect()
    }
}

/// Of numbers on the side of the original where most are: the farthest, and the one in the middle.
fn characteristic(numbers: impl Iterator<Item = f32>, original: f32) -> SmallVec<[f32; VALUES]> {
    let mut off: SmallVec<[f32; USUAL_ROWS]> =
        numbers.map(|number| number - original).filter(|off| off.abs() > 0.0).collect();
    let up = off.iter().filter(|off| **off > 0.0).count();
    let side = if 2 * up >= off.len() { 1.0 } else { -1.0 };
    off.retain(|off| *off * side > 0.0);
    if off.is_empty() {
        return SmallVec::new();
    }
    // All are on one side, so that the order of their sizes is that of their bits.
    let mut sizes: SmallVec<[u32; USUAL_ROWS]> =
        off.iter().map(|off| off.abs().to_bits()).collect();
    let farthest = sizes.iter().fold(0, |farthest, size| farthest.max(*size));
    let middle = sizes.len() / 2;
    let middle = *sizes.select_nth_unstable(middle).1;
    [farthest, middle].map(|size| original + side * f32::from_bits(size)).into()
}

/// The commonest codes beside the original.
fn commonest(codes: impl Iterator<Item = u16>, original: Cell) -> Proposed {
    let mut counts: SmallVec<[(u16, usize); USUAL_CODES]> = SmallVec::new();
    let other = |code: &u16| {
        !matches!(*code, NULL_POINT | UNSEEN_POINT) && Cell::Code(u32::from(*code)) != original
    };
    for code in codes.filter(other) {
        match counts.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => counts.push((code, 1)),
        }
    }
    // Of equally common ones that of the nearer neighbour.
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.iter().take(VALUES).map(|(code, _)| Cell::Code(u32::from(*code))).collect()
}
